"""Files that are read without blocking and replaced atomically: a name means the old file or the new one. Links and devices stay what they are."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

__all__ = ["reading", "replacing"]

_FLAGS: Final = os.O_WRONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[tuple[BinaryIO, int]]:
    """A regular file that is open for reading, and its size in bytes. Raises OSError, and for a pipe without a writer it does so at once."""
    descriptor = os.open(path, os.O_RDONLY | sum([getattr(os, name, 0) for name in ("O_BINARY", "O_CLOEXEC", "O_NONBLOCK")]))
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError("it is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        yield file, status.st_size


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write in: a new one beside `path`, which replaces it once the block has succeeded and all is on the disk. No reader sees a partial file.

    A link stays, and what it leads to is replaced. A device, a pipe and what else is no regular file is written to as it is. Raises OSError, and TypeError or
    ValueError for what no path can be.
    """
    place = Path(os.path.realpath(path))
    try:
        mode = place.stat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    if not stat.S_ISREG(mode):
        with os.fdopen(os.open(place, _FLAGS), "wb") as file:
            yield file
        return
    beside = place.with_name(f".vyre-{os.urandom(8).hex()}.tmp")
    descriptor = os.open(beside, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666)  # the rights that new files have
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(place)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    _settle(place.parent)


def _settle(folder: Path) -> None:
    """Brings a rename down to the disk, where the system lets folders be opened for that."""
    if only := getattr(os, "O_DIRECTORY", 0):
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | only)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
