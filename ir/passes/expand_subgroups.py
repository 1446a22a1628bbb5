"""subgroups: what a target lacks of the ops of subgroups becomes ops that it has, and queries about lanes become arithmetic on the local index."""

from __future__ import annotations

from collections.abc import Callable

from vyre_py.ir.language.nodes import Let, Statement, Subgroup, Value
from vyre_py.ir.language.program import Program
from vyre_py.ir.math import MathBuilder
from vyre_py.ir.math.together import TOGETHER, lane, subgroup_id
from vyre_py.ir.passes.rewriter import Rewriter

__all__ = ["Takes", "expand_subgroups"]

Takes = Callable[[Subgroup], bool]

_QUERIES = {"subgroup_lane": lane, "subgroup_id": subgroup_id}


def expand_subgroups(program: Program, takes: Takes) -> Program:
    """The Program, of scalars, with every subgroup op that the target does not take written out, until it takes all that is left; the same object without
    any. It has to take shuffles."""

    def wanted(s: Statement) -> bool:
        return (isinstance(s, Subgroup) and not takes(s)) or (isinstance(s, Let) and s.op.name in _QUERIES)

    while any(map(wanted, program.body)):
        out = Rewriter(program)
        builder = MathBuilder(out)
        for index in out.indices():
            statement = program.body[index]
            if not wanted(statement):
                out.copy(index)
                continue
            assert isinstance(statement, (Let, Subgroup))
            out.place = program.place(index)
            write = TOGETHER[statement.op.name] if isinstance(statement, Subgroup) else _QUERIES[statement.op.name]
            made = write(builder, *[out.atom(a) for a in statement.args])
            out.map[statement.bound.id] = made
            if isinstance(made, Value) and statement.bound.id in program.value_names:
                out.value_names.setdefault(made.id, program.value_names[statement.bound.id])
        program = out.finish()
    return program
