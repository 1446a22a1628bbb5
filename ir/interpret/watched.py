"""The machine that watches, as it runs, for races and for reads of what nothing has written. `ir.interpret.watched_tiles` has that of Programs of tiles."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, ClassVar

import numpy as np

from vyre_py.ir.interpret.arguments import Arguments
from vyre_py.ir.interpret.copies import Copies
from vyre_py.ir.interpret.edges import Edges, Released
from vyre_py.ir.interpret.invocations import invocation
from vyre_py.ir.interpret.lanes import Lanes
from vyre_py.ir.interpret.machine import Machine, Step
from vyre_py.ir.interpret.memory import of_lanes
from vyre_py.ir.interpret.races import AGAINST, AccessKind, History, Race, Touch
from vyre_py.ir.interpret.reports import Reports
from vyre_py.ir.interpret.unwritten import UnwrittenReads
from vyre_py.ir.language.effects import ORDERS
from vyre_py.ir.language.errors import RaceError
from vyre_py.ir.language.nodes import (
    ATOMIC_KINDS,
    FENCES,
    Atomic,
    Barrier,
    CopyAsync,
    CopyCommit,
    CopyWait,
    Fence,
    GridBarrier,
    GridScan,
    Load,
    Memory,
    MemoryStatement,
    Space,
    Store,
    TileStore,
    UniformLoad,
)
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Array
from vyre_py.ir.language.walks import WITHOUT_TILES, Handlers

__all__ = ["Watch", "WatchedMachine"]

_Stores = Store | CopyAsync | TileStore


class Watch:
    """What is known of the accesses of one run, over all its batches. `stored` are the memories that can be raced for, none where `races` are not watched
    for; `statements` has the index of the statement of each moment, `grid_since` the moment of the last grid barrier, `released` what atomics have
    released, if the Program `orders` memory by them. `unwritten` are the reads of what
    nothing had written, if they are watched for."""

    def __init__(self, program: Program, races: bool, unwritten: bool) -> None:
        shared = (Space.BUFFER, Space.WORKGROUP) if races else ()
        self.stored = {s.memory for s in program.body if isinstance(s, (Store, CopyAsync, TileStore)) and s.memory.space in shared}
        self.unwritten = UnwrittenReads(program) if unwritten else None
        self.histories: dict[tuple[Memory, AccessKind], History] = {}
        self.orders = bool(self.stored) and any(ORDERS[type(s)] for s in program.body)
        self.released: dict[Memory, Released] = {}
        self.statements: list[int] = [-1]
        self.grid_since = 0

    def begin_batch(self) -> None:
        """Forgets the memory of workgroups that have ended."""
        self.histories = {key: history for key, history in self.histories.items() if key[0].space is Space.BUFFER}
        self.released = {memory: released for memory, released in self.released.items() if memory.space is Space.BUFFER}

    def next_moment(self, statement: int) -> int:
        """The moment that now begins, with what is done in it."""
        self.statements.append(statement)
        return len(self.statements) - 1


def _bits(values: Array, like: Array) -> Array:
    """Elements as words, a row each, so that they compare by their bits."""
    stored = np.ascontiguousarray(values, like.dtype)
    return stored.view(f"u{stored.itemsize}").reshape(len(stored), -1)


class WatchedMachine(Machine):
    """A machine that raises RaceError at the first access that races with an earlier one, and takes reads of what nothing has written up, each where its
    watch asks for it."""

    steps: ClassVar[Handlers[Step]]

    def __init__(self, program: Program, arguments: Arguments, lanes: Lanes, reports: Reports, watch: Watch) -> None:
        super().__init__(program, arguments, lanes, reports)
        watch.begin_batch()
        self.watch = watch
        self.who = invocation(lanes.first + lanes.group, lanes.local_index.astype(np.int64))
        self.since = np.zeros(lanes.group_count, np.int64)  # when each workgroup was last at a barrier
        self.copies = Copies(lanes.count)
        self.edges = Edges(lanes.first + lanes.group) if watch.orders else None
        reads = watch.unwritten
        # Those memories are of this batch alone: each begins as zeros again in the next.
        self.written = {m: np.zeros(len(self.banks[m].flat), np.bool_) for m in reads.watched} if reads is not None else {}

    # ---- what watched statements do, and then as the machine does

    def _watch_load(self, index: int, s: Load) -> int:
        self._race_for(index, s, self.active, AccessKind.READ)
        self._take_written(index, s, self.active, AccessKind.READ)
        return self._load(index, s)

    def _watch_uniform_load(self, index: int, s: UniformLoad) -> int:
        first = self.active & (self.lanes.local_index == 0)
        self._pass_barrier(index)
        self._race_for(index, s, first, AccessKind.READ)
        self._take_written(index, s, first, AccessKind.READ)
        self._pass_barrier(index)
        return self._uniform_load(index, s)

    def _watch_atomic(self, index: int, s: Atomic) -> int:
        access = AccessKind.ATOMIC if s.op.writes else AccessKind.READ
        self._race_for(index, s, self.active, access)
        only_writes = s.op.name in ("exchange", "store") and (s.result is None or s.result.id not in self.used)
        self._take_written(index, s, self.active, AccessKind.WRITE if only_writes else access)
        if self.edges is not None:
            offset, inside = self.banks[s.memory].locate(self._atoms(s.indices))
            lanes = np.flatnonzero(self.active & inside)
            if (released := self.watch.released.get(s.memory)) is None:
                released = self.watch.released[s.memory] = Released(len(self.banks[s.memory].flat))
            self.edges.atomic(s.op, released, of_lanes(lanes, offset), lanes, self.watch.next_moment(index))
        return self._atomic(index, s)

    def _watch_fence(self, index: int, s: Fence) -> int:
        if self.edges is not None:
            self.edges.fence(s.scope, np.flatnonzero(self.active), self.watch.next_moment(index))
        return self._fence(index, s)

    def _watch_store(self, index: int, s: Store | CopyAsync) -> int:
        self._take_written(index, s, self.active, AccessKind.WRITE)
        touch, lanes = self._touch(index, s, self._atoms(s.indices), self.active)
        return self._store(index, s) if touch is None else self._store_watched(index, s, touch, of_lanes(lanes, self._atom(s.value)), self._store)

    def _store_watched(self, index: int, s: _Stores, touch: Touch, values: Array, store: Callable[[int, Any], int]) -> int:
        """Takes stores of these values up, and has them stored."""
        flat = self.banks[s.memory].flat
        wanted = _bits(values, flat)
        self._take(s, touch, AccessKind.WRITE, (_bits(flat[touch.at], flat) != wanted).any(axis=1))
        following = store(index, s)
        lost = (_bits(flat[touch.at], flat) != wanted).any(axis=1)
        if lost.any():  # another invocation wrote another value to that element in this very statement
            later = int(np.flatnonzero(lost)[0])
            earlier = int(np.flatnonzero((touch.at == touch.at[later]) & ~lost)[0])
            raise self._race(s, touch, later, (AccessKind.WRITE, AccessKind.WRITE), int(touch.who[earlier]), index)
        return following

    def _watch_copy(self, index: int, s: CopyAsync) -> int:
        following = self._watch_store(index, s)
        if s.memory in self.watch.stored:
            offset, inside = self.banks[s.memory].locate(self._atoms(s.indices))
            lanes = np.flatnonzero(self.active & inside)
            self.copies.begin(index, s.memory, lanes, of_lanes(lanes, offset))
        return following

    def _watch_commit(self, index: int, s: CopyCommit) -> int:
        self.copies.commit(self.active)
        return index + 1

    def _watch_wait(self, index: int, s: CopyWait) -> int:
        """What was copied is written now: barriers before do not order it with anything."""
        for copy in self.copies.wait(self.active, s.groups):
            since = self.since[self.lanes.group[copy.lanes]]
            touch = Touch(copy.at, self.who[copy.lanes], since, self._after(copy.lanes), self.watch.next_moment(copy.statement))
            self.watch.histories[copy.memory, AccessKind.WRITE].add(touch)
        return index + 1

    def _watch_barrier(self, index: int, s: Barrier) -> int:
        self._pass_barrier(index)
        return self._barrier(index, s)

    def _watch_grid_barrier(self, index: int, s: GridBarrier) -> int:
        self.watch.grid_since = self.watch.next_moment(index)
        return self._barrier(index, s)

    def _watch_grid_scan(self, index: int, s: GridScan) -> int:
        self._pass_barrier(index)
        return self._grid_scan(index, s)

    # ---- watching

    def _pass_barrier(self, index: int) -> None:
        """Workgroups arrive whole, as the checker has proven."""
        arrived = np.any(self.active.reshape(self.lanes.group_count, -1), axis=1)
        self.since[arrived] = self.watch.next_moment(index)
        if self.edges is not None:
            self.edges.barrier(arrived)

    def _after(self, lanes: Array) -> Array:
        """The moment before which all is ordered before what these lanes do now."""
        known = np.full(lanes.size, self.watch.grid_since)
        return known if self.edges is None else np.maximum(known, self.edges.after[lanes])

    def _touch(self, index: int, s: MemoryStatement, indices: tuple[Array, ...], mask: Array, of_lane: int = 1) -> tuple[Touch | None, Array]:
        """What those of a mask touch, so many `of_lane` each, and which of them are inside; None where nothing can be raced for."""
        if s.memory not in self.watch.stored:
            return None, mask
        offset, inside = self.banks[s.memory].locate(indices)
        chosen = np.flatnonzero(mask & inside)
        if not chosen.size:
            return None, chosen
        lanes = chosen // of_lane
        since = self.since[self.lanes.group[lanes]]
        return Touch(of_lanes(chosen, offset), self.who[lanes], since, self._after(lanes), self.watch.next_moment(index)), chosen

    def _race_for(self, index: int, s: MemoryStatement, mask: Array, access: AccessKind) -> None:
        """Holds what the lanes in a mask do against what was done before, and takes it up."""
        if (touch := self._touch(index, s, self._atoms(s.indices), mask)[0]) is not None:
            self._take(s, touch, access)

    def _take_written(self, index: int, s: MemoryStatement, mask: Array, access: AccessKind) -> None:
        """Takes reads of what nothing has written up, and then what is written, by the lanes in a mask."""
        if (written := self.written.get(s.memory)) is None:
            return
        offset, inside = self.banks[s.memory].locate(self._atoms(s.indices))
        lanes = np.flatnonzero(mask & inside)
        at = of_lanes(lanes, offset)
        if access is not AccessKind.WRITE and (fresh := ~written[at]).any():
            at_fresh, who = at[fresh], self.who[lanes[fresh]]
            if access is AccessKind.ATOMIC:  # of several at one element the first finds it as it was
                first = np.sort(np.unique(at_fresh, return_index=True)[1])
                at_fresh, who = at_fresh[first], who[first]
            assert self.watch.unwritten is not None
            self.watch.unwritten.add(index, s, at_fresh % prod(self.banks[s.memory].extents), who)
        if access is not AccessKind.READ:
            written[at] = True

    def _take(self, s: MemoryStatement, touch: Touch, access: AccessKind, changed: Array | None = None) -> None:
        """Holds accesses against those before them, and takes them up. `changed` are the writes that another value is there for."""
        if (found := self.copies.touched(s.memory, touch.at)) is not None:
            later, lane, statement = found
            raise self._race(s, touch, later, (access, AccessKind.COPY), int(self.who[lane]), statement)
        for other in AGAINST[access]:
            history = self.watch.histories.get((s.memory, other))
            for number in (0, 1) if history is not None else ():
                assert history is not None
                racing = history.racing(touch, number)
                if other is access and changed is not None:
                    racing &= changed
                if racing.any():
                    later = int(np.flatnonzero(racing)[0])
                    at = number, touch.at[later]
                    raise self._race(s, touch, later, (access, other), int(history.who[at]), self.watch.statements[int(history.when[at])])
        history = self.watch.histories.get((s.memory, access))
        if history is None:
            history = self.watch.histories[s.memory, access] = History(len(self.banks[s.memory].flat))
        history.add(touch)

    def _race(self, s: MemoryStatement, touch: Touch, later: int, does: tuple[AccessKind, AccessKind], earlier: int, statement: int) -> RaceError:
        extents = self.banks[s.memory].extents
        element = int(touch.at[later]) % prod(extents)
        who = int(touch.who[later]), earlier
        race = Race(s.memory, extents, element, does, who, (self.watch.statements[touch.now], statement))
        return race.error(self.program, self.lanes.groups)


WatchedMachine.steps = Handlers("the interpreter", {
    **Machine.steps, Load: WatchedMachine._watch_load, Store: WatchedMachine._watch_store,
    **dict.fromkeys(ATOMIC_KINDS, WatchedMachine._watch_atomic), **dict.fromkeys(FENCES.values(), WatchedMachine._watch_fence),
    UniformLoad: WatchedMachine._watch_uniform_load, Barrier: WatchedMachine._watch_barrier, GridBarrier: WatchedMachine._watch_grid_barrier,
    GridScan: WatchedMachine._watch_grid_scan,
    CopyAsync: WatchedMachine._watch_copy, CopyCommit: WatchedMachine._watch_commit, CopyWait: WatchedMachine._watch_wait,
}, without=WITHOUT_TILES)  # fmt: skip
