"""Fused multiply-add: a * b + c, rounded once."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Final

import numpy as np

from vyre_py.ir.language.narrowing import from_f64, odd_sum
from vyre_py.ir.language.types import Array, Type

__all__: list[str] = []  # through the package

_Fma = Callable[[float, float, float], float]

# What a second rounding gets wrong, near 1 and among the subnormals: (a, b, c). The product of the later ones lies in the middle
# between two floats, which c moves to another middle, or off it.
_PROBES: Final = tuple(
    (a * scale, b, c * scale)
    for scale in (1.0, 2.0**-1022)
    for a, b, c in (
        (1 + 2.0**-52, 1 - 2.0**-52, -1.0),
        *((1 + 2.0**-27, 1 + 2.0**-26, c) for c in (2.0**-52, -(2.0**-52), 2.0**-200, -(2.0**-200))),
    )
)


def fma(t: Type, a: Array, b: Array, c: Array) -> Array:
    # Up to f32 the product is exact in f64; the sum is rounded to odd there, then to nearest.
    if a.dtype.itemsize == 8:
        return _fma_f64(*np.broadcast_arrays(a, b, c))
    total = odd_sum(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64))
    return from_f64(total, a.dtype)


def _fma_f64(a: Array, b: Array, c: Array) -> Array:
    """One by one, since NumPy has none."""
    call = _one_by_one()
    found = [call(x, y, z) for x, y, z in zip(a.ravel().tolist(), b.ravel().tolist(), c.ravel().tolist(), strict=True)]
    return np.array(found, np.float64).reshape(a.shape)


@cache
def _one_by_one() -> _Fma:
    """The C library's fma where it is found and right (some C libraries multiply and add), else fractions."""
    # On Windows the C run-time has it, elsewhere the process itself (Python needs it too), or the mathematical library by its name on Linux.
    for name in ("ucrtbase",) if os.name == "nt" else (None, "libm.so.6"):
        try:
            call = ctypes.CDLL(name).fma
        except (OSError, AttributeError):
            continue
        call.argtypes, call.restype = (ctypes.c_double,) * 3, ctypes.c_double
        if all(call(*probe) == exactly(*probe) for probe in _PROBES):
            return call
    return exactly


def exactly(a: float, b: float, c: float) -> float:
    """a * b + c of f64, rounded once, by fractions."""
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        # An infinite factor or addend decides; a finite product that overflows must not.
        return a * b + c if not (math.isfinite(a) and math.isfinite(b)) else c
    total = Fraction(a) * Fraction(b) + Fraction(c)
    if total == 0:
        # The sign of a zero sum is that of its zero terms, and positive where terms cancel.
        return a * b + c if c == 0 else 0.0
    try:
        return float(total)
    except OverflowError:
        return -math.inf if total < 0 else math.inf
