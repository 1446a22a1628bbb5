"""Options that change code, and are therefore part of every cache key."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from vyre_py.lowering.errors import Missing, Unsupported

__all__ = ["CompileOptions"]

Numerics = Literal["strict", "fast", "native"]


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """How to compile. A field that a target can't honour is refused by name, never ignored.

    Attributes: `workgroup` replaces the Program's workgroup size (x, y, z); `numerics` is "strict", "fast", "native", or None for
    the target's default (strict, on wgpu native); `codegen` picks the PTX back end; `opt` is 0 (none) to 3; `debug` keeps source places
    in the code; `interruptible` lets loops look at a cancel flag.
    """

    workgroup: tuple[int, int, int] | None = None
    numerics: Numerics | None = None
    codegen: Literal["llvm", "nvvm"] = "llvm"
    opt: int = 3
    debug: bool = False
    interruptible: bool = False

    def refuse(self, who: str, honoured: frozenset[str]) -> None:
        """Raises Unsupported that names every field which differs from its default and is not in `honoured`."""
        changed = [f.name for f in fields(self) if getattr(self, f.name) != f.default and f.name not in honoured]
        if changed:
            raise Unsupported(who, [Missing(f"option {name}={getattr(self, name)!r}") for name in changed])
