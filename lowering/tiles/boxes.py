"""Rings whose strips the hardware fills by whole boxes of a buffer (PTX ISA, `cp.async.bulk.tensor`), begun by one invocation, and counted by the bytes that
have come: for swizzled strips of buffers whose rows are whole groups of 16 bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import (
    Access,
    ArrivalsExpect,
    ArrivalsSet,
    ArrivalsWait,
    Atom,
    BoxCopy,
    Const,
    Memory,
    Space,
    TileLoad,
    Variable,
)
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import i32, u32, u64
from vyre_py.ir.math.builder import word
from vyre_py.lowering.layout import MOST_BOX, MOST_BOXED, fits_boxes
from vyre_py.lowering.tiles.rings import Ring, RingPlan, Strip
from vyre_py.lowering.tiles.warp_products import WarpRewrite

__all__ = ["BoxRewrite", "counter", "plan_boxes"]

_SWIZZLED_ROWS: Final = 8  # after which the swizzle repeats
_ROW_BYTES: Final = 128  # of a box, at most
_UNIT_BYTES: Final = 16  # of which whole ones are a row of the buffer


def plan_boxes(program: Program, plan: RingPlan) -> None:
    """Gives the rings of a plan that boxes can fill the arrays that count these; but for rings of warpgroups that take turns, which signal each other what was
    copied."""
    for loop, ring in plan.rings.items():
        loads = [*ring.loads.items(), *ring.staying.items()]
        takes_turns = ring.is_waited_for_ahead and plan.takes_turns
        if not takes_turns and all(_is_boxed(program, s, strip) for at, strip in loads if isinstance(s := program.body[at], TileLoad)):
            ring.arrivals = counter(f"tile:arrivals.{loop}", ring)


def counter(name: str, ring: Ring) -> Memory:
    """An array that counts for the strips of a ring."""
    return Memory(name, Space.WORKGROUP, u64, (DimConst(ring.count), DimConst(1)), Access.READ_WRITE)


def _is_boxed(program: Program, s: TileLoad, strip: Strip) -> bool:
    """Whether boxes can bring what a load loads."""
    memory, size, rows = s.memory, s.memory.type.size_bytes, strip.rows
    last = memory.shape[-1]
    fits = strip.swizzled and memory.space is Space.BUFFER and memory not in program.widths.buffers and fits_boxes(memory, _box(s, strip))
    known = [extent.value for extent in memory.shape if isinstance(extent, DimConst)]
    whole = not isinstance(last, DimConst) or last.value * size % _UNIT_BYTES == 0
    fits = fits and rows % _SWIZZLED_ROWS == 0 and (rows <= MOST_BOX or rows % MOST_BOX == 0)
    return fits and whole and all(0 < extent <= MOST_BOXED for extent in known) and all(a.type in (u32, i32) for a in s.indices)


def _box(s: TileLoad, strip: Strip, parts: int = 1) -> tuple[int, ...]:
    """The box that brings a load's tile to a strip, or as much of it as a box may have; so many are needed at least."""
    columns, rows = min(strip.length, _ROW_BYTES // s.memory.type.size_bytes), min(strip.rows, MOST_BOX)
    while strip.length // columns * (strip.rows // rows) % parts:
        rows //= 2
    return tuple([(columns if axis == s.memory.rank - 1 else rows) if extent else 1 for axis, extent in enumerate(s.extents)])


class BoxRewrite(WarpRewrite):
    """A Program with a plan, some of whose rings are filled by boxes, which one invocation begins to copy."""

    _copier = 0

    def _begin_arrivals(self, ring: Ring) -> None:
        """Before a loop: makes ready what counts, and says what is copied once, which is there with what the first turn takes."""
        if ring.arrivals is None:
            return
        self.emit(ArrivalsSet(None, (), ring.arrivals, 1, 0))
        self.barrier()
        if ring.staying:
            self._expect(ring, ring.staying.values(), word(0), closes=False)

    def _expect(self, ring: Ring, strips: Iterable[Strip], number: Atom, *, closes: bool) -> None:
        """Says how many bytes come to strips of a number."""
        assert ring.arrivals is not None  # a ring with boxes
        self.emit(ArrivalsExpect(None, (number,), ring.arrivals, self._copier, sum([strip.size_bytes for strip in strips]), int(closes)))

    def _await_copies(self, ring: Ring, turn: Atom, groups: int) -> None:
        """Waits for what was copied for a turn, behind which so many groups of copies were begun."""
        if ring.arrivals is None:
            self.copy_wait(groups)
        else:
            m = self.m
            self.emit(ArrivalsWait(None, (m("rem", turn, ring.count), m("div", turn, ring.count)), ring.arrivals))

    def _end_copies(self, ring: Ring, counter: Variable, *, is_nested: bool) -> None:
        """Behind a loop whose turns were counted: waits for all copies, which were begun for some turns more."""
        if ring.arrivals is None:
            self.copy_wait(0)
            return
        turns = self.get(counter)
        more = self.for_(word(0), word(ring.ahead), word(1))
        self._await_copies(ring, self.m("add", turns, more), 0)
        self.end()
        if is_nested:
            self.barrier()
            self.emit(ArrivalsSet(None, (), ring.arrivals, 0, 0))

    def _copy_boxes(self, s: TileLoad, strip: Strip, ring: Ring, number: Atom, absent: Atom | None, arrival: Atom, parts: int) -> None:
        """Copies a tile into the strip of a number, box by box, in so many `parts`, where these are several each by another workgroup; zeros where it is
        `absent`."""
        assert ring.arrivals is not None  # a ring with boxes
        m, box = self.m, _box(s, strip, parts)
        down = next(axis for axis, extent in enumerate(s.extents) if extent)
        rows, columns = box[down], box[-1]
        begin = m("mul", number, strip.groups)
        origin = [self._coordinate(self.atom(a)) for a in s.indices]
        if absent is not None:
            origin[-1] = m("select", absent, Const(i32, MOST_BOXED), origin[-1])
        places = [(column, row) for column in range(0, strip.length, columns) for row in range(0, strip.rows, rows)]
        for which, (column, row) in enumerate(places):
            at = [*origin]
            at[-1] = m("add", at[-1], column) if column else at[-1]
            if row:
                at[down] = m("add", at[down], row)
            # Rows of one box lie behind those of the box to the left.
            group = (column * strip.rows + row * columns) // strip.lanes
            to = m("add", begin, group) if group else begin
            part = which * parts // len(places) if parts > 1 else -1
            self.emit(BoxCopy(None, (to, arrival, *at), strip.memory, s.memory, ring.arrivals, box, self._copier, part))

    def _coordinate(self, offset: Atom) -> Atom:
        """An offset as boxes take it: of u32 what is past all extents is so as an i32, too."""
        if offset.type is i32:
            return offset
        if isinstance(offset, Const):
            return Const(i32, min(offset.bits, MOST_BOXED))
        return self.m.bitcast(self.m("min", offset, word(MOST_BOXED)), i32)
