"""Rounding once: from wider numbers to narrow floats, where NumPy and ml_dtypes would round on the way.

Rounding to odd (S. Boldo and G. Melquiond, "Emulation of a FMA and correctly rounded sums", 2008) keeps in the last bit that something
was cut off; rounding such a number to nearest, with at least two bits fewer, is rounding the exact one.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

__all__ = ["from_f64", "from_integers", "is_narrow", "odd_f32", "odd_sum", "sticky"]

Array = np.ndarray[Any, np.dtype[Any]]

_F64_BITS: Final = 53


def sticky(value: int) -> float:
    """A whole number in the bits of an f64, its last bit set if others were cut; infinity past the greatest f64."""
    cut = max(0, abs(value).bit_length() - _F64_BITS)
    kept = abs(value) >> cut
    if kept << cut != abs(value):
        kept |= 1
    try:
        return float((kept << cut) * (-1 if value < 0 else 1))
    except OverflowError:
        return float("-inf") if value < 0 else float("inf")


def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Whether this is the dtype of a float of 8 or 16 bits."""
    return dtype.itemsize <= 2 and dtype.kind not in "biu"


def odd_f32(x: Array) -> Array:
    """f64 to f32, rounded to odd."""
    near = x.astype(np.float32)
    back = near.astype(np.float64)
    lost = (back != x) & ~np.isnan(x) & ((near.view(np.uint32) & np.uint32(1)) == 0)
    # What was rounded to an even number lies between it and its odd neighbour on that side.
    toward = np.where(x > back, np.float32(np.inf), np.float32(-np.inf))
    return np.where(lost, np.nextafter(near, toward), near)


def odd_sum(a: Array, b: Array) -> Array:
    """The sum of two f64, rounded to odd; `error` is exactly what the sum lost (D. E. Knuth's TwoSum)."""
    total = a + b
    # NaN when the sum is not finite, and then nothing is adjusted.
    virtual = total - a
    error = (a - (total - virtual)) + (b - virtual)
    if not error.any():
        return total
    even = (total.view(np.uint64) & np.uint64(1)) == 0
    toward = np.where(error > 0, np.inf, -np.inf)
    return np.where(even & np.isfinite(error) & (error != 0), np.nextafter(total, toward), total)


def from_f64(x: Array, dtype: np.dtype[Any]) -> Array:
    """f64 to any float dtype, rounded once to nearest even. NumPy does so itself; ml_dtypes goes through f32."""
    return odd_f32(x).astype(dtype) if is_narrow(dtype) and dtype != np.float16 else x.astype(dtype)


def from_integers(x: Array, dtype: np.dtype[Any]) -> Array:
    """Integers of any width to a float of 8 or 16 bits, rounded once to nearest even."""
    if x.dtype.itemsize < 8:
        return from_f64(x.astype(np.float64), dtype)
    # Of a large number, the upper 48 bits with a sticky last one; of others everything.
    high, low = x >> x.dtype.type(16), x & x.dtype.type(0xFFFF)
    large = (high > 1 << 32) | (high < -(1 << 32) if x.dtype.kind == "i" else np.zeros(x.shape, np.bool_))
    kept = np.where(large, high | (low != 0).astype(x.dtype), x)
    return from_f64(kept.astype(np.float64) * np.where(large, 65536.0, 1.0), dtype)
