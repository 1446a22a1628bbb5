"""One worker process that compiles: asked for artifacts, and what is said when it ends over one."""

from __future__ import annotations

import os
import shlex
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import numpy as np

from vyre_py.drivers.errors import DeviceUnavailable, DispatchTimeout
from vyre_py.drivers.process.channel import ChannelBroken, MessageTooLarge, whole_of
from vyre_py.drivers.process.worker_process import WorkerFailed, WorkerLate, WorkerLost, WorkerProcess, to_plain
from vyre_py.ir.imports import importing
from vyre_py.ir.language.errors import ProgramError, VyreError, printable, shown
from vyre_py.ir.language.program import Program
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.errors import Missing, ToolchainError, Unsupported
from vyre_py.lowering.options import CompileOptions

__all__ = ["Compiler", "CompilerLost", "Task"]

_START_S: Final = 120.0  # that a start may take on a machine which is busy with many of them
_BYTE: Final = np.dtype(np.uint8)
_MAX_ARTIFACT: Final = 1 << 32  # bytes
_TAIL: Final = 1 << 13  # bytes of what a process said last
_ALONE: Final = "compile_many(..., workers=1) compiles in this process"
_VERSIONS: Final = ("vyre-py", "llvmlite", "numpy")


@dataclass(frozen=True, slots=True)
class Task:
    """A Program to compile, in bytes; `index` is its place among those of the call."""

    index: int
    data: bytes
    targets: tuple[str, ...]
    options: CompileOptions

    @property
    def name(self) -> str:
        """The Program's name, as messages show it."""
        try:
            return shown(Program.from_bytes(self.data).name)
        except ProgramError:
            return "what is no Program"


class CompilerLost(Exception):
    """The process was lost over nothing that it was asked, so that another may do it: it died as it started, had not begun, or was killed from outside."""


class Compiler:
    """A worker process and what it says on its standard error. Used by one thread at a time; `kill` by any.

    Raises ToolchainError when no process can be started.
    """

    def __init__(self) -> None:
        log = -1
        try:
            log = _log()
            self._process = WorkerProcess(log)
        except BaseException as error:
            if log >= 0:
                os.close(log)
            if isinstance(error, (DeviceUnavailable, OSError)):  # OSError: no more open files, most likely
                raise ToolchainError("the compiler", f"its process cannot be started: {error}\n  {_ALONE}") from error
            raise
        self._log = log
        self._ready = False
        self.lost = False  # whether it is good for nothing any more

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether it still waits for a task, and says so: one that was killed a moment ago may look as if it did."""
        if self._process.ended() is not None:
            return False
        try:
            self._process.ask("ready", {}, _START_S)
        except (WorkerLate, WorkerLost, WorkerFailed):
            return False
        self._ready = True
        return True

    def compile(self, task: Task, timeout: float | None, last: bool) -> Artifact:
        """Compiles. Raises what compiling raises, ToolchainError when the process ends over it, DispatchTimeout when it is killed for being late, and
        CompilerLost, unless this is the last process that is tried."""
        try:
            size = self._send(task)
            request = {"at": 0, "size_bytes": size, "targets": list(task.targets), "options": to_plain(task.options)}
            return self._process.ask_for("compile_artifact", request, timeout, self._artifact)
        except WorkerFailed as failed:
            raise failed.error from None
        except MessageTooLarge as error:
            raise Unsupported("vyre-py", [Missing(f"so many targets at once: {error}")]) from None
        except WorkerLate:
            self.release()
            raise DispatchTimeout(
                f"compiling {task.name} for {', '.join(task.targets)} took longer than {timeout:g} s", meaning="the process that compiled it was killed",
                remedy="allow more time",
            ) from None  # fmt: skip
        except WorkerLost as lost:
            if (lost.killed or not lost.begun) and not last:
                self.release()
                raise CompilerLost from None
            raise self._crash(task, str(lost)) from None

    def start(self, last: bool) -> None:
        """Waits for the process to be ready, so that one which cannot even start is not taken for a crash. Again is quiet. Raises ToolchainError, and
        CompilerLost, unless this is the last process that is tried."""
        if self._ready:
            return
        try:
            self._process.ask("ready", {}, _START_S)
        except (WorkerLate, WorkerLost, WorkerFailed) as error:
            seen = f"did not start within {_START_S:g} s" if isinstance(error, WorkerLate) else f"ended as it started: {error}"
            said = self.said()
            self.release()
            if isinstance(error, WorkerLost) and not last:
                raise CompilerLost from None
            raise ToolchainError("the compiler", f"its process {seen}\n{said}\n  {_ALONE}") from None
        self._ready = True

    def _send(self, task: Task) -> int:
        memory, data = self._process.memory, np.frombuffer(task.data, _BYTE)
        memory.reserve(data.size)
        memory.array(0, data.shape, _BYTE)[:] = data
        return data.size

    def _artifact(self, done: dict[str, Any]) -> Artifact:
        """The artifact that the process left in shared memory. Raises ChannelBroken for malformed bytes."""
        with importing:
            from vyre_py.lowering.artifact.file import decode

        try:
            return decode(self._process.memory.array(0, (whole_of(done, "size_bytes", _MAX_ARTIFACT),), _BYTE).tobytes())
        except (ValueError, VyreError) as error:
            raise ChannelBroken(f"what it made is no artifact: {error}") from error

    def said(self) -> str:
        """The end of what it wrote to its standard error since this was asked last, as it may be shown. For when it is not compiling."""
        size = os.fstat(self._log).st_size
        if not size:
            return ""
        text = os.pread(self._log, _TAIL, max(size - _TAIL, 0)).decode("utf-8", "replace")
        os.ftruncate(self._log, 0)
        os.lseek(self._log, 0, os.SEEK_SET)  # the process writes where this stands: both have the file by one description
        return printable(text, "\n\t").strip("\n")

    def _crash(self, task: Task, how: str) -> ToolchainError:
        said = self.said()
        self.release()
        text = f"its process ended while it compiled {task.name} for {', '.join(task.targets)}: {how}"
        if "SIGKILL" in how:
            text += "; systems end processes like that where memory runs out"
        if said:
            text += "\n  it wrote last:\n" + "\n".join(f"    {line}" for line in said.splitlines())
        error = ToolchainError("the compiler", text)
        error.program_bytes = task.data
        error.report, where = _keep(task, text)
        error.args = (f"{error}\n  {where}",)
        return error

    def kill(self) -> None:
        """Ends the process at once."""
        self._process.kill()

    def release(self) -> None:
        """Ends the process and releases its resources. Idempotent. For the thread that uses it."""
        if not self.lost:
            self.lost = True
            self._process.release()
            os.close(self._log)


def _log() -> int:
    """An open file without a name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("vyre-compiler", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _keep(task: Task, text: str) -> tuple[Path | None, str]:
    """Leaves the Program, and how to see it crash again, in a folder that only this user can read; gives the folder, and what to say of it."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="vyre-crash-"))
        program = folder / "program.vyre"
        program.write_bytes(task.data)
        again = " ".join(["vyre-py compile", shlex.quote(str(program)), *[f"--target {target}" for target in task.targets]])
        lines = [text, "", f"to see it again: {again}", f"options: {to_plain(task.options) or 'none'}", *[f"{name} {_version(name)}" for name in _VERSIONS]]
        (folder / "report.txt").write_text("\n".join(lines) + "\n", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        return None, f"the Program could not be kept ({error}); it is in program_bytes of this error"
    return folder, f"the Program is kept; to see it again: {again}"


def _version(package: str) -> str:
    try:
        with importing:  # what reads the version's file
            return version(package)
    except PackageNotFoundError:
        return "from a checkout"
