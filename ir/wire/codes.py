"""The registry of the wire format: the number that stands for each type, word and kind of size. `statement_codes` has those of statements and ops.

Numbers are for ever: a row is never changed or taken away, and a new name takes a number that none has had. They are written out
because the order of the tables that they name means nothing. `tests/ir/wire/test_wire.py` holds the registry against those tables, and against the
numbers of the first version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vyre_py.ir.language.nodes import Access, Space
from vyre_py.ir.language.types import TYPES, Type

__all__ = [
    "ACCESSES", "ACCESS_CODES", "LANES_SHIFT", "OPERAND_KINDS", "SCALAR_CODES", "SIZE_CODES", "SIZE_CONST", "SIZE_DIM", "SIZE_FIRST_OP", "SIZE_OPS", "SPACES",
    "SPACE_CODES", "TYPES_BY_CODE", "TYPE_CODES", "TYPE_NAMES", "TYPE_NUMBERS",
]

LANES_SHIFT: Final = 6
_WIDEST: Final = 4  # components

# The type of one component, in the low 6 bits of a type's code; above them is the number of components less 1. 0 is no type.
SCALAR_CODES: Final[Mapping[str, int]] = {
    "bool": 1, "i8": 2, "i16": 3, "i32": 4, "i64": 5, "u8": 6, "u16": 7, "u32": 8, "u64": 9, "f16": 10, "bf16": 11, "f32": 12, "f64": 13,
    "f8e4m3": 14, "f8e5m2": 15,
}
TYPE_CODES: Final[Mapping[str, int]] = {
    (name if lanes == 1 else f"{name}x{lanes}"): code | (lanes - 1) << LANES_SHIFT for lanes in range(1, _WIDEST + 1) for name, code in SCALAR_CODES.items()
}
TYPE_NAMES: Final[Mapping[int, str]] = {code: name for name, code in TYPE_CODES.items()}

TYPES_BY_CODE: Final[Mapping[int, Type]] = {TYPE_CODES[name]: type_ for name, type_ in TYPES.items()}
TYPE_NUMBERS: Final[Mapping[Type, int]] = {type_: code for code, type_ in TYPES_BY_CODE.items()}

SPACE_CODES: Final[Mapping[str, int]] = {"buffer": 1, "workgroup": 2, "private": 3, "table": 4}
ACCESS_CODES: Final[Mapping[str, int]] = {"read": 1, "write": 2, "read_write": 3}
SPACES: Final[Mapping[int, Space]] = {SPACE_CODES[space.value]: space for space in Space}
ACCESSES: Final[Mapping[int, Access]] = {ACCESS_CODES[access.value]: access for access in Access}

# What the low 2 bits of an operand say that the rest of it counts.
OPERAND_KINDS: Final[Mapping[str, int]] = {"value": 0, "constant": 1, "param": 2, "size": 3}

# Nodes of sizes: a whole number, a dim, and from 3 on an operation on two sizes.
SIZE_CONST: Final = 1
SIZE_DIM: Final = 2
SIZE_FIRST_OP: Final = 3
SIZE_CODES: Final[Mapping[str, int]] = {"add": 3, "sub": 4, "mul": 5, "ceil_div": 6, "min": 7, "max": 8}
SIZE_OPS: Final[Mapping[int, str]] = {code: name for name, code in SIZE_CODES.items()}
