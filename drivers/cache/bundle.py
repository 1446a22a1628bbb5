"""Bundles: many entries of the disk cache in one file, to be carried to other machines. drivers/CACHE.md describes the layout for people."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from vyre_py.drivers.cache.directory import Folder
from vyre_py.drivers.cache.entry import Fault, decode, key_within
from vyre_py.drivers.cache.eviction import survey
from vyre_py.drivers.cache.key import CacheKey
from vyre_py.drivers.errors import CacheError
from vyre_py.ir.wire.record import DIGEST_BYTES, Flaw, Malformed, Record
from vyre_py.lowering.files import reading, replacing

__all__ = ["Bundle", "Bundled", "Progress", "export", "opened"]

Progress = Callable[[int, int], None]  # called with what is done, and all that there is to do

_HEAD: Final = Record({"magic": ("8s", ""), "version": ("I", "1")}, magic=b"\x89vyrb\r\n\x1a", versions=[(1,)], rest=True)
_NUMBER: Final = struct.Struct("<Q")  # before each entry its bytes; after the last 0, and how many there are


class Bundled(NamedTuple):
    """The number of entries that were written to or read from a bundle, and the bytes of its file."""

    entries: int
    size_bytes: int


def export(folder: Folder | None, path: Path, progress: Progress | None) -> Bundled:
    """Writes the good entries of a folder as a bundle, in the order of their names, in place of what was at `path`. Raises OSError."""
    with replacing(path) as file:
        return _export(folder, file, progress)


def _export(folder: Folder | None, file: BinaryIO, progress: Progress | None) -> Bundled:
    digest, count, size = sha256(), 0, 0

    def put(*parts: bytes) -> None:
        nonlocal size
        for part in parts:
            digest.update(part)
            size += file.write(part)

    put(_HEAD.write({}, ()))
    for _, looked in () if folder is None else survey(folder, progress):
        if looked.stored is not None:
            put(_NUMBER.pack(len(looked.data)), looked.data)
            count += 1
    put(_NUMBER.pack(0), _NUMBER.pack(count))
    put(digest.digest())
    return Bundled(count, size)


class Bundle:
    """A bundle that is open for reading; `path` is how messages name it."""

    def __init__(self, path: Path, file: BinaryIO, size_bytes: int) -> None:
        self._path = path
        self._file = file
        self._size_bytes = size_bytes
        self._count = 0

    def summary(self) -> Bundled:
        """The content, after all checks."""
        return Bundled(self._count, self._size_bytes)

    def checked(self, limit_bytes: int, largest_bytes: int, progress: Progress | None) -> Iterator[tuple[str, bytes]]:
        """The file name and bytes of each entry, once all of the bundle has been read and found good; of what fits into a cache of `limit_bytes`, with
        entries of at most `largest_bytes`. `progress` hears of each entry twice: read, and taken.

        Raises CacheError for anything else, naming the entry, and OSError.
        """
        if self._size_bytes > limit_bytes:
            raise self._refused(f"it has {self._size_bytes:,} bytes, and the cache keeps {limit_bytes:,}", remedy="VYRE_CACHE_LIMIT raises that")
        total = 2 * self._promised()
        tell = progress or (lambda done, total: None)
        for number, _ in enumerate(self._entries(largest_bytes), 1):
            self._count = number
            tell(min(number, total // 2), total)
        for number, (key, data) in enumerate(self._entries(largest_bytes), 1):
            yield key.name, data
            tell(min(total // 2 + number, total), total)

    def _promised(self) -> int:
        """How many entries the end of the file speaks of, for progress; believed once it has been checked."""
        self._file.seek(-min(_NUMBER.size + DIGEST_BYTES, self._size_bytes), os.SEEK_END)
        return int.from_bytes(self._file.read(_NUMBER.size), "little")

    def _entries(self, largest_bytes: int) -> Iterator[tuple[CacheKey, bytes]]:
        """All entries in order, each checked; the count and the digest of all are checked at the end."""
        self._file.seek(0)
        digest = sha256()

        def take(size: int, what: str) -> bytes:
            data = self._file.read(size)
            if len(data) != size:
                raise self._refused(f"it ends within {what}")
            digest.update(data)
            return data

        try:
            _HEAD.read(take(_HEAD.least, "its head"))
        except Malformed as bad:
            raise self._refused("it is not a bundle of cached code" if bad.flaw is Flaw.MAGIC else str(bad)) from None
        count = 0
        while size := _NUMBER.unpack(take(_NUMBER.size, f"entry {count}"))[0]:
            if size > largest_bytes:
                raise self._refused(f"entry {count} would have {size:,} bytes, and the cache takes {largest_bytes:,}")
            data = take(size, f"entry {count}")
            key, held = key_within(data), decode(data)
            if isinstance(held, Fault) or key is None:
                named = "" if key is None else f" ({key.name}, of kind {key.kind})"
                raise self._refused(f"entry {count}{named} is not what was written: {held if isinstance(held, Fault) else Fault.KEY}")
            yield key, data
            count += 1
        if _NUMBER.unpack(take(_NUMBER.size, "its end"))[0] != count:
            raise self._refused(f"{count} entries are in it, and its end speaks of another number")
        whole = digest.digest()
        if take(DIGEST_BYTES, "its digest") != whole or self._file.read(1):
            raise self._refused("its digest is not that of what is in it")

    def _refused(self, why: str, remedy: str = "export it again") -> CacheError:
        return CacheError(f"the bundle {str(self._path)!r} is refused: {why}", remedy=remedy)


@contextmanager
def opened(path: Path) -> Iterator[Bundle]:
    """A bundle's file, open. Raises OSError."""
    with reading(path) as (file, size):
        yield Bundle(path, file, size)
