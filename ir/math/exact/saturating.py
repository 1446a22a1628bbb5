"""Saturating arithmetic of every integer type, in that type alone: what goes over is seen in the wrapped result."""

from __future__ import annotations

from vyre_py.ir.language.nodes import Atom, const
from vyre_py.ir.math.builder import MathBuilder

__all__ = ["saturating_add", "saturating_mul", "saturating_sub"]


def saturating_add(m: MathBuilder, a: Atom, b: Atom) -> Atom:
    """a + b, or the nearest value that the type holds."""
    total = m("add", a, b)
    if not a.type.is_signed:
        return m("select", m("lt", total, a), const(a.type, a.type.maximum), total)
    # The sum went over where its sign is neither operand's.
    over = m("and", m("xor", a, total), m("xor", b, total))
    return m("select", m("lt", over, const(a.type, 0)), _end(m, a), total)


def saturating_sub(m: MathBuilder, a: Atom, b: Atom) -> Atom:
    """a - b, or the nearest value that the type holds."""
    rest = m("sub", a, b)
    if not a.type.is_signed:
        return m("select", m("lt", a, b), const(a.type, 0), rest)
    over = m("and", m("xor", a, b), m("xor", a, rest))
    return m("select", m("lt", over, const(a.type, 0)), _end(m, a), rest)


def saturating_mul(m: MathBuilder, a: Atom, b: Atom) -> Atom:
    """a * b, or the nearest value that the type holds."""
    low, high = m("mul", a, b), m("mul_hi", a, b)
    if not a.type.is_signed:
        return m("select", m("eq", high, const(a.type, 0)), low, const(a.type, a.type.maximum))
    # The upper half of a product that fits repeats the sign of the lower one.
    fits = m("eq", high, m("shr", low, const(a.type, a.type.bits - 1)))
    return m("select", fits, low, _end(m, m("xor", a, b)))


def _end(m: MathBuilder, sign: Atom) -> Atom:
    """The least value where `sign` is negative, else the greatest."""
    return m("xor", m("shr", sign, const(sign.type, sign.type.bits - 1)), const(sign.type, sign.type.maximum))
