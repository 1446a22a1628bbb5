"""Programs that read their params from memory compute what those with params do."""

from __future__ import annotations

import numpy as np
import pytest
from device_kinds import open_device

import vyre_py as vp
from vyre_py.ir.passes.stored_params import with_stored_params
from vyre_py.ir.text.parser import parse

AXPY = """program axpy(n) workgroup(64) {
  param a: f32
  param b: f32
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  let i = global_id.x
  y[i] = a * x[i] + y[i] * b
}"""
# A barrier that only a param decides about, vectors, bools, small numbers.
SHARED = """program shared(n) workgroup(8) {
  param flag: bool
  param v: i16x2
  param s: u8
  workgroup w: u32[8]
  buffer y: u32[n] read_write
  let l = local_id.x
  w[l] = global_id.x
  if flag {
    barrier
    y[global_id.x] = w[7u32 - l] + cast(v.x, u32) + cast(v.y, u32) + cast(s, u32)
  }
}"""
TILES = """program scaled(n) tiles grid(ceil_div(n, 16)) {
  param a: f32
  buffer x: f32[n] read
  buffer y: f32[n] write
  let i = workgroup_id.x * 16
  y[i : 16] = x[i : 16] * a
}"""


def test_the_text() -> None:
    assert str(with_stored_params(parse(AXPY), {"a"})) == """program axpy(n) workgroup(64) {
  param b: f32
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  buffer a: f32[1] read
  let a = a[0]
  let i = global_id.x
  y[i] = a * x[i] + y[i] * b
}
"""


@pytest.mark.parametrize("kind", ["reference", "cpu"])
@pytest.mark.parametrize("text", [AXPY, SHARED, TILES], ids=["axpy", "shared", "tiles"])
def test_the_results_are_the_same(text: str, kind: str) -> None:
    program, device, random = parse(text), open_device(kind), np.random.default_rng(5)
    values = {"a": np.float32(1.5), "b": np.float32(-2), "flag": True, "v": np.int16([3, 4]), "s": np.uint8(200)}
    names = {param.name for param in program.params}
    given = {name: value for name, value in values.items() if name in names}
    arrays = {m.name: random.integers(0, 9, 24).astype(m.type.dtype) for m in program.buffers if m.access.reads}
    stored = with_stored_params(program, names)
    assert stored is not None and not stored.params
    held = {name: np.asarray(value).reshape(1, *np.shape(value)) for name, value in given.items()}
    one, other = ({"n": 24} if not arrays else {} for _ in range(2))
    wanted = device.compile_native(program).dispatch({**arrays, **given, **one})
    found = device.compile_native(stored).dispatch({**arrays, **held, **other})
    for name in wanted:
        np.testing.assert_array_equal(found[name], wanted[name])


def test_params_that_are_not_named_stay() -> None:
    program = parse(AXPY)
    assert [param.name for param in with_stored_params(program, {"b"}).params] == ["a"]
    assert with_stored_params(program, ()) == program or str(with_stored_params(program, ())) == str(program)
    assert isinstance(with_stored_params(program, {"a"}), vp.Program)
