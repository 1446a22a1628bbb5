"""pow: every pair of arguments; at most 1 ULP (of f32 0.792 seen, over 2.4 * 10^8 pairs, most of them with results inside of its range).

Method: |x|^y = 2^(y log2 |x|), with the logarithm to 2^-35 of itself and its product with y in two f32 each, since an error of 2^-26 in
a product of up to 150 would be seen; of f64 to 2^-65, for 2^-55 in 1075. |x| = 2^i m with m in [sqrt(1/2), sqrt(2)); log2 m = s (A + s^2 (B + s^2 P(s^2)))
with s = (m - 1) / (m + 1) (W. J. Cody and W. Waite, Software Manual for the Elementary Functions, 1980, chapter 7, has this frame), where
s, A, B and all sums that hold them have two parts (T. J. Dekker, 1971), and P is so small beside B that one float will do.

Coefficients: A = 2 / ln 2 and B = A / 3 in two parts; P in s^2 for |s| <= 0.1718 is an own minimax fit, rounded to f32 one after another, to 2^-37 of the
logarithm; that of f64 to 2^-73.

Special values are those of C's Annex F.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.types import f32, f64
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.exp import two_to
from vyre_py.ir.math.log import ROOT_HALF, split
from vyre_py.ir.math.pairs import Pair, product, sum_of, times
from vyre_py.ir.math.words import with_sign_of

__all__ = ["log2_parts", "power"]

_A: Final = {f32: (2.88539, 3.851926e-08), f64: (2.8853900817779268, 4.0710547481862066e-17)}
_B: Final = {f32: (0.9617967, -7.028462e-09), f64: (0.9617966939259756, 5.0577616648125907e-17)}
_TAIL: Final = {
    f32: (0.57708025, 0.41184402, 0.33795986),
    f64: (
        0.577078016355585, 0.4121985831114026, 0.32059889790128104, 0.26230819986702897, 0.22195219813100478, 0.19240379641258126, 0.16840620245887042,
        0.17316141092325232,
    ),
}  # fmt: skip

# |log2 x| is at least 2^-24, of f64 2^-53, where it is not 0, so a greater |y| changes nothing, and neither does a |y log2 x| beyond the second.
_MOST_Y: Final = {f32: 2.0**33, f64: 2.0**65}
_MOST_POWER: Final = {f32: 160.0, f64: 1200.0}
_MOST_LOW: Final = {f32: 2.0**-10, f64: 2.0**-30}  # the lower part is far less wherever the upper is within bounds
_INFINITY: Final = float("inf")


def power(m: MathBuilder, x: Atom, y: Atom) -> Atom:
    """x to the power y, as C's pow: 1 for y = 0 and for x = 1, even of NaN; NaN for x < 0 unless y is whole."""
    size = m("abs", x)
    upper, lower = log2_parts(m, size)
    # Poles and zeros: the product with y has the right sign already.
    upper = m("select", m("eq", size, 0.0), -_INFINITY, m("select", m("is_inf", size), size, upper))
    size_power = _exponential(m, m("clamp", y, -_MOST_Y[x.type], _MOST_Y[x.type]), (upper, lower))

    whole = m("eq", m("round", y), y)
    half = m("mul", y, 0.5)
    odd = m("logical_and", whole, m("ne", m("round", half), half))
    signed = m("select", odd, with_sign_of(m, size_power, x), size_power)

    root = m("logical_and", m("logical_and", m("lt", x, 0.0), m("is_finite", x)), m("logical_not", whole))
    nan = m("logical_or", m("logical_or", m("is_nan", x), m("is_nan", y)), root)
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
    """log2(x) to 2^-35 of itself, of f64 2^-65, for x > 0."""
    i, f = split(m, x, ROOT_HALF[x.type])
    a, b = _A[x.type], _B[x.type]
    s = _quotient(m, f)
    # s^2; each lower part takes what the upper one and the lower parts' products with upper ones leave.
    square, square_lost = product(m, s[0], s[0])
    square_lost = m("fma", m("add", s[0], s[0]), s[1], square_lost)
    # The lower part of s may be two ULP, and that shows here.
    rounded = m("add", square, square_lost)
    inner, inner_lost = sum_of(m, b[0], m("mul", rounded, m.polynomial(rounded, _TAIL[x.type])))
    inner_lost = m("add", inner_lost, b[1])
    middle, middle_lost = times(m, (square, square_lost), (inner, inner_lost))
    outer, outer_lost = sum_of(m, a[0], middle)
    outer_lost = m("add", outer_lost, m("add", middle_lost, a[1]))
    part, part_lost = times(m, s, (outer, outer_lost))
    total, lost = sum_of(m, i, part)
    return total, m("add", lost, part_lost)


def _quotient(m: MathBuilder, f: Atom) -> Pair:
    """f / (2 + f) in two parts, for f from -1/2 to 1."""
    below, below_lost = sum_of(m, 2.0, f)
    inverse = m("div", 1.0, below)
    upper = m("mul", f, inverse)
    minus = m("neg", upper)
    return upper, m("mul", m("fma", minus, below_lost, m("fma", minus, below, f)), inverse)
