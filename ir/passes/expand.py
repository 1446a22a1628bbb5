"""expand: ops that the op table leaves to `ir/math` become the statements that compute them."""

from __future__ import annotations

from vyre_py.ir.assembler import Rewriter
from vyre_py.ir.math import EXPANSIONS, MathBuilder
from vyre_py.ir.nodes import Let, Statement, Value
from vyre_py.ir.program import Program

__all__ = ["expand"]


def _wanted(statement: Statement, names: frozenset[str]) -> bool:
    return isinstance(statement, Let) and statement.op.expands and statement.op.name in names


def expand(program: Program, names: frozenset[str]) -> Program:
    """The Program with every op that `expands` and is in `names` written out; the same object when there is none.

    What an op becomes carries the op's place, and its last value the op's name.
    """
    if not any(_wanted(s, names) for s in program.body):
        return program
    out = Rewriter(program)
    builder = MathBuilder(out)
    for index, statement in enumerate(program.body):
        if not _wanted(statement, names):
            out.copy(index)
            continue
        assert isinstance(statement, Let)  # `_wanted`
        out.place = program.place(index)
        made = EXPANSIONS[statement.op.name](builder, out.atom(statement.args[0]))
        out.map[statement.bound.id] = made
        if isinstance(made, Value) and statement.bound.id in program.value_names:
            out.value_names[made.id] = program.value_names[statement.bound.id]
    return out.finish()
