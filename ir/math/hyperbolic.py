"""sinh, cosh and tanh for f32: every argument.

| function | bound | worst seen |
|---|---|---|
| sinh | 1 ULP | 0.860 |
| cosh | 1 ULP | 0.731 |
| tanh | 1 ULP | 0.665 |

Seen over every 17th of all f32, and over all of those from 1/4 to 10 and from 32 to 160 of both signs.

Method of sinh and cosh: |x| = n ln 2 + r as in `exp`, and 2 sinh |x| = 2^n ((1 - b) cosh r + (1 + b) sinh r) with b = 4^-n; cosh is the
same with -b for b. So one pair of short polynomials in r^2 gives both exponentials, and nothing is divided. 1 - b + r is summed with
its rounding errors, since the terms of sinh cancel by up to a factor of two for n = 1; for n = 0 sinh r is taken itself.

tanh is a short odd polynomial below 0.36, and 1 - 2 / (exp(2 |x|) + 1) above, with the sum, the quotient and the difference in two parts
each (J.-M. Muller, Elementary Functions, 2016, has both forms).

Coefficients: own minimax fits, rounded to f32 one after another, relative to the function: (sinh(r)/r - 1)/r^2, 0.001 ULP, and
(cosh(r) - 1)/r^2, 0.002 ULP, in r^2 for |r| <= ln(2)/2; (tanh(x)/x - 1)/x^2 in x^2 for |x| <= 0.36, 0.011 ULP.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.types import i32
from vyre_py.ir.math.builder import MathBuilder, float_, int_
from vyre_py.ir.math.exp import exp_parts, power_of_two, reduced, scaled
from vyre_py.ir.math.pairs import sum_of
from vyre_py.ir.math.signs import with_sign_of

__all__ = ["cosh", "sinh", "tanh"]

_SINH_TAIL: Final = (0.16666667, 0.008333175, 0.00019974096)
_COSH_TAIL: Final = (0.5, 0.04166646, 0.001393543)
_TANH_TAIL: Final = (-0.3333332, 0.1333223, -0.053701263, 0.0193133)

_MOST: Final = 90.0  # sinh(90) and cosh(90) are above 2^128
_TANH_MOST: Final = 10.0  # tanh(10) rounds to 1
_TANH_BREAK: Final = 0.36


def sinh(m: MathBuilder, x: Atom) -> Atom:
    """The hyperbolic sine: odd, -0 for -0, infinite from 89.41599 on."""
    n, r, low = _reduced(m, x)
    square, odd = _odd(m, r)
    large = _half_sum(m, n, _quarter(m, n), r, low, square, odd)
    size = m("select", m("eq", n, int_(0)), m("add", r, odd), large)
    return _or_nan(m, x, with_sign_of(m, size, x))


def cosh(m: MathBuilder, x: Atom) -> Atom:
    """The hyperbolic cosine: even, infinite from 89.41599 on."""
    n, r, low = _reduced(m, x)
    square, odd = _odd(m, r)
    return _or_nan(m, x, _half_sum(m, n, m("neg", _quarter(m, n)), r, low, square, odd))


def tanh(m: MathBuilder, x: Atom) -> Atom:
    """The hyperbolic tangent: odd, -0 for -0, 1 from 9.01092 on."""
    size = m("abs", x)
    square = m("mul", size, size)
    small = m("fma", m("mul", size, square), m.polynomial(square, _TANH_TAIL), size)
    large = _above(m, m("min", size, float_(_TANH_MOST)))
    return _or_nan(m, x, with_sign_of(m, m("select", m("lt", size, float_(_TANH_BREAK)), small, large), x))


def _above(m: MathBuilder, x: Atom) -> Atom:
    """tanh(x) = 1 - 2 / (exp(2 x) + 1) for 0.36 <= x <= 10, with what each step loses."""
    one = float_(1.0)
    n, head, tail = exp_parts(m, m("add", x, x))
    scale = power_of_two(m, m.cast(n, i32))
    below, below_lost = sum_of(m, m("mul", head, scale), one)
    below, below_lost = sum_of(m, below, m("fma", tail, scale, below_lost))
    quotient = m("div", float_(-2.0), below)
    error = m("fma", quotient, below_lost, m("fma", quotient, below, float_(2.0)))
    start, lost = sum_of(m, one, quotient)
    # The quotient lacks -error / below, which is nearly error * quotient / 2.
    return m("add", start, m("fma", m("mul", error, float_(0.5)), quotient, lost))


def _reduced(m: MathBuilder, x: Atom) -> tuple[Atom, Atom, Atom]:
    """n as an i32, and r in two parts, for |x| where that does not overflow the result."""
    return reduced(m, m("min", m("abs", x), float_(_MOST)))


def _quarter(m: MathBuilder, n: Atom) -> Atom:
    """4^-n."""
    return power_of_two(m, m("mul", n, int_(-2)))


def _odd(m: MathBuilder, r: Atom) -> tuple[Atom, Atom]:
    """r^2, and sinh(r) - r."""
    square = m("mul", r, r)
    return square, m("mul", m("mul", r, square), m.polynomial(square, _SINH_TAIL))


def _half_sum(m: MathBuilder, n: Atom, b: Atom, r: Atom, low: Atom, square: Atom, odd: Atom) -> Atom:
    """2^n ((1 - b) cosh(r + low) + (1 + b) sinh(r + low)) / 2."""
    one = float_(1.0)
    start, start_lost = sum_of(m, one, m("neg", b))
    head, lost = sum_of(m, start, r)
    even = m("mul", square, m.polynomial(square, _COSH_TAIL))
    rest = m("fma", b, r, m("add", start_lost, lost))
    rest = m("fma", m("add", one, b), m("add", odd, low), rest)
    return scaled(m, m("add", head, m("fma", start, even, rest)), m("sub", n, int_(1)))


def _or_nan(m: MathBuilder, x: Atom, result: Atom) -> Atom:
    return m("select", m("is_nan", x), x, result)
