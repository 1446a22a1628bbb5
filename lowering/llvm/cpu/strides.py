"""Loads that step over one another: lanes that step by S elements, and S loads, a step of which each lane begins at another element.

    let a = x[4 * i]          lanes' own elements lie in groups of four:
    let b = x[4 * i + 1]      four accesses of whole vectors, whose elements
    let c = x[4 * i + 2]      shuffles put in place, instead of one a lane
    let d = x[4 * i + 3]      and element

Nothing may write between them, so those that follow the first are loaded with it, and indices that they need are computed before it.

And copies that turn rows into columns, or columns into rows: on one side lanes are neighbours, on the other the same lane of chunks that follow one another.

    tile[t & 15, t >> 4] = x[t]       eight chunks at a time: eight rows of eight lanes become
                                      eight columns by shuffles, instead of a store a lane
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import Atom, Get, Let, Load, Set, Space, Store, Value, Var
from vyre_py.ir.language.op import Level
from vyre_py.ir.language.types import u32
from vyre_py.lowering.llvm.cpu.memory import Memories, Spot
from vyre_py.lowering.llvm.cpu.plan.regions import BarrierFreeRegion
from vyre_py.lowering.llvm.cpu.values import LaneValue, LaneWriter, foreseen, known_value
from vyre_py.lowering.llvm.types import memory_type

__all__ = ["Strides", "Turned"]

# Statements that write to no memory.
_HARMLESS: Final = (Let, Load, Get, Set, Var)
# What indices are made of.
_INDEXING: Final = frozenset({"add", "sub", "mul", "shl", "shr", "and", "cast", "bitcast"})
_FARTHEST: Final = 128
# Rows and columns of a block that is turned at a time, and the bytes of its elements: eight vectors of AVX2.
_SIDE: Final = 8
_ELEMENT_BYTES: Final = 4
# How elements of two vectors come together, in rounds, of which each takes vectors that are so far apart: neighbours, pairs, and halves.
_ROUNDS: Final = (
    (1, (0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15)),
    (2, (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)),
    (4, (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)),
)
_ORDER: Final = (0, 2, 1, 3, 4, 6, 5, 7)  # where the columns are after that


class Strides:
    """The groups of a kernel. `done` has statements that were written ahead."""

    def __init__(self, memories: Memories, let: Callable[[int, Let], int]) -> None:
        self.memories, self.state, self.w = memories, memories.state, memories.w
        self.let = let
        self.done: set[int] = set()

    def load(self, index: int, s: Load) -> int | None:
        """Writes the group that begins with a load, and returns the index of the next statement; None without one."""
        first = self._whole(index, s)
        if first is None or not 2 <= first.step <= self.state.width or first.step & first.step - 1:
            return None
        body, found, makers = self.state.program.body, {first.delta: [index]}, dict[int, int]()
        for number in range(index + 1, min(index + _FARTHEST, len(body))):
            statement = body[number]
            if not isinstance(statement, _HARMLESS):
                break
            if statement.result is not None:
                makers[statement.result.id] = number
            if isinstance(statement, Load) and statement.memory is s.memory and number not in self.done and self._has_indices(makers, statement):
                offset = self._whole(number, statement)
                if offset is not None and (offset.step, offset.root) == (first.step, first.root):
                    found.setdefault(offset.delta, []).append(number)
        begin = next((delta for delta in found if all(delta + k in found for k in range(first.step))), None)
        if begin is None or not begin <= first.delta < begin + first.step:
            return None
        values = self._load_all(s, first, begin)
        for k, value in enumerate(values):
            for number in found[begin + k]:
                self.state.count()
                self.state.bind(body[number], self.w.varying(s.memory.type, value))
                self.done.add(number)
        self.done.discard(index)
        self.state.fill(s.memory.type.bits)
        return index + 1

    def _whole(self, index: int, s: Load) -> LaneValue | None:
        """The numbers of the elements, where all lanes are on and inside, and differ by a constant."""
        if s.memory.space is Space.PRIVATE or self.state.mask is not None:
            return None
        if not any(self.state.operand(a).step for a in s.indices) or self.state.unproven(index, s):
            return None
        offset = self.memories.offset(self.memories.spot(index, s))
        return offset if offset.step else None

    def _has_indices(self, makers: Mapping[int, int], s: Load) -> bool:
        """Whether the indices of a later load are there, or can be: they are computed ahead. `makers` says which statement since the first makes a value."""
        body, missing = self.state.program.body, set[int]()
        wanted = [a.id for a in s.indices if isinstance(a, Value)]
        while wanted:
            number = makers.get(wanted.pop(), -1)
            if number < 0 or number in self.done or number in missing:
                continue
            let = body[number]
            if not isinstance(let, Let) or let.op.name not in _INDEXING:
                return False
            missing.add(number)
            wanted += [a.id for a in let.args if isinstance(a, Value)]
        for number in sorted(missing):
            let = body[number]
            assert isinstance(let, Let)  # no others are missing
            self.let(number, let)
            self.done.add(number)
        return True

    def _load_all(self, s: Load, first: LaneValue, begin: int) -> list[str]:
        """All elements of the lanes' groups: those that a place in the group has, a vector each."""
        w, width, type_ = self.w, self.state.width, s.memory.type
        vector, element = memory_type(type_, width), memory_type(type_)
        offset = w.let(f"zext i32 {first.name} to i64")
        base = w.let(f"getelementptr {element}, ptr {self.memories.pointers[s.memory]}, i64 {w.let(f'add i64 {offset}, {begin - first.delta}')}")
        rows = []
        for k in range(first.step):
            place = w.let(f"getelementptr {element}, ptr {base}, i64 {k * width}")
            rows.append(w.let(f"load {vector}, ptr {place}, align {type_.size_bytes}"))
        alone = s.memory.space is Space.WORKGROUP
        return [self.state.loaded(type_, width, name, alone=alone) for name in self._exchanged(rows, vector)]

    def _exchanged(self, rows: list[str], vector: str) -> list[str]:
        """From vectors in the order of memory to one for each place in a group: bit by bit, the numbers of vectors change places with those of lanes."""
        width, count = self.state.width, len(rows)
        bit = 1
        while bit < count:
            for row in range(count):
                if not row & bit:
                    pair = (rows[row], rows[row | bit])
                    rows[row] = _shuffled(self.w, vector, *pair, [lane ^ bit | width if lane & bit else lane for lane in range(width)])
                    rows[row | bit] = _shuffled(self.w, vector, *pair, [lane | width if lane & bit else lane | bit for lane in range(width)])
            bit *= 2
        each = width // count
        if each == 1:
            return rows
        return [_shuffled(self.w, vector, row, "poison", [lane % each * count + lane // each for lane in range(width)]) for row in rows]


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a copy: by how many elements it goes on from lane to lane and from chunk to chunk, and by how much each index grows over a block."""

    statement: int
    lane: int
    chunk: int
    spans: tuple[int, ...]

    @property
    def is_row(self) -> bool:
        """Whether lanes are neighbours."""
        return self.lane == 1

    @property
    def is_column(self) -> bool:
        """Whether the same lane of chunks that follow one another is."""
        return self.chunk == 1 < self.lane


class Turned:
    """Copies of a kernel with barriers that turn rows into columns, or columns into rows."""

    def __init__(self, memories: Memories, let: Callable[[int, Let], int]) -> None:
        self.memories, self.state, self.w = memories, memories.state, memories.w
        self.let = let
        self._along: dict[int, Mapping[int, LaneValue]] = {}

    def blocks(self, region: BarrierFreeRegion) -> str:
        """Writes a loop over blocks of chunks, as long as these lie inside, for a region that is such a copy; gives the chunk that comes next, nothing for
        other regions."""
        sides = self._sides(region)
        if sides is None:
            return ""
        state, w = self.state, self.w
        counter = w.local("i64")
        w.line(f"store i64 0, ptr {counter}")
        head, block, inside, done = w.label("blocks"), w.label("block"), w.label("turned"), w.label("blocksdone")
        w.block(head)
        state.region, state.chunk = region, w.let(f"load i64, ptr {counter}")
        w.branch(w.let(f"icmp ule i64 {state.chunk}, {state.chunks - _SIDE}"), block, done)
        w.block(block)
        state.base = w.let(f"mul i32 {w.let(f'trunc i64 {state.chunk} to i32')}, {state.width}")
        for value in region.imports:
            state.values[value] = state.restore(value)
        for number in range(region.start, region.stop):
            let = state.program.body[number]
            if isinstance(let, Let):
                self.let(number, let)
        w.branch(self._inside(sides), inside, done)
        w.block(inside)
        self._turn(*sides)
        w.line(f"store i64 {w.let(f'add i64 {state.chunk}, {_SIDE}')}, ptr {counter}")
        w.end(f"br label %{head}, !llvm.loop !0")
        w.block(done)
        return state.chunk

    # ---- what is known

    def _sides(self, region: BarrierFreeRegion) -> tuple[_Side, _Side] | None:
        """Where such a copy loads from and stores to; None for what is another region."""
        state, body = self.state, self.state.program.body[region.start : region.stop]
        loads, stores = ([k for k, s in enumerate(body) if isinstance(s, kind)] for kind in (Load, Store))
        whole = state.invocations % state.width == 0 and state.width % _SIDE == 0 and state.chunks >= _SIDE
        if any(value in state.plan.again for value in region.imports):
            return None
        if not whole or len(loads) != 1 or len(stores) != 1 or state.plan.keeps_alive or state.plan.keeps_turn:
            return None
        load, store = body[loads[0]], body[stores[0]]
        assert isinstance(load, Load) and isinstance(store, Store)
        alike = store.value == load.bound and load.memory is not store.memory and load.bound.type.size_bytes == _ELEMENT_BYTES
        if not alike or len(body) != 2 + sum(isinstance(s, Let) for s in body) or any(map(state.is_kept, body)):
            return None
        sides = [self._side(region.start + k) for k in (loads[0], stores[0])]
        if sides[0] is None or sides[1] is None or not ((sides[0].is_row and sides[1].is_column) or (sides[0].is_column and sides[1].is_row)):
            return None
        return sides[0], sides[1]

    def _side(self, number: int) -> _Side | None:
        s = self.state.program.body[number]
        assert isinstance(s, (Load, Store))
        if s.memory.space is Space.PRIVATE:
            return None
        steps, spans = [], [0] * s.memory.rank
        for width, step in ((self.state.width, 1), (_SIDE, self.state.width)):
            total: LaneValue | None = None
            for axis, atom in enumerate(s.indices):
                if (index := self._known(atom, width, step)) is None:
                    return None
                spans[axis] += index.step * (width - 1)
                if total is not None:
                    total = foreseen(width, "mul", u32, (total, self.memories.pitch(s.memory, axis)))
                    index = None if total is None else foreseen(width, "add", u32, (total, index))
                total = index
                if total is None:
                    return None
            assert total is not None  # V307: there is at least one axis
            steps.append(total.step)
        return _Side(number, steps[0], steps[1], tuple(spans))

    def _known(self, atom: Atom, width: int, step: int) -> LaneValue | None:
        """What is known of an index over lanes, or over the first lanes of chunks, which are `step` invocations apart."""
        if not isinstance(atom, Value):
            return self.state.operand(atom)
        if step not in self._along:
            self._along[step] = self._foreseen(width, step)
        return self._along[step].get(atom.id)

    def _foreseen(self, width: int, step: int) -> Mapping[int, LaneValue]:
        state, found = self.state, dict[int, LaneValue]()
        for s in state.program.body:
            if s.result is None:
                continue
            known: LaneValue | None = None
            if isinstance(s, Let) and s.op.name in ("local_index", "local_id.x", "global_id.x") and state.program.workgroup[0] == state.invocations:
                known = known_value(u32, step, step * width)
                if s.op.name == "global_id.x":
                    begin = foreseen(width, "mul", u32, (known_value(u32), state.number(state.invocations)))
                    known = begin and foreseen(width, "add", u32, (known, begin))
            elif state.uniformity.values[s.result.id] <= Level.WORKGROUP:
                known = known_value(s.result.type)
            elif isinstance(s, Let) and not s.op.is_query:
                args = [found.get(a.id) if isinstance(a, Value) else state.operand(a) for a in s.args]
                held = [a for a in args if a is not None]
                known = foreseen(width, s.op.name, s.bound.type, held) if len(held) == len(args) else None
            if known is not None:
                found[s.result.id] = known
        return found

    # ---- code

    def _inside(self, sides: tuple[_Side, _Side]) -> str:
        """Whether all elements of a block are inside."""
        state, w, found = self.state, self.w, "true"
        for side in sides:
            s = state.program.body[side.statement]
            assert isinstance(s, (Load, Store))
            for axis, atom in enumerate(s.indices):
                if state.proven[side.statement] >> axis & 1 and isinstance(s.memory.shape[axis], DimConst):
                    continue
                index = state.operand(atom)
                extent = self.memories.bound(s.memory, axis, index.type).name
                extent = w.rows["saturating_sub"](w, 1, u32, u32, [extent, str(side.spans[axis])])
                found = w.let(f"and i1 {found}, {w.let(f'icmp ult i32 {index.name}, {extent}')}")
        return found

    def _turn(self, source: _Side, target: _Side) -> None:
        """Copies a block, eight lanes at a time."""
        state, w = self.state, self.w
        load, store = state.program.body[source.statement], state.program.body[target.statement]
        assert isinstance(load, Load) and isinstance(store, Store)
        begins = [self._first(s) for s in (load, store)]
        vector, alone = memory_type(load.memory.type, _SIDE), load.memory.space is Space.WORKGROUP
        for lane in range(0, state.width, _SIDE):
            rows = []
            for k in range(_SIDE):
                place = self._place(load, begins[0], source, lane, k)
                rows.append(state.load_elements(load.memory.type, _SIDE, place, _ELEMENT_BYTES, alone=alone))
            for k, row in enumerate(_transposed(w, vector, rows)):
                w.line(f"store {vector} {row}, ptr {self._place(store, begins[1], target, lane, k)}, align {_ELEMENT_BYTES}")

    def _first(self, s: Load | Store) -> str:
        """The element of the first lane of a block."""
        offset = self.memories.offset(Spot(s.memory, tuple([self.state.operand(a) for a in s.indices]), None, None))
        return self._on(s, self.memories.pointers[s.memory], self.w.let(f"zext i32 {offset.name} to i64"))

    def _place(self, s: Load | Store, begin: str, side: _Side, lane: int, k: int) -> str:
        """Vector k of those that begin at a lane: a row of lanes of chunk k, or the column of lane k of them."""
        return self._on(s, begin, str(lane + k * side.chunk if side.is_row else (lane + k) * side.lane))

    def _on(self, s: Load | Store, pointer: str, elements: str) -> str:
        return self.w.let(f"getelementptr {memory_type(s.memory.type)}, ptr {pointer}, i64 {elements}")


def _transposed(w: LaneWriter, vector: str, rows: list[str]) -> list[str]:
    """Eight rows of eight as their columns."""
    for apart, *halves in _ROUNDS:
        pairs = {k: [_shuffled(w, vector, rows[k], rows[k + apart], half) for half in halves] for k in range(_SIDE) if not k & apart}
        rows = [pairs[k & ~apart][bool(k & apart)] for k in range(_SIDE)]
    return [rows[k] for k in _ORDER]


def _shuffled(w: LaneWriter, vector: str, a: str, b: str, order: Sequence[int]) -> str:
    numbers = ", ".join(f"i32 {at}" for at in order)
    return w.let(f"shufflevector {vector} {a}, {vector} {b}, <{len(order)} x i32> <{numbers}>")
