"""exp, log, sin and cos as the interpreter computes their expansions, against mpmath; and the pass that expands."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
import pytest
from math_harness import around, near_quarter_turns

from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.errors import Place
from vyre_py.ir.language.nodes import Access, If, Let, Load, Space, const
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import f32, u32
from vyre_py.ir.math import EXPANSIONS, VECTOR_EXPANSIONS
from vyre_py.ir.passes.expand import expand
from vyre_py.ir.passes.pipeline import optimise

BOUND_ULP = 1.0  # each module promises it; the language promises 2
NAMES = ("exp", "log", "sin", "cos")
ALL = frozenset(NAMES)

mpmath.mp.prec = 200


def program_of(*names: str) -> Program:
    out = Assembler("math")
    n = out.dim("n")
    x, y = out.memory("x", Space.BUFFER, f32, (n,), Access.READ), out.memory("y", Space.BUFFER, f32, (n,), Access.READ_WRITE)
    i = out.let(OPS["global_id.x"], ())
    value = out.load(x, (i,))
    for name in names:
        out.place = Place("math.vir", 7)
        value = out.let(OPS[name], (value,), name=f"{name} of x")
        out.place = None
    out.store(y, (i,), value)
    return out.finish()


def compute(name: str, x: Any) -> Any:
    y = np.empty_like(x)
    interpret(SimpleNamespace(program=expand(program_of(name), ALL)), {"x": x, "y": y}, {"n": x.size})
    return y


def from_bits(bits: Any) -> Any:
    return np.asarray(bits).astype(np.uint32).view(np.float32)


# ---------------------------------------------------------------- inputs


def hard_inputs(name: str) -> Any:
    powers = 2.0 ** np.arange(-149, 128)
    shared = [around(powers), around([0.0, 1.0, 2.0, 3.0, 0.5]), from_bits([0x7F7FFFFF, 0x007FFFFF, 0x00800000, 0x00000001])]
    if name == "exp":
        halves = (np.arange(-300, 257) / 2) * np.log(2)
        own = [around(halves, 2), around([88.72283, 88.72284, -87.33655, -103.27893, -103.97208, -104.0, 89.0], 5), np.linspace(-104, -86, 1000)]
    elif name == "log":
        own = [around(np.outer(powers[20:-20:5], [0.668, 1.336, 1.0]).ravel(), 2), around(1 + np.linspace(-1, 1, 301) ** 3 / 3, 1), around([1.0], 300)]
    else:
        borders = around(2.0 ** np.array([-13, -12, 15.9, 16, 16.1, 17]), 20)
        own = [near_quarter_turns(), around(np.arange(1, 200) * np.pi / 4, 1), borders, np.linspace(65000, 66000, 200)]
    return np.concatenate([np.asarray(part, np.float32) for part in (*shared, *own)])


# ---------------------------------------------------------------- the oracle


def error_ulp(name: str, x: Any, y: Any) -> Any:
    """|y - f(x)| in units of the last place of f(x); an infinite y counts as 2^128. For finite f(x)."""
    errors = []
    for argument, result in zip(x.tolist(), y.tolist(), strict=True):
        exact = getattr(mpmath, name)(mpmath.mpf(argument))
        ulp = mpmath.mpf(2) ** (max(int(mpmath.frexp(exact)[1]), -125) - 24)
        got = mpmath.mpf(result) if np.isfinite(result) else mpmath.mpf(np.copysign(2.0**128, result))
        if abs(exact) >= mpmath.mpf(2) ** 128:
            exact = mpmath.mpf(2) ** 128
            ulp = mpmath.mpf(2) ** 104
        errors.append(float(abs(got - exact) / ulp))
    return np.array(errors)


def in_domain(name: str, x: Any) -> Any:
    return np.isfinite(x) & ((x > 0) | (name != "log"))


@pytest.mark.parametrize("name", NAMES)
def test_hard_inputs(name: str) -> None:
    x = hard_inputs(name)
    x = np.concatenate([x, -x])
    x = np.unique(x[in_domain(name, x)].view(np.uint32)).view(np.float32)
    _assert_within_bound(name, x)


@pytest.mark.parametrize("name", NAMES)
def test_random_bit_patterns(name: str) -> None:
    x = np.random.default_rng(20).integers(0, 1 << 32, 6000).astype(np.uint32).view(np.float32)
    _assert_within_bound(name, x[in_domain(name, x)])


def _assert_within_bound(name: str, x: Any) -> None:
    y = compute(name, x)
    assert not np.isnan(y).any()
    errors = error_ulp(name, x, y)
    worst = int(np.argmax(errors))
    print(f"{name}: {x.size} arguments, worst {errors[worst]:.4f} ULP at {float(x[worst]).hex()}")
    assert errors[worst] <= BOUND_ULP, f"{name}({float(x[worst]).hex()}) is off by {errors[worst]} ULP"


# ---------------------------------------------------------------- exact facts

INF, NAN = np.inf, np.nan
EXACT = [
    ("exp", [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (NAN, NAN), (88.72284, INF), (3.4e38, INF), (-104.0, 0.0), (-3.4e38, 0.0)]),
    ("exp", [(1e-45, 1.0), (-1e-45, 1.0), (-103.97, 1e-45)]),
    ("log", [(1.0, 0.0), (0.0, -INF), (-0.0, -INF), (INF, INF), (-INF, NAN), (-1.0, NAN), (-1e-45, NAN), (NAN, NAN), (1e-45, -103.27893)]),
    ("sin", [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN), (1e-45, 1e-45), (-1e-45, -1e-45), (1e-38, 1e-38)]),
    ("cos", [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN), (NAN, NAN), (1e-45, 1.0)]),
]


@pytest.mark.parametrize(("name", "pairs"), EXACT)
def test_exact_values(name: str, pairs: list[tuple[float, float]]) -> None:
    x, expected = (np.array(column, np.float32) for column in zip(*pairs, strict=True))
    y = compute(name, x)
    same = (y.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(y) & np.isnan(expected))
    assert same.all(), [(a, b, c) for a, b, c, ok in zip(x, y, expected, same, strict=True) if not ok]


@pytest.mark.parametrize(("name", "parity"), [("sin", 0x80000000), ("cos", 0)])
def test_symmetry_is_exact(name: str, parity: int) -> None:
    bits = np.random.default_rng(5).integers(0, 0x7F800000, 20_000).astype(np.uint32)
    x = np.concatenate([bits.view(np.float32), near_quarter_turns()])
    assert (compute(name, -x).view(np.uint32) == compute(name, x).view(np.uint32) ^ np.uint32(parity)).all()


@pytest.mark.parametrize("name", ["exp", "log"])
def test_results_rise_with_the_argument(name: str) -> None:
    bits = np.arange(0x3F000000, 0x3F000000 + 200_000, dtype=np.uint32)
    y = compute(name, bits.view(np.float32))
    # Not strictly monotone by construction, but never off by more than the bound allows: one step back.
    steps = np.diff(y.view(np.int32) * np.where(y < 0, -1, 1))
    assert steps.min() >= -1


# ---------------------------------------------------------------- the pass


def test_every_row_that_expands_has_an_expansion() -> None:
    assert {name for name, row in OPS.items() if row.expands} <= {*EXPANSIONS, *VECTOR_EXPANSIONS}


def test_only_the_named_ops_are_expanded_and_places_and_names_stay() -> None:
    program = program_of("exp", "sin", "log")
    got = expand(program, frozenset({"sin"}))
    left = [s.op.name for s in got.body if isinstance(s, Let) and s.op.expands]
    assert left == ["exp", "log"]
    assert set(got.value_names.values()) == {"exp of x", "sin of x", "log of x"}
    written_at = [got.place(index) for index in range(len(got.body))]
    assert len([p for p in written_at if p is not None and p.line == 7]) == len(got.body) - 3
    assert len(got.body) == len(got.match) and [v.id for v in (s.result for s in got.body) if v is not None] == list(range(got.value_count))


def test_nothing_to_expand_gives_the_same_program() -> None:
    program = program_of("sqrt", "sin")
    assert expand(program, frozenset()) is program
    expanded = expand(program, ALL)
    assert expand(expanded, ALL) is expanded


def test_expansion_is_deterministic() -> None:
    assert expand(program_of("sin", "exp"), ALL) == expand(program_of("sin", "exp"), ALL)


def test_the_table_is_declared_once_and_beside_a_memory_of_its_name() -> None:
    names = [m.name for m in expand(program_of("sin", "cos", "sin"), ALL).memories]
    assert len(names) == 3
    out = Assembler("clash", (64, 1, 1))
    taken = out.memory(names[2], Space.BUFFER, f32, (DimConst(64),), Access.READ_WRITE)
    i = out.let(OPS["global_id.x"], ())
    out.store(taken, (i,), out.let(OPS["sin"], (const(f32, 1e30),)))
    program = expand(out.finish(), ALL)
    assert len({m.name for m in program.memories}) == 2
    y = np.zeros(64, np.float32)
    interpret(SimpleNamespace(program=program), {names[2]: y}, {})
    assert (y == compute("sin", np.array([1e30], np.float32))).all()


def test_ops_inside_divergent_blocks() -> None:
    out = Assembler("blocks", (8, 1, 1))
    y = out.memory("y", Space.BUFFER, f32, (DimConst(64),), Access.READ_WRITE)
    i = out.let(OPS["global_id.x"], ())
    total = out.var(f32, const(f32, 0.0))
    turn = out.for_(const(u32, 0), i, const(u32, 1))
    out.if_(out.let(OPS["eq"], (turn, const(u32, 5))))
    out.continue_()
    out.end()
    large = out.let(OPS["mul"], (out.let(OPS["cast"], (turn,), f32), const(f32, 30000.0)))
    out.set(total, out.let(OPS["add"], (out.get(total), out.let(OPS["cos"], (large,)))))
    out.end()
    out.store(y, (i,), out.get(total))
    program = expand(out.finish(), ALL)
    assert any(isinstance(s, If) for s in program.body)
    got = np.zeros(64, np.float32)
    interpret(SimpleNamespace(program=program), {"y": got}, {})
    terms = compute("cos", np.arange(64, dtype=np.float32) * np.float32(30000))
    for lane in range(64):
        expected = np.float32(0)
        for k in range(lane):
            expected = expected + terms[k] if k != 5 else expected
        assert got[lane] == expected


@pytest.mark.parametrize("name", NAMES)
def test_expansions_are_valid_and_keep_their_bits_through_the_passes(name: str) -> None:
    check(expand(program_of(name), ALL))
    optimised = optimise(check(program_of(name)), expand=ALL)
    x = hard_inputs(name)[::3].copy()
    y = np.empty_like(x)
    interpret(optimised, {"x": x, "y": y}, {"n": x.size})
    plain = compute(name, x)
    assert ((y.view(np.uint32) == plain.view(np.uint32)) | (np.isnan(y) & np.isnan(plain))).all()


def test_every_table_load_of_the_large_reduction_is_proven_inside() -> None:
    optimised = optimise(check(program_of("sin")), expand=ALL)
    loads = [i for i, s in enumerate(optimised.program.body) if isinstance(s, Load) and s.memory.space is Space.TABLE]
    assert len(loads) == 4 and all(optimised.proven[i] == 1 for i in loads)
