"""Sections of an artifact's file, divided into rows, strings and code, without their meaning.

Safe for any bytes: counts are checked against the number of bytes before anything is allocated, and the allocations are a bounded multiple of it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from vyre_py.ir.language.dims import Dim, DimExpr
from vyre_py.ir.language.nodes import Memory
from vyre_py.ir.wire.flat import Fault
from vyre_py.ir.wire.record import Malformed, strings_of, unknown_version
from vyre_py.ir.wire.size_table import sizes_of
from vyre_py.lowering.artifact.form import BUFFER, DIM, MAX_STRING, MAX_WORDS, VERSION, WORD_BYTES, SectionForm
from vyre_py.lowering.errors import ArtifactError

__all__ = ["Row", "Section"]

Row = tuple[int, ...]

_SIGN: Final = 1 << 63


class Section:
    """A section by its form: the words of its `head` by name, rows in order (`take`), `strings`, and bytes in order (`cut`).

    `where` is what errors call it.
    """

    __slots__ = ("_code", "_cut", "_lacks", "_long", "_tables", "_words", "head", "strings", "where")

    def __init__(self, form: SectionForm, data: memoryview, where: str) -> None:
        """Raises ArtifactError unless head, rows, text and code are exactly the bytes that there are."""
        self.where = where
        word = int.from_bytes(data[: WORD_BYTES], "little")
        shape = form.shapes.get(word)
        if shape is None:
            raise self.fault(unknown_version((word >> 16, word & 0xFFFF), VERSION))
        try:
            head, places = shape.record.read(data)
        except Malformed as bad:
            raise self.fault(str(bad)) from None
        begin, text, code = places[0], places[-3], places[-2]
        total = (text - begin) // WORD_BYTES
        if total > MAX_WORDS:
            raise self.fault(f"its tables have {total} words; at most {MAX_WORDS} are read")
        self.head = dict(zip(shape.names, head, strict=False))
        self._words = struct.unpack_from(f"<{total}I", data, begin)
        self._tables: dict[str, list[int]] = {}
        self._lacks: dict[str, Row] = {}
        at = 0
        for (name, width, lacks), count in zip(shape.tables, head[len(shape.names) :], strict=True):
            if count:
                self._tables[name] = [at, width, count]
                at += width * count
                if lacks:
                    self._lacks[name] = lacks
        self._code, self._cut = data[code:], 0
        self.strings = self._strings(data[text:code])

    def fault(self, message: str) -> ArtifactError:
        """The error for a fault in it."""
        return ArtifactError(self.where, message)

    def _strings(self, text: memoryview) -> list[str]:
        lengths = self._words[: self.left("strings")]  # the first table, of one word a row
        self._tables.pop("strings", None)
        if not lengths or lengths[0] or sum(lengths) != len(text):
            raise self.fault(f"its strings are not the {len(text)} bytes of its text, the first one empty")
        self._long = max(lengths) > MAX_STRING
        try:
            return strings_of(text, lengths, "surrogatepass")
        except UnicodeDecodeError as error:
            raise self.fault(f"one of its strings is not UTF-8: {error.reason}") from None

    # ---- rows in order

    def take(self, table: str, count: int) -> Sequence[Row]:
        """The next rows of a table."""
        if not count:
            return ()
        found = self._tables.get(table)
        if found is None or count > found[2]:
            raise self.fault(f"{count} rows of table {table} are wanted where {found[2] if found else 0} are left")
        start, width, left = found
        found[0] = stop = start + width * count
        found[2] = left - count
        words = self._words
        rows = [words[start:stop]] if count == 1 else [words[at : at + width] for at in range(start, stop, width)]
        lacks = self._lacks.get(table)
        return rows if lacks is None else [row + lacks for row in rows]

    def left(self, table: str) -> int:
        """How many rows of a table are left."""
        found = self._tables.get(table)
        return 0 if found is None else found[2]

    def rest(self, table: str) -> Sequence[Row]:
        """All rows of a table that are left."""
        return self.take(table, self.left(table))

    def cut(self, size: int) -> bytes:
        """The next bytes of the code."""
        stop = self._cut + size
        if stop > len(self._code):
            raise self.fault(f"{size} bytes of code are wanted where {len(self._code) - self._cut} are left")
        made = bytes(self._code[self._cut : stop])
        self._cut = stop
        return made

    def finish(self) -> None:
        """Raises ArtifactError where something is left that nothing refers to."""
        if self._cut != len(self._code):
            raise self.fault(f"{len(self._code) - self._cut} bytes of code belong to nothing")
        for table, (_, _, left) in self._tables.items():
            if left:
                raise self.fault(f"{left} rows of table {table} belong to nothing")

    # ---- what several tables hold

    def text(self, number: int) -> str:
        """A string by its number, however long."""
        if number >= len(self.strings):
            raise self.fault(f"string {number} where there are {len(self.strings)}")
        return self.strings[number]

    def string(self, number: int) -> str:
        """A string by its number. Many rows may have the same, so that long ones would make much of little."""
        made = self.strings[number] if number < len(self.strings) else self.text(number)  # which raises
        if self._long and len(made.encode("utf-8", "surrogatepass")) > MAX_STRING:
            raise self.fault(f"string {number} has more than {MAX_STRING} bytes")
        return made

    def sizes(self, dims: Sequence[Dim]) -> list[DimExpr]:
        """All sizes, over these dims."""
        rows: Any = self.rest("sizes")
        try:
            return sizes_of(rows, dims)
        except Fault as fault:
            raise self.fault(f"row {fault.index} of its sizes: {fault.message}") from None

    def size(self, sizes: Sequence[DimExpr], number: int) -> DimExpr:
        """A size by its number."""
        if number >= len(sizes):
            raise self.fault(f"size {number} where there are {len(sizes)}")
        return sizes[number]

    def wide(self, count: int, buffers: Sequence[Memory], dims: Sequence[Dim]) -> frozenset[str]:
        """The names of the next buffers and dims that may be 2^32 and more."""
        made: list[str] = []
        last: Row = ()
        for row in self.take("wide", count):
            kind, number = row
            declared: Sequence[Memory | Dim] = (buffers, dims)[kind] if kind in (BUFFER, DIM) else ()
            if number >= len(declared) or row <= last:
                raise self.fault(f"row {len(made)} of the wide ones is not a buffer or dim, or does not ascend")
            made.append(declared[number].name)
            last = row
        return frozenset(made)

    def numbers(self, count: int) -> dict[str, int]:
        """The next figures by name."""
        if not count:
            return {}
        strings, most = self.strings, 0 if self._long else len(self.strings)
        made = {
            (strings[name] if name < most else self.string(name)): ((high << 32 | low) ^ _SIGN) - _SIGN for name, low, high in self.take("numbers", count)
        }
        if len(made) != count:
            raise self.fault("two figures in one place have one name")
        return made
