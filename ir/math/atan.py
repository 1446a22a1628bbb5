"""atan and atan2 for f32: every argument; at most 1 ULP (atan 0.891 observed, over every argument there is; atan2 0.881, over 2^26 pairs).

Method: W. J. Cody and W. Waite, Software Manual for the Elementary Functions (1980), chapter 11: atan(t) = pi/2 - atan(1/t) leaves
arguments of at most 1, for which one polynomial is enough; an angle in another quadrant is pi/2 or pi plus or minus that. The
quotient is kept in two parts, the lower from its remainder by fused multiply-add; what is lost where it is added to the
offset joins the small terms.

Coefficients: own Remez fit of atan(t)/t less a slope in t^2 - 1/2 for t <= 1, relative to atan(t), rounded to f32 with a local search over
neighbouring values, so that atan(1) is pi/4 rounded; 0.07 ULP of the result.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.types import i32
from vyre_py.ir.math.builder import MathBuilder, float_, int_
from vyre_py.ir.math.pairs import Pair
from vyre_py.ir.math.signs import with_sign_of

__all__ = ["atan", "atan2"]

# atan(t)/t = slope + rest, the slope about halfway between atan(t)/t at 0 and at 1, so that the rest stays below 1/8.
_SLOPE: Final = 0.890625
_MIDDLE: Final = 0.5  # of t^2
_REST: Final = (-0.020205244, -0.20375308, 0.083406955, -0.04024638, 0.021061972, -0.0115645435, 0.0064096847, -0.0036811335, 0.0028323715, -0.0017555022)

_HALF_PI: Final = (1.5707964, -4.371139e-08)
_PI: Final = (3.1415927, -8.742278e-08)

_STEEPEST: Final = 2.0**60  # of atan's arguments: beyond it the result is pi/2

# atan2's operands are scaled so that 1/long stays normal, and so does the quotient's remainder wherever the quotient does.
_SHORT: Final = 2.0**26
_UP, _DOWN = 2.0**100, 2.0**-3
_FLAT: Final = 2.0**-60  # below it atan(q) rounds to q, and the steps of the polynomial would lose bits of subnormal results


def atan(m: MathBuilder, x: Atom) -> Atom:
    """The angle in [-pi/2, pi/2] whose tangent is x: odd, -0 for -0."""
    magnitude = m("abs", x)
    steep = m("gt", magnitude, float_(1.0))
    bounded = m("select", m("gt", magnitude, float_(_STEEPEST)), float_(_STEEPEST), magnitude)
    inverse = m("div", float_(-1.0), bounded)
    rest = m("mul", inverse, m("fma", inverse, bounded, float_(1.0)))
    tangent = m("select", steep, inverse, magnitude), m("select", steep, rest, float_(0.0))
    offset = m("select", steep, float_(_HALF_PI[0]), float_(0.0)), m("select", steep, float_(_HALF_PI[1]), float_(0.0))
    return with_sign_of(m, _angle(m, offset, tangent), x)


def atan2(m: MathBuilder, y: Atom, x: Atom) -> Atom:
    """The angle in [-pi, pi] of the point (x, y), with the sign of y, zeros and infinities as in C's Annex F."""
    across, up = m("abs", x), m("abs", y)
    steep, behind = m("gt", up, across), m("lt", m.bitcast(x, i32), int_(0))
    short, long = _scaled(m, m("min", across, up), m("max", across, up))
    # Measured from an axis that lies clockwise of the point, or counterclockwise.
    signed = m("select", m("ne", steep, behind), m("neg", short), short)
    inverse = m("div", float_(1.0), long)
    quotient = m("mul", signed, inverse)
    rest = m("mul", m("fma", m("neg", quotient), long, signed), inverse)
    upper, lower = (
        m("select", steep, float_(half), m("select", behind, float_(whole), float_(0.0))) for half, whole in zip(_HALF_PI, _PI, strict=True)
    )
    flat = m("lt", m("abs", quotient), float_(_FLAT))
    angle = m("select", flat, m("add", upper, m("add", quotient, rest)), _angle(m, (upper, lower), (quotient, rest)))
    nan = m("logical_or", m("is_nan", x), m("is_nan", y))
    return m("select", nan, float_(float("nan")), with_sign_of(m, angle, y))


def _scaled(m: MathBuilder, short: Atom, long: Atom) -> Pair:
    """Two magnitudes of the same quotient, the second neither 0 nor infinite; 0 / 0 counts as 0, and infinity / infinity as 1."""
    scale = m("select", m("lt", long, float_(_SHORT)), float_(_UP), float_(_DOWN))
    infinite = m("is_inf", long)
    degenerate = m("logical_or", infinite, m("eq", long, float_(0.0)))
    one_or_none = m("select", m("is_inf", short), float_(1.0), float_(0.0))
    return m("select", infinite, one_or_none, m("mul", short, scale)), m("select", degenerate, float_(1.0), m("mul", long, scale))


def _angle(m: MathBuilder, offset: Pair, tangent: Pair) -> Atom:
    """offset + atan(tangent) for |tangent| <= 1, as offset + slope * tangent, kept in two parts, and a small rest."""
    head = m("fma", tangent[0], float_(_SLOPE), offset[0])
    lost = m("fma", tangent[0], float_(_SLOPE), m("sub", offset[0], head))
    beyond = m("fma", tangent[0], tangent[0], float_(-_MIDDLE))
    # The derivative is 1 / (1 + t^2), near enough 1 - t^2 / 2.
    derivative = m("fma", beyond, float_(-0.5), float_(1.0 - _MIDDLE / 2))
    small = m("fma", tangent[1], derivative, m("add", lost, offset[1]))
    return m("add", head, m("fma", tangent[0], m.polynomial(beyond, _REST), small))
