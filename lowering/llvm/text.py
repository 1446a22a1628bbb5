"""Writing LLVM IR as text: a module, and one function of it at a time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from vyre_py.lowering.errors import Missing, Unsupported

if TYPE_CHECKING:
    from vyre_py.lowering.llvm.lines import LineTables

__all__ = ["CUT", "MOST_LINES", "ModuleText", "Writer"]

# What is refused takes some minutes.
MOST_LINES: Final = 250_000

# Straight pieces are cut into blocks of so many lines, whose labels begin with a word: LLVM's code generation works on a block at a time, and several of its
# parts take time with the square of a block's length at any level.
_BLOCK_LINES: Final = 500
CUT: Final = "cut"


class ModuleText:
    """A module in the making: `heads` (target lines) first, then globals, declarations, helpers (each once), functions, `tails` (metadata nodes by number) and
    `named` metadata. With `line_tables` its functions say where they were written."""

    def __init__(self, *heads: str) -> None:
        self.heads = list(heads)
        self.functions: list[str] = []
        self.tails: list[str] = []
        self.named: dict[str, list[str]] = {}
        self.line_tables: LineTables | None = None
        self._globals: dict[str, None] = {}
        self._declarations: dict[str, None] = {}
        self._helpers: dict[str, None] = {}
        self._counts: Counter[str] = Counter()

    def add_global(self, definition: str) -> None:
        """Adds "@name = ..." once."""
        self._globals[definition] = None

    def declare(self, declaration: str) -> None:
        """Adds "declare ..." once."""
        self._declarations[declaration] = None

    def define(self, function: str) -> None:
        """Adds a whole "define internal ..." once, for the kernels to call."""
        self._helpers[function] = None

    def count(self, what: str) -> int:
        """How often this was asked about `what`, this time too."""
        self._counts[what] += 1
        return self._counts[what]

    def node(self, text: str) -> str:
        """Adds a metadata node; gives its name."""
        self.tails.append(f"!{len(self.tails)} = {text}")
        return f"!{len(self.tails) - 1}"

    def loop(self, hint: str) -> str:
        """Adds what LLVM is told of one loop; gives the attachment of its last branch."""
        number = len(self.tails)
        self.tails += [f"!{number} = distinct !{{!{number}, !{number + 1}}}", f"!{number + 1} = !{{{hint}}}"]
        return f", !llvm.loop !{number}"

    def apart(self) -> tuple[str, str] | None:
        """Two modules, of the first function and of all others; None where there is no other, or where they would share more than names of memory."""
        if len(self.functions) == 1 or self._helpers or self.line_tables is not None or any(" internal " in one for one in self._globals):
            return None
        return self._text(self.functions[:1]), self._text(self.functions[1:])

    def __str__(self) -> str:
        return self._text(self.functions)

    def _text(self, functions: list[str]) -> str:
        named = [f"!{name} = !{{{', '.join(nodes)}}}" for name, nodes in self.named.items()]
        parts = (self.heads, self._globals, sorted(self._declarations), self._helpers, functions, self.tails, named)
        return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


class Writer:
    """Collects the body of one function. Locals go to the entry block; every other line goes to the current block, with `place` (an attachment of
    `lines.FunctionLines`) at its end.

    `known` are the values that `shared` gives again: those of the current block, and those that the walk puts back behind a branch.

    After a terminator the current block is closed; `open` says so, and a line written then would be a defect of the walk.
    """

    def __init__(self, module: ModuleText, label: str = "start") -> None:
        self.module = module
        self.open = True
        self.place = ""
        self.shares = False
        self.known: dict[str, str] = {}
        self._first = label
        self._current = label
        self._locals: list[str] = []
        self._lines: list[str] = []
        self._values = 0
        self._labels = 0
        self._since = 0  # lines since the current block began
        self.straight = 0  # lines since the straight piece at hand began, which may be cut into blocks

    @property
    def current(self) -> str:
        """The label of the current block, for a phi."""
        return self._current

    def name(self) -> str:
        """A fresh value name."""
        self._values += 1
        return f"%v{self._values}"

    def let(self, instruction: str) -> str:
        """Writes `%vN = instruction`; gives the name."""
        name = self.name()
        self.line(f"{name} = {instruction}")
        return name

    def shared(self, instruction: str) -> str:
        """What `let` gives, of an instruction that always gives the same; where the Writer `shares`, an earlier value that is there in any case."""
        if not self.shares:
            return self.let(instruction)
        name = self.known.get(instruction)
        if name is None:
            name = self.known[instruction] = self.let(instruction)
        return name

    def line(self, text: str) -> None:
        """Writes an instruction that gives nothing."""
        if self._since >= _BLOCK_LINES:
            self.block(self.label(CUT))
        self._add(text)

    def _add(self, text: str) -> None:
        assert self.open, f"a line after a terminator: {text}"
        self._lines.append(f"  {text}{self.place}")
        self._since += 1
        self.straight += 1

    def require_room(self, done: int, count: int) -> None:
        """Raises Unsupported, with what all of them make at this rate, where `done` of `count` statements have made more lines than are compiled."""
        if len(self._lines) > MOST_LINES:
            help_ = f"at most {MOST_LINES:,} are compiled: loops in place of statements written out, or several Programs, make fewer"
            raise Unsupported("LLVM", [Missing(f"a Program that makes {len(self._lines) * count // done:,} lines of LLVM IR", help=help_)])

    def local(self, type_: str, zero: bool = False, align: int = 0) -> str:
        """An alloca in the entry block, filled with zero there if asked; gives its name."""
        name = self.name()
        self._locals.append(f"  {name} = alloca {type_}" + (f", align {align}" if align else ""))
        if zero:
            self._locals.append(f"  store {type_} zeroinitializer, ptr {name}")
        return name

    def label(self, hint: str = "b") -> str:
        """A fresh label."""
        self._labels += 1
        return f"{hint}.{self._labels}"

    def block(self, label: str) -> None:
        """Begins a block; the one before, if still open, falls through to it."""
        if self.open:
            self.jump(label)
        self._lines.append(f"{label}:")
        self._current = label
        self._since = 0
        self.open = True
        if not label.startswith(CUT):
            self.known, self.straight = {}, 0

    def jump(self, label: str) -> None:
        """Ends the current block with a branch."""
        self.end(f"br label %{label}")

    def again(self, head: str, unroll: int = 0) -> None:
        """Ends the last block of a loop with a branch to its head; so many turns are to be written out, where that is not 0."""
        count = '!"llvm.loop.unroll.disable"' if unroll == 1 else f'!"llvm.loop.unroll.count", i32 {unroll}'
        self.end(f"br label %{head}{self.module.loop(count) if unroll else ''}")

    def branch(self, condition: str, yes: str, no: str) -> None:
        """Ends the current block with a conditional branch."""
        self.end(f"br i1 {condition}, label %{yes}, label %{no}")

    def end(self, terminator: str) -> None:
        """Ends the current block with any terminator."""
        self._add(terminator)
        self.open = False

    def declare(self, declaration: str) -> None:
        """Declares an intrinsic or function in the module, once."""
        self.module.declare(declaration)

    def call(self, result: str, function: str, *arguments: tuple[str, str]) -> str:
        """Declares and calls a function of (type, name) arguments that gives a value; gives its name."""
        self.declare(f"declare {result} @{function}({', '.join(t for t, _ in arguments)})")
        return self.let(f"call {result} @{function}({', '.join(f'{t} {n}' for t, n in arguments)})")

    def run(self, function: str, *arguments: tuple[str, str]) -> None:
        """Declares and calls a function that gives nothing."""
        self.declare(f"declare void @{function}({', '.join(t for t, _ in arguments)})")
        self.line(f"call void @{function}({', '.join(f'{t} {n}' for t, n in arguments)})")

    def function(self, signature: str) -> str:
        """The whole function: `signature` is all of "define ..." before the brace."""
        entry = ["entry:", *self._locals, f"  br label %{self._first}", f"{self._first}:"]
        return "\n".join([f"{signature} {{", *entry, *self._lines, "}"])

    def finish(self, signature: str) -> None:
        """Adds the function to the module."""
        self.module.functions.append(self.function(signature))
