"""How many cores there are to use, and how many threads use them."""

from __future__ import annotations

import os
from typing import Final

from vyre_py.drivers.errors import DriverError

__all__ = ["MAX_THREADS", "core_count", "thread_count"]

MAX_THREADS: Final = 4096


def core_count() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_count() -> int:
    """How many threads run a grid on the CPU at most: what VYRE_CPU_THREADS says; else one a core, or fewer where OMP_NUM_THREADS says so, by which those who
    start many processes, such as Dask, tell native libraries. Raises DriverError for a VYRE_CPU_THREADS that is no number of threads."""
    given = os.environ.get("VYRE_CPU_THREADS", "").strip()
    if not given:
        others = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # one for each level of nesting
        return min(core_count(), int(others)) if _is_count(others) else core_count()
    if not _is_count(given):
        raise DriverError(f"VYRE_CPU_THREADS={given!r} is not a number of threads", remedy=f"set it to a whole number from 1 to {MAX_THREADS}, or unset it")
    return int(given)


def _is_count(word: str) -> bool:
    return word.isascii() and word.isdigit() and 0 < int(word) <= MAX_THREADS
