"""The threads that run kernels: one pool for the process, each with scratch memory of its own.

The calling thread works too. So there is one thread fewer than cores, a launch without free threads is only slower, and launches from several threads
need no order.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable
from queue import SimpleQueue

from vyre_py.drivers.cpu.arguments import Arguments
from vyre_py.drivers.cpu.memory import ALIGN, aligned_bytes
from vyre_py.drivers.cpu.module import CpuKernel

__all__ = ["GridJob", "run_alone", "run_at_once", "run_together", "run_watched"]


class _ScratchBlock:
    """Memory that a kernel uses while it runs in one thread."""

    __slots__ = ("_owner", "address", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self._owner, self.address = aligned_bytes(size_bytes)
        self.size_bytes = size_bytes


class _Scratch(threading.local):
    """Scratch memory, each thread its own: `free` is the largest that was used so far, and None while a kernel uses it, since a signal handler or a
    finaliser may run another kernel in the same thread meanwhile."""

    free: _ScratchBlock | None = None

    def take(self, size_bytes: int) -> _ScratchBlock:
        """At least so much memory, for the caller alone until `give`. After an interrupt `give` may be omitted. Raises MemoryError."""
        memory, self.free = self.free, None
        return _ScratchBlock(size_bytes) if memory is None or memory.size_bytes < size_bytes else memory

    def give(self, memory: _ScratchBlock) -> None:
        """Takes it back."""
        if self.free is None or self.free.size_bytes < memory.size_bytes:
            self.free = memory


_scratch = _Scratch()


def _seconds_until(deadline: float | None) -> float:
    """How long a lock is to be waited for, up to a time by `time.monotonic`: -1 is without end."""
    return -1 if deadline is None else max(0.0, min(deadline - time.monotonic(), threading.TIMEOUT_MAX))


class GridJob:
    """A grid being run by several threads: they take ranges of `step` workgroups from a shared counter.

    The memory that a kernel uses must outlive every thread in it: so the caller leaves only when all others have, and the job holds the arguments until then.
    `over` says that all have left.
    """

    def __init__(self, kernel: CpuKernel, arguments: Arguments, total: int, first: int, step: int, grid: tuple[int, int, int]) -> None:
        self.kernel, self.total, self.step, self.grid = kernel, total, step, grid
        self.arguments: Arguments | None = arguments
        self.error: BaseException | None = None
        self.over = False
        self._starts = itertools.count(first, step)
        self._lock = threading.Lock()
        self._helpers = 0
        self._closed = False
        self._done = threading.Lock()  # released by the first helper that finds nothing more to do
        self._done.acquire()
        self._left = threading.Lock()  # released by the last helper that leaves a closed job
        self._left.acquire()

    def work(self) -> None:
        """Takes ranges until none is left or another thread has failed."""
        arguments = self.arguments
        assert arguments is not None  # this thread has been let in
        run, block, total, step, grid = self.kernel.run, arguments.address, self.total, self.step, self.grid
        scratch = _scratch.take(self.kernel.scratch_bytes)
        for first in self._starts:
            if first >= total or self.error is not None:
                break
            run(block, scratch.address, first, min(first + step, total), *grid)
        _scratch.give(scratch)

    def help(self) -> None:
        """The work of one thread of the pool. It may start when the job is done already."""
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
            if self._done.locked():
                self._done.release()
            if self._closed and not self._helpers:
                self._left.release()

    def wait(self, deadline: float | None) -> bool:
        """Waits until there is nothing more to do, up to a time by `time.monotonic`; gives whether all have left."""
        return self._done.acquire(timeout=_seconds_until(deadline)) and self.finish(deadline)

    def finish(self, deadline: float | None = None) -> bool:
        """Lets no more threads in, and waits for those that are, up to a time; gives whether all have left. Interrupted by what a signal handler raises, it
        can be called again."""
        with self._lock:
            self._closed = True
            waits = self._helpers > 0
        if waits and not self._left.acquire(timeout=_seconds_until(deadline)):
            return False
        self.arguments = None  # helpers that were asked for and are busy elsewhere keep the job for a while
        self.over = True
        return True


class _MeetingJob(GridJob):
    """A grid whose workgroups meet: each has a thread and scratch memory of its own. Either all of them run, to their end, or none: one that did not would be
    waited for without end."""

    def __init__(self, kernel: CpuKernel, arguments: Arguments, total: int, grid: tuple[int, int, int]) -> None:
        super().__init__(kernel, arguments, total, 0, 1, grid)
        self._apart = -(-kernel.scratch_bytes // ALIGN) * ALIGN
        self._memory = _ScratchBlock(self._apart * total)
        self._gate: SimpleQueue[None] = SimpleQueue()  # an Event keeps its lock where a signal handler raises while it takes it
        self._begun = self._is_open = False
        self._ended = 0

    def start(self) -> None:
        """Starts the threads, and lets them in once all are there. Raises MemoryError where the system has no more threads."""
        for number in range(self.total):
            try:
                start_new_thread(self.help, ())  # in one piece, whatever a signal handler raises: `Thread.start` is not
            except RuntimeError as error:
                raise MemoryError(f"the system gives {number} of {self.total} threads") from error
        self._begun = True
        self._open()

    def _open(self) -> None:
        """Lets all threads in. One that is called a second time lets in those that the first, which a signal handler ended, did not."""
        if not self._is_open:
            for _ in range(self.total):
                self._gate.put(None)
            self._is_open = True

    def work(self) -> None:
        """Runs one workgroup."""
        arguments, first = self.arguments, next(self._starts)
        assert arguments is not None  # the caller waits for this thread
        self.kernel.run(arguments.address, self._memory.address + first * self._apart, first, first + 1, *self.grid)

    def help(self) -> None:
        """The work of one thread."""
        self._gate.get()
        if not self._begun:
            return
        self.work()
        with self._lock:
            self._ended += 1
            if self._done.locked():
                self._done.release()
            if self._ended == self.total:
                self._left.release()

    def finish(self, deadline: float | None = None) -> bool:
        """Waits for all workgroups if they have begun; else none ever begins."""
        self._open()
        if self._begun and self._ended < self.total and not self._left.acquire(timeout=_seconds_until(deadline)):
            return False
        self.arguments = None
        self.over = True
        return True


class _ThreadPool:
    """Daemon threads that wait for jobs; they begin with the first job."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[GridJob] = SimpleQueue()
        self._threads = 0
        self._lock = threading.RLock()  # a signal handler may launch while this thread holds it

    def offer(self, job: GridJob, helpers: int) -> None:
        """Asks up to `helpers` threads to help."""
        if self._threads < helpers:
            self._grow(helpers)
        for _ in range(helpers):
            self._jobs.put(job)

    def _grow(self, wanted: int) -> None:
        with self._lock:
            while self._threads < wanted:
                self._threads += 1
                threading.Thread(target=self._serve, name=f"vyre-cpu-{self._threads - 1}", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._jobs.get().help()


_pool = _ThreadPool()


def _forget_threads() -> None:
    """A forked child has none of its parent's threads."""
    global _pool  # noqa: PLW0603 - the one pool of the process
    _pool = _ThreadPool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def run_alone(kernel: CpuKernel, arguments: Arguments, first: int, end: int, grid: tuple[int, int, int]) -> None:
    """Runs workgroups `first` to `end` in this thread."""
    if kernel.scratch_bytes:
        scratch = _scratch.take(kernel.scratch_bytes)
        kernel.run(arguments.address, scratch.address, first, end, *grid)
        _scratch.give(scratch)
    else:
        kernel.run(arguments.address, 0, first, end, *grid)


def _step(workgroups: int, threads: int) -> int:
    """How many workgroups make a range: four ranges a thread even out kernels whose workgroups differ."""
    return max(1, -(-workgroups // (4 * threads)))


def _abandon(job: GridJob, error: BaseException) -> None:
    """Waits for the threads of a job that an exception ends. A signal handler may raise at any moment, at the first instruction of `finish` as well, and more
    than once."""
    job.error = error
    while not job.over:
        try:
            job.finish()
        except BaseException as later:  # noqa: BLE001 - whatever it is, the first is raised
            job.error = later


def run_together(kernel: CpuKernel, arguments: Arguments, first: int, total: int, grid: tuple[int, int, int], threads: int) -> None:
    """Runs workgroups `first` to `total` in up to `threads` threads, this one included, and raises what went wrong in any."""
    step = _step(total - first, threads)
    job = GridJob(kernel, arguments, total, first, step, grid)
    try:
        try:
            _pool.offer(job, min(threads, -(-(total - first) // step)) - 1)
            job.work()
        finally:
            job.finish()
    except BaseException as error:
        _abandon(job, error)
        raise
    if job.error is not None:
        raise job.error


def run_watched(
    kernel: CpuKernel, arguments: Arguments, total: int, grid: tuple[int, int, int], threads: int, deadline: float | None, step: int | None = None
) -> bool:
    """Runs all workgroups of an interruptible kernel in up to `threads` threads of their own, while this one waits, in which Python handles signals. A thread
    takes ranges of `step` workgroups: of all where one hands values on to the next.

    Past the deadline, a time by `time.monotonic`, or where a handler raises, the kernel's loops are ended. Gives whether all was done in time, and raises what
    a handler raises.
    """
    step = step or _step(total, threads)
    job = GridJob(kernel, arguments, total, 0, step, grid)

    def start() -> None:
        for number in range(min(threads, -(-total // step))):
            threading.Thread(target=job.help, name=f"vyre-cpu-watched-{number}", daemon=True).start()

    return _watch(job, start, arguments, deadline)


def run_at_once(kernel: CpuKernel, arguments: Arguments, total: int, grid: tuple[int, int, int], deadline: float | None) -> bool:
    """Runs all workgroups at the same time, in threads of their own, while this one waits, as `run_watched` does; code that is not interruptible goes on to
    its end. Raises MemoryError too, before anything runs."""
    job = _MeetingJob(kernel, arguments, total, grid)
    return _watch(job, job.start, arguments, deadline)


def _watch(job: GridJob, start: Callable[[], None], arguments: Arguments, deadline: float | None) -> bool:
    try:
        start()
        in_time = job.wait(deadline)
        if not in_time:
            arguments.end()
            job.error = TimeoutError()
            job.finish()
    except BaseException as error:
        arguments.end()
        _abandon(job, error)
        raise
    if in_time and job.error is not None:
        raise job.error
    return in_time
