"""The CPU as a device: host memory, code of the lanes walk, all cores."""

from __future__ import annotations

import ctypes
import os
import platform
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Final

from vyre_py.drivers.callable import CallEntry
from vyre_py.drivers.cores import MAX_THREADS, core_count, thread_count
from vyre_py.drivers.cpu.launch import CpuLaunch, IndirectCpuLaunch, launch_class
from vyre_py.drivers.cpu.memory import HostMemory
from vyre_py.drivers.cpu.module import CpuKernel, load_kernel
from vyre_py.drivers.device import Device, Limits
from vyre_py.drivers.errors import DriverError, OutOfMemory
from vyre_py.drivers.launch import Launch, LaunchPlan
from vyre_py.drivers.memory.host_arrays import Bytes
from vyre_py.drivers.native.mode import Mode, ModeWord
from vyre_py.drivers.observers import Watched
from vyre_py.drivers.sharing import dlpack
from vyre_py.ir.cached import cached_property
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.imports import deferred, importing
from vyre_py.ir.language.errors import shown
from vyre_py.lowering.artifact.parts import Entry, Image, Part, Step
from vyre_py.lowering.llvm.cpu.host_targets import MAX_ELEMENTS, NATIVE, TARGETS, obstacle, rank_here
from vyre_py.lowering.target import Target

if TYPE_CHECKING:
    from vyre_py.drivers.many.graph import Recording
    from vyre_py.drivers.pipeline import Pipeline

if TYPE_CHECKING:
    from vyre_py.drivers.cache import lookup
else:
    (lookup,) = deferred("vyre_py.drivers.cache", "lookup")

__all__ = ["CpuDevice", "HostProperties"]

_LIMITS: Final = Limits(workgroups=(2**32 - 1,) * 3, invocations=1024, workgroup_bytes=227 << 10, buffer_bytes=1 << 40)


def _memory_bytes() -> int:
    """Bytes of physical memory, where the system says."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 40


def _machine(part: Part) -> int:
    """The number of the machine that "native" code was made on; 0 where its entries do not say one."""
    machines = {entry.details.get("machine", 0) for step in part.steps for entry in step.entries}
    return machines.pop() if len(machines) == 1 else 0


@dataclass(frozen=True, slots=True)
class HostProperties:
    """The machine: the kind of processor, the cores that this process may use, bytes of memory, and the targets whose code runs here, best first."""

    machine: str
    cores: int
    memory_bytes: int
    targets: tuple[str, ...]


class CpuDevice(Device):
    """All cores that this process may use, as one device. Launches run to their end before the call returns. Attributes besides the contract's:
    `properties`, and `threads`, which may be set."""

    kind: ClassVar[str] = "cpu"
    reads_grids: ClassVar[bool] = True
    honoured_options: ClassVar[frozenset[str]] = Device.honoured_options | {"timeout"}
    dlpack_device: tuple[int, int] | None = (dlpack.CPU, 0)
    takes_wide: ClassVar[bool] = True

    def __init__(self, ordinal: int) -> None:
        cores = core_count()
        limits = Limits(_LIMITS.workgroups, _LIMITS.invocations, _LIMITS.workgroup_bytes, _memory_bytes(), MAX_ELEMENTS)
        self._mode = ModeWord()  # first, since a trace that runs already is told of at once
        self.thread_word = ctypes.c_uint64(thread_count())  # which native code reads
        super().__init__(ordinal, Target("host", "native"), limits, f"{platform.machine()}, {cores} core{'s' if cores > 1 else ''}")
        self._launches: Watched[CpuLaunch] = Watched()

    @cached_property
    def properties(self) -> HostProperties:
        """What this machine is."""
        ranks = {name: rank for name in (NATIVE, *TARGETS) if (rank := rank_here(name)) is not None}
        best = sorted(ranks, key=ranks.__getitem__, reverse=True)
        return HostProperties(platform.machine(), core_count(), _memory_bytes(), tuple([Target("host", name).name for name in best]))

    @property
    def threads(self) -> int:
        """How many threads run a grid at most, the calling one included: at first one a core, or what VYRE_CPU_THREADS or OMP_NUM_THREADS says. Once set, it
        holds for every call from then on, of launches that were bound before, too. Raises DriverError for what is no whole number from 1 to 4096."""
        return self.thread_word.value

    @threads.setter
    def threads(self, threads: int) -> None:
        if isinstance(threads, bool) or not isinstance(threads, int) or not 0 < threads <= MAX_THREADS:
            raise DriverError(f"{self.name} cannot run grids in {shown(threads)} threads", remedy=f"set threads to a whole number from 1 to {MAX_THREADS}")
        self.thread_word.value = threads

    def watch(self, launch: CpuLaunch) -> None:
        """From now on `launch` is told when the device is closed."""
        self._launches.add(launch)

    def _fit(self, part: Part) -> int | None:
        if part.target.kind != "host":
            return None
        rank = rank_here(part.target.arch, _machine(part))
        return None if rank is None else 2 * rank + (part.target.lanes != 1)

    def _misfit(self, part: Part) -> str:
        why = f"it {obstacle(part.target.arch, _machine(part))}; " if part.target.kind == "host" else ""
        return f"{why}compile for {self.target}"

    def _widen(self, pipeline: Pipeline) -> Pipeline | None:
        """Code of one lane counts in 64 bits: what the artifact has of it, or made of the Program."""
        for part in pipeline.artifact.parts:
            if part.target.lanes == 1 and part is not pipeline.part and self._fit(part) is not None:
                return self.load(replace(pipeline.artifact, parts=(part,)))
        if pipeline._source is None or pipeline.part.target.lanes == 1:
            return None
        program, options = pipeline._source
        return self.load(lookup.compiled(lookup.validated(program), [replace(pipeline.part.target, lanes=1)], options, (), self.telemetry))

    # ---- memory

    def _allocate(self, size_bytes: int) -> HostMemory:
        try:
            return HostMemory(size_bytes)
        except MemoryError as error:
            raise OutOfMemory(f"{self.name} cannot allocate {size_bytes} bytes", cause=str(error), remedy="free buffers, or ask for less") from error

    def _free(self, handle: HostMemory, size_bytes: int) -> None:
        handle.release()

    def _pass_on(self, handle: HostMemory) -> HostMemory:
        return handle.passed_on()

    def _address(self, handle: HostMemory) -> int:
        return handle.address

    def _adopt(self, address: int, size_bytes: int, lender: object) -> tuple[HostMemory, object]:
        return HostMemory(size_bytes, address, lender), lender

    def _disown(self, handle: HostMemory) -> None:
        handle.release()

    def _write(self, handle: HostMemory, offset: int, source: Bytes) -> None:
        handle.bytes[offset : offset + source.size] = source

    def _read(self, handle: HostMemory, offset: int, target: Bytes) -> None:
        target[:] = handle.bytes[offset : offset + target.size]

    def _copy(self, source: HostMemory, source_offset: int, target: HostMemory, target_offset: int, size_bytes: int) -> None:
        target.bytes[target_offset : target_offset + size_bytes] = source.bytes[source_offset : source_offset + size_bytes]

    # ---- code

    def _load_entry(self, step: Step, image: Image, entry: Entry) -> CpuKernel:
        return load_kernel(image, entry)

    def _make_launch(self, plan: LaunchPlan, codes: tuple[CpuKernel, ...]) -> Launch:
        return (IndirectCpuLaunch if plan.grid_buffer is not None else launch_class(plan))(self, plan, codes[plan.entry])

    def _callable(self, pipeline: Pipeline) -> CallEntry:
        with importing:
            from vyre_py.drivers.cpu.callable import make  # native code is made where it is asked for

        return make(pipeline, self._mode)

    def _run_by(self, launch: Launch, deadline: float, timeout: float) -> None:
        inner = launch.inner
        assert isinstance(inner, CpuLaunch)
        inner.run_by(deadline, timeout)

    def _synchronize(self) -> None:
        pass  # launches run to their end

    def _warmup(self) -> None:
        if find_spec("llvmlite") is None:
            return  # this machine loads what others compile

        with importing:
            from vyre_py.lowering.llvm.cpu.host import target_machine  # LLVM is loaded only when code is first wanted

        target_machine("native", 3)

    def _observe(self, on: bool) -> None:
        (self._mode.stop if on else self._mode.go_on)(Mode.OBSERVED)

    def _record(self, recording: Recording | None) -> None:
        super()._record(recording)
        (self._mode.go_on if recording is None else self._mode.stop)(Mode.CAPTURING)

    def _close(self) -> None:
        self._mode.stop(Mode.CLOSED)
        for launch in self._launches.now():
            launch.disarm()
