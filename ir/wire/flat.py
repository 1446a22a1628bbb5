"""A Program as flat columns: what the binary form holds byte for byte, and what every door of the language goes through.

    bytes --unpack--> Flat --verify--> build --> Program        ir.wire.binary
    JSON  --read----> Flat --verify--> build --> Program        ir.wire.json.json_reader
    arrays ---------> Flat --verify--> build --> Program        ir.wire.columns
    Program --flatten--> Flat --verify--> pack or write

A column is a NumPy array of little-endian whole numbers, one entry for each row of its table. Tables refer to each other by row number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.types import Array
from vyre_py.ir.wire.record import strings_of

__all__ = ["COLUMNS", "COUNTS", "EMPTY", "PLACE_FIELDS", "Column", "Fault", "Flat"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its field in `Flat`, NumPy dtype, the count in `COUNTS` that says how many rows there are, what an entry is, and how many
    numbers make one."""

    name: str
    dtype: str
    count: str
    doc: str
    per: int = 1

    @property
    def width(self) -> int:
        """Bytes of an entry."""
        return np.dtype(self.dtype).itemsize * self.per


PLACE_FIELDS: Final = 4

# Name -> what is counted; the order is that of the header.
COUNTS: Final[Mapping[str, str]] = {
    "strings": "strings",
    "text_bytes": "bytes of all strings",
    "dims": "dims",
    "params": "params",
    "memories": "memories",
    "axes": "axes of all memories",
    "data_bytes": "bytes of all tables' data",
    "sizes": "nodes of sizes",
    "constants": "constants",
    "statements": "statements",
    "operands": "operands of all statements",
    "named_values": "values that have a name",
    "named_variables": "variables that have a name",
    "places": "places: 0 where none is known, else 1 + dims + params + memories + statements",
}

# The order is that of the bytes: wide numbers first, so that each is aligned to its width.
COLUMNS: Final[tuple[Column, ...]] = (
    Column("constant_bits", "<u8", "constants", "the bit pattern"),
    Column("string_lengths", "<u4", "strings", "bytes"),
    Column("dim_names", "<u4", "dims", "string: the name"),
    Column("param_names", "<u4", "params", "string: the name"),
    Column("memory_names", "<u4", "memories", "string: the name"),
    Column("data_lengths", "<u4", "memories", "bytes of a table's data; 0 for other memories"),
    Column("axes", "<u4", "axes", "size: the extent; the axes of the first memory, outermost first, then those of the second, and so on"),
    Column("size_left", "<u4", "sizes", "of a constant the number's low 32 bits, of a dim its row, of an operation the left size"),
    Column("size_right", "<u4", "sizes", "of a constant the number's bits from 32 up, of an operation the right size, else 0"),
    Column("refs", "<u4", "statements", "memory, variable, function or string, or a for's hints, as the code says; else 0"),
    Column("operands", "<u4", "operands", "4 * row + kind; the operands of the first statement, then those of the second, and so on"),
    Column("named_values", "<u4", "named_values", "value: its number"),
    Column("value_names", "<u4", "named_values", "string: its name"),
    Column("named_variables", "<u4", "named_variables", "variable: its number"),
    Column("variable_names", "<u4", "named_variables", "string: its name"),
    Column("places", "<u4", "places", "1 + string: the file, 0 if not known; line, column, width. Program, dims, params, memories, statements", PLACE_FIELDS),
    Column("codes", "<u2", "statements", "the statement's code"),
    Column("types", "u1", "statements", "type of the value bound or variable declared, of a tile that of an element; else 0"),
    Column("counts", "u1", "statements", "operands"),
    Column("constant_types", "u1", "constants", "type, a scalar"),
    Column("param_types", "u1", "params", "type"),
    Column("memory_types", "u1", "memories", "type of an element"),
    Column("memory_spaces", "u1", "memories", "space"),
    Column("memory_access", "u1", "memories", "access"),
    Column("memory_ranks", "u1", "memories", "axes"),
    Column("size_ops", "u1", "sizes", "kind of node"),
)

EMPTY: Final[Mapping[str, Array]] = {column.name: np.zeros((0, column.per) if column.per > 1 else 0, column.dtype) for column in COLUMNS}


@dataclass(slots=True, kw_only=True)
class Flat:
    """The columns of one Program, named as in `COLUMNS`, and what it has one of: rows of its `name` and `doc` in the strings, `workgroup`,
    `subgroup`, `over` (None: the grid is left to `ir.language.grids`), and the rows of its grid's `extents` in the sizes. The bodies of its
    `functions` are Programs of their own, without functions."""

    name: int
    doc: int
    workgroup: tuple[int, int, int]
    subgroup: int
    over: bool | None
    extents: tuple[int, int, int]
    constant_bits: Array
    string_lengths: Array
    dim_names: Array
    param_names: Array
    memory_names: Array
    data_lengths: Array
    axes: Array
    size_left: Array
    size_right: Array
    refs: Array
    operands: Array
    named_values: Array
    value_names: Array
    named_variables: Array
    variable_names: Array
    places: Array
    codes: Array
    types: Array
    counts: Array
    constant_types: Array
    param_types: Array
    memory_types: Array
    memory_spaces: Array
    memory_access: Array
    memory_ranks: Array
    size_ops: Array
    text: bytes | memoryview
    data: bytes | memoryview
    functions: tuple[Flat, ...] = ()

    def count(self, name: str) -> int:
        """How many there are, by a name in `COUNTS`."""
        if name == "text_bytes":
            return len(self.text)
        if name == "data_bytes":
            return len(self.data)
        return len(getattr(self, _COUNTED[name]))

    def strings(self) -> list[str]:
        """The strings, decoded. The text must be sound."""
        return strings_of(self.text, self.string_lengths.tolist())

    @property
    def size_columns(self) -> tuple[Array, Array, Array]:
        """What makes rows of sizes."""
        return self.size_ops, self.size_left, self.size_right


# A count -> the first column that has so many rows.
_COUNTED: Final = {column.count: column.name for column in reversed(COLUMNS)}


class Fault(Exception):
    """What makes columns no Program: the code of a rule, the entry at fault, and what was found and expected.

    `column` is a field of `Flat`, or "text" or "data"; each door turns it and `index` into a place of its own.
    """

    def __init__(self, code: str, message: str, column: str, index: int = 0, help: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.column, self.index, self.help = code, message, column, index, help
