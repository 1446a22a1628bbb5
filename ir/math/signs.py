"""Signs of f32 as bits: what odd functions do with the sign of their argument, zeros included."""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.types import f32, u32
from vyre_py.ir.math.builder import MathBuilder, word

__all__ = ["with_sign_of"]

_SIGN: Final = 0x80000000


def with_sign_of(m: MathBuilder, magnitude: Atom, x: Atom) -> Atom:
    """`magnitude`, which has no sign of its own or is NaN, with the sign of x."""
    sign = m("and", m.bitcast(x, u32), word(_SIGN))
    return m.bitcast(m("or", m.bitcast(magnitude, u32), sign), f32)
