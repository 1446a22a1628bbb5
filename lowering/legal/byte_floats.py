"""f8e4m3 and f8e5m2 from and to f32, in arithmetic on their bits, which is the same on every target.

GPUs from sm_89 on have instructions for both, but those to f8 saturate at the greatest number (PTX ISA, `cvt.rn.satfinite.e4m3x2.f32`), where a cast gives
NaN or infinity, as ml_dtypes has it. The formats: P. Micikevicius et al., "FP8 formats for deep learning", 2022.
"""

from __future__ import annotations

import math
from typing import Final

from vyre_py.ir.language.nodes import Atom, const
from vyre_py.ir.language.types import Type, f16, f32, u8, u16, u32
from vyre_py.ir.math import MathBuilder
from vyre_py.ir.math.builder import float_, word

__all__ = ["narrowed", "widened"]

_SIGN: Final = 0x80
_SIGN_SHIFT: Final = 24  # between the signs of an f8 and of an f32
_HALF_SIGN_SHIFT: Final = 8
_MAGNITUDE: Final = 0x7FFFFFFF
_IMPLIED: Final = 1 << f32.fraction_bits  # the bit of a significand that is not written
_INFINITY: Final = f32.greatest_bits + 1


def _shift(type_: Type) -> int:
    """How many bits of a fraction an f32 has more."""
    return f32.fraction_bits - type_.fraction_bits


def _rebias(type_: Type) -> int:
    """What is added to the exponent's field, in the place of an f32's."""
    return type_.least_exponent - f32.least_exponent << f32.fraction_bits


def widened(m: MathBuilder, x: Atom) -> Atom:
    """An f8 as the f32 of the same value, by way of f16, from which machines have an instruction. An f8e5m2 is the upper byte of an f16; an f8e4m3, moved
    to where f16 has exponent and fraction, is one that is smaller by what the exponents' biases differ."""
    type_ = x.type
    bits = m.cast(m.bitcast(x, u8), u32)
    if type_.least_exponent == f16.least_exponent:
        return _of_half(m, m("shl", bits, word(_HALF_SIGN_SHIFT)))
    size = m("and", bits, word(_SIGN - 1))
    sign = m("shl", m("and", bits, word(_SIGN)), word(_HALF_SIGN_SHIFT))
    found = _of_half(m, m("or", m("shl", size, word(f16.fraction_bits - type_.fraction_bits)), sign))
    scaled = m("mul", found, float_(2.0 ** (type_.least_exponent - f16.least_exponent)))
    return m("select", m("eq", size, word(type_.canonical_nan)), const(f32, math.nan), scaled)


def _of_half(m: MathBuilder, bits: Atom) -> Atom:
    """The f32 of an f16's bits."""
    return m.cast(m.bitcast(m.cast(bits, u16), f16), f32)


def narrowed(m: MathBuilder, x: Atom, type_: Type) -> Atom:
    """An f32 as the nearest f8, ties to even.

    Half of the last place that stays, less one where that bit is 0, is added to the bits, and the rest is cut; a carry goes into the exponent. A subnormal
    result is cut out of the significand, further right the smaller it is. Past the greatest number is infinity, or where there is none NaN.
    """
    bits = m.bitcast(x, u32)
    size = m("and", bits, word(_MAGNITUDE))
    least = type_.least_exponent - f32.least_exponent + 1  # the exponent's field of the least normal result
    field = m("shr", size, word(f32.fraction_bits))
    is_tiny = m("lt", field, word(least))
    significand = m("or", m("and", size, word(_IMPLIED - 1)), word(_IMPLIED))
    # Past a shift by all bits of the significand and one there is nothing to round.
    cut = m("min", m("sub", word(_shift(type_) + least), field), word(f32.fraction_bits + 2))
    kept = m("select", is_tiny, significand, m("sub", size, word(_rebias(type_))))
    shift = m("select", is_tiny, cut, word(_shift(type_)))
    last = m("and", m("shr", kept, shift), word(1))
    half = m("sub", m("shl", word(1), m("sub", shift, word(1))), word(1))
    rounded = m("shr", m("add", m("add", kept, half), last), shift)
    rounded = m("min", rounded, word(type_.greatest_bits + 1))
    if type_.has_infinities:
        rounded = m("select", m("gt", size, word(_INFINITY)), word(type_.canonical_nan), rounded)
    sign = m("and", m("shr", bits, word(_SIGN_SHIFT)), word(_SIGN))
    return m.bitcast(m.cast(m("or", rounded, sign), u8), type_)
