"""The GPU walk against the interpreter, without a GPU: its LLVM IR runs on the host, an invocation a thread (`simt_host`)."""

from __future__ import annotations

import numpy as np
import pytest
import simt_host
from filetest import files, read_cases, run_program
from generator import Seeded, generate
from heard import Heard
from ptxas import assemble
from test_cpu_types import COUNT, NAMES, program_of

import vyre_py.drivers.reference.device as reference_device
from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.ops import EXPANDED_ONLY
from vyre_py.ir.language.types import SCALARS
from vyre_py.ir.passes import unoptimised
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.compile import emit_text, prepare
from vyre_py.lowering.llvm import text
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target

TARGET = Target("ptx", "sm_90")


def agree(program, arguments, sizes):
    """Interpreter and walk give the same bits, with all passes and with none."""
    checked = check(program)
    results = []
    for run, prepared in (
        (interpret, unoptimised(checked, expand=EXPANDED_ONLY)),
        (simt_host.run, prepare(checked, TARGET, CompileOptions(opt=0))),
        (simt_host.run, prepare(checked, TARGET, CompileOptions())),
    ):
        copies = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in arguments.items()}
        with np.errstate(all="ignore"):
            run(prepared, copies, sizes)
        results.append(copies)
    for got in results[1:]:
        simt_host.assert_same(program, got, results[0])
    return results[0]


@pytest.mark.parametrize("t", SCALARS.values(), ids=str)
def test_ops_and_memory_of_every_type(t):
    program, arguments = program_of(t, NAMES)
    for memory in program.buffers:
        arguments.setdefault(memory.name, np.zeros((COUNT, memory.type.lanes) if memory.type.is_vector else COUNT, memory.type.dtype))
    agree(program, arguments, {"n": COUNT})


@pytest.mark.parametrize("seed", range(24))
def test_generated_programs(seed, monkeypatch):
    """Half of them in short blocks, as long straight pieces are cut."""
    if seed % 2:
        monkeypatch.setattr(text, "_BLOCK_LINES", 8)
    case = generate(Seeded(9000 + seed))
    arguments = {n: v for n, v in case.arguments.items() if n not in case.sizes}
    for memory in case.program.buffers:
        if memory.name not in arguments:
            shape = [case.sizes[d.name] if hasattr(d, "name") else d.value for d in memory.shape]
            arguments[memory.name] = np.zeros([*shape, *[memory.type.lanes] * memory.type.is_vector], memory.type.dtype)
    agree(case.program, arguments, case.sizes)


@pytest.mark.parametrize("path", files("run"), ids=lambda path: path.stem)
def test_run_filetests(path, monkeypatch):
    """The reference device with the walk in the interpreter's place."""
    ran = []
    walk = simt_host.Walk()

    def run(code, arguments, sizes, reports, **watches):
        ran.append(code)
        heard = Heard(code.program, reports)
        prepared = prepare(heard.program, TARGET, CompileOptions())
        walk.run(prepared, {name: value if value.ndim else value[()] for name, value in arguments.items()}, sizes, heard=heard)

    monkeypatch.setattr(reference_device, "interpret", run)
    for case in read_cases(path):
        run_program(case, "reference")
    assert ran


def test_every_index_is_checked_by_its_value():
    program = parse("""program edges(n, m) workgroup(16) over(16) {
  buffer at: i32[16] read
  buffer a: i32[n, m] read_write
  buffer out: i32[5, 16] write
  workgroup w: i32[3]
  private p: i32[3]
  table t: i32[3] = [7, 8, 9]
  let i = local_index
  let k = at[i]
  w[k] = 5i32
  p[k] = k
  barrier
  out[0u32, i] = w[k]
  out[1u32, i] = p[k] + p[0u32]
  out[2u32, i] = t[k]
  out[3u32, i] = a[k, 1u32] + a[1i32, k]
  if i == 3u32 { out[4u32, i] = atomic_add(a[0u32, k], 100i32) }
  a[0u32, k] = 1i32
}""")
    at = np.array([-1, 0, 1, 2, 3, -(2**31), 2**31 - 1, 4, *[-5] * 8], np.int32)
    got = agree(program, {"at": at, "a": np.arange(9, dtype=np.int32).reshape(3, 3), "out": np.zeros((5, 16), np.int32)}, {"n": 3, "m": 3})
    assert got["out"][2].tolist()[:8] == [0, 7, 8, 9, 0, 0, 0, 0]
    empty = {"at": at, "a": np.zeros((0, 3), np.int32), "out": np.zeros((5, 16), np.int32)}
    agree(program, empty, {"n": 0, "m": 3})


def test_trip_counts_do_not_wrap():
    least, most, full = -(2**31), 2**31 - 1, 2**32 - 1
    loops = [("i32", most - 7, most, 3), ("i32", least, most, most), ("i32", 5, least, least), ("i32", 7, 7, 1), ("i32", 3, -4, -2),
             ("u32", full - 5, full, 4), ("u32", 0, full, full), ("u32", 9, 2, 1)]  # fmt: skip
    body = "\n".join(f"""  for k in {a}{t}..{b}{t} step {c}{t} {{ turns = turns + 1u32; sum = sum + cast(k, f32) }}
  out[{i}u32] = turns; sums[{i}u32] = sum""" for i, (t, a, b, c) in enumerate(loops))
    head = "buffer out: u32[8] write; buffer sums: f32[8] write; var turns: u32 = 0; var sum: f32 = 0.0"
    text = f"program trips workgroup(1) over(1) {{ {head}\n{body}\n}}"
    got = agree(parse(text), {"out": np.zeros(8, np.uint32), "sums": np.zeros(8, np.float32)}, {})
    assert np.diff(got["out"], prepend=0).tolist() == [3, 3, 2, 0, 4, 2, 1, 0]


def test_memory_is_seen_over_barriers():
    program = parse("""program rotate(n) workgroup(32) over(n) {
  buffer y: i32[n] read_write
  buffer out: i32[3, n] write
  workgroup w: i32[32]
  let i = global_id.x
  let l = local_index
  out[0u32, i] = w[l]
  let before = y[i + 1u32]
  barrier
  y[i] = cast(i, i32) + 100i32
  w[31u32 - l] = cast(l, i32)
  barrier
  let after = y[i + 1u32]
  out[1u32, i] = before * 1000i32 + after
  out[2u32, i] = w[l] + uniform_load(w[5u32])
}""")
    agree(program, {"y": np.arange(32, dtype=np.int32), "out": np.zeros((3, 32), np.int32)}, {"n": 32})


def test_params_keep_their_bits():
    program = parse("""program params workgroup(1) over(1) {
  param f: f32
  param b: bool
  param c: u8
  buffer out: f32[1] write
  buffer flags: bool[2] write
  buffer bytes: u8[2] read_write
  out[0u32] = f
  flags[0u32] = b
  flags[1u32] = cast(bytes[0u32], bool)
  bytes[1u32] = c
}""")
    nan = np.uint32(0xFFC12345).view(np.float32)
    arguments = {"f": nan, "b": True, "c": 200, "out": np.zeros(1, np.float32), "flags": np.zeros(2, np.bool_), "bytes": np.array([3, 0], np.uint8)}
    got = agree(program, arguments, {})
    assert got["out"].view(np.uint32)[0] == 0xFFC12345 and got["bytes"][1] == 200


def test_subgroups_of_one_lane_are_no_matter_of_the_warp() -> None:
    """All ops of subgroups give what the interpreter says, by code that asks nothing of other threads."""
    ops = [f"subgroup_{kind}_{fold}(v)" for kind in ("reduce", "inclusive", "exclusive") for fold in ("add", "mul", "min", "max", "and", "or", "xor")]
    ops += [f"subgroup_{name}(v, by)" for name in ("shuffle", "shuffle_up", "shuffle_down")]
    ops += ["subgroup_shuffle_xor(v, 0)", "subgroup_broadcast(v, 0)", "subgroup_match(v)", "subgroup_ballot(b)", "cast(subgroup_any(b), u32)"]
    ops += ["cast(subgroup_all(b), u32)", "subgroup_match(b)", "cast(subgroup_shuffle(b, by), u32)", "subgroup_lane", "subgroup_id"]
    far = ["subgroup_reduce_add(w)", "subgroup_shuffle(w, by)", "subgroup_exclusive_min(w)", "subgroup_inclusive_mul(w)"]
    lines = ["let i = global_id.x", "let v = x[i]", "let w = y[i]", "let b = v % 3u32 == 0u32", "let by = v % 2u32"]
    lines += [f"out[i, {k}u32] = {text}" for k, text in enumerate(ops)] + [f"far[i, {k}u32] = {text}" for k, text in enumerate(far)]
    declared = ["buffer x: u32[n] read", "buffer y: f64[n] read", f"buffer out: u32[n, {len(ops)}] write", f"buffer far: f64[n, {len(far)}] write"]
    program = parse("\n".join(["program alone(n) workgroup(48) subgroup(1) over(n) {", *declared, *lines, "}"]))
    rng = np.random.default_rng(1)
    given = {
        "x": rng.integers(0, 1 << 32, 100, np.uint32), "y": rng.standard_normal(100), "out": np.zeros((100, len(ops)), np.uint32),
        "far": np.zeros((100, len(far))),
    }  # fmt: skip
    agree(program, given, {"n": 100})
    for arch in ("sm_75", "sm_90"):
        ptx = emit_text(program, arch)
        assemble(ptx, arch)
        assert "sync" not in ptx


@pytest.mark.parametrize("threads", [16, 48, 64, 128])
@pytest.mark.parametrize("lanes", [4, 32])
def test_warps_come_together_before_barriers_where_instructions_part_them(lanes: int, threads: int) -> None:
    """Of a workgroup that is no whole warps those threads that there are."""
    head = f"program parted(n) workgroup({threads}) subgroup({lanes}) over(n) {{" if threads % lanes == 0 else ""
    if not head:
        return
    lines = ["buffer x: u32[n] read", "buffer out: u32[n] write", f"workgroup w: u32[{threads}]", "let i = global_id.x", "let l = local_index"]
    lines += ["w[l] = subgroup_ballot(x[i] % 3u32 == 0u32)", "barrier", f"out[i] = w[(l + 5u32) % {threads}u32] + subgroup_inclusive_add(x[i])", "}"]
    program = parse("\n".join([head, *lines]))
    rng = np.random.default_rng(1)
    agree(program, {"x": rng.integers(0, 1 << 32, 300, np.uint32), "out": np.zeros(300, np.uint32)}, {"n": 300})
    for arch, codegen in (("sm_75", "llvm"), ("sm_90", "llvm"), ("sm_120", "llvm"), ("sm_90", "nvvm")):
        ptx = emit_text(program, arch, CompileOptions(codegen=codegen))
        assemble(ptx, arch)
        assert ("bar.warp.sync" in ptx) == (lanes < 32)
