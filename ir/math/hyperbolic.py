"""sinh, cosh and tanh: every argument.

| function | bound | worst seen of f32 |
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

Coefficients, relative to the function: (sinh(r)/r - 1)/r^2 and (cosh(r) - 1)/r^2 in r^2 for |r| <= ln(2)/2, each at most 0.002 ULP;
(tanh(x)/x - 1)/x^2 in x^2 for |x| <= 0.36, 0.011 ULP of f32 and 0.002 of f64. Those of f32 are own minimax fits, rounded one after another.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.types import Type, f32, f64
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.exp import exp_parts, power_of_two, reduced, scaled
from vyre_py.ir.math.pairs import sum_of
from vyre_py.ir.math.words import FORMATS, with_sign_of

__all__ = ["cosh", "sinh", "tanh"]

_SINH_TAIL: Final = {
    f32: (0.16666667, 0.008333175, 0.00019974096),
    f64: (0.16666666666666666, 0.008333333333334216, 0.00019841269838320722, 2.755732370662569e-06, 2.504892700232509e-08, 1.6924747587195934e-10),
}
_COSH_TAIL: Final = {
    f32: (0.5, 0.04166646, 0.001393543),
    f64: (0.5, 0.041666666666666685, 0.0013888888888873325, 2.4801587349048743e-05, 2.755725200191869e-07, 2.0921700197794066e-09),
}
_TANH_TAIL: Final = {
    f32: (-0.3333332, 0.1333223, -0.053701263, 0.0193133),
    f64: (
        -0.33333333333333315, 0.1333333333332742, -0.05396825396183736, 0.02186948819637625, -0.008863225364710119, 0.0035919441615801092,
        -0.0014537773128510288, 0.0005760305706565685, -0.00018519653586942137,
    ),
}  # fmt: skip

_MOST: Final = {f32: 90.0, f64: 711.0}  # their sinh and cosh are above 2^128 and 2^1024
_TANH_MOST: Final = {f32: 10.0, f64: 20.0}  # their tanh rounds to 1
_TANH_BREAK: Final = 0.36


def sinh(m: MathBuilder, x: Atom) -> Atom:
    """The hyperbolic sine: odd, -0 for -0, infinite from 89.41599 on, of f64 710.4758600739439."""
    n, r, low = _reduced(m, x)
    square, odd = _odd(m, r)
    large = _half_sum(m, n, _quarter(m, n, x.type), r, low, square, odd)
    size = m("select", m("eq", n, 0), m("add", r, odd), large)
    return _or_nan(m, x, with_sign_of(m, size, x))


def cosh(m: MathBuilder, x: Atom) -> Atom:
    """The hyperbolic cosine: even, infinite from 89.41599 on, of f64 710.4758600739439."""
    n, r, low = _reduced(m, x)
    square, odd = _odd(m, r)
    return _or_nan(m, x, _half_sum(m, n, m("neg", _quarter(m, n, x.type)), r, low, square, odd))


def tanh(m: MathBuilder, x: Atom) -> Atom:
    """The hyperbolic tangent: odd, -0 for -0, 1 from 9.01092 on, of f64 19.06154746539849."""
    size = m("abs", x)
    square = m("mul", size, size)
    small = m("fma", m("mul", size, square), m.polynomial(square, _TANH_TAIL[x.type]), size)
    large = _above(m, m("min", m("add", size, size), 2 * _TANH_MOST[x.type]))
    # The polynomial keeps a NaN.
    return with_sign_of(m, m("select", m("ge", size, _TANH_BREAK), large, small), x)


def _above(m: MathBuilder, x: Atom) -> Atom:
    """tanh(x / 2) = 1 - 2 / (exp(x) + 1) for 0.72 <= x <= 20, of f64 40, with what each step loses."""
    n, head, tail = exp_parts(m, x)
    form = FORMATS[x.type]
    scale = m.bitcast(m("shl", m("add", n, form.bias), form.fraction), x.type)
    below: Atom = m("fma", head, scale, 1.0)
    below_lost: Atom = m("sub", 1.0, m("fma", m("neg", head), scale, below))
    below, below_lost = sum_of(m, below, m("fma", tail, scale, below_lost))
    # Clamped for targets that divide without a branch by what lies between constants: it is from 3 to 5e8, of f64 3e17.
    share = m("div", 1.0, m("clamp", below, 1.0, 2.0**64))
    minus = m("neg", share)
    quotient = m("mul", share, -2.0)
    start, lost = sum_of(m, 1.0, quotient)
    # 1 / below lacks -error / below, which is nearly -error * share.
    error = m("fma", minus, below_lost, m("fma", minus, below, 1.0))
    return m("add", start, m("fma", error, quotient, lost))


def _reduced(m: MathBuilder, x: Atom) -> tuple[Atom, Atom, Atom]:
    """n as an integer, and r in two parts, for |x| where that does not overflow the result."""
    return reduced(m, m("min", m("abs", x), _MOST[x.type]))


def _quarter(m: MathBuilder, n: Atom, type_: Type) -> Atom:
    """4^-n."""
    return power_of_two(m, m("mul", n, -2), type_)


def _odd(m: MathBuilder, r: Atom) -> tuple[Atom, Atom]:
    """r^2, and sinh(r) - r."""
    square = m("mul", r, r)
    return square, m("mul", m("mul", r, square), m.polynomial(square, _SINH_TAIL[r.type]))


def _half_sum(m: MathBuilder, n: Atom, b: Atom, r: Atom, low: Atom, square: Atom, odd: Atom) -> Atom:
    """2^n ((1 - b) cosh(r + low) + (1 + b) sinh(r + low)) / 2."""
    start, start_lost = sum_of(m, 1.0, m("neg", b))
    head, lost = sum_of(m, start, r)
    even = m("mul", square, m.polynomial(square, _COSH_TAIL[r.type]))
    if r.type is f64:  # where the rounding of b r shows
        head, more = sum_of(m, head, m("mul", b, r))
        rest = m("add", start_lost, m("add", lost, more))
    else:
        rest = m("fma", b, r, m("add", start_lost, lost))
    rest = m("fma", m("add", 1.0, b), m("add", odd, low), rest)
    return scaled(m, m("add", head, m("fma", start, even, rest)), m("sub", n, 1))


def _or_nan(m: MathBuilder, x: Atom, result: Atom) -> Atom:
    return m("select", m("is_nan", x), x, result)
