"""erf and erfc for f64: every argument; at most 1 ULP, subnormal results of erfc included.

erf(x) is x + x P(x^2) for |x| < 1, and 1 - erfc(x) beyond.

erfc(x) is 1 - erf(x) for x < 1/2. Beyond, it is exp(-x^2) G(t) / (x + 3/2) with a polynomial for G(t) = exp(x^2) erfc(x) (x + 3/2), which varies
little, in t = 1 - 4 / (x + 3/2) (M. M. Shepherd and J. G. Laframboise, Chebyshev approximation of (1 + 2x) exp(x^2) erfc x, 1981). x^2, the
exponential, t, the first two terms of G, x + 3/2 and the quotient are all kept in two parts, since each of their roundings would count alike.
2 - that for negative x.

Coefficients: erf(x)/x - 1 in x^2 - 1/2 for x <= 1, 0.016 ULP of erf; G, 0.030 ULP of erfc; the exponential as in `expm1`.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.math.builder import MathBuilder, double
from vyre_py.ir.math.double.exp import EXPM1_TAIL, reduced, scaled
from vyre_py.ir.math.pairs import Pair, product, sum_of
from vyre_py.ir.math.signs import with_sign_of

__all__ = ["erf", "erfc"]

_ERF_MIDDLE: Final = 0.5  # of x^2
_ERF_TAIL: Final = (
    -0.03453126133013269, -0.2810721780454342, 0.07940998675593493, -0.01828388448915408, 0.0034802744966626374, -0.0005611894220945099,
    7.829649529339789e-05, -9.61480885897775e-06, 1.0536447051897788e-06, -1.04203067674656e-07, 9.388392535963201e-09, -7.807035950623569e-10,
    5.868088799140795e-11,
)  # fmt: skip
_ERF_BORDER: Final = 1.0
_ERF_ONE: Final = 6.0  # from here on erf(x) rounds to 1

_ERFC_BORDER: Final = 0.5
_ERFC_NONE: Final = 27.3  # from here on erfc(x) rounds to 0
_SHIFT, _SCALE = 1.5, 4.0
_G_HIGH: Final = 0.8432254562445743
_G: Final = (
    -2.4258497207203713e-17, -0.3463320923921404, 0.06014217251718738, 0.014246489154543044, -0.006175205019842384, -0.0018217517893939392,
    0.0006255503738297311, 0.0003755997682055479, -1.996543681370112e-05, -7.235430869247929e-05, -1.8869247879110316e-05, 7.999705238462922e-06,
    7.152236775847826e-06, 1.2425866472446042e-06, -1.1010742088967048e-06, -8.354633923256047e-07, -1.5467473556600247e-07, 1.3586831664595288e-07,
    1.2269188327268436e-07, 3.069878555758535e-08, -2.1676019589238133e-08, -1.9387439376753946e-08, -1.9816105714610255e-09, 3.1404992731013838e-09,
    1.013888267583801e-09,
)  # fmt: skip
_G_LOW, _G_SLOPE, *_G_TAIL = _G


def erf(m: MathBuilder, x: Atom) -> Atom:
    """The error function: odd, -0 for -0, 1 for infinity."""
    magnitude = m("abs", x)
    near = m("fma", magnitude, _erf_tail(m, magnitude), magnitude)
    far = m("sub", double(1.0), _erfc_far(m, m("clamp", magnitude, double(_ERF_BORDER), double(_ERF_ONE))))
    # The comparison is false for NaN, and `near` NaN.
    return with_sign_of(m, m("select", m("gt", magnitude, double(_ERF_BORDER)), far, near), x)


def erfc(m: MathBuilder, x: Atom) -> Atom:
    """1 - erf(x): 2 for -infinity, subnormal from 26.543258454250987 on, 0 from 27.226017111108366 on."""
    magnitude = m("abs", x)
    head, lost = sum_of(m, double(1.0), m("neg", x))
    near = m("add", head, m("fma", m("neg", x), _erf_tail(m, magnitude), lost))
    far = _erfc_far(m, m("clamp", magnitude, double(_ERFC_BORDER), double(_ERFC_NONE)))
    far = m("select", m("lt", x, double(0.0)), m("sub", double(2.0), far), far)
    # The comparison is false for NaN, and `near` NaN.
    return m("select", m("gt", magnitude, double(_ERFC_BORDER)), far, near)


def _erf_tail(m: MathBuilder, x: Atom) -> Atom:
    """erf(x)/x - 1 for |x| <= 1."""
    return m.polynomial(m("fma", x, x, double(-_ERF_MIDDLE)), _ERF_TAIL)


def _erfc_far(m: MathBuilder, x: Atom) -> Atom:
    """erfc(x) for 1/2 <= x <= 27.3."""
    (e, e_low), n = _exp_of_minus_square(m, x)
    # Exact for x > 3/2 too, since no digit of the sum before the point is lost.
    d, d_low = sum_of(m, double(_SHIFT), x)
    inverse = m("div", double(1.0), d)
    g, g_low = _g(m, d, d_low, inverse)
    # The product, then the quotient, each with what it lacks.
    p, p_lost = product(m, e, g)
    p_low = m("fma", e, g_low, m("fma", e_low, g, p_lost))
    quotient = m("mul", p, inverse)
    minus = m("neg", quotient)
    residual = m("fma", minus, d_low, m("add", m("fma", minus, d, p), p_low))
    return scaled(m, m("fma", residual, inverse, quotient), n)


def _g(m: MathBuilder, d: Atom, d_low: Atom, inverse: Atom) -> Pair:
    """G in two parts, for a d in two parts and the inverse of its upper one."""
    t = m("fma", inverse, double(-_SCALE), double(1.0))
    # What the inverse has too much, relative to it, and so -scale * inverse too little.
    surplus = m("fma", inverse, d_low, m("fma", inverse, d, double(-1.0)))
    t_low = m("add", m("fma", inverse, double(-_SCALE), m("sub", double(1.0), t)), m("mul", m("mul", inverse, double(_SCALE)), surplus))
    slope, slope_lost = product(m, t, double(_G_SLOPE))
    g, g_lost = sum_of(m, double(_G_HIGH), slope)
    low = m("fma", t_low, double(_G_SLOPE), m("add", g_lost, m("add", slope_lost, double(_G_LOW))))
    return sum_of(m, g, m("fma", m("mul", t, t), m.polynomial(t, _G_TAIL), low))


def _exp_of_minus_square(m: MathBuilder, x: Atom) -> tuple[Pair, Atom]:
    """exp(-x^2) as a pair, times 2 to the power of an i64: for x <= 28."""
    square, lost = product(m, x, x)
    n, r, r_low = reduced(m, m("neg", square))
    head, head_lost = sum_of(m, double(1.0), r)
    tail = m("fma", m("mul", r, r), m.polynomial(r, EXPM1_TAIL), m("add", head_lost, r_low))
    e, e_low = sum_of(m, head, tail)
    # Times exp(-lost), which is 1 - lost to 2^-88.
    return (e, m("fma", m("neg", lost), e, e_low)), n
