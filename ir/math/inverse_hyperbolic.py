"""asinh, acosh and atanh: every argument.

| function | bound | worst seen of f32 |
|---|---|---|
| asinh | 1 ULP | 0.697 |
| acosh | 1 ULP | 0.700 |
| atanh | 1 ULP | 0.657 |

Seen over every 17th of all f32, and over all of those from 1/4 to 10 and from 32 to 160 of both signs.

Method: the logarithms that define them (J.-M. Muller, Elementary Functions, 2016), asinh(s) = acosh(c) = log(s + c) for c^2 - s^2 = 1
and atanh(x) = log((1 + x) / (1 - x)) / 2, of a sum and a quotient in two parts each. The other of s and c is a square root, corrected by
one step of Newton's method. Below 1/2 the logarithm would lose bits: there asinh(s) and atanh(x) are odd polynomials, and acosh(c) is
asinh of its s, in two parts.

Coefficients: (f(x)/x - 1)/x^2 in x^2 for |x| <= 1/2, relative to f(x); 0.021 ULP of asinh and 0.024 of atanh of f32 (own minimax fits, rounded one after
another), 0.007 and 0.004 of f64.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom, const
from vyre_py.ir.language.types import f32, f64
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.log import log_sum, parted, share
from vyre_py.ir.math.pairs import sum_of
from vyre_py.ir.math.words import with_sign_of

__all__ = ["acosh", "asinh", "atanh"]

_ASINH_TAIL: Final = {
    f32: (-0.16666643, 0.074986406, -0.04438296, 0.028161071, -0.013223463),
    f64: (
        -0.16666666666666605, 0.07499999999983309, -0.044642857127017606, 0.030381943685699585, -0.022372137674213734, 0.017352377265388862,
        -0.013960141671217894, 0.01151241790160077, -0.009531800747094019, 0.007459447427711608, -0.00473821487990261, 0.0017119301092413158,
    ),
}  # fmt: skip
_ATANH_TAIL: Final = {
    f32: (0.333333, 0.20002615, 0.1422076, 0.118415274, 0.050647393, 0.17773883),
    f64: (
        0.3333333333333328, 0.200000000000182, 0.14285714283450904, 0.11111111253877841, 0.09090903749029945, 0.07692436887153536, 0.06664541263081628,
        0.0590685961585482, 0.050621922331493735, 0.05935141460673823, -0.004589803044545757, 0.1732476515897448, -0.19386519569980268, 0.23979300546163332,
    ),
}  # fmt: skip

_BREAK: Final = 0.5
_LARGE: Final = 2.0**30  # from there on s and c are one number to 2^-61, and s + c might overflow
_TINY: Final = {f32: 2.0**-100, f64: 2.0**-200}
_NAN, _INFINITY = float("nan"), float("inf")


def asinh(m: MathBuilder, x: Atom) -> Atom:
    """The inverse hyperbolic sine: odd, -0 for -0, infinities stay."""
    s = m("abs", x)
    square = m("fma", s, s, 1.0)
    c, lost = _root(m, square, m("fma", s, s, m("sub", 1.0, square)))
    small = m("fma", m("mul", s, m("mul", s, s)), m.polynomial(m("mul", s, s), _ASINH_TAIL[x.type]), s)
    size = m("select", m("lt", s, _BREAK), small, _log_of_sum(m, s, c, lost, s))
    return m("select", m("is_finite", x), with_sign_of(m, size, x), x)


def acosh(m: MathBuilder, x: Atom) -> Atom:
    """The inverse hyperbolic cosine: 0 for 1, NaN below it, infinity for infinity."""
    # x^2 - 1 = t^2 + 2 t, where t is exact.
    t = m("sub", x, 1.0)
    twice = m("add", t, t)
    square = m("fma", t, t, twice)
    s, lost = _root(m, square, m("fma", t, t, m("sub", twice, square)))
    tail = m("mul", m("mul", s, square), m.polynomial(square, _ASINH_TAIL[x.type]))
    small = m("add", s, m("add", tail, lost))
    finite = m("select", m("lt", s, _BREAK), small, _log_of_sum(m, s, x, lost, x))
    result = m("select", m("is_finite", x), finite, x)
    return m("select", m("ge", x, 1.0), result, _NAN)


def atanh(m: MathBuilder, x: Atom) -> Atom:
    """The inverse hyperbolic tangent: odd, -0 for -0, infinite for -1 and 1, NaN beyond them."""
    size = m("abs", x)
    square = m("mul", size, size)
    small = m("fma", m("mul", size, square), m.polynomial(square, _ATANH_TAIL[x.type]), size)

    above, above_lost = sum_of(m, 1.0, size)
    below = m("sub", 1.0, size)  # exact from 1/2 on
    quotient = m("div", above, below)
    error = m("add", m("fma", m("neg", quotient), below, above), above_lost)
    i, f, _ = parted(m, quotient)
    # Over `above`, which is between 3/2 and 2; a linear reciprocal is good to 5 bits.
    low = m("mul", error, m("fma", above, -1.0 / 3.0, 1.16))
    large = m("mul", log_sum(m, i, f, low), 0.5)

    inside = m("select", m("lt", size, _BREAK), small, large)
    other = m("select", m("eq", size, 1.0), const(x.type, _INFINITY), _NAN)
    return with_sign_of(m, m("select", m("lt", size, 1.0), inside, other), x)


def _root(m: MathBuilder, square: Atom, lost: Atom) -> tuple[Atom, Atom]:
    """sqrt(square + lost) in two parts, for square = 0 or above 2^-30, of f64 2^-60."""
    root = m("sqrt", square)
    rest = m("add", m("fma", m("neg", root), root, square), lost)
    # What is added keeps 0 / 0 away, and is lost beside any other root.
    return root, m("div", rest, m("fma", root, 2.0, _TINY[root.type]))


def _log_of_sum(m: MathBuilder, s: Atom, c: Atom, lost: Atom, x: Atom) -> Atom:
    """log(s + c + lost) for s < c and s + c >= 1.6; log(2 x) where x is large."""
    total, rounding = sum_of(m, c, s)
    large = m("ge", x, _LARGE)
    total = m("select", large, x, total)
    i, f, scale = parted(m, total)
    i = m("add", i, m("select", large, const(x.type, 1.0), 0.0))
    low = m("select", large, 0.0, m("add", rounding, lost))
    return log_sum(m, i, f, share(m, low, f, scale))
