"""The language's scalar types and constants in LLVM IR's spelling."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Final

from vyre_py.ir.language.nodes import Const
from vyre_py.ir.language.types import Kind, Type, encode

__all__ = ["bits_type", "bytes_literal", "integer", "is_small_float", "literal", "llvm_type", "memory_type", "number"]

_NAMES: Final[Mapping[tuple[bool, int], str]] = {
    (False, 1): "i1", (False, 8): "i8", (False, 16): "i16", (False, 32): "i32", (False, 64): "i64",
    (True, 8): "i8", (True, 16): "i16", (True, 32): "float", (True, 64): "double",
}


def _spread(scalar: str, width: int) -> str:
    return scalar if width == 1 else f"<{width} x {scalar}>"


def llvm_type(scalar: Type, width: int = 1) -> str:
    """The LLVM type of `width` values of a scalar type: "i32", "<8 x float>"; a bool is i1, floats of 8 and 16 bits are their bits."""
    return _spread(_NAMES[scalar.is_float, scalar.bits], width)


def is_small_float(scalar: Type) -> bool:
    """Whether this is a float of 8 or 16 bits, which is kept as its bits."""
    return scalar.is_float and scalar.bits <= 16


def bits_type(bits: int, width: int = 1) -> str:
    """The LLVM type of `width` integers of this many bits."""
    return _spread(f"i{bits}", width)


def memory_type(scalar: Type, width: int = 1) -> str:
    """The LLVM type of `width` elements in memory, where a bool is a byte."""
    return bits_type(8, width) if scalar.kind is Kind.BOOL else llvm_type(scalar, width)


def integer(value: int, bits: int, width: int = 1) -> str:
    """An integer constant of `bits` bits, without its type, repeated over `width` lanes."""
    return str(value) if width == 1 else f"splat (i{bits} {value})"


def bytes_literal(data: bytes) -> str:
    """An array constant of bytes, with its type; there is one byte at least."""
    return f'[{len(data)} x i8] c"\\{data.hex(chr(92)).upper()}"'


def number(scalar: Type, value: int | float, width: int = 1) -> str:
    """A numeric constant that `scalar` holds exactly, without its type, repeated over `width` lanes."""
    if is_small_float(scalar):
        return integer(encode(scalar, value), scalar.bits, width)
    if not scalar.is_float:
        return integer(int(value), scalar.bits, width)
    # LLVM spells a float as the 64 bits of the double of the same value.
    text = f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    return text if width == 1 else f"splat ({llvm_type(scalar)} {text})"


def literal(const: Const, width: int = 1) -> str:
    """A constant of the language, without its type, repeated over `width` lanes; every NaN's bits survive."""
    scalar = const.type
    if scalar.kind is Kind.BOOL:
        return ("true" if const.bits else "false") if width == 1 else f"splat (i1 {'true' if const.bits else 'false'})"
    if is_small_float(scalar):
        return integer(const.bits, scalar.bits, width)
    value = const.value
    if isinstance(value, float) and math.isnan(value):
        # The double spelling would quiet a signalling NaN.
        text = f"bitcast (i{scalar.bits} {const.bits} to {llvm_type(scalar)})"
        return text if width == 1 else f"splat ({llvm_type(scalar)} {text})"
    return number(scalar, value, width)
