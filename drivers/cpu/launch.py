"""Bound launches: a packed argument block and one call of the kernel, or one for each range of workgroups."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, NamedTuple

from vyre_py.drivers.cpu.arguments import Arguments
from vyre_py.drivers.cpu.memory import HostMemory
from vyre_py.drivers.cpu.module import CpuKernel
from vyre_py.drivers.cpu.workers import run_alone, run_at_once, run_together, run_watched
from vyre_py.drivers.errors import BindingError, DispatchTimeout, LaunchError
from vyre_py.drivers.launch import Launch, LaunchPlan
from vyre_py.drivers.many.commands import require_memory
from vyre_py.drivers.many.indirect import read_grid
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.observe.telemetry import LaunchRecord
from vyre_py.lowering.layout import POINTER_BYTES, Slot, SlotKind

if TYPE_CHECKING:
    from vyre_py.drivers.cpu.device import CpuDevice

__all__ = ["QUICK_INVOCATIONS", "SHARED_INVOCATIONS", "SHARED_NS", "TELLING_NS", "CpuCommon", "CpuLaunch", "IndirectCpuLaunch", "launch_class", "no_scratch",
    "run_grid",
]

# Waking threads takes some 10 us, and takes them from others, so only what takes longer alone is shared. Grids of this many invocations always are; of smaller
# ones the first workgroups tell, less what the call itself takes, once they took long enough for what is cold at first not to count.
SHARED_INVOCATIONS: Final = 1 << 20
SHARED_NS: Final = 40_000
TELLING_NS: Final = 2_000
_CALL_NS: Final = 1_500
# Invocations of code without loops that take less than it takes to look at the clock a few times.
QUICK_INVOCATIONS: Final = 2048
# Threads of one launch whose workgroups meet.
_MOST_AT_ONCE: Final = 1024
_ADDRESS: Final = struct.Struct("<Q")


def run_grid(kernel: CpuKernel, arguments: Arguments, grid: tuple[int, int, int], invocations: int, alone: bool, threads: int) -> None:
    """Runs a grid of so many invocations: `alone` in this thread, else in as many as it is worth."""
    total = grid[0] * grid[1] * grid[2]
    if alone:
        run_alone(kernel, arguments, 0, total, grid)
    elif invocations >= SHARED_INVOCATIONS and threads > 1:
        run_together(kernel, arguments, 0, total, grid, threads)
    else:
        _run_small(kernel, arguments, total, grid, threads)


def _run_small(kernel: CpuKernel, arguments: Arguments, total: int, grid: tuple[int, int, int], threads: int) -> None:
    """Runs 1 workgroup here, then 8, then 64, and so on; the rest together with other threads, if there are any, once it would take long here."""
    begin, count = 0, 1 if threads > 1 else total
    while True:
        end = min(begin + count, total)
        began = perf_counter_ns()
        run_alone(kernel, arguments, begin, end, grid)
        if end == total:
            return
        elapsed = perf_counter_ns() - began - _CALL_NS
        if elapsed >= TELLING_NS and elapsed * (total - end) > SHARED_NS * (end - begin):
            run_together(kernel, arguments, end, total, grid, threads)
            return
        begin, count = end, count * 8


def no_scratch(name: str, device: str, kernel: CpuKernel, error: BaseException) -> LaunchError:
    """What a launch raises for which there is no memory."""
    return LaunchError(
        f"{name!r} cannot run on {device}", status=type(error).__name__,
        cause=str(error) or f"each thread needs {kernel.scratch_bytes} bytes of scratch memory",
        remedy="use less workgroup and private memory, or free buffers",
    )  # fmt: skip


def _too_many(plan: LaunchPlan) -> LaunchError:
    """What a grid is refused with whose workgroups cannot all have a thread."""
    total = prod(plan.grid)
    return LaunchError(
        f"{plan.binding.interface.name!r} cannot be launched on {plan.device.name}: its {total} workgroups have to run at once, and {_MOST_AT_ONCE} fit",
        meaning="workgroups that meet at a grid barrier have a thread each", cause="a grid that has an invocation for every element",
        remedy=f"give a grid of at most {_MOST_AT_ONCE} workgroups (grid(...) in the Program, or DispatchConfig.grid), better one for each core, and let each "
        "invocation go over the elements in a loop, by steps of the grid's size",
    )  # fmt: skip


class CpuCommon(NamedTuple):
    """What launches of an entry have in common for buffers of the same types and shapes: how many workgroups there are, whether they are so many that threads
    share them, or one thread runs `alone`; what a launch counts; where slots are in the block, by name, the flag of an interruptible kernel, and the word in
    which workgroups that meet count themselves; the names of buffers."""

    total: int
    large: bool
    alone: bool
    record: LaunchRecord
    offsets: Mapping[str, int]
    flag_offset: int | None
    arrivals_offset: int | None
    buffers: tuple[str, ...]

    @classmethod
    def of(cls, plan: LaunchPlan) -> CpuCommon:
        """That of a plan's entry."""
        total, layout = prod(plan.grid), plan.step.layout
        # What workgroups hand on from one to the next lives as long as a call of the kernel.
        ordered = bool(plan.step.entries[plan.entry].details.get("ordered"))
        invocations = total * prod(plan.step.workgroup)
        quick = plan.step.streaming and invocations <= QUICK_INVOCATIONS
        flag, arrivals = layout.find(SlotKind.CANCEL), layout.find(SlotKind.ARRIVALS)
        return cls(
            total, invocations >= SHARED_INVOCATIONS, ordered or quick or total == 1, plan.record(),
            {slot.name: slot.offset_bytes for slot in layout.slots if slot.name}, None if flag is None else flag.offset_bytes,
            None if arrivals is None else arrivals.offset_bytes,
            tuple([slot.name for slot in layout.buffers]),
        )  # fmt: skip


class CpuLaunch(Launch):
    """A launch; it has run to its end when the call returns."""

    _device: CpuDevice
    __slots__ = (
        "__weakref__", "_alone", "_arguments", "_at_once", "_device", "_kernel", "_large", "_offsets", "_record", "_stale", "_total", "_watched",
    )  # fmt: skip

    def __init__(self, device: CpuDevice, plan: LaunchPlan, kernel: CpuKernel) -> None:
        super().__init__(plan)
        common: CpuCommon | None = None if plan.common is None else plan.common.get(plan.entry)
        if common is None:
            common = CpuCommon.of(plan)
            if plan.common is not None:
                plan.common[plan.entry] = common
        self._device = device
        self._kernel = kernel
        self._total, self._large, self._alone, self._record, self._offsets, flag, arrivals, names = common
        self._at_once = arrivals is not None
        self._watched = self._at_once or flag is not None
        if self._at_once and self._total > _MOST_AT_ONCE:
            raise _too_many(plan)
        self._stale = False
        held, block, buffers = {}, bytearray(plan.block), plan.buffers
        for name in names:
            buffer = buffers[name]
            memory: HostMemory = buffer.allocation.handle
            held[name] = memory.held
            _ADDRESS.pack_into(block, self._offsets[name], memory.address + buffer.offset_bytes)
            memory.watch(self)
        self._arguments = Arguments(block, held, flag, arrivals)
        device.watch(self)

    def __call__(self) -> None:
        """Runs the kernel. An exception of a signal handler, such as KeyboardInterrupt, ends an interruptible one; its writes until then stay."""
        if (recording := self._device._recording) is not None:
            recording.take(self)
            return
        if self._stale:
            self._refuse()
        arguments = self._arguments  # the call's own to its end, whatever `set` and `free` do meanwhile
        try:
            if self._watched:
                self._run_watched(arguments, None)
            elif self._alone:
                if (call := arguments.whole) is not None:
                    call()
                elif self._kernel.scratch_bytes:
                    run_alone(self._kernel, arguments, 0, self._total, self.plan.grid)
                else:
                    self._whole(arguments)()
            elif self._large and (threads := self._device.threads) > 1:
                run_together(self._kernel, arguments, 0, self._total, self.plan.grid, threads)
            else:
                _run_small(self._kernel, arguments, self._total, self.plan.grid, self._device.threads)
        except MemoryError as error:
            raise self._failure(error) from error
        self._device.telemetry.launches += self.counted
        self._record.count()

    _run = __call__  # the call of `Command`, in one frame

    def _whole(self, arguments: Arguments) -> Callable[[], None]:
        """What runs all workgroups in this thread, without memory of the thread's; kept with the arguments."""
        arguments.whole = made = self._kernel.prepared(arguments.address, 0, 0, self._total, *self.plan.grid)
        return made

    def _of(self, plan: LaunchPlan) -> CpuLaunch:
        return CpuLaunch(self._device, plan, self._kernel)

    def run_by(self, deadline: float, timeout: float) -> None:
        """Runs an interruptible kernel, and has its loops end at a time by `time.monotonic`. Raises DispatchTimeout then, which says how many seconds were
        allowed."""
        if self._stale:
            self._refuse()
        try:
            in_time = self._run_watched(self._arguments, deadline)
        except MemoryError as error:
            raise self._failure(error) from error
        self._device.telemetry.launches += self.counted
        self._record.count()
        if not in_time:
            self._device.telemetry.timeouts += 1
            raise DispatchTimeout(
                f"{self.plan.binding.interface.name!r} ran longer than {timeout} s on {self._device.name}",
                meaning="its loops were ended; resident buffers hold what it had written by then, and nothing else of its results is kept",
                remedy="allow more time, or give it less work",
            )

    def _run_watched(self, arguments: Arguments, deadline: float | None) -> bool:
        """Gives whether the kernel ended before the deadline. Raises LaunchError where a call in another thread, with the same arguments, was ended, and
        this one with it."""
        try:
            if self._at_once:
                arguments = arguments.changed({}, ())
                in_time = run_at_once(self._kernel, arguments, self._total, self.plan.grid, deadline)
            else:
                step = self._total if self._alone else None
                in_time = run_watched(self._kernel, arguments, self._total, self.plan.grid, self._device.threads, deadline, step)
        finally:
            if arguments.ended and not self._at_once:
                self._put({}, ())  # the next call has a word of its own
                if self._c_launch is not None:
                    self._c_launch.follow(self)
        if in_time and arguments.ended:
            raise LaunchError(
                f"{self.plan.binding.interface.name!r} was ended on {self._device.name}", cause="another call of the same launch was interrupted",
                remedy="bind a launch for each thread",
            )  # fmt: skip
        return in_time

    def _failure(self, error: BaseException) -> LaunchError:
        return no_scratch(self.plan.binding.interface.name, self._device.name, self._kernel, error)

    def disarm(self) -> None:
        """From now on a call looks at what is amiss: a buffer was freed, or the device closed."""
        self._stale = True
        if self._c_launch is not None:
            self._c_launch.follow(self)

    def _refuse(self) -> None:
        self._device.require_usable()
        self._stale = False  # before the look, so that a buffer freed meanwhile by another thread is noticed by the next call
        try:
            require_memory(self._title, self._bound())
        except BindingError:
            self._stale = True
            raise

    def _put(self, buffers: Mapping[str, Buffer], slots: Sequence[tuple[Slot, bytes]]) -> None:
        held, values = {}, [(slot.offset_bytes, data) for slot, data in slots]
        for name, buffer in buffers.items():
            memory: HostMemory = buffer.handle
            held[name] = memory.held
            values.append((self._offsets[name], (memory.address + buffer.offset_bytes).to_bytes(POINTER_BYTES, "little")))
            memory.watch(self)
        while True:  # until no other thread, or signal handler, has changed them meanwhile
            before = self._arguments
            after = before.changed(held, values)
            if self._arguments is before:
                self._arguments = after
                return


class ReportingCpuLaunch(CpuLaunch):
    """A launch of code that asserts or prints: what it told is taken up at once, so that each launch is heard by itself."""

    __slots__ = ()

    def __call__(self) -> None:
        """As `CpuLaunch`; in a capture nothing was told yet."""
        try:
            super().__call__()
        finally:
            self._collect()

    _run = __call__

    def run_by(self, deadline: float, timeout: float) -> None:
        """As `CpuLaunch.run_by`."""
        try:
            super().run_by(deadline, timeout)
        finally:
            self._collect()

    def _of(self, plan: LaunchPlan) -> CpuLaunch:
        return ReportingCpuLaunch(self._device, plan, self._kernel)

    def _collect(self) -> None:
        assert self.plan.report is not None  # `CpuDevice` makes it for no other plan
        if not self.plan.device.closed:
            self.plan.report.report.collect()


def launch_class(plan: LaunchPlan) -> type[CpuLaunch]:
    """What makes a launch of a plan whose grid is known."""
    return CpuLaunch if plan.report is None else ReportingCpuLaunch


class IndirectCpuLaunch(CpuLaunch):
    """A launch whose grid is read from a buffer when it begins: each call is one of a launch over that grid, with arguments of its own."""

    __slots__ = ()

    def __call__(self) -> None:
        """As `CpuLaunch`."""
        if (recording := self._device._recording) is not None:
            recording.take(self)
        elif (launch := self._now()) is not None:
            launch()

    _run = __call__

    def run_by(self, deadline: float, timeout: float) -> None:
        """As `CpuLaunch.run_by`."""
        if (launch := self._now()) is not None:
            launch.run_by(deadline, timeout)

    def _of(self, plan: LaunchPlan) -> CpuLaunch:
        return IndirectCpuLaunch(self._device, plan, self._kernel)

    def _now(self) -> CpuLaunch | None:
        """The launch of a call; None where nothing is to run."""
        if self._stale:
            self._refuse()
        plan = self.plan
        if (grid := read_grid(plan)) is None:
            self._device.telemetry.launches += self.counted
            return None
        launch = launch_class(plan)(self._device, plan._replace(grid=grid, config=replace(plan.config, grid=grid)), self._kernel)
        launch.counted, launch._arguments = self.counted, self._arguments.changed({}, ())
        return launch
