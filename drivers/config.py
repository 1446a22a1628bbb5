"""Options that change a launch, but not code."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from vyre_py.lowering.errors import Missing, Unsupported

__all__ = ["DispatchConfig"]


@dataclass(frozen=True, slots=True)
class DispatchConfig:
    """How to run. A field that a device can't honour is refused by name, never ignored.

    Attributes: `label` names the launch for people; `grid` replaces the grid, in workgroups along x, y, z; `fixpoint` names a buffer that
    is looked at between launches; `cooperative` asks that all workgroups run at once; `timeout` in seconds; `max_output_bytes` refuses
    larger results before anything runs; `stream` is any object with `__cuda_stream__`.
    """

    label: str = ""
    grid: tuple[int, int, int] | None = None
    fixpoint: str | None = None
    cooperative: bool = False
    timeout: float | None = None
    max_output_bytes: int | None = None
    stream: Any = None

    def refuse(self, who: str, honoured: frozenset[str]) -> None:
        """Raises Unsupported that names every field which differs from its default and is not in `honoured`."""
        changed = [f.name for f in fields(self) if getattr(self, f.name) != f.default and f.name not in honoured]
        if changed:
            raise Unsupported(who, [Missing(f"dispatch option {name}") for name in changed])
