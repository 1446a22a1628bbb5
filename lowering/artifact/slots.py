"""The argument block in an artifact's file: rows to slots, each checked against its declaration and the slots around it.

The slots alone decide what a launch writes into the block and reads from the arguments. So a row is accepted only if the slot is the one that
`layout.lay_out` would make: in the same order, without gaps or overlaps, over arguments of the same size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from vyre_py.ir.language.dims import Dim, DimConst, DimExpr
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import Access, Memory, Param, Space
from vyre_py.ir.language.types import Type, i64, u32, u64
from vyre_py.ir.wire.codes import TYPES_BY_CODE
from vyre_py.lowering.artifact.form import SLOT_CODES
from vyre_py.lowering.artifact.parts import Interface
from vyre_py.lowering.artifact.section import Row, Section
from vyre_py.lowering.errors import ArtifactError
from vyre_py.lowering.layout import (
    BOXES_ALIGN,
    BOXES_BYTES,
    MOST_SCANS,
    POINTER_BYTES,
    WORD_BYTES,
    Slot,
    SlotKind,
    boxes_begin,
    fits_boxes,
    grid_name,
    totals_name,
)
from vyre_py.lowering.options import MOST_PRINTED
from vyre_py.lowering.reports import prints_at, report_name

__all__ = ["read_slots"]

_Known = tuple[Type, int, int, int]  # a type, its bytes, the bytes of a slot for it, and what its slot begins on a multiple of
_TYPES: Final[Mapping[int, _Known]] = {
    code: (t, t.size_bytes, -(-t.size_bytes // WORD_BYTES) * WORD_BYTES, max(t.scalar.size_bytes, WORD_BYTES)) for code, t in TYPES_BY_CODE.items()
}
_BUFFER: Final = SLOT_CODES[SlotKind.BUFFER]
_EXTENTS: Final = (u32, u64)
_WORDS: Final = frozenset({i64, u64})  # what may be two u32


def _divided(type_: Type) -> list[tuple[Type, tuple[int, ...]]]:
    """The forms of a type on a target: another type, and how many of it along which axes."""
    lanes: tuple[int, ...] = (type_.lanes,) if type_.is_vector else ()
    made = [(type_.scalar, lanes)] if lanes else []
    return [*made, (u32, (*lanes, 2))] if type_.scalar in _WORDS else made


class _Slots:
    """Slots on their way to a layout, one behind the other, as `lay_out` puts them."""

    __slots__ = ("argument", "end", "interface", "made", "section", "sizes", "taken")

    def __init__(self, section: Section, interface: Interface, sizes: Sequence[DimExpr]) -> None:
        self.section, self.interface, self.sizes = section, interface, sizes
        self.made: list[Slot] = []
        self.end = 0  # of the slot before
        self.argument = (0, 0)  # the param of the slot before, and where its bytes of it end
        self.taken: set[str] = set()

    def read(self, rows: Sequence[Row]) -> tuple[Slot, ...]:
        made, last = self.made, 0
        for kind, code, offset, size, number, more in rows:
            maker = _MAKERS.get(kind)
            if maker is None or kind < last:
                raise self.fault(f"its kind is {kind}, none that this vyre-py knows or none that may follow kind {last}")
            known = _TYPES.get(code)
            if known is None:
                raise self.fault(f"its type is {code}, none that this vyre-py knows")
            slot, step = maker(self, known, offset, number, more)
            end = self.end
            begin = boxes_begin(end) if slot.box else end + -end % step
            if offset != begin or size != slot.size_bytes:
                raise self.fault(f"it has bytes {offset} to {offset + size}; {slot.size_bytes} are due behind byte {end}, from byte {begin} on")
            made.append(slot)
            self.end, last = offset + size, kind
        buffers = sum([row[0] == _BUFFER for row in rows])
        if buffers != len(self.interface.buffers):
            raise self.section.fault(f"its slots carry {buffers} of {len(self.interface.buffers)} buffers")
        if any(slot.kind is SlotKind.GROUPS for slot in made) and [slot.axis for slot in made if slot.kind is SlotKind.GROUPS] != [0, 1, 2]:
            raise self.section.fault("its slots carry a part of the grid's size")
        return tuple(made)

    def fault(self, message: str) -> ArtifactError:
        return self.section.fault(f"slot {len(self.made)}: {message}")

    # ---- a slot of each kind, and what it begins on a multiple of

    def buffer(self, known: _Known, offset: int, number: int, more: int) -> tuple[Slot, int]:
        type_ = known[0]
        if number != len(self.made) or number >= len(self.interface.buffers):
            raise self.fault(f"it carries buffer {number}, {len(self.made)} of {len(self.interface.buffers)} is due")
        memory = self.interface.buffers[number]
        if type_ is not memory.type or more:
            memory = self.components(memory, type_, more)
        return Slot(SlotKind.BUFFER, memory.name, type_, offset, POINTER_BYTES, memory), POINTER_BYTES

    def components(self, memory: Memory, type_: Type, more: int) -> Memory:
        """A buffer as the code sees it: its elements in components, or in words, along more axes."""
        axes = tuple([size for (size,) in self.section.take("axes", more)])
        if (type_, axes) not in _divided(memory.type):
            raise self.fault(f"{shown(memory.name)} has elements of {memory.type}, which are not {list(axes)} of {type_}")
        return Memory(memory.name, memory.space, type_, (*memory.shape, *map(DimConst, axes)), memory.access)

    def param(self, known: _Known, offset: int, number: int, more: int) -> tuple[Slot, int]:
        type_, size, padded, step = known
        if number >= len(self.interface.params) or more > 1:
            raise self.fault(f"it carries param {number} of {len(self.interface.params)}, or more than one part of it")
        param = self.interface.params[number]
        if more:
            begin, param = self.part(param, type_)
        elif type_ is not param.type:
            raise self.fault(f"{shown(param.name)} is {param.type}, not {type_}")
        else:
            begin = 0
        # Arguments ascend, and so do the bytes of one.
        if (number, begin) < self.argument:
            raise self.fault(f"byte {begin} of param {number} does not come after {self.argument}")
        self.argument = number, begin + size
        return Slot(SlotKind.PARAM, param.name, type_, offset, padded, None, param), step

    def part(self, whole: Param, type_: Type) -> tuple[int, Param]:
        """Where the next part of an argument begins, and the param that stands for it in the code."""
        ((begin, suffix),) = self.section.take("parts", 1)
        fits = any(type_ is known for known, _ in _divided(whole.type)) and begin % type_.size_bytes == 0
        if not fits or begin + type_.size_bytes > whole.type.size_bytes:
            raise self.fault(f"{shown(whole.name)} has {whole.type.size_bytes} bytes, none for a {type_} at byte {begin}")
        if not self.taken:
            declared: tuple[Dim | Param | Memory, ...] = (*self.interface.dims, *self.interface.params, *self.interface.buffers)
            self.taken.update([d.name for d in declared])
        name = whole.name + self.section.string(suffix)
        while name in self.taken:  # as the pass that made the part does, since another Program may have such a name
            name += "'"
        self.taken.add(name)
        return begin, Param(name, type_, (whole.name, begin))

    def extent(self, known: _Known, offset: int, number: int, more: int) -> tuple[Slot, int]:
        type_, size, _, step = known
        if type_ not in _EXTENTS or more:
            raise self.fault(f"a size is u32 or u64, not {type_}, and has nothing more")
        return Slot(SlotKind.EXTENT, "", type_, offset, size, None, None, self.section.size(self.sizes, number)), step

    def arrivals(self, known: _Known, offset: int, number: int, more: int) -> tuple[Slot, int]:
        return self.address(SlotKind.ARRIVALS, known[0], offset, number or more)

    def cancel(self, known: _Known, offset: int, number: int, more: int) -> tuple[Slot, int]:
        return self.address(SlotKind.CANCEL, known[0], offset, number or more)

    def address(self, kind: SlotKind, type_: Type, offset: int, more: int) -> tuple[Slot, int]:
        to = u64 if kind is SlotKind.SCANS else u32
        if type_ is not to or more or (self.made and self.made[-1].kind is kind):
            raise self.fault(f"a hidden address leads to {to}, has nothing more, and is there once ({kind.value})")
        return Slot(kind, "", to, offset, POINTER_BYTES), POINTER_BYTES

    def scans(self, known: _Known, offset: int, number: int, more: int) -> tuple[Slot, int]:
        return self.address(SlotKind.SCANS, known[0], offset, number or more)

    def report(self, known: _Known, offset: int, number: int, more: int) -> tuple[Slot, int]:
        least = prints_at(self.interface.reports)
        if known[0] is not u32 or more or not least <= number <= least + MOST_PRINTED // WORD_BYTES or not self.interface.reports:
            raise self.fault(f"a report of {number} words, where the interface has {len(self.interface.reports)} asserts and prints")
        name = report_name([*self.interface.dims, *self.interface.params, *self.interface.buffers])
        memory = Memory(name, Space.BUFFER, u32, (DimConst(number),), Access.READ_WRITE, hidden=True)
        return Slot(SlotKind.REPORT, name, u32, offset, POINTER_BYTES, memory), POINTER_BYTES

    def groups(self, known: _Known, offset: int, number: int, more: int) -> tuple[Slot, int]:
        type_, _, _, step = known
        if type_ is not u32 or more:
            raise self.fault("the grid's size is three u32")
        return Slot(SlotKind.GROUPS, "", u32, offset, WORD_BYTES, axis=number), step

    def grid(self, known: _Known, offset: int, number: int, more: int) -> tuple[Slot, int]:
        slot, step = self.address(SlotKind.GRID, known[0], offset, number or more)
        return replace(slot, name=grid_name([*self.interface.dims, *self.interface.params, *self.interface.buffers])), step

    def boxes(self, known: _Known, offset: int, number: int, more: int) -> tuple[Slot, int]:
        type_ = known[0]
        box = tuple([extent for (extent,) in self.section.take("boxes", more)])
        memory = self.interface.buffers[number] if number < len(self.interface.buffers) else None
        if memory is None or type_ is not memory.type or not fits_boxes(memory, box):
            raise self.fault(f"buffer {number} has no boxes of {list(box)} elements of {type_}")
        return Slot(SlotKind.BOXES, "", type_, offset, BOXES_BYTES, memory, box=box), BOXES_ALIGN

    def totals(self, known: _Known, offset: int, number: int, more: int) -> tuple[Slot, int]:
        type_ = known[0]
        if type_.is_vector or type_.bits != 8 * WORD_BYTES or more >= MOST_SCANS:
            raise self.fault(f"the buffer of a scan has words, not {type_}, and is one of {MOST_SCANS}")
        name = totals_name(more, [*self.interface.dims, *self.interface.params, *self.interface.buffers])
        memory = Memory(name, Space.BUFFER, type_, (self.section.size(self.sizes, number),), Access.READ_WRITE, hidden=True)
        return Slot(SlotKind.TOTALS, name, type_, offset, POINTER_BYTES, memory), POINTER_BYTES


_MAKERS: Final[Mapping[int, Callable[[_Slots, _Known, int, int, int], tuple[Slot, int]]]] = {
    SLOT_CODES[SlotKind.BUFFER]: _Slots.buffer,
    SLOT_CODES[SlotKind.PARAM]: _Slots.param,
    SLOT_CODES[SlotKind.EXTENT]: _Slots.extent,
    SLOT_CODES[SlotKind.ARRIVALS]: _Slots.arrivals,
    SLOT_CODES[SlotKind.CANCEL]: _Slots.cancel,
    SLOT_CODES[SlotKind.GROUPS]: _Slots.groups,
    SLOT_CODES[SlotKind.REPORT]: _Slots.report,
    SLOT_CODES[SlotKind.SCANS]: _Slots.scans,
    SLOT_CODES[SlotKind.TOTALS]: _Slots.totals,
    SLOT_CODES[SlotKind.BOXES]: _Slots.boxes,
    SLOT_CODES[SlotKind.GRID]: _Slots.grid,
}


def read_slots(section: Section, rows: Sequence[Row], interface: Interface, sizes: Sequence[DimExpr]) -> tuple[tuple[Slot, ...], int]:
    """The slots that rows stand for, and the bytes that they take. Raises ArtifactError for a row that is not what is due."""
    slots = _Slots(section, interface, sizes)
    return slots.read(rows), slots.end
