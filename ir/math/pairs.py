"""Sums of two f32, or of two f64, that stand for more bits than one holds: the upper part is the sum rounded to the type, the lower what that lost;
and the root of a sum of squares that they make exact.

T. J. Dekker, A floating-point technique for extending the available precision (1971); the products by fused multiply-add.
Compilers that take numbers for exact would cancel both: `lowering.wgsl.rounding` knows their form.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

from vyre_py.ir.language.nodes import Atom, Value, const
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.words import FORMATS

__all__ = ["Pair", "Scales", "any_sum_of", "nearest", "norm", "product", "sum_of", "times"]

Pair = tuple[Atom, Atom]


def sum_of(m: MathBuilder, a: Atom | float, b: Atom | float) -> Pair:
    """a + b without an error, for |a| >= |b| or a = 0 (Fast2Sum)."""
    upper = m("add", a, b)
    return upper, m("sub", b, m("sub", upper, a))


def nearest(m: MathBuilder, x: Atom) -> tuple[Value, Value]:
    """The whole number nearest to x, halves to even, as a float and as an integer as wide: for |x| up to 2^22, of f64 2^51; beyond, the integer means nothing.

    A number near 1.5 * 2^23 (of f64 2^52) has a last place of 1, so that a sum with it rounds, and its bits count. GPUs round and convert at an eighth of
    the rate at which they add.
    """
    form = FORMATS[x.type]
    zero = form.bias + form.fraction << form.fraction | 1 << form.fraction - 1
    moved = m("add", x, 1.5 * 2.0**form.fraction)
    return m("sub", moved, 1.5 * 2.0**form.fraction), m("sub", m.bitcast(moved, form.signed), zero)


def any_sum_of(m: MathBuilder, a: Atom, b: Atom) -> Pair:
    """a + b without an error, whichever is greater (D. E. Knuth's TwoSum)."""
    upper = m("add", a, b)
    other = m("sub", upper, a)
    return upper, m("add", m("sub", a, m("sub", upper, other)), m("sub", b, other))


def product(m: MathBuilder, a: Atom, b: Atom | float) -> Pair:
    """a * b without an error, unless it underflows."""
    upper = m("mul", a, b)
    return upper, m("fma", a, b, m("neg", upper))


def times(m: MathBuilder, a: Pair, b: Pair) -> Pair:
    """The product of two pairs, but for that of their lower parts; its parts may overlap."""
    upper, lost = product(m, a[0], b[0])
    return upper, m("fma", a[0], b[1], m("fma", a[1], b[0], lost))


class Scales(NamedTuple):
    """Powers of two for the squares of a type: above `large` operands are taken `down`, below `small` they are taken `up`, and `tiny` is lost beside the
    root of scaled operands that are not all 0."""

    large: float
    down: float
    small: float
    up: float
    tiny: float


def norm(m: MathBuilder, scales: Scales, *operands: Atom) -> Atom:
    """The root of the sum of the squares: infinity for an infinite operand whatever the others are, else NaN for a NaN.

    The squares are exact in two parts each, and one step of Newton's method makes up for what the root and the sum's lower parts lack. Operands are
    scaled by powers of two where a square might overflow or lose bits below the least normal number.
    """
    sizes = [m("abs", x) for x in operands]
    long, *others = sizes
    for k, size in enumerate(others):
        long, others[k] = m("max", long, size), m("min", long, size)
    large, small = m("gt", long, scales.large), m("lt", long, scales.small)

    def either(down: float, up: float) -> Atom:
        return m("select", large, down, m("select", small, up, const(long.type, 1.0)))

    scale = either(scales.down, scales.up)
    (total, lost), *squares = [product(m, a, a) for a in [m("mul", x, scale) for x in (long, *others)]]
    for square, square_lost in squares:
        total, sum_lost = sum_of(m, total, square)
        lost = m("add", sum_lost, m("add", lost, square_lost))
    root = m("sqrt", total)
    residual = m("add", m("fma", m("neg", root), root, total), lost)
    root = m("add", root, m("div", residual, m("add", m("add", root, root), scales.tiny)))
    result = m("mul", root, either(1 / scales.down, 1 / scales.up))
    nan = m("is_nan", reduce(lambda total, size: m("add", total, size), sizes))
    return m("select", m("is_inf", long), long, m("select", nan, float("nan"), result))
