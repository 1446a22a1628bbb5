"""The types of the language: one row each, with everything that a target or the host asks of a type.

A type is a scalar, a vector of 2 to 4 components of one scalar type, packed tightly in memory, or a tile: an array of constant shape of one scalar type,
which a workgroup has. Tiles are values only; no memory has such elements.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.imports import importing
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.narrowing import from_f64, sticky
from vyre_py.ir.public import public
from vyre_py.ir.travel import Portable, made_by

__all__ = [
    "SCALARS", "TYPES", "VECTORS", "Array", "Kind", "Type", "bf16", "bool_", "decode", "element", "encode", "f8e4m3", "f8e5m2", "f16", "f32", "f64", "i8",
    "i16", "i32", "i64", "scalar_of", "shaped", "signed_of", "tile_of", "u8", "u16", "u32", "u64", "unsigned_of", "vector_of",
]

Array = np.ndarray[Any, np.dtype[Any]]

_BYTE_BITS: Final = 8


class Kind(Enum):
    """What a component's bits mean."""

    BOOL = "bool"
    SINT = "signed integer"
    UINT = "unsigned integer"
    FLOAT = "float"


# Type -> its name in ml_dtypes, of those that NumPy lacks.
_ML_DTYPES: Final[Mapping[str, str]] = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}


@cache
def _ml_dtype(name: str) -> np.dtype[Any]:
    # Imported when first asked for, since few Programs have one.
    with importing:
        import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[name]))
    return dtype


@public
@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Type(Portable):
    """A type. There is one object per type, so identity is equality.

    Attributes: `name` as written in text; `kind`; `bits` of one component (a bool counts 1); `lanes`, the number of components, 1 for a scalar;
    `shape`, the extents of a tile, empty for others.
    """

    name: str
    kind: Kind
    bits: int
    lanes: int = 1
    shape: tuple[int, ...] = ()

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of one component; an array of vectors has one axis more than the memory, the components."""
        return _DTYPES.get(self.scalar.name) or _ml_dtype(self.scalar.name)

    @property
    def in_numpy(self) -> bool:
        """Whether NumPy itself has the dtype, rather than ml_dtypes."""
        return self.scalar.name in _DTYPES

    @property
    def scalar(self) -> Type:
        """The type of one component, or of a tile's elements; a scalar's own."""
        if self.shape:
            return SCALARS[self.name[len(_TILE) : self.name.index(",")]]
        return self if self.lanes == 1 else SCALARS[self.name[:-2]]

    @property
    def size_bytes(self) -> int:
        """Bytes of one element in memory, where a bool is one byte."""
        return (self.bits + 7) // 8 * self.lanes

    @property
    def total_bits(self) -> int:
        """Bits of all components of a value."""
        return self.bits * self.lanes

    @property
    def is_tile(self) -> bool:
        """Whether this is an array that a workgroup has."""
        return bool(self.shape)

    @property
    def is_vector(self) -> bool:
        """Whether this has more than one component."""
        return self.lanes > 1

    @property
    def is_integer(self) -> bool:
        """Whether the components are signed or unsigned integers."""
        return self.kind in (Kind.SINT, Kind.UINT)

    @property
    def is_float(self) -> bool:
        """Whether the components are floating-point numbers."""
        return self.kind is Kind.FLOAT

    @property
    def is_storage(self) -> bool:
        """Whether values are kept, moved and cast only: floats of 8 bits."""
        return self.is_float and self.bits == _BYTE_BITS

    @property
    def is_signed(self) -> bool:
        """Whether the components are signed integers."""
        return self.kind is Kind.SINT

    @property
    def minimum(self) -> int:
        """The least value of an integer type."""
        return -(1 << (self.bits - 1)) if self.kind is Kind.SINT else 0

    @property
    def maximum(self) -> int:
        """The greatest value of an integer type (1 for bool)."""
        return (1 << (self.bits - 1)) - 1 if self.kind is Kind.SINT else (1 << self.bits) - 1

    @property
    def fraction_bits(self) -> int:
        """How many bits of a float type's significand lie behind its point."""
        return _FORMATS[self.scalar.name][0]

    @property
    def least_exponent(self) -> int:
        """The exponent of a float type's least normal number: for f32 -126."""
        return _FORMATS[self.scalar.name][1]

    @property
    def greatest_bits(self) -> int:
        """The bits of a float type's greatest finite number; infinity is next, or where the type has none NaN."""
        return _FORMATS[self.scalar.name][2]

    @property
    def has_infinities(self) -> bool:
        """Whether a float type has infinities: all but f8e4m3."""
        return self.greatest_bits + 1 != self.canonical_nan

    @property
    def canonical_nan(self) -> int:
        """The bits of a float type's one canonical NaN: quiet, positive, no payload."""
        return _FORMATS[self.scalar.name][3]

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__

    def __reduce__(self) -> tuple[Any, ...]:
        return made_by(Type._tile, self.scalar.name, self.shape) if self.shape else made_by(Type._named, self.name)

    @classmethod
    def _named(cls, name: str) -> Type:
        return TYPES[name]

    @classmethod
    def _tile(cls, scalar: str, shape: tuple[int, ...]) -> Type:
        return tile_of(SCALARS[scalar], shape)

    def _identity(self) -> str:
        return self.name


bool_ = Type("bool", Kind.BOOL, 1)
i8 = Type("i8", Kind.SINT, 8)
i16 = Type("i16", Kind.SINT, 16)
i32 = Type("i32", Kind.SINT, 32)
i64 = Type("i64", Kind.SINT, 64)
u8 = Type("u8", Kind.UINT, 8)
u16 = Type("u16", Kind.UINT, 16)
u32 = Type("u32", Kind.UINT, 32)
u64 = Type("u64", Kind.UINT, 64)
f8e4m3 = Type("f8e4m3", Kind.FLOAT, 8)
f8e5m2 = Type("f8e5m2", Kind.FLOAT, 8)
f16 = Type("f16", Kind.FLOAT, 16)
bf16 = Type("bf16", Kind.FLOAT, 16)
f32 = Type("f32", Kind.FLOAT, 32)
f64 = Type("f64", Kind.FLOAT, 64)

SCALARS: Final[Mapping[str, Type]] = {t.name: t for t in (bool_, i8, i16, i32, i64, u8, u16, u32, u64, f8e4m3, f8e5m2, f16, bf16, f32, f64)}
_VECTORS: Final[Mapping[tuple[Type, int], Type]] = {
    (t, lanes): Type(f"{t.name}x{lanes}", t.kind, t.bits, lanes) for t in SCALARS.values() for lanes in (2, 3, 4)
}
VECTORS: Final[Mapping[str, Type]] = {t.name: t for t in _VECTORS.values()}
TYPES: Final[Mapping[str, Type]] = {**SCALARS, **VECTORS}

_DTYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "bool": np.dtype(np.bool_), "i8": np.dtype(np.int8), "i16": np.dtype(np.int16), "i32": np.dtype(np.int32), "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8), "u16": np.dtype(np.uint16), "u32": np.dtype(np.uint32), "u64": np.dtype(np.uint64),
    "f16": np.dtype(np.float16), "f32": np.dtype(np.float32), "f64": np.dtype(np.float64),
}
# Numbers to bits, rounded once, where Python itself can: NumPy takes ten times as long for one number.
_PACKED: Final = {
    name: (struct.Struct(f"<{real}").pack, struct.Struct(f"<{word}").unpack) for name, real, word in (("f16", "e", "H"), ("f32", "f", "I"), ("f64", "d", "Q"))
}
# Of each float type: bits of a significand behind its point, exponent of the least normal number, and the bits of the greatest number and of the canonical NaN.
_FORMATS: Final[Mapping[str, tuple[int, int, int, int]]] = {
    "f8e4m3": (3, -6, 0x7E, 0x7F), "f8e5m2": (2, -14, 0x7B, 0x7E), "f16": (10, -14, 0x7BFF, 0x7E00), "bf16": (7, -126, 0x7F7F, 0x7FC0),
    "f32": (23, -126, 0x7F7FFFFF, 0x7FC00000), "f64": (52, -1022, 0x7FEFFFFFFFFFFFFF, 0x7FF8000000000000),
}  # fmt: skip
_INTEGERS: Final[Mapping[tuple[Kind, int], Type]] = {(t.kind, t.bits): t for t in SCALARS.values() if t.is_integer}


def vector_of(scalar: Type, lanes: int) -> Type:
    """The type of `lanes` components of a scalar type, 1 to 4; the scalar itself for 1."""
    return scalar if lanes == 1 else _VECTORS[scalar, lanes]


_TILE: Final = "tile("
_TILES: Final[WeakValueDictionary[str, Type]] = WeakValueDictionary()  # those in use, so that there is one object for each


def tile_of(scalar: Type, shape: Sequence[int]) -> Type:
    """The type of tiles of a scalar type and of these extents; the scalar itself for none. How large they may be is for `check`."""
    if not shape:
        return scalar
    name = f"{_TILE}{scalar.name}, {', '.join(map(str, shape))})"
    # setdefault is atomic, so that threads which make one type get one object.
    return _TILES.get(name) or _TILES.setdefault(name, Type(name, scalar.kind, scalar.bits, 1, tuple(shape)))


def shaped(type_: Type, like: Type) -> Type:
    """A scalar type, as a tile where `like` is one."""
    return tile_of(type_, like.shape)


def scalar_of(dtype: Any) -> Type | None:
    """The scalar type whose elements have this NumPy dtype (native byte order), or None."""
    wanted = np.dtype(dtype)
    for name, known in _DTYPES.items():
        if known == wanted:
            return SCALARS[name]
    # ml_dtypes is there already if the dtype is one of its own.
    return next((SCALARS[name] for name, theirs in _ML_DTYPES.items() if wanted.name == theirs and wanted == _ml_dtype(name)), None)


def unsigned_of(type_: Type) -> Type:
    """The unsigned integer type of the same width, and number of components or shape."""
    return shaped(vector_of(_INTEGERS[Kind.UINT, type_.bits], type_.lanes), type_)


def signed_of(type_: Type) -> Type:
    """The signed integer type of the same width, and number of components or shape."""
    return shaped(vector_of(_INTEGERS[Kind.SINT, type_.bits], type_.lanes), type_)


def encode(type_: Type, value: bool | int | float) -> int:
    """The bit pattern of a Python number as a value of the scalar `type_`.

    Floats round once, to nearest even. Raises OverflowError when an integer does not fit, TypeError when the number's kind
    does not fit the type (a float for an integer type, a bool for anything but bool).
    """
    if type_.kind is Kind.BOOL:
        if not isinstance(value, (bool, np.bool_)):
            raise TypeError(f"{shown(value)} is not a bool")
        return int(value)
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"a bool is not a valid {type_}")
    if type_.is_integer:
        if not isinstance(value, (int, np.integer)):
            raise TypeError(f"{shown(value)} is not an integer")
        if not type_.minimum <= value <= type_.maximum:
            raise OverflowError(f"{shown(value)} does not fit {type_} ({type_.minimum} to {type_.maximum})")
        return int(value) & ((1 << type_.bits) - 1)
    if isinstance(value, np.generic) and (given := scalar_of(value.dtype)) is not None and not given.in_numpy:
        value = float(value)  # to NumPy it is no kind of number
    if not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{shown(value)} is not a number")
    if isinstance(value, (int, np.integer)):
        # Narrower types round what f64 holds, so nothing may be rounded before.
        value = _nearest(int(value)) if type_ is f64 else sticky(int(value))
    if type_.name in _PACKED and not math.isnan(value):
        pack, unpack = _PACKED[type_.name]
        try:
            return int(unpack(pack(value))[0])
        except OverflowError:  # past the greatest number: infinity
            pass
    with np.errstate(over="ignore", invalid="ignore"):  # a NaN that signals becomes a quiet one
        rounded = from_f64(np.array([value], np.float64), type_.dtype)
    return int(rounded.view(f"u{type_.size_bytes}")[0])


def _nearest(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("-inf") if value < 0 else float("inf")


def element(type_: Type, bits: int) -> Array:
    """The element that a bit pattern of the scalar `type_` stands for, as a 0-d array: a float's NaN payload survives."""
    if type_.kind is Kind.BOOL:
        return np.array(bits != 0)
    return np.array(bits, dtype=f"u{type_.size_bytes}").view(type_.dtype)


def decode(type_: Type, bits: int) -> bool | int | float:
    """The Python number that a bit pattern of the scalar `type_` stands for (a float's NaN payload is lost)."""
    if type_.kind is Kind.BOOL:
        return bool(bits)
    if type_.is_float:
        return float(element(type_, bits))
    return bits - (1 << type_.bits) if type_.kind is Kind.SINT and bits >> (type_.bits - 1) else bits
