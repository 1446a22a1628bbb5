"""cbrt, hypot and hypot3 for f64: every argument; at most 1 ULP.

cbrt: a guess of x^(-1/3) from the exponent's third (W. Kahan, Computing a real cube root, 1991), two steps of third order that make it
good to 18 and to 53 bits, and a step of Newton's method on the root itself, whose residual r^3 - x is exact but for its last rounding.
The guess is off by at most 3.6 per cent; the first step approximates ((1 - e)^(-1/3) - 1) / e for the |e| <= 0.1022 that leaves, 2^-18.5 of the
result, and the second is the beginning of its Taylor series.

hypot and hypot3: `pairs.norm`.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.types import f64, u64
from vyre_py.ir.math.builder import MathBuilder, double, long_word
from vyre_py.ir.math.pairs import Scales, norm, product
from vyre_py.ir.math.signs import with_sign_of

__all__ = ["cbrt", "hypot", "hypot3"]

_THIRD: Final = 0x5555555555555556  # (2^64 + 2) / 3: the upper word of a product with it is a third, rounded down, below 2^63
_GUESS: Final = 0x553EE92AAAAAAC00
_STEP: Final = (0.3333290271168956, 0.22348478552904097, 0.17448377701449055)
_SECOND_STEP: Final = (1 / 3, 2 / 9)
_CBRT_SMALL, _CBRT_UP, _CBRT_DOWN = 2.0**-700, 2.0**600, 2.0**-200

_SCALES: Final = Scales(large=2.0**500, down=2.0**-600, small=2.0**-400, up=2.0**600, tiny=2.0**-1000)


def cbrt(m: MathBuilder, x: Atom) -> Atom:
    """The cube root: odd, -0 for -0, infinities stay."""
    magnitude = m("abs", x)
    small = m("lt", magnitude, double(_CBRT_SMALL))
    a = m("select", small, m("mul", magnitude, double(_CBRT_UP)), magnitude)
    y: Atom = m.bitcast(m("sub", long_word(_GUESS), m("mul_hi", m.bitcast(a, u64), long_word(_THIRD))), f64)
    minus = m("neg", a)
    for step in (_STEP, _SECOND_STEP):
        # In this order nothing overflows.
        error = m("fma", m("mul", minus, y), m("mul", y, y), double(1.0))
        y = m("fma", m("mul", y, error), m.polynomial(error, step), y)
    square = m("mul", y, y)
    root = m("mul", a, square)
    upper, lower = product(m, root, root)
    residual = m("fma", lower, root, m("fma", upper, root, minus))
    root = m("fma", residual, m("mul", square, double(-1 / 3)), root)
    result = with_sign_of(m, m("select", small, m("mul", root, double(_CBRT_DOWN)), root), x)
    return m("select", m("is_finite", x), result, x)


def hypot(m: MathBuilder, x: Atom, y: Atom) -> Atom:
    """sqrt(x^2 + y^2)."""
    return norm(m, _SCALES, x, y)


def hypot3(m: MathBuilder, x: Atom, y: Atom, z: Atom) -> Atom:
    """sqrt(x^2 + y^2 + z^2)."""
    return norm(m, _SCALES, x, y, z)
