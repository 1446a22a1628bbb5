"""Generated Programs: every device agrees with the interpreter over the unoptimised Program, to the bit.

VYRE_SEED replays a run, VYRE_GENERATED sets how many Programs a device gets (by default thousands on the CPU, fewer where compiling
is slow): VYRE_GENERATED=20000 is the long run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from device_kinds import open_device
from generator import WHOLE_TYPES, Case, generate
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from lane_programs import ControlFlow
from ptxas import assemble_together

from vyre_py.drivers.device import Device
from vyre_py.ir.check import check
from vyre_py.ir.errors import ValidationError
from vyre_py.ir.interpret import interpret
from vyre_py.ir.nodes import Let
from vyre_py.ir.ops import EXPANDED_ONLY, OPS
from vyre_py.ir.parser import parse
from vyre_py.ir.passes import unoptimised
from vyre_py.ir.printer import print_program
from vyre_py.ir.types import TYPES
from vyre_py.lowering.compile import compile_for
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target

SEED = int(os.environ.get("VYRE_SEED") or random.SystemRandom().randrange(1 << 32))
COUNTS = {"reference": 100, "cpu": 3000, "wgpu": 100, "cuda": 2000}
BATCHES = 60
PTX_ARCHS = ("sm_75", "sm_90", "sm_120")
ARCHS = int(os.environ.get("VYRE_GENERATED_ARCHS", "1"))
# One Program in six is of the usual length, the others are short, so that there can be many.
LONG, SHORT = 126, 16
HYPOTHESIS_BATCH = 30


class Drawn:
    """Choices from Hypothesis, which shrinks what fails."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data

    def below(self, n: int) -> int:
        return self.data.draw(st.integers(0, n - 1))


class Seeded:
    """Choices from a seed."""

    def __init__(self, number: int) -> None:
        self.random = random.Random(number)

    def below(self, n: int) -> int:
        return self.random.randrange(n)


def expected(case: Case) -> dict[str, np.ndarray[Any, Any]]:
    """What the interpreter makes of the Program as written, vectors and small floats and all."""
    copies = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in case.arguments.items()}
    interpret(unoptimised(check(case.program), expand=EXPANDED_ONLY), {k: v for k, v in copies.items() if k not in case.sizes}, case.sizes)
    return {m.name: copies[m.name] for m in case.program.buffers if m.access.writes}


def same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Where two arrays of one dtype are equal: to the bit, but that any NaN equals any other."""
    word = f"u{a.dtype.itemsize}"
    same: np.ndarray[Any, Any] = a.view(word) == b.view(word)
    if a.dtype.kind not in "biu":
        with np.errstate(invalid="ignore"):  # signalling NaNs on their way to f64
            same |= np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
    return same


def assert_agrees(device: Device, case: Case, options: CompileOptions | None = None) -> None:
    assert_same(case, expected(case), device.compile_native(case.program, options).dispatch(case.arguments))


def assert_same(case: Case, want: Mapping[str, Any], got: Mapping[str, Any]) -> None:
    for memory in case.program.buffers:
        if memory.access.writes:
            a, b = want[memory.name], got[memory.name]
            assert a.shape == b.shape and a.dtype == b.dtype
            same = same_bits(a, b)
            assert same.all(), f"{memory.name} differs at {np.argwhere(~same)[:5].tolist()}: want {a[~same][:5]}, got {b[~same][:5]}\n{case.program}"


def number_of_programs(kind: str) -> int:
    return int(os.environ.get("VYRE_GENERATED") or COUNTS[kind])


def share(count: int, batch: int, batches: int) -> range:
    """Which of `count` Programs are this batch's."""
    return range(count * batch // batches, count * (batch + 1) // batches)


def nth(number: int, kind: str) -> Case:
    """The Program of this number in this run: over all types where floating point is strict, else over the exact ones."""
    source, budget = Seeded(SEED * 100_003 + number), SHORT if number % 6 else LONG
    return generate(source, types=WHOLE_TYPES, wide_atomics=False, budget=budget) if kind == "wgpu" else generate(source, budget=budget)


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("kind", [kind for kind in COUNTS if kind != "cpu"])
def test_devices_agree(kind: str, batch: int) -> None:
    device = open_device(kind)
    print(f"VYRE_SEED={SEED}")
    for number in share(number_of_programs(kind), batch, BATCHES):
        print(f"Program {number}")
        assert_agrees(device, nth(number, kind))


@pytest.mark.parametrize("batch", range(BATCHES))
def test_the_cpu_agrees_and_ptx_assembles(batch: int) -> None:
    """The PTX of the same Programs is for the oldest, the usual or the newest architecture that NVIDIA's assembler takes, in turns; VYRE_GENERATED_ARCHS=3
    has each for all of them."""
    device = open_device("cpu")
    print(f"VYRE_SEED={SEED}")
    modules: dict[str, list[str]] = {arch: [] for arch in PTX_ARCHS}
    for number in share(number_of_programs("cpu"), batch, BATCHES):
        print(f"Program {number}")
        case = nth(number, "cpu")
        checked = check(replace(case.program, name=f"generated_{number}"))
        artifact = compile_for(checked, [device.target, *(Target("ptx", PTX_ARCHS[(number + k) % len(PTX_ARCHS)]) for k in range(ARCHS))])
        assert_same(case, expected(case), device.load(artifact).dispatch(case.arguments))
        for part in artifact.parts[1:]:
            modules[part.target.arch].append(part.steps[0].images[0].code.decode())
    for arch, texts in modules.items():
        if texts:
            assemble_together(texts, arch)


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
    @given(st.data())
    def agrees(data: st.DataObject) -> None:
        case = generate(Drawn(data))
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
    lengths = sorted(map(len, bodies))
    assert lengths[150] >= 100
    kinds = {type(s).__name__ for body in bodies for s in body}
    computed = {s.op.name for body in bodies for s in body if isinstance(s, Let)}
    assert len(computed) > 0.9 * len(OPS)
    assert {s.result.type for body in bodies for s in body if s.result is not None} == set(TYPES.values())
    assert kinds >= {"If", "Else", "For", "Loop", "Break", "Continue", "Return", "Barrier", "UniformLoad", "Atomic", "Region", "Var", "Get", "Set"}
