"""Copies into workgroup memory as PTX's own: on a machine on which none lands before its thread waits for it, the interpreter's bits come out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import ptx_threads
import pytest
from device_kinds import open_device
from filetest import files, read_cases
from generator import Case, Seeded, generate
from ptxas import assemble_together
from test_generated import assert_agrees, assert_same, expected

from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.dims import evaluate_dim
from vyre_py.ir.language.nodes import Access, CopyAsync, For, Space, Store
from vyre_py.ir.language.ops import EXPANDED_ONLY
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes import unoptimised
from vyre_py.ir.passes.rewriter import Rewriter
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.compile import emit_text, prepare
from vyre_py.lowering.llvm.gpu import nvptx
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target

(PATH,) = [path for path in files("run") if path.stem == "copies"]
PROGRAMS = {program.name: program for program in [parse(case.text) for case in read_cases(PATH)]}
SIZES = {"n": 100, "rows": 3}


def arguments(program: Program) -> dict[str, Any]:
    numbers = np.random.default_rng(1)
    shapes = {m: [evaluate_dim(size, SIZES) for size in m.shape] + [m.type.lanes] * m.type.is_vector for m in program.buffers}
    return {m.name: numbers.integers(0, 100, shape).astype(m.type.dtype) for m, shape in shapes.items()}


@pytest.mark.parametrize("options", [{}, {"codegen": "nvvm"}, {"persistent": True}, {"indirect": True}], ids=["llvm", "nvvm", "persistent", "indirect"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_they_land_when_they_are_waited_for(name: str, options: dict[str, Any]) -> None:
    target, program = Target("ptx", "sm_80"), PROGRAMS[name]
    prepared = prepare(program, target, asked := CompileOptions(**options))
    made = nvptx.lower(prepared, target, asked)
    assert "cp.async" in made.text
    want = arguments(program)
    interpret(unoptimised(check(program), expand=EXPANDED_ONLY), want, SIZES)
    for entry in made.entries:  # as they begin anywhere, and on multiples of 16 bytes
        got = arguments(program)
        ptx_threads.run(made, entry, prepared, asked, got, SIZES)
        assert {m.name: got[m.name].tobytes() for m in program.buffers} == {m.name: want[m.name].tobytes() for m in program.buffers}


def test_what_is_not_waited_for_does_not_leave_its_workgroup() -> None:
    """The next one on the same machine finds zeros, or what it has copied itself."""
    program = parse("""program left(n) workgroup(4) over(n) {
  buffer x: u32[n] read
  buffer y: u32[n] write
  workgroup w: u32[8]
  y[global_id.x] = w[local_id.x] + w[local_id.x + 4]
  barrier
  copy_async w[local_id.x + 4] = x[global_id.x]
}""")
    target, options = Target("ptx", "sm_80"), CompileOptions(persistent=True)
    prepared = prepare(program, target, options)
    got = arguments(program)
    ptx_threads.run(made := nvptx.lower(prepared, target, options), made.entries[0], prepared, options, got, SIZES)
    assert "cp.async" in made.text and not got["y"].any()


class Overwritten(Rewriter):
    """The Program that copies another element, which it waits for, wherever it stores to workgroup memory, and whose loops are to be unrolled: it means what
    it has meant, unless a copy lands late or a turn is lost."""

    def take(self, index: int) -> None:
        s = self.program.body[index]
        if isinstance(s, Store) and s.memory.space is Space.WORKGROUP:
            source = next(m for m in self.program.buffers if m.access is Access.READ and m.type is s.memory.type and m.rank == 1)
            place = tuple([self.atom(a) for a in s.indices])
            self.copy_async(s.memory, place, self.load(source, place))
            for _ in range(index % 3):
                self.copy_commit()
            self.copy_wait(index % 3 // 2)  # of two groups the last is empty
        self.copy(index)
        if isinstance(s, For):
            self.body[-1] = replace(self.body[-1], unroll=1 + index % 5)


def overwritten(case: Case) -> Case:
    made = Overwritten(case.program)
    for index in made.indices():
        made.take(index)
    return replace(case, program=made.finish())


def test_generated_programs_that_copy_first() -> None:
    target, ran, native = Target("ptx", "sm_90"), 0, 0
    for number in range(60):
        case = generate(Seeded(60_000 + number), budget=24)
        made = overwritten(case)
        if not any(isinstance(s, CopyAsync) for s in made.program.body):
            continue
        ran += 1
        assert parse(str(made.program)) == Program.from_bytes(made.program.to_bytes()) == Program.from_json(made.program.to_json()) == made.program
        want = expected(case)
        assert_same(made, want, expected(made))
        for kind in ("reference", "cpu"):  # the first watches for races
            assert_agrees(open_device(kind), made, CompileOptions(opt=number % 4))
        options = CompileOptions(opt=1 + number % 3)
        prepared = prepare(made.program, target, options)
        code = nvptx.lower(prepared, target, options)
        got = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in case.arguments.items() if name not in case.sizes}
        ptx_threads.run(code, code.entries[-1], prepared, options, got, case.sizes)
        assert_same(made, want, {m.name: got[m.name] for m in case.program.buffers if m.access.writes})
        native += code.text.count("cp.async.ca")
        if ran == 6:
            break
    assert ran == 6 and native > 3


def test_a_gpu_copies_as_well() -> None:
    device, ran = open_device("cuda"), 0
    for number in range(100):
        made = overwritten(generate(Seeded(70_000 + number)))
        if any(isinstance(s, CopyAsync) for s in made.program.body):
            assert_agrees(device, made, CompileOptions(opt=number % 4))
            ran += 1
    assert ran > 5


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100", "sm_120"])
def test_ptxas_takes_them(arch: str) -> None:
    drawn = [(replace(program, name=f"{program.name}_{codegen}"), codegen) for program in PROGRAMS.values() for codegen in ("llvm", "nvvm")]
    modules = [emit_text(program, arch, CompileOptions(codegen=codegen)) for program, codegen in drawn]
    assert all("cp.async.c" in module for module in modules)
    assemble_together(modules, arch, level=1)
