"""Types: operands fit their ops, and stored values fit their memories and variables.

Laws, for a Program of sound form:

* V201: an op accepts its operands' types, by its row.
* V202: an op, access, variable and branch has as many operands as it takes; an access has one index per axis.
* V203: a result has the type that the row, memory, variable or bounds give.
* V204: a stored value and an atomic's operands have the element's type; a variable's first and later values have its type.
* V205: indices are i32, u32, i64 or u64.
* V206: the condition of an If and of an assert is one bool.
* V207: start, stop and step of a For have one type, i32 or u32.
* V208: the step of a For is not the constant 0.
* V209: a constant size is from 0 to 2^48 - 1, and from 0 to 2^32 - 1 where it is used as a value other than whole; a size without dims is not
  negative, and none divides by the constant 0.
* V210: a swizzle's pattern is a constant, and names components that its operand has, one for each component of the result.
* V211: a subgroup op, and a query about lanes and subgroups, stands in a Program that has subgroups.
* V212: the message of an assert or print has a `{}`, or a `{:SPEC}`, for each value.
* V213: what a copy_wait leaves in flight is a constant from 0 to `MAX_COPY_GROUPS`.
* V214, V216: a For asks for at most `MAX_UNROLL` turns written out, and room for the tiles of at most `MAX_PIPELINE`.
* V215: a SPEC is one for its value's type.
* V510: those values take at most `REPORT_MAX_WORDS` words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from vyre_py.ir.check.findings import HEAD, Findings, Where, atom_text, number, quoted, variable_text
from vyre_py.ir.check.limits import MAX_COPY_GROUPS, MAX_PIPELINE, MAX_UNROLL
from vyre_py.ir.check.tile_laws import check_tile_op, is_tile_access
from vyre_py.ir.imports import deferred
from vyre_py.ir.language.dims import SIZE_LIMIT, WORD_LIMIT, Dim, DimConst, DimExpr, DimOp, evaluate_dim
from vyre_py.ir.language.nodes import (
    ATOMIC_KINDS,
    FENCES,
    REPORT_MAX_WORDS,
    Assert,
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
    MemoryStatement,
    Print,
    Region,
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
    Var,
)
from vyre_py.ir.language.op import Operand, Result
from vyre_py.ir.language.ops import GRID_FOLDS, swizzle_lanes
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Kind, Type, bool_, i32, tile_of, u32
from vyre_py.ir.language.walks import REPORTING_KINDS, Handlers
from vyre_py.ir.language.widths import INDEX_TYPES, whole_size
from vyre_py.ir.text.messages import format_fault, formats, words_of

if TYPE_CHECKING:
    from vyre_py.ir.builder import refusals
    from vyre_py.ir.builder.tiles import tile_refusals
else:
    (refusals,) = deferred("vyre_py.ir.builder", "refusals")
    (tile_refusals,) = deferred("vyre_py.ir.builder.tiles", "tile_refusals")

__all__ = ["check_types"]

_COUNTER_TYPES = (i32, u32)


class _Types:
    """The rules, by kind of statement, and what they share."""

    def __init__(self, program: Program, findings: Findings) -> None:
        self.program, self.findings = program, findings
        self.memories = set(program.memories)
        self.sized: set[tuple[int, int]] = set()  # ids of dim expressions already looked at, with the limit; the Program keeps them alive

    # ---- shared

    def arity(self, index: int, statement: Statement, taken: int, what: str) -> bool:
        if len(statement.args) != taken:
            self.findings.add(
                "V202", index, f"{what} takes {taken} operand{'s' * (taken != 1)}, got {len(statement.args)}"
            )
        return len(statement.args) == taken

    def result(self, index: int, statement: Statement, type_: Type, what: str) -> None:
        if statement.result is not None and statement.result.type is not type_:
            self.findings.add(
                "V203",
                index,
                f"{what} is {type_}, its result {atom_text(self.program, statement.result)} is {statement.result.type}",
            )

    def stored(self, index: int, value: Atom, type_: Type, what: str) -> None:
        if value.type is not type_:
            self.findings.add(
                "V204",
                index,
                f"{what} is {type_}, {atom_text(self.program, value)} is {value.type}",
                _how_to_store(value.type, type_),
            )

    def access(self, index: int, statement: MemoryStatement, operands: int) -> bool:
        """Index count and types; `operands` is how many follow. A memory that is not declared has no rank to rely on."""
        memory = statement.memory
        if memory not in self.memories:
            return False
        if len(statement.args) != memory.rank + operands:
            if isinstance(statement, TileMemoryStatement):
                self.tile_arity(index, statement)
                return False
            axes = f"{memory.rank} ax{'es' if memory.rank != 1 else 'is'}"
            needed = f"{memory.rank + operands} operand{'s' * (memory.rank + operands != 1)}"
            message = f"{quoted(memory.name)} has {axes}, so {needed} are needed, got {len(statement.args)}"
            help = "write one index per axis" + f", and {operands} operand{'s' * (operands != 1)} behind the element" * bool(operands)
            self.findings.add("V202", index, message, help)
            return False
        for atom in statement.indices:
            if atom.type not in INDEX_TYPES:
                self.findings.add(
                    "V205", index, f"an index of {quoted(memory.name)}, {atom_text(self.program, atom)}, is {atom.type}"
                )
        return True

    def tile_arity(self, index: int, s: TileMemoryStatement) -> None:
        """Reports an access by tiles that has not an offset and an extent for each axis of its memory."""
        memory, given = s.memory, len(s.args) // 2
        message = f"{quoted(memory.name)} has {memory.rank} ax{'es' if memory.rank != 1 else 'is'}, the access {given}"
        self.findings.add("V202", index, message, "write an offset for each axis, and an extent behind those that the tile has: x[i : 64, j]")

    def size(self, where: Where, expr: DimExpr, limit: int = SIZE_LIMIT) -> None:
        """A dim expression, at most `MAX_DIM_TERMS` terms, whose value lies below a limit; so do its constants below `SIZE_LIMIT`."""
        if (id(expr), limit) in self.sized:
            return
        self.sized.add((id(expr), limit))
        stack, symbolic, sound = [expr], False, True
        while stack:
            part = stack.pop()
            if isinstance(part, DimOp):
                stack += (part.right, part.left)
                if part.op == "ceil_div" and isinstance(part.right, DimConst) and part.right.value == 0:
                    self.findings.add("V209", where, "a size divides by 0", "divide by at least 1")
                    return
            elif isinstance(part, Dim):
                symbolic = True
            elif not 0 <= part.value < SIZE_LIMIT:
                self.findings.add("V209", where, f"{number(part.value)} is not a size", "write a whole number from 0 to 2^48 - 1")
                sound = False
        if sound and not symbolic:
            self.constant(where, expr, limit)

    def constant(self, where: Where, expr: DimExpr, limit: int) -> None:
        try:
            value = evaluate_dim(expr, {})
        except ZeroDivisionError:  # by an expression that is 0
            self.findings.add("V209", where, "a size divides by 0", "divide by at least 1")
            return
        if SIZE_LIMIT > value >= limit:
            self.findings.add("V209", where, f"a size used as a u32 is {number(value)}", "take it whole: cast(size, u64)")
        elif not 0 <= value < limit:
            self.findings.add("V209", where, f"a size is {number(value)}", "write an expression from 0 to 2^48 - 1")

    # ---- by kind

    def let(self, index: int, s: Let) -> None:
        op = s.op
        if op.name.startswith("subgroup_"):
            self.subgroups(index, op.name)
        if not self.arity(index, s, len(op.operands), op.name):
            return
        operands = tuple([a.type for a in s.args])
        given = s.result.type if op.result is Result.GIVEN and s.result is not None else None
        type_ = op.result_type(operands, given)
        if type_ is None:
            self.findings.add("V201", index, *refusals.refusal(op, operands, given))
            return
        # Of several shapes a larger one; an operand that is too large itself is at fault where it is made.
        if type_.is_tile and type_.shape not in [t.shape for t in operands] and (fault := tile_refusals.refusal_shape(type_.shape)) is not None:
            self.findings.add("V604", index, *fault)
            return
        self.result(index, s, type_, op.name)
        if Operand.LANES in op.operands:
            self.pattern(index, s.args[0], s.args[1], s.bound.type)

    def pattern(self, index: int, source: Atom, pattern: Atom, type_: Type) -> None:
        """Of a swizzle whose types are sound."""
        if not isinstance(pattern, Const):
            self.findings.add("V210", index, f"the pattern {atom_text(self.program, pattern)} is not a constant")
        elif pattern.bits >> 2 * type_.lanes:
            self.findings.add("V210", index, f"the pattern {pattern.bits:#x} names more components than the {type_.lanes} of {type_}")
        elif (last := max(swizzle_lanes(pattern.bits, type_.lanes))) >= source.type.lanes:
            has = f"{source.type.lanes} components" if source.type.is_vector else "no component but x"
            self.findings.add("V210", index, f"{atom_text(self.program, source)} is {source.type} and has {has}, so no {'xyzw'[last]}")

    def load(self, index: int, s: Load | UniformLoad) -> None:
        if self.access(index, s, 0):
            self.result(index, s, s.memory.type, f"an element of {quoted(s.memory.name)}")

    def store(self, index: int, s: Store | CopyAsync) -> None:
        if self.access(index, s, 1):
            self.stored(index, s.value, s.memory.type, f"an element of {quoted(s.memory.name)}")

    def tile_load(self, index: int, s: TileLoad) -> None:
        if self.access(index, s, s.memory.rank) and is_tile_access(self.program, self.findings, index, s):
            self.result(index, s, tile_of(s.memory.type, s.shape), f"a tile of {quoted(s.memory.name)}")

    def tile_write(self, index: int, s: TileStore | TileAtomicAdd) -> None:
        if self.access(index, s, s.memory.rank + 1) and is_tile_access(self.program, self.findings, index, s):
            self.stored(index, s.value, tile_of(s.memory.type, s.shape), f"a tile of {quoted(s.memory.name)}")

    def tile(self, index: int, s: Tile) -> None:
        check_tile_op(self.program, self.findings, index, s)

    def wait(self, index: int, s: CopyWait) -> None:
        if self.arity(index, s, 1, "a copy_wait"):
            count = s.args[0]
            if not isinstance(count, Const) or count.type is not u32:
                self.findings.add("V213", index, f"{atom_text(self.program, count)} is no constant u32")
            elif count.bits > MAX_COPY_GROUPS:
                self.findings.add("V213", index, f"{count.bits} groups are more than {MAX_COPY_GROUPS}")

    def atomic(self, index: int, s: Atomic) -> None:
        if self.access(index, s, s.op.operands):
            for operand in s.operands:
                self.stored(index, operand, s.memory.type, f"an element of {quoted(s.memory.name)}")
            if s.binds:
                self.result(index, s, s.memory.type, f"an element of {quoted(s.memory.name)}")

    def subgroups(self, index: int, name: str) -> None:
        if not self.program.subgroup:
            self.findings.add("V211", index, f"{name} is used, and the Program has no subgroups")

    def together(self, index: int, s: Subgroup) -> None:
        name, op = f"subgroup_{s.op.name}", s.op
        self.subgroups(index, name)
        if not self.arity(index, s, op.operands, name):
            return
        operands = tuple([a.type for a in s.args])
        type_ = op.result_type(operands, self.program.subgroup)
        if type_ is None:
            self.findings.add("V201", index, *refusals.refusal_together(op, operands))
        else:
            self.result(index, s, type_, name)

    def grid_scan(self, index: int, s: GridScan) -> None:
        if not self.arity(index, s, 1, s.spelling):
            return
        (type_,) = [a.type for a in s.args]
        row = GRID_FOLDS.get(s.fold)
        if row is None or not row.accepts((type_,)):
            self.findings.add("V201", index, *refusals.refusal_grid(s.fold, type_))
        else:
            self.result(index, s, type_, s.spelling)

    def write(self, index: int, s: Var | Set) -> None:
        name = variable_text(self.program, s.variable)
        if self.arity(index, s, 1, name):
            self.stored(index, s.args[0], s.variable.type, name)

    def get(self, index: int, s: Get) -> None:
        name = variable_text(self.program, s.variable)
        if self.arity(index, s, 0, name):
            self.result(index, s, s.variable.type, name)

    def branch(self, index: int, s: If) -> None:
        if self.arity(index, s, 1, "an if"):
            self.condition(index, s.args[0])

    def condition(self, index: int, atom: Atom) -> None:
        if atom.type is not bool_:
            help = None
            if atom.type.kind is Kind.BOOL:
                help = "one bool decides: " + ("reduce_or(c, axis) along each axis, and then its item" if atom.type.is_tile else "all(c) or any(c)")
            self.findings.add("V206", index, f"the condition {atom_text(self.program, atom)} is {atom.type}", help)

    def count(self, index: int, s: For) -> None:
        if not self.arity(index, s, 3, "a for"):
            return
        start, stop, step = s.args
        if start.type not in _COUNTER_TYPES or not start.type is stop.type is step.type:
            self.findings.add("V207", index, f"start, stop and step are {start.type}, {stop.type} and {step.type}")
        elif isinstance(step, Const) and step.bits == 0:
            self.findings.add("V208", index, "the step is 0")
        if s.unroll > MAX_UNROLL:
            self.findings.add("V214", index, f"unroll({number(s.unroll)}) asks for more than {MAX_UNROLL} turns")
        if s.pipeline > MAX_PIPELINE:
            self.findings.add("V216", index, f"pipeline({number(s.pipeline)}) asks for room for more than {MAX_PIPELINE} turns")
        self.result(index, s, start.type, "the start")

    def report(self, index: int, s: Assert | Print) -> None:
        if isinstance(s, Assert):
            if not s.args:
                self.findings.add("V202", index, "an assert takes a condition, got no operand")
                return
            self.condition(index, s.condition)
        specs = formats(s.message)
        if specs is None:
            self.findings.add("V212", index, f"the message {quoted(s.message)} has a brace that stands alone")
        elif len(specs) != len(s.values):
            self.findings.add("V212", index, f"the message {quoted(s.message)} takes {len(specs)} value{'s' * (len(specs) != 1)}, got {len(s.values)}")
        else:
            for spec, value in zip(specs, s.values, strict=True):
                if fault := format_fault(spec, value.type):
                    self.findings.add("V215", index, f"{fault}: {atom_text(self.program, value)}")
        words = sum([words_of(value.type) for value in s.values])
        if words > REPORT_MAX_WORDS:
            self.findings.add("V510", index, f"the values take {words} words")

    def plain(self, index: int, s: Statement) -> None:
        self.arity(index, s, 0, f"a {type(s).__name__}")


def _how_to_store(given: Type, wanted: Type) -> str:
    """What helps where a value of one type stands for one of another."""
    if given.is_tile and not wanted.is_tile:
        return "say the extents of the tile where it is stored, y[i : 64]; or take its one element: item(x)"
    if wanted.is_tile and not given.is_tile:
        return f"fill a tile: fill(x, {', '.join(map(str, wanted.shape))})"
    if given.shape != wanted.shape:
        return "the shapes are to be the same; an extent of 1 goes with others only in ops"
    return f"convert it: cast(x, {wanted.scalar if wanted.is_tile else wanted})"


_RULES: Final[Handlers[Callable[[_Types, int, Any], None]]] = Handlers("the rules of types", {
    Let: _Types.let,
    Load: _Types.load,
    UniformLoad: _Types.load,
    Store: _Types.store,
    CopyAsync: _Types.store,
    CopyWait: _Types.wait,
    **dict.fromkeys(ATOMIC_KINDS, _Types.atomic),
    Var: _Types.write,
    Set: _Types.write,
    Get: _Types.get,
    If: _Types.branch,
    For: _Types.count,
    Subgroup: _Types.together,
    Tile: _Types.tile,
    TileLoad: _Types.tile_load,
    TileStore: _Types.tile_write,
    TileAtomicAdd: _Types.tile_write,
    GridScan: _Types.grid_scan,
    **dict.fromkeys(REPORTING_KINDS, _Types.report),
    **dict.fromkeys((Else, End, Loop, Region, Break, Continue, Return, Barrier, GridBarrier, CopyCommit, *FENCES.values()), _Types.plain),
})  # fmt: skip


def check_types(program: Program, findings: Findings) -> None:
    """Reports what does not fit together."""
    types = _Types(program, findings)
    for memory in program.memories:
        for axis in memory.shape:
            types.size(memory.name, axis)
    for extent in program.grid.extents:
        types.size(HEAD, extent)
    for index, statement in enumerate(program.body):
        _RULES[type(statement)](types, index, statement)
        limit = WORD_LIMIT if whole_size(statement) is None else SIZE_LIMIT
        for atom in statement.args:
            if isinstance(atom, (DimConst, DimOp)):
                types.size(index, atom, limit)
