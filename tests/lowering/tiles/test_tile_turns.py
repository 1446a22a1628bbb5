"""Two warpgroups that take turns at the tensor cores: what they signal each other, run warp by warp in any order. No warp waits for ever, none signals twice
what nobody has waited for, and none begins products before all have copied their factors, or boxes have come, or copies before all have done with what lay
there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

import pytest

import vyre_py as vp
from vyre_py.ir.language.nodes import (
    ArrivalsExpect,
    ArrivalsWait,
    Barrier,
    BoxCopy,
    Const,
    CopyCommit,
    CopyWait,
    For,
    Statement,
    WarpgroupProduct,
    WarpgroupSignal,
    WarpgroupWait,
)
from vyre_py.ir.language.program import Program
from vyre_py.lowering.tiles.cores import for_rings

WARPS, WARPGROUP, WARP = 8, 4, 32
KINDS = (ArrivalsExpect, ArrivalsWait, Barrier, CopyCommit, CopyWait, WarpgroupProduct, WarpgroupSignal, WarpgroupWait)
Fact = tuple[str, int, int]  # what was done, the warp, the turn


class Wrong(AssertionError):
    """What no order may lead to."""


@cache
def made(boxes: bool) -> tuple[Program, int, int]:
    """A Program with a loop in which two warpgroups take turns, and where that begins and ends."""
    attention = vp.ops.attention(vp.bf16, 64, tiles=(128, 64))
    program = for_rings(attention, "the test", 224 << 10, wide=True, warpgroups=True, boxes=boxes)
    assert any(isinstance(s, BoxCopy) for s in program.body) is boxes
    products = [k for k, s in enumerate(program.body) if isinstance(s, WarpgroupProduct)]
    begin = next(k for k, s in enumerate(program.body) if isinstance(s, For) and any(k < at < program.match[k] for at in products))
    return program, begin, program.match[begin]


def begins_copies(s: Statement) -> bool:
    """Whether a statement is the one that stands for all copies of a turn."""
    return isinstance(s, CopyCommit) or (isinstance(s, ArrivalsExpect) and bool(s.closes))


def steps(turns: int, ahead: int, boxes: bool) -> Iterator[tuple[Statement, int]]:
    """What a warp does, and the turn in which it does it, or for which it copies before the loop, or waits behind it; the turn behind the last is behind the
    loop. Where boxes are copied the first turn is before the loop, and there is nothing without it."""
    program, begin, end = made(boxes)
    before, inside, behind = [[s for s in part if isinstance(s, KINDS)] for part in (program.body[:begin], program.body[begin:end], program.body[end:])]
    if boxes and not turns:
        return
    at = next(k for k, s in enumerate(before) if begins_copies(s))
    yield from [(s, 0) for s in before[:at]]
    yield from [(before[at], turn) for turn in range(ahead)]
    yield from [(s, 0) for s in before[at + 1 :]]
    for turn in range(int(boxes), turns):
        yield from [(s, turn) for s in inside]
    first = next((s for s in behind if isinstance(s, ArrivalsWait)), None)
    for s in behind:
        if isinstance(s, ArrivalsWait) and s is not first:
            yield from [(s, turns + more) for more in range(1, ahead)]
        elif turns or not isinstance(s, (Barrier, WarpgroupProduct, WarpgroupWait)):  # barriers and products behind the loop are for loops that had a turn
            yield s, turns


class Meeting:
    """A barrier of all warps, at which some wait."""

    def __init__(self) -> None:
        self.came: dict[int, bool] = {}  # by warp: whether it waits
        self.known: set[Fact] = set()

    def come(self, warp: int, waits: bool, knows: set[Fact]) -> set[int]:
        """Those that go on, if this is the last one."""
        if warp in self.came:
            raise Wrong(f"warp {warp} comes twice")
        self.came[warp] = waits
        self.known |= knows
        if len(self.came) < WARPS:
            return set()
        gone, self.came = {w for w, waited in self.came.items() if waited}, {}
        return gone


class Warp:
    """One warp on its way: what it knows, its copies and its products under way, by turn."""

    def __init__(self, number: int, turns: int, ahead: int, boxes: bool) -> None:
        self.number, self.ahead, self.way = number, ahead, steps(turns, ahead, boxes)
        self.knows: set[Fact] = set()
        self.copies: list[int] = []
        self.products: list[int] = []
        self.in_loop = False

    def commit(self, turn: int) -> int:
        """Its copies for a turn, which overwrite what the turn before the one at hand had; gives that turn."""
        if self.in_loop and turn and any(("read", warp, turn - 1) not in self.knows for warp in range(WARPS)):
            raise Wrong(f"warp {self.number} overwrites what others read in turn {turn - 1}")
        self.copies.append(turn + self.ahead if self.in_loop else turn)
        return self.copies[-1]

    def begin(self, turn: int) -> None:
        """A product."""
        if any(("copied", warp, turn) not in self.knows for warp in range(WARPS)):
            raise Wrong(f"warp {self.number} reads what is not copied yet in turn {turn}")
        self.products.append(turn)

    def wait(self, under_way: list[int], left: int, done: str) -> None:
        """Until so few are left."""
        while len(under_way) > left:
            turn = under_way.pop(0)
            if turn not in under_way:
                self.knows.add((done, self.number, turn))


def run(turns: int, ahead: int, seed: int, *, boxes: bool, without: int = -1) -> None:
    """All warps, in an order of this seed, `without` the signals of a number."""
    warps, rng = [Warp(number, turns, ahead, boxes) for number in range(WARPS)], random.Random(seed)
    meetings: dict[object, Meeting] = {}
    begun: set[int] = set()  # turns whose boxes come
    awaited: dict[int, set[int]] = {}  # by such a turn that was not begun: who waits
    free, favour = set(range(WARPS)), rng.sample(range(WARPS), WARPS)

    def meet(where: object, warp: Warp, waits: bool) -> None:
        meeting = meetings.setdefault(where, Meeting())
        if waits:
            free.discard(warp.number)
        for number in (gone := meeting.come(warp.number, waits, warp.knows)):
            warps[number].knows |= meeting.known
        free.update(gone)

    def expect(warp: Warp, turn: int) -> None:
        coming = warp.commit(turn)
        begun.add(coming)
        free.update(awaited.pop(coming, ()))

    def await_boxes(warp: Warp, turn: int) -> None:
        warp.knows |= {("copied", number, turn) for number in range(WARPS)}
        if turn not in begun:
            free.discard(warp.number)
            awaited.setdefault(turn, set()).add(warp.number)

    while free:
        # Mostly one warp goes as far as it can; seldom any does.
        warp = warps[min(free, key=favour.index) if rng.random() < 0.9 else rng.choice(sorted(free))]
        s, turn = next(warp.way, (None, 0))
        own = warp.number // WARPGROUP
        if s is None:
            free.discard(warp.number)
        elif isinstance(s, Barrier):
            meet("all", warp, True)
        elif isinstance(s, WarpgroupSignal) and s.number != without:
            if s.who in (own, 2):
                meet((s.number, own if s.waits else 1 - own), warp, bool(s.waits))
        elif isinstance(s, CopyCommit):
            warp.commit(turn)
        elif isinstance(s, CopyWait):
            warp.wait(warp.copies, s.groups, "copied")
        elif isinstance(s, ArrivalsExpect) and begins_copies(s) and s.by // WARP == warp.number:
            expect(warp, turn)
        elif isinstance(s, ArrivalsWait):
            await_boxes(warp, turn)
        elif isinstance(s, WarpgroupProduct):
            warp.begin(turn)
        elif isinstance(s, WarpgroupWait) and isinstance(s.args[0], Const):
            warp.wait(warp.products, s.args[0].bits, "read")
        warp.in_loop |= isinstance(s, (WarpgroupSignal, WarpgroupProduct))
    if awaited or any(meeting.came for meeting in meetings.values()) or any(next(warp.way, None) for warp in warps):
        raise Wrong("some wait for ever, or what they signalled is left over")


def ahead(boxes: bool) -> int:
    """How many turns ahead copies are begun: so often does the loop before the loop."""
    program, begin, _ = made(boxes)
    return [s.args[1].bits for s in program.body[:begin] if isinstance(s, For) and isinstance(s.args[1], Const)][-1]


@pytest.mark.parametrize("boxes", [False, True])
@pytest.mark.parametrize("turns", [0, 1, 2, 3, 9])
def test_in_any_order_all_goes_on_and_nothing_is_read_too_early(turns: int, boxes: bool) -> None:
    for seed in range(40):
        run(turns, ahead(boxes), seed, boxes=boxes)


@pytest.mark.parametrize(("number", "boxes"), [(0, False), (1, False), (1, True)])
def test_each_signal_is_needed(number: int, boxes: bool) -> None:
    def in_some_orders() -> None:
        for seed in range(40):
            run(9, ahead(boxes), seed, boxes=boxes, without=number)

    with pytest.raises(Wrong):
        in_some_orders()
