"""Programs over blocks of Dask arrays: what comes out is what one process and NumPy give, on two worker processes too, of which one may be lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from axpy import AXPY
from device_kinds import open_device

import vyre_py as vp
from vyre_py.drivers.errors import BindingError, KernelAssertion
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.errors import Unsupported

try:
    import dask
    import dask.array as da
    from distributed import Client, LocalCluster
    from distributed.protocol import deserialize, serialize
except ImportError:  # they are among the packages of the extra `dev`
    if "dask" in os.environ.get("VYRE_REQUIRE_DEVICES", "").split(","):
        raise
    pytest.skip("dask and distributed are not installed", allow_module_level=True)

from vyre_py.interop.dask import ResidentArray, map_blocks, map_overlap, reduction
from vyre_py.interop.dask import tasks as tasks_module

HEAT = parse("""program heat(n, m) workgroup(32, 8) over(m, n) {
  param rate: f32
  buffer x: f32[n, m] read
  buffer y: f32[n, m] write
  let i = cast(global_id.y, i32)
  let j = cast(global_id.x, i32)
  let around = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]
  y[i, j] = x[i, j] + rate * (around - 4.0 * x[i, j])
}""")
SCALE = parse("""program scale(n) workgroup(64) {
  buffer x: i32[n] read
  buffer double: i32[n] write
  buffer halves: f32[n] write
  let i = global_id.x
  double[i] = 2 * x[i]
  halves[i] = 0.5 * cast(x[i], f32)
}""")
# Partial sums of 8 neighbours, whose count follows from the dim by an expression.
EIGHTS = parse("""program eights(n) workgroup(64) over(ceil_div(n, 8)) {
  buffer x: i32[n] read
  buffer y: i32[ceil_div(n, 8)] write
  var total: i32 = 0
  for k in 0u32..8u32 { total = total + x[8u32 * global_id.x + k] }
  y[global_id.x] = total
}""")
COUNTS = parse("""program counts(n) workgroup(64) over(n) {
  buffer x: u32[n] read
  buffer bins: u32[4] read_write
  if global_id.x < n { atomic_add(bins[x[global_id.x] % 4u32], 1u32) }
}""")
NONE = np.zeros(4, np.uint32)
ADD_COUNTS = parse("""program add_counts(k, n) workgroup(64) {
  buffer parts: u32[k, n] read
  buffer bins: u32[n] write
  var total: u32 = 0
  for p in 0u32..k { total = total + parts[p, global_id.x] }
  bins[global_id.x] = total
}""")
POSITIVE = parse("""program positive(n) workgroup(64) {
  buffer x: f32[n] read
  buffer y: f32[n] write
  assert x[global_id.x] >= 0.0, "x[{}] is negative", global_id.x
  y[global_id.x] = x[global_id.x]
}""")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield


def heat_of(plate: np.ndarray, steps: int, rate: float = 0.2) -> np.ndarray:
    """NumPy's heat in a plate with cold edges, in the order in which the Program adds."""
    for _ in range(steps):
        wide = np.pad(plate, 1)
        around = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
        plate = plate + np.float32(rate) * (around - np.float32(4) * plate)
    return plate


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).random(shape, np.float32)


# ---- blocks


@pytest.mark.parametrize("kind", ["cpu", "reference", "wgpu"])
@pytest.mark.parametrize("resident", [False, True])
def test_blocks_are_aligned_by_dims_and_stay_as_they_were(kind: str, resident: bool) -> None:
    open_device(kind)
    x, y = drawn(1000), np.ones(1000, np.float32)
    found = map_blocks(AXPY, da.from_array(x, chunks=300), da.from_array(y, chunks=250), a=2.0, device=kind, resident=resident)
    assert found.chunks == ((250, 50, 200, 100, 150, 150, 100),) and found.dtype == np.float32
    assert np.array_equal((found.read() if resident else found).compute(), np.float32(2) * x + y)
    assert np.array_equal(y, np.ones(1000))


def test_arguments_by_name_artifacts_and_plain_arrays() -> None:
    x, y = da.from_array(drawn(40), chunks=10), np.ones(40, np.float32)
    artifact = vp.compile_native(AXPY, targets=["cpu", "wgsl"])
    for found in (map_blocks(artifact, x, y, a=3.0), map_blocks(AXPY, y=y, x=x, a=3.0), map_blocks(AXPY, {"x": x, "y": y, "a": 3.0})):
        assert found.numblocks == (4,) and np.array_equal(found.compute(), np.float32(3) * drawn(40) + y)


def test_what_a_program_does_not_write_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that may hold anything is taken only where all of it is written."""
    filled = np.full(40, 7, np.float32)

    def anything(_: Any, shape: tuple[int, ...], **__: Any) -> Any:
        return filled[: shape[0]].copy()

    monkeypatch.setattr(tasks_module.np, "empty_like", anything)
    head = "program odd(n) workgroup(64) over(n) {\n buffer x: f32[n] read\n buffer y: f32[n] write\n let i = global_id.x\n"
    whole, some = parse(head + "y[i] = x[i] + 1.0\n}"), parse(head + "if i % 2 == 1 { y[i] = x[i] + 1.0 }\n}")
    x = da.from_array(np.ones(40, np.float32), chunks=10)
    assert (map_blocks(whole, x).compute() == 2).all()
    assert np.array_equal(map_blocks(some, x).compute(), np.tile([0, 2], 20))


@pytest.mark.parametrize("resident", [False, True])
def test_blocks_in_any_order_of_bytes(resident: bool) -> None:
    x, y = drawn(40), np.ones(40, np.float32)
    other = [da.from_array(array.astype(array.dtype.newbyteorder()), chunks=10) for array in (x, y)]
    found = map_blocks(AXPY, *other, a=2.0, resident=resident)
    assert np.array_equal((found.read() if resident else found).compute(), np.float32(2) * x + y)


def test_a_name_may_be_self() -> None:
    program = parse(str(AXPY).replace("param a", "param self").replace("a *", "self *"))
    x = da.ones(40, chunks=10, dtype=np.float32)
    assert (map_blocks(program, x, x, self=2.0).compute() == 3).all()


def test_blocks_in_any_order_of_memory() -> None:
    plate = np.asfortranarray(drawn(30, 20))
    x = da.from_array(plate, chunks=(10, 20)).T[::2].rechunk((10, 30))
    found = map_blocks(HEAT, x, rate=0.0)
    assert np.array_equal(found.compute(), plate.T[::2])


def test_vectors_and_complex_numbers() -> None:
    turn = parse("""program turn(n) workgroup(64) {
      buffer x: f32x2[n] read
      buffer y: f32x2[n] read_write
      y[global_id.x] = x[global_id.x].yx + y[global_id.x]
    }""")
    z = drawn(20).astype(np.complex64) + 1j
    wanted = np.stack([z.imag, z.real], axis=1) + 1
    for x in (da.from_array(z, chunks=6), da.from_array(np.stack([z.real, z.imag], axis=1), chunks=(6, 2))):
        found = map_blocks(turn, x, np.ones((20, 2), np.float32))
        assert found.shape == (20, 2) and np.array_equal(found.compute(), wanted)
    with pytest.raises(BindingError, match=r"axis 1 of 'x' goes with no dim alone.*rechunk\(\{1: -1\}\)"):
        map_blocks(turn, da.ones((20, 2), chunks=(6, 1), dtype=np.float32), np.ones((20, 2), np.float32))


def test_several_results_are_a_dict() -> None:
    x = np.arange(30, dtype=np.int32)
    for resident in (False, True):
        found = map_blocks(SCALE, da.from_array(x, chunks=8), resident=resident)
        arrays = {name: array.read() if resident else array for name, array in found.items()}
        double, halves = dask.compute(arrays["double"], arrays["halves"])
        assert list(found) == ["double", "halves"] and np.array_equal(double, 2 * x) and np.array_equal(halves, 0.5 * x)


def test_sizes_of_results_follow_from_dims_in_every_block() -> None:
    x = np.arange(61, dtype=np.int32)
    found = map_blocks(EIGHTS, da.from_array(x, chunks=((16, 24, 16, 5),)))
    assert found.chunks == ((2, 3, 2, 1),) and np.array_equal(found.compute(), np.add.reduceat(x, np.arange(0, 61, 8)))


def test_rows_products_and_new_axes() -> None:
    a, b = drawn(20, 12), drawn(12, 16)
    matmul = vp.ops.matmul()
    product = map_blocks(matmul, da.from_array(a, chunks=(7, 12)), da.from_array(b, chunks=(12, 5)))
    whole = open_device("cpu").compile_native(matmul).dispatch({"a": a, "b": b})["c"]
    assert product.numblocks == (3, 4) and np.array_equal(product.compute(), whole)
    rows = map_blocks(vp.ops.sum(rank=2, axis=1), da.from_array(a, chunks=(7, 12)))
    assert rows.chunks == ((7, 7, 6),)
    np.testing.assert_allclose(rows.compute(), a.sum(axis=1), rtol=1e-6)
    spread = parse("""program spread(n, m) workgroup(8, 8) over(m, n) {
      buffer x: f32[n] read
      buffer y: f32[n, m] write
      y[global_id.y, global_id.x] = x[global_id.y]
    }""")
    wide = map_blocks(spread, da.from_array(a[:, 0], chunks=7), m=5)
    assert wide.chunks == ((7, 7, 6), (5,)) and np.array_equal(wide.compute(), np.repeat(a[:, :1], 5, axis=1))


def test_what_does_not_fit_is_told_in_words_of_bind_before_anything_runs() -> None:
    x, y = da.ones(1000, chunks=300, dtype=np.float32), da.ones(1000, chunks=250, dtype=np.float32)
    wrong: list[tuple[Any, str]] = [
        (lambda: map_blocks(AXPY, x, y[:900], a=1.0), "dim 'n' is 1000 from axis 0 of 'x', but axis 0 of 'y' has 900"),
        (lambda: map_blocks(AXPY, x.astype(np.float64), y, a=1.0), r"'x' needs elements of f32, got dtype float64"),
        (lambda: map_blocks(AXPY, x, y), r"param 'a' \(f32\) is missing"),
        (lambda: map_blocks(AXPY, x, y, a=1.0, c=2), "there is no argument 'c'"),
        (lambda: map_blocks(AXPY, x, a=1.0), "buffer 'y' is missing"),
        (lambda: map_blocks(AXPY, x, y, y, a=1.0), "3 arrays for 2 buffers"),
        (lambda: map_blocks(AXPY, x, y, x=x, a=1.0), "'x' is given twice"),
        (lambda: map_blocks(AXPY, x[x > 0], y, a=1.0), "unknown sizes"),
        (lambda: map_blocks(HEAT, x, rate=1.0), "'x' needs 2 axes, got shape"),
        (lambda: map_blocks(SCALE, da.ones(9, dtype=np.int32), double=x), "'double' is only written"),
        (lambda: map_blocks(COUNTS, da.ones(9, chunks=3, dtype=np.uint32), NONE), "axis 0 of 'x' is in 3 blocks.*`reduction`"),
        (lambda: map_blocks(parse("program fill(n) { buffer y: f32[n] write\n y[global_id.x] = 1.0 }"), n=3), "reads no array"),
        (lambda: map_blocks("axpy", x), "a Program or an artifact"),
        (lambda: map_blocks(AXPY, da.ma.masked_less(x, 1), y, a=1.0), "'x': its mask would be lost"),
        (lambda: map_blocks(AXPY, x, np.ma.masked_array(np.ones(1000, np.float32), False), a=1.0), "'y': its mask would be lost"),
        (lambda: map_blocks(AXPY, None, y, a=1.0), "'x' needs an array of f32, Dask's or one that becomes a block, got None"),
        (lambda: map_blocks(AXPY, x, y=[None, 2], a=1.0), r"'y' needs an array of f32, Dask's or one that becomes a block, got \[None, 2\]"),
        (lambda: map_blocks(AXPY, x, x.astype(object), a=1.0), "'y' has dtype object, which holds no numbers of the language"),
        (lambda: map_overlap(AXPY, x, ResidentArray(y), a=1.0, depth=1), r"read\(\) of a ResidentArray"),
        (lambda: map_overlap(AXPY, x, y, a=1.0, depth=[1]), "1 items are given for 2 arrays"),
    ]
    for call, words in wrong:
        with pytest.raises(BindingError, match=words):
            call()
    with pytest.raises(Unsupported, match="target"):
        map_blocks(AXPY, x, y, a=1.0, targets=["cpu:z80"])


def test_errors_of_tasks_arrive() -> None:
    x = da.from_array(np.float32([1, 2, 3, -4]), chunks=2)
    with pytest.raises(KernelAssertion, match=r"x\[1\] is negative"):
        map_blocks(POSITIVE, x).compute()
    with pytest.raises(Unsupported, match="wgsl"):
        map_blocks(POSITIVE, x, targets=["wgsl"], device="cpu").compute()


def test_equal_calls_are_one_task() -> None:
    x, y = da.ones(10, chunks=5, dtype=np.float32), da.ones(10, chunks=5, dtype=np.float32)
    assert map_blocks(AXPY, x, y, a=2.0).name == map_blocks(AXPY, x, y, a=2.0).name != map_blocks(AXPY, x, y, a=3.0).name


# ---- halos


@pytest.mark.parametrize("boundary", [0.0, "periodic", "none", {0: "reflect", 1: 1.5}])
def test_halos_are_those_of_dask(boundary: Any) -> None:
    plate = da.from_array(drawn(60, 70), chunks=(25, 30))
    pipeline = open_device("cpu").compile_native(HEAT)

    def numpys(block: np.ndarray) -> np.ndarray:
        return pipeline.dispatch({"x": np.ascontiguousarray(block), "rate": 0.2})["y"]

    wanted = da.map_overlap(numpys, plate, depth=1, boundary=boundary, dtype=np.float32, meta=np.empty((0, 0), np.float32))
    found = map_overlap(HEAT, plate, depth=1, boundary=boundary, rate=0.2)
    assert found.chunks == plate.chunks and np.array_equal(found.compute(), wanted.compute())


def test_halos_of_two_depths_are_for_edges_without_one() -> None:
    before = parse("""program before(n) workgroup(64) {
      buffer x: f32[n] read
      buffer y: f32[n] write
      let i = cast(global_id.x, i32)
      y[i] = x[i] + x[i - 1]
    }""")
    x = drawn(50)
    found = map_overlap(before, da.from_array(x, chunks=20), depth={0: (1, 0)}, boundary="none")
    assert np.array_equal(found.compute(), x + np.pad(x, (1, 0))[:-1])
    with pytest.raises(NotImplementedError, match="'x': a depth that differs between the sides is for boundary='none' alone"):
        map_overlap(before, da.from_array(x, chunks=20), depth={0: (1, 0)}, boundary="reflect")


def test_a_program_may_trim_its_halo_itself() -> None:
    mean = parse("""program mean(n) workgroup(64) {
      buffer x: f32[n] read
      buffer y: f32[n - 2] write
      let i = global_id.x
      y[i] = (x[i] + x[i + 1u32] + x[i + 2u32]) / 3.0
    }""")
    x = drawn(50)
    found = map_overlap(mean, da.from_array(x, chunks=20), depth=1, boundary=0.0, trim=False)
    wide = np.pad(x, 1)
    assert found.chunks == ((20, 20, 10),) and np.array_equal(found.compute(), (wide[:-2] + wide[1:-1] + wide[2:]) / np.float32(3))


# ---- reductions


def test_sums_and_histograms_in_a_tree() -> None:
    x = np.arange(1000, dtype=np.int32)
    rows = x.reshape(20, 50)
    for split_every in (2, 8, 200):
        total = reduction(vp.ops.sum(vp.i32), da.from_array(x, chunks=7), combine=vp.ops.sum(vp.i32, rank=2, axis=0), split_every=split_every)
        assert total.shape == (1,) and total.compute() == [x.sum()]
        along = vp.ops.sum(vp.i32, rank=2, axis=1)
        sums = reduction(along, da.from_array(rows, chunks=(7, 3)), combine=vp.ops.sum(vp.i32, rank=2, axis=0), split_every=split_every)
        assert sums.chunks == ((7, 7, 6),) and np.array_equal(sums.compute(), rows.sum(axis=1))
        bins = reduction(COUNTS, da.from_array(x.astype(np.uint32), chunks=90), NONE, combine=ADD_COUNTS, split_every=split_every)
        assert np.array_equal(bins.compute(), [250] * 4)


def test_a_reduction_of_one_block_is_its_result() -> None:
    x = np.arange(10, dtype=np.uint32)
    assert reduction(COUNTS, x, NONE, combine=ADD_COUNTS).compute().tolist() == [3, 3, 2, 2]
    resident = map_blocks(parse("program same(n) { buffer a: u32[n] read\n buffer b: u32[n] write\n b[global_id.x] = a[global_id.x] }"), x, resident=True)
    assert reduction(COUNTS, resident, NONE, combine=ADD_COUNTS).compute().tolist() == [3, 3, 2, 2]


def test_reductions_refuse_what_does_not_combine() -> None:
    x = da.ones(100, chunks=7, dtype=np.uint32)
    with pytest.raises(BindingError, match="reads one buffer and writes another"):
        reduction(COUNTS, x, NONE, combine=AXPY)
    odd = parse("program odd(k, n) over(n) { buffer p: u32[k, n] read\n buffer q: u32[k] write\n q[0u32] = p[0u32, 0u32] }")
    with pytest.raises(BindingError, match=r"2 partial results, u32\[4\] each, become one"):
        reduction(COUNTS, x, NONE, combine=odd)
    with pytest.raises(BindingError, match="split_every is a whole number from 2"):
        reduction(COUNTS, x, NONE, combine=ADD_COUNTS, split_every=1)
    with pytest.raises(BindingError, match="writes one buffer"):
        reduction(SCALE, x.astype(np.int32), combine=ADD_COUNTS)


# ---- what travels


@pytest.mark.parametrize("kind", ["cpu", "reference", "wgpu", "cuda"])
@pytest.mark.parametrize("shape", [(3, 4), (0,), (1,)])
@pytest.mark.parametrize("type_", [vp.f32, vp.bf16, vp.f32x3, vp.bool_], ids=str)
def test_buffers_travel_as_host_bytes(kind: str, shape: tuple[int, ...], type_: vp.Type) -> None:
    device = open_device(kind)
    array = np.random.default_rng(1).integers(0, 2, (*shape, type_.lanes) if type_.is_vector else shape).astype(type_.dtype)
    buffer = device.upload(array, type_)
    header, frames = serialize(buffer, serializers=["dask", "error"])
    assert header["serializer"] == "dask"
    again = deserialize(header, frames, deserializers=["dask", "error"])
    assert isinstance(again, vp.Buffer) and again is not buffer and again.device is device
    assert (again.type, again.shape) == (type_, shape) and np.array_equal(again.read(), array)
    assert dask.sizeof.sizeof(buffer) == buffer.size_bytes


def test_code_comes_once_to_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []
    monkeypatch.setattr(tasks_module, "_loaded", type(tasks_module._loaded)(256, 1 << 28))
    artifact_of = vp.Artifact.from_bytes
    counted = SimpleNamespace(from_bytes=lambda data: (loads.append(data), artifact_of(data))[1])
    monkeypatch.setattr(tasks_module, "Artifact", counted)
    x, y = da.ones(100, chunks=10, dtype=np.float32), da.ones(100, chunks=10, dtype=np.float32)
    found = map_blocks(AXPY, x, y, a=2.0)
    (graph,) = dask.optimize(found)
    keys = [key for key in dict(graph.dask) if str(key).startswith("vyre-artifact")]
    assert len(keys) == 1 and np.array_equal(found.compute(), np.full(100, 3)) and len(loads) == 1


class OnGpu:
    """A block of another library on a device, as CuPy's are: copies are its own affair. It has every `step`-th element of its Buffer."""

    def __init__(self, buffer: vp.Buffer, step: int = 1) -> None:
        self.buffer, self.step, self.dtype = buffer, step, buffer.type.dtype
        self.shape = (buffer.host_shape[0] // step,)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        described = self.buffer.__cuda_array_interface__
        return described if self.step == 1 else {**described, "shape": self.shape, "strides": (self.step * self.dtype.itemsize,)}

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        assert function in (np.zeros_like, np.empty_like)
        return OnGpu(self.buffer.device.allocate(kwargs["shape"], vp.f32))

    def copy(self) -> OnGpu:
        if self.step > 1:
            return OnGpu(self.buffer.device.upload(self.buffer.read()[:: self.step].copy()))
        copied = self.buffer.device.allocate(self.shape, vp.f32)
        copied.copy_from(self.buffer)
        return OnGpu(copied)


def test_blocks_of_another_library_are_used_where_they_are() -> None:
    device = open_device("cuda")
    task = tasks_module.BlockTask("of-a-test", "cuda", ("x", "y"), {"a": 2.0}, only="y")
    data = vp.compile_native(AXPY, targets=[str(device.target)]).to_bytes()
    x, y = OnGpu(device.upload(drawn(100))), OnGpu(device.upload(np.ones(100, np.float32)))
    before = device.telemetry.snapshot()
    found = task(x, y, artifact=data)
    moved = device.telemetry.snapshot() - before
    assert isinstance(found, OnGpu) and moved["uploads"] == moved["downloads"] == 0
    assert np.array_equal(found.buffer.read(), np.float32(2) * drawn(100) + 1) and np.array_equal(y.buffer.read(), np.ones(100))


class OnGpuToo(OnGpu):
    """A block of a third library."""


def test_blocks_of_two_libraries_meet() -> None:
    device = open_device("cuda")
    task = tasks_module.BlockTask("of-two", "cuda", ("x", "y"), {"a": 2.0}, only="y")
    data = vp.compile_native(AXPY, targets=[str(device.target)]).to_bytes()
    found = task(OnGpuToo(device.upload(drawn(100))), OnGpu(device.upload(np.ones(100, np.float32))), artifact=data)
    assert np.array_equal(found, np.float32(2) * drawn(100) + 1)


def test_blocks_with_gaps_are_copied_by_their_own_library() -> None:
    device = open_device("cuda")
    task = tasks_module.BlockTask("with-gaps", "cuda", ("x", "y"), {"a": 2.0}, only="y")
    data = vp.compile_native(AXPY, targets=[str(device.target)]).to_bytes()
    found = task(OnGpu(device.upload(drawn(200)), step=2), OnGpu(device.upload(np.ones(100, np.float32))), artifact=data)
    assert np.array_equal(found.buffer.read(), np.float32(2) * drawn(200)[::2] + 1)


# ---- two processes


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two worker processes of one thread each. The nanny starts a worker that is lost anew."""
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "60s"}),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50) as cluster,
        Client(cluster, set_as_default=False) as made,
    ):
        yield made


def loads_of_worker() -> int:
    return len(tasks_module._loaded)


def step(block: Any, artifact: bytes) -> Any:
    return tasks_module.BlockTask("of-a-step", "cpu", ("x", "y"), {"a": 1.0}, resident=True, only="y")(block, block, artifact=artifact)


def test_two_processes_give_the_bits_of_one(client: Client) -> None:
    x = drawn(240, 100)
    plate = da.from_array(x, chunks=(40, 100))
    for _ in range(4):
        plate = map_overlap(HEAT, plate, depth={0: 1}, boundary=0.0, rate=0.2)
    found = client.compute(plate).result(timeout=120)
    assert np.array_equal(found, heat_of(x, 4)) and np.array_equal(found, plate.compute())
    assert list(client.run(loads_of_worker).values()) == [1, 1]
    total = reduction(vp.ops.sum(), da.from_array(x.reshape(-1), chunks=1000), combine=vp.ops.sum(rank=2, axis=0))
    assert client.compute(total).result(timeout=120) == total.compute()


def test_buffers_stay_on_their_workers_until_somebody_asks(client: Client) -> None:
    x, y = drawn(1000), np.ones(1000, np.float32)
    blocks = map_blocks(AXPY, da.from_array(x, chunks=100), da.from_array(y, chunks=100), a=2.0, resident=True)
    futures = client.compute([block for row in blocks.array.to_delayed() for block in np.atleast_1d(row)])
    kinds = client.gather(client.map(lambda block: type(block).__name__, futures))
    assert set(kinds) == {"Buffer"}
    held = {address for holders in client.who_has(futures).values() for address in holders}
    assert len(held) == 2
    here = client.submit(step, futures[0], vp.compile_native(AXPY, targets="cpu").to_bytes(), workers=[min(held)])
    there = client.submit(step, futures[0], vp.compile_native(AXPY, targets="cpu").to_bytes(), workers=[max(held)], pure=False)
    wanted = 2 * (np.float32(2) * x[:100] + 1)
    for future in (here, there):  # one of them is elsewhere
        got = future.result(timeout=60)
        assert isinstance(got, vp.Buffer) and np.array_equal(got.read(), wanted)
    whole = client.compute(blocks.read()).result(timeout=60)
    assert np.array_equal(whole, np.float32(2) * x + y)


def test_a_lost_worker_changes_nothing(client: Client) -> None:
    slow = parse("""program slow(n) workgroup(1) over(n) {
      param turns: u32
      buffer x: u32[n] read
      buffer y: u32[n] write
      var h: u32 = x[global_id.x]
      for k in 0u32..turns { h = h * 1664525u32 + 1013904223u32 }
      y[global_id.x] = h
    }""")
    x = np.arange(64, dtype=np.uint32)
    found = map_blocks(slow, map_blocks(slow, da.from_array(x, chunks=2), turns=20_000_000, resident=True), turns=1)
    future = client.compute(found)
    (first, process), *_ = client.run(os.getpid).items()
    while not client.processing()[first]:
        pass
    os.kill(process, signal.SIGKILL)
    got = future.result(timeout=300)
    wanted = x.astype(np.uint64)
    a, c, turns = 1664525, 1013904223, 20_000_001
    power, total = pow(a, turns, 1 << 32), 0
    for bit in reversed(range(turns.bit_length())):  # 1 + a + a^2 + ..., by doubling
        half = turns >> (bit + 1)
        total = total * (1 + pow(a, half, 1 << 32)) % (1 << 32)
        if turns >> bit & 1:
            total = (total * a + 1) % (1 << 32)
    assert np.array_equal(got, ((wanted * power + c * total) % (1 << 32)).astype(np.uint32))
    assert process not in client.run(os.getpid).values()
