"""Arguments of every type on every device: vectors, elements of 16 and 64 bits, and what is refused in which words."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.ir.language.program import Program

SHIFT = """program shift(n, m) workgroup(8, 8) over(m, n, 1) {
  param by: f32x3
  buffer x: f32x3[n, m] read
  buffer y: f32x3[n, m] read_write
  buffer z: f32x2[m] write
  let i = global_id.y
  let j = global_id.x
  y[i, j] = x[i, j].zyx + by + y[i, j]
  z[j] = x[0u32, j].xz
}"""


def vectors() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    x, y = np.random.default_rng(3).standard_normal((2, 5, 4, 3)).astype(np.float32)
    by = np.array([1, 2, 4], np.float32)
    return x, y, x[..., ::-1] + by + y


def test_arrays_of_vectors_have_one_axis_more(device: Device) -> None:
    x, y, wanted = vectors()
    pipeline = device.compile_native(Program.from_text(SHIFT))
    for by in ([1, 2, 4], (1.0, 2.0, 4.0), np.array([1, 2, 4], np.float32), np.array([1, 2, 4])):
        out = pipeline.dispatch(x=x, y=y, by=by)
        np.testing.assert_array_equal(out["y"], wanted)
        np.testing.assert_array_equal(out["z"], x[0][:, ::2])
    target = np.zeros((5, 4, 3), np.float32)
    assert np.shares_memory(pipeline.dispatch(x=x, y=y, by=by, out={"y": target})["y"], target)
    np.testing.assert_array_equal(target, wanted)
    with pytest.raises(vp.BindingError, match=r"shape \[5, 4, 3\]"):
        pipeline.dispatch(x=x, y=y, by=by, out={"y": target[..., :2]})


def test_what_is_no_array_of_vectors(device: Device) -> None:
    x, y, _ = vectors()
    pipeline = device.compile_native(Program.from_text(SHIFT))
    shape = r"f32x3\[n, m\] is an array of shape \(n, m, 3\) of float32"
    wrong = {"x": x[..., :2], "y": y.astype(np.float64), "by": [1, 2]}
    with pytest.raises(vp.BindingError, match=shape) as caught:
        pipeline.dispatch(wrong)
    assert [shape.replace("\\", "") in problem for problem in caught.value.problems] == [False, True, True]
    assert "param 'by' (f32x3): a sequence or array of its 3 components is needed, got [1, 2]" in caught.value.problems
    for by in ([1, 2, True], [[1], [2, 3], 4], "abc", 1.0, None, {1: 2}, np.zeros((1, 3)), [1, 2, "3"], object()):
        with pytest.raises(vp.BindingError, match="'by'"):
            pipeline.dispatch(x=x, y=y, by=by)
    with pytest.raises(vp.BindingError, match="last axis has 3 components"):
        device.upload(x[..., :2], vp.f32x3)
    with pytest.raises(vp.BindingError, match="axis 1 of 'y' has 3"):
        pipeline.dispatch(x=x, y=y[:, :3], by=[1, 2, 3])


def test_resident_vectors(device: Device) -> None:
    """Uploaded as vectors, or as scalars with one axis more: the memory is the same."""
    x, y, wanted = vectors()
    pipeline = device.compile_native(Program.from_text(SHIFT))
    xs = device.upload(x, vp.f32x3)
    assert xs.shape == (5, 4) and xs.type is vp.f32x3 and xs.size_bytes == 240
    np.testing.assert_array_equal(xs.read(), x)
    np.testing.assert_array_equal(xs[1:3].read(), x[1:3])
    ys, zs = device.upload(y), device.allocate(4, vp.f32x2)
    assert ys.type is vp.f32 and zs.read().shape == (4, 2)
    launch = pipeline.bind(x=xs, y=ys, z=zs, by=(1, 2, 4))
    launch()
    np.testing.assert_array_equal(ys.read(), wanted)
    np.testing.assert_array_equal(zs.read(), x[0][:, ::2])
    other = device.upload(y, vp.f32x3)
    launch.set(y=other, by=[0, 0, 0])()
    np.testing.assert_array_equal(other.read(), x[..., ::-1] + y)
    pipeline.bind(x=xs[1:3], y=other[2:4], z=zs, by=(0, 0, 0))()
    np.testing.assert_array_equal(other.read()[2:4], (x[..., ::-1] + y)[2:4] + x[1:3, :, ::-1])
    np.testing.assert_array_equal(zs.read(), x[1][:, ::2])
    with pytest.raises(vp.BindingError, match="'x' needs 2 axes"):
        pipeline.bind(x=device.upload(x[0]), y=ys, z=zs, by=(1, 2, 4))


def test_elements_of_16_and_64_bits(device: Device) -> None:
    bfloat16 = np.dtype(ml_dtypes.bfloat16)
    program = Program.from_text("""program kinds(n) workgroup(32) over(n) {
      param k: i64; param h: bf16
      buffer a: i64[n] read; buffer b: bf16[n] read; buffer c: i16[n] read
      buffer x: i64[n] write; buffer y: bf16[n] write; buffer z: u16[n] write
      let i = global_id.x
      x[i] = a[i] * k
      y[i] = b[i] + h
      z[i] = bitcast(c[i], u16)
    }""")
    a = np.array([1, -(2**62), 3, 7], np.int64)
    b, c = np.array([1, 2.5, -3, 1e30], np.float32).astype(bfloat16), np.array([-1, 5, 2, -32768], np.int16)
    pipeline = device.compile_native(program)
    given = {"k": (1 << 33) + 1, "h": bfloat16.type(0.5), "a": a, "b": b, "c": c}
    out = pipeline.dispatch(given)
    np.testing.assert_array_equal(out["x"], a * ((1 << 33) + 1))
    assert out["y"].dtype == bfloat16
    np.testing.assert_array_equal(out["y"].astype(np.float32), (b.astype(np.float32) + 0.5).astype(bfloat16).astype(np.float32))
    np.testing.assert_array_equal(out["z"], c.view(np.uint16))
    bd = device.upload(b)
    assert bd.type is vp.bf16 and bd.read().tobytes() == b.tobytes()
    with pytest.raises(vp.BindingError, match=r"dtype uint16; x.view\(ml_dtypes.bfloat16\) takes its bits"):
        pipeline.dispatch({**given, "b": b.view(np.uint16)})
    with pytest.raises(vp.BindingError, match=r"dtype float32; np.asarray\(x, ml_dtypes.bfloat16\) converts"):
        pipeline.dispatch({**given, "b": b.astype(np.float32)})
    with pytest.raises(vp.BindingError, match="does not fit i64"):
        pipeline.dispatch({**given, "k": 1 << 63})
