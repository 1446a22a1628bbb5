"""Generated Programs with subgroups: every way that a target goes gives the interpreter's bits, and orders what it does through memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import ptx_threads
import pytest
from device_kinds import open_device
from generator import WHOLE_TYPES, Case, Seeded, generate
from ptxas import assemble_together
from test_generated import assert_agrees, assert_same, expected

from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.nodes import Barrier, Subgroup
from vyre_py.ir.language.ops import EXPANDED_ONLY, SUBGROUPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes import Rewrite, optimise
from vyre_py.ir.passes.expand_subgroups import expand_subgroups
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.compile import compile_for, emit_text, prepare
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.legal.through_memory import EXCHANGES, through_memory, told
from vyre_py.lowering.llvm.gpu import nvptx
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target, parse_target

SHORT = 40


def case_of(number: int, subgroups: str = "apart", budget: int = SHORT, whole: bool = False) -> Case:
    types = {"types": WHOLE_TYPES} if whole else {}
    return generate(Seeded(40_000 + number), budget=budget, subgroups=subgroups, wide_atomics=not whole, **types)


def results(case: Case, run: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """What a run leaves in the buffers."""
    copies = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in case.arguments.items() if name not in case.sizes}
    run(copies)
    return {m.name: copies[m.name] for m in case.program.buffers if m.access.writes}


def shuffles_alone(program: Program) -> Program:
    return expand_subgroups(program, lambda s: s.op.name == "shuffle")


def exchanges_alone(program: Program) -> Program:
    return expand_subgroups(program, lambda s: s.op.name in EXCHANGES)


@pytest.mark.parametrize(
    ("subgroups", "rewrites"), [("apart", [shuffles_alone]), ("together", [told, exchanges_alone, through_memory])], ids=["shuffles", "memory"]
)
@pytest.mark.parametrize("batch", range(4))
def test_rewrites_keep_the_bits(batch: int, subgroups: str, rewrites: Sequence[Rewrite]) -> None:
    """Without races: through memory, barriers stand between what one invocation stores and another loads."""
    for number in range(6):
        case = case_of(100 * batch + number, subgroups)
        made = optimise(check(case.program), expand=EXPANDED_ONLY, subgroups=rewrites, level=number % 3)
        assert through_memory not in rewrites or not any(isinstance(s, Subgroup) for s in made.program.body)
        races = any(isinstance(s, Barrier) for s in made.program.body)
        assert_same(case, expected(case), results(case, lambda copies: interpret(made, copies, case.sizes, races=races)))  # noqa: B023 - called at once


def test_generated_programs_do_everything_together_and_come_back() -> None:
    programs = [case_of(number).program for number in range(80)]
    for program in programs[:20]:
        assert parse(str(program)) == Program.from_bytes(program.to_bytes()) == Program.from_json(program.to_json()) == program
    assert {s.op for program in programs for s in program.body if isinstance(s, Subgroup)} == {*SUBGROUPS.values()}
    assert {program.subgroup for program in programs} >= {1, 2, 4, 8, 16, 32}


@pytest.mark.parametrize("batch", range(3))
def test_the_cpu_agrees(batch: int) -> None:
    device = open_device("cpu")
    for number in range(5):
        assert_agrees(device, case_of(1000 + 100 * batch + number), CompileOptions(opt=number % 4))


def test_the_cpu_agrees_through_memory() -> None:
    """Chunks of fewer lanes than a subgroup has."""
    device = open_device("cpu")
    for number in range(6):
        case = case_of(2000 + number, "together")
        artifact = compile_for(case.program, [parse_target("cpu:native:2")])
        assert_same(case, expected(case), device.load(artifact).dispatch(case.arguments))


def test_wgpu_agrees() -> None:
    device = open_device("wgpu")
    for number in range(5):
        assert_agrees(device, case_of(3000 + number, "together", 16, whole=True))


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        ("sm_75", CompileOptions()), ("sm_80", CompileOptions(opt=1)), ("sm_90", CompileOptions(codegen="nvvm")),
        ("sm_90", CompileOptions(interruptible=True)), ("sm_80", CompileOptions(persistent=True)),
    ],
)  # fmt: skip
def test_ptx_agrees(arch: str, options: CompileOptions) -> None:
    """On the machine for PTX, where all threads that a mask names have to come."""
    target = Target("ptx", arch)
    for number in range(3):
        case = case_of(5000 + 10 * int(arch[3:]) + number, budget=24)
        prepared = prepare(case.program, target, options)
        made = nvptx.lower(prepared, target, options)

        def run(copies: dict[str, Any]) -> None:
            ptx_threads.run(made, made.entries[-1], prepared, options, copies, case.sizes)  # noqa: B023 - called at once

        assert_same(case, expected(case), results(case, run))


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_ptxas_takes_it(arch: str) -> None:
    modules = [emit_text(replace(case_of(6000 + number).program, name=f"k{number}"), arch) for number in range(8)]
    assert sum(module.count(".sync.") for module in modules) > 20
    assemble_together(modules, arch, level=1)


APART = """program apart(n) workgroup(128) subgroup({}) over(n) {{
  buffer x: u32[n] read_write
  let i = global_id.x
  if subgroup_id == 1 {{
    x[i] = subgroup_reduce_add(x[i])
  }}
}}"""


@pytest.mark.parametrize(("target", "size"), [("wgsl", 32), ("sm_90", 64), ("cpu:x86-64-v3", 64), ("cpu:x86-64-v3:8", 16)])
def test_what_memory_is_no_way_for_is_refused_by_name(target: str, size: int) -> None:
    with pytest.raises(Unsupported, match=r"subgroup_reduce_add where only a subgroup agrees at .*:5:12 \(.*go through workgroup memory.*come there together"):
        emit_text(parse(APART.format(size)), target)
    assert "apart" in emit_text(parse(APART.format(size)), "reference")


def test_an_option_may_not_part_subgroups() -> None:
    program = parse(APART.format(32))
    assert prepare(program, parse_target("reference"), CompileOptions(workgroup=(64, 1, 1))).program.workgroup == (64, 1, 1)
    with pytest.raises(Exception, match="V509 a subgroup of 32 in a workgroup of 48"):
        prepare(program, parse_target("reference"), CompileOptions(workgroup=(48, 1, 1)))


WHOLE = """program whole(n) workgroup(64) subgroup(64) over(n) {
  buffer x: u32[n] read_write
  let i = global_id.x
  let v = x[i]
  var t: u32 = 0
  if subgroup_any(v == 7) {
    t = subgroup_reduce_add(v)
    barrier
    if subgroup_ballot(v > 100).x == 0 {
      t = t + subgroup_reduce_max(v)
    }
  }
  for k in 0u32..subgroup_reduce_min(v) & 3 {
    t = t + subgroup_broadcast(v, k)
  }
  x[i] = t
}"""


@pytest.mark.parametrize("kind", ["cpu", "wgpu"])
def test_a_subgroup_that_is_the_workgroup_agrees_for_it(kind: str) -> None:
    """For the target too: what it tells by a uniform load may decide about barriers."""
    program, values = parse(WHOLE), np.random.default_rng(1).integers(5, 100, 256).astype(np.uint32)
    values[70:140], values[[3, 201]], values[200] = 9, 7, 1000
    got, wanted = (open_device(name).compile_native(program).dispatch({"x": values.copy()})["x"] for name in (kind, "reference"))
    assert np.array_equal(got, wanted)
    check(prepare(program, parse_target("wgsl"), CompileOptions(opt=0)).program)
