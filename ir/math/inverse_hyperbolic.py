"""asinh, acosh and atanh for f32: every argument.

| function | bound | worst seen |
|---|---|---|
| asinh | 1 ULP | 0.697 |
| acosh | 1 ULP | 0.700 |
| atanh | 1 ULP | 0.657 |

Seen over every 17th of all f32, and over all of those from 1/4 to 10 and from 32 to 160 of both signs.

Method: the logarithms that define them (J.-M. Muller, Elementary Functions, 2016), asinh(s) = acosh(c) = log(s + c) for c^2 - s^2 = 1
and atanh(x) = log((1 + x) / (1 - x)) / 2, of a sum and a quotient in two parts each. The other of s and c is a square root, corrected by
one step of Newton's method. Below 1/2 the logarithm would lose bits: there asinh(s) and atanh(x) are odd polynomials, and acosh(c) is
asinh of its s, in two parts.

Coefficients: own minimax fits of (f(x)/x - 1)/x^2 in x^2 for |x| <= 1/2, relative to f(x), rounded to f32 one after another; 0.021 ULP of asinh,
0.024 of atanh.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.math.builder import MathBuilder, float_
from vyre_py.ir.math.log import log_sum, parted, share
from vyre_py.ir.math.pairs import sum_of
from vyre_py.ir.math.signs import with_sign_of

__all__ = ["acosh", "asinh", "atanh"]

_ASINH_TAIL: Final = (-0.16666643, 0.074986406, -0.04438296, 0.028161071, -0.013223463)
_ATANH_TAIL: Final = (0.333333, 0.20002615, 0.1422076, 0.118415274, 0.050647393, 0.17773883)

_BREAK: Final = 0.5
_LARGE: Final = 2.0**30  # from there on s and c are one f32, and s + c might overflow
_TINY: Final = 2.0**-100
_NAN, _INFINITY = float("nan"), float("inf")


def asinh(m: MathBuilder, x: Atom) -> Atom:
    """The inverse hyperbolic sine: odd, -0 for -0, infinities stay."""
    s, one = m("abs", x), float_(1.0)
    square = m("fma", s, s, one)
    c, lost = _root(m, square, m("fma", s, s, m("sub", one, square)))
    small = m("fma", m("mul", s, m("mul", s, s)), m.polynomial(m("mul", s, s), _ASINH_TAIL), s)
    size = m("select", m("lt", s, float_(_BREAK)), small, _log_of_sum(m, s, c, lost, s))
    return m("select", m("is_finite", x), with_sign_of(m, size, x), x)


def acosh(m: MathBuilder, x: Atom) -> Atom:
    """The inverse hyperbolic cosine: 0 for 1, NaN below it, infinity for infinity."""
    # x^2 - 1 = t^2 + 2 t, where t is exact.
    t = m("sub", x, float_(1.0))
    double = m("add", t, t)
    square = m("fma", t, t, double)
    s, lost = _root(m, square, m("fma", t, t, m("sub", double, square)))
    tail = m("mul", m("mul", s, square), m.polynomial(square, _ASINH_TAIL))
    small = m("add", s, m("add", tail, lost))
    finite = m("select", m("lt", s, float_(_BREAK)), small, _log_of_sum(m, s, x, lost, x))
    result = m("select", m("is_finite", x), finite, x)
    return m("select", m("ge", x, float_(1.0)), result, float_(_NAN))


def atanh(m: MathBuilder, x: Atom) -> Atom:
    """The inverse hyperbolic tangent: odd, -0 for -0, infinite for -1 and 1, NaN beyond them."""
    size, one = m("abs", x), float_(1.0)
    square = m("mul", size, size)
    small = m("fma", m("mul", size, square), m.polynomial(square, _ATANH_TAIL), size)

    above, above_lost = sum_of(m, one, size)
    below = m("sub", one, size)  # exact from 1/2 on
    quotient = m("div", above, below)
    error = m("add", m("fma", m("neg", quotient), below, above), above_lost)
    i, f, _ = parted(m, quotient)
    # Over `above`, which is between 3/2 and 2; a linear reciprocal is good to 5 bits.
    low = m("mul", error, m("fma", above, float_(-1.0 / 3.0), float_(1.16)))
    large = m("mul", log_sum(m, i, f, low), float_(0.5))

    inside = m("select", m("lt", size, float_(_BREAK)), small, large)
    other = m("select", m("eq", size, one), float_(_INFINITY), float_(_NAN))
    return with_sign_of(m, m("select", m("lt", size, one), inside, other), x)


def _root(m: MathBuilder, square: Atom, lost: Atom) -> tuple[Atom, Atom]:
    """sqrt(square + lost) in two parts, for square = 0 or above 2^-30."""
    root = m("sqrt", square)
    rest = m("add", m("fma", m("neg", root), root, square), lost)
    # What is added keeps 0 / 0 away, and is lost beside any other root.
    return root, m("div", rest, m("fma", root, float_(2.0), float_(_TINY)))


def _log_of_sum(m: MathBuilder, s: Atom, c: Atom, lost: Atom, x: Atom) -> Atom:
    """log(s + c + lost) for s < c and s + c >= 1.6; log(2 x) where x is large."""
    total, rounding = sum_of(m, c, s)
    large = m("ge", x, float_(_LARGE))
    total = m("select", large, x, total)
    i, f, scale = parted(m, total)
    i = m("add", i, m("select", large, float_(1.0), float_(0.0)))
    low = m("select", large, float_(0.0), m("add", rounding, lost))
    return log_sum(m, i, f, share(m, low, f, scale))
