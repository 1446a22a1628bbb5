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
from vyre_py.ir.language.types import TYPES, f16, f32, u8, u32
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

COUNTS = Program.from_text(
    """program counts(n) workgroup(8) over(n) {
  buffer y: u32[n, 3] read_write
  atomic_add(y[global_id.x, 0u32], num_workgroups.x)
  atomic_add(y[global_id.x, 1u32], num_workgroups.y)
  atomic_add(y[global_id.x, 2u32], num_workgroups.z)
}"""
)


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


def counted(groups: tuple[int, int, int], n: int = 100) -> np.ndarray[Any, Any]:
    x, y, z = groups
    want = np.zeros((n, 3), np.uint32)
    want[: 8 * x] = np.array(groups, np.uint32) * np.uint32(y * z)
    return want


def test_a_grid_is_read_when_the_launch_begins(device: Any) -> None:
    grids = device.upload(np.array([3, 2, 5, 1, 1, 1], np.uint32))
    y = device.allocate((100, 3), u32)
    pipeline = device.compile_native(COUNTS)
    launch = pipeline.bind(y=y, config=vp.DispatchConfig(grid=grids[:3]))
    launch()
    np.testing.assert_array_equal(y.read(), counted((3, 2, 5)))
    device.sequence(launch, vp.copy_step(grids[3:], device.allocate(3, u32)), vp.fill_step(grids[:3], 1), launch)()
    want = 2 * counted((3, 2, 5)) + counted((1, 1, 1))
    np.testing.assert_array_equal(y.read(), want)
    graph = device.capture(launch)
    grids.write(np.array([0, 1, 1, 4, 1, 2], np.uint32))
    graph()  # of no workgroups
    np.testing.assert_array_equal(y.read(), want)
    pipeline.bind(y=y, config=vp.DispatchConfig(grid=grids[3:]))()
    np.testing.assert_array_equal(y.read(), want + counted((4, 1, 2)))
    got = pipeline.dispatch(y=np.zeros((100, 3), np.uint32), config=vp.DispatchConfig(grid=grids[3:]))["y"]
    np.testing.assert_array_equal(got, counted((4, 1, 2)))


def test_another_kernel_makes_the_grid(device: Any) -> None:
    made = Program.from_text("program made() workgroup(1) over(1) { param k: u32\n buffer g: u32[3] write\n g[0u32] = k\n g[1u32] = 1u32\n g[2u32] = 1u32 }")
    grid, y = device.allocate(3, u32), device.allocate((100, 3), u32)
    first = device.compile_native(made).bind(g=grid, k=7)
    second = device.compile_native(COUNTS).bind(y=y, config=vp.DispatchConfig(grid=grid))
    device.sequence(first, second)()
    np.testing.assert_array_equal(y.read(), counted((7, 1, 1)))


def test_a_shader_reads_its_grid(device: Any) -> None:
    grid, y = device.upload(np.array([4, 1, 1], np.uint32)), device.allocate(200, f32)
    device.load_wgsl(SCALE, "scale", SIGNATURE).bind(a=[1, 3, 1], x=device.upload(X), y=y, grid=grid)()
    np.testing.assert_array_equal(y.read(), 3 * X)


def test_grids_that_cannot_be_read(device: Any) -> None:
    pipeline, y = device.compile_native(COUNTS), device.allocate((100, 3), u32)
    whole = device.allocate(303, u32)
    with pytest.raises(BindingError, match="'y' is part of it"):
        pipeline.bind(y=whole[:300].reshape(100, 3), config=vp.DispatchConfig(grid=whole[300:]))
    grid = device.upload(np.ones(3, np.uint32))
    launch = pipeline.bind(y=y, config=vp.DispatchConfig(grid=grid))
    launch()
    grid.free()
    for run in (launch, lambda: pipeline.bind(y=y, config=vp.DispatchConfig(grid=grid))):
        with pytest.raises(BindingError, match="'grid' was freed"):
            run()
    for wrong in (device.allocate(4, u32), device.allocate(3, u8)):
        with pytest.raises(Unsupported, match="three u32"):
            vp.DispatchConfig(grid=wrong)
    with pytest.raises(Unsupported, match="grid"):
        device.compile_native(SCAN).bind(y=device.allocate(100, u32), config=vp.DispatchConfig(grid=device.allocate(3, u32)))


@pytest.mark.parametrize("kind", ["cpu", "reference"])
def test_other_devices_refuse_by_name(kind: str) -> None:
    other = vp.device(kind)
    with pytest.raises(Unsupported, match="grid as a buffer"):
        other.compile_native(COUNTS).dispatch(y=np.zeros((100, 3), np.uint32), config=vp.DispatchConfig(grid=other.allocate(3, u32)))


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
    assert own.compile_native(COUNTS).dispatch_timed(y=np.zeros((8, 3), np.uint32)).device_ns is None
    own.close()


def test_what_an_adapter_says(device: Any) -> None:
    found = device.properties
    assert found.name in device.description and found.backend in device.description
    assert set(found.features_used) <= set(found.features) and found.subgroup_size == device.target.subgroup
    assert found.limits["max-compute-workgroups-per-dimension"] == device.grid_limit
    with pytest.raises(TypeError):
        found.limits["max-buffer-size"] = 1
