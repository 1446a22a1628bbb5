"""erf, erfc and erfcx: every argument; at most 1 ULP (of f32 erf 0.963 and erfc 0.959 observed, over every argument there is), and 2 of erfcx (of f32 1.147
observed, over every argument, on an H200), subnormal results included.

erf(x) is x + x P(x^2) where that is accurate. Beyond, that of f32 is 1 - 2^y(x) with a polynomial for y = log2(erfc(x)), of which the linear term is
kept apart so that it is not rounded (after N. Juffa's erff, 2018, which has another polynomial and exp). That of f64, for which such a polynomial would be
long, is 1 - erfc(x).

erfc(x) is 1 - erf(x) for |x| < 1/2. Beyond, it is exp(-x^2) G(t) / (x + c) with a polynomial for G(t) = exp(x^2) erfc(x) (x + c), which varies
little, in t = 1 - 3 c / (x + c) with c = 3/4, and of f64 1 - 4 / (x + c) with c = 3/2 (M. M. Shepherd and J. G. Laframboise, Chebyshev approximation of
(1 + 2x) exp(x^2) erfc x, 1981). x^2, the exponential, G, x + c and the quotient are all kept in two parts, since each of their roundings would
count alike. 2 - that for negative x.

erfcx(x) is G(t) / (x + c) for x >= 0, with c = 2, t = 1 - 4 / (x + c) and a polynomial for all t, in the same parts; 1 / (sqrt(pi) x) beyond 2^14, of f64 2^28,
where the next term of its series is lost. For x < 0 it is 2 exp(x^2) - erfcx(-x), with the exponential in two parts.

Coefficients of f32: own Remez fits, rounded to f32 with a local search over neighbouring values: erf(r)/r - 1 in r^2 for r <= 1, 0.038 ULP
of erf; y(x)/x for 0.99 <= x <= 3.93, 0.046 ULP of erf; 2^r for |r| <= 1/2, 0.02 ULP of erf; G, 0.050 ULP of erfc. Of f64: erf(x)/x - 1, 0.016 ULP of erf;
G, 0.030 ULP of erfc. Those of erfcx, 0.022 and 0.053 ULP. The exponential is that of `expm1`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.types import f32, f64, i32
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.exp import EXPM1_TAIL, power_of_two, reduced, scaled
from vyre_py.ir.math.pairs import Pair, product, sum_of
from vyre_py.ir.math.words import with_sign_of

__all__ = ["erf", "erfc", "erfcx"]

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

_SHIFT_SCALED: Final = 2.0
_G_SCALED_MIDDLE: Final = {f32: 1.0215827, f64: 1.021582705242023}
_G_SCALED: Final = {
    f32: (
        -1.7847526e-08, -0.6871607, 0.2794721, -0.036442682, -0.021510804, 0.00648325, 0.0030906056, -0.00085301837, -0.00066114555, 6.489955e-05,
        0.00013984299, 3.0151493e-06, -1.852579e-05,
    ),
    f64: (
        -1.8535287921200992e-17, -0.6871606844138105, 0.2794720925560554, -0.03644223150688761, -0.021510661889535595, 0.006479185068034994,
        0.0030906120607441024, -0.0008372960673326756, -0.0006630735303357085, 3.437148037495624e-05, 0.0001444709820214602, 3.414864986745911e-05,
        -2.1697570019733037e-05, -1.612001164571685e-05, -1.1205129475398596e-06, 3.6414738032996995e-06, 1.989285861826367e-06, 6.317278857495949e-09,
        -5.494280188847059e-07, -3.300145993217021e-07, -2.9640185494926617e-08, 1.1532290536374155e-07, 7.990788350697491e-08, -1.2753185573333345e-08,
        -3.135612449935267e-08, -2.44824630131425e-09, 6.209426566524341e-09, 6.773209169980635e-10, -5.429702129438276e-10,
    ),
}  # fmt: skip
_ERFCX_FAR: Final = {f32: 2.0**14, f64: 2.0**28}
_ERFCX_MOST: Final = {f32: 9.5, f64: 26.7}  # erfcx of minus that is infinite
_INVERSE_ROOT_PI: Final = 0.5641895835477563
_INVERSE_ROOT_PI_LACKS: Final = {f32: -5.1964253e-08, f64: 1.3590697223380941e-17}  # relative to it as rounded


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


def erfcx(m: MathBuilder, x: Atom) -> Atom:
    """exp(x^2) erfc(x): infinity below -9.382415, of f64 -26.628735713751492, 0 for infinity."""
    magnitude = m("abs", x)
    near = m("min", magnitude, _ERFCX_FAR[x.type])
    d, d_low = sum_of(m, _SHIFT_SCALED, near)
    inverse = m("div", 1.0, d)
    t, t_low = _parameter(m, d, d_low, inverse, 2 * _SHIFT_SCALED)
    middle, factors = _G_SCALED_MIDDLE[x.type], _G_SCALED[x.type]
    derivative = m.polynomial(t, [k * factors[k] for k in (1, 2, 3)])
    above = _over(m, _g(m, (t, t_low), middle, factors, derivative), (d, d_low), inverse)
    far = m("div", _INVERSE_ROOT_PI, magnitude)
    far = m("fma", far, _INVERSE_ROOT_PI_LACKS[x.type], far)
    above = m("select", m("gt", magnitude, _ERFCX_FAR[x.type]), far, above)
    # 2^n (2 e - 2^-n erfcx(-x)).
    square, square_lost = product(m, *[m("min", magnitude, _ERFCX_MOST[x.type])] * 2)
    (e, e_low), n = _exp(m, square, square_lost)
    other = m("mul", above, power_of_two(m, m("neg", n), x.type))
    head, lost = sum_of(m, m("add", e, e), m("neg", other))
    below = scaled(m, m("add", head, m("fma", e_low, 2.0, lost)), n)
    return m("select", m("is_nan", x), x, m("select", m("lt", x, 0.0), below, above))


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
    square, lost = product(m, x, x)
    (e, e_low), n = _exp(m, m("neg", square), m("neg", lost))
    # Exact for an x above the shift too, since no digit of the sum before the point is lost.
    d, d_low = sum_of(m, _SHIFT[x.type], x)
    inverse = m("div", 1.0, d)
    middle, scale, factors = _G_MIDDLE[x.type], _SCALE[x.type], _G[x.type]
    if x.type is f32:
        g, g_low = _flat_g(m, m("fma", inverse, -scale, 1.0), middle, factors)
    else:  # whose slope is steeper
        g, g_low = _g(m, _parameter(m, d, d_low, inverse, scale), middle, factors, factors[1])
    p, p_lost = product(m, e, g)
    p_low = m("fma", e, g_low, m("fma", e_low, g, p_lost))
    return scaled(m, _over(m, (p, p_low), (d, d_low), inverse), n)


def _over(m: MathBuilder, p: Pair, d: Pair, inverse: Atom) -> Atom:
    """p / d, with the inverse of the upper part of d."""
    quotient = m("mul", p[0], inverse)
    minus = m("neg", quotient)
    residual = m("fma", minus, d[1], m("add", m("fma", minus, d[0], p[0]), p[1]))
    return m("fma", residual, inverse, quotient)


def _parameter(m: MathBuilder, d: Atom, d_low: Atom, inverse: Atom, scale: float) -> Pair:
    """t = 1 - scale / d in two parts, for a d in two parts and the inverse of its upper one."""
    t = m("fma", inverse, -scale, 1.0)
    # What the inverse has too much, relative to it, and so -scale * inverse too little.
    surplus = m("fma", inverse, d_low, m("fma", inverse, d, -1.0))
    return t, m("add", m("fma", inverse, -scale, m("sub", 1.0, t)), m("mul", m("mul", inverse, scale), surplus))


def _flat_g(m: MathBuilder, t: Atom, middle: float, factors: Sequence[float]) -> Pair:
    """As `_g` gives it, but for what t lacks."""
    low_term, *tail = factors
    rest = m.polynomial(t, tail)
    g = m("fma", t, rest, middle)
    return g, m("add", m("fma", t, rest, m("sub", middle, g)), low_term)


def _g(m: MathBuilder, t: Pair, middle: float, factors: Sequence[float], derivative: Atom | float) -> Pair:
    """G in two parts: what it is about for t = 0, and a polynomial, whose first coefficient makes up for what that lacks."""
    low_term, slope_term, *tail = factors
    slope, slope_lost = product(m, t[0], slope_term)
    head, lost = sum_of(m, middle, slope)
    low = m("fma", t[1], derivative, m("add", lost, m("add", slope_lost, low_term)))
    return sum_of(m, head, m("fma", m("mul", t[0], t[0]), m.polynomial(t[0], tail), low))


def _exp(m: MathBuilder, x: Atom, low: Atom) -> tuple[Pair, Atom]:
    """exp(x + low) as a pair, times 2 to the power of an integer: for |x| <= 121, of f64 784, and a low that x rounded off."""
    n, r, r_low = reduced(m, x)
    head, head_lost = sum_of(m, 1.0, r)
    tail = m("fma", m("mul", r, r), m.polynomial(r, EXPM1_TAIL[x.type]), m("add", head_lost, r_low))
    e, e_low = sum_of(m, head, tail)
    # Times exp(low), which is 1 + low to 2^-37, of f64 2^-88.
    return (e, m("fma", low, e, e_low)), n
