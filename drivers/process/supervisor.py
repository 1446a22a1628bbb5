"""The one thread of an `Executor`: it asks the worker, one job after the other, and replaces it when it is lost."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from queue import SimpleQueue
from time import monotonic, sleep
from typing import Any, Final

from vyre_py.drivers.errors import DeviceLost, DeviceUnavailable, DispatchTimeout, DriverError
from vyre_py.drivers.pending import Pending
from vyre_py.drivers.process.channel import MessageTooLarge
from vyre_py.drivers.process.losses import Losses
from vyre_py.drivers.process.worker_process import Opened, WorkerFailed, WorkerLate, WorkerLost, WorkerProcess
from vyre_py.ir.language.errors import VyreError
from vyre_py.lowering.errors import Missing, Unsupported

__all__ = ["COUNTERS", "Counters", "Job", "PendingCall", "Session", "Supervisor"]

# Name -> what it counts.
COUNTERS: Final[dict[str, str]] = {
    "dispatches": "Programs run to their end",
    "compiles": "Programs sent to a worker, and compiled there",
    "starts": "worker processes started",
    "restarts": "of which took the place of one that was lost",
    "timeouts": "calls that took longer than they were allowed to",
    "faults": "workers lost for any other reason",
    "bytes_sent": "bytes of arrays and Programs handed to workers",
    "bytes_received": "bytes of arrays handed back",
}
_CAUSES: Final = 64  # of how many lost workers the causes are remembered
_JOINING: Final = 10.0
_LOOKING: Final = 0.01
_UNSTARTED: Final = "look at what it wrote to the standard error, and at what may kill it; allow more time with start_timeout"


class Counters:
    """An executor's counters, as attributes; all of them by `snapshot`. Only the executor's own thread adds to them."""

    __slots__ = tuple(COUNTERS)

    dispatches: int
    compiles: int
    starts: int
    restarts: int
    timeouts: int
    faults: int
    bytes_sent: int
    bytes_received: int

    def __init__(self) -> None:
        for name in COUNTERS:
            setattr(self, name, 0)

    def snapshot(self) -> dict[str, int]:
        """All counters now, by name."""
        return {name: getattr(self, name) for name in COUNTERS}


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


@dataclass(frozen=True, slots=True)
class Job:
    """Something for the worker to do: `what` for messages, and the `session` whose resident memory it speaks of, or None."""

    what: str
    does: Callable[[Session], Any]
    pending: PendingCall
    session: int | None


class _Unbegun(Exception):
    """A worker was lost before it had begun a job, which another may do: it ended of itself, was `killed` from outside, or its end was `wanted` here."""

    def __init__(self, cause: str, killed: bool, wanted: bool) -> None:
        super().__init__(cause)
        self.cause, self.killed, self.wanted = cause, killed, wanted


class Supervisor:
    """A queue, a thread that serves it in order, and at most one worker. Jobs that wait when a worker is lost run on the next.

    `device` is the name that workers open, None the best that is here; `restarts` is how many workers may follow the first, None for any number;
    `start_timeout` in seconds.
    """

    def __init__(self, device: str | None, restarts: int | None, start_timeout: float | None) -> None:
        self._wanted = device
        self.device = device or "the best device"
        self.counters = Counters()
        self._restarts = restarts
        self._start_timeout = start_timeout
        self._losses = Losses(start_timeout)
        self._owner = os.getpid()
        self._lock = threading.RLock()  # guards the five below, which other threads look at
        self._running: PendingCall | None = None
        self._process: WorkerProcess | None = None
        self._closing = False
        self._killed = False
        self._ended_by = ""
        self._session: Session | None = None
        self._causes: OrderedDict[int, str] = OrderedDict()
        self._first_cause = ""
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="vyre-executor", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The worker's process id; None without one."""
        process = self._process
        return None if process is None else process.pid

    # ---- for any thread

    def submit(self, what: str, does: Callable[[Session], Any], session: int | None = None) -> PendingCall:
        """Puts a job at the queue's end. Raises DeviceLost after `close`, and in a forked child."""
        job = Job(what, does, PendingCall(self, what), session)
        with self._lock:
            self.require_usable()
            self._jobs.put(job)
        return job.pending

    def run(self, what: str, does: Callable[[Session], Any], session: int | None = None) -> Any:
        """Does a job and waits for it. An interrupt such as Ctrl-C cancels it, or ends the worker that runs it."""
        if threading.current_thread() is self._thread:
            raise Unsupported(self.device, [Missing("waiting for an executor in what it calls back", help="submit from there, or wait in another thread")])
        pending = self.submit(what, does, session)
        try:
            return pending.result()
        except BaseException:
            pending.cancel()  # which what the job itself has raised is past
            raise

    def runs(self, pending: PendingCall) -> bool:
        """Whether a job is running."""
        return self._running is pending

    def leave(self, does: Callable[[Session], Any], session: int) -> None:
        """Queues a job whose result is ignored. For finalisers: takes no lock, and never raises."""
        if os.getpid() == self._owner:
            self._jobs.put(Job("free", does, PendingCall(self, "free"), session))

    def require_usable(self) -> None:
        """Raises DeviceLost after `close`, and in a forked child."""
        if os.getpid() != self._owner:
            raise DeviceLost(f"this executor of {self.device} belongs to process {self._owner}", remedy="make an Executor in the process that uses it")
        if self._closing:
            raise self._closed()

    def end_worker(self, why: str, only: PendingCall | None = None) -> None:
        """Kills the worker, at once or only if it runs a certain job. The running job raises DeviceLost. The next job starts another worker."""
        with self._lock:
            if self._process is not None and (only is None or self._running is only):
                self._ended_by = why
                self._process.kill()

    def close(self, wait: bool) -> None:
        """Takes no more jobs; ends the worker when those that wait are done, or at once. Again, and at exit, is quiet."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            if not self._closing:
                self._closing = True
                self._jobs.put(None)
            self._killed = self._killed or not wait
            process = self._process
        if process is not None and not wait:
            process.kill()
        if threading.current_thread() is not self._thread:
            self._thread.join(None if wait else _JOINING)

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

    def _serve(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                break
            self._settle(job)
            del job  # with it go the arguments, while the next is waited for
        if self._session is not None:
            self._session.process.close()
            self._session = None

    def _settle(self, job: Job) -> None:
        pending, result, failed = job.pending, None, None
        if not self._now_runs(pending):
            pending.set_running_or_notify_cancel()
            return
        try:
            result = self._perform(job)
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            failed = error
        with self._lock:
            self._running = None
        if not pending.set_running_or_notify_cancel():  # it was cancelled meanwhile
            return
        if failed is None:
            pending.set_result(result)
            return
        if isinstance(failed, VyreError):
            # The frames of this thread hold the job, and with it this very error.
            failed.__cause__ = failed.__context__ = failed.__traceback__ = None
        pending.set_exception(failed)

    def _now_runs(self, pending: PendingCall) -> bool:
        """Marks a job as running, unless it was cancelled; whether it is."""
        with self._lock:
            self._running = None if pending.cancelled() else pending
        return self._running is not None

    def _perform(self, job: Job) -> Any:
        """The result of a job. A job that had not started when its worker was lost goes to the next worker."""
        self._losses.forget()
        while True:
            if self._killed:
                raise self._closed()
            session = self._living()
            if job.session is not None and (stale := self.stale(job.session)) is not None:
                raise stale
            try:
                return self._done(job, session or self._start())
            except _Unbegun as unbegun:
                if not unbegun.wanted:
                    self._count(unbegun, job)
            if job.pending.cancelled():
                raise CancelledError

    def _count(self, unbegun: _Unbegun, job: Job) -> None:
        """Counts a loss, and waits a while before the next start. Raises DeviceUnavailable where there is no hope in another."""
        if not self._losses.add(unbegun.killed):
            raise DeviceUnavailable(
                f"no worker of {self.device} lived long enough to begin {job.what}", meaning=f"lost: {self._losses}", cause=unbegun.cause, remedy=_UNSTARTED,
            ) from None  # fmt: skip
        until = monotonic() + self._losses.pause
        while not (self._killed or job.pending.cancelled()) and monotonic() < until:
            sleep(_LOOKING)

    def _done(self, job: Job, session: Session) -> Any:
        """The result of a job in a worker. Raises _Unbegun where the worker is lost before the job starts."""
        if job.pending.cancelled():  # while its worker was started
            raise CancelledError
        begun = True
        try:
            return job.does(session)
        except WorkerFailed as failed:
            self.counters.timeouts += isinstance(failed.error, DispatchTimeout)
            if failed.lost:
                self._lose(session.number, session.process, str(failed.error))
            raise failed.error from None
        except WorkerLost as lost:
            begun, wanted = lost.begun, bool(self._ended_by)
            error = self._lost(session, job, str(lost))
            raise error if begun else _Unbegun(error.cause, lost.killed, wanted) from None
        except WorkerLate as late:
            self.counters.timeouts += 1
            self._lose(session.number, session.process, f"it was killed, since {job.what} took longer than {late.timeout:g} s", faulty=False)
            raise DispatchTimeout(
                f"{job.what} took longer than {late.timeout:g} s on {self.device}", meaning="the worker process was killed, and resident memory went with it",
                cause=f"{late.kind} did not end", remedy="the next call starts another worker; allow more time, or bound the loops",
            ) from None  # fmt: skip
        except MessageTooLarge as error:
            raise Unsupported(self.device, [Missing(f"so many arguments through an executor: {error}")]) from None
        finally:
            if begun:
                self._losses.clear()

    def _living(self) -> Session | None:
        """The session, if its worker lives; one that died between jobs took nothing but resident memory with it."""
        session = self._session
        if session is not None and (cause := self._ended_by or session.process.ended()) is not None:
            self._lose(session.number, session.process, cause)
        return self._session

    def _lost(self, session: Session, job: Job, seen: str) -> DriverError:
        if self._killed:
            self._lose(session.number, session.process, "the executor was closed", faulty=False)
            return DeviceLost(f"the executor of {self.device} was closed while it ran {job.what}", remedy="make another Executor")
        cause = self._lose(session.number, session.process, seen)
        return DeviceLost(f"the worker of {self.device} was lost while it ran {job.what}", cause=cause, remedy=self._remedy())

    def _remedy(self) -> str:
        return "the next call starts another worker" if self._may_restart() else "make another Executor"

    def _lose(self, number: int, process: WorkerProcess, cause: str, faulty: bool = True) -> str:
        """Ends a worker that cannot be used any more; returns the recorded cause."""
        with self._lock:
            cause, self._ended_by = self._ended_by or cause, ""
            self._process = None
        self.counters.faults += faulty
        self._first_cause = self._first_cause or cause
        self._causes[number] = cause
        if len(self._causes) > _CAUSES:
            self._causes.popitem(last=False)
        self._session = None
        process.release()
        return cause

    def _may_restart(self) -> bool:
        return self._restarts is None or self.counters.restarts < self._restarts

    def _start(self) -> Session:
        """Starts a worker and has it open its device. Raises what that raises, DeviceUnavailable, DeviceLost where no other is allowed, and _Unbegun where
        one that takes another's place dies as it starts."""
        again = self.counters.starts > 0
        if again and not self._may_restart():
            raise DeviceLost(
                f"the executor of {self.device} has lost its worker, and may not start another", cause=f"the first was lost because {self._first_cause}",
                remedy="make another Executor",
            )  # fmt: skip
        process = WorkerProcess()
        self.counters.starts += 1
        self.counters.restarts += again
        with self._lock:
            self._process, self._ended_by = process, ""
            if self._killed:
                process.kill()
        try:
            opened = process.open(self._wanted, self._start_timeout)
        except WorkerLost as lost:
            wanted = bool(self._ended_by)
            cause = self._lose(self.counters.starts, process, str(lost))
            if again:
                raise _Unbegun(cause, lost.killed, wanted) from None
            raise DeviceUnavailable(f"the worker of {self.device} ended as it started", cause=cause, remedy=_UNSTARTED) from None
        except BaseException as error:
            self._lose(self.counters.starts, process, str(error), faulty=False)
            if isinstance(error, WorkerFailed):
                raise error.error from None
            if isinstance(error, WorkerLate):
                raise DeviceUnavailable(f"no worker of {self.device} started within {error.timeout:g} s", remedy=_UNSTARTED) from None
            raise
        self._wanted = self.device = opened.name  # the next worker has the same, should another be the best by then
        self._session = Session(self.counters.starts, process, opened)
        return self._session
