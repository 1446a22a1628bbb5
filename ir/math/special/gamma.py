"""lgamma, log |gamma(x)|, for f32: every argument; at most 2 ULP (1.474 observed), next to its roots, too.

* y >= 8: Stirling's formula, (y - 1/2) (log y - 1) + (log(2 pi) - 1) / 2 and a short polynomial in 1 / y^2, over y.
* z below 8, for z = |x|: log gamma(z + 8) - log(z (z + 1) ... (z + 7)), a product of four: with w = z (z + 7) it is w (w + 6) (w + 10) (w + 12).
* x < 0: log(pi / (z |sin(pi z)|)) - log gamma(z) (L. Euler's reflection), by a polynomial for sin(pi f) / (pi f) where f is what z is from a whole number. Its
  logarithm and that of the product are one.
* |x| < 2^-20: -log |x| - gamma x, for Euler's constant gamma.

These terms cancel: so logarithms, products and sums have two parts, and the result is off by some 2^-28, whatever it is. That is enough but where the result is
below 1/16: next to 1, 2 and two roots for every whole number from -2 down, which crowd against the poles there. From -10 on f32 holds no number next to a
root. There log |gamma(r + d)| is d times a polynomial in d, with the root r in two parts, from a table.

Of f64 the roots down to -18 would count, with polynomials thrice as long: that is why there is no lgamma of f64 yet.

Coefficients: `tests/math_coefficients.py`; below 2^-31 in all but the roots' polynomials, which are good to 2^-26 of the result.
"""

from __future__ import annotations

import struct
from typing import Final

from vyre_py.ir.language.nodes import Atom, const
from vyre_py.ir.language.types import f32, u32
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.pairs import Pair, any_sum_of, product, sum_of, times
from vyre_py.ir.math.pow import log2_parts

__all__ = ["lgamma"]

_LN2: Final = (0.6931472, -1.9046543e-09)
_SMALL: Final = 8.0
_TINY: Final = 2.0**-20
_EULER: Final = 0.5772157
_MOST: Final = 4.085003e36  # lgamma of a greater number is infinite
_HALF_LOG: Final = (0.418938547372818, -1.4168144879533884e-08)  # (log(2 pi) - 1) / 2
_STIRLING: Final = (0.083333336, -0.002778352, 0.0008134942)
_SIXTH: Final = 1.644934  # pi^2 / 6, and the first coefficient is what it lacks
_SINE: Final = (5.1112194e-09, -0.81174225, 0.19074853, -0.026120521, 0.0022423149)

# A root and its polynomial's width, with the root and the first coefficient in two parts each: root, root, width, c1, c1, c2, ...
_ROOTS: Final = (
    (-9.000003, 1.05308125e-07, 1.9683678e-07, 362884.5, 0.00370143, 6.5841766e+10, 1.5928438e+16, 4.33494e+21, 1.2654205e+27, 3.8582436e+32),
    (-8.999997, -1.0527393e-07, 1.9683921e-07, -362875.5, 0.003308929, 6.5840132e+10, -1.5927845e+16, 4.334731e+21, -1.2653326e+27, 3.856829e+32),
    (-8.000025, -4.7384554e-09, 1.771448e-06, 40324.28, -0.000117829804, 8.1293754e+08, 2.1852783e+13, 6.608377e+17, 2.143487e+22, 7.260922e+26),
    (-7.999975, 7.371953e-09, 1.771636e-06, -40315.72, 0.00018376892, 8.1276486e+08, -2.1845823e+13, 6.606087e+17, -2.142364e+22, 7.138782e+26),
    (-7.0001984, 3.0850487e-08, 1.4166672e-05, 5044.03, 0.00015896135, 1.2710959e+07, 4.272562e+10, 1.6156482e+14, 6.552794e+17, 2.7626175e+21),
    (-6.9998016, 1.2785155e-07, 1.4178007e-05, -5035.9673, -9.161624e-05, 1.2690641e+07, -4.262322e+10, 1.6105403e+14, -6.526617e+17, 2.7305752e+21),
    (-6.001385, -8.250858e-08, 9.8949604e-05, 723.73663, -2.9450182e-06, 260548.4, 1.2538619e+08, 6.7885576e+10, 3.9418467e+13, 2.3615047e+16),
    (-5.9986076, 1.5541717e-07, 9.946571e-05, -716.2454, -8.492512e-06, 257851.6, -1.23444504e+08, 6.6484912e+10, -3.8406067e+13, 2.3078393e+16),
    (-5.0082183, 1.2009903e-07, 0.00058701204, 123.36218, 2.0187315e-06, 7404.762, 600552.4, 5.4809252e+07, 5.364557e+09, 5.3961687e+11),
    (-4.9915447, 8.295069e-08, 0.00060395425, -116.53578, 1.7358106e-07, 6995.236, -551416.5, 4.89123e+07, -4.653213e+09, 4.5661114e+11),
    (-4.039362, 1.13994815e-07, 0.00281156, 26.790482, -6.6609084e-07, 324.2553, 5465.657, 104150.14, 2.128306e+06, 4.458683e+07),
    (-3.9552944, 8.579265e-08, 0.0031932653, -20.725061, 5.574846e-07, 251.71468, -3730.581, 62589.81, -1.1261542e+06, 2.0843908e+07),
    (-3.143581, 2.519372e-08, 0.010255777, 7.7818847, -7.972367e-09, 25.831339, 112.26827, 588.8717, 3295.2249, 19232.457),
    (-2.7476826, -7.531628e-08, 0.018022668, -1.9143502, -3.595217e-08, 9.57519, -20.095005, 62.625885, -195.83595, 652.56537),
    (-2.4570248, 7.447756e-08, 0.032644626, 1.5156034, 2.5816384e-08, 4.8583207, 1.4112757, 8.72246, 5.8389754, 24.465956),
    (1.0, 0.0, 0.071428575, -0.5772157, 6.038398e-09, 0.822467, -0.40068352, 0.2705825, -0.20849092, 0.16998552),
    (2.0, 0.0, 0.08928572, 0.42278433, 6.6188504e-09, 0.32246703, -0.06735226, 0.020582521, -0.0073999316, 0.0027420383),
)  # fmt: skip
_COLUMNS: Final = len(_ROOTS[0])
# A row for each half from -9.5 to 2.5: none from -2 to 1/2, and 1 and 2 have one on each side.
_FIRST: Final = 19.0
_NONE: Final = (0.0,) * _COLUMNS
_ROWS: Final = (*_ROOTS[:-2], *[_NONE] * 5, *[_ROOTS[-2]] * 2, *[_ROOTS[-1]] * 2)
_TABLE_NAME: Final = "math:lgamma_roots"
_TABLE: Final = struct.unpack(f"<{len(_ROWS) * _COLUMNS}I", struct.pack(f"<{len(_ROWS) * _COLUMNS}f", *[number for row in _ROWS for number in row]))


def lgamma(m: MathBuilder, x: Atom) -> Atom:
    """log |gamma(x)|: infinity for zeros, negative whole numbers and infinities, and above 4.085003e36."""
    z = m("abs", x)
    negative, small, tiny = m("lt", x, 0.0), m("lt", z, _SMALL), m("lt", z, _TINY)
    stirling = _stirling(m, _either(m, small, sum_of(m, _SMALL, z), (z, const(f32, 0.0))))
    base = _either(m, negative, (m("neg", stirling[0]), m("neg", stirling[1])), stirling)
    base = _either(m, tiny, (m("mul", x, -_EULER), const(f32, 0.0)), base)
    log = _log(m, _either(m, tiny, (z, const(f32, 0.0)), _factor(m, z, negative, small)))
    head, lost = any_sum_of(m, base[0], m("neg", log[0]))
    result = _next_to_root(m, x, m("add", head, m("add", lost, m("sub", base[1], log[1]))))
    pole = m("logical_and", m("le", x, 0.0), m("eq", m("round", x), x))
    result = m("select", m("logical_or", pole, m("gt", x, _MOST)), float("inf"), result)
    return m("select", m("is_nan", x), x, result)


def _either(m: MathBuilder, condition: Atom, a: Pair, b: Pair) -> Pair:
    return m("select", condition, a[0], b[0]), m("select", condition, a[1], b[1])


def _log(m: MathBuilder, x: Pair) -> Pair:
    """The natural logarithm."""
    high, low = times(m, log2_parts(m, x[0]), (const(f32, _LN2[0]), const(f32, _LN2[1])))
    return sum_of(m, high, m("add", low, m("div", x[1], x[0])))


def _stirling(m: MathBuilder, y: Pair) -> Pair:
    """log gamma(y) for y >= 8."""
    log, log_low = _log(m, y)
    half, half_low = sum_of(m, y[0], -0.5)
    less, less_low = sum_of(m, log, -1.0)
    head, lost = times(m, (half, m("add", half_low, y[1])), (less, m("add", less_low, log_low)))
    inverse = m("div", 1.0, y[0])
    rest = m("fma", inverse, m.polynomial(m("mul", inverse, inverse), _STIRLING), _HALF_LOG[1])
    total, more = sum_of(m, head, _HALF_LOG[0])
    return sum_of(m, total, m("add", rest, m("add", more, lost)))


def _factor(m: MathBuilder, z: Atom, negative: Atom, small: Atom) -> Pair:
    """What the logarithm is of that is taken from that of gamma(z) or gamma(z + 8), or from its negation."""
    one: Pair = const(f32, 1.0), const(f32, 0.0)
    next_ = sum_of(m, _SMALL - 1.0, z)
    w = times(m, (z, const(f32, 0.0)), next_)
    six, ten, twelve = (_plus(m, w, number) for number in (6.0, 10.0, 12.0))
    upper = times(m, times(m, six, ten), times(m, twelve, _either(m, negative, next_, w)))
    sine = _sine(m, z)
    below = _either(m, small, _over(m, sine, upper), times(m, sine, (z, const(f32, 0.0))))
    return _either(m, negative, below, _either(m, small, upper, one))


def _plus(m: MathBuilder, a: Pair, number: float) -> Pair:
    upper, lost = any_sum_of(m, a[0], const(f32, number))
    return upper, m("add", lost, a[1])


def _over(m: MathBuilder, a: Pair, b: Pair) -> Pair:
    quotient = m("div", a[0], b[0])
    minus = m("neg", quotient)
    return quotient, m("div", m("fma", minus, b[1], m("add", m("fma", minus, b[0], a[0]), a[1])), b[0])


def _sine(m: MathBuilder, z: Atom) -> Pair:
    """|sin(pi z)| / pi."""
    f = m("abs", m("sub", z, m("round", z)))
    low, second, *tail = _SINE
    square = product(m, f, f)
    inner, inner_low = times(m, square, sum_of(m, second, m("mul", square[0], m.polynomial(square[0], tail))))
    loss, loss_low = sum_of(m, _SIXTH, inner)
    part, part_low = times(m, square, (loss, m("add", loss_low, m("add", inner_low, low))))
    head, head_lost = sum_of(m, 1.0, m("neg", part))
    return times(m, (f, const(f32, 0.0)), (head, m("sub", head_lost, part_low)))


def _next_to_root(m: MathBuilder, x: Atom, result: Atom) -> Atom:
    """The result, or where x is next to a root, what the table says."""
    words = m.table(_TABLE_NAME, u32, _TABLE)
    # A float below 0 is 0 as a u32, and NaN is; the last row is said here so that all loads are provably inside the table.
    row = m("min", m.cast(m("floor", m("fma", x, 2.0, _FIRST)), u32), const(u32, len(_ROWS) - 1))
    first = m("mul", row, _COLUMNS)
    root, root_low, width, slope, *tail = [m.bitcast(m.out.load(words, (m("add", first, k),)), f32) for k in range(_COLUMNS)]
    d, lost = any_sum_of(m, m("sub", x, root), m("neg", root_low))
    inner: Atom = tail[-1]
    for number in reversed(tail[:-1]):
        inner = m("fma", inner, d, number)
    slope = m("add", slope, inner)
    near = m("fma", d, slope, m("fma", lost, slope, 0.0))  # whose zero is positive
    return m("select", m("lt", m("abs", d), width), near, result)
