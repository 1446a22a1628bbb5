"""expand: ops that the op table leaves to `ir/math` become the statements that compute them."""

from __future__ import annotations

from vyre_py.ir.language.nodes import Atom, Const, Let
from vyre_py.ir.language.op import Op
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u32
from vyre_py.ir.math import EXPANSIONS, MathBuilder
from vyre_py.ir.passes.lets import rewrite_lets

__all__ = ["expand"]


def _component(m: MathBuilder, atom: Atom, lane: int) -> Atom:
    """One component of a vector; a scalar stands for each of them."""
    return m.out.let(OPS["swizzle"], (atom, Const(u32, lane)), atom.type.scalar) if atom.type.is_vector else atom


def _expanded(m: MathBuilder, op: Op, args: tuple[Atom, ...]) -> Atom:
    """The op of scalars."""
    type_, written = args[0].type, EXPANSIONS[op.name]
    if op.through is None or op.through is type_:
        return written(m, *args)
    return m.cast(written(m, *[m.cast(a, op.through) for a in args]), type_)


def _written(m: MathBuilder, let: Let, args: tuple[Atom, ...]) -> Atom:
    lanes = let.bound.type.lanes
    if lanes == 1:
        return _expanded(m, let.op, args)
    made = [_expanded(m, let.op, tuple([_component(m, a, lane) for a in args])) for lane in range(lanes)]
    return m(f"vec{lanes}", *made)


def expand(program: Program, names: frozenset[str]) -> Program:
    """The Program with every op that is in `names` and `expands` over its type written out, vectors component by component; the same
    object without any."""

    def wanted(let: Let) -> bool:
        if let.op.name not in names:
            return False
        type_ = let.op.operand_type(tuple([a.type for a in let.args]))
        return type_ is not None and type_.scalar in let.op.expands

    return rewrite_lets(program, wanted, _written)
