"""The scalar types of the language: one row each, with everything that a target or the host asks of a type."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from vyre_py.ir.errors import shown

__all__ = ["SCALARS", "Array", "Kind", "Scalar", "bool_", "decode", "element", "encode", "f32", "i32", "scalar_of", "u8", "u32", "unsigned_of"]

Array = np.ndarray[Any, np.dtype[Any]]


class Kind(Enum):
    """What a scalar's bits mean."""

    BOOL = "bool"
    SINT = "signed integer"
    UINT = "unsigned integer"
    FLOAT = "float"


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """A scalar type. There is one object per type, so identity is equality.

    Attributes: `name` as written in text; `kind`; `bits` of a value (a bool counts 1); `size_bytes` and `dtype` of one
    element in memory, where a bool is one byte; `storage_only` types are loaded, stored, moved and cast but not computed with.
    """

    name: str
    kind: Kind
    bits: int
    dtype: np.dtype[Any]
    storage_only: bool = False

    @property
    def size_bytes(self) -> int:
        """Bytes of one element in memory."""
        return int(self.dtype.itemsize)

    @property
    def is_integer(self) -> bool:
        """Whether this is a signed or unsigned integer."""
        return self.kind in (Kind.SINT, Kind.UINT)

    @property
    def is_float(self) -> bool:
        """Whether this is a floating-point type."""
        return self.kind is Kind.FLOAT

    @property
    def is_signed(self) -> bool:
        """Whether this is a signed integer."""
        return self.kind is Kind.SINT

    @property
    def minimum(self) -> int:
        """The least value of an integer type."""
        return -(1 << (self.bits - 1)) if self.kind is Kind.SINT else 0

    @property
    def maximum(self) -> int:
        """The greatest value of an integer type (1 for bool)."""
        return (1 << (self.bits - 1)) - 1 if self.kind is Kind.SINT else (1 << self.bits) - 1

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__


bool_ = Scalar("bool", Kind.BOOL, 1, np.dtype(np.bool_))
u8 = Scalar("u8", Kind.UINT, 8, np.dtype(np.uint8), storage_only=True)
i32 = Scalar("i32", Kind.SINT, 32, np.dtype(np.int32))
u32 = Scalar("u32", Kind.UINT, 32, np.dtype(np.uint32))
f32 = Scalar("f32", Kind.FLOAT, 32, np.dtype(np.float32))

SCALARS: dict[str, Scalar] = {t.name: t for t in (bool_, u8, i32, u32, f32)}
_UNSIGNED = {8: u8, 32: u32}
_BITS_DTYPE = {32: np.dtype(np.uint32)}


def scalar_of(dtype: Any) -> Scalar | None:
    """The scalar type whose elements have this NumPy dtype (native byte order), or None."""
    wanted = np.dtype(dtype)
    return next((t for t in SCALARS.values() if t.dtype == wanted), None)


def unsigned_of(type_: Scalar) -> Scalar:
    """The unsigned integer type of the same width."""
    return _UNSIGNED[type_.bits]


def encode(type_: Scalar, value: bool | int | float) -> int:
    """The bit pattern of a Python number as a value of `type_`.

    Floats round once, to nearest even. Raises OverflowError when an integer does not fit, TypeError when the number's kind
    does not fit the type (a float for an integer type, a bool for anything but bool).
    """
    if type_.kind is Kind.BOOL:
        if not isinstance(value, (bool, np.bool_)):
            raise TypeError(f"{shown(value)} is not a bool")
        return int(value)
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"a bool is no {type_}")
    if type_.is_integer:
        if not isinstance(value, (int, np.integer)):
            raise TypeError(f"{shown(value)} is not an integer")
        if not type_.minimum <= value <= type_.maximum:
            raise OverflowError(f"{shown(value)} does not fit {type_} ({type_.minimum} to {type_.maximum})")
        return int(value) & ((1 << type_.bits) - 1)
    if not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{shown(value)} is not a number")
    with np.errstate(over="ignore"):
        exact = np.float64(_to_odd(int(value))) if isinstance(value, (int, np.integer)) else value
        rounded = np.array(exact).astype(type_.dtype)
    return int(rounded.view(_BITS_DTYPE[type_.bits]))


def element(type_: Scalar, bits: int) -> Array:
    """The element that a bit pattern of `type_` stands for, as a 0-d array: a float's NaN payload survives."""
    if type_.kind is Kind.BOOL:
        return np.array(bits != 0)
    return np.array(bits, dtype=f"u{type_.size_bytes}").view(type_.dtype)


def _to_odd(value: int) -> int:
    """A whole number in the 53 bits of an f64, its last bit set if others were cut: rounding it again is rounding once."""
    cut = max(0, abs(value).bit_length() - 53)
    kept = abs(value) >> cut
    if kept << cut != abs(value):
        kept |= 1
    return (kept << cut) * (-1 if value < 0 else 1)


def decode(type_: Scalar, bits: int) -> bool | int | float:
    """The Python number that a bit pattern of `type_` stands for (a float's NaN payload is lost)."""
    if type_.kind is Kind.BOOL:
        return bool(bits)
    if type_.is_float:
        return float(element(type_, bits))
    return bits - (1 << type_.bits) if type_.kind is Kind.SINT and bits >> (type_.bits - 1) else bits
