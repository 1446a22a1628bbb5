"""Vectors of numbers packed into one u32, and back; products of bytes so packed."""

from __future__ import annotations

from typing import Final

import numpy as np

from vyre_py.ir.evaluate.arrays import Evaluation, aligned
from vyre_py.ir.evaluate.conversions import bitcast
from vyre_py.ir.evaluate.numbers import clamp
from vyre_py.ir.language.types import Array, Type, f16, f32, i8, i16, u8, u16

__all__: list[str] = []  # through the package

# Form -> the type that a component is packed as; of the normalised ones, the greatest value stands for 1.
_PACKED: Final = {
    "4x8_snorm": i8, "4x8_unorm": u8, "4x8_sint": i8, "4x8_uint": u8,
    "2x16_snorm": i16, "2x16_unorm": u16, "2x16_sint": i16, "2x16_uint": u16, "2x16_float": f16,
}  # fmt: skip


def joined(t: Type, a: Array, b: Array) -> Array:
    """The bits of two elements of 16 bits, the first in the lower half."""
    low, high = [np.ascontiguousarray(x).view(np.uint16).astype(t.dtype) for x in (a, b)]
    made: Array = low | high << t.dtype.type(16)
    return made


def packer(form: str) -> Evaluation:
    """The evaluation of pack{form}."""
    part = _PACKED[form]
    normalised = form.endswith("norm")
    least, greatest = np.full(1, -1 if part.is_signed else 0, np.float32), np.ones(1, np.float32)

    def evaluate(t: Type, a: Array) -> Array:
        scaled = np.rint(clamp(f32, a, least, greatest) * np.float32(part.maximum)) if normalised else a
        return bitcast(t, scaled.astype(part.dtype))

    return evaluate


def unpacker(form: str) -> Evaluation:
    """The evaluation of unpack{form}."""
    part = _PACKED[form]
    normalised = form.endswith("norm")

    def evaluate(t: Type, a: Array) -> Array:
        wide = np.ascontiguousarray(a).view(part.dtype).reshape(-1, t.lanes).astype(t.dtype)
        # The least value of a signed part lies below -1, which it stands for too.
        return np.maximum(wide / np.float32(part.maximum), np.float32(-1)) if normalised else wide

    return evaluate


def dot4(part: Type) -> Evaluation:
    """The evaluation of the sum of products of four bytes of this type, and of a third operand."""

    def evaluate(t: Type, a: Array, b: Array, c: Array) -> Array:
        a, b, total = aligned(a, b, c)
        for place in range(0, a.itemsize * 8, part.bits):
            x, y = [(word >> np.uint32(place)).astype(np.uint8).view(part.dtype).astype(t.dtype) for word in (a, b)]
            total = total + x * y
        return total

    return evaluate
