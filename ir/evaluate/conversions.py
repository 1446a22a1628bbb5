"""A value in another type, and its bits as another type's."""

from __future__ import annotations

import numpy as np

from vyre_py.ir.evaluate.arrays import bits_of, whole
from vyre_py.ir.language.narrowing import from_f64, from_integers, is_narrow
from vyre_py.ir.language.types import Array, Kind, Type, scalar_of

__all__ = ["canonical_bits"]  # the others through the package


def cast(t: Type, a: Array) -> Array:
    if is_narrow(a.dtype):
        a = a.astype(np.float32)
    if t.kind is Kind.BOOL:
        true: Array = a != 0
        return true
    if a.dtype.kind == "f":
        return _to_integer(t, a) if t.is_integer else from_f64(a, t.dtype) if a.dtype.itemsize == 8 else a.astype(t.dtype)
    # NumPy's own conversions of integers to f32 and f64 round once.
    return from_integers(a, t.dtype) if is_narrow(t.dtype) and a.dtype.kind != "b" else a.astype(t.dtype)


def _to_integer(t: Type, a: Array) -> Array:
    # The ends as powers of two, which f64 holds where it does not hold the greatest integer.
    wide = np.trunc(a.astype(np.float64))
    above, below = wide >= 2.0 ** (t.bits - t.is_signed), wide <= float(t.minimum)
    inside = np.where(above | below | np.isnan(wide), 0.0, wide)
    return np.where(above, whole(t, t.maximum), np.where(below, whole(t, t.minimum), inside.astype(t.dtype)))


def quantize_f16(t: Type, a: Array) -> Array:
    return a.astype(np.float16).astype(t.dtype)


def canonical_bits(a: Array) -> Array:
    """The bits of floats, of each NaN those of the one canonical NaN."""
    source = scalar_of(a.dtype)
    assert source is not None  # every array here is of a type of the language
    bits = bits_of(a)
    return np.where(np.isnan(a.astype(np.float32) if is_narrow(a.dtype) else a), bits.dtype.type(source.canonical_nan), bits)


def bitcast(t: Type, a: Array) -> Array:
    bits = a if a.dtype.kind in "iu" else canonical_bits(a)
    flat = np.ascontiguousarray(bits if bits.ndim > 1 else bits[:, np.newaxis]).view(t.dtype)
    return flat if t.is_vector else flat[:, 0]
