"""Arithmetic on integers and floats, and a float's whole part."""

from __future__ import annotations

import numpy as np

from vyre_py.ir.evaluate.arrays import bits_of, through_f32
from vyre_py.ir.language.types import Array, Kind, Type

__all__: list[str] = []  # through the package


@through_f32
def add(t: Type, a: Array, b: Array) -> Array:
    total: Array = a + b
    return total


@through_f32
def sub(t: Type, a: Array, b: Array) -> Array:
    rest: Array = a - b
    return rest


@through_f32
def mul(t: Type, a: Array, b: Array) -> Array:
    product: Array = a * b
    return product


def _safe_divisor(t: Type, a: Array, b: Array) -> Array:
    """Divisors with 0, and -1 under MIN, replaced by 1: then x / 0 = x, MIN / -1 = MIN and both remainders are 0."""
    bad = b == 0
    if t.is_signed:
        bad = bad | ((a == t.minimum) & (b == -1))
    return np.where(bad, b.dtype.type(1), b)


@through_f32
def div(t: Type, a: Array, b: Array) -> Array:
    if t.is_float:
        ratio: Array = a / b
        return ratio
    safe = _safe_divisor(t, a, b)
    quotient: Array = a // safe
    if t.is_signed:  # NumPy rounds down, the language toward zero.
        quotient = quotient + ((quotient * safe != a) & ((a < 0) != (safe < 0)))
    return quotient


@through_f32
def rem(t: Type, a: Array, b: Array) -> Array:
    rest: Array = np.fmod(a, b if t.is_float else _safe_divisor(t, a, b))
    return rest


@through_f32
def neg(t: Type, a: Array) -> Array:
    return -a


@through_f32
def abs_(t: Type, a: Array) -> Array:
    magnitude: Array = np.abs(a)
    return magnitude


@through_f32
def sign(t: Type, a: Array) -> Array:
    one = a.dtype.type(1)
    positive = np.where(a > 0, one, a)
    return positive if t.kind is Kind.UINT else np.where(a < 0, -one, positive)


def _number_wins(a: Array, b: Array, extreme: Array, tie: Array) -> Array:
    """Of two floats the extreme one, of equal ones `tie`; beside a NaN, the number."""
    result = np.where(a == b, tie.view(a.dtype), extreme)
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, result))


@through_f32
def min_(t: Type, a: Array, b: Array) -> Array:
    least = np.where(a < b, a, b)
    # Equal floats differ at most in the sign of zero: or-ing the bits picks -0.
    return _number_wins(a, b, least, bits_of(a) | bits_of(b)) if t.is_float else least


@through_f32
def max_(t: Type, a: Array, b: Array) -> Array:
    greatest = np.where(a > b, a, b)
    return _number_wins(a, b, greatest, bits_of(a) & bits_of(b)) if t.is_float else greatest


@through_f32
def clamp(t: Type, x: Array, low: Array, high: Array) -> Array:
    return min_(t, max_(t, x, low), high)


@through_f32
def sqrt(t: Type, a: Array) -> Array:
    root: Array = np.sqrt(a)
    return root


def rsqrt(t: Type, a: Array) -> Array:
    return div(t, np.ones_like(a), sqrt(t, a))


@through_f32
def floor(t: Type, a: Array) -> Array:
    below: Array = np.floor(a)
    return below


@through_f32
def ceil(t: Type, a: Array) -> Array:
    above: Array = np.ceil(a)
    return above


@through_f32
def trunc(t: Type, a: Array) -> Array:
    inner: Array = np.trunc(a)
    return inner


@through_f32
def round_(t: Type, a: Array) -> Array:
    nearest: Array = np.rint(a)
    return nearest


@through_f32
def fract(t: Type, a: Array) -> Array:
    rest: Array = a - np.floor(a)
    return rest
