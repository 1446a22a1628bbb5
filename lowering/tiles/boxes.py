"""Rings whose strips the hardware fills by whole boxes of a buffer (PTX ISA, `cp.async.bulk.tensor`), begun by one invocation, and counted by the bytes that
have come: for swizzled strips of buffers whose rows are whole groups of 16 bytes.

In some loops two warpgroups take turns at the tensor cores: a turn is computed between products and the next, while tensor cores have those of the other. Each
waits for boxes by itself, so that all the other has to be told is that it may begin its products. The first turn is written out before the loop. It has no late
products, which the loop begins beside the first product of the turn behind theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
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
    For,
    Memory,
    Space,
    TileLoad,
    Value,
    Variable,
    WarpgroupSignal,
)
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import i32, u32, u64
from vyre_py.ir.math.builder import word
from vyre_py.lowering.layout import MOST_BOX, MOST_BOXED, fits_boxes
from vyre_py.lowering.tiles.rings import GROUPS, Ring, RingPlan, Strip
from vyre_py.lowering.tiles.warp_products import WarpRewrite

__all__ = ["BOTH", "TURN", "BoxRewrite", "counter", "is_parted", "plan_boxes"]

TURN: Final = 1  # what warpgroups signal each other: that the other may begin its products
BOTH: Final = 2

_SWIZZLED_ROWS: Final = 8  # after which the swizzle repeats
_UNIT_BYTES: Final = 16  # of which whole ones are a row of the buffer
_WARPGROUP: Final = 128  # invocations


def plan_boxes(program: Program, plan: RingPlan) -> None:
    """Gives the rings of a plan that boxes can fill the arrays that count these. Two warpgroups may take turns then even if copies are begun for the next turn
    alone."""
    for loop, ring in plan.rings.items():
        loads = [*ring.loads.items(), *ring.staying.items()]
        turns = bool(ring.late) and plan.may_take_turns(loop, ring) and _counts_up(program, loop)
        if ring.take_turns and not turns:
            continue
        if all(_is_boxed(program, s, strip) for at, strip in loads if isinstance(s := program.body[at], TileLoad)):
            ring.arrivals = counter(f"tile:arrivals.{loop}", ring)
            ring.take_turns = turns


def _counts_up(program: Program, loop: int) -> bool:
    """Whether a loop counts up, so that its first turn may be written by itself."""
    step = program.body[loop].args[2]
    return isinstance(step, Const) and step.value > 0


def counter(name: str, ring: Ring) -> Memory:
    """An array that counts for the strips of a ring."""
    return Memory(name, Space.WORKGROUP, u64, (DimConst(ring.count + ring.goes_on), DimConst(1)), Access.READ_WRITE)


def _is_boxed(program: Program, s: TileLoad, strip: Strip) -> bool:
    """Whether boxes can bring what a load loads."""
    memory, size, rows = s.memory, s.memory.type.size_bytes, strip.rows
    last = memory.shape[-1]
    fits = strip.swizzled and memory.space is Space.BUFFER and memory not in program.widths.buffers and fits_boxes(memory, _box(s, strip))
    known = [extent.value for extent in memory.shape if isinstance(extent, DimConst)]
    whole = not isinstance(last, DimConst) or last.value * size % _UNIT_BYTES == 0
    fits = fits and rows % _SWIZZLED_ROWS == 0 and (rows <= MOST_BOX or rows % MOST_BOX == 0)
    return fits and whole and all(0 < extent <= MOST_BOXED for extent in known) and all(a.type in (u32, i32) for a in s.indices)


def is_parted(strip: Strip, parts: int) -> bool:
    """Whether boxes bring a strip in so many parts, each of whole eights of rows, after which the order of its groups begins again."""
    return strip.rows // GROUPS * (strip.length // (strip.across * strip.lanes)) % parts == 0


def _box(s: TileLoad, strip: Strip, parts: int = 1) -> tuple[int, ...]:
    """The box that brings a load's tile to a strip, or as much of it as a box may have; so many are needed at least."""
    columns, rows = strip.across * strip.lanes, min(strip.rows, MOST_BOX)
    while strip.length // columns * (strip.rows // rows) % parts:
        rows //= 2
    return tuple([(columns if axis == s.memory.rank - 1 else rows) if extent else 1 for axis, extent in enumerate(s.extents)])


_Copies = Callable[[Atom, Atom], None]  # begins the copies of the turn of a value, to a strip


class BoxRewrite(WarpRewrite):
    """A Program with a plan, some of whose rings are filled by boxes, which one invocation begins to copy."""

    _copier = 0

    def _begin_arrivals(self, ring: Ring) -> None:
        """Before a loop: makes ready what counts, and says what is copied once, which is there with what the first turn takes."""
        if ring.arrivals is None:
            return
        if not ring.goes_on:
            self.emit(ArrivalsSet(None, (), ring.arrivals, 1, 0))
            self.barrier()
        if ring.staying:
            self._expect(ring, ring.staying.values(), word(ring.once), closes=ring.goes_on)

    def _expect(self, ring: Ring, strips: Iterable[Strip], number: Atom, *, closes: bool) -> None:
        """Says how many bytes come to strips of a number."""
        assert ring.arrivals is not None  # a ring with boxes
        self.emit(ArrivalsExpect(None, (number,), ring.arrivals, self._copier_of(ring), sum([strip.size_bytes for strip in strips]), int(closes)))

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
            self.emit(BoxCopy(None, (to, arrival, *at), strip.memory, s.memory, ring.arrivals, box, self._copier_of(ring), part))

    def _coordinate(self, offset: Atom) -> Atom:
        """An offset as boxes take it: of u32 what is past all extents is so as an i32, too."""
        if offset.type is i32:
            return offset
        if isinstance(offset, Const):
            return Const(i32, min(offset.bits, MOST_BOXED))
        return self.m.bitcast(self.m("min", offset, word(MOST_BOXED)), i32)

    def _copier_of(self, ring: Ring) -> int:
        """The invocation that begins copies: where warpgroups take turns one of the second. When that has its turn, the first one has begun the same turn, and
        so both have done with the strips of the one before."""
        return _WARPGROUP if ring.take_turns else self._copier

    # ---- turns of two warpgroups

    def _signal(self, number: int, who: int, *, waits: int, shows: int = 0) -> None:
        """Warpgroups signal each other. The second one says that it has done with the strips of a turn; that the first one has, its handing over says."""
        self.emit(WarpgroupSignal(None, (self._warpgroup,), number, who, waits, shows))

    def _turn(self, value: Atom, step: Atom, turns: Atom) -> Atom:
        """The loop's value some turns on. It may wrap, past the end."""
        return self.m("add", value, self.m("mul", step, turns if step.type is u32 else self.m.cast(turns, step.type)))

    def _begin_turns(self, loop: int, s: For, begin_copies: Callable[[Atom, Atom, Atom], None], copy_ahead: _Copies) -> None:
        """Begins a loop whose step is above 0, if it has turns, and its copies, which begin at a value in steps, and at a strip; and writes the first turn
        out."""
        m = self.m
        start, stop, step = [self.atom(a) for a in s.args]
        self.if_(m("lt", start, stop))
        strip = self._first_strip(loop, self._plan.rings[loop], partial(begin_copies, start, step))
        self._first_turns.add(loop)
        self._begin_turn(loop, s, start, strip, copy_ahead)
        for index in range(loop + 1, self.program.match[loop]):
            self.take(index)
        self.settle()
        self._first_turns.discard(loop)
        self._last_set.pop(loop, None)
        second = m("add", start, step)
        second = m("select", m("lt", second, start), stop, second)  # if it wraps there is none
        value = self.for_(second, stop, step, self.program.value_names.get(s.bound.id), s.unroll)
        self._begin_turn(loop, s, value, self._next_strip(loop, self._plan.rings[loop]), copy_ahead)

    def _first_strip(self, loop: int, ring: Ring, begin_copies: Callable[[Atom], None]) -> Atom:
        """Begins the copies of a loop's first turns, from a strip on, and waits for the first one; gives the number of its strip."""
        if self._plan.block_of(loop) >= 0:
            self.barrier()  # others may still load from the strips
        begin_copies(word(0))
        self._signal(TURN, 1, waits=0)
        self._rounds[loop] = self.var(u32, word(0)), self.var(u32, word(0))
        return self._next_strip(loop, ring)

    def _begin_turn(self, loop: int, s: For, value: Atom, strip: Atom, copy_ahead: _Copies) -> None:
        """Begins a turn whose boxes have come to a strip: waits for the warpgroup's turn at the tensor cores."""
        ring = self._plan.rings[loop]
        self.map[s.bound.id] = value
        self._now[loop] = strip
        self._signal(TURN, BOTH, waits=1)

        def hand_over() -> None:
            """Once the products are begun, the other may begin its own; and both have done with what lay where copies go now."""
            self._signal(TURN, BOTH, waits=0)
            copy_ahead(self._turn(value, self.atom(s.args[2]), word(ring.ahead)), self._further_strip(ring, strip, word(ring.ahead)))

        self._due[loop] = hand_over

    def _further_strip(self, ring: Ring, strip: Atom, turns: Atom) -> Atom:
        """The number of the strip some turns on, fewer than there are strips."""
        ahead = self.m("add", strip, turns)
        return self.m("min", ahead, self.m("sub", ahead, ring.count))

    def _next_strip(self, loop: int, ring: Ring) -> Value:
        """Waits for the boxes of the next turn; gives the number of their strips. That and how often it came round are counted: to divide takes longer."""
        m, (place, lap) = self.m, self._rounds[loop]
        assert ring.arrivals is not None  # a ring with boxes
        strip, laps = self.get(place), self.get(lap)
        self.emit(ArrivalsWait(None, (strip, laps), ring.arrivals))
        following = m("add", strip, 1)
        is_last = m("eq", following, ring.count)
        self.set(place, m("select", is_last, word(0), following))
        self.set(lap, m("add", laps, m("select", is_last, word(1), word(0))))
        return strip

    def _end_turns(self, loop: int) -> None:
        """Behind such a loop: computes the late products of the last turn, and waits for all boxes."""
        ring = self._plan.rings[loop]
        assert ring.arrivals is not None  # a ring with boxes
        self._now[loop] = self._next_strip(loop, ring)
        self._compute_late(ring)
        self._take_late(ring)
        self._signal(TURN, 0, waits=1)
        self.for_(word(1), word(ring.ahead), word(1))
        self._next_strip(loop, ring)
        self.end()
        if self._plan.block_of(loop) >= 0:
            self.barrier()
            self.emit(ArrivalsSet(None, (), ring.arrivals, 0, 0))
        self.end()
