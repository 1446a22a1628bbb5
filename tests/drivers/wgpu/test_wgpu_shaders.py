"""WGSL of a user's own, grids that the device reads, its clock, and what an adapter says of itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_kinds import open_device

import vyre_py as vp
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.wgpu import device as device_module
from vyre_py.drivers.wgpu import open_device as open_own
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import TYPES, f16, f32, u32
from vyre_py.lowering.errors import ToolchainError, Unsupported

SCALE = """
@group(0) @binding(0) var<uniform> a: vec3<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn scale(@builtin(global_invocation_id) i: vec3<u32>) {
  if (i.x < arrayLength(&y)) { y[i.x] = a.y * x[i.x]; }
}
"""
SIGNATURE = [("a", TYPES["f32x3"]), ("x", f32, "read"), ("y", f32, "write")]
X = np.arange(200, dtype=np.float32)

FILLS = Program.from_text("program fills(n) workgroup(64) over(n) { buffer y: u32[n] write\n y[global_id.x] = 1 }")
SCAN = Program.from_text("program s(n) workgroup(64) over(n) { buffer y: u32[n] write\n y[global_id.x] = grid_scan(add, 1u32) }")


@pytest.fixture(scope="module")
def device() -> Any:
    return open_device("wgpu")


# ---------------------------------------------------------------- shaders


def test_a_shader_is_bound_launched_and_set(device: Any) -> None:
    shader = device.load_wgsl(SCALE, "scale", SIGNATURE)
    x, y = device.upload(X), device.allocate(200, f32)
    launch = shader.bind(a=[1, 2, 3], x=x, y=y, grid=2)
    assert "2 x 1 x 1 workgroups of 64 x 1 x 1" in repr(launch) and "scale" in repr(shader) and shader.raw is not None
    launch()
    np.testing.assert_array_equal(y.read(), np.where(X < 128, 2 * X, 0))
    graph = device.capture(launch)
    launch.set(a=[0, 5, 0])
    device.sequence(launch, vp.copy_step(y, x))()
    np.testing.assert_array_equal(x.read(), np.where(X < 128, 5 * X, 0))
    graph()
    np.testing.assert_array_equal(y.read()[:128], 10 * X[:128])
    other = device.allocate(200, f32)
    launch.set(y=other, x=device.upload(X))()
    np.testing.assert_array_equal(other.read(), np.where(X < 128, 5 * X, 0))
    shader.bind(a=[1, 1, 1], x=x, y=y, grid=0)()


def test_shaders_say_what_is_wrong(device: Any) -> None:
    with pytest.raises(ToolchainError, match=r"naga(?s:.)*wgsl:8(?s:.)*identifier$"):
        device.load_wgsl(SCALE.replace("a.y", "b.y"), "scale", SIGNATURE)
    with pytest.raises(ToolchainError, match="naga"):
        device.load_wgsl(SCALE, "scale", SIGNATURE[1:])
    with pytest.raises(BindingError, match="no entry 'scales'; it has 'scale'"):
        device.load_wgsl(SCALE, "scales", SIGNATURE)
    with pytest.raises(BindingError, match="uniforms are"):
        device.load_wgsl(SCALE, "scale", [("a", f16), *SIGNATURE[1:]])
    for code, signature in ((b"", []), (SCALE, 3), (SCALE, [("a", "f32")])):
        with pytest.raises(BindingError, match="load_wgsl"):
            device.load_wgsl(code, "scale", signature)
    shader = device.load_wgsl(SCALE, "scale", SIGNATURE)
    whole, y = device.upload(np.zeros(500, np.float32)), device.allocate(200, f32)
    for arguments, grid, why in (
        ({"x": whole[:200], "y": whole[200:400]}, 1, "parts of one allocation"), ({"x": whole[1:201], "y": y}, 1, "begins at byte 4"),
        ({"x": whole, "y": y}, device.grid_limit + 1, "along an axis"), ({"x": whole, "y": y}, "1", "whole numbers"), ({"x": whole}, 1, "y"),
    ):  # fmt: skip
        with pytest.raises(BindingError, match=why):
            shader.bind({**arguments, "a": [1, 1, 1]}, grid=grid)


def test_other_devices_load_no_wgsl() -> None:
    with pytest.raises(Unsupported, match="load_wgsl"):
        vp.device("cpu").load_wgsl(SCALE, "scale", SIGNATURE)


# ---------------------------------------------------------------- grids that the device reads


def test_a_shader_reads_its_grid(device: Any) -> None:
    grid, y = device.upload(np.array([4, 1, 1], np.uint32)), device.allocate(200, f32)
    device.load_wgsl(SCALE, "scale", SIGNATURE).bind(a=[1, 3, 1], x=device.upload(X), y=y, grid=grid)()
    np.testing.assert_array_equal(y.read(), 3 * X)


def test_grids_in_memory_that_the_launch_writes(device: Any) -> None:
    """WebGPU looks at whole buffers of its own."""
    whole = device.allocate(303, u32)
    with pytest.raises(BindingError, match="'y' is part of it"):
        device.compile_native(FILLS).bind(y=whole[:300], config=vp.DispatchConfig(grid=whole[300:]))


# ---------------------------------------------------------------- the clock, and the adapter


def test_dispatches_are_timed_by_the_device(device: Any) -> None:
    if not device.has_clock:
        pytest.skip("the adapter has no times, and figures say so")
    slow = Program.from_text(
        """program slow(n) {
  param k: u32
  buffer x: u32[n] read_write
  var v: u32 = x[global_id.x]
  for i in 0u32..k { v = v * 3u32 ^ i }
  x[global_id.x] = v
}"""
    )
    pipeline, x = device.compile_native(slow), np.zeros(4096, np.uint32)
    times = [pipeline.dispatch_timed(x=x, k=k) for k in (1, 20_000)]
    for timed in times:
        assert timed.device_ns is not None and 0 < timed.device_ns < timed.wall_ns
    assert times[1].device_ns > times[0].device_ns
    assert pipeline.dispatch_timed(x=np.zeros(0, np.uint32), k=1).device_ns is None
    turns = Program.from_text(
        """program turns(n) over(n) {
  buffer x: u32[n] read_write
  buffer more: u32[1] write
  let i = global_id.x
  x[i] = x[i] + 1u32
  if x[i] < 4u32 { more[0u32] = 1u32 }
}"""
    )
    timed = device.compile_native(turns).dispatch_timed(x=x, more=np.zeros(1, np.uint32), config=vp.DispatchConfig(fixpoint="more"))
    assert timed.results["x"].tolist() == [4] * 4096 and timed.device_ns
    timed = device.compile_native(SCAN).dispatch_timed(n=1000)
    assert timed.results["y"].max() == timed.results["y"][-1] > 0 and timed.device_ns


def test_without_a_clock_there_is_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    open_device("wgpu")
    monkeypatch.setattr(device_module, "TIMESTAMPS", "no-such-feature")
    own: Any = open_own(0)
    assert not own.has_clock
    assert own.compile_native(FILLS).dispatch_timed(n=8).device_ns is None
    own.close()


def test_what_an_adapter_says(device: Any) -> None:
    found = device.properties
    assert found.name in device.description and found.backend in device.description
    assert set(found.features_used) <= set(found.features) and found.subgroup_size == device.target.subgroup
    assert found.limits["max-compute-workgroups-per-dimension"] == device.grid_limit
    with pytest.raises(TypeError):
        found.limits["max-buffer-size"] = 1
