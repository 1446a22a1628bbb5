"""The contract: what every device does, and the few hooks that a kind of device fills in.

Everything that a user calls stands here once. What a device has not got raises `Unsupported` by name. A device kind lives in a
folder of its own and implements the hooks at the end.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Final, NoReturn

from vyre_py.drivers.errors import BindingError, DeviceLost, DriverError, OutOfMemory
from vyre_py.drivers.hostarray import Bytes, Host, host_array
from vyre_py.drivers.launch import Launch, LaunchPlan
from vyre_py.drivers.pipeline import Pipeline
from vyre_py.drivers.resident import Allocation, Buffer, whole_sizes
from vyre_py.drivers.telemetry import Telemetry
from vyre_py.ir.check import Checked, check
from vyre_py.ir.errors import shown
from vyre_py.ir.program import Program
from vyre_py.ir.types import Type, scalar_of
from vyre_py.lowering.artifact import Artifact, Entry, Step
from vyre_py.lowering.compile import compile_for
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target

__all__ = ["Device", "Limits"]

_CACHED_PIPELINES: Final = 256


@dataclass(frozen=True, slots=True)
class Limits:
    """What a device can take: workgroups along x, y, z; invocations in a workgroup; bytes of workgroup memory; bytes of one buffer."""

    workgroups: tuple[int, int, int]
    invocations: int
    workgroup_bytes: int
    buffer_bytes: int


class Device(ABC):
    """A machine that runs Programs. Use `vyre_py.device(name)`, which gives the same object for the same name.

    Attributes: `kind` ("cuda", "wgpu", "cpu", "reference"), `ordinal`, `target` that it compiles for, `limits`, `telemetry`,
    `description` for people, `is_software` where a program on the CPU stands in for another machine, `dlpack_device` the kind and number that
    DLPack has for its memory, None where that can't be shared.
    """

    kind: ClassVar[str]
    is_software: bool = False
    dlpack_device: tuple[int, int] | None = None
    honoured_options: ClassVar[frozenset[str]] = frozenset({"label", "grid", "max_output_bytes"})

    def __init__(self, ordinal: int, target: Target, limits: Limits, description: str) -> None:
        self.ordinal = ordinal
        self.target = target
        self.limits = limits
        self.description = description
        self.telemetry = Telemetry()
        self._pipelines: OrderedDict[Any, Pipeline] = OrderedDict()
        self._lock = threading.Lock()
        self._closed = False
        self._lost: str | None = None

    @property
    def name(self) -> str:
        """`kind:ordinal`."""
        return f"{self.kind}:{self.ordinal}"

    def __repr__(self) -> str:
        return f"<Device {self.name}: {self.description}>"

    # ---- cold: compile and load

    def compile_native(self, program: Program | Checked, options: CompileOptions | None = None) -> Pipeline:
        """Compiles for this device and loads the code; the same Program and options give the same pipeline from memory.

        Raises ValidationError, Unsupported, ToolchainError, DeviceLost.
        """
        self.require_usable()
        options = CompileOptions.given(options)
        if not isinstance(program, Checked) and not (isinstance(program, Program) and "code_digest" in vars(program)):
            program = check(program)  # before its digest: what breaks a rule may have none, or one that takes forever
        plain = program.program if isinstance(program, Checked) else program
        key = (plain.code_digest, plain.interface_digest, options)
        with self._lock:
            if (found := self._pipelines.get(key)) is not None:
                self._pipelines.move_to_end(key)
                self.telemetry.memory_cache_hits += 1
                return found
        made = self.load(compile_for(program, [self.target], options))
        self.telemetry.compiles += 1
        with self._lock:
            self._pipelines[key] = made
            while len(self._pipelines) > _CACHED_PIPELINES:
                self._pipelines.popitem(last=False)
        return made

    def load(self, artifact: Artifact) -> Pipeline:
        """A pipeline from compiled code. Raises Unsupported when no part is for this device, or the code is over its limits."""
        self.require_usable()
        if not isinstance(artifact, Artifact):
            raise Unsupported(self.name, [Missing(f"loading {shown(artifact)}", help="load takes an Artifact, which compile_native gives")])
        fitting = [part for part in artifact.parts if self._accepts(part.target)]
        if not fitting:
            raise Unsupported(self.name, [Missing(f"code for {', '.join(artifact.targets) or 'no target'}", help=f"compile for {self.target}")])
        part = fitting[-1]
        for step in part.steps:
            self._check_limits(step)
        return Pipeline(self, artifact, part, tuple(tuple(self._load_entry(step, e) for e in step.entries) for step in part.steps))

    def _accepts(self, target: Target) -> bool:
        """Whether code for a target runs here."""
        return target.kind == self.target.kind

    def _check_limits(self, step: Step) -> None:
        x, y, z = step.workgroup
        over = []
        if x * y * z > self.limits.invocations:
            over.append(Missing(f"workgroups of {x * y * z} invocations", help=f"the limit is {self.limits.invocations}"))
        if step.workgroup_bytes > self.limits.workgroup_bytes:
            over.append(Missing(f"{step.workgroup_bytes} bytes of workgroup memory", help=f"the limit is {self.limits.workgroup_bytes}"))
        if over:
            raise Unsupported(self.name, over)

    # ---- memory

    def allocate(self, shape: int | Sequence[int], type_: Type) -> Buffer:
        """A resident buffer of zeros. Raises OutOfMemory, BindingError for a size that is none."""
        self.require_usable()
        sizes = whole_sizes(shape)
        if sizes is None:
            raise BindingError("allocate", [f"shape {shown(shape)} is not one or more whole numbers that an array can have"])
        if not isinstance(type_, Type):
            raise BindingError("allocate", [f"a type of the language is needed, got {shown(type_)}"])
        size_bytes = prod(sizes) * type_.size_bytes
        if size_bytes > self.limits.buffer_bytes:
            raise OutOfMemory(
                f"{self.name} cannot allocate {shown(size_bytes)} bytes",
                meaning=f"one buffer holds at most {self.limits.buffer_bytes} bytes",
                remedy="ask for less, or split the data",
            )
        handle = self._allocate(size_bytes)
        self.telemetry.allocations += 1
        self.telemetry.bytes_allocated += size_bytes
        return Buffer(self, Allocation(self, handle, size_bytes), 0, sizes, type_)

    def upload(self, array: Any, type_: Type | None = None) -> Buffer:
        """A resident copy of a host array: anything with the buffer protocol or `__array__`, any strides. Elements are scalars; as vectors
        of `type_` the components lie along the array's last axis.

        Raises BindingError for elements that are of no type of the language, or not of `type_`; OutOfMemory.
        """
        data = host_array(array, "array")
        if type_ is not None and not isinstance(type_, Type):
            raise BindingError("upload", [f"a type of the language is needed, got {shown(type_)}"])
        element = type_ or scalar_of(data.dtype)
        if element is None or element.dtype != data.dtype:
            wanted = "none of the language's types; np.asarray(x, np.float32) converts" if element is None else f"not {element}"
            raise BindingError("upload", [f"dtype {data.dtype} is {wanted}"])
        if element.is_vector and data.shape[-1:] != (element.lanes,):
            raise BindingError("upload", [f"{element} needs an array whose last axis has {element.lanes} components, got shape {list(data.shape)}"])
        buffer = self.allocate((data.shape[:-1] if element.is_vector else data.shape) or (1,), element)
        buffer.write(data.reshape(buffer.host_shape))
        return buffer

    def wrap(self, array: Any) -> Buffer:
        """A buffer over memory of another library on this device, without a copy: anything with `__dlpack__` or, on CUDA,
        `__cuda_array_interface__`, or a NumPy array on the CPU. `bind` takes such objects as they are.

        The memory is kept alive by the buffer, and is ready for what is launched from now on. Raises BindingError for memory elsewhere, that is
        not C-contiguous, or whose elements are no type of the language; Buffer.free lets go of it.
        """
        from vyre_py.drivers.exchange import wrap  # made of what devices and buffers are

        return wrap(self, array)

    def download(self, buffer: Buffer, out: Host | None = None) -> Host:
        """A host copy of a resident buffer; waits for the launches before it. `out` of the same shape and dtype is written in place."""
        if not isinstance(buffer, Buffer):
            raise BindingError("download", [f"a buffer is needed, got {type(buffer).__name__}"])
        return buffer.read(out)

    # ---- life

    def synchronize(self) -> None:
        """Waits until everything launched so far is done. Raises what went wrong since the last wait."""
        self.require_usable()
        self.telemetry.syncs += 1
        self._synchronize()

    def warmup(self) -> None:
        """Does now what the first call would do: context, compiler, caches."""
        self.require_usable()
        self._warmup()

    def trim(self) -> None:
        """Drops cached pipelines and pooled memory; resident buffers stay."""
        with self._lock:
            self._pipelines.clear()
        self._trim()

    def close(self) -> None:
        """Frees everything; later calls raise DeviceLost. Closing twice, and in any order with buffers, is quiet."""
        if self._closed:
            return
        self._closed = True
        with self._lock:
            self._pipelines.clear()
        self._close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def require_usable(self) -> None:
        """Raises DeviceLost once the device was closed or lost."""
        if self._closed:
            raise DeviceLost(f"{self.name} is closed", remedy="ask vyre_py.device() for it again")
        if self._lost is not None:
            raise DeviceLost(f"{self.name} is lost; the first cause was: {self._lost}", remedy="start a new process")

    def _mark_lost(self, error: DriverError) -> None:
        """Remembers the first error that made the device unusable."""
        if self._lost is None:
            self._lost = str(error)

    # ---- named by the contract: a device kind that has one overrides it, the others refuse by name

    def _lacks(self, what: str) -> NoReturn:
        raise Unsupported(self.name, [Missing(what)])

    @property
    def raw(self) -> Any:
        """The device library's own handles."""
        self._lacks("raw handles")

    def sequence(self, *launches: Launch) -> Any:
        """Many launches as one call."""
        self._lacks("sequence")

    def capture(self, function: Any) -> Any:
        """A replayable graph of what `function` launches."""
        self._lacks("capture")

    def record_event(self, stream: Any = None) -> Any:
        """An event after what is enqueued so far."""
        self._lacks("record_event")

    def wait_event(self, event: Any, stream: Any = None) -> None:
        """Makes a stream wait for an event."""
        self._lacks("wait_event")

    def pinned(self, shape: int | Sequence[int], type_: Type) -> Any:
        """Page-locked host memory."""
        self._lacks("pinned host memory")

    def arena(self, plan: Any) -> Any:
        """One allocation laid out for a chain of launches."""
        self._lacks("arena")

    # ---- hooks of a device kind. Sizes and offsets are in bytes; `handle` is whatever `_allocate` gave.

    @abstractmethod
    def _allocate(self, size_bytes: int) -> Any:
        """Zeroed memory (size 0 is allowed). Raises OutOfMemory."""

    @abstractmethod
    def _free(self, handle: Any, size_bytes: int) -> None:
        """Gives memory back once nothing launched so far uses it. Never raises; may be called from a finaliser or after close."""

    @abstractmethod
    def _write(self, handle: Any, offset: int, source: Bytes) -> None:
        """Copies contiguous host bytes in; the source may be reused on return."""

    @abstractmethod
    def _read(self, handle: Any, offset: int, target: Bytes) -> None:
        """Waits for the launches before, then copies bytes out into contiguous host memory."""

    @abstractmethod
    def _copy(self, source: Any, source_offset: int, target: Any, target_offset: int, size_bytes: int) -> None:
        """Copies device memory to device memory; the ranges do not overlap."""

    # A device with a `dlpack_device` has these as well.

    def _address(self, handle: Any) -> int | None:
        """The address of an allocation, where handles have one."""
        return None

    def _adopt(self, address: int, size_bytes: int) -> Any:
        """A handle for memory at an address that another library owns."""
        self._lacks("memory of other libraries")

    def _leave(self, handle: Any) -> None:  # noqa: B027 - a device that adopts nothing has nothing to leave
        """Waits until nothing launched so far uses memory of another library. Never raises."""

    def _exchange_stream(self) -> int | None:
        """The stream that everything goes through, where there are streams."""
        return None

    def _order(self, first: int | None, then: int | None) -> None:  # noqa: B027 - a device without streams has no order to make
        """Has what is enqueued on stream `then` from now on wait for what stream `first` holds; None is the device's own."""

    @abstractmethod
    def _load_entry(self, step: Step, entry: Entry) -> Any:
        """Loads one entry's code: whatever `_make_launch` needs of it. Raises ToolchainError, DeviceLost."""

    @abstractmethod
    def _make_launch(self, plan: LaunchPlan, code: Any) -> Launch:
        """A launch for a plan, over code that `_load_entry` gave."""

    @abstractmethod
    def _synchronize(self) -> None:
        """Waits for everything."""

    def _warmup(self) -> None:  # noqa: B027 - a device with nothing to prepare has nothing to do
        """Prepares the device."""

    def _trim(self) -> None:  # noqa: B027 - a device without pools has nothing to drop
        """Drops pooled memory."""

    @abstractmethod
    def _close(self) -> None:
        """Gives the device back."""
