"""The contract: what every device does, and the few hooks that a kind of device implements.

Every public method is defined here once. A method that a device lacks raises `Unsupported` by name. A device kind has a folder of its own and
implements the hooks at the end.

One module because the contract is read as a whole.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

import numpy as np

from vyre_py.drivers.callable import CallEntry
from vyre_py.drivers.dispatch import Run
from vyre_py.drivers.errors import BindingError, DeviceLost, DriverError, OutOfMemory
from vyre_py.drivers.event import Event
from vyre_py.drivers.launch import Launch, LaunchPlan
from vyre_py.drivers.lru import Bounded, LayerSnapshot
from vyre_py.drivers.many.commands import TURN_LIMIT, Command, CommandRunner
from vyre_py.drivers.memory.allocation import Allocation
from vyre_py.drivers.memory.buffer import Buffer, whole_sizes
from vyre_py.drivers.memory.constants import Constants
from vyre_py.drivers.memory.host_arrays import Bytes, Host, components_of, element_of, host_array
from vyre_py.drivers.observe.telemetry import Telemetry
from vyre_py.drivers.observe.trace import EVENT_LIMIT, Trace, observe, spanned, trace, tracing
from vyre_py.drivers.pipeline import Pipeline
from vyre_py.drivers.reports import Reports
from vyre_py.ir.cached import cached_property
from vyre_py.ir.check import Checked
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.imports import deferred, importing
from vyre_py.ir.language.dims import SIZE_LIMIT
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, f16
from vyre_py.ir.public import Closing, public
from vyre_py.ir.travel import Stationary, ValueRecord
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.artifact.parts import Entry, Image, Part, Step
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.stages import Stopwatch
from vyre_py.lowering.target import Target

if TYPE_CHECKING:
    from vyre_py.drivers.many.chain import Chain
    from vyre_py.drivers.many.collectives import CollectiveStep, Communicator, Transfer
    from vyre_py.drivers.many.graph import Graph
    from vyre_py.drivers.many.rank_watch import RankWatch
    from vyre_py.drivers.many.sequence import GemmStep, SequenceStep
    from vyre_py.drivers.many.sequence import Sequence as LaunchSequence
    from vyre_py.drivers.memory.arena.arena import Arena, ArenaPool
    from vyre_py.drivers.memory.arena.planner import ArenaPlan
    from vyre_py.drivers.memory.store import ResidentStore
    from vyre_py.drivers.memory.strided import StridedCopy
    from vyre_py.drivers.memory.weights import Weights
    from vyre_py.drivers.pending import Pending

if TYPE_CHECKING:
    from vyre_py.drivers import pending
    from vyre_py.drivers.cache import lookup
    from vyre_py.drivers.many import graph, sequence
    from vyre_py.drivers.memory import peer, store, strided
    from vyre_py.drivers.memory import ranges as range_copies
    from vyre_py.drivers.memory.arena import arena
    from vyre_py.ir.language import digest
else:  # what code that others compiled is loaded and dispatched without
    (pending,) = deferred("vyre_py.drivers", "pending")
    (lookup,) = deferred("vyre_py.drivers.cache", "lookup")
    graph, sequence = deferred("vyre_py.drivers.many", "graph", "sequence")
    peer, range_copies, store, strided = deferred("vyre_py.drivers.memory", "peer", "ranges", "store", "strided")
    (arena,) = deferred("vyre_py.drivers.memory.arena", "arena")
    (digest,) = deferred("vyre_py.ir.language", "digest")

__all__ = ["Device", "Limits"]

_LOADED: Final = "load takes an Artifact: vp.compile_native makes one, and vp.Artifact.load(path or bytes) reads one"
# Pipelines, and loaded code, that each device keeps: entries, and bytes of code. A pipeline itself is small.
_CACHED: Final = 256
_CACHED_BYTES: Final = 256 << 20
_PIPELINE_BYTES: Final = 8 << 10
_FILL_BYTES: Final = 1 << 20


@public
@dataclass(frozen=True, slots=True)
class Limits(ValueRecord):
    """The limits of a device: workgroups along x, y, z; invocations in a workgroup; bytes of workgroup memory; bytes and elements of one
    buffer, the components of vectors each counted."""

    workgroups: tuple[int, int, int]
    invocations: int
    workgroup_bytes: int
    buffer_bytes: int
    elements: int = SIZE_LIMIT - 1


@public
class Device(Closing, Stationary, ABC):
    """A machine that runs Programs. Use `vyre_py.device(name)`, which gives the same object for the same name.

    Attributes: `kind` ("cuda", "wgpu", "cpu", "reference"), `ordinal`, `target` that it compiles for, `limits`, `telemetry`,
    `description` for people, `is_software` where a program on the CPU stands in for another machine, `dlpack_device` the kind and number that
    DLPack has for its memory, None where that can't be shared. `on_print`, None at first, is a function that gets each line which Programs print, in place of
    the standard output.
    """

    travels_as = "send its name, and open it there with vyre_py.device(name)"

    kind: ClassVar[str]
    is_software: bool = False
    dlpack_device: tuple[int, int] | None = None
    sizes_are_words: ClassVar[bool] = False  # whether code reads sizes in 32 bits, of those that it takes whole, too
    takes_wide: ClassVar[bool] = False  # whether a buffer whose indices have 64 bits may have more elements than `limits` says (`_widen`)
    ends_kernels: ClassVar[bool] = True  # whether a launch that takes longer than its timeout is ended; else the call gives up, and it runs on
    reads_grids: ClassVar[bool] = False  # whether a launch can read its grid from a buffer
    reopens: ClassVar[bool] = False  # whether a lost device can be opened anew in the same process
    observes_launches: ClassVar[bool] = False  # whether `_observe` is all that traces of launches need
    honoured_options: ClassVar[frozenset[str]] = frozenset(
        {"label", "grid", "max_output_bytes", "fixpoint", "fixpoint_limit", "on_print"}
    )

    def __init__(self, ordinal: int, target: Target, limits: Limits, description: str) -> None:
        self.ordinal = ordinal
        self.target = target
        self.limits = limits
        self.description = description
        self.telemetry = Telemetry(self.name)
        self._pipelines: Bounded[Pipeline] = Bounded(_CACHED, _CACHED_BYTES)
        self._codes: Bounded[tuple[Any, ...]] = Bounded(_CACHED, _CACHED_BYTES)
        self.telemetry.gauge("pipelines", self._pipelines.__len__)
        self.telemetry.gauge("arena_kept_bytes", lambda: self.arenas.kept_bytes if "arenas" in vars(self) else 0)
        self.constants = Constants(self)
        self._lock = threading.Lock()
        self._closed = False
        self._lost: str | None = None
        self._recording: graph.Recording | None = None
        self.reports = Reports()
        self.on_print: Callable[[str], object] | None = None
        observe(self)

    @property
    def name(self) -> str:
        """`kind:ordinal`."""
        return f"{self.kind}:{self.ordinal}"

    def __repr__(self) -> str:
        return f"<Device {self.name}: {self.description}>"

    # ---- cold: compile and load

    @spanned("compile", lambda device: {"target": str(device.target)})
    def compile_native(self, program: Program | Checked | bytes, options: CompileOptions | None = None) -> Pipeline:
        """Compiles for this device and loads the code; the same Program and options give the same pipeline from memory, and code that any process of this
        user has compiled comes from the disk cache. Bytes are what `Program.to_bytes` wrote.

        Raises WireError, ValidationError, Unsupported, ToolchainError, DeviceLost; CacheError where VYRE_CACHE_DIR is set and empty.
        """
        self.require_usable()
        options = CompileOptions.given(options)
        watch = Stopwatch()
        if not isinstance(program, Checked) and not (isinstance(program, Program) and "code_digest" in vars(program)):
            with watch("check"):
                program = lookup.validated(program)  # before its digest: what breaks a rule may have none, or one that takes forever
        plain = program.program if isinstance(program, Checked) else program
        key = (plain.code_digest, plain.interface_digest, options, digest.places_digest(plain) if options.debug or plain.reports else b"")
        if (found := self._pipelines.get(key)) is not None:
            self.telemetry.memory_cache_hits += 1
            return found
        if not isinstance(program, Checked):
            with watch("check"):
                program = lookup.validated(program)
        made = self.load(lookup.compiled(program, [self.target.for_program(plain)], options, watch.stages, self.telemetry))
        made._source = plain, options
        if (traces := tracing()) is not None:
            traces.stages(made.part.stages, self)
        self._pipelines.put(key, made, _PIPELINE_BYTES)
        return made

    def preload(self, artifacts: Artifact | Iterable[Artifact]) -> list[Pipeline]:
        """Loads artifacts, or one, now, so that what is asked for later is there: a pipeline for each. Compiling a Program that one of them was made from,
        with the same options by the same compilers, then only looks it up, on every device of the process; an artifact is believed in what it says that it
        was made from. Raises what `load` raises, for the first that does not fit."""
        pipelines = [self.load(artifact) for artifact in ([artifacts] if isinstance(artifacts, Artifact) else artifacts)]
        for pipeline in pipelines:
            lookup.adopt(pipeline.artifact, pipeline.part)
        return pipelines

    @spanned("load", lambda device: {})
    def load(self, artifact: Artifact) -> Pipeline:
        """A pipeline from compiled code: the part that fits best. Raises Unsupported where no part is for this device, or the code exceeds its limits;
        ToolchainError for malformed code; OutOfMemory, DeviceLost."""
        self.require_usable()
        if not isinstance(artifact, Artifact):
            raise Unsupported(self.name, [Missing(f"loading {shown(artifact)}", help=_LOADED)])
        part = self._best_part(artifact)
        for step in part.steps:
            self._check_limits(step)
        watch = Stopwatch(part.stages)
        with watch("load"):
            codes = tuple([self._loaded(step, self._best_image(part, step)) for step in part.steps])
        return Pipeline(self, artifact, part, codes, watch.stages)

    def _loaded(self, step: Step, image: Image) -> tuple[Any, ...]:
        """The code of a step, loaded once for all pipelines that have the same."""
        if image.program is not None:
            return self._load_step(step, image)
        entries = tuple([(entry.symbol, *sorted(entry.details.items())) for entry in step.entries])
        key = (image.format, image.code, image.data, entries, step.workgroup, step.workgroup_bytes, *[slot.kind for slot in step.layout.slots])
        return self._codes.get_or_put(key, lambda: self._load_step(step, image), lambda _: len(image.code) + len(image.data))

    def cache_layers(self) -> dict[str, LayerSnapshot]:
        """The content and counters of each layer of caches, by name: `vyre_py.cache_layers()`, and "modules", the code that is loaded here, and "pipelines",
        by Program and options. Code that was evicted is unloaded once no pipeline uses it."""
        return {**lookup.cache_layers(), "modules": self._codes.snapshot(), "pipelines": self._pipelines.snapshot()}

    def _best_part(self, artifact: Artifact) -> Part:
        """The part that fits best; of several that fit as well, the last. Raises Unsupported that lists what there is."""
        best = max(((fit, number) for number, part in enumerate(artifact.parts) if (fit := self._fit(part)) is not None), default=None)
        if best is None:
            inside = [Missing(f"code for {part.target}", help=self._misfit(part)) for part in artifact.parts]
            raise Unsupported(self.name, inside or [Missing("code for no target", help=f"compile for {self.target}")])
        return artifact.parts[best[1]]

    def _fit(self, part: Part) -> int | None:
        """How well code of a part fits, more is better; None where it does not run here."""
        return 0 if part.target.kind == self.target.kind else None

    def _misfit(self, part: Part) -> str:
        """The remedy for code that does not run here, with the reason where it is not obvious."""
        return f"compile for {self.target}"

    def _best_image(self, part: Part, step: Step) -> Image:
        """The code of a step to load, of a part that fits."""
        return step.images[0]

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
        """A resident buffer of zeros. Raises OutOfMemory, BindingError for an invalid size.

        In a captured function on CUDA it is memory of the graph, zeroed at that place in each replay. Memory that the function frees exists in between, for
        the graph only (BindingError outside). Memory that it leaves exists from the first replay on; each further replay frees it and allocates it anew, and
        `graph.close` frees it. Meanwhile launches, other graphs, copies, fills and reads may use it in the order of the device's own stream. It must not be
        freed (BindingError), used on other streams (LaunchError), or handed to other libraries (BufferError). It must not be used before the first replay, nor
        after the graph was instantiated again (BindingError). It outlives a graph that is dropped without `close`.

        OutOfMemory for more than a replay can have at that place leaves the capture as it was; a replay may raise it, too. Loops, graphs that become part of
        others, drivers without pools of memory and other devices refuse to allocate in a capture (LaunchError).
        """
        self.require_usable()
        sizes = whole_sizes(shape)
        if sizes is None:
            raise BindingError("allocate", [f"shape {shown(shape)} is not one or more whole numbers that an array can have"])
        if not isinstance(type_, Type):
            raise BindingError("allocate", [f"a type of the language is needed, got {shown(type_)}"])
        if self._recording is not None:
            return self._recording.allocate(sizes, type_)
        return self._new_buffer(sizes, type_, self._allocate)

    def _new_buffer(self, sizes: tuple[int, ...], type_: Type, allocate: Callable[[int], Any]) -> Buffer:
        """A buffer over memory that a hook gives. Raises OutOfMemory."""
        size_bytes = prod(sizes) * type_.size_bytes
        return Buffer(self, Allocation(self, self._new_memory(size_bytes, allocate), size_bytes), 0, sizes, type_)

    def _new_memory(self, size_bytes: int, allocate: Callable[[int], Any]) -> Any:
        """A handle for memory that a hook gives (`_allocate`, `_allocate_unset`), counted. Raises OutOfMemory."""
        self.require_no_capture(f"{self.name} cannot allocate memory")
        if size_bytes > self.limits.buffer_bytes:
            raise OutOfMemory(
                f"{self.name} cannot allocate {shown(size_bytes)} bytes",
                meaning=f"one buffer holds at most {self.limits.buffer_bytes} bytes",
                remedy="ask for less, or split the data",
            )
        handle = allocate(size_bytes)
        self.telemetry.allocations += 1
        self.telemetry.bytes_allocated += size_bytes
        return handle

    def upload(self, array: Any, type_: Type | None = None) -> Buffer:
        """A resident copy of a host array: anything with the buffer protocol or `__array__`, any strides. Elements are scalars; as vectors
        of `type_` the components lie along the array's last axis. Complex numbers are vectors of two: complex64 is f32x2, complex128 f64x2.

        Raises BindingError for elements that are of no type of the language, or not of `type_`; OutOfMemory.
        """
        data = host_array(array, "array")
        if type_ is not None and not isinstance(type_, Type):
            raise BindingError("upload", [f"a type of the language is needed, got {shown(type_)}"])
        element = type_ or element_of(data.dtype)
        if element is not None:
            data = components_of(data, element)
        if element is None or element.dtype != data.dtype:
            wanted = "not a type of the language; np.asarray(x, np.float32) converts" if element is None else f"not {element}"
            raise BindingError("upload", [f"dtype {data.dtype} is {wanted}"])
        if element.is_vector and data.shape[-1:] != (element.lanes,):
            raise BindingError("upload", [f"{element} needs an array whose last axis has {element.lanes} components, got shape {list(data.shape)}"])
        self.require_usable()
        return self._stage(data, (data.shape[:-1] if element.is_vector else data.shape) or (1,), element)

    def wrap(self, array: Any) -> Buffer:
        """A buffer over memory of another library on this device, without a copy: anything with `__dlpack__` or, on CUDA,
        `__cuda_array_interface__`; on the CPU also a NumPy array, or what has the buffer protocol. `bind` takes such objects as they are.

        The memory is kept alive by the buffer, and is ready for what is launched from now on. Raises BindingError for memory elsewhere, that is
        not C-contiguous, or whose elements are no type of the language. Buffer.free releases it.
        """
        with importing:
            from vyre_py.drivers.sharing.exchange import wrap  # made of what devices and buffers are

        return wrap(self, array)

    def constant(self, array: Any, type_: Type | None = None) -> Buffer:
        """A read-only buffer of a host array's content, on the device when this returns. The same content gives the same memory again. It cannot be freed,
        so launches and graphs that are bound to it stay valid. Raises what `upload` raises."""
        self.require_usable()
        return self.constants.buffer(array, type_)

    def arena(self, plan: ArenaPlan) -> Arena:
        """One allocation, laid out by `vyre_py.plan_arena` for a chain of launches: `arena["name"]` is a buffer. What its bytes hold is unspecified
        until they are written. Raises OutOfMemory."""
        self.require_usable()
        return self.arenas.arena(plan)

    def download(self, buffer: Buffer, out: Host | None = None) -> Host:
        """A host copy of a resident buffer; waits for the launches before it. `out` of the same shape and dtype is written in place."""
        if not isinstance(buffer, Buffer):
            raise BindingError("download", [f"a buffer is needed, got {type(buffer).__name__}"])
        return buffer.read(out)

    @spanned("copy_strided", lambda device: {})
    def copy_strided(
        self, source: Buffer, source_offset: int, source_strides: Sequence[int], target: Buffer, target_offset: int, target_strides: Sequence[int],
        shape: Sequence[int],
    ) -> None:  # fmt: skip
        """Copies the elements of an array of `shape`, of rank 0 to 8, that lies in `source` and is to lie in `target`, both of one type: element
        (i, j, ...) is at offset + i * strides[0] + j * strides[1] + ..., counted in elements of the flat buffer.

        Strides may be negative, and those of the source 0. Enqueued like a launch, and captured like one, with all numbers by value. Raises
        BindingError where any element lies outside its buffer, for a target that may be written twice at a place, and where both ranges overlap.
        """
        strided.copy_strided(self, source, source_offset, source_strides, target, target_offset, target_strides, shape)

    def copy_peer(self, source: Buffer, target: Buffer) -> None:
        """Copies a buffer of any other device to one of this device, of the same shape and type: between GPUs by themselves, in order with both
        devices' streams; else through the host. Raises BindingError for buffers that do not fit."""
        peer.copy_peer(self, source, target)

    def upload_ranges(self, ranges: Sequence[tuple[Buffer, int, Any]]) -> None:
        """Writes parts of buffers: each (buffer, first element of the flat buffer, host array), for vectors with their components along one more axis.

        Ranges that lie end to end become one transfer. Raises BindingError with everything that does not fit, ranges that overlap included, and then
        nothing was written.
        """
        range_copies.upload_ranges(self, ranges)

    def download_ranges(self, ranges: Sequence[tuple[Buffer, int, int]]) -> list[Host]:
        """Reads parts of buffers: each (buffer, start, stop) in elements of the flat buffer. Gives an array for each, in order; waits once.

        Ranges that lie end to end become one transfer, and their arrays are parts of one piece of host memory. Raises BindingError for ranges that
        do not lie within their buffers.
        """
        return range_copies.download_ranges(self, ranges)

    @cached_property
    def arenas(self) -> ArenaPool:
        """Memory of arenas that are gone, for those to come."""
        return arena.ArenaPool(self)

    @cached_property
    def resident(self) -> ResidentStore:
        """Buffers that stay on the device, by handle."""
        return store.ResidentStore(self)

    # ---- many launches as one

    def sequence(self, *steps: Launch | SequenceStep | LaunchSequence) -> LaunchSequence:
        """Launches, and what `vyre_py.copy_step`, `fill_step` and `gemm_step` give, in order as one call; sequences among them are taken apart.

        What `launch.set` changes is what the next run uses. Raises BindingError for whatever is no step of this device.
        """
        self.require_usable()
        return self._make_sequence(sequence.flat_steps(self, steps))

    def capture(self, function: Callable[..., Any], /, *arguments: Any) -> Graph:
        """A graph of what `function(*arguments)` launches, copies and fills on this device. Nothing of it runs until the graph is called.

        Inside, memory is frozen, but for `allocate` on CUDA: see there. Uploading, reading and waiting raise LaunchError, in other threads too, whose
        launches on this device are refused as well. What the function raises is raised; then, as after any other error, the device is as before. Raises
        LaunchError for a function that launches nothing, and while another capture runs.
        """
        self.require_usable()
        if not callable(function):
            raise BindingError("capture", [f"a function is needed, got {shown(function)}"])
        return self._capture(function, arguments)

    def capture_while(self, flag: Buffer, function: Callable[..., Any], /, *arguments: Any, limit: int = TURN_LIMIT) -> Graph:
        """A graph that runs what `function(*arguments)` launches again and again while the first element of `flag`, a u32 buffer that those launches
        write, is not zero: looked at before each turn, `limit` turns at most. `graph.turns()` says how many there were.

        The device itself looks at the flag where its library can (CUDA from driver 12.4 on), else the host does, which waits for each turn:
        `graph.conditional` is "device" or "host". Raises what `capture` raises.
        """
        self.require_usable()
        graph.check_loop(self, flag, function, limit)
        return self._capture_while(flag, function, arguments, int(limit))

    def chain(
        self, steps: Iterable[tuple[Pipeline | Program, Mapping[str, Any]]], *, inputs: Mapping[str, Any] | None = None, outputs: Iterable[str] = (),
        views: Mapping[str, tuple[str, Type, tuple[int, ...]]] | None = None, zeroed: Iterable[str] = (),
    ) -> Chain:  # fmt: skip
        """Launches that run one after another: plans an arena for their values, allocates it, and binds every step.

        A step is a pipeline, or a Program to compile, and its arguments by name. In place of a buffer, a text names a value of the chain, and a pair of
        texts, for a read_write argument, a value that becomes another in place. The types and shapes of values come from the Programs that write
        them. `inputs` maps names to (type, shape), or to host arrays, which are uploaded; they stay as they are unless a step updates them. `outputs`
        are kept to the end. `views` maps names to (value, type, shape): the same bytes as something else. `zeroed` values are filled with zeros in
        every run, before the first step that uses them.

        Raises BindingError for what does not fit, with the step that it is about; OutOfMemory.
        """
        self.require_usable()
        with importing:
            from vyre_py.drivers.many.chain import plan_chain  # few Programs are chained

        return plan_chain(self, steps, inputs=inputs, outputs=outputs, views=views, zeroed=zeroed)

    def weights(self, arrays: Mapping[str, Any], *, type: Type | Mapping[str, Type] = f16) -> Weights:  # noqa: A002 - what it is called everywhere
        """Arrays by name in half precision, converted once and kept on the device: see `Weights`. Raises BindingError and OutOfMemory."""
        self.require_usable()
        with importing:
            from vyre_py.drivers.memory.weights import Weights  # few Programs have any

        return Weights(self, arrays, type=type)

    def gemm(self, a: Buffer, b: Buffer, out: Buffer, **options: Any) -> None:
        """Enqueues out = alpha * a @ b + beta * out once: `vyre_py.gemm_step` with the same arguments, called."""
        sequence.gemm_step(a, b, out, **options)()

    def require_no_capture(self, doing: str) -> None:
        """Raises LaunchError while a graph of this device is captured; `doing` says what is not possible then."""
        if self._recording is not None:
            raise self._recording.refusal(doing)

    # ---- life

    def synchronize(self) -> None:
        """Waits until everything launched so far is done. Raises what went wrong since the last wait, KernelAssertion for a failed assert."""
        self.require_usable()
        self.require_no_capture(f"{self.name} cannot wait")
        self.telemetry.syncs += 1
        self._synchronize()
        self.reports.settle()

    def trace(self, path: str | os.PathLike[str] | None = None, *, nvtx: bool = False, limit: int = EVENT_LIMIT) -> Trace:
        """`vyre_py.trace`, of this device alone."""
        return trace(path, nvtx=nvtx, limit=limit, device=self)

    def warmup(self) -> None:
        """Does now what the first call would do: context, compiler, caches."""
        self.require_usable()
        self._warmup()

    def trim(self) -> None:
        """Drops what is kept for speed: cached pipelines, prepared dispatches, unused constants, pooled memory. Resident buffers, bound launches and captured
        graphs stay. Waits for the launches so far. Raises DeviceLost, LaunchError while a graph is captured."""
        self.require_usable()
        self.require_no_capture(f"{self.name} cannot trim its memory")
        self._pipelines.clear()
        self._codes.clear()
        self.constants.clear()
        if "arenas" in vars(self):
            self.arenas.clear()
        self._trim()

    def close(self) -> None:
        """Frees everything; later calls raise DeviceLost. Closing twice, and in any order with buffers, is quiet; LaunchError while a graph is captured."""
        if self._closed:
            return
        self.require_no_capture(f"{self.name} cannot be closed")
        self._closed = True
        self._pipelines.clear()
        self._codes.clear()
        self.constants.clear()
        if "arenas" in vars(self):
            self.arenas.clear()
        self._close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def lost(self) -> bool:
        """Whether a fault, or a fork, ended it for this process."""
        return self._lost is not None

    def require_usable(self) -> None:
        """Raises DeviceLost once the device was closed or lost."""
        if self._closed:
            raise DeviceLost(f"{self.name} is closed", remedy="ask vyre_py.device() for it again")
        if self._lost is not None:
            remedy = "ask vyre_py.device() for a new one; what the old one held is gone" if self.reopens else "start a new process"
            raise DeviceLost(f"{self.name} is lost; the first cause was: {self._lost}", remedy=remedy)

    def forked(self) -> None:
        """In a forked child: a thread of the parent may have held the locks."""
        self._lock = threading.Lock()
        self._pipelines.forked()
        self._codes.forked()
        if "arenas" in vars(self):
            self.arenas.forked()
        self.constants.forked()
        self.reports.forked()
        if "resident" in vars(self):
            self.resident.forked()

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

    def _raw_code(self, code: Any) -> Any:
        """The device library's own handles of what `_load_entry` gave."""
        self._lacks("raw handles of code")

    def record_event(self, stream: Any = None) -> Event:
        """An event after what a stream holds so far: any object with `__cuda_stream__`, or None for the one that launches go to. Without streams, the device
        does one thing after the other, and only None will do."""
        if stream is not None:
            self._lacks("streams")
        self.require_usable()
        self.require_no_capture("an event cannot be recorded")
        return Event(self)

    def wait_event(self, event: Event, stream: Any = None) -> None:
        """Has what a stream is given from now on wait for an event, also one of another device. Raises BindingError for what is no event."""
        if not isinstance(event, Event):
            raise BindingError("wait_event", [f"an event is needed (device.record_event gives one), got {shown(event)}"])
        if stream is not None:
            self._lacks("streams")
        self.require_usable()
        if event.device is not self:
            event.wait()

    @property
    def streams(self) -> Any:
        """The device's own streams."""
        self._lacks("streams")

    def stream(self, priority: int = 0) -> Any:
        """A stream of its own for `launch.on`."""
        self._lacks("streams")

    def load_ptx(self, code: str | bytes, entry: str, signature: Sequence[Any]) -> Any:
        """A launchable kernel from code of the device's own assembler."""
        self._lacks("load_ptx")

    def load_wgsl(self, code: str, entry: str, signature: Sequence[Any]) -> Any:
        """A launchable kernel from WGSL."""
        self._lacks("load_wgsl")

    def pinned(self, shape: int | Sequence[int], type_: Type) -> Any:
        """Page-locked host memory."""
        self._lacks("pinned host memory")

    def _gemm_step(
        self, a: Buffer, b: Buffer, out: Buffer, alpha: float, beta: float, transpose_a: bool, transpose_b: bool, math: str
    ) -> GemmStep:
        """The step for arguments that fit (`sequence.gemm_step`)."""
        self._lacks("gemm")

    def _communicator(self, owner: Any) -> Communicator:
        """A communicator of another library, as collectives of this device take it."""
        self._lacks("collectives")

    def _collective_step(self, communicator: Any, name: str, transfers: tuple[Transfer, ...]) -> CollectiveStep:
        """The step for arguments that fit (`collectives`)."""
        self._lacks("collectives")

    def _watch_ranks(self, communicator: Any, timeout: float) -> RankWatch:
        """A watch over the ranks of one of its communicators (`watch_ranks`)."""
        self._lacks("collectives")

    def _runner(self, commands: Sequence[Command], title: Callable[[int, Command], str]) -> CommandRunner:
        """What runs commands in order, as often as it is called, on a device whose library has no lists of them."""
        return CommandRunner(commands, title)

    def _make_sequence(self, steps: Sequence[Command]) -> LaunchSequence:
        """A sequence of steps of this device."""
        return sequence.Sequence(self, steps)

    def _capture(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Graph:
        """A graph of what a function launches."""
        return graph.capture(self, function, arguments)

    def _capture_while(self, flag: Buffer, function: Callable[..., Any], arguments: tuple[Any, ...], limit: int) -> Graph:
        """A graph that repeats what a function launches."""
        return graph.HostLoop(self._capture(function, arguments), flag, limit)

    # ---- hooks of a device kind. Sizes and offsets are in bytes; `handle` is whatever `_allocate` gave.

    @abstractmethod
    def _allocate(self, size_bytes: int) -> Any:
        """Zeroed memory (size 0 is allowed). Raises OutOfMemory."""

    def _allocate_unset(self, size_bytes: int) -> Any:
        """Memory with anything in it."""
        return self._allocate(size_bytes)

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

    def _write_array(self, handle: Any, offset: int, source: Host) -> None:
        """Copies a host array of any strides in; it may be changed on return."""
        self._write(handle, offset, np.ascontiguousarray(source).reshape(-1).view(np.uint8))

    def _read_array(self, handle: Any, offset: int, target: Host) -> None:
        """As `_read`, into a host array of any strides."""
        plain = target if target.flags.c_contiguous else np.empty(target.shape, target.dtype)
        self._read(handle, offset, plain.reshape(-1).view(np.uint8))
        if plain is not target:
            target[...] = plain

    def _read_arrays(self, wanted: Sequence[tuple[Any, int, Host]]) -> None:
        """`_read_array` for several, each a handle, an offset and a target."""
        for handle, offset, target in wanted:
            self._read_array(handle, offset, target)

    def _read_after(self, handle: Any, offset: int, target: Host, event: Event) -> None:
        """As `_read_array`, of what the memory holds once an event is done; what is enqueued later runs on, and does not write it."""
        self.wait_event(event)
        self._read_array(handle, offset, target)

    def _fill(self, handle: Any, offset: int, size_bytes: int, pattern: bytes) -> None:
        """Writes a pattern, whose length divides the size, over and over."""
        chunk = np.frombuffer(pattern * max(1, min(size_bytes, _FILL_BYTES) // len(pattern)), np.uint8)
        for start in range(0, size_bytes, chunk.size):
            self._write(handle, offset + start, chunk[: size_bytes - start])

    def _copy_peer(self, source: Buffer, target: Buffer) -> bool:
        """Copies from another device without the host; false where that is not possible."""
        return False

    def _copy_strided(self, source: Buffer, target: Buffer, copy: StridedCopy) -> None:
        """Enqueues a copy that fits its buffers, which do not overlap there."""
        strided.copy_by_program(self, source, target, copy)

    def _use_on(self, buffer: Buffer, stream: Any) -> None:
        """Orders every use of a buffer with a foreign stream from now on."""
        self._lacks("streams")

    def _ordered(self, *buffers: Buffer) -> AbstractContextManager[None]:
        """A block in which launches on the device's own stream come after what streams of others do with buffers, and before what they do later."""
        return nullcontext()

    # A device with a `dlpack_device` has these as well.

    def _pass_on(self, handle: Any) -> Any:
        """A handle for the memory of a freed allocation, whose next owner comes at once: launches bound to the old one refuse from now on. None where the
        memory has to be given back instead. Never raises; may be called from a finaliser."""
        return handle

    def _address(self, handle: Any) -> int | None:
        """The address of an allocation, where handles have one."""
        return None

    def _begin(self, handle: Any) -> int | None:
        """What positions in an allocation are counted from where it is asked what they are multiples of; None where nobody knows."""
        return self._address(handle)

    def _adopt(self, address: int, size_bytes: int, lender: object) -> tuple[Any, object]:
        """A handle for memory at an address that is there for as long as its lender is held, and what to hold: the lender, or what drops it once nothing that
        was launched uses the memory."""
        self._lacks("memory of other libraries")

    def _disown(self, handle: Any) -> None:
        """Has launches over memory of another library refuse from now on, where they do not look at its live word. Never raises."""

    def _exchange_stream(self) -> int | None:
        """The stream that everything goes through, where there are streams."""
        return None

    def _current(self) -> AbstractContextManager[None]:
        """A block in which other libraries find the device to be the current one of this thread, where they have such a notion."""
        return nullcontext()

    def _order(self, first: int | None, then: int | None) -> None:
        """Has what is enqueued on stream `then` from now on wait for what stream `first` holds; None is the device's own."""

    def _follow(self, stream: int) -> bool:
        """Has the device's own stream wait for what a library's stream holds, if that is not done yet; False where that is to be left to the library."""
        return False

    def _load_step(self, step: Step, image: Image) -> tuple[Any, ...]:
        """Loads the code of a step: for each entry whatever `_make_launch` needs of it. Raises ToolchainError, DeviceLost."""
        return tuple(self._load_entry(step, image, entry) for entry in step.entries)

    @abstractmethod
    def _load_entry(self, step: Step, image: Image, entry: Entry) -> Any:
        """Loads one entry. Raises ToolchainError, DeviceLost."""

    @abstractmethod
    def _make_launch(self, plan: LaunchPlan, codes: tuple[Any, ...]) -> Launch:
        """A launch for a plan, over what `_load_step` gave."""

    def _widen(self, pipeline: Pipeline) -> Pipeline | None:
        """Where the device `takes_wide`: the pipeline whose code takes buffers of 2^32 elements and more. None where it cannot be had."""
        return None

    def _reading(self, pipeline: Pipeline) -> Pipeline:
        """The pipeline that launches take whose grid is a buffer. Raises Unsupported where it cannot be had."""
        return pipeline

    def _callable(self, pipeline: Pipeline) -> CallEntry:
        """A pipeline as a function."""
        return CallEntry(pipeline)

    def _dispatcher(self, pipeline: Pipeline) -> Any:
        """What dispatches of plain host arrays go through: its `run(arguments, named)` gives the results, or None for what it leaves to the general
        way. None where there is no quicker way."""
        return None

    def _stage(self, array: Host, shape: tuple[int, ...], type_: Type) -> Buffer:
        """A new buffer that holds a host array."""
        return self._staged(array, shape, type_, self._allocate_unset, self._write_array)

    def _staged(
        self, array: Host, shape: tuple[int, ...], type_: Type, allocate: Callable[[int], Any], write: Callable[[Any, int, Host], None]
    ) -> Buffer:
        """As `_stage`, by these hooks for the memory and the copy."""
        buffer = self._new_buffer(shape, type_, allocate)
        try:
            buffer._upload(array.reshape(buffer.host_shape), write)
        except BaseException:
            buffer.free()
            raise
        return buffer

    def _whole(self, run: Run) -> dict[str, Any]:
        """Makes a dispatch, waits, and gives the results."""
        return run.whole()

    def _submit(self, run: Run) -> Pending:
        """Starts a dispatch, and gives its pending result."""
        return pending.ThreadPending(run.pipeline.name, run.whole)

    def _timed(self, launch: Launch, start: Callable[[], None]) -> Callable[[], int | None]:
        """Starts a launch; what it gives tells, once the results are there, how many nanoseconds the device took, or None."""
        start()
        return lambda: None

    def _run_by(self, launch: Launch, deadline: float, timeout: float) -> None:
        """Runs an interruptible launch until a time by `time.monotonic`; raises what `_finish_by` raises."""
        launch()
        self._finish_by(launch, deadline, timeout)

    def _finish_by(self, launch: Launch, deadline: float, timeout: float) -> None:
        """Waits for an interruptible launch until a time by `time.monotonic`, and stops it then. Raises DispatchTimeout, which says how many seconds
        were allowed."""
        self._lacks("dispatch option timeout")

    @abstractmethod
    def _synchronize(self) -> None:
        """Waits for everything."""

    def _observe(self, on: bool) -> None:
        """Has all launches of native code go through Python, or no longer: a trace began, or the last one ended."""

    def _record(self, recording: graph.Recording | None) -> None:
        """Has a capture take what is enqueued from now on, or nothing any more."""
        self._recording = recording

    def _warmup(self) -> None:
        """Prepares the device."""

    def _trim(self) -> None:
        """Drops pooled memory."""

    @abstractmethod
    def _close(self) -> None:
        """Gives the device back."""
