"""Sums of two f32, or of two f64, that stand for more bits than one holds: the upper part is the sum rounded to the type, the lower what that lost.

T. J. Dekker, A floating-point technique for extending the available precision (1971); the products by fused multiply-add.
Compilers that take numbers for exact would cancel both: `lowering.wgsl.rounding` knows their form.
"""

from __future__ import annotations

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.math.builder import MathBuilder

__all__ = ["Pair", "product", "sum_of"]

Pair = tuple[Atom, Atom]


def sum_of(m: MathBuilder, a: Atom, b: Atom) -> Pair:
    """a + b without an error, for |a| >= |b| or a = 0 (Fast2Sum)."""
    upper = m("add", a, b)
    return upper, m("sub", b, m("sub", upper, a))


def product(m: MathBuilder, a: Atom, b: Atom) -> Pair:
    """a * b without an error, unless it underflows."""
    upper = m("mul", a, b)
    return upper, m("fma", a, b, m("neg", upper))
