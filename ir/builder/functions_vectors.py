"""Functions that make vectors, take them apart, or reduce them to one value, over expressions.

All raise ValidationError at the caller's line. What each op computes stands in its row of `ir.language.ops`.
"""

from __future__ import annotations

from vyre_py.ir.builder.expressions import Expr, Operand, apply, const, fail
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.types import Type, u32, vector_of

__all__ = [
    "all", "any", "cross", "dot", "length", "pack2x16_float", "pack2x16_sint", "pack2x16_snorm", "pack2x16_uint", "pack2x16_unorm",
    "pack4x8_sint", "pack4x8_snorm", "pack4x8_uint", "pack4x8_unorm", "splat", "unpack2x16_float", "unpack2x16_sint", "unpack2x16_snorm",
    "unpack2x16_uint", "unpack2x16_unorm", "unpack4x8_sint", "unpack4x8_snorm", "unpack4x8_uint", "unpack4x8_unorm", "vec2", "vec3",
    "vec4",
]


def vec2(*parts: Operand) -> Expr:
    """A vector of two components, from scalars of one type and numbers, or one vector of two."""
    return _vector(2, parts)


def vec3(*parts: Operand) -> Expr:
    """A vector of three components, from scalars and vectors of one component type and numbers in order, such as v.xy and 1.0."""
    return _vector(3, parts)


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


def splat(x: Expr, to: int | Type) -> Expr:
    """A vector with the scalar x in all components: of 2 to 4 components, or of a vector type of x's type."""
    if not isinstance(x, Expr) or x.type.is_vector:
        fail("B108", f"splat repeats a scalar of the Program, got {shown(x)}", "a number that meets a vector is repeated by itself; v.xxx repeats a component")
    if isinstance(to, Type):
        if not to.is_vector or to.scalar is not x.type:
            fail("V201", f"splat of {x.type} gives a vector of {x.type}, not {to}", f"vp.splat(x, vp.{x.type}x{to.lanes if to.is_vector else 3})")
        return apply("swizzle", x, const(0, u32), given=to)
    if isinstance(to, bool) or to not in (2, 3, 4):
        fail("B108", f"a vector has 2 to 4 components, got {shown(to)}", "vp.splat(x, 3)")
    return apply("swizzle", x, const(0, u32), given=vector_of(x.type, to))


def dot(a: Operand, b: Operand) -> Expr:
    """The sum of the products of the components of two vectors of numbers, left to right, each step rounded: a scalar."""
    return apply("dot", a, b)


def length(v: Operand) -> Expr:
    """sqrt(dot(v, v)) of a vector of floats: a scalar."""
    return apply("length", v)


def cross(a: Operand, b: Operand) -> Expr:
    """The cross product of two vectors of three numbers: a vector of three."""
    return apply("cross", a, b)


def all(v: Operand) -> Expr:
    """Whether all components of a vector of bools are true: one bool."""
    return apply("all", v)


def any(v: Operand) -> Expr:
    """Whether any component of a vector of bools is true: one bool."""
    return apply("any", v)


def pack4x8_snorm(v: Operand) -> Expr:
    """Four bytes round(clamp(x, -1, 1) * 127), the first lowest: f32x4 to u32."""
    return apply("pack4x8_snorm", v)


def pack4x8_unorm(v: Operand) -> Expr:
    """Four bytes round(clamp(x, 0, 1) * 255), the first lowest: f32x4 to u32."""
    return apply("pack4x8_unorm", v)


def pack4x8_sint(v: Operand) -> Expr:
    """The low bytes of four integers, the first lowest: i32x4 to u32."""
    return apply("pack4x8_sint", v)


def pack4x8_uint(v: Operand) -> Expr:
    """The low bytes of four integers, the first lowest: u32x4 to u32."""
    return apply("pack4x8_uint", v)


def pack2x16_snorm(v: Operand) -> Expr:
    """Two halves round(clamp(x, -1, 1) * 32767), the first lowest: f32x2 to u32."""
    return apply("pack2x16_snorm", v)


def pack2x16_unorm(v: Operand) -> Expr:
    """Two halves round(clamp(x, 0, 1) * 65535), the first lowest: f32x2 to u32."""
    return apply("pack2x16_unorm", v)


def pack2x16_sint(v: Operand) -> Expr:
    """The low halves of two integers, the first lowest: i32x2 to u32."""
    return apply("pack2x16_sint", v)


def pack2x16_uint(v: Operand) -> Expr:
    """The low halves of two integers, the first lowest: u32x2 to u32."""
    return apply("pack2x16_uint", v)


def pack2x16_float(v: Operand) -> Expr:
    """Two f16, each rounded once, the first lowest: f32x2 to u32."""
    return apply("pack2x16_float", v)


def unpack4x8_snorm(x: Operand) -> Expr:
    """The components of a pack4x8_snorm: u32 to f32x4."""
    return apply("unpack4x8_snorm", x)


def unpack4x8_unorm(x: Operand) -> Expr:
    """The components of a pack4x8_unorm: u32 to f32x4."""
    return apply("unpack4x8_unorm", x)


def unpack4x8_sint(x: Operand) -> Expr:
    """The components of a pack4x8_sint: u32 to i32x4."""
    return apply("unpack4x8_sint", x)


def unpack4x8_uint(x: Operand) -> Expr:
    """The components of a pack4x8_uint: u32 to u32x4."""
    return apply("unpack4x8_uint", x)


def unpack2x16_snorm(x: Operand) -> Expr:
    """The components of a pack2x16_snorm: u32 to f32x2."""
    return apply("unpack2x16_snorm", x)


def unpack2x16_unorm(x: Operand) -> Expr:
    """The components of a pack2x16_unorm: u32 to f32x2."""
    return apply("unpack2x16_unorm", x)


def unpack2x16_sint(x: Operand) -> Expr:
    """The components of a pack2x16_sint: u32 to i32x2."""
    return apply("unpack2x16_sint", x)


def unpack2x16_uint(x: Operand) -> Expr:
    """The components of a pack2x16_uint: u32 to u32x2."""
    return apply("unpack2x16_uint", x)


def unpack2x16_float(x: Operand) -> Expr:
    """The components of a pack2x16_float: u32 to f32x2."""
    return apply("unpack2x16_float", x)
