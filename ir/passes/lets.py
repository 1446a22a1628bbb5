"""What passes share that write single ops in other words."""

from __future__ import annotations

from collections.abc import Callable

from vyre_py.ir.language.nodes import Atom, Let, Value
from vyre_py.ir.language.program import Program
from vyre_py.ir.math import MathBuilder
from vyre_py.ir.passes.rewriter import Rewriter

__all__ = ["rewrite_lets"]


def rewrite_lets(program: Program, wanted: Callable[[Let], bool], write: Callable[[MathBuilder, Let, tuple[Atom, ...]], Atom]) -> Program:
    """The Program with each Let that is `wanted` replaced by the result of `write`, over operands of the new Program; the same object without any.

    The new statements carry the op's place. Their last value carries the op's name if it has none. Raises Overgrown.
    """
    if not any(isinstance(s, Let) and wanted(s) for s in program.body):
        return program
    out = Rewriter(program)
    builder = MathBuilder(out)
    for index in out.indices():
        statement = program.body[index]
        if not (isinstance(statement, Let) and wanted(statement)):
            out.copy(index)
            continue
        out.place = program.place(index)
        made = write(builder, statement, tuple([out.atom(a) for a in statement.args]))
        out.map[statement.bound.id] = made
        if isinstance(made, Value) and statement.bound.id in program.value_names:
            out.value_names.setdefault(made.id, program.value_names[statement.bound.id])
    return out.finish()
