"""Coarsening: a kernel whose invocations each do the work of several neighbours along x, for memory that is aligned.

    let i = global_id.x              let w = workgroup_id.x, l = local_id.x, full = n / 1024
    if i < n {                       if w < full {
        y[i] = x[i] + 1.0     ->         let i = (w * 256 + l) * 4           four loads side by side, then four sums, then four stores:
    }                                    y[i] = x[i] + 1.0                   ... of i, i + 1, i + 2, i + 3
                                     } else {
                                         let i = full * 1024 + (w - full) * 256 + l
                                         if i < n { y[i] = x[i] + 1.0 }
                                     }

The accesses of neighbours are adjacent, so that a target merges them into one of 16 bytes: `Coarsened.adjacent` lists them. A Program is coarsened where
it writes only under a check of `global_id.x` against the grid's extent along x, without loops, jumps, barriers and atomics. Then invocations past the end
do nothing, and the others have no order. The result is a Program like any other, over fewer workgroups: full ones first, then one element for each
remaining invocation. A Program in which only components of vectors are adjacent is not changed (`aligned`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import gcd, prod
from typing import Final

from vyre_py.ir.check.uniformity import analyse
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import DimConst, DimExpr, Grid, dim_op
from vyre_py.ir.language.nodes import (
    Atom,
    Const,
    Else,
    End,
    Get,
    If,
    Let,
    Load,
    MemoryStatement,
    Region,
    Set,
    Space,
    Statement,
    Store,
    Value,
    Var,
    const,
)
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import bool_, u32
from vyre_py.ir.passes import Optimised
from vyre_py.ir.passes.rewriter import Rewriter
from vyre_py.ir.passes.simplify import same
from vyre_py.lowering.artifact.parts import Aligned, Divisible, Need
from vyre_py.lowering.rows import WIDEST_BYTES, AdjacentAccess, Row, element_rows, needs_of

__all__ = ["Coarsened", "aligned", "coarsen"]

# What a body grows to at most: past it compilation costs more than memory accesses of a body that computes so much.
_MOST_STATEMENTS: Final = 1024
_QUERIES: Final = frozenset({"global_id.x", "global_id.y", "global_id.z"})
# By kind rather than by effect: a statement is written once for several elements where its operands agree.
_PLAIN: Final = (Let, Load, Store, Var, Get, Set, If, Else, End, Region)
_SPACES: Final = frozenset({Space.BUFFER, Space.TABLE})
_TRUE: Final = const(bool_, True)


@dataclass(frozen=True, slots=True)
class Coarsened:
    """The Program whose invocations do `elements` each, what must hold of its arguments, and the accesses that lie side by side, by statement."""

    optimised: Optimised
    elements: int
    needs: tuple[Need, ...]
    adjacent: Mapping[int, AdjacentAccess]

    def rows(self) -> dict[int, Row]:
        """The accesses that one access of a vector does, by their first statement: of components, and of neighbours that follow one another and the first
        of which is aligned to all of them."""
        found: dict[int, int] = {}
        for index, access in self.adjacent.items():
            last = access.leader + found.get(access.leader, 0)
            if index == last and access.elements == index - access.leader:
                found[access.leader] = 1 + found.get(access.leader, 0)
        body, known = self.optimised.program.body, self.adjacent
        neighbours = {
            first: Row(tuple(range(count)), count) for first, count in found.items()
            if count == self.elements > 1 and isinstance(s := body[first], MemoryStatement) and known[first].align_bytes >= count * s.memory.type.size_bytes
        }  # fmt: skip
        return {**element_rows(self.optimised), **neighbours}


@dataclass(frozen=True, slots=True)
class _Stream:
    """An access at the invocation's own place: one index is `global_id.x`, on `axis`; neighbours lie `stride` elements apart, each begins `first` elements
    into its place, None where that is not known. It is `within` where the axis is as long as the grid, so that only what is past the end is outside."""

    memory_name: str
    axis: int
    stride: int
    first: int | None
    element_bytes: int
    within: bool

    @property
    def place_bytes(self) -> int:
        return self.stride * self.element_bytes


def _own_place(program: Program) -> Value | None:
    """The value of `global_id.x`, where one statement asks for it."""
    found = [s.bound for s in program.body if isinstance(s, Let) and s.op.name == "global_id.x"]
    return found[0] if len(found) == 1 else None


def _is_plain(program: Program) -> bool:
    """Whether the body is of a kind whose invocations are independent of each other and of how many there are."""
    if not program.grid.over or program.widths.names or any(memory.space not in _SPACES for memory in program.memories):
        return False
    for statement in program.body:
        if not isinstance(statement, _PLAIN):
            return False
        if isinstance(statement, Let) and statement.op.is_query and statement.op.name not in _QUERIES:
            return False
    return True


def _stream(program: Program, statement: MemoryStatement, own: Value) -> _Stream | None:
    """The relation of an access to the invocation's place; None where it has none."""
    memory, indices = statement.memory, statement.indices
    at = [axis for axis, index in enumerate(indices) if index is own]
    behind = memory.shape[at[0] + 1 :] if at else ()
    sizes = [extent.value for extent in behind if isinstance(extent, DimConst)]
    if len(at) != 1 or memory.space is not Space.BUFFER or len(sizes) != len(behind):
        return None
    within = memory.shape[at[0]] == program.grid.extents[0]
    if at[0] and not within:
        return None
    first: int | None = 0
    for index, size in zip(indices[at[0] + 1 :], sizes, strict=True):
        first = first * size + index.bits if first is not None and isinstance(index, Const) and index.type is u32 else None
    return _Stream(memory.name, at[0], prod(sizes), first, memory.type.size_bytes, within)


def _factor(streams: Sequence[_Stream], wanted: int, statements: int) -> int:
    """How many elements make the widest stream a multiple of 16 bytes, or are wanted; 0 where nothing is won."""
    widest = max(stream.place_bytes for stream in streams)
    elements = wanted or WIDEST_BYTES // gcd(WIDEST_BYTES, widest)
    merges = elements > 1 or any(stream.stride > 1 for stream in streams)
    return elements if merges and elements * statements <= _MOST_STATEMENTS else 0


class _Coarsener(Rewriter):
    """The new Program in the making. `maps` has, for each element, the atom that stands for each old value."""

    def __init__(self, optimised: Optimised, own: Value, elements: int, streams: Mapping[int, _Stream]) -> None:
        super().__init__(optimised.program)
        self._old, self._own, self._extent = optimised, own, self.program.grid.extents[0]
        self._elements, self._streams = elements, streams
        self._within = {index: 1 << stream.axis for index, stream in streams.items() if stream.within}
        self._width = self.program.workgroup[0]
        self.grid = _grid(self.program, self._width * elements)
        self._maps: list[list[Atom | None]] = [list(self.map) for _ in range(elements)]
        self._variable_maps = [list(self.variable_map) for _ in range(elements)]
        self._rows = {index: row for index, row in element_rows(optimised).items() if index not in streams}
        self.proven: list[int] = []
        self.adjacent: dict[int, AdjacentAccess] = {}
        self._bits = 0

    def emit(self, statement: Statement) -> None:
        super().emit(statement)
        self.proven.append(self._bits)

    def write(self) -> None:
        """Writes the whole body."""
        count, width = self._elements, const(u32, self._width)
        own = next(self.program.place(index) for index, statement in enumerate(self.program.body) if statement.result is self._own)
        self.place = own
        group, lane = self.let(OPS["workgroup_id.x"], ()), self.let(OPS["local_id.x"], ())
        full = self.let(OPS["div"], (self._extent, const(u32, self._width * count)))
        self.if_(self.let(OPS["lt"], (group, full)))
        first = self.let(OPS["mul"], (self.let(OPS["add"], (self.let(OPS["mul"], (group, width)), lane)), const(u32, count)))
        for number in range(count):
            self._maps[number][self._own.id] = first if not number else self.let(OPS["add"], (first, const(u32, number)))
        self._elements_of(tuple(range(count)))
        self.place = own
        self.else_()
        before = self.let(OPS["mul"], (full, const(u32, self._width * (count - 1))))  # what the full workgroups do more than one each
        self.map[self._own.id] = self.let(OPS["add"], (self.let(OPS["add"], (before, self.let(OPS["mul"], (group, width)))), lane))
        for index, statement in enumerate(self.program.body):
            if statement.result is not self._own:
                self._bits = self._old.proven[index]
                self.copy(index)
                self._bits = 0
        self.end()

    # ---- the elements of one invocation

    def _elements_of(self, everyone: tuple[int, ...]) -> None:
        """Writes the body for some elements: each statement for all of them before the next, but for what stands under a condition that differs."""
        todo: list[tuple[int, int, tuple[int, ...]]] = [(0, len(self.program.body), everyone)]
        while todo:
            index, stop, who = todo.pop()
            while index < stop:
                statement = self.program.body[index]
                following = self._block(index, statement, who, stop, todo)
                if following is None:
                    break
                index = following

    def _block(self, index: int, statement: Statement, who: tuple[int, ...], stop: int, todo: list[tuple[int, int, tuple[int, ...]]]) -> int | None:
        """Writes one statement; gives the next one's index, None where other ranges are to be written first."""
        if not isinstance(statement, If):
            # The accesses of a row stay together: the whole row of one element, and then that of the next.
            count = len(self._rows[index].lanes) if index in self._rows else 1
            apart = count > 1 and self._differ(statement, who)
            for some in [(number,) for number in who] if apart else [who]:
                for place in range(index, index + count):
                    self._each(place, self.program.body[place], some)
            return index + count
        conditions = [self._atom(number, statement.args[0]) for number in who]
        middle = self.program.match[index]
        end = self.program.match[middle] if isinstance(self.program.body[middle], Else) else middle
        if all(condition == _TRUE for condition in conditions):
            todo += [(end + 1, stop, who), (index + 1, middle, who)]
            return None
        if len(who) == 1 or all(condition is conditions[0] for condition in conditions):
            self._each(index, statement, who[:1])
            return index + 1
        todo.append((end + 1, stop, who))
        todo += [(index, end + 1, (number,)) for number in reversed(who)]
        return None

    def _each(self, index: int, statement: Statement, who: tuple[int, ...]) -> None:
        """Writes a statement for these elements, once where it is the same for them."""
        if statement.result is self._own:
            return
        self.place, self._bits = self.program.place(index), self._old.proven[index] | self._within.get(index, 0)
        if isinstance(statement, (Var, Get, Set)):
            for number in who:
                self._variable(number, statement)
        elif isinstance(statement, (Else, End, Region)):
            self.emit(statement.rebuilt(None, ()))
        elif isinstance(statement, Let) and (folded := self._folded(statement, who)) is not None:
            for number, atom in zip(who, folded, strict=True):
                self._maps[number][statement.bound.id] = atom
        else:
            self._copies(index, statement, who if self._differ(statement, who) else who[:1], who)
        self._bits = 0

    def _differ(self, statement: Statement, who: tuple[int, ...]) -> bool:
        """Whether the operands of a statement are not the same for all of these elements."""
        first, *others = ([self._atom(number, a) for a in statement.args] for number in who)
        return any(other != first for other in others)

    def _copies(self, index: int, statement: Statement, writing: tuple[int, ...], who: tuple[int, ...]) -> None:
        """Writes a statement for some elements; where it is one for all, its result stands for all."""
        stream, leader = self._streams.get(index), len(self.body)
        beside = self._others(stream, statement, writing[0])
        for number in writing:
            result = None
            if statement.result is not None:
                result = self.value(statement.result.type, self.program.value_names.get(statement.result.id))
                self._maps[number][statement.result.id] = result
            if stream is not None:
                along = self._others(stream, statement, number) == beside  # else it is an access of its own, such as one of another row
                here = len(self.body)
                self.adjacent[here] = self._adjacent(stream, leader, number - writing[0], number) if along else self._adjacent(stream, here, 0, number)
            self.emit(statement.rebuilt(result, tuple([self._atom(number, a) for a in statement.args])))
        if statement.result is not None and len(writing) < len(who):
            for number in who:
                self._maps[number][statement.result.id] = self._maps[writing[0]][statement.result.id]

    def _others(self, stream: _Stream | None, statement: Statement, number: int) -> list[Atom]:
        """The indices of an access but for that of its place."""
        if stream is None or not isinstance(statement, MemoryStatement):
            return []
        return [self._atom(number, atom) for axis, atom in enumerate(statement.indices) if axis != stream.axis]

    def _adjacent(self, stream: _Stream, leader: int, past: int, number: int) -> AdjacentAccess:
        size = stream.element_bytes
        known = size if stream.first is None else (number * stream.stride + stream.first) * size
        return AdjacentAccess(leader, past * stream.stride, gcd(_alignment(stream, self._elements), known))

    def _variable(self, number: int, statement: Var | Get | Set) -> None:
        variables, name = self._variable_maps[number], self.program.variable_names.get(statement.variable.id)
        if isinstance(statement, Var):
            variables[statement.variable.id] = self.var(statement.variable.type, self._atom(number, statement.args[0]), name)
            return
        variable = variables[statement.variable.id]
        assert variable is not None  # declared before it is used
        if isinstance(statement, Get):
            self._maps[number][statement.bound.id] = self.get(variable)
        else:
            self.set(variable, self._atom(number, statement.args[0]))

    def _folded(self, statement: Let, who: tuple[int, ...]) -> list[Atom] | None:
        """The check against the end, and conjunctions with it, folded: the check is true here."""
        if statement.op.name == "lt" and _checks(statement, self._own, self._extent, set()):
            return [_TRUE] * len(who)
        if statement.op.name == "logical_and":
            pairs = [(self._atom(number, statement.args[0]), self._atom(number, statement.args[1])) for number in who]
            if all(_TRUE in pair for pair in pairs):
                return [b if a == _TRUE else a for a, b in pairs]
        return None

    def _atom(self, number: int, atom: Atom) -> Atom:
        if not isinstance(atom, Value):
            return atom
        mapped = self._maps[number][atom.id]
        assert mapped is not None  # a value is written before it is used
        return mapped


def _grid(program: Program, full: int) -> Grid:
    """The workgroups that there are: as many as do `full` elements along x, and enough for the rest at one element an invocation."""
    (x, y, z), (width, height, depth) = program.grid.extents, map(DimConst, program.workgroup)
    short = DimConst(full - 1)
    whole = dim_op("ceil_div", dim_op("sub", dim_op("max", x, short), short), DimConst(full))
    rest = dim_op("ceil_div", dim_op("sub", x, dim_op("mul", whole, DimConst(full))), width)
    return Grid(False, (dim_op("add", whole, rest), dim_op("ceil_div", y, height), dim_op("ceil_div", z, depth)))


def _alignment(stream: _Stream, elements: int) -> int:
    """The alignment that the memory of a stream must have."""
    return gcd(WIDEST_BYTES, elements * stream.place_bytes)


def _guarded(program: Program, own: Value, streams: Mapping[int, _Stream]) -> bool:
    """Whether every store is under a check of the invocation's place against the end, by itself or joined to others, or is dropped past it."""
    checks: set[int] = set()
    for statement in program.body:
        if isinstance(statement, Let) and _checks(statement, own, program.grid.extents[0], checks):
            checks.add(statement.bound.id)
    under = 0  # open blocks that begin with a check
    stack: list[bool] = []
    for index, statement in enumerate(program.body):
        if statement.opens:
            condition = statement.args[0] if isinstance(statement, If) else None
            stack.append(isinstance(condition, Value) and condition.id in checks)
            under += stack[-1]
        elif isinstance(statement, Else):
            under -= stack[-1]
            stack[-1] = False
        elif isinstance(statement, End):
            under -= stack.pop()
        elif isinstance(statement, Store) and not under and not (index in streams and streams[index].within):
            return False
    return True


def _checks(statement: Let, own: Value, extent: DimExpr, known: set[int]) -> bool:
    if statement.op.name == "lt":
        return statement.args[0] is own and same(statement.args[1], const(u32, extent.value) if isinstance(extent, DimConst) else extent)
    return statement.op.name == "logical_and" and any(isinstance(a, Value) and a.id in known for a in statement.args)


def _needs(streams: Sequence[_Stream], extent: DimExpr, elements: int) -> Iterator[Need]:
    most: dict[str, int] = {}
    for stream in streams:
        most[stream.memory_name] = max(most.get(stream.memory_name, 1), _alignment(stream, elements))
    yield from (Aligned(name, size) for name, size in most.items())
    if elements > 1 and any(stream.axis for stream in streams):
        yield Divisible(extent, elements)


def coarsen(optimised: Optimised, wanted: int = 0) -> Coarsened | None:
    """The Program with several elements an invocation, as many as `wanted` or as accesses of 16 bytes have; None where nothing is won. Linear."""
    program = optimised.program
    own = _own_place(program)
    if own is None or not _is_plain(program):
        return None
    streams = {
        index: stream
        for index, statement in enumerate(program.body)
        if isinstance(statement, MemoryStatement)
        and (stream := _stream(program, statement, own)) is not None
        and optimised.proven[index] | stream.within << stream.axis == (1 << statement.memory.rank) - 1  # what is checked is under a branch of its own
    }
    if not streams or not _guarded(program, own, streams) or not (elements := _factor([*streams.values()], wanted, len(program.body))):
        return None
    needs = tuple(_needs([*streams.values()], program.grid.extents[0], elements))
    coarsener = _Coarsener(optimised, own, elements, streams)
    coarsener.write()
    made = coarsener.finish()
    new = Optimised(made, analyse(made), tuple(coarsener.proven), optimised.report, functions=optimised.functions)
    return Coarsened(new, elements, needs_of(element_rows(new), made.body, needs), coarsener.adjacent)


def aligned(optimised: Optimised) -> Coarsened | None:
    """The unchanged Program, for memory where each vector is one access; None without vector accesses. Linear in the statements."""
    rows = element_rows(optimised)
    return Coarsened(optimised, 1, needs_of(rows, optimised.program.body), {}) if rows else None
