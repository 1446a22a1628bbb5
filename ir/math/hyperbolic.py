"""sinh, cosh and tanh: every argument.

| function | bound | worst seen of f32 |
|---|---|---|
| sinh | 1 ULP | 0.858 |
| cosh | 1 ULP | 0.723 |
| tanh | 1 ULP | 0.640 |

Seen over all f32.

Method of sinh and cosh: |x| = n ln 2 + r as in `exp`, and 2 sinh |x| = 2^n ((1 - b) cosh r + (1 + b) sinh r) with b = 4^-n; cosh is the
same with -b for b. So one pair of short polynomials in r^2 gives both exponentials, and nothing is divided. 1 - b + r is summed with
its rounding errors, since the terms of sinh cancel by up to a factor of two for n = 1; below 0.34, where n = 0, sinh x is x and its odd polynomial.

tanh is a short odd polynomial below 0.36, and 1 - 2 / (exp(2 |x|) + 1) above, with the sum, the quotient and the difference in two parts
each (J.-M. Muller, Elementary Functions, 2016, has both forms).

Small results come from x itself, with its sign. Larger ones are chosen between both signs: 0 and NaN are none of them, and their bits need not be taken apart.

Coefficients, relative to the function: (sinh(r)/r - 1)/r^2 and (cosh(r) - 1)/r^2 in r^2 for |r| <= ln(2)/2, each at most 0.002 ULP;
(tanh(x)/x - 1)/x^2 in x^2 for |x| <= 0.36, 0.011 ULP of f32 and 0.002 of f64. Those of f32 are own minimax fits, rounded one after another.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.types import Type, f32, f64
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.exp import EXP_TAIL, LN2, power_of_two
from vyre_py.ir.math.pairs import nearest, sum_of
from vyre_py.ir.math.words import FORMATS

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

_LOG2_E: Final = 1.4426950408889634
_MOST: Final = {f32: 89.5, f64: 710.5}  # their sinh and cosh are above 2^128 and 2^1024, and n is at most 129 and 1025
_SINH_BREAK: Final = 0.34  # below it n = 0
_TANH_MOST: Final = {f32: 10.0, f64: 20.0}  # their tanh rounds to 1
_TANH_BREAK: Final = 0.36


def sinh(m: MathBuilder, x: Atom) -> Atom:
    """The hyperbolic sine: odd, -0 for -0, infinite from 89.41599 on, of f64 710.4758600739439."""
    size = m("abs", x)
    n, terms = _terms(m, size)
    large = _half_sum(m, n, _quarter(m, n, x.type), terms)
    # Where n = 0 the square is that of x: with its sign, and a NaN stays one.
    small = m("fma", x, terms.odd, x)
    return m("select", m("ge", size, _SINH_BREAK), _signed(m, large, x), small)


def cosh(m: MathBuilder, x: Atom) -> Atom:
    """The hyperbolic cosine: even, infinite from 89.41599 on, of f64 710.4758600739439."""
    n, terms = _terms(m, m("abs", x))
    return m("select", m("is_nan", x), x, _half_sum(m, n, m("neg", _quarter(m, n, x.type)), terms))


def tanh(m: MathBuilder, x: Atom) -> Atom:
    """The hyperbolic tangent: odd, -0 for -0, 1 from 9.01092 on, of f64 19.06154746539849."""
    size = m("abs", x)
    square = m("mul", x, x)
    # The cube of -0 is 0 here, so that its product with the polynomial, which is below 0, leaves -0 as it is. A NaN stays one.
    small = m("fma", m("fma", x, square, 0.0), m.polynomial(square, _TANH_TAIL[x.type]), x)
    return m("select", m("ge", size, _TANH_BREAK), _signed(m, _above(m, m("min", size, _TANH_MOST[x.type])), x), small)


def _signed(m: MathBuilder, size: Atom, x: Atom) -> Atom:
    """`size`, which is above 0, with the sign of x."""
    return m("select", m("lt", x, 0.0), m("neg", size), size)


def _above(m: MathBuilder, x: Atom) -> Atom:
    """tanh(x) for 0.36 <= x <= 10, of f64 20.

    2x = n ln 2 + r, b = 2^-n, and tanh(x) = 1 - b / d with d = (1 + b + expm1(r)) / 2, where halves stand for the doubled argument. The sum, the quotient and
    the difference have two parts each; 1 + b is rounded only where b is too small to be seen.
    """
    high, low = LN2[x.type]
    form = FORMATS[x.type]
    whole, n = nearest(m, m("mul", x, -2.0 * _LOG2_E))  # of the other sign: b is a shift and an addition
    half = m("fma", whole, low / 2, m("fma", whole, high / 2, x))
    b = m.bitcast(m("shl", m("add", n, form.bias), form.fraction), x.type)
    tail = [coefficient * 2.0 ** (k + 1) for k, coefficient in enumerate(EXP_TAIL[x.type])]
    square, curved = m("mul", half, half), m.polynomial(half, tail)
    start = m("fma", b, 0.5, 0.5)
    below = m("add", start, m("fma", square, curved, half))
    # What the sum and its second term were rounded by, at once.
    below_lost = m("fma", square, curved, m("sub", half, m("sub", below, start)))
    # Clamped for targets that divide without a branch by what lies between constants: it is from 0.35 to 0.96.
    share = m("div", 1.0, m("clamp", below, 0.25, 1.0))
    minus = m("neg", share)
    quotient = m("mul", minus, b)
    head, lost = sum_of(m, 1.0, quotient)
    # 1 / below lacks -error / below, which is nearly -error * share.
    error = m("fma", minus, below_lost, m("fma", minus, below, 1.0))
    return m("add", head, m("fma", error, quotient, lost))


class _Terms(NamedTuple):
    """r = first + low, r^2, sinh(r)/r - 1 and cosh(r) - 1."""

    first: Atom
    low: Atom
    r: Atom
    odd: Atom
    even: Atom


def _terms(m: MathBuilder, size: Atom) -> tuple[Atom, _Terms]:
    """n as an integer, and what is made of r, for |x| where that does not overflow the result."""
    high, low = LN2[size.type]
    inside = m("min", size, _MOST[size.type])
    whole, n = nearest(m, m("mul", inside, _LOG2_E))
    first = m("fma", whole, -high, inside)
    r = m("fma", whole, -low, first)
    square = m("mul", r, r)
    odd = m("mul", square, m.polynomial(square, _SINH_TAIL[size.type]))
    even = m("mul", square, m.polynomial(square, _COSH_TAIL[size.type]))
    return n, _Terms(first, m("mul", whole, -low), r, odd, even)


def _quarter(m: MathBuilder, n: Atom, type_: Type) -> Atom:
    """4^-n."""
    return power_of_two(m, m("mul", n, -2), type_)


def _half_sum(m: MathBuilder, n: Atom, b: Atom, terms: _Terms) -> Atom:
    """2^n ((1 - b) cosh(r) + (1 + b) sinh(r)) / 2."""
    form = FORMATS[b.type]
    start, start_lost = sum_of(m, 1.0, m("neg", b))
    head, lost = sum_of(m, start, terms.first)
    if b.type is f64:  # where the rounding of b r shows
        head, more = sum_of(m, head, m("mul", b, terms.first))
        rest = m("add", start_lost, m("add", lost, more))
    else:
        rest = m("fma", b, terms.first, m("add", start_lost, lost))
    rest = m("fma", m("add", 1.0, b), m("fma", terms.r, terms.odd, terms.low), rest)
    total = m("add", head, m("fma", start, terms.even, rest))
    # 2^(n - 1) may be above all numbers, and the sum is never so small that the first product would be subnormal.
    quarter = m.bitcast(m("shl", m("add", n, form.bias - 2), form.fraction), b.type)
    return m("mul", m("mul", total, quarter), 2.0)
