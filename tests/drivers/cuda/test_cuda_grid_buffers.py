"""On an NVIDIA GPU: grids that a launch reads from a buffer, small and large, of Programs of all kinds."""

from __future__ import annotations

import numpy as np
import pytest
from device_kinds import open_device

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.ir.language.dims import evaluate_extent
from vyre_py.ir.language.types import u32
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.errors import Unsupported

PLACES = """program places(n, m, k) workgroup(8, 4, 2) over(n, m, k) {
  workgroup tile: u32[64]
  buffer y: u32[k, m, n, 3] write
  buffer count: u32[1] read_write
  let x = global_id.x
  let y0 = global_id.y
  let z = global_id.z
  let dirty = tile[63 - local_index]
  barrier
  tile[local_index] = workgroup_id.x + workgroup_id.y * 1000 + workgroup_id.z * 1000000
  barrier
  let place = tile[63 - local_index] + dirty
  if x >= n || y0 >= m || z >= k { return }
  y[z, y0, x, 0] = place
  y[z, y0, x, 1] = num_workgroups.x + num_workgroups.y * 1000 + num_workgroups.z * 1000000
  y[z, y0, x, 2] = x + y0 * n + z * n * m
  atomic_add(count[0], 1)
}"""
SUMS = "program sums(n) workgroup(64) over(n) { buffer y: u32[1] read_write\n atomic_add(y[0], global_id.x + 1) }"
SPIN = """program spin(n) workgroup(64) over(n) {
  buffer y: u32[n] read_write
  loop { if global_id.x >= n || y[global_id.x] == 7 { break } }
}"""


@pytest.fixture(scope="module")
def gpu() -> Device:
    return open_device("cuda")


def grid_of(gpu: Device, *groups: int) -> vp.Buffer:
    return gpu.upload(np.array(groups, np.uint32))


@pytest.mark.parametrize("options", [{}, {"interruptible": True}, {"codegen": "nvvm"}, {"opt": 0}, {"persistent": True}], ids=str)
@pytest.mark.parametrize("sizes", [(8, 4, 2), (100, 63, 17), (3000, 40, 9)], ids=str)
def test_every_place_is_visited_once(gpu, sizes, options):
    """Against a launch whose grid was given, with workgroup memory that each turn finds filled with zeros."""
    n, m, k = sizes
    groups = -(-n // 8), -(-m // 4), -(-k // 2)
    pipeline = gpu.compile_native(parse(PLACES), vp.CompileOptions(**options))
    want = pipeline.dispatch(n=n, m=m, k=k, count=np.zeros(1, np.uint32), config=vp.DispatchConfig(grid=groups))
    got = pipeline.dispatch(n=n, m=m, k=k, count=np.zeros(1, np.uint32), config=vp.DispatchConfig(grid=grid_of(gpu, *groups)))
    assert want["count"][0] == n * m * k
    for name in want:
        np.testing.assert_array_equal(got[name], want[name])


@pytest.mark.parametrize("groups", [(1 << 20, 1, 1), (1, 65535, 3), (3, 7, 65535), (1, 1, 1), (65536, 1, 1)], ids=str)
def test_wide_grids(gpu, groups):
    y = gpu.upload(np.zeros(1, np.uint32))
    gpu.compile_native(parse(SUMS)).bind(y=y, n=1, config=vp.DispatchConfig(grid=grid_of(gpu, *groups)))()
    x, down, deep = groups
    assert int(y.read()[0]) == (64 * x * (64 * x + 1) // 2 * down * deep) % 2**32


@pytest.mark.parametrize("groups", [(1, 65536, 1), (1, 1, 65536), (2**31, 1, 1), (0, 65536, 1)], ids=str)
def test_grids_past_the_limits_run_nothing(gpu, groups):
    y = gpu.upload(np.zeros(1, np.uint32))
    gpu.compile_native(parse(SUMS)).bind(y=y, n=1, config=vp.DispatchConfig(grid=grid_of(gpu, *groups)))()
    assert not y.read().any()


def test_artifacts_have_it_where_they_were_compiled_so(gpu):
    program, target = parse(SUMS), gpu.target.for_program(parse(SUMS)).name
    plain, indirect = [gpu.load(vp.compile_native(program, [target], vp.CompileOptions(indirect=one))) for one in (False, True)]
    y, grid = gpu.upload(np.zeros(1, np.uint32)), grid_of(gpu, 3, 1, 1)
    with pytest.raises(Unsupported, match="indirect=True"):
        plain.bind(y=y, n=64, config=vp.DispatchConfig(grid=grid))
    indirect.bind(y=y, n=64, config=vp.DispatchConfig(grid=grid))()
    assert y.read()[0] == 192 * 193 // 2
    for _ in range(2):  # of the Program's own grid, and one in numbers
        y.fill(0)
        indirect.bind(y=y, n=640)()
        assert y.read()[0] == 640 * 641 // 2
    assert indirect.dispatch(y=np.zeros(1, np.uint32), n=64, config=vp.DispatchConfig(grid=(2, 1, 1)))["y"][0] == 128 * 129 // 2
    assert indirect.dispatch(y=np.zeros(1, np.uint32), n=64)["y"][0] == 64 * 65 // 2
    assert indirect.dispatch(y=np.zeros(1, np.uint32), n=64)["y"][0] == 64 * 65 // 2
    y.fill(0)
    indirect.callable()(y=y, n=64)
    assert y.read()[0] == 64 * 65 // 2


@pytest.mark.parametrize("sizes", [(640, 1024, 320), (1536, 2048, 512), (2176, 1000, 128), (130, 70, 33)], ids=str)
@pytest.mark.parametrize("tiles", [(64, 64, 32), (128, 128, 64)], ids=str)
@pytest.mark.parametrize("type_", [vp.f32, vp.f16, vp.bf16], ids=str)
def test_tiles_walk(gpu, type_, tiles, sizes):
    """Products, on tensor cores where the type has them, whose boxes the hardware copies where workgroups walk by themselves: the same bits as over the
    Program's own grid."""
    program, rng, (m, n, k) = vp.ops.matmul(type_, tiles=tiles), np.random.default_rng(3), sizes
    a, b = gpu.upload(rng.standard_normal((m, k)).astype(type_.dtype)), gpu.upload(rng.standard_normal((k, n)).astype(type_.dtype))
    want, got = gpu.allocate((m, n), type_), gpu.allocate((m, n), type_)
    pipeline, groups = gpu.compile_native(program), evaluated(program, {"m": m, "n": n, "k": k})
    plain = pipeline.bind(a=a, b=b, c=want)
    plain()
    grid = grid_of(gpu, *groups)
    launch = pipeline.bind(a=a, b=b, c=got, config=vp.DispatchConfig(grid=grid))
    entries = [one.plan.step.entries[one.plan.entry] for one in (plain, launch)]
    assert entries[1].boxes == (entries[0].boxes if entries[0].walks else 0)
    launch()
    assert want.read().tobytes() == got.read().tobytes()
    got.fill(0)
    grid.write(np.zeros(3, np.uint32))
    launch()
    assert not got.read().any()
    grid.write(np.array([groups[0], 1, 1], np.uint32))  # the places of one row, whatever those are
    launch()
    rows = tiles[0]
    assert want.read()[:rows].tobytes() == got.read()[:rows].tobytes() and not got.read()[rows:].any()


def evaluated(program: vp.Program, sizes: dict[str, int]) -> list[int]:
    """The workgroups of a Program of tiles."""
    return [evaluate_extent(extent, sizes) for extent in program.grid.extents]


def test_timeouts_end_kernels_that_read_their_grid(gpu):
    pipeline, grid = gpu.compile_native(parse(SPIN), vp.CompileOptions(interruptible=True)), grid_of(gpu, 10000, 1, 1)
    with pytest.raises(vp.DispatchTimeout):
        pipeline.dispatch(y=np.zeros(1000, np.uint32), config=vp.DispatchConfig(grid=grid, timeout=0.2))
    assert (pipeline.dispatch(y=np.full(1000, 7, np.uint32), config=vp.DispatchConfig(grid=grid, timeout=60.0))["y"] == 7).all()


def test_counts_and_options_of_a_launch(gpu):
    y, grid = gpu.upload(np.zeros(1, np.uint32)), grid_of(gpu, 5, 1, 1)
    pipeline = gpu.compile_native(parse(SUMS))
    for option in ({"cooperative": True}, {"cluster": (1, 1, 1)}):
        with pytest.raises(Unsupported, match=next(iter(option))):
            pipeline.bind(y=y, n=64, config=vp.DispatchConfig(grid=grid, **option))
    before = gpu.telemetry.snapshot().launches
    launch = pipeline.bind(y=y, n=64, config=vp.DispatchConfig(grid=grid))
    launch()
    launch()
    assert gpu.telemetry.snapshot().launches == before + 2 and y.read()[0] == 2 * (320 * 321 // 2)
    meeting = parse("program p(n) workgroup(32) { buffer x: u32[n] read_write\n x[global_id.x] = 1\n grid_barrier\n x[global_id.x] = x[n - 1] }")
    with pytest.raises(Unsupported, match="grid barrier"):
        gpu.compile_native(meeting).bind(x=gpu.allocate(64, u32), config=vp.DispatchConfig(grid=grid))


def test_dispatches_are_timed_and_repeated(gpu):
    text = """program down(n) workgroup(64) over(n) {
  buffer x: u32[n] read_write
  buffer more: u32[1] read_write
  let left = x[global_id.x]
  if left > 0 {
    x[global_id.x] = left - 1
    more[0] = 1
  }
}"""
    grid, x = grid_of(gpu, 4, 1, 1), np.arange(256, dtype=np.uint32) % 9
    pipeline = gpu.compile_native(parse(text))
    got = pipeline.dispatch(x=x, more=np.zeros(1, np.uint32), config=vp.DispatchConfig(grid=grid, fixpoint="more"))
    assert not got["x"].any()
    assert pipeline.dispatch_timed(x=x, more=np.zeros(1, np.uint32), config=vp.DispatchConfig(grid=grid)).device_ns > 0


class Stream:
    """A stream of the driver's own."""

    def __init__(self, gpu: Device) -> None:
        self.context = gpu.context
        with self.context.entered():
            status, self.handle = self.context.cuda.cuStreamCreate(1)
        assert not status

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, int(self.handle)


def test_barriers_are_met_whatever_writes_the_grid_meanwhile(gpu):
    """Another stream writes the grid all the time: each workgroup that walks has one grid or the other, as a whole."""
    flips = parse("""program flips(n) workgroup(1) grid(1) {
  buffer g: u32[3] read_write
  for i in 0..n { atomic_xor(g[0], 4094) }
}""")
    sums = parse("""program sums(n) workgroup(256) over(n) {
  workgroup w: u32[256]
  buffer y: u32[1] read_write
  w[local_index] = 1
  barrier
  atomic_add(y[0], w[255 - local_index])
}""")
    grid, y = grid_of(gpu, 1, 1, 1), gpu.upload(np.zeros(1, np.uint32))
    launch = gpu.compile_native(sums).bind(y=y, n=256, config=vp.DispatchConfig(grid=grid))
    writer = gpu.compile_native(flips).bind(g=grid, n=100000).on(Stream(gpu))
    writer()
    for _ in range(200):
        launch()
    gpu.synchronize()
    assert int(y.read()[0]) % 256 == 0 and int(y.read()[0]) >= 200 * 256
