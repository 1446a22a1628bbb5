"""Atomics of workgroup memory: two lanes at a time, and loops that count along memory."""

from __future__ import annotations

import numpy as np
import pytest
from arm_machine import cpu_or_arm

import vyre_py as vp
from vyre_py.ir.language.program import Program
from vyre_py.lowering.compile import emit_text

# What was there before is wanted of the second, and so the order of lanes; the operands of the third differ between them.
ATOMICS = """program atomics(n) workgroup(32) over(n) { buffer x: u32[n] read\n buffer y: u32[n] write\n workgroup c: T[4, 40]
  let v = x[global_id.x]
  barrier
  BODY
  barrier
  y[global_id.x] = cast(c[0, local_id.x] ^ c[1, local_id.x] ^ c[2, local_id.x] ^ c[3, local_id.x], u32) ^ was }"""
STEPS = """atomic_add(c[0, v % 44u32], cast(1u32, T))
  let old = atomic_exchange(c[1, v & 7u32], cast(v, T))
 let was = cast(old, u32)
  if v > 3u32 { atomic_max(c[2, v & 31u32], cast(v, T)) }"""
COUNTS = """program counts(n) workgroup(64) grid(ceil_div(n, 512)) { buffer x: u32[n] read\n buffer y: u32[64] read_write\n workgroup c: u32[64]
  let t = local_id.x
  barrier
  for k in 0u32..8u32 { let i = workgroup_id.x * 512 + k * 64 + t
    if i < n { let w = x[i]\n atomic_add(c[w & 63u32], 1u32)\n atomic_sub(c[(w >> 9u32) & 63u32], 3u32) } }
  barrier
  atomic_add(y[t], c[t]) }"""


@pytest.mark.parametrize("width", [1, 2, 4, 16])
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("name", ["i32", "i64", "u64"])
def test_atomics_of_all_lanes_are_exact(name: str, many: bool, width: int) -> None:
    more = "".join(f"atomic_xor(c[3, (v + {k}u32) % 40u32], cast(v * {k}u32, {name}))\n" for k in range(4)) if many else ""
    text = ATOMICS.replace("BODY", STEPS + "\n" + more)
    program = Program.from_text(text.replace(" T)", f" {name})").replace("T[", f"{name}["))
    for size in (32, 96, 70):
        x = np.random.default_rng(size).integers(0, 90, size, np.uint32)
        got, wanted = (one.compile_native(program).dispatch(x=x)["y"] for one in (cpu_or_arm(width), vp.device("reference")))
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("width", [1, 4, 16])
def test_loops_that_count_are_exact(width: int) -> None:
    program = Program.from_text(COUNTS)
    for size in (512, 1500, 3, 0):
        x, y = np.random.default_rng(size).integers(0, 1 << 32, size, np.uint32), np.arange(64, dtype=np.uint32)
        wanted = y + np.bincount(x & 63, minlength=64) - 3 * np.bincount(x >> 9 & 63, minlength=64)
        np.testing.assert_array_equal(cpu_or_arm(width).compile_native(program).dispatch(x=x, y=y.copy())["y"], wanted.astype(np.uint32))


def test_loops_that_count_go_along_memory() -> None:
    """All chunks take a turn before the next, without masks where they lie inside."""
    text = emit_text(Program.from_text(COUNTS), "cpu:x86-64-v3")
    inside = text[text.index("\ninterior") : text.index("\nborder")]
    assert text.index("\nhead") < text.index("\nchunk.", text.index("\nhead")) < text.index("\ninterior")
    assert "load <16 x i32>" in inside and "masked" not in inside and "cttz" not in inside


def test_many_atomics_share_their_code() -> None:
    text = emit_text(Program.from_text(COUNTS.replace("atomic_add(c", "\n".join(["atomic_add(c[w & 7u32], 1u32)"] * 6) + "\n atomic_add(c")), "cpu:x86-64-v3")
    assert text.count("call void @lanes_add_u32_16_all") >= 7 and text.count("define internal void @lanes_add_u32_16_all") == 1
