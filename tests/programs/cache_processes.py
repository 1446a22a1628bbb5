"""Processes that use one cache at once: `python -m cache_processes WHAT DIRECTORY LOG COUNT`. What they find wrong they write to standard error.

They are forked from a small process, since a fork of the one that runs the tests takes long.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cache_cases import PATIENCE_S, children_end, in_child, key, payload

from vyre_py.drivers.cache.disk import CacheKey, DiskCache

PROCESSES = 16
KEYS = [key(number) for number in range(50)]


class Log:
    """A file that many processes add whole lines to."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())


def use(cache: DiskCache, log: Log, seed: int, done: Callable[[], bool]) -> None:
    """Wants all keys, in another order each time, and looks at what it gets; until it is done, and twice at least."""
    order, rounds = random.Random(seed), 0
    while rounds < 2 or not done():
        rounds += 1
        for wanted in order.sample(KEYS, len(KEYS)):
            assert cache.get_or_make(wanted, compiler(wanted, log), bytes) == payload(wanted), f"an entry of another key, or of several, for {wanted}"
    figures = cache.snapshot()
    assert not figures.errors and not figures.rejected and not figures.skipped_writes, figures


def compiler(wanted: CacheKey, log: Log) -> Callable[[], bytes]:
    def make() -> bytes:
        log.add(f"made {wanted.name}")
        time.sleep(0.002)
        return payload(wanted)

    return make


def together(path: Path, log_path: Path, clears: int) -> None:
    """Sixteen processes that start at one moment, and one more that clears the cache so many times while they run."""
    gate, opener = os.pipe()
    cleared = log_path.with_name("cleared")

    def work(seed: int) -> Callable[[], None]:
        def run() -> None:
            os.close(opener)
            os.read(gate, 1)
            use(DiskCache(path), Log(log_path), seed, lambda: not clears or cleared.exists())

        return run

    def clear() -> None:
        os.close(opener)
        os.read(gate, 1)
        cache, log = DiskCache(path), Log(log_path)
        for _ in range(clears):
            time.sleep(0.02)
            log.add("clear")
            cache.clear()
        cleared.write_text("")

    children = [in_child(work(seed)) for seed in range(PROCESSES)]
    if clears:
        children.append(in_child(clear))
    os.close(opener)
    children_end(*children)


def kills(path: Path, kills_wanted: int) -> None:
    """Writers that are killed with SIGKILL at any moment of writing, locking, trimming and setting aside: so many, and until one left half a file."""
    moments, killed = random.Random(17), 0
    while killed < kills_wanted or not any(path.glob("tmp-*")):
        killed += 1
        child = in_child(lambda: write_forever(path))
        time.sleep(moments.uniform(0.0003, 0.0025))
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def write_forever(path: Path) -> None:
    cache = DiskCache(path, limit_bytes=1_500_000)
    while True:
        for number, wanted in enumerate(random.Random().sample(KEYS, len(KEYS))):
            held = cache.get_or_make(wanted, partial(payload, wanted, 60_000), bytes)
            assert held == payload(wanted, 60_000), "a torn entry"
            cache.put(wanted, held)
            assert not cache.snapshot().rejected, cache.snapshot()
            if number % 10 == 9:
                cache.trim(500_000)


WHAT: dict[str, Callable[[Path, Path, int], None]] = {
    "together": together,
    "kills": lambda path, log, count: kills(path, count),
}

if __name__ == "__main__":
    signal.alarm(3 * PATIENCE_S)
    WHAT[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
