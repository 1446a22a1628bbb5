"""The printer of `.vir` text: the inverse of `ir.text.parser`, exact for every Program whose names and blocks are in order.

Statements are flat; for reading, the printer nests the unnamed values that are used once where that gives back the same
statements in the same order: such values wait on a stack, and a statement may take exactly the top of it, left to right.

A Program that was made for a target may have statements that no text has (`ir.text.target_printer`): they are printed, for people, and not read.

One module because what each statement prints depends on what waits, and is a few lines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from vyre_py.ir.check.facts import uses
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.functions.function import Function
from vyre_py.ir.language.describe import full_name
from vyre_py.ir.language.dims import Dim
from vyre_py.ir.language.nodes import (
    ATOMIC_KINDS,
    FENCES,
    Atom,
    Atomic,
    Barrier,
    Break,
    Const,
    Continue,
    CopyAsync,
    CopyCommit,
    CopyWait,
    Else,
    End,
    For,
    Get,
    GridBarrier,
    GridScan,
    If,
    Let,
    Load,
    Loop,
    Memory,
    Param,
    Print,
    Region,
    ReportStatement,
    Return,
    Set,
    Statement,
    Store,
    Subgroup,
    Tile,
    TileAtomicAdd,
    TileLoad,
    TileMemoryStatement,
    TileStore,
    UniformLoad,
    Value,
    Var,
)  # fmt: skip
from vyre_py.ir.language.op import Operand, Result
from vyre_py.ir.language.ops import OPS, swizzle_lanes
from vyre_py.ir.language.types import Type, i32, u32
from vyre_py.ir.language.walks import REPORTING_KINDS, Handlers
from vyre_py.ir.text.declaration_printer import head_lines, inner_lines, print_dim
from vyre_py.ir.text.lexer import INFIX, LEVEL_UNARY, PREFIX, literal_text, quote, written_name
from vyre_py.ir.text.target_printer import TARGET_TEXTS

if TYPE_CHECKING:
    from vyre_py.ir.language.program import Program

__all__ = ["print_program"]

MAX_DEPTH: Final = 8
MAX_WIDTH: Final = 100
_LEVEL_ATOM: Final = LEVEL_UNARY + 1
_PLAIN: Final[tuple[type[Statement], ...]] = (Break, Continue, Return, Barrier, GridBarrier, CopyCommit, *FENCES.values())


def print_program(program: Program, annotate: Callable[[int], str] | None = None, *, once: bool = False) -> str:
    """The Program as text, which `parse` reads back to an equal one.

    `annotate` gives a remark for a statement's index, or "": remarks stand as comments behind the line that holds the statement, equal ones of a line
    only `once` where that is asked for.
    Takes time linear in the Program.
    """
    return _Printer(program, annotate, once=once).text()


@dataclass(slots=True, eq=False)
class _Text:
    """A value that waits to be nested: its expression, the precedence and depth of that, and remarks on its statements."""

    id: int
    text: str
    level: int
    depth: int
    remarks: tuple[str, ...]


class _Printer:
    def __init__(self, program: Program, annotate: Callable[[int], str] | None = None, indent: int = 1, *, once: bool = False) -> None:
        self.program, self.annotate, self.once = program, annotate, once
        self.lines: list[str] = []
        self.indent = indent
        self.pending: deque[_Text] = deque()
        self.waiting: dict[int, _Text] = {}  # the same, by value id
        self.uses = uses(program)
        self.value_names: dict[int, str] = {}
        self.variable_names: dict[int, str] = {}
        self.params = {p.name for p in program.params}
        self.visible = self.params | {d.name for d in program.dims}
        self.scopes: list[list[str]] = [[]]
        self.counters: dict[str, int] = {}
        self.held_else = False
        self.silent: set[int] = set()  # End markers of an If that is printed as `else if`

    def text(self) -> str:
        _PRINTERS.require(self.program)
        functions = [line for function in self.program.functions for line in _Printer(function.program, indent=2).function(function)]
        self.lines += head_lines(self.program, functions)
        for index, statement in enumerate(self.program.body):
            _PRINTERS[type(statement)](self, index, statement)
        self._flush()
        self.lines.append("}\n")
        return "\n".join(self.lines)

    def function(self, function: Function) -> list[str]:
        """The lines of a function, whose body this prints: its parameters are names, and the store to its result returns."""
        _PRINTERS.require(self.program)
        parameters = ", ".join([f"{written_name(name)}: {type_}" for name, type_ in zip(function.names, function.types, strict=True)])
        self.lines.append(f"  function {written_name(function.name)}({parameters}) -> {function.type} {{")
        self.lines += ["  " + line for line in inner_lines(self.program, len(function.types) + 1)]
        for number, name in enumerate(function.names):
            self.visible.add(name)
            self.value_names[number] = written_name(name)
        for index, statement in enumerate(self.program.body[len(function.types) : -1], len(function.types)):
            _PRINTERS[type(statement)](self, index, statement)
        last = self._effect(len(self.program.body) - 1, self.program.body[-1], lambda: self._atom(self.program.body[-1].args[-1], function.type).text)
        self._line(f"return {last.text}")
        self.lines.append("  }")
        return self.lines

    # ---- lines

    def _line(self, text: str, remarks: Sequence[str] = ()) -> None:
        if self.held_else:
            self.held_else = False
            self.lines.append("  " * (self.indent - 1) + "} else {")
        remark = "; ".join(filter(None, dict.fromkeys(remarks) if self.once else remarks))
        comment = "  // " + " ".join(remark.split()) if remark else ""
        self.lines.append("  " * self.indent + text + comment)

    def _open(self, text: str, remarks: Sequence[str] = ()) -> None:
        self._line(text + " {", remarks)
        self.indent += 1
        self.scopes.append([])

    def _leave(self) -> None:
        self.indent -= 1
        self.visible.difference_update(self.scopes.pop())

    def _remarks(self, index: int) -> tuple[str, ...]:
        remark = self.annotate(index) if self.annotate is not None else ""
        return (remark,) if remark else ()

    def _flush(self, down_to: int = 0) -> None:
        """Prints waiting values as lets, oldest first, until `down_to` are left."""
        while len(self.pending) > down_to:
            entry = self.pending.popleft()
            del self.waiting[entry.id]
            self._let(entry.id, entry.text, entry.remarks)

    def _let(self, value: int, text: str, remarks: Sequence[str]) -> None:
        self._line(f"let {self._value_name(value)} = {text}", remarks)

    # ---- names

    def _claim(self, wanted: str) -> str:
        """A name that nothing in sight has, made from the wanted one."""
        name = wanted
        if name in self.visible:
            number = self.counters.get(wanted, 1)
            while (name := f"{wanted}_{number}") in self.visible:
                number += 1
            self.counters[wanted] = number + 1
        self.visible.add(name)
        self.scopes[-1].append(name)
        return written_name(name)

    def _value_name(self, value: int) -> str:
        self.value_names[value] = name = self._claim(self.program.value_names.get(value, f"v{value}"))
        return name

    # ---- operands

    def _take(self, args: tuple[Atom, ...]) -> list[_Text]:
        """The waiting values among the operands that may be nested here; those in their way are printed."""
        wanted = [a.id for a in args if isinstance(a, Value) and a.id in self.waiting]
        top = [self.pending[k].id for k in range(-len(wanted), 0)]
        first = next((k for k in range(len(wanted)) if top[k:] == wanted[k:]), len(wanted))
        while any(value in self.waiting for value in wanted[:first]):
            self._flush(len(self.pending) - 1)
        return [self.waiting[value] for value in wanted[first:]]

    def _atom(self, atom: Atom, type_: Type | None = None) -> _Text:
        """An operand as text; a constant of type `type_` goes without a suffix."""
        if isinstance(atom, Value):
            return self.waiting.get(atom.id) or _Text(-1, self.value_names.get(atom.id, f"v{atom.id}"), _LEVEL_ATOM, 0, ())
        if isinstance(atom, Const):
            text = literal_text(atom.type, atom.bits, atom.type is not type_)
        elif isinstance(atom, Param) or (isinstance(atom, Dim) and atom.name not in self.params):
            text = written_name(atom.name)
        else:
            text = f"dim({print_dim(atom)})"
        return _Text(-1, text, _LEVEL_ATOM, 0, ())

    def _group(self, args: Sequence[Atom]) -> list[_Text]:
        """Operands of one type: one that is no constant fixes it for all; without one, the first constant does."""
        typed = next((a for a in args if not isinstance(a, Const)), None)
        if typed is not None or not args:
            fixed = typed.type if typed is not None else None
            return [self._atom(a, fixed.scalar if fixed is not None and fixed.is_tile else fixed) for a in args]
        return [self._atom(args[0]), *[self._atom(a, args[0].type) for a in args[1:]]]

    def _indices(self, indices: Sequence[Atom]) -> list[str]:
        return [self._atom(a, i32 if isinstance(a, Const) and a.type is i32 and a.bits >> 31 else u32).text for a in indices]

    def operand(self, atom: Atom, type_: Type | None = None) -> str:
        """An operand's text alone."""
        return self._atom(atom, type_).text

    def access(self, memory: Memory, indices: Sequence[Atom]) -> str:
        """An element of an array."""
        return f"{written_name(memory.name)}[{', '.join(self._indices(indices))}]"

    def _tile_access(self, s: TileMemoryStatement) -> str:
        """An access by tiles, whose operands are half of them offsets and half extents, and then a value if there is one."""
        axes = len(s.args) // 2
        extents = [self._atom(a, u32).text for a in s.args[axes : 2 * axes]]
        some = any(extent != "0" for extent in extents)  # one is written always: without any it would be an access of one element
        axis_texts = [i if some and n == "0" else f"{i} : {n}" for i, n in zip(self._indices(s.args[:axes]), extents, strict=True)]
        return f"{written_name(s.memory.name)}[{', '.join(axis_texts)}]"

    def _op(self, statement: Let) -> tuple[str, int]:
        """An op's text and precedence."""
        op, args = statement.op, statement.args
        if isinstance(op, Function):
            return f"{op.name}({', '.join([self._atom(a, type_).text for a, type_ in zip(args, op.types, strict=True)])})", _LEVEL_ATOM
        shared = iter(self._group([a for a, pattern in zip(args, op.operands, strict=True) if pattern is Operand.T]))
        texts = [
            next(shared) if pattern is Operand.T else self._atom(a, pattern.fixed)
            for a, pattern in zip(args, op.operands, strict=True)
        ]
        if op is OPS["swizzle"] and (names := _component_names(statement)):
            return f"{_inside(texts[0], _LEVEL_ATOM)}.{names}", _LEVEL_ATOM
        if op.infix in INFIX and INFIX[op.infix][0] is op:
            level = INFIX[op.infix][1]
            left, right = texts
            # Comparisons do not chain, so their left side is no exception.
            left_text = _inside(left, level + (Result.BOOL is op.result))
            return f"{left_text} {op.infix} {_inside(right, level + 1)}", level
        if op.infix in PREFIX and PREFIX[op.infix] is op:
            inner = _inside(texts[0], LEVEL_UNARY)
            # A sign before a number would be read as the number's own.
            return f"{op.infix}({inner})" if isinstance(args[0], Const) or inner[0] == op.infix or inner[0].isdigit() else f"{op.infix}{inner}", LEVEL_UNARY
        if op.is_query:
            return op.name, _LEVEL_ATOM
        given = []
        if op.result is Result.GIVEN and statement.result is not None:
            type_ = statement.result.type
            given = [str(type_.scalar if any(a.type.is_tile for a in args) else type_)]
        return f"{op.name}({', '.join([t.text for t in texts] + given)})", _LEVEL_ATOM

    # ---- statements

    def _render(self, index: int, statement: Statement, text: Callable[[], tuple[str, int]]) -> _Text:
        """A statement's text, with the operands nested that may be."""
        taken = self._take(statement.args)
        rendered, level = text()
        depth = 1 + max([t.depth for t in taken], default=0)
        if taken and (depth > MAX_DEPTH or len(rendered) > MAX_WIDTH):
            self._flush()
            taken, depth = [], 1
            rendered, level = text()
        for entry in taken:
            del self.waiting[entry.id]
            self.pending.pop()
        remarks = (*[r for t in taken for r in t.remarks], *self._remarks(index))
        return _Text(statement.result.id if statement.result is not None else -1, rendered, level, depth, remarks)

    def _value(self, index: int, statement: Statement, text: Callable[[], tuple[str, int]], nests: bool) -> None:
        """A statement that binds a value: kept waiting where it may nest, else printed as a let."""
        made = self._render(index, statement, text)
        if nests and made.id not in self.program.value_names and self.uses[made.id] == 1:
            self.pending.append(made)
            self.waiting[made.id] = made
            return
        self._flush()
        self._let(made.id, made.text, made.remarks)

    def _effect(self, index: int, statement: Statement, text: Callable[[], str]) -> _Text:
        """A statement's text once all before it is printed."""
        made = self._render(index, statement, lambda: (text(), 0))
        self._flush()
        return made

    def _do(self, index: int, statement: Statement, text: Callable[[], str]) -> None:
        """A statement that is a line of its own."""
        made = self._effect(index, statement, text)
        self._line(made.text, made.remarks)

    def _print_let(self, index: int, s: Let) -> None:
        self._value(index, s, lambda: self._op(s), nests=True)

    def _print_load(self, index: int, s: Load) -> None:
        self._value(index, s, lambda: (self.access(s.memory, s.args), _LEVEL_ATOM), nests=True)

    def _print_tile_load(self, index: int, s: TileLoad) -> None:
        self._value(index, s, lambda: (self._tile_access(s), _LEVEL_ATOM), nests=True)

    def _print_tile(self, index: int, s: Tile) -> None:
        def text() -> str:
            count = s.op.operands
            return f"{s.op.name}({', '.join([self._atom(a, None if k < count else u32).text for k, a in enumerate(s.args)])})"

        self._value(index, s, lambda: (text(), _LEVEL_ATOM), nests=True)

    def _print_get(self, index: int, s: Get) -> None:
        name = self.variable_names.get(s.variable.id, f"t{s.variable.id}")
        self._value(index, s, lambda: (name, _LEVEL_ATOM), nests=True)

    def _print_uniform_load(self, index: int, s: UniformLoad) -> None:
        self._value(index, s, lambda: (f"uniform_load({self.access(s.memory, s.args)})", _LEVEL_ATOM), nests=False)

    def _print_atomic(self, index: int, s: Atomic) -> None:
        def text() -> str:
            operands = [self._atom(a, s.memory.type).text for a in s.operands]
            return f"{full_name(s.op)}({', '.join([self.access(s.memory, s.indices), *operands])})"

        self._bind_or_do(index, s, text)

    def _bind_or_do(self, index: int, s: Statement, text: Callable[[], str]) -> None:
        """A statement that acts and gives a value: a let where somebody uses or names that."""
        if s.result is not None and (self.uses[s.result.id] or s.result.id in self.program.value_names):
            self._value(index, s, lambda: (text(), _LEVEL_ATOM), nests=False)
            return
        self._do(index, s, text)

    def _print_together(self, index: int, s: Subgroup) -> None:
        def text() -> str:
            return f"subgroup_{s.op.name}({', '.join([self._atom(a, None if k == 0 else u32).text for k, a in enumerate(s.args)])})"

        self._bind_or_do(index, s, text)

    def _print_grid_scan(self, index: int, s: GridScan) -> None:
        self._bind_or_do(index, s, lambda: f"{s.spelling}({', '.join([s.fold, *[self._atom(a).text for a in s.args]])})")

    def _print_store(self, index: int, s: Store) -> None:
        self._do(index, s, lambda: self._written(s))

    def _written(self, s: Store | CopyAsync) -> str:
        return f"{self.access(s.memory, s.args[:-1])} = {self._atom(s.value, s.memory.type).text}"

    def _print_tile_store(self, index: int, s: TileStore) -> None:
        self._do(index, s, lambda: f"{self._tile_access(s)} = {self._atom(s.value, s.memory.type).text}")

    def _print_tile_atomic_add(self, index: int, s: TileAtomicAdd) -> None:
        self._do(index, s, lambda: f"{s.spelling}({self._tile_access(s)}, {self._atom(s.value, s.memory.type).text})")

    def _print_copy(self, index: int, s: CopyAsync) -> None:
        made = self._effect(index, s, lambda: self._written(s))
        self._line(f"{s.spelling} {made.text}", made.remarks)

    def _print_wait(self, index: int, s: CopyWait) -> None:
        self._flush()
        self._line(f"{s.spelling} {self._atom(s.args[0], u32).text}", self._remarks(index))

    def _print_var(self, index: int, s: Var) -> None:
        made = self._effect(index, s, lambda: self._atom(s.args[0], s.variable.type).text)
        name = self._claim(self.program.variable_names.get(s.variable.id, f"t{s.variable.id}"))
        self.variable_names[s.variable.id] = name
        self._line(f"var {name}: {s.variable.type} = {made.text}", made.remarks)

    def _print_set(self, index: int, s: Set) -> None:
        made = self._effect(index, s, lambda: self._atom(s.args[0], s.variable.type).text)
        self._line(f"{self.variable_names.get(s.variable.id, f't{s.variable.id}')} = {made.text}", made.remarks)

    def _print_if(self, index: int, s: If) -> None:
        made = self._render(index, s, lambda: (self._atom(s.args[0]).text, 0))
        match = self.program.match
        end = match[index] if isinstance(self.program.body[match[index]], End) else match[match[index]]
        if self.held_else and not self.pending and isinstance(self.program.body[end + 1], End):
            # The Else holds this If and nothing besides.
            self.held_else = False
            self.silent.add(end)
            self.indent -= 1
            self._open(f"}} else if {made.text}", made.remarks)
            return
        self._flush()
        self._open(f"if {made.text}", made.remarks)

    def _print_else(self, index: int, s: Else) -> None:
        self._flush()
        self._leave()
        self.indent += 1
        self.scopes.append([])
        self.held_else = True

    def _print_end(self, index: int, s: End) -> None:
        self._flush()
        self._leave()
        if self.held_else:
            self.held_else = False
            self._line("} else {")
        if index in self.silent:
            self.indent += 1
            return
        self._line("}", self._remarks(index))

    def _print_for(self, index: int, s: For) -> None:
        def text() -> str:
            start, stop, step = self._group(s.args)
            hints = "".join([f" {name}({count})" for name, count in (("unroll", s.unroll), ("pipeline", s.pipeline)) if count])
            one = isinstance(s.args[2], Const) and s.args[2].type is s.args[0].type and s.args[2].bits == 1
            return f"{start.text}..{stop.text}" + ("" if one else f" step {step.text}") + hints

        made = self._effect(index, s, text)
        name = self._value_name(made.id)
        mine = self.scopes[-1].pop()  # the variable belongs to the block, not to what is around it
        self._open(f"for {name} in {made.text}", made.remarks)
        self.scopes[-1].append(mine)

    def _print_loop(self, index: int, s: Loop) -> None:
        self._flush()
        self._open("loop", self._remarks(index))

    def _print_region(self, index: int, s: Region) -> None:
        self._flush()
        self._open(f"region {quote(s.name)}", self._remarks(index))

    def _print_report(self, index: int, s: ReportStatement) -> None:
        def text() -> str:
            said = [quote(s.message), *[self._atom(a).text for a in s.values]] if s.message or s.values or isinstance(s, Print) else []
            return ", ".join([*[self._atom(a).text for a in s.args[: len(s.args) - len(s.values)]], *said])

        made = self._effect(index, s, text)
        self._line(f"{s.spelling} {made.text}", made.remarks)

    def _print_target(self, index: int, s: Statement) -> None:
        self._do(index, s, lambda: TARGET_TEXTS[type(s)](self, s))

    def _print_plain(self, index: int, s: Statement) -> None:
        self._flush()
        self._line(s.spelling, self._remarks(index))


_PRINTERS: Final[Handlers[Callable[[_Printer, int, Any], None]]] = Handlers("text", {
    Let: _Printer._print_let,
    Load: _Printer._print_load,
    Get: _Printer._print_get,
    UniformLoad: _Printer._print_uniform_load,
    **dict.fromkeys(ATOMIC_KINDS, _Printer._print_atomic),
    Store: _Printer._print_store,
    TileLoad: _Printer._print_tile_load,
    TileStore: _Printer._print_tile_store,
    TileAtomicAdd: _Printer._print_tile_atomic_add,
    Tile: _Printer._print_tile,
    CopyAsync: _Printer._print_copy,
    CopyWait: _Printer._print_wait,
    Var: _Printer._print_var,
    Set: _Printer._print_set,
    If: _Printer._print_if,
    Else: _Printer._print_else,
    End: _Printer._print_end,
    For: _Printer._print_for,
    Loop: _Printer._print_loop,
    Region: _Printer._print_region,
    Subgroup: _Printer._print_together,
    GridScan: _Printer._print_grid_scan,
    **dict.fromkeys(REPORTING_KINDS, _Printer._print_report),
    **dict.fromkeys(_PLAIN, _Printer._print_plain),
    **dict.fromkeys(TARGET_TEXTS, _Printer._print_target),
})  # fmt: skip


def _component_names(swizzle: Let) -> str:
    """The components that a swizzle names; "" where its pattern names none, which `check` refuses, and a call must say it."""
    pattern, lanes = swizzle.args[1], swizzle.bound.type.lanes
    if not isinstance(pattern, Const) or pattern.type is not u32 or pattern.bits >> 2 * lanes:
        return ""
    return "".join(["xyzw"[lane] for lane in swizzle_lanes(pattern.bits, lanes)])


def _inside(part: _Text, level: int) -> str:
    """A part where precedence `level` is needed."""
    return part.text if part.level >= level else f"({part.text})"
