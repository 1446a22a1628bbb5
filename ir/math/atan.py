"""atan and atan2: every argument; at most 1 ULP (of f32 atan 0.891 observed, over every argument there is; atan2 0.881, over 2^26 pairs).

Method: W. J. Cody and W. Waite, Software Manual for the Elementary Functions (1980), chapter 11: atan(t) = pi/2 - atan(1/t) leaves
arguments of at most 1, for which one polynomial is enough; an angle in another quadrant is pi/2 or pi plus or minus that. The
quotient is kept in two parts, the lower from its remainder by fused multiply-add; what is lost where it is added to the
offset joins the small terms.

Coefficients: atan(t)/t less a slope in t^2 - 1/2 for t <= 1, relative to atan(t); 0.07 ULP of an f32 result (own Remez fit, rounded to f32 with a local
search over neighbouring values, so that atan(1) is pi/4 rounded), 0.012 of f64.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom, const
from vyre_py.ir.language.types import f32, f64
from vyre_py.ir.math.asin import HALF_PI, PI
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.pairs import Pair
from vyre_py.ir.math.words import FORMATS, with_sign_of

__all__ = ["atan", "atan2"]

# atan(t)/t = slope + rest, the slope about halfway between atan(t)/t at 0 and at 1, so that the rest stays below 1/8.
_SLOPE: Final = 0.890625
_MIDDLE: Final = 0.5  # of t^2
_REST: Final = {
    f32: (-0.020205244, -0.20375308, 0.083406955, -0.04024638, 0.021061972, -0.0115645435, 0.0064096847, -0.0036811335, 0.0028323715, -0.0017555022),
    f64: (
        -0.020205248632896803, -0.20375308470043654, 0.0834074048284323, -0.040246909281952806, 0.02104937519410592, -0.011551426789820404,
        0.0065456999097204425, -0.0037952050511373863, 0.00223870436008065, -0.0013384087245298852, 0.0008088200623557996, -0.0004931116909917964,
        0.0003028950016583101, -0.00018720618929757898, 0.00011602294321270532, -7.236485966936278e-05, 4.6791148096535076e-05, -2.961618962668678e-05,
        1.4363970364843682e-05, -8.774182851635223e-06, 1.2917650770467042e-05, -8.45005700957096e-06,
    ),
}  # fmt: skip

_STEEPEST: Final = {f32: 2.0**60, f64: 2.0**120}  # of atan's arguments: beyond it the result is pi/2

# atan2's operands are scaled so that 1/long stays normal, and so does the quotient's remainder wherever the quotient does.
_SHORT: Final = {f32: 2.0**26, f64: 2.0**500}
_UP: Final = {f32: 2.0**100, f64: 2.0**500}
_DOWN: Final = 2.0**-3
# Below it atan(q) rounds to q, and the steps of the polynomial would lose bits of subnormal results.
_FLAT: Final = {f32: 2.0**-60, f64: 2.0**-120}


def atan(m: MathBuilder, x: Atom) -> Atom:
    """The angle in [-pi/2, pi/2] whose tangent is x: odd, -0 for -0."""
    t = x.type
    magnitude = m("abs", x)
    steep = m("gt", magnitude, 1.0)
    bounded = m("select", m("gt", magnitude, _STEEPEST[t]), _STEEPEST[t], magnitude)
    inverse = m("div", -1.0, bounded)
    rest = m("mul", inverse, m("fma", inverse, bounded, 1.0))
    tangent = m("select", steep, inverse, magnitude), m("select", steep, rest, 0.0)
    upper, lower = [m("select", steep, const(t, part), 0.0) for part in HALF_PI[t]]
    return with_sign_of(m, _angle(m, (upper, lower), tangent), x)


def atan2(m: MathBuilder, y: Atom, x: Atom) -> Atom:
    """The angle in [-pi, pi] of the point (x, y), with the sign of y, zeros and infinities as in C's Annex F."""
    t = x.type
    across, up = m("abs", x), m("abs", y)
    steep, behind = m("gt", up, across), m("lt", m.bitcast(x, FORMATS[t].signed), 0)
    short, long = _scaled(m, m("min", across, up), m("max", across, up))
    # Measured from an axis that lies clockwise of the point, or counterclockwise.
    signed = m("select", m("ne", steep, behind), m("neg", short), short)
    inverse = m("div", 1.0, long)
    quotient = m("mul", signed, inverse)
    rest = m("mul", m("fma", m("neg", quotient), long, signed), inverse)
    parts = zip(HALF_PI[t], PI[t], strict=True)
    upper, lower = [m("select", steep, half, m("select", behind, const(t, whole), 0.0)) for half, whole in parts]
    flat = m("lt", m("abs", quotient), _FLAT[t])
    angle = m("select", flat, m("add", upper, m("add", quotient, rest)), _angle(m, (upper, lower), (quotient, rest)))
    nan = m("logical_or", m("is_nan", x), m("is_nan", y))
    return m("select", nan, float("nan"), with_sign_of(m, angle, y))


def _scaled(m: MathBuilder, short: Atom, long: Atom) -> Pair:
    """Two magnitudes of the same quotient, the second neither 0 nor infinite; 0 / 0 counts as 0, and infinity / infinity as 1."""
    t = short.type
    scale = m("select", m("lt", long, _SHORT[t]), const(t, _UP[t]), _DOWN)
    infinite = m("is_inf", long)
    degenerate = m("logical_or", infinite, m("eq", long, 0.0))
    one_or_none = m("select", m("is_inf", short), const(t, 1.0), 0.0)
    return m("select", infinite, one_or_none, m("mul", short, scale)), m("select", degenerate, 1.0, m("mul", long, scale))


def _angle(m: MathBuilder, offset: Pair, tangent: Pair) -> Atom:
    """offset + atan(tangent) for |tangent| <= 1, as offset + slope * tangent, kept in two parts, and a small rest."""
    head = m("fma", tangent[0], _SLOPE, offset[0])
    lost = m("fma", tangent[0], _SLOPE, m("sub", offset[0], head))
    beyond = m("fma", tangent[0], tangent[0], -_MIDDLE)
    # The derivative is 1 / (1 + t^2), near enough 1 - t^2 / 2.
    derivative = m("fma", beyond, -0.5, 1.0 - _MIDDLE / 2)
    small = m("fma", tangent[1], derivative, m("add", lost, offset[1]))
    return m("add", head, m("fma", tangent[0], m.polynomial(beyond, _REST[head.type]), small))
