"""Signs of f32 and f64 as bits: what odd functions do with the sign of their argument, zeros included."""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom, const
from vyre_py.ir.language.types import f32, f64, u32, u64
from vyre_py.ir.math.builder import MathBuilder

__all__ = ["with_sign_of"]

_BITS: Final = {f32: u32, f64: u64}


def with_sign_of(m: MathBuilder, magnitude: Atom, x: Atom) -> Atom:
    """`magnitude`, which has no sign of its own or is NaN, with the sign of x."""
    bits = _BITS[x.type]
    sign = m("and", m.bitcast(x, bits), const(bits, 1 << bits.bits - 1))
    return m.bitcast(m("or", m.bitcast(magnitude, bits), sign), x.type)
