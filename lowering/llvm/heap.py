"""The heap of the C library, kept while compilations come and go."""

from __future__ import annotations

import ctypes
import platform
from functools import lru_cache
from typing import Final

__all__ = ["keep_heap"]

_BYTES: Final = 8 << 20


@lru_cache(maxsize=1)
def keep_heap() -> None:
    """Has glibc give memory back to the system a little later, which takes a fifth off a compilation.

    A compiler takes some megabytes and gives them back, each time; glibc returns the end of its heap to the system as soon as 128 KiB of it are free,
    and the next compilation takes some 800 page faults to have it again. Having seen a block of 8 MiB freed, glibc waits for twice as much (the
    "dynamic mmap threshold" of mallopt(3)): what any program brings about that once frees a large block. Other C libraries are left alone.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
    library.free(library.malloc(_BYTES))
