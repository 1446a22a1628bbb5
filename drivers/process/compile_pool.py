"""Processes that compile in parallel. LLVM has one lock for each process, so parallel compiles need several; and a crash ends one process only.

A `CompilePool` is the workers of one call. Each worker is a thread with a process, which compiles one Program after the other. Processes are kept for later
calls. They end when they have been idle for a while, at exit, and when this process ends in any way.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import monotonic, perf_counter_ns
from types import TracebackType
from typing import Final, Self

from vyre_py.drivers.process.compiler_process import Compiler, CompilerLost, Task
from vyre_py.ir.language.errors import VyreError
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.errors import ToolchainError

__all__ = ["SUPPORTED", "CompilePool", "Done", "Outcome", "cores", "end_idle", "idle"]

SUPPORTED: Final = os.name == "posix"  # whether a child can inherit shared memory

_IDLE_S: Final = 60.0  # an idle process is ended after this
_GRACE_S: Final = 0.5  # for an unwanted compile to end, before its process is killed and another has to be started
_ENDING_S: Final = 10.0
_PROCESSES: Final = 3  # so many lost in a row, and a task is given up
_AHEAD: Final = 4  # tasks made ahead for each worker

Outcome = Artifact | VyreError


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of task `index`. `worker` is the number of the worker that ran it, from 1, or 0 for none. Times are of `perf_counter_ns`."""

    index: int
    outcome: Outcome
    worker: int = 0
    begin_ns: int = 0
    end_ns: int = 0


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Idle:
    """The idle processes, the latest used last."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.waiting: list[tuple[float, Compiler]] = []
        self.timer: threading.Timer | None = None

    def take(self) -> Compiler | None:
        """A process that is alive, or None."""
        while True:
            with self.lock:
                if not self.waiting:
                    return None
                compiler = self.waiting.pop()[1]
            if compiler.is_alive():
                return compiler
            compiler.release()

    def give(self, compiler: Compiler) -> None:
        """Keeps a process for later, at most one for each processor."""
        with self.lock:
            kept = len(self.waiting) < cores()
            if kept:
                self.waiting.append((monotonic(), compiler))
                self.watch()
        if not kept:
            compiler.release()

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
        for _, compiler in late:
            compiler.release()

    def end(self) -> None:
        """Ends all idle processes."""
        with self.lock:
            ended, self.waiting = self.waiting, []
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None
        for _, compiler in ended:
            compiler.release()


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
        return tuple(compiler.pid for _, compiler in _idle.waiting)


def end_idle() -> None:
    """Ends the idle processes. The next call starts others."""
    _idle.end()


atexit.register(end_idle)


class CompilePool:
    """The workers of one call, for a `with` block. The end of the block waits a moment for running compiles and then kills them; an interrupt kills at once.

    `timeout` is in seconds for each Program, None for no limit. Processes start with the block, while the first tasks are made.
    """

    def __init__(self, size: int, timeout: float | None) -> None:
        self._timeout = timeout
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._done: SimpleQueue[Done | BaseException] = SimpleQueue()
        self._lock = threading.Lock()  # guards the next three
        self._acquired: set[Compiler] = set()
        self._killed = False
        self._said: list[str] = []
        self._open: set[int] = set()  # numbers of the tasks in the queue or in work
        self._until: int | None = None  # no task from this number on is wanted
        self._threads = [threading.Thread(target=self._serve, args=(k + 1,), name=f"vyre-compiler-{k + 1}", daemon=True) for k in range(size)]

    # ---- for the thread that calls

    def __enter__(self) -> Self:
        """Raises ToolchainError where not even one thread can be started."""
        started = []
        with suppress(RuntimeError):  # the system has no more threads, and fewer are enough
            for thread in self._threads:
                thread.start()
                started.append(thread)
        self._threads = started
        if not started:
            raise ToolchainError("the compiler", "no thread can be started to wait for its process")
        return self

    def run(self, tasks: Iterable[Task | Done], interval_s: float | None) -> Iterator[Done | None]:
        """The outcome of each task as it is known, and None whenever `interval_s` seconds pass without one. Tasks start in order, and are made shortly before
        they are needed. A task that is done already is passed on."""
        rest = iter(tasks)
        more = True
        while True:
            while more and self._until is None and len(self._open) < _AHEAD * len(self._threads):
                task = next(rest, None)
                if isinstance(task, Task):
                    self._open.add(task.index)
                    self._tasks.put(task)
                elif task is not None:
                    yield task
                more = task is not None
            if not any(self._until is None or index < self._until for index in self._open):
                return
            try:
                found = self._done.get(timeout=interval_s)
            except Empty:
                yield None
                continue
            if isinstance(found, BaseException):
                raise found
            self._open.discard(found.index)
            yield found

    def stop_at(self, index: int) -> None:
        """Starts no task from this number on. `run` gives the outcomes of those before it, and ends."""
        self._until = index if self._until is None else min(index, self._until)
        for task in list(self._waiting()):
            if task.index < self._until:
                self._tasks.put(task)
            else:
                self._open.discard(task.index)

    def _waiting(self) -> Iterator[Task]:
        """Removes the tasks that were not started from the queue."""
        with suppress(Empty):
            while True:
                task = self._tasks.get_nowait()
                if task is not None:
                    yield task

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for _ in self._waiting():
            pass
        for _ in self._threads:
            self._tasks.put(None)
        gently = kind is None or issubclass(kind, Exception)
        if not gently or not self._ended(_GRACE_S):
            self._kill()
            self._ended(_ENDING_S)
        if self._said and sys.stderr is not None:  # None where its descriptor was closed before this process began
            sys.stderr.write("\n".join(self._said) + "\n")

    def _ended(self, within_s: float) -> bool:
        end = monotonic() + within_s
        for thread in self._threads:
            thread.join(max(end - monotonic(), 0.0))
        return not any(thread.is_alive() for thread in self._threads)

    def _kill(self) -> None:
        with self._lock:
            self._killed = True
            acquired = list(self._acquired)
        for compiler in acquired:
            compiler.kill()

    # ---- for its threads

    def _serve(self, number: int) -> None:
        """Does tasks until it gets None. An error that belongs to no task is re-raised in the thread that calls `run`."""
        compiler: Compiler | None = None
        try:
            compiler = self._acquire()  # before the first task exists
            while compiler is not None and (task := self._tasks.get()) is not None:
                compiler = self._do(task, compiler, number)
        except BaseException as error:  # noqa: BLE001 - no error may leave the caller waiting
            self._done.put(error)
        finally:
            if compiler is not None:
                self._release(compiler)

    def _do(self, task: Task, compiler: Compiler | None, number: int) -> Compiler | None:
        """Does a task. A process that is lost for a reason outside the task is replaced, and the task tried again. Returns the process for the next task."""
        left = _PROCESSES
        while compiler is not None:
            left -= 1
            try:
                compiler.start(not left)
                begin_ns = perf_counter_ns()
                outcome = _outcome(compiler, task, self._timeout, not left)
            except CompilerLost:
                compiler = self._replaced(compiler)
                continue
            self._done.put(Done(task.index, outcome, number, begin_ns, perf_counter_ns()))
            if compiler.lost:
                return self._replaced(compiler)
            if said := compiler.said():
                with self._lock:
                    self._said.append(said)
            return compiler
        return None

    def _replaced(self, compiler: Compiler) -> Compiler | None:
        self._release(compiler)
        return self._acquire()

    def _acquire(self) -> Compiler | None:
        """An idle process or a new one; None once the pool is killed. Raises ToolchainError where none can be started."""
        if self._killed:
            return None
        compiler = _idle.take() or Compiler()
        with self._lock:
            if not self._killed:
                self._acquired.add(compiler)
                return compiler
        compiler.release()
        return None

    def _release(self, compiler: Compiler) -> None:
        with self._lock:
            self._acquired.discard(compiler)
            killed = self._killed
        if killed:
            compiler.release()
        elif not compiler.lost:
            _idle.give(compiler)


def _outcome(compiler: Compiler, task: Task, timeout: float | None, last: bool) -> Outcome:
    try:
        return compiler.compile(task, timeout, last)
    except VyreError as error:
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)  # the caller has no use for this thread's frames, and they hold the Program
