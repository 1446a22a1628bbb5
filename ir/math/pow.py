"""pow for f32: every pair of arguments; at most 1 ULP (0.792 seen, over 2.4 * 10^8 pairs, most of them with results inside of f32's range).

Method: |x|^y = 2^(y log2 |x|), with the logarithm to 2^-35 of itself and its product with y in two f32 each, since an error of 2^-26 in
a product of up to 150 would be seen. |x| = 2^i m with m in [sqrt(1/2), sqrt(2)); log2 m = s (A + s^2 (B + s^2 P(s^2))) with
s = (m - 1) / (m + 1) (W. J. Cody and W. Waite, Software Manual for the Elementary Functions, 1980, chapter 7, has this frame), where
s, A, B and all sums that hold them have two parts (T. J. Dekker, 1971), and P is so small beside B that f32 will do.

Coefficients: A = 2 / ln 2 and B = A / 3 in two parts; P is an own minimax fit in s^2 for |s| <= 0.1718, rounded to f32 one after
another, to 2^-37 of the logarithm.

Special values are those of C's Annex F.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.types import f32, i32
from vyre_py.ir.math.builder import MathBuilder, float_, int_
from vyre_py.ir.math.exp import two_to
from vyre_py.ir.math.pairs import Pair, product, sum_of
from vyre_py.ir.math.signs import with_sign_of

__all__ = ["power"]

_A_HIGH, _A_LOW = 2.88539, 3.851926e-08
_B_HIGH, _B_LOW = 0.9617967, -7.028462e-09
_TAIL: Final = (0.57708025, 0.41184402, 0.33795986)

_LEAST_NORMAL: Final = 2.0**-126
_ROOT_HALF_BITS: Final = 0x3F3504F3
_EXPONENT_MASK: Final = -(1 << 23)

# |log2 x| is at least 2^-24 where it is not 0, so a greater |y| changes nothing, and neither does a |y log2 x| beyond the second.
_MOST_Y: Final = 2.0**33
_MOST_POWER: Final = 160.0
_MOST_LOW: Final = 2.0**-10  # the lower part is far less wherever the upper is within bounds
_INFINITY: Final = float("inf")


def power(m: MathBuilder, x: Atom, y: Atom) -> Atom:
    """x to the power y, as C's pow: 1 for y = 0 and for x = 1, even of NaN; NaN for x < 0 unless y is whole."""
    size = m("abs", x)
    upper, lower = _log2(m, size)
    # Poles and zeros: the product with y has the right sign already.
    upper = m("select", m("eq", size, float_(0.0)), float_(-_INFINITY), m("select", m("is_inf", size), size, upper))
    size_power = _exponential(m, m("clamp", y, float_(-_MOST_Y), float_(_MOST_Y)), (upper, lower))

    whole = m("eq", m("round", y), y)
    half = m("mul", y, float_(0.5))
    odd = m("logical_and", whole, m("ne", m("round", half), half))
    signed = m("select", odd, with_sign_of(m, size_power, x), size_power)

    zero, one = float_(0.0), float_(1.0)
    root = m("logical_and", m("logical_and", m("lt", x, zero), m("is_finite", x)), m("logical_not", whole))
    nan = m("logical_or", m("logical_or", m("is_nan", x), m("is_nan", y)), root)
    result = m("select", nan, float_(float("nan")), signed)
    return m("select", m("logical_or", m("eq", x, one), m("eq", y, zero)), one, result)


def _exponential(m: MathBuilder, y: Atom, log: Pair) -> Atom:
    """2 to the power y * (log[0] + log[1]); 0 or infinity where that is out of f32's range, or infinite."""
    upper, lost = product(m, y, log[0])
    lower = m("fma", y, log[1], lost)
    inside = m("clamp", upper, float_(-_MOST_POWER), float_(_MOST_POWER))
    # A NaN becomes a number here: infinity less infinity, where the upper part says enough.
    return two_to(m, inside, m("clamp", lower, float_(-_MOST_LOW), float_(_MOST_LOW)))


def _log2(m: MathBuilder, x: Atom) -> Pair:
    """log2(x) to 2^-35 of itself, for x > 0."""
    small = m("lt", x, float_(_LEAST_NORMAL))
    bits = m.bitcast(m("select", small, m("mul", x, float_(2.0**23)), x), i32)
    exponent = m("and", m("sub", bits, int_(_ROOT_HALF_BITS)), int_(_EXPONENT_MASK))
    mantissa = m.bitcast(m("sub", bits, exponent), f32)
    i = m("fma", m.cast(exponent, f32), float_(2.0**-23), m("select", small, float_(-23.0), float_(0.0)))

    s = _quotient(m, mantissa)
    # s^2; each lower part takes what the upper one and the lower parts' products with upper ones leave.
    square, square_lost = product(m, s[0], s[0])
    square_lost = m("fma", m("add", s[0], s[0]), s[1], square_lost)
    # The lower part of s may be two ULP, and that shows here.
    rounded = m("add", square, square_lost)
    inner, inner_lost = sum_of(m, float_(_B_HIGH), m("mul", rounded, m.polynomial(rounded, _TAIL)))
    inner_lost = m("add", inner_lost, float_(_B_LOW))
    middle, middle_lost = _times(m, (square, square_lost), (inner, inner_lost))
    outer, outer_lost = sum_of(m, float_(_A_HIGH), middle)
    outer_lost = m("add", outer_lost, m("add", middle_lost, float_(_A_LOW)))
    part, part_lost = _times(m, s, (outer, outer_lost))
    total, lost = sum_of(m, i, part)
    return total, m("add", lost, part_lost)


def _quotient(m: MathBuilder, x: Atom) -> Pair:
    """(x - 1) / (x + 1) in two parts, for x from 1/2 to 2."""
    one = float_(1.0)
    above = m("sub", x, one)
    below, below_lost = sum_of(m, one, x)
    inverse = m("div", one, below)
    upper = m("mul", above, inverse)
    minus = m("neg", upper)
    return upper, m("mul", m("fma", minus, below_lost, m("fma", minus, below, above)), inverse)


def _times(m: MathBuilder, a: Pair, b: Pair) -> Pair:
    """The product of two pairs, but for that of their lower parts; its parts may overlap."""
    upper, lost = product(m, a[0], b[0])
    return upper, m("fma", a[0], b[1], m("fma", a[1], b[0], lost))
