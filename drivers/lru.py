"""A bounded table in memory: what was used longest ago goes first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.public import public
from vyre_py.ir.travel import ValueRecord

__all__ = ["Bounded", "LayerSnapshot"]

_T = TypeVar("_T")


@public
@dataclass(frozen=True, slots=True)
class LayerSnapshot(ValueRecord):
    """A layer of caches at one moment: how many `entries` it holds and how many `bytes` they take; `hits`, `misses` and `evictions` so far."""

    entries: int
    bytes: int
    hits: int
    misses: int
    evictions: int


class Bounded(Generic[_T]):
    """At most so many entries, and bytes by their own account; any thread may use it. An entry that is larger than all may be is not kept."""

    def __init__(self, entries: int, size_bytes: int) -> None:
        self._limits = (entries, size_bytes)
        self._lock = threading.Lock()
        self._rows: OrderedDict[Hashable, tuple[_T, int]] = OrderedDict()
        self._bytes = self._hits = self._misses = self._evictions = 0

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: Hashable) -> _T | None:
        """The entry, which is now the one used last."""
        with self._lock:
            row = self._rows.get(key)
            if row is None:
                self._misses += 1
                return None
            self._hits += 1
            self._rows.move_to_end(key)
            return row[0]

    def put(self, key: Hashable, value: _T, size_bytes: int) -> None:
        """Keeps an entry, in place of one of that key."""
        dropped: list[tuple[_T, int]] = []  # outside the lock they may run finalisers
        with self._lock:
            if (old := self._rows.pop(key, None)) is not None:
                self._bytes -= old[1]
                dropped.append(old)
            if size_bytes > self._limits[1]:
                return
            self._rows[key] = (value, size_bytes)
            self._bytes += size_bytes
            while len(self._rows) > self._limits[0] or self._bytes > self._limits[1]:
                _, row = self._rows.popitem(last=False)
                self._bytes -= row[1]
                self._evictions += 1
                dropped.append(row)

    def get_or_put(self, key: Hashable, make: Callable[[], _T], size: Callable[[_T], int]) -> _T:
        """The entry. A missing one is made by `make` and kept. If two threads make it at once, the later result is kept."""
        found = self.get(key)
        if found is None:
            found = make()
            self.put(key, found, size(found))
        return found

    def clear(self) -> None:
        """Drops all entries; the counts stay."""
        with self._lock:
            rows, self._rows, self._bytes = self._rows, OrderedDict(), 0
        rows.clear()

    def forked(self) -> None:
        """In a forked child: a thread of the parent may have held the lock."""
        self._lock = threading.Lock()

    def snapshot(self) -> LayerSnapshot:
        """The present content, and the counts so far."""
        with self._lock:
            return LayerSnapshot(len(self._rows), self._bytes, self._hits, self._misses, self._evictions)
