"""Arithmetic that integers alone have: saturating, upper halves, distances."""

from __future__ import annotations

import numpy as np

from vyre_py.ir.evaluate.arrays import bits_of, whole
from vyre_py.ir.language.types import Array, Type

__all__: list[str] = []  # through the package


def mul_hi(t: Type, a: Array, b: Array) -> Array:
    if t.bits == 64:
        return _mul_hi_64(t, a, b)
    wide = np.int64 if t.is_signed else np.uint64
    upper: Array = (a.astype(wide) * b.astype(wide)) >> wide(t.bits)
    return upper.astype(a.dtype)


def _mul_hi_64(t: Type, a: Array, b: Array) -> Array:
    """By halves: unsigned, and then less each operand that stands above a negative other."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    x, y = bits_of(a), bits_of(b)
    x1, x0, y1, y0 = x >> half, x & low, y >> half, y & low
    middle = x1 * y0 + (x0 * y0 >> half)
    upper: Array = x1 * y1 + (middle >> half) + ((x0 * y1 + (middle & low)) >> half)
    if t.is_signed:
        upper = upper - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return upper.view(a.dtype)


def abs_diff(t: Type, a: Array, b: Array) -> Array:
    x, y = bits_of(a), bits_of(b)
    return np.where(a > b, x - y, y - x)


def _saturated(t: Type, wrapped: Array, over: Array, negative: Array) -> Array:
    """The wrapped result, or where it went `over`, the end of the type that it passed."""
    return np.where(over, np.where(negative, whole(t, t.minimum), whole(t, t.maximum)), wrapped)


def saturating_add(t: Type, a: Array, b: Array) -> Array:
    total = a + b
    if not t.is_signed:
        return _saturated(t, total, total < a, np.zeros_like(total, np.bool_))
    return _saturated(t, total, ((a ^ total) & (b ^ total)) < 0, a < 0)


def saturating_sub(t: Type, a: Array, b: Array) -> Array:
    rest = a - b
    if not t.is_signed:
        return _saturated(t, rest, a < b, np.ones_like(rest, np.bool_))
    return _saturated(t, rest, ((a ^ b) & (a ^ rest)) < 0, a < 0)


def saturating_mul(t: Type, a: Array, b: Array) -> Array:
    low, high = a * b, mul_hi(t, a, b)
    # The upper half of a product that fits repeats the sign.
    fits = high == (low >> whole(t, t.bits - 1) if t.is_signed else whole(t, 0))
    return _saturated(t, low, ~fits, (a < 0) != (b < 0))
