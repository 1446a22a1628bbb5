"""cbrt, hypot and hypot3 for f32: every argument; at most 1 ULP (cbrt 0.501 observed, over every argument there is; hypot 0.75, over 2^26 pairs,
and 0.506 where the result is not subnormal).

cbrt: a guess of x^(-1/3) from the exponent's third (W. Kahan, Computing a real cube root, 1991), a step of third order that makes it
good to 18 bits, and a step of Newton's method on the root itself, whose residual r^3 - x is exact but for its last rounding.
The guess is off by at most 3.6 per cent, its constant chosen so that x y^3 is off by as much both ways; coefficients: own Remez fit of
((1 - e)^(-1/3) - 1) / e for the |e| <= 0.1022 that leaves, 2^-18.4 of the result.

hypot and hypot3: `pairs.norm`.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.types import f32, u32
from vyre_py.ir.math.builder import MathBuilder, float_, word
from vyre_py.ir.math.pairs import Scales, norm, product
from vyre_py.ir.math.signs import with_sign_of

__all__ = ["cbrt", "hypot", "hypot3"]

_THIRD: Final = 0x55555556  # (2^32 + 2) / 3: the upper word of a product with it is a third, rounded down, below 2^31
_GUESS: Final = 0x54A1F400
_STEP: Final = (0.33332762, 0.22347787, 0.17470147)
_CBRT_SMALL, _CBRT_UP, _CBRT_DOWN = 2.0**-60, 2.0**48, 2.0**-16

# Small ones early, so that a lesser operand's square counts where subnormal numbers are flushed.
_SCALES: Final = Scales(large=2.0**60, down=2.0**-80, small=2.0**-30, up=2.0**80, tiny=2.0**-100)


def cbrt(m: MathBuilder, x: Atom) -> Atom:
    """The cube root: odd, -0 for -0, infinities stay."""
    magnitude = m("abs", x)
    small = m("lt", magnitude, float_(_CBRT_SMALL))
    a = m("select", small, m("mul", magnitude, float_(_CBRT_UP)), magnitude)
    y = m.bitcast(m("sub", word(_GUESS), m("mul_hi", m.bitcast(a, u32), word(_THIRD))), f32)
    # In this order nothing overflows.
    error = m("fma", m("mul", m("neg", a), y), m("mul", y, y), float_(1.0))
    y = m("fma", m("mul", y, error), m.polynomial(error, _STEP), y)
    square = m("mul", y, y)
    root = m("mul", a, square)
    upper, lower = product(m, root, root)
    residual = m("fma", lower, root, m("fma", upper, root, m("neg", a)))
    root = m("fma", residual, m("mul", square, float_(-1 / 3)), root)
    result = with_sign_of(m, m("select", small, m("mul", root, float_(_CBRT_DOWN)), root), x)
    return m("select", m("is_finite", x), result, x)


def hypot(m: MathBuilder, x: Atom, y: Atom) -> Atom:
    """sqrt(x^2 + y^2)."""
    return norm(m, _SCALES, x, y)


def hypot3(m: MathBuilder, x: Atom, y: Atom, z: Atom) -> Atom:
    """sqrt(x^2 + y^2 + z^2)."""
    return norm(m, _SCALES, x, y, z)
