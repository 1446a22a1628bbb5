"""A pool of worker processes: threads that do jobs in the order of arrival, each with a process of its own, which is replaced when it is lost."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from queue import SimpleQueue
from time import monotonic, sleep
from typing import Any, Final

from vyre_py.drivers.process.losses import Losses
from vyre_py.drivers.process.worker_process import WorkerProcess
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.errors import VyreError

__all__ = ["ENDING_S", "Job", "Unbegun", "WorkerPool"]

ENDING_S: Final = 10.0  # for a thread to end whose process was killed
_LOOKING_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Job:
    """Something for a worker to do. Its future stays pending while it runs, so that it can be cancelled then.

    `what` is for messages; `session` is the worker whose resident memory it speaks of, or None.
    """

    pending: Future[Any]
    does: Callable[..., Any]
    what: str = ""
    session: int | None = None


class Unbegun(Exception):
    """A worker was lost over nothing that it was asked, so that another may do the job: it ended by itself, or was `killed` from outside.

    `counts` is False where its end was wanted here. `give_up` gives the result of the job, or raises its error, where no other worker is tried.
    """

    def __init__(self, killed: bool, give_up: Callable[[], Any], counts: bool = True) -> None:
        super().__init__(killed)
        self.killed, self.give_up, self.counts = killed, give_up, counts


class WorkerPool(ABC):
    """One queue of jobs and the threads that serve it. A job that had not begun when its worker was lost goes to the next worker, as long as `Losses` allows.

    Threads are numbered from 1. Jobs are put into `_jobs`, which takes no lock; None ends one thread.
    """

    def __init__(self, name: str, size: int) -> None:
        self._lock = threading.RLock()  # guards the next three
        self._processes: dict[int, WorkerProcess] = {}  # by the number of the thread
        self._running: dict[int, Future[Any]] = {}
        self._killed = False
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = [threading.Thread(target=self._serve, args=(k + 1,), name=f"{name}-{k + 1}", daemon=True) for k in range(size)]

    # ---- for the thread that owns it

    def _begin(self) -> None:
        """Starts as many threads as the system has. Raises RuntimeError where it has none."""
        for started, thread in enumerate(self._threads):
            try:
                thread.start()
            except RuntimeError:
                del self._threads[started:]
                if not started:
                    raise
                return

    def _joined(self, within_s: float | None) -> bool:
        """Waits for the threads, to each of which None was sent, up to so many seconds, None for no limit; whether all have ended."""
        end = None if within_s is None else monotonic() + within_s
        others = [thread for thread in self._threads if thread is not threading.current_thread()]  # a callback or a finaliser may run in one of them
        for thread in others:
            thread.join(None if end is None else max(end - monotonic(), 0.0))
        return not any(thread.is_alive() for thread in others)

    def _kill(self) -> None:
        """Kills the processes, now and as threads start others."""
        with self._lock:
            self._killed = True
            for process in self._processes.values():
                process.kill()

    # ---- for its threads

    def _serve(self, number: int) -> None:
        self._enter(number)
        while (job := self._jobs.get()) is not None:
            self._settle(number, job)
            del job  # with it go the arguments, while the next is waited for
        self._leave(number)

    def _settle(self, number: int, job: Job) -> None:
        """Does a job and sets its future, unless that was cancelled."""
        pending, result, failed = job.pending, None, None
        with self._lock:
            if not pending.cancelled():
                self._running[number] = pending
        if number in self._running:
            try:
                result = self._perform(number, job)
            except BaseException as error:  # noqa: BLE001 - the caller raises it
                failed = error
            with self._lock:
                del self._running[number]
        if not pending.set_running_or_notify_cancel():
            return
        if failed is None:
            pending.set_result(result)
            return
        if isinstance(failed, VyreError):
            # The frames of this thread hold the job, and with it this very error.
            failed.__cause__ = failed.__context__ = failed.__traceback__ = None
        pending.set_exception(failed)

    def _perform(self, number: int, job: Job) -> Any:
        losses = self._row()
        while True:
            if self._killed:
                raise self._closed()
            if job.pending.cancelled():
                raise CancelledError
            try:
                return self._attempt(number, job)
            except Unbegun as unbegun:
                if unbegun.counts:
                    if not losses.add(unbegun.killed):
                        return unbegun.give_up()
                    until = monotonic() + losses.pause
                    while not (self._killed or job.pending.cancelled()) and monotonic() < until:
                        sleep(_LOOKING_S)

    def _hire(self, number: int, process: WorkerProcess) -> WorkerProcess:
        """Makes a process that of a thread. It is killed at once where the pool is."""
        with self._lock:
            self._processes[number] = process
            if self._killed:
                process.kill()
        return process

    def _dismiss(self, number: int) -> None:
        """Ends the process of a thread, and releases its resources."""
        with self._lock:
            process = self._processes.pop(number)
        process.release()

    # ---- what kinds of pools do differently

    def _enter(self, number: int) -> None:  # noqa: B027 - a pool may start its workers when jobs come
        """Called as a thread starts."""

    @abstractmethod
    def _leave(self, number: int) -> None:
        """Called as a thread ends, whose process, if it has one, waits."""

    @abstractmethod
    def _row(self) -> Losses:
        """The losses in a row that a job adds to. Called as it begins."""

    @abstractmethod
    def _attempt(self, number: int, job: Job) -> Any:
        """The result of a job in the process of a thread, or in a new one. Raises Unbegun, having ended the process."""

    def _closed(self) -> Exception:
        """The error of a job whose turn comes after the processes were killed."""
        return CancelledError()
