"""Signs, fractions and exponents of floats, and the numbers beside them."""

from __future__ import annotations

import numpy as np

from vyre_py.ir.evaluate.arrays import aligned, through_f32
from vyre_py.ir.evaluate.conversions import canonical_bits
from vyre_py.ir.language.narrowing import is_narrow
from vyre_py.ir.language.types import Array, Type

__all__: list[str] = []  # through the package


def _split(t: Type, a: Array) -> tuple[Array, Array]:
    """Magnitude and sign as bits; a NaN is positive."""
    bits = canonical_bits(a)
    top = bits.dtype.type(1 << (t.bits - 1))
    return bits & ~top, bits & top


def copysign(t: Type, x: Array, y: Array) -> Array:
    joined: Array = _split(t, x)[0] | _split(t, y)[1]
    return joined.view(t.dtype)


def nextafter(t: Type, x: Array, y: Array) -> Array:
    (size, sign), (other, sign_of_other) = _split(t, x), _split(t, y)
    top = sign.dtype.type(1 << (t.bits - 1))
    # Numbers in order are whole numbers in order; both zeros are 0.
    from_, to = (np.where(s != 0, -a.astype(np.int64), a.astype(np.int64)) for a, s in ((size, sign), (other, sign_of_other)))
    moved = from_ + (to > from_) - (to < from_)
    negative = (moved < 0) | ((moved == 0) & (sign != 0))
    bits = np.abs(moved).astype(size.dtype) | np.where(negative, top, size.dtype.type(0))
    nan = size.dtype.type(t.canonical_nan)
    bits = np.where(from_ == to, other | sign_of_other, bits)
    found: Array = np.where((size == nan) | (other == nan), nan, bits)
    return found.view(t.dtype)


@through_f32
def modf_fraction(t: Type, x: Array) -> Array:
    rest: Array = np.where(np.isinf(x), x.dtype.type(0), x - np.trunc(x))
    return np.copysign(rest, x)


@through_f32
def frexp_fraction(t: Type, x: Array) -> Array:
    fraction: Array = np.frexp(x)[0]
    return fraction


def frexp_exponent(t: Type, x: Array) -> Array:
    wide = x.astype(np.float32) if is_narrow(x.dtype) else x
    # What C leaves open: the exponent of infinities and NaN.
    return np.where(np.isfinite(wide), np.frexp(wide)[1], 0).astype(np.int32)


@through_f32
def ldexp(t: Type, x: Array, e: Array) -> Array:
    # For f16 and bf16 too: what f32 rounds is far below the least of their numbers.
    scaled: Array = np.ldexp(*aligned(x, e))
    return scaled


@through_f32
def remainder(t: Type, x: Array, y: Array) -> Array:
    # The magnitude less even multiples of y lies below 2 |y|; whether it is nearer to the next multiple is asked without doubling it.
    size: Array = np.abs(y)
    rest: Array = np.fmod(np.abs(x), size + size)
    once = rest > size - rest
    less = rest - size
    rest = np.where(once, np.where(less >= size - less, less - size, less), rest)
    return np.where(np.signbit(x), -rest, rest)
