"""The rewrite of a Program whose products tensor cores compute: copies ahead into the rings that are planned (`rings`), and products of warps from there;
`warpgroups` has those of warpgroups."""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import (
    Atom,
    For,
    Get,
    Let,
    Memory,
    MemoryStatement,
    Space,
    Statement,
    TensorCore,
    Tile,
    TileLoad,
    TileStore,
    Value,
    Var,
    Variable,
)
from vyre_py.ir.language.ops import JOINED
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, bf16, f16, u16, u32
from vyre_py.ir.math.builder import word
from vyre_py.lowering.tiles.exchange import NOWHERE, LazyRegisters, Shared
from vyre_py.lowering.tiles.rings import GROUP_BYTES, GROUPS, Ring, RingPlan, RingTooLarge, Strip
from vyre_py.lowering.tiles.tensor import (
    DEEP_BYTES,
    TOGETHER,
    WARP,
    Accumulator,
    Gathered,
    accumulators,
    cores_take,
    gathered,
    invocations_for,
)
from vyre_py.lowering.tiles.tile_layout import Line, TileLayout, invocation_grid, shapes_of
from vyre_py.lowering.tiles.viewed import splits
from vyre_py.lowering.tiles.warpgroups import WarpgroupRewrite

__all__ = ["for_tensor_cores", "uses_tensor_cores"]

_PAIR: Final = 2  # elements that a lane stores together as it has them
_COLUMNS: Final = 8  # of sums that lie together
_BAND: Final = 8  # rows of the grid
_NARROW: Final = (bf16, f16)  # elements that are handed on among lanes, so that these store more together
_LANE_ROW, _LANE_COLUMN = Line(4, 8), Line(1, 4)


def uses_tensor_cores(program: Program) -> bool:
    """Whether tensor cores compute anything of a Program of tiles."""
    return any(map(cores_take, program.body))


def for_tensor_cores(program: Program, target: str, memory_bytes: int, *, wide: bool, warpgroups: bool) -> Program:
    """A Program of invocations for a target that has tensor cores, and at most so many bytes of workgroup memory. A `wide` one has views of buffers in place
    of these, whose last axis is four or eight elements of theirs, where it copies from them: it is for memory that begins on a multiple of as many, and rows
    that are as long as some of these. `warpgroups` says that the target has products of warpgroups.

    Raises Unsupported for what does not fit that memory.
    """
    return _CoresRewrite(program, target, memory_bytes, wide=wide, warpgroups=warpgroups).run()


class _CoresRewrite(WarpgroupRewrite):
    def __init__(self, program: Program, target: str, memory_bytes: int, *, wide: bool, warpgroups: bool) -> None:
        super().__init__(program, target, invocation_grid(program, count=invocations_for(program, warpgroups=warpgroups)), memory_bytes // 8, lanes=WARP)
        try:
            self._plan = RingPlan(program, self.invocations.count, memory_bytes // 8 * 7, warpgroups=warpgroups)
        except RingTooLarge as large:
            self.place = program.place(large.loop)
            self.refuse(str(large), large.help)
        self.memories += self._plan.memories
        self._follow(accumulators(program, self.invocations, self._plan.of_warpgroups, self._plan.of_registers))
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
        for line in (_LANE_ROW, _LANE_COLUMN):
            self.bind(line)
        for s in filter(cores_take, self.program.body):
            assert isinstance(s, Tile)  # as above
            self.bind(self._columns_line(s))
        self._warpgroup = self.m("shr", self.index, 7) if self._plan.of_warpgroups else word(0)
        self._grid_places = self._raster()
        return super().run()

    def _raster(self) -> dict[str, Atom]:
        """The workgroup's place along x and y, by query, in an order in which workgroups that run at once share more of what they load: down several rows of
        the grid, then on to the next column of these."""
        m = self.m
        across, down = m("num_workgroups.x"), m("num_workgroups.y")
        number = m("add", m("mul", m("workgroup_id.y"), across), m("workgroup_id.x"))
        band = m("mul", across, _BAND)
        first = m("mul", m("div", number, band), _BAND)
        rows, within = m("min", m("sub", down, first), word(_BAND)), m("rem", number, band)
        return {"workgroup_id.x": m("div", within, rows), "workgroup_id.y": m("add", first, m("rem", within, rows))}

    def layout_of(self, value: Value) -> TileLayout:
        return self._layouts.values.get(value.id, self.invocations)

    def layout_of_variable(self, variable: Variable) -> TileLayout:
        return self._layouts.variables.get(variable.id, self.invocations)

    # ---- views

    def _viewed(self) -> dict[Memory, int]:
        """The buffers that are seen in groups of so many elements: every copy from them begins on a multiple, and is of as many."""
        strips = [item for ring in self._plan.rings.values() for loads in (ring.loads, ring.staying) for item in loads.items()]
        loads = [(s, strip.lanes) for at, strip in strips if isinstance(s := self.program.body[at], TileLoad)]
        wanted = {s.memory: lanes for s, lanes in loads if s.memory.space is Space.BUFFER}
        read = {
            m: lanes for m, lanes in wanted.items()
            if splits(m, lanes) and all(self._plan.multiple(s.indices[-1]) % lanes == 0 and other == lanes for s, other in loads if s.memory is m)
        }  # fmt: skip
        return read | {m: lanes for m in self.program.buffers if (lanes := self._stored_together(m)) > 1}

    def _stored_together(self, memory: Memory) -> int:
        """How many neighbours a lane stores together of a buffer that is only written, by tiles that lie as sums do; 1 for any other."""
        touching = [s for s in self.program.body if isinstance(s, MemoryStatement) and s.memory is memory]
        stores = [s for s in touching if isinstance(s, TileStore) and isinstance(s.value, Value) and s.extents[-1] > 1]
        layouts = [(self._layouts.values.get(s.value.id, self.invocations), s.value.type.shape) for s in stores if isinstance(s.value, Value)]
        if not touching or len(stores) < len(touching) or not all(isinstance(layout, Accumulator) for layout, _ in layouts):
            return 1
        several = [TOGETHER, _PAIR] if memory.type in _NARROW and all(gathered(*layout) for layout in layouts) else [_PAIR]
        return next((n for n in several if splits(memory, n) and all(self._plan.multiple(s.indices[-1]) % n == 0 for s in stores)), 1)

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

        return Shared(tile.shape, layout, LazyRegisters(layout.registers(tile.shape), compute, TOGETHER))

    # ---- statements

    def take(self, index: int) -> None:
        """Takes in old statement `index`."""
        s = self.begin(index)
        if index in self._plan.skipped:
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
            self.copy(index)
            self.copy_wait(0)
            self._end_products(self._ends[index])
        elif cores_take(s):
            assert isinstance(s, Tile)  # what tensor cores take
            if index in self._plan.of_warpgroups:
                self._product_of_warpgroups(index, s)
            else:
                self.keep(s.bound, self._product(s))
        elif index not in self._late_sets:
            if isinstance(s, Get):
                self._land_late(s.variable)
            super().take(index)

    def _begin(self, loop: int, s: For, ring: Ring) -> None:
        start, stop, step = [self.atom(a) for a in s.args]
        self._begin_products(ring)
        self.barrier()  # others may still load from the strips
        for index, strip in ring.staying.items():
            load = self.program.body[index]
            assert isinstance(load, TileLoad)  # of a ring
            self._copy(load, strip, word(0))
        turn = self.for_(word(0), word(ring.ahead), word(1))
        self._copy_ahead(s, ring, self._turn(start, step, turn), step, turn)
        self.end()
        counter = self.var(u32, word(0))
        value = self.for_(start, stop, step, self.program.value_names.get(s.bound.id), s.unroll)
        self.map[s.bound.id] = value
        turn_now = self.get(counter)
        self.set(counter, self.m("add", turn_now, 1))
        self._now[loop], self._turns[loop], self._counters[loop] = self.m("rem", turn_now, ring.count), turn_now, counter
        self.copy_wait(ring.ahead - 1)
        self.barrier()

        def copy_ahead() -> None:
            self._copy_ahead(s, ring, self._turn(value, step, word(ring.ahead)), step, self.m("rem", self.m("add", turn_now, ring.ahead), ring.count))

        # The first product of warpgroups is begun before: it goes on meanwhile.
        if self._plan.of_warpgroups & ring.products:
            self._due[loop] = copy_ahead
        else:
            copy_ahead()

    def _turn(self, value: Atom, step: Atom, turns: Atom) -> Atom:
        """The loop's value some turns on. It may wrap, past the end."""
        return self.m("add", value, self.m("mul", step, turns if step.type is u32 else self.m.cast(turns, step.type)))

    def _copy_ahead(self, s: For, ring: Ring, value: Atom, step: Atom, strip: Atom) -> None:
        """Begins the copies of the turn of a value; for products that are late those of the turn before."""
        before = list(self.map)
        for is_late in (False, True)[: 1 + bool(ring.late)]:
            self.map[s.bound.id] = self.m("sub", value, step) if is_late else value
            for index in ring.slice:
                self.copy(index)
            for index, room in ring.loads.items():
                load = self.program.body[index]
                assert isinstance(load, TileLoad)  # of a ring
                if (index in ring.late_loads) is is_late:
                    self._copy(load, room, strip)
        self.copy_commit()
        self.map = before

    def _copy(self, s: TileLoad, strip: Strip, number: Atom) -> None:
        """Copies a tile into a strip, group by group."""
        count, total = self.invocations.count, strip.rows * strip.length // strip.lanes
        first = self.m("mul", number, strip.groups)
        if s.memory in self._views:
            for done in range(0, total, count):
                self._copy_group(s, strip, first, word(done), ragged=done + count > total)
        else:  # element by element, each with checks of its own, which would be long written out
            begin = self.for_(word(0), word(total), word(count))
            self._copy_group(s, strip, first, begin, ragged=total % count > 0)
            self.end()

    def _copy_group(self, s: TileLoad, strip: Strip, first: Atom, begin: Atom, *, ragged: bool) -> None:
        """Copies the invocation's own group, from one on, into the strip that begins at a group."""
        m, across, total = self.m, strip.length // strip.lanes, strip.rows * strip.length // strip.lanes
        group = m("add", self.index, begin)
        row, column = m("div", group, across), m("rem", group, across)
        to = m("add", first, self._group(strip, row, column))
        if ragged:
            to = m("select", m("lt", group, total), to, NOWHERE)
        found = [self.load(s.memory, at) for at in self._sources(s, strip.lanes, row, column)]
        for lane, value in enumerate(found):
            self.copy_async(strip.memory, (to, word(lane)), value)

    def _group(self, strip: Strip, row: Atom, column: Atom) -> Atom:
        """Where a group of a row lies in a strip."""
        m = self.m
        if not strip.swizzled:
            return m("add", m("mul", row, strip.stride // strip.lanes), column)
        place = m("add", m("mul", row, GROUPS), m("xor", m("and", column, GROUPS - 1), m("and", row, GROUPS - 1)))
        return place if strip.length == GROUPS * strip.lanes else m("add", m("mul", m("div", column, GROUPS), strip.rows * GROUPS), place)

    def _sources(self, s: TileLoad, lanes: int, row: Atom, column: Atom) -> list[tuple[Atom, ...]]:
        """The indices of the elements of a group."""
        *outer, last = [self.atom(a) for a in s.indices]
        indices = [self.beyond(offset, row) if extent else offset for offset, extent in zip(outer, s.extents, strict=False)]
        if s.memory in self._views:
            group = self.m("add", self.m("shr", last, lanes.bit_length() - 1), self.m.cast(column, last.type) if last.type is not u32 else column)
            return [(*indices, group, word(lane)) for lane in range(lanes)]
        return [(*indices, self.beyond(last, self.m("add", self.m("mul", column, lanes), lane))) for lane in range(lanes)]

    # ---- products

    def _product(self, s: Tile) -> Shared:
        (m, depth), (_, n) = s.args[0].type.shape, s.args[1].type.shape
        layout = self._layouts.values[s.bound.id]
        assert isinstance(layout, Accumulator)  # of what tensor cores compute
        acc = self.moved(self.tile_of(s.args[2]), layout)
        rows, columns = (len(layout.offsets((m, n), 0)) // 2, len(layout.offsets((m, n), 1)) // 2)
        sums = self._sums_of(acc.type, 4 * rows * columns)
        places = {
            (2 * row + h, 2 * column + e): word(4 * (row * columns + column) + 2 * h + e)
            for row in range(rows) for column in range(columns) for h in range(2) for e in range(2)
        }  # fmt: skip
        for r, at in places.items():
            self.store(sums, (at,), acc.registers[r])
        factors = [self._factor(atom, number) for number, atom in enumerate(s.args[:2])]
        depth_bytes = depth * s.args[0].type.scalar.size_bytes
        k = self.for_(word(0), word(depth_bytes // GROUP_BYTES), word(DEEP_BYTES // GROUP_BYTES), unroll=depth_bytes // DEEP_BYTES)
        left = [[self._lane(factors[0], self.element(layout, (m, n), 0, 2 * row + h), k) for h in range(2)] for row in range(rows)]
        place = self.bind(self._columns_line(s))
        right = [self._lane(factors[1], self.m("add", place, 8 * column), k) for column in range(columns)]
        for row in range(rows):
            for column in range(columns):
                first = word(4 * (row * columns + column))
                self.emit(TensorCore(None, (first, *left[row][0], *left[row][1], *right[column]), sums))
        self.end()
        return Shared((m, n), layout, {r: self.load(sums, (at,)) for r, at in places.items()})

    def _sums_of(self, type_: Type, count: int) -> Memory:
        """The private array of sums, with room for so many."""
        return self._array(f"tile:sums.{type_}.{count}", Space.PRIVATE, type_, count)

    def _lane(self, factor: tuple[Strip, Atom], place: Atom, k: Atom) -> list[Atom]:
        """A group of elements at a place along the other axis, in the k-th group along k, or for lane t of four t groups on."""
        (strip, first), m = factor, self.m
        lanes = strip.lanes
        lane = self.bind(_LANE_COLUMN)
        if strip.along_k:
            group = m("add", first, m("add", m("mul", place, strip.stride // lanes), m("add", lane, k)))
            return [self.load(strip.memory, (group, word(j))) for j in range(lanes)]
        at = m("add", m("mul", lane, lanes * strip.stride), place)
        group = m("add", m("add", first, m("shr", at, lanes.bit_length() - 1)), m("mul", k, strip.stride))
        within = m("and", place, lanes - 1)
        return [self.load(strip.memory, (m("add", group, j * strip.stride // lanes), within)) for j in range(lanes)]

    def _columns_line(self, s: Tile) -> Line:
        """The places along columns of what lanes have of the second factor."""
        layout, (_, n) = self._layouts.values[s.bound.id], s.bound.type.shape
        assert isinstance(layout, Accumulator)  # of what tensor cores compute
        return Line(WARP, layout.across, n // layout.across, _LANE_ROW)
