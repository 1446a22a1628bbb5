"""The registry of the wire format: the number that stands for each type, statement, op and word of the language.

Numbers are for ever: a row is never changed or taken away, and a new name takes a number that none has had. They are written out
because the order of the tables that they name means nothing. `tests/test_wire.py` holds the registry against those tables, and against the
numbers of the first version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vyre_py.ir.language.nodes import STATEMENTS

__all__ = [
    "ACCESS_CODES", "ATOMIC_BASE", "CODES", "CODE_NAMES", "LANES_SHIFT", "OPERAND_KINDS", "OP_BASE", "SCALAR_CODES", "SIZE_CODES", "SIZE_CONST", "SIZE_DIM",
    "SIZE_FIRST_OP", "SPACE_CODES", "TYPE_CODES", "TYPE_NAMES",
]

LANES_SHIFT: Final = 6
_WIDEST: Final = 4  # components

# The type of one component, in the low 6 bits of a type's code; above them is the number of components less 1. 0 is no type.
SCALAR_CODES: Final[Mapping[str, int]] = {
    "bool": 1, "i8": 2, "i16": 3, "i32": 4, "i64": 5, "u8": 6, "u16": 7, "u32": 8, "u64": 9, "f16": 10, "bf16": 11, "f32": 12, "f64": 13,
}
TYPE_CODES: Final[Mapping[str, int]] = {
    (name if lanes == 1 else f"{name}x{lanes}"): code | (lanes - 1) << LANES_SHIFT for lanes in range(1, _WIDEST + 1) for name, code in SCALAR_CODES.items()
}
TYPE_NAMES: Final[Mapping[int, str]] = {code: name for name, code in TYPE_CODES.items()}

SPACE_CODES: Final[Mapping[str, int]] = {"buffer": 1, "workgroup": 2, "private": 3, "table": 4}
ACCESS_CODES: Final[Mapping[str, int]] = {"read": 1, "write": 2, "read_write": 3}

# What the low 2 bits of an operand say that the rest of it counts.
OPERAND_KINDS: Final[Mapping[str, int]] = {"value": 0, "constant": 1, "param": 2, "size": 3}

# Nodes of sizes: a whole number, a dim, and from 3 on an operation on two sizes.
SIZE_CONST: Final = 1
SIZE_DIM: Final = 2
SIZE_FIRST_OP: Final = 3
SIZE_CODES: Final[Mapping[str, int]] = {"add": 3, "sub": 4, "mul": 5, "ceil_div": 6, "min": 7, "max": 8}

# Statements. A `let` has no code of its own: its op's stands for it; so does an atomic's.
_STATEMENTS: Final[Mapping[str, int]] = {kind.spelling: kind.code for kind in STATEMENTS if kind.spelling}
_OPS: Final[Mapping[str, int]] = {
    "add": 1, "sub": 2, "mul": 3, "div": 4, "rem": 5, "neg": 6, "abs": 7, "sign": 8, "min": 9, "max": 10, "clamp": 11, "fma": 12, "sqrt": 13,
    "floor": 14, "ceil": 15, "trunc": 16, "round": 17, "fract": 18, "and": 19, "or": 20, "xor": 21, "not": 22, "shl": 23, "shr": 24, "rotl": 25,
    "rotr": 26, "popcount": 27, "clz": 28, "ctz": 29, "reverse_bits": 30, "mul_hi": 31, "abs_diff": 32, "eq": 33, "ne": 34, "lt": 35, "le": 36,
    "gt": 37, "ge": 38, "logical_and": 39, "logical_or": 40, "logical_not": 41, "select": 42, "is_nan": 43, "is_inf": 44, "is_finite": 45, "cast": 46,
    "bitcast": 47, "swizzle": 48, "vec2": 49, "vec3": 50, "vec4": 51, "dot": 52, "length": 53, "cross": 54, "all": 55, "any": 56,
    "saturating_add": 57, "saturating_sub": 58, "saturating_mul": 59, "extract_bits": 60, "insert_bits": 61, "rsqrt": 62, "pack4x8_snorm": 63,
    "pack4x8_unorm": 64, "pack4x8_sint": 65, "pack4x8_uint": 66, "pack2x16_snorm": 67, "pack2x16_unorm": 68, "pack2x16_sint": 69, "pack2x16_uint": 70,
    "pack2x16_float": 71, "unpack4x8_snorm": 72, "unpack4x8_unorm": 73, "unpack4x8_sint": 74, "unpack4x8_uint": 75, "unpack2x16_snorm": 76,
    "unpack2x16_unorm": 77, "unpack2x16_sint": 78, "unpack2x16_uint": 79, "unpack2x16_float": 80, "exp": 81, "exp2": 82, "exp10": 83, "expm1": 84,
    "log": 85, "log2": 86, "log10": 87, "log1p": 88, "sin": 89, "cos": 90, "tan": 91, "asin": 92, "acos": 93, "atan": 94, "atan2": 95, "sinh": 96,
    "cosh": 97, "tanh": 98, "asinh": 99, "acosh": 100, "atanh": 101, "pow": 102, "cbrt": 103, "hypot": 104, "erf": 105, "erfc": 106,
    "global_id.x": 107, "global_id.y": 108, "global_id.z": 109, "local_id.x": 110, "local_id.y": 111, "local_id.z": 112, "workgroup_id.x": 113,
    "workgroup_id.y": 114, "workgroup_id.z": 115, "num_workgroups.x": 116, "num_workgroups.y": 117, "num_workgroups.z": 118, "workgroup_size.x": 119,
    "workgroup_size.y": 120, "workgroup_size.z": 121, "local_index": 122,
}
_ATOMICS: Final[Mapping[str, int]] = {
    "add": 1, "sub": 2, "min": 3, "max": 4, "and": 5, "or": 6, "xor": 7, "exchange": 8, "compare_exchange": 9,
}
OP_BASE: Final = 0x100
ATOMIC_BASE: Final = 0x1000

# Name -> code of everything that a row of a body may be.
CODES: Final[Mapping[str, int]] = {
    **_STATEMENTS,
    **{name: OP_BASE + number for name, number in _OPS.items()},
    **{f"atomic_{name}": ATOMIC_BASE + number for name, number in _ATOMICS.items()},
}
CODE_NAMES: Final[Mapping[int, str]] = {code: name for name, code in CODES.items()}
