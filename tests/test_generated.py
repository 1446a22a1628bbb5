"""Generated Programs: every device agrees with the interpreter over the unoptimised Program, to the bit.

VYRE_SEED replays a run, VYRE_GENERATED sets how many Programs a device gets (by default thousands on the CPU, fewer where compiling
is slow): VYRE_GENERATED=20000 is the long run.
"""

from __future__ import annotations

import gc
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from device_kinds import open_device
from generator import ALL_TYPES, WHOLE_TYPES, Case, Seeded, generate
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from lane_programs import ControlFlow
from outlined import outlined
from ptxas import assemble_together

from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.device import Device
from vyre_py.drivers.errors import KernelAssertion
from vyre_py.ir.check import check
from vyre_py.ir.interpret import Reports, interpret
from vyre_py.ir.language.dims import DimConst, evaluate_dim
from vyre_py.ir.language.errors import ValidationError
from vyre_py.ir.language.nodes import (
    FENCES,
    Atomic,
    Const,
    For,
    Get,
    GridScan,
    If,
    Let,
    Loop,
    Set,
    Space,
    Store,
    UniformLoad,
    Var,
)
from vyre_py.ir.language.ops import EXPANDED_ONLY, GRID_FOLDS, OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import TYPES
from vyre_py.ir.passes import inline, unoptimised
from vyre_py.ir.text.parser import parse
from vyre_py.ir.text.printer import print_program
from vyre_py.lowering.compile import compile_for
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.reports import forms_of
from vyre_py.lowering.target import Target

SEED = int(os.environ.get("VYRE_SEED") or random.SystemRandom().randrange(1 << 32))
TELLING = {"reference": 16, "cpu": 16, "wgpu": 6, "cuda": 200}
# Programs with subgroups; those on WebGPU are in `tests/drivers/wgpu/test_wgpu_subgroups.py`, which knows what goes through workgroup memory.
TOGETHER = {"cpu": 120, "cuda": 600}
TOGETHER_BATCHES = 24
SCANNING = {"reference": 16, "cpu": 48, "cuda": 400}  # wgpu has no fences
SCANNING_BATCHES = 16
COUNTS = {"reference": 100, "cpu": 2400, "wgpu": 1000, "cuda": 2000}
BATCHES = 60
PTX_ARCHS = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")
ARCHS = int(os.environ.get("VYRE_GENERATED_ARCHS", "1"))
# All PTX is made at the default level; one Program in eight has one of the other levels as well, by batch.
OTHER_LEVELS, OTHERWISE = (0, 1, 2), 8
# One Program in six is longer than the others. Half of all have 100 statements or more, with what the generator begins and ends each with.
LONG, SHORT = 126, 56
HYPOTHESIS_BATCH = 30


@pytest.fixture(autouse=True, scope="module")
def garbage_is_seldom_looked_for() -> Iterator[None]:
    """Compiling makes many objects and few cycles."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 20, 50)
    yield
    gc.set_threshold(*before)


_whole_number_below = cache(lambda n: st.integers(0, n - 1))


class Drawn:
    """Choices from Hypothesis, which shrinks what fails."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def below(self, n: int) -> int:
        return self.draw(_whole_number_below(n))


@st.composite
def drawn_cases(draw: st.DrawFn) -> Case:
    """Drawn as one example: what `st.data()` does around each of the thousand choices in it takes longer than making the Program."""
    return generate(Drawn(draw))


def expected(case: Case, reports: Reports | None = None) -> dict[str, np.ndarray[Any, Any]]:
    """What the interpreter makes of the Program as written, vectors and small floats and all; what it says goes to `reports`."""
    copies = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in case.arguments.items()}
    given = {k: v for k, v in copies.items() if k not in case.sizes}
    interpret(unoptimised(check(case.program), expand=EXPANDED_ONLY), given, case.sizes, reports=reports)
    return {m.name: copies[m.name] for m in case.program.buffers if m.access.writes}


def same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Where two arrays of one dtype are equal: to the bit, but that any NaN equals any other."""
    word = f"u{a.dtype.itemsize}"
    same: np.ndarray[Any, Any] = a.view(word) == b.view(word)
    if a.dtype.kind not in "biu":
        with np.errstate(invalid="ignore"):  # signalling NaNs on their way to f64
            same |= np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
    return same


def assert_agrees(device: Device, case: Case, options: CompileOptions | None = None, target: Target | None = None) -> None:
    """The interpreter watches for races, which generated Programs are free of."""
    config = DispatchConfig(races=device.kind == "reference")
    pipeline = device.load(compile_for(case.program, [target])) if target else device.compile_native(case.program, options)
    assert_same(case, expected(case), pipeline.dispatch(case.arguments, config=config))


def assert_same(case: Case, want: Mapping[str, Any], got: Mapping[str, Any]) -> None:
    for memory in case.program.buffers:
        if memory.access.writes:
            a, b = want[memory.name], got[memory.name]
            assert a.shape == b.shape and a.dtype == b.dtype
            same = same_bits(a, b)
            assert same.all(), f"{memory.name} differs at {np.argwhere(~same)[:5].tolist()}: want {a[~same][:5]}, got {b[~same][:5]}\n{case.program}"


def number_of_programs(kind: str, counts: Mapping[str, int] = COUNTS) -> int:
    return int(os.environ.get("VYRE_GENERATED") or counts[kind])


def share(count: int, batch: int, batches: int) -> range:
    """Which of `count` Programs are this batch's."""
    return range(count * batch // batches, count * (batch + 1) // batches)


def nth(number: int, kind: str, seed: int = SEED) -> Case:
    """The Program of this number in this run: over all types where floating point is strict, else over the exact ones."""
    source, budget = Seeded(seed * 100_003 + number), SHORT if number % 6 else LONG
    return generate(source, types=WHOLE_TYPES, wide_atomics=False, budget=budget) if kind == "wgpu" else generate(source, budget=budget)


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("kind", [kind for kind in COUNTS if kind != "cpu"])
def test_devices_agree(kind: str, batch: int) -> None:
    device = open_device(kind)
    print(f"VYRE_SEED={SEED}")
    for number in share(number_of_programs(kind), batch, BATCHES):
        print(f"Program {number}")
        assert_agrees(device, nth(number, kind), target=Target("wgsl") if kind == "wgpu" and number % 2 else None)  # for all devices, and for this one


@pytest.mark.parametrize("batch", range(BATCHES))
def test_the_cpu_agrees_and_ptx_assembles(batch: int) -> None:
    """The PTX of the same Programs is for one architecture of five, from the oldest that NVIDIA's assembler takes on, in turns; VYRE_GENERATED_ARCHS=5
    has each for all of them. At level 0 the assembler is asked for as little as the driver is."""
    device, default, other = open_device("cpu"), CompileOptions(), CompileOptions(opt=OTHER_LEVELS[batch % len(OTHER_LEVELS)])
    print(f"VYRE_SEED={SEED}")
    modules: dict[tuple[str, int], list[str]] = {}
    for number in share(number_of_programs("cpu"), batch, BATCHES):
        print(f"Program {number}")
        case = nth(number, "cpu")
        checked = check(replace(case.program, name=f"generated_{number}"))
        targets = [Target("ptx", PTX_ARCHS[(number + k) % len(PTX_ARCHS)]) for k in range(ARCHS)]
        made = {default.opt: compile_for(checked, [device.target, *targets])}
        if number % OTHERWISE == 0:
            made[other.opt] = compile_for(checked, targets, other)
        assert_same(case, expected(case), device.load(made[default.opt]).dispatch(case.arguments))
        for opt, artifact in made.items():
            for part in artifact.parts:
                if part.target.kind == "ptx":
                    modules.setdefault((part.target.arch, opt), []).append(part.steps[0].images[0].code.decode())
    for (arch, opt), texts in modules.items():
        assemble_together(texts, arch, 3 if opt else 0)


@pytest.mark.parametrize("kind", list(COUNTS))
def test_what_is_told_agrees(kind: str) -> None:
    """Asserts and prints, beside what the interpreter hears of the Program as it was written."""
    device, failing, printing = open_device(kind), 0, 0
    print(f"VYRE_SEED={SEED}")
    for number in range(TELLING[kind]):
        print(f"Program {number}")
        source, types = Seeded(SEED * 900_007 + number), WHOLE_TYPES if kind == "wgpu" else ALL_TYPES
        case = generate(source, types=types, wide_atomics=kind != "wgpu", budget=SHORT // 2, tells=True)
        told, lines, failed = Reports(), [], None
        want = expected(case, told)
        out = {m.name: np.empty_like(want[m.name]) for m in case.program.buffers if m.access.writes}
        pipeline = device.compile_native(case.program, CompileOptions(print_bytes=1 << 24, opt=number % 4))
        try:
            pipeline.dispatch(case.arguments, out=out, config=DispatchConfig(on_print=lines.append))
        except KernelAssertion as error:
            failed = error
        assert_same(case, want, out)
        forms = {form.message: form for form in forms_of(case.program)}
        assert lines == [forms[said.message].text(said.words) for said in told.printed], case.program
        assert (failed is None) == (told.failed is None), case.program
        if failed is not None and told.failed is not None:
            assert (failed.message, failed.global_id) == (forms[told.failed.message].text(told.failed.words), told.failed.global_id), case.program
        failing, printing = failing + (failed is not None), printing + bool(lines)
    assert failing and printing


@pytest.mark.parametrize("batch", range(SCANNING_BATCHES))
@pytest.mark.parametrize("kind", list(SCANNING))
def test_scans_fences_and_calls_agree(kind: str, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans over the grid, fences, and calls of the Program's own functions for all of its ops or some, beside the Program with its ops in place.
    Half of the Programs keep their calls as far as code can have them; in the others they are written out, being short."""
    device, config = open_device(kind), DispatchConfig(races=kind == "reference")
    print(f"VYRE_SEED={SEED}")
    for number in share(number_of_programs(kind, SCANNING), batch, SCANNING_BATCHES):
        print(f"Program {number}")
        case = generate(Seeded(SEED * 700_001 + number), scans=True, budget=SHORT if number % 7 else LONG)
        with monkeypatch.context() as patch:
            for limit in ("LONG", "WRITTEN_OUT") if number // 4 % 2 else ():
                patch.setattr(inline, limit, 0)
            pipeline = device.compile_native(outlined(case.program, 1 + number % 3), CompileOptions(opt=number % 4))
        assert_same(case, expected(case), pipeline.dispatch(case.arguments, config=config))


@pytest.mark.parametrize("batch", range(TOGETHER_BATCHES))
@pytest.mark.parametrize("kind", list(TOGETHER))
def test_subgroups_agree(kind: str, batch: int) -> None:
    """Subgroups whose branches and loops are their own: as it is compiled by default, and by LLVM's, or the driver's, lowest level. The PTX of those on the CPU
    is assembled, for one architecture of five in turns."""
    device, modules = open_device(kind), dict[str, list[str]]()
    print(f"VYRE_SEED={SEED}")
    for number in share(number_of_programs(kind, TOGETHER), batch, TOGETHER_BATCHES):
        print(f"Program {number}")
        case = generate(Seeded(SEED * 500_009 + number), subgroups="apart", budget=SHORT if number % 6 else LONG)
        checked, want = check(replace(case.program, name=f"together_{number}")), expected(case)
        for options in (CompileOptions(), CompileOptions(opt=0)):
            assert_same(case, want, device.compile_native(checked, options).dispatch(case.arguments))
        if kind == "cpu":
            arch = PTX_ARCHS[number % len(PTX_ARCHS)]
            (part,) = compile_for(checked, [Target("ptx", arch)]).parts
            modules.setdefault(arch, []).append(part.steps[0].images[0].code.decode())
    for arch, texts in modules.items():
        assemble_together(texts, arch, 3)


@pytest.mark.parametrize("batch", range(8))
def test_unoptimised_code_agrees(batch: int) -> None:
    """PTX at the driver's lowest level: what differs between the two is its fault, not ours."""
    device = open_device("cuda")
    print(f"VYRE_SEED={SEED}")
    for number in share(number_of_programs("cuda"), batch, 8):
        print(f"Program {number}")
        assert_agrees(device, nth(number, "cuda"), CompileOptions(opt=0))


@pytest.mark.parametrize("batch", range(4))
@pytest.mark.parametrize("kind", ["reference", "wgpu", "cuda"])  # test_lanes.py does the same on the CPU, lane by lane
def test_control_flow_agrees(kind: str, batch: int) -> None:
    device, ran = open_device(kind), 0
    refused: set[str] = set()
    print(f"VYRE_SEED={SEED}")
    for number in range(batch * 40, batch * 40 + 40):
        flow = ControlFlow(SEED * 7919 + number)
        try:
            checked = check(parse(flow.text()))
        except ValidationError as error:
            refused |= set(error.codes)
            continue
        rng = np.random.default_rng(number)
        given: dict[str, Any] = {"p": number % 6, "rd": rng.integers(0, 9 if number % 2 else 1 << 32, 80, dtype=np.uint32)}
        given |= {"out": rng.integers(0, 99, (flow.elements, 4), dtype=np.uint32), "count": np.zeros(10, np.uint32), "n": flow.elements}
        print(f"flow {number}")
        assert_agrees(device, Case(checked.program, given, {"n": flow.elements}, False))
        ran += 1
    assert ran > 10
    assert refused <= {"V401", "V402", "V403"}  # barriers that not all reach together


@pytest.mark.parametrize("batch", range(20))
def test_hypothesis_finds_no_disagreement(batch: int) -> None:
    """600 Programs drawn by Hypothesis, which shrinks what fails, in batches that workers share."""
    print(f"VYRE_SEED={SEED}")
    ran: list[int] = []

    @seed(SEED * 31 + batch)
    @settings(max_examples=HYPOTHESIS_BATCH, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(drawn_cases())
    def agrees(case: Case) -> None:
        assert_agrees(open_device("cpu"), case)
        ran.append(len(case.program.body))

    agrees()
    assert len(ran) >= HYPOTHESIS_BATCH  # none was thrown away for drawing too much
    assert sorted(ran)[len(ran) // 2] >= 100


def test_generated_programs_round_trip() -> None:
    for number in range(60):
        program = generate(Seeded(SEED * 7 + number)).program
        again = parse(print_program(program))
        assert again.code_digest == program.code_digest and again == program


def test_the_generator_makes_what_it_promises() -> None:
    bodies = [generate(Seeded(number)).program.body for number in range(300)]
    kinds = {type(s).__name__ for body in bodies for s in body}
    computed = {s.op.name for body in bodies for s in body if isinstance(s, Let)}
    assert len(computed) > 0.9 * len([name for name, row in OPS.items() if not row.approximates])
    assert {s.result.type for body in bodies for s in body if s.result is not None} == set(TYPES.values())
    assert kinds >= {"If", "Else", "For", "Loop", "Break", "Continue", "Return", "Barrier", "UniformLoad", "Atomic", "Region", "Var", "Get", "Set"}
    assert not kinds & {"GridScan", "Fence", "WorkgroupFence"}


def test_the_generator_makes_scans_and_fences_where_it_is_asked_to() -> None:
    programs = [generate(Seeded(number), scans=True, budget=SHORT).program for number in range(100)]
    kinds = [Counter(map(type, program.body)) for program in programs]
    assert sum(made[GridScan] > 1 for made in kinds) > 25
    assert all(sum(made[fence] > 0 for made in kinds) > 15 for fence in FENCES.values())
    scans = [(program, index) for program in programs for index, s in enumerate(program.body) if isinstance(s, GridScan)]
    assert {program.body[index].fold for program, index in scans} == {name for name, fold in GRID_FOLDS.items() if not fold.any_order}
    assert any(isinstance(s, If) and program.match[k] > index for program, index in scans for k, s in enumerate(program.body[:index]))


def around(program: Program, index: int) -> list[int]:
    """The loops that a statement is in, from the outermost."""
    return [k for k, s in enumerate(program.body[:index]) if isinstance(s, (For, Loop)) and program.match[k] > index]


def carries_from_a_loop_around(case: Case) -> bool:
    """A loop in a loop gets a variable that was declared before both, and that the outer one sets behind it."""
    body, match = case.program.body, case.program.match
    declared = {s.variable: k for k, s in enumerate(body) if isinstance(s, Var)}
    for index, get in enumerate(body):
        if isinstance(get, Get) and len(loops := around(case.program, index)) > 1 and declared[get.variable] < loops[-2]:
            behind = range(match[loops[-1]] + 1, match[loops[-2]])
            if any(isinstance(s := body[k], Set) and s.variable is get.variable for k in behind):
                return True
    return False


def begins_before_zero(case: Case) -> bool:
    """A loop counts up from below zero."""
    counts = [s.args for s in case.program.body if isinstance(s, For)]
    return any(isinstance(a, Const) and a.type.is_signed and a.value < 0 < step.value for a, _, step in counts if isinstance(step, Const))


def sets_between_stores(case: Case) -> bool:
    """In a loop, a variable is set under a condition between two stores of the same element or the same place."""
    body, match = case.program.body, case.program.match
    for index, opener in enumerate(body):
        if isinstance(opener, If) and around(case.program, index) and any(isinstance(s, Set) for s in body[index : match[index]]):
            first, last = around(case.program, index)[-1], match[around(case.program, index)[-1]]
            stores = [(k, s.args[:-1]) for k, s in enumerate(body[:last]) if k > first and isinstance(s, Store) and s.memory.space is Space.BUFFER]
            if {place for k, place in stores if k < index} & {place for k, place in stores if k > match[index]}:
                return True
    return False


def is_told_what_others_write(case: Case) -> bool:
    """A buffer that atomics write is read by a uniform load."""
    written = {s.memory for s in case.program.body if isinstance(s, Atomic) and s.memory.space is Space.BUFFER}
    return any(isinstance(s, UniformLoad) and s.memory in written for s in case.program.body)


def axes(case: Case) -> tuple[int, ...]:
    """The grid's axes of more than a constant."""
    return tuple([evaluate_dim(e, case.sizes) for e in case.program.grid.extents if not isinstance(e, DimConst)])


# What a pass is likely to get wrong, and in what share of all Programs it is at least.
SHAPES: dict[str, tuple[Callable[[Case], bool], float]] = {
    "nested loops over outer variables": (carries_from_a_loop_around, 0.3),
    "loops from below zero": (begins_before_zero, 0.15),
    "sets under conditions between guarded stores": (sets_between_stores, 0.15),
    "uniform loads of what other workgroups write": (is_told_what_others_write, 0.08),
    "grids of one axis": (lambda case: len(axes(case)) == 1, 0.3),
    "grids of two axes of odd sizes": (lambda case: len(axes(case)) == 2 and all(size % 2 for size in axes(case)), 0.15),
    "grids of three axes of odd sizes": (lambda case: len(axes(case)) == 3 and all(size % 2 for size in axes(case)), 0.15),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["cpu", "wgpu"])
def test_what_is_drawn(kind: str) -> None:
    cases = [nth(number, kind, seed=0) for number in range(300)]
    assert sorted(len(case.program.body) for case in cases)[150] >= 100
    shares = {name: sum(map(has, cases)) / len(cases) for name, (has, _) in SHAPES.items()}
    assert all(shares[name] >= least for name, (_, least) in SHAPES.items()), shares
