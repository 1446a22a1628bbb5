"""The disk cache: compiled code by all that it was made from, shared by the processes of one user.

No state of the disk is an error for `get`, `put` and `get_or_make`. An entry that is incomplete, belongs to another user or has another key is a miss: it is
counted and set aside. An entry that cannot be written is not written. drivers/CACHE.md has the layout and the rules.

    cache = DiskCache.open_default()
    key = CacheKey("cubin", (("code", digest), ("target", "sm_90"), ("llvm", "22.1.0")))
    part = cache.get_or_make(key, compile_to_bytes, decode_part)
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakSet

from vyre_py.drivers.cache import entry
from vyre_py.drivers.cache.counts import CacheCounters, CacheSnapshot, CacheStats, Listed, Verified
from vyre_py.drivers.cache.directory import CacheWarning, Directory, Folder, default_path
from vyre_py.drivers.cache.entry import Fault, Stored
from vyre_py.drivers.cache.key import CacheKey
from vyre_py.drivers.cache.single_flight import SingleFlight
from vyre_py.drivers.errors import CacheError
from vyre_py.drivers.memory.pool import bytes_from
from vyre_py.ir.imports import deferred
from vyre_py.ir.language.errors import shown
from vyre_py.ir.public import public
from vyre_py.ir.travel import Stationary

if TYPE_CHECKING:
    from vyre_py.drivers.cache.bundle import Bundled, Progress

if TYPE_CHECKING:
    from vyre_py.drivers.cache import bundle, eviction
else:
    bundle, eviction = deferred("vyre_py.drivers.cache", "bundle", "eviction")

__all__ = ["LIMIT_BYTES", "CacheError", "CacheKey", "CacheSnapshot", "CacheStats", "CacheWarning", "DiskCache", "Listed", "Stored", "Verified"]

LIMIT_BYTES: Final = 1 << 30
PATIENCE_S: Final = 60.0

_T = TypeVar("_T")


@public
class DiskCache(Stationary):
    """A cache in a directory of this user's, and read-only ones that are looked through after it.

    `path` is that directory, made by the first write; None for a cache without one. `limit_bytes` is the most that it may hold; 0 turns it off.
    `read_only` are prepared directories, whose entries must belong to the owner of their directory. A thread waits at most `patience_s` seconds for another
    thread or process that makes the same entry; then it makes the entry itself.

    All methods may be called by any thread, and in a forked child. Raises CacheError for an unusable path, and for numbers below zero.
    """

    belongs_to = "this process"
    travels_as = "send its path, and make one of that there"

    def __init__(
        self, path: str | os.PathLike[str] | None, *, limit_bytes: int = LIMIT_BYTES, read_only: Sequence[str | os.PathLike[str]] = (),
        patience_s: float = PATIENCE_S,
    ) -> None:  # fmt: skip
        if not isinstance(limit_bytes, int) or limit_bytes < 0 or not patience_s >= 0:
            raise CacheError(f"limit_bytes={shown(limit_bytes)}, patience_s={shown(patience_s)}", remedy="both are numbers from 0 up")
        self.path: Final = None if path is None else _absolute(path)
        self.read_only: Final = tuple(_absolute(tier) for tier in read_only)
        self.limit_bytes: Final = limit_bytes
        self._own = None if self.path is None or limit_bytes == 0 else Directory(self.path, writable=True)
        self._directories = [*([self._own] if self._own else []), *(Directory(tier, writable=False) for tier in self.read_only)]
        self._counters = CacheCounters()
        self._single_flight = SingleFlight(patience_s)
        _alive.add(self)

    @classmethod
    def open_default(cls) -> DiskCache:
        """The cache that the environment asks for: `VYRE_CACHE_DIR`, else the user's place for caches; `VYRE_CACHE_LIMIT` in bytes, 0 for none;
        `VYRE_CACHE_READ_ONLY`, directories separated as in PATH.

        Raises CacheError where VYRE_CACHE_DIR is set and empty, DriverError where VYRE_CACHE_LIMIT is no number.
        """
        tiers = os.environ.get("VYRE_CACHE_READ_ONLY", "").split(os.pathsep)
        return cls(default_path(), limit_bytes=bytes_from("VYRE_CACHE_LIMIT", LIMIT_BYTES), read_only=[tier for tier in tiers if tier.strip()])

    @property
    def trouble(self) -> str:
        """Why nothing is kept on the disk, in words; empty where the cache is in use, or will be once something is written."""
        if self._own is None:
            return "it is turned off" if self.limit_bytes == 0 else "there is no home directory; VYRE_CACHE_DIR names a place"
        return self._own.trouble()

    # ---------------------------------------------------------------- one entry

    def get(self, key: CacheKey) -> bytes | None:
        """The payload of an entry, or None."""
        found = self.find(key)
        return None if found is None else found.payload

    def find(self, key: CacheKey) -> Stored | None:
        """An entry's payload and metadata, or None."""
        found = self._search(self._directories, key, lambda stored: stored)
        if found is None:
            self._counters.add(misses=1)
            return None
        return found[0]

    def put(self, key: CacheKey, payload: bytes, meta: bytes = b"") -> bool:
        """Keeps an entry, in place of one of that key; whether it was written. `meta` is kept beside the payload and means nothing here.

        Raises CacheError for what is no bytes.
        """
        if not (isinstance(payload, bytes) and isinstance(meta, bytes)):
            raise CacheError(f"payload {shown(payload)} and metadata {shown(meta)} are not an entry", remedy="both are bytes")
        data = entry.encode(key, Stored(payload, meta))
        if self._own is None or len(data) > self._largest:
            self._counters.add(skipped_writes=1)
            return False
        try:
            written = self._write(self._own, key.name, data)
        except OSError:
            self._counters.add(errors=1, skipped_writes=1)
            return False
        if not written:
            self._counters.add(skipped_writes=1)
        return written

    def get_or_make(self, key: CacheKey, make: Callable[[], bytes | Stored], decode: Callable[[bytes], _T]) -> _T:
        """The result of `decode` for an entry's payload. A missing entry is made by `make` and kept.

        Of many threads and processes that want an entry one makes it; the others wait and read it. They do not wait for one that dies or is too slow.
        An entry for which `decode` raises any exception is a miss. Errors of `make`, and of `decode` for a payload just made, go to the caller.
        """
        found = self._search(self._directories, key, lambda stored: decode(stored.payload))
        if found is not None:
            return found[0]
        with self._single_flight.claim(key.name, self._own) as claim:
            if claim.waited:
                self._counters.add(waits=1)
            if claim.payload is not None:
                self._counters.add(hits=1)
                return decode(claim.payload)
            found = self._search(self._directories[: self._own is not None], key, lambda stored: decode(stored.payload))  # another process may have made it
            if found is not None:
                return found[0]
            self._counters.add(misses=1)
            made = make()
            payload, meta = made if isinstance(made, Stored) else (made, b"")
            value = decode(payload)
            claim.made = payload
            self.put(key, payload, meta)
        return value

    def _search(self, directories: Sequence[Directory], key: CacheKey, accept: Callable[[Stored], _T]) -> tuple[_T] | None:
        """The first entry of that key that `accept` takes, as what it makes of it."""
        for directory in directories:
            try:
                folder = directory.open()
                if folder is None:
                    continue
                try:
                    found = self._take(folder, key, accept)
                finally:
                    folder.close()
            except OSError:
                self._counters.add(errors=1)
                continue
            if found is not None:
                return found
        return None

    def _take(self, folder: Folder, key: CacheKey, accept: Callable[[Stored], _T]) -> tuple[_T] | None:
        looked = entry.look(folder, key.name, key.data, used_s=time.time())
        if looked is None:
            return None
        stored, fault, inode, _ = looked
        if stored is not None:
            try:
                value = accept(stored)
            except Exception:  # noqa: BLE001 - whatever a decoder raises at bytes that it does not take, they are made again
                fault = Fault.PAYLOAD
            else:
                self._counters.add(hits=1, tier_hits=not folder.writable, bytes_read=len(stored.payload))
                return (value,)
        assert fault is not None
        self._reject(folder, key.name, fault, inode)
        return None

    def _reject(self, folder: Folder, name: str, fault: Fault, inode: int) -> None:
        self._counters.reject(fault)
        if folder.writable:
            eviction.set_aside(folder, name, inode)

    @property
    def _largest(self) -> int:
        """Bytes of the largest entry that is kept."""
        return min(entry.ENTRY_LIMIT_BYTES, eviction.kept_bytes(self.limit_bytes))

    def _write(self, own: Directory, name: str, data: bytes) -> bool:
        """Writes an entry, and makes room where it is time; whether there was a directory. Raises OSError where it could not be written."""
        folder = own.open(create=True)
        if folder is None:
            return False
        try:
            entry.write(folder, name, data)
            due = eviction.record(folder, len(data), self.limit_bytes)
        finally:
            folder.close()
        self._counters.add(writes=1, bytes_written=len(data))
        if due:
            try:
                self._counters.add(evictions=eviction.trim(own, eviction.kept_bytes(self.limit_bytes)))
            except OSError:
                self._counters.add(errors=1)
        return True

    # ---------------------------------------------------------------- all entries

    def snapshot(self) -> CacheSnapshot:
        """The counters of this object in this process."""
        return self._counters.snapshot()

    def stats(self) -> CacheStats:
        """The content of the cache. Raises CacheError where its directory cannot be read."""
        with self._reading("stats") as folder:
            found = eviction.Census() if folder is None else eviction.census(folder, time.time())
        return CacheStats(
            self.path, self.trouble, len(found.entries), found.size_bytes, self.limit_bytes, len(found.aside), len(found.stale), self.read_only, self.snapshot()
        )  # fmt: skip

    def entries(self) -> list[Listed]:
        """The entries of the cache's own directory, last used first; those whose head cannot be read are left out (`verify` names them).

        Raises CacheError where the directory cannot be read.
        """
        listed: list[Listed] = []
        with self._reading("entries") as folder:
            if folder is not None:
                for used_s, size, name in sorted(eviction.census(folder, time.time()).entries, reverse=True):
                    with suppress(OSError):  # it went meanwhile, or it is no file
                        if (key := entry.key_at(folder, name)) is not None:
                            listed.append(Listed(key, size, used_s))
        return listed

    def verify(self, progress: Progress | None = None) -> Verified:
        """Reads every entry of the cache's own directory as `get` would, without marking it as used; bad ones are set aside.

        `progress` is called with the number of entries done, and of all. Raises CacheError where the directory cannot be read.
        """
        bad: list[tuple[str, Fault]] = []
        good = size = 0
        with self._reading("verify") as folder:
            for name, looked in () if folder is None else eviction.survey(folder, progress):
                assert folder is not None
                if looked.fault is not None:
                    bad.append((name, looked.fault))
                    self._reject(folder, name, looked.fault, looked.inode)
                elif looked.stored is not None:
                    good += 1
                    size += len(looked.stored.payload)
        return Verified(good, size, tuple(bad))

    def clear(self) -> int:
        """Takes all entries away; how many. Others may use the cache meanwhile. Raises CacheError where the directory cannot be read."""
        with self._failing("clear"):
            return 0 if self._own is None else eviction.clear(self._own)

    def trim(self, keep_bytes: int | None = None) -> int:
        """Takes entries away, least recently used first, until no more than `keep_bytes` are left, without it what is usual under the limit; how many.

        Raises CacheError for a number below zero, and where the directory cannot be read.
        """
        if keep_bytes is not None and (not isinstance(keep_bytes, int) or keep_bytes < 0):
            raise CacheError(f"trim to {shown(keep_bytes)} bytes", remedy="give a whole number from 0 up")
        keep = eviction.kept_bytes(self.limit_bytes) if keep_bytes is None else keep_bytes
        with self._failing("trim"):
            gone = 0 if self._own is None else eviction.trim(self._own, keep)
        self._counters.add(evictions=gone)
        return gone

    def export(self, path: str | os.PathLike[str], progress: Progress | None = None) -> Bundled:
        """Writes all good entries of the cache's own directory into one file, a bundle, which replaces what was there; how many, and its bytes.

        Raises CacheError where the directory cannot be read or the file not written.
        """
        target = _absolute(path)
        with self._reading(f"export to {str(target)!r}") as folder:
            return bundle.export(folder, target, progress)

    def import_(self, path: str | os.PathLike[str], progress: Progress | None = None) -> Bundled:
        """Takes the entries of a bundle in, each whole or not at all; how many, and the bundle's bytes. All of it is checked before any is taken.

        Raises CacheError for a bundle that is not whole or larger than the cache, with the entry at fault, and where an entry cannot be written.
        """
        source = _absolute(path)
        keep = eviction.kept_bytes(self.limit_bytes)
        with self._failing(f"import of {str(source)!r}"), bundle.opened(source) as opened:
            for name, data in opened.checked(keep, self._largest, progress):
                if self._own is None or not self._write(self._own, name, data):
                    raise CacheError(f"nothing can be imported into the disk cache: {self.trouble}")
            return opened.summary()

    @contextmanager
    def _reading(self, doing: str) -> Iterator[Folder | None]:
        """The cache's own directory, None where it is not there or not used; what the system refuses is a CacheError."""
        with self._failing(doing):
            folder = None if self._own is None else self._own.open()
            try:
                yield folder
            finally:
                if folder is not None:
                    folder.close()

    @contextmanager
    def _failing(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            status = errno.errorcode.get(error.errno or 0, "")
            raise CacheError(f"{doing} (disk cache at {str(self.path)!r})", status=status, meaning=error.strerror or str(error)) from error

    def _forget(self) -> None:
        self._single_flight.forget()
        self._counters.forget()


def _absolute(path: str | os.PathLike[str]) -> Path:
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise CacheError(f"{shown(path)} is not a path", remedy="give a text that names a directory or a file")
    return Path(text).absolute()


_alive: WeakSet[DiskCache] = WeakSet()


def _after_fork() -> None:
    for cache in list(_alive):
        cache._forget()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_after_fork)
