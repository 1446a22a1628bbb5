"""Programs whose results no rule of floating point can change."""

from __future__ import annotations

from vyre_py.ir.functions.function import Function
from vyre_py.ir.language.nodes import Atomic, GridScan, Let, Statement, Subgroup, Tile, TileAtomicAdd
from vyre_py.ir.language.program import Program

__all__ = ["is_exact"]


def is_exact(program: Program) -> bool:
    """Whether a Program computes nothing in floating point, so that its results are the language's own bits under all numerics."""
    for statement in program.body:
        if isinstance(statement, Let) and isinstance(statement.op, Function) and not is_exact(statement.op.program):
            return False
        if _computes(statement) and any(a is not None and a.type.is_float for a in (statement.result, *statement.args)):
            return False
    return True


def _computes(statement: Statement) -> bool:
    """Whether a statement does more than to move bits."""
    if isinstance(statement, Atomic):
        return statement.op.reads and statement.op.writes
    if isinstance(statement, Tile):  # folds and products; all others arrange elements
        return bool(statement.op.fold) or statement.op.operands > 1
    if isinstance(statement, (Let, Subgroup)):
        return not statement.op.moves_bits
    return isinstance(statement, (GridScan, TileAtomicAdd))
