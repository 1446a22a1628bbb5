"""Products of matrices as tensor cores compute them, to the bit.

The arguments are those of `tiles`. A tensor core adds the products of some neighbours along k, and what it has so far, at once: it takes the greatest
exponent of all, cuts each toward zero at so many bits below that, adds these exactly, and cuts the sum toward zero to an f32. A product's exponent is the
sum of its factors' exponents, those of subnormal numbers being the least of their type. (Measured on an H100 and an H200; for other GPUs see M. Fasi and
others, "Numerical behavior of NVIDIA tensor cores", 2021, and arXiv 2511.10909.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from vyre_py.ir.evaluate.tile_meanings import mma
from vyre_py.ir.language.types import Array, Type, f16, f32, f64, scalar_of

__all__: list[str] = []  # through the package

_LEAST: Final = f32.least_exponent
_FRACTION: Final = f32.fraction_bits + 1
_AT_ONCE_BYTES: Final = 32
_BITS, _BYTE_BITS = 25, 13
_TF32_MASK: Final = 0xFFFFE000
_GREATEST: Final = 128  # the exponent from which on nothing is finite


def mma_sm90(t: Type, numbers: tuple[int, ...], a: Array, b: Array, acc: Array) -> Array:
    """By GPUs of compute capability 9.0: the products of 32 bytes of a factor at once, of 25 bits below the greatest exponent. Of factors of f32 the lowest 13
    bits are not taken in (tf32). Of floats of 8 bits, as products of warpgroups take them, 13 bits are added, and of a sum 14 are kept. A sum of f16 is
    rounded to the nearest one. Products of f64 are a chain of fused multiply-adds."""
    if t.scalar is f64:
        return mma(t, numbers, a, b, acc)
    at_once, is_byte = _AT_ONCE_BYTES // a.dtype.itemsize, a.dtype.itemsize == 1
    bits, rounded = _BYTE_BITS if is_byte else _BITS, _halved if t.scalar is f16 else partial(_cut, bits=_BYTE_BITS + 1 if is_byte else _FRACTION)
    return _chain(_upper(a), _upper(b), acc, at_once, bits, rounded).astype(acc.dtype)


def _upper(x: Array) -> Array:
    """What a tensor core takes in of factors."""
    if x.dtype != np.float32:
        return x
    upper: Array = (x.view(np.uint32) & np.uint32(_TF32_MASK)).view(np.float32)
    return upper


def _exponents(x: Array, least: int) -> Array:
    """floor(log2(|x|)), the least for zero and for what is smaller."""
    _, exponents = np.frexp(x)
    return np.where(x == 0, least, np.maximum(exponents - 1, least)).astype(np.int64)


def _halved(x: Array) -> Array:
    """f64 rounded to the nearest f16."""
    return x.astype(np.float16).astype(np.float64)


def _cut(x: Array, bits: int) -> Array:
    """f64 cut toward zero to an f32 of so many bits, infinite from 2^128 on."""
    _, exponents = np.frexp(x)
    exponents = np.maximum(exponents, _LEAST + 1)
    cut = np.ldexp(np.trunc(np.ldexp(x, bits - exponents)), exponents - bits)
    finite: Array = np.where(np.abs(cut) >= 2.0**_GREATEST, np.copysign(np.inf, cut), cut)
    return finite


def _chain(a: Array, b: Array, acc: Array, at_once: int, bits: int, rounded: Callable[[Array], Array]) -> Array:
    least_a, least_b = [of.least_exponent for x in (a, b) if (of := scalar_of(x.dtype)) is not None]
    a, b, total = a.astype(np.float64), b.astype(np.float64), acc.astype(np.float64)
    exponents_a, exponents_b = _exponents(a, least_a), _exponents(b, least_b)
    for k in range(0, a.shape[2], at_once):
        strip = slice(k, k + at_once)
        products = a[:, :, strip, np.newaxis] * b[:, np.newaxis, strip]
        exponents = exponents_a[:, :, strip, np.newaxis] + exponents_b[:, np.newaxis, strip]
        greatest = np.maximum(np.where(products == 0, _LEAST, exponents).max(2), _exponents(total, _LEAST))
        scale = bits - greatest
        added = np.trunc(np.ldexp(products, scale[:, :, np.newaxis])).sum(2) + np.trunc(np.ldexp(total, scale))
        # What is not finite is so however it is added.
        plain = products.sum(2) + total
        total = np.where(np.isfinite(plain), rounded(np.ldexp(added, -scale)), plain)
    return total
