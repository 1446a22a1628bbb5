"""pow for f64: every pair of arguments; at most 1 ULP.

Method: that of `ir.math.pow`. |x|^y = 2^(y log2 |x|), with the logarithm to 2^-65 of itself and its product with y in two f64 each, since an error
of 2^-55 in a product of up to 1075 would be seen. |x| = 2^i m with m in [sqrt(1/2), sqrt(2)); log2 m = s (A + s^2 (A/3 + s^2 (A/5 + s^2 P(s^2)))) with
s = (m - 1) / (m + 1) (W. J. Cody and W. Waite, Software Manual for the Elementary Functions, 1980, chapter 7, has this frame), where s, A, A/3 and all
sums that hold them have two parts (T. J. Dekker, 1971), and P is so small beside them that one f64 will do.

Coefficients: A = 2 / ln 2 and A/3 in two parts; the rest in s^2 for |s| <= 0.1716, to 2^-73 of the logarithm.

Special values are those of C's Annex F.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.math.builder import MathBuilder, double
from vyre_py.ir.math.double.exp import two_to
from vyre_py.ir.math.double.log import split_all
from vyre_py.ir.math.pairs import Pair, product, sum_of
from vyre_py.ir.math.signs import with_sign_of

__all__ = ["power"]

_A_HIGH, _A_LOW = 2.8853900817779268, 4.0710547481862066e-17
_B_HIGH, _B_LOW = 0.9617966939259756, 5.0577616648125907e-17
_TAIL: Final = (
    0.577078016355585, 0.4121985831114026, 0.32059889790128104, 0.26230819986702897, 0.22195219813100478, 0.19240379641258126, 0.16840620245887042,
    0.17316141092325232,
)  # fmt: skip

# |log2 x| is at least 2^-53 where it is not 0, so a greater |y| changes nothing, and neither does a |y log2 x| beyond the second.
_MOST_Y: Final = 2.0**65
_MOST_POWER: Final = 1200.0
_MOST_LOW: Final = 2.0**-30  # the lower part is far less wherever the upper is within bounds
_INFINITY: Final = float("inf")


def power(m: MathBuilder, x: Atom, y: Atom) -> Atom:
    """x to the power y, as C's pow: 1 for y = 0 and for x = 1, even of NaN; NaN for x < 0 unless y is whole."""
    size = m("abs", x)
    upper, lower = _log2(m, size)
    # Poles and zeros: the product with y has the right sign already.
    upper = m("select", m("eq", size, double(0.0)), double(-_INFINITY), m("select", m("is_inf", size), size, upper))
    size_power = _exponential(m, m("clamp", y, double(-_MOST_Y), double(_MOST_Y)), (upper, lower))

    whole = m("eq", m("round", y), y)
    half = m("mul", y, double(0.5))
    odd = m("logical_and", whole, m("ne", m("round", half), half))
    signed = m("select", odd, with_sign_of(m, size_power, x), size_power)

    zero, one = double(0.0), double(1.0)
    root = m("logical_and", m("logical_and", m("lt", x, zero), m("is_finite", x)), m("logical_not", whole))
    nan = m("logical_or", m("logical_or", m("is_nan", x), m("is_nan", y)), root)
    result = m("select", nan, double(float("nan")), signed)
    return m("select", m("logical_or", m("eq", x, one), m("eq", y, zero)), one, result)


def _exponential(m: MathBuilder, y: Atom, log: Pair) -> Atom:
    """2 to the power y * (log[0] + log[1]); 0 or infinity where that is out of f64's range, or infinite."""
    upper, lost = product(m, y, log[0])
    lower = m("fma", y, log[1], lost)
    inside = m("clamp", upper, double(-_MOST_POWER), double(_MOST_POWER))
    # A NaN becomes a number here: infinity less infinity, where the upper part says enough.
    return two_to(m, inside, m("clamp", lower, double(-_MOST_LOW), double(_MOST_LOW)))


def _log2(m: MathBuilder, x: Atom) -> Pair:
    """log2(x) to 2^-65 of itself, for x > 0."""
    i, f = split_all(m, x)
    s = _quotient(m, f)
    # s^2; each lower part takes what the upper one and the lower parts' products with upper ones leave.
    square, square_lost = product(m, s[0], s[0])
    square_lost = m("fma", m("add", s[0], s[0]), s[1], square_lost)
    # The lower part of s may be two ULP, and that shows here.
    rounded = m("add", square, square_lost)
    inner, inner_lost = sum_of(m, double(_B_HIGH), m("mul", rounded, m.polynomial(rounded, _TAIL)))
    inner_lost = m("add", inner_lost, double(_B_LOW))
    middle, middle_lost = _times(m, (square, square_lost), (inner, inner_lost))
    outer, outer_lost = sum_of(m, double(_A_HIGH), middle)
    outer_lost = m("add", outer_lost, m("add", middle_lost, double(_A_LOW)))
    part, part_lost = _times(m, s, (outer, outer_lost))
    total, lost = sum_of(m, i, part)
    return total, m("add", lost, part_lost)


def _quotient(m: MathBuilder, f: Atom) -> Pair:
    """f / (2 + f) in two parts, for f from -1/2 to 1."""
    below, below_lost = sum_of(m, double(2.0), f)
    inverse = m("div", double(1.0), below)
    upper = m("mul", f, inverse)
    minus = m("neg", upper)
    return upper, m("mul", m("fma", minus, below_lost, m("fma", minus, below, f)), inverse)


def _times(m: MathBuilder, a: Pair, b: Pair) -> Pair:
    """The product of two pairs, but for that of their lower parts; its parts may overlap."""
    upper, lost = product(m, a[0], b[0])
    return upper, m("fma", a[0], b[1], m("fma", a[1], b[0], lost))
