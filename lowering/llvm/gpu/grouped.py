"""Programs that touch neighbours of buffers in groups, over views of these: an invocation loads and stores each group by one access.

    let i = lane * 4                  let i = lane * 4
    let a = x[i]                      let g = i >> 2
    let b = x[i + 1]         ->       let a = x[g, 0]        x is f32[ceil_div(n, 4), 4]
    let c = x[i + 2]                  let b = x[g, 1]
    let d = x[i + 3]                  ...                    one access of 16 bytes, where x begins on a multiple of 16, and 4 divides n

Every index of such a buffer is a multiple of the group's length and a number. Where a group begins is computed as it was, so that it wraps as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from vyre_py.ir.language.nodes import Atom, Const, Let, Load, Memory, MemoryStatement, Store, Value
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u32
from vyre_py.ir.math import MathBuilder
from vyre_py.ir.math.builder import word
from vyre_py.ir.passes.rewriter import Rewriter
from vyre_py.lowering.rows import WIDEST_BYTES
from vyre_py.lowering.tiles.tile_layout import Multiples
from vyre_py.lowering.tiles.viewed import splits, view_of

__all__ = ["over_groups"]

_LEAST: Final = 2  # elements of a group


def over_groups(program: Program) -> Program | None:
    """The Program over views of those buffers whose neighbours it touches in groups of 16 bytes; None where there are none."""
    touching = dict[Memory, list[MemoryStatement]]()
    for s in program.body:
        if isinstance(s, MemoryStatement):
            touching.setdefault(s.memory, []).append(s)
    indices = _Indices(program)
    lanes = {memory: WIDEST_BYTES // memory.type.size_bytes for memory in program.buffers if _is_grouped(memory, touching.get(memory, ()), indices)}
    return _Grouped(program, lanes, indices).run() if lanes else None


def _is_grouped(memory: Memory, touching: Sequence[MemoryStatement], indices: _Indices) -> bool:
    """Whether all that touches a buffer are loads and stores of elements of whole groups, and some of each element."""
    lanes = WIDEST_BYTES // memory.type.size_bytes
    if lanes < _LEAST or memory.type.is_vector or not memory.rank or not splits(memory, lanes):
        return False
    found = set[int]()
    for s in touching:
        place = indices.split(s.indices[-1], lanes) if isinstance(s, (Load, Store)) and s.indices[-1].type is u32 else None
        if place is None:
            return False
        found.add(place[1] % lanes)
    return len(found) == lanes


class _Indices:
    """What the indices of a Program are made of."""

    def __init__(self, program: Program) -> None:
        self._multiples = Multiples(program.body)
        self._sums = {
            s.bound.id: (s.args[0], s.args[1].bits) for s in program.body if isinstance(s, Let) and s.op.name == "add" and isinstance(s.args[1], Const)
        }  # fmt: skip

    def split(self, index: Atom, lanes: int) -> tuple[Atom, int] | None:
        """An index as a multiple of so many, and a number that is added to it; None where it is none."""
        if self._multiples.of(index) % lanes == 0:
            return index, 0
        begin, number = self._sums.get(index.id, (index, 0)) if isinstance(index, Value) else (index, 0)
        return (begin, number) if self._multiples.of(begin) % lanes == 0 else None


class _Grouped(Rewriter):
    def __init__(self, program: Program, lanes: Mapping[Memory, int], indices: _Indices) -> None:
        super().__init__(program)
        self._lanes, self._indices, self._m = lanes, indices, MathBuilder(self)
        self._views = {memory: view_of(memory, several) for memory, several in lanes.items()}
        self.memories = [self._views.get(memory, memory) for memory in self.memories]

    def run(self) -> Program:
        """The Program over views."""
        for index in self.indices():
            s = self.program.body[index]
            if isinstance(s, Load) and s.memory in self._views:
                self.place = self.program.place(index)
                self.map[s.bound.id] = self.load(self._views[s.memory], self._of_group(s.memory, s.indices), self.program.value_names.get(s.bound.id))
            elif isinstance(s, Store) and s.memory in self._views:
                self.place = self.program.place(index)
                self.store(self._views[s.memory], self._of_group(s.memory, s.indices), self.atom(s.value))
            else:
                self.copy(index)
        return self.finish()

    def _of_group(self, memory: Memory, indices: Sequence[Atom]) -> tuple[Atom, ...]:
        """The indices of an element of a view."""
        lanes, (*outer, last) = self._lanes[memory], indices
        found = self._indices.split(last, lanes)
        assert found is not None  # of what has a view
        begin, number = self.atom(found[0]), found[1]
        begin = self._m("add", begin, number // lanes * lanes) if number >= lanes else begin
        return (*map(self.atom, outer), self._m("shr", begin, lanes.bit_length() - 1), word(number % lanes))
