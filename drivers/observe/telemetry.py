"""Counters, always on: words in one block of memory that Python adds to as attributes and native code by address.

`drivers.observe.metrics` is the table of all counters, `drivers.observe.snapshot` reads them.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from vyre_py.drivers.errors import DriverError
from vyre_py.drivers.observe.metrics import METRICS, RATIOS, STORED
from vyre_py.drivers.observe.snapshot import Snapshot
from vyre_py.ir.travel import Stationary

__all__ = ["LaunchRecord", "Telemetry"]

_WORDS: Final[Mapping[str, int]] = {name: number for number, name in enumerate(STORED)}
_COUNTERS: Final[Mapping[str, int]] = {name: number for name, number in _WORDS.items() if METRICS[name].kind == "counter"}
_WORD_BYTES: Final = 8


class _Cell(ctypes.Structure):
    """The counter of a record: how often it was called since it was last read, and the amounts that a call adds to the words."""

    __slots__ = ("amounts",)
    _fields_ = (("calls", ctypes.c_uint64),)
    amounts: tuple[tuple[int, int], ...]
    calls: int


class LaunchRecord:
    """The amounts that each call of one launch, sequence or graph adds to the counters: made once at bind, so that a call adds one to one word.

    `address` is that of the word, for native code, as long as the record lives; `count` adds to it from Python. When the record goes, what it
    counted stays.
    """

    __slots__ = ("_cell", "_gone", "address")

    def __init__(self, cell: _Cell, gone: deque[_Cell]) -> None:
        self._cell = cell
        self._gone = gone
        self.address = ctypes.addressof(cell)

    def count(self, calls: int = 1) -> None:
        """Adds calls."""
        self._cell.calls += calls

    def __del__(self) -> None:
        self._gone.append(self._cell)  # takes no lock, since a finaliser may run anywhere


class Telemetry(Stationary, ctypes.Structure):
    """One device's counters, as attributes: the names of `metrics.STORED`. An attribute is the word itself; `snapshot` has all figures, with
    gauges, and with what records add.

    `telemetry.launches += 1` loses nothing when threads do it at once: between the load and the store of a word CPython does not change threads, as
    long as what is added is a number that is there already, and not the result of a call. Native code adds while it holds the interpreter's lock.
    """

    travels_as = "send its snapshot()"

    __slots__ = ("__weakref__", "_cells", "_device", "_gauges", "_gone")
    _fields_ = tuple((name, ctypes.c_uint64) for name in STORED)
    _lock: ClassVar[threading.RLock] = threading.RLock()  # a finaliser may run inside a call that holds it

    compiles: int
    memory_cache_hits: int
    artifact_cache_hits: int
    disk_cache_hits: int
    disk_cache_misses: int
    binds: int
    dispatches: int
    submits: int
    timeouts: int
    launches: int
    graphs_captured: int
    graph_launches: int
    graph_updates: int
    graph_replays: int
    elements_launched: int
    threads_scheduled: int
    threads_occupied: int
    parameter_bytes: int
    fallbacks: int
    overflows: int
    uploads: int
    bytes_uploaded: int
    downloads: int
    bytes_downloaded: int
    copies: int
    bytes_copied: int
    fills: int
    bytes_filled: int
    allocations: int
    bytes_allocated: int
    device_pool_bytes_asked: int
    device_pool_hits: int
    device_pool_misses: int
    pinned_pool_bytes_asked: int
    pinned_pool_hits: int
    pinned_pool_misses: int
    arenas: int
    arena_reuses: int
    constant_hits: int
    oom_retries: int
    syncs: int
    waits: int
    timed_dispatches: int
    timed_with_device: int
    device_ns: int
    wall_ns: int

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self._device = device
        self._gauges: dict[str, Callable[[], int]] = {}
        self._cells: dict[int, _Cell] = {}  # by address, since what ctypes makes has no hash
        self._gone: deque[_Cell] = deque()

    @classmethod
    def _forked(cls) -> None:
        """In a forked child: a thread of the parent may have held the lock."""
        cls._lock = threading.RLock()

    def address(self, name: str) -> int:
        """The address of a counter's word, an unsigned integer of 64 bits, as long as this object lives. Raises DriverError for a name that has none."""
        if name not in _WORDS:
            raise DriverError(f"{name!r} has no word to add to", remedy=f"those that have are {', '.join(STORED)}")
        return ctypes.addressof(self) + _WORD_BYTES * _WORDS[name]

    def gauge(self, name: str, function: Callable[[], int]) -> None:
        """Has a gauge that others keep read by a function, at every snapshot; it must not raise, nor wait for the device.

        A second function for a name replaces the first. Raises DriverError for a name that is no such gauge.
        """
        if name not in METRICS or name in _WORDS or name in RATIOS:
            free = [gauge for gauge in METRICS if gauge not in _WORDS and gauge not in RATIOS]
            raise DriverError(f"{name!r} is not read from a function", remedy=f"the gauges that are: {', '.join(free)}")
        self._gauges[name] = function

    def record(self, **amounts: int) -> LaunchRecord:
        """A record whose every call adds these amounts to the counters of these names. Raises DriverError for a name that is no counter."""
        cell = _Cell()
        try:
            cell.amounts = tuple([(_COUNTERS[name], amount) for name, amount in amounts.items() if amount])
        except KeyError as error:
            raise DriverError(f"{error} is not a counter", remedy=f"the counters are {', '.join(_COUNTERS)}") from None
        with self._lock:
            self._cells[ctypes.addressof(cell)] = cell
            if self._gone:  # or what is gone piles up
                self._fold()
        return LaunchRecord(cell, self._gone)

    def snapshot(self) -> Snapshot:
        """All figures now. Gauges that others keep are asked for theirs."""
        gauges = {name: function() for name, function in list(self._gauges.items())}
        return self._taken(self._totals(), gauges)

    def reset(self) -> Snapshot:
        """Sets every counter back by what it was and gives that: what other threads add meanwhile is in this snapshot or in the next, and
        never lost. Gauges stay."""
        gauges = {name: function() for name, function in list(self._gauges.items())}
        with self._lock:
            for cell in list(self._cells.values()):
                self._take(cell)
            self._fold()
            # Without what records have counted since: that is in no word yet, and in the next snapshot.
            words = self._view()
            totals = words.tolist()
            for number in _COUNTERS.values():
                words[number] -= totals[number]
        return self._taken(totals, gauges)

    def _taken(self, totals: list[int], gauges: Mapping[str, int]) -> Snapshot:
        return Snapshot.of(self._device, {**dict(zip(STORED, totals, strict=True)), **gauges})

    def _view(self) -> memoryview:
        return memoryview(self).cast("B").cast("Q")

    def _totals(self) -> list[int]:
        """Every word, with what live records add to it."""
        with self._lock:
            self._fold()
            totals = self._view().tolist()
            for cell in list(self._cells.values()):
                calls = cell.calls
                for number, amount in cell.amounts:
                    totals[number] += calls * amount
        return totals

    def _take(self, cell: _Cell) -> None:
        """Moves what a record has counted so far into the words."""
        calls = cell.calls
        cell.calls -= calls
        words = self._view()
        for number, amount in cell.amounts:
            added = calls * amount
            words[number] += added

    def _fold(self) -> None:
        """Moves what the records counted that are gone into the words."""
        while self._gone:
            cell = self._gone.popleft()
            self._take(cell)
            self._cells.pop(ctypes.addressof(cell), None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Telemetry._forked)
