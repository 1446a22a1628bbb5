"""Asserts and prints as ordinary statements: atomics and stores to a hidden buffer, which drivers bind and read (`lowering.reports` has its layout)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import (
    Access,
    Assert,
    Atom,
    Const,
    Memory,
    Print,
    ReportStatement,
    Space,
    Statement,
    Value,
)
from vyre_py.ir.language.ops import ATOMICS, OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Kind, Type, bool_, u32, unsigned_of
from vyre_py.ir.language.walks import REPORTING_KINDS
from vyre_py.ir.passes.rewriter import Rewriter
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.reports import (
    DROPPED,
    FAILED,
    FAILED_RECORDS,
    HEADER,
    LEAST,
    PRINTED,
    failed_words,
    forms_of,
    prints_at,
    report_name,
)

__all__ = ["WITHOUT_REPORTS", "lower_reports", "number_reports", "numbered"]

# For `walks.Handlers`: what to do instead.
WITHOUT_REPORTS: Final[Mapping[type[Statement], str]] = MappingProxyType(
    dict.fromkeys(REPORTING_KINDS, "a target's own code has none: compile it by vp.compile_native, which rewrites it first")
)

_AXES: Final = "xyz"
_WORD_BITS: Final = 32


def _is_left_out(statement: Statement, options: CompileOptions) -> bool:
    """Whether the options say that a statement is to cost nothing."""
    return (isinstance(statement, Assert) and not options.asserts) or (isinstance(statement, Print) and not options.print_bytes)


class _Numbered(Rewriter):
    """For the interpreter, which runs the statements themselves: each has its number for a message."""

    def __init__(self, program: Program, options: CompileOptions) -> None:
        super().__init__(program)

    def take(self, index: int, number: int) -> None:
        statement = self.program.body[index]
        assert isinstance(statement, ReportStatement)  # the caller has looked
        self.place = self.program.place(index)
        message = f"{number}:{'{}' * len(statement.values)}"
        self.emit(type(statement)(None, tuple([self.atom(a) for a in statement.args]), message))


def numbered(message: str) -> int:
    """The number that a message of such a statement holds."""
    return int(message.partition(":")[0])


class _Stored(Rewriter):
    def __init__(self, program: Program, options: CompileOptions) -> None:
        super().__init__(program)
        self.forms = forms_of(program)
        self.begin = prints_at(self.forms)
        self.room = options.print_bytes // 4 if any(isinstance(s, Print) for s in program.body) else 0
        name = report_name([*program.dims, *program.params, *program.memories])
        self.report = Memory(name, Space.BUFFER, u32, (DimConst(self.begin + self.room),), Access.READ_WRITE, hidden=True)

    # ---- what is written often

    def op(self, name: str, *args: Atom, to: Type | None = None) -> Value:
        """An op of that name."""
        return self.let(OPS[name], args, to)

    def change(self, op: str, word: int, operand: Atom) -> Value:
        """The word of the header before it is changed by an atomic."""
        return self.atomic(ATOMICS[op], self.report, (Const(u32, word),), (operand,))

    def put(self, base: Atom, word: int, value: Atom) -> None:
        self.store(self.report, (self.op("add", base, Const(u32, word)) if word else base,), value)

    def enter(self) -> None:
        """Opens a block for the invocations that the grid counts: the last workgroups may have others, of which nobody wants to hear."""
        if self.program.grid.over:
            x, y, z = [self.op("lt", self.op(f"global_id.{axis}"), extent) for axis, extent in zip(_AXES, self.program.grid.extents, strict=True)]
            self.if_(self.op("logical_and", self.op("logical_and", x, y), z))

    def leave(self) -> None:
        """Closes it."""
        if self.program.grid.over:
            self.end()

    def number(self) -> Atom:
        """The number of the invocation in the grid."""
        x, y, z = self.program.workgroup
        group: Atom = self.op("workgroup_id.z")
        for axis in "yx":
            group = self.op("add", self.op("mul", group, self.op(f"num_workgroups.{axis}")), self.op(f"workgroup_id.{axis}"))
        return self.op("add", self.op("mul", group, Const(u32, x * y * z)), self.op("local_index"))

    def words(self, atom: Atom) -> list[Atom]:
        """The words in which a value travels."""
        if atom.type.is_vector:
            scalar = atom.type.scalar
            return [word for lane in range(atom.type.lanes) for word in self.words(self.op("swizzle", atom, Const(u32, lane), to=scalar))]
        bits = self.op("bitcast", atom, to=unsigned_of(atom.type)) if atom.type.kind is Kind.FLOAT else atom
        if bits.type is u32:
            return [bits]
        low = self.op("cast", bits, to=u32)
        if bits.type.bits <= _WORD_BITS:
            return [low]
        return [low, self.op("cast", self.op("shr", bits, Const(bits.type, _WORD_BITS)), to=u32)]

    def record(self, base: Atom, values: tuple[Atom, ...]) -> None:
        """All but the first word of a record at a place."""
        words = [self.op(f"global_id.{axis}") for axis in _AXES] + [word for value in values for word in self.words(value)]
        for word, value in enumerate(words, 1):
            self.put(base, word, value)

    # ---- the statements

    def failed(self, s: Assert, form: int) -> None:
        condition, *values = [self.atom(a) for a in s.args]
        self.if_(self.op("logical_not", condition))
        self.enter()
        key = self.op("not", self.number())
        self.if_(self.op("lt", self.change("max", LEAST, key), key))
        at = self.change("add", FAILED, Const(u32, 1))
        self.if_(self.op("lt", at, Const(u32, FAILED_RECORDS)))
        base = self.op("add", self.op("mul", at, Const(u32, failed_words(self.forms))), Const(u32, HEADER))
        self.put(base, 0, Const(u32, form))
        self.record(base, tuple(values))
        for _ in range(3):
            self.end()
        self.leave()

    def printed(self, s: Print, form: int) -> None:
        values = tuple([self.atom(a) for a in s.args])
        size, room = self.forms[form].words, self.room
        self.enter()
        # A look first, so that the count stays far from wrapping around however often the Program prints.
        self.if_(self.op("lt", self.change("or", PRINTED, Const(u32, 0)), Const(u32, room)))
        at = self.change("add", PRINTED, Const(u32, size))
        base = self.op("add", at, Const(u32, self.begin))
        self.put(base, 0, Const(u32, form))  # dropped where it lies outside
        self.if_(self.op("le", at, Const(u32, room - size)) if size <= room else Const(bool_, 0))
        self.record(base, values)
        for _ in range(2):
            self.else_()
            self.change("add", DROPPED, Const(u32, 1))
            self.end()
        self.leave()

    def take(self, index: int, form: int) -> None:
        """Takes in old statement `index`, whose form has this number."""
        statement = self.program.body[index]
        self.place = self.program.place(index)
        if self.memories[-1] is not self.report:
            self.memories.append(self.report)
        if isinstance(statement, Assert):
            self.failed(statement, form)
        else:
            assert isinstance(statement, Print)  # the caller has looked
            self.printed(statement, form)


def _rewritten(program: Program, options: CompileOptions, make: Callable[[Program, CompileOptions], _Numbered | _Stored]) -> Program:
    found = [index for index, statement in enumerate(program.body) if isinstance(statement, ReportStatement)]
    if not found:
        return program
    numbers = {index: number for number, index in enumerate(found)}
    rewriter = make(program, options)
    for index in rewriter.indices():
        if index not in numbers:
            rewriter.copy(index)
        elif not _is_left_out(program.body[index], options):
            rewriter.take(index, numbers[index])
    return rewriter.finish()


def number_reports(program: Program, options: CompileOptions) -> Program:
    """The Program in which each assert and print has its number, among all of them, for a message: what the interpreter says it by. Those that the options
    leave out are not there. A Program that has none is given back itself."""
    return _rewritten(program, options, _Numbered)


def lower_reports(program: Program, options: CompileOptions) -> Program:
    """The Program in which asserts and prints are atomics and stores to a hidden buffer of its own, the last of its memories; without those that the options
    leave out. A Program that has none is given back itself."""
    return _rewritten(program, options, _Stored)
