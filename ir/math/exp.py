"""exp, exp2, exp10 and expm1 for f32: every argument, subnormal results included.

| function | bound | worst seen |
|---|---|---|
| exp | 1 ULP | 0.799 |
| exp2 | 1 ULP | 0.772 |
| exp10 | 1 ULP | 0.781 |
| expm1 | 1 ULP | 0.884 |

Seen over every 17th of all f32, and over all of those from 1/4 to 10 and from 32 to 160 of both signs.

Method: W. J. Cody and W. Waite, Software Manual for the Elementary Functions (1980), chapter 6: exp(x) = 2^n exp(r) with
n = round(x / ln 2) and r = x - n ln 2 from a two-part ln 2. The first part of r is exact by fused multiply-add, since it is a
multiple of the smaller ULP of x and ln 2 and stays below 1/2. exp10 is exp2 of a product in two parts. expm1 subtracts the 1
before the small terms are added, each step with its rounding error (P. T. P. Tang, Table-driven implementation of the expm1
function, 1992, without his table).

Coefficients: own Remez fits, rounded to f32 with a local search over neighbouring values, relative to the function over |r| <= 1/2 or
ln(2)/2: (exp(r) - 1 - r) / r^2, 0.055 ULP of exp and, one degree higher, 0.007 ULP of expm1; (2^r - 1 - r f32(ln 2)) / r^2, 0.050 ULP.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.types import f32, i32
from vyre_py.ir.math.builder import MathBuilder, float_, int_
from vyre_py.ir.math.pairs import product, sum_of

__all__ = ["exp", "exp10", "exp2", "exp_parts", "expm1", "power_of_two", "reduced", "scaled", "two_to"]

_LOG2_E: Final = 1.442695
_LN2_HIGH, _LN2_LOW = 0.6931472, -1.9046543e-09  # f32(ln 2), and what it lacks
_LOG2_10_HIGH, _LOG2_10_LOW = 3.321928, 7.059537e-08
_EXP_TAIL: Final = (0.49999994, 0.1666652, 0.041668322, 0.008368848, 0.0013814362)
_EXPM1_TAIL: Final = (0.5, 0.16666666, 0.041666493, 0.008333546, 0.0013932325, 0.00019761804)
_EXP2_TAIL: Final = (0.24022648, 0.055503596, 0.0096185, 0.0013390993, 0.00015329204)

# Beyond these the result is 0 or infinity whatever x is: exp(-104) is below half the least subnormal, exp(89) above 2^128.
_EXP_ENDS: Final = (-104.0, 89.0)
_EXP2_ENDS: Final = (-151.0, 129.0)
_EXP10_ENDS: Final = (-45.5, 39.0)
_EXPM1_ENDS: Final = (-18.0, 89.0)  # expm1(-18) rounds to -1

_SMALL: Final = 2.0**-25  # below it expm1(x) rounds to x


def exp(m: MathBuilder, x: Atom) -> Atom:
    """e to the power x: infinity from 88.72284 on, subnormal below -87.33655, 0 below -103.97208."""
    inside = _clamped(m, x, _EXP_ENDS)
    n, head, tail = exp_parts(m, inside)
    return m("select", m("is_nan", x), x, scaled(m, m("add", head, tail), m.cast(n, i32)))


def exp2(m: MathBuilder, x: Atom) -> Atom:
    """2 to the power x: exact for whole numbers, infinity from 128 on, subnormal below -126, 0 from -150 down."""
    inside = _clamped(m, x, _EXP2_ENDS)
    return m("select", m("is_nan", x), x, two_to(m, inside, None))


def exp10(m: MathBuilder, x: Atom) -> Atom:
    """10 to the power x: exact for 0 to 10, infinity from 38.53184 on, subnormal below -37.92978, 0 below -45.15450."""
    inside = _clamped(m, x, _EXP10_ENDS)
    upper, lost = product(m, inside, float_(_LOG2_10_HIGH))
    return m("select", m("is_nan", x), x, two_to(m, upper, m("fma", inside, float_(_LOG2_10_LOW), lost)))


def expm1(m: MathBuilder, x: Atom) -> Atom:
    """exp(x) - 1: -0 for -0, infinity from 88.72284 on, -1 below -17.32868."""
    inside = _clamped(m, x, _EXPM1_ENDS)
    n, r, low = reduced(m, inside)
    # 2^n (1 - 2^-n + r + ...), the first two terms with their rounding errors.
    scale = power_of_two(m, m("neg", n))
    start, start_lost = sum_of(m, float_(1.0), m("neg", scale))
    head, lost = sum_of(m, start, r)
    small = m("add", m("add", lost, low), start_lost)
    result = m("add", head, m("fma", m("mul", r, r), m.polynomial(r, _EXPM1_TAIL), small))
    # Keeps NaN, the sign of zero and subnormal numbers.
    plain = m("ge", m("abs", x), float_(_SMALL))
    return m("select", plain, scaled(m, result, n), x)


def _clamped(m: MathBuilder, x: Atom, ends: tuple[float, float]) -> Atom:
    return m("clamp", x, *map(float_, ends))


def exp_parts(m: MathBuilder, x: Atom) -> tuple[Atom, Atom, Atom]:
    """n as a whole f32, and e to the power x - n ln 2 in two parts, of which the upper is near 1: for |x| <= 128."""
    n = m("round", m("mul", x, float_(_LOG2_E)))
    r = m("fma", n, float_(-_LN2_LOW), m("fma", n, float_(-_LN2_HIGH), x))
    # 1 + r is taken with its rounding error, which joins the small terms.
    head, lost = sum_of(m, float_(1.0), r)
    return n, head, m("fma", m("mul", r, r), m.polynomial(r, _EXP_TAIL), lost)


def reduced(m: MathBuilder, x: Atom) -> tuple[Atom, Atom, Atom]:
    """n as an i32, and r in two parts, so that x = n ln 2 + r with |r| <= ln(2)/2 and a little: for |x| <= 128. Where n = 0, r is x."""
    n = m("round", m("mul", x, float_(_LOG2_E)))
    first = m("fma", n, float_(-_LN2_HIGH), x)
    r = m("fma", n, float_(-_LN2_LOW), first)
    return m.cast(n, i32), r, m("fma", n, float_(-_LN2_LOW), m("sub", first, r))


def two_to(m: MathBuilder, x: Atom, low: Atom | None) -> Atom:
    """2 to the power x + low, for |x| <= 252 and |low| at most a few ULP of x."""
    n = m("round", x)
    r: Atom = m("sub", x, n)
    if low is not None:
        r, low = sum_of(m, r, low)
    head = m("fma", r, float_(_LN2_HIGH), float_(1.0))
    lost: Atom = m("fma", r, float_(_LN2_HIGH), m("sub", float_(1.0), head))
    if low is not None:
        lost = m("fma", low, float_(_LN2_HIGH), lost)
    result = m("add", head, m("fma", m("mul", r, r), m.polynomial(r, _EXP2_TAIL), lost))
    return scaled(m, result, m.cast(n, i32))


def power_of_two(m: MathBuilder, n: Atom) -> Atom:
    """2^n for an i32 n <= 127; 0 where it would be subnormal."""
    return m.bitcast(m("shl", m("max", m("add", n, int_(127)), int_(0)), int_(23)), f32)


def scaled(m: MathBuilder, x: Atom, n: Atom) -> Atom:
    """x * 2^n for |n| <= 252, in two steps, so that the factors are normal and only the last product rounds."""
    half = m("shr", n, int_(1))
    for exponent in (half, m("sub", n, half)):
        factor = m.bitcast(m("shl", m("add", exponent, int_(127)), int_(23)), f32)
        x = m("mul", x, factor)
    return x
