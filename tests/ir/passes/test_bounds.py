"""What the bounds pass claims is true: random index arithmetic, run with exact numbers over all sizes that binding accepts.

Each Program is walked as one invocation would run it, many times, with sizes, params, ids, loaded elements and variables drawn from
the whole of their types and mostly from its edges. Wherever an index that is claimed to lie inside lies outside, the sizes and the
Program are printed. The same walks catch defects planted in the pass, so they look where it matters.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from indices import EDGES, SIZES, U32_MAX, WIDE_SIZES, bindable, random_program

from vyre_py.ir.check import check
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import DimConst, Grid, evaluate_dim
from vyre_py.ir.language.nodes import (
    Access,
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
from vyre_py.ir.language.op import Operand
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import SCALARS, Type, bool_, i32, u8, u32
from vyre_py.ir.language.widths import INDEX_TYPES, whole_size
from vyre_py.ir.passes import optimise
from vyre_py.ir.passes.bounds import polynomials, ranges, transfer
from vyre_py.ir.passes.bounds.polynomials import shifted
from vyre_py.ir.passes.bounds.prove import bounds
from vyre_py.ir.passes.bounds.transfer import TRANSFER
from vyre_py.ir.passes.fold import evaluate_constant, merged_end
from vyre_py.ir.text.parser import parse


def edges_of(type_: Type) -> list[int]:
    """Numbers of an integer type where something may change."""
    near = {edge + d for edge in (0, 8, 64, 255, type_.minimum, type_.maximum, type_.maximum >> 1) for d in (-2, -1, 0, 1, 2)}
    near |= set(EDGES[u32]) | {1 << 32, (1 << 32) + 1, 1 << 63} | (set(EDGES[type_]) if type_.bits == 64 else set())
    return sorted(value for value in near if type_.minimum <= value <= type_.maximum)


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

    def any(self, type_: Type) -> Const:
        if self.random.random() < 0.2:
            return Const(type_, self.random.randrange(1 << type_.bits))
        return const(type_, self.random.choice(edges_of(type_)))

    def near(self, most: int) -> int:
        return min(most, max(0, self.random.choice(SIZES) + self.random.randrange(-2, 3))) if most > 0 else 0

    def draw_sizes(self) -> bool:
        """Whether the sizes drawn would pass binding."""
        self.sizes = {d.name: self.random.choice(WIDE_SIZES if d in self.program.widths.dims else SIZES) for d in self.program.dims}
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
                size = whole_size(s)
                if s.op.is_query:
                    made = const(u32, self.query(s.op.name))
                elif size is not None:
                    made = const(s.result.type, evaluate_dim(size, self.sizes))
                else:
                    made = evaluate_constant(s.op, s.result.type, tuple(self.atom(a) for a in s.args))
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


def all_claims(seeds: Iterable[int], wide: bool = False) -> int:
    """The claims about Programs as written."""
    return sum(claims(program, bounds(program), seed, 12) for seed in seeds for program in [random_program(seed, wide=wide)])


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("batch", range(4))
def test_claims_hold(batch: int, wide: bool) -> None:
    seeds = range(batch * 40, batch * 40 + 40)
    written, optimised = all_claims(seeds, wide), 0
    for seed in seeds:
        made = optimise(check(random_program(seed, wide=wide)), expand=frozenset())
        check(made.program)
        optimised += claims(made.program, made.proven, seed, 12)
    assert written > 300 and optimised > 300, "the claims that were tried are too few to say anything"


def _wrapping(facts: Any, t: Type, made: transfer.Range) -> transfer.Range:
    return replace(made, low=max(made.low, t.minimum), high=min(made.high, t.maximum))


def _remainder_below(facts: Any, t: Type, args: Any, r: tuple[transfer.Range, ...]) -> transfer.Range | None:
    below = tuple(shifted(u, -1) for u in r[1].uppers)
    return transfer.Range(0, max(0, r[1].high - 1), below) if min(r[0].low, r[1].low) >= 0 else None


def _either_bound(facts: Any, t: Type, args: Any, r: tuple[transfer.Range, ...]) -> transfer.Range:
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


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("defect", DEFECTS)
def test_planted_defects_are_found(defect: str, wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    DEFECTS[defect](monkeypatch)
    with pytest.raises(AssertionError, match="axis"):
        all_claims(range(400), wide)


WIDE_DEFECTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "every size is a word": lambda m: m.setattr(polynomials, "SIZE_MAX", U32_MAX),
    "a size taken whole is a word": lambda m: m.setattr(polynomials.SizeFacts, "greatest", lambda self, expr: U32_MAX),
}


WIDE = """program p(n, m) over(1) {
  buffer x: u8[n] read
  buffer small: u8[m] read
  buffer all: u8[4294967296] read_write
  let a = x[cast(global_id.x, u64)] ^ small[global_id.x]
  all[cast(n, u64)] = a
  all[cast(m, u64)] = a
  all[cast(n, u64) & 4294967295] = a
  all[cast(cast(n, u64), u32)] = a
  all[cast(m, u64) * cast(m, u64) >> 32] = a
  all[cast(m, i64) - cast(n, i64)] = a
  if cast(n, u64) <= 4294967296 { all[cast(n, u64) - 1] = a }
  if cast(n, i64) > 0 { all[0u32] = x[cast(n, i64) - 1] }
}"""


def test_wide_sizes_are_not_words() -> None:
    program = parse(WIDE)
    check(program)
    proven = [bits for s, bits in zip(program.body, bounds(program), strict=True) if isinstance(s, MemoryStatement)]
    assert proven == [0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1]
    assert sum(claims(program, bounds(program), seed, 100) for seed in range(10))


@pytest.mark.parametrize("defect", WIDE_DEFECTS)
def test_planted_defects_of_wide_sizes_are_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    WIDE_DEFECTS[defect](monkeypatch)
    program = parse(WIDE)
    with pytest.raises(AssertionError, match="axis"):
        claims(program, bounds(program), 1, 1000)


# ---------------------------------------------------------------- every integer type

INTEGERS = tuple(t for t in SCALARS.values() if t.is_integer)
COMPARED = ("lt", "le", "gt", "ge", "eq", "ne")


def typed_program(seed: int) -> Program:
    """Index arithmetic in every integer type, with conditions between, whose results are cast and then index."""
    rng = random.Random(seed)
    a = Assembler("typed", (64, 1, 1))
    n = a.dim("n")
    buffers = [a.memory(name, Space.BUFFER, u32, shape, Access.READ) for name, shape in (("x", (n,)), ("y", (DimConst(256),)), ("z", (n, DimConst(16))))]
    narrow = a.memory("w", Space.BUFFER, u8, (n,), Access.READ)
    values: list[Atom] = [a.param(f"p{t}", t) for t in INTEGERS]
    values += [a.let(OPS["global_id.x"], ()), a.let(OPS["local_id.x"], ()), a.load(narrow, (const(u32, 0),)), n]

    def pick(t: Type) -> Atom:
        fitting = [v for v in values if v.type is t]
        if rng.random() < 0.25 or not fitting:
            return const(t, rng.choice([e for e in edges_of(t) if abs(e) <= 300] if rng.random() < 0.8 else edges_of(t)))
        return rng.choice(fitting[-4:])

    opened = 0
    for _ in range(40):
        kind, t = rng.random(), rng.choice(INTEGERS)
        if kind < 0.4:
            name = rng.choice([name for name in TRANSFER if name not in ("cast", "bitcast", "abs_diff", "extract_bits")])
            values.append(a.let(OPS[name], tuple([pick(t) for _ in OPS[name].operands])))
        elif kind < 0.45:
            values.append(a.let(OPS["extract_bits"], (pick(t), pick(u32), pick(u32))))
        elif kind < 0.5:
            values.append(a.let(OPS["abs_diff"], (pick(t), pick(t))))
        elif kind < 0.75:
            atom = rng.choice(values[-6:])
            if atom.type is not t:
                values.append(a.let(OPS["cast"], (atom,), t))
        elif kind < 0.85:
            condition = a.let(OPS[rng.choice(COMPARED)], (pick(t), pick(t)))
            if rng.random() < 0.5:
                values.append(a.let(OPS["select"], (condition, pick(t), pick(t))))
            elif opened < 4:
                a.if_(condition)
                opened += 1
        for memory in [m for m in buffers if rng.random() < 0.5]:
            a.load(memory, tuple([pick(rng.choice(INDEX_TYPES if seed % 2 else (u32, i32))) for _ in memory.shape]))
    for _ in range(opened):
        a.end()
    a.grid = Grid(False, (DimConst(1), DimConst(1), DimConst(1)))
    return a.finish()


@pytest.mark.parametrize("batch", range(3))
def test_claims_of_every_integer_type_hold(batch: int) -> None:
    tried = 0
    for seed in range(batch * 60, batch * 60 + 60):
        program = typed_program(seed)
        check(program)
        tried += claims(program, bounds(program), seed, 16)
    assert tried > 1000, "the claims that were tried are too few to say anything"


def _never_narrowed(facts: Any, t: Type, args: Any, r: tuple[transfer.Range, ...]) -> transfer.Range:
    return r[0]


def _saturated_upward(facts: Any, t: Type, args: Any, r: tuple[transfer.Range, ...]) -> transfer.Range:
    return transfer.Range(max(r[0].low - r[1].high, t.minimum), min(r[0].high - r[1].low, t.maximum))


def _low_bits(facts: Any, t: Type, args: Any, r: tuple[transfer.Range, ...]) -> transfer.Range:
    return transfer.Range(0, (1 << min(r[2].high, t.bits)) - 1)


@pytest.mark.parametrize(("name", "rule"), [("cast", _never_narrowed), ("saturating_sub", _saturated_upward), ("extract_bits", _low_bits)])
def test_planted_rules_are_found(name: str, rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(transfer.TRANSFER, name, rule)
    with pytest.raises(AssertionError, match="gives"):
        test_every_rule_holds_for_every_integer_type(name)


def test_nothing_is_claimed_of_what_vectors_hold() -> None:
    """Four bytes of at most 255 are a word of any size."""
    text = """program p(n) over(256) {
  buffer b: u8x4[n] read
  buffer y: u32[256] read_write
  let v = b[0u32]
  y[bitcast(v, u32)] = y[dot(v, v) as_u32]
  let low = min(cast(v, u32x4), vec4(3u32, 3, 3, 3))
  y[low.x] = y[select(v.x < 3u8, 5u32, 6u32)]
}"""
    program = parse(text.replace("dot(v, v) as_u32", "cast(dot(v, v), u32)"))
    check(program)
    proven = [bits for s, bits in zip(program.body, bounds(program), strict=True) if isinstance(s, MemoryStatement) and s.memory.name == "y"]
    assert proven[1] == 0 and proven[0] == 1, "a u8 lies below 256; a word does not"


def intervals(t: Type, rng: random.Random) -> transfer.Range:
    low, high = sorted((rng.choice(edges_of(t)), rng.choice(edges_of(t))))
    if rng.random() < 0.4:
        high = min(high, low + rng.randrange(5))
    return transfer.Range(low, high)


def inside(r: transfer.Range, t: Type, rng: random.Random) -> np.ndarray:
    """Some numbers of a range, the ends and edges among them."""
    found = [r.low, r.high, *(e for e in edges_of(t) if r.low <= e <= r.high), *(rng.randint(r.low, r.high) for _ in range(20))]
    return np.array(found, t.dtype)


def operand_types(name: str) -> list[tuple[Type, ...]]:
    if name == "cast":
        return [(s, t) for s in (*INTEGERS, bool_) for t in INTEGERS if s is not t]
    if name == "bitcast":
        return [(s, t) for s in INTEGERS for t in INTEGERS if s.bits == t.bits and s is not t]
    return [tuple([u32 if o is Operand.U32 else t for o in OPS[name].operands]) for t in INTEGERS]


@pytest.mark.parametrize("name", transfer.TRANSFER)
def test_every_rule_holds_for_every_integer_type(name: str) -> None:
    rng = random.Random(name)
    facts = ranges.Ranges(Assembler("nothing").finish())
    a = Assembler("operands")
    given = name in ("cast", "bitcast")
    for types in operand_types(name):
        operands, result = (types[:1], types[1]) if given else (types, OPS[name].result_type(types))
        assert result is not None
        atoms = tuple([a.param(f"{k}", t) for k, t in enumerate(operands)])
        for _ in range(60):
            known = tuple([intervals(t, rng) if t.is_integer else transfer.BOOLEAN for t in operands])
            made = transfer.TRANSFER[name](facts, result, atoms, known)
            if made is None:
                continue
            grid = np.meshgrid(*[inside(r, t, rng) if t.is_integer else np.array([False, True]) for r, t in zip(known, operands, strict=True)], indexing="ij")
            evaluate = OPS[name].evaluate
            assert evaluate is not None
            with np.errstate(all="ignore"):
                got = evaluate(result, *[g.ravel() for g in grid])
            low, high = int(got.min()), int(got.max())
            assert made.low <= low and high <= made.high, f"{name} over {operands} to {result}: {known} gives {made}, but {low} to {high}"


def test_what_is_kept_is_what_would_be_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same claims as where nothing is kept from one question to the next: then each state is one of its own."""
    programs = [random_program(seed, budget=30, wide=bool(seed % 2)) for seed in range(30)]
    kept = [bounds(program) for program in programs]
    hits = [0]

    class Forgetful(dict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            hits[0] += key in self
            return None

    plain = ranges.Ranges.__init__

    def forgetful(self: ranges.Ranges, program: Program) -> None:
        plain(self, program)
        self._refined, self._inside = Forgetful(), Forgetful()

    monkeypatch.setattr(ranges.Ranges, "__init__", forgetful)
    assert [bounds(program) for program in programs] == kept
    assert hits[0], "nothing was asked twice"
