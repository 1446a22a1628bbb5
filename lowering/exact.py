"""Programs whose results no rule of floating point can change."""

from __future__ import annotations

from vyre_py.ir.functions.function import Function
from vyre_py.ir.language.nodes import Atomic, GridScan, Let, Subgroup
from vyre_py.ir.language.program import Program

__all__ = ["is_exact"]


def is_exact(program: Program) -> bool:
    """Whether a Program computes nothing in floating point, so that its results are the language's own bits under all numerics."""
    for statement in program.body:
        if isinstance(statement, Let) and isinstance(statement.op, Function) and not is_exact(statement.op.program):
            return False
        if isinstance(statement, Atomic):
            computes = statement.op.reads and statement.op.writes
        else:
            computes = isinstance(statement, GridScan) or (isinstance(statement, (Let, Subgroup)) and not statement.op.moves_bits)
        if computes and any(a.type.is_float for a in (statement.bound, *statement.args)):
            return False
    return True
