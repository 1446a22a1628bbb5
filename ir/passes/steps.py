"""steps: a for whose step is not a constant becomes one that counts its turns, so that no target sees another step than a constant."""

from __future__ import annotations

from vyre_py.ir.language.nodes import Atom, Const, For, Statement, const
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u32
from vyre_py.ir.math import MathBuilder
from vyre_py.ir.math.builder import word
from vyre_py.ir.passes.rewriter import Rewriter

__all__ = ["constant_steps"]


def _wanted(s: Statement) -> bool:
    return isinstance(s, For) and not isinstance(s.args[2], Const)


def constant_steps(program: Program) -> Program:
    """The Program whose loops all have constant steps; the same object where they do. The new statements carry the loop's place."""
    if not any(map(_wanted, program.body)):
        return program
    out = Rewriter(program)
    m = MathBuilder(out)
    for index in out.indices():
        s = program.body[index]
        if not (isinstance(s, For) and _wanted(s)):
            out.copy(index)
            continue
        out.place = program.place(index)
        start, stop, step = [out.atom(a) for a in s.args]
        turn = out.for_(word(0), _turns(m, start, stop, step), word(1), unroll=s.unroll, pipeline=s.pipeline)
        moved = m("mul", turn if start.type is u32 else m.bitcast(turn, start.type), step)
        out.map[s.bound.id] = made = m("add", start, moved)
        if s.bound.id in program.value_names:
            out.value_names[made.id] = program.value_names[s.bound.id]
    return out.finish()


def _turns(m: MathBuilder, start: Atom, stop: Atom, step: Atom) -> Atom:
    """ceil((stop - start) / step) as a u32, 0 where the step is not above 0: nothing that counts wraps, since the distance is below 2^32."""

    def unsigned(a: Atom) -> Atom:
        return a if a.type is u32 else m.bitcast(a, u32)

    turns = m("add", m("div", m("sub", unsigned(m("sub", stop, start)), word(1)), unsigned(step)), word(1))
    some = m("logical_and", m("lt", start, stop), m("gt", step, const(start.type, 0)))
    return m("select", some, turns, word(0))
