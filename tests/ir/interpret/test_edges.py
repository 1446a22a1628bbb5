"""What atomics and fences order, against clocks of every invocation: whatever is ordered by them, the interpreter knows to be."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pytest

from vyre_py.ir.interpret.edges import Edges, Released
from vyre_py.ir.language.op import AtomicOp, Scope
from vyre_py.ir.language.ops import ATOMICS_BY_SPELLING

GROUP, GROUPS, ELEMENTS = 2, 3, 3
LANES: Final = GROUP * GROUPS
ROWS: Final = [row for row in ATOMICS_BY_SPELLING.values() if row.name in ("load", "store", "add")]

Clock = tuple[int, ...]  # for each invocation the last moment of its that is ordered before, -1 where none is


def joined(clocks: Iterable[Clock]) -> Clock:
    return tuple(map(max, zip(*clocks, strict=True)))


@dataclass(frozen=True)
class Head:
    """What was released: by a workgroup, for a scope."""

    clock: Clock
    scope: Scope
    group: int

    def reaches(self, scope: Scope, group: int) -> bool:
        return self.group == group or self.scope is scope is Scope.DEVICE


@dataclass
class Clocks:
    """Happens-before, as the C++ standard has it: each invocation's clock, the heads of the release sequence of each element, the heads that a fence may yet
    acquire, and the clocks at each invocation's last fences."""

    now: list[Clock] = field(default_factory=lambda: [(-1,) * LANES for _ in range(LANES)])
    heads: list[set[Head]] = field(default_factory=lambda: [set() for _ in range(ELEMENTS)])
    read: list[set[Head]] = field(default_factory=lambda: [set() for _ in range(LANES)])
    fenced: list[dict[Scope, Clock]] = field(default_factory=lambda: [{} for _ in range(LANES)])

    def step(self, lane: int, moment: int) -> None:
        self.now[lane] = (*self.now[lane][:lane], moment, *self.now[lane][lane + 1 :])

    def take(self, lane: int, heads: set[Head], scope: Scope) -> None:
        self.now[lane] = joined([self.now[lane], *[head.clock for head in heads if head.reaches(scope, lane // GROUP)]])

    def fence(self, lane: int, scope: Scope, moment: int) -> None:
        self.take(lane, self.read[lane], scope)
        self.fenced[lane][scope] = self.now[lane]
        self.step(lane, moment)

    def atomic(self, op: AtomicOp, lane: int, element: int, moment: int) -> None:
        group, before = lane // GROUP, self.now[lane]
        if op.reads:
            self.read[lane] |= self.heads[element]
            if op.order.acquires and op.order.scope is not None:
                self.take(lane, self.heads[element], op.order.scope)
                before = self.now[lane]
        if op.writes:
            heads = {Head(clock, scope, group) for scope, clock in self.fenced[lane].items()}
            if op.order.releases and op.order.scope is not None:
                heads.add(Head(before, op.order.scope, group))
            self.heads[element] = heads | (self.heads[element] if op.reads else set())
        self.step(lane, moment)

    def barrier(self, group: int) -> None:
        lanes = range(group * GROUP, (group + 1) * GROUP)
        met = joined([self.now[lane] for lane in lanes])
        for lane in lanes:
            self.now[lane] = met


@pytest.mark.parametrize("seed", range(20))
def test_what_is_ordered_is_known_to_be(seed: int) -> None:
    r = random.Random(seed)
    clocks, edges, released = Clocks(), Edges(np.arange(LANES) // GROUP), Released(ELEMENTS)
    handed_on = 0
    for moment in range(1, 300):
        lanes = np.array(sorted(r.sample(range(LANES), r.choice((1, 1, 1, 2, 4)))))
        kind = r.randrange(8)
        if kind == 0:
            group = r.randrange(GROUPS)
            edges.barrier(np.arange(GROUPS) == group)
            clocks.barrier(group)
        elif kind < 3:
            scope = r.choice(list(Scope))
            edges.fence(scope, lanes, moment)
            for lane in lanes.tolist():
                clocks.fence(lane, scope, moment)
        else:
            op, at = r.choice(ROWS), np.array([r.randrange(ELEMENTS) for _ in lanes])
            edges.atomic(op, released, at, lanes, moment)
            for lane, element in zip(lanes.tolist(), at.tolist(), strict=True):
                clocks.atomic(op, lane, element, moment)
        for lane, clock in enumerate(clocks.now):
            others = [known for other, known in enumerate(clock) if other // GROUP != lane // GROUP]
            assert max(others) < max(edges.after[lane], 1), (seed, moment, lane)
            handed_on += max(others) > 0
    assert handed_on


def test_nothing_is_ordered_without_an_order() -> None:
    edges, released = Edges(np.arange(LANES) // GROUP), Released(ELEMENTS)
    r = random.Random(7)
    for moment in range(1, 100):
        lanes = np.arange(LANES)
        edges.atomic(ATOMICS_BY_SPELLING[r.choice(("load", "store", "add"))], released, lanes % ELEMENTS, lanes, moment)
    assert not edges.after.any()
