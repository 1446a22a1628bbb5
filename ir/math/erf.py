"""erf and erfc for f32: every argument; at most 1 ULP (0.963 and 0.959 observed, over every argument there is), subnormal results of erfc
included.

erf(x) is x + x P(x^2) where that is accurate. Beyond, it is 1 - 2^y(x) with a polynomial for y = log2(erfc(x)), of which the linear term is
kept apart so that it is not rounded (after N. Juffa's erff, 2018, which has another polynomial and exp).

erfc(x) is 1 - erf(x) for |x| < 1/2. Beyond, it is exp(-x^2) G(t) / (x + 3/4) with a polynomial for G(t) = exp(x^2) erfc(x) (x + 3/4), which varies
little, in t = 1 - 9/4 / (x + 3/4) (M. M. Shepherd and J. G. Laframboise, Chebyshev approximation of (1 + 2x) exp(x^2) erfc x, 1981). x^2, the
exponential, G, x + 3/4 and the quotient are all kept in two parts, since each of their roundings would count alike. 2 - that for negative x.

Coefficients: own Remez fits, rounded to f32 with a local search over neighbouring values: erf(r)/r - 1 in r^2 for r <= 1, 0.038 ULP
of erf; y(x)/x for 0.99 <= x <= 3.93, 0.046 ULP of erf; 2^r for |r| <= 1/2, 0.02 ULP of erf; G, 0.050 ULP of erfc; the exponential as in `expm1`.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.types import i32
from vyre_py.ir.math.builder import MathBuilder, float_
from vyre_py.ir.math.exp import power_of_two, reduced, scaled
from vyre_py.ir.math.pairs import Pair, product, sum_of
from vyre_py.ir.math.signs import with_sign_of

__all__ = ["erf", "erfc"]

_ERF_MIDDLE: Final = 0.5  # of x^2
_ERF_TAIL: Final = (-0.03453126, -0.2810722, 0.07940999, -0.018283324, 0.0034802915, -0.0005654505, 7.854658e-05)
_ERF_BORDER: Final = 1.0
_ERF_ONE: Final = 3.93  # from here on erf(x) rounds to 1
_LOG_SLOPE: Final = -1.625
_LOG_REST: Final = (-0.0030603788, -0.91728556, -0.1516827, 0.032911163, -0.004603811, 0.00030460127)
_EXP2: Final = (1.0, 0.6931472, 0.24022646, 0.055503376, 0.009618538, 0.0013402393, 0.00015352352)

_ERFC_BORDER: Final = 0.5
_ERFC_NONE: Final = 10.25  # from here on erfc(x) rounds to 0
_SHIFT, _SCALE = 0.75, 2.25
_G_HIGH, _G_LOW = 0.7235672, -2.5129125e-09
_G: Final = (
    -0.104773834, -0.0657067, -0.003215189, 0.010119131, 0.0054663834, 0.00068421365,
    -0.0010001104, -0.0009478214, -0.0003238268, 0.00017099931, 0.0001477475,
)  # fmt: skip

_EXP_TAIL: Final = (0.5, 0.16666666, 0.041666493, 0.008333546, 0.0013932325, 0.00019761804)


def erf(m: MathBuilder, x: Atom) -> Atom:
    """The error function: odd, -0 for -0, 1 for infinity."""
    magnitude = m("abs", x)
    near = m("fma", magnitude, _erf_tail(m, magnitude), magnitude)
    bounded = m("min", magnitude, float_(_ERF_ONE))
    rest = m.polynomial(bounded, _LOG_REST)
    n = m("round", m("fma", bounded, rest, m("mul", bounded, float_(_LOG_SLOPE))))
    r = m("fma", bounded, rest, m("fma", bounded, float_(_LOG_SLOPE), m("neg", n)))
    missing = power_of_two(m, m.cast(n, i32))
    far = m("fma", m("neg", missing), m.polynomial(r, _EXP2), float_(1.0))
    # The comparison is false for NaN, and `near` NaN.
    return with_sign_of(m, m("select", m("gt", magnitude, float_(_ERF_BORDER)), far, near), x)


def erfc(m: MathBuilder, x: Atom) -> Atom:
    """1 - erf(x): 2 for -infinity, subnormal from 9.1945 on, 0 from 10.0545 on."""
    magnitude = m("abs", x)
    head, lost = sum_of(m, float_(1.0), m("neg", x))
    near = m("add", head, m("fma", m("neg", x), _erf_tail(m, magnitude), lost))
    far = _erfc_far(m, m("min", magnitude, float_(_ERFC_NONE)))
    far = m("select", m("lt", x, float_(0.0)), m("sub", float_(2.0), far), far)
    # The comparison is false for NaN, and `near` NaN.
    return m("select", m("gt", magnitude, float_(_ERFC_BORDER)), far, near)


def _erf_tail(m: MathBuilder, x: Atom) -> Atom:
    """erf(x)/x - 1 for |x| <= 1."""
    return m.polynomial(m("fma", x, x, float_(-_ERF_MIDDLE)), _ERF_TAIL)


def _erfc_far(m: MathBuilder, x: Atom) -> Atom:
    """erfc(x) for 1/2 <= x <= 10.25."""
    (e, e_low), n = _exp_of_minus_square(m, x)
    # Exact for x > 1 too, since no digit of the sum before the point is lost.
    d, d_low = sum_of(m, float_(_SHIFT), x)
    inverse = m("div", float_(1.0), d)
    t = m("fma", inverse, float_(-_SCALE), float_(1.0))
    rest = m.polynomial(t, _G)
    g = m("fma", t, rest, float_(_G_HIGH))
    g_low = m("add", m("fma", t, rest, m("sub", float_(_G_HIGH), g)), float_(_G_LOW))
    # The product, then the quotient, each with what it lacks.
    p, p_lost = product(m, e, g)
    p_low = m("fma", e, g_low, m("fma", e_low, g, p_lost))
    quotient = m("mul", p, inverse)
    minus = m("neg", quotient)
    residual = m("fma", minus, d_low, m("add", m("fma", minus, d, p), p_low))
    return scaled(m, m("fma", residual, inverse, quotient), n)


def _exp_of_minus_square(m: MathBuilder, x: Atom) -> tuple[Pair, Atom]:
    """exp(-x^2) as a pair, times 2 to the power of an i32: for x <= 11."""
    square, lost = product(m, x, x)
    n, r, r_low = reduced(m, m("neg", square))
    head, head_lost = sum_of(m, float_(1.0), r)
    tail = m("fma", m("mul", r, r), m.polynomial(r, _EXP_TAIL), m("add", head_lost, r_low))
    e, e_low = sum_of(m, head, tail)
    # Times exp(-lost), which is 1 - lost to 2^-37.
    return (e, m("fma", m("neg", lost), e, e_low)), n
