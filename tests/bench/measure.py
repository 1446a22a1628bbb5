"""Medians over rounds, printed with their ratio to a peer measured in the same run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

__all__ = ["per_call_us", "row", "seconds"]


def seconds(work: Callable[[], object], rounds: int = 7) -> float:
    """The median time of one call, after one call to warm up."""
    work()
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def per_call_us(work: Callable[[], object], wait: Callable[[], object], calls: int = 2000, rounds: int = 9) -> float:
    """The median host time of one call in microseconds, over rounds of many calls; `wait` drains the device between rounds."""
    work()
    wait()
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        taken.append((time.perf_counter() - start) / calls)
        wait()
    return statistics.median(taken) * 1e6


def row(what: str, ours: float, unit: str, peer: float | None = None, name: str = "", more_is_better: bool = False) -> None:
    """One line: our figure, the peer's, and how many times better ours is."""
    text = f"{what:46s} {ours:12.3f} {unit:10s}"
    if peer is not None:
        ratio = ours / peer if more_is_better else peer / ours
        text += f" {name:22s} {peer:12.3f}   {ratio:6.2f}x"
    print(text, flush=True)
