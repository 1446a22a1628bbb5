"""Accesses to places that are no neighbours: gathers and scatters, or one lane after another where the processor has neither, or is slow at them.

Written out without a branch, lanes that are off load the first element, or zero where there is none; all stores of a mask that is not all on go by a loop in a
function of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import Memory, Space
from vyre_py.lowering.llvm.cpu.narrow import WORD_BYTES, gather_each, scatter_some
from vyre_py.lowering.llvm.cpu.state import AREA_ALIGN, State
from vyre_py.lowering.llvm.cpu.values import LaneValue, Mask, Variability
from vyre_py.lowering.llvm.idioms import suffix
from vyre_py.lowering.llvm.types import bits_type, integer, memory_type

__all__ = ["Scattered"]

# So many accesses are written out in the kernel itself, where the straight piece at hand has no more lines than that: LLVM does little for long ones (`large`).
_INLINE: Final = 256
_SHORT: Final = 1_500


class Scattered:
    """Gathers and scatters of a kernel, by numbers of elements or by pointers; `mask` has the lanes that are on and inside."""

    def __init__(self, state: State) -> None:
        self.state, self.w = state, state.w
        self._numbers = ""

    # ---- by numbers of elements

    def gather(self, memory: Memory, base: str, offset: LaneValue, mask: Mask) -> str:
        """The lanes' elements, as memory has them, zero where lanes are off."""
        w, type_ = self.w, memory.type
        if not self.state.host.gathers or (mask is None and offset.variability is not Variability.VARYING):
            return self._each(memory, base, offset, mask)
        if type_.size_bytes < WORD_BYTES:
            return self._small(memory, base, w.vector(offset), mask)
        pointers = self.pointers(memory, w.vector(offset), memory_type(type_), base)
        return self.gather_words(mask, pointers, memory_type(type_), type_.size_bytes)

    def scatter(self, memory: Memory, base: str, offset: LaneValue, mask: Mask, value: str) -> None:
        """Stores the lanes' elements, as memory has them, where lanes are on."""
        w, width, element = self.w, self.state.width, memory_type(memory.type)
        numbers, vector = bits_type(32, width), memory_type(memory.type, width)
        each = offset.variability is not Variability.VARYING or memory.space is Space.WORKGROUP or not self.state.host.scatters
        if each and self._is_called():
            bits = "-1" if mask is None else w.mask_bits(mask)
            called = scatter_some(self.state.module, memory.type, width)
            w.line(f"call void @{called}(ptr {base}, {numbers} {w.vector(offset)}, {vector} {value}, i{width} {bits})")
        elif mask is None and each:
            self._store_each(memory, base, offset, value)
        elif self.state.host.scatters:
            self.scatter_words(mask, self.pointers(memory, w.vector(offset), element, base), element, memory.type.size_bytes, value)
        else:
            on = w.spelled(mask)
            called = f"@{scatter_some(self.state.module, memory.type, width)}(ptr {base}, {numbers} {w.vector(offset)}, {vector} {value}, i{width} "
            w.by_mask(on, lambda: self._store_each(memory, base, offset, value), lambda: w.line(f"call void {called}{w.mask_bits(on)})"))

    def _each(self, memory: Memory, base: str, offset: LaneValue, mask: Mask) -> str:
        w, width, vector = self.w, self.state.width, memory_type(memory.type, self.state.width)
        if mask is not None:
            offset = w.varying(offset.type, w.blend(bits_type(32, width), mask, w.vector(offset), integer(0, 32, width)))
            base = self._with_an_element(memory, base)
        if self._is_called():
            called = gather_each(self.state.module, memory.type, width)
            found = w.let(f"call {vector} @{called}(ptr {base}, {bits_type(32, width)} {w.vector(offset)})")
        else:
            found = self._loaded(memory, base, offset)
        return found if mask is None else w.blend(vector, mask, found, "zeroinitializer")

    def _with_an_element(self, memory: Memory, base: str) -> str:
        """What lanes that are off may load the first element of: the memory, or a zero. It hangs on sizes alone, so no turn of a loop waits for it."""
        for extent in memory.shape:
            if extent == DimConst(0):
                return "@zero"
            if not isinstance(extent, DimConst):
                some = self.w.let(f"icmp ne i32 {self.state.operand(extent).name}, 0")
                base = self.w.let(f"select i1 {some}, ptr {base}, ptr @zero")
        return base

    def _loaded(self, memory: Memory, base: str, offset: LaneValue) -> str:
        w, width, element, found = self.w, self.state.width, memory_type(memory.type), "poison"
        for lane, pointer in enumerate(self._places(memory, base, offset)):
            one = w.let(f"load {element}, ptr {pointer}, align {memory.type.size_bytes}")
            found = w.let(f"insertelement {memory_type(memory.type, width)} {found}, {element} {one}, i64 {lane}") if width > 1 else one
        return found

    def _is_called(self) -> bool:
        """Whether an access is a call: after the first few, and where much was written already, since each is long."""
        return self.state.width > 1 and (self.w.straight > _SHORT or self.state.module.count("one by one") > _INLINE)

    def _store_each(self, memory: Memory, base: str, offset: LaneValue, value: str) -> None:
        w, width, element = self.w, self.state.width, memory_type(memory.type)
        for lane, pointer in enumerate(self._places(memory, base, offset)):
            one = w.let(f"extractelement <{width} x {element}> {value}, i64 {lane}") if width > 1 else value
            w.line(f"store {element} {one}, ptr {pointer}, align {memory.type.size_bytes}")

    def _places(self, memory: Memory, base: str, offset: LaneValue) -> Iterator[str]:
        """The lanes' elements, one after another."""
        w, width, element = self.w, self.state.width, memory_type(memory.type)
        if offset.variability is Variability.VARYING:
            # By way of memory, which LLVM can't see through: x86 loads two numbers in the time in which it takes one out of a vector.
            self._numbers = self._numbers or w.local(f"<{width} x i32>", align=AREA_ALIGN)
            w.line(f"store volatile <{width} x i32> {offset.name}, ptr {self._numbers}, align {AREA_ALIGN}")
            for lane in range(width):
                number = w.let(f"load volatile i32, ptr {w.let(f'getelementptr i32, ptr {self._numbers}, i64 {lane}')}, align {WORD_BYTES}")
                yield w.let(f"getelementptr {element}, ptr {base}, i64 {w.let(f'zext i32 {number} to i64')}")
            return
        first = w.let(f"getelementptr {element}, ptr {base}, i64 {w.let(f'zext i32 {offset.name} to i64')}")
        for lane in range(width):
            yield w.let(f"getelementptr {element}, ptr {first}, i64 {lane * offset.step}")

    # ---- by pointers

    def pointers(self, memory: Memory, offsets: str, element: str, base: str) -> str:
        """A vector of addresses. Indices of 32 bits, which address computations read as signed, are what processors gather by."""
        w, vector = self.w, bits_type(32, self.state.width)
        if memory.space is Space.BUFFER:
            base = w.let(f"getelementptr {element}, ptr {base}, i64 {1 << 31}")
            offsets = w.let(f"xor {vector} {offsets}, {integer(-(1 << 31), 32, self.state.width)}")
        return w.let(f"getelementptr {element}, ptr {base}, {vector} {offsets}")

    def scatter_words(self, mask: Mask, pointers: str, element: str, align: int, value: str) -> None:
        """Stores to a vector of addresses; `element` is an LLVM type."""
        width = self.state.width
        memory = f"<{width} x {element}>"
        arguments = ((memory, value), (f"<{width} x ptr>", pointers), ("i32", str(align)), (self.w.mask_type, self.w.spelled(mask)))
        self.w.run(f"llvm.masked.scatter.{suffix(memory)}.v{width}p0", *arguments)

    def gather_words(self, mask: Mask, pointers: str, element: str, align: int) -> str:
        """Loads from a vector of addresses, zero where lanes are off; `element` is an LLVM type."""
        width = self.state.width
        memory = f"<{width} x {element}>"
        arguments = ((f"<{width} x ptr>", pointers), ("i32", str(align)), (self.w.mask_type, self.w.spelled(mask)), (memory, "zeroinitializer"))
        return self.w.call(memory, f"llvm.masked.gather.{suffix(memory)}.v{width}p0", *arguments)

    def _small(self, memory: Memory, base: str, offsets: str, mask: Mask) -> str:
        """Elements of 8 and 16 bits by way of the aligned words that hold them: processors gather words only. Such a word is never past the
        end of memory that has the element, since memory begins and ends on word boundaries."""
        w, width, vector, size = self.w, self.state.width, bits_type(32, self.state.width), memory.type.size_bytes
        in_word = WORD_BYTES // size
        if memory.space is Space.BUFFER:
            skipped = w.let(f"and i64 {w.let(f'ptrtoint ptr {base} to i64')}, {WORD_BYTES - 1}")
            base = w.let(f"getelementptr i8, ptr {base}, i64 {w.let(f'sub i64 0, {skipped}')}")
            elements = w.let(f"trunc i64 {w.let(f'udiv i64 {skipped}, {size}')} to i32")
            offsets = w.let(f"add {vector} {offsets}, {w.splat('i32', elements)}")
        words = w.let(f"lshr {vector} {offsets}, {integer(in_word.bit_length() - 1, 32, width)}")
        word = self.gather_words(mask, w.let(f"getelementptr i32, ptr {base}, {vector} {words}"), "i32", WORD_BYTES)
        number = w.let(f"and {vector} {offsets}, {integer(in_word - 1, 32, width)}")
        place = w.let(f"mul {vector} {number}, {integer(8 * size, 32, width)}")
        return w.let(f"trunc {vector} {w.let(f'lshr {vector} {word}, {place}')} to {bits_type(8 * size, width)}")
