"""What each op computes, over NumPy arrays: the one evaluation that the interpreter and the folding pass share.

Every function takes arrays that broadcast (of at least one dimension: NumPy warns about wrapping scalars) and the result type, and
returns an array of that type. Floating point is IEEE-754 with subnormals; the bits of a NaN result are unspecified except
where an op says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vyre_py.ir.types import Array, Kind, Scalar

__all__: list[str] = []  # read as a module, since many of its names are Python's own

_UINT: dict[int, np.dtype[Any]] = {1: np.dtype(np.uint8), 4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}
_CANONICAL_NAN = {4: 0x7FC00000}


def _bits(a: Array) -> Array:
    return a.view(_UINT[a.dtype.itemsize])


# ---------------------------------------------------------------- arithmetic


def add(t: Scalar, a: Array, b: Array) -> Array:
    return a + b


def sub(t: Scalar, a: Array, b: Array) -> Array:
    return a - b


def mul(t: Scalar, a: Array, b: Array) -> Array:
    return a * b


def _safe_divisor(t: Scalar, a: Array, b: Array) -> Array:
    """Divisors with 0, and -1 under MIN, replaced by 1: then x / 0 = x, MIN / -1 = MIN and both remainders are 0."""
    bad = b == 0
    if t.is_signed:
        bad = bad | ((a == t.minimum) & (b == -1))
    return np.where(bad, b.dtype.type(1), b)


def div(t: Scalar, a: Array, b: Array) -> Array:
    if t.is_float:
        return a / b
    safe = _safe_divisor(t, a, b)
    quotient = a // safe
    if t.is_signed:  # NumPy rounds down, the language toward zero.
        quotient = quotient + ((quotient * safe != a) & ((a < 0) != (safe < 0)))
    return quotient.astype(a.dtype, copy=False)


def rem(t: Scalar, a: Array, b: Array) -> Array:
    return np.fmod(a, _safe_divisor(t, a, b))


def neg(t: Scalar, a: Array) -> Array:
    return -a


def abs_(t: Scalar, a: Array) -> Array:
    return np.abs(a)


def sign(t: Scalar, a: Array) -> Array:
    one = a.dtype.type(1)
    result = np.where(a > 0, one, a)
    return np.where(a < 0, -one, result).astype(a.dtype, copy=False) if t.kind is not Kind.UINT else result


def _number_wins(t: Scalar, a: Array, b: Array, pick: Array, tie: Array) -> Array:
    if not t.is_float:
        return pick
    result = np.where(a == b, tie.view(a.dtype), pick)
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, result))


def min_(t: Scalar, a: Array, b: Array) -> Array:
    # Equal floats differ at most in the sign of zero: or-ing the bits picks -0.
    return _number_wins(t, a, b, np.where(a < b, a, b), _bits(a) | _bits(b))


def max_(t: Scalar, a: Array, b: Array) -> Array:
    return _number_wins(t, a, b, np.where(a > b, a, b), _bits(a) & _bits(b))


def clamp(t: Scalar, x: Array, low: Array, high: Array) -> Array:
    return min_(t, max_(t, x, low), high)


def fma(t: Scalar, a: Array, b: Array, c: Array) -> Array:
    """a * b + c rounded once: the product is exact in f64, the sum is rounded to odd there, then to nearest."""
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    total = product + addend
    # TwoSum (Knuth): `error` is exactly what the sum lost; NaN when the sum is not finite, and then nothing is adjusted.
    virtual = total - product
    error = (product - (total - virtual)) + (addend - virtual)
    even = (_bits(total) & np.uint64(1)) == 0
    toward = np.where(error > 0, np.inf, -np.inf)
    odd = np.where(even & np.isfinite(error) & (error != 0), np.nextafter(total, toward), total)
    return odd.astype(a.dtype)


def sqrt(t: Scalar, a: Array) -> Array:
    return np.sqrt(a)


def floor(t: Scalar, a: Array) -> Array:
    return np.floor(a)


def ceil(t: Scalar, a: Array) -> Array:
    return np.ceil(a)


def trunc(t: Scalar, a: Array) -> Array:
    return np.trunc(a)


def round_(t: Scalar, a: Array) -> Array:
    return np.rint(a)


def fract(t: Scalar, a: Array) -> Array:
    return a - np.floor(a)


# ---------------------------------------------------------------- bits


def and_(t: Scalar, a: Array, b: Array) -> Array:
    return a & b


def or_(t: Scalar, a: Array, b: Array) -> Array:
    return a | b


def xor(t: Scalar, a: Array, b: Array) -> Array:
    return a ^ b


def not_(t: Scalar, a: Array) -> Array:
    return ~a


def _count(t: Scalar, b: Array) -> Array:
    count: Array = _bits(b) & _bits(b).dtype.type(t.bits - 1)
    return count


def shl(t: Scalar, a: Array, b: Array) -> Array:
    return (_bits(a) << _count(t, b)).view(a.dtype)


def shr(t: Scalar, a: Array, b: Array) -> Array:
    shifted: Array = a >> _count(t, b).astype(a.dtype)
    return shifted


def rotl(t: Scalar, a: Array, b: Array) -> Array:
    left = _count(t, b)
    right = (t.bits - left) & left.dtype.type(t.bits - 1)
    rotated: Array = (_bits(a) << left) | (_bits(a) >> right)
    return rotated.view(a.dtype)


def rotr(t: Scalar, a: Array, b: Array) -> Array:
    right = _count(t, b)
    left = (t.bits - right) & right.dtype.type(t.bits - 1)
    rotated: Array = (_bits(a) >> right) | (_bits(a) << left)
    return rotated.view(a.dtype)


def popcount(t: Scalar, a: Array) -> Array:
    x, one = _bits(a).copy(), _bits(a).dtype.type(1)
    total = np.zeros_like(x)
    for _ in range(t.bits):
        total += x & one
        x >>= one
    return total.view(a.dtype)


def reverse_bits(t: Scalar, a: Array) -> Array:
    x, one = _bits(a).copy(), _bits(a).dtype.type(1)
    result = np.zeros_like(x)
    for _ in range(t.bits):
        result = (result << one) | (x & one)
        x >>= one
    return result.view(a.dtype)


def clz(t: Scalar, a: Array) -> Array:
    x, one = _bits(a).copy(), _bits(a).dtype.type(1)
    length = np.zeros_like(x)
    for _ in range(t.bits):
        length += x != 0
        x >>= one
    return (t.bits - length).astype(x.dtype).view(a.dtype)


def ctz(t: Scalar, a: Array) -> Array:
    return clz(t, reverse_bits(t, a))


def mul_hi(t: Scalar, a: Array, b: Array) -> Array:
    wide = np.int64 if t.is_signed else np.uint64
    return ((a.astype(wide) * b.astype(wide)) >> wide(t.bits)).astype(a.dtype)


def abs_diff(t: Scalar, a: Array, b: Array) -> Array:
    x, y = _bits(a), _bits(b)
    return np.where(a > b, x - y, y - x)


# ---------------------------------------------------------------- comparisons, logic, choice


def eq(t: Scalar, a: Array, b: Array) -> Array:
    equal: Array = a == b
    return equal


def ne(t: Scalar, a: Array, b: Array) -> Array:
    differ: Array = a != b
    return differ


def lt(t: Scalar, a: Array, b: Array) -> Array:
    return a < b


def le(t: Scalar, a: Array, b: Array) -> Array:
    return a <= b


def gt(t: Scalar, a: Array, b: Array) -> Array:
    return a > b


def ge(t: Scalar, a: Array, b: Array) -> Array:
    return a >= b


def select(t: Scalar, condition: Array, a: Array, b: Array) -> Array:
    return np.where(condition, a, b)


def is_nan(t: Scalar, a: Array) -> Array:
    return np.isnan(a)


def is_inf(t: Scalar, a: Array) -> Array:
    return np.isinf(a)


def is_finite(t: Scalar, a: Array) -> Array:
    return np.isfinite(a)


# ---------------------------------------------------------------- conversions


def cast(t: Scalar, a: Array) -> Array:
    if t.kind is Kind.BOOL:
        true: Array = a != 0
        return true
    if a.dtype.kind == "f" and t.is_integer:
        # f64 holds every f32 and every 32-bit bound exactly; NaN becomes 0.
        wide = np.trunc(np.nan_to_num(a.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
        return np.clip(wide, t.minimum, t.maximum).astype(t.dtype)
    return a.astype(t.dtype)


def bitcast(t: Scalar, a: Array) -> Array:
    if a.dtype.kind == "f":
        a = np.where(np.isnan(a), np.array(_CANONICAL_NAN[a.dtype.itemsize], _UINT[a.dtype.itemsize]).view(a.dtype), a)
    return a.view(t.dtype)
