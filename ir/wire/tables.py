"""The registry joined to the tables of the language, and as arrays over the codes, so that whole columns are looked up at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from vyre_py.ir.language.nodes import STATEMENTS, End, Memory, Statement, TileLoad, Var, Variable
from vyre_py.ir.language.op import AtomicOp, Op, SubgroupOp
from vyre_py.ir.language.ops import ATOMICS_BY_SPELLING, OPS, SUBGROUPS
from vyre_py.ir.language.tiles.tile_op import TileOp
from vyre_py.ir.language.tiles.tile_ops import TILE_OPS
from vyre_py.ir.language.types import Array
from vyre_py.ir.wire.codes import ACCESSES, SCALAR_CODES, SPACES, TYPES_BY_CODE
from vyre_py.ir.wire.statement_codes import CALL, CODES

__all__ = [
    "ATOMICS_BY_CODE", "ATOMIC_CODES", "BINDS", "CALL_CODE", "CLOSES", "CONSTANT_MASKS", "IS_ACCESS", "IS_CODE", "IS_SCALAR", "IS_SPACE", "IS_TYPE", "KINDS",
    "MAKES_TILES", "NUMBERS", "NUMBER_BITS", "OPENS", "OPS_BY_CODE", "OP_CODES", "REFERS", "REFERS_FUNCTION", "REFERS_MEMORY", "REFERS_NUMBERS",
    "REFERS_STRING", "REFERS_VARIABLE", "SUBGROUPS_BY_CODE", "SUBGROUP_CODES", "TILE_CODES", "TILE_OPS_BY_CODE", "TYPED", "numbers_of", "ref_of",
]

OPS_BY_CODE: Final[Mapping[int, Op]] = {CODES[name]: row for name, row in OPS.items()}
ATOMICS_BY_CODE: Final[Mapping[int, AtomicOp]] = {CODES[f"atomic_{name}"]: row for name, row in ATOMICS_BY_SPELLING.items()}
SUBGROUPS_BY_CODE: Final[Mapping[int, SubgroupOp]] = {CODES[f"subgroup_{name}"]: row for name, row in SUBGROUPS.items()}
TILE_OPS_BY_CODE: Final[Mapping[int, TileOp]] = {CODES[f"tile_{name}"]: row for name, row in TILE_OPS.items()}
OP_CODES: Final[Mapping[Op, int]] = {row: code for code, row in OPS_BY_CODE.items()}
ATOMIC_CODES: Final[Mapping[AtomicOp, int]] = {row: code for code, row in ATOMICS_BY_CODE.items()}
SUBGROUP_CODES: Final[Mapping[SubgroupOp, int]] = {row: code for code, row in SUBGROUPS_BY_CODE.items()}
TILE_CODES: Final[Mapping[TileOp, int]] = {row: code for code, row in TILE_OPS_BY_CODE.items()}
CALL_CODE: Final = CODES[CALL]
# The kinds of statements that have a code of their own, by it.
KINDS: Final[Mapping[int, type[Statement]]] = {CODES[kind.spelling]: kind for kind in STATEMENTS if kind.spelling}

REFERS_MEMORY: Final = 1
REFERS_VARIABLE: Final = 2
REFERS_STRING: Final = 3
REFERS_FUNCTION: Final = 4
REFERS_NUMBERS: Final = 5  # to nothing: it is numbers itself

# A statement's code -> the names of the numbers that share its ref, of `NUMBER_BITS` each, the first the lowest.
NUMBERS: Final[Mapping[int, tuple[str, ...]]] = {
    code: names for code, kind in KINDS.items() if (names := tuple([name for name, held in kind.payload.items() if held is int]))
}
NUMBER_BITS: Final = 16


def numbers_of(ref: int, count: int) -> list[int]:
    """The so many numbers of a ref."""
    return [ref >> NUMBER_BITS * place & (1 << NUMBER_BITS) - 1 for place in range(count)]


def ref_of(numbers: Sequence[int]) -> int:
    """The ref of numbers, each below 2^16."""
    return sum([number << NUMBER_BITS * place for place, number in enumerate(numbers)])


def _flags(size: int, codes: Iterable[int]) -> Array:
    made = np.zeros(size, np.bool_)
    made[list(codes)] = True
    return made


def _references() -> Array:
    made = np.zeros(1 << 16, np.uint8)
    made[[*ATOMICS_BY_CODE]] = REFERS_MEMORY
    made[CALL_CODE] = REFERS_FUNCTION
    for code, kind in KINDS.items():
        for held in kind.payload.values():
            made[code] = _REFERENCES[held]
    return made


# What a statement holds beside its operands -> what its ref counts.
_REFERENCES: Final[Mapping[type, int]] = {Memory: REFERS_MEMORY, Variable: REFERS_VARIABLE, str: REFERS_STRING, int: REFERS_NUMBERS}
_BINDING: Final = [
    CALL_CODE, *OPS_BY_CODE, *(code for code, row in ATOMICS_BY_CODE.items() if row.reads), *SUBGROUPS_BY_CODE, *TILE_OPS_BY_CODE,
    *(code for code, kind in KINDS.items() if kind.binds),
]  # fmt: skip

# By a statement's code: whether it is one, binds a value, has a type, opens a block, closes one, gives a tile for operands that are none; and what its ref
# counts.
IS_CODE: Final = _flags(1 << 16, CODES.values())
BINDS: Final = _flags(1 << 16, _BINDING)
TYPED: Final = _flags(1 << 16, [*_BINDING, *(code for code, kind in KINDS.items() if kind is Var)])
OPENS: Final = _flags(1 << 16, [code for code, kind in KINDS.items() if kind.opens])
CLOSES: Final = _flags(1 << 16, [CODES[End.spelling]])
MAKES_TILES: Final = _flags(1 << 16, [TileLoad.code, *TILE_OPS_BY_CODE])
REFERS: Final = _references()

# By a type's code, a space's, an access's.
IS_TYPE: Final = _flags(1 << 8, TYPES_BY_CODE)
IS_SCALAR: Final = _flags(1 << 8, SCALAR_CODES.values())
IS_SPACE: Final = _flags(1 << 8, SPACES)
IS_ACCESS: Final = _flags(1 << 8, ACCESSES)

# By a scalar type's code: the bits that its constants may have.
CONSTANT_MASKS: Final = np.array([(1 << TYPES_BY_CODE[code].bits) - 1 if IS_SCALAR[code] else 0 for code in range(1 << 8)], np.uint64)
