"""Passes keep what a Program means, keep its rules, are linear, and say what they did. What each makes of small Programs stands in
`filetests/passes`."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import pytest
from generator import Case, Seeded, generate
from indices import random_arguments, random_program, random_updates

from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import DimConst, Grid
from vyre_py.ir.language.errors import ValidationError
from vyre_py.ir.language.nodes import Access, Atom, Const, If, Let, Space, const
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import f32, i64, u32
from vyre_py.ir.passes import PASSES, Optimised, annotate, optimise, unoptimised
from vyre_py.ir.passes.bounds.ranges import Ranges
from vyre_py.ir.passes.fold import fold
from vyre_py.ir.passes.rewriter import Rewriter
from vyre_py.ir.text.parser import parse
from vyre_py.ir.text.printer import print_program
from vyre_py.lowering.kinds import STRICT_EXPANSIONS

AXPY = """
program axpy(n) workgroup(256) {
  param a: f32
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  let i = global_id.x
  y[i] = a * x[i] + y[i]
}
"""


def written(program: Program, arguments: dict[str, Any], sizes: dict[str, int]) -> dict[str, np.ndarray[Any, Any]]:
    """The written buffers after a run of the Program as it stands, on copies."""
    copies = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in arguments.items() if k not in sizes}
    interpret(unoptimised(check(program), expand=STRICT_EXPANSIONS), copies, sizes)
    return {m.name: copies[m.name] for m in program.buffers if m.access.writes}


def assert_same(want: dict[str, np.ndarray[Any, Any]], got: dict[str, np.ndarray[Any, Any]], text: object) -> None:
    for name, a in want.items():
        b = got[name]
        same = a.view(f"u{a.itemsize}") == b.view(f"u{b.itemsize}")
        if a.dtype.kind == "f":
            same |= np.isnan(a) & np.isnan(b)
        assert same.all(), f"{name} differs at {np.argwhere(~same)[:5].tolist()}\n{text}"


@cache
def generated(seed: int) -> tuple[Case, dict[str, np.ndarray[Any, Any]]]:
    """A Program, and what it writes as it stands."""
    case = generate(Seeded(seed))
    return case, written(case.program, case.arguments, case.sizes)


@cache
def indexed(seed: int, wide: bool) -> tuple[Program, list[tuple[dict[str, Any], dict[str, int], dict[str, np.ndarray[Any, Any]]]]]:
    """A Program of index arithmetic, and two runs: arguments, sizes, and what it writes as it stands."""
    program = random_program(seed, loops_end=True, wide=wide)
    given = [random_arguments(program, random.Random(seed * 100 + run)) for run in range(2)]
    return program, [(arguments, sizes, written(program, arguments, sizes)) for arguments, sizes in given]


@pytest.mark.parametrize("level", [1, 2])
def test_results_of_generated_programs_are_kept(level: int) -> None:
    for seed in range(120):
        case, want = generated(seed)
        made = optimise(check(case.program), expand=STRICT_EXPANSIONS, level=level)
        assert_same(want, written(made.program, case.arguments, case.sizes), f"seed {seed}\n{case.program}")


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("wide", [False, True])
def test_each_pass_keeps_results(name: str, wide: bool) -> None:
    """Index arithmetic with out-of-bounds accesses, odd and empty sizes; the interpreter's lockstep makes even races repeatable."""
    for seed in range(60):
        program, runs = indexed(seed, wide)
        after = PASSES[name](program)
        for arguments, sizes, want in runs if after is not program else ():
            assert_same(want, written(after, arguments, sizes), f"seed {seed}\n{program}\n{after}")


@pytest.mark.parametrize("wide", [False, True])
def test_results_of_index_programs_are_kept(wide: bool) -> None:
    for seed in range(60):
        program = random_program(seed, loops_end=True, wide=wide)
        made = optimise(check(program), expand=frozenset())
        arguments, sizes = random_arguments(program, random.Random(seed))
        want, got = written(program, arguments, sizes), written(made.program, arguments, sizes)
        assert_same(want, got, f"seed {seed}\n{program}\n{made.program}")


def test_guards_keep_results() -> None:
    """Updates of few elements between variables, loops, branches and barriers, where order and reach matter."""
    more = 0
    for seed in range(300):
        try:
            checked = check(random_updates(seed))
        except ValidationError:
            continue  # a barrier behind a return that not all take
        program = checked.program
        made = optimise(checked, expand=frozenset())
        check(made.program)
        more += sum(isinstance(s, If) for s in made.program.body) > sum(isinstance(s, If) for s in program.body)
        arguments, sizes = random_arguments(program, random.Random(seed))
        want, got = written(program, arguments, sizes), written(made.program, arguments, sizes)
        assert_same(want, got, f"seed {seed}\n{program}\n{made.program}")
    assert more > 100


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 1000])
def test_axpy_has_one_guard(size: int) -> None:
    program = parse(AXPY)
    made = optimise(check(program), expand=frozenset())
    assert sum(isinstance(s, If) for s in made.program.body) == 1
    assert (made.report.checks_kept, made.report.checks_removed) == (0, 3)
    rng = np.random.default_rng(size)
    x, y = rng.standard_normal((2, size)).astype(np.float32)
    got = written(made.program, {"a": 2.5, "x": x, "y": y}, {"n": size})
    assert_same({"y": np.float32(2.5) * x + y}, got, made.program)


def test_optimised_programs_are_valid_and_the_same_every_time() -> None:
    for seed in range(100):
        checked = check(generate(Seeded(seed)).program)
        made, again = (optimise(checked, expand=STRICT_EXPANSIONS) for _ in range(2))
        assert check(made.program).uniformity == made.uniformity
        assert print_program(made.program) == print_program(again.program) and made.proven == again.proven


def test_a_pass_with_nothing_to_do_gives_the_program_back() -> None:
    for seed in range(20):
        program = optimise(check(generate(Seeded(seed)).program), expand=STRICT_EXPANSIONS).program
        for name in ("dce", "fold"):
            after = PASSES[name](program)
            assert PASSES[name](after) is after


def test_levels_and_the_report() -> None:
    checked = check(parse(AXPY))
    plain, cheap, full = (optimise(checked, expand=frozenset(), level=level) for level in (0, 1, 2))
    assert plain.program is checked.program and plain.uniformity is checked.uniformity and not any(plain.proven)
    assert plain.report.counts() == {"checks_kept": 3, "checks_removed": 0}
    assert [s.name for s in cheap.report.steps] == ["fold", "simplify", "dce"] and not any(cheap.proven)
    assert full.report.counts() == {
        "checks_kept": 0,
        "checks_removed": 3,
        "statements_before": 6,
        "statements_after": 9,
    }
    assert str(full.report).splitlines()[-1] == "checks: 0 kept, 3 removed"
    assert "expand" not in {s.name for s in full.report.steps}


def remarks(made: Optimised) -> list[str]:
    remark = annotate(made)
    return [text for index in range(len(made.program.body)) if (text := remark(index))]


def test_remarks_say_which_axes_are_checked() -> None:
    text = "program p(n, m) over(8, m, 4) {\n buffer x: f32[n, m] read\n buffer y: f32[4, m, 8] write\n y[3u32, 0u32, 9u32] = x[0u32, 1u32]\n}"
    made = optimise(check(parse(text)), expand=frozenset())
    assert remarks(made) == ["checked axis 0, 1", "checked axis 1, 2"]
    assert remarks(optimise(check(parse(AXPY)), expand=frozenset())) == ["proven"] * 3


def test_expansion_comes_first() -> None:
    text = "program p over(1) {\n buffer y: f32[1] write\n y[0u32] = exp(1.0f32)\n}"
    made = optimise(check(parse(text)), expand=STRICT_EXPANSIONS)
    assert made.report.steps[0].name == "expand"
    assert len(made.program.body) == 1, "an expanded op of a constant folds away"
    first = unoptimised(check(parse(text)), expand=frozenset()).program.body[0]
    assert isinstance(first, Let) and first.op is OPS["exp"]


def nested(depth: int) -> Program:
    a = Assembler("nested")
    n = a.dim("n")
    a.grid = Grid(True, (n, DimConst(1), DimConst(1)))
    y = a.memory("y", Space.BUFFER, u32, (n,), Access.READ_WRITE)
    i: Atom = a.let(OPS["global_id.x"], ())
    for _ in range(depth):
        a.if_(a.let(OPS["ne"], (a.load(y, (i,)), const(u32, 7))))
        i = a.let(OPS["add"], (i, const(u32, 1)))
        a.store(y, (i,), a.load(y, (i,)))
    for _ in range(depth):
        a.end()
    return a.finish()


@pytest.mark.parametrize("depth", [1, 60, 119, 120, 250, 256])
def test_guards_keep_to_the_nesting_limit(depth: int) -> None:
    made = optimise(check(nested(depth)), expand=frozenset())
    check(made.program)
    guarded = sum(isinstance(s, If) for s in made.program.body) > depth
    assert guarded == (depth < 120)


def test_names_and_places_are_kept() -> None:
    made = optimise(check(parse(AXPY)), expand=frozenset())
    assert "i" in made.program.value_names.values()
    lines = {place.line for i in range(len(made.program.body)) if (place := made.program.place(i)) is not None}
    assert lines == {6, 7}


def long_program(statements: int) -> Program:
    """Unguarded updates of neighbouring elements, some in loops and branches, a variable throughout."""
    a = Assembler("long")
    n = a.dim("n")
    x = a.memory("x", Space.BUFFER, f32, (n,), Access.READ)
    y = a.memory("y", Space.BUFFER, f32, (n, DimConst(4)), Access.READ_WRITE)
    a.grid = Grid(True, (n, DimConst(1), DimConst(1)))
    i = a.let(OPS["global_id.x"], ())
    sum_ = a.var(f32, const(f32, 0.0))
    for k in range(statements // 20):
        at = a.let(OPS["add"], (i, const(u32, k)))
        a.set(sum_, a.let(OPS["add"], (a.get(sum_), a.load(x, (at,)))))
        a.if_(a.let(OPS["lt"], (at, n)))
        t = a.for_(const(u32, 0), const(u32, 4), const(u32, 1))
        a.store(y, (at, t), a.let(OPS["mul"], (a.load(y, (at, t)), a.get(sum_))))
        a.end()
        a.end()
        a.store(y, (at, const(u32, 1)), a.let(OPS["add"], (a.load(y, (at, const(u32, 1))), a.load(x, (i,)))))
    return a.finish()


def test_visits_are_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0

    def counted(owner: Any, name: str) -> None:
        plain = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            return plain(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    for owner, name in ((Rewriter, "copy"), (Rewriter, "atom"), (Ranges, "visit"), (Ranges, "of"), (Ranges, "_write")):
        counted(owner, name)
    visits = []
    for size in (1000, 2000, 4000):
        count = 0
        optimise(check(long_program(size)), expand=frozenset())
        visits.append(count)
    assert visits[1] < 2.1 * visits[0] and visits[2] < 2.1 * visits[1]


@pytest.mark.parametrize(("size", "known"), [(0, True), (5, True), ((1 << 63) - 1, True), (1 << 63, False)])
def test_a_size_that_is_known_is_a_constant_where_its_type_holds_it(size: int, known: bool) -> None:
    a = Assembler("sized", (1, 1, 1))
    y = a.memory("y", Space.BUFFER, i64, (DimConst(1),), Access.WRITE)
    a.store(y, (const(u32, 0),), a.let(OPS["cast"], (DimConst(size),), i64))
    a.grid = Grid(True, (DimConst(1), DimConst(1), DimConst(1)))
    folded = fold(a.finish())
    stored = folded.body[-1].args[-1]
    assert (stored.type, stored.value) == (i64, size) if isinstance(stored, Const) else not known
