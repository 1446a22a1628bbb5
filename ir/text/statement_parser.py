"""Statements of `.vir` text, in blocks: what Programs and their functions have alike.

One module because it is one class: each kind of statement is a few lines, over the same blocks and names.

Blocks are a list, not recursion. A statement that fails is reported, and reading goes on after it: a name that it would have
declared counts as known, so that one mistake gives one finding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.errors import Diagnostic, Place
from vyre_py.ir.language.nodes import Const, GridScan, Space, TileAtomicAdd, Value, Variable
from vyre_py.ir.language.op import Scope
from vyre_py.ir.language.rules import finding
from vyre_py.ir.text.cursor import Failed
from vyre_py.ir.text.declaration_parser import DeclarationParser
from vyre_py.ir.text.expression_parser import Binding, is_atomic
from vyre_py.ir.text.lexer import LEADING, MAX_FINDINGS, QUERIES, quote, unquote
from vyre_py.ir.text.operand_parser import Operand, Span
from vyre_py.ir.text.tokens import Tokens

__all__ = ["BETWEEN", "MAX_BLOCKS", "STATEMENTS", "StatementParser", "Stopped"]

# Twice what `check` lets pass, so that its own finding is the one to be read.
MAX_BLOCKS: Final = 512
BETWEEN: Final = frozenset("\n;")  # statements
_WHOLE: Final = frozenset({"program", "function"})  # blocks that are no statements
# A hint of a loop -> the code of what is wrong with 0, what its number is, and what 1 says.
_HINTS: Final = {"unroll": ("V214", "unroll factor", "keeps the loop"), "pipeline": ("V216", "pipelining depth", "copies nothing ahead")}
_BEHIND: Final = BETWEEN | {"}", ""}  # a statement
_DECLARATIONS: Final = frozenset({"doc", "function", "param", "buffer", "workgroup", "private", "table"})


@dataclass(slots=True)
class _OpenBrace:
    """An open brace. `ends` counts the End markers that it stands for: more than one after `else if`, none where the statement that opened
    it failed. `hidden` has an entry for each name that the block declares: what the name meant before."""

    kind: str
    ends: int = 1
    hidden: dict[str, tuple[bool, Binding]] = field(default_factory=dict)


class Stopped(Exception):
    """Nothing after this point can be read with sense."""


class StatementParser(DeclarationParser):
    """Reads what stands in braces. The methods in `statements` read the rest of a statement that begins with that word."""

    statements: Mapping[str, Callable[[Any], None]]

    def __init__(self, tokens: Tokens) -> None:
        super().__init__(tokens)
        self.blocks: list[_OpenBrace] = []
        self.found: list[Diagnostic] = []
        self.doomed: str | None = None  # the name that is lost if the statement at hand fails
        self.begin = 0  # the position of the statement at hand

    def lines(self, kind: str) -> None:
        """The statements and declarations up to the brace that closes the Program, or a function. Raises Stopped."""
        self._open(kind)
        while self.blocks and len(self.found) < MAX_FINDINGS:
            self._line()

    def report(self, failure: Failed) -> None:
        """Keeps what a failure found, if it has not been reported before."""
        if failure.diagnostic is not None:
            self.found.append(failure.diagnostic)

    # ---- lines and blocks

    def _line(self) -> None:
        """One statement, declaration or closing brace; after a failure, goes on where the next one begins."""
        word = self.words[self.position]
        if word in BETWEEN:
            self.position += 1
            return
        self.depth, self.doomed, self.begin = 0, None, self.position
        self.clear_operands()
        try:
            if word == "":
                self.report(self.unexpected(f"`}}`, which ends the {self.blocks[-1].kind}"))
                raise Stopped
            if word == "}":
                self._close()
            else:
                self._statement(word)
            if self.words[self.position] not in _BEHIND and self.words[self.position - 1] != "{":
                raise self.unexpected("the end of the statement")
        except Failed as failure:
            self.report(failure)
            self._recover()

    def _recover(self) -> None:
        """Goes on to the next statement, which may be the first in the block that the failed one opens."""
        failed_at = self.position
        self.position = self.begin + (self.words[self.begin] == "}")
        while self.position < failed_at or self.words[self.position] not in _BEHIND:
            if self.take("{"):
                self._open("block", ends=0)
                break
            self.position += 1
        if self.doomed is not None:
            self._bind(self.doomed, None)

    def _open(self, kind: str, ends: int = 1) -> None:
        if max(len(self.blocks), len(self.assembler.open)) > MAX_BLOCKS:
            self.found.append(finding("P107", f"blocks nest more than {MAX_BLOCKS} deep", self._place_at_hand()))
            raise Stopped
        self.blocks.append(_OpenBrace(kind, ends))

    def _place_at_hand(self) -> Place:
        """The place of the statement that was emitted last, or would have been."""
        place = self.assembler.place
        return place if isinstance(place, Place) else self.tokens.place(*place)

    def _close(self) -> None:
        """`}`, and an `else` where one follows."""
        self.assembler.place = (self.position, self.position)
        self.position += 1
        block = self.blocks.pop()
        for name, (known, bound) in block.hidden.items():
            if known:
                self.names[name] = bound
            else:
                del self.names[name]
        after = self.position
        while block.kind in ("if", "block") and self.take("\n"):
            pass
        if block.kind in ("if", "block") and self.words[self.position] == "else":
            self._else(block)
            return
        self.position = after
        for _ in range(block.ends if block.kind not in _WHOLE else 0):
            self.assembler.end()

    def _else(self, block: _OpenBrace) -> None:
        """`else {` or `else if condition {`: the second is an If inside the Else, and one brace closes both."""
        place = (self.position, self.position)
        self.position += 1
        if block.ends == 0:
            raise Failed(None)
        self.assembler.place = place
        self.assembler.else_()
        if not self.take("if"):
            self.expect("{", "`if` or `{`")
            self._open("else", block.ends)
            return
        condition = self.expression()
        self.expect("{", "an operator or `{`")
        (atom,) = self.settle(condition)
        self.assembler.place = place
        self.assembler.if_(atom)
        self._open("if", block.ends + 1)

    # ---- names

    def _bind(self, name: str, bound: Binding) -> None:
        self.blocks[-1].hidden.setdefault(name, (name in self.names, self.names.get(name)))
        self.names[name] = bound

    def _declare(self) -> str:
        """Steps over a name that the block at hand does not declare yet."""
        name = self.name("a name")
        if name in self.blocks[-1].hidden:
            place = self.place(self.position - 1)
            raise Failed(finding("P106", f"{name if name.isidentifier() else quote(name)} is declared twice in one block", place))
        self.doomed = name
        return name

    # ---- statements

    def _statement(self, word: str) -> None:
        read = self.statements.get(word)
        if read is not None:
            if word in _DECLARATIONS and len(self.blocks) > 1:
                raise self.unexpected("a statement", "declarations stand at the program's own level")
            self.position += 1
            read(self)
            return
        is_name = word.isidentifier()
        following = self.words[self.position + 1] if is_name or word[0] == '"' else ""
        if following == "[":
            self._store()
        elif word == "fence" and self.is_ordered():
            self._fence()
        elif is_atomic(word) and (following == "(" or self.is_ordered()):
            self._atomic(word)
        elif word == TileAtomicAdd.spelling and following == "(":
            self._tile_atomic_add()
        elif following == "=" or (following == "." and word not in QUERIES):
            self._set()
        elif is_name and (word == GridScan.spelling or word.startswith(("atomic_", "subgroup_"))) and following == "(":
            self.settle(self.call())
        elif is_name and following == "(":
            raise self.unexpected("a statement", f"give the value a name: let name = {word}(...)")
        else:
            close = self.near(word, LEADING)
            raise self.unexpected("a statement", f"did you mean {close[0]}?" if close else None)

    def _let(self) -> None:
        name = self._declare()
        self.expect("=")
        (atom,) = self.settle(self.expression())
        if isinstance(atom, Value):
            self.assembler.value_names.setdefault(atom.id, name)
        self._bind(name, atom)

    def _var(self) -> None:
        name = self._declare()
        self.expect(":")
        type_ = self.value_type()
        self.expect("=")
        (atom,) = self.settle(self.fix(self.expression(), type_))
        self.assembler.place = self.whole()
        self._bind(name, self.assembler.var(type_, atom, name))

    def _set(self) -> None:
        at = self.position
        name = self.name("a variable")
        if name not in self.names:
            raise self.unknown("the variable", name, (n for n, b in self.names.items() if isinstance(b, Variable)), self.place(at))
        variable = self.names[name]
        if variable is None:
            raise Failed(None)
        if not isinstance(variable, Variable):
            raise Failed(finding("P109", f"{name} is not a variable", self.place(at)))
        self._assign()
        (atom,) = self.settle(self.fix(self.expression(), variable.type))
        self.assembler.place = self.whole()
        self.assembler.set(variable, atom)

    def _assign(self) -> None:
        if self.words[self.position] == ".":
            raise self.unexpected("`=`", "a vector is written whole: v = vec3(1.0, v.y, v.z)")
        self.expect("=")

    def _store(self, copies: bool = False) -> None:
        """`array[index] = value`, or `array[offset : extent] = tile`."""
        memory, indices, extents = (*self.indices(), ()) if copies else self.accessed()
        self._assign()
        *settled, atom = self.settle(*indices, self.fix(self.expression(), memory.type))
        self.assembler.place = self.whole()
        if extents:
            self.assembler.tile_store(memory, tuple(settled), extents, atom)
        else:
            (self.assembler.copy_async if copies else self.assembler.store)(memory, tuple(settled), atom)

    def _tile_atomic_add(self) -> None:
        """`tile_atomic_add(array[offset : extent], tile)`."""
        self.position += len((TileAtomicAdd.spelling, "("))
        at = self.position
        memory, indices, extents = self.accessed()
        if not extents:
            place = self.tokens.place(at, self.position - 1)
            raise Failed(finding("P102", "found no extent, expected one behind an index at least", place, f"a tile has extents: {memory.name}[i : 128]"))
        self.expect(",")
        value = self.fix(self.expression(), memory.type)
        self.expect(")")
        *settled, atom = self.settle(*indices, value)
        self.assembler.place = self.whole()
        self.assembler.tile_atomic_add(memory, tuple(settled), extents, atom)

    def _atomic(self, word: str) -> None:
        if word != "atomic_store":
            self.settle(self.call())
            return
        row, memory, indices, operands = self.atomic_parts()
        *settled, atom = self.settle(*indices, *operands)
        self.assembler.place = self.whole()
        self.assembler.atomic_store(row, memory, tuple(settled), atom)

    def _fence(self) -> None:
        self.position += len(("fence", "."))
        at = self.position
        name = self.expect_kind("name", "a scope")
        scope = next((scope for scope in Scope if scope.value == name), None)
        if scope is None:
            raise Failed(finding("P103", f"{name} is no scope", self.place(at), "write fence.device or fence.workgroup"))
        self.assembler.place = self.whole()
        self.assembler.fence(scope)

    def _if(self) -> None:
        condition = self.expression()
        self.expect("{", "an operator or `{`")
        (atom,) = self.settle(condition)
        self.assembler.place = self.whole()
        self.assembler.if_(atom)
        self._open("if")

    def _for(self) -> None:
        name = self.doomed = self.name("a name")
        if not self.take("in"):
            raise self.unexpected("`in`")
        first = self.expression()
        self.expect("..", "an operator or `..`")
        stop = self.expression()
        step = self.expression() if self.take("step") else None
        hints = self._hints()
        self.expect("{", "an operator, `step`, `unroll(count)` or `{`")
        group: tuple[Operand, ...] = (first, stop, step) if step is not None else (first, stop)
        fixed = next((part.type for part in group if part.type is not None), None)
        if fixed is not None:
            group = tuple([self.fix(part, fixed) for part in group])
        begin, end, *steps = self.settle(*group)
        by = steps[0] if steps else Const(begin.type.scalar, 1)
        self.assembler.place = self.whole()
        value = self.assembler.for_(begin, end, by, name, **hints)
        self._open("for")
        self._bind(name, value)

    def _hints(self) -> dict[str, int]:
        """`unroll(count)` and `pipeline(depth)`, each once or not at all, in any order."""
        found: dict[str, int] = {}
        while (name := next((name for name in _HINTS if name not in found and self.take(name)), None)) is not None:
            code, what, one = _HINTS[name]
            self.expect("(")
            found[name] = self.count(f"the {what}: a whole number of at least 1")
            if not found[name]:
                help = f"leave {name} out where the compiler is to decide; {name}(1) {one}"
                raise Failed(finding(code, f"{name}(0) is no {what}", self.place(self.position - 1), help))
            self.expect(")")
        return found

    def _loop(self) -> None:
        self._open_block(self.assembler.loop, "loop")

    def _region(self) -> None:
        name = self.name("the region's name")
        self._open_block(lambda: self.assembler.region(name), "region")

    def _open_block(self, emit: Callable[[], None], kind: str) -> None:
        self.expect("{")
        self.assembler.place = self.whole()
        emit()
        self._open(kind)

    def _assert(self) -> None:
        condition = self.expression()
        message = self._message() if self.take(",") else ""
        settled, *values = self.settle(condition, *self._values())
        self.assembler.place = self.whole()
        self.assembler.assert_(settled, message, tuple(values))

    def _print(self) -> None:
        message = self._message()
        values = self.settle(*self._values())
        self.assembler.place = self.whole()
        self.assembler.print_(message, values)

    def _copy_wait(self) -> None:
        groups = self.count("how many groups may still be in flight: 0, or a small whole number")
        self._plain(lambda: self.assembler.copy_wait(groups))

    def _message(self) -> str:
        return unquote(self.expect_kind("string", "a message in quotes"))

    def _values(self) -> list[Operand]:
        values = []
        while self.take(","):
            values.append(self.expression())
        return values

    def whole(self) -> Span:
        """The statement at hand, up to the last token."""
        return self.begin, self.position - 1

    def _plain(self, emit: Callable[[], None]) -> None:
        self.assembler.place = self.whole()
        emit()

    def skip_block(self) -> None:
        """Goes on behind the block whose head failed, if it opens on the same line."""
        depth = 0
        while (word := self.words[self.position]) and (depth or word != "\n"):
            self.position += 1
            depth += (word == "{") - (word == "}")
            if word == "}" and not depth:
                break


STATEMENTS: Final[Mapping[str, Callable[[Any], None]]] = {
    "doc": StatementParser.doc,
    "private": lambda p: p.memory(Space.PRIVATE),
    "table": lambda p: p.memory(Space.TABLE),
    "let": StatementParser._let,
    "var": StatementParser._var,
    "if": StatementParser._if,
    "for": StatementParser._for,
    "loop": StatementParser._loop,
    "region": StatementParser._region,
    "assert": StatementParser._assert,
    "print": StatementParser._print,
    "copy_async": lambda p: p._store(copies=True),
    "copy_commit": lambda p: p._plain(p.assembler.copy_commit),
    "copy_wait": StatementParser._copy_wait,
    "break": lambda p: p._plain(p.assembler.break_),
    "continue": lambda p: p._plain(p.assembler.continue_),
    "return": lambda p: p._plain(p.assembler.return_),
    "barrier": lambda p: p._plain(p.assembler.barrier),
    "grid_barrier": lambda p: p._plain(p.assembler.grid_barrier),
}
