"""Rows over lanes: neighbouring elements, such as the components of a vector, that each lane touches together (`lowering.rows`).

A group that all lanes share is one access. Adjacent groups of the lanes are one access, whose elements are put in place by shuffles. Elsewhere each lane's
group is one access: a word that is gathered or scattered, or a load or store of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import Load, Memory, Store
from vyre_py.ir.language.types import Kind, Type
from vyre_py.lowering.llvm.cpu.memory import Memories, Spot
from vyre_py.lowering.llvm.cpu.values import LaneValue, Variability
from vyre_py.lowering.llvm.idioms import suffix
from vyre_py.lowering.llvm.types import bits_type, integer, llvm_type, memory_type
from vyre_py.lowering.rows import Row

__all__ = ["Rows"]

# Groups of so many bytes are words that processors gather and scatter.
_WORDS: Final = (4, 8)


class Rows:
    """The rows of a kernel."""

    def __init__(self, memories: Memories) -> None:
        self.memories, self.state, self.w = memories, memories.state, memories.w

    def load(self, index: int, s: Load) -> int | None:
        """Writes the row of loads that begins with a statement, and returns the index of the next statement; None without such a row."""
        row = self.state.element_rows.get(index)
        if row is None:
            return None
        spot, width = self._spot(index, s), self.state.width
        if spot.is_uniform:
            one = self._read(s.memory.type, row.width, self._uniform_pointer(spot, row, "@zero"))
            scalars = [self._value(s.memory.type, 1, self._extract(one, s.memory.type, row, lane)) for lane in row.lanes]
            parts = [LaneValue(Variability.UNIFORM, s.memory.type, scalar) for scalar in scalars]
        elif (found := self._groups(s, spot, row)) is not None:
            many = memory_type(s.memory.type, width * row.width)
            frozen = self.w.let(f"freeze {many} {found}")
            parts = [self.w.varying(s.memory.type, self._value(s.memory.type, width, self._every(frozen, s.memory.type, row, lane))) for lane in row.lanes]
        else:
            return None
        for number, value in enumerate(parts, index):
            self.state.bind(self.state.program.body[number], value)
        return index + len(row.lanes)

    def store(self, index: int, s: Store) -> int | None:
        """Writes the row of stores that begins with a statement, and returns the index of the next statement; None without such a row."""
        row = self.state.element_rows.get(index)
        if row is None:
            return None
        spot, type_ = self._spot(index, s), s.memory.type
        values: dict[int, LaneValue] = {}
        for number, lane in enumerate(row.lanes, index):
            statement = self.state.program.body[number]
            assert isinstance(statement, Store)  # what rows of stores are made of
            values[lane] = self.state.operand(statement.value)
        if spot.is_uniform:
            scalars = [self._stored(type_, 1, self.w.scalar(values[lane], self.state.mask)) for lane in range(row.width)]
            made = "poison"
            for lane, name in enumerate(scalars):
                made = self.w.let(f"insertelement {memory_type(type_, row.width)} {made}, {memory_type(type_)} {name}, i64 {lane}")
            pointer = self._uniform_pointer(spot, row, self.memories.spare())
            self.w.line(f"store {memory_type(type_, row.width)} {made}, ptr {pointer}, align {type_.size_bytes}")
            return index + row.width
        if not self._is_side_by_side(spot, row) and row.size_bytes(s) < _WORDS[0]:
            return None
        self._write_groups(spot, row, [self._stored(type_, self.state.width, self.w.vector(values[lane])) for lane in range(row.width)])
        return index + row.width

    # ---- where

    def _spot(self, index: int, s: Load | Store) -> Spot:
        """Where the first statement's access goes; its last index is a number within the axis."""
        return self.memories.spot(index, s, self.state.proven[index] | 1 << s.memory.rank - 1)

    def _is_side_by_side(self, spot: Spot, row: Row) -> bool:
        """Whether the lanes' groups are neighbours, and nothing lies between them."""
        leading, extent = spot.indices[:-1], spot.memory.shape[-1]
        near = bool(leading) and leading[-1].variability is Variability.LINEAR and all(index.is_uniform for index in leading[:-1])
        return near and isinstance(extent, DimConst) and extent.value == row.width

    def _uniform_pointer(self, spot: Spot, row: Row, otherwise: str) -> str:
        """The group that all lanes touch; outside, `otherwise`."""
        pointer = self._back(spot.memory, self.memories.uniform_pointer(spot), row)
        return pointer if spot.inside is None else self.w.let(f"select i1 {spot.inside}, ptr {pointer}, ptr {otherwise}")

    def _back(self, memory: Memory, pointer: str, row: Row) -> str:
        """From the first statement's element to the first of its group."""
        return self.w.let(f"getelementptr {memory_type(memory.type)}, ptr {pointer}, i64 {-row.lanes[0]}") if row.lanes[0] else pointer

    def _side_by_side_pointer(self, spot: Spot, row: Row) -> str:
        leading = self.memories.row_offset(replace(spot, indices=spot.indices[:-1]))
        place = self.w.let(f"mul i64 {leading}, {row.width}")
        return self.w.let(f"getelementptr {memory_type(spot.memory.type)}, ptr {self.memories.pointers[spot.memory]}, i64 {place}")

    def _pointers(self, spot: Spot, row: Row) -> str:
        """The first element of each lane's group."""
        vector = bits_type(32, self.state.width)
        offsets = self.w.let(f"sub {vector} {self.memories.offsets(spot)}, {integer(row.lanes[0], 32, self.state.width)}")
        return self.memories.scattered.pointers(spot.memory, offsets, memory_type(spot.memory.type), self.memories.pointers[spot.memory])

    # ---- groups of all lanes, as one vector in the order of memory

    def _groups(self, s: Load, spot: Spot, row: Row) -> str | None:
        """What a load of all groups gives, as memory has it; None for groups too small to be gathered."""
        w, width, type_ = self.w, self.state.width, spot.memory.type
        many, size = memory_type(type_, width * row.width), row.width * type_.size_bytes
        if self._is_side_by_side(spot, row):
            pointer, mask = self._side_by_side_pointer(spot, row), self.memories.everywhere(spot)
            self.memories.fetch_ahead(s, pointer, row.width)
            if mask is None:
                return w.let(f"load {many}, ptr {pointer}, align {type_.size_bytes}")
            found = w.local(many)

            def load_some() -> None:
                arguments = (("ptr", pointer), ("i32", str(type_.size_bytes)), self._spread(mask, row), (many, "zeroinitializer"))
                w.line(f"store {many} {w.call(many, f'llvm.masked.load.{suffix(many)}.p0', *arguments)}, ptr {found}")

            whole = f"load {many}, ptr {pointer}, align {type_.size_bytes}"
            w.by_mask(mask, lambda: w.line(f"store {many} {w.let(whole)}, ptr {found}"), load_some)
            return w.let(f"load {many}, ptr {found}")
        if size in _WORDS:
            words = self.memories.scattered.gather_words(self.memories.everywhere(spot), self._pointers(spot, row), f"i{8 * size}", type_.size_bytes)
            return w.let(f"bitcast <{width} x i{8 * size}> {words} to {many}")
        if size < _WORDS[0]:
            return None
        pointers = self._own_pointers(spot, row, "@zero")
        return self._joined([w.let(f"load {memory_type(type_, row.width)}, ptr {p}, align {type_.size_bytes}") for p in pointers], type_, row.width)

    def _write_groups(self, spot: Spot, row: Row, values: Sequence[str]) -> None:
        w, width, type_ = self.w, self.state.width, spot.memory.type
        many, size = memory_type(type_, width * row.width), row.width * type_.size_bytes
        order = [lane * width + k for k in range(width) for lane in range(row.width)]
        made = self._shuffled(self._joined(values, type_, width), type_, width * row.width, order)
        if self._is_side_by_side(spot, row):
            pointer, mask = self._side_by_side_pointer(spot, row), self.memories.everywhere(spot)
            whole = f"store {many} {made}, ptr {pointer}, align {type_.size_bytes}"
            if mask is None:
                w.line(whole)
            else:
                arguments = ((many, made), ("ptr", pointer), ("i32", str(type_.size_bytes)))
                masked = f"llvm.masked.store.{suffix(many)}.p0"
                w.by_mask(mask, lambda: w.line(whole), lambda: w.run(masked, *arguments, self._spread(mask, row)))
        elif size in _WORDS:
            words = w.let(f"bitcast {many} {made} to <{width} x i{8 * size}>")
            self.memories.scattered.scatter_words(self.memories.everywhere(spot), self._pointers(spot, row), f"i{8 * size}", type_.size_bytes, words)
        else:
            for lane, pointer in enumerate(self._own_pointers(spot, row, self.memories.spare())):
                group = self._shuffled(made, type_, width * row.width, range(lane * row.width, (lane + 1) * row.width))
                w.line(f"store {memory_type(type_, row.width)} {group}, ptr {pointer}, align {type_.size_bytes}")

    def _own_pointers(self, spot: Spot, row: Row, otherwise: str) -> list[str]:
        """Each lane's group, one after the other; for lanes that are off or outside, `otherwise`."""
        w, width, pointers = self.w, self.state.width, self._pointers(spot, row)
        many = f"<{width} x ptr>"
        if (mask := self.memories.everywhere(spot)) is not None:
            pointers = w.let(f"select {w.mask_type} {mask}, {many} {pointers}, {many} {w.splat('ptr', otherwise)}")
        return [w.let(f"extractelement {many} {pointers}, i64 {lane}") for lane in range(width)]

    def _spread(self, mask: str, row: Row) -> tuple[str, str]:
        """A mask of lanes as one of the elements of their groups, with its type."""
        width = self.state.width
        order = ", ".join(f"i32 {lane}" for lane in range(width) for _ in range(row.width))
        name = self.w.let(f"shufflevector {self.w.mask_type} {mask}, {self.w.mask_type} poison, <{width * row.width} x i32> <{order}>")
        return bits_type(1, width * row.width), name

    # ---- elements

    def _joined(self, vectors: Sequence[str], type_: Type, width: int) -> str:
        """Vectors of `width` elements, a power of two of them, one behind the other."""
        while len(vectors) > 1:
            order = ", ".join(f"i32 {k}" for k in range(2 * width))
            one = memory_type(type_, width)
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [self.w.let(f"shufflevector {one} {a}, {one} {b}, <{2 * width} x i32> <{order}>") for a, b in pairs]
            width *= 2
        return vectors[0]

    def _shuffled(self, name: str, type_: Type, width: int, order: Sequence[int]) -> str:
        vector = memory_type(type_, width)
        places = ", ".join(f"i32 {k}" for k in order)
        return self.w.let(f"shufflevector {vector} {name}, {vector} poison, <{len(order)} x i32> <{places}>")

    def _every(self, groups: str, type_: Type, row: Row, lane: int) -> str:
        """One element of every lane's group."""
        count = self.state.width * row.width
        return self._shuffled(groups, type_, count, range(lane, count, row.width))

    def _extract(self, group: str, type_: Type, row: Row, lane: int) -> str:
        return self.w.let(f"extractelement {memory_type(type_, row.width)} {group}, i64 {lane}")

    def _read(self, type_: Type, width: int, pointer: str) -> str:
        vector = memory_type(type_, width)
        return self.w.let(f"freeze {vector} {self.w.let(f'load {vector}, ptr {pointer}, align {type_.size_bytes}')}")

    def _value(self, type_: Type, width: int, name: str) -> str:
        """What memory has, as a value of the language."""
        if type_.kind is not Kind.BOOL:
            return name
        zero = "0" if width == 1 else "zeroinitializer"
        return self.w.let(f"icmp ne {memory_type(type_, width)} {name}, {zero}")

    def _stored(self, type_: Type, width: int, name: str) -> str:
        """A value of the language, as memory has it."""
        return name if type_.kind is not Kind.BOOL else self.w.let(f"zext {llvm_type(type_, width)} {name} to {memory_type(type_, width)}")
