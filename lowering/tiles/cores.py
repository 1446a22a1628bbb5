"""The rewrite of a Program whose products tensor cores compute.

A factor lies in workgroup memory as a `Strip`: rows of elements, padded so that what the lanes of a warp load at once lies in different banks. What a loop
loads from buffers for its products is copied there ahead, while the products of earlier turns are computed (`_Ring`): the loads of a turn, and what their
offsets are computed from, are written out again for a turn that is some turns ahead.
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
    Let,
    Load,
    Memory,
    Space,
    TensorCore,
    Tile,
    TileLoad,
    Value,
    Variable,
)
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import f32, u32
from vyre_py.ir.math.builder import word
from vyre_py.lowering.tiles.exchange import NOWHERE, Shared
from vyre_py.lowering.tiles.layout import Layout, Line, invocation_grid, shapes_of
from vyre_py.lowering.tiles.rewrite import Rewrite
from vyre_py.lowering.tiles.tensor import ROWS, WARP, Accumulator, accumulators, cores_take, invocations_for

__all__ = ["for_tensor_cores", "uses_tensor_cores"]

_LANES: Final = 4  # elements that are copied, and loaded by a lane, together
_FEWEST: Final = 2  # strips of a ring
_MOST: Final = 4
_LANE_ROW, _LANE_COLUMN = Line(4, 8), Line(1, 4)


def uses_tensor_cores(program: Program) -> bool:
    """Whether tensor cores compute anything of a Program of tiles."""
    return any(map(cores_take, program.body))


def for_tensor_cores(program: Program, target: str, memory_bytes: int, *, wide: bool) -> Program:
    """A Program of invocations for a target that has tensor cores, and at most so many bytes of workgroup memory. A `wide` one has views of buffers in place
    of these, whose last axis is four elements of theirs, where it copies from them: it is for memory that begins on a multiple of 8 bytes, and rows that
    are as long as some of these.

    Raises Unsupported for what does not fit that memory.
    """
    return _CoresRewrite(program, target, memory_bytes, wide=wide).run()


@dataclass(frozen=True, slots=True)
class _Strip:
    """Where a factor lies: `rows` of `length` elements, `stride` apart, in each of `count` strips of an array. Rows go `along_k`, or each is one k."""

    memory: Memory
    rows: int
    length: int
    stride: int
    count: int
    along_k: bool

    @property
    def groups(self) -> int:
        """How many groups of elements a strip is long."""
        return self.rows * self.stride // _LANES


@dataclass(slots=True)
class _Ring:
    """A loop whose factors are copied ahead: their loads, each with the strip that it fills, and the statements that compute offsets."""

    loads: dict[int, _Strip]
    slice: list[int]
    ahead: int = 1
    now: Atom = word(0)  # the strip of the turn at hand


class _CoresRewrite(Rewrite):
    def __init__(self, program: Program, target: str, memory_bytes: int, *, wide: bool) -> None:
        super().__init__(program, target, invocation_grid(program, count=invocations_for(program)), memory_bytes // 4)
        self._layouts = accumulators(program, self.invocations)
        self._made_by: dict[int, int] = {s.result.id: index for index, s in enumerate(program.body) if s.result is not None}
        self._strips: dict[int, tuple[_Strip, _Ring | None]] = {}  # of a factor, by the number of the value
        self._skipped: set[int] = set()
        self._sums: Memory | None = None
        self._ring_bytes = memory_bytes // 4 * 3
        self._rings = self._planned()
        self._views = {m: _view(m) for m in self._viewed()} if wide else {}
        self._ends = {self.program.match[loop] for loop in self._rings}

    def run(self) -> Program:
        """The Program of invocations."""
        tiles: list[tuple[Layout, tuple[int, ...]]] = [(self.invocations, shape) for shape in shapes_of(self.program)]
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
        return super().run()

    def layout_of(self, value: Value) -> Layout:
        return self._layouts.values.get(value.id, self.invocations)

    def layout_of_variable(self, variable: Variable) -> Layout:
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
                loop = around[-1]
                for number, atom in enumerate(s.args[:2]):
                    self._plan(rings, loop, number, atom, counts)
        for loop, ring in rings.items():
            self.place = self.program.place(loop)
            self._settle(ring)
        return rings

    def _plan(self, rings: dict[int, _Ring], loop: int, number: int, atom: Atom, counts: Sequence[int]) -> None:
        """Takes a factor into the ring of a loop, if it is loaded there for nothing else, with offsets that can be computed ahead."""
        assert isinstance(atom, Value)  # a tile
        body, turned = self.program.body, False
        at = self._made_by[atom.id]
        s = body[at]
        chain = [at]
        if isinstance(s, Tile) and s.op.name == "transpose" and counts[atom.id] == 1:
            turned, at = True, self._made_by[s.args[0].id] if isinstance(s.args[0], Value) else at
            s = body[at]
            chain.append(at)
        if not isinstance(s, TileLoad) or counts[s.bound.id] != 1 or s.memory.access is not Access.READ or not s.extents[-1]:
            return
        if any(self._block_of(index) != loop for index in chain) or any(JUMPS[type(inner)] for inner in body[loop : self.program.match[loop]]):
            return
        offsets = self._slice(loop, s.indices)
        if offsets is None:
            return
        rows, length = s.shape
        along_k = (number == 0) is not turned
        stride = _padded(length, 32, ROWS) if along_k else _padded(length, ROWS, _LANES)
        memory = Memory(f"tile:{s.memory.type}.{len(self._strips)}", Space.WORKGROUP, s.memory.type, (DimConst(1), DimConst(_LANES)), Access.READ_WRITE)
        ring = rings.setdefault(loop, _Ring({}, []))
        ring.loads[at] = _Strip(memory, rows, length, stride, 1, along_k)
        ring.slice += [index for index in offsets if index not in ring.slice]
        self._strips[atom.id] = ring.loads[at], ring
        self._skipped |= set(chain)

    def _settle(self, ring: _Ring) -> None:
        """Decides how many strips a ring has, and gives their arrays sizes. Raises Unsupported where two are too many."""
        strip_bytes = sum([strip.groups * _LANES * strip.memory.type.size_bytes for strip in ring.loads.values()])
        count = min(_MOST, self._ring_bytes // strip_bytes)
        if count < _FEWEST:
            self.refuse(f"a loop whose factors take {_FEWEST} times {strip_bytes} bytes of workgroup memory, of {self._ring_bytes},", "use smaller tiles")
        ring.ahead = count - 1
        ring.slice.sort()
        for at, strip in ring.loads.items():
            memory = replace(strip.memory, shape=(DimConst(strip.groups * count), DimConst(_LANES)))
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

    def _viewed(self) -> list[Memory]:
        """The buffers that are seen in groups of elements: every copy from them begins on a multiple."""
        loads = [s for ring in self._rings.values() for at in ring.loads if isinstance(s := self.program.body[at], TileLoad)]
        wanted = dict.fromkeys([s.memory for s in loads if s.memory.space is Space.BUFFER])
        return [m for m in wanted if _splits(m) and all(self._multiple(s.indices[-1]) % _LANES == 0 for s in loads if s.memory is m)]

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
        if (ring := self._rings.get(index)) is not None:
            assert isinstance(s, For)  # what has a ring
            self._begin(s, ring)
        elif index in self._ends:
            self.copy(index)
            self.copy_wait(0)
        elif cores_take(s):
            assert isinstance(s, Tile)  # what tensor cores take
            self.keep(s.bound, self._product(s))
        else:
            super().take(index)

    def _begin(self, s: For, ring: _Ring) -> None:
        start, stop, step = [self.atom(a) for a in s.args]
        self.barrier()  # others may still load from the strips
        for turn in range(ring.ahead):
            self._copy_ahead(s, ring, self._turn(start, step, turn), word(turn))
        counter = self.var(u32, word(0))
        value = self.for_(start, stop, step, self.program.value_names.get(s.bound.id), s.unroll)
        self.map[s.bound.id] = value
        turn_now = self.get(counter)
        self.set(counter, self.m("add", turn_now, 1))
        count = ring.ahead + 1
        ring.now = self.m("rem", turn_now, count)
        self.copy_wait(ring.ahead - 1)
        self.barrier()
        self._copy_ahead(s, ring, self._turn(value, step, ring.ahead), self.m("rem", self.m("add", turn_now, ring.ahead), count))

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
        m, count, across = self.m, self.invocations.count, strip.length // _LANES
        total = strip.rows * across
        first = m("mul", number, strip.groups)
        for begin in range(0, total, count):
            group = m("add", self.index, begin)
            row, column = m("div", group, across), m("rem", group, across)
            to = m("add", first, m("add", m("mul", row, strip.stride // _LANES), column))
            if begin + count > total:
                to = m("select", m("lt", group, total), to, NOWHERE)
            found = [self.load(s.memory, at) for at in self._sources(s, row, column)]
            for lane, value in enumerate(found):
                self.copy_async(strip.memory, (to, word(lane)), value)

    def _sources(self, s: TileLoad, row: Atom, column: Atom) -> list[tuple[Atom, ...]]:
        """The indices of the elements of a group."""
        *outer, last = [self.atom(a) for a in s.indices]
        indices = [self.beyond(offset, row) if extent else offset for offset, extent in zip(outer, s.extents, strict=False)]
        if s.memory in self._views:
            group = self.m("add", self.m("shr", last, _LANES.bit_length() - 1), self.m.cast(column, last.type) if last.type is not u32 else column)
            return [(*indices, group, word(lane)) for lane in range(_LANES)]
        return [(*indices, self.beyond(last, self.m("add", self.m("mul", column, _LANES), lane))) for lane in range(_LANES)]

    def load(self, memory: Memory, indices: tuple[Atom, ...], name: str | None = None) -> Value:
        """result = memory[indices], of what stands for the memory."""
        view = self._views.get(memory)
        if view is not None and len(indices) == memory.rank:
            *outer, last = indices
            indices = (*outer, self.m("shr", last, _LANES.bit_length() - 1), self.m("and", last, _LANES - 1))
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


def _splits(memory: Memory) -> bool:
    """Whether the rows of a buffer may be groups of elements."""
    last = memory.shape[-1]
    return not isinstance(last, DimConst) or last.value % _LANES == 0


def _view(memory: Memory) -> Memory:
    """A buffer, whose last axis becomes one of groups and one of the elements of each."""
    *outer, last = memory.shape
    return replace(memory, shape=(*outer, dim_op("ceil_div", last, DimConst(_LANES)), DimConst(_LANES)))
