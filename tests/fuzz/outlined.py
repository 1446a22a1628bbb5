"""A Program's ops as calls of functions of its own, for tests that compare it with the Program that has them in place."""

from __future__ import annotations

from typing import Any

from vyre_py.ir.functions.function import Definition, Function
from vyre_py.ir.language.nodes import Let
from vyre_py.ir.language.op import Operand
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes.rewriter import Rewriter

__all__ = ["outlined"]


def outlined(program: Program, each: int = 1) -> Program:
    """The Program with each op that only computes in a function of its own, by op and types; or one in so many of them, and the others in place."""
    out = Rewriter(program)
    made: dict[Any, Function] = {}
    for index, s in enumerate(program.body):
        # The lanes of a swizzle are no operand of a function.
        if index % each or not isinstance(s, Let) or s.op.is_query or not s.args or Operand.LANES in s.op.operands:
            out.copy(index)
            continue
        key = s.op, tuple([a.type for a in s.args]), s.bound.type
        if key not in made:
            names = tuple([(f"x{k}", type_) for k, type_ in enumerate(key[1])])
            body = Definition(f"f{len(made)}_{s.op.name}", names, s.bound.type)
            body.give(body.let_of(s.bound.type, s.op, body.parameters))
            made[key] = Function(body.finish())
            out.functions.append(made[key])
        out.place = program.place(index)
        out.map[s.bound.id] = out.let(made[key], tuple([out.atom(a) for a in s.args]), name=program.value_names.get(s.bound.id))
    return out.finish()
