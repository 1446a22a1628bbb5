"""The rewrite of a Program whose products tensor cores compute.

A factor lies in workgroup memory as a `Strip`: rows of elements, padded so that what the lanes of a warp load at once lies in different banks. What a loop
loads from buffers for its products is copied there ahead, while the products of earlier turns are computed (`_Ring`): the loads of a turn, and what their
offsets are computed from, are written out again for a turn that is some turns ahead.

One module because the rings, the copies into them and the products over them are planned together, and each reads what the others have laid down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, Final

from vyre_py.ir.check.facts import uses
from vyre_py.ir.language.dims import DimConst, dim_op
from vyre_py.ir.language.effects import JUMPS
from vyre_py.ir.language.nodes import (
    Access,
    Atom,
    Const,
    End,
    For,
    Get,
    Let,
    Load,
    Memory,
    Set,
    Space,
    TensorCore,
    Tile,
    TileLoad,
    Value,
    Variable,
    VariableStatement,
    WarpgroupProduct,
    WarpgroupWait,
)
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import f32, u32
from vyre_py.ir.math.builder import word
from vyre_py.lowering.tiles.exchange import NOWHERE, Shared
from vyre_py.lowering.tiles.rewrite import Rewrite
from vyre_py.lowering.tiles.tensor import (
    ROWS,
    WARP,
    Accumulator,
    accumulators,
    cores_take,
    invocations_for,
    warpgroups_take,
)
from vyre_py.lowering.tiles.tile_layout import Line, TileLayout, invocation_grid, shapes_of

__all__ = ["for_tensor_cores", "uses_tensor_cores"]

_LANES: Final = 4  # elements that are copied, and loaded by a lane, together
_SWIZZLED: Final = 8  # elements that are copied together to where warpgroups read them
_SWIZZLED_ROW: Final = 64
_BAND: Final = 8  # rows of the grid
_FEWEST: Final = 2  # strips of a ring
_MOST: Final = 4
_LANE_ROW, _LANE_COLUMN = Line(4, 8), Line(1, 4)
_FIRST: Final = word(0)


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


@dataclass(frozen=True, slots=True)
class _Strip:
    """Where a factor lies: `rows` of `length` elements, `stride` apart, in each of `count` strips of an array. Rows go `along_k`, or each is one k. An array's
    last axis is a group of `lanes` elements. A `swizzled` one has 64 elements of each row, then the next 64 of each, and so on; of row r, group g of eight
    lies in the place of group g ^ r % 8."""

    memory: Memory
    rows: int
    length: int
    stride: int
    count: int
    along_k: bool
    lanes: int = _LANES

    @property
    def groups(self) -> int:
        """How many groups of elements a strip is long."""
        return self.rows * self.stride // self.lanes

    @property
    def swizzled(self) -> bool:
        """Whether it is for products of warpgroups."""
        return self.lanes == _SWIZZLED


@dataclass(frozen=True, slots=True)
class _Source:
    """What a factor is loaded from: statement `at`, `load`; the statements that make the factor of it, with that; and those that compute its offsets."""

    at: int
    load: TileLoad
    chain: tuple[int, ...]
    offsets: tuple[int, ...]


@dataclass(slots=True)
class _Ring:
    """A loop whose factors are copied ahead: their loads, each with the strip that it fills, and the statements that compute offsets."""

    loads: dict[int, _Strip]
    slice: list[int]
    count: int = 2
    ahead: int = 1
    now: Atom = _FIRST  # the strip of the turn at hand
    due: Callable[[], None] | None = None  # the copies of the turn at hand, until they are begun


class _CoresRewrite(Rewrite):
    def __init__(self, program: Program, target: str, memory_bytes: int, *, wide: bool, warpgroups: bool) -> None:
        super().__init__(program, target, invocation_grid(program, count=invocations_for(program, warpgroups=warpgroups)), memory_bytes // 8)
        self._has_warpgroups = warpgroups
        self._made_by: dict[int, int] = {s.result.id: index for index, s in enumerate(program.body) if s.result is not None}
        self._strips: dict[int, tuple[_Strip, _Ring | None]] = {}  # of a factor, by the number of the value
        self._skipped: set[int] = set()
        self._sums: Memory | None = None
        self._ring_bytes = memory_bytes // 8 * 7
        self._of_warpgroups: set[int] = set()
        self._products: dict[int, set[int]] = {}  # by loop
        self._rings = self._planned()
        self._layouts = accumulators(program, self.invocations, self._of_warpgroups)
        self._views = {m: _view(m, lanes) for m, lanes in self._viewed().items()} if wide else {}
        self._ends = {self.program.match[loop]: loop for loop in self._rings}
        self._lasting: dict[int, list[Variable]] = {}  # by loop: the variables that its products add to all the time

    def run(self) -> Program:
        """The Program of invocations."""
        tiles: list[tuple[TileLayout, tuple[int, ...]]] = [(self.invocations, shape) for shape in shapes_of(self.program)]
        tiles += [(layout, layout.shape) for layout in {*self._layouts.values.values(), *self._layouts.variables.values()} if isinstance(layout, Accumulator)]
        tiles += [
            (layout, s.result.type.shape) for s in self.program.body
            if s.result is not None and s.result.type.is_tile and (layout := self._layouts.values.get(s.result.id)) is not None
        ]
        tiles += [
            (layout, a.type.shape) for s in self.program.body if isinstance(s, Let) and s.bound.type.is_tile
            and (layout := self._layouts.values.get(s.bound.id)) is not None for a in s.args if a.type.is_tile
        ]
        self.prepare(tiles)
        for line in (_LANE_ROW, _LANE_COLUMN):
            self.bind(line)
        for layout in {layout for layout, _ in tiles if isinstance(layout, Accumulator)}:
            self.bind(_columns_line(layout))
        self._warpgroup = self.m("shr", self.index, 7) if self._of_warpgroups else word(0)
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

    # ---- which loops copy ahead

    def _planned(self) -> dict[int, _Ring]:
        """The loops that copy ahead, by statement, and where their factors lie."""
        counts, body = uses(self.program), self.program.body
        rings: dict[int, _Ring] = {}
        around: list[int] = []
        for index, s in enumerate(body):
            if s.opens:
                around.append(index)
            elif type(s) is End:
                around.pop()
            elif cores_take(s) and around and isinstance(body[around[-1]], For):
                self._plan(rings, around[-1], index, counts)
        for loop, ring in rings.items():
            self.place = self.program.place(loop)
            self._settle(ring)
        return rings

    def _plan(self, rings: dict[int, _Ring], loop: int, product: int, counts: Sequence[int]) -> None:
        """Takes the factors of a product into the ring of a loop, those that can be copied ahead."""
        s = self.program.body[product]
        sources = [self._source(loop, atom, counts) for atom in s.args[:2]]
        along_k = [(number == 0) is not (source is not None and len(source.chain) > 1) for number, source in enumerate(sources)]
        taken = self._has_warpgroups and None not in sources and warpgroups_take(s, self.invocations.count, along_k=(along_k[0], along_k[1]))
        self._products.setdefault(loop, set()).add(product)
        if taken:
            self._of_warpgroups.add(product)
        for atom, source, goes_along in zip(s.args[:2], sources, along_k, strict=True):
            if source is None or not isinstance(atom, Value):
                continue
            ring = rings.setdefault(loop, _Ring({}, []))
            ring.loads[source.at] = self._strip(source.load, goes_along, swizzled=taken)
            ring.slice += [index for index in source.offsets if index not in ring.slice]
            self._strips[atom.id] = ring.loads[source.at], ring
            self._skipped |= set(source.chain)

    def _strip(self, s: TileLoad, along_k: bool, *, swizzled: bool) -> _Strip:
        rows, length = s.shape
        lanes = _SWIZZLED if swizzled else _LANES
        stride = length if swizzled else _padded(length, 32, ROWS) if along_k else _padded(length, ROWS, _LANES)
        memory = Memory(f"tile:{s.memory.type}.{len(self._strips)}", Space.WORKGROUP, s.memory.type, (DimConst(1), DimConst(lanes)), Access.READ_WRITE)
        return _Strip(memory, rows, length, stride, 1, along_k, lanes)

    def _source(self, loop: int, atom: Atom, counts: Sequence[int]) -> _Source | None:
        """What a factor is loaded from, if it is loaded in a loop for nothing else, with offsets that can be computed ahead."""
        assert isinstance(atom, Value)  # a tile
        body = self.program.body
        at = self._made_by[atom.id]
        s = body[at]
        chain = [at]
        if isinstance(s, Tile) and s.op.name == "transpose" and counts[atom.id] == 1:
            at = self._made_by[s.args[0].id] if isinstance(s.args[0], Value) else at
            s = body[at]
            chain.append(at)
        if not isinstance(s, TileLoad) or counts[s.bound.id] != 1 or s.memory.access is not Access.READ or not s.extents[-1]:
            return None
        if any(self._block_of(index) != loop for index in chain) or any(JUMPS[type(inner)] for inner in body[loop : self.program.match[loop]]):
            return None
        offsets = self._slice(loop, s.indices)
        return None if offsets is None else _Source(at, s, tuple(chain), tuple(offsets))

    def _settle(self, ring: _Ring) -> None:
        """Decides how many strips a ring has, and gives their arrays sizes. Raises Unsupported where two are too many."""
        strip_bytes = sum([strip.groups * strip.lanes * strip.memory.type.size_bytes for strip in ring.loads.values()])
        count = min(_MOST, self._ring_bytes // strip_bytes)
        if count < _FEWEST:
            self.refuse(f"a loop whose factors take {_FEWEST} times {strip_bytes} bytes of workgroup memory, of {self._ring_bytes},", "use smaller tiles")
        # A warpgroup computes the product of one turn while it begins the next, so that one strip more is in use.
        ring.ahead = count - 1 - (count > _FEWEST and any(strip.swizzled for strip in ring.loads.values()))
        ring.count = count
        ring.slice.sort()
        for at, strip in ring.loads.items():
            memory = replace(strip.memory, shape=(DimConst(strip.groups * count), DimConst(strip.lanes)))
            sized = replace(strip, memory=memory, count=count)
            self.memories.append(memory)
            for value, (known, own) in list(self._strips.items()):
                if known is strip:
                    self._strips[value] = sized, own
            ring.loads[at] = sized

    def _block_of(self, index: int) -> int:
        """The statement that opens the innermost block around a statement; -1 for the body."""
        depth = 0
        for at in range(index - 1, -1, -1):
            s = self.program.body[at]
            if type(s) is End:
                depth += 1
            elif s.opens:
                if not depth:
                    return at
                depth -= 1
        return -1

    def _slice(self, loop: int, atoms: Sequence[Atom]) -> list[int] | None:
        """The statements of a loop's own block from which these are computed, from its value and from what comes before it; None if others are needed."""
        body, found, waiting = self.program.body, set[int](), list(atoms)
        while waiting:
            atom = waiting.pop()
            if not isinstance(atom, Value) or (at := self._made_by[atom.id]) <= loop or at in found:
                continue
            if not isinstance(body[at], Let) or self._block_of(at) != loop:
                return None
            found.add(at)
            waiting += body[at].args
        return sorted(found)

    def _viewed(self) -> dict[Memory, int]:
        """The buffers that are seen in groups of so many elements: every copy from them begins on a multiple, and is of as many."""
        loads = [(s, strip.lanes) for ring in self._rings.values() for at, strip in ring.loads.items() if isinstance(s := self.program.body[at], TileLoad)]
        wanted = {s.memory: lanes for s, lanes in loads if s.memory.space is Space.BUFFER}
        return {
            m: lanes for m, lanes in wanted.items()
            if _splits(m, lanes) and all(self._multiple(s.indices[-1]) % lanes == 0 and other == lanes for s, other in loads if s.memory is m)
        }  # fmt: skip

    def _multiple(self, atom: Atom, depth: int = 8) -> int:
        """A power of two that an offset is known to be a multiple of, up to wrapping."""
        if isinstance(atom, Const):
            return atom.bits & -atom.bits or 1 << 31
        if not isinstance(atom, Value) or not depth:
            return 1
        s = self.program.body[self._made_by[atom.id]]
        if isinstance(s, For):
            return gcd(self._multiple(s.args[0], depth - 1), self._multiple(s.args[2], depth - 1))
        if isinstance(s, Let) and s.op.name in _MULTIPLES:
            return min(1 << 31, _MULTIPLES[s.op.name](*[self._multiple(a, depth - 1) for a in s.args[:2]]))
        return 1

    # ---- statements

    def take(self, index: int) -> None:
        """Takes in old statement `index`."""
        s = self.program.body[index]
        self.place = self.program.place(index)
        if index in self._skipped:
            return
        if isinstance(s, Let) and s.op.name in self._grid_places:
            self.map[s.bound.id] = self._grid_places[s.op.name]
            return
        if (ring := self._rings.get(index)) is not None:
            assert isinstance(s, For)  # what has a ring
            self._begin(index, s, ring)
        elif index in self._ends:
            self.copy(index)
            self.copy_wait(0)
            for variable in self._lasting.get(self._ends[index], ()):
                self._wait_for(variable)
        elif cores_take(s):
            assert isinstance(s, Tile)  # what tensor cores take
            self.keep(s.bound, self._product_of_warpgroups(index, s) if index in self._of_warpgroups else self._product(s))
        else:
            super().take(index)

    def _begin(self, loop: int, s: For, ring: _Ring) -> None:
        start, stop, step = [self.atom(a) for a in s.args]
        self.barrier()  # others may still load from the strips
        for turn in range(ring.ahead):
            self._copy_ahead(s, ring, self._turn(start, step, turn), word(turn))
        counter = self.var(u32, word(0))
        value = self.for_(start, stop, step, self.program.value_names.get(s.bound.id), s.unroll)
        self.map[s.bound.id] = value
        turn_now = self.get(counter)
        self.set(counter, self.m("add", turn_now, 1))
        ring.now = self.m("rem", turn_now, ring.count)
        self.copy_wait(ring.ahead - 1)
        self.barrier()

        def copy_ahead() -> None:
            self._copy_ahead(s, ring, self._turn(value, step, ring.ahead), self.m("rem", self.m("add", turn_now, ring.ahead), ring.count))

        # The first product of warpgroups is begun before: it goes on meanwhile.
        ring.due = copy_ahead if self._of_warpgroups & self._products[loop] else None
        if ring.due is None:
            copy_ahead()

    def _turn(self, value: Atom, step: Atom, turns: int) -> Atom:
        """The loop's value some turns on. It may wrap, past the end."""
        return self.m("add", value, self.m("mul", step, turns)) if turns else value

    def _copy_ahead(self, s: For, ring: _Ring, value: Atom, strip: Atom) -> None:
        """Begins the copies of the turn of a value."""
        before = list(self.map)
        self.map[s.bound.id] = value
        for index in ring.slice:
            self.copy(index)
        for index, room in ring.loads.items():
            load = self.program.body[index]
            assert isinstance(load, TileLoad)  # of a ring
            self._copy(load, room, strip)
        self.copy_commit()
        self.map = before

    def _copy(self, s: TileLoad, strip: _Strip, number: Atom) -> None:
        """Copies a tile into a strip, group by group."""
        m, count, across = self.m, self.invocations.count, strip.length // strip.lanes
        total = strip.rows * across
        first = m("mul", number, strip.groups)
        for begin in range(0, total, count):
            group = m("add", self.index, begin)
            row, column = m("div", group, across), m("rem", group, across)
            to = m("add", first, self._group(strip, row, column))
            if begin + count > total:
                to = m("select", m("lt", group, total), to, NOWHERE)
            found = [self.load(s.memory, at) for at in self._sources(s, strip.lanes, row, column)]
            for lane, value in enumerate(found):
                self.copy_async(strip.memory, (to, word(lane)), value)

    def _group(self, strip: _Strip, row: Atom, column: Atom) -> Atom:
        """Where a group of a row lies in a strip."""
        m = self.m
        if not strip.swizzled:
            return m("add", m("mul", row, strip.stride // strip.lanes), column)
        groups = _SWIZZLED_ROW // _SWIZZLED
        place = m("add", m("mul", row, groups), m("xor", m("and", column, groups - 1), m("and", row, groups - 1)))
        return place if strip.length == _SWIZZLED_ROW else m("add", m("mul", m("div", column, groups), strip.rows * groups), place)

    def _sources(self, s: TileLoad, lanes: int, row: Atom, column: Atom) -> list[tuple[Atom, ...]]:
        """The indices of the elements of a group."""
        *outer, last = [self.atom(a) for a in s.indices]
        indices = [self.beyond(offset, row) if extent else offset for offset, extent in zip(outer, s.extents, strict=False)]
        if s.memory in self._views:
            group = self.m("add", self.m("shr", last, lanes.bit_length() - 1), self.m.cast(column, last.type) if last.type is not u32 else column)
            return [(*indices, group, word(lane)) for lane in range(lanes)]
        return [(*indices, self.beyond(last, self.m("add", self.m("mul", column, lanes), lane))) for lane in range(lanes)]

    def load(self, memory: Memory, indices: tuple[Atom, ...], name: str | None = None) -> Value:
        """result = memory[indices], of what stands for the memory."""
        view = self._views.get(memory)
        if view is not None and len(indices) == memory.rank:
            *outer, last = indices
            lanes = view.shape[-1]
            assert isinstance(lanes, DimConst)  # of a view
            indices = (*outer, self.m("shr", last, lanes.value.bit_length() - 1), self.m("and", last, lanes.value - 1))
        return super().load(view or memory, indices, name)

    def finish(self, places: Any = None) -> Program:
        """The Program, with the views of its buffers in their place."""
        self.memories = [self._views.get(m, m) for m in self.memories]
        return super().finish(places)

    def copy(self, index: int) -> Value | None:
        """Copies old statement `index`; a load of a buffer that has a view is of that."""
        s = self.program.body[index]
        if isinstance(s, Load) and s.memory in self._views:
            made = self.map[s.bound.id] = self.load(s.memory, tuple([self.atom(a) for a in s.args]), self.program.value_names.get(s.bound.id))
            return made
        return super().copy(index)

    # ---- products

    def _product(self, s: Tile) -> Shared:
        (m, depth), (_, n) = s.args[0].type.shape, s.args[1].type.shape
        layout = self._layouts.values[s.bound.id]
        assert isinstance(layout, Accumulator)  # of what tensor cores compute
        acc = self.moved(self.tile_of(s.args[2]), layout)
        rows, columns = (len(layout.offsets((m, n), 0)) // 2, len(layout.offsets((m, n), 1)) // 2)
        sums = self._sums_of(4 * rows * columns)
        places = {
            (2 * row + h, 2 * column + e): word(4 * (row * columns + column) + 2 * h + e)
            for row in range(rows) for column in range(columns) for h in range(2) for e in range(2)
        }  # fmt: skip
        for r, at in places.items():
            self.store(sums, (at,), acc.registers[r])
        factors = [self._factor(atom, number) for number, atom in enumerate(s.args[:2])]
        k = self.for_(word(0), word(depth // _LANES), word(ROWS // _LANES), unroll=depth // ROWS)
        left = [[self._lane(factors[0], self.element(layout, (m, n), 0, 2 * row + h), k) for h in range(2)] for row in range(rows)]
        place = self.bind(_columns_line(layout))
        right = [self._lane(factors[1], self.m("add", place, 8 * column), k) for column in range(columns)]
        for row in range(rows):
            for column in range(columns):
                first = word(4 * (row * columns + column))
                self.emit(TensorCore(None, (first, *left[row][0], *left[row][1], *right[column]), sums))
        self.end()
        return Shared((m, n), layout, {r: self.load(sums, (at,)) for r, at in places.items()})

    def _product_of_warpgroups(self, index: int, s: Tile) -> Shared:
        (m, depth), (_, n) = s.args[0].type.shape, s.args[1].type.shape
        layout, acc = self._layouts.values[s.bound.id], self.moved(self.tile_of(s.args[2]), self._layouts.values[s.bound.id])
        (left, left_first), (right, right_first) = [self._factor(atom, number) for number, atom in enumerate(s.args[:2])]
        sums, places = self._put_sums(acc)
        rows = self.m("add", left_first, self.m("mul", self._warpgroup, 64 * _SWIZZLED_ROW // _SWIZZLED))
        self.emit(WarpgroupProduct(None, (rows, right_first), sums, left.memory, right.memory, m, depth, n, int(right.along_k)))
        ring = self._rings[self._block_of(index)]
        if ring.due is not None:
            ring.due()
            ring.due = None
        lasting = self._lasting_variable(index, s)
        if lasting is not None:
            self._lasting.setdefault(self._block_of(index), []).append(lasting)
        self.emit(WarpgroupWait(None, (word(int(lasting is not None)),), sums))
        return Shared((m, n), layout, {r: self.load(sums, (at,)) for r, at in places.items()})

    def _put_sums(self, tile: Shared) -> tuple[Memory, dict[tuple[int, ...], Const]]:
        """A tile in the private array for products of warpgroups: it, and the places of the registers."""
        columns = len(tile.layout.offsets(tile.shape, 1)) // 2
        places: dict[tuple[int, ...], Const] = {
            (h, 2 * column + e): word(4 * column + 2 * h + e) for column in range(columns) for h in range(2) for e in range(2)
        }
        sums = self._sums_of(4 * columns)
        for r, at in places.items():
            self.store(sums, (at,), tile.registers[r])
        return sums, places

    def _lasting_variable(self, index: int, s: Tile) -> Variable | None:
        """The variable to which a loop's product adds, if nothing else in the loop reads or sets it: then a turn need not wait for its sums."""
        body = self.program.body
        before = body[self._made_by[s.args[2].id]] if isinstance(s.args[2], Value) else None
        loop = self._block_of(index)
        inside = body[loop : self.program.match[loop]]
        if not isinstance(before, Get) or sum(s.bound in other.args for other in body) != 1:
            return None
        touching = [other for other in inside if isinstance(other, VariableStatement) and other.variable is before.variable]
        is_set = len(touching) == 2 and touching[0] is before and isinstance(touching[1], Set) and touching[1].args[0] is s.bound
        return before.variable if is_set and sum(before.bound in other.args for other in body) == 1 else None

    def _wait_for(self, variable: Variable) -> None:
        """Waits for the sums of a variable."""
        layout, parts = self.parts_of(variable)
        tile = Shared(variable.type.shape, layout, {r: self.get(part) for r, part in parts.items()})
        sums, places = self._put_sums(tile)
        self.emit(WarpgroupWait(None, (word(0),), sums))
        for r, at in places.items():
            self.set(parts[r], self.load(sums, (at,)))

    def _sums_of(self, count: int) -> Memory:
        """The private array of sums, with room for so many."""
        if self._sums is None or self._sums.shape != (DimConst(count),):
            self._sums = Memory(f"tile:sums.{count}", Space.PRIVATE, f32, (DimConst(count),), Access.READ_WRITE)
            known = next((m for m in self.memories if m.name == self._sums.name), None)
            if known is None:
                self.memories.append(self._sums)
            else:
                self._sums = known
        return self._sums

    def _factor(self, atom: Atom, number: int) -> tuple[_Strip, Atom]:
        """The strip in which a factor lies, and where that begins, in groups."""
        assert isinstance(atom, Value)  # a tile
        if atom.id in self._strips:
            strip, ring = self._strips[atom.id]
            return strip, self.m("mul", ring.now, strip.groups) if ring is not None else word(0)
        tile = self.moved(self.tile_of(atom), self.invocations)
        rows, length = tile.shape
        along_k = number == 0
        stride = _padded(length, 32, ROWS) if along_k else _padded(length, ROWS, _LANES)
        name = f"tile:{tile.type}.{rows}x{length}.{number}"
        memory = next((m for m in self.memories if m.name == name), None)
        if memory is None:
            memory = Memory(name, Space.WORKGROUP, tile.type, (DimConst(rows * stride // _LANES), DimConst(_LANES)), Access.READ_WRITE)
            self.memories.append(memory)
        self.barrier()
        for r, value in tile.registers.items():
            at = self.where(self.inside(tile.layout, tile.shape, r), self.linear(tile.layout, tile.shape, r, (stride, 1)), NOWHERE)
            self.store(memory, (self.m("shr", at, _LANES.bit_length() - 1), self.m("and", at, _LANES - 1)), value)
        self.barrier()
        return _Strip(memory, rows, length, stride, 1, along_k), word(0)

    def _lane(self, factor: tuple[_Strip, Atom], place: Atom, k: Atom) -> list[Atom]:
        """Four elements at a place along the other axis, in the k-th group along k, or for lane t of four t groups on."""
        (strip, first), m = factor, self.m
        lane = self.bind(_LANE_COLUMN)
        if strip.along_k:
            group = m("add", first, m("add", m("mul", place, strip.stride // _LANES), m("add", lane, k)))
            return [self.load(strip.memory, (group, word(j))) for j in range(_LANES)]
        at = m("add", m("mul", lane, _LANES * strip.stride), place)
        group = m("add", m("add", first, m("shr", at, _LANES.bit_length() - 1)), m("mul", k, strip.stride))
        within = m("and", place, _LANES - 1)
        return [self.load(strip.memory, (m("add", group, j * strip.stride // _LANES), within)) for j in range(_LANES)]


_MULTIPLES: Final[Mapping[str, Callable[..., int]]] = {
    "add": gcd, "sub": gcd, "mul": lambda a, b: a * b, "min": gcd, "max": gcd,
}  # fmt: skip


def _padded(length: int, modulus: int, rest: int) -> int:
    """The least stride from a length on that is `rest` modulo `modulus`."""
    return length + (rest - length) % modulus


def _columns_line(layout: Accumulator) -> Line:
    """The places along columns of what lanes have of the second factor."""
    return Line(WARP, layout.across, layout.shape[1] // layout.across, _LANE_ROW)


def _splits(memory: Memory, lanes: int) -> bool:
    """Whether the rows of a buffer may be groups of elements."""
    last = memory.shape[-1]
    return not isinstance(last, DimConst) or last.value % lanes == 0


def _view(memory: Memory, lanes: int) -> Memory:
    """A buffer, whose last axis becomes one of groups and one of the elements of each."""
    *outer, last = memory.shape
    return replace(memory, shape=(*outer, dim_op("ceil_div", last, DimConst(lanes)), DimConst(lanes)))
