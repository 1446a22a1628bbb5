"""Errors of lowering.

    VyreError
    +- LoweringError
       +- Unsupported       the target lacks something: `.items` names every op, type, limit or option
       +- ToolchainError    a compiler refused what we gave it: a defect of ours, with its message and the text it saw
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vyre_py.ir.errors import Place, VyreError

__all__ = ["LoweringError", "Missing", "ToolchainError", "Unsupported"]


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
    """A compiler behind a target refused the text that we emitted. `text` is that text."""

    def __init__(self, tool: str, message: str, text: str = "") -> None:
        self.tool, self.text = tool, text
        super().__init__(f"{tool}: {message}")
