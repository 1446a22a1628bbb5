"""The registry of the wire format: the number that stands for each type, statement, op and word of the language.

Numbers are for ever: a row is never changed or taken away, and a new name takes a number that none has had. They are written out
because the order of the tables that they name means nothing. `tests/ir/wire/test_wire.py` holds the registry against those tables, and against the
numbers of the first version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vyre_py.ir.language.nodes import STATEMENTS
from vyre_py.ir.language.ops import ATOMICS_BY_SPELLING, OPS, SUBGROUPS
from vyre_py.ir.language.tiles.tile_ops import TILE_OPS

__all__ = [
    "ACCESS_CODES", "ATOMIC_BASE", "CALL", "CODES", "CODE_NAMES", "LANES_SHIFT", "OPERAND_KINDS", "OP_BASE", "SCALAR_CODES", "SIZE_CODES", "SIZE_CONST",
    "SIZE_DIM", "SIZE_FIRST_OP", "SPACE_CODES", "SUBGROUP_BASE", "TILE_BASE", "TYPE_CODES", "TYPE_NAMES",
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

SPACE_CODES: Final[Mapping[str, int]] = {"buffer": 1, "workgroup": 2, "private": 3, "table": 4}
ACCESS_CODES: Final[Mapping[str, int]] = {"read": 1, "write": 2, "read_write": 3}

# What the low 2 bits of an operand say that the rest of it counts.
OPERAND_KINDS: Final[Mapping[str, int]] = {"value": 0, "constant": 1, "param": 2, "size": 3}

# Nodes of sizes: a whole number, a dim, and from 3 on an operation on two sizes.
SIZE_CONST: Final = 1
SIZE_DIM: Final = 2
SIZE_FIRST_OP: Final = 3
SIZE_CODES: Final[Mapping[str, int]] = {"add": 3, "sub": 4, "mul": 5, "ceil_div": 6, "min": 7, "max": 8}

# Statements. A `let` has no code of its own: its op's stands for it; so does that of an atomic, of what a subgroup does, and of a tile op. One whose op is
# a function of the Program is a call.
CALL: Final = "call"
_STATEMENTS: Final[Mapping[str, int]] = {**{kind.spelling: kind.code for kind in STATEMENTS if kind.spelling}, CALL: 0x40}
OP_BASE: Final = 0x100
ATOMIC_BASE: Final = 0x1000
SUBGROUP_BASE: Final = 0x2000
TILE_BASE: Final = 0x3000

# Name -> code of everything that a row of a body may be.
CODES: Final[Mapping[str, int]] = {
    **_STATEMENTS,
    **{name: OP_BASE + op.code for name, op in OPS.items()},
    **{f"atomic_{name}": ATOMIC_BASE + op.code for name, op in ATOMICS_BY_SPELLING.items()},
    **{f"subgroup_{name}": SUBGROUP_BASE + op.code for name, op in SUBGROUPS.items()},
    **{f"tile_{name}": TILE_BASE + op.code for name, op in TILE_OPS.items()},
}
CODE_NAMES: Final[Mapping[int, str]] = {code: name for name, code in CODES.items()}
