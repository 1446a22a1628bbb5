"""asin and acos: every argument; at most 1 ULP (of f32 0.678 and 0.666 observed, over every argument there is).

Method: W. J. Cody and W. Waite, Software Manual for the Elementary Functions (1980), chapter 10: a polynomial for |x| <= 1/2, and beyond
asin(x) = pi/2 - 2 asin(s) with s = sqrt((1 - |x|) / 2), which is at most 1/2 again. What the root's rounding lost is found by fused
multiply-add and joins the small terms, as do the lower parts of pi/2 and pi and what is lost where they are added to.

Coefficients: (asin(r)/r - 1)/r^2 in r^2 for r^2 <= 1/4, relative to asin(r); 0.081 ULP of an f32 result (own Remez fit, rounded one after another to
f32), 0.009 of f64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from vyre_py.ir.language.nodes import Atom, const
from vyre_py.ir.language.types import f32, f64
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.pairs import Pair, sum_of
from vyre_py.ir.math.words import with_sign_of

__all__ = ["HALF_PI", "PI", "acos", "asin"]

_TAIL: Final = {
    f32: (0.16666752, 0.074953094, 0.045469146, 0.024184821, 0.04215819),
    f64: (
        0.16666666666666757, 0.07499999999971792, 0.04464285717359249, 0.0303819427587141, 0.022372213519528925, 0.017351638714398234, 0.013980498610065704,
        0.011401549996450223, 0.010765491204786247, 0.00376196879066869, 0.021572928781007486, -0.020809812463918245, 0.03251104192302525,
    ),
}  # fmt: skip
HALF_PI: Final = {f32: (1.5707964, -4.371139e-08), f64: (1.5707963267948966, 6.123233995736766e-17)}
PI: Final = {f32: (3.1415927, -8.742278e-08), f64: (3.141592653589793, 1.2246467991473532e-16)}
_TINY: Final = {f32: 2.0**-60, f64: 2.0**-120}  # lost beside any root but 0


def asin(m: MathBuilder, x: Atom) -> Atom:
    """The angle in [-pi/2, pi/2] whose sine is x: odd, -0 for -0, NaN outside [-1, 1]."""
    magnitude = m("abs", x)
    small = m("le", magnitude, 0.5)
    square, (root, lost) = _reduced(m, magnitude, small)
    angle = m("select", small, magnitude, m("neg", root))
    offset = [m("select", small, 0.0, const(x.type, part)) for part in HALF_PI[x.type]]
    return with_sign_of(m, _sum(m, offset, angle, m("neg", lost), square), x)


def acos(m: MathBuilder, x: Atom) -> Atom:
    """The angle in [0, pi] whose cosine is x: +0 for 1, NaN outside [-1, 1]."""
    magnitude = m("abs", x)
    small = m("le", magnitude, 0.5)
    square, (root, lost) = _reduced(m, magnitude, small)
    above = m("gt", x, 0.0)
    angle = m("select", small, m("neg", x), m("select", above, root, m("neg", root)))
    parts = zip(HALF_PI[x.type], PI[x.type], strict=True)
    offset = [m("select", small, half, m("select", above, 0.0, const(x.type, whole))) for half, whole in parts]
    return _sum(m, offset, angle, m("select", above, lost, m("neg", lost)), square)


def _reduced(m: MathBuilder, magnitude: Atom, small: Atom) -> tuple[Atom, Pair]:
    """The square of what the polynomial takes, and twice the root in two parts, the lower 0 where `small`."""
    square = m("select", small, m("mul", magnitude, magnitude), m("fma", magnitude, -0.5, 0.5))
    root = m("sqrt", square)
    rest = m("fma", m("neg", root), root, square)
    lost = m("select", small, 0.0, m("div", rest, m("add", root, _TINY[root.type])))
    return square, (m("add", root, root), lost)


def _sum(m: MathBuilder, offset: Sequence[Atom], angle: Atom, low: Atom, square: Atom) -> Atom:
    """offset + angle + low + angle^3 (asin(r)/r - 1)/r^2 where square is r^2, smallest first."""
    head, lost = sum_of(m, offset[0], angle)
    small = m("add", low, m("add", lost, offset[1]))
    return m("add", head, m("fma", m("mul", angle, square), m.polynomial(square, _TAIL[square.type]), small))
