"""Commands as native calls, in rows; lists of rows; and the one place that deals with a list which native code cannot run.

A launch, a sequence, a replay, a prepared dispatch and fixed calls of the driver are each a `CommandList`. Native code runs it (`call_list`); whatever is not
plain comes to `CommandList.handle_status`, which asks in this order: Is the device usable, is the memory there? Does a capture take the commands? Is the list
out of date? Do foreign streams use what it copies and fills? Does a trace show it? Is memory short? Is another context current? Otherwise the status is an
error.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol, runtime_checkable

from vyre_py.drivers.cuda.memory import relief
from vyre_py.drivers.cuda.native.call_list import NO_MEMORY, Call, CallList
from vyre_py.drivers.errors import DeviceLost, DriverError, LaunchError, OutOfMemory
from vyre_py.drivers.many.commands import DRIVER, LAUNCH, CommandKind, require_memory
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.native.mode import Mode
from vyre_py.drivers.observe.telemetry import LaunchRecord

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.device import CudaDevice
    from vyre_py.drivers.cuda.graph.recorder import CudaRecorder

__all__ = ["CommandList", "Failure", "Guard", "NativeCommand", "NativeStep", "perform"]

# From which call of a command failed, its status, and what was tried, the error.
Failure = Callable[[int, int, str], DriverError]

_NOWHERE: Final = ctypes.c_uint64()
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
# Statuses with which the driver says that another context is current in the calling thread, or none.
_ELSEWHERE: Final = ("CUDA_ERROR_INVALID_CONTEXT", "CUDA_ERROR_INVALID_HANDLE")


class Guard(Protocol):
    """What else calls use that may go away, beside buffers: `alive` is a live word of native lists, zero once it is gone."""

    alive: ctypes.c_uint64

    def require_ready(self) -> None:
        """Raises the error that says so."""


class NativeCommand(NamedTuple):
    """A row: a command of some kind as native calls. `name` is for people, `buffers`, by name, and `kept` are what the calls use, `counts` what the command
    adds to counters. Where a status of its calls is not the driver's, `failure` makes the error. `guard` is what else has to be there."""

    kind: CommandKind
    name: str = ""
    calls: tuple[Call, ...] = ()
    buffers: Mapping[str, Buffer] = _NOTHING
    counts: Mapping[str, int] = _NOTHING
    kept: Any = None
    failure: Failure | None = None
    guard: Guard | None = None

    def require_ready(self) -> None:
        """Raises BindingError when a buffer was freed, and what its guard raises."""
        require_memory(self.name, self.buffers)
        if self.guard is not None:
            self.guard.require_ready()


@runtime_checkable
class NativeStep(Protocol):
    """A step of a sequence that only this kind of device has: it makes its row itself."""

    def command(self) -> NativeCommand:
        """The step as a row."""


class CommandList:
    """Commands as one native list: rows that stay as they are, and other lists, whose rows are taken as they are at present.

    Attributes: `device`, `items`: the rows and lists that it is made of; `rows`, all of them in order; `calls`, the native list. A list that is made of others
    is out of date once one of those has been made anew; then it is made anew itself, by the next run that comes here.
    """

    __slots__ = ("__weakref__", "_doing", "_record", "_taken", "calls", "device", "items", "rows")

    calls: CallList
    # Whether the error of a lost device names its first cause rather than what was tried now.
    names_first_cause: ClassVar[bool] = False

    def __init__(self, device: CudaDevice, items: Sequence[NativeCommand | CommandList] = (), doing: str = "") -> None:
        """`doing` is what errors say was tried."""
        self.device, self.items, self._doing = device, tuple(items), doing
        self.rows: list[NativeCommand] = []
        self._taken: dict[CommandList, CallList] = {}
        self._build()

    def _build(self) -> None:
        """Makes the native list, of the rows that there are now."""
        self._taken = {item: item.calls for item in self.items if isinstance(item, CommandList)}
        self.rows = [row for item in self.items for row in (item.rows if isinstance(item, CommandList) else (item,))]
        own = [row for row in self.items if isinstance(row, NativeCommand)]
        alive = {ctypes.addressof(buffer.allocation.alive) for row in own for buffer in row.buffers.values()}
        alive |= {ctypes.addressof(row.guard.alive) for row in own if row.guard is not None}
        if any(row.kind.ordered for row in own):
            alive.add(ctypes.addressof(self.device.memory.foreign_use.none))
        self._record = self._recorded(self.rows)
        calls = [call for row in self.rows for call in row.calls]
        self.calls = self._native(calls, sorted(alive), members=list(self._taken.values()), kept=(self._record,))

    def _recorded(self, rows: Iterable[NativeCommand]) -> LaunchRecord | None:
        """A record, by which each run adds what the rows count; None where that is nothing."""
        counts: dict[str, int] = {}
        for row in rows:
            for name, amount in row.counts.items():
                counts[name] = counts.get(name, 0) + amount
        return self.device.telemetry.record(**counts) if counts else None

    def _native(self, calls: Sequence[Call], alive: Sequence[int], counter: str = LAUNCH.counter, **options: Any) -> CallList:
        """A native list whose statuses come to this object. Each run adds the number of launches, or of replays, to the `counter` itself."""
        telemetry, nowhere = self.device.telemetry, (ctypes.addressof(_NOWHERE), 0)
        times = sum([row.kind.counter == counter for row in self.rows])
        first = (telemetry.address(counter), times) if times else nowhere
        second = nowhere if self._record is None else (self._record.address, 1)
        return CallList(calls, self.handle_status, self.device.context.mode_address, alive, (first, second), **options)

    def builtin(self) -> Callable[[], None]:
        """A builtin that makes all calls, with the interpreter's lock released; it holds this object. Raises what `handle_status` raises."""
        return self.calls.builtin()

    # ---- what each kind of list says of itself

    @property
    def name(self) -> str:
        """Its name in traces; those of the driver's own calls have none."""
        return ""

    @property
    def details(self) -> Mapping[str, str]:
        """What traces show beside the name."""
        return {}

    def doing(self, row: int | None) -> str:
        """What errors say was tried: the list as a whole, or the row of that number."""
        return self._doing

    def require_ready(self) -> None:
        """Raises what forbids a run: BindingError when a buffer was freed."""
        for item in self.items:
            item.require_ready()

    def record_into(self, recorder: CudaRecorder) -> None:
        """Makes the commands part of the graph that is captured. Raises LaunchError."""
        doing = self.doing(None)
        recorder.require_own(doing)
        if not all(row.kind.captured for row in self.rows):
            raise recorder.refusal(doing)
        self.refresh()
        for item in self.items:
            recorder.item(item)

    @contextmanager
    def entered(self) -> Iterator[CallList]:
        """A block that makes the calls of the present native list. The lists that it is made of are not replaced before the end of the block."""
        with ExitStack() as members:
            for item in sorted(self._taken, key=id):  # in one order in all threads, so that none waits for another that waits for it
                members.enter_context(item.entered())
            self.refresh()
            yield self.calls

    def refresh(self) -> bool:
        """Makes the list anew where one that it is made of was. Gives whether it did."""
        stale = any(item.calls is not calls for item, calls in self._taken.items())
        if stale:
            self._build()
        return stale

    # ---- what is not plain

    def handle_status(self, index: int, status: int) -> None:
        """Does in Python what native code could not do, or raises: see `call_list`."""
        device, context = self.device, self.device.context
        if index < 0:
            device.require_usable()
            self.require_ready()
            if status > 0 and context.capture is not None:
                self.record_into(context.capture)
                return
        renewed = index <= 0 and self.refresh()  # nothing was enqueued yet
        number, first = self._row_of(index)
        row, doing = None if number is None else self.rows[number], self.doing(number)
        if row is not None and row.failure is not None and not renewed:
            error = row.failure(index - first, status, doing)
            context.require_alive(doing)
            raise error
        try:
            with self.entered() as calls:
                if index < 0 or renewed:
                    self._run_all(calls, status if index < 0 else 0, doing)
                else:
                    self._retry(calls, index, status, doing)
        except DeviceLost:
            if self.names_first_cause:
                device.require_usable()
            raise

    def _run_all(self, calls: CallList, status: int, doing: str) -> None:
        """Makes all calls, none of which was made: the mode was not zero (the `status`), the list was out of date, or there are foreign streams. A trace shows
        them."""
        device, context = self.device, self.device.context
        if status == NO_MEMORY:
            raise OutOfMemory(doing, meaning="the host has no memory for the arguments", remedy="drop arrays, or launch less at once")
        ranges = [(one.handle + one.offset_bytes, one.size_bytes) for item in self.items for one in _ordered(item)]
        run = self._run_each if any(device.memory.foreign_use.streams(*one) for one in ranges) else partial(calls.resume, 0)
        with context.using(doing):
            if status > 0 and status & Mode.OBSERVED:
                device._show(run, self.name, self.details)
            else:
                run()  # who captured has ended meanwhile, or memory that was freed has been replaced

    def _run_each(self) -> None:
        """Makes the calls item by item, each that copies or fills in order with the foreign streams that use its memory."""
        for number, item in enumerate(self.items):
            with self.device._ordered(*_ordered(item)):
                alone = CommandList(self.device, [item], self.doing(number))
                alone.calls.resume(0)

    def _retry(self, calls: CallList, index: int, status: int, doing: str) -> None:
        """Goes on with the call of a number, which gave the status, where all that is amiss is that memory is short or that this thread has another context
        current, or none. Raises the status's error otherwise."""
        context = self.device.context
        failed = context.status(status)
        if failed.name == relief.NO_MEMORY and context.relief.resume(partial(calls.resume, index)):
            return
        if failed.name not in _ELSEWHERE or context.is_current():
            raise context.failure(failed, doing, LaunchError)
        with context.entered():
            if context.capture is not None and context.capture.is_own:
                calls.resume(index)
                return
            with context.using(doing):  # a capture of another thread may have begun meanwhile
                calls.resume(index)

    def _row_of(self, index: int) -> tuple[int | None, int]:
        """The number of the row that a call belongs to, and of that row's first call; None for no call."""
        first = 0
        for number, row in enumerate(self.rows):
            if first <= index < first + len(row.calls):
                return number, first
            first += len(row.calls)
        return None, 0


def _ordered(item: NativeCommand | CommandList) -> list[Buffer]:
    """The buffers that an item is ordered by with foreign streams."""
    return list(item.buffers.values()) if isinstance(item, NativeCommand) and item.kind.ordered else []


def perform(device: CudaDevice, calls: Sequence[Call], doing: str, failure: Failure | None = None) -> None:
    """Makes native calls now, in any mode, and counts nothing. Raises the error of the first that fails: the driver's, or what `failure` makes of it."""
    if calls:
        made = CommandList(device, [NativeCommand(DRIVER, calls=tuple(calls), failure=failure)], doing)
        made.calls.resume(0)
