"""asin and acos for f64: every argument; at most 1 ULP.

Method: that of `ir.math.asin` (W. J. Cody and W. Waite, Software Manual for the Elementary Functions, 1980, chapter 10): a polynomial for |x| <= 1/2,
and beyond asin(x) = pi/2 - 2 asin(s) with s = sqrt((1 - |x|) / 2), which is at most 1/2 again. What the root's rounding lost is found by fused
multiply-add and joins the small terms, as do the lower parts of pi/2 and pi and what is lost where they are added to.

Coefficients: (asin(r)/r - 1)/r^2 in r^2 for r^2 <= 1/4, 0.009 ULP of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.math.builder import MathBuilder, double
from vyre_py.ir.math.pairs import Pair, sum_of
from vyre_py.ir.math.signs import with_sign_of

__all__ = ["acos", "asin"]

_TAIL: Final = (
    0.16666666666666757, 0.07499999999971792, 0.04464285717359249, 0.0303819427587141, 0.022372213519528925, 0.017351638714398234, 0.013980498610065704,
    0.011401549996450223, 0.010765491204786247, 0.00376196879066869, 0.021572928781007486, -0.020809812463918245, 0.03251104192302525,
)  # fmt: skip
_HALF_PI: Final = (1.5707963267948966, 6.123233995736766e-17)
_PI: Final = (3.141592653589793, 1.2246467991473532e-16)
_TINY: Final = 2.0**-120  # lost beside any root but 0


def asin(m: MathBuilder, x: Atom) -> Atom:
    """The angle in [-pi/2, pi/2] whose sine is x: odd, -0 for -0, NaN outside [-1, 1]."""
    magnitude = m("abs", x)
    small = m("le", magnitude, double(0.5))
    square, (root, lost) = _reduced(m, magnitude, small)
    angle = m("select", small, magnitude, m("neg", root))
    offset = [m("select", small, double(0.0), double(part)) for part in _HALF_PI]
    return with_sign_of(m, _sum(m, offset, angle, m("neg", lost), square), x)


def acos(m: MathBuilder, x: Atom) -> Atom:
    """The angle in [0, pi] whose cosine is x: +0 for 1, NaN outside [-1, 1]."""
    magnitude = m("abs", x)
    small = m("le", magnitude, double(0.5))
    square, (root, lost) = _reduced(m, magnitude, small)
    above = m("gt", x, double(0.0))
    angle = m("select", small, m("neg", x), m("select", above, root, m("neg", root)))
    offset = [m("select", small, double(half), m("select", above, double(0.0), double(whole))) for half, whole in zip(_HALF_PI, _PI, strict=True)]
    return _sum(m, offset, angle, m("select", above, lost, m("neg", lost)), square)


def _reduced(m: MathBuilder, magnitude: Atom, small: Atom) -> tuple[Atom, Pair]:
    """The square of what the polynomial takes, and twice the root in two parts, the lower 0 where `small`."""
    square = m("select", small, m("mul", magnitude, magnitude), m("fma", magnitude, double(-0.5), double(0.5)))
    root = m("sqrt", square)
    rest = m("fma", m("neg", root), root, square)
    lost = m("select", small, double(0.0), m("div", rest, m("add", root, double(_TINY))))
    return square, (m("add", root, root), lost)


def _sum(m: MathBuilder, offset: Sequence[Atom], angle: Atom, low: Atom, square: Atom) -> Atom:
    """offset + angle + low + angle^3 (asin(r)/r - 1)/r^2 where square is r^2, smallest first."""
    head, lost = sum_of(m, offset[0], angle)
    small = m("add", low, m("add", lost, offset[1]))
    return m("add", head, m("fma", m("mul", angle, square), m.polynomial(square, _TAIL), small))
