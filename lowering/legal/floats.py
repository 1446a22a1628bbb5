"""Floats of 8 and 16 bits through f32: for targets that hold them as bits, and convert those of 16 bits to and from f32.

An op is computed in f32 and rounded once, which is its meaning. What would round twice is rounded to odd first (S. Boldo and
G. Melquiond, "Emulation of a FMA and correctly rounded sums", 2008): cut toward the odd neighbour, so that a later rounding, to
fewer bits by two or more, still sees on which side of a tie the exact number lies. f32 has 13 bits more than f16, and bf16's exponents with
16 bits more at each. Casts from and to floats of 8 bits are arithmetic on their bits (`byte_floats`).

What remains: casts between f32 and floats of 16 bits, bitcasts, selects, and moves through memory, variables and params.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom, Let, const
from vyre_py.ir.language.ops import JOINED
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, bf16, f8e4m3, f8e5m2, f16, f32, i32, u32
from vyre_py.ir.math import MathBuilder
from vyre_py.ir.math.builder import float_, word
from vyre_py.ir.passes.lets import rewrite_lets
from vyre_py.lowering.legal.byte_floats import narrowed, widened

__all__ = ["narrow_floats"]

_NARROW: Final = frozenset({f8e4m3, f8e5m2, f16, bf16})
_KEPT: Final = frozenset({"select", "bitcast", JOINED.name})

_F32_EXACT_BITS: Final = 24  # integers of up to as many bits are f32
# Type that does not reach as far as integers do -> a power of two that it takes for too large, as all above.
_BEYOND: Final = {f8e4m3: 1 << 9, f8e5m2: 1 << 16, f16: 1 << 16}


def narrow_floats(program: Program) -> Program:
    """The Program with floats of 8 and 16 bits computed in f32; the same object where they are only moved. Takes scalars only."""
    return rewrite_lets(program, _is_narrow, _computed)


def _is_narrow(let: Let) -> bool:
    """Whether an op computes with narrow floats, rather than moving them."""
    types = {a.type for a in let.args} | {let.bound.type}
    moves = let.op.name in _KEPT or (let.op.name == "cast" and f32 in types and not any(t.is_storage for t in types))
    return not moves and not types.isdisjoint(_NARROW)


def _computed(m: MathBuilder, let: Let, args: tuple[Atom, ...]) -> Atom:
    """The op over narrow floats, or the cast to or from one."""
    name, result = let.op.name, let.bound.type
    wide = [widened(m, a) if a.type.is_storage else m.cast(a, f32) if a.type in _NARROW else a for a in args]
    if name == "cast":
        return _rounded(m, wide[0], result) if result in _NARROW else m.cast(wide[0], result) if result is not f32 else wide[0]
    if name == "fma":
        made = (_fused_f16 if result is f16 else _fused_bf16)(m, *wide)
    else:
        made = m(name, *wide)
    return m.cast(made, result) if result in _NARROW else made


# ---------------------------------------------------------------- casts


def _rounded(m: MathBuilder, x: Atom, target: Type) -> Atom:
    """A number in a narrow float type, rounded once."""
    single = _single(m, x, target)
    return narrowed(m, single, target) if target.is_storage else m.cast(single, target)


def _single(m: MathBuilder, x: Atom, target: Type) -> Atom:
    """A number as an f32 that rounds to the same one of a narrow float type."""
    source = x.type
    if source is f32:
        return x
    if source.bits <= _F32_EXACT_BITS:
        return m.cast(x, f32)
    if source.is_integer and target in _BEYOND:
        return m.cast(_cut(m, x, _BEYOND[target]), f32)
    near = m.cast(x, f32)
    back = m.cast(near, source)
    return _to_odd(m, near, m("lt", back, x), m("gt", back, x))


def _cut(m: MathBuilder, x: Atom, beyond: int) -> Atom:
    """An integer, or of larger ones a power of two with its sign, in 32 bits."""
    t = x.type
    inside = m("min", x, const(t, beyond))
    if t.is_signed:
        inside = m("max", inside, const(t, -beyond))
    return inside if t.bits == i32.bits else m.cast(inside, i32)


def _to_odd(m: MathBuilder, near: Atom, above: Atom, below: Atom) -> Atom:
    """A number that was rounded to the f32 `near`, rounded to odd instead; the bools say on which side of `near` it lies."""
    bits = m.bitcast(near, u32)
    even = m("eq", m("and", bits, word(1)), word(0))
    negative = m("ge", bits, word(1 << 31))
    step = m("select", m("ne", above, negative), word(1), word(0xFFFFFFFF))
    lost = m("logical_and", even, m("logical_or", above, below))
    return m.bitcast(m("add", bits, m("select", lost, step, word(0))), f32)


# ---------------------------------------------------------------- fused multiply-add


def _odd_sum(m: MathBuilder, a: Atom, b: Atom) -> Atom:
    """a + b rounded to odd; `error` is exactly what the sum lost (D. E. Knuth's TwoSum), and NaN where it is not finite."""
    total = m("add", a, b)
    virtual = m("sub", total, a)
    error = m("add", m("sub", a, m("sub", total, virtual)), m("sub", b, virtual))
    return _to_odd(m, total, m("gt", error, float_(0.0)), m("lt", error, float_(0.0)))


def _fused_f16(m: MathBuilder, a: Atom, b: Atom, c: Atom) -> Atom:
    """a * b + c of numbers that f16 holds, to be rounded to f16: the product has 22 bits and is exact."""
    return _odd_sum(m, m("mul", a, b), c)


def _fused_bf16(m: MathBuilder, a: Atom, b: Atom, c: Atom) -> Atom:
    """a * b + c of numbers that bf16 holds, to be rounded to bf16.

    The product has 16 bits, but may leave f32's exponents. Where the result is finite, a product above 2^100 lies below 2^129, and a
    and c by 2^-16 are exact, since they are multiples of 2^-133 and f32 goes down to 2^-149. A product below 2^-149 * 2^16 is
    rounded to odd; what it lost is seen in the product by 2^128, which is exact.
    """
    rough = m("mul", a, b)
    size = m("abs", rough)
    large = m("gt", size, float_(2.0**100))
    down, up = m("select", large, float_(2.0**-16), float_(1.0)), m("select", large, float_(2.0**16), float_(1.0))
    product = m("mul", m("mul", a, down), b)
    lift = float_(2.0**64)
    exact = m("mul", m("mul", a, lift), m("mul", b, lift))
    seen = m("mul", m("mul", product, lift), lift)
    small = m("lt", size, float_(2.0**-100))
    above, below = (m("logical_and", small, m(name, exact, seen)) for name in ("gt", "lt"))
    total = _odd_sum(m, _to_odd(m, product, above, below), m("mul", c, down))
    # f32's own decides what is infinite or NaN: there the way above may overflow too early.
    whole = m("fma", a, b, c)
    return m("select", m("is_finite", whole), m("mul", total, up), whole)
