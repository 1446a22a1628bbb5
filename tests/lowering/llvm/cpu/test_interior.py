"""Chunks that lie inside: plain code in the middle, and the interpreter's bits at every border."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_kinds import cpu_of_lanes

import vyre_py as vp
from vyre_py.ir.check import check
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes import optimise
from vyre_py.lowering.compile import emit_text
from vyre_py.lowering.kinds import STRICT_EXPANSIONS
from vyre_py.lowering.llvm.cpu.lanes import emit_lanes

NEAR = """program near(h, w) workgroup(32, 2) over(w, h, 1) { buffer x: f32[h, w] read\n buffer y: f32[h, w] write
  let i = global_id.x\n let j = global_id.y
  y[j, i] = x[j, i - 1u32] + x[j, i + 1u32] + x[j - 1u32, i] + x[j + 2u32, i] }"""
SIGNED = """program signed(h, w) workgroup(32, 2) over(w, h, 1) { buffer x: f32[h, w] read\n buffer y: f32[h, w] write
  let i = cast(global_id.x, i32) - 7i32\n let j = cast(global_id.y, i32)
  var v: f32 = x[j - 1i32, i + 70i32]
  if i >= 2i32 && i < cast(w, i32) { v = v + x[j, i - 2i32] }
  y[j, i + 7i32] = v }"""
RETURNS = """program returns(h, w) workgroup(64) over(w) { buffer x: f32[h, w] read\n buffer y: f32[h, w] write
  let i = global_id.x
  if i >= w { return }
  y[0u32, i] = x[h - 1u32, w - 1u32 - i] + x[1u32, i + 4294967290u32] }"""
DIVIDED = """program divided(h, w) workgroup(64) over(h * w) { param s: u32\n buffer x: f32[h, w] read\n buffer y: f32[h, w] write
  let i = global_id.x
  let q = i / s\n let r = i % s
  y[q, r] = x[r, q] + x[i / w, i % w] + x[i % 3u32, i / 100u32] }"""
TURNED = """program turned(h, w) workgroup(16, 16) over(w, h, 1) { buffer x: f32[h, w] read\n buffer y: f32[w, h] write
  let i = global_id.x\n let j = global_id.y
  y[i, j] = x[j, i] }"""
BARRIERS = """program barriers(h, w) workgroup(64) over(w, h, 1) { buffer x: f32[h, w] read\n buffer y: f32[h, w] write\n workgroup t: f32[16, 5]
  let i = global_id.x\n let j = global_id.y\n let l = local_id.x
  t[l & 15u32, l >> 4u32] = x[j, i + 3u32]
  barrier
  y[j, i] = t[l & 15u32, l >> 4u32] + t[l >> 2u32, l & 3u32] }"""
# Masks that end in ones and in zeros, where they tell lanes apart and where not; numbers that are joined, and parted from one another.
MASKED = """program masked(h, w) workgroup(64) over(h * w) { param s: u32\n buffer x: f32[h, w] read\n buffer y: f32[h, w] write
  let i = global_id.x
  let low = (i & ~(s - 1u32)) << 1u32 | i & (s - 1u32)
  let v = x[low / w, low % w] + x[0u32, low ^ s] + x[0u32, low + s] + x[0i32, cast(i, i32) & cast(s, i32)]
  y[i / w, i % w] = v + x[0u32, (i ^ 64u32) - (i & -s)] }"""
# Of a power of two alone lanes store to places of their own.
PAIRS = """program pairs(h, w) workgroup(64) over(h * w) { param s: u32\n buffer x: f32[h, w] read\n buffer y: f32[h, w] write
  let i = global_id.x
  let low = (i & ~(s - 1u32)) << 1u32 | i & (s - 1u32)
  y[0u32, low] = x[0u32, low + s]
  y[0u32, low + s] = x[0u32, low] }"""
# Lanes that wrap below, chunks that no lane of passes the guard, on either side.
BELOW = """program below(h, w) workgroup(128) over(w + 64) { buffer x: f32[h, w] read\n buffer y: f32[h, w] write
  let i = global_id.x - 20u32
  if i < w - 3u32 { y[0u32, i] = x[h - 1u32, i] + 1.0 } }"""
ABOVE = """program above(h, w) workgroup(128) over(w + 64) { buffer x: f32[h, w] read\n buffer y: f32[h, w] write
  let i = cast(global_id.x, i32) - 90i32
  if i >= -37i32 { y[h - 1u32, i + 40i32] = x[0u32, i + 37i32] + 1.0 } }"""
PROGRAMS = {"below": BELOW, "above": ABOVE, "near": NEAR, "signed": SIGNED, "returns": RETURNS, "divided": DIVIDED, "barriers": BARRIERS,
            "masked": MASKED, "pairs": PAIRS}  # fmt: skip
STEPS = {"divided": (0, 1, 16, 37, 0xFFFFFFFF), "masked": (0, 1, 16, 37, 32, 0xFFFFFFFF), "pairs": (1, 32, 16, 8, 64)}


@pytest.mark.parametrize("width", [1, 4, 16])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_border_is_exact(name: str, width: int) -> None:
    program = Program.from_text(PROGRAMS[name])
    device = cpu_of_lanes(width)
    ours, oracle = device.compile_native(program), vp.device("reference").compile_native(program)
    rng = np.random.default_rng(width)
    for turn, shape in enumerate([(1, 1), (3, 15), (5, 64), (2, 65), (4, 131), (37, 37)]):
        x = rng.random(shape, np.float32)
        given: dict[str, Any] = {"x": x, "y": np.full(shape, 9, np.float32)} | ({"s": STEPS[name][turn % len(STEPS[name])]} if name in STEPS else {})
        got, wanted = (pipeline.dispatch({**given, "y": given["y"].copy()})["y"] for pipeline in (ours, oracle))
        np.testing.assert_array_equal(got, wanted, f"{name} {shape}")


LIFE = """program life(h, w) workgroup(64, 3) over(w, h, 1) { buffer x: T[h, w] read\n buffer y: T[h, w] write
  let i = cast(global_id.x, i32)\n let j = cast(global_id.y, i32)
  y[j, i] = select(x[j - 1i32, i - 1i32] + x[j, i + 1i32] == x[j, i], x[j + 1i32, i - 3i32], x[j, i] + 1T) }"""
PARTING = """program parting(h, w) workgroup(128) over(w, h, 1) { buffer x: T[h, w] read\n buffer y: T[h, w] write
  let i = global_id.x\n let j = global_id.y
  let a = x[j, i]\n var s: T = a
  if a > 3T { s = s - x[j, i + 1u32] }
  for k in 0u32..u32(a) & 3u32 { if x[j, i + k] == 2T { break }\n s = s + x[j + k, i] }
  if s != 1T { y[j, i] = s } }""".replace("u32(a)", "cast(a, u32)")
OWN = """program own(h, w) workgroup(64, 2) over(w, h, 1) { buffer x: T[h, w] read\n buffer y: T[h, w] write\n private p: T[3]
  let i = global_id.x\n let j = global_id.y
  p[1u32] = x[j, i + 1u32]\n y[j, i] = p[1u32] - p[2u32] }"""

# Along a row: indices that grow, by more or less, that shrink, that wrap between two that lie inside; places in rows that are no power of two, and in both.
RUNS = {
    "grow": "workgroup(48, 2) over(w, h, 1)|y[j, i] = x[j, i - 3u32] + x[0u32, i * 2u32 + 5u32] + x[0u32, workgroup_id.x]",
    "sawtooth": "workgroup(48, 2) over(w, h, 1)|y[j, i] = x[j, i] + x[h - 1u32, local_id.x + workgroup_id.x]",
    "far": "workgroup(64) over(w, h, 1)|y[j, i] = x[j, (i << 4u32) * 16u32 - 7u32]",
    "signed": "workgroup(32) over(w, h, 1)|if cast(i, i32) - 70i32 >= -40i32 { y[j, i] = x[j, cast(i, i32) - 33i32] + cast(workgroup_id.x, f32) }",
    "shrink": "workgroup(64) over(w, h, 1)|y[j, i] = x[j, w - 1u32 - i] + x[j, i]",
    "wrap": "workgroup(64) over(w, h, 1)|y[j, i] = x[j, i + 4294967200u32] + x[j, i * 16u32]",
    "deep": "workgroup(16, 2, 2) over(w, h, 3)|if global_id.z == 1u32 { y[j, i] = x[j, i + global_id.z] + cast(local_index + workgroup_id.x, f32) }",
    "own": "workgroup(64) over(w, h, 1)|p[1u32] = x[j, i + 1u32]\n y[j, i] = p[1u32] - p[2u32] + x[j, workgroup_id.x * 20u32]",
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_of_chunks_inside_are_exact(name: str) -> None:
    head, body = RUNS[name].split("|")
    text = f"""program runs(h, w) {head} {{ buffer x: f32[h, w] read\n buffer y: f32[h, w] write\n private p: f32[3]
      let i = global_id.x\n let j = global_id.y\n {body} }}"""
    program = Program.from_text(text)
    assert ("\ninside." in emit_text(program, "cpu:x86-64-v3")) == (name not in ("sawtooth", "far", "own"))
    device = cpu_of_lanes(16)
    ours, oracle = device.compile_native(program), vp.device("reference").compile_native(program)
    for shape in [(1, 1), (3, 200), (2, 257), (5, 512), (1, 1000), (4, 777)]:
        x = np.random.default_rng(6).random(shape, np.float32)
        given = {"x": x, "y": np.full(shape, 9, np.float32)}
        got, wanted = (pipeline.dispatch({**given, "y": given["y"].copy()})["y"] for pipeline in (ours, oracle))
        np.testing.assert_array_equal(got, wanted, f"{name} {shape}")


ASKS = [f"{a} {op} {b}" for op in ("<", "<=", ">", ">=") for a, b in (("i", "s"), ("s", "i"), ("j", "r"), ("r", "j"))]
COMPARED = """program compared(h, w) workgroup(64) over(w, h, 1) { param s: u32\n param t: u32\n buffer x: T[h, w] read\n buffer y: T[h, w] write
  let i = global_id.x + t\n let j = cast(i, i32)\n let r = cast(s, i32)
  y[global_id.y, global_id.x] = x[global_id.y, i] + """ + " + ".join(f"cast({ask}, T) * {3**k % 101}T" for k, ask in enumerate(ASKS)) + " }"


@pytest.mark.parametrize("t", [0, 1, 0xFFFFFFFF, 0xFFFFFFC0, 0xFFFFFFBF, 0x7FFFFFF0, 0x80000000])
def test_narrow_comparisons_are_exact(t: int) -> None:
    for name, dtype in (("u8", np.uint8), ("i16", np.int16)):
        program = Program.from_text(COMPARED.replace("T", name))
        ours, oracle = vp.device("cpu").compile_native(program), vp.device("reference").compile_native(program)
        x = np.random.default_rng(4).integers(0, 7, (3, 150), dtype)
        for s in [0, 1, 31, 32, 63, 64, 149, t, (t - 1) % 2**32, (t + 40) % 2**32, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]:
            got, wanted = (pipeline.dispatch(x=x, s=s, t=t)["y"] for pipeline in (ours, oracle))
            np.testing.assert_array_equal(got, wanted, f"{name} {s}")


@pytest.mark.parametrize("name", ["u8", "i16"])
@pytest.mark.parametrize("text", [LIFE, PARTING, OWN], ids=["life", "parting", "own"])
def test_narrow_lanes_are_exact(text: str, name: str) -> None:
    program, dtype = Program.from_text(text.replace("T", name)), np.dtype(name.replace("u", "uint").replace("i1", "int1"))
    ours, oracle = vp.device("cpu").compile_native(program), vp.device("reference").compile_native(program)
    rng = np.random.default_rng(3)
    for shape in [(1, 1), (2, 63), (3, 64), (7, 65), (5, 200), (4, 513)]:
        x = rng.integers(0, 7, shape, dtype)
        given = {"x": x, "y": np.full(shape, 9, dtype)}
        got, wanted = (pipeline.dispatch({**given, "y": given["y"].copy()})["y"] for pipeline in (ours, oracle))
        np.testing.assert_array_equal(got, wanted, f"{name} {shape}")


def test_narrow_values_fill_vectors() -> None:
    for name, lanes in (("u8", 64), ("u16", 32), ("u32", 16)):
        made = emit_text(Program.from_text(LIFE.replace("T", name)), "cpu:x86-64-v3")
        inside = made[made.index("\ninterior", made.index("@workgroups")) :]
        assert f"load <{lanes} x i{name[1:]}>" in inside and "call void @border" in made
    assert "<64 x" not in emit_text(Program.from_text(PARTING.replace("T", "u8")), "cpu:x86-64-v3")


def test_masked_accesses_of_narrow_values_are_of_words() -> None:
    text = emit_text(Program.from_text(PARTING.replace("T", "u8")), "cpu:x86-64-v3")
    assert "@load_some_v16i8(ptr" in text and "llvm.masked.load.v4i32" in text and "llvm.masked.load.v16i8" not in text
    assert "llvm.masked.load.v32i8" in emit_text(Program.from_text(PARTING.replace("T", "u8")), "cpu:x86-64-v4")


def test_rows_of_neighbouring_workgroups_are_run_together() -> None:
    text = emit_text(Program.from_text(LIFE.replace("T", "u32")), "cpu:x86-64-v3")
    assert "\nrow." in text and "\ngroups." in text
    assert "\nrow." not in emit_text(Program.from_text(BARRIERS), "cpu:x86-64-v3")
    assert "\nrow." not in emit_text(Program.from_text(TURNED), "cpu:x86-64-v3")  # whose workgroups have the same rows of one array in the cache


def _interior(text: str) -> str:
    kernel = emit_lanes(optimise(check(Program.from_text(text)), expand=STRICT_EXPANSIONS), 16).text
    return kernel[kernel.index("\ninterior") : kernel.index("\nborder")]


@pytest.mark.parametrize("name", ["near", "divided", "barriers", "masked", "pairs"])
def test_inside_accesses_have_no_masks(name: str) -> None:
    inside = _interior(PROGRAMS[name])
    assert "load <16 x float>" in inside and "masked.store" not in inside and "masked.load" not in inside
    assert "masked" not in inside or name == "divided"  # whose columns are gathered


def test_what_all_chunks_have_alike_is_written_once() -> None:
    text = "program own(n) workgroup(64) over(n) { buffer y: f32[n] write\n y[0u32] = cast(global_id.x, f32) }"
    assert "interior" not in emit_lanes(optimise(check(Program.from_text(text)), expand=STRICT_EXPANSIONS), 16).text


TURNS = """program turns(n, m) workgroup(32) over(n) { buffer p: T[n] read\n buffer q: T[n] read\n buffer c: u32[m] read\n buffer x: f32[m] read
  buffer y: f32[n] write\n buffer z: u32[m] read_write
  let i = global_id.x
  var s: f32 = 1.0f32
  BEFORE
  for k in FIRST..LAST step STEP { s = s * 0.5f32 + x[c[k]] - x[k]
  MORE
  }
  y[i] = s }"""
LOOPS = {  # what stands around, the first value, the last, the step, and what else a turn does
    "rows": ("", "p[i]", "q[i]", "1", ""),
    "lanes": ("", "p[0u32] + cast(i & 7u32, T)", "q[1u32]", "8", ""),
    "some": ("if (i & 3u32) == 1u32 {\nreturn\n}", "p[i]", "q[i]", "3", "if k == 2T {\ncontinue\n}"),
    "left": ("", "p[i]", "q[i]", "1", "if s > 3.0f32 {\nbreak\n}"),
    "down": ("", "q[i]", "p[i]", "-1", ""),
    "stores": ("", "p[0u32] + cast(i & 15u32, T)", "q[2u32]", "16", "if i < 16u32 {\nz[k] = i\n}"),
}  # fmt: skip


@pytest.mark.parametrize("width", [1, 16])
@pytest.mark.parametrize("type_", ["u32", "i32"])
@pytest.mark.parametrize("name", LOOPS)
def test_loops_whose_values_are_indices_are_exact(name: str, type_: str, width: int) -> None:
    text = TURNS
    for what, given in zip(("BEFORE", "FIRST", "LAST", "STEP", "MORE"), LOOPS[name], strict=True):
        text = text.replace(what, f"{given}{type_}" if what == "STEP" and type_ == "u32" else given)
    if name == "down" and type_ == "u32":
        text = text.replace("-1u32", "-1i32").replace("T[n]", "i32[n]")
    text = text.replace("cast(i & 7u32, T)", "(i & 7u32)").replace("cast(i & 15u32, T)", "(i & 15u32)") if type_ == "u32" else text
    program, device = Program.from_text(text.replace("T", type_)), cpu_of_lanes(width)
    ours, oracle = device.compile_native(program), vp.device("reference").compile_native(program)
    rng = np.random.default_rng(width)
    for n, m, low, high in ((40, 40, 0, 40), (40, 40, 0, 60), (40, 8, -9, 20), (33, 1, 0, 3)):
        first = rng.integers(low, max(m, 2), n).astype(np.int32)
        last = np.minimum(first + rng.integers(0, 30, n), high).astype(np.int32)
        shared = {"c": rng.integers(0, m + 3, m, np.uint32), "x": rng.random(m, np.float32)}
        p, q = (a if type_ == "i32" or name == "down" else np.maximum(a, 0).view(np.uint32) for a in (first, last))
        given = {"p": p, "q": q, **shared, "y": np.zeros(n, np.float32), "z": np.zeros(m, np.uint32)}
        got, wanted = (pipeline.dispatch({k: a.copy() for k, a in given.items()}) for pipeline in (ours, oracle))
        for out in ("y", "z"):
            np.testing.assert_array_equal(got[out], wanted[out], f"{name} {n} {m}")
