"""Fields of bits in every integer type: offset and count are u32 and cut to the width, so that no shift is by the whole width."""

from __future__ import annotations

from vyre_py.ir.language.nodes import Atom, Const, const
from vyre_py.ir.language.types import Type, unsigned_of
from vyre_py.ir.math.builder import MathBuilder, word

__all__ = ["extract_bits", "insert_bits"]


def extract_bits(m: MathBuilder, x: Atom, offset: Atom, count: Atom) -> Atom:
    """The `count` bits of x from bit `offset` up, sign-extended for signed types; 0 for an empty field."""
    t = x.type
    start, length = _cut(m, t.bits, offset, count)
    # Up to the top and down again, so that the sign follows.
    down = m("sub", word(t.bits), length)
    up = m("sub", down, start)
    moved = m("shr", m("shl", x, _as(m, up, t)), _as(m, down, t))
    return m("select", m("eq", length, word(0)), const(t, 0), moved)


def insert_bits(m: MathBuilder, x: Atom, y: Atom, offset: Atom, count: Atom) -> Atom:
    """x with its `count` bits from bit `offset` up taken from the low bits of y."""
    t, u = x.type, unsigned_of(x.type)
    start, length = _cut(m, t.bits, offset, count)
    ones = m("shr", Const(u, u.maximum), _as(m, m("sub", word(t.bits), length), u))
    mask: Atom = m("shl", ones, _as(m, start, u))
    if t is not u:
        mask = m.bitcast(mask, t)
    moved = m("shl", y, _as(m, start, t))
    mixed = m("xor", x, m("and", m("xor", x, moved), mask))
    return m("select", m("eq", length, word(0)), x, mixed)


def _cut(m: MathBuilder, bits: int, offset: Atom, count: Atom) -> tuple[Atom, Atom]:
    """Where the field begins and how long it is, within the width."""
    start = m("min", offset, word(bits))
    return start, m("min", count, m("sub", word(bits), start))


def _as(m: MathBuilder, count: Atom, t: Type) -> Atom:
    """A u32 count as one of the type that shifts take."""
    return count if count.type is t else m.cast(count, t)
