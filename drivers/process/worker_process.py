"""One worker process, seen from its parent: started, asked, and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import fields
from typing import Any, Final, TypeVar

import numpy as np

from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.device import Limits
from vyre_py.drivers.errors import DeviceUnavailable
from vyre_py.drivers.process.channel import (
    Channel,
    ChannelBroken,
    ChannelLate,
    deadline_after,
    list_of,
    text_of,
    whole_of,
)
from vyre_py.drivers.process.error_data import ErrorDataBroken, rebuild
from vyre_py.drivers.process.shared_memory import SharedMemory, anonymous_file
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.errors import VyreError, printable
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target, parse_target

__all__ = ["Opened", "WorkerFailed", "WorkerLate", "WorkerLost", "WorkerProcess", "command", "to_plain"]

_DYING: Final = 5.0  # seconds within which a killed process is gone, unless the system itself holds on to it
_ENDING: Final = 1.0  # seconds within which a process that closed its pipe has ended, unless a GPU's driver holds on to it
_CLOSING: Final = 2.0
_TAIL: Final = 1 << 13  # bytes of what a process wrote last
_FROM_OUTSIDE: Final = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}) if os.name == "posix" else frozenset[int]()

_T = TypeVar("_T")


class WorkerLost(Exception):
    """The process is gone, or sent what is no answer; it was killed. Its text is the cause.

    `begun` says whether it may have begun what it was asked, `killed` whether it was ended by a signal that no process sends to itself.
    """

    def __init__(self, cause: str, begun: bool, killed: bool) -> None:
        super().__init__(cause)
        self.begun, self.killed = begun, killed


class WorkerLate(Exception):
    """The answer to a request has not come within a timeout. The process still computes: the caller kills it."""

    def __init__(self, kind: str, timeout: float | None) -> None:
        super().__init__(kind, timeout)
        self.kind, self.timeout = kind, timeout


class WorkerFailed(Exception):
    """The worker answered with an error; `lost` says that its device can do nothing more."""

    def __init__(self, error: VyreError, lost: bool) -> None:
        super().__init__(error, lost)
        self.error, self.lost = error, lost


def command(descriptor: int) -> list[str]:
    """The command that starts a worker over the shared memory behind a descriptor."""
    return [sys.executable, "-P", "-m", "vyre_py.drivers.process.worker", str(descriptor)]


def _environment() -> dict[str, str]:
    """The environment of the worker, with this process's module path in the same order: it imports the same modules as its parent."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([entry or os.getcwd() for entry in sys.path])}  # noqa: PTH109 - a text is joined


def _error_stream() -> int | None:
    """The worker's standard error for subprocess: this process's own, or none where it was started without one."""
    try:
        return None if os.get_inheritable(2) else subprocess.DEVNULL  # a child must not inherit another file with that number
    except OSError:
        return subprocess.DEVNULL


def _as_json(value: Any) -> Any:
    """A value of an option as JSON has it, NumPy's numbers included."""
    if isinstance(value, tuple):
        return [_as_json(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def to_plain(options: CompileOptions | DispatchConfig) -> dict[str, Any]:
    """The fields of options that differ from their defaults, as JSON has them."""
    return {f.name: _as_json(getattr(options, f.name)) for f in fields(options) if getattr(options, f.name) != f.default}


@dataclass(frozen=True, slots=True)
class Opened:
    """A worker's description of its device."""

    name: str
    description: str
    limits: Limits
    target: Target
    honoured: frozenset[str]

    @classmethod
    def read(cls, opened: dict[str, Any]) -> Opened:
        """Raises ChannelBroken for what no worker says."""
        given, honoured = opened.get("limits"), list_of(opened, "honoured")
        if not isinstance(given, dict) or not all(isinstance(name, str) for name in honoured):
            raise ChannelBroken("its description of its device is invalid")
        limits: dict[str, Any] = {}
        for field in fields(Limits):
            value = given.get(field.name)
            if isinstance(value, list) and all(type(size) is int and size >= 0 for size in value):
                limits[field.name] = tuple(value)
            else:
                limits[field.name] = whole_of(given, field.name)
        try:
            target = parse_target(text_of(opened, "target"))
        except Unsupported as error:
            raise ChannelBroken(f"its device has a target of an unknown kind: {error}") from error
        return cls(text_of(opened, "name"), text_of(opened, "description"), Limits(**limits), target, frozenset(honoured))


class WorkerProcess:
    """A process that answers one request at a time. `ask` is called by one thread at a time, `kill` by any.

    `memory` is what both share; it goes with the process. What it writes to its standard error goes where this process's does, or `captures_stderr` keeps
    it for `said`. `answered` says whether it has answered anything yet. Raises DeviceUnavailable when no process can be started, Unsupported on systems
    where a child can't be handed a descriptor.
    """

    def __init__(self, captures_stderr: bool = False) -> None:
        if os.name != "posix":
            raise Unsupported("vyre-py", [Missing("worker processes on this system", help="they are handed shared memory as open files, which POSIX has")])
        with ExitStack() as undo:
            try:
                self.memory = SharedMemory()
                undo.callback(self.memory.close)
                self._log = anonymous_file("vyre-compiler") if captures_stderr else None
                undo.callback(self._close_log)
                # Not in this process's group: Ctrl-C in a terminal is for the parent, which then decides.
                self._process = subprocess.Popen(  # noqa: S603 - the command is our own
                    command(self.memory.fd), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, pass_fds=(self.memory.fd,),
                    stderr=_error_stream() if self._log is None else self._log, env=_environment(), start_new_session=True,
                )  # fmt: skip
            except (OSError, ValueError, TypeError) as error:
                raise DeviceUnavailable(
                    "the worker process cannot be started", cause=str(error), remedy="check sys.executable and the system's limits"
                ) from error
            undo.pop_all()
        assert self._process.stdin is not None and self._process.stdout is not None  # both are pipes
        self._pipes = (self._process.stdin, self._process.stdout)
        self._channel = Channel(self._process.stdout.fileno(), self._process.stdin.fileno())
        self._number = 0
        self.answered = False

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def open(self, device: str | None, timeout: float | None) -> Opened:
        """Has the process open a device, the best that is here for None. Raises what `ask` raises."""
        return self.ask_for("open", {"device": device or ""}, timeout, Opened.read)

    def ask(self, kind: str, request: Mapping[str, Any], timeout: float | None = None) -> None:
        """Sends a request, and waits up to `timeout` seconds until it is done.

        Raises WorkerFailed with the error that the worker answered, WorkerLost, WorkerLate, MessageTooLarge.
        """
        self.ask_for(kind, request, timeout, lambda done: None)

    def ask_for(self, kind: str, request: Mapping[str, Any], timeout: float | None, read: Callable[[dict[str, Any]], _T]) -> _T:
        """As `ask`, but returns what `read` makes of the answer's fields. `read` raises ChannelBroken for malformed fields."""
        self._number += 1
        deadline = deadline_after(timeout)
        sent = False
        try:
            self._channel.send({"id": self._number, "kind": kind, **request}, deadline)
            sent = True
            reply = self._reply(deadline)
            self.answered = True
            done = reply.get("done")
            if isinstance(done, dict):
                return read(done)
            failed = rebuild(reply.get("error"))
        except ChannelLate as error:
            raise WorkerLate(kind, timeout) from error
        except (ChannelBroken, ErrorDataBroken) as error:
            raise self._lost(str(error), sent) from error
        raise WorkerFailed(failed, reply.get("lost") is True)

    def _reply(self, deadline: float | None) -> dict[str, Any]:
        reply = self._channel.receive(deadline)
        if whole_of(reply, "id") != self._number:
            raise ChannelBroken("it answered another request than it was asked")
        return reply

    def ended(self) -> str | None:
        """Why the process has ended of itself, or was ended from outside, between two requests; None while it waits for the next."""
        if self._process.poll() is not None:
            return self._ending()
        return None if self._channel.silent else str(self._lost("it closed its pipe, or spoke unasked", False))

    def _lost(self, seen: str, sent: bool) -> WorkerLost:
        """Kills the process, if it has not ended of itself, and says why it has: its signal or status, or else what was seen."""
        try:
            self._process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            self.kill_and_wait()
            return WorkerLost(seen, sent and not self._channel.unread, False)
        return WorkerLost(f"{self._ending()} ({seen})", sent and not self._channel.unread, -self._process.returncode in _FROM_OUTSIDE)

    def _ending(self) -> str:
        status = self._process.returncode
        if status >= 0:
            return f"it ended with status {status}"
        try:
            return f"it was ended by {signal.Signals(-status).name}"
        except ValueError:
            return f"it was ended by signal {-status}"

    def close(self) -> None:
        """Asks the process to end, and kills it when it does not."""
        with suppress(WorkerFailed, WorkerLost, WorkerLate, subprocess.TimeoutExpired):
            self.ask("close", {}, _CLOSING)
            self._process.wait(_CLOSING)
        self.release()

    def kill(self) -> None:
        """Ends the process, from any thread, without waiting until it has ended. Again is quiet."""
        self._process.kill()

    def kill_and_wait(self) -> None:
        """Ends the process, and waits until it has ended. Again is quiet."""
        self.kill()
        with suppress(subprocess.TimeoutExpired):  # the system still holds it; it ends when the system releases it
            self._process.wait(_DYING)

    def release(self) -> None:
        """Ends the process and releases pipes and memory. For the thread that sends requests, after the last one. Again is quiet."""
        self.kill_and_wait()
        for pipe in self._pipes:
            pipe.close()
        self.memory.close()
        self._close_log()

    def said(self) -> str:
        """The end of what it wrote to a captured standard error since this was asked last, as it may be shown. For when it does nothing."""
        if self._log is None or not (size := os.fstat(self._log).st_size):
            return ""
        text = os.pread(self._log, _TAIL, max(size - _TAIL, 0)).decode("utf-8", "replace")
        os.ftruncate(self._log, 0)
        os.lseek(self._log, 0, os.SEEK_SET)  # the process writes where this stands: both have the file by one description
        return printable(text, "\n\t").strip("\n")

    def _close_log(self) -> None:
        if self._log is not None:
            os.close(self._log)
            self._log = None
