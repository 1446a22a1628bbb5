"""What the bounds pass claims is true: random index arithmetic, run with exact numbers over sizes up to 2^32 - 1.

Each Program is walked as one invocation would run it, many times, with sizes, params, ids, loaded elements and variables drawn from
the whole of their types and mostly from its edges. Wherever an index that is claimed to lie inside lies outside, the sizes and the
Program are printed. The same walks catch defects planted in the pass, so they look where it matters.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from indices import EDGES, SIZES, U32_MAX, bindable, random_program

from vyre_py.ir.check import check
from vyre_py.ir.dims import evaluate_dim
from vyre_py.ir.nodes import (
    Atom,
    Break,
    Const,
    Continue,
    Else,
    End,
    For,
    Get,
    If,
    Let,
    Load,
    Loop,
    MemoryStatement,
    Param,
    Return,
    Space,
    Value,
    const,
)
from vyre_py.ir.passes import optimise, ranges, transfer
from vyre_py.ir.passes.bounds import bounds
from vyre_py.ir.passes.fold import evaluate_constant, merged_end
from vyre_py.ir.passes.forms import shifted
from vyre_py.ir.program import Program
from vyre_py.ir.types import Scalar, u8, u32


class Walker:
    """Walks a body as one invocation, with what the bounds pass may not know drawn at random; loops take one random turn."""

    def __init__(self, program: Program, proven: tuple[int, ...], rng: random.Random) -> None:
        self.program, self.proven, self.random = program, proven, rng
        self.values: dict[int, Const] = {}
        self.params = {p.name: self.any(p.type) for p in program.params}
        self.sizes: dict[str, int] = {}
        self.local = [rng.randrange(size) for size in program.workgroup]
        self.group = [self.near(U32_MAX // size - 1) for size in program.workgroup]
        self.claims = 0

    def any(self, type_: Scalar) -> Const:
        if type_ is u8 or self.random.random() < 0.2:
            return Const(type_, self.random.randrange(1 << type_.bits))
        return const(type_, self.random.choice(EDGES[type_]))

    def near(self, most: int) -> int:
        return min(most, max(0, self.random.choice(SIZES) + self.random.randrange(-2, 3))) if most > 0 else 0

    def draw_sizes(self) -> bool:
        """Whether the sizes drawn would pass binding."""
        self.sizes = {d.name: self.random.choice(SIZES) for d in self.program.dims}
        return bindable(self.program, self.sizes)

    def atom(self, atom: Atom) -> Const:
        if isinstance(atom, Value):
            return self.values[atom.id]
        if isinstance(atom, Const):
            return atom
        return self.params[atom.name] if isinstance(atom, Param) else const(u32, evaluate_dim(atom, self.sizes))

    def query(self, name: str) -> int:
        kind, _, axis = name.partition(".")
        sizes = self.program.workgroup
        if kind == "local_index":
            return self.local[0] + sizes[0] * (self.local[1] + sizes[1] * self.local[2])
        k = "xyz".index(axis)
        named = {
            "local_id": self.local[k],
            "workgroup_id": self.group[k],
            "global_id": self.group[k] * sizes[k] + self.local[k],
        }
        return named.get(kind, sizes[k] if kind == "workgroup_size" else self.group[k] + 1)

    def turn(self, loop: For) -> Const | None:
        start, stop, step = (int(self.atom(a).value) for a in loop.args)
        turns = max(0, -(-(stop - start) // step))
        if turns == 0:
            return None
        return const(loop.args[0].type, start + step * self.random.choice((0, turns - 1, self.random.randrange(turns))))

    def walk(self) -> None:
        body, match = self.program.body, self.program.match
        loops: list[int] = []
        index = 0
        while index < len(body):
            s = body[index]
            following = index + 1
            made: Const | None = None
            if isinstance(s, MemoryStatement):
                self.claimed(index, s)
                made = self.loaded(s) if isinstance(s, Load) else None
            elif isinstance(s, Let):
                assert s.result is not None
                args = tuple(self.atom(a) for a in s.args)
                made = (
                    const(u32, self.query(s.op.name)) if s.op.is_query else evaluate_constant(s.op, s.result.type, args)
                )
            elif isinstance(s, Get):
                made = self.any(s.variable.type)
            elif (isinstance(s, If) and not self.atom(s.args[0]).value) or isinstance(s, Else):
                following = match[index] + 1
            elif isinstance(s, For):
                made = self.turn(s)
                following = index + 1 if made is not None else merged_end(self.program, index) + 1
            elif isinstance(s, (Break, Continue)):
                following = merged_end(self.program, loops.pop()) + 1
            elif isinstance(s, Return):
                return
            elif isinstance(s, End) and loops and loops[-1] == match[index]:
                loops.pop()
            if isinstance(s, (For, Loop)) and following == index + 1:
                loops.append(index)
            if s.result is not None and made is not None:
                self.values[s.result.id] = made
            index = following

    def loaded(self, s: Load) -> Const:
        if s.memory.space is Space.TABLE:
            return const(u32, self.random.choice((0, 3, 1, 7, 2)))
        return self.any(s.memory.type)

    def claimed(self, index: int, s: MemoryStatement) -> None:
        for axis, (at, extent) in enumerate(zip(s.indices, s.memory.shape, strict=True)):
            if self.proven[index] >> axis & 1:
                self.claims += 1
                place, size = int(self.atom(at).value), evaluate_dim(extent, self.sizes)
                where = f"statement {index}, axis {axis}: {place} of {size}, sizes {self.sizes}"
                assert 0 <= place < size, f"{where}\n{self.program}"


def claims(program: Program, proven: tuple[int, ...], seed: int, walks: int) -> int:
    total = 0
    for number in range(walks):
        walker = Walker(program, proven, random.Random(seed * 1000 + number))
        if any(walker.draw_sizes() for _ in range(8)):
            walker.walk()
            total += walker.claims
    return total


def all_claims(seeds: Iterable[int]) -> int:
    """The claims about Programs as written."""
    return sum(claims(program, bounds(program), seed, 12) for seed in seeds for program in [random_program(seed)])


@pytest.mark.parametrize("batch", range(4))
def test_claims_hold(batch: int) -> None:
    seeds = range(batch * 40, batch * 40 + 40)
    written, optimised = all_claims(seeds), 0
    for seed in seeds:
        made = optimise(check(random_program(seed)), expand=frozenset())
        check(made.program)
        optimised += claims(made.program, made.proven, seed, 12)
    assert written > 300 and optimised > 300, "the claims that were tried are too few to say anything"


def _wrapping(facts: Any, t: Scalar, made: transfer.Range) -> transfer.Range:
    return replace(made, low=max(made.low, t.minimum), high=min(made.high, t.maximum))


def _remainder_below(facts: Any, t: Scalar, args: Any, r: tuple[transfer.Range, ...]) -> transfer.Range | None:
    below = tuple(shifted(u, -1) for u in r[1].uppers)
    return transfer.Range(0, max(0, r[1].high - 1), below) if min(r[0].low, r[1].low) >= 0 else None


def _either_bound(facts: Any, t: Scalar, args: Any, r: tuple[transfer.Range, ...]) -> transfer.Range:
    return transfer.Range(max(r[0].low, r[1].low), max(r[0].high, r[1].high), (*r[0].uppers, *r[1].uppers))


def _never_leave(self: ranges.Ranges) -> None:
    self._marks.pop()


def _one_too_low(self: ranges.Ranges, a: Atom, b: Atom, by: int) -> None:
    _AT_MOST(self, a, b, by - 1)


_AT_MOST = ranges.Ranges._at_most
DEFECTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "arithmetic never wraps": lambda m: m.setattr(transfer, "_within", _wrapping),
    "x % 0 lies below 0": lambda m: m.setitem(transfer.TRANSFER, "rem", _remainder_below),
    "max lies below either bound": lambda m: m.setitem(transfer.TRANSFER, "max", _either_bound),
    "facts outlive their block": lambda m: m.setattr(ranges.Ranges, "_leave", _never_leave),
    "< is off by one": lambda m: m.setattr(ranges.Ranges, "_at_most", _one_too_low),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_planted_defects_are_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    DEFECTS[defect](monkeypatch)
    with pytest.raises(AssertionError, match="axis"):
        all_claims(range(400))
