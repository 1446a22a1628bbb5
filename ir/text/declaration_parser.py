"""Declarations of `.vir` text: a Program's head, its doc, params, buffers, arrays and tables."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

import numpy as np

from vyre_py.ir.language.dims import OF_TILES, DimConst, DimExpr, Grid, dims_of, evaluate_dim
from vyre_py.ir.language.nodes import Access, Const, Space
from vyre_py.ir.language.rules import finding
from vyre_py.ir.language.types import Type
from vyre_py.ir.text.cursor import Failed
from vyre_py.ir.text.expression_parser import ExpressionParser
from vyre_py.ir.text.lexer import literal_bits, split_literal, unquote
from vyre_py.ir.text.operand_parser import Operand

__all__ = ["DeclarationParser"]

_EITHER: Final = "a Program has a workgroup of its own or says tiles, and then the compiler chooses its invocations"
_ACCESS: Final = {access.value: access for access in Access}
_T = TypeVar("_T")


class DeclarationParser(ExpressionParser):
    """The grammar of declarations. Each method reads the rest of one, after its first word, and raises Failed."""

    def head(self) -> None:
        """`program name(dims) workgroup(x, y, z) subgroup(s) over(x, y, z) {`, where all but the name may be left out; `tiles` in place of a workgroup."""
        while self.take("\n"):
            pass
        if not self.take("program"):
            raise self.unexpected("`program`")
        a = self.assembler
        a.place = self.place()
        a.note(None)
        a.name = self.name("the program's name")
        for name in self.listed(lambda: self.name("a dim")) if self.words[self.position] == "(" else ():
            self.dims[name] = a.dim(name)
            self.names[name] = self.dims[name]
        if self.take("tiles"):
            a.workgroup = OF_TILES
        elif self.take("workgroup"):
            self._workgroup()
        if self.take("subgroup"):
            self.expect("(")
            a.subgroup = self.size()
            self.expect(")")
        if self.words[self.position] in ("over", "grid"):
            self.position += 1
            over = self.words[self.position - 1] == "over"
            one: DimExpr = DimConst(1)
            a.grid = Grid(over, self._extents(self.dim_expression, one))
        if not self.take("{"):
            both = self.words[self.position] == ("workgroup" if a.workgroup == OF_TILES else "tiles")
            raise self.unexpected("`workgroup(`, `tiles`, `subgroup(`, `over(`, `grid(` or `{`", _EITHER if both else None)

    def _workgroup(self) -> None:
        place = self.place(self.position - 1)
        self.assembler.workgroup = self._extents(self.size, 1)
        if self.assembler.workgroup == OF_TILES:
            raise Failed(finding("V504", "a workgroup of 0 x 0 x 0", place, _EITHER))

    def listed(self, read: Callable[[], _T], opener: str = "(", closer: str = ")") -> list[_T]:
        """What `read` reads, parted by commas, in brackets."""
        self.expect(opener)
        made: list[_T] = []
        words = self.words
        while words[self.position] != closer:
            made.append(read())
            if words[self.position] == ",":
                self.position += 1
            elif words[self.position] != closer:
                raise self.unexpected(f"`,` or `{closer}`")
        self.position += 1
        return made

    def _extents(self, read: Callable[[], _T], one: _T) -> tuple[_T, _T, _T]:
        """One to three extents in parentheses, those left out being 1."""
        place = self.place()
        made = self.listed(read)
        if not 1 <= len(made) <= 3:
            raise Failed(finding("P102", f"found {len(made)} extents, expected one to three: x, y, z", place))
        x, y, z = (*made, one, one)[:3]
        return x, y, z

    def doc(self) -> None:
        """`doc "text"`."""
        self.assembler.doc = unquote(self.expect_kind("string", 'the doc in quotes: doc "text"'))

    def param(self) -> None:
        """`param name: type`."""
        self.assembler.place = self.place()
        name = self.name("the param's name")
        self.names[name] = None
        self.expect(":")
        self.names[name] = self.assembler.param(name, self.type_name())

    def memory(self, space: Space) -> None:
        """`name: type[shape]`, then a buffer's access or a table's data."""
        at = self.position
        name = self.name(f"the {space.value}'s name")
        self.memories[name] = None
        self.expect(":")
        type_ = self.type_name()
        shape = tuple(self.listed(self.dim_expression, "[", "]"))
        access, data = Access.READ_WRITE, b""
        if space is Space.BUFFER:
            word = self.expect_kind("name", "read, write or read_write")
            if word not in _ACCESS:
                self.position -= 1
                raise self.unexpected("read, write or read_write")
            access = _ACCESS[word]
        else:
            shape = tuple([self._folded(extent) for extent in shape])
        if space is Space.TABLE:
            self.expect("=")
            access, data = Access.READ, self._hex() if self.take("hex") else self._elements(type_)
        self.assembler.place = self.place(at)  # elements have places of their own
        self.memories[name] = self.assembler.memory(name, space, type_, shape, access, data)

    def _folded(self, extent: DimExpr) -> DimExpr:
        """An extent that must be constant, as a constant where it is one."""
        if any(dims_of(extent)):
            return extent
        try:
            value = evaluate_dim(extent, {})
        except ZeroDivisionError:
            value = -1
        return DimConst(value) if value >= 0 else extent

    def _hex(self) -> bytes:
        """A table's bytes, little-endian elements row by row, in one string or several in brackets."""
        place = self.place()
        bracketed = self.take("[")
        texts: list[str] = []
        while self.kind == "string" and (bracketed or not texts):
            texts.append(unquote(self.expect_kind("string")))
        if bracketed:
            self.expect("]", "a string of hexadecimal digits, or `]`")
        elif not texts:
            raise self.unexpected("a string of hexadecimal digits")
        try:
            return bytes.fromhex("".join(texts))
        except ValueError:
            raise Failed(finding("P105", "the table's data are not hexadecimal digits, two a byte", place)) from None

    def _elements(self, type_: Type) -> bytes:
        """A table's elements in brackets: literals, or lists of literals where they are vectors."""
        component = type_.scalar

        known: dict[str, int] = {}  # the bits of plain numbers that this table has had; tables hold the same ones many times

        def literal() -> int:
            at = self.position
            negative = self.words[at] == "-"
            word = self.words[at + negative]
            written = "-" + word if negative else word
            bits = known.get(written)
            if bits is None and word[:1].isdigit():
                digits, suffix = split_literal(word)
                if suffix in (None, component):
                    with suppress(ValueError):  # which is told below, with its place
                        bits = known[written] = literal_bits(component, digits, negative, suffix is not None)
            if bits is not None:
                self.position += 1 + negative
                return bits
            self.clear_operands()
            element = self.literal()
            if element is None:
                raise self.unexpected("a literal")
            element = self.fix(element, component)
            if element.type is not component:
                raise Failed(finding("P105", f"an element of {element.type} stands in a table of {type_}", self.place(at)))
            return self.constant(element).bits

        def vector() -> list[int]:
            at = self.position
            components = self.listed(literal, "[", "]")
            if len(components) != type_.lanes:
                raise Failed(finding("P105", f"an element of {type_} has {type_.lanes} components, found {len(components)}", self.place(at)))
            return components

        elements: list[int] | list[list[int]] = self.listed(vector, "[", "]") if type_.is_vector else self.listed(literal, "[", "]")
        return np.array(elements, dtype=f"<u{component.size_bytes}").tobytes()

    def constant(self, literal: Operand) -> Const:
        """The constant that a literal stands for. Raises Failed."""
        (atom,) = self.settle(literal)
        assert isinstance(atom, Const)  # literals are nothing else
        return atom
