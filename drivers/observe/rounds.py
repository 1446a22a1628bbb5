"""How long a launch takes: rounds of many launches in a row, each with one wait at its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

__all__ = ["MAX_ROUNDS", "measured"]

MAX_ROUNDS: Final = 1000  # in one request to a worker
_ROUND_NS: Final = 20_000_000  # how long a round takes about, where one launch is shorter
_MOST_LAUNCHES: Final = 10_000
_WARM_LAUNCHES: Final = 3


def measured(
    launch: Callable[[], object], wait: Callable[[], object], rounds: int, progress: Callable[[int, int], object] | None = None
) -> tuple[list[float], int]:
    """Nanoseconds a launch in each round, and the launches in a round. The first launches are left out: they may load and allocate. `progress` is called
    before each round, with its number and how many there are."""
    once = min(_round(launch, wait, 1) for _ in range(_WARM_LAUNCHES))
    count = max(1, min(_MOST_LAUNCHES, round(_ROUND_NS / max(once, 1.0))))
    taken = []
    for number in range(rounds):
        if progress is not None:
            progress(number, rounds)
        taken.append(_round(launch, wait, count))
    return taken, count


def _round(launch: Callable[[], object], wait: Callable[[], object], count: int) -> float:
    """Nanoseconds a launch, of so many in a row and the wait for them."""
    begin = time.perf_counter_ns()
    for _ in range(count):
        launch()
    wait()
    return (time.perf_counter_ns() - begin) / count
