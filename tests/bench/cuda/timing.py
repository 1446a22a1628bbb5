"""Races: several ways to do one thing, timed in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from itertools import repeat

__all__ = ["Work", "race", "repeated"]

# Does a thing so many times.
Work = Callable[[int], object]


def repeated(call: Callable[[], object]) -> Work:
    """A call made again and again, with nothing around it but the loop."""

    def work(times: int) -> None:
        for _ in repeat(None, times):
            call()

    return work


def race(works: Mapping[str, Work], wait: Callable[[], object], calls: int, rounds: int) -> dict[str, float]:
    """The median time of one call of each work, in microseconds.

    In each round every work makes so many calls, so that what changes on the machine changes for all; `wait` drains the device after each, and is not
    timed.
    """
    taken: dict[str, list[int]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            begin = time.perf_counter_ns()
            work(calls)
            taken[name].append(time.perf_counter_ns() - begin)
            wait()
    return {name: statistics.median(times) / calls / 1e3 for name, times in taken.items()}
