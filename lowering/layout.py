"""The layout of a kernel's arguments: one block of bytes, the same for every target.

Buffers come first (an 8-byte address each), then params in order of declaration, then hidden slots: dim expressions, which the host
evaluates exactly at bind, as u64 where they are axes of wide buffers or taken whole (`ir.language.widths`) and as u32 elsewhere, and addresses of
what the driver keeps for a launch. A slot takes whole words of 4 bytes and begins on a multiple of its elements' size, so that CUDA, which
passes the slots as kernel parameters, and host code, which reads them from the block, agree; WGSL binds the buffers and reads the rest from a
uniform buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import chain
from math import prod
from typing import Final

from vyre_py.ir.check.facts import has_grid_barrier, has_grid_scan
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import Dim, DimConst, DimExpr
from vyre_py.ir.language.nodes import Const, Memory, MemoryStatement, Param, Space, Value
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, u32, u64
from vyre_py.ir.language.widths import whole_size
from vyre_py.lowering.options import CompileOptions

__all__ = [
    "ARRIVALS_BYTES", "BOXES_ALIGN", "BOXES_BYTES", "MOST_BOX", "MOST_BOXED", "MOST_SCANS", "POINTER_BYTES", "WORD_BYTES", "Layout", "Slot", "SlotKind",
    "boxes_begin", "element_count", "fits_boxes", "grid_name", "invocations_of", "is_totals", "lay_out", "name_beside", "totals_name",
    "totals_number",
]

POINTER_BYTES: Final = 8
WORD_BYTES: Final = 4
# What an ARRIVALS slot points to: memory of the device, on a multiple of 8 bytes, zero before the launch's first run and no other launch's.
# The first word counts arrivals and keeps its meaning from run to run; the second is unused.
ARRIVALS_BYTES: Final = 8
MOST_SCANS: Final = 16  # of one Program, where they are made in steps
BOXES_BYTES, BOXES_ALIGN = 128, 64  # of a description of boxes
# An assembler aligns arguments where they lie in the memory of constants. On sm_90 they begin at byte 0x210 of it, so much behind such a multiple.
_BOXES_BEHIND: Final = 0x210 % BOXES_ALIGN
MOST_BOXED: Final = (1 << 31) - 1024  # elements along an axis of a buffer that boxes are copied from: the indices are i32, and a box's own are beside them
MOST_BOX: Final = 256  # elements along an axis of a box
_BOXED_BYTES: Final = (1, 2, 4)  # of elements
_BOXED_AXES: Final = range(1, 6)
_BOX_ROW_BYTES: Final = (32, 64, 128)

_PLAIN: Final = CompileOptions()


class SlotKind(Enum):
    """The content of a slot. ARRIVALS is for a grid barrier: the address of `ARRIVALS_BYTES` in which workgroups count their arrivals.
    CANCEL is there in an interruptible kernel: the address of a u32 in the device's memory, any value but zero of which ends it. GROUPS are
    there in a persistent one, and where an entry walks: how many workgroups the grid has along x, y and z. GRID is there in their place in an indirect one: the
    address of a buffer of three u32 that say so. REPORT is there where the Program asserts or
    prints: the address of the driver's own buffer for that (`lowering.reports`), which the code has like an argument. SCANS is for scans over the grid: the
    address of 1 + groups * `scan_words` words of 64 bits, `scan_words` being in the entry's details. They are zero before the launch's first run, and no
    other launch's.
    TOTALS is such a buffer of a scan that is made in steps, an element a workgroup of each scan: all steps of a launch have the same.
    BOXES are on GPUs that copy boxes of a buffer by themselves: `BOXES_BYTES` that describe the buffer and the box, as the driver's library encodes them."""

    BUFFER = "buffer"
    PARAM = "param"
    EXTENT = "extent"
    ARRIVALS = "arrivals"
    CANCEL = "cancel"
    GROUPS = "groups"
    REPORT = "report"
    SCANS = "scans"
    TOTALS = "totals"
    BOXES = "boxes"
    GRID = "grid"


_OF_BUFFERS: Final = frozenset({SlotKind.BUFFER, SlotKind.REPORT, SlotKind.TOTALS, SlotKind.GRID})


@dataclass(frozen=True, slots=True)
class Slot:
    """One argument. `type` is the element type of a buffer, the type of a param, u32 or u64 for an extent, u32 for other hidden slots, u64 for SCANS;
    of an address, the type it points to. What is narrower than whole words is filled up with zeros (a bool is 0 or 1). `memory`, `param` or `expr` says which
    declaration it stands for, `axis` of GROUPS which axis: 0 is x; `box` of BOXES how many elements along each axis of the buffer `memory`, which begins on a
    multiple of 16 bytes then, as its rows do; its rows, of 32, 64 or 128 bytes, come swizzled."""

    kind: SlotKind
    name: str
    type: Type
    offset_bytes: int
    size_bytes: int
    memory: Memory | None = None
    param: Param | None = None
    expr: DimExpr | None = None
    axis: int | None = None
    box: tuple[int, ...] = ()

    @property
    def source(self) -> tuple[str, int]:
        """Of a param: the argument that it is taken from, and the byte of it where it begins."""
        part = self.param.part if self.param is not None else None
        return part or (self.name, 0)

    def cut(self, encoded: bytes) -> bytes:
        """Of a param: the bytes that fill the slot, from those of the whole argument."""
        begin = self.source[1]
        return encoded[begin : begin + self.type.size_bytes].ljust(self.size_bytes, b"\0")


@dataclass(frozen=True, slots=True)
class Layout:
    """All slots in order, the size of the block, and the names of the buffers and dims that the code takes from 2^32 on (`ir.language.widths`)."""

    slots: tuple[Slot, ...]
    size_bytes: int
    wide: frozenset[str] = frozenset()

    @property
    def buffers(self) -> tuple[Slot, ...]:
        """The slots of arguments that are buffers, the driver's own buffer where there is one, and that of the grid."""
        return tuple(s for s in self.slots if s.kind in _OF_BUFFERS)

    @property
    def params(self) -> tuple[Slot, ...]:
        """The slots of params, or of their parts."""
        return tuple(s for s in self.slots if s.kind is SlotKind.PARAM)

    @property
    def scalars(self) -> tuple[Slot, ...]:
        """The slots passed by value: params, then extents, then the grid's size where it is hidden."""
        return tuple(s for s in self.slots if s.kind in (SlotKind.PARAM, SlotKind.EXTENT, SlotKind.GROUPS))

    @property
    def boxes(self) -> tuple[Slot, ...]:
        """The slots of descriptions of boxes."""
        return tuple(s for s in self.slots if s.kind is SlotKind.BOXES)

    def find(self, kind: SlotKind) -> Slot | None:
        """The slot of a kind of which there is one at most."""
        return next((s for s in self.slots if s.kind is kind), None)


def _extents(program: Program, own: Mapping[str, Memory]) -> Iterator[tuple[DimExpr, Type]]:
    """Every size that the code may ask for, and its type: axes of accessed buffers, then dim expressions used as operands. Of a view of one of its `own`
    buffers the code asks for the buffer's axes, and computes how many groups of elements these are."""
    wide = program.widths.buffers
    types = {memory: u64 if memory in wide else u32 for memory in program.buffers}
    groups = {(memory.shape[-2], type_) for memory, type_ in types.items() if memory.rank > own[memory.name].rank}
    for statement in program.body:
        for memory in (statement.memory, *statement.also_reads) if isinstance(statement, MemoryStatement) else ():
            if memory.space is Space.BUFFER:
                type_ = types[memory]
                yield from ((axis, type_) for axis in own[memory.name].shape)
        type_ = u32 if whole_size(statement) is None else u64
        for atom in statement.args:
            if not isinstance(atom, (Value, Const, Param)) and (atom, type_) not in groups:
                yield atom, type_


def element_count(memory: Memory) -> int:
    """How many elements an array of constant shape has (all but buffers, as `check` proves)."""
    return prod([axis.value for axis in memory.shape if isinstance(axis, DimConst)])


_TOTALS: Final = "grid_scan."


def invocations_of(program: Program) -> tuple[int, int, int]:
    """The size of a workgroup as it is launched; of a Program of tiles, which only the interpreter runs as it is, one invocation stands for it."""
    return (1, 1, 1) if program.of_tiles else program.workgroup


def totals_name(number: int, declared: Iterable[Dim | Param | Memory]) -> str:
    """The name of the hidden buffer of a Program's scan, beside what is declared."""
    return name_beside(f"{_TOTALS}{number}", declared)


def name_beside(name: str, declared: Iterable[Dim | Param | Memory]) -> str:
    """A name like this one that nothing which is declared has; parts of a param count as the whole."""
    taken = {thing.part[0] if isinstance(thing, Param) and thing.part else thing.name for thing in declared}
    while name in taken:
        name += "'"
    return name


def grid_name(declared: Iterable[Dim | Param | Memory]) -> str:
    """The name of the buffer that a grid is read from, beside what is declared."""
    return name_beside("grid", declared)


def totals_number(name: str) -> int:
    """The number of the scan whose hidden buffer has this name."""
    return int(name.removeprefix(_TOTALS).rstrip("'"))


def is_totals(memory: Memory) -> bool:
    """Whether a hidden buffer is that of a scan."""
    return memory.hidden and memory.name.startswith(_TOTALS)


def fits_boxes(memory: Memory, box: tuple[int, ...]) -> bool:
    """Whether GPUs can copy boxes of so many elements along each axis of a buffer."""
    inner = box[-1] * memory.type.size_bytes if box else 0
    fits = not memory.type.is_vector and memory.type.size_bytes in _BOXED_BYTES and len(box) == memory.rank and len(box) in _BOXED_AXES
    return fits and inner in _BOX_ROW_BYTES and all(0 < extent <= MOST_BOX for extent in box)


def boxes_begin(end: int) -> int:
    """Where a slot of boxes begins behind one that ends there."""
    return end + -(end + _BOXES_BEHIND) % BOXES_ALIGN


def lay_out(
    program: Program, options: CompileOptions = _PLAIN, boxes: Iterable[tuple[Memory, tuple[int, ...]]] = (), forms: Sequence[Program] = (), *,
    walks: bool = False,
) -> Layout:  # fmt: skip
    """The layout of a Program's arguments, of descriptions of boxes of its buffers, and of the grid where a form of it `walks`; deterministic. Sizes are those
    that it and all of its `forms` ask for, which may have kept accesses that it has not; from 2^32 on is what all of them take."""
    slots: list[Slot] = []
    offset = 0
    for memory in [memory for memory in program.buffers if not memory.hidden]:
        slots.append(Slot(SlotKind.BUFFER, memory.name, memory.type, offset, POINTER_BYTES, memory=memory))
        offset += POINTER_BYTES
    for param in program.params:
        offset += -offset % max(param.type.scalar.size_bytes, WORD_BYTES)
        size = -(-param.type.size_bytes // WORD_BYTES) * WORD_BYTES
        slots.append(Slot(SlotKind.PARAM, param.name, param.type, offset, size, param=param))
        offset += size
    own = {memory.name: memory for memory in program.buffers}
    for expr, type_ in dict.fromkeys(chain.from_iterable(_extents(form, own) for form in (program, *forms))):
        if not isinstance(expr, DimConst):
            offset += -offset % type_.size_bytes
            slots.append(Slot(SlotKind.EXTENT, "", type_, offset, type_.size_bytes, expr=expr))
            offset += type_.size_bytes
    for kind, wanted in ((SlotKind.ARRIVALS, has_grid_barrier(program)), (SlotKind.CANCEL, options.interruptible)):
        if wanted:
            offset += -offset % POINTER_BYTES
            slots.append(Slot(kind, "", u32, offset, POINTER_BYTES))
            offset += POINTER_BYTES
    for axis in range(3 if (options.persistent or walks) and not options.indirect else 0):
        slots.append(Slot(SlotKind.GROUPS, "", u32, offset, WORD_BYTES, axis=axis))
        offset += WORD_BYTES
    hidden = [memory for memory in program.buffers if memory.hidden]
    addresses: list[tuple[SlotKind, str, Type, Memory | None]] = [(SlotKind.REPORT, m.name, m.type, m) for m in hidden if not is_totals(m)]
    addresses += [(SlotKind.SCANS, "", u64, None)] if has_grid_scan(program) else []
    addresses += [(SlotKind.TOTALS, m.name, m.type, m) for m in hidden if is_totals(m)]
    for kind, name, type_, held in addresses:
        offset += -offset % POINTER_BYTES
        slots.append(Slot(kind, name, type_, offset, POINTER_BYTES, memory=held))
        offset += POINTER_BYTES
    for memory, box in boxes:
        offset = boxes_begin(offset)
        slots.append(Slot(SlotKind.BOXES, "", memory.type, offset, BOXES_BYTES, memory=memory, box=box))
        offset += BOXES_BYTES
    if options.indirect:
        offset += -offset % POINTER_BYTES
        name = grid_name([*program.dims, *program.params, *program.buffers])
        slots.append(Slot(SlotKind.GRID, name, u32, offset, POINTER_BYTES))
        offset += POINTER_BYTES
    return Layout(tuple(slots), offset, program.widths.names.intersection(*[form.widths.names for form in forms]))
