"""Interning: strings, constants and sizes become rows of tables, each once. Rows are numbered as they come, and sorted into the
canonical order at the end; `renumber` then maps the old numbers to the new."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from vyre_py.ir.language.types import Array
from vyre_py.ir.wire.codes import OPERAND_KINDS
from vyre_py.ir.wire.flat import Fault, Flat
from vyre_py.ir.wire.size_table import SizeRow, SizeTable
from vyre_py.ir.wire.tables import REFERS, REFERS_STRING

__all__ = ["Constants", "Strings", "arrange"]

_CHUNK: Final = 1 << 16


def _renumber(order: Iterable[int], count: int) -> Array:
    """From the old numbers in their new order, the new number of each."""
    made = np.empty(count, np.uint32)
    made[np.fromiter(order, np.int64, count)] = np.arange(count, dtype=np.uint32)
    return made


class Strings:
    """The table of strings, which ascends by UTF-8 bytes."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}

    def add(self, text: str) -> int:
        """The number of a string."""
        return self.rows.setdefault(text, len(self.rows))

    def finish(self) -> tuple[Array, bytes, Array]:
        """The column of lengths, the text, and `renumber`. Raises Fault for a string that has no encoding."""
        try:
            encoded = [text.encode("utf-8") for text in self.rows]
        except UnicodeEncodeError as error:
            raise Fault("W108", f"a lone surrogate in {error.object[:40]!r}", "text", error.start) from None
        order = sorted(range(len(encoded)), key=encoded.__getitem__)
        lengths = np.array([len(encoded[row]) for row in order], "<u4")
        return lengths, b"".join([encoded[row] for row in order]), _renumber(order, len(order))


class Constants:
    """The table of constants, which ascends by type and bits."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], int] = {}

    def add(self, type_code: int, bits: int) -> int:
        """The number of a constant."""
        return self.rows.setdefault((type_code, bits), len(self.rows))

    def finish(self) -> tuple[Array, Array, Array]:
        """The columns of types and bits, and `renumber`. Raises OverflowError for bits beyond 64."""
        rows = sorted(self.rows)
        types, bits = np.array([row[0] for row in rows], "u1"), np.array([row[1] for row in rows], "<u8")
        return types, bits, _renumber([self.rows[row] for row in rows], len(rows))


def _by_height(sizes: SizeTable) -> tuple[Array, Array, Array, Array]:
    """The columns of kinds, left and right, which ascend by height, kind, left and right, and `renumber`."""
    layers: list[list[tuple[int, int, int, int]]] = [[] for _ in range(1 + max(sizes.heights, default=0))]
    for (op, left, right), number in sizes.rows.items():
        layers[sizes.heights[number]].append((op, left, right, number))
    renumber: dict[int, int] = {}
    rows: list[SizeRow] = []
    for height, layer in enumerate(layers):
        # The sides of an operation are lower, so they have their new numbers.
        numbered = [(op, renumber[left], renumber[right], number) for op, left, right, number in layer] if height else layer
        for op, left, right, number in sorted(numbered):
            renumber[number] = len(rows)
            rows.append((op, left, right))
    ops, lefts, rights = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    return np.array(ops, "u1"), np.array(lefts, "<u4"), np.array(rights, "<u4"), _renumber(renumber, len(rows))


def arrange(flat: Flat, strings: Strings, sizes: SizeTable, constants: Constants | None) -> None:
    """Fills the tables into `flat`, whose other columns refer to them by the numbers at which rows came, and gives each reference its row.

    Without `constants`, those that `flat` has already stay as they are. Raises what the tables' `finish` raises.
    """
    flat.string_lengths, flat.text, string_rows = strings.finish()
    flat.size_ops, flat.size_left, flat.size_right, size_rows = _by_height(sizes)
    flat.name, flat.doc = int(string_rows[flat.name]), int(string_rows[flat.doc])
    if flat.over is not None:
        x, y, z = flat.extents
        flat.extents = (int(size_rows[x]), int(size_rows[y]), int(size_rows[z]))
    flat.axes = size_rows[flat.axes]
    for column in ("dim_names", "param_names", "memory_names", "value_names", "variable_names"):
        setattr(flat, column, string_rows[getattr(flat, column)])
    texts = REFERS[flat.codes] == REFERS_STRING
    flat.refs[texts] = string_rows[flat.refs[texts]]
    if len(flat.places):
        files = flat.places[:, 0]
        files[files != 0] = string_rows[files[files != 0] - 1] + 1
    _reorder(flat.operands, OPERAND_KINDS["size"], size_rows)
    if constants is not None:
        flat.constant_types, flat.constant_bits, constant_rows = constants.finish()
        _reorder(flat.operands, OPERAND_KINDS["constant"], constant_rows)


def _reorder(operands: Array, kind: int, rows: Array) -> None:
    for start in range(0, len(operands), _CHUNK):
        part = operands[start : start + _CHUNK]  # a view: nothing as long as all operands is made
        mine = part & 3 == kind
        part[mine] = rows[part[mine] >> 2] << 2 | np.uint32(kind)
