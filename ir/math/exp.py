"""exp, exp2, exp10 and expm1: every argument, subnormal results included.

| function | bound | worst seen of f32 |
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

Coefficients, relative to the function over |r| <= ln(2)/2 or 1/2: (exp(r) - 1 - r) / r^2, 0.055 ULP of f32 exp and 0.041 of f64, and, one degree
higher, 0.007 and 0.003 ULP of expm1; (2^r - 1 - r ln 2) / r^2 for the rounded ln 2, 0.050 ULP. Those of f32 are own Remez fits, rounded with a
local search over neighbouring values.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.types import Type, f32, f64
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.pairs import nearest, product, sum_of
from vyre_py.ir.math.words import FORMATS

__all__ = ["EXPM1_TAIL", "EXP_TAIL", "LN2", "exp", "exp10", "exp2", "expm1", "power_of_two", "reduced", "scaled", "two_to"]

_LOG2_E: Final = 1.4426950408889634
LN2: Final = {f32: (0.6931472, -1.9046543e-09), f64: (0.6931471805599453, 2.3190468138462996e-17)}  # as rounded, and what it lacks
_LOG2_10: Final = {f32: (3.321928, 7.059537e-08), f64: (3.321928094887362, 1.661617516973592e-16)}
EXP_TAIL: Final = {
    f32: (0.49999994, 0.1666652, 0.041668322, 0.008368848, 0.0013814362),
    f64: (
        0.5000000000000013, 0.1666666666666649, 0.04166666666651219, 0.008333333333445587, 0.0013888888947630991, 0.0001984126961049842,
        2.4801489450880215e-05, 2.7557494816508783e-06, 2.7631421685756544e-07, 2.5028730450304627e-08,
    ),
}  # fmt: skip
EXPM1_TAIL: Final = {
    f32: (0.5, 0.16666666, 0.041666493, 0.008333546, 0.0013932325, 0.00019761804),
    f64: (
        0.5, 0.16666666666666677, 0.0416666666666666, 0.00833333333332146, 0.0013888888888928333, 0.00019841269886492925, 2.4801587227578245e-05,
        2.7557243881859077e-06, 2.7557361897710827e-07, 2.510914095143649e-08, 2.088661607028483e-09,
    ),
}  # fmt: skip
_EXP2_TAIL: Final = {
    f32: (0.24022648, 0.055503596, 0.0096185, 0.0013390993, 0.00015329204),
    f64: (
        0.24022650695910133, 0.055504108664822256, 0.009618129107593482, 0.001333355814638268, 0.00015403530457798738, 1.525273380351373e-05,
        1.3215434978831685e-06, 1.0178087585194608e-07, 7.073830649281512e-09, 4.4498386162810173e-10,
    ),
}  # fmt: skip

# Beyond these the result is 0 or infinity whatever x is: exp(-104) and exp(-746) are below half the least subnormal, exp(89) above 2^128, exp(710)
# above 2^1024.
_EXP_ENDS: Final = {f32: (-104.0, 89.0), f64: (-746.0, 710.0)}
_EXP2_ENDS: Final = {f32: (-151.0, 129.0), f64: (-1076.0, 1025.0)}
_EXP10_ENDS: Final = {f32: (-45.5, 39.0), f64: (-324.0, 309.0)}
_EXPM1_ENDS: Final = {f32: (-18.0, 89.0), f64: (-38.0, 710.0)}  # expm1 of the first rounds to -1

_SMALL: Final = {f32: 2.0**-25, f64: 2.0**-54}  # below it expm1(x) rounds to x


def exp(m: MathBuilder, x: Atom) -> Atom:
    """e to the power x. Of f32 infinity from 88.72284 on, subnormal below -87.33655, 0 below -103.97208; of f64 from 709.7827128933841, below
    -708.3964185322641 and -745.1332191019412."""
    high, low = LN2[x.type]
    inside = m("clamp", x, *_EXP_ENDS[x.type])
    whole, n = nearest(m, m("mul", inside, _LOG2_E))
    r = m("fma", whole, -low, m("fma", whole, -high, inside))
    # 1 + r is taken with its rounding error, which joins the small terms.
    head, lost = sum_of(m, 1.0, r)
    tail = m("fma", m("mul", r, r), m.polynomial(r, EXP_TAIL[x.type]), lost)
    return m("select", m("is_nan", x), x, scaled(m, m("add", head, tail), n))


def exp2(m: MathBuilder, x: Atom) -> Atom:
    """2 to the power x: exact for whole numbers. Of f32 infinity from 128 on, subnormal below -126, 0 from -150 down; of f64 from 1024, below -1022,
    from -1075."""
    inside = m("clamp", x, *_EXP2_ENDS[x.type])
    return m("select", m("is_nan", x), x, two_to(m, inside, None))


def exp10(m: MathBuilder, x: Atom) -> Atom:
    """10 to the power x. Of f32 exact for 0 to 10, infinity from 38.53184 on, subnormal below -37.92978, 0 below -45.15450; of f64 for 0 to 22, from
    308.2547155599168, below -307.6526555685887 and -323.6072453387797."""
    high, low = _LOG2_10[x.type]
    inside = m("clamp", x, *_EXP10_ENDS[x.type])
    upper, lost = product(m, inside, high)
    return m("select", m("is_nan", x), x, two_to(m, upper, m("fma", inside, low, lost)))


def expm1(m: MathBuilder, x: Atom) -> Atom:
    """exp(x) - 1: -0 for -0, infinity as exp, -1 below -17.32868 of f32 and -37.42994775023705 of f64."""
    n, r, low = reduced(m, m("clamp", x, *_EXPM1_ENDS[x.type]))
    # 2^n (1 - 2^-n + r + ...), the first two terms with their rounding errors.
    scale = power_of_two(m, m("neg", n), x.type)
    start, start_lost = sum_of(m, 1.0, m("neg", scale))
    head, lost = sum_of(m, start, r)
    # What r lacks counts exp(r) times, which shows in f64.
    small = m("add", m("add", lost, m("fma", low, r, low) if x.type is f64 else low), start_lost)
    result = m("add", head, m("fma", m("mul", r, r), m.polynomial(r, EXPM1_TAIL[x.type]), small))
    # Keeps NaN, the sign of zero and subnormal numbers.
    plain = m("ge", m("abs", x), _SMALL[x.type])
    return m("select", plain, scaled(m, result, n), x)


def reduced(m: MathBuilder, x: Atom) -> tuple[Atom, Atom, Atom]:
    """n as an integer, and r in two parts, so that x = n ln 2 + r with |r| <= ln(2)/2 and a little: for |x| <= 128, of f64 1024. Where n = 0, r is x."""
    high, low = LN2[x.type]
    whole, n = nearest(m, m("mul", x, _LOG2_E))
    first = m("fma", whole, -high, x)
    r = m("fma", whole, -low, first)
    return n, r, m("fma", whole, -low, m("sub", first, r))


def two_to(m: MathBuilder, x: Atom, low: Atom | None) -> Atom:
    """2 to the power x + low, for |x| <= 252, of f64 2044, and |low| at most 2^-7."""
    ln2 = LN2[x.type][0]
    # The polynomial is for at most 1/2, so that n has to be nearest to the sum.
    whole, n = nearest(m, x if low is None else m("add", x, low))
    r: Atom = m("sub", x, whole)
    if low is not None:
        # Where r is the smaller, its last bits may be lost: less than 2^-24 of `low`.
        r, low = sum_of(m, r, low)
    head = m("fma", r, ln2, 1.0)
    lost: Atom = m("fma", r, ln2, m("sub", 1.0, head))
    if low is not None:
        lost = m("fma", low, ln2, lost)
    result = m("add", head, m("fma", m("mul", r, r), m.polynomial(r, _EXP2_TAIL[x.type]), lost))
    return scaled(m, result, n)


def power_of_two(m: MathBuilder, n: Atom, type_: Type) -> Atom:
    """2^n for an n that is such an integer, at most the bias; 0 where it would be subnormal."""
    form = FORMATS[type_]
    return m.bitcast(m("shl", m("max", m("add", n, form.bias), 0), form.fraction), type_)


def scaled(m: MathBuilder, x: Atom, n: Atom) -> Atom:
    """x * 2^n for |n| <= 252, of f64 2044, in two steps, so that the factors are normal and only the last product rounds."""
    form = FORMATS[x.type]
    half = m("shr", n, 1)
    for exponent in (half, m("sub", n, half)):
        factor = m.bitcast(m("shl", m("add", exponent, form.bias), form.fraction), x.type)
        x = m("mul", x, factor)
    return x
