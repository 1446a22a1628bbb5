"""exp for f32: every argument; at most 1 ULP (0.79 observed on 2^26 arguments), subnormal results included.

Method: W. J. Cody and W. Waite, Software Manual for the Elementary Functions (1980), chapter 6: exp(x) = 2^n exp(r) with
n = round(x / ln 2) and r = x - n ln 2 from a two-part ln 2. The first part of r is exact by fused multiply-add, since it is a
multiple of the smaller ULP of x and ln 2 and stays below 1/2. Coefficients: own Remez fit of (exp(r) - 1 - r) / r^2 on
|r| <= ln(2)/2, relative to exp(r), rounded to f32 with a local search over neighbouring values; 0.055 ULP of the result.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.math.builder import MathBuilder, float_, int_
from vyre_py.ir.nodes import Atom
from vyre_py.ir.types import f32, i32

__all__ = ["exp"]

_LOG2_E: Final = 1.442695
_LN2_HIGH, _LN2_LOW = 0.6931472, -1.9046543e-09  # f32(ln 2), and what it lacks
_TAIL: Final = (0.49999994, 0.1666652, 0.041668322, 0.008368848, 0.0013814362)

# Beyond these the result is 0 or infinity whatever x is: exp(-104) is below half the least subnormal, exp(89) above 2^128.
_LEAST, _MOST = -104.0, 89.0


def exp(m: MathBuilder, x: Atom) -> Atom:
    """e to the power x: infinity from 88.72284 on, subnormal below -87.33655, 0 below -103.97208."""
    inside = m("clamp", x, float_(_LEAST), float_(_MOST))
    n = m("round", m("mul", inside, float_(_LOG2_E)))
    r = m("fma", n, float_(-_LN2_LOW), m("fma", n, float_(-_LN2_HIGH), inside))
    # 1 + r is taken with its rounding error, which joins the small terms.
    head = m("add", r, float_(1.0))
    lost = m("sub", r, m("sub", head, float_(1.0)))
    result = m("add", head, m("fma", m("mul", r, r), m.polynomial(r, _TAIL), lost))
    return m("select", m("is_nan", x), x, _scaled(m, result, m.cast(n, i32)))


def _scaled(m: MathBuilder, x: Atom, n: Atom) -> Atom:
    """x * 2^n for |n| <= 252, in two steps, so that the factors are normal and only the last product rounds."""
    half = m("shr", n, int_(1))
    for exponent in (half, m("sub", n, half)):
        factor = m.bitcast(m("shl", m("add", exponent, int_(127)), int_(23)), f32)
        x = m("mul", x, factor)
    return x
