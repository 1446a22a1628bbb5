"""One entry of the disk cache: the layout of its file, and the checks before any of it is used.

drivers/CACHE.md describes the layout for people.
"""

from __future__ import annotations

import os
import stat
from enum import StrEnum
from typing import Final, NamedTuple

from vyre_py.drivers.cache.directory import CHECKED, Folder, close
from vyre_py.drivers.cache.key import KEY_LIMIT_BYTES, CacheKey
from vyre_py.ir.wire.record import Malformed, Record, Section

__all__ = ["ENTRY_LIMIT_BYTES", "Fault", "Look", "Stored", "decode", "encode", "key_at", "key_within", "look", "read_bytes", "write"]

ENTRY_LIMIT_BYTES: Final = 128 << 20

_ENTRY: Final = Record(
    {
        "magic": ("8s", "not text, and cut short by whatever rewrites the ends of lines"), "version": ("I", "1"),
        "key_bytes": ("I", "of the key"), "meta_bytes": ("Q", "of the metadata"), "payload_bytes": ("Q", "of the payload"),
    },
    [Section("key", "key_bytes"), Section("meta", "meta_bytes"), Section("payload", "payload_bytes")],
    magic=b"\x89vyre\r\n\x1a", versions=[(1,)], sealed=True,
)  # fmt: skip
_TOUCH_S: Final = 60.0  # how exact "least recently used" is; a hit within it costs no write


class Fault(StrEnum):
    """Why an entry is not believed; the words are those of the counters."""

    FILE = "file"  # a directory, a link, a FIFO: no regular file
    OWNER = "owner"  # it belongs to another user
    MODE = "mode"  # others than its owner may write it
    SIZE = "size"  # larger than any entry
    MAGIC = "magic"  # no entry
    VERSION = "version"  # of another format
    LAYOUT = "layout"  # its parts do not add up to its size
    DIGEST = "digest"  # not what was written
    KEY = "key"  # whole, and about something else
    PAYLOAD = "payload"  # complete, but the caller's `decode` refused it


class Stored(NamedTuple):
    """The content of an entry beside its key: the code, and metadata of its writer's choice."""

    payload: bytes
    meta: bytes = b""


class Look(NamedTuple):
    """What was found at an entry's name: what it holds, or why that is not believed. `inode` tells this file from one that replaces it; `data` is all
    that was read."""

    stored: Stored | None
    fault: Fault | None
    inode: int
    data: bytes = b""


def encode(key: CacheKey, stored: Stored) -> bytes:
    """The bytes of an entry's file."""
    sizes = {"key_bytes": len(key.data), "meta_bytes": len(stored.meta), "payload_bytes": len(stored.payload)}
    return _ENTRY.write(sizes, (key.data, stored.meta, stored.payload))


def decode(data: bytes, key: bytes | None = None) -> Stored | Fault:
    """The content of an entry's bytes, or why they are bad. Without a key, any key is accepted."""
    if len(data) < _ENTRY.least:
        return Fault.LAYOUT
    try:
        _, (begin, meta, payload, end) = _ENTRY.read(data)
    except Malformed as bad:
        return Fault(bad.flaw)
    own = data[begin:meta]
    if own != key if key is not None else CacheKey.parse(own) is None:
        return Fault.KEY
    return Stored(data[payload:end], data[meta:payload])


def key_within(data: bytes) -> CacheKey | None:
    """The key at the start of an entry's bytes, for lists; nothing else is checked. None without one."""
    try:
        begin, meta, *_ = _ENTRY.places(_ENTRY.begin(data))
    except Malformed:
        return None
    return CacheKey.parse(data[begin:meta]) if meta - begin <= KEY_LIMIT_BYTES else None


def look(folder: Folder, name: str, key: bytes | None, *, used_s: float | None = None) -> Look | None:
    """Reads the entry of that name; None without one. Without `key`, the entry's own key must match the name. Raises OSError.

    `used_s` marks it as used at that time (now, in seconds since 1970). Nothing at that name makes this wait: a FIFO is opened without waiting for a
    writer, and a link is not followed.
    """
    try:
        file = folder.open(name, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError:
        status = folder.status(name)  # a link and a socket cannot be opened, another's file perhaps not: neither is trouble with the disk
        if fault := _fault(status, folder.owner):
            return Look(None, fault, status.st_ino)
        raise
    try:
        status = os.fstat(file)
        if fault := _fault(status, folder.owner):
            return Look(None, fault, status.st_ino)
        data = read_bytes(file, status.st_size)
        held = decode(data, key)
        if key is None and not isinstance(held, Fault) and not _is_named(data, name):
            held = Fault.KEY
        if isinstance(held, Fault):
            return Look(None, held, status.st_ino)
        if used_s is not None and folder.writable and abs(used_s - status.st_mtime) > _TOUCH_S:
            folder.touch(file, name)
        return Look(held, None, status.st_ino, data)
    finally:
        close(file)


def key_at(folder: Folder, name: str) -> CacheKey | None:
    """The key of the entry of that name, by its head alone; None where it has none that fits its name. Raises OSError."""
    file = folder.open(name, os.O_RDONLY)
    try:
        status = os.fstat(file)
        key = None if _fault(status, folder.owner) else key_within(read_bytes(file, min(status.st_size, _ENTRY.head.size + KEY_LIMIT_BYTES)))
    finally:
        close(file)
    return key if key is not None and key.name == name else None


def _is_named(data: bytes, name: str) -> bool:
    key = key_within(data)
    return key is not None and key.name == name


def write(folder: Folder, name: str, data: bytes) -> None:
    """Writes an entry atomically: to a private file under a name that is never read, which is then renamed. Raises OSError.

    It is not synced to the disk: what a power failure leaves of it has another digest, and is then compiled again.
    """
    temporary = f"tmp-{os.getpid():x}-{os.urandom(8).hex()}"
    file = folder.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(file, left) :]
        finally:
            os.close(file)
        folder.rename(temporary, name)
    except BaseException:
        folder.discard(temporary)
        raise


def read_bytes(file: int, size: int) -> bytes:
    """So many bytes from an open file, or those until its end. Raises OSError."""
    data = os.read(file, size)
    if len(data) == size:
        return data
    parts = [data]
    while data and (size := size - len(data)):
        data = os.read(file, size)
        parts.append(data)
    return b"".join(parts)


def _fault(status: os.stat_result, owner: int) -> Fault | None:
    """Why a file's status makes it unusable."""
    if not stat.S_ISREG(status.st_mode):
        return Fault.FILE
    if CHECKED and status.st_uid != owner:
        return Fault.OWNER
    if CHECKED and status.st_mode & 0o022:
        return Fault.MODE
    return Fault.SIZE if status.st_size > ENTRY_LIMIT_BYTES else None
