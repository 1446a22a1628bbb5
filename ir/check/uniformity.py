"""Uniformity: which values are equal, and which code is reached together, over the grid, a workgroup, or a subgroup. `convergence` checks what has to be,
`causes` says why something is not.

The analysis is a graph with one node per value, per variable and per control segment (a stretch of a block whose statements
are all reached by the same invocations), and one edge per dependence. Levels flow along the edges to the least fixed point:
a node rises at most three times, so the work is linear in the number of edges, which is linear in the number of operands.

A value's level is about the invocations that reach its statement together: they agree on it, in all turns that they take together. So
a value that is computed from uniform ones under a varying condition is uniform. A variable that is set there is not: invocations that
skip the block keep the old value. Control reconverges at the end of a block, without the invocations that left it:

* a break skips the rest of its loop, with later turns, and reconverges behind the loop;
* a continue skips the rest of the turn;
* a return skips all that follows, and the later turns of every loop around it.

A load from workgroup memory is as uniform as its indices, and the same for a workgroup at most, where nothing writes that array between the barriers around
it (`phases`); any other may see what others write meanwhile, and varies.

A Program of tiles has no invocations: what it computes is a workgroup's.

In a Program with subgroups of S lanes, what counts up lane by lane from a multiple of S in each subgroup (local_index does) is the same for a subgroup once
it is divided by S or a multiple of it, and where rows of a workgroup are whole subgroups, so are the places along y and z. And where all subgroups of a
workgroup hand in the same, lane by lane, the workgroup agrees on what a subgroup agrees on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any, Final

from vyre_py.ir.check.facts import declarations, definitions
from vyre_py.ir.check.phases import steady_loads
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.nodes import (
    FENCES,
    TARGET_KINDS,
    Atom,
    Atomic,
    AtomicStore,
    Barrier,
    Break,
    Const,
    Continue,
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
    OrderedAtomic,
    Region,
    Return,
    Set,
    Store,
    Subgroup,
    Tile,
    TileAtomicAdd,
    TileLoad,
    TileStore,
    UniformLoad,
    Value,
    Var,
)
from vyre_py.ir.language.op import Level, Op
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u32
from vyre_py.ir.language.walks import COPYING_KINDS, REPORTING_KINDS, Handlers

__all__ = ["Analysis", "Uniformity", "analyse"]

_LEVELS: Final = tuple(Level)
_VARYING: Final = int(Level.VARYING)  # plain numbers inside: an enum's comparisons cost ten times as much
_NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Uniformity:
    """The levels of `values` by value id, of `variables` by variable id, and of `control` by statement index.

    The control of an Else, and of a statement that opens a block, is that of the statements around the block; the control of an
    End is that of what follows.
    """

    values: tuple[Level, ...]
    variables: tuple[Level, ...]
    control: tuple[Level, ...]

    def atom(self, atom: Atom) -> Level:
        """The level of an operand: constants, params and dims are the same for the whole grid."""
        return self.values[atom.id] if isinstance(atom, Value) else Level.GRID


class _BlockSegments:
    """An open block: the segments around and at its start, and the nodes of what left it early."""

    __slots__ = ("before", "continues", "first", "loop", "returns")

    def __init__(self, before: int, first: int, loop: bool) -> None:
        self.before, self.first, self.loop = before, first, loop
        self.returns = self.continues = _NONE


class Analysis:
    """The graph, built in one walk and solved. `visits` counts the edges looked at.

    Nodes are numbered: values, then variables, then control segments. `cause[node]` is the node that last raised this one, and
    `about[node]` the statement that it stands for: what binds or declares it, opens the segment, or leaves a block early.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.variables = program.value_count  # the first variable's node
        self.segments = program.value_count + program.variable_count  # the first segment's node
        self.level = [0] * self.segments
        self.cause = [_NONE] * self.segments
        self.about = [*definitions(program), *declarations(program)]
        self.dependents: list[list[int]] = [[] for _ in range(self.segments)]
        self.raised: list[int] = []
        self.visits = 0
        self.current = self.segment(_NONE)
        self.subgroup = program.subgroup
        # What a subgroup agrees on is agreed on by the workgroup that it is.
        self.within = int(Level.WORKGROUP if self.subgroup == prod(program.workgroup) else Level.SUBGROUP)
        self.varying = int(Level.WORKGROUP) if program.of_tiles else self.within if self.subgroup == 1 else _VARYING  # a lane agrees with itself
        self.steady = steady_loads(program)
        self.repeating: set[int] = set()  # values that all subgroups of a workgroup have alike, lane by lane
        self.counting: set[int] = set()  # values that count up by 1 from lane to lane, from a multiple of S on
        self.blocks: list[_BlockSegments] = []
        self.loops: list[_BlockSegments] = []
        self.control: list[int] = []  # by statement: its segment
        _RULES.require(program)
        for index, statement in enumerate(program.body):
            self.control.append(self.current)
            rule = _RULES.get(type(statement))
            if rule is not None:
                rule(self, index, statement)
        self.solve()

    # ---- the graph

    def segment(self, about: int, *sources: int) -> int:
        """A new control segment, at least as varying as `sources`."""
        node = len(self.level)
        self.level.append(0)
        self.cause.append(_NONE)
        self.about.append(about)
        self.dependents.append([])
        for source in sources:
            self.edge(source, node)
        return node

    def edge(self, source: int, target: int) -> None:
        """From now on `target` is at least as varying as `source`."""
        self.visits += 1
        level = self.level[source]
        if level > self.level[target]:
            self.level[target] = level
            self.cause[target] = source
            self.raised.append(target)
        if level < _VARYING:
            self.dependents[source].append(target)

    def solve(self) -> None:
        """Lets levels flow until they rest. A node whose level rises is visited again, at most three times."""
        level, cause, dependents, raised = self.level, self.cause, self.dependents, self.raised
        while raised:
            source = raised.pop()
            height = level[source]
            self.visits += len(dependents[source])
            for target in dependents[source]:
                if height > level[target]:
                    level[target] = height
                    cause[target] = source
                    raised.append(target)

    def join(self, left: int, right: int) -> int:
        """A node as varying as both; either may be none."""
        if right in (left, _NONE):
            return left
        return right if left == _NONE else self.segment(_NONE, left, right)

    def _feed(self, atoms: Iterable[Atom], target: int) -> None:
        # Other atoms are the same for the whole grid.
        for atom in atoms:
            if isinstance(atom, Value):
                self.edge(atom.id, target)

    # ---- values and variables

    def _let(self, index: int, s: Let) -> None:
        result = s.bound.id
        if self.subgroup and (s.op.name == "subgroup_lane" or (self._repeats(s.args) if s.op.level is None else s.op.level <= Level.WORKGROUP)):
            self.repeating.add(result)
        if s.op.level is not None:
            self.level[result] = self._place(s.op, result) if self.subgroup else int(s.op.level)
        elif self.counting and self._parts_subgroups(s):
            self.level[result] = self.within
        else:
            self._feed(s.args, result)

    def _repeats(self, args: Iterable[Atom]) -> bool:
        """Whether all subgroups have the same of these, lane by lane: made of `subgroup_lane`, of what the workgroup agrees on and of memory at rest."""
        return all(not isinstance(atom, Value) or atom.id in self.repeating for atom in args)

    def _place(self, op: Op, result: int) -> int:
        """The level of a query in a Program with subgroups."""
        query, _, axis = op.name.partition(".")
        if query == "subgroup_id":
            return self.within
        if query in ("local_id", "global_id"):
            # Rows, or planes, that are whole subgroups: one subgroup has one place along the axes that are outside them.
            inner = self.program.workgroup[: "xyz".index(axis)]
            if inner and prod(inner) % self.subgroup == 0:
                return self.within
        if query == "local_index" or (axis == "x" and query in ("local_id", "global_id") and self.program.workgroup[0] % self.subgroup == 0):
            self.counting.add(result)
        return min(self.varying, int(op.level or 0))

    def _parts_subgroups(self, s: Let) -> bool:
        """Whether an op forgets the lane of a value that counts up lane by lane: a quotient, a shift or a mask."""
        if len(s.args) != 2 or not isinstance(s.args[0], Value) or s.args[0].id not in self.counting or not isinstance(s.args[1], Const):
            return False
        constant, size = s.args[1].bits, self.subgroup
        if s.op.name == "div":
            return constant > 0 and constant % size == 0
        return 1 << constant % u32.bits >= size if s.op.name == "shr" else s.op.name == "and" and constant & (size - 1) == 0

    def _load(self, index: int, s: Load) -> None:
        if index in self.steady:
            self.level[s.bound.id] = int(Level.WORKGROUP)
        elif s.memory.access.writes:
            self.level[s.bound.id] = self.varying
            return
        if self.subgroup and self._repeats(s.args):
            self.repeating.add(s.bound.id)
        self._feed(s.args, s.bound.id)

    def _of_workgroup(self, index: int, s: UniformLoad | GridScan) -> None:
        self.level[s.bound.id] = int(Level.WORKGROUP)
        self.repeating.add(s.bound.id)

    def _atomic(self, index: int, s: Atomic) -> None:
        self.level[s.bound.id] = self.varying

    def _together(self, index: int, s: Subgroup) -> None:
        agreed = self.within
        if self._repeats(s.args):
            self.repeating.add(s.bound.id)
            agreed = int(Level.WORKGROUP)
        self.level[s.bound.id] = agreed if s.op.level is Level.SUBGROUP else self.varying

    def _tile_load(self, index: int, s: TileLoad) -> None:
        if s.memory.access.writes:
            self.level[s.bound.id] = self.varying
        else:
            self._feed(s.args, s.bound.id)

    def _tile(self, index: int, s: Tile) -> None:
        self._feed(s.args, s.bound.id)

    def _var(self, index: int, s: Var) -> None:
        self._feed(s.args, self.variables + s.variable.id)

    def _get(self, index: int, s: Get) -> None:
        self.edge(self.variables + s.variable.id, s.bound.id)

    def _assign(self, index: int, s: Set) -> None:
        self._feed(s.args, self.variables + s.variable.id)
        self.edge(self.current, self.variables + s.variable.id)

    # ---- control

    def _enter(self, first: int, loop: bool) -> None:
        self.blocks.append(_BlockSegments(self.current, first, loop))
        if loop:
            self.loops.append(self.blocks[-1])
        self.current = first

    def _branch(self, index: int, s: If) -> None:
        first = self.segment(index, self.current)
        self._feed(s.args, first)
        self._enter(first, loop=False)

    def _count(self, index: int, s: For) -> None:
        first = self.segment(index, self.current)
        self._feed(s.args, first)
        self._feed(s.args, s.bound.id)
        self._enter(first, loop=True)

    def _endless(self, index: int, s: Loop) -> None:
        self._enter(self.segment(index, self.current), loop=True)

    def _region(self, index: int, s: Region) -> None:
        self._enter(self.current, loop=False)

    def _other(self, index: int, s: Else) -> None:
        block = self.blocks[-1]
        self.control[index] = block.before
        self.current = block.first

    def _end(self, index: int, s: End) -> None:
        block = self.blocks.pop()
        if block.loop:
            self.loops.pop()
            block.continues = _NONE
            if block.returns != _NONE:
                self.edge(block.returns, block.first)
        if self.blocks:
            around = self.blocks[-1]
            around.returns = self.join(around.returns, block.returns)
            around.continues = self.join(around.continues, block.continues)
        self.current = self.join(self.join(block.before, block.returns), block.continues)
        self.control[index] = self.current

    def _return(self, index: int, s: Return) -> None:
        if self.blocks:
            block = self.blocks[-1]
            block.returns = self.join(block.returns, self.segment(index, self.current))

    def _continue(self, index: int, s: Continue) -> None:
        if self.loops:  # V104 reports one that is in no loop
            block = self.blocks[-1]
            block.continues = self.join(block.continues, self.segment(index, self.current))

    def _break(self, index: int, s: Break) -> None:
        if self.loops:
            self.edge(self.segment(index, self.current), self.loops[-1].first)

    # ---- what came out

    def uniformity(self) -> Uniformity:
        """The levels, as everybody else reads them."""
        levels = [_LEVELS[level] for level in self.level]
        return Uniformity(
            tuple(levels[: self.variables]),
            tuple(levels[self.variables : self.segments]),
            tuple([levels[segment] for segment in self.control]),
        )


_RULES: Final[Handlers[Callable[[Analysis, int, Any], None]]] = Handlers("the analysis of uniformity", {
    Let: Analysis._let,
    Load: Analysis._load,
    UniformLoad: Analysis._of_workgroup,
    GridScan: Analysis._of_workgroup,
    **dict.fromkeys((Atomic, OrderedAtomic), Analysis._atomic),
    Var: Analysis._var,
    Get: Analysis._get,
    Set: Analysis._assign,
    If: Analysis._branch,
    Else: Analysis._other,
    End: Analysis._end,
    For: Analysis._count,
    Loop: Analysis._endless,
    Region: Analysis._region,
    Return: Analysis._return,
    Continue: Analysis._continue,
    Break: Analysis._break,
    Subgroup: Analysis._together,
    TileLoad: Analysis._tile_load,
    Tile: Analysis._tile,
}, apart=(Store, AtomicStore, TileStore, TileAtomicAdd, *TARGET_KINDS, Barrier, GridBarrier, *FENCES.values(), *REPORTING_KINDS, *COPYING_KINDS))  # fmt: skip


def analyse(program: Program) -> Uniformity:
    """The levels of a Program whose form, blocks and scope are sound, as those of every Checked one are."""
    return Analysis(program).uniformity()
