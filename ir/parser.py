"""The parser of `.vir` text: declarations and statements; expressions are in `ir.parser_expressions`.

Blocks are a list, not recursion. A statement that fails is reported, and reading goes on after it: a name that it would have
declared counts as known, so that one mistake gives one finding.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np

from vyre_py.ir.assembler import Assembler
from vyre_py.ir.dims import DimConst, DimExpr, dims_of, evaluate_dim
from vyre_py.ir.errors import Diagnostic, ParseError, ValidationError
from vyre_py.ir.lexer import LEADING, MAX_FINDINGS, Tokens, quote, unquote
from vyre_py.ir.nodes import Access, Const, Space, Value, Variable
from vyre_py.ir.parser_expressions import Binding, ExpressionParser, Failed
from vyre_py.ir.program import Grid, Program
from vyre_py.ir.rules import finding
from vyre_py.ir.types import Scalar

__all__ = ["MAX_BLOCKS", "parse"]

MAX_BLOCKS: Final = 256
_ACCESS: Final = {access.value: access for access in Access}
_T = TypeVar("_T")


def parse(text: str, file: str = "<text>") -> Program:
    """The Program that `.vir` text describes; `file` names the text in places.

    Raises ParseError with what was found and expected at each place, at most 20 of them; ValidationError when the text is well
    formed but an operation does not accept its operands. Whether the Program keeps the other rules is for `ir.check`.
    """
    return _Parser(Tokens(text, file)).program()


@dataclass(slots=True)
class _Block:
    """An open brace. `ends` counts the End markers that it stands for: more than one after `else if`, none where the statement that opened
    it failed. `hidden` has an entry for each name that the block declares: what the name meant before."""

    kind: str
    ends: int = 1
    hidden: dict[str, tuple[bool, Binding]] = field(default_factory=dict)


class _Stopped(Exception):
    """Nothing after this point can be read with sense."""


class _Parser(ExpressionParser):
    """Reads one Program. The methods in `_STATEMENTS` read the rest of a statement that begins with that word."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__(tokens, Assembler(""))
        self.blocks: list[_Block] = []
        self.found: list[Diagnostic] = []
        self.doomed: str | None = None  # the name that is lost if the statement at hand fails

    def program(self) -> Program:
        """The whole text."""
        try:
            self._head()
            while self.blocks and len(self.found) < MAX_FINDINGS:
                self._line()
            while self.take("newline") or self.take(";"):
                pass
            if self.kind != "end" and len(self.found) < MAX_FINDINGS:
                raise self.unexpected("the end of the text: one text holds one program")
        except Failed as failure:
            self._report(failure)
        except _Stopped:
            pass
        if self.found:
            raise (ValidationError if all(d.code.startswith("V") for d in self.found) else ParseError)(self.found)
        return self.assembler.finish()

    def _report(self, failure: Failed) -> None:
        if failure.diagnostic is not None:
            self.found.append(failure.diagnostic)

    # ---- lines and blocks

    def _line(self) -> None:
        """One statement, declaration or closing brace; after a failure, goes on where the next one begins."""
        if self.take("newline") or self.take(";"):
            return
        self.depth, self.doomed = 0, None
        self.nodes.clear()
        try:
            if self.kind == "end":
                self._report(self.unexpected(f"`}}`, which ends the {self.blocks[-1].kind}"))
                raise _Stopped
            if self.kind == "}":
                self._close()
            else:
                self._statement()
            if self.kind not in ("newline", ";", "}", "end") and self.kinds[self.position - 1] != "{":
                raise self.unexpected("the end of the statement")
        except Failed as failure:
            self._report(failure)
            self._recover()

    def _recover(self) -> None:
        """Goes on to the next statement, which may be the first in the block that the failed one opens."""
        while self.kind not in ("newline", ";", "}", "end"):
            if self.take("{"):
                self._open("block", ends=0)
                break
            self.position += 1
        if self.doomed is not None:
            self._bind(self.doomed, None)

    def _open(self, kind: str, ends: int = 1) -> None:
        if max(len(self.blocks), len(self.assembler.open)) > MAX_BLOCKS:
            self.found.append(finding("P107", f"blocks nest more than {MAX_BLOCKS} deep", self.assembler.place))
            raise _Stopped
        self.blocks.append(_Block(kind, ends))

    def _close(self) -> None:
        """`}`, and an `else` where one follows."""
        self.assembler.place = self.place()
        self.position += 1
        block = self.blocks.pop()
        for name, (known, bound) in block.hidden.items():
            if known:
                self.names[name] = bound
            else:
                del self.names[name]
        after = self.position
        while block.kind in ("if", "block") and self.take("newline"):
            pass
        if block.kind in ("if", "block") and self.kind == "name" and self.texts[self.position] == "else":
            self._else(block)
            return
        self.position = after
        for _ in range(block.ends if block.kind != "program" else 0):
            self.assembler.end()

    def _else(self, block: _Block) -> None:
        """`else {` or `else if condition {`: the second is an If inside the Else, and one brace closes both."""
        place = self.place()
        self.position += 1
        if block.ends == 0:
            raise Failed(None)
        self.assembler.place = place
        self.assembler.else_()
        if not self.take_word("if"):
            self.expect("{", "`if` or `{`")
            self._open("else", block.ends)
            return
        condition = self.expression()
        self.expect("{", "an operator or `{`")
        (atom,) = self.emit(condition)
        self.assembler.place = place
        self.assembler.if_(atom)
        self._open("if", block.ends + 1)

    # ---- names

    def _bind(self, name: str, bound: Binding) -> None:
        self.blocks[-1].hidden.setdefault(name, (name in self.names, self.names.get(name)))
        self.names[name] = bound

    def _declare(self) -> str:
        """Steps over a name that the block at hand does not declare yet."""
        place = self.place()
        name = self.name("a name")
        if name in self.blocks[-1].hidden:
            raise Failed(finding("P106", f"{name if name.isidentifier() else quote(name)} is declared twice in one block", place))
        self.doomed = name
        return name

    # ---- the head and the declarations

    def _head(self) -> None:
        while self.take("newline"):
            pass
        if not self.take_word("program"):
            raise self.unexpected("`program`")
        a = self.assembler
        a.name = self.name("the program's name")
        for name in self._list(lambda: self.name("a dim")) if self.kind == "(" else ():
            self.dims[name] = a.dim(name)
            self.names[name] = self.dims[name]
        if self.take_word("workgroup"):
            a.workgroup = self._extents(self.size, 1)
        if self.kind == "name" and self.texts[self.position] in ("over", "grid"):
            self.position += 1
            over = self.texts[self.position - 1] == "over"
            one: DimExpr = DimConst(1)
            a.grid = Grid(over, self._extents(self.dim_expression, one))
        self.expect("{", "`workgroup(`, `over(`, `grid(` or `{`")
        self._open("program")

    def _list(self, read: Callable[[], _T], opener: str = "(", closer: str = ")") -> list[_T]:
        self.expect(opener)
        made: list[_T] = []
        while not self.take(closer):
            made.append(read())
            if not self.take(",") and self.kind != closer:
                raise self.unexpected(f"`,` or `{closer}`")
        return made

    def _extents(self, read: Callable[[], _T], one: _T) -> tuple[_T, _T, _T]:
        """One to three extents in parentheses, those left out being 1."""
        place = self.place()
        made = self._list(read)
        if not 1 <= len(made) <= 3:
            raise Failed(finding("P102", f"found {len(made)} extents, expected one to three: x, y, z", place))
        x, y, z = (*made, one, one)[:3]
        return x, y, z

    def _doc(self) -> None:
        self.assembler.doc = unquote(self.expect("string", 'the doc in quotes: doc "text"'))

    def _declaration(self) -> None:
        if len(self.blocks) > 1:
            self.position -= 1
            raise self.unexpected("a statement", "declarations stand at the program's own level")

    def _param(self) -> None:
        self._declaration()
        name = self.name("the param's name")
        self.names[name] = None
        self.expect(":")
        self.names[name] = self.assembler.param(name, self.scalar())

    def _memory(self, space: Space) -> None:
        """`name: type[shape]`, then a buffer's access or a table's data."""
        self._declaration()
        name = self.name(f"the {space.value}'s name")
        self.memories[name] = None
        self.expect(":")
        type_ = self.scalar()
        shape = tuple(self._list(self.dim_expression, "[", "]"))
        access, data = Access.READ_WRITE, b""
        if space is Space.BUFFER:
            word = self.expect("name", "read, write or read_write")
            if word not in _ACCESS:
                self.position -= 1
                raise self.unexpected("read, write or read_write")
            access = _ACCESS[word]
        else:
            shape = tuple([self._folded(extent) for extent in shape])
        if space is Space.TABLE:
            self.expect("=")
            access, data = Access.READ, self._hex() if self.take_word("hex") else self._elements(type_)
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
        bracketed, texts = self.take("["), []
        while self.kind == "string" and (bracketed or not texts):
            texts.append(unquote(self.expect("string")))
        if bracketed:
            self.expect("]", "a string of hexadecimal digits, or `]`")
        elif not texts:
            raise self.unexpected("a string of hexadecimal digits")
        try:
            return bytes.fromhex("".join(texts))
        except ValueError:
            raise Failed(finding("P105", "the table's data are no hexadecimal digits, two a byte", place)) from None

    def _elements(self, type_: Scalar) -> bytes:
        """A table's elements as literals in brackets."""

        def element() -> int:
            place = self.place()
            node = self.literal()
            if node is None:
                raise self.unexpected("a literal")
            self.fix(node, type_)
            if node.type is not type_:
                raise Failed(finding("P105", f"an element of {node.type} stands in a table of {type_}", place))
            try:
                atom = node.make(node, ())
            except ValueError as error:
                raise Failed(finding("P105", str(error), place)) from None
            return atom.bits if isinstance(atom, Const) else 0

        return np.array(self._list(element, "[", "]"), dtype=f"<u{type_.size_bytes}").tobytes()

    # ---- statements

    def _statement(self) -> None:
        start, kind, text = self.position, self.kind, self.texts[self.position]
        read = _STATEMENTS.get(text) if kind == "name" else None
        following = self.kinds[start + 1] if kind in ("name", "string") else ""
        if read is not None:
            self.position += 1
            read(self)
        elif following == "[":
            self._store()
        elif following == "=":
            self._set()
        elif kind == "name" and text.startswith("atomic_"):
            self.emit(self.call())
        elif kind == "name" and following == "(":
            raise self.unexpected("a statement", f"give the value a name: let name = {text}(...)")
        else:
            close = difflib.get_close_matches(text, LEADING, 1)
            raise self.unexpected("a statement", f"did you mean {close[0]}?" if close else None)

    def _let(self) -> None:
        name = self._declare()
        self.expect("=")
        (atom,) = self.emit(self.expression())
        if isinstance(atom, Value):
            self.assembler.value_names.setdefault(atom.id, name)
        self._bind(name, atom)

    def _var(self) -> None:
        start = self.starts[self.position - 1]
        name = self._declare()
        self.expect(":")
        type_ = self.scalar()
        self.expect("=")
        first = self.expression()
        self.fix(first, type_)
        (atom,) = self.emit(first)
        self.assembler.place = self.tokens.place(start, self.end())
        self._bind(name, self.assembler.var(type_, atom, name))

    def _set(self) -> None:
        place, start = self.place(), self.starts[self.position]
        name = self.name("a variable")
        if name not in self.names:
            raise self.unknown("the variable", name, (n for n, b in self.names.items() if isinstance(b, Variable)), place)
        variable = self.names[name]
        if variable is None:
            raise Failed(None)
        if not isinstance(variable, Variable):
            raise Failed(finding("P109", f"{name} is no variable", place))
        self.expect("=")
        value = self.expression()
        self.fix(value, variable.type)
        (atom,) = self.emit(value)
        self.assembler.place = self.tokens.place(start, self.end())
        self.assembler.set(variable, atom)

    def _store(self) -> None:
        start = self.starts[self.position]
        memory, indices = self.indices()
        self.expect("=")
        value = self.expression()
        self.fix(value, memory.type)
        *places, atom = self.emit(*indices, value)
        self.assembler.place = self.tokens.place(start, self.end())
        self.assembler.store(memory, tuple(places), atom)

    def _if(self) -> None:
        start = self.starts[self.position - 1]
        condition = self.expression()
        self.expect("{", "an operator or `{`")
        (atom,) = self.emit(condition)
        self.assembler.place = self.tokens.place(start, self.end())
        self.assembler.if_(atom)
        self._open("if")

    def _for(self) -> None:
        start = self.starts[self.position - 1]
        name = self.doomed = self.name("a name")
        if not self.take_word("in"):
            raise self.unexpected("`in`")
        first = self.expression()
        self.expect("..", "an operator or `..`")
        stop = self.expression()
        step = self.literal() if self.take_word("step") else None
        if self.texts[self.position - 1] == "step" and step is None:
            raise self.unexpected("a number other than 0")
        self.expect("{", "an operator, `step` or `{`")
        group = (first, stop, step) if step is not None else (first, stop)
        fixed = next((node.type for node in group if node.type is not None), None)
        for node in group if fixed is not None else ():
            self.fix(node, fixed)
        begin, end = self.emit(first, stop)
        by = self._step(step, begin.type)
        self.assembler.place = self.tokens.place(start, self.end())
        value = self.assembler.for_(begin, end, by, name)
        self._open("for")
        self._bind(name, value)
