"""Code for SIMD lanes: exact against the interpreter at every width, optimised and not, and as good as it should be."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from device_kinds import cpu_of_lanes
from lane_programs import PROGRAMS, ControlFlow, program

from vyre_py.drivers.cpu.device import CpuDevice
from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.errors import ValidationError
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes import Optimised, optimise, unoptimised
from vyre_py.lowering.compile import emit_text
from vyre_py.lowering.errors import ToolchainError, Unsupported
from vyre_py.lowering.kinds import STRICT_EXPANSIONS
from vyre_py.lowering.llvm import large
from vyre_py.lowering.llvm.cpu import host
from vyre_py.lowering.llvm.cpu.lanes import LaneKernel, emit_lanes
from vyre_py.lowering.llvm.cpu.plan.regions import Escape, plan_regions
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target, parse_target

WIDTHS = (1, 2, 4, 8, 16, 32)
WORST, BEST = CompileOptions(opt=0), CompileOptions()


device = cache(cpu_of_lanes)


def ready(text: str) -> Optimised:
    return optimise(check(Program.from_text(text)), expand=STRICT_EXPANSIONS)


def arguments(count: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    high = 9 if seed % 2 else 1 << 32
    return {"p": seed % 6, "rd": rng.integers(0, high, 80, dtype=np.uint32), "out": rng.integers(0, 99, (count, 4), dtype=np.uint32)}


def assert_agrees(text: str, given: dict[str, Any], widths: tuple[int, ...], options: tuple[CompileOptions, ...] = (WORST, BEST)) -> None:
    """Runs a Program as written through the interpreter, and compares all written buffers."""
    checked = check(Program.from_text(text))
    wanted = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in given.items()}
    sizes = {"n": given["out"].shape[0]}
    interpret(unoptimised(checked, expand=STRICT_EXPANSIONS), wanted, sizes)
    for width in widths:
        for option in options:
            got = device(width).compile_native(checked, option).dispatch({**given, **sizes})
            for name, array in got.items():
                np.testing.assert_array_equal(array, wanted[name], f"{name}, {width} lanes, opt {option.opt}")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, width: int) -> None:
    text = program(name)
    for count, seed in ((133, 2), (80, 5), (1, 0)) if "over" in PROGRAMS[name] else ((133, 3), (20, 4)):
        assert_agrees(text, arguments(count, seed), (width,), (BEST,) if count == 1 else (WORST, BEST))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_few_passes_for_large_programs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "_LARGE_LINES", 1)
    device(8).trim()
    assert_agrees(program(name), arguments(133, 3), (8,), (BEST,))
    device(8).trim()


@pytest.mark.parametrize("batch", range(8))
def test_random_control_flow(batch: int) -> None:
    ran = 0
    unexpected: list[str] = []
    for seed in range(batch * 30, batch * 30 + 30):
        flow = ControlFlow(seed)
        text = flow.text()
        try:
            check(Program.from_text(text))
        except ValidationError as error:
            unexpected += [code for code in error.codes if code not in ("V401", "V402", "V403")]
            continue
        ran += 1
        given = {**arguments(flow.elements, seed), "count": np.zeros(10, np.uint32)}
        assert_agrees(text, given, (WIDTHS[seed % 6], WIDTHS[(seed + 3) % 6]), (WORST if seed % 3 == 0 else BEST,))
    assert ran > 15 and not unexpected


@pytest.mark.parametrize("gathers", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_small_elements_gather_and_scatter(width: int, gathers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are gathered one by one or by way of words, also where a view begins between two words and memory ends with a byte."""
    like = host.described("native")
    monkeypatch.setattr(host, "described", lambda arch: replace(like, gathers=gathers, scatters=gathers))
    text = """program bytes(n, m) workgroup(32) over(n) {
      buffer x: u8[m] read
      buffer flags: bool[m] read
      buffer y: u8[n] write
      buffer z: bool[n] write
      let i = global_id.x
      let j = (i * 7u32) % (m + 2u32)
      y[i] = select(flags[j], x[j], x[i])
      z[n - 1u32 - i] = flags[i]
    }"""
    rng = np.random.default_rng(width)
    x, flags = rng.integers(0, 256, 101, dtype=np.uint8), rng.integers(0, 256, 101, dtype=np.uint8).view(np.bool_)
    made = device.__wrapped__(width)  # one that has not compiled it
    pipeline = made.compile_native(Program.from_text(text))
    xd, fd = made.upload(x), made.upload(flags)
    for start in range(4):
        m = 101 - start
        y, z = (made.allocate(97, pipeline.artifact.interface.buffers[k].type) for k in (2, 3))
        pipeline.bind({"x": xd[start:], "flags": fd[start:], "y": y, "z": z})()
        at = np.arange(97)
        inside, j = at < m, np.minimum(at * 7 % (m + 2), m)
        bits, bytes_ = np.append(flags.view(np.uint8)[start:] != 0, False), np.append(x[start:], 0)
        np.testing.assert_array_equal(y.read(), np.where(bits[j], bytes_[j], bytes_[at]))
        np.testing.assert_array_equal(z.read()[::-1], bits[at] & inside)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_stored_bool_is_zero_or_one_and_moves_keep_nan_bits(width: int) -> None:
    text = """program moves(n) workgroup(16) over(n) {
      buffer f: f32[n] read
      buffer g: f32[n] write
      buffer b: bool[n] read
      buffer c: bool[n] write
      private own: f32[2]
      let i = global_id.x
      own[i % 2u32] = f[i]
      var v: f32 = own[i % 2u32]
      g[i] = select(b[i], v, 1.0f32)
      c[i] = b[i]
    }"""
    bits = np.array([0x7FC00001, 0x7F800001, 0xFFC12345, 0x80000000, 1] * 4, np.uint32)
    flags = np.arange(20, dtype=np.uint8) * 13
    out = device(width).compile_native(Program.from_text(text)).dispatch(f=bits.view(np.float32), b=flags.view(np.bool_))
    np.testing.assert_array_equal(out["g"].view(np.uint32), np.where(flags != 0, bits, 0x3F800000))
    np.testing.assert_array_equal(out["c"].view(np.uint8), flags != 0)


def test_much_that_lives_across_barriers_does_not_touch_the_stack() -> None:
    """1,024 invocations, 4 KiB of private memory and 200 values each: 4.8 MiB of a thread's scratch memory."""
    values = [f"let a{k} = i * i + {k}u32" for k in range(200)]
    text = "\n".join([
        "program wide(n) workgroup(1024) over(n) { buffer out: u32[n, 4] read_write\n private own: u32[1000]\n let i = global_id.x",
        *values, "own[i % 1000u32] = i\n barrier\n var s: u32 = own[i % 1000u32]", *[f"s = s + a{k}" for k in range(200)], "out[i, 0u32] = s }",
    ])  # fmt: skip
    assert emit_lanes(ready(text), 16).scratch_bytes > 4 << 20
    assert_agrees(text, {"out": np.zeros((3000, 4), np.uint32)}, (16, 1), (BEST,))


# ---------------------------------------------------------------- how good the code is

AXPY = """program axpy(n) workgroup(256) { param a: f32\n buffer x: f32[n] read\n buffer y: f32[n] read_write
  let i = global_id.x\n y[i] = a * x[i] + y[i] }"""


def text_of(text: str, width: int = 16) -> str:
    return emit_lanes(ready(text), width).text


def test_neighbours_are_vector_accesses() -> None:
    text = text_of(AXPY)
    assert text.count("call <16 x float> @llvm.masked.load") == 2 and text.count("call void @llvm.masked.store") == 1 and "gather" not in text
    rows = text_of("""program rows(h, w) workgroup(16, 16) over(w, h, 1) { buffer x: f32[h, w] read\n buffer y: f32[h, w] write
      workgroup tile: f32[18, 18]
      let i = global_id.x\n let j = global_id.y\n tile[local_id.y + 1u32, local_id.x + 1u32] = x[j - 1u32, i + 3u32]
      barrier
      y[j, i] = tile[local_id.y, local_id.x] + x[j, cast(i, i32) - 2i32] }""")
    assert "gather" not in rows and "scatter" not in rows and rows.count("x float> @llvm.masked.load") >= 2


def test_full_chunks_without_checks_are_plain_vector_accesses() -> None:
    text = text_of("""program own(n) workgroup(64) over(n) { buffer y: f32[n] write\n workgroup t: f32[64]
      t[local_index] = 1.0f32\n barrier\n y[0u32] = t[local_index] }""")
    assert "store <16 x float>" in text and "load <16 x float>" in text and "masked" not in text


def test_what_lanes_share_is_scalar() -> None:
    text = text_of("""program same(n) workgroup(64) over(n) { buffer x: f32[n] read_write\n let a = x[workgroup_id.x] * 2.0f32
      for k in 0u32..n { if k * k > n { break } }
      x[n - 1u32] = a }""")
    assert "fmul float" in text and "x float>" not in text and "llvm.masked" not in text


def test_private_arrays_at_shared_indices_are_rows_of_lanes() -> None:
    text = text_of("""program own(n) workgroup(64) over(n) { buffer y: f32[n] write\n private t: f32[4]
      t[1u32] = cast(global_id.x, f32)\n y[global_id.x] = t[1u32] }""")
    assert "gather" not in text and "scatter" not in text


def test_atomics_at_one_place_are_one() -> None:
    text = text_of("program count(n) workgroup(64) over(n) { buffer c: u32[1] read_write\n if global_id.x < n { atomic_add(c[0u32], global_id.x) } }")
    # Inside, in a run of chunks inside, and at the border.
    assert text.count("atomicrmw") == 3 and "llvm.vector.reduce.add.v16i32" in text and "cttz" not in text


def test_atomics_of_workgroup_memory_take_no_masks_where_all_lanes_are_on() -> None:
    text = text_of("""program count(n) workgroup(64) over(n) { buffer x: u32[n] read\n buffer y: u32[n] write\n workgroup bins: u32[16]
      barrier\n if x[global_id.x] > 7u32 { atomic_add(bins[x[global_id.x] & 15u32], 1u32) }
      barrier\n y[global_id.x] = bins[local_id.x & 15u32] }""")
    every = text[text.index("\nevery") : text.index("\nsome", text.index("\nevery"))]
    assert "load i64" in every and "cttz" not in every and "cttz" in text


def test_loops_fetch_what_the_next_chunk_loads() -> None:
    head = "program sums(n) workgroup(64) over(n) { buffer x: u32[n] read\n buffer y: u32[n] write\n var s: u32 = 0u32\n"
    assert "@llvm.prefetch" in text_of(f"{head} for k in 0u32..9u32 {{ s = s + x[k * 64u32 + local_id.x] }}\n y[global_id.x] = s }}")
    assert "prefetch" not in text_of(f"{head} for k in 0u32..9u32 {{ s = s + x[global_id.x] }}\n y[global_id.x] = s }}")
    # Of rows each line of 64 bytes.
    head = "program sums(n) workgroup(64) grid(9) { buffer x: f32[n, 4] read\n buffer y: f32[576] write\n var s: f32 = 0.0f32\n"
    turn = "for k in global_id.x..n step 576 { let a = x[k, 0]\n let b = x[k, 1]\n let c = x[k, 2]\n let d = x[k, 3]\n s = s + ((a + b) + (c + d)) }"
    text = text_of(f"{head} {turn}\n y[global_id.x] = s }}")
    turned = text[text.index("\nbody") : text.index("\nlatch")]
    assert turned.count("call void @llvm.prefetch") == 4 and all(f", i64 {far}" in turned for far in (256, 320, 384, 448))


def test_turns_that_all_lanes_take_have_no_masks() -> None:
    text = text_of("""program strided(n) workgroup(64) grid(9) { buffer x: u32[n] read\n buffer y: u32[64] write\n var s: u32 = 0u32
      for k in local_id.x..n step 64 { s = s + x[k] }\n y[local_id.x] = s }""")
    assert "llvm.vector.reduce.umin" in text and "load <16 x i32>, ptr" in text and "masked.load" in text


def test_lanes_that_gather_most_of_all_go_one_by_one() -> None:
    text = """program rows(n, m) workgroup(64) over(n) { buffer starts: u32[n + 1] read\n buffer at: u32[m] read\n buffer x: f32[m] read
      buffer y: f32[n] write
      let i = global_id.x\n var s: f32 = 0.0f32\n for k in starts[i]..starts[i + 1u32] { s = s + x[at[k]] }\n y[i] = s }"""
    assert emit_lanes(ready(text), 16).scattered and not emit_lanes(ready(AXPY), 16).scattered
    assert "<8 x" in emit_text(Program.from_text(text), "cpu:x86-64-v3:8") and " x float>" not in emit_text(Program.from_text(text), "cpu:x86-64-v3")


def test_text_is_deterministic_and_verified() -> None:
    text = program("control of the workgroup")
    assert text_of(text) == text_of(text)
    assert emit_text(Program.from_text(AXPY), "cpu:native:8").count("<8 x float>") > 2


def test_emission_is_linear() -> None:
    def lines(count: int) -> int:
        body = "\n".join(f"var a{k}: u32 = i\n if i > {k}u32 {{ a{k} = {k}u32 }}\n barrier\n s = s + a{k}" for k in range(count))
        head = "buffer out: u32[n] write\n let i = global_id.x\n var s: u32 = 0u32"
        return text_of(f"program long(n) workgroup(64) over(n) {{ {head}\n {body}\n out[i] = s }}").count("\n")

    few, many = lines(50), lines(200)
    assert many < 4.2 * few


def test_no_promise_that_loops_end() -> None:
    assert not {"mustprogress", "willreturn"} & set(text_of("program hang(n) { buffer x: u32[n] write\n loop { } }").split())


# ---------------------------------------------------------------- regions


def test_regions() -> None:
    body = Program.from_text(program("control of the workgroup"))
    plan = plan_regions(body, check(body).uniformity, [0] * len(body.body), {}, 8)
    shared = [type(s).__name__ for s, mine in zip(body.body, plan.shared, strict=True) if mine]
    assert shared.count("Loop") == 1 and "UniformLoad" in shared and "Break" in shared and "Return" in shared and "Continue" in shared
    assert not plan.keeps_alive and not plan.keeps_turn and not any(plan.escapes)
    body = Program.from_text(program("lanes that continue before a barrier's loop turns"))
    plan = plan_regions(body, check(body).uniformity, [0] * len(body.body), {}, 8)
    assert len(plan.keeps_turn) == 1 and any(region.escapes == Escape.CONTINUE for region in plan.regions.values())
    body = Program.from_text(program("lanes that return after the last barrier"))
    assert plan_regions(body, check(body).uniformity, [0] * len(body.body), {}, 8).keeps_alive
    body = Program.from_text(program("break, continue and return in nested loops"))
    plan = plan_regions(body, check(body).uniformity, [0] * len(body.body), {}, 8)
    assert list(plan.regions) == [0] and not any(plan.shared) and not plan.crossing
    assert not any(plan_regions(body, check(body).uniformity, [0] * len(body.body), {}, 1).escapes)


# ---------------------------------------------------------------- the host target


@pytest.mark.parametrize(
    ("workgroup", "lanes"),
    [
        ((256, 1, 1), 16), ((16, 1, 1), 16), ((10, 1, 1), 16), ((8, 1, 1), 8), ((1, 1, 1), 1), ((3, 1, 1), 4),
        ((8, 8, 1), 8), ((48, 4, 1), 16), ((5, 3, 2), 16), ((20, 20, 1), 4), ((1, 64, 1), 16),
    ],
)
def test_lanes_fit_the_workgroup(workgroup: tuple[int, int, int], lanes: int) -> None:
    assert host.choose_lanes(workgroup, "x86-64-v3") == lanes


def test_more_lanes_on_wider_machines() -> None:
    assert [host.choose_lanes((256, 1, 1), arch) for arch in ("x86-64-v2", "x86-64-v3", "x86-64-v4")] == [8, 16, 32]


@pytest.mark.parametrize("arch", ["x86-64-v2", "x86-64-v3"])
def test_named_cpus(arch: str) -> None:
    """Code for an older CPU gives the same results here: without FMA each fma is a call of the C library."""
    text = """program f(n) workgroup(64) over(n) { buffer x: f32[n] read\n buffer y: f32[n] write\n let i = global_id.x
      y[i] = fma(x[i], x[i], floor(x[i])) + sqrt(abs(round(x[i]))) + exp(x[i]) }"""
    x = np.random.default_rng(3).normal(size=200).astype(np.float32) * 9
    made = CpuDevice(0)
    made.target = parse_target(f"cpu:{arch}")
    np.testing.assert_array_equal(
        made.compile_native(Program.from_text(text)).dispatch(x=x)["y"], device(16).compile_native(Program.from_text(text)).dispatch(x=x)["y"]
    )


def test_what_the_target_refuses() -> None:
    program_ = Program.from_text(AXPY)
    for target, options, word in (
        ("cpu:pentium-of-2077", None, "pentium-of-2077"), ("cpu:native:3", None, "3 lanes"), ("cpu", CompileOptions(persistent=True), "persistent"),
        ("cpu", CompileOptions(dependent=True), "dependent"), ("cpu", CompileOptions(numerics="native"), "numerics"),
    ):  # fmt: skip
        with pytest.raises(Unsupported, match=word):
            emit_text(program_, target, options)


def test_an_object_that_wants_an_unknown_symbol_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "declare float @nowhere(float)\ndefine float @f(float %x) {\n  %y = call float @nowhere(float %x)\n  ret float %y\n}"
    monkeypatch.setattr(host, "emit_lanes", lambda *_, **__: LaneKernel(text=text, scratch_bytes=0, workgroup_bytes=0))
    with pytest.raises(ToolchainError, match="nowhere") as caught:
        host.lower(ready(AXPY), Target("host", "native"), BEST)
    assert caught.value.text == text


def test_what_llvm_refuses_is_a_toolchain_error_with_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "emit_lanes", lambda *_, **__: LaneKernel(text="define nonsense", scratch_bytes=0, workgroup_bytes=0))
    with pytest.raises(ToolchainError) as caught:
        host.lower(ready(AXPY), Target("host", "native"), BEST)
    assert caught.value.text == "define nonsense"
