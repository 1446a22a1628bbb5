"""exp, exp2, exp10 and expm1 for f64: every argument, subnormal results included; at most 1 ULP.

Method: that of `ir.math.exp` (W. J. Cody and W. Waite, Software Manual for the Elementary Functions, 1980, chapter 6): exp(x) = 2^n exp(r) with
n = round(x / ln 2), and r = x - n ln 2 by fused multiply-add from a two-part ln 2. The first part of r is exact, since it is a multiple of the
smaller ULP of x and ln 2 and stays below 1/2. exp10 is exp2 of a product in two parts. expm1 subtracts the 1 before the small terms are added,
each step with its rounding error.

Coefficients, over |r| <= ln(2)/2 or 1/2: (exp(r) - 1 - r) / r^2, 0.041 ULP of exp and, one degree higher, 0.003 ULP of expm1;
(2^r - 1 - r f64(ln 2)) / r^2, 0.050 ULP.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.types import f64, i64
from vyre_py.ir.math.builder import MathBuilder, double, long_int
from vyre_py.ir.math.pairs import product, sum_of

__all__ = ["EXPM1_TAIL", "exp", "exp10", "exp2", "exp_parts", "expm1", "power_of_two", "reduced", "scaled", "two_to"]

_LOG2_E: Final = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.6931471805599453, 2.3190468138462996e-17  # f64(ln 2), and what it lacks
_LOG2_10_HIGH, _LOG2_10_LOW = 3.321928094887362, 1.661617516973592e-16
_EXP_TAIL: Final = (
    0.5000000000000013, 0.1666666666666649, 0.04166666666651219, 0.008333333333445587, 0.0013888888947630991, 0.0001984126961049842,
    2.4801489450880215e-05, 2.7557494816508783e-06, 2.7631421685756544e-07, 2.5028730450304627e-08,
)  # fmt: skip
EXPM1_TAIL: Final = (
    0.5, 0.16666666666666677, 0.0416666666666666, 0.00833333333332146, 0.0013888888888928333, 0.00019841269886492925, 2.4801587227578245e-05,
    2.7557243881859077e-06, 2.7557361897710827e-07, 2.510914095143649e-08, 2.088661607028483e-09,
)  # fmt: skip
_EXP2_TAIL: Final = (
    0.24022650695910133, 0.055504108664822256, 0.009618129107593482, 0.001333355814638268, 0.00015403530457798738, 1.525273380351373e-05,
    1.3215434978831685e-06, 1.0178087585194608e-07, 7.073830649281512e-09, 4.4498386162810173e-10,
)  # fmt: skip

# Beyond these the result is 0 or infinity whatever x is: exp(-746) is below half the least subnormal, exp(710) above 2^1024.
_EXP_ENDS: Final = (-746.0, 710.0)
_EXP2_ENDS: Final = (-1076.0, 1025.0)
_EXP10_ENDS: Final = (-324.0, 309.0)
_EXPM1_ENDS: Final = (-38.0, 710.0)  # expm1(-38) rounds to -1

_SMALL: Final = 2.0**-54  # below it expm1(x) rounds to x


def exp(m: MathBuilder, x: Atom) -> Atom:
    """e to the power x: infinity from 709.7827128933841 on, subnormal below -708.3964185322641, 0 below -745.1332191019412."""
    n, head, tail = exp_parts(m, _clamped(m, x, _EXP_ENDS))
    return m("select", m("is_nan", x), x, scaled(m, m("add", head, tail), m.cast(n, i64)))


def exp2(m: MathBuilder, x: Atom) -> Atom:
    """2 to the power x: exact for whole numbers, infinity from 1024 on, subnormal below -1022, 0 from -1075 down."""
    return m("select", m("is_nan", x), x, two_to(m, _clamped(m, x, _EXP2_ENDS), None))


def exp10(m: MathBuilder, x: Atom) -> Atom:
    """10 to the power x: exact for 0 to 22, infinity from 308.2547155599168 on, subnormal below -307.6526555685887, 0 below -323.6072453387797."""
    inside = _clamped(m, x, _EXP10_ENDS)
    upper, lost = product(m, inside, double(_LOG2_10_HIGH))
    return m("select", m("is_nan", x), x, two_to(m, upper, m("fma", inside, double(_LOG2_10_LOW), lost)))


def expm1(m: MathBuilder, x: Atom) -> Atom:
    """exp(x) - 1: -0 for -0, infinity from 709.7827128933841 on, -1 below -37.42994775023705."""
    n, r, low = reduced(m, _clamped(m, x, _EXPM1_ENDS))
    # 2^n (1 - 2^-n + r + ...), the first two terms with their rounding errors.
    scale = power_of_two(m, m("neg", n))
    start, start_lost = sum_of(m, double(1.0), m("neg", scale))
    head, lost = sum_of(m, start, r)
    # What r lacks counts exp(r) times.
    small = m("add", m("add", lost, m("fma", low, r, low)), start_lost)
    result = m("add", head, m("fma", m("mul", r, r), m.polynomial(r, EXPM1_TAIL), small))
    # Keeps NaN, the sign of zero and subnormal numbers.
    plain = m("ge", m("abs", x), double(_SMALL))
    return m("select", plain, scaled(m, result, n), x)


def _clamped(m: MathBuilder, x: Atom, ends: tuple[float, float]) -> Atom:
    return m("clamp", x, *map(double, ends))


def exp_parts(m: MathBuilder, x: Atom) -> tuple[Atom, Atom, Atom]:
    """n as a whole f64, and e to the power x - n ln 2 in two parts, of which the upper is near 1: for |x| <= 1024."""
    n = m("round", m("mul", x, double(_LOG2_E)))
    r = m("fma", n, double(-_LN2_LOW), m("fma", n, double(-_LN2_HIGH), x))
    # 1 + r is taken with its rounding error, which joins the small terms.
    head, lost = sum_of(m, double(1.0), r)
    return n, head, m("fma", m("mul", r, r), m.polynomial(r, _EXP_TAIL), lost)


def reduced(m: MathBuilder, x: Atom) -> tuple[Atom, Atom, Atom]:
    """n as an i64, and r in two parts, so that x = n ln 2 + r with |r| <= ln(2)/2 and a little: for |x| <= 1024. Where n = 0, r is x."""
    n = m("round", m("mul", x, double(_LOG2_E)))
    first = m("fma", n, double(-_LN2_HIGH), x)
    r = m("fma", n, double(-_LN2_LOW), first)
    return m.cast(n, i64), r, m("fma", n, double(-_LN2_LOW), m("sub", first, r))


def two_to(m: MathBuilder, x: Atom, low: Atom | None) -> Atom:
    """2 to the power x + low, for |x| <= 2044 and |low| at most a few ULP of x."""
    n = m("round", x)
    r: Atom = m("sub", x, n)
    if low is not None:
        r, low = sum_of(m, r, low)
    head = m("fma", r, double(_LN2_HIGH), double(1.0))
    lost: Atom = m("fma", r, double(_LN2_HIGH), m("sub", double(1.0), head))
    if low is not None:
        lost = m("fma", low, double(_LN2_HIGH), lost)
    result = m("add", head, m("fma", m("mul", r, r), m.polynomial(r, _EXP2_TAIL), lost))
    return scaled(m, result, m.cast(n, i64))


def power_of_two(m: MathBuilder, n: Atom) -> Atom:
    """2^n for an i64 n <= 1023; 0 where it would be subnormal."""
    return m.bitcast(m("shl", m("max", m("add", n, long_int(1023)), long_int(0)), long_int(52)), f64)


def scaled(m: MathBuilder, x: Atom, n: Atom) -> Atom:
    """x * 2^n for an i64 |n| <= 2044, in two steps, so that the factors are normal and only the last product rounds."""
    half = m("shr", n, long_int(1))
    for exponent in (half, m("sub", n, half)):
        factor = m.bitcast(m("shl", m("add", exponent, long_int(1023)), long_int(52)), f64)
        x = m("mul", x, factor)
    return x
