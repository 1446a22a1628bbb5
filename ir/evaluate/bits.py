"""The bits of integers, and bools as bits."""

from __future__ import annotations

import numpy as np

from vyre_py.ir.evaluate.arrays import aligned, bits_of
from vyre_py.ir.language.types import Array, Type

__all__: list[str] = []  # through the package


def and_(t: Type, a: Array, b: Array) -> Array:
    both: Array = a & b
    return both


def or_(t: Type, a: Array, b: Array) -> Array:
    either: Array = a | b
    return either


def xor(t: Type, a: Array, b: Array) -> Array:
    differing: Array = a ^ b
    return differing


def not_(t: Type, a: Array) -> Array:
    return ~a


def _count(t: Type, b: Array) -> Array:
    """A shift's count, masked by the width."""
    count: Array = bits_of(b) & bits_of(b).dtype.type(t.bits - 1)
    return count


def shl(t: Type, a: Array, b: Array) -> Array:
    shifted: Array = bits_of(a) << _count(t, b)
    return shifted.view(a.dtype)


def shr(t: Type, a: Array, b: Array) -> Array:
    shifted: Array = a >> _count(t, b).astype(a.dtype)
    return shifted


def rotl(t: Type, a: Array, b: Array) -> Array:
    left = _count(t, b)
    right = (t.bits - left) & left.dtype.type(t.bits - 1)
    rotated: Array = (bits_of(a) << left) | (bits_of(a) >> right)
    return rotated.view(a.dtype)


def rotr(t: Type, a: Array, b: Array) -> Array:
    right = _count(t, b)
    left = (t.bits - right) & right.dtype.type(t.bits - 1)
    rotated: Array = (bits_of(a) >> right) | (bits_of(a) << left)
    return rotated.view(a.dtype)


def popcount(t: Type, a: Array) -> Array:
    count: Array = np.bitwise_count(bits_of(a))
    return count.astype(a.dtype)


def clz(t: Type, a: Array) -> Array:
    x = bits_of(a)
    for shift in (1, 2, 4, 8, 16, 32):  # every bit below the highest becomes one
        if shift < t.bits:
            x = x | x >> shift
    length: Array = np.bitwise_count(x)
    return (t.bits - length).astype(a.dtype)


def ctz(t: Type, a: Array) -> Array:
    x = bits_of(a)
    return popcount(t, ~x & (x - x.dtype.type(1))).view(a.dtype)


def reverse_bits(t: Type, a: Array) -> Array:
    x = bits_of(a)
    for shift, byte in ((1, 0x55), (2, 0x33), (4, 0x0F)):  # neighbours change places, then pairs, then halves of bytes
        mask = x.dtype.type(int.from_bytes(bytes([byte]) * x.itemsize, "little"))
        x = (x & mask) << shift | x >> shift & mask
    turned: Array = x.byteswap().view(a.dtype)
    return turned


def _field(t: Type, offset: Array, count: Array) -> tuple[Array, Array, Array]:
    """Start and length of a field of bits, cut to the width, in the type's own width; and where it is empty.

    An empty field is given a start of 0 and the whole length, so that no shift is by the width.
    """
    width = np.uint32(t.bits)
    start = np.minimum(offset, width)
    length = np.minimum(count, width - start)
    empty = length == 0
    word = np.dtype(f"u{t.bits // 8}")
    return np.where(empty, np.uint32(0), start).astype(word), np.where(empty, width, length).astype(word), empty


def extract_bits(t: Type, a: Array, offset: Array, count: Array) -> Array:
    a, offset, count = aligned(a, offset, count)
    start, length, empty = _field(t, offset, count)
    # Up to the top and down again, so that the sign follows.
    top: Array = bits_of(a) << (t.bits - start - length)
    found: Array = top.view(a.dtype) >> (t.bits - length).astype(a.dtype)
    return np.where(empty, np.zeros_like(found), found)


def insert_bits(t: Type, a: Array, b: Array, offset: Array, count: Array) -> Array:
    a, b, offset, count = aligned(a, b, offset, count)
    start, length, empty = _field(t, offset, count)
    mask = ~np.zeros_like(bits_of(a)) >> (t.bits - length) << start
    merged: Array = (bits_of(a) & ~mask) | (bits_of(b) << start & mask)
    return np.where(empty, a, merged.view(a.dtype))
