"""A Program that a worker process compiles, and what is said when the process ends over it."""

from __future__ import annotations

import shlex
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from vyre_py.drivers.errors import DispatchTimeout
from vyre_py.drivers.process.channel import ChannelBroken, MessageTooLarge, whole_of
from vyre_py.drivers.process.worker_process import WorkerFailed, WorkerLate, WorkerLost, WorkerProcess, to_plain
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.errors import ProgramError, VyreError, shown
from vyre_py.ir.language.program import Program
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.errors import Missing, ToolchainError, Unsupported
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.provenance import version_of

__all__ = ["Task"]

_BYTE: Final = np.dtype(np.uint8)
_MAX_ARTIFACT: Final = 1 << 32  # bytes
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
            return "an invalid Program"

    def compiled(self, process: WorkerProcess, timeout: float | None) -> Artifact:
        """Has a worker compile it. Raises what compiling raises, WorkerLost, and DispatchTimeout, after which the process still compiles."""
        data = np.frombuffer(self.data, _BYTE)
        process.memory.put(data)
        request = {"at": 0, "size_bytes": data.size, "targets": list(self.targets), "options": to_plain(self.options)}
        try:
            return process.ask_for("compile_artifact", request, timeout, partial(_artifact, process))
        except WorkerFailed as failed:
            raise failed.error from None
        except MessageTooLarge as error:
            raise Unsupported("vyre-py", [Missing(f"so many targets at once: {error}")]) from None
        except WorkerLate:
            raise DispatchTimeout(
                f"compiling {self.name} for {', '.join(self.targets)} took longer than {timeout:g} s", meaning="the process that compiled it was killed",
                remedy="allow more time",
            ) from None  # fmt: skip

    def crash(self, lost: WorkerLost, said: str) -> ToolchainError:
        """The error of a worker that ended over it, having written `said`. Keeps the Program in a folder."""
        text = f"its process ended while it compiled {self.name} for {', '.join(self.targets)}: {lost}"
        if "SIGKILL" in str(lost):
            text += "; systems end processes like that where memory runs out"
        if said:
            text += "\n  it wrote last:\n" + "\n".join(f"    {line}" for line in said.splitlines())
        error = ToolchainError("the compiler", text)
        error.program_bytes = self.data
        error.report, where = _keep(self, text)
        error.args = (f"{error}\n  {where}",)
        return error


def _artifact(process: WorkerProcess, done: dict[str, Any]) -> Artifact:
    """The artifact that a worker left in shared memory. Raises ChannelBroken for malformed bytes."""
    try:
        return Artifact.from_bytes(process.memory.array(0, (whole_of(done, "size_bytes", _MAX_ARTIFACT),), _BYTE).tobytes())
    except (ValueError, VyreError) as error:
        raise ChannelBroken(f"its result is not an artifact: {error}") from error


def _keep(task: Task, text: str) -> tuple[Path | None, str]:
    """Leaves the Program, and how to see it crash again, in a folder that only this user can read; gives the folder, and what to say of it."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="vyre-crash-"))
        program = folder / "program.vyre"
        program.write_bytes(task.data)
        again = " ".join(["vyre-py compile", shlex.quote(str(program)), *[f"--target {target}" for target in task.targets]])
        versions = [f"{name} {version_of(name, 'from a checkout')}" for name in _VERSIONS]
        lines = [text, "", f"to see it again: {again}", f"options: {to_plain(task.options) or 'none'}", *versions]
        (folder / "report.txt").write_text("\n".join(lines) + "\n", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        return None, f"the Program could not be kept ({error}); it is in program_bytes of this error"
    return folder, f"the Program is kept; to see it again: {again}"
