"""The counters of the disk cache, and its figures for people."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from types import MappingProxyType

from vyre_py.drivers.cache.entry import Fault
from vyre_py.drivers.cache.key import CacheKey
from vyre_py.ir.data_classes import dataclass

__all__ = ["CacheCounters", "CacheSnapshot", "CacheStats", "Listed", "Verified"]


@dataclass(frozen=True, slots=True)
class CacheSnapshot:
    """The counters of one cache object in this process. Nothing is read from the disk for them."""

    hits: int = 0  # asked for and there
    tier_hits: int = 0  # of these, from a read-only tier
    misses: int = 0  # asked for and not there, or not to be believed
    waits: int = 0  # waited for another thread or process that was making the same
    writes: int = 0
    skipped_writes: int = 0  # not written: no directory, no room, too large
    evictions: int = 0  # taken away to stay below the limit
    errors: int = 0  # calls of the system that failed
    bytes_read: int = 0  # of payloads
    bytes_written: int = 0  # of whole entries
    rejected: Mapping[str, int] = field(default_factory=dict)  # entries not believed, by reason: the values of `Fault`


class CacheCounters:
    """The counters behind the snapshots; any thread adds."""

    def __init__(self) -> None:
        self._figures: Counter[str] = Counter()
        self._rejected: Counter[Fault] = Counter()
        self.forget()

    def forget(self) -> None:
        """In a forked child: a thread that is not here may have been adding."""
        self._guard = threading.Lock()

    def add(self, **amounts: int) -> None:
        """Adds to figures, by the names in CacheSnapshot."""
        with self._guard:
            for name, amount in amounts.items():
                self._figures[name] += amount

    def reject(self, fault: Fault) -> None:
        """Counts an entry that is not believed."""
        with self._guard:
            self._rejected[fault] += 1

    def snapshot(self) -> CacheSnapshot:
        """All figures at this moment."""
        with self._guard:
            rejected = {fault.value: count for fault, count in sorted(self._rejected.items())}
            return CacheSnapshot(**self._figures, rejected=MappingProxyType(rejected))


@dataclass(frozen=True, slots=True)
class CacheStats:
    """The content of the cache, from a scan of its directory. `trouble` says why it is not used, and is empty when it is; `set_aside` and `left_behind`
    count entries that were not believed, and unfinished files of processes that died."""

    path: Path | None
    trouble: str
    entries: int
    size_bytes: int  # of all files
    limit_bytes: int
    set_aside: int
    left_behind: int
    read_only: tuple[Path, ...]
    counted: CacheSnapshot


@dataclass(frozen=True, slots=True)
class Listed:
    """An entry in a list: its key, the bytes of its file, and when it was last used, in seconds since 1970 and exact to a minute."""

    key: CacheKey
    size_bytes: int
    used_s: float


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of reading all entries. `bad` has the file name and the reason of each bad one; those are set aside now."""

    good: int
    size_bytes: int  # payloads of the good ones
    bad: tuple[tuple[str, Fault], ...]
