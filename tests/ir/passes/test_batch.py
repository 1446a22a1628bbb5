"""batch: a Program run for several sets of arguments at once gives what each gives by itself."""

from __future__ import annotations

import numpy as np
import pytest
from device_kinds import open_device

from vyre_py.ir.language.grids import writes_whole
from vyre_py.ir.passes.batch import batched
from vyre_py.ir.text.parser import parse

AXPY = """program axpy(n, batch) workgroup(64) {
  param a: f32
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  let i = global_id.x
  y[i] = a * x[i] + y[i] + cast(global_id.z + num_workgroups.z, f32)
}"""
COUNTS = """program counts(n, m) workgroup(8) over(n) {
  param least: u32
  buffer x: u32[n] read
  buffer found: u32[m] read_write
  workgroup w: u32[8]
  let k = local_id.x
  w[k] = x[global_id.x]
  barrier
  for j in 0u32..8u32 {
    let v = w[j]
    if k == 0 {
      if v >= least {
        let old = atomic_add(found[v], 1u32)
      }
    }
  }
}"""


def each(kind, program, names, sets):
    """Results of the batched Program, and of the Program for each set by itself."""
    device = open_device(kind)
    wider, single = device.compile_native(batched(program, names)), device.compile_native(program)
    whole = {name: np.stack([values[name] for values in sets]) if name in names else sets[0][name] for name in sets[0]}
    return wider.dispatch(whole), [single.dispatch({name: values[name] if name in names else sets[0][name] for name in values}) for values in sets]


@pytest.mark.parametrize("kind", ["reference", "cpu"])
@pytest.mark.parametrize("names", [{"y"}, {"a", "y"}, {"x", "y"}, {"a", "x", "y"}])
def test_sets_of_arguments(kind, names) -> None:
    rng = np.random.default_rng(1)
    sets = [{"x": rng.random(70, np.float32), "y": rng.random(70, np.float32), "a": np.float32(k), "batch": 3} for k in range(3)]
    found, wanted = each(kind, parse(AXPY), names, sets)
    for number, results in enumerate(wanted):
        np.testing.assert_array_equal(found["y"][number], results["y"])


@pytest.mark.parametrize("kind", ["reference", "cpu"])
def test_workgroup_memory_and_atomics(kind) -> None:
    rng = np.random.default_rng(2)
    sets = [{"x": rng.integers(0, 5, 40, np.uint32), "found": np.zeros(5, np.uint32), "least": 2} for _ in range(4)]
    found, wanted = each(kind, parse(COUNTS), {"x", "found"}, sets)
    for number, results in enumerate(wanted):
        np.testing.assert_array_equal(found["found"][number], results["found"])


def test_text() -> None:
    """A name that is taken gets an apostrophe; what was alone along z finds what it found."""
    assert str(batched(parse(AXPY), {"a", "y"})) == """program axpy(n, batch, "batch'") workgroup(64) over(n, 1, "batch'") {
  buffer x: f32[n] read
  buffer y: f32["batch'", n] read_write
  buffer a: f32["batch'"] read
  let v0 = global_id.z
  let a = a[v0]
  let i = global_id.x
  y[v0, i] = a * x[i] + y[v0, i] + cast(0u32 + 1, f32)
}
"""


def test_what_is_not_batched() -> None:
    program = parse(AXPY)
    with pytest.raises(ValueError, match="written by every run, and not named: y"):
        batched(program, {"x"})
    assert batched(parse(AXPY.replace("workgroup(64)", "workgroup(8, 1, 2)")), {"y"}) is None
    assert batched(parse(AXPY.replace("workgroup(64)", "workgroup(64) over(n, 1, n)")), {"y"}) is None
    assert batched(parse(AXPY.replace("let i", "assert n > 0\n  let i")), {"y"}) is None
    twice = batched(program, {"y"})
    assert batched(twice, {"y"}) is None  # z is taken
    # A barrier under a param: all invocations arrive, which nobody knows of what a buffer holds.
    guarded = COUNTS.replace("  barrier\n", "  if least > 0u32 {\n    barrier\n  }\n")
    assert batched(parse(guarded), {"found"}) is not None
    assert batched(parse(guarded), {"least", "found"}) is None


@pytest.mark.parametrize(("store", "whole"), [
    ("z[i] = 1.0", True), ("if i < n { z[i] = 1.0 }", False), ("z[i + 1] = 1.0", False), ("z[cast(i, i32)] = 1.0", True),
    ("if n > 5 { return }\n z[i] = 1.0", False), ("z[i] = 1.0\n if i > 5 { z[0u32] = 2.0 }", True),
])  # fmt: skip
def test_whether_all_of_a_buffer_is_written(store, whole) -> None:
    program = parse(f"program p(n, m) over(n) {{\n buffer z: f32[n] write\n let i = global_id.x\n {store}\n}}")
    assert writes_whole(program, program.buffers[0]) == whole
    for other in ("over(m)", "grid(n)", "over(n, m)"):
        changed = parse(f"program p(n, m) {other} {{\n buffer z: f32[n] write\n let i = global_id.x\n {store}\n}}")
        assert not writes_whole(changed, changed.buffers[0])
