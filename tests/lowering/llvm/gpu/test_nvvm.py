"""The second way to PTX: libNVVM takes what the dialect makes of every kernel, ptxas what libNVVM makes of it, and it means the same.

What PTX computes is seen without a GPU on `ptx_threads`; with one, all filetests and generated Programs run by it as well.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from functools import partial
from itertools import count

import filetest
import numpy as np
import ptx_threads
import pytest
import simt_host
from device_kinds import open_device
from elements import random_array
from fast_machine import arguments, outside
from filetest import Failure, devices_of, files, read_cases, run_program
from generator import Seeded, generate
from heard import Heard
from op_programs import differing
from ptxas import assemble, assemble_together
from test_fast import PTX as BOUNDS
from test_fast import program_of as fast_program
from test_generated import assert_agrees, assert_same, expected
from test_llvm_ops import CASES, every_row
from test_ptx import EVERYTHING, every_op
from test_rows import BODIES
from test_rows import TYPES as VECTOR_SCALARS
from test_rows import arguments as vector_arguments
from test_rows import program as vector_program

import vyre_py as vp
import vyre_py.drivers.reference.device as reference_device
from vyre_py.drivers.config import DispatchConfig
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.dims import evaluate_dim
from vyre_py.ir.language.types import SCALARS, f32, f64
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.compile import compile_for, emit_text, prepare
from vyre_py.lowering.errors import ToolchainError, Unsupported
from vyre_py.lowering.llvm.gpu import nvptx
from vyre_py.lowering.llvm.gpu.architectures import ARCHITECTURES
from vyre_py.lowering.llvm.gpu.fast import INSTRUCTIONS, NVPTX_EMITTERS
from vyre_py.lowering.llvm.gpu.nvvm import libnvvm
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target, parse_target

NVVM = CompileOptions(codegen="nvvm")
QUICK = CompileOptions(codegen="nvvm", opt=0)
FAST = CompileOptions(codegen="nvvm", numerics="fast")
# The oldest of LLVM 7's, the usual one, and of the recent LLVM's the first and the newest.
ARCHS = ("sm_75", "sm_90", "sm_100", "sm_120")
# Of the Programs of each filetest every so many are compiled, and run on the machine for PTX; 1 is all of them, in minutes.
COMPILE_EACH = int(os.environ.get("VYRE_EACH", "9"))
RUN_EACH = int(os.environ.get("VYRE_EACH", "16"))


try:
    libnvvm.version()
except Unsupported as missing:
    if "nvvm" in os.environ.get("VYRE_REQUIRE_DEVICES", "").split(","):
        raise
    pytest.skip(f"libNVVM is not here: {missing}", allow_module_level=True)


def run_as_ptx(program, arch, options, arguments, sizes, entry=0, heard=None):
    """Runs a Program on the PTX machine: its best entry, or another one where it has so many."""
    target = Target("ptx", arch)
    prepared = prepare(program, target, options)
    made = nvptx.lower(prepared, target, options)
    ptx_threads.run(made, made.entries[entry % len(made.entries)], prepared, options, arguments, sizes, heard)


def ptx_of(program, arch="sm_90", options=NVVM):
    """PTX alone: of machine code too, there would be twice the work."""
    return emit_text(parse(program) if isinstance(program, str) else program, arch.replace("sm_", "compute_"), options)


# ---------------------------------------------------------------- it is taken, and means the same


def test_filetests_compile():
    """A sample of all Programs, each for one architecture."""
    compiled = 0
    for index, program in enumerate(case.parse() for path in files("run") for case in read_cases(path)[::COMPILE_EACH]):
        arch = ARCHS[index % len(ARCHS)]
        ptx = ptx_of(program, arch, QUICK)
        assert f".version {ARCHITECTURES[arch]}\n.target {arch}\n" in ptx and ".visible .entry vyre_" in ptx
        compiled += 1
    assert compiled > 90


def test_functions_of_a_program_are_called():
    (path,) = [path for path in files("run") if path.stem == "functions"]
    called = 0
    for case in read_cases(path):
        for arch in ("sm_90", "sm_100"):
            ptx = ptx_of(case.parse(), arch, QUICK)
            assemble(ptx, arch, level=0)
            called += len(re.findall(r"^\s*call\.uni", ptx, re.MULTILINE))
    assert called


@pytest.mark.parametrize("path", files("run"), ids=lambda path: path.stem)
def test_filetests_run_as_ptx(path, monkeypatch):
    """The reference device with the PTX machine in the interpreter's place, over some Programs of each file, optimised and not."""
    number = files("run").index(path)
    runs = count(number)

    def run(code, arguments, sizes, reports, **watches):
        at = next(runs)
        heard = Heard(code.program, reports)
        options = NVVM if at % 3 else QUICK
        given = {name: value if value.ndim else value[()] for name, value in arguments.items()}
        run_as_ptx(heard.program, ARCHS[at % len(ARCHS)], options, given, sizes, at % 2, heard)

    monkeypatch.setattr(reference_device, "interpret", run)
    cases = read_cases(path)
    for case in cases[number % min(RUN_EACH, len(cases)) :: RUN_EACH]:
        run_program(case, "reference")
    assert next(runs) > number


@pytest.mark.parametrize("codegen", ["llvm", "nvvm"])
@pytest.mark.parametrize("name", ["casts_of_special_floats", "casts_of_floats"])
def test_floats_become_integers_as_ptx_converts_them(name, codegen, monkeypatch):
    """Each file whole, by both compilers: the machine's own saturation, and what it makes of NaN where 64 bits take part."""
    found = set()

    def run(code, arguments, sizes, **watches):
        options = CompileOptions(codegen=codegen)
        run_as_ptx(code.program, "sm_90", options, arguments, sizes)
        found.update(re.findall(r"cvt\.rzi\.\w+\.\w+", ptx_of(code.program, options=options)))

    monkeypatch.setattr(reference_device, "interpret", run)
    (path,) = [path for path in files("run") if path.stem == name]
    for case in read_cases(path):
        run_program(case, "reference")
    assert found == {f"cvt.rzi.{target}.{source}" for target in ("s32", "u32", "s64", "u64") for source in ("f32", "f64")}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("ld.global.u32 %r1, [%rd1+16];", "lies outside all memory"), ("st.global.u32 [%rd1+2], 7;", "is not aligned"),
        ("ld.shared.u32 %r1, [shared];", "lies outside all memory"), ("bra $again;", "waits for ever"), ("call.uni nothing;", "call.uni"),
    ],
)  # fmt: skip
def test_the_ptx_machine_notices(line, why):
    ptx = f".visible .entry k(\n.param .u64 k_param_0\n)\n{{\n$again:\n\tld.param.u64 %rd1, [k_param_0];\n\t{line}\n\tret;\n}}\n"
    words = np.arange(4, dtype=np.uint32)
    if line.startswith("bra"):
        ptx = ptx.replace("bra", "ld.relaxed.gpu.global.u32 %r1, [%rd1];\n\tbra")

    def launch():
        kernel = ptx_threads.Kernel(ptx, "k")
        kernel.memory[100] = memoryview(words.view(np.uint8))
        kernel.launch((100 << 40).to_bytes(8, "little"), [0], (1, 1, 1), (1, 1, 1), 0)

    with pytest.raises(AssertionError, match=why):
        launch()


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_ptxas_takes_it(arch):
    """A sample of the filetests, and generated Programs."""
    sample = [case.parse() for case in [case for path in files("run") for case in read_cases(path)][ARCHS.index(arch) :: 24]]
    sample += [generate(Seeded(number), budget=24).program for number in range(3)]
    modules = [ptx_of(replace(program, name=f"sample_{number}"), arch) for number, program in enumerate(sample)]
    assert len(modules) > 15
    assemble_together(modules, arch, level=0)


@pytest.mark.parametrize("arch", ["sm_75", "sm_100"])
def test_every_row_assembles(arch):
    """Every row of the op table over every type, all in one module."""
    ptx = libnvvm.assemble(every_row(NVPTX_EMITTERS), arch, 3, fast=False)
    assert ptx.count(".visible .entry") == len(CASES) and "call" not in ptx
    assemble(ptx, arch, level=0)


@pytest.mark.parametrize("t", SCALARS.values(), ids=str)
def test_every_op_compiles(t, monkeypatch):
    """The version of PTX is the architecture's from a library that cannot be told it, too: every instruction is known."""
    monkeypatch.setattr(libnvvm, "_takes_version", lambda: False)
    for arch in ("sm_75", "sm_100"):
        ptx = ptx_of(every_op(t), arch, QUICK)
        assert ".visible .entry vyre_ops" in ptx and f".version {ARCHITECTURES[arch]}\n" in ptx


@pytest.mark.parametrize("arch", ARCHS)
def test_everything_assembles(arch):
    ptx = ptx_of(EVERYTHING, arch)
    assert ".reqntid 8, 8, 1" in ptx and ".extern .shared .align 16 .b8 shared[]" in ptx
    assemble(ptx, arch)


def test_generated_programs_run_as_ptx():
    for number in range(16):
        case = generate(Seeded(500 + number), budget=24)
        arguments = dict(case.arguments)
        for memory in case.program.buffers:
            shape = [evaluate_dim(d, case.sizes) for d in memory.shape]
            given = arguments.get(memory.name, np.zeros([*shape, *[memory.type.lanes] * memory.type.is_vector], memory.type.dtype))
            arguments[memory.name] = np.array(given)
        run_as_ptx(case.program, ARCHS[number % 4], NVVM, arguments, case.sizes, entry=number % 2)
        assert_same(case, expected(case), arguments)


LOOPS = """program loops(n) workgroup(32) {
  buffer x: f32[n] read_write
  workgroup t: f32[32]
  t[local_index] = x[global_id.x]
  barrier
  var s: f32 = 0.0
  for i in 0u32..n { s = s + t[i & 31u32] * 0.5 }
  loop { s = s * 0.5
    if s < 1.0 { break } }
  x[global_id.x] = s
}"""


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"interruptible": True}, ["ld.relaxed.gpu.global.b32", "%clock", "exit;"]),
        ({"persistent": True}, ["%nctaid.x"]),
        ({"indirect": True}, ["ld.shared", "%nctaid.x"]),
        ({"persistent": True, "interruptible": True}, ["%nctaid.x", "exit;"]),
        ({"dependent": True}, ["griddepcontrol.launch_dependents;", "griddepcontrol.wait;"]),
        ({"persistent": True, "interruptible": True, "dependent": True, "numerics": "fast"}, ["griddepcontrol.wait;", ".ftz.f32"]),
        ({"workgroup": (16, 1, 1)}, [".reqntid 16, 1, 1"]),
    ],
)  # fmt: skip
def test_options(options, words, arch):
    ptx = ptx_of(LOOPS, arch, replace(NVVM, **options))
    for word in words:
        assert word in ptx
    assert ptx.count(".entry") == 1 and ".func" not in ptx
    assemble(ptx, arch)


# ---------------------------------------------------------------- exactness


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
@pytest.mark.parametrize("t", [f32, f64], ids=str)
def test_floats_are_strict(t, arch):
    ptx = ptx_of(every_op(t), arch)
    for instruction in ("add", "sub", "mul", "div", "sqrt", "fma"):
        assert f"{instruction}.rn.{t}" in ptx
    assert not re.search(r"\b(add|sub|mul|div|sqrt|rcp)\.f(32|64)|\.ftz|\.approx|\.full", ptx.replace("rcp.approx.ftz.f32", ""))  # an exact reciprocal's begin
    ptx = ptx_of(f"program p(n) {{ buffer y: {t}[n] read_write\n let i = global_id.x\n y[i] = y[i] * 3.0 + 1.0 }}", arch)
    assert "fma" not in ptx and f"mul.rn.{t}" in ptx


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_fast_floats(arch):
    names = {"exp2": 1, "log2": 1, "sin": 1, "cos": 1, "tanh": 1, "sqrt": 1, "rsqrt": 1, "div": 2}
    stores = "\n".join(f"y[{k}u32] = {'a / b' if name == 'div' else f'{name}(a)'}" for k, name in enumerate(names))
    text = f"program p over(1) {{ buffer y: f32[9] read_write\n let a = y[0u32]\n let b = y[1u32]\n {stores}\n y[8u32] = 1.0 / a }}"
    ptx = ptx_of(text, arch, FAST)
    for name in INSTRUCTIONS:
        assert f"{name.replace('_', '.')}{'' if name == 'tanh_approx' else '.ftz'}.f32" in ptx
    assemble(ptx, arch)
    contracted = ptx_of("program p(n) { buffer y: f32[n] read_write\n let i = global_id.x\n y[i] = y[i] * 3.0 + 1.0 }", arch, FAST)
    assert "fma.rn.ftz.f32" in contracted


@pytest.mark.parametrize("arch", ARCHS)
def test_f16_is_not_flushed(arch):
    ptx = ptx_of("program p(n) { buffer y: f16[n] read_write\n let i = global_id.x\n y[i] = y[i] + 1.0 }", arch, FAST)
    assert ".ftz.f16" not in ptx and ptx.count(".entry") == 2
    assemble(ptx, arch)


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_a_racing_value_is_loaded_once(arch):
    """What the check saw is what is used."""
    text = """program p(n) over(n) { buffer x: u32[n] read_write
  buffer y: u64[n] read_write
  let k = x[0u32]
  y[k] = y[k] + 1u64 }"""
    assert len(re.findall(r"ld\.global\.(?:nc\.)?[bu]32", ptx_of(text, arch))) == 1


def test_every_load_is_opaque_to_llvm_7():
    text = emit_text(parse(EVERYTHING), "sm_90", form="nvvm")
    loads = re.findall(r"(%v\d+) = load (\w+), \w+ addrspace\(\d\)\*", text)
    assert len(loads) > 5
    for name, type_ in loads:
        used = re.findall(rf"^.*(?<!\w){re.escape(name)}(?![\w.]).*$", text, re.MULTILINE)
        assert len(used) == 2 and ('asm ""' in used[1] or f"zext {type_} {name} to i16" in used[1])


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
@pytest.mark.parametrize("line", ["y[i] = a - y[i + 1u32]", "z[i] = a - y[i + 1u32]"])
def test_loads_on_both_sides_of_a_barrier_stay(line, arch):
    head = "program p workgroup(64) over(64) { buffer y: u32[65] read_write\n buffer z: u32[64] write\n let i = local_index\n let a = y[i + 1u32]\n barrier\n"
    first, second = ptx_of(f"{head}{line} }}", arch).split("bar.sync", 1)
    assert "ld.global" in first and "ld.global" in second


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_endless_loops_stay(arch):
    ptx = ptx_of("program p(n) { buffer y: f32[n] read_write\n loop { }\n y[global_id.x] = 1.0 }", arch)
    assert re.search(r"^(\S+):\s*bra(?:\.uni)?\s+\1;", ptx, re.MULTILINE) and "st.global" not in ptx


def test_wide_accesses_are_made():
    text = "program p(n) { buffer x: f32[n] read\n buffer y: f32[n] write\n let i = global_id.x\n y[i] = x[i] * 2.0 }"
    for arch in ("sm_90", "sm_100"):
        assert re.search(r"ld\.global\.nc\.v\d", ptx_of(text, arch)) and "st.global.v4" in ptx_of(text, arch)


WHOLE = ("boolx4", "u8x2", "i16x4", "f16x2", "bf16x4", "f32x2", "f32x4", "u64x2", "f64x2")
WORD_BYTES = 4  # of a place, and of the flag of an interruption


def access_bytes(body):
    """Of each access to global memory: "v2.b32" is one of 8, and "u64" too. What its type is called differs from one libNVVM to the next."""
    found = re.findall(r"\b(?:ld|st)\.global(?:\.nc)?\.(?:v(\d)\.)?[a-z](\d+)", body)
    return [int(lanes or 1) * int(bits) // 8 for lanes, bits in found]


@pytest.mark.parametrize("options", [{}, {"interruptible": True}, {"persistent": True}], ids=str)
@pytest.mark.parametrize("type_", WHOLE)
def test_whole_vectors_are_one_access_in_any_program(type_, options):
    """In the entry for memory that is aligned, at places that the Program reads; so with options that rule several elements an invocation out."""
    program = vector_program(BODIES["scatter"], type_)
    size = next(buffer.type.size_bytes for buffer in program.buffers if buffer.name == "x")
    for arch in ("sm_90", "sm_100"):
        target, given = Target("ptx", arch), replace(NVVM, **options)
        made = nvptx.lower(prepare(program, target, given), target, given)
        best, plain = made.entries
        assert {need.buffer: need.size_bytes for need in best.needs} == {"x": size, "y": size} and plain.needs == () and best.elements == 1
        bodies = dict(re.findall(r"\.entry (\w+)\((.*?)^\}", made.text, re.DOTALL | re.MULTILINE))
        accesses = access_bytes(bodies[best.symbol])
        assert accesses.count(size) >= 2 and set(accesses) <= {size, WORD_BYTES}
        assert len(re.findall(r"st\.global\.(\S+)", bodies[best.symbol])) == 1 < len(re.findall(r"st\.global\.(\S+)", bodies[plain.symbol]))
        assert ".local" not in bodies[best.symbol]
        assemble(made.text, arch)


def test_sixteen_bytes_are_one_access():
    """Of the smallest elements, too, of which LLVM 7 takes four at a time."""
    lets, stores = ("\n".join(line.format(k=k, r=15 - k) for k in range(16)) for line in ("let v{k} = x[i, {k}u32]", "y[i, {k}u32] = v{r}"))
    text = f"program p(n) over(n) {{ buffer x: u8[n, 16] read\n buffer y: u8[n, 16] write\n let i = n - global_id.x\n {lets}\n {stores} }}"
    for arch in ("sm_90", "sm_100"):
        assert access_bytes(ptx_of(text, arch).split(".entry")[2]) == [16, 16]


@pytest.mark.parametrize("type_", [f"{scalar}x{lanes}" for scalar in VECTOR_SCALARS for lanes in (2, 3, 4)])
def test_vectors_mean_the_same_as_ptx(type_):
    """Each kind of access to vectors, in the best entry and the plain one, by one compiler or the other."""
    for number, kind in enumerate(BODIES, int(type_[-1])):
        program, sizes, arch = vector_program(BODIES[kind], type_), {"n": 21, "m": 24}, ("sm_90", "sm_100")[number % 2]
        for entry in (0, 1):
            got = vector_arguments(program, sizes)
            want = {name: array.copy() for name, array in got.items()}
            interpret(prepare(program, Target("ptx", arch), NVVM), want, sizes)
            run_as_ptx(program, arch, NVVM, got, sizes, entry)
            simt_host.assert_same(program, got, want)


def test_atomics():
    """Their scopes and orders: relaxed, by the device or the workgroup."""
    text = """program p(n) workgroup(32) { buffer a: u32[n] read_write
  buffer s: i64[n] read_write
  buffer f: f32[n] read_write
  buffer d: f64[n] read_write
  workgroup w: f32[4]
  let i = global_id.x
  let o = atomic_add(a[i], 1u32)
  atomic_max(s[i], -1i64)
  atomic_add(f[i], 0.5)
  atomic_add(d[i], 0.5)
  atomic_min(w[1u32], 0.5)
  atomic_add(w[2u32], 0.5)
  let c = atomic_compare_exchange(a[i], o, 5u32) }"""
    for arch in ("sm_75", "sm_90", "sm_100"):
        ptx = ptx_of(text, arch)
        for word in ("global.add.u32", "global.max.s64", "relaxed.gpu.global.add.f32", "relaxed.gpu.global.add.f64", "relaxed.cta.shared.add.f32"):
            assert re.search(rf"atom\.(relaxed\.gpu\.)?{re.escape(word)}", ptx), word
        assert re.search(r"ld\.relaxed\.cta\.shared\.[bu]32", ptx) and re.search(r"atom\.(?:relaxed\.)?(?:gpu\.)?global\.cas\.b32", ptx), (
            re.findall(r".*(?:atom|ld\.relaxed).*", ptx)
        )
        assemble(ptx, arch)
    text = "program p(n) over(n) { buffer y: f32[n] read_write\n y[global_id.x] = 1.0\n grid_barrier\n y[0u32] = 2.0 }"
    ptx = ptx_of(text)
    assert ptx.count("fence.acq_rel.gpu;") == 2 and ptx.count("ld.relaxed.gpu.global.b32") == 1


def test_output_is_deterministic():
    assert ptx_of(EVERYTHING) == ptx_of(EVERYTHING)


# ---------------------------------------------------------------- the text


def module(body, parameters="ptr addrspace(1) align 4 %a0, float %a1, i32 %a2", attributes=""):
    return f"define ptx_kernel void @k({parameters}){attributes} {{\nentry:\n  {body}\n  ret void\n}}\n"


@pytest.mark.parametrize(
    "body",
    [
        "%v1 = frem float %a1, %a1",
        "%v1 = load volatile i32, ptr addrspace(1) %a0, align 4",
        "%v1 = load atomic i32, ptr addrspace(1) %a0 unordered, align 4",
        "store atomic i32 1, ptr addrspace(1) %a0 unordered, align 4",
        "%v1 = getelementptr inbounds i32, ptr addrspace(1) %a0, i64 1",
        "fence monotonic",
        "%v1 = atomicrmw add ptr addrspace(1) %a0, i32 1 seq_cst, align 4",
        "%v1 = atomicrmw nand ptr addrspace(1) %a0, i32 1 monotonic, align 4",
        "%v1 = cmpxchg ptr addrspace(1) %a0, i32 1, i32 2 acquire monotonic, align 4",
        "%v1 = call float @llvm.sin.f32(float %a1)",
        "%v1 = call float @sinf(float %a1)",
        "%v1 = call half @llvm.minimumnum.f16(half 0xH0000, half 0xH0000)",
        "%v1 = call i32 @llvm.nvvm.read.ptx.sreg.laneid()",
        "%v1 = call i32 @llvm.fshl.i32(i32 %a2, i32 1, i32 %a2)",
        "%v1 = select i1 true, ptr addrspace(1) %a0, ptr addrspace(1) %a0",
        'call void asm sideeffect "", "l"(ptr addrspace(1) %a0)',
        "%v1 = ptrtoint ptr addrspace(1) %a0 to i32",
        "%v1 = load i32, ptr addrspace(1) %nowhere, align 4",
        "indirectbr ptr null, []",
    ],
)
def test_what_has_no_form_is_refused(body):
    with pytest.raises(ToolchainError, match="libNVVM: there is no form for") as caught:
        libnvvm.nvvm_text(module(body), "sm_90")
    assert body.splitlines()[-1].strip() in str(caught.value) and body in caught.value.text


def test_attributes_and_lines_without_a_form_are_refused():
    for text in (module("", attributes=' "nvvm.maxnreg"="32"'), "@x = global i32 0\n", "attributes #0 = { nounwind }\n", module("").replace("void @", "i32 @")):
        with pytest.raises(ToolchainError, match="there is no form for"):
            libnvvm.nvvm_text(text, "sm_90")


VECTORS = """%v1 = load <4 x float>, ptr addrspace(1) %a0, align 16
  %v2 = freeze <4 x float> %v1
  %v3 = fneg <4 x float> %v2
  %v4 = extractelement <4 x float> %v3, i32 1
  %v5 = insertelement <4 x float> %v3, float %v4, i32 0
  store <4 x float> %v5, ptr addrspace(1) %a0, align 16"""


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_vectors(arch):
    ptx = libnvvm.assemble(module(VECTORS), arch, 3, fast=False)
    assert "ld.global.v" in ptx and "st.global.v4" in ptx and ptx.count("neg.f32") >= 3
    assemble(ptx, arch)


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
@pytest.mark.parametrize("options", [{}, {"opt": 0}, {"persistent": True, "interruptible": True}], ids=str)
def test_lines_of_source_are_kept(arch, options):
    ptx = ptx_of(parse(LOOPS, "loops.vir"), arch, replace(NVVM, debug=True, **options))
    found = {int(line) for line in re.findall(r"\.loc\s+1 (\d+) \d+", ptx)}
    assert found >= {4, 7, 8, 10} and '"loops.vir"' in ptx and ", debug" not in ptx
    assemble(ptx, arch)


def test_the_text_is_to_be_had():
    typed, opaque = (emit_text(parse(EVERYTHING), arch, form="nvvm") for arch in ("compute_90", "compute_100"))
    assert "nvvm.annotations" in typed and not re.search(r"\bptr ", typed) and "freeze" not in typed
    assert "define ptx_kernel void @vyre_every_thing____(ptr addrspace(1)" in opaque and "freeze" in opaque
    for text in (typed, opaque):
        assert "!nvvmir.version" in text and "llvm.minimumnum" not in text and "load atomic" not in text


# ---------------------------------------------------------------- the library


def test_versions_of_ptx():
    """Those of its architectures, where nothing needs a newer one; told to the library, or written into what it made."""
    for arch in ("sm_75", "sm_86", "sm_90a", "sm_100f", "sm_110", "sm_121a"):
        ptx = ptx_of(EVERYTHING, arch)
        assert f".version {ARCHITECTURES[arch]}\n.target {arch}\n" in ptx


def test_a_library_that_can_not_be_told_the_version(monkeypatch):
    monkeypatch.setattr(libnvvm, "_takes_version", lambda: False)
    ptx = ptx_of(EVERYTHING, "sm_100")
    assert f".version {ARCHITECTURES['sm_100']}\n" in ptx
    assemble(ptx, "sm_100")


@pytest.mark.parametrize(
    ("instruction", "version"),
    [("add.s32 %r1, %r1, 1", "7.0"), ("griddepcontrol.wait", "7.8"), ("add.rn.f32.f16 %r1, %rs1, %r2", "8.6"), ("tcgen05.fence %r1", "9.5"),
     ("@%p1 min.f16 %rs1, %rs1, %rs2", "7.0"), ("ld.global.v8.b32 {%r1, %r2}, [%rd1]", "9.5")],
)  # fmt: skip
def test_an_instruction_may_need_a_newer_version(instruction, version):
    ptx = f"//\n.version 9.5\n.target sm_80\n\t{instruction};\n\tret;\n"
    assert libnvvm._bounded(ptx, "sm_80") == ptx.replace("9.5", version)
    assert libnvvm._bounded(ptx.replace("9.5", "6.0"), "sm_80") == ptx.replace("9.5", "6.0")


def test_a_hint_needs_no_newer_version():
    hint = '\t.pragma "used_bytes_mask 0xff0f";\n'
    ptx = f"//\n.version 9.5\n.target sm_80\n{hint}\tret;\n"
    assert libnvvm._bounded(ptx, "sm_80") == ptx.replace("9.5", "7.0").replace(hint, "")
    assert libnvvm._bounded(ptx, "sm_120") == ptx.replace("9.5", "8.7")
    assert libnvvm._bounded(ptx.replace("used_bytes_mask", "something"), "sm_80") == ptx.replace("used_bytes_mask", "something")


def test_version_names_library_and_interface():
    assert re.fullmatch(r"\d+\.\d+\.\d+/\d+\.\d+", libnvvm.version())


def test_an_architecture_that_the_library_lacks():
    with pytest.raises(Unsupported, match=r"libNVVM does not support target compute_101 \(codegen='llvm' may have it\)"):
        ptx_of(EVERYTHING, "sm_101")
    with pytest.raises(Unsupported, match="sm_777"):
        compile_for(parse(EVERYTHING), [parse_target("sm_777")], NVVM)


@pytest.mark.parametrize("target", ["compute_80", "compute_90a"])
def test_products_on_tensor_cores_are_refused_by_name(target):
    product = vp.ops.matmul(vp.bf16, tiles="small")
    with pytest.raises(Unsupported, match=r"option codegen='nvvm' for products on tensor cores"):
        emit_text(product, target, NVVM)
    assert "mma" in emit_text(product, target)


def test_what_the_library_refuses_carries_its_log_and_the_text():
    with pytest.raises(ToolchainError, match=r"libNVVM: vyre .*parse") as caught:
        libnvvm.assemble(module("%v1 = add i32 %a1, 1"), "sm_90", 3, fast=False)
    assert "%v1 = add i32 %a1, 1" in caught.value.text and "nvvm.annotations" in caught.value.text


@pytest.mark.parametrize("missing", ["bindings", "library"])
def test_without_the_library(missing, monkeypatch):
    if missing == "bindings":
        monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    else:
        bindings = pytest.importorskip("cuda.bindings.nvvm")
        fail = RuntimeError("Failure finding libnvvm.so\nelsewhere")
        monkeypatch.setattr(bindings, "version", lambda: (_ for _ in ()).throw(fail))
    libnvvm._library.cache_clear()
    try:
        with pytest.raises(Unsupported, match=r"option codegen='nvvm' without libNVVM \(pip install '\.\[cuda\]'"):
            ptx_of(EVERYTHING)
        assert "nvvm.annotations" in emit_text(parse(EVERYTHING), "sm_90", form="nvvm")
    finally:
        libnvvm._library.cache_clear()


# ---------------------------------------------------------------- on a GPU


@pytest.mark.parametrize("opt", [0, 3])
@pytest.mark.parametrize("path", [path for path in files("run") if devices_of(path, ("cuda",))], ids=lambda path: path.stem)
def test_filetests_run_on_a_gpu(path, opt, monkeypatch):
    device = open_device("cuda")
    options = CompileOptions(codegen="nvvm", opt=opt)
    pipeline_of = partial(device.compile_native, options=options)

    def run_on(kind, program, arguments, opt=3, config=None, out=None):
        return pipeline_of(program).dispatch(arguments, config=config, out=out)

    monkeypatch.setattr(filetest, "run_on", run_on)
    problems = []
    for case in read_cases(path):
        try:
            run_program(case, "cuda")
        except Failure as failure:
            problems.append(str(failure))
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("batch", range(10))
def test_generated_programs_run_on_a_gpu(batch):
    device = open_device("cuda")
    for number in range(30 * batch, 30 * batch + 30):
        print(f"Program {number}")
        assert_agrees(device, generate(Seeded(7_000_000 + number)), NVVM)


@pytest.mark.parametrize("t", SCALARS.values(), ids=str)
def test_both_generators_agree_on_a_gpu(t):
    """Every op over a type, casts and expansions too; all NaNs alike."""
    device = open_device("cuda")
    program = replace(every_op(t), workgroup=(1, 1, 1), subgroup=1)
    rng = np.random.default_rng(5)
    given = {m.name: random_array(rng, m.type, (m.shape[0].value,)) for m in program.buffers}
    alone = DispatchConfig(grid=(1, 1, 1))  # all invocations write the same places
    one, other = (device.compile_native(program, options).dispatch(given, config=alone) for options in (CompileOptions(), NVVM))
    for memory in program.buffers:
        if memory.access.writes:
            differ = np.flatnonzero(differing(one[memory.name], other[memory.name], memory.type))
            assert not differ.size, f"{memory.name}[{differ}]: {one[memory.name][differ]} by LLVM, {other[memory.name][differ]} by libNVVM"


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.op)
def test_fast_keeps_its_bounds_on_a_gpu(bound):
    device = open_device("cuda")
    args = arguments(bound.op, 1 << 16)
    pipeline = device.compile_native(fast_program(bound.op), FAST)
    out = pipeline.dispatch({**{f"x{k}": x for k, x in enumerate(args)}, "out": np.zeros(args[0].shape, np.float32)})["out"]
    missed = outside(bound, out, *args)
    assert not missed.any(), f"{bound.op}{[x[missed][:5] for x in args]} gives {out[missed][:5]}"


@pytest.mark.parametrize("options", [{"interruptible": True}, {"persistent": True, "interruptible": True}, {"dependent": True}], ids=str)
def test_options_run_on_a_gpu(options):
    device = open_device("cuda")
    x = np.random.default_rng(6).random(4096, np.float32) + 1
    plain, other = (device.compile_native(parse(LOOPS), o).dispatch({"x": x})["x"] for o in (NVVM, replace(NVVM, **options)))
    np.testing.assert_array_equal(plain.view(np.uint32), other.view(np.uint32))
