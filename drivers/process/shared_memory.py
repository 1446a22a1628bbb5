"""Memory that two processes share: a file without a name, so that nothing is left behind, however either of them ends.

On Linux the file lies in memory (memfd), and is sealed so that neither process can shrink it while the other uses it. Elsewhere it is a temporary file,
unlinked when it is made. A child inherits it as an open descriptor, which Windows does not support.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from vyre_py.drivers.errors import OutOfMemory
from vyre_py.drivers.memory.host_arrays import Bytes, Host
from vyre_py.ir.imports import importing

__all__ = ["ALIGNMENT", "SharedMemory", "anonymous_file", "places"]

ALIGNMENT: Final = 128
_GRAIN: Final = 1 << 20  # grown by whole multiples of this
_KEPT_BYTES: Final = 256 << 20  # of which the pages stay between calls
_ASKED_BYTES: Final = 64 << 20  # from which on the system is asked first whether it has so much
_MAX_BYTES: Final = 1 << 46
_FIRST_DESCRIPTOR: Final = 3  # after the standard streams


def places(sizes: list[int]) -> tuple[list[int], int]:
    """Where arrays of these sizes in bytes go, one after the other, and the bytes of all."""
    offsets, end = [], 0
    for size in sizes:
        offsets.append(end)
        end += -(-size // ALIGNMENT) * ALIGNMENT
    return offsets, end


class SharedMemory:
    """Bytes that two processes see. `SharedMemory()` makes them, `SharedMemory(fd)` takes them over in the process that was handed `fd`."""

    __slots__ = ("_backed", "_map", "fd")

    def __init__(self, fd: int | None = None) -> None:
        self.fd = anonymous_file("vyre-executor") if fd is None else fd
        self._backed = 0  # bytes from the beginning that have pages
        self._map: mmap.mmap | None = None
        if fd is None:
            try:
                _seal(self.fd)
                self.reserve(1)
            except BaseException:
                os.close(self.fd)
                raise

    def reserve(self, size_bytes: int) -> None:
        """Makes it hold so many bytes; what it held stays. Raises OutOfMemory, and then nothing has changed."""
        if size_bytes <= self._backed:
            return
        wanted = -(-size_bytes // _GRAIN) * _GRAIN
        free = _available_bytes() if wanted - self._backed >= _ASKED_BYTES else None
        problem = None if free is None or wanted - self._backed <= free else f"{free} bytes are free"
        if wanted > _MAX_BYTES:
            problem = f"{_MAX_BYTES} bytes are the most"
        try:
            if problem is None:
                self._back(wanted)
        except (OSError, ValueError, OverflowError) as error:
            problem = str(error)
        if problem is not None:
            raise OutOfMemory(
                f"{size_bytes} bytes of shared memory cannot be had", cause=problem, remedy="pass smaller arrays, or keep them in the worker: executor.upload"
            )
        self._backed = wanted

    def _back(self, size_bytes: int) -> None:
        # Pages that could not be had later would end the process by a signal, so that they are asked for now.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self.fd, self._backed, size_bytes - self._backed)
        elif os.fstat(self.fd).st_size < size_bytes:
            os.truncate(self.fd, size_bytes)

    def array(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Host:
        """The C-contiguous array at an offset, without a copy. Raises ValueError where it does not lie within."""
        size = prod(shape) * dtype.itemsize
        if offset < 0 or any(s < 0 for s in shape) or offset + size > _MAX_BYTES:
            raise ValueError(f"{size} bytes at {offset} cannot hold an array")
        return np.ndarray(shape, dtype, self._mapped(offset + size), offset)

    def put(self, data: Bytes) -> None:
        """Writes bytes at the beginning. Raises OutOfMemory."""
        self.reserve(data.size)
        self.array(0, data.shape, data.dtype)[:] = data

    def _mapped(self, size_bytes: int) -> mmap.mmap:
        """A mapping of at least so many bytes."""
        if self._map is None or size_bytes > len(self._map):
            held = os.fstat(self.fd).st_size
            if size_bytes > held:
                raise ValueError(f"{size_bytes} bytes do not lie in the {held} that are shared")
            self._map = mmap.mmap(self.fd, held)  # arrays over the one before keep that alive
        return self._map

    def trim(self, keep_bytes: int = _KEPT_BYTES) -> None:
        """Gives the pages past so many bytes back to the system, where it takes them (Linux)."""
        keep = -(-keep_bytes // _GRAIN) * _GRAIN
        if self._backed > keep and hasattr(mmap, "MADV_REMOVE"):
            self._mapped(self._backed).madvise(mmap.MADV_REMOVE, keep, self._backed - keep)
            self._backed = keep

    def close(self) -> None:
        """Releases it. The memory is freed with the last process that holds it. Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd, self._backed, self._map = -1, 0, None


def anonymous_file(name: str) -> int:
    """An open file without a name; on Linux in memory, where it can be sealed. Its descriptor is not inherited."""
    with importing:
        import fcntl

    if hasattr(os, "memfd_create"):
        made = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        made, path = tempfile.mkstemp(prefix="vyre-")
        Path(path).unlink()
    try:
        # Above those of the standard streams, which are free where a process was started without them: in the child they are the pipes.
        return fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR)
    finally:
        os.close(made)


def _seal(fd: int) -> None:
    """Keeps either process from shrinking a file in memory."""
    if hasattr(os, "memfd_create"):
        with importing:
            import fcntl

        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)


def _meminfo() -> Iterator[tuple[str, int]]:
    for line in Path("/proc/meminfo").read_text("ascii").splitlines():
        name, _, value = line.partition(":")
        yield name, int(value.split()[0])


def _available_bytes() -> int | None:
    """Bytes that the system can give without ending processes, where it says."""
    try:
        return dict(_meminfo())["MemAvailable"] << 10
    except (OSError, ValueError, KeyError):
        return None
