"""Several processes that compile: LLVM takes one lock a process, so that compiling in parallel takes as many; and what ends one of them ends no other.

A `Crew` is the workers of one call: a thread each, which has its process compile one Program after the other. Processes are kept for later calls, and
end when nobody has needed them for a while, at exit, and when this process is gone, however it went.
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

__all__ = ["SUPPORTED", "Crew", "Done", "Outcome", "cores", "end_idle", "idle"]

SUPPORTED: Final = os.name == "posix"  # whether a child can be handed shared memory

_IDLE_S: Final = 60.0  # after which a process that nobody needs is ended
_GRACE_S: Final = 0.5  # to end what is no longer wanted, before its process is killed and another has to be started
_ENDING_S: Final = 10.0
_PROCESSES: Final = 3  # that may be lost in a row before a task is given up
_AHEAD: Final = 4  # tasks a worker that are made before they are needed

Outcome = Artifact | VyreError


@dataclass(frozen=True, slots=True)
class Done:
    """What became of the task of a number. `worker` is the number of the worker that did it, from 1, or 0 for none; times are of `perf_counter_ns`."""

    index: int
    outcome: Outcome
    worker: int = 0
    begin_ns: int = 0
    end_ns: int = 0


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Idle:
    """The processes that wait for the next call, the latest used last."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.waiting: list[tuple[float, Compiler]] = []
        self.timer: threading.Timer | None = None

    def take(self) -> Compiler | None:
        """One that lives, if there is one."""
        while True:
            with self.lock:
                if not self.waiting:
                    return None
                compiler = self.waiting.pop()[1]
            if compiler.is_alive():
                return compiler
            compiler.release()

    def give(self, compiler: Compiler) -> None:
        """Keeps one for later, as far as there are processors for it."""
        with self.lock:
            kept = len(self.waiting) < cores()
            if kept:
                self.waiting.append((monotonic(), compiler))
                self.watch()
        if not kept:
            compiler.release()

    def watch(self) -> None:
        """Has a look when the first has waited for long enough. The lock is held."""
        if self.timer is None and self.waiting:
            timer = threading.Timer(max(self.waiting[0][0] + _IDLE_S - monotonic(), 0.0), self.expire)
            timer.daemon = True
            with suppress(RuntimeError):  # no more threads: the next look is when another is kept, or the last at exit
                timer.start()
                self.timer = timer

    def expire(self) -> None:
        """Ends those that nobody has needed for a while."""
        with self.lock:
            self.timer = None
            late = [entry for entry in self.waiting if entry[0] + _IDLE_S <= monotonic()]
            self.waiting = [entry for entry in self.waiting if entry not in late]
            self.watch()
        for _, compiler in late:
            compiler.release()

    def end(self) -> None:
        """Ends all."""
        with self.lock:
            ended, self.waiting = self.waiting, []
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None
        for _, compiler in ended:
            compiler.release()


_idle = _Idle()
_of_parents: list[_Idle] = []  # what a fork found: it is not for the child to end them, nor to wait for them


def _forked() -> None:
    global _idle  # noqa: PLW0603 - the child begins with none, and with a lock that nobody holds
    _of_parents.append(_idle)
    _idle = _Idle()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def idle() -> tuple[int, ...]:
    """The numbers of the processes that wait for the next call."""
    with _idle.lock:
        return tuple(compiler.pid for _, compiler in _idle.waiting)


def end_idle() -> None:
    """Ends the processes that wait for the next call, which then starts others."""
    _idle.end()


atexit.register(end_idle)


class Crew:
    """The workers of one call. For a `with` block, whose end waits a moment for what still runs and then kills it; an interrupt kills at once.

    `timeout` is in seconds for each Program, None for no limit. Processes start with the block, while the first tasks are made.
    """

    def __init__(self, size: int, timeout: float | None) -> None:
        self._timeout = timeout
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._done: SimpleQueue[Done | BaseException] = SimpleQueue()
        self._lock = threading.Lock()  # guards the three below
        self._hired: set[Compiler] = set()
        self._killed = False
        self._said: list[str] = []
        self._open: set[int] = set()  # numbers of the tasks in the queue or in work
        self._until: int | None = None  # no task from this number on is wanted
        self._threads = [threading.Thread(target=self._serve, args=(k + 1,), name=f"vyre-compiler-{k + 1}", daemon=True) for k in range(size)]

    # ---- for the thread that calls

    def __enter__(self) -> Self:
        """Raises ToolchainError where not even one thread can be started."""
        started = []
        with suppress(RuntimeError):  # the system has no more threads, and fewer do as well
            for thread in self._threads:
                thread.start()
                started.append(thread)
        self._threads = started
        if not started:
            raise ToolchainError("the compiler", "no thread can be started to wait for its process")
        return self

    def run(self, tasks: Iterable[Task | Done], interval_s: float | None) -> Iterator[Done | None]:
        """What becomes of each task, as it is known, and None whenever nothing was for some seconds. Tasks are begun in their order, and made when they are
        soon needed; those that come as done are given as they are."""
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
        """Begins no task from this number on: `run` gives what is before it, and ends."""
        self._until = index if self._until is None else min(index, self._until)
        for task in list(self._waiting()):
            if task.index < self._until:
                self._tasks.put(task)
            else:
                self._open.discard(task.index)

    def _waiting(self) -> Iterator[Task]:
        """Takes the tasks that were not begun out of the queue."""
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
            hired = list(self._hired)
        for compiler in hired:
            compiler.kill()

    # ---- for its threads

    def _serve(self, number: int) -> None:
        """Does tasks until there is None. Whoever waits for tasks raises what no task is to blame for."""
        compiler: Compiler | None = None
        try:
            compiler = self._hire()  # before the first task is there
            while compiler is not None and (task := self._tasks.get()) is not None:
                compiler = self._do(task, compiler, number)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it must not leave the caller waiting
            self._done.put(error)
        finally:
            if compiler is not None:
                self._dismiss(compiler)

    def _do(self, task: Task, compiler: Compiler | None, number: int) -> Compiler | None:
        """Does a task, with other processes where one is lost over nothing that it was asked; gives the one for the next task."""
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
        self._dismiss(compiler)
        return self._hire()

    def _hire(self) -> Compiler | None:
        """A process, from those that wait or a new one; None when none is wanted any more. Raises ToolchainError where none can be started."""
        if self._killed:
            return None
        compiler = _idle.take() or Compiler()
        with self._lock:
            if not self._killed:
                self._hired.add(compiler)
                return compiler
        compiler.release()
        return None

    def _dismiss(self, compiler: Compiler) -> None:
        with self._lock:
            self._hired.discard(compiler)
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
        return error.with_traceback(None)  # the frames of this thread are nobody's business, and hold the Program
