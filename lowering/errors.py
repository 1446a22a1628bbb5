"""Errors of lowering.

    VyreError
    +- LoweringError
       +- Unsupported       the target lacks something: `.items` names every op, type, limit or option
       +- ToolchainError    a compiler refused what we gave it, or ended its process: a defect of ours, with its message and the text it saw
       +- ArtifactError     a file or bytes that are no artifact, or an artifact that cannot be written: `.part` names what of it is at fault
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vyre_py.ir.errors import Place, VyreError

__all__ = ["ArtifactError", "LoweringError", "Missing", "ToolchainError", "Unsupported"]


class LoweringError(VyreError):
    """A valid Program could not be lowered."""


@dataclass(frozen=True, slots=True)
class Missing:
    """One thing that a target lacks: what it is (`op exp`, `type u8`, `option interruptible`), where it was asked for, and
    what to do instead."""

    what: str
    place: Place | None = None
    help: str = ""

    def __str__(self) -> str:
        text = self.what if self.place is None else f"{self.what} at {self.place}"
        return f"{text} ({self.help})" if self.help else text


class Unsupported(LoweringError):
    """A target or device lacks what was asked for; it says so by name and never does something else instead."""

    def __init__(self, who: str, items: Iterable[Missing | str]) -> None:
        self.who = who
        self.items: tuple[Missing, ...] = tuple(i if isinstance(i, Missing) else Missing(i) for i in items)
        super().__init__(f"{who} does not support " + "; ".join(map(str, self.items)))


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
