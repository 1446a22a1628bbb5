"""PTX: what must and must not stand in it; that LLVM takes every kernel, and ptxas too where it is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import llvmlite.binding as llvm
import pytest
from generator import Seeded, generate
from test_llvm_ops import CASES, every_row
from tree import TESTS

from vyre_py.ir.check import check
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import DimConst, Grid
from vyre_py.ir.language.nodes import Access, Space, const
from vyre_py.ir.language.op import Operand
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import SCALARS, bool_, f32, f64, u32
from vyre_py.ir.passes import optimise, unoptimised
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.compile import compile_for, emit_text
from vyre_py.lowering.errors import ToolchainError, Unsupported
from vyre_py.lowering.kinds import STRICT_EXPANSIONS
from vyre_py.lowering.llvm.gpu import nvptx
from vyre_py.lowering.llvm.gpu.architectures import ARCHITECTURES, fitting_archs
from vyre_py.lowering.llvm.gpu.fast import NVPTX_EMITTERS
from vyre_py.lowering.llvm.gpu.simt.kernel import write_kernel
from vyre_py.lowering.llvm.text import ModuleText
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target, parse_target

ARCHS = ("sm_75", "sm_90", "sm_100", "sm_120")

EVERYTHING = """program "every thing (ü)"(n, m) workgroup(8, 8) over(m, n) {
  param a: f32
  param flag: bool
  param b8: u8
  buffer x: f32[n, m] read
  buffer bo: bool[n] read_write
  buffer y: f32[n, m] read_write
  buffer h: u32[256] read_write
  buffer s: i32[4] read_write
  workgroup tile: f32[8, 8]
  workgroup count: u32[3]
  private tmp: i32[8]
  table t: u32[4] = [1, 2, 3, 4]
  let j = global_id.x
  let i = global_id.y
  let li = local_index
  tile[local_id.y, local_id.x] = x[i, j] * a
  barrier
  var acc: f32 = 0.0
  for k in 0i32..8i32 {
    if flag { continue }
    acc = acc + tile[local_id.y, cast(k, u32)]
    if acc > 3.0 { break } else if acc < -1.0 { acc = 0.0 } else { acc = acc / 3.0 }
    tmp[k] = k * 3i32
  }
  for k in 10i32..-2147483647i32 step -3i32 {
    loop {
      if bo[i] { break }
      acc = sqrt(acc) + fma(acc, acc, a) + exp(acc) + sin(acc)
      if acc == 1.0 { return }
    }
  }
  y[i, j] = acc + cast(tmp[li], f32) + cast(dim(n * m + 1), f32) + cast(b8, f32)
  let old = atomic_add(h[li], t[li & 3u32])
  atomic_max(s[0u32], -1i32)
  let other = atomic_compare_exchange(h[0u32], old, 5u32)
  atomic_add(count[1u32], other)
  bo[i] = old == 1u32
}"""


def assemble(ptx, arch, tmp_path, level=3):
    """Runs ptxas where there is one that knows the architecture; it is quicker without its optimisations, and reads no less."""
    tool = shutil.which("ptxas")
    if tool is None or f"'{arch}'" not in subprocess.run([tool, "--help"], capture_output=True, text=True, check=True).stdout:
        return
    source = tmp_path / "kernel.ptx"
    source.write_text(ptx)
    done = subprocess.run([tool, f"-arch={arch}", f"-O{level}", "-o", str(tmp_path / "kernel.cubin"), str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("opt", [0, 3])
@pytest.mark.parametrize("arch", ARCHS)
def test_everything_assembles(arch, opt, tmp_path):
    ptx = emit_text(parse(EVERYTHING), arch, CompileOptions(opt=opt))
    assert f".target {arch}" in ptx and ".reqntid 8, 8, 1" in ptx and ".visible .entry vyre_every_thing____(" in ptx
    assemble(ptx, arch, tmp_path)


@pytest.mark.parametrize("seed", range(6))
def test_generated_programs_assemble(seed, tmp_path):
    program = generate(Seeded(7000 + seed)).program
    for arch in ARCHS:
        assemble(emit_text(program, arch), arch, tmp_path)


@pytest.mark.parametrize("opt", [0, 3])
@pytest.mark.parametrize("arch", ["sm_70", *ARCHS])
def test_every_row_assembles(arch, opt, tmp_path):
    """Every row over every type, all in one module: LLVM ends the process at an intrinsic that it does not know here."""
    ptx = nvptx.assemble(every_row(NVPTX_EMITTERS), arch, opt, opt)
    assert ptx.count(".visible .entry") == len(CASES) and "call" not in ptx
    assemble(ptx, arch, tmp_path, level=0)


def every_op(t) -> Program:
    """One kernel that stores the result of every strict op over a scalar type, and of every cast of it; operands are loaded, so that nothing folds."""
    a = Assembler("ops", (32, 1, 1), subgroup=32)
    a.grid = Grid(True, (DimConst(1000), DimConst(1), DimConst(1)))
    types = {t, bool_, u32, *SCALARS.values()}
    memories = {x: a.memory(f"in_{x}", Space.BUFFER, x, (DimConst(3),), Access.READ) for x in sorted(types, key=str)}
    outs = {x: a.memory(f"out_{x}", Space.BUFFER, x, (DimConst(1000),), Access.WRITE) for x in memories}
    loads = {x: [a.load(m, (const(u32, k),)) for k in range(3)] for x, m in memories.items()}
    for at, (row, given) in enumerate((row, given) for row in OPS.values() if not row.approximates for given in (None, *memories)):
        kinds = [o.beside(t) for o in row.operands]
        result = row.result_type(tuple(kinds), given)
        if result in outs and Operand.LANES not in row.operands:
            value = a.let(row, tuple(loads[x][k % 3] for k, x in enumerate(kinds)), given)
            a.store(outs[result], (const(u32, at % 1000),), value)
    return a.finish()


@pytest.mark.parametrize("t", SCALARS.values(), ids=str)
def test_every_op_assembles(t, tmp_path):
    for arch in ("sm_75", "sm_90", "sm_120"):
        assemble(emit_text(every_op(t), arch), arch, tmp_path)


def test_floats_are_strict():
    for t in (f32, f64):
        ptx = emit_text(every_op(t), "sm_90")
        for instruction in ("add", "sub", "mul", "div", "sqrt", "fma"):
            assert f"{instruction}.rn.{t}" in ptx
        # Without a rounding mode ptxas may contract; .ftz flushes subnormals, .approx and .full round loosely. An exact reciprocal begins with the one.
        assert not re.search(r"\b(add|sub|mul|div|sqrt)\.f(32|64)|\.ftz|\.approx|\.full", ptx.replace("rcp.approx.ftz.f32", ""))
    contracted = emit_text(parse("program p(n) { buffer y: f32[n] read_write\n let i = global_id.x\n y[i] = y[i] * 3.0 + 1.0 }"), "sm_90")
    assert "fma" not in contracted and "mul.rn.f32" in contracted


def test_one_guard_around_unguarded_axpy():
    ptx = emit_text(parse("program p(n) { buffer x: f32[n] read\n buffer y: f32[n] read_write\n let i = global_id.x\n y[i] = y[i] + x[i] }"), "sm_90")
    assert ptx.partition("_x4(")[0].count("setp") == 1 and "ld.global" in ptx


@pytest.mark.parametrize("line", ["y[i] = a - y[i + 1u32]", "z[i] = a - y[i + 1u32]"])
def test_loads_on_both_sides_of_a_barrier_stay(line):
    text = f"""program p workgroup(64) over(64) {{
  buffer y: u32[65] read_write
  buffer z: u32[64] write
  let i = local_index
  let a = y[i + 1u32]
  barrier
  {line}
}}"""
    first, second = emit_text(parse(text), "sm_90").split("bar.sync", 1)
    assert "ld.global" in first and "ld.global" in second


def test_endless_loops_stay():
    ptx = emit_text(parse("program p(n) { buffer y: f32[n] read_write\n loop { }\n y[global_id.x] = 1.0 }"), "sm_90")
    label = re.search(r"^(\S+):", ptx, re.MULTILINE)[1]
    assert f"bra.uni \t{label}" in ptx and "st.global" not in ptx


def test_atomics_go_to_their_memory():
    ptx = emit_text(parse(EVERYTHING), "sm_90")
    for instruction in ("atom.global.add.u32", "atom.global.max.s32", "atom.relaxed.gpu.global.cas.b32", "atom.shared.add.u32"):
        assert instruction in ptx


def test_output_is_deterministic():
    assert emit_text(parse(EVERYTHING), "sm_90") == emit_text(parse(EVERYTHING), "sm_90")


def test_refusals():
    program = parse(EVERYTHING)
    for options in (CompileOptions(numerics="native"), CompileOptions(numerics="native", debug=True)):
        with pytest.raises(Unsupported, match="option"):
            emit_text(program, "sm_90", options)
    with pytest.raises(Unsupported, match="sm_777"):
        compile_for(program, [parse_target("sm_777")])
    raw = unoptimised(check(parse("program p(n) over(n) { buffer y: f32[n] read_write\n y[0u32] = exp(y[1u32]) }")), expand=frozenset())
    with pytest.raises(Unsupported, match="target compute_90 does not support op exp"):
        nvptx.lower(raw, Target("ptx", "sm_90"), CompileOptions())
    a = Assembler("many")
    a.grid = Grid(True, (DimConst(4), DimConst(1), DimConst(1)))
    buffers = [a.memory(f"b{k}", Space.BUFFER, f32, (DimConst(4),), Access.READ_WRITE) for k in range(513)]
    a.store(buffers[0], (const(u32, 0),), const(f32, 1.0))
    a.grid = Grid(False, (DimConst(1), DimConst(1), DimConst(1)))
    with pytest.raises(Unsupported, match="4104 bytes of arguments"):
        emit_text(a.finish(), "sm_90")


def test_a_defect_carries_the_text(monkeypatch):
    monkeypatch.setattr(nvptx, "write_kernel", lambda optimised, module, *_, **__: module.functions.append("define nonsense") or 0)
    with pytest.raises(ToolchainError, match="LLVM") as caught:
        emit_text(parse(EVERYTHING), "sm_90")
    assert "define nonsense" in caught.value.text


@pytest.mark.parametrize(
    ("capability", "archs"),
    [((9, 0), ("sm_90", "sm_89")), ((8, 9), ("sm_89", "sm_88")), ((12, 1), ("sm_121", "sm_120")), ((13, 7), ("sm_121", "sm_120")), ((7, 0), ("sm_70",)),
     ((6, 1), ())],
)  # fmt: skip
def test_fitting_archs(capability, archs):
    assert fitting_archs(*capability)[:2] == archs


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_architecture_is_written_in_the_version_of_its_row(arch):
    """The probe by which a driver shows that it loads code for an architecture is of this version."""
    text = "program p workgroup(1) over(1) {\n  buffer y: f32[1] write\n  y[0u32] = 1.0\n}"
    assert f".version {ARCHITECTURES[arch]}\n" in emit_text(parse(text), arch)


GOLDENS = {
    "axpy": """program axpy(n) workgroup(256) {
  param a: f32
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  let i = global_id.x
  y[i] = a * x[i] + y[i]
}""",
    "everything": EVERYTHING.replace(" + exp(acc) + sin(acc)", ""),
}


@pytest.mark.parametrize("name", GOLDENS)
def test_the_text_that_llvm_reads(name):
    module = ModuleText()
    write_kernel(optimise(check(parse(GOLDENS[name])), expand=STRICT_EXPANSIONS), module, f"vyre_{name}")
    text = str(module)
    llvm.parse_assembly(text).verify()
    golden = TESTS / "golden" / f"simt.{name}.ll"
    if os.environ.get("VYRE_UPDATE", "") not in ("", "0"):
        golden.write_text(text, encoding="utf-8")
    assert golden.read_text(encoding="utf-8") == text, "VYRE_UPDATE=1 rewrites it"


def test_workgroup_memory_is_one_dynamic_block():
    part = compile_for(parse(EVERYTHING), [parse_target("compute_90")]).parts[0]
    assert part.steps[0].workgroup_bytes == 8 * 8 * 4 + 16
    assert ".extern .shared .align 16 .b8 shared[];" in part.steps[0].images[0].code.decode()
