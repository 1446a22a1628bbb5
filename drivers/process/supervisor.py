"""The pool of an `Executor`: one worker with a device, the memory that is lost with it, and what is said of that."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import asdict
from typing import Any, Final

from vyre_py.drivers.errors import DeviceLost, DeviceUnavailable, DispatchTimeout, DriverError
from vyre_py.drivers.pending import Pending
from vyre_py.drivers.process.channel import MessageTooLarge
from vyre_py.drivers.process.losses import Losses
from vyre_py.drivers.process.worker_pool import ENDING_S, Job, Unbegun, WorkerPool
from vyre_py.drivers.process.worker_process import Opened, WorkerFailed, WorkerLate, WorkerLost, WorkerProcess
from vyre_py.ir.data_classes import dataclass
from vyre_py.lowering.errors import Missing, Unsupported

__all__ = ["Counters", "PendingCall", "Session", "Supervisor"]

_ONLY: Final = 1  # the number of its thread
_CAUSES: Final = 64  # of how many lost workers the causes are remembered
_UNSTARTED: Final = "look at what it wrote to the standard error, and at what may kill it; allow more time with start_timeout"


@dataclass(slots=True, eq=False)
class Counters:
    """An executor's counters, as attributes; all of them by `snapshot`. Only the executor's own thread adds to them."""

    dispatches: int = 0  # Programs run to their end
    compiles: int = 0  # Programs sent to a worker, and compiled there
    starts: int = 0  # worker processes started
    restarts: int = 0  # of which took the place of one that was lost
    timeouts: int = 0  # calls that took longer than they were allowed to
    faults: int = 0  # workers lost for any other reason
    bytes_sent: int = 0  # of arrays and Programs handed to workers
    bytes_received: int = 0  # of arrays handed back

    def snapshot(self) -> dict[str, int]:
        """All counters now, by name."""
        return asdict(self)


class PendingCall(Pending):
    """A call of an executor. `cancel()` takes one back that waits.

    One that runs is ended, and its worker with it: resident memory is gone, and the calls behind it run on the next worker. Cancelling a coroutine that
    awaits it, as the timeout of `asyncio.wait_for` does, is the same. What is called back must not wait for the same executor.
    """

    def __init__(self, supervisor: Supervisor, what: str) -> None:
        super().__init__(what)
        self._supervisor = supervisor

    def running(self) -> bool:
        """Whether the worker runs it, or is being started for it."""
        return not self.done() and self._supervisor.runs(self)

    def cancel(self) -> bool:
        """Takes it back, or ends it with its worker; gives False where it is done. It then raises CancelledError."""
        cancelled = super().cancel()  # as far as a future knows it waits until it is done
        if cancelled:
            self._supervisor.end_worker("the call that it ran was cancelled", self)
        return cancelled


class Session:
    """One worker's time: its number from 1, the process, what it said of its device, and the pipelines that it has, by name."""

    __slots__ = ("compiled", "number", "opened", "process")

    def __init__(self, number: int, process: WorkerProcess, opened: Opened) -> None:
        self.number, self.process, self.opened = number, process, opened
        self.compiled: OrderedDict[str, str] = OrderedDict()


class Supervisor(WorkerPool):
    """A pool of one worker, which has a device. A job that was begun is not done again.

    `device` is the name that workers open, None the best that is here; `restarts` is how many workers may follow the first, None for any number;
    `start_timeout` in seconds.
    """

    def __init__(self, device: str | None, restarts: int | None, start_timeout: float | None) -> None:
        super().__init__("vyre-executor", 1)
        self._wanted = device
        self.device = device or "the best device"
        self.counters = Counters()
        self._restarts = restarts
        self._start_timeout = start_timeout
        self._losses = Losses(start_timeout)
        self._owner = os.getpid()
        self._closing = False  # guarded by the lock, as the next
        self._ended_by = ""
        self._session: Session | None = None
        self._causes: OrderedDict[int, str] = OrderedDict()
        self._first_cause = ""
        self._begin()

    @property
    def pid(self) -> int | None:
        """The worker's process id; None without one."""
        process = self._processes.get(_ONLY)
        return None if process is None else process.pid

    # ---- for any thread

    def submit(self, what: str, does: Callable[[Session], Any], session: int | None = None) -> PendingCall:
        """Puts a job at the queue's end. Raises DeviceLost after `close`, and in a forked child."""
        pending = PendingCall(self, what)
        with self._lock:
            self.require_usable()
            self._jobs.put(Job(pending, does, what, session))
        return pending

    def run(self, what: str, does: Callable[[Session], Any], session: int | None = None) -> Any:
        """Does a job and waits for it. An interrupt such as Ctrl-C cancels it, or ends the worker that runs it."""
        if threading.current_thread() in self._threads:
            raise Unsupported(self.device, [Missing("waiting for an executor in what it calls back", help="submit from there, or wait in another thread")])
        pending = self.submit(what, does, session)
        try:
            return pending.result()
        except BaseException:
            pending.cancel()  # which what the job itself has raised is past
            raise

    def runs(self, pending: PendingCall) -> bool:
        """Whether a job is running."""
        return self._running.get(_ONLY) is pending

    def leave(self, does: Callable[[Session], Any], session: int) -> None:
        """Queues a job whose result is ignored. For finalisers: takes no lock, and never raises."""
        if os.getpid() == self._owner:
            self._jobs.put(Job(PendingCall(self, "free"), does, "free", session))

    def require_usable(self) -> None:
        """Raises DeviceLost after `close`, and in a forked child."""
        if os.getpid() != self._owner:
            raise DeviceLost(f"this executor of {self.device} belongs to process {self._owner}", remedy="make an Executor in the process that uses it")
        if self._closing:
            raise self._closed()

    def end_worker(self, why: str, only: PendingCall | None = None) -> None:
        """Kills the worker, at once or only if it runs a certain job. The running job raises DeviceLost. The next job starts another worker."""
        with self._lock:
            process = self._processes.get(_ONLY)
            if process is not None and (only is None or self.runs(only)):
                self._ended_by = why
                process.kill()

    def close(self, wait: bool) -> None:
        """Takes no more jobs; ends the worker when those that wait are done, or at once. Again, and at exit, is quiet."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            if not self._closing:
                self._closing = True
                self._jobs.put(None)
        if not wait:
            self._kill()
        self._joined(None if wait else ENDING_S)

    def _closed(self) -> DeviceLost:
        return DeviceLost(f"the executor of {self.device} is closed", remedy="make another Executor")

    def stale(self, number: int) -> DeviceLost | None:
        """The error for resident memory of a session that has ended; None for the present one."""
        session = self._session
        if session is not None and session.number == number:
            return None
        cause = self._causes.get(number, "it is long gone")
        now = f"worker {session.number} has taken its place" if session is not None else self._remedy()
        return DeviceLost(f"the memory lay in worker {number} of {self.device}, which is gone; {now}", cause=cause, remedy="upload it again")

    # ---- for the thread

    def _leave(self, number: int) -> None:
        if self._session is not None:
            self._session.process.close()
            self._session = None

    def _row(self) -> Losses:
        self._losses.forget()
        return self._losses

    def _attempt(self, number: int, job: Job) -> Any:
        session = self._living()
        if job.session is not None and (stale := self.stale(job.session)) is not None:
            raise stale
        session = session or self._start(job)
        if job.pending.cancelled():  # while its worker was started
            raise CancelledError
        begun = True
        try:
            return job.does(session)
        except WorkerFailed as failed:
            self.counters.timeouts += isinstance(failed.error, DispatchTimeout)
            if failed.lost:
                self._lose(session.number, str(failed.error))
            raise failed.error from None
        except WorkerLost as lost:
            begun, wanted = lost.begun, bool(self._ended_by)
            error = self._lost(session, job, str(lost))
            if begun:
                raise error from None
            raise self._unbegun(job, lost, error.cause, wanted) from None
        except WorkerLate as late:
            self.counters.timeouts += 1
            self._lose(session.number, f"it was killed, since {job.what} took longer than {late.timeout:g} s", faulty=False)
            raise DispatchTimeout(
                f"{job.what} took longer than {late.timeout:g} s on {self.device}", meaning="the worker process was killed, and resident memory went with it",
                cause=f"{late.kind} did not end", remedy="the next call starts another worker; allow more time, or bound the loops",
            ) from None  # fmt: skip
        except MessageTooLarge as error:
            raise Unsupported(self.device, [Missing(f"so many arguments through an executor: {error}")]) from None
        finally:
            if begun:
                self._losses.clear()

    def _unbegun(self, job: Job, lost: WorkerLost, cause: str, wanted: bool) -> Unbegun:
        """What has another worker do a job, unless there is no hope in another."""

        def give_up() -> None:
            raise DeviceUnavailable(
                f"no worker of {self.device} lived long enough to begin {job.what}", meaning=f"lost: {self._losses}", cause=cause, remedy=_UNSTARTED
            )

        return Unbegun(lost.killed, give_up, counts=not wanted)

    def _living(self) -> Session | None:
        """The session, if its worker lives; one that died between jobs took nothing but resident memory with it."""
        session = self._session
        if session is not None and (cause := self._ended_by or session.process.ended()) is not None:
            self._lose(session.number, cause)
        return self._session

    def _lost(self, session: Session, job: Job, seen: str) -> DriverError:
        if self._killed:
            self._lose(session.number, "the executor was closed", faulty=False)
            return DeviceLost(f"the executor of {self.device} was closed while it ran {job.what}", remedy="make another Executor")
        cause = self._lose(session.number, seen)
        return DeviceLost(f"the worker of {self.device} was lost while it ran {job.what}", cause=cause, remedy=self._remedy())

    def _remedy(self) -> str:
        return "the next call starts another worker" if self._may_restart() else "make another Executor"

    def _lose(self, number: int, cause: str, faulty: bool = True) -> str:
        """Ends a worker that cannot be used any more; returns the recorded cause."""
        with self._lock:
            cause, self._ended_by = self._ended_by or cause, ""
        self.counters.faults += faulty
        self._first_cause = self._first_cause or cause
        self._causes[number] = cause
        if len(self._causes) > _CAUSES:
            self._causes.popitem(last=False)
        self._session = None
        self._dismiss(_ONLY)
        return cause

    def _may_restart(self) -> bool:
        return self._restarts is None or self.counters.restarts < self._restarts

    def _start(self, job: Job) -> Session:
        """Starts a worker and has it open its device. Raises what that raises, DeviceUnavailable, DeviceLost where no other is allowed, and Unbegun where
        one that takes another's place dies as it starts."""
        again = self.counters.starts > 0
        if again and not self._may_restart():
            raise DeviceLost(
                f"the executor of {self.device} has lost its worker, and may not start another", cause=f"the first was lost because {self._first_cause}",
                remedy="make another Executor",
            )  # fmt: skip
        process = self._hire(_ONLY, WorkerProcess())
        self.counters.starts += 1
        self.counters.restarts += again
        try:
            opened = process.open(self._wanted, self._start_timeout)
        except WorkerLost as lost:
            wanted = bool(self._ended_by)
            cause = self._lose(self.counters.starts, str(lost))
            if again:
                raise self._unbegun(job, lost, cause, wanted) from None
            raise DeviceUnavailable(f"the worker of {self.device} ended as it started", cause=cause, remedy=_UNSTARTED) from None
        except BaseException as error:
            self._lose(self.counters.starts, str(error), faulty=False)
            if isinstance(error, WorkerFailed):
                raise error.error from None
            if isinstance(error, WorkerLate):
                raise DeviceUnavailable(f"no worker of {self.device} started within {error.timeout:g} s", remedy=_UNSTARTED) from None
            raise
        self._wanted = self.device = opened.name  # the next worker has the same, should another be the best by then
        self._session = Session(self.counters.starts, process, opened)
        return self._session
