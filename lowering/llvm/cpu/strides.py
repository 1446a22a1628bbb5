"""Loads that step over one another: lanes that step by S elements, and S loads, a step of which each lane begins at another element.

    let a = x[4 * i]          lanes' own elements lie in groups of four:
    let b = x[4 * i + 1]      four accesses of whole vectors, whose elements
    let c = x[4 * i + 2]      shuffles put in place, instead of one a lane
    let d = x[4 * i + 3]      and element

Nothing may write between them, so those that follow the first are loaded with it, and indices that they need are computed before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from vyre_py.ir.language.nodes import Get, Let, Load, Set, Space, Value, Var
from vyre_py.lowering.llvm.cpu.memory import Memories
from vyre_py.lowering.llvm.cpu.values import LaneValue
from vyre_py.lowering.llvm.types import memory_type

__all__ = ["Strides"]

# Statements that write to no memory.
_HARMLESS: Final = (Let, Load, Get, Set, Var)
# What indices are made of.
_INDEXING: Final = frozenset({"add", "sub", "mul", "shl", "shr", "and", "cast", "bitcast"})
_FARTHEST: Final = 128


class Strides:
    """The groups of a kernel. `done` has statements that were written ahead."""

    def __init__(self, memories: Memories, let: Callable[[int, Let], int]) -> None:
        self.memories, self.state, self.w = memories, memories.state, memories.w
        self.let = let
        self.done: set[int] = set()

    def load(self, index: int, s: Load) -> int | None:
        """Writes the group that begins with a load, and returns the index of the next statement; None without one."""
        first = self._whole(index, s)
        if first is None or not 2 <= first.step <= self.state.width or first.step & first.step - 1:
            return None
        body, found, makers = self.state.program.body, {first.delta: [index]}, dict[int, int]()
        for number in range(index + 1, min(index + _FARTHEST, len(body))):
            statement = body[number]
            if not isinstance(statement, _HARMLESS):
                break
            if statement.result is not None:
                makers[statement.result.id] = number
            if isinstance(statement, Load) and statement.memory is s.memory and number not in self.done and self._has_indices(makers, statement):
                offset = self._whole(number, statement)
                if offset is not None and (offset.step, offset.root) == (first.step, first.root):
                    found.setdefault(offset.delta, []).append(number)
        begin = next((delta for delta in found if all(delta + k in found for k in range(first.step))), None)
        if begin is None or not begin <= first.delta < begin + first.step:
            return None
        values = self._load_all(s, first, begin)
        for k, value in enumerate(values):
            for number in found[begin + k]:
                self.state.count()
                self.state.bind(body[number], self.w.varying(s.memory.type, value))
                self.done.add(number)
        self.done.discard(index)
        self.state.fill(s.memory.type.bits)
        return index + 1

    def _whole(self, index: int, s: Load) -> LaneValue | None:
        """The numbers of the elements, where all lanes are on and inside, and differ by a constant."""
        if s.memory.space is Space.PRIVATE or self.state.mask is not None:
            return None
        if not any(self.state.operand(a).step for a in s.indices) or self.state.unproven(index, s):
            return None
        offset = self.memories.offset(self.memories.spot(index, s))
        return offset if offset.step else None

    def _has_indices(self, makers: Mapping[int, int], s: Load) -> bool:
        """Whether the indices of a later load are there, or can be: they are computed ahead. `makers` says which statement since the first makes a value."""
        body, missing = self.state.program.body, set[int]()
        wanted = [a.id for a in s.indices if isinstance(a, Value)]
        while wanted:
            number = makers.get(wanted.pop(), -1)
            if number < 0 or number in self.done or number in missing:
                continue
            let = body[number]
            if not isinstance(let, Let) or let.op.name not in _INDEXING:
                return False
            missing.add(number)
            wanted += [a.id for a in let.args if isinstance(a, Value)]
        for number in sorted(missing):
            let = body[number]
            assert isinstance(let, Let)  # no others are missing
            self.let(number, let)
            self.done.add(number)
        return True

    def _load_all(self, s: Load, first: LaneValue, begin: int) -> list[str]:
        """All elements of the lanes' groups: those that a place in the group has, a vector each."""
        w, width, type_ = self.w, self.state.width, s.memory.type
        vector, element = memory_type(type_, width), memory_type(type_)
        offset = w.let(f"zext i32 {first.name} to i64")
        base = w.let(f"getelementptr {element}, ptr {self.memories.pointers[s.memory]}, i64 {w.let(f'add i64 {offset}, {begin - first.delta}')}")
        rows = []
        for k in range(first.step):
            place = w.let(f"getelementptr {element}, ptr {base}, i64 {k * width}")
            rows.append(w.let(f"load {vector}, ptr {place}, align {type_.size_bytes}"))
        alone = s.memory.space is Space.WORKGROUP
        return [self.state.loaded(type_, width, name, alone=alone) for name in self._exchanged(rows, vector)]

    def _exchanged(self, rows: list[str], vector: str) -> list[str]:
        """From vectors in the order of memory to one for each place in a group: bit by bit, the numbers of vectors change places with those of lanes."""
        width, count = self.state.width, len(rows)
        bit = 1
        while bit < count:
            for row in range(count):
                if not row & bit:
                    pair = (rows[row], rows[row | bit])
                    rows[row] = self._shuffled(vector, *pair, [lane ^ bit | width if lane & bit else lane for lane in range(width)])
                    rows[row | bit] = self._shuffled(vector, *pair, [lane | width if lane & bit else lane | bit for lane in range(width)])
            bit *= 2
        each = width // count
        if each == 1:
            return rows
        return [self._shuffled(vector, row, "poison", [lane % each * count + lane // each for lane in range(width)]) for row in rows]

    def _shuffled(self, vector: str, a: str, b: str, order: list[int]) -> str:
        numbers = ", ".join(f"i32 {at}" for at in order)
        return self.w.let(f"shufflevector {vector} {a}, {vector} {b}, <{len(order)} x i32> <{numbers}>")
