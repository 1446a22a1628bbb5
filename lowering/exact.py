"""Programs whose results no rule of floating point can change."""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atomic, Let
from vyre_py.ir.language.program import Program

__all__ = ["EXACT_OPS", "is_exact"]

# Ops over floats that move or look at bits, and are exact everywhere.
EXACT_OPS: Final = frozenset({"select", "bitcast", "is_nan", "is_inf", "is_finite"})


def is_exact(program: Program) -> bool:
    """Whether a Program computes nothing in floating point, so that its results are the language's own bits under all numerics."""
    for statement in program.body:
        computes = isinstance(statement, Atomic) or (isinstance(statement, Let) and statement.op.name not in EXACT_OPS)
        if computes and any(a.type.is_float for a in (statement.bound, *statement.args)):
            return False
    return True
