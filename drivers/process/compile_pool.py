"""Processes that compile in parallel. LLVM has one lock for each process, so parallel compiles need several; and a crash ends one process only.

A `CompilePool` is the workers of one call. Processes are kept for later calls. They end when they have been idle for a while, at exit, and when this
process ends in any way.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic, perf_counter_ns
from types import TracebackType
from typing import Any, Final, Self

from vyre_py.drivers.cores import core_count
from vyre_py.drivers.errors import DeviceUnavailable, DispatchTimeout
from vyre_py.drivers.process.compile_task import Task
from vyre_py.drivers.process.losses import Losses
from vyre_py.drivers.process.worker_pool import ENDING_S, Job, Unbegun, WorkerPool
from vyre_py.drivers.process.worker_process import WorkerFailed, WorkerLate, WorkerLost, WorkerProcess
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.errors import VyreError
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.errors import ToolchainError

__all__ = ["SUPPORTED", "CompilePool", "Done", "Outcome", "end_idle", "idle"]

SUPPORTED: Final = os.name == "posix"  # whether a child can inherit shared memory

_IDLE_S: Final = 60.0  # an idle process is ended after this
_GRACE_S: Final = 0.5  # for an unwanted compile to end, before its process is killed and another has to be started
_START_S: Final = 120.0  # that a start may take on a machine which is busy with many of them
_AHEAD: Final = 4  # tasks made ahead for each worker
_ALONE: Final = "compile_many(..., workers=1) compiles in this process"

Outcome = Artifact | VyreError


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of task `index`. `worker` is the number of the worker that ran it, from 1, or 0 for none. Times are of `perf_counter_ns`."""

    index: int
    outcome: Outcome
    worker: int = 0
    begin_ns: int = 0
    end_ns: int = 0


class _Idle:
    """The idle processes, the latest used last."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.waiting: list[tuple[float, WorkerProcess]] = []
        self.timer: threading.Timer | None = None

    def take(self) -> WorkerProcess | None:
        """A process that is alive, or None."""
        while True:
            with self.lock:
                if not self.waiting:
                    return None
                process = self.waiting.pop()[1]
            with suppress(WorkerFailed, WorkerLate, WorkerLost):
                if process.ended() is None:
                    process.ask("ready", {}, _START_S)  # one that was killed a moment ago may look as if it waited
                    return process
            process.release()

    def give(self, process: WorkerProcess) -> None:
        """Keeps a process for later, at most one for each processor."""
        with self.lock:
            kept = len(self.waiting) < core_count()
            if kept:
                self.waiting.append((monotonic(), process))
                self.watch()
        if not kept:
            process.release()

    def watch(self) -> None:
        """Starts the timer that ends the process idle longest. The caller holds the lock."""
        if self.timer is None and self.waiting:
            timer = threading.Timer(max(self.waiting[0][0] + _IDLE_S - monotonic(), 0.0), self.expire)
            timer.daemon = True
            with suppress(RuntimeError):  # no more threads: the timer is started again when another process is kept; at exit all end
                timer.start()
                self.timer = timer

    def expire(self) -> None:
        """Ends the processes that have been idle for too long."""
        with self.lock:
            self.timer = None
            late = [entry for entry in self.waiting if entry[0] + _IDLE_S <= monotonic()]
            self.waiting = [entry for entry in self.waiting if entry not in late]
            self.watch()
        for _, process in late:
            process.release()

    def end(self) -> None:
        """Ends all idle processes."""
        with self.lock:
            ended, self.waiting = self.waiting, []
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None
        for _, process in ended:
            process.release()


_idle = _Idle()
_of_parents: list[_Idle] = []  # of the processes before forks: a child neither ends them nor waits for them


def _forked() -> None:
    global _idle  # noqa: PLW0603 - the child starts with no processes and with a free lock
    _of_parents.append(_idle)
    _idle = _Idle()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def idle() -> tuple[int, ...]:
    """The process ids of the idle processes."""
    with _idle.lock:
        return tuple(process.pid for _, process in _idle.waiting)


def end_idle() -> None:
    """Ends the idle processes. The next call starts others."""
    _idle.end()


atexit.register(end_idle)


class CompilePool(WorkerPool):
    """The workers of one call, for a `with` block. The end of the block waits a moment for running compiles and then kills them; an interrupt kills at once.

    `timeout` is in seconds for each Program, None for no limit. Processes start with the block, while the first tasks are made.
    """

    def __init__(self, size: int, timeout: float | None) -> None:
        super().__init__("vyre-compiler", size)
        self._timeout = timeout
        self._done: SimpleQueue[Future[Any]] = SimpleQueue()
        self._said: list[str] = []
        self._open: dict[int, Future[Any]] = {}  # the tasks in the queue or in work, by their numbers
        self._until = sys.maxsize  # no task from this number on is wanted

    # ---- for the thread that calls

    def __enter__(self) -> Self:
        """Raises ToolchainError where not even one thread can be started."""
        try:
            self._begin()
        except RuntimeError:
            raise ToolchainError("the compiler", "no thread can be started to wait for its process") from None
        return self

    def run(self, tasks: Iterable[Task | Done], interval_s: float | None) -> Iterator[Done | None]:
        """The outcome of each task as it is known, and None whenever `interval_s` seconds pass without one. Tasks start in order, and are made shortly before
        they are needed. A task that is done already is passed on."""
        rest = iter(tasks)
        more = True
        while True:
            while more and self._until == sys.maxsize and len(self._open) < _AHEAD * len(self._threads):
                task = next(rest, None)
                if isinstance(task, Task):
                    pending = self._open[task.index] = Future()
                    pending.add_done_callback(self._done.put)
                    self._jobs.put(Job(pending, partial(self._compiled, task)))
                elif task is not None:
                    yield task
                more = task is not None
            if not self._open:
                return
            try:
                found = self._done.get(timeout=interval_s)
            except Empty:
                yield None
                continue
            if not found.cancelled():
                done: Done = found.result()
                self._open.pop(done.index, None)
                yield done

    def stop_at(self, index: int) -> None:
        """Gives up the tasks from this number on. `run` gives the outcomes of those before it, and ends."""
        self._until = min(index, self._until)
        for number in [number for number in self._open if number >= self._until]:
            self._open.pop(number).cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop_at(0)
        for _ in self._threads:
            self._jobs.put(None)
        gently = kind is None or issubclass(kind, Exception)
        if not gently or not self._joined(_GRACE_S):
            self._kill()
            self._joined(ENDING_S)
        if self._said and sys.stderr is not None:  # None where its descriptor was closed before this process began
            sys.stderr.write("\n".join(self._said) + "\n")

    # ---- for its threads

    def _enter(self, number: int) -> None:
        with suppress(Exception):  # the first task tries again, and raises it
            self._acquire(number)

    def _leave(self, number: int) -> None:
        with self._lock:
            process, keeps = self._processes.pop(number, None), not self._killed
        if process is not None:
            (_idle.give if keeps else WorkerProcess.release)(process)

    def _row(self) -> Losses:
        return Losses(math.inf)  # of one task; any loss counts as one that another may repeat

    def _attempt(self, number: int, job: Job) -> Done:
        process = self._processes.get(number) or self._acquire(number)
        if not process.answered:
            self._await_start(number, process)
        done: Done = job.does(number, process)
        return done

    def _acquire(self, number: int) -> WorkerProcess:
        """An idle process or a new one. Raises ToolchainError where none can be started."""
        try:
            return self._hire(number, _idle.take() or WorkerProcess(captures_stderr=True))
        except DeviceUnavailable as error:
            raise ToolchainError("the compiler", f"its process cannot be started: {error}\n  {_ALONE}") from error

    def _await_start(self, number: int, process: WorkerProcess) -> None:
        """Waits for a process to be ready, so that one which cannot even start is not taken for a crash. Raises Unbegun, ToolchainError."""
        try:
            process.ask("ready", {}, _START_S)
            return
        except (WorkerLate, WorkerLost, WorkerFailed) as error:
            seen = f"did not start within {_START_S:g} s" if isinstance(error, WorkerLate) else f"ended as it started: {error}"
            failed = ToolchainError("the compiler", f"its process {seen}\n{process.said()}\n  {_ALONE}")
            again = isinstance(error, WorkerLost)
        self._dismiss(number)

        def give_up() -> None:
            raise failed

        if not again:
            give_up()
        raise Unbegun(False, give_up)

    def _compiled(self, task: Task, number: int, process: WorkerProcess) -> Done:
        """The outcome of a task. Raises Unbegun."""
        begin_ns = perf_counter_ns()

        def done(outcome: Outcome) -> Done:
            return Done(task.index, outcome, number, begin_ns, perf_counter_ns())

        try:
            outcome: Outcome = task.compiled(process, self._timeout)
        except WorkerLost as error:
            lost, said = error, process.said()
            self._dismiss(number)
            if lost.killed or not lost.begun:
                raise Unbegun(False, lambda: done(task.crash(lost, said))) from None
            return done(task.crash(lost, said))
        except VyreError as error:
            error.__cause__ = error.__context__ = None
            outcome = error.with_traceback(None)  # the caller has no use for this thread's frames, and they hold the Program
            if isinstance(error, DispatchTimeout):
                self._dismiss(number)
        if said := process.said():
            self._said.append(said)
        return done(outcome)
