"""Loops whose copies go on into the workgroup's next place of the grid, run warp by warp in any order, with all that counts: each product reads what the
Program means it to read, of its own place and turn, nothing is overwritten that a product under way reads, and none waits for ever."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import pytest

import vyre_py as vp
from tests.lowering.tiles.test_tile_turns import WARP, WARPGROUP, WARPS, Meeting, Wrong
from vyre_py.ir.language.dims import Dim
from vyre_py.ir.language.nodes import (
    ArrivalsExpect,
    ArrivalsWait,
    Barrier,
    BoxCopy,
    Break,
    Const,
    Else,
    End,
    For,
    Get,
    If,
    Let,
    Loop,
    Set,
    Statement,
    Subgroup,
    Value,
    Var,
    WarpgroupProduct,
    WarpgroupSignal,
    WarpgroupWait,
)
from vyre_py.ir.language.nodes import const as constant
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u32
from vyre_py.ir.passes.fold import evaluate_constant
from vyre_py.lowering.tiles.cores import for_rings
from vyre_py.lowering.tiles.grid_walk import walks_grid

TILE, HEADS, SHARED, BATCH = 128, 2, 2, 2
Event = tuple[Statement, tuple[int, ...]]
Box = tuple[str, tuple[int, ...]]  # a buffer, and the first element


@cache
def made() -> Program:
    program = for_rings(vp.ops.attention(vp.bf16, TILE, tiles=(TILE, TILE)), "the test", 227 << 10, wide=True, warpgroups=True, boxes=True)
    assert walks_grid(program)
    return program


class Thread:
    """The first invocation of a warp: it computes words and conditions. What depends on elements is not known, and no such block is entered."""

    def __init__(self, number: int, known: dict[str, int]) -> None:
        self.known = {"local_index": number, **known}
        self.values: dict[int, Const | None] = {}
        self.variables: dict[int, Const | None] = {}

    def atom(self, atom: object) -> Const | None:
        if isinstance(atom, Value):
            return self.values[atom.id]
        return constant(u32, self.known[atom.name]) if isinstance(atom, Dim) else atom if isinstance(atom, Const) else None

    def let(self, s: Let) -> Const | None:
        if s.op.is_query:
            return constant(u32, self.known[s.op.name]) if s.op.name in self.known else None
        args = [self.atom(a) for a in s.args]
        return None if None in args else evaluate_constant(s.op, s.bound.type, tuple([a for a in args if a is not None]))

    def run(self) -> Iterator[Event]:
        """What it does that others see, in order, with the words that it is given."""
        program, at, turns = made(), 0, dict[int, int]()
        while at < len(program.body):
            s = program.body[at]
            if isinstance(s, Let):
                self.values[s.bound.id] = None if s.bound.type.is_float else self.let(s)
            elif isinstance(s, Get):
                self.values[s.bound.id] = self.variables[s.variable.id]
            elif isinstance(s, (Var, Set)):
                self.variables[s.variable.id] = self.atom(s.args[0])
            elif isinstance(s, Subgroup):
                self.values[s.bound.id] = self.atom(s.args[0]) if s.op.name == "broadcast" else None
            elif isinstance(s, If):
                condition = self.atom(s.args[0])
                at = at if condition is not None and condition.value else program.match[at]
            elif isinstance(s, Else):
                at = program.match[at]
            elif isinstance(s, For):
                start, stop, step = [a.bits for a in map(self.atom, s.args) if a is not None]
                turns[at] = turns.get(at, start - step) + step
                self.values[s.bound.id] = constant(u32, turns[at])
                if turns[at] >= stop:
                    del turns[at]
                    at = program.match[at]
            elif isinstance(s, End) and isinstance(program.body[program.match[at]], (For, Loop)):
                at = program.match[at]
                continue
            elif isinstance(s, Break):
                at = next(program.match[k] for k in range(at, -1, -1) if isinstance(program.body[k], Loop))
            elif s.result is not None:
                self.values[s.result.id] = None
            else:
                yield s, tuple([a.bits if a is not None else 0 for a in map(self.atom, s.args)])
            at += 1


@dataclass
class Word:
    """What counts: how often all had come, what is left to come, and whether somebody said that this is all."""

    ended: int = 0
    left: int = 0
    closed: bool = False

    def look(self) -> None:
        if self.closed and not self.left:
            self.ended, self.closed = self.ended + 1, False


@dataclass
class Workgroup:
    """A workgroup of a grid of which so many were launched: what lies in its memory by group, and what its warps read."""

    number: int
    launched: int
    m: int
    n: int
    words: dict[int, Word] = field(default_factory=dict)
    memory: dict[tuple[str, int], Box] = field(default_factory=dict)
    read: dict[int, list[tuple[Box, Box | None]]] = field(default_factory=dict)  # by warp: the second factor of a product, and the first if it lies there
    under_way: dict[int, list[set[tuple[str, int]]]] = field(default_factory=dict)  # by warp

    def run(self, seed: int) -> None:
        """All warps, in an order of this seed."""
        known = {
            "m": self.m, "n": self.n, "heads": HEADS, "kv_heads": SHARED, "batch": BATCH, "workgroup_id.x": self.number, "launched_workgroups.x": self.launched,
            "launched_workgroups": self.launched, "num_workgroups.x": -(-self.m // TILE), "num_workgroups.y": HEADS, "num_workgroups.z": BATCH,
        }  # fmt: skip
        ways = [Thread(warp * WARP, known).run() for warp in range(WARPS)]
        rng, free, meetings, awaiting = random.Random(seed), set(range(WARPS)), dict[object, Meeting](), dict[int, tuple[int, int]]()
        favour = rng.sample(range(WARPS), WARPS)
        self.read, self.under_way = {w: [] for w in range(WARPS)}, {w: [] for w in range(WARPS)}

        def meet(where: object, warp: int, waits: bool) -> None:
            if waits:
                free.discard(warp)
            free.update(meetings.setdefault(where, Meeting()).come(warp, waits, set()))

        while free:
            warp = min(free, key=favour.index) if rng.random() < 0.9 else rng.choice(sorted(free))
            s, args = next(ways[warp], (None, ()))
            own = warp // WARPGROUP
            if s is None:
                free.discard(warp)
            elif isinstance(s, Barrier):
                meet("all", warp, True)
            elif isinstance(s, WarpgroupSignal) and s.who in (own, 2):
                meet((s.number, own if s.waits else 1 - own), warp, bool(s.waits))
            elif isinstance(s, ArrivalsWait):
                awaiting[warp] = args[0], args[1]
                free.discard(warp)
            elif isinstance(s, WarpgroupProduct):
                self.begin(warp, s, args)
            elif isinstance(s, WarpgroupWait):
                del self.under_way[warp][: len(self.under_way[warp]) - args[0]]
            elif isinstance(s, (ArrivalsExpect, BoxCopy)) and s.by == warp * WARP:
                self.copy(s, args)
            for other, (word, turn) in list(awaiting.items()):
                if self.words.setdefault(word, Word()).ended == turn + 1:
                    del awaiting[other]
                    free.add(other)
        if awaiting or any(meeting.came for meeting in meetings.values()) or any(word.left or word.closed for word in self.words.values()):
            raise Wrong("some wait for ever, or something is left over")

    def copy(self, s: ArrivalsExpect | BoxCopy, args: tuple[int, ...]) -> None:
        word = self.words.setdefault(args[0] if isinstance(s, ArrivalsExpect) else args[1], Word())
        if isinstance(s, ArrivalsExpect):
            word.left, word.closed = word.left + s.expected, word.closed or bool(s.closes)
        else:
            size = 2
            for extent in s.box:
                size *= extent
            word.left -= size
            place = s.memory.name, args[0]
            if any(place in places for products in self.under_way.values() for places in products):
                raise Wrong(f"{place} is overwritten while a product reads it")
            self.memory[place] = s.source.name, args[2:]
        word.look()

    def begin(self, warp: int, s: WarpgroupProduct, args: tuple[int, ...]) -> None:
        right, left = (s.right.name, args[1]), (s.left.name, args[0] % (s.rows * 8))
        base = (s.left.name, 0)
        self.read[warp].append((self.memory[right], self.memory.get(base)))
        self.under_way[warp].append({right, base, left, *[(name, group + 1024) for name, group in (right, base)]})


def meant(z: int, h: int, x: int, n: int) -> list[tuple[Box, Box | None]]:
    """What the products of a place read, in order: those of scores, of queries and keys, and behind the next turn's those of values."""
    g, turns = h // (HEADS // SHARED), -(-n // TILE)
    queries: Box = ("q", (z, h, x * TILE, 0))
    scores: list[tuple[Box, Box | None]] = [(("k", (z, g, t * TILE, 0)), queries) for t in range(turns)]
    values: list[tuple[Box, Box | None]] = [(("v", (z, g, t * TILE, 0)), None) for t in range(turns)]
    return [scores[0], *[one for t in range(1, turns) for one in (scores[t], values[t - 1])], values[-1]] if turns else []


@pytest.mark.parametrize(("m", "n", "launched"), [(200, 0, 3), (200, 100, 3), (200, 200, 3), (300, 384, 5), (100, 500, 2)])
def test_each_product_reads_what_is_meant_of_its_place_and_turn(m: int, n: int, launched: int) -> None:
    across, seen = -(-m // TILE), list[tuple[int, int, int]]()
    for seed in range(2):
        seen = []
        for number in range(min(launched, across * HEADS * BATCH)):
            group = Workgroup(number, launched, m, n)
            group.run(seed)
            count = len(meant(0, 0, 0, n))
            places = [first[1] for at, (_, first) in enumerate(group.read[0]) if first is not None and at % max(1, count) == 0]
            expected = []
            for z, h, row, _ in places:
                expected += meant(z, h, row // TILE, n)
                seen.append((z, h, row // TILE))
            assert all(group.read[warp] == expected for warp in range(WARPS)), (number, seed)
    if n:
        assert sorted(seen) == [(z, h, x) for z in range(BATCH) for h in range(HEADS) for x in range(across)]
