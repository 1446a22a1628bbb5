"""pow: every pair of arguments; at most 1 ULP (of f32 0.804 seen, over 4 * 10^8 pairs, most of them with results inside of its range, and many of them
drawn from where it is hard: |x| near 1 and near sqrt(2), subnormal numbers, both ends of the results).

Method: |x|^y = 2^(y log2 |x|), with the logarithm to 2^-35 of itself and its product with y in two f32 each, since an error of 2^-26 in
a product of up to 150 would be seen; of f64 to 2^-65, for 2^-55 in 1075. |x| = 2^i m with m in [sqrt(1/2), sqrt(2)); log2 m = s (A + s^2 (B + s^2 P(s^2)))
with s = (m - 1) / (m + 1) (W. J. Cody and W. Waite, Software Manual for the Elementary Functions, 1980, chapter 7, has this frame), where
s, A, B and all sums that hold them have two parts (T. J. Dekker, 1971), and P is so small beside B that one float will do. The lower part of B is
as far below 0 as s^2 P is above it where |s| is great, so that what they add up to is less. s is f = m - 1 times an inverse of 2 + f, of f32 a polynomial: the
lower part of s makes up for what that lacks. A fused step gives an upper part, and the same step, less that, the lower one.

Coefficients: A = 2 / ln 2 and B = A / 3 in two parts; 1 / (2 + f) to 2^-20 of itself; P in s^2 for |s| <= 0.1718 is an own minimax fit, rounded to f32 one
after another, to 2^-37 of the logarithm; that of f64 to 2^-73.

Special values are those of C's Annex F.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom, const
from vyre_py.ir.language.types import f32, f64
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.exp import two_to
from vyre_py.ir.math.log import ROOT_HALF, split
from vyre_py.ir.math.pairs import Pair, product, sum_of
from vyre_py.ir.math.words import FORMATS

__all__ = ["log2_parts", "power"]

_A: Final = {f32: (2.88539, 3.851926e-08), f64: (2.8853900817779268, 4.0710547481862066e-17)}
_B: Final = {f32: (0.9757212, -0.013924487), f64: (0.9757212, -0.01392450607402435)}
_TAIL: Final = {
    f32: (0.57708025, 0.41184402, 0.33795986),
    f64: (
        0.577078016355585, 0.4121985831114026, 0.32059889790128104, 0.26230819986702897, 0.22195219813100478, 0.19240379641258126, 0.16840620245887042,
        0.17316141092325232,
    ),
}  # fmt: skip

# 1 / (2 + f) for f32, to 2^-20.
_INVERSE: Final = (0.5000002, -0.24999365, 0.12496696, -0.06277377, 0.03224908, -0.013551517)

# |log2 x| is at least 2^-24, of f64 2^-53, where it is not 0, so a greater |y| changes nothing, and neither does a |y log2 x| beyond the second.
_MOST_Y: Final = {f32: 2.0**33, f64: 2.0**65}
_MOST_POWER: Final = {f32: 160.0, f64: 1200.0}
_MOST_LOW: Final = {f32: 2.0**-7, f64: 2.0**-30}  # the lower part is less wherever the upper is within bounds
_INFINITY: Final = float("inf")


def power(m: MathBuilder, x: Atom, y: Atom) -> Atom:
    """x to the power y, as C's pow: 1 for y = 0 and for x = 1, even of NaN; NaN for x < 0 unless y is whole."""
    number = m("min", x, _INFINITY)  # no NaN, so that its bits are its own
    size = m("abs", number)
    upper, lower = log2_parts(m, size)
    # Poles and zeros: 0 and infinity are what doubling leaves, and the logarithm has its sign already.
    end = m("eq", m("add", size, size), size)
    upper = m("select", end, m("mul", upper, _INFINITY), upper)
    inside = m("clamp", y, -_MOST_Y[x.type], _MOST_Y[x.type])
    size_power = _exponential(m, inside, (upper, lower))

    # What a base below zero makes of it: -1 for an odd y, 1 for an even one, NaN for one that is not whole, but for the ends.
    half = m("round", m("mul", inside, 0.5))
    rest = m("abs", m("fma", half, -2.0, inside))
    sign = m("select", end, const(x.type, 1.0), float("nan"))
    sign = m("select", m("eq", rest, 0.0), 1.0, sign)
    sign = m("select", m("eq", rest, 1.0), -1.0, sign)
    negative = m("lt", m.bitcast(number, FORMATS[x.type].signed), 0)
    signed = m("mul", size_power, m("select", negative, sign, 1.0))

    nan = m("logical_or", m("is_nan", x), m("is_nan", y))
    result = m("select", nan, float("nan"), signed)
    return m("select", m("logical_or", m("eq", x, 1.0), m("eq", y, 0.0)), 1.0, result)


def _exponential(m: MathBuilder, y: Atom, log: Pair) -> Atom:
    """2 to the power y * (log[0] + log[1]); 0 or infinity where that is out of range, or infinite."""
    upper, lost = product(m, y, log[0])
    lower = m("fma", y, log[1], lost)
    inside = m("clamp", upper, -_MOST_POWER[y.type], _MOST_POWER[y.type])
    # A NaN becomes a number here: infinity less infinity, where the upper part says enough.
    return two_to(m, inside, m("clamp", lower, -_MOST_LOW[y.type], _MOST_LOW[y.type]))


def log2_parts(m: MathBuilder, x: Atom) -> Pair:
    """log2(x) to 2^-35 of itself, of f64 2^-65, for x > 0; the lower part is at most 2^-14 of the upper, of f64 half an ULP."""
    i, f = split(m, x, ROOT_HALF[x.type])
    a, b = _A[x.type], _B[x.type]
    s, s_lost = _quotient(m, f)
    square, square_lost = product(m, s, s)
    square_lost = m("fma", m("add", s, s), s_lost, square_lost)
    rounded = m("add", square, square_lost)
    outer = m("fma", square, b[0], a[0])
    outer_lost = m("fma", square, b[0], m("sub", a[0], outer))
    tail = m("fma", rounded, m.polynomial(rounded, (b[1], *_TAIL[x.type])), a[1])
    outer_lost = m("add", outer_lost, m("fma", square_lost, b[0], tail))
    total = m("fma", s, outer, i)
    lost = m("fma", s, outer, m("sub", i, total))
    lost = m("fma", s, outer_lost, m("fma", s_lost, m("add", outer, outer_lost), lost))
    # Of f64 1024 times the lower part would be seen beside what is left of the product.
    return (total, lost) if x.type is f32 else sum_of(m, total, lost)


def _quotient(m: MathBuilder, f: Atom) -> Pair:
    """f / (2 + f) in two parts, for f from -1/2 to 1 (of f32, from sqrt(1/2) - 1 to sqrt(2) - 1): the lower makes up for what the inverse lacks."""
    inverse = m.polynomial(f, _INVERSE) if f.type is f32 else m("div", 1.0, m("add", f, 2.0))
    upper = m("mul", f, inverse)
    return upper, m("mul", m("fma", m("neg", upper), f, m("fma", upper, -2.0, f)), inverse)
