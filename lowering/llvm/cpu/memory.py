"""Memory over lanes: bounds rules, and vector accesses where lanes touch neighbours.

An index that all lanes share is one scalar access; one that steps by one along the last axis is one vector access; all others gather and
scatter. Lanes that are off or outside never touch memory: vector accesses are masked, scalar ones go to a spare word instead. Indices have 32 bits
here, and axes fewer than 2^32 elements: `legal.indices` and binding see to it. Code of one lane, whose accesses are all scalar, takes both of any width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import (
    Load,
    Memory,
    MemoryStatement,
    Pack,
    PackedProduct,
    Space,
    Store,
    UniformLoad,
    Unpack,
)
from vyre_py.ir.language.types import Kind, Type, u32, u64
from vyre_py.ir.language.widths import WIDE_TYPES
from vyre_py.lowering.layout import element_count
from vyre_py.lowering.llvm.addressing import inside
from vyre_py.lowering.llvm.addressing import offset as wide_offset
from vyre_py.lowering.llvm.cpu.narrow import WORD_BYTES, load_narrow, store_narrow
from vyre_py.lowering.llvm.cpu.scattered import Scattered
from vyre_py.lowering.llvm.cpu.state import AREA_ALIGN, State
from vyre_py.lowering.llvm.cpu.values import LaneValue, Mask, Variability, calculate
from vyre_py.lowering.llvm.idioms import suffix
from vyre_py.lowering.llvm.types import bits_type, bytes_literal, integer, llvm_type, memory_type
from vyre_py.lowering.rows import WIDEST_BYTES

__all__ = ["Memories", "Spot"]

# Private arrays up to this size, and this much in all, are locals, which LLVM may keep in registers.
_LOCAL_BYTES: Final = 4096
_LOCALS_BYTES: Final = 16384
# Shorter rows of workgroup memory lie one at the end of the other.
_SHORTEST_ROW: Final = 32
# How far ahead is fetched what a loop loads one chunk after the other.
_CHUNKS_AHEAD: Final = 16
_LINE_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class Spot:
    """Where an access goes: `indices`, one per axis; `inside` says whether the axes that all lanes share are inside (None for
    certainly), `mask` which lanes are on and inside on the others."""

    memory: Memory
    indices: tuple[LaneValue, ...]
    inside: str | None
    mask: Mask

    @property
    def is_uniform(self) -> bool:
        """Whether all lanes touch one element."""
        return all(i.is_uniform for i in self.indices)

    @property
    def is_row(self) -> bool:
        """Whether lanes touch neighbours."""
        return self.indices[-1].variability is Variability.LINEAR and all(i.is_uniform for i in self.indices[:-1])


class Memories:
    """The memories of a kernel, and loads and stores on them."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.w = state.w
        self.scattered = Scattered(state)
        self.pointers: dict[Memory, str] = {}
        self.sink = ""
        # `lowering.tiles` has all that counts of such an array written before it is read.
        self._packed = {m for s in state.program.body if isinstance(s, (Pack, PackedProduct, Unpack)) for m in (s.memory, *s.also_reads)}
        self._pitches = {m: pitch for m in state.program.memories if m not in self._packed and (pitch := self._pitch(m))}
        local_bytes = 0
        for number, memory in enumerate(state.program.memories):
            name = f"%m{number}"
            if memory.space is Space.TABLE:
                name = self._table(f"@{state.prefix}t{number}", memory)
            elif memory.space is Space.WORKGROUP:
                last = memory.shape[-1]
                assert isinstance(last, DimConst)  # V305
                state.area(name, self.size_bytes(memory) // last.value * self._pitches.get(memory, last.value))
            elif memory.space is Space.PRIVATE:
                size = -(-self.size_bytes(memory) * state.width // WORD_BYTES) * WORD_BYTES
                if not state.plan.has_barriers and size <= _LOCAL_BYTES and local_bytes + size <= _LOCALS_BYTES:
                    local_bytes += size
                    name = self.w.local(f"[{size} x i8]", align=AREA_ALIGN)
                else:
                    state.area(name, size * (state.chunks if state.plan.has_barriers else 1))
            self.pointers[memory] = name
        self.bases = dict(self.pointers)
        self._large = state.program.widths.buffers

    def _pitch(self, memory: Memory) -> int:
        """From how many elements on a row of workgroup memory begins, where that is more than it has: at a vector's bytes, so that fewer vectors lie in two
        cache lines. Programs pad rows for GPUs, often by one element."""
        last = memory.shape[-1]
        if self.state.width == 1 or memory.space is not Space.WORKGROUP or memory.rank < 2 or not isinstance(last, DimConst) or last.value < _SHORTEST_ROW:
            return 0
        each = max(1, self.state.host.vector_bytes // memory.type.size_bytes)
        return -(-last.value // each) * each if last.value % each else 0

    @staticmethod
    def size_bytes(memory: Memory) -> int:
        """Bytes of a memory of constant shape."""
        return element_count(memory) * memory.type.size_bytes

    def _table(self, name: str, memory: Memory) -> str:
        # Small elements are read as whole words (`_gather_small`), so there must be a whole number of them.
        data = memory.data + bytes(-len(memory.data) % WORD_BYTES)
        self.state.module.add_global(f"{name} = internal unnamed_addr constant {bytes_literal(data)}, align {AREA_ALIGN}")
        return name

    def zero(self, pointer: str, size_bytes: int) -> None:
        """Fills memory with zeros."""
        self.w.run("llvm.memset.p0.i64", ("ptr", pointer), ("i8", "0"), ("i64", str(size_bytes)), ("i1", "false"))

    def begin_workgroup(self) -> None:
        """Zeroes what a workgroup finds zero, unless it writes that before it reads it."""
        for memory in self.state.program.memories:
            shared = self.state.plan.has_barriers and memory.space is Space.PRIVATE
            if shared or (memory.space is Space.WORKGROUP and memory not in self.state.written_first and memory not in self._packed):
                self.zero(self.bases[memory], self.state.areas[self.bases[memory]])

    def begin_chunk(self) -> None:
        """Finds the chunk's private arrays; without barriers every chunk uses the same ones, zeroed again."""
        for memory in self.state.program.memories:
            if memory.space is Space.PRIVATE:
                size = self.size_bytes(memory) * self.state.width
                if self.state.plan.has_barriers:
                    offset = self.w.let(f"mul i64 {self.state.chunk}, {size}")
                    self.pointers[memory] = self.w.let(f"getelementptr i8, ptr {self.bases[memory]}, i64 {offset}")
                else:
                    self.zero(self.pointers[memory], size)

    # ---- bounds

    def spot(self, index: int, s: MemoryStatement, proven: int | None = None) -> Spot:
        """Where a statement's access goes, with the checks that are not proven away; bit k of `proven` says more than the passes do of axis k."""
        proven = (self.state.proven[index] if proven is None else proven) | self.state.inside.get(index, 0)
        indices = tuple([self.state.operand(a) for a in s.indices])
        if self._is_wide(s.memory, indices):
            checked = inside(self.w, [i.name for i in indices], [i.type for i in indices], self._extents(s.memory), True, proven)
            return Spot(s.memory, indices, checked or None, self.state.mask)
        within: str | None = None
        mask = self.state.mask
        for axis, subscript in enumerate(indices):
            if proven >> axis & 1:
                continue
            bound = self.bound(s.memory, axis, subscript.type)
            # Read as unsigned, negative numbers lie beyond every bound.
            if subscript.is_uniform:
                check = self.w.let(f"icmp ult i32 {subscript.name}, {bound.name}")
                within = check if within is None else self.w.let(f"and i1 {within}, {check}")
            else:
                mask = self.w.both(mask, self.w.below(subscript, bound.name))
        return Spot(s.memory, indices, within, mask)

    def _is_wide(self, memory: Memory, indices: Sequence[LaneValue]) -> bool:
        """Whether an access, of one lane, computes in 64 bits."""
        return memory in self._large or any(index.type in WIDE_TYPES for index in indices)

    def _extents(self, memory: Memory) -> list[str]:
        """The axes in 64 bits."""
        type_ = u64 if memory in self._large else u32
        sizes = [self.state.size(extent, type_) for extent in memory.shape]
        return [size.name if type_ is u64 or size.const is not None else self.w.let(f"zext i32 {size.name} to i64") for size in sizes]

    def bound(self, memory: Memory, axis: int, type_: Type) -> LaneValue:
        """The extent that an index is compared with; for a signed one at most 2^31, past which there are only negative ones."""
        extent = memory.shape[axis]
        if isinstance(extent, DimConst):
            return self.state.number(min(extent.value, 1 << 31) if type_.is_signed else extent.value)
        size = self.state.operand(extent)
        return calculate(self.w, "min", u32, (size, self.state.number(1 << 31))) if type_.is_signed else size

    def everywhere(self, spot: Spot) -> Mask:
        """The lanes that are on and inside on all axes."""
        return spot.mask if spot.inside is None else self.w.where(spot.mask, spot.inside)

    # ---- addresses

    def pitch(self, memory: Memory, axis: int) -> LaneValue:
        """How many elements there are between rows along an axis."""
        if axis == memory.rank - 1 and memory in self._pitches:
            return self.state.number(self._pitches[memory])
        return self.state.operand(memory.shape[axis])

    def uniform_pointer(self, spot: Spot, otherwise: str = "") -> str:
        """The element that all lanes touch; outside, `otherwise`."""
        pointer = self._element(spot.memory, self._row(spot, len(spot.indices)))
        if spot.inside is None or not otherwise:
            return pointer
        return self.w.let(f"select i1 {spot.inside}, ptr {pointer}, ptr {otherwise}")

    def _element(self, memory: Memory, offset: str) -> str:
        return self.w.let(f"getelementptr {memory_type(memory.type)}, ptr {self.pointers[memory]}, i64 {offset}")

    def _row(self, spot: Spot, axes: int) -> str:
        """The offset, in elements of the innermost of the first `axes` axes, of indices that all lanes share."""
        w, offset = self.w, ""
        if self._is_wide(spot.memory, spot.indices):
            taken = spot.indices[:axes]
            return wide_offset(w, [i.name for i in taken], [i.type for i in taken], self._extents(spot.memory)[:axes], True)
        for axis, subscript in enumerate(spot.indices[:axes]):
            wide = w.let(f"zext i32 {subscript.name} to i64")
            if offset:
                extent = w.let(f"zext i32 {self.pitch(spot.memory, axis).name} to i64")
                offset = w.let(f"add i64 {w.let(f'mul i64 {offset}, {extent}')}, {wide}")
            else:
                offset = wide
        return offset

    def row_offset(self, spot: Spot) -> str:
        """The number of lane 0's element, where lanes touch neighbours, as an i64. An index that wraps on the way has lanes of either side outside: from
        unsigned ones the last lane is taken, from signed ones the first, which are right for those inside."""
        w, last = self.w, spot.indices[-1]
        if last.type.is_signed:
            offset = w.let(f"sext i32 {last.name} to i64")
        else:
            ends = w.let(f"add i32 {last.name}, {self.state.width - 1}")
            offset = w.let(f"sub i64 {w.let(f'zext i32 {ends} to i64')}, {self.state.width - 1}")
        if len(spot.indices) > 1:
            row = self._row(spot, len(spot.indices) - 1)
            extent = w.let(f"zext i32 {self.pitch(spot.memory, len(spot.indices) - 1).name} to i64")
            offset = w.let(f"add i64 {w.let(f'mul i64 {row}, {extent}')}, {offset}")
        return offset

    def row_pointer(self, spot: Spot) -> str:
        """The element of lane 0, where lanes touch neighbours."""
        return self._element(spot.memory, self.row_offset(spot))

    def offset(self, spot: Spot) -> LaneValue:
        """Element offsets, as a u32; for lanes inside they do not wrap, since a memory has fewer than 2^32 elements."""
        total: LaneValue | None = None
        for axis, subscript in enumerate(spot.indices):
            index = replace(subscript, type=u32)
            if total is not None:
                total = calculate(self.w, "mul", u32, (total, self.pitch(spot.memory, axis)))
                index = calculate(self.w, "add", u32, (total, index))
            total = index
        assert total is not None  # V307: there is at least one axis
        return total

    def offsets(self, spot: Spot) -> str:
        """Element offsets as a vector of i32."""
        return self.w.vector(self.offset(spot))

    def _own(self, offsets: str) -> str:
        """Offsets into private arrays, in which the lanes of an element are neighbours."""
        w, vector, width = self.w, bits_type(32, self.state.width), self.state.width
        scaled = w.let(f"mul {vector} {offsets}, {integer(width, 32, width)}")
        return w.let(f"add {vector} {scaled}, {w.lanes()}")

    # ---- statements

    def load(self, index: int, s: Load | UniformLoad) -> int:
        """A load; its value is zero outside."""
        spot = self.spot(index, s)
        self.state.count(gathers=not spot.is_uniform and not spot.is_row)
        private, alone = s.memory.space is Space.PRIVATE and self.state.width > 1, s.memory.space is Space.WORKGROUP
        if not spot.is_uniform or private:
            self.state.fill(s.memory.type.bits)
        if spot.is_uniform and private:
            value = self.w.varying(s.memory.type, self._load_own(spot))
        elif spot.is_uniform:
            pointer = self.uniform_pointer(spot, "@zero")
            found = self.state.load_elements(s.memory.type, 1, pointer, s.memory.type.size_bytes, alone=alone)
            value = LaneValue(Variability.UNIFORM, s.memory.type, found)
        elif spot.is_row and not private:
            pointer = self.row_pointer(spot)
            self.fetch_ahead(s, pointer)
            value = self.w.varying(s.memory.type, self._load_masked(spot, pointer))
        else:
            value = self.w.varying(s.memory.type, self._gather(spot, private))
        self.state.bind(s, value)
        return index + 1

    def store(self, index: int, s: Store) -> int:
        """A store; dropped outside."""
        w, type_ = self.w, s.memory.type
        spot, value = self.spot(index, s), self.state.operand(s.value)
        self.state.count(gathers=not spot.is_uniform and not spot.is_row)
        private = s.memory.space is Space.PRIVATE and self.state.width > 1
        if spot.is_uniform and not private:
            pointer = self.uniform_pointer(spot, self.spare())
            self.state.store_elements(type_, 1, pointer, w.scalar(value, self.state.mask), type_.size_bytes)
            return index + 1
        vector = w.vector(value)
        self.state.fill(type_.bits)
        if type_.kind is Kind.BOOL:
            vector = w.let(f"zext {llvm_type(type_, self.state.width)} {vector} to {memory_type(type_, self.state.width)}")
        if spot.is_uniform:
            self._store_masked(spot, self._own_pointer(spot, "0"), vector)
        elif spot.is_row and not private:
            self._store_masked(spot, self.row_pointer(spot), vector)
        else:
            offset = self.offset(spot)
            if private:
                offset = w.varying(u32, self._own(w.vector(offset)))
            self.scattered.scatter(s.memory, self.pointers[s.memory], offset, self.everywhere(spot), vector)
        return index + 1

    def spare(self) -> str:
        """Memory whose value nothing depends on, as much as a row has, for stores and atomics outside."""
        self.sink = self.sink or self.w.local(f"<{WIDEST_BYTES} x i8>", zero=True)
        return self.sink

    # ---- how

    def _load_masked(self, spot: Spot, pointer: str) -> str:
        type_, width = spot.memory.type, self.state.width
        memory, size = memory_type(type_, width), type_.size_bytes
        if self._is_narrow(spot):
            within = (lambda: self._is_within(spot)) if spot.memory.space is Space.BUFFER else None
            return self.state.loaded(type_, width, load_narrow(self.w, type_, pointer, spot.mask, spot.inside, within))
        mask = self.everywhere(spot)
        if mask is None:
            return self.state.load_elements(type_, width, pointer, size)
        # The alignment as an operand is what LLVM 20 takes; newer ones read it too.
        arguments = (("ptr", pointer), ("i32", str(size)), (self.w.mask_type, mask), (memory, "zeroinitializer"))
        return self.state.loaded(type_, width, self.w.call(memory, f"llvm.masked.load.{suffix(memory)}.p0", *arguments))

    def _is_within(self, spot: Spot) -> str:
        """Whether what the lanes of a row would all touch lies in the buffer."""
        w, total = self.w, ""
        for extent in self._extents(spot.memory):
            total = w.let(f"mul i64 {total}, {extent}") if total else extent
        most = w.call("i64", "llvm.usub.sat.i64", ("i64", total), ("i64", str(self.state.width - 1)))
        return w.let(f"icmp ult i64 {self.row_offset(spot)}, {most}")

    def _is_narrow(self, spot: Spot) -> bool:
        """Whether a mask is needed of elements of less than what the processor masks, which fill some of those."""
        size, some = spot.memory.type.size_bytes, spot.mask is not None or spot.inside is not None
        return some and size < self.state.host.masked_bytes and size * self.state.width >= 2 * WORD_BYTES

    def fetch_ahead(self, s: MemoryStatement, pointer: str, elements: int = 1) -> None:
        """Has the processor fetch what a chunk that follows loads here, of so many elements a lane: where a loop of this chunk strides over what all chunks
        read, which no processor foresees, and for masked loads, after which some (AMD's Zen 2) foresee nothing."""
        if s.memory.space is not Space.BUFFER or not self.state.strides(s):
            return
        size = self.state.width * elements * s.memory.type.size_bytes
        far = size * (_CHUNKS_AHEAD if self.state.streams(s) else 1)
        for line in range(0, size, _LINE_BYTES):
            ahead = self.w.let(f"getelementptr i8, ptr {pointer}, i64 {far + line}")
            self.w.run("llvm.prefetch.p0", ("ptr", ahead), ("i32", "0"), ("i32", "3"), ("i32", "1"))

    def _store_masked(self, spot: Spot, pointer: str, value: str) -> None:
        type_ = spot.memory.type
        memory, size = memory_type(type_, self.state.width), type_.size_bytes
        if self._is_narrow(spot):
            store_narrow(self.w, type_, pointer, spot.mask, spot.inside, value)
            return
        mask = self.everywhere(spot)
        if mask is None:
            self.w.line(f"store {memory} {value}, ptr {pointer}, align {size}")
            return
        arguments = ((memory, value), ("ptr", pointer), ("i32", str(size)), (self.w.mask_type, mask))
        self.w.by_mask(
            mask,
            lambda: self.w.line(f"store {memory} {value}, ptr {pointer}, align {size}"),
            lambda: self.w.run(f"llvm.masked.store.{suffix(memory)}.p0", *arguments),
        )

    def _gather(self, spot: Spot, private: bool) -> str:
        offset = self.offset(spot)
        if private:
            offset = self.w.varying(u32, self._own(self.w.vector(offset)))
        found = self.scattered.gather(spot.memory, self.pointers[spot.memory], offset, self.everywhere(spot))
        return self.state.loaded(spot.memory.type, self.state.width, found)

    def _own_pointer(self, spot: Spot, otherwise: str) -> str:
        """The lanes' own elements at an index that they share; outside, those of element `otherwise`."""
        w = self.w
        offset = self._row(spot, len(spot.indices))
        if spot.inside is not None:
            offset = w.let(f"select i1 {spot.inside}, i64 {offset}, i64 {otherwise}")
        return self._element(spot.memory, w.let(f"mul i64 {offset}, {self.state.width}"))

    def _load_own(self, spot: Spot) -> str:
        """Each lane has elements of its own, so that no lane needs a mask."""
        type_, width = spot.memory.type, self.state.width
        found = self.state.load_elements(type_, width, self._own_pointer(spot, "0"), type_.size_bytes)
        if spot.inside is None:
            return found
        vector = llvm_type(type_, width)
        return self.w.let(f"select i1 {spot.inside}, {vector} {found}, {vector} zeroinitializer")
