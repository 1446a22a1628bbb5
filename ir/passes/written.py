"""Workgroup arrays of which every element that is read is written before, so that they need not be filled with zeros.

That holds for an array if a barrier precedes all its reads, in a block that holds them all, and the stores that the whole workgroup executes before
that barrier write every element; or if a barrier precedes each read, in a block that holds it, and the stores before that write what it reads. The elements
are computed for each invocation of the workgroup, from indices, conditions and ends of loops that depend on constants and on the local index only. Copies
that all are waited for before that barrier are such stores. Other stores count for nothing, and a read of unknown elements is one of all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import field
from math import prod
from typing import Any, Final

import numpy as np

from vyre_py.ir.check.uniformity import Uniformity
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.effects import JUMPS, SYNCHRONISES
from vyre_py.ir.language.nodes import (
    Atom,
    Const,
    CopyAsync,
    CopyWait,
    Else,
    End,
    For,
    If,
    Let,
    Load,
    Memory,
    MemoryStatement,
    Region,
    Space,
    Store,
    UniformLoad,
    Value,
)
from vyre_py.ir.language.op import Level
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u32
from vyre_py.ir.language.widths import whole_size

__all__ = ["written_first"]

_TOP: Final = -1
# How many values are computed at most, over all invocations and turns, and what each step counts as beside them: a few ten milliseconds in all.
_ROOM: Final = 1 << 20
_STEP: Final = 256

_Array = np.ndarray[Any, np.dtype[Any]]


def written_first(program: Program, uniformity: Uniformity) -> frozenset[Memory]:
    """The workgroup arrays of which every element that is read is known to be written before."""
    accesses: dict[Memory, list[int]] = {memory: [] for memory in program.memories if memory.space is Space.WORKGROUP}
    if not accesses:
        return frozenset()
    for index, s in enumerate(program.body):
        if isinstance(s, MemoryStatement) and s.memory in accesses:
            accesses[s.memory].append(index)
    proof = _Proof(program, uniformity)
    return frozenset(memory for memory, indices in accesses.items() if proof.holds(memory, indices))


@dataclass(slots=True)
class _Invocations:
    """The invocations that reach a statement, once for each turn of the loops around it: local indices, loop counters, and values computed so far."""

    index: _Array
    counters: dict[int, _Array] = field(default_factory=dict)
    known: dict[int, _Array | None] = field(default_factory=dict)

    def chosen(self, which: _Array) -> _Invocations:
        """Some of them, or some several times, by number."""
        return _Invocations(self.index[which], {value: counter[which] for value, counter in self.counters.items()})


class _Proof:
    """One Program, looked at for all of its arrays."""

    def __init__(self, program: Program, uniformity: Uniformity) -> None:
        self.program, self.control = program, uniformity.control
        self.room = _ROOM
        self.parents = list(_parents(program))
        self.defined = {s.bound.id: s for s in program.body if isinstance(s, Let)}
        self.barriers = [index for index, s in enumerate(program.body) if SYNCHRONISES[type(s)]]
        self.waits = [index for index, s in enumerate(program.body) if isinstance(s, CopyWait) and s.groups == 0]
        self.jumps = [index for index, s in enumerate(program.body) if JUMPS[type(s)]]
        self.everybody = _Invocations(np.arange(prod(program.workgroup), dtype=np.uint32))

    def holds(self, memory: Memory, accesses: list[int]) -> bool:
        """Whether every element of an array with these accesses is written before it is read."""
        reads = [index for index in accesses if not isinstance(self.program.body[index], (Store, CopyAsync))]
        if not reads:
            return True
        shape = [axis.value for axis in memory.shape if isinstance(axis, DimConst)]
        written, barrier = np.zeros(prod(shape), np.bool_), self._barrier_before(reads[0], reads[-1])
        self._mark_all(accesses, barrier, shape, written)
        return bool(written.all()) or self._each_holds(reads, accesses, shape)

    def _each_holds(self, reads: list[int], accesses: list[int], shape: list[int]) -> bool:
        """Whether before each read there is a barrier, and before that what writes the elements that are read."""
        barrier, written, marked = -1, np.zeros(prod(shape), np.bool_), 0
        for index in reads:
            here = self._barrier_before(index, index)
            if here < 0:
                return False
            if barrier >= 0 and not self._encloses(self.parents[barrier], here, here):
                written[:], marked = False, 0  # what was written for that barrier may not have been for this one
            marked += self._mark_all(accesses[marked:], here, shape, written)
            barrier = here
            if not written.all() and not self._is_covered(index, shape, written):
                return False
        return True

    def _mark_all(self, accesses: list[int], barrier: int, shape: list[int], written: _Array) -> int:
        """Marks what the stores before a barrier are known to have written there; gives the number of accesses before it."""
        for number, index in enumerate(accesses):
            if index >= barrier:
                return number
            if written.all() or not self._take(0):
                continue
            match self.program.body[index]:
                case Store(indices=indices):
                    self._mark(index, indices, barrier, shape, written)
                case CopyAsync(indices=indices) if self._is_awaited(index, barrier):
                    self._mark(index, indices, barrier, shape, written)
        return len(accesses)

    def _is_covered(self, index: int, shape: list[int], written: _Array) -> bool:
        """Whether all that a load may read is written, whoever executes it, and in whatever turn."""
        load = self.program.body[index]
        if not isinstance(load, (Load, UniformLoad)) or not self._take(len(self.everybody.index)):
            return False
        places = self._places(load.indices, shape, self.everybody)
        return places is not None and bool(written[places].all())

    def _encloses(self, opener: int, first: int, last: int) -> bool:
        """Whether the block that a statement opens holds both others."""
        return opener == _TOP or opener < first <= last < self.program.match[opener]

    def _barrier_before(self, first: int, last: int) -> int:
        """The last barrier before `first`, or at it, in a block that holds all up to `last`; -1 without one."""
        for number in range(bisect_right(self.barriers, first) - 1, -1, -1):
            if not self._take(0):
                break
            if self._encloses(self.parents[self.barriers[number]], first, last):
                return self.barriers[number]
        return -1

    # ---- a store

    def _is_awaited(self, copy: int, barrier: int) -> bool:
        """Whether who copies waits for all copies before the barrier, in a block that holds the copy, too."""
        first, last = bisect_right(self.waits, copy), bisect_right(self.waits, barrier)
        return any(self._take(0) and self._encloses(self.parents[wait], copy, copy) for wait in self.waits[first:last])

    def _mark(self, index: int, indices: Sequence[Atom], barrier: int, shape: list[int], written: _Array) -> None:
        """Marks the elements that a store to these indices is known to have written at the barrier."""
        blocks: list[int] = []  # around the store and not around the barrier, the inner ones first
        top = index
        while not self._encloses(self.parents[top], barrier, barrier):
            blocks.append(self.parents[top])
            top = self._opener(self.parents[top])
        jumped = bisect_right(self.jumps, self._end(top)) > bisect_right(self.jumps, top)
        if self.control[top] > Level.WORKGROUP or jumped:
            return
        lanes: _Invocations | None = self.everybody
        for block in reversed(blocks):
            lanes = None if lanes is None else self._entered(block, lanes)
        if lanes is None or not self._take(len(lanes.index)):
            return
        places = self._places(indices, shape, lanes)
        if places is not None:
            written[places] = True

    def _places(self, indices: Sequence[Atom], shape: list[int], lanes: _Invocations) -> _Array | None:
        """Where in an array the elements at these indices lie, of those inside; None where that is not known."""
        place, inside = np.zeros(1, np.int64), np.ones(len(lanes.index), np.bool_)
        for atom, extent in zip(indices, shape, strict=True):
            at = self._values(atom, lanes)
            if at is None:
                return None
            inside &= (at >= 0) & (at < extent)
            place = place * extent + at.astype(np.int64)
        return np.broadcast_to(place, inside.shape)[inside]

    def _opener(self, block: int) -> int:
        """The statement that a block belongs to: of an Else its If."""
        return self.program.match[self.program.match[block]] if isinstance(self.program.body[block], Else) else block

    def _end(self, index: int) -> int:
        """The last statement of what a statement opens, both blocks of an If; itself where it opens nothing."""
        while not isinstance(self.program.body[index], End) and self.program.match[index] > index:
            index = self.program.match[index]
        return index

    # ---- who gets there

    def _entered(self, block: int, lanes: _Invocations) -> _Invocations | None:
        """Those of `lanes` who enter a block, once a turn; None where that is not known."""
        opened = self.program.body[self._opener(block)]
        if isinstance(opened, Region):
            return lanes
        if isinstance(opened, If):
            condition = self._values(opened.args[0], lanes)
            if condition is None:
                return None
            wanted = np.broadcast_to(condition, lanes.index.shape) != isinstance(self.program.body[block], Else)
            return lanes.chosen(np.flatnonzero(wanted))
        return self._turned(opened, lanes) if isinstance(opened, For) else None

    def _turned(self, loop: For, lanes: _Invocations) -> _Invocations | None:
        start, stop, step = (self._values(atom, lanes) for atom in loop.args)
        if start is None or stop is None or step is None or loop.bound.type.bits > u32.bits:  # of wider ones a distance could wrap here
            return None
        first, by = np.broadcast_to(start, lanes.index.shape).astype(np.int64), step.astype(np.int64)
        distance = stop.astype(np.int64) - first
        turns = np.maximum(0, -(-distance // by))
        count = int(turns.sum())
        if not self._take(count):
            return None
        who = np.repeat(np.arange(len(lanes.index)), turns)
        turn = np.arange(count) - np.repeat(np.cumsum(turns) - turns, turns)
        made = lanes.chosen(who)
        made.counters[loop.bound.id] = (first[who] + turn * by).astype(loop.bound.type.dtype)
        return made

    # ---- values

    def _take(self, count: int) -> bool:
        self.room -= count + _STEP
        return self.room >= 0

    def _values(self, atom: Atom, lanes: _Invocations) -> _Array | None:
        """An integer or bool for each of the lanes, or one for all; None where it follows from more than where they are."""
        if not isinstance(atom, Value):
            return self._operand(atom, lanes)
        pending = [atom.id]
        while pending:
            value = pending[-1]
            if value in lanes.known or value in lanes.counters:
                pending.pop()
                continue
            let = self.defined.get(value)
            waiting = [] if let is None else [a.id for a in let.args if isinstance(a, Value) and a.id not in lanes.known and a.id not in lanes.counters]
            if waiting:
                pending += waiting
                continue
            lanes.known[value] = None if let is None or not self._take(len(lanes.index)) else self._computed(let, lanes)
            pending.pop()
        return self._operand(atom, lanes)

    def _operand(self, atom: Atom, lanes: _Invocations) -> _Array | None:
        if isinstance(atom, Value):
            return lanes.counters[atom.id] if atom.id in lanes.counters else lanes.known[atom.id]
        if isinstance(atom, Const):
            return np.array([atom.value], atom.type.dtype)
        return np.array([atom.value], u32.dtype) if isinstance(atom, DimConst) else None

    def _computed(self, let: Let, lanes: _Invocations) -> _Array | None:
        if let.op.is_query:
            return self._query(let.op.name, lanes)
        atoms = (let.bound, *let.args)
        if let.op.evaluate is None or whole_size(let) is not None or any(a.type.is_vector or a.type.is_float for a in atoms):
            return None
        operands = [self._operand(a, lanes) for a in let.args]
        if any(operand is None for operand in operands):
            return None
        with np.errstate(all="ignore"):
            return let.op.evaluate(let.bound.type, *operands)

    def _query(self, name: str, lanes: _Invocations) -> _Array | None:
        """Where an invocation is in its workgroup; where the workgroup is in the grid is not known."""
        kind, _, axis = name.partition(".")
        sizes = self.program.workgroup
        if kind == "local_index":
            return lanes.index
        if not axis:
            return None
        number = "xyz".index(axis)
        if kind == "workgroup_size":
            return np.array([sizes[number]], u32.dtype)
        return lanes.index // u32.dtype.type(prod(sizes[:number])) % u32.dtype.type(sizes[number]) if kind == "local_id" else None


def _parents(program: Program) -> Iterator[int]:
    """For each statement what opens the block that it stands in: an If and its Else are two. A marker that closes a block stands around it."""
    blocks = [_TOP]
    for index, s in enumerate(program.body):
        if isinstance(s, (Else, End)):
            blocks.pop()
        yield blocks[-1]
        if s.opens or isinstance(s, Else):
            blocks.append(index)
