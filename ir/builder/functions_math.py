"""Transcendental functions, over expressions of f16, bf16 or f32: scalars, or vectors component by component.

A Python number takes the type of the other operand. All raise ValidationError at the caller's line. How far a result may be from the
exact one, and what happens at infinities and NaN, stands with each in `ir/math`; the same bits come out wherever numerics are strict.
"""

from __future__ import annotations

from vyre_py.ir.builder.expressions import Expr, Operand, apply

__all__ = [
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "erf", "erfc", "exp", "exp10", "exp2", "expm1",
    "hypot", "log", "log10", "log1p", "log2", "pow", "sin", "sinh", "tan", "tanh",
]


def exp(x: Operand) -> Expr:
    """e to the power x."""
    return apply("exp", x)


def exp2(x: Operand) -> Expr:
    """2 to the power x."""
    return apply("exp2", x)


def exp10(x: Operand) -> Expr:
    """10 to the power x."""
    return apply("exp10", x)


def expm1(x: Operand) -> Expr:
    """e to the power x, less 1, without loss near 0."""
    return apply("expm1", x)


def log(x: Operand) -> Expr:
    """The natural logarithm."""
    return apply("log", x)


def log2(x: Operand) -> Expr:
    """The logarithm to base 2."""
    return apply("log2", x)


def log10(x: Operand) -> Expr:
    """The logarithm to base 10."""
    return apply("log10", x)


def log1p(x: Operand) -> Expr:
    """The natural logarithm of 1 + x, without loss near 0."""
    return apply("log1p", x)


def sin(x: Operand) -> Expr:
    """The sine of x radians."""
    return apply("sin", x)


def cos(x: Operand) -> Expr:
    """The cosine of x radians."""
    return apply("cos", x)


def tan(x: Operand) -> Expr:
    """The tangent of x radians."""
    return apply("tan", x)


def asin(x: Operand) -> Expr:
    """The angle in [-pi/2, pi/2] whose sine is x."""
    return apply("asin", x)


def acos(x: Operand) -> Expr:
    """The angle in [0, pi] whose cosine is x."""
    return apply("acos", x)


def atan(x: Operand) -> Expr:
    """The angle in [-pi/2, pi/2] whose tangent is x."""
    return apply("atan", x)


def atan2(y: Operand, x: Operand) -> Expr:
    """The angle in [-pi, pi] of the point with abscissa x and ordinate y."""
    return apply("atan2", y, x)


def sinh(x: Operand) -> Expr:
    """The hyperbolic sine."""
    return apply("sinh", x)


def cosh(x: Operand) -> Expr:
    """The hyperbolic cosine."""
    return apply("cosh", x)


def tanh(x: Operand) -> Expr:
    """The hyperbolic tangent."""
    return apply("tanh", x)


def asinh(x: Operand) -> Expr:
    """The inverse hyperbolic sine."""
    return apply("asinh", x)


def acosh(x: Operand) -> Expr:
    """The inverse hyperbolic cosine, not negative; NaN below 1."""
    return apply("acosh", x)


def atanh(x: Operand) -> Expr:
    """The inverse hyperbolic tangent."""
    return apply("atanh", x)


def pow(x: Operand, y: Operand) -> Expr:
    """x to the power y, as C's pow; also spelled x ** y."""
    return apply("pow", x, y)


def cbrt(x: Operand) -> Expr:
    """The cube root."""
    return apply("cbrt", x)


def hypot(x: Operand, y: Operand) -> Expr:
    """sqrt(x * x + y * y), without overflow on the way."""
    return apply("hypot", x, y)


def erf(x: Operand) -> Expr:
    """The error function."""
    return apply("erf", x)


def erfc(x: Operand) -> Expr:
    """1 - erf(x), without loss for large x."""
    return apply("erfc", x)
