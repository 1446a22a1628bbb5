"""Programs that were made for tensor cores, on the interpreter: it computes what the hardware's instructions on workgroup memory and registers do, so that
every place and every swizzle is looked at without a GPU. Sums are rounded once, in place of as tensor cores do: factors are small whole numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from vyre_py.ir.interpret.arguments import Arguments
from vyre_py.ir.interpret.lanes import Batches, Lanes
from vyre_py.ir.interpret.machine import Machine
from vyre_py.ir.interpret.reports import Reports
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import (
    ArrivalsExpect,
    ArrivalsSet,
    ArrivalsTell,
    ArrivalsWait,
    Atom,
    BoxCopy,
    ClusterBarrier,
    MatrixLoad,
    Memory,
    Space,
    StripCopy,
    TensorCore,
    WarpgroupBarrier,
    WarpgroupProduct,
    WarpgroupRegisters,
    WarpgroupSignal,
    WarpgroupWait,
)
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Array
from vyre_py.ir.language.walks import WITHOUT_TILES, Handlers
from vyre_py.lowering.layout import element_count
from vyre_py.lowering.tiles.grid_walk import walks_grid

__all__ = ["run", "viewed"]

_LANE = np.arange(32)
_G, _T = _LANE // 4, _LANE % 4


class _Turn:
    """What counts in a turn: who arrived, the bytes that are expected, and those that are begun; the boxes themselves, which are copied when somebody waits;
    and the turns of other elements that were waited for before, and had not ended: an invocation that copies is run before those that read."""

    def __init__(self) -> None:
        self.arrived = self.expected = self.begun = 0
        self.boxes: list[Callable[[], None]] = []
        self.behind: list[tuple[list[_Turn], int]] = []


class _CoresMachine(Machine):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._arrivals: dict[Memory, list[list[_Turn]]] = {}  # by array and element: its turns, the last of which is the one at hand
        self._needed: dict[Memory, int] = {}  # by array: how many arrive in a turn
        self._behind: list[tuple[list[_Turn], int]] = []  # turns that were waited for, and had not ended

    def _of_warps(self, values: Array) -> Array:
        """Values by warp and lane."""
        return np.broadcast_to(values, self.lanes.count).reshape(-1, 32)

    def _element(self, memory: Memory, groups: Array, within: Array) -> Array:
        """The elements of groups that all lanes ask for."""
        return self.banks[memory].load((groups.reshape(-1).astype(np.uint32), within.reshape(-1).astype(np.uint32)))

    def _put(self, memory: Memory, element: int, values: Array) -> None:
        self.banks[memory].store((np.full(1, element, np.uint32),), values.reshape(-1).astype(memory.type.dtype), self.active)

    def _matrix_load(self, index: int, s: MatrixLoad) -> int:
        places, count = self._of_warps(self._atom(s.args[0])), 4 // s.memory.type.size_bytes
        for q in range(4):
            for j in range(count):
                row, element = (2 * _T + j, _G) if s.turned else (_G, count * _T + j)
                self._put(s.memory, q * count + j, self._element(s.source, places[:, 8 * q + row], np.broadcast_to(element, places.shape)))
        return index + 1

    def _strip_copy(self, index: int, s: StripCopy) -> int:
        to, *indices = [np.broadcast_to(self._atom(a), self.lanes.count).astype(np.int64) for a in s.args]
        for number in range(s.count):
            indices[s.axis] = indices[s.axis] + (s.down if number else 0)
            for lane in np.arange(s.memory.shape[-1].value, dtype=np.uint32)[:, np.newaxis]:
                values = self.banks[s.source].load((*indices, lane))
                self.banks[s.memory].store(((to + number * s.further).astype(np.uint32), lane), values, self.active)
        return index + 1

    def _tensor_core(self, index: int, s: TensorCore) -> int:
        left, right = [np.stack([self._of_warps(self._atom(a)) for a in factor], axis=-1).astype(np.float64) for factor in s.factors]
        half = left.shape[-1] // 2
        warps = len(left)
        first = np.empty((warps, 16, 4 * half))
        for h in range(2):
            first[:, 8 * h : 8 * h + 8] = left[..., h * half : (h + 1) * half].reshape(warps, 8, 4 * half)
        product = np.einsum("wik,wjk->wij", first, right.reshape(warps, 8, 4 * half))
        self._add(s.memory, int(self._atom(s.args[0])[0]), product)
        return index + 1

    def _add(self, memory: Memory, first: int, product: Array, *, adds: bool = True) -> None:
        """Adds warps' products of 16 x 8 to four elements of each lane."""
        for k in range(4):
            found = product[:, _G + 8 * (k // 2), 2 * _T + k % 2]
            before = self.banks[memory].load((np.full(1, first + k, np.uint32),)) if adds else np.zeros(1)
            self._put(memory, first + k, found + self._of_warps(before).astype(np.float64))

    def _swizzled(self, memory: Memory, first: Array, rows: int, of: Array, along: Array) -> Array:
        """Elements (row, place along it) of an array in which each warpgroup's rows lie from a group on."""
        lanes = 16 // memory.type.size_bytes
        group = along // lanes // 8 * rows * 8 + of * 8 + (along // lanes % 8 ^ of % 8)
        which = np.repeat(np.arange(len(first)), 128)  # any lane of a warpgroup loads for it
        made = np.empty((len(first), group.size), np.float64)
        flat, within = group.reshape(-1), np.broadcast_to(along % lanes, group.shape).reshape(-1)
        for begin in range(0, group.size, 128):
            some = slice(begin, begin + 128)
            found = self._element(memory, (first[which].reshape(-1, 128) + flat[some]), np.broadcast_to(within[some], (len(first), 128)))
            made[:, some] = found.reshape(-1, 128).astype(np.float64)
        return made.reshape(len(first), *group.shape)

    def _warpgroup_product(self, index: int, s: WarpgroupProduct) -> int:
        firsts = [np.broadcast_to(self._atom(a), self.lanes.count).reshape(-1, 128)[:, 0].astype(np.int64) for a in s.args]
        if s.left.space is Space.PRIVATE:
            count = s.depth // 2
            held = np.stack([self._of_warps(self.banks[s.left].load((np.full(1, k, np.uint32),))) for k in range(count)], axis=-1).astype(np.float64)
            left = np.empty((len(held), 16, s.depth))
            for k in range(count):
                left[:, _G + 8 * (k % 4 // 2), k // 4 * 8 + 2 * _T + k % 2] = held[..., k]
            left = left.reshape(-1, 64, s.depth)
        else:
            left = self._swizzled(s.left, firsts[0], s.rows, np.arange(64)[:, None], np.arange(s.depth)[None, :])
        k, n = np.arange(s.depth)[:, None], np.arange(s.width)[None, :]
        right = self._swizzled(s.right, firsts[1], s.width, n, k) if s.along_k else self._swizzled(s.right, firsts[1], s.depth, k, n)
        product = (left @ right).reshape(-1, 4, 16, s.width)
        for column in range(s.width // 8):
            self._add(s.memory, 4 * column, product[..., 8 * column : 8 * column + 8].reshape(-1, 16, 8), adds=bool(s.adds))
        return index + 1

    def _wait(self, index: int, s: WarpgroupWait | WarpgroupSignal | WarpgroupBarrier | WarpgroupRegisters) -> int:
        return index + 1

    # ---- boxes

    def require_end(self) -> None:
        """Nobody waits for what never comes, and nothing comes for which nobody waited."""
        assert not self._behind
        assert not any(turn.boxes for elements in self._arrivals.values() for turns in elements for turn in turns)

    def _arrivals_set(self, index: int, s: ArrivalsSet) -> int:
        there = self._arrivals.pop(s.memory, None)
        assert (there is None) is bool(s.arrivals)
        assert all(not turns[-1].begun for turns in there or ()), "a box is still to come"
        if s.arrivals:
            self._arrivals[s.memory], self._needed[s.memory] = [[_Turn()] for _ in range(element_count(s.memory))], s.arrivals
        return index + 1

    def _same(self, atom: Atom) -> int:
        (same,) = set(np.broadcast_to(self._atom(atom), self.lanes.count)[self.active].tolist())
        return int(same)

    def _turns(self, memory: Memory, number: Atom) -> list[_Turn]:
        return self._arrivals[memory][self._same(number)]

    def _arrive(self, memory: Memory, turns: list[_Turn], count: int) -> None:
        turns[-1].arrived += count
        assert turns[-1].arrived <= self._needed[memory]
        if turns[-1].arrived == self._needed[memory]:
            turns.append(_Turn())

    def _arrivals_expect(self, index: int, s: ArrivalsExpect) -> int:
        turns = self._turns(s.memory, s.args[0])
        assert self.active[s.by]
        turns[-1].expected += s.expected
        turns[-1].behind += self._behind
        self._behind = []
        if s.closes:
            self._arrive(s.memory, turns, 1)
        return index + 1

    def _arrivals_tell(self, index: int, s: ArrivalsTell) -> int:
        if self._same(s.args[1]):
            self._arrive(s.memory, self._turns(s.memory, s.args[0]), int(self.active.reshape(-1, 128).all(axis=1).sum()))
        return index + 1

    def _arrivals_wait(self, index: int, s: ArrivalsWait) -> int:
        turns, number = self._turns(s.memory, s.args[0]), int(np.int32(np.uint32(self._same(s.args[1]))))
        if number >= len(turns) - 1:
            self._behind.append((turns, number))
            return index + 1
        if number < 0:
            return index + 1
        turn = turns[number]
        for other, ended in turn.behind:
            assert ended < len(other) - 1, "what would be waited for without end"
        assert turn.expected == turn.begun
        while turn.boxes:
            turn.boxes.pop(0)()
        return index + 1

    def _box_copy(self, index: int, s: BoxCopy) -> int:
        size, index_of, workgroup = s.memory.type.size_bytes, self.lanes.local_index.astype(np.int64), math.prod(self.program.workgroup)
        first, *origin = [np.broadcast_to(self._atom(a), self.lanes.count)[s.by].astype(np.int64) for a in (s.args[0], *s.args[2:])]
        assert self.active[s.by]
        row_bytes, lanes = s.box[-1] * size, 16 // size
        groups = row_bytes // 16
        moves = []
        for begin in range(0, math.prod(s.box), workgroup):
            at = begin + index_of
            inside = at < math.prod(s.box)
            where = np.unravel_index(np.minimum(at, math.prod(s.box) - 1), s.box)
            row, column = np.minimum(at, math.prod(s.box) - 1) // s.box[-1], where[-1]
            byte = row * row_bytes + column * size
            place = first + (byte ^ (byte >> 7 & groups - 1) << 4) // 16  # of an array that begins on a multiple of what the swizzle repeats after
            beyond = [o + w for o, w in zip(origin, where, strict=True)]
            # What is outside below is so above, too.
            found = self.banks[s.source].load(tuple([np.where(b < 0, 0xFFFFFFFF, b).astype(np.uint32) for b in beyond]))
            to = (np.broadcast_to(place, inside.shape).astype(np.uint32), (column % lanes).astype(np.uint32))
            moves.append((to, np.broadcast_to(found, inside.shape), inside))
            self.banks[s.memory].store(to, np.full(inside.shape, 77).astype(s.memory.type.dtype), inside)  # until it has come
        turns = self._turns(s.arrivals, s.args[1])
        # It comes with the turn that was closed last, or with the next to be closed.
        turn = turns[-2] if len(turns) > 1 and turns[-2].begun < turns[-2].expected else turns[-1]
        turn.begun += math.prod(s.box) * size
        turn.boxes += [partial(self.banks[s.memory].store, *move) for move in moves]
        return index + 1


_CoresMachine.steps = Handlers("the oracle", {
    **Machine.steps, StripCopy: _CoresMachine._strip_copy, MatrixLoad: _CoresMachine._matrix_load, TensorCore: _CoresMachine._tensor_core,
    WarpgroupProduct: _CoresMachine._warpgroup_product,
    **dict.fromkeys((WarpgroupWait, WarpgroupSignal, WarpgroupBarrier, WarpgroupRegisters, ClusterBarrier), _CoresMachine._wait),
    ArrivalsSet: _CoresMachine._arrivals_set, ArrivalsExpect: _CoresMachine._arrivals_expect, ArrivalsTell: _CoresMachine._arrivals_tell,
    ArrivalsWait: _CoresMachine._arrivals_wait, BoxCopy: _CoresMachine._box_copy,
}, without=WITHOUT_TILES)  # fmt: skip


class _Walking(Lanes):
    """One of so many workgroups that walk through a grid."""

    launched = 1

    def _answer(self, name: str) -> Array:
        answers = {"workgroup_id.x": self.first, "workgroup_id.y": 0, "workgroup_id.z": 0, "launched_workgroups.x": self.launched}
        return np.array([answers[name]], np.uint32) if name in answers else super()._answer(name)


def run(program: Program, arguments: Mapping[str, Any], sizes: Mapping[str, int], launched: int = 1) -> None:
    """Runs a Program of invocations to its end; arrays of written buffers are changed in place. So many workgroups are launched of one that walks."""
    bound = Arguments(program, arguments, sizes)
    with np.errstate(all="ignore"):
        batches: Iterable[Lanes] = Batches(program, bound)
        assert isinstance(batches, Batches)
        if any(isinstance(s, BoxCopy) for s in program.body):
            batches.at_once = 1  # so that control is the same for all
        if walks_grid(program):
            _Walking.launched = launched
            batches = [_Walking(program.workgroup, batches.groups, number, 1, program.subgroup) for number in range(launched)]
        for lanes in batches:
            machine = _CoresMachine(program, bound, lanes, Reports())
            machine.run()
            machine.require_end()


def viewed(program: Program, arrays: Mapping[str, Array]) -> dict[str, Any]:
    """The arrays, in groups where the Program has views of them."""
    made: dict[str, Any] = {}
    for memory in program.buffers:
        array = arrays[memory.name]
        last = memory.shape[-1]
        if memory.rank > array.ndim and isinstance(last, DimConst):
            array = array.reshape(*array.shape[:-1], array.shape[-1] // last.value, last.value)
        made[memory.name] = array
    return made
