"""Eviction from the disk cache's directory: entries when it is full, files that crashed processes left, and entries set aside."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Final

from vyre_py.drivers.cache.directory import Directory, Folder, close
from vyre_py.drivers.cache.entry import Look, look
from vyre_py.drivers.cache.single_flight import take_lock
from vyre_py.ir.data_classes import dataclass

__all__ = ["Census", "census", "clear", "kept_bytes", "record", "set_aside", "survey", "trim"]

_ENTRY: Final = re.compile(r"[0-9a-f]{64}\Z")
_ASIDE: Final = re.compile(r"aside-[0-9a-f]\Z")
_TALLY: Final = "tally"
_TALLY_UNIT_BYTES: Final = 4096  # one byte of the tally stands for so many
_STALE_S: Final = 60.0  # writing an entry takes milliseconds: a temporary file of this age has no writer


@dataclass(slots=True)
class Census:
    """The cache's files in its directory; other names are ignored. Entries are (last used in s since 1970, bytes, name)."""

    entries: list[tuple[float, int, str]] = field(default_factory=list)
    aside: list[tuple[int, str]] = field(default_factory=list)  # bytes, name
    stale: list[tuple[int, str]] = field(default_factory=list)  # temporary files whose writers are gone
    locks: list[str] = field(default_factory=list)  # not wanted for a while

    @property
    def size_bytes(self) -> int:
        """Of all files that can be taken away."""
        return sum(size for _, size, _ in self.entries) + sum(size for size, _ in self.aside) + sum(size for size, _ in self.stale)


def census(folder: Folder, now_s: float) -> Census:
    """Looks through the directory, at names and sizes alone. Raises OSError."""
    found = Census()
    for name, status in folder.scan():
        size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        old = abs(now_s - status.st_mtime) > _STALE_S
        if _ENTRY.match(name):
            found.entries.append((status.st_mtime, size, name))
        elif _ASIDE.match(name):
            found.aside.append((size, name))
        elif old and name.startswith("tmp-"):
            found.stale.append((size, name))
        elif old and name.startswith("lock-"):
            found.locks.append(name)
    return found


def survey(folder: Folder, progress: Callable[[int, int], None] | None = None) -> Iterator[tuple[str, Look]]:
    """Reads all entries, in the order of their names; those that go meanwhile are left out. `progress` hears how many are done, and of how many.
    Raises OSError."""
    names = sorted(name for _, _, name in census(folder, time.time()).entries)
    for done, name in enumerate(names, 1):
        looked = look(folder, name, None)
        if looked is not None:
            yield name, looked
        if progress is not None:
            progress(done, len(names))


def kept_bytes(limit_bytes: int) -> int:
    """The size to which a cache of that limit is trimmed. It is trimmed each time that all processes together have written a sixteenth of the limit, so that
    its size stays below the limit."""
    return limit_bytes - 2 * (limit_bytes // 16)


def record(folder: Folder, size_bytes: int, limit_bytes: int) -> bool:
    """Adds what was written to the tally that all processes share, whose length counts; whether it is time to trim."""
    units = -(-size_bytes // _TALLY_UNIT_BYTES)
    try:
        file = folder.open(_TALLY, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            status = os.fstat(file)
            if stat.S_ISREG(status.st_mode):
                return status.st_size + os.write(file, b"." * units) > limit_bytes // 16 // _TALLY_UNIT_BYTES
        finally:
            close(file)
    except OSError:
        pass  # no room to count, or something else lies there: then each write looks
    return True


def trim(directory: Directory, keep_bytes: int) -> int:
    """Takes entries away, least recently used first, until so many bytes are left, and before them what was set aside and left behind; the number of
    entries that went. Another process that does the same at this moment is enough. Raises OSError."""
    try:
        lock = take_lock(directory, "lock-trim")
        if lock is None:
            return 0
    except OSError:
        lock = None  # no locks here: two may trim at once, and each takes the oldest away
    try:
        folder = directory.open()
        if folder is None:
            return 0
        try:
            folder.discard(_TALLY)
            return _cut(directory, folder, keep_bytes)
        finally:
            folder.close()
    finally:
        if lock is not None:
            lock.release()


def clear(directory: Directory) -> int:
    """Takes all entries away, and what was set aside or left behind; the number of entries that went. Others may go on meanwhile: their locks and the
    files that they are writing stay. Raises OSError."""
    folder = directory.open()
    if folder is None:
        return 0
    try:
        folder.discard(_TALLY)
        return _cut(directory, folder, 0)
    finally:
        folder.close()


def _cut(directory: Directory, folder: Folder, keep_bytes: int) -> int:
    found = census(folder, time.time())
    size = found.size_bytes
    for of_file, name in found.stale:
        if folder.discard(name):
            size -= of_file
    _drop_locks(directory, found.locks)
    for of_file, name in found.aside:
        if size > keep_bytes or keep_bytes == 0:
            size -= of_file if _discard_any(folder, name) else 0
    gone = 0
    for _, of_file, name in sorted(found.entries):
        if size <= keep_bytes and keep_bytes:
            break
        if _discard_any(folder, name):
            size -= of_file
            gone += 1
    return gone


def _drop_locks(directory: Directory, names: list[str]) -> None:
    """Removes the files of locks whose holders died."""
    for name in names:
        try:
            lock = take_lock(directory, name)
        except OSError:
            continue
        if lock is not None:
            lock.release()


def set_aside(folder: Folder, name: str, inode: int) -> None:
    """Sets a bad entry aside for diagnosis: into one of sixteen places, each of which keeps its last entry.

    What cannot be moved is removed; a directory that holds something stays, and its entry is compiled each time.
    """
    try:
        if folder.status(name).st_ino != inode:
            return  # another process has written a good one
        folder.rename(name, f"aside-{name[0]}")
    except OSError:
        _discard_any(folder, name)


def _discard_any(folder: Folder, name: str) -> bool:
    """Removes a file or an empty directory; whether it went."""
    if folder.discard(name):
        return True
    try:
        folder.remove_directory(name)
    except OSError:
        return False
    return True
