"""rsqrt of every float type; cbrt, hypot and hypot3: every argument; at most 1 ULP (of f32 cbrt 0.501 observed, over every argument there is; hypot
0.75, over 2^26 pairs, and 0.506 where the result is not subnormal).

cbrt: a guess of x^(-1/3) from the exponent's third (W. Kahan, Computing a real cube root, 1991), a step of third order that makes it
good to 18 bits, for f64 another that makes it good to 53, and a step of Newton's method on the root itself, whose residual r^3 - x is exact but for its
last rounding. The guess is off by at most 3.6 per cent, its constant chosen so that x y^3 is off by as much both ways. The first step
approximates ((1 - e)^(-1/3) - 1) / e for the |e| <= 0.1022 that leaves, to 2^-18.4 of the result and better; the second is the beginning of its
Taylor series.

hypot and hypot3: `pairs.norm`.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.types import f32, f64
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.pairs import Scales, norm, product
from vyre_py.ir.math.words import FORMATS, with_sign_of

__all__ = ["cbrt", "hypot", "hypot3", "rsqrt"]

# (2^bits + 2) / 3: the upper word of a product with it is a third, rounded down, of words without a sign.
_THIRD: Final = {f32: 0x55555556, f64: 0x5555555555555556}
_GUESS: Final = {f32: 0x54A1F400, f64: 0x553EE92AAAAAAC00}
_STEPS: Final = {
    f32: ((0.33332762, 0.22347787, 0.17470147),),
    f64: ((0.3333290271168956, 0.22348478552904097, 0.17448377701449055), (1 / 3, 2 / 9)),
}
# Below the first, arguments are taken up, and results down.
_CBRT_SCALES: Final = {f32: (2.0**-60, 2.0**48, 2.0**-16), f64: (2.0**-700, 2.0**600, 2.0**-200)}

_SCALES: Final = {
    # Small ones early, so that a lesser operand's square counts where subnormal numbers are flushed.
    f32: Scales(large=2.0**60, down=2.0**-80, small=2.0**-30, up=2.0**80, tiny=2.0**-100),
    f64: Scales(large=2.0**500, down=2.0**-600, small=2.0**-400, up=2.0**600, tiny=2.0**-1000),
}


def rsqrt(m: MathBuilder, x: Atom) -> Atom:
    """1 / sqrt(x), each of the two correctly rounded: an infinity of the same sign for zeros, NaN below them, 0 for infinity."""
    return m("div", 1.0, m("sqrt", x))


def cbrt(m: MathBuilder, x: Atom) -> Atom:
    """The cube root: odd, -0 for -0, infinities stay."""
    word = FORMATS[x.type].word
    least, up, down = _CBRT_SCALES[x.type]
    magnitude = m("abs", x)
    small = m("lt", magnitude, least)
    a = m("select", small, m("mul", magnitude, up), magnitude)
    y: Atom = m.bitcast(m("sub", _GUESS[x.type], m("mul_hi", m.bitcast(a, word), _THIRD[x.type])), x.type)
    minus = m("neg", a)
    for step in _STEPS[x.type]:
        # In this order nothing overflows.
        error = m("fma", m("mul", minus, y), m("mul", y, y), 1.0)
        y = m("fma", m("mul", y, error), m.polynomial(error, step), y)
    square = m("mul", y, y)
    root = m("mul", a, square)
    upper, lower = product(m, root, root)
    residual = m("fma", lower, root, m("fma", upper, root, minus))
    root = m("fma", residual, m("mul", square, -1 / 3), root)
    result = with_sign_of(m, m("select", small, m("mul", root, down), root), x)
    return m("select", m("is_finite", x), result, x)


def hypot(m: MathBuilder, x: Atom, y: Atom) -> Atom:
    """sqrt(x^2 + y^2)."""
    return norm(m, _SCALES[x.type], x, y)


def hypot3(m: MathBuilder, x: Atom, y: Atom, z: Atom) -> Atom:
    """sqrt(x^2 + y^2 + z^2)."""
    return norm(m, _SCALES[x.type], x, y, z)
