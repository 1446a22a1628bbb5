"""Functions whose operands follow rules of their own: sizes, types that are given, components that are put together.

All raise ValidationError at the caller's line. What each op computes stands in its row of `ir.language.ops`.
"""

from __future__ import annotations

import numpy as np

from vyre_py.ir.builder.expressions import Expr, Operand, apply, apply_tile, const
from vyre_py.ir.builder.sizes import Size, size_op
from vyre_py.ir.builder.where import fail
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.tiles.tensor_model import MODELS
from vyre_py.ir.language.tiles.tile_ops import modelled_product
from vyre_py.ir.language.types import Type, f32, u32, vector_of
from vyre_py.ir.public import public

__all__ = ["bitcast", "cast", "ceil_div", "max", "min", "mma", "splat", "vec2", "vec3", "vec4"]


@public
def ceil_div(size: Size | int, divisor: Size | int) -> Size:
    """The exact quotient of two sizes, rounded up: a size."""
    made = size_op("ceil_div", size, divisor)
    if made is None:
        fail("B108", "ceil_div takes sizes and whole numbers", "divide values with (x + d - 1) // d")
    return made


@public
def min(a: Operand, b: Operand) -> Expr:
    """The lesser of two numbers; a number wins over NaN, -0 is below +0. Of two sizes, a size."""
    made = _sizes("min", a, b)
    return apply("min", a, b) if made is None else made


@public
def max(a: Operand, b: Operand) -> Expr:
    """The greater of two numbers; a number wins over NaN, +0 is above -0. Of two sizes, a size."""
    made = _sizes("max", a, b)
    return apply("max", a, b) if made is None else made


def _sizes(name: str, a: Operand, b: Operand) -> Size | None:
    return size_op(name, a, b) if isinstance(a, Size) or isinstance(b, Size) else None


@public
def cast(x: Expr, type_: Type) -> Expr:
    """The value in another type of as many components, or the tile with elements of another type, rounded once; float to int saturates, NaN to 0; int
    narrowing wraps; non-zero is true.

    Of a size, i64 and u64 take it whole, up to 2^48 - 1; as any other value it is a u32, and binding fails for a larger one.
    """
    return x.cast(type_) if isinstance(x, Expr) else fail("B108", "cast takes an expression", "vp.const(value, type) makes a constant")


@public
def bitcast(x: Expr, type_: Type) -> Expr:
    """The bits as another type of the same width, no bool: f32 as u32, u64 as u32x2 with the low half first; a NaN gives the canonical one."""
    return x.bitcast(type_) if isinstance(x, Expr) else fail("B108", "bitcast takes an expression", "vp.const(value, type) makes a constant")


@public
def vec2(*parts: Operand) -> Expr:
    """A vector of two components, from scalars of one type and numbers, or one vector of two."""
    return _vector(2, parts)


@public
def vec3(*parts: Operand) -> Expr:
    """A vector of three components, from scalars and vectors of one component type and numbers in order, such as v.xy and 1.0."""
    return _vector(3, parts)


@public
def vec4(*parts: Operand) -> Expr:
    """A vector of four components, from scalars and vectors of one component type and numbers in order, such as v.xyz and 1.0."""
    return _vector(4, parts)


def _vector(lanes: int, parts: tuple[Operand, ...]) -> Expr:
    counts = [part.type.lanes if isinstance(part, Expr) else 1 for part in parts]
    if sum(counts) != lanes:
        got = " + ".join(map(str, counts)) or "none"
        fail("B108", f"vec{lanes} takes {lanes} components, got {got}", "vp.splat(x, 3) repeats one; v.xy picks some of a vector")
    components: list[Operand] = []
    for part in parts:
        if isinstance(part, Expr) and part.type.is_vector:
            whole = Expr(part.builder, part.atom)  # a variable is read once
            components += [getattr(whole, name) for name in "xyzw"[: part.type.lanes]]
        else:
            components.append(part)
    return apply(f"vec{lanes}", *components)


@public
def splat(x: Expr, to: int | Type) -> Expr:
    """A vector with the scalar x in all components: of 2 to 4 components, or of a vector type of x's type."""
    if not isinstance(x, Expr) or x.type.is_vector or x.type.is_tile:
        fail("B108", f"splat repeats a scalar of the Program, got {shown(x)}", "a number that meets a vector is repeated by itself; v.xxx repeats a component")
    if isinstance(to, Type):
        if not to.is_vector or to.scalar is not x.type:
            fail("V201", f"splat of {x.type} gives a vector of {x.type}, not {to}", f"vp.splat(x, vp.{x.type}x{to.lanes if to.is_vector else 3})")
        return apply("swizzle", x, const(0, u32), given=to)
    if isinstance(to, bool) or to not in (2, 3, 4):
        fail("B108", f"a vector has 2 to 4 components, got {shown(to)}", "vp.splat(x, 3)")
    return apply("swizzle", x, const(0, u32), given=vector_of(x.type, to))


@public
def mma(a: Expr, b: Expr, acc: Expr, *, tensor: bool | str = False) -> Expr:
    """The product of matrices a b + acc, for tiles a of (m, k), b of (k, n) and acc of (m, n); a tile of acc's type.

    Elements of a and b are both f16, bf16, f32 or f64, or each f8e4m3 or f8e5m2, or each i8 or u8. Those of acc are f32 for floats of up to 32 bits, or f16 for
    f16, f64 for f64, i32 for integers. Each element is acc = fma(a, b, acc) in acc's type, k ascending, so the bits are the same everywhere. With `tensor` a
    tensor core may sum in its own order and precision, and take the upper 19 bits of factors of f32 (tf32). "sm_90" asks for the bits that the tensor cores of
    that architecture give, which only these and the interpreter compute; of floats of 8 bits those of products of warpgroups, "sm_90:warps" those of warps.

    Raises ValidationError: V201 for other types and shapes, V602 in a Program of invocations, B108 for another `tensor`.
    """
    if isinstance(tensor, str) and tensor in MODELS:
        return apply_tile(modelled_product(tensor, a.type.scalar if isinstance(a, Expr) else f32).name, a, b, acc)
    if not isinstance(tensor, (bool, np.bool_)):
        known = " or ".join(map(repr, MODELS))
        fail("B108", f"tensor is True, False or an architecture, got {shown(tensor)}", f"vp.mma(a, b, acc, tensor=True); the one architecture is {known}")
    return apply_tile("mma_tensor" if tensor else "mma", a, b, acc)
