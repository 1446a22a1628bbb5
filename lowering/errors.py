"""Errors of lowering.

    VyreError
    +- LoweringError
       +- Unsupported       the target lacks something: `.items` names every op, type, limit or option
       +- ToolchainError    a compiler refused what we gave it, or ended its process: a defect of ours, with its message and the text it saw
       +- ArtifactError     a file or bytes that are no artifact, or an artifact that cannot be written: `.part` names what of it is at fault
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vyre_py.ir.language.errors import LoweringError, Missing, Unsupported
from vyre_py.ir.public import public

__all__ = ["ArtifactError", "LoweringError", "Missing", "ToolchainError", "Unsupported"]


@public
class ToolchainError(LoweringError):
    """A compiler behind a target refused the text that we emitted. `text` is that text.

    Or it ended the process that it ran in: then `program_bytes` are the Program that was compiled, for `Program.from_bytes`, and `report` is the folder
    in which that lies with all that is known, None where it could not be written.
    """

    program_bytes: bytes | None = None
    report: Path | None = None

    def __init__(self, tool: str, message: str, text: str = "") -> None:
        self.tool, self.text = tool, text
        super().__init__(f"{tool}: {message}")

    def __reduce__(self) -> tuple[Any, ...]:
        *made, fields = super().__reduce__()
        # A pickled Path names a module that only some Pythons have.
        return *made, {**fields, "report": str(self.report)} if self.report else fields

    def __setstate__(self, state: dict[str, Any] | None) -> None:
        report = (state or {}).get("report")
        super().__setstate__({**(state or {}), "report": Path(report)} if report else state)


@public
class ArtifactError(LoweringError):
    """A file, or bytes, that are no artifact which this vyre-py reads, or an artifact that cannot be written.

    `part` names what of it is at fault: "file", "header", "interface", or "part " and its target; `path` the file, where there is one.
    """

    def __init__(self, part: str, message: str, path: str = "") -> None:
        self.part, self.path = part, path
        super().__init__(f"{repr(path) if path else 'artifact'}: {part}: {message}")

    def at(self, path: str) -> ArtifactError:
        """The same error, of the file at a path."""
        return ArtifactError(self.part, str(self).partition(f": {self.part}: ")[2], path)
