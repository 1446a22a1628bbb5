"""Where an access finds its element: the checks of its indices and the address, alone or as one of a row of neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from vyre_py.ir.check.facts import definitions
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import Atom, Const, Let, Memory, MemoryStatement, Space, Value
from vyre_py.ir.language.types import Kind, Type, u32, u64
from vyre_py.ir.language.widths import WIDE_TYPES
from vyre_py.ir.passes import Optimised
from vyre_py.lowering.llvm import addressing
from vyre_py.lowering.llvm.addressing import inside, offset
from vyre_py.lowering.llvm.gpu.placed import TOGETHER_BYTES, Column, Place
from vyre_py.lowering.llvm.gpu.simt.names import Names
from vyre_py.lowering.llvm.gpu.tensor_cores import uses_tensor_cores
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.llvm.types import llvm_type, memory_type, number
from vyre_py.lowering.rows import AdjacentAccess, Row

__all__ = ["Axes", "Elements"]

# Names and types of an access' indices, names of the extents, and whether those have 64 bits.
Axes = tuple[list[str], list[Type], list[str], bool]

# Tables lie in global memory: constant memory serialises the threads that read different elements.
_POINTERS: Final[Mapping[Space, str]] = {
    Space.BUFFER: "ptr addrspace(1)",
    Space.TABLE: "ptr addrspace(1)",
    Space.WORKGROUP: "ptr addrspace(3)",
    Space.PRIVATE: "ptr",
}


_OF_GROUPS: Final = 2  # axes


class Elements:
    """Those of one kernel: `bases` are the names of addresses, `adjacent` the accesses whose address another one leads to."""

    def __init__(self, w: Writer, optimised: Optimised, names: Names, bases: Mapping[Memory, str], adjacent: Mapping[int, AdjacentAccess]) -> None:
        self._w, self._names, self._bases, self._adjacent = w, names, bases, adjacent
        self._program, self._proven = optimised.program, optimised.proven
        self._made_at = definitions(self._program)
        self._by_cores = uses_tensor_cores(self._program)
        self._leaders: dict[int, str] = {}

    def axes(self, s: MemoryStatement) -> Axes:
        """An access' indices and extents."""
        wide = s.memory in self._program.widths.buffers
        extents = [self._names.size(e, u64 if wide else u32) for e in s.memory.shape]
        return [self._names.atom(a) for a in s.indices], [a.type for a in s.indices], extents, wide

    def pointer(self, index: int, s: MemoryStatement) -> str:
        """The element's typed pointer; every index is inside."""
        pointer, type_, access = _POINTERS[s.memory.space], memory_type(s.memory.type), self._adjacent.get(index)
        if access is not None and access.leader != index:
            base, place = self._leaders[access.leader], str(access.elements)
        elif (several := self._together(s)) > 1:
            (group, lane), _, _, _ = self.axes(s)
            base, place = self._bases[s.memory], f"{self._w.shared(f'zext i32 {group} to i64')}, i64 {lane}"
            type_ = f"[{several} x {type_}]"
        else:
            base, place = self._bases[s.memory], offset(self._w, *self.axes(s))
        element = self._w.let(f"getelementptr {type_}, {pointer} {base}, i64 {place}")
        if access is not None:
            self._leaders[index] = element
        return f"{pointer} {element}"

    def _together(self, s: MemoryStatement) -> int:
        """How many elements the groups have of which an array of workgroup memory is, if one is accessed at a number of its own: then where a group lies is one
        product, which the assembler would not make of two in 32 bits."""
        if s.memory.space is not Space.WORKGROUP or s.memory.rank != _OF_GROUPS or s.indices[0].type is not u32 or not isinstance(s.indices[1], Const):
            return 1
        extent = s.memory.shape[1]
        return extent.value if isinstance(extent, DimConst) else 1

    def aligned(self, index: int, s: MemoryStatement) -> str:
        """The element's typed pointer, and what its address is known to be a multiple of."""
        align = self._adjacent[index].align_bytes if index in self._adjacent else s.memory.type.size_bytes
        return f"{self.pointer(index, s)}, align {align}"

    def row(self, index: int, s: MemoryStatement, row: Row) -> str:
        """The typed pointer to a row's group, and what it is a multiple of; every index is inside."""
        element = self.pointer(index, s)
        if row.lanes[0]:
            element = f"{_POINTERS[s.memory.space]} {self._w.let(f'getelementptr {memory_type(s.memory.type)}, {element}, i64 {-row.lanes[0]}')}"
        return f"{element}, align {row.size_bytes(s)}"

    def proven(self, index: int) -> int:
        """The axes of an access that need no check, a bit for each."""
        return self._proven[index]

    def row_proven(self, index: int, s: MemoryStatement) -> int:
        """Those of a row: the last one's index is a number within it, where there is more than one axis."""
        return self._proven[index] | (1 << s.memory.rank - 1 if s.memory.rank > 1 else 0)

    def guarded(self, s: MemoryStatement, proven: int, access: Callable[[], str], given_as: tuple[str, str] | None = None) -> str:
        """Runs `access` where all indices are inside that are not `proven`; gives its result, zero where one is outside, "" if it gives none.
        The LLVM type of the result, and its zero, are the element's unless given."""
        w = self._w
        condition = inside(w, *self.axes(s), proven)
        if not condition:
            return access()
        within, past = w.label("inside"), w.label("past")
        before, known = w.current, w.known
        w.branch(condition, within, past)
        w.block(within)
        given = access()
        after = w.current
        w.block(past)
        w.known = known
        if not given:
            return ""
        type_, zero = given_as or (llvm_type(s.memory.type), "false" if s.memory.type.kind is Kind.BOOL else number(s.memory.type, 0))
        return w.let(f"phi {type_} [ {given}, %{after} ], [ {zero}, %{before} ]")

    def is_placed(self, index: int, s: MemoryStatement) -> bool:
        """Whether an element of a buffer is accessed at the assembler's address, in a Program of many such accesses, unless it is inside in any case."""
        elements = s.memory.space is Space.BUFFER and s.memory.type.kind is not Kind.BOOL and index not in self._adjacent
        return elements and self._by_cores and self._proven[index] + 1 < 1 << s.memory.rank

    def whole_place(self, index: int, s: MemoryStatement) -> tuple[Place, str]:
        """Where such an element is, and whether it is inside."""
        axes = self.axes(s)
        return Place(s.memory.type.size_bytes, self._bases[s.memory], *addressing.number(self._w, *axes)), inside(self._w, *axes, self._proven[index])

    def is_placed_row(self, s: MemoryStatement, row: Row) -> bool:
        """Whether a row of a buffer is loaded so."""
        return s.memory.space is Space.BUFFER and self._by_cores and s.memory.rank > 1 and row.size_bytes(s) in TOGETHER_BYTES

    def place(self, index: int, s: MemoryStatement, width: int = 1) -> tuple[Place, str]:
        """Where such an element is, or the group of `width` that the last axis has; and whether it is inside, as far as its column does not say so."""
        w, proven, count = self._w, self._proven[index], s.memory.rank - (width > 1)
        indices, types, extents, wide = self.axes(s)
        indices, types, extents, last, size = indices[:count], types[:count], extents[:count], count - 1, width * s.memory.type.size_bytes
        if wide or proven >> last & 1 or types[last] is not u32 or not WIDE_TYPES.isdisjoint(types):
            number = addressing.number(w, indices, types, extents, wide)
            return Place(size, self._bases[s.memory], *number), inside(w, indices, types, extents, wide, proven)
        row, column = addressing.number(w, [*indices[:last], "0"], types, extents, wide), Column(*self._apart(s.indices[last]), extents[last])
        return Place(size, self._bases[s.memory], *row, column), inside(w, indices[:last], types[:last], extents[:last], wide, proven)

    def _apart(self, index: Atom) -> tuple[str, int]:
        """A u32 as one that neighbours share, and how far beyond it lies."""
        first, second = self._summands(index)
        if isinstance(second, Const):
            return self._names.atom(first), second.bits
        then, last = (None, None) if second is None else self._summands(second)
        if then is None or not isinstance(last, Const):
            return self._names.atom(index), 0
        return self._w.shared(f"add i32 {self._names.atom(first)}, {self._names.atom(then)}"), last.bits

    def _summands(self, atom: Atom) -> tuple[Atom, Atom | None]:
        """The two that an atom is the sum of; itself alone if it is none."""
        made = self._program.body[self._made_at[atom.id]] if isinstance(atom, Value) else None
        return (made.args[0], made.args[1]) if isinstance(made, Let) and made.op.name == "add" else (atom, None)
