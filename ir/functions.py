"""The ops that have no Python operator, as functions over expressions and numbers.

Each takes expressions of one builder; a Python number takes the type of the other operands. All raise ValidationError at the
caller's line. What each op computes stands in its row of `ir.ops`.
"""

from __future__ import annotations

from vyre_py.ir.expressions import Expr, Operand, Size, apply, fail, size_op
from vyre_py.ir.types import Scalar

__all__ = [
    "abs_diff", "bitcast", "cast", "ceil", "ceil_div", "clamp", "clz", "cos", "ctz", "exp", "floor", "fma", "fract", "is_finite", "is_inf",
    "is_nan", "log", "max", "min", "mul_hi", "popcount", "reverse_bits", "rotl", "rotr", "round", "select", "sign", "sin", "sqrt", "trunc",
]


def ceil_div(size: Size | int, divisor: Size | int) -> Size:
    """The exact quotient of two sizes, rounded up: a size."""
    made = size_op("ceil_div", size, divisor)
    if made is None:
        fail("B108", "ceil_div takes sizes and whole numbers", "divide values with (x + d - 1) // d")
    return made


def min(a: Operand, b: Operand) -> Expr:
    """The lesser; the number wins over NaN. Of two sizes, a size."""
    made = _sizes("min", a, b)
    return apply("min", a, b) if made is None else made


def max(a: Operand, b: Operand) -> Expr:
    """The greater; the number wins over NaN. Of two sizes, a size."""
    made = _sizes("max", a, b)
    return apply("max", a, b) if made is None else made


def _sizes(name: str, a: Operand, b: Operand) -> Size | None:
    return size_op(name, a, b) if isinstance(a, Size) or isinstance(b, Size) else None


def cast(x: Expr, type_: Scalar) -> Expr:
    """The value in another type, rounded once; float to int saturates, NaN to 0."""
    return x.cast(type_) if isinstance(x, Expr) else fail("B108", "cast takes an expression", "vp.const(value, type) makes a constant")


def bitcast(x: Expr, type_: Scalar) -> Expr:
    """The bits as another type of the same width."""
    return x.bitcast(type_) if isinstance(x, Expr) else fail("B108", "bitcast takes an expression", "vp.const(value, type) makes a constant")


def select(condition: Expr, a: Operand, b: Operand) -> Expr:
    """a where the condition is true, else b."""
    return apply("select", condition, a, b)


def clamp(x: Operand, low: Operand, high: Operand) -> Expr:
    """min(max(x, low), high)."""
    return apply("clamp", x, low, high)


def fma(a: Operand, b: Operand, c: Operand) -> Expr:
    """a * b + c, rounded once."""
    return apply("fma", a, b, c)


def sign(x: Operand) -> Expr:
    """1 above zero, -1 below; zeros and NaN stay what they are."""
    return apply("sign", x)


def sqrt(x: Operand) -> Expr:
    """The square root, correctly rounded."""
    return apply("sqrt", x)


def floor(x: Operand) -> Expr:
    """The greatest whole number not above."""
    return apply("floor", x)


def ceil(x: Operand) -> Expr:
    """The least whole number not below."""
    return apply("ceil", x)


def trunc(x: Operand) -> Expr:
    """The whole part, toward zero."""
    return apply("trunc", x)


def round(x: Operand) -> Expr:
    """The nearest whole number, ties to even."""
    return apply("round", x)


def fract(x: Operand) -> Expr:
    """x - floor(x)."""
    return apply("fract", x)


def exp(x: Operand) -> Expr:
    """e to the power x."""
    return apply("exp", x)


def log(x: Operand) -> Expr:
    """The natural logarithm."""
    return apply("log", x)


def sin(x: Operand) -> Expr:
    """The sine of x radians."""
    return apply("sin", x)


def cos(x: Operand) -> Expr:
    """The cosine of x radians."""
    return apply("cos", x)


def rotl(x: Operand, count: Operand) -> Expr:
    """Rotates left; the count is masked by the width."""
    return apply("rotl", x, count)


def rotr(x: Operand, count: Operand) -> Expr:
    """Rotates right; the count is masked by the width."""
    return apply("rotr", x, count)


def popcount(x: Operand) -> Expr:
    """How many bits are one."""
    return apply("popcount", x)


def clz(x: Operand) -> Expr:
    """How many leading bits are zero."""
    return apply("clz", x)


def ctz(x: Operand) -> Expr:
    """How many trailing bits are zero."""
    return apply("ctz", x)


def reverse_bits(x: Operand) -> Expr:
    """The bits in the opposite order."""
    return apply("reverse_bits", x)


def mul_hi(a: Operand, b: Operand) -> Expr:
    """The upper half of the exact product."""
    return apply("mul_hi", a, b)


def abs_diff(a: Operand, b: Operand) -> Expr:
    """The distance, unsigned."""
    return apply("abs_diff", a, b)


def is_nan(x: Operand) -> Expr:
    """Whether this is a NaN."""
    return apply("is_nan", x)


def is_inf(x: Operand) -> Expr:
    """Whether this is an infinity."""
    return apply("is_inf", x)


def is_finite(x: Operand) -> Expr:
    """Whether this is neither NaN nor an infinity."""
    return apply("is_finite", x)
