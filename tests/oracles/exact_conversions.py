"""Casts, bitcasts and packing by fractions, Python's integers and `struct`; numbers as in `exact_samples`, vectors as tuples of them."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from functools import reduce
from typing import Final

import exact_floats as floats
from exact_floats import FORMATS, Format
from exact_integers import saturate, wrap
from exact_samples import Number

from vyre_py.ir.language.types import Type, bool_, f16, f32

# ---------------------------------------------------------------- casts


def cast_oracle(source: Type, target: Type, value: Number) -> Number:
    """A scalar in another scalar type."""
    if source.is_float:
        f = FORMATS[source]
        if target is bool_:
            return f.magnitude(value) != 0
        if f.is_nan(value):
            return FORMATS[target].nan if target.is_float else 0
        x = f.value(value)
        if target.is_float:
            to = FORMATS[target]
            return to.rounded(Fraction(x)) if x and f.is_finite(value) else to.from_special(x)
        return saturate(target, math.trunc(x) if math.isfinite(x) else (-(2**70) if x < 0 else 2**70))
    if target is bool_:
        return value != 0
    return FORMATS[target].rounded(Fraction(int(value))) if target.is_float else wrap(target, int(value))


# ---------------------------------------------------------------- bits


def stored(t: Type, row: tuple[Number, ...]) -> int:
    """The bytes of a value as one number, the first component lowest; of NaNs the canonical one."""
    bits = [FORMATS[t.scalar].nan if t.is_float and FORMATS[t.scalar].is_nan(x) else x % (1 << t.bits) for x in row]
    return sum(b << k * t.bits for k, b in enumerate(bits))


def taken(t: Type, stored_bits: int) -> tuple[Number, ...]:
    """The components whose bytes are those of a number."""
    parts = [stored_bits >> k * t.bits & (1 << t.bits) - 1 for k in range(t.lanes)]
    return tuple(parts if t.is_float else [wrap(t, p) for p in parts])


# ---------------------------------------------------------------- packing

CODES: Final = {
    "4x8_snorm": "4b", "4x8_unorm": "4B", "4x8_sint": "4b", "4x8_uint": "4B", "2x16_snorm": "2h", "2x16_unorm": "2H", "2x16_sint": "2h", "2x16_uint": "2H",
}


def _converted(source: Format, target: Format, bits: Number) -> Number:
    """A float in another format, a NaN as the canonical one."""
    sign = target.sign if bits & source.sign else 0
    if source.is_nan(bits):
        return target.nan
    return sign | target.infinity if source.is_inf(bits) else target.rounded(Fraction(source.value(bits)), sign)


def packed(form: str, row: tuple[Number, ...]) -> int:
    """The word that `pack` followed by the form makes."""
    f = FORMATS[f32]
    if form == "2x16_float":
        low, high = (_converted(f, FORMATS[f16], b) for b in row)
        return int(low | high << 16)
    bits = int(form.partition("x")[2].partition("_")[0])
    if form.endswith("norm"):
        signed = form.endswith("snorm")
        least, greatest = (-1.0 if signed else 0.0), (1 << (bits - signed)) - 1
        inside = [least if f.is_nan(b) else min(max(f.value(b), least), 1.0) for b in row]
        row = tuple(round(f.value(f.rounded(Fraction(x) * greatest))) for x in inside)
    word: int = struct.unpack("<I", struct.pack(f"<{form[0]}{'BH'[bits == 16]}", *(x % (1 << bits) for x in row)))[0]
    return word


def unpacked(form: str, word: int) -> tuple[Number, ...]:
    """The components that `unpack` followed by the form finds."""
    f = FORMATS[f32]
    if form == "2x16_float":
        return tuple(_converted(FORMATS[f16], f, half) for half in (word & 0xFFFF, word >> 16))
    parts = struct.unpack("<" + CODES[form], struct.pack("<I", word))
    if not form.endswith("norm"):
        return tuple(parts)
    one = (1 << (struct.calcsize(CODES[form][1]) * 8 - form.endswith("snorm"))) - 1
    return tuple(f.rounded(max(Fraction(x, one), Fraction(-1))) for x in parts)


def dot4(form: str, t: Type, a: int, b: int, c: int) -> int:
    """c, of type `t`, and the products of the bytes of two words."""
    return wrap(t, c + sum(x * y for x, y in zip(*(struct.unpack("<" + CODES[form], struct.pack("<I", word)) for word in (a, b)), strict=True)))


# ---------------------------------------------------------------- products of vectors


def _products(t: Type, a: tuple[Number, ...], b: tuple[Number, ...]) -> list[Number]:
    return [floats.mul(FORMATS[t], x, y) if t.is_float else wrap(t, x * y) for x, y in zip(a, b, strict=True)]


def dot(t: Type, a: tuple[Number, ...], b: tuple[Number, ...]) -> Number:
    """Of components of the scalar type `t`: products, added from left to right."""
    return reduce(lambda x, y: floats.add(FORMATS[t], x, y) if t.is_float else wrap(t, x + y), _products(t, a, b))


def length(t: Type, a: tuple[Number, ...]) -> Number:
    """The root of the dot product with itself."""
    return floats.sqrt(FORMATS[t], dot(t, a, a))


def _less(t: Type, a: tuple[Number, ...], b: tuple[Number, ...]) -> tuple[Number, ...]:
    return tuple(floats.sub(FORMATS[t], x, y) for x, y in zip(a, b, strict=True))


def distance(t: Type, a: tuple[Number, ...], b: tuple[Number, ...]) -> Number:
    """The length of the difference of floats."""
    return length(t, _less(t, a, b))


def normalize(t: Type, a: tuple[Number, ...]) -> tuple[Number, ...]:
    """Each component by the length."""
    return tuple(floats.div(FORMATS[t], x, length(t, a)) for x in a)


def reflect(t: Type, i: tuple[Number, ...], n: tuple[Number, ...]) -> tuple[Number, ...]:
    """i less twice its part along n."""
    twice = floats.mul(FORMATS[t], FORMATS[t].rounded(Fraction(2)), dot(t, n, i))
    return _less(t, i, tuple(floats.mul(FORMATS[t], twice, x) for x in n))


def refract(t: Type, i: tuple[Number, ...], n: tuple[Number, ...], eta: Number) -> tuple[Number, ...]:
    """GLSL's formula."""
    f, across = FORMATS[t], dot(t, n, i)
    k = floats.sub(f, f.one, floats.mul(f, floats.mul(f, eta, eta), floats.sub(f, f.one, floats.mul(f, across, across))))
    if f.value(k) < 0:
        return (0,) * len(i)
    along = floats.add(f, floats.mul(f, eta, across), floats.sqrt(f, k))
    return _less(t, tuple(floats.mul(f, eta, x) for x in i), tuple(floats.mul(f, along, x) for x in n))


def cross(t: Type, a: tuple[Number, ...], b: tuple[Number, ...]) -> tuple[Number, ...]:
    """Of three components."""
    first = _products(t, (a[1], a[2], a[0]), (b[2], b[0], b[1]))
    second = _products(t, (a[2], a[0], a[1]), (b[1], b[2], b[0]))
    return tuple(floats.sub(FORMATS[t], p, q) if t.is_float else wrap(t, p - q) for p, q in zip(first, second, strict=True))
