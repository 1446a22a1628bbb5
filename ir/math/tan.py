"""tan: every argument, up to the greatest; at most 1 ULP (of f32 0.886 observed, over every argument there is).

Method: the reduction of `sincos`, x = q pi/2 + r with r in two parts; W. J. Cody and W. Waite, Software Manual for the Elementary
Functions (1980), chapter 9: tan(r) for even q and -1 / tan(r) for odd q, here with a polynomial in place of their quotient. tan(r) is kept in two
parts, and the reciprocal corrected by one step of Newton's method, so that the quotient's rounding does not add to the polynomial's.

Coefficients: tan(r)/r less a slope in r^2 - 0.3125 for |r| <= pi/4 + 0.006, relative to tan(r); 0.028 ULP of an f32 result (own Remez fit, rounded to
f32 with a local search over neighbouring values), 0.012 of f64.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.types import f32, f64
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.pairs import product, sum_of
from vyre_py.ir.math.sincos import SMALL, reduced

__all__ = ["tan"]

# tan(r)/r = slope + rest, the slope about halfway between tan(r)/r at 0 and at pi/4, so that the rest stays below 0.15.
_SLOPE: Final = 1.125
_MIDDLE: Final = 0.3125  # of r^2
_REST: Final = {
    f32: (-0.0059267124, 0.43564525, 0.2000714, 0.09276059, 0.043017533, 0.019959524, 0.009672506, 0.00450723),
    f64: (
        -0.0059267108194342565, 0.43564525058979986, 0.20007090157711965, 0.09276028821331982, 0.043042482987101754, 0.019974059253743525,
        0.009269122794028235, 0.004301414143071516, 0.001996106303386963, 0.0009263096725014667, 0.00042988634874466247, 0.0001994958531174823,
        9.228261976814407e-05, 4.2800819290082435e-05, 2.171064508256029e-05, 1.0140543273558906e-05,
    ),
}  # fmt: skip


def tan(m: MathBuilder, x: Atom) -> Atom:
    """The tangent of x radians: odd, -0 for -0, NaN for infinities; always finite, since no float is a pole."""
    high, low, quadrant = reduced(m, x)
    start, start_lost = product(m, high, _SLOPE)
    rest = m.polynomial(m("fma", high, high, -_MIDDLE), _REST[x.type])
    # The derivative is 1 + tan^2.
    rough = m("fma", high, rest, start)
    small = m("fma", low, m("fma", rough, rough, 1.0), start_lost)
    head, lost = sum_of(m, start, m("fma", high, rest, small))

    inverse = m("div", -1.0, head)
    error = m("fma", inverse, lost, m("fma", inverse, head, 1.0))
    odd = m("ne", m("and", quadrant, 1), 0)
    value = m("select", odd, m("fma", inverse, error, inverse), head)
    # The formulas would lose the sign of zero, and underflow.
    return m("select", m("lt", m("abs", x), SMALL[x.type]), x, value)
