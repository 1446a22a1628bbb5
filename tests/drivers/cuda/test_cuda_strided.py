"""Strided copies on CUDA: the kernels' PTX run by a machine of our own, the driver's logic over a stand-in, and the whole of it on a GPU."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from device_kinds import open_device
from fake_cuda import CUresult
from fake_device import installed
from hypothesis import given
from hypothesis import strategies as st
from ptx_machine import PtxDriver, run
from ptxas import assemble_together
from test_strided import one_case, over

import vyre_py as vp
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.cuda.kernels import strided as cuda_strided
from vyre_py.drivers.cuda.kernels.strided import parts
from vyre_py.drivers.cuda.kernels.strided_ptx import INDEX_LIMIT, WIDTHS, StridedKernel, divisor, packed
from vyre_py.drivers.errors import BindingError, DeviceLost, DriverError, LaunchError
from vyre_py.drivers.memory.strided import GROUP, PIECES, Axis, Move, StridedCopy, divided, simplified
from vyre_py.ir.text.parser import parse

KERNELS = [StridedKernel(walk, width) for walk, width in product(("runs", "words"), WIDTHS)]
DTYPES = (np.uint8, np.int16, np.float32, np.float64)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[PtxDriver]:
    driver = installed(monkeypatch, PtxDriver(total=1 << 26))
    yield driver
    assert not driver.faults


@pytest.fixture
def device(fake: PtxDriver) -> Iterator[CudaDevice]:
    made = CudaDevice(0)
    yield made
    made.close()


@pytest.fixture(scope="module")
def gpu() -> Any:
    return open_device("cuda")


# ---- the kernels


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_kernels_assemble(arch: str) -> None:
    assemble_together([kernel.text(arch) for kernel in KERNELS], arch)


@given(st.integers(1, INDEX_LIMIT), st.integers(0, INDEX_LIMIT - 1))
def test_division_by_multiplication(size: int, index: int) -> None:
    magic, shift = divisor(size)
    assert magic < 1 << 32 and shift < 32
    last = (INDEX_LIMIT - 1) // size * size
    for n in (index, 0, size - 1, last, max(0, last - 1), min(size, INDEX_LIMIT - 1)):
        assert ((2 * n * magic) >> 32) >> shift == n // size, f"{n} // {size}"


def test_division_by_every_small_size() -> None:
    index = np.r_[0:3000, INDEX_LIMIT - 3000 : INDEX_LIMIT].astype(np.uint64)
    for size in [*range(1, 2000), *(2**k + d for k in range(11, 31) for d in (-1, 0, 1))]:
        magic, shift = divisor(size)
        assert np.array_equal(((index * np.uint64(2) * np.uint64(magic)) >> np.uint64(32)) >> np.uint64(shift), index // np.uint64(size)), size


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_strides_are_of_64_bits(kernel: StridedKernel) -> None:
    """Rows far more than 4 GiB apart on both sides, one of them backward, in memory that only the machine has."""
    rows, far, back = 3, 5 << 30, -(7 << 30)
    length = 1000 // kernel.width
    size = length * kernel.width
    begin, end = 1 << 40, 1 << 44
    numbers = np.random.default_rng(kernel.width)
    memory = {begin + k * far: numbers.integers(0, 256, size, np.uint8) for k in range(rows)}
    memory |= {end + k * back: np.zeros(size, np.uint8) for k in range(rows)}
    head = {"source": begin, "target": end}
    outer = (rows, far, back)
    if kernel.walk == "runs":
        lanes = 3
        tiles = -(-length // (PIECES << lanes))
        magic, shift = divisor(tiles)
        head |= {"count": rows * tiles, "length": length, "lanes": lanes, "tiles": tiles, "tiles_magic": magic, "tiles_shift": shift}
        block, threads = packed(head, [outer]), rows * tiles << lanes
    else:
        block, threads = packed(head | {"count": rows * length}, [outer, (length, kernel.width, kernel.width)]), -(-rows * length // PIECES)
    run(kernel.text("sm_90"), block, -(-threads // GROUP), GROUP, memory)
    for k in range(rows):
        assert np.array_equal(memory[begin + k * far], memory[end + k * back]), f"row {k}"


# ---- which kernel


def in_bytes(source: int, target: int, axes: list[tuple[int, int, int]]) -> StridedCopy:
    move = simplified(Move(source, target, tuple(Axis(*axis) for axis in axes)))
    return StridedCopy(move, move.span("source"), move.span("target"))


@pytest.mark.parametrize(
    ("source", "target", "axes", "addresses", "expected"),
    [
        (0, 0, [(8, 5120, 4096), (4096, 1, 1)], (0, 0), ("runs", 16)),
        (16, 0, [(8, 5120, 4096), (4096, 1, 1)], (0, 32), ("runs", 16)),
        (8, 0, [(8, 5120, 4096), (4096, 1, 1)], (8, 0), ("runs", 16)),  # together a multiple
        (8, 0, [(8, 5120, 4096), (4096, 1, 1)], (0, 0), ("runs", 8)),
        (0, 0, [(8, 5120, 4096), (4096, 1, 1)], (0, 4), ("runs", 4)),
        (0, 0, [(8, 5120, 4098), (4096, 1, 1)], (0, 0), ("runs", 2)),
        (0, 0, [(8, 5120, 4096), (4095, 1, 1)], (0, 0), ("runs", 1)),
        (0, 0, [(8, 5120, 4096), (512, 1, 1)], (0, 0), ("runs", 16)),
        (0, 0, [(8, 5120, 4096), (496, 1, 1)], (0, 0), ("words", 16)),
        (0, 0, [(8, 192, 128), (128, 1, 1)], (0, 0), ("words", 16)),
        (0, 0, [(64, 4, 256), (64, 256, 4), (4, 1, 1)], (0, 0), ("words", 4)),
        (0, 0, [(64, -16, 16), (16, 1, 1)], (0, 0), ("words", 16)),
        (0, 0, [(64, 0, 12), (12, 1, 1)], (0, 0), ("words", 4)),
        (3, 0, [(64, 2, 1)], (0, 0), ("words", 1)),
    ],
)
def test_the_widest_words(source: int, target: int, axes: Any, addresses: tuple[int, int], expected: tuple[str, int]) -> None:
    (part,) = parts(in_bytes(source, target, axes), *addresses)
    assert (part.kernel.walk, part.kernel.width) == expected


def test_a_copy_of_many_words_is_parted() -> None:
    axes = (Axis(1 << 20, 3, 1 << 13), Axis(1 << 13, 1 << 22, 1))
    def words(move: Move) -> list[Move]:
        return list(divided(move, INDEX_LIMIT, lambda one: one.count, lambda axis: axis.size))

    found = words(Move(7, 9, axes))
    assert len(found) == 4 and all(one.count == INDEX_LIMIT for one in found)
    assert sorted(one.target for one in found) == [9 + (k << 31) for k in range(4)]
    assert sorted(one.source for one in found) == [7 + 3 * (k << 18) for k in range(4)]
    assert len(words(Move(0, 0, (Axis(INDEX_LIMIT + 1, 1, 2),)))) == 2


# ---- the driver's logic


@pytest.mark.parametrize("seed", range(5))
def test_random_copies(device: CudaDevice, fake: PtxDriver, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(15):
        one_case(device, rng, [rng.randint(1, 6) for _ in range(rng.randint(0, 4))], rng.choice(DTYPES))
    for _ in range(6):
        one_case(device, rng, [rng.randint(1, 4), rng.randint(1, 3), rng.choice([127, 128, 513, 600, 1024, 2049])], rng.choice(DTYPES))
    one_case(device, rng, [2] * 8, rng.choice(DTYPES))
    assert len(set(fake.ran)) > 2


def test_a_run_of_every_length(device: CudaDevice, fake: PtxDriver) -> None:
    """Tiles that are full, that end anywhere, and that a few lanes share, by words of every width."""
    source, target = device.allocate(30000, vp.u8), device.allocate(30000, vp.u8)
    x = np.random.default_rng(3).integers(0, 256, 30000, np.uint8)
    source.write(x)
    for begin, length in product((0, 8, 4, 2, 1), (512, 520, 516, 518, 513, 1023, 2048, 2064, 4096)):
        expected = np.zeros(30000, np.uint8)
        target.fill(0)
        device.copy_strided(source, begin, (9008, 1), target, 16, (4112, 1), (3, length))
        over(expected, 16, [4112, 1], [3, length])[...] = over(x, begin, [9008, 1], [3, length])
        assert np.array_equal(target.read(), expected), f"{length} bytes from {begin}"
    assert {f"vyre_strided_runs_{width}" for width in WIDTHS} <= set(fake.ran)


def test_vectors_of_rank_eight_have_nine_axes(device: CudaDevice, fake: PtxDriver) -> None:
    shape = [2] * 8
    x = np.arange(4**8 * 3, dtype=np.float32)
    source, target = device.upload(x.reshape(-1, 3), vp.f32x3), device.allocate(2 * 3**8, vp.f32x3)
    source_strides, target_strides = [4**k for k in range(8)], [3 ** (7 - k) for k in range(8)]
    device.copy_strided(source, 0, source_strides, target, 0, target_strides, shape)
    expected = np.zeros((2 * 3**8, 3), np.float32)
    for index in product(range(2), repeat=8):
        to, at = (sum(i * s for i, s in zip(index, strides, strict=True)) for strides in (target_strides, source_strides))
        expected[to] = x.reshape(-1, 3)[at]
    assert np.array_equal(target.read(), expected) and fake.ran == ["vyre_strided_words_4"]


def test_the_same_numbers_at_other_addresses(device: CudaDevice, fake: PtxDriver) -> None:
    """What is remembered of a copy does not depend on where its buffers lie, but for the width of words."""
    x = np.arange(4000, dtype=np.float32)
    source, target = device.upload(x), device.allocate(2000, vp.f32)
    for shift in (0, 4, 2, 1, 0):
        target.fill(0)
        device.copy_strided(source[shift:3000], 0, (1000, 1), target, 0, (500, 1), (3, 500))
        assert np.array_equal(target.read()[:1500].reshape(3, 500), np.stack([x[shift + 1000 * k :][:500] for k in range(3)]))
    assert [name.rpartition("_")[2] for name in fake.ran] == ["16", "16", "8", "4", "16"]


def test_a_copy_in_several_launches(device: CudaDevice, fake: PtxDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_strided, "INDEX_LIMIT", 100)
    rng = random.Random(4)
    for _ in range(4):
        one_case(device, rng, [rng.randint(2, 9), rng.randint(2, 9), rng.randint(2, 99)], rng.choice(DTYPES))
    assert len(fake.ran) > 8


def test_a_second_copy_binds_and_loads_nothing(device: CudaDevice, fake: PtxDriver) -> None:
    source, target = device.upload(np.arange(600, dtype=np.float32)), device.allocate(300, vp.f32)

    def copies() -> None:
        device.copy_strided(source, 0, (30, 2), target, 0, (15, 1), (20, 15))

    copies()
    before = device.telemetry.snapshot()
    fake.log.clear()
    copies()
    assert fake.log == ["cuCtxGetCurrent", "cuLaunchKernel"]
    now = device.telemetry.snapshot()
    assert (now["copies"] - before["copies"], now["bytes_copied"] - before["bytes_copied"]) == (1, 1200)
    assert now["binds"] == before["binds"] and now["compiles"] == 0


def test_streams_of_others_are_waited_for(device: CudaDevice, fake: PtxDriver) -> None:
    class Stream:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 99

    source, target = device.upload(np.arange(600, dtype=np.float32)), device.allocate(300, vp.f32)
    copies = (source, 0, (30, 2), target, 0, (15, 1), (20, 15))
    device.copy_strided(*copies)
    source.use_on(Stream())
    fake.log.clear()
    device.copy_strided(*copies)
    ordered = ["cuEventRecord", "cuStreamWaitEvent"]
    assert [name for name in fake.log if name in (*ordered, "cuLaunchKernel")] == [*ordered, "cuLaunchKernel", *ordered]


def captured_copies(device: Any) -> None:
    """A graph of a strided copy between two launches, replayed, updated, captured into another, and refused once a buffer was freed."""
    x = np.arange(640, dtype=np.float32).reshape(20, 32)
    source, middle, plain = device.upload(x), device.allocate((15, 10), vp.f32), device.allocate(50, vp.f32)

    def copies() -> None:
        device.copy_strided(source, 0, (32, 2), middle, 0, (1, 10), (10, 15))
        device.copy_strided(source, 100, (1,), plain, 0, (1,), (50,))

    copies()  # what is loaded, is loaded before a capture
    middle.fill(0)
    before = device.telemetry.snapshot()
    graph = device.capture(copies)
    assert not middle.read().any() and graph.nodes == 2
    for turn in range(2):
        source.write(x + turn)
        graph()
        assert np.array_equal(middle.read(), (x + turn)[:10, :30:2].T), f"replay {turn}"
        assert np.array_equal(plain.read(), (x + turn).reshape(-1)[100:150])
    assert graph.update() == 0
    outer = device.capture(lambda: (graph(), middle.fill(0), copies()))
    source.write(x + 5)
    outer()
    assert np.array_equal(middle.read(), (x + 5)[:10, :30:2].T)
    assert device.telemetry.snapshot()["copies"] >= before["copies"]
    source.free()
    with pytest.raises(BindingError, match="freed"):
        graph()


def test_a_graph_has_the_numbers_by_value(device: CudaDevice) -> None:
    captured_copies(device)


def test_within_a_capture_a_new_kernel_is_refused(device: CudaDevice) -> None:
    source, target = device.upload(np.arange(600, dtype=np.float32)), device.allocate(300, vp.f32)
    copies = (source, 0, (30, 2), target, 0, (15, 1), (20, 15))
    with pytest.raises(LaunchError, match="vyre_strided_words_4 cannot be loaded"):
        device.capture(device.copy_strided, *copies)
    device.copy_strided(*copies)
    device.capture(device.copy_strided, *copies)()
    assert np.array_equal(target.read().reshape(20, 15), np.arange(600, dtype=np.float32).reshape(20, 30)[:, ::2])


def test_another_thread_does_not_copy_into_a_capture(device: CudaDevice) -> None:
    source, target = device.upload(np.arange(600, dtype=np.float32)), device.allocate(300, vp.f32)
    copies = (source, 0, (30, 2), target, 0, (15, 1), (20, 15))
    device.copy_strided(*copies)
    raised: list[BaseException] = []

    def elsewhere() -> None:
        try:
            device.copy_strided(*copies)
        except LaunchError as error:
            raised.append(error)

    def function() -> None:
        device.copy_strided(*copies)
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    graph = device.capture(function)
    assert graph.nodes == 1 and len(raised) == 1


@pytest.mark.parametrize(("status", "raised"), [("CUDA_ERROR_INVALID_VALUE", DriverError), ("CUDA_ERROR_ILLEGAL_ADDRESS", DeviceLost)])
def test_a_launch_that_fails(device: CudaDevice, fake: PtxDriver, status: str, raised: type[DriverError]) -> None:
    source, target = device.upload(np.arange(600, dtype=np.float32)), device.allocate(300, vp.f32)
    copies = (source, 0, (30, 2), target, 0, (15, 1), (20, 15))
    fake.fail["cuLaunchKernel"] = [CUresult[status]]
    with pytest.raises(raised, match=status):
        device.copy_strided(*copies)
    assert device.telemetry.copies == 0
    if raised is DeviceLost:
        with pytest.raises(DeviceLost, match="first cause"):
            device.copy_strided(*copies)
    else:
        device.copy_strided(*copies)
        assert target.read()[1] == 2


# ---- on a GPU


@pytest.mark.parametrize("seed", range(8))
def test_random_copies_on_a_gpu(gpu: Any, seed: int) -> None:
    rng = random.Random(1000 + seed)
    for _ in range(40):
        shape = [rng.randint(1, rng.choice([3, 9, 30])) for _ in range(rng.randint(0, 4))]
        one_case(gpu, rng, shape, rng.choice(DTYPES))
    for _ in range(20):
        shape = [rng.randint(1, 9), rng.randint(1, 5), rng.choice([127, 128, 511, 513, 600, 1024, 2049, 5000])]
        one_case(gpu, rng, shape, rng.choice(DTYPES))
    one_case(gpu, rng, [rng.randint(1, 3) for _ in range(8)], rng.choice(DTYPES))
    one_case(gpu, rng, [rng.randint(3, 9), rng.randint(100_000, 300_000)], rng.choice(DTYPES))


def test_every_width_on_a_gpu(gpu: Any) -> None:
    """Runs and single words from every misalignment, the bytes around them untouched."""
    x = np.random.default_rng(7).integers(0, 256, 1 << 20, np.uint8)
    source = gpu.upload(x)
    for begin, end, length in product((0, 8, 4, 2, 1), (0, 8, 4, 2, 1), (1, 2, 4, 8, 16, 48, 128, 500, 512, 4096, 9999)):
        shape, source_strides, target_strides = [7, 3, length], [40960, 12304, 1], [3 * (length + 16), length + 16, 1]
        size = end + 7 * 3 * (length + 16) + 5
        target = gpu.upload(np.full(size, 77, np.uint8))
        expected = np.full(size, 77, np.uint8)
        gpu.copy_strided(source, begin, source_strides, target, end, target_strides, shape)
        over(expected, end, target_strides, shape)[...] = over(x, begin, source_strides, shape)
        wrong = np.flatnonzero(target.read() != expected)
        assert not wrong.size, f"{length} bytes from {begin} to {end}: bytes {wrong[:5]}"
        target.free()


def test_a_graph_on_a_gpu(gpu: Any) -> None:
    captured_copies(gpu)


def test_between_the_launches_of_a_sequence_on_a_gpu(gpu: Any) -> None:
    """Copies come after the sequences before them, and before those after them, in a graph as well."""
    n = 1 << 20
    twice = gpu.compile_native(parse("""program twice(n) workgroup(256) {
      buffer x: u32[n] read_write
      let i = global_id.x
      x[i] = 2 * x[i]
    }"""))  # fmt: skip
    x, y = gpu.upload(np.arange(2 * n, dtype=np.uint32)), gpu.allocate(n, vp.u32)
    first, second = gpu.sequence(*[twice.bind(x=x)] * 3), gpu.sequence(twice.bind(x=y), vp.fill_step(x, 1))

    def work() -> None:
        first()
        gpu.copy_strided(x, 1, (2,), y, 0, (1,), (n,))
        second()

    work()
    odd = np.arange(1, 2 * n, 2, dtype=np.uint32)
    assert np.array_equal(y.read(), 16 * odd)
    graph = gpu.capture(work)
    x.write(np.arange(2 * n, dtype=np.uint32)[::-1].copy())
    graph()
    assert np.array_equal(y.read(), 16 * np.arange(2 * n, dtype=np.uint32)[::-1][1::2])


def test_past_four_gibibytes_on_a_gpu(gpu: Any) -> None:
    """Places that 32 bits do not count, by rows and by single bytes."""
    row = 3 << 30
    size = 2 * row + (1 << 20)
    _, free, _ = gpu.context.cuda.cuMemGetInfo()
    if free < 2 * size + (2 << 30):
        pytest.skip(f"the GPU has {free} bytes free")
    source, target = gpu.allocate(size, vp.u8), gpu.allocate(size, vp.u8)
    numbers = np.random.default_rng(5)
    rows = [numbers.integers(0, 256, 1 << 20, np.uint8) for _ in range(3)]
    for k, data in enumerate(rows):
        source[k * row : k * row + data.size].write(data)
    gpu.copy_strided(source, 0, (row, 1), target, 2 * row, (-row, 1), (3, 1 << 20))
    for k, data in enumerate(rows):
        assert np.array_equal(target[(2 - k) * row : (2 - k) * row + data.size].read(), data), f"row {k}"
    gpu.copy_strided(source, 1, (row, 3), target, 0, (1, 3), (3, 300_000))
    expected = np.stack([data[1:][: 3 * 300_000 : 3] for data in rows], 1).reshape(-1)
    assert np.array_equal(target[:900_000].read(), expected)
    # More words than one launch takes.
    gpu.copy_strided(source, 0, (2,), target, 0, (1,), (size // 2,))
    for begin in (0, 1 << 30, (1 << 31) - 500, size // 2 - 1000):
        there = source[2 * begin : 2 * begin + 2000].read()[::2]
        assert np.array_equal(target[begin : begin + 1000].read(), there), f"from {begin}"
    source.free()
    target.free()


def test_threads_on_a_gpu(gpu: Any) -> None:
    """Copies of several threads at once, each with numbers of its own."""
    wrong: list[str] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(30):
                one_case(gpu, rng, [rng.randint(1, 20), rng.randint(1, 20), rng.choice([3, 64, 700])], rng.choice(DTYPES))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test says so
            wrong.append(repr(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
