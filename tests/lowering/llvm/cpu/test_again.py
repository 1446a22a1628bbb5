"""Values that regions compute again from workgroup arrays, rather than have them kept across barriers."""

from __future__ import annotations

import numpy as np
import pytest
from arm_machine import cpu_or_arm

import vyre_py as vp
from vyre_py.ir.check import check
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes import optimise
from vyre_py.lowering.kinds import STRICT_EXPANSIONS
from vyre_py.lowering.llvm.cpu.lanes import emit_lanes

FRAME = """program again(n) workgroup(64) grid(ceil_div(n, 64)) { buffer x: f32[n] read\n buffer y: f32[n] write
  workgroup c: f32[4, 64]\n workgroup d: f32[64]
  let t = local_id.x\n let g = global_id.x
  c[0, t] = x[g]\n c[1, t] = x[g + 1]\n c[2, 63 - t] = x[g + 2]\n c[3, t] = 1.0\n d[t] = x[g]
  barrier
  let a = c[0, t]\n let b = a + c[1, t]\n let f = b + c[2, t]
  MIDDLE
  barrier
  LAST }"""
# Whether the sums are computed again, what happens between, and what comes last.
CASES = {
    "untouched": (True, "d[63 - t] = b", "y[g] = d[t] + b + f"),
    "its own elements are written": (True, "d[63 - t] = b", "c[0, t] = f + b\n c[1, t] = c[0, t] + b\n y[g] = d[t] + c[1, t] + b"),
    "others' elements are written at last": (False, "d[63 - t] = b", "c[0, 63 - t] = f\n c[1, t] = b\n y[g] = d[t] + f + b"),
    "others' elements are written before": (False, "d[63 - t] = f\n barrier\n c[0, 63 - t] = d[t]\n c[2, t] = 3.0", "y[g] = d[t] + c[0, t] + b + f"),
    "its own elements are written before": (False, "d[63 - t] = f\n barrier\n c[0, t] = d[t]\n c[2, t] = 3.0", "y[g] = d[t] + c[0, t] + b + f"),
    "in a loop": (False, "d[63 - t] = f", "for k in 0u32..3u32 { d[t] = d[t] + b + f\n barrier\n c[k, t] = d[63 - t]\n barrier }\n y[g] = d[t]"),
    "some return": (True, "d[63 - t] = b", "if t > 40u32 { return }\n y[g] = d[t] + b + f"),
    "a loop between": (True, "for k in 0u32..3u32 { d[t] = d[t] * 2.0\n barrier }", "y[g] = d[t] + b + f"),
}


@pytest.mark.parametrize("width", [1, 2, 4, 16, 32])
@pytest.mark.parametrize("name", CASES)
def test_what_is_computed_again_is_exact(name: str, width: int) -> None:
    _, middle, last = CASES[name]
    program = Program.from_text(FRAME.replace("MIDDLE", middle).replace("LAST", last))
    for size in (128, 70):
        x = np.random.default_rng(size).random(size, np.float32)
        got, wanted = (one.compile_native(program).dispatch(x=x, y=np.zeros_like(x))["y"] for one in (cpu_or_arm(width), vp.device("reference")))
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("name", CASES)
def test_what_is_computed_again_is_not_kept(name: str) -> None:
    again, middle, last = CASES[name]
    program = check(Program.from_text(FRAME.replace("MIDDLE", middle).replace("LAST", last)))
    kernel = emit_lanes(optimise(program, expand=STRICT_EXPANSIONS), 16)
    kept = kernel.scratch_bytes - kernel.workgroup_bytes
    assert (kept < 2 * 64 * 4) == again, kept  # 63 - t is kept, since it costs nothing to load
