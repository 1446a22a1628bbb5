"""The threads that run kernels: one pool for the process, each with scratch memory of its own.

The calling thread works too, so there is one thread fewer than cores, a busy or an absent pool only makes a launch slower, and launches
from several threads need no order.
"""

from __future__ import annotations

import itertools
import os
import threading
from queue import SimpleQueue
from typing import Any

from vyre_py.drivers.cpu.memory import aligned_bytes
from vyre_py.drivers.cpu.module import Kernel

__all__ = ["Job", "core_count", "run_alone", "run_together"]


def core_count() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Scratch(threading.local):
    """Scratch memory, each thread its own: as much as the largest kernel so far has asked for."""

    def __init__(self) -> None:
        self.owner: Any = None
        self.address = 0
        self.size_bytes = 0

    def at_least(self, size_bytes: int) -> int:
        """The address of so much. Raises MemoryError."""
        if size_bytes > self.size_bytes:
            self.owner, self.address = aligned_bytes(size_bytes)
            self.size_bytes = size_bytes
        return self.address


_scratch = _Scratch()


class Job:
    """A grid being run by several threads: they take ranges of `step` workgroups from a shared counter.

    The memory that a kernel uses must outlive every thread in it, so the caller leaves only when all others have.
    """

    def __init__(self, kernel: Kernel, block: int, total: int, first: int, step: int, grid: tuple[int, int, int]) -> None:
        self.kernel, self.block, self.total, self.step, self.grid = kernel, block, total, step, grid
        self.error: BaseException | None = None
        self._starts = itertools.count(first, step)
        self._lock = threading.Lock()
        self._helpers = 0
        self._closed = False
        self._left = threading.Semaphore(0)

    def work(self) -> None:
        """Takes ranges until there are none, or another thread has failed."""
        run, block, total, step, grid = self.kernel.run, self.block, self.total, self.step, self.grid
        scratch = _scratch.at_least(self.kernel.scratch_bytes)
        for first in self._starts:
            if first >= total or self.error is not None:
                return
            run(block, scratch, first, min(first + step, total), *grid)

    def help(self) -> None:
        """What a thread of the pool does; it may come too late."""
        with self._lock:
            if self._closed:
                return
            self._helpers += 1
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the caller raises it
            self.error = error
        with self._lock:
            self._helpers -= 1
            if self._closed:
                self._left.release()

    def finish(self) -> None:
        """Lets no more threads in, and waits for those that are. An interrupt meanwhile is raised after the wait."""
        with self._lock:
            self._closed = True
            waiting = self._helpers
        interrupt: BaseException | None = None
        while waiting:
            try:
                self._left.acquire()
                waiting -= 1
            except KeyboardInterrupt as error:
                interrupt = self.error = error
        if interrupt is not None:
            raise interrupt


class _Pool:
    """Daemon threads that wait for jobs; they begin with the first job."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._threads = 0
        self._lock = threading.Lock()

    def offer(self, job: Job, helpers: int) -> None:
        """Asks up to `helpers` threads to help."""
        if self._threads < helpers:
            self._grow(helpers)
        for _ in range(helpers):
            self._jobs.put(job)

    def _grow(self, wanted: int) -> None:
        with self._lock:
            while self._threads < wanted:
                threading.Thread(target=self._serve, name=f"vyre-cpu-{self._threads}", daemon=True).start()
                self._threads += 1

    def _serve(self) -> None:
        while True:
            self._jobs.get().help()


_pool = _Pool()


def _forget_threads() -> None:
    """A forked child has none of its parent's threads."""
    global _pool  # noqa: PLW0603 - the one pool of the process
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def run_alone(kernel: Kernel, block: int, first: int, end: int, grid: tuple[int, int, int]) -> None:
    """Runs workgroups `first` to `end` in this thread."""
    kernel.run(block, _scratch.at_least(kernel.scratch_bytes), first, end, *grid)


def run_together(kernel: Kernel, block: int, first: int, total: int, grid: tuple[int, int, int], threads: int) -> None:
    """Runs workgroups `first` to `total` in up to `threads` threads, this one included, and raises what went wrong in any."""
    # Four ranges a thread even out kernels whose workgroups differ.
    step = max(1, -(-(total - first) // (4 * threads)))
    job = Job(kernel, block, total, first, step, grid)
    _pool.offer(job, min(threads, -(-(total - first) // step)) - 1)
    try:
        job.work()
    except BaseException as error:
        job.error = error
        raise
    finally:
        job.finish()
    if job.error is not None:
        raise job.error
