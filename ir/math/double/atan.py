"""atan and atan2 for f64: every argument; at most 1 ULP.

Method: that of `ir.math.atan` (W. J. Cody and W. Waite, Software Manual for the Elementary Functions, 1980, chapter 11): atan(t) = pi/2 - atan(1/t)
leaves arguments of at most 1, for which one polynomial is enough; an angle in another quadrant is pi/2 or pi plus or minus that. The
quotient is kept in two parts, the lower from its remainder by fused multiply-add; what is lost where it is added to the
offset joins the small terms.

Coefficients: atan(t)/t less a slope in t^2 - 1/2 for t <= 1, 0.012 ULP of the result.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.types import i64
from vyre_py.ir.math.builder import MathBuilder, double, long_int
from vyre_py.ir.math.pairs import Pair
from vyre_py.ir.math.signs import with_sign_of

__all__ = ["atan", "atan2"]

# atan(t)/t = slope + rest, the slope about halfway between atan(t)/t at 0 and at 1, so that the rest stays below 1/8.
_SLOPE: Final = 0.890625
_MIDDLE: Final = 0.5  # of t^2
_REST: Final = (
    -0.020205248632896803, -0.20375308470043654, 0.0834074048284323, -0.040246909281952806, 0.02104937519410592, -0.011551426789820404,
    0.0065456999097204425, -0.0037952050511373863, 0.00223870436008065, -0.0013384087245298852, 0.0008088200623557996, -0.0004931116909917964,
    0.0003028950016583101, -0.00018720618929757898, 0.00011602294321270532, -7.236485966936278e-05, 4.6791148096535076e-05, -2.961618962668678e-05,
    1.4363970364843682e-05, -8.774182851635223e-06, 1.2917650770467042e-05, -8.45005700957096e-06,
)  # fmt: skip

_HALF_PI: Final = (1.5707963267948966, 6.123233995736766e-17)
_PI: Final = (3.141592653589793, 1.2246467991473532e-16)

_STEEPEST: Final = 2.0**120  # of atan's arguments: beyond it the result is pi/2

# atan2's operands are scaled so that 1/long stays normal, and so does the quotient's remainder wherever the quotient does.
_SHORT: Final = 2.0**500
_UP, _DOWN = 2.0**500, 2.0**-3
_FLAT: Final = 2.0**-120  # below it atan(q) rounds to q, and the steps of the polynomial would lose bits of subnormal results


def atan(m: MathBuilder, x: Atom) -> Atom:
    """The angle in [-pi/2, pi/2] whose tangent is x: odd, -0 for -0."""
    magnitude = m("abs", x)
    steep = m("gt", magnitude, double(1.0))
    bounded = m("select", m("gt", magnitude, double(_STEEPEST)), double(_STEEPEST), magnitude)
    inverse = m("div", double(-1.0), bounded)
    rest = m("mul", inverse, m("fma", inverse, bounded, double(1.0)))
    tangent = m("select", steep, inverse, magnitude), m("select", steep, rest, double(0.0))
    offset = m("select", steep, double(_HALF_PI[0]), double(0.0)), m("select", steep, double(_HALF_PI[1]), double(0.0))
    return with_sign_of(m, _angle(m, offset, tangent), x)


def atan2(m: MathBuilder, y: Atom, x: Atom) -> Atom:
    """The angle in [-pi, pi] of the point (x, y), with the sign of y, zeros and infinities as in C's Annex F."""
    across, up = m("abs", x), m("abs", y)
    steep, behind = m("gt", up, across), m("lt", m.bitcast(x, i64), long_int(0))
    short, long = _scaled(m, m("min", across, up), m("max", across, up))
    # Measured from an axis that lies clockwise of the point, or counterclockwise.
    signed = m("select", m("ne", steep, behind), m("neg", short), short)
    inverse = m("div", double(1.0), long)
    quotient = m("mul", signed, inverse)
    rest = m("mul", m("fma", m("neg", quotient), long, signed), inverse)
    upper, lower = (
        m("select", steep, double(half), m("select", behind, double(whole), double(0.0))) for half, whole in zip(_HALF_PI, _PI, strict=True)
    )
    flat = m("lt", m("abs", quotient), double(_FLAT))
    angle = m("select", flat, m("add", upper, m("add", quotient, rest)), _angle(m, (upper, lower), (quotient, rest)))
    nan = m("logical_or", m("is_nan", x), m("is_nan", y))
    return m("select", nan, double(float("nan")), with_sign_of(m, angle, y))


def _scaled(m: MathBuilder, short: Atom, long: Atom) -> Pair:
    """Two magnitudes of the same quotient, the second neither 0 nor infinite; 0 / 0 counts as 0, and infinity / infinity as 1."""
    scale = m("select", m("lt", long, double(_SHORT)), double(_UP), double(_DOWN))
    infinite = m("is_inf", long)
    degenerate = m("logical_or", infinite, m("eq", long, double(0.0)))
    one_or_none = m("select", m("is_inf", short), double(1.0), double(0.0))
    return m("select", infinite, one_or_none, m("mul", short, scale)), m("select", degenerate, double(1.0), m("mul", long, scale))


def _angle(m: MathBuilder, offset: Pair, tangent: Pair) -> Atom:
    """offset + atan(tangent) for |tangent| <= 1, as offset + slope * tangent, kept in two parts, and a small rest."""
    head = m("fma", tangent[0], double(_SLOPE), offset[0])
    lost = m("fma", tangent[0], double(_SLOPE), m("sub", offset[0], head))
    beyond = m("fma", tangent[0], tangent[0], double(-_MIDDLE))
    # The derivative is 1 / (1 + t^2), near enough 1 - t^2 / 2.
    derivative = m("fma", beyond, double(-0.5), double(1.0 - _MIDDLE / 2))
    small = m("fma", tangent[1], derivative, m("add", lost, offset[1]))
    return m("add", head, m("fma", tangent[0], m.polynomial(beyond, _REST), small))
