"""Complex numbers as vectors of two, real part first, f16 and bf16 through f32; of infinities and NaN what the steps give.

complex_mul: each part is a sum of two products, within 1.5 ULP of the exact one unless a product underflows (W. Kahan's difference of products by fused
multiply-add; C.-P. Jeannerod, N. Louvet, J.-M. Muller, Further analysis of Kahan's algorithm, 2013). A product that overflows counts as infinite.

complex_div: by such sums over operands that powers of two take to 1/2 up to 1, so that nothing overflows on the way: each part within 5 ULP where the parts of
an operand are less than 2^60 apart, and further apart within as much of the quotient's magnitude. Over zero each part is divided by 0.

complex_abs: hypot. complex_exp: e^x (cos y, sin y) from exp, cos and sin of at most 1 ULP: each part within 5 ULP, and within 8 where e^x is near overflow and
its root is multiplied twice; the imaginary part of exp(x + 0i) is that zero.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final

from vyre_py.ir.language.nodes import Atom, const
from vyre_py.ir.language.types import f32, f64
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.exact.geometry import Components
from vyre_py.ir.math.words import NARROW

__all__ = ["complex_abs", "complex_div", "complex_exp", "complex_mul"]

_NEAR_OVERFLOW: Final = {f32: 88.0, f64: 709.0}


def _through_f32(write: Callable[..., Components]) -> Callable[..., Components]:
    @wraps(write)
    def wide(m: MathBuilder, *operands: Components) -> Components:
        type_ = operands[0][0].type
        if type_ not in NARROW:
            return write(m, *operands)
        return tuple([m.cast(x, type_) for x in write(m, *[tuple([m.cast(x, f32) for x in z]) for z in operands])])

    return wide


def _sum(m: MathBuilder, a: Atom, b: Atom, c: Atom, d: Atom) -> Atom:
    """a * b + c * d."""
    product = m("mul", c, d)
    lost = m("fma", c, d, m("neg", product))
    rough = m("fma", a, b, product)
    return m("select", m("is_finite", product), m("add", rough, lost), rough)


@_through_f32
def complex_mul(m: MathBuilder, a: Components, b: Components) -> Components:
    """The product."""
    return _sum(m, a[0], b[0], m("neg", a[1]), b[1]), _sum(m, a[0], b[1], a[1], b[0])


def _scaled(m: MathBuilder, z: Components) -> tuple[Components, Atom]:
    """The number by the power of two that takes its greater part to 1/2 up to 1, and the exponent that this took away."""
    exponent = m("frexp_exponent", m("max", m("abs", z[0]), m("abs", z[1])))
    return tuple([m("ldexp", x, m("neg", exponent)) for x in z]), exponent


@_through_f32
def complex_div(m: MathBuilder, a: Components, b: Components) -> Components:
    """The quotient."""
    (x, y), up = _scaled(m, a)
    (c, d), down = _scaled(m, b)
    size = _sum(m, c, c, d, d)
    parts = _sum(m, x, c, y, d), _sum(m, y, c, m("neg", x), d)
    shift, zero = m("sub", up, down), const(c.type, 0.0)
    none = m("eq", size, zero)
    return tuple([m("select", none, m("div", over, zero), m("ldexp", m("div", part, size), shift)) for part, over in zip(parts, a, strict=True)])


def complex_abs(m: MathBuilder, z: Components) -> Components:
    """The distance from zero."""
    return (m("hypot", *z),)


@_through_f32
def complex_exp(m: MathBuilder, z: Components) -> Components:
    """e to the power z."""
    x, y = z
    large = m("gt", x, const(x.type, _NEAR_OVERFLOW[x.type]))
    size = m("exp", m("select", large, m("mul", x, const(x.type, 0.5)), x))
    real, imaginary = [m("mul", size, m(name, y)) for name in ("cos", "sin")]
    real, imaginary = [m("select", large, m("mul", part, size), part) for part in (real, imaginary)]
    return real, m("select", m("eq", y, const(y.type, 0.0)), y, imaginary)
