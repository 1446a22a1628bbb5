"""The language's types and constants as WGSL spells them.

A value of type u8 is a u32 below 256; every other type has a WGSL type of its own. In buffers and tables, u8 and bool lie four to a
word (`is_packed`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vyre_py.ir.nodes import Const
from vyre_py.ir.types import Scalar, bool_, element, f32, i32, u8, u32

__all__ = ["is_finite_normal", "is_packed", "literal", "value_type", "zero"]

_VALUE_TYPES: Final[Mapping[Scalar, str]] = {bool_: "bool", u8: "u32", i32: "i32", u32: "u32", f32: "f32"}
_ZEROS: Final[Mapping[Scalar, str]] = {bool_: "false", u8: "0u", i32: "0i", u32: "0u", f32: "0.0f"}
_SMALLEST_NORMAL: Final = 0x00800000
_INFINITY: Final = 0x7F800000


def value_type(type_: Scalar) -> str:
    """The WGSL type of a value."""
    return _VALUE_TYPES[type_]


def zero(type_: Scalar) -> str:
    """The zero of a type, which is what an access outside gives."""
    return _ZEROS[type_]


def is_packed(type_: Scalar) -> bool:
    """Whether elements in buffers and tables are bytes, four to a word."""
    return type_.size_bytes == 1


def is_finite_normal(bits: int) -> bool:
    """Whether f32 bits are a number that a WGSL literal can say on every implementation: no subnormal, infinity or NaN."""
    magnitude = bits & 0x7FFFFFFF
    return magnitude == 0 or _SMALLEST_NORMAL <= magnitude < _INFINITY


def literal(const: Const) -> str:
    """A constant as a literal; an f32 must satisfy `is_finite_normal`."""
    if const.type is bool_:
        return "true" if const.bits else "false"
    if const.type is f32:
        shortest = repr(float(str(element(f32, const.bits))))
        return f"({shortest}f)" if shortest.startswith("-") else f"{shortest}f"
    if const.type is i32:
        number = int(const.value)
        # WGSL has no literal for the least i32, since the minus is an operator; negation of one out of range is refused.
        return f"{number}i" if number >= 0 else f"({number}i)" if number != i32.minimum else f"i32({number})"
    return f"{const.bits}u"
