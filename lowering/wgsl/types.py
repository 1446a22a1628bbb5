"""The language's types and constants as WGSL spells them.

bool, i32, u32, f32, f64, i64 and u64 have WGSL types of their own, those of 64 bits where the device has them, in naga's spelling. Integers and floats of
8 and 16 bits are the bits of a u32, with zeros above; in buffers and tables, they and bools lie four or two to a word (`packed_bits`). Other 64-bit integers
and vectors have been taken apart before (`lowering.legal`); of vectors only a pair of u32 is left, the bits of 64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vyre_py.ir.language.nodes import Const
from vyre_py.ir.language.types import SCALARS, Type, bool_, element, f32, f64, i32, i64, u32, u64, vector_of

__all__ = ["NARROW", "WORD_PAIR", "is_sayable", "literal", "packed_bits", "value_type", "zero"]

WORD_PAIR: Final = vector_of(u32, 2)

# Types that a u32 holds the bits of.
NARROW: Final = frozenset(t for t in SCALARS.values() if t.size_bytes < u32.size_bytes and t is not bool_)

_VALUE_TYPES: Final[Mapping[Type, str]] = {
    bool_: "bool", i32: "i32", u32: "u32", f32: "f32", f64: "f64", i64: "i64", u64: "u64",
    WORD_PAIR: "vec2<u32>", vector_of(u32, 4): "vec4<u32>", **dict.fromkeys(NARROW, "u32"),
}  # fmt: skip
_ZEROS: Final[Mapping[Type, str]] = {
    bool_: "false", i32: "0i", u32: "0u", f32: "0.0f", f64: "0.0lf", i64: "0li", u64: "0lu", **dict.fromkeys(NARROW, "0u"),
}  # fmt: skip

# Float type -> the bits of its smallest normal number and of infinity, and the suffix of a literal.
_FLOATS: Final[Mapping[Type, tuple[int, int, str]]] = {
    f32: (0x00800000, 0x7F800000, "f"), f64: (0x0010000000000000, 0x7FF0000000000000, "lf"),
}  # fmt: skip


def value_type(type_: Type) -> str:
    """The WGSL type of a value."""
    return _VALUE_TYPES[type_]


def zero(type_: Type) -> str:
    """The zero of a type, which is what an access outside gives."""
    return _ZEROS[type_]


def packed_bits(type_: Type) -> int:
    """How many bits an element takes in buffers and tables where several lie in a word: 8 or 16; 0 for whole words."""
    return 8 * type_.size_bytes if type_.size_bytes < u32.size_bytes else 0


def is_sayable(const: Const) -> bool:
    """Whether a WGSL literal can say a constant on every implementation: no subnormal, infinity or NaN."""
    if const.type not in _FLOATS:
        return True
    smallest, infinity, _ = _FLOATS[const.type]
    magnitude = const.bits & ~(1 << const.type.bits - 1)
    return magnitude == 0 or smallest <= magnitude < infinity


def literal(const: Const) -> str:
    """A constant that `is_sayable` as a literal."""
    if const.type is bool_:
        return "true" if const.bits else "false"
    if const.type in _FLOATS:
        shortest = repr(float(str(element(const.type, const.bits)))) + _FLOATS[const.type][2]
        return f"({shortest})" if shortest.startswith("-") else shortest
    if const.type in (i32, i64):
        number, end = int(const.value), "i" if const.type is i32 else "li"
        if number == const.type.minimum:  # which no literal says, since the minus is an operator; negation of one out of range is refused
            return f"i32({number})" if const.type is i32 else f"({number + 1}{end} - 1{end})"
        return f"{number}{end}" if number >= 0 else f"({number}{end})"
    return f"{const.bits}{'lu' if const.type is u64 else 'u'}"
