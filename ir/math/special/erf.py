"""erf and erfc: every argument; at most 1 ULP (of f32 0.963 and 0.959 observed, over every argument there is), subnormal results of erfc
included.

erf(x) is x + x P(x^2) where that is accurate. Beyond, that of f32 is 1 - 2^y(x) with a polynomial for y = log2(erfc(x)), of which the linear term is
kept apart so that it is not rounded (after N. Juffa's erff, 2018, which has another polynomial and exp). That of f64, for which such a polynomial would be
long, is 1 - erfc(x).

erfc(x) is 1 - erf(x) for |x| < 1/2. Beyond, it is exp(-x^2) G(t) / (x + c) with a polynomial for G(t) = exp(x^2) erfc(x) (x + c), which varies
little, in t = 1 - 3 c / (x + c) with c = 3/4, and of f64 1 - 4 / (x + c) with c = 3/2 (M. M. Shepherd and J. G. Laframboise, Chebyshev approximation of
(1 + 2x) exp(x^2) erfc x, 1981). x^2, the exponential, G, x + c and the quotient are all kept in two parts, since each of their roundings would
count alike. 2 - that for negative x.

Coefficients of f32: own Remez fits, rounded to f32 with a local search over neighbouring values: erf(r)/r - 1 in r^2 for r <= 1, 0.038 ULP
of erf; y(x)/x for 0.99 <= x <= 3.93, 0.046 ULP of erf; 2^r for |r| <= 1/2, 0.02 ULP of erf; G, 0.050 ULP of erfc. Of f64: erf(x)/x - 1, 0.016 ULP of erf;
G, 0.030 ULP of erfc. The exponential is that of `expm1`.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.types import f32, f64, i32
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.exp import EXPM1_TAIL, power_of_two, reduced, scaled
from vyre_py.ir.math.pairs import Pair, product, sum_of
from vyre_py.ir.math.words import with_sign_of

__all__ = ["erf", "erfc"]

_ERF_MIDDLE: Final = 0.5  # of x^2
_ERF_TAIL: Final = {
    f32: (-0.03453126, -0.2810722, 0.07940999, -0.018283324, 0.0034802915, -0.0005654505, 7.854658e-05),
    f64: (
        -0.03453126133013269, -0.2810721780454342, 0.07940998675593493, -0.01828388448915408, 0.0034802744966626374, -0.0005611894220945099,
        7.829649529339789e-05, -9.61480885897775e-06, 1.0536447051897788e-06, -1.04203067674656e-07, 9.388392535963201e-09, -7.807035950623569e-10,
        5.868088799140795e-11,
    ),
}  # fmt: skip
_ERF_BORDER: Final = 1.0
_ERF_ONE: Final = {f32: 3.93, f64: 6.0}  # from here on erf(x) rounds to 1
_LOG_SLOPE: Final = -1.625
_LOG_REST: Final = (-0.0030603788, -0.91728556, -0.1516827, 0.032911163, -0.004603811, 0.00030460127)
_EXP2: Final = (1.0, 0.6931472, 0.24022646, 0.055503376, 0.009618538, 0.0013402393, 0.00015352352)

_ERFC_BORDER: Final = 0.5
_ERFC_NONE: Final = {f32: 10.25, f64: 27.3}  # from here on erfc(x) rounds to 0
_SHIFT: Final = {f32: 0.75, f64: 1.5}
_SCALE: Final = {f32: 2.25, f64: 4.0}
# What G is about for t = 0, and the polynomial for the rest, whose first coefficient makes up for what that lacks.
_G_MIDDLE: Final = {f32: 0.7235672, f64: 0.8432254562445743}
_G: Final = {
    f32: (
        -2.5129125e-09, -0.104773834, -0.0657067, -0.003215189, 0.010119131, 0.0054663834, 0.00068421365,
        -0.0010001104, -0.0009478214, -0.0003238268, 0.00017099931, 0.0001477475,
    ),
    f64: (
        -2.4258497207203713e-17, -0.3463320923921404, 0.06014217251718738, 0.014246489154543044, -0.006175205019842384, -0.0018217517893939392,
        0.0006255503738297311, 0.0003755997682055479, -1.996543681370112e-05, -7.235430869247929e-05, -1.8869247879110316e-05, 7.999705238462922e-06,
        7.152236775847826e-06, 1.2425866472446042e-06, -1.1010742088967048e-06, -8.354633923256047e-07, -1.5467473556600247e-07, 1.3586831664595288e-07,
        1.2269188327268436e-07, 3.069878555758535e-08, -2.1676019589238133e-08, -1.9387439376753946e-08, -1.9816105714610255e-09, 3.1404992731013838e-09,
        1.013888267583801e-09,
    ),
}  # fmt: skip


def erf(m: MathBuilder, x: Atom) -> Atom:
    """The error function: odd, -0 for -0, 1 for infinity."""
    magnitude = m("abs", x)
    near = m("fma", magnitude, _erf_tail(m, magnitude), magnitude)
    bounded = m("min", magnitude, _ERF_ONE[x.type])
    far = _erf_far(m, bounded) if x.type is f32 else m("sub", 1.0, _erfc_far(m, bounded))
    # The comparison is false for NaN, and `near` NaN.
    return with_sign_of(m, m("select", m("gt", magnitude, _ERF_BORDER), far, near), x)


def erfc(m: MathBuilder, x: Atom) -> Atom:
    """1 - erf(x): 2 for -infinity, subnormal from 9.1945 on, 0 from 10.0545 on; of f64 from 26.543258454250987 and 27.226017111108366."""
    magnitude = m("abs", x)
    head, lost = sum_of(m, 1.0, m("neg", x))
    near = m("add", head, m("fma", m("neg", x), _erf_tail(m, magnitude), lost))
    far = _erfc_far(m, m("min", magnitude, _ERFC_NONE[x.type]))
    far = m("select", m("lt", x, 0.0), m("sub", 2.0, far), far)
    # The comparison is false for NaN, and `near` NaN.
    return m("select", m("gt", magnitude, _ERFC_BORDER), far, near)


def _erf_tail(m: MathBuilder, x: Atom) -> Atom:
    """erf(x)/x - 1 for |x| <= 1."""
    return m.polynomial(m("fma", x, x, -_ERF_MIDDLE), _ERF_TAIL[x.type])


def _erf_far(m: MathBuilder, x: Atom) -> Atom:
    """erf(x) for an f32 from 1 to 3.93."""
    rest = m.polynomial(x, _LOG_REST)
    n = m("round", m("fma", x, rest, m("mul", x, _LOG_SLOPE)))
    r = m("fma", x, rest, m("fma", x, _LOG_SLOPE, m("neg", n)))
    missing = power_of_two(m, m.cast(n, i32), f32)
    return m("fma", m("neg", missing), m.polynomial(r, _EXP2), 1.0)


def _erfc_far(m: MathBuilder, x: Atom) -> Atom:
    """erfc(x) for 1/2 <= x <= 10.25, of f64 27.3."""
    (e, e_low), n = _exp_of_minus_square(m, x)
    # Exact for an x above the shift too, since no digit of the sum before the point is lost.
    d, d_low = sum_of(m, _SHIFT[x.type], x)
    inverse = m("div", 1.0, d)
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
    middle, scale = _G_MIDDLE[d.type], _SCALE[d.type]
    low_term, slope_term, *tail = _G[d.type]
    t = m("fma", inverse, -scale, 1.0)
    if d.type is f32:
        rest = m.polynomial(t, (slope_term, *tail))
        g = m("fma", t, rest, middle)
        return g, m("add", m("fma", t, rest, m("sub", middle, g)), low_term)
    # The steeper slope of f64 needs t in two parts. What the inverse has too much, relative to it, and so -scale * inverse too little:
    surplus = m("fma", inverse, d_low, m("fma", inverse, d, -1.0))
    t_low = m("add", m("fma", inverse, -scale, m("sub", 1.0, t)), m("mul", m("mul", inverse, scale), surplus))
    slope, slope_lost = product(m, t, slope_term)
    head, lost = sum_of(m, middle, slope)
    low = m("fma", t_low, slope_term, m("add", lost, m("add", slope_lost, low_term)))
    return sum_of(m, head, m("fma", m("mul", t, t), m.polynomial(t, tail), low))


def _exp_of_minus_square(m: MathBuilder, x: Atom) -> tuple[Pair, Atom]:
    """exp(-x^2) as a pair, times 2 to the power of an integer: for x <= 11, of f64 28."""
    square, lost = product(m, x, x)
    n, r, r_low = reduced(m, m("neg", square))
    head, head_lost = sum_of(m, 1.0, r)
    tail = m("fma", m("mul", r, r), m.polynomial(r, EXPM1_TAIL[x.type]), m("add", head_lost, r_low))
    e, e_low = sum_of(m, head, tail)
    # Times exp(-lost), which is 1 - lost to 2^-37, of f64 2^-88.
    return (e, m("fma", m("neg", lost), e, e_low)), n
