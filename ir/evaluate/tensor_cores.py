"""Products of matrices as tensor cores compute them, to the bit.

The arguments are those of `tiles`. A tensor core adds the products of some neighbours along k, and what it has so far, at once: it takes the greatest
exponent of all, cuts each toward zero at so many bits below that, adds these exactly, and cuts the sum toward zero to an f32: how many of each stands in
`ir.language.tiles.tensor_model`. A product's exponent is the sum of its factors' exponents, those of subnormal numbers being the least of their type.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from vyre_py.ir.evaluate.tile_meanings import mma
from vyre_py.ir.language.tiles.tensor_model import TensorModel, tensor_model
from vyre_py.ir.language.types import Array, Type, f16, f32, scalar_of

__all__: list[str] = []  # through the package

_LEAST: Final = f32.least_exponent
_TF32_MASK: Final = 0xFFFFE000
_GREATEST: Final = 128  # the exponent from which on nothing is finite


def mma_sm90(t: Type, numbers: tuple[int, ...], a: Array, b: Array, acc: Array) -> Array:
    """By GPUs of compute capability 9.0, of floats of 8 bits as products of warpgroups. Of factors of f32 the lowest 13 bits are not taken in (tf32)."""
    model = tensor_model(_type_of(a), t.scalar, by_warps=False)
    return mma(t, numbers, a, b, acc) if model is None else _chain(_upper(a), _upper(b), acc, model)


def mma_sm90_warps(t: Type, numbers: tuple[int, ...], a: Array, b: Array, acc: Array) -> Array:
    """Floats of 8 bits there, as products of warps take them: as f16."""
    model, total = tensor_model(_type_of(a), t.scalar, by_warps=True), acc
    assert model is not None  # of floats of 8 bits
    for k in range(0, a.shape[2], model.own):
        left, right = a[:, :, k : k + model.own].astype(np.float16), b[:, k : k + model.own].astype(np.float16)
        is_later = np.arange(left.shape[2]) // 2 % 2 == 1
        first = _chain(left[:, :, ~is_later], right[:, ~is_later], np.zeros_like(acc), model)
        total = total + _chain(left[:, :, is_later], right[:, is_later], first, model)
    return total


def _type_of(x: Array) -> Type:
    found = scalar_of(x.dtype)
    assert found is not None  # the interpreter's
    return found


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


def _chain(a: Array, b: Array, acc: Array, model: TensorModel) -> Array:
    least_a, least_b = _type_of(a).least_exponent, _type_of(b).least_exponent
    a, b, total = a.astype(np.float64), b.astype(np.float64), acc.astype(np.float64)
    exponents_a, exponents_b = _exponents(a, least_a), _exponents(b, least_b)
    for k in range(0, a.shape[2], model.at_once):
        strip = slice(k, k + model.at_once)
        products = a[:, :, strip, np.newaxis] * b[:, np.newaxis, strip]
        exponents = exponents_a[:, :, strip, np.newaxis] + exponents_b[:, np.newaxis, strip]
        greatest = np.maximum(np.where(products == 0, _LEAST, exponents).max(2), _exponents(total, _LEAST))
        scale = model.bits - greatest
        added = np.trunc(np.ldexp(products, scale[:, :, np.newaxis])).sum(2) + np.trunc(np.ldexp(total, scale))
        # What is not finite is so however it is added.
        plain = products.sum(2) + total
        made = np.ldexp(added, -scale)
        total = np.where(np.isfinite(plain), _halved(made) if acc.dtype == f16.dtype else _cut(made, model.kept), plain)
    return total.astype(acc.dtype)
