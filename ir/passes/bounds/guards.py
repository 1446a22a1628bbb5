"""Predicate hoisting: a store that needs a bounds check, and the statements that only it needs, move into one `if`.

    let v = a * x[i] + y[i]          if i < n {
    y[i] = v                   ->        y[i] = a * x[i] + y[i]
                                     }

Every load in the `if` at the same index is then known to be inside, and invocations past the end skip all of it. The meaning stays,
because no statement in the `if` has an effect where the condition is false: each store in it would be dropped for the same axes, no
result is used outside, and no loop in it can run forever. No statement moves past a barrier, an atomic or a jump, nor past an access
that it conflicts with.

Each block is walked once, backward from its end. A store that needs a check starts a group. Statements above join the group as long
as they may. The group becomes an `if` at the place of its last store, if it covers more than that store.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import field
from functools import partial
from typing import Final, Literal

from vyre_py.ir.check.facts import uses
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import DimConst, DimExpr
from vyre_py.ir.language.effects import DROPPABLE, Effect, any_of, at_most
from vyre_py.ir.language.nodes import (
    Access,
    Atom,
    Const,
    Else,
    End,
    For,
    Let,
    Memory,
    MemoryStatement,
    Statement,
    Value,
    VariableStatement,
    const,
)  # fmt: skip
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import i32, i64, u32, u64
from vyre_py.ir.language.widths import WIDE_TYPES
from vyre_py.ir.passes.bounds.prove import bounds
from vyre_py.ir.passes.rewriter import Rewriter

__all__ = ["guarded", "guards"]

Pair = tuple[Atom, DimExpr, bool]  # an index, the axis extent that it must lie below, and whether the extent may be 2^32 and more
Pairs = frozenset[Pair]

# Each guard lies in a block of its own, so a Program at most doubles its depth; one as deep as this stays as it is.
MAX_NESTING: Final = 120

# What may go under a condition: nothing of it is seen but by later statements of its own invocation, and stores, which the condition decides.
_MOVABLE: Final = at_most(DROPPABLE | Effect.WRITES)
_LEAVES: Final = any_of(Effect.LEAVES)
_READS, _WRITES = any_of(Effect.READS), any_of(Effect.WRITES)
_GETS, _SETS, _DECLARES = any_of(Effect.GETS), any_of(Effect.SETS), any_of(Effect.DECLARES)

# A block that touches more memories or variables than this stays where it is, so that summaries stay small.
MAX_TOUCHED: Final = 16


@dataclass(slots=True)
class _Item:
    """A statement of a block, with all that it nests: statements `start` to `end`, and what they do together.

    `movable` is false where moving it, or leaving it out, could be seen; `escapes` says that a break or continue leaves it;
    `accesses` counts those that need a check; `common` holds the pairs that every store in it depends on, None when it stores
    nothing; `gets` counts gets by variable.
    """

    start: int
    end: int
    movable: bool = True
    escapes: bool = False
    common: Pairs | None = None
    accesses: int = 0
    reads: set[Memory] = field(default_factory=set)
    writes: set[Memory] = field(default_factory=set)
    gets: Counter[int] = field(default_factory=Counter)
    sets: set[int] = field(default_factory=set)
    declares: set[int] = field(default_factory=set)

    def absorb(self, other: _Item) -> None:
        """Takes in what a nested item does."""
        self.movable = self.movable and other.movable
        self.escapes = self.escapes or other.escapes
        if other.common is not None:
            self.common = other.common if self.common is None else self.common & other.common
        self.accesses += other.accesses
        if not self.movable:
            return
        self.reads |= other.reads
        self.writes |= other.writes
        self.gets.update(other.gets)
        self.sets |= other.sets
        self.declares |= other.declares
        self.movable = max(map(len, (self.reads, self.writes, self.gets, self.sets, self.declares))) <= MAX_TOUCHED


# What statements that touch nothing share; items that take others in have their own.
_NO_MEMORY: Final[set[Memory]] = set()
_NO_VARIABLE: Final[set[int]] = set()
_NO_COUNTS: Final[Counter[int]] = Counter()


@dataclass(slots=True)
class _GuardBlock:
    """A block: the start of the item that it belongs to, the number of the block around it (-1 and -1 for the body), its items
    in order, and the pairs that groups around it have tested."""

    item: int
    parent: int
    items: list[_Item] = field(default_factory=list)
    assumed: Pairs = frozenset()


@dataclass(slots=True)
class _Group:
    """The items of one `if`, last first, and what the statements that stay outside between them read, write and set."""

    pairs: Pairs
    items: list[_Item] = field(default_factory=list)
    accesses: int = 0
    uses: Counter[int] = field(default_factory=Counter)  # by value id
    gets: Counter[int] = field(default_factory=Counter)  # by variable id
    sets: Counter[int] = field(default_factory=Counter)
    passed_reads: set[Memory] = field(default_factory=set)
    passed_writes: set[Memory] = field(default_factory=set)
    passed_variables: set[int] = field(default_factory=set)


class _Planner:
    """Finds the groups."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.proven = bounds(program)
        self.made_at = [-1] * program.value_count
        self.uses = uses(program)
        self.get_at: list[list[int]] = [[] for _ in range(program.variable_count)]
        self.set_count = [0] * program.variable_count
        self.declared_in = [-1] * program.variable_count  # block number
        self.blocks = [_GuardBlock(-1, -1)]
        self.block_of: dict[int, int] = {}  # If, Else or loop -> block number
        self.rank: dict[Pair, int] = {}  # in order of first sight
        self.group_of: dict[int, _Group] = {}  # item start -> group
        self._survey()

    def _survey(self) -> None:
        self.nesting = 0
        open_blocks = [0]
        open_items: list[_Item] = []
        for index, statement in enumerate(self.program.body):
            self._count(index, statement, open_blocks[-1])
            if isinstance(statement, (Else, End)):
                open_blocks.pop()
            if isinstance(statement, End):
                item = open_items.pop()
                item.end = index
                # A jump out of its block, and what it declares, end with a loop.
                item.escapes = item.escapes and not isinstance(self.program.body[item.start], For)
                item.sets -= item.declares
                for variable in item.declares:
                    item.gets.pop(variable, None)
                item.declares = set()
                if open_items:
                    open_items[-1].absorb(item)
            elif not isinstance(statement, Else):
                item = self._item(index, statement)
                self.blocks[open_blocks[-1]].items.append(item)
                if statement.opens:
                    open_items.append(item)
                elif open_items:
                    open_items[-1].absorb(item)
            if statement.opens or isinstance(statement, Else):
                self.block_of[index] = len(self.blocks)
                self.blocks.append(_GuardBlock(open_items[-1].start, open_blocks[-1]))
                open_blocks.append(len(self.blocks) - 1)
                self.nesting = max(self.nesting, len(open_blocks))

    def _count(self, index: int, statement: Statement, block: int) -> None:
        if statement.result is not None:
            self.made_at[statement.result.id] = index
        if isinstance(statement, VariableStatement):
            variable, kind = statement.variable.id, type(statement)
            if _GETS[kind]:
                self.get_at[variable].append(index)
            self.set_count[variable] += _SETS[kind]
            if _DECLARES[kind]:
                self.declared_in[variable] = block

    def _item(self, index: int, statement: Statement) -> _Item:
        kind = type(statement)
        if kind is Let:  # touches nothing, as most statements
            return _Item(index, index, _MOVABLE[Let], _LEAVES[Let], None, 0, _NO_MEMORY, _NO_MEMORY, _NO_COUNTS, _NO_VARIABLE, _NO_VARIABLE)
        if isinstance(statement, MemoryStatement):
            memory, pairs, writes = statement.memory, self._pairs(index, statement), _WRITES[kind]
            reads = _READS[kind] and memory.access is not Access.READ
            touched = ({memory} if reads else _NO_MEMORY, {memory} if writes else _NO_MEMORY, _NO_COUNTS, _NO_VARIABLE, _NO_VARIABLE)
            return _Item(index, index, _MOVABLE[kind], _LEAVES[kind], frozenset(pairs) if writes else None, int(bool(pairs)), *touched)
        item = _Item(index, index, _MOVABLE[kind], _LEAVES[kind])
        if isinstance(statement, VariableStatement):
            variable = statement.variable.id
            if _GETS[kind]:
                item.gets[variable] += 1
            if _SETS[kind]:
                item.sets.add(variable)
            if _DECLARES[kind]:
                item.declares.add(variable)
        return item

    def _pairs(self, index: int, statement: MemoryStatement) -> list[Pair]:
        """The axes that need a check here."""
        axes = enumerate(zip(statement.indices, statement.memory.shape, strict=True))
        exceeds = partial(self.program.widths.may_exceed, statement.memory)
        pairs = [(at, extent, exceeds(extent)) for axis, (at, extent) in axes if not self.proven[index] >> axis & 1]
        for pair in pairs:
            self.rank.setdefault(pair, len(self.rank))
        return pairs

    # ---- groups

    def plan(self) -> None:
        """Fills in every block's groups, outer blocks first."""
        for number, block in enumerate(self.blocks):
            if block.parent >= 0:
                around = self.group_of.get(block.item)
                block.assumed = self.blocks[block.parent].assumed | (frozenset() if around is None else around.pairs)
            group: _Group | None = None
            for item in reversed(block.items):
                group = self._offer(block, number, group, item)
            self._finish(group)

    def _offer(self, block: _GuardBlock, number: int, group: _Group | None, item: _Item) -> _Group | None:
        """Adds an item to the group, leaves it outside, or closes the group; returns the group that is open then."""
        if not item.movable or item.escapes:
            self._finish(group)
            return None
        pairs = self._tested(block, item)
        if pairs and (group is None or group.pairs != pairs or not self._joins(group, number, item)):
            self._finish(group)
            group = _Group(pairs)
        if group is not None and (pairs or not item.common) and self._joins(group, number, item):
            self._join(group, item)
        elif group is not None:
            group.passed_reads |= item.reads
            group.passed_writes |= item.writes
            group.passed_variables |= item.sets | item.gets.keys()
        return group

    def _tested(self, block: _GuardBlock, item: _Item) -> Pairs:
        """The pairs that an item's stores share, that are known before it, and that no guard around it has tested; empty when it
        stores nothing, or something that no such pair decides."""
        left = (item.common or frozenset()) - block.assumed
        return frozenset([p for p in left if not isinstance(p[0], Const) and self._made(p[0]) < item.start])

    def _made(self, atom: Atom) -> int:
        return self.made_at[atom.id] if isinstance(atom, Value) else -1

    def _joins(self, group: _Group, number: int, item: _Item) -> bool:
        if item.common is not None and not group.pairs <= item.common:
            return False
        if item.writes & (group.passed_reads | group.passed_writes) or item.reads & group.passed_writes:
            return False
        if (item.sets | item.gets.keys() | item.declares) & group.passed_variables:
            return False
        statement = self.program.body[item.start]
        if item.start == item.end and statement.result is not None:
            wanted = statement.result.id
            if self.uses[wanted] != group.uses[wanted] or any(isinstance(a, Value) and a.id == wanted for a, *_ in group.pairs):
                return False
        if any(len(self.get_at[v]) != group.gets[v] or self.set_count[v] != group.sets[v] for v in item.declares):
            return False
        return all(self._set_unseen(group, number, item, v) for v in item.sets)

    def _set_unseen(self, group: _Group, number: int, item: _Item, variable: int) -> bool:
        """Whether every get that a set in the item can reach lies in the group too."""
        later = len(self.get_at[variable]) - bisect_left(self.get_at[variable], item.start)
        return self.declared_in[variable] == number and later == group.gets[variable] + item.gets[variable]

    def _join(self, group: _Group, item: _Item) -> None:
        group.items.append(item)
        group.accesses += item.accesses
        for statement in self.program.body[item.start : item.end + 1]:
            for atom in statement.args:
                if isinstance(atom, Value):
                    group.uses[atom.id] += 1
            if isinstance(statement, VariableStatement):
                group.gets[statement.variable.id] += _GETS[type(statement)]
                group.sets[statement.variable.id] += _SETS[type(statement)]

    def _finish(self, group: _Group | None) -> None:
        if group is None or group.accesses < 2:
            return
        for item in group.items:
            self.group_of[item.start] = group


class _Guarder(Rewriter):
    """Writes the Program with the groups in place."""

    def __init__(self, program: Program, planner: _Planner) -> None:
        super().__init__(program)
        self.planner = planner

    def write(self) -> None:
        """Copies everything, nested blocks by an explicit stack."""
        work: list[Iterator[_Entry]] = [iter(self._sequence(self.planner.blocks[0]))]
        while work:
            entry = next(work[-1], None)
            if entry is None:
                work.pop()
            elif isinstance(entry, int):
                self.copy(entry)
            elif isinstance(entry, _Item):
                work.append(iter(self._nested(entry)))
            elif isinstance(entry, _GuardBlock):
                work.append(iter(self._sequence(entry)))
            elif isinstance(entry, _Group):
                self._open(entry)
                work.append(iter((*reversed(entry.items), "close")))
            else:
                self.end()

    def _sequence(self, block: _GuardBlock) -> list[_Entry]:
        """A block's items, each group in the place of its last one."""
        entries: list[_Entry] = []
        for item in block.items:
            group = self.planner.group_of.get(item.start)
            if group is None:
                entries.append(item)
            elif group.items[0] is item:
                entries.append(group)
        return entries

    def _nested(self, item: _Item) -> list[_Entry]:
        if item.start == item.end:
            return [item.start]
        blocks = self.planner.block_of
        entries: list[_Entry] = [item.start, self.planner.blocks[blocks[item.start]]]
        middle = self.program.match[item.start]
        if middle != item.end:
            entries += [middle, self.planner.blocks[blocks[middle]]]
        return [*entries, item.end]

    def _open(self, group: _Group) -> None:
        self.place = self.program.place(group.items[0].end)
        condition: Atom | None = None
        for index, extent, exceeds in sorted(group.pairs, key=self.planner.rank.__getitem__):
            for test in self._inside(self.atom(index), extent, exceeds):
                condition = test if condition is None else self.let(OPS["logical_and"], (condition, test))
        assert condition is not None, "a group has a pair"
        self.if_(condition)

    def _inside(self, index: Atom, extent: DimExpr, exceeds: bool) -> Iterator[Atom]:
        """What holds exactly when an index lies inside, by mathematical value."""
        known = extent.value if isinstance(extent, DimConst) else u32.maximum
        if index.type.is_signed:
            yield self.let(OPS["ge"], (index, const(index.type, 0)))
        if index.type is i32 and not exceeds:
            if known <= i32.maximum:
                yield self.let(OPS["lt"], (index, const(i32, known)))
                return
            index = self.let(OPS["cast"], (index,), u32)
        bound: Atom = extent
        if exceeds or index.type in WIDE_TYPES:
            if index.type not in WIDE_TYPES:
                index = self.let(OPS["cast"], (index,), i64 if index.type.is_signed else u64)
            bound = const(index.type, known) if isinstance(extent, DimConst) else self.let(OPS["cast"], (extent,), index.type)
        elif isinstance(extent, DimConst):
            bound = const(u32, known)
        yield self.let(OPS["lt"], (index, bound))


_Entry = int | _Item | _GuardBlock | _Group | Literal["close"]  # the end of a group


def guards(program: Program) -> Program:
    """Gathers stores that need a check, and what only they need, under conditions; see the module."""
    return guarded(program)[0]


def guarded(program: Program) -> tuple[Program, tuple[int, ...] | None]:
    """The same, with what `bounds` gives for the result, where that is known: if it is the Program itself."""
    planner = _Planner(program)
    if planner.nesting > MAX_NESTING:
        return program, planner.proven
    planner.plan()
    if not planner.group_of:
        return program, planner.proven
    guarder = _Guarder(program, planner)
    guarder.write()
    return guarder.finish(), None
