"""by_words: ops over 64-bit integers that a target has not, though it has the type, in 32-bit words: `split64` for single ops.

The operands are taken apart, and the result put together, by bitcasts from and to a pair of u32.
"""

from __future__ import annotations

from collections.abc import Callable

from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import Atom, Const, Let, const
from vyre_py.ir.language.ops import OPS, swizzle_bits
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u32, vector_of
from vyre_py.ir.language.widths import whole_size
from vyre_py.ir.math import MathBuilder
from vyre_py.ir.math.builder import word
from vyre_py.ir.passes.lets import rewrite_lets
from vyre_py.lowering.legal.split64_ops import Pair, Split64Builder, is_wide, op_by_words, words_of_const

__all__ = ["by_words"]

_PAIR = vector_of(u32, 2)


def by_words(program: Program, has: Callable[[Let], bool]) -> Program:
    """The Program with each op over i64 and u64 that the target does not have (`has`) written in words; the same object without any. Takes scalars only."""

    def lacks(let: Let) -> bool:
        return any(is_wide(a.type) for a in (let.bound, *let.args)) and (isinstance(whole_size(let), DimConst) or not has(let))

    return rewrite_lets(program, lacks, _written)


def _apart(w: Split64Builder, atom: Atom) -> Pair:
    if isinstance(atom, Const):
        return words_of_const(atom)
    pair = w.bitcast(atom, _PAIR)
    low, high = (w.out.let(OPS["swizzle"], (pair, word(swizzle_bits(name))), u32) for name in "xy")
    return low, high


def _written(m: MathBuilder, let: Let, args: tuple[Atom, ...]) -> Atom:
    if isinstance(size := whole_size(let), DimConst):
        return const(let.bound.type, size.value)
    w, result = Split64Builder(m.out), let.bound.type
    made = op_by_words(w, let, [_apart(w, a) if is_wide(a.type) else a for a in args])
    return w.bitcast(w("vec2", *made), result) if isinstance(made, tuple) else made
