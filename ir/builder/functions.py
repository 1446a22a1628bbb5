"""Functions: the ops that have no Python operator, over expressions and numbers. Transcendental functions and those of vectors have
modules of their own.

Each takes expressions of one builder: scalars, or vectors component by component. A Python number takes the type of the other operands, and
a scalar that meets a vector stands for all its components. All raise ValidationError at the caller's line. What each op computes stands in
its row of `ir.language.ops`.
"""

from __future__ import annotations

from vyre_py.ir.builder.expressions import Expr, Operand, apply, fail
from vyre_py.ir.builder.sizes import Size, size_op
from vyre_py.ir.language.types import Type

__all__ = [
    "abs_diff", "bitcast", "cast", "ceil", "ceil_div", "clamp", "clz", "ctz", "extract_bits", "floor", "fma", "fract", "insert_bits",
    "is_finite", "is_inf", "is_nan", "max", "min", "mul_hi", "popcount", "reverse_bits", "rotl", "rotr", "round", "rsqrt",
    "saturating_add", "saturating_mul", "saturating_sub", "select", "sign", "sqrt", "trunc",
]


def ceil_div(size: Size | int, divisor: Size | int) -> Size:
    """The exact quotient of two sizes, rounded up: a size."""
    made = size_op("ceil_div", size, divisor)
    if made is None:
        fail("B108", "ceil_div takes sizes and whole numbers", "divide values with (x + d - 1) // d")
    return made


def min(a: Operand, b: Operand) -> Expr:
    """The lesser of two numbers; a number wins over NaN, -0 is below +0. Of two sizes, a size."""
    made = _sizes("min", a, b)
    return apply("min", a, b) if made is None else made


def max(a: Operand, b: Operand) -> Expr:
    """The greater of two numbers; a number wins over NaN, +0 is above -0. Of two sizes, a size."""
    made = _sizes("max", a, b)
    return apply("max", a, b) if made is None else made


def _sizes(name: str, a: Operand, b: Operand) -> Size | None:
    return size_op(name, a, b) if isinstance(a, Size) or isinstance(b, Size) else None


def cast(x: Expr, type_: Type) -> Expr:
    """The value in another type of as many components, rounded once; float to int saturates, NaN to 0; int narrowing wraps; non-zero is true.

    Of a size, i64 and u64 take it whole, up to 2^48 - 1; as any other value it is a u32, and binding fails where it is none.
    """
    return x.cast(type_) if isinstance(x, Expr) else fail("B108", "cast takes an expression", "vp.const(value, type) makes a constant")


def bitcast(x: Expr, type_: Type) -> Expr:
    """The bits as another type of the same width, no bool: f32 as u32, u64 as u32x2 with the low half first; a NaN gives the canonical one."""
    return x.bitcast(type_) if isinstance(x, Expr) else fail("B108", "bitcast takes an expression", "vp.const(value, type) makes a constant")


def select(condition: Operand, a: Operand, b: Operand) -> Expr:
    """a where the condition is true, else b, of any one type; the condition is one bool, or a bool per component."""
    return apply("select", condition, a, b)


def clamp(x: Operand, low: Operand, high: Operand) -> Expr:
    """min(max(x, low), high) of numbers."""
    return apply("clamp", x, low, high)


def fma(a: Operand, b: Operand, c: Operand) -> Expr:
    """a * b + c of floats, rounded once."""
    return apply("fma", a, b, c)


def sign(x: Operand) -> Expr:
    """1 for numbers above zero, -1 below; zeros and NaN stay what they are."""
    return apply("sign", x)


def sqrt(x: Operand) -> Expr:
    """The square root of floats, correctly rounded."""
    return apply("sqrt", x)


def rsqrt(x: Operand) -> Expr:
    """1 / sqrt(x) of floats, in two roundings."""
    return apply("rsqrt", x)


def floor(x: Operand) -> Expr:
    """The greatest whole number not above, of floats."""
    return apply("floor", x)


def ceil(x: Operand) -> Expr:
    """The least whole number not below, of floats."""
    return apply("ceil", x)


def trunc(x: Operand) -> Expr:
    """The whole part of floats, toward zero."""
    return apply("trunc", x)


def round(x: Operand) -> Expr:
    """The nearest whole number of floats, ties to even."""
    return apply("round", x)


def fract(x: Operand) -> Expr:
    """x - floor(x) of floats."""
    return apply("fract", x)


def rotl(x: Operand, count: Operand) -> Expr:
    """The bits of integers rotated left by a count of the same type; the count is masked by the width."""
    return apply("rotl", x, count)


def rotr(x: Operand, count: Operand) -> Expr:
    """The bits of integers rotated right by a count of the same type; the count is masked by the width."""
    return apply("rotr", x, count)


def popcount(x: Operand) -> Expr:
    """How many bits of an integer are one, in its own type."""
    return apply("popcount", x)


def clz(x: Operand) -> Expr:
    """How many leading bits of an integer are zero; the width for 0."""
    return apply("clz", x)


def ctz(x: Operand) -> Expr:
    """How many trailing bits of an integer are zero; the width for 0."""
    return apply("ctz", x)


def reverse_bits(x: Operand) -> Expr:
    """The bits of integers in the opposite order."""
    return apply("reverse_bits", x)


def extract_bits(x: Operand, offset: Operand, count: Operand) -> Expr:
    """The `count` bits of integers from bit `offset` up, sign-extended for signed types; both are u32, one or one per component."""
    return apply("extract_bits", x, offset, count)


def insert_bits(x: Operand, y: Operand, offset: Operand, count: Operand) -> Expr:
    """x with its `count` bits from bit `offset` up taken from the low bits of y, integers of one type; offset and count are u32."""
    return apply("insert_bits", x, y, offset, count)


def mul_hi(a: Operand, b: Operand) -> Expr:
    """The upper half of the exact product of integers."""
    return apply("mul_hi", a, b)


def abs_diff(a: Operand, b: Operand) -> Expr:
    """The distance of integers, in the unsigned type of their width."""
    return apply("abs_diff", a, b)


def saturating_add(a: Operand, b: Operand) -> Expr:
    """The sum of integers, or the nearest value that the type holds."""
    return apply("saturating_add", a, b)


def saturating_sub(a: Operand, b: Operand) -> Expr:
    """The difference of integers, or the nearest value that the type holds."""
    return apply("saturating_sub", a, b)


def saturating_mul(a: Operand, b: Operand) -> Expr:
    """The product of integers, or the nearest value that the type holds."""
    return apply("saturating_mul", a, b)


def is_nan(x: Operand) -> Expr:
    """Whether floats are NaN: a bool per component."""
    return apply("is_nan", x)


def is_inf(x: Operand) -> Expr:
    """Whether floats are infinite: a bool per component."""
    return apply("is_inf", x)


def is_finite(x: Operand) -> Expr:
    """Whether floats are neither NaN nor infinite: a bool per component."""
    return apply("is_finite", x)
