"""expand: ops that the op table leaves to `ir/math` become the statements that compute them, or stay as calls of a function that does
(`ir.functions.called`)."""

from __future__ import annotations

from collections import Counter
from typing import Final

from vyre_py.ir.language.nodes import Atom, Const, Let
from vyre_py.ir.language.op import Op
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import SCALARS, Type, u32
from vyre_py.ir.math import EXPANSIONS, VECTOR_EXPANSIONS, Components, MathBuilder
from vyre_py.ir.passes.lets import rewrite_lets

__all__ = ["LONG", "WRITTEN_OUT", "expand"]

# So many uses of an op over one type are written out, where passes know most about them, and more while all of them together are so many statements; the
# others call, if each would be so many statements.
WRITTEN_OUT: Final = 16
LONG: Final = 24
_STATEMENTS: Final = 1024


def _component(m: MathBuilder, atom: Atom, lane: int) -> Atom:
    """One component of a vector; a scalar stands for each of them."""
    return m.out.let(OPS["swizzle"], (atom, Const(u32, lane)), atom.type.scalar) if atom.type.is_vector else atom


def _components(m: MathBuilder, atom: Atom) -> Components:
    return tuple([_component(m, atom, lane) for lane in range(atom.type.lanes)])


class _Expansion:
    """Writes ops of one Program, and counts how often it has."""

    def __init__(self, *, calls: bool) -> None:
        self._calls = calls
        self._uses: Counter[tuple[Op, Type]] = Counter()
        self._most: dict[tuple[Op, Type], int] = {}  # of long ones

    def __call__(self, m: MathBuilder, let: Let, args: tuple[Atom, ...]) -> Atom:
        if let.op.name in VECTOR_EXPANSIONS:
            whole = VECTOR_EXPANSIONS[let.op.name](m, *[_components(m, a) for a in args])
            return whole[0] if len(whole) == 1 else m(f"vec{len(whole)}", *whole)
        lanes = let.bound.type.lanes
        if lanes == 1:
            return self._scalar(m, let.op, args)
        made = [self._scalar(m, let.op, tuple([_component(m, a, lane) for a in args])) for lane in range(lanes)]
        return m(f"vec{lanes}", *made)

    def _scalar(self, m: MathBuilder, op: Op, args: tuple[Atom, ...]) -> Atom:
        key = op, args[0].type
        if key in self._most and self._uses[key] >= self._most[key]:
            return m(op.name, *args)
        before = len(m.out.body)
        made = EXPANSIONS[op.name](m, *args)
        self._uses[key] += 1
        length = len(m.out.body) - before
        if self._calls and args[0].type.is_float and length >= LONG:
            self._most[key] = max(WRITTEN_OUT, _STATEMENTS // length)
        return made


def expand(program: Program, names: frozenset[str], of: frozenset[Type] = frozenset(SCALARS.values()), *, calls: bool = True) -> Program:
    """The Program with ops that are in `names` and `expands` over their type, one `of` these, written out, vectors component by component; the same
    object without any. With `calls`, a long one that is there often stays, over scalars, for functions to compute."""

    def wanted(let: Let) -> bool:
        if let.op.name not in names:
            return False
        type_ = let.op.operand_type(tuple([a.type for a in let.args]))
        return type_ is not None and type_.scalar in let.op.expands & of

    expansion = _Expansion(calls=calls)
    # First those over whole vectors, whose expansions may be of the others.
    whole = rewrite_lets(program, lambda let: let.op.name in VECTOR_EXPANSIONS and wanted(let), expansion)
    return rewrite_lets(whole, wanted, expansion)
