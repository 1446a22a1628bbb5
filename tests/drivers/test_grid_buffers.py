"""Grids that a launch reads from a buffer when it begins, on every device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_kinds import KINDS, open_device

import vyre_py as vp
from vyre_py.drivers.errors import BindingError
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u8, u32
from vyre_py.lowering.errors import Unsupported

COUNTS = Program.from_text(
    """program counts(n) workgroup(8) over(n) {
  buffer y: u32[n, 3] read_write
  atomic_add(y[global_id.x, 0u32], num_workgroups.x)
  atomic_add(y[global_id.x, 1u32], num_workgroups.y)
  atomic_add(y[global_id.x, 2u32], num_workgroups.z)
}"""
)
MADE = Program.from_text("program made() workgroup(1) over(1) { param k: u32\n buffer g: u32[3] write\n g[0u32] = k\n g[1u32] = 1u32\n g[2u32] = 1u32 }")
ADDS = Program.from_text("program adds(n) workgroup(8) over(n) { param a: u32\n buffer grid: u32[n] read_write\n grid[global_id.x] = grid[global_id.x] + a }")


@pytest.fixture(scope="module", params=KINDS)
def device(request: pytest.FixtureRequest) -> Any:
    return open_device(request.param)


def counted(groups: tuple[int, int, int], n: int = 100) -> np.ndarray[Any, Any]:
    x, y, z = groups
    want = np.zeros((n, 3), np.uint32)
    want[: 8 * x] = np.array(groups, np.uint32) * np.uint32(y * z)
    return want


def reading(grid: vp.Buffer, **more: Any) -> vp.DispatchConfig:
    return vp.DispatchConfig(grid=grid, **more)


def test_a_grid_is_read_when_the_launch_begins(device: Any) -> None:
    grids = device.upload(np.array([3, 2, 5, 1, 1, 1], np.uint32))
    y = device.allocate((100, 3), u32)
    pipeline = device.compile_native(COUNTS)
    launch = pipeline.bind(y=y, config=reading(grids[:3]))
    launch()
    np.testing.assert_array_equal(y.read(), counted((3, 2, 5)))
    device.sequence(launch, vp.copy_step(grids[3:], device.allocate(3, u32)), vp.fill_step(grids[:3], 1), launch)()
    want = 2 * counted((3, 2, 5)) + counted((1, 1, 1))
    np.testing.assert_array_equal(y.read(), want)
    graph = device.capture(launch)
    grids.write(np.array([0, 1, 1, 4, 1, 2], np.uint32))
    graph()  # of no workgroups
    np.testing.assert_array_equal(y.read(), want)
    pipeline.bind(y=y, config=reading(grids[3:]))()
    np.testing.assert_array_equal(y.read(), want + counted((4, 1, 2)))
    got = pipeline.dispatch(y=np.zeros((100, 3), np.uint32), config=reading(grids[3:]))["y"]
    np.testing.assert_array_equal(got, counted((4, 1, 2)))
    pending = pipeline.submit(y=np.zeros((100, 3), np.uint32), config=reading(grids[3:]))
    np.testing.assert_array_equal(pending.result()["y"], counted((4, 1, 2)))


def test_another_kernel_makes_the_grid(device: Any) -> None:
    grid, y = device.allocate(3, u32), device.allocate((100, 3), u32)
    first = device.compile_native(MADE).bind(g=grid, k=7)
    second = device.compile_native(COUNTS).bind(y=y, config=reading(grid))
    device.sequence(first, second)()
    np.testing.assert_array_equal(y.read(), counted((7, 1, 1)))

    def both() -> None:
        first()
        second()

    graph = device.capture(both)
    first.set(k=11)
    graph.update()
    graph()
    np.testing.assert_array_equal(y.read(), counted((7, 1, 1)) + counted((11, 1, 1)))


@pytest.mark.parametrize("groups", [(0, 1, 1), (1, 0, 1), (3, 1, 0), (2**32 - 1, 1, 1), (2**29, 1, 1), (1, 2**32 - 1, 0)], ids=str)
def test_a_grid_that_no_launch_may_have_runs_nothing(device: Any, groups: tuple[int, int, int]) -> None:
    """Of 2^29 workgroups along x the invocations are 2^32."""
    grid, y = device.upload(np.array(groups, np.uint32)), device.allocate((100, 3), u32)
    device.compile_native(COUNTS).bind(y=y, config=reading(grid))()
    assert not y.read().any()


def test_arguments_are_set_and_grids_stay(device: Any) -> None:
    """A Program's own buffer may be called as the grid is."""
    whole = device.upload(np.arange(203, dtype=np.uint32))
    whole[200:].write(np.array([4, 1, 1], np.uint32))
    x, y = device.upload(np.zeros(100, np.uint32)), device.upload(np.zeros(100, np.uint32))
    launch = device.compile_native(ADDS).bind(grid=x, a=2, config=reading(whole[200:]))
    launch()
    launch.set(a=3, grid=y)
    launch()
    want = np.zeros(100, np.uint32)
    want[:32] = 1
    assert (x.read() == 2 * want).all() and (y.read() == 3 * want).all()
    if device.kind != "wgpu":  # where a grid may be no part of a buffer that a launch writes
        with pytest.raises(BindingError, match="'grid' is part of it"):
            launch.set(grid=whole[103:])
        launch.set(grid=whole[:100])
        launch()
        assert (whole.read()[:100] == np.arange(100) + 3 * want).all()


def test_grids_that_cannot_be_read(device: Any) -> None:
    pipeline, y = device.compile_native(COUNTS), device.allocate((100, 3), u32)
    whole = device.allocate(303, u32)
    with pytest.raises(BindingError, match="'y' is part of it"):
        pipeline.bind(y=whole[1:301].reshape(100, 3), config=reading(whole[300:]))
    grid = device.upload(np.ones(3, np.uint32))
    launch = pipeline.bind(y=y, config=reading(grid))
    launch()
    graph = device.capture(launch)
    grid.free()
    for run in (launch, graph, device.sequence(launch), lambda: pipeline.bind(y=y, config=reading(grid))):
        with pytest.raises(BindingError, match="'grid' was freed"):
            run()
    for wrong in (device.allocate(4, u32), device.allocate(3, u8)):
        with pytest.raises(Unsupported, match="three u32"):
            reading(wrong)
    if device.kind != "cpu":
        other = open_device("cpu").allocate(3, u32)
        with pytest.raises(BindingError, match="the buffer is on cpu:0"):
            pipeline.bind(y=y, config=reading(other))


def test_scans_over_a_grid_that_is_read(device: Any) -> None:
    scan = Program.from_text("program s(n) workgroup(64) over(n) { buffer y: u32[n] write\n y[global_id.x] = grid_scan(add, 1u32) }")
    y, grid = device.allocate(300, u32), device.upload(np.array([3, 1, 1], np.uint32))
    if device.kind in ("wgpu", "cuda"):
        with pytest.raises(Unsupported, match="grid_scan"):
            device.compile_native(scan).bind(y=y, config=reading(grid))
        return
    device.compile_native(scan).bind(y=y, config=reading(grid))()
    assert (y.read() == [i // 64 if i < 192 else 0 for i in range(300)]).all()


def test_what_a_program_asserts_and_prints_is_heard(device: Any) -> None:
    program = Program.from_text("""program told(n) workgroup(4) over(n) {
  buffer y: u32[n] write
  assert global_id.x < 8, "far"
  y[global_id.x] = 1
}""")
    grid = device.upload(np.array([2, 1, 1], np.uint32))
    pipeline = device.compile_native(program)
    assert pipeline.dispatch(n=20, config=reading(grid))["y"].tolist() == [1] * 8 + [0] * 12
    grid.write(np.array([3, 1, 1], np.uint32))
    with pytest.raises(vp.KernelAssertion, match="far"):
        pipeline.dispatch(n=20, config=reading(grid))
