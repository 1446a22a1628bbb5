"""sinh, cosh and tanh for f64: every argument; at most 1 ULP.

Method: that of `ir.math.hyperbolic`. |x| = n ln 2 + r as in `exp`, and 2 sinh |x| = 2^n ((1 - b) cosh r + (1 + b) sinh r) with b = 4^-n; cosh is the
same with -b for b. 1 - b + r + b r is summed with its rounding errors, since the terms of sinh cancel by up to a factor of two for n = 1; for n = 0 sinh r
is taken itself. tanh is a short odd polynomial below 0.36, and 1 - 2 / (exp(2 |x|) + 1) above, with the sum, the quotient and the difference
in two parts each (J.-M. Muller, Elementary Functions, 2016, has both forms).

Coefficients: (sinh(r)/r - 1)/r^2 and (cosh(r) - 1)/r^2 in r^2 for |r| <= ln(2)/2; (tanh(x)/x - 1)/x^2 in x^2 for |x| <= 0.36, each below 0.002 ULP.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.types import i64
from vyre_py.ir.math.builder import MathBuilder, double, long_int
from vyre_py.ir.math.double.exp import exp_parts, power_of_two, reduced, scaled
from vyre_py.ir.math.pairs import sum_of
from vyre_py.ir.math.signs import with_sign_of

__all__ = ["cosh", "sinh", "tanh"]

_SINH_TAIL: Final = (
    0.16666666666666666, 0.008333333333334216, 0.00019841269838320722, 2.755732370662569e-06, 2.504892700232509e-08, 1.6924747587195934e-10,
)  # fmt: skip
_COSH_TAIL: Final = (
    0.5, 0.041666666666666685, 0.0013888888888873325, 2.4801587349048743e-05, 2.755725200191869e-07, 2.0921700197794066e-09,
)  # fmt: skip
_TANH_TAIL: Final = (
    -0.33333333333333315, 0.1333333333332742, -0.05396825396183736, 0.02186948819637625, -0.008863225364710119, 0.0035919441615801092,
    -0.0014537773128510288, 0.0005760305706565685, -0.00018519653586942137,
)  # fmt: skip

_MOST: Final = 711.0  # sinh(711) and cosh(711) are above 2^1024
_TANH_MOST: Final = 20.0  # tanh(20) rounds to 1
_TANH_BREAK: Final = 0.36


def sinh(m: MathBuilder, x: Atom) -> Atom:
    """The hyperbolic sine: odd, -0 for -0, infinite from 710.4758600739439 on."""
    n, r, low = _reduced(m, x)
    square, odd = _odd(m, r)
    large = _half_sum(m, n, _quarter(m, n), r, low, square, odd)
    size = m("select", m("eq", n, long_int(0)), m("add", r, odd), large)
    return _or_nan(m, x, with_sign_of(m, size, x))


def cosh(m: MathBuilder, x: Atom) -> Atom:
    """The hyperbolic cosine: even, infinite from 710.4758600739439 on."""
    n, r, low = _reduced(m, x)
    square, odd = _odd(m, r)
    return _or_nan(m, x, _half_sum(m, n, m("neg", _quarter(m, n)), r, low, square, odd))


def tanh(m: MathBuilder, x: Atom) -> Atom:
    """The hyperbolic tangent: odd, -0 for -0, 1 from 19.06154746539849 on."""
    size = m("abs", x)
    square = m("mul", size, size)
    small = m("fma", m("mul", size, square), m.polynomial(square, _TANH_TAIL), size)
    large = _above(m, m("min", size, double(_TANH_MOST)))
    return _or_nan(m, x, with_sign_of(m, m("select", m("lt", size, double(_TANH_BREAK)), small, large), x))


def _above(m: MathBuilder, x: Atom) -> Atom:
    """tanh(x) = 1 - 2 / (exp(2 x) + 1) for 0.36 <= x <= 20, with what each step loses."""
    one = double(1.0)
    n, head, tail = exp_parts(m, m("add", x, x))
    scale = power_of_two(m, m.cast(n, i64))
    below, below_lost = sum_of(m, m("mul", head, scale), one)
    below, below_lost = sum_of(m, below, m("fma", tail, scale, below_lost))
    quotient = m("div", double(-2.0), below)
    error = m("fma", quotient, below_lost, m("fma", quotient, below, double(2.0)))
    start, lost = sum_of(m, one, quotient)
    # The quotient lacks -error / below, which is nearly error * quotient / 2.
    return m("add", start, m("fma", m("mul", error, double(0.5)), quotient, lost))


def _reduced(m: MathBuilder, x: Atom) -> tuple[Atom, Atom, Atom]:
    """n as an i64, and r in two parts, for |x| where that does not overflow the result."""
    return reduced(m, m("min", m("abs", x), double(_MOST)))


def _quarter(m: MathBuilder, n: Atom) -> Atom:
    """4^-n."""
    return power_of_two(m, m("mul", n, long_int(-2)))


def _odd(m: MathBuilder, r: Atom) -> tuple[Atom, Atom]:
    """r^2, and sinh(r) - r."""
    square = m("mul", r, r)
    return square, m("mul", m("mul", r, square), m.polynomial(square, _SINH_TAIL))


def _half_sum(m: MathBuilder, n: Atom, b: Atom, r: Atom, low: Atom, square: Atom, odd: Atom) -> Atom:
    """2^n ((1 - b) cosh(r + low) + (1 + b) sinh(r + low)) / 2."""
    one = double(1.0)
    start, start_lost = sum_of(m, one, m("neg", b))
    head, lost = sum_of(m, start, r)
    head, more = sum_of(m, head, m("mul", b, r))
    even = m("mul", square, m.polynomial(square, _COSH_TAIL))
    rest = m("fma", m("add", one, b), m("add", odd, low), m("add", start_lost, m("add", lost, more)))
    return scaled(m, m("add", head, m("fma", start, even, rest)), m("sub", n, long_int(1)))


def _or_nan(m: MathBuilder, x: Atom, result: Atom) -> Atom:
    return m("select", m("is_nan", x), x, result)
