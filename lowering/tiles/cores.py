"""The rewrite of a Program whose products tensor cores compute: copies ahead into the rings that are planned (`rings`), and stores of sums; `warp_products` and
`warpgroups` have the products.

One module because it is one class: its rules share the plan, and the layouts of what it writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from math import prod
from typing import Final

from vyre_py.ir.language.nodes import (
    Atom,
    For,
    Get,
    Let,
    Memory,
    MemoryStatement,
    Set,
    Space,
    Statement,
    StripCopy,
    Tile,
    TileLoad,
    TileMemoryStatement,
    TileStore,
    Value,
    Var,
    Variable,
)
from vyre_py.ir.language.ops import JOINED
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import bf16, f16, u16, u32
from vyre_py.ir.language.widths import WIDE_TYPES
from vyre_py.ir.math.builder import word
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.layout import element_count
from vyre_py.lowering.tiles.boxes import BOTH, TURN, plan_boxes
from vyre_py.lowering.tiles.exchange import NOWHERE, LazyRegisters, Shared, outside
from vyre_py.lowering.tiles.rings import GROUPS, Ring, RingPlan, RingTooLarge, Strip
from vyre_py.lowering.tiles.roles import CLUSTER, FEW_LOADS, HELD, RoleRewrite
from vyre_py.lowering.tiles.tensor import (
    TOGETHER,
    WARP,
    Accumulator,
    Gathered,
    accumulators,
    cores_take,
    gathered,
    invocations_for,
)
from vyre_py.lowering.tiles.tile_layout import TileLayout, invocation_grid, shapes_of
from vyre_py.lowering.tiles.viewed import splits

__all__ = ["for_rings", "uses_tensor_cores"]

_GROUPS_AT_ONCE: Final = 4  # that an invocation loads element by element; of bytes, each of which takes a register, one
_PAIR: Final = 2  # elements that a lane stores together as it has them
_DONE: Final = 0  # what warpgroups signal each other that wait for copies of both: that the second has done with strips
_MANY_SUMS: Final = 32  # beside more than these few elements are loaded at once
_MOST_AHEAD: Final = 3  # times as many as are loaded at once
_ROOM: Final = 32  # registers more, where no warpgroup copies
_WORD_BYTES: Final = 4  # of a register
_MOST_SUMS: Final = 64  # beside more than these, and others or what is loaded, no register is free
_NARROW: Final = (bf16, f16)  # elements that are handed on among lanes, so that these store more together


def uses_tensor_cores(program: Program) -> bool:
    """Whether tensor cores compute anything of a Program of tiles."""
    return any(map(cores_take, program.body))


def for_rings(program: Program, target: str, memory_bytes: int, *, wide: bool, warpgroups: bool, boxes: bool = False, unpacks: bool = False) -> Program:
    """A Program of invocations for a target that copies ahead, and at most so many bytes of workgroup memory. A `wide` one has views of buffers in place
    of these, whose last axis is four or eight elements of theirs, where it copies from them: it is for memory that begins on a multiple of as many, and rows
    that are as long as some of these. With `boxes` the hardware copies whole boxes where it can, in place of invocations, from such memory as well.
    `warpgroups` says that the target has products of warpgroups, `unpacks` that it has none of floats of 8 bits by warps, but multiplies them as f16.

    Raises Unsupported for what does not fit that memory.
    """
    rewrite = partial(_CoresRewrite, program, target, memory_bytes, wide=wide, warpgroups=warpgroups, boxes=boxes, unpacks=unpacks)
    first = rewrite(ring_bytes=memory_bytes)
    made = first.run()
    if (taken := _workgroup_bytes(made.memories)) > memory_bytes:  # what exchanges need has no room beside such rings
        made = rewrite(ring_bytes=max(0, min(memory_bytes // 10 * 9, memory_bytes - taken + first.strip_bytes))).run()
    if (taken := _workgroup_bytes(made.memories)) > memory_bytes:
        what = f"factors and exchanges of tiles, which take {taken} bytes of workgroup memory, of {memory_bytes},"
        raise Unsupported(target, [Missing(what, help="use smaller tiles, or tiles of fewer types beside the products")])
    return made


def _workgroup_bytes(memories: Iterable[Memory]) -> int:
    """What arrays take of workgroup memory."""
    return sum([element_count(memory) * memory.type.size_bytes for memory in memories if memory.space is Space.WORKGROUP])


class _CoresRewrite(RoleRewrite):
    _is_absent: Atom | None = None  # whether what is copied now is zeros

    def __init__(
        self, program: Program, target: str, memory_bytes: int, ring_bytes: int, *, wide: bool, warpgroups: bool, boxes: bool, unpacks: bool
    ) -> None:
        count = invocations_for(program, warpgroups=warpgroups, unpacks=unpacks)
        super().__init__(program, target, invocation_grid(program, count=count), memory_bytes // 10, lanes=WARP)
        self._unpacks = unpacks
        try:
            self._plan = RingPlan(program, self.invocations.count, ring_bytes, warpgroups=warpgroups)
        except RingTooLarge as large:
            self.place = program.place(large.loop)
            self.refuse(f"{large} beside {memory_bytes - ring_bytes} of exchanges," if ring_bytes < memory_bytes else str(large), large.help)
        if boxes:
            plan_boxes(program, self._plan)
        self._follow(accumulators(program, self.invocations, self._plan.of_warpgroups, self._plan.of_registers, self._plan.of_lanes))
        self._require_layouts()
        self._find_producer()
        self._find_onward()
        self.memories += [*self._plan.memories, *[memory for ring in self._plan.rings.values() for memory in ring.counters]]
        if wide:
            self.see(self._viewed())
        self._ends = {self.program.match[loop]: loop for loop in self._plan.rings}

    def run(self) -> Program:
        """The Program of invocations."""
        tiles: list[tuple[TileLayout, tuple[int, ...]]] = [(self.invocations, shape) for shape in shapes_of(self.program)]
        tiles += [
            (layout, s.result.type.shape) for s in self.program.body
            if s.result is not None and s.result.type.is_tile and (layout := self._layouts.values.get(s.result.id)) is not None
        ]
        tiles += [
            (layout, s.variable.type.shape) for s in self.program.body
            if isinstance(s, Var) and (layout := self._layouts.variables.get(s.variable.id)) is not None
        ]
        tiles += [(Accumulator(self.invocations.count // WARP, 1), self.program.body[index].args[0].type.shape) for index in self._plan.of_registers]
        tiles += [
            (layout, a.type.shape) for s in self.program.body if isinstance(s, Let) and s.bound.type.is_tile
            and (layout := self._layouts.values.get(s.bound.id)) is not None for a in s.args if a.type.is_tile
        ]
        tiles += [(layout, s.args[-1].type.shape) for s in self.program.body if (layout := self._stores_gathered(s)) is not None]
        self.prepare(tiles)
        self._bind_lanes()
        # The same for all lanes, which the assembler sees.
        self._warpgroup = self.shuffled("broadcast", self.m("shr", self.index, 7), word(0)) if self._plan.of_warpgroups else word(0)
        self._part_roles(self._copy_ahead)
        return super().run()

    def _require_layouts(self) -> None:
        """Raises Unsupported for sums that the warps of the Program, as many as its largest product needs, cannot share."""
        for index, s in enumerate(self.program.body):
            if cores_take(s) and isinstance(s, Tile) and s.bound.id not in self._layouts.values:
                self.place, (rows, columns) = self.program.place(index), s.bound.type.shape
                what = f"{s.op.name} of {rows} x {columns} by {self.invocations.count // WARP} warps, as a larger one needs,"
                self.refuse(what, "a warp takes 16 rows and 8 columns at least: give the products of a Program tiles that are more alike")

    @property
    def strip_bytes(self) -> int:
        """What the strips of all rings take."""
        return _workgroup_bytes(self._plan.memories)

    def layout_of(self, value: Value) -> TileLayout:
        return self._layouts.values.get(value.id, self.invocations)

    def layout_of_variable(self, variable: Variable) -> TileLayout:
        return self._layouts.variables.get(variable.id, self.invocations)

    def loads_at_once(self, s: TileLoad, layout: TileLayout) -> tuple[int, int]:
        """Few beside sums that take most of the registers; of views, whose loads stay where they are written, as many more ahead as there is room for."""
        if (held := self._sums_held()) <= _MANY_SUMS:
            return super().loads_at_once(s, layout)
        room = HELD - held + (_ROOM if self._plan.of_warpgroups and self._producer is None else 0)
        return FEW_LOADS, min(_MOST_AHEAD, max(0, room // self._registers_beside() - 1)) if s.memory in self._views else 0

    def _sums_held(self) -> int:
        """The registers of a product's sums."""
        sums = [(one.type.scalar.size_bytes // _WORD_BYTES, self._layouts.values[one.id].held(one.type.shape)) for one in self._products()]
        return max([max(1, words) * prod(held) for words, held in sums], default=0)

    def in_order(self, layout: TileLayout, registers: Sequence[tuple[int, ...]]) -> Sequence[tuple[int, ...]]:
        """Of sums some columns of all rows, then the next: so few elements that rows share are held at once."""
        if not isinstance(layout, Accumulator):
            return registers
        return sorted(registers, key=lambda register: (register[1] // TOGETHER, *register))

    def _products(self) -> list[Value]:
        return [s.bound for s in self.program.body if cores_take(s) and isinstance(s, Tile) and s.bound.id in self._layouts.values]

    # ---- views

    def _viewed(self) -> dict[Memory, int]:
        """The buffers that are seen in groups of so many elements: every copy from them begins on a multiple, and is of as many."""
        strips = [(ring, *item) for ring in self._plan.rings.values() for loads in (ring.loads, ring.staying) for item in loads.items()]
        loads = [(s, strip.lanes) for _, at, strip in strips if isinstance(s := self.program.body[at], TileLoad)]
        boxed = {s.memory for ring, at, _ in strips if ring.arrivals is not None and isinstance(s := self.program.body[at], TileLoad)}
        wanted = {s.memory: lanes for s, lanes in loads if s.memory.space is Space.BUFFER and s.memory not in boxed}
        read = {
            m: lanes for m, lanes in wanted.items()
            if splits(m, lanes) and all(self._plan.multiple(s.indices[-1]) % lanes == 0 and other == lanes for s, other in loads if s.memory is m)
        }  # fmt: skip
        touched = {m: max(self._loaded_together(m), self._stored_together(m)) for m in self.program.buffers if m not in boxed | read.keys()}
        return read | {m: lanes for m, lanes in touched.items() if lanes > 1}

    def indices_along(
        self, s: TileMemoryStatement, memory_axis: int, offset: Atom, layout: TileLayout, axis: int, register: int, *, once: bool, whole: bool
    ) -> tuple[Atom, ...]:
        """Of loads beside sums a place that all columns share, and a number beyond it, which an address takes."""
        is_pair = isinstance(s, TileLoad) and memory_axis == s.memory.rank - 1 and self.lanes_of(s.memory) == layout.neighbours(s.shape, axis) == _PAIR
        if not is_pair or offset.type is not u32 or self._given.of(s.indices[memory_axis]) % _PAIR or layout.is_ragged(s.shape, axis, register):
            return super().indices_along(s, memory_axis, offset, layout, axis, register, once=once, whole=whole)
        m, beyond = self.m, layout.offsets(s.shape, axis)[register - register % _PAIR] // _PAIR
        shared = m("add", m("shr", offset, 1), m("shr", self.bind(layout.line(s.shape, axis)), 1))
        return m("add", shared, beyond) if beyond else shared, word(register % _PAIR)

    def _stored_together(self, memory: Memory) -> int:
        """How many neighbours a lane stores together of a buffer that is only written, by tiles that lie as sums do; 1 for any other."""
        touching = [s for s in self.program.body if isinstance(s, MemoryStatement) and s.memory is memory]
        stores = [s for s in touching if isinstance(s, TileStore) and isinstance(s.value, Value) and s.extents[-1] > 1]
        layouts = [(self._layouts.values.get(s.value.id, self.invocations), s.value.type.shape) for s in stores if isinstance(s.value, Value)]
        held = min([layout.neighbours(shape, len(shape) - 1) for layout, shape in layouts], default=1)
        if not touching or len(stores) < len(touching) or held == 1:
            return 1
        are_handed_on = memory.type in _NARROW and not self._is_full() and all(gathered(*layout) for layout in layouts)
        several = [TOGETHER, held] if are_handed_on else [held]
        return next((n for n in several if splits(memory, n) and all(self._plan.multiple(s.indices[-1]) % n == 0 for s in stores)), 1)

    def _is_full(self) -> bool:
        """Whether sums, and others or what is loaded beside them, leave warps no registers to hand them on: for a shuffle behind a branch the assembler may
        call a function, which has some of its own."""
        beside = bool(self._beside()) or len(self._products()) > 1
        return beside and not self._plan.of_warpgroups and self._sums_held() > _MOST_SUMS

    def _stores_gathered(self, s: Statement) -> Gathered | None:
        """The layout in which a statement stores sums that are handed on among lanes first."""
        if not isinstance(s, TileStore) or not isinstance(s.value, Value) or self.lanes_of(s.memory) != TOGETHER:
            return None
        return gathered(self._layouts.values[s.value.id], s.value.type.shape)

    def _gather(self, tile: Shared, layout: Gathered) -> Shared:
        """Sums that lanes have handed on: in two steps each of four lanes that share a row gives the others what it has of their groups."""
        m, lane = self.m, self.m("and", self.index, 3)
        bits = [m("ne", m("and", lane, 1 << k), word(0)) for k in range(2)]
        made: dict[tuple[int, ...], Atom] = {}

        def compute(register: tuple[int, ...]) -> Atom:
            if register not in made:
                row, first = register[0], register[1] // TOGETHER * TOGETHER
                words: list[Atom] = [self.let(JOINED, (tile.registers[row, at], tile.registers[row, at + 1])) for at in range(first, first + TOGETHER, _PAIR)]
                for k, bit in enumerate(bits):
                    for j in [j for j in range(len(words)) if not j & 1 << k]:
                        one, other = words[j], words[j | 1 << k]
                        taken = self.shuffled("shuffle_xor", m("select", bit, one, other), word(1 << k))
                        words[j], words[j | 1 << k] = m("select", bit, taken, one), m("select", bit, other, taken)
                halves = [m.cast(m("shr", w, 16 * e), u16) for w in words for e in range(_PAIR)]
                made.update({(row, first + k): m.bitcast(half, tile.type) for k, half in enumerate(halves)})
            return made[register]

        return Shared(tile.shape, layout, LazyRegisters(layout.registers(tile.shape), compute, TOGETHER, of=[tile.registers]))

    # ---- statements

    def take(self, index: int) -> None:
        """Takes in old statement `index`."""
        s = self.begin(index)
        if index in self._plan.skipped or index in self._idle:
            return
        if (layout := self._stores_gathered(s)) is not None:
            assert isinstance(s, TileStore) and isinstance(s.value, Value)  # what is stored so
            before = self._tiles[s.value.id]
            self._tiles[s.value.id] = self._gather(before, layout)
            super().take(index)
            self._tiles[s.value.id] = before
            return
        if isinstance(s, Let) and s.op.name in self._grid_places:
            self.map[s.bound.id] = self._grid_places[s.op.name]
            return
        if (ring := self._plan.rings.get(index)) is not None:
            assert isinstance(s, For)  # what has a ring
            self._begin(index, s, ring)
        elif index in self._ends:
            loop = self._ends[index]
            self._last_set.pop(loop, None)
            self._told.pop(loop, lambda: None)()
            self.copy(index)
            ring = self._plan.rings[loop]
            if ring.take_turns and ring.arrivals is not None:
                self._end_turns(loop)
                return
            if ring.freed is None:
                self._end_copies(ring, self._counters[loop], is_nested=self._plan.block_of(loop) >= 0)
            if ring.take_turns:
                for number in (_DONE, TURN):
                    self._signal(number, 0, waits=1)
            self._end_products(loop)
            self._free_last(loop)
        elif index in self._plan.of_lanes:
            assert isinstance(s, Tile)  # a product
            self.keep(s.bound, self._product_of_lanes(index, s))
        elif cores_take(s):
            assert isinstance(s, Tile)  # what tensor cores take
            if index in self._plan.of_warpgroups:
                self._product_of_warpgroups(index, s)
            else:
                self.keep(s.bound, self._product(index, s))
        elif index in self._late_factors:
            self._scale_late(*self._late_factors[index])
        elif index not in self._late_sets:
            if isinstance(s, Get):
                self._land_late(s.variable)
            super().take(index)
            if isinstance(s, Set):
                self._note_set(index, s)

    def _begin(self, loop: int, s: For, ring: Ring) -> None:
        if ring.take_turns and ring.arrivals is not None:
            self._begin_turns(loop, s, partial(self._begin_copies, s, ring), lambda value, strip: self._copy_ahead(s, ring, value, self.atom(s.args[2]), strip))
            return
        start, stop, step = [self.atom(a) for a in s.args]
        self._begin_products(loop, ring)
        if self._plan.block_of(loop) >= 0:
            self.barrier()  # others may still load from the strips
        if ring.freed is None:
            self._begin_copies(s, ring, start, step, word(0))
        if ring.take_turns:
            for number in (_DONE, TURN):
                self._signal(number, 1, waits=0)
        counter = self._counter(loop, ring)
        value = self.for_(start, stop, step, self.program.value_names.get(s.bound.id), s.unroll)
        self.map[s.bound.id] = value
        turn_now = self.get(counter)
        self.set(counter, self.m("add", turn_now, 1))
        self._now[loop], self._turns[loop], self._counters[loop] = self.m("rem", turn_now, ring.count), turn_now, counter
        if not ring.is_waited_for_ahead:
            self._await_copies(ring, turn_now, ring.ahead - 1)
            if ring.freed is None:
                self.barrier()
        if ring.take_turns:
            self._signal(TURN, BOTH, waits=1)

        def copy_ahead() -> None:
            if ring.is_waited_for_ahead and not ring.take_turns:
                self._await_copies(ring, self.m("add", turn_now, 1), ring.ahead - 2)
                self.barrier()
            self._copy_ahead(s, ring, self._turn(value, step, word(ring.ahead)), step, self.m("rem", self.m("add", turn_now, ring.ahead), ring.count))

        def hand_over() -> None:
            """What is copied for the next turn is there, for the other warpgroup too, when that may begin."""
            self.copy_wait(ring.ahead - 2)
            self._signal(_DONE, 0, waits=1)
            self._signal(TURN, BOTH, waits=0, shows=1)

        def tell() -> None:
            self._signal(_DONE, 1, waits=0)
            copy_ahead()

        # The loop's first product is begun before: it goes on meanwhile. Where warpgroups take turns all are, and copies go beside what follows.
        if ring.freed is None:
            self._due[loop] = hand_over if ring.take_turns else copy_ahead
        if ring.take_turns:
            self._told[loop] = tell

    def _begin_copies(self, s: For, ring: Ring, start: Atom, step: Atom, first: Atom) -> None:
        """Begins the copies of a loop's first turns, from a strip on, and what is copied once."""
        self._begin_arrivals(ring)
        for index, strip in ring.staying.items():
            self._copy(index, strip, ring, word(0), word(ring.once))
        is_alone = ring.take_turns and ring.arrivals is not None  # the first turn is written by itself, without late products
        if is_alone:
            self._copy_ahead(s, ring, start, step, first, has_late=False)
        turn = self.for_(word(int(is_alone)), word(ring.ahead), word(1))
        is_first = self.m("eq", turn, word(0)) if ring.late and not is_alone else None
        self._copy_ahead(s, ring, self._turn(start, step, turn), step, self._further_strip(ring, first, turn) if ring.goes_on else turn, is_first)
        self.end()
        if ring.is_waited_for_ahead and not is_alone:
            self._await_copies(ring, word(0), ring.ahead - 1)
            self.barrier()

    def _copy_ahead(self, s: For, ring: Ring, value: Atom, step: Atom, strip: Atom, is_first: Atom | None = None, *, has_late: bool = True) -> None:
        """Begins the copies of the turn of a value; for products that are late those of the turn before, zeros if this is the first one, unless it is known
        to have none."""
        before = list(self.map)
        if ring.arrivals is not None:
            self._expect(ring, [room for index, room in ring.loads.items() if has_late or index not in ring.late_loads], strip, closes=True)
        for is_late in (False, True)[: 1 + (has_late and bool(ring.late))]:
            self._is_absent, self.map = is_first if is_late else None, list(before)
            self.map[s.bound.id] = self.m("sub", value, step) if is_late else value
            self._look_further(s, ring, before[s.bound.id], step, is_late=is_late)
            for index in ring.slice:
                self.copy(index)
            for index, room in ring.loads.items():
                if (index in ring.late_loads) is is_late:
                    self._copy(index, room, ring, strip, strip)
        if ring.arrivals is None:
            self.copy_commit()
        self.map, self._is_absent = before, None

    def _copy(self, index: int, strip: Strip, ring: Ring, number: Atom, turn: Atom) -> None:
        """Copies the tile that a statement loads into the strip of a number, by boxes, which come with those of a `turn`, or group by group."""
        s = self.program.body[index]
        assert isinstance(s, TileLoad)  # of a ring
        if ring.arrivals is not None:
            self._copy_boxes(s, strip, ring, number, self._is_absent, turn, parts=CLUSTER if index in ring.shared else 1)
            return
        count, total = self.invocations.count, strip.rows * strip.length // strip.lanes
        first = self.m("mul", number, strip.groups)
        if s.memory in self._views and self._in_rows(ring) and self._copy_rows(s, strip, first):
            return
        if s.memory in self._views:
            for done in range(0, total, count):
                self._put_group(strip, *self._found_group(s, strip, first, word(done), ragged=done + count > total))
            return
        # Element by element, each with checks of its own, which would be long written out. Of several groups all is loaded before any is stored.
        together = max(1, min(_GROUPS_AT_ONCE if s.memory.type.size_bytes > 1 else 1, total // count))
        begin = self.for_(word(0), word(total), word(count * together))
        ragged = total % (count * together) > 0
        found = [self._found_group(s, strip, first, self.m("add", begin, count * k) if k else begin, ragged=ragged) for k in range(together)]
        for to, values in found:
            self._put_group(strip, to, values)
        self.end()

    def _in_rows(self, ring: Ring) -> bool:
        """Whether tiles of a loop are copied row by row, which takes fewer instructions. Loops with nothing but products of warpgroups are the slower for it,
        for a reason that was not found: on an H200 a product of 8192^3 of bf16 goes from 1.04 and 1.01 to 0.92 and 0.89 of cuBLAS's rate, one of f8 from 1.11
        to 0.84; one by warps goes from 0.56 to 0.59, and attention of heads of 128 from 0.63 to 0.68."""
        return bool(ring.late) or not ring.products & self._plan.of_warpgroups

    def _copy_rows(self, s: TileLoad, strip: Strip, first: Atom) -> bool:
        """Copies a tile whose rows the invocations share out evenly, so that each goes down one column of groups; or not."""
        m, across = self.m, strip.length // strip.lanes
        down, rest = divmod(self.invocations.count, across)
        axis = next(axis for axis, extent in enumerate(s.extents) if extent)
        is_even = not rest and (down % GROUPS == 0 or not strip.swizzled) and strip.rows % down == 0
        if not is_even or s.indices[axis].type is not u32 or not WIDE_TYPES.isdisjoint([a.type for a in s.indices]):
            return False
        row, column = m("div", self.index, across), m("rem", self.index, across)
        (*source, _) = self._sources(s, strip.lanes, row, column)[0]
        to, further = m("add", first, self._group(strip, row, column)), down * strip.across if strip.swizzled else down * strip.stride // strip.lanes
        self.emit(StripCopy(None, (to, *source), strip.memory, self._views[s.memory], axis, strip.rows // down, down, further))
        return True

    def _found_group(self, s: TileLoad, strip: Strip, first: Atom, begin: Atom, *, ragged: bool) -> tuple[Atom, list[Value]]:
        """The invocation's own group, from one on: where it goes, in the strip that begins at a group, and its elements."""
        m, across, total = self.m, strip.length // strip.lanes, strip.rows * strip.length // strip.lanes
        group = m("add", self.index, begin)
        row, column = m("div", group, across), m("rem", group, across)
        to = m("add", first, self._group(strip, row, column))
        if ragged:
            to = m("select", m("lt", group, total), to, NOWHERE)
        return to, [self.load(s.memory, at) for at in self._sources(s, strip.lanes, row, column)]

    def _put_group(self, strip: Strip, to: Atom, found: Sequence[Atom]) -> None:
        """Copies a group to its place."""
        for lane, value in enumerate(found):
            self.copy_async(strip.memory, (to, word(lane)), value)

    def _sources(self, s: TileLoad, lanes: int, row: Atom, column: Atom) -> list[tuple[Atom, ...]]:
        """The indices of the elements of a group. Those of a row past the last one may be any: nobody keeps them."""
        *outer, last = [self.atom(a) for a in s.indices]
        indices = [self.beyond(offset, row, extent) if extent else offset for offset, extent in zip(outer, s.extents, strict=False)]

        def there(index: Atom) -> Atom:
            return index if self._is_absent is None else self.m("select", self._is_absent, outside(index.type), index)

        if s.memory in self._views:
            group = self.m("add", self.m("shr", last, lanes.bit_length() - 1), self.m.cast(column, last.type) if last.type is not u32 else column)
            return [(*indices, there(group), word(lane)) for lane in range(lanes)]
        return [(*indices, there(self.beyond(last, self.m("add", self.m("mul", column, lanes), lane), s.extents[-1]))) for lane in range(lanes)]
