"""Memory and transfers on CUDA over the stand-in for the driver: pools, order of streams, chunks, faults. No GPU is needed."""

from __future__ import annotations

import ctypes
import gc
import random
import struct
import threading
import time
from typing import Any

import numpy as np
import pytest
from axpy import AXPY, axpy_kernel
from fake_cuda import CUresult, FakeDriver
from fake_device import installed
from streamed_cuda import Mark, StreamedDriver

import vyre_py as vp
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.cuda.memory import ring, transfer
from vyre_py.drivers.cuda.memory.copies import fill_work, shortest_period
from vyre_py.drivers.cuda.memory.pieces import pieces
from vyre_py.drivers.errors import BindingError, DeviceLost, DriverError, LaunchError, OutOfMemory


class Stream:
    """A stream of another library."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def install(monkeypatch: pytest.MonkeyPatch, driver: FakeDriver) -> Any:
    return installed(monkeypatch, driver, axpy_kernel)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    return install(monkeypatch, FakeDriver(total=1 << 24))


@pytest.fixture
def device(fake: Any) -> Any:
    made = CudaDevice(0)
    yield made
    made.close()
    assert not fake.blocks and not fake.alive_handles


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits so small that a few kilobytes go every way that gigabytes do."""
    for name, value in {
        "_SMALL_BYTES": 256, "_THREADED_BYTES": 4096, "_CHUNK_BYTES": 512, "_THREADED_CHUNK_BYTES": 1024, "_BULK_CHUNK_BYTES": 1024,
    }.items():  # fmt: skip
        monkeypatch.setattr(transfer, name, value)
    monkeypatch.setattr(ring, "SECTION_BYTES", 512)
    monkeypatch.setattr(ring, "SECTIONS", 3)
    monkeypatch.setattr(transfer, "core_count", lambda: 4)


# ---- the device pool


def test_freed_memory_is_used_again(device: Any, fake: Any) -> None:
    first = device.allocate(1000, vp.f32)
    address = first.handle
    first.fill(3)
    first.free()
    memory, calls = device.memory, len(fake.log)
    assert memory.cached_bytes == 4096 and memory.allocated_bytes == 0
    again = device.allocate(1024, vp.f32)
    assert again.handle == address and "cuMemAllocFromPoolAsync" not in fake.log[calls:] and not again.read().any()
    shot = device.telemetry.snapshot()
    assert (shot.device_pool_hits, shot.device_pool_misses, shot.device_pool_bytes_asked) == (1, 1, 8096)
    assert (shot.device_pool_cached_bytes, shot.device_pool_held_bytes) == (0, 4096)


def test_what_is_kept_is_bounded_and_can_be_set(device: Any, fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device.memory.keep_bytes = 2048
    for _ in range(3):
        buffers = [device.allocate(1024, vp.u8) for _ in range(4)]
        for buffer in buffers:
            buffer.free()
        assert device.memory.cached_bytes == 2048 == device.memory.held_bytes and len(fake.blocks) == 2
    device.memory.keep_bytes = 0
    assert not fake.blocks and device.memory.held_bytes == 0
    monkeypatch.setenv("VYRE_DEVICE_POOL_BYTES", "12345")
    monkeypatch.setenv("VYRE_PINNED_POOL_BYTES", "54321")
    monkeypatch.setenv("VYRE_POOL_RELEASE_THRESHOLD", "777")
    other = CudaDevice(0)
    assert (other.memory.keep_bytes, other.pinned_pool.keep_bytes, other.memory.release_threshold) == (12345, 54321, 777)
    other.memory.release_threshold = 0
    assert other.memory.release_threshold == 0
    other.close()
    monkeypatch.setenv("VYRE_PINNED_POOL_BYTES", "lots")
    with pytest.raises(DriverError, match="VYRE_PINNED_POOL_BYTES"):
        CudaDevice(0)


def test_uploads_are_not_cleared_first(device: Any, fake: Any) -> None:
    fake.log.clear()
    buffer = device.upload(np.ones(1000, np.float32))
    assert "cuMemsetD8Async" not in fake.log and buffer.read().all()


def test_out_of_memory_drops_what_is_kept_then_caches_then_says_all(device: Any, fake: Any) -> None:
    device.resident.put(np.zeros(1 << 22, np.uint8), "spare", evictable=True)
    kept = device.allocate(1 << 22, vp.u8)
    kept.free()
    lost = [device.allocate(1 << 22, vp.u8)]
    lost.append(lost)  # type: ignore[arg-type]  # a cycle, which only the collector frees
    del lost
    large = device.allocate(10 << 20, vp.u8)
    assert device.telemetry.oom_retries == 1 and "spare" in device.resident
    with pytest.raises(OutOfMemory) as caught:
        device.allocate(8 << 20, vp.u8)
    error = caught.value
    assert "spare" not in device.resident and device.telemetry.oom_retries == 3
    assert (error.asked, error.free, error.held, error.limit) == (8 << 20, fake.total - fake.used, fake.used, fake.total)
    assert all(f"{name} {value:,}" in str(error) for name, value in (("asked", 8 << 20), ("free", error.free), ("held", error.held), ("limit", error.limit)))
    device.allocate(2 << 20, vp.u8).free()
    large.free()
    device.allocate(8 << 20, vp.u8)


def test_a_budget_of_our_own(device: Any) -> None:
    device.memory.limit_bytes = 10_000
    first = device.allocate(4096, vp.u8)
    device.allocate(4096, vp.u8).free()
    second = device.allocate(5000, vp.u8)  # what was kept made room
    with pytest.raises(OutOfMemory, match="the budget of device\\.memory\\.limit_bytes is 10000") as caught:
        device.allocate(2048, vp.u8)
    assert caught.value.limit == 10_000 and caught.value.asked == 2048
    second.free()
    device.allocate(2048, vp.u8)
    assert first.read().size == 4096


def test_nothing_is_allocated_written_or_read_within_a_capture(device: Any, fake: Any) -> None:
    class Capture:
        def refusal(self, doing: str) -> LaunchError:
            return LaunchError(doing, cause="captured")

    buffer, spare = device.allocate(100, vp.u8), device.allocate(100, vp.u8)
    address = spare.handle
    device.context.capture = Capture()
    for work in (lambda: device.memory.allocate(100), lambda: device._write_array(buffer.handle, 0, np.zeros(100, np.uint8)), device.memory.trim,
                 lambda: device._read_array(buffer.handle, 0, np.zeros(100, np.uint8)), lambda: device.memory.fill(buffer.handle, 100, b"1")):  # fmt: skip
        with pytest.raises(LaunchError, match="captured"):
            work()
    fake.log.clear()
    spare.free()
    assert fake.log == [] and device.memory.cached_bytes == 0
    device.context.end_capture()
    assert device.memory.cached_bytes == 512 and device.allocate(100, vp.u8).handle == address


def test_memory_that_streams_of_others_use_is_ordered_with_them_alone(device: Any, fake: Any) -> None:
    x, y, z = [device.upload(np.ones(256, np.float32)) for _ in range(3)]
    launch = device.compile_native(AXPY).bind(x=x, y=y, a=1.0)
    z.read()
    fake.log.clear()
    launch.on(Stream(42))
    assert fake.log == ["cuCtxGetCurrent", "cuStreamIsCapturing", "cuEventRecord", "cuStreamWaitEvent"]
    launch()
    fake.log.clear()
    z.read()
    assert fake.log == ["cuCtxGetCurrent", "cuMemcpyDtoHAsync", "cuEventRecord", "cuEventSynchronize"]
    fake.log.clear()
    y.free()
    assert fake.log == ["cuCtxGetCurrent", "cuStreamIsCapturing", "cuStreamIsCapturing", "cuEventRecord", "cuStreamWaitEvent"]
    assert device.memory.cached_bytes == 1024 and not device.memory.foreign_use.streams(z.handle, 4)
    launch.set(y=z)
    assert device.memory.foreign_use.streams(z.handle, 4) == [42]
    fake.fail["cuEventRecord"] = [CUresult.CUDA_ERROR_INVALID_HANDLE]  # its owner destroyed the stream
    fake.log.clear()
    z.read()
    assert "cuCtxSynchronize" in fake.log
    x.use_on(Stream(43))
    fake.log.clear()
    device.synchronize()
    assert fake.log.count("cuStreamSynchronize") == 3


def test_memory_waits_for_the_end_of_a_capture_of_somebody_else(device: Any, fake: Any) -> None:
    x = device.upload(np.ones(256, np.float32))
    x.use_on(Stream(42))
    fake.captured.add(42)
    with pytest.raises(LaunchError, match="being captured"):
        x.read()
    x.free()
    assert device.memory.cached_bytes == 0
    other = device.allocate(256, vp.f32)
    assert device.memory.cached_bytes == 0 and len(fake.blocks) == 2
    other.free()
    fake.captured.clear()
    device.trim()
    assert len(fake.blocks) == 0 and device.memory.held_bytes == 0


def test_memory_of_others_is_left_once_its_streams_are_done(device: Any, fake: Any) -> None:
    class Tensor:
        """Memory that another library lends."""

        released = False

        def __init__(self, array: np.ndarray[Any, Any]) -> None:
            self.array = array
            self.__cuda_array_interface__ = {"shape": array.shape, "typestr": "<f4", "data": (array.ctypes.data, False), "version": 3}

    tensor = Tensor(np.ones(100, np.float32))
    one, two = device.wrap(tensor), device.wrap(tensor)
    one.use_on(Stream(42))
    assert device.memory.foreign_use.streams(two.handle + 8, 4) == [42]
    fake.log.clear()
    one.free()
    assert fake.log.count("cuStreamQuery") == fake.log.count("cuStreamSynchronize") == 1  # of our stream, of which nothing is left, and of that one
    assert device.memory.foreign_use
    two.free()
    assert not device.memory.foreign_use


# ---- pinned memory


def test_pinned_arrays_go_back_with_their_last_view(device: Any, fake: Any) -> None:
    array = device.pinned((3, 5), vp.f32)
    assert array.shape == (3, 5) and array.dtype == np.float32 and not array.any() and array.flags.writeable
    vector, half = device.pinned(4, vp.f32x3), device.pinned(7, vp.bf16)
    assert vector.shape == (4, 3) and half.dtype == vp.bf16.dtype
    assert device.pinned(0, vp.u8).size == 0
    view = array[1:].reshape(-1)[::2]
    address = array.__array_interface__["data"][0]
    del array
    gc.collect()
    assert device.pinned(15, vp.f32).__array_interface__["data"][0] != address
    view[:] = 7
    del view
    gc.collect()
    again = device.pinned(15, vp.f32)
    assert any(not part.any() for part in (again,)) and len(fake.pinned) == 4
    for wrong in (((-1,), vp.f32), ((3,), np.float32)):
        with pytest.raises(BindingError):
            device.pinned(*wrong)


def test_pinned_arrays_outlive_their_device(fake: Any) -> None:
    made = CudaDevice(0)
    array = made.pinned(1000, vp.f32)
    made.close()
    array[:] = 3
    assert len(fake.pinned) == 1 and fake.log.count("cuDevicePrimaryCtxRetain") == fake.log.count("cuDevicePrimaryCtxRelease") + 1
    del array
    gc.collect()
    assert not fake.pinned and fake.log.count("cuDevicePrimaryCtxRetain") == fake.log.count("cuDevicePrimaryCtxRelease")


def test_pinned_memory_runs_out(device: Any, fake: Any) -> None:
    device.pinned_pool.take(5000).give()
    fake.fail["cuMemHostAlloc"] = [CUresult.CUDA_ERROR_OUT_OF_MEMORY]
    block = device.pinned_pool.take(9000)
    assert "cuMemFreeHost" in fake.log and block.bytes.size == 9000
    fake.fail["cuMemHostAlloc"] = [CUresult.CUDA_ERROR_OUT_OF_MEMORY] * 3
    with pytest.raises(OutOfMemory, match="page-locked") as caught:
        device.pinned_pool.take(1 << 20)
    assert caught.value.asked == 1 << 20 and caught.value.held == block.capacity
    fake.fail["cuMemHostGetDevicePointer"] = [CUresult.CUDA_ERROR_INVALID_VALUE]
    with pytest.raises(DriverError):
        device.pinned_pool.take(1 << 20)
    assert len(fake.pinned) == 1 and device.pinned_pool.held_bytes == block.capacity
    block.give()
    block.give()
    assert device.pinned_pool.cached_bytes == block.capacity
    shot = device.telemetry.snapshot()
    assert shot.pinned_pool_held_bytes == block.capacity and shot.pinned_pool_misses == 4


def test_pinned_blocks_wait_for_their_events(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = install(monkeypatch, StreamedDriver(eager=0.0, total=1 << 24))
    device = CudaDevice(0)
    event = device.context.events.take()
    block = device.pinned_pool.take(100)
    driver.cuEventRecord(event, device.context.stream)
    block.give(after=event)
    assert device.pinned_pool.take(100) is not block
    driver.cuCtxSynchronize()
    assert device.pinned_pool.take(100) is block and device.context.events.idle == device.context.events.made
    device.close()


def test_trimming_gives_pinned_memory_back_too(device: Any, fake: Any) -> None:
    buffer = device.upload(np.arange(10))
    buffer.write(np.arange(10)[::-1])
    buffer.read()
    device._transfers.trim()
    device.pinned_pool.trim()
    assert not fake.pinned and device.pinned_pool.held_bytes == 0
    assert device.context.events.idle == device.context.events.made
    buffer.write(np.arange(10))
    assert buffer.read()[3] == 3


# ---- pieces, patterns


@pytest.mark.parametrize("shape", [(1,), (1000,), (7, 333), (5, 4, 3, 2), (2, 3000), (1, 1, 50), (300, 1)])
def test_pieces_cover_an_array_in_order(shape: tuple[int, ...]) -> None:
    rng = random.Random(str(shape))
    base = np.arange(np.prod([2 * n for n in shape]), dtype=np.float64).reshape([2 * n for n in shape])
    for _ in range(8):
        array = base[tuple(slice(None, n, 1) if rng.random() < 0.5 else slice(0, 2 * n, 2) for n in shape)]
        array = array.transpose(rng.sample(range(len(shape)), len(shape)))
        most = rng.choice([8, 64, 100, 4096, 1 << 20])
        flat, end = np.ascontiguousarray(array).reshape(-1).view(np.uint8), 0
        for offset, piece in pieces(array, most):
            assert offset == end and piece.nbytes <= most
            end += piece.nbytes
            assert np.array_equal(np.ascontiguousarray(piece).reshape(-1).view(np.uint8), flat[offset:end])
        assert end == array.nbytes


def test_patterns_are_filled_by_words_and_doubling() -> None:
    assert shortest_period(b"abab") == b"ab" and shortest_period(b"aaaa") == b"a" and shortest_period(b"abc") == b"abc"
    assert fill_work(64, 40, b"\0" * 8) == [("cuMemsetD8Async", (64, 0, 40))]
    assert fill_work(64, 40, b"\1\0" * 4) == [("cuMemsetD16Async", (64, 1, 20))]
    assert fill_work(64, 40, b"\1\0\0\0") == [("cuMemsetD32Async", (64, 1, 10))]
    assert fill_work(0, 0, b"ab") == []
    work = fill_work(64, 40, struct.pack("<Q", 1 << 32))
    assert work[:2] == [("cuMemsetD32Async", (64, 0, 1)), ("cuMemsetD32Async", (68, 1, 1))]
    assert [arguments for _, arguments in work[2:]] == [(72, 64, 8), (80, 64, 16), (96, 64, 8)]


# ---- transfers


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("count", [1, 63, 64, 65, 200, 1000, 1025, 5000])
def test_every_size_goes_both_ways(device: Any, count: int, pinned: bool) -> None:
    source = device.pinned(count, vp.f32) if pinned else np.empty(count, np.float32)
    source[:] = np.arange(count)
    target = device.pinned(count, vp.f32) if pinned else np.empty(count, np.float32)
    buffer = device.upload(source)
    assert np.array_equal(buffer.read(target), source) and np.array_equal(buffer.read(), source)
    buffer.write(source[::-1])
    assert np.array_equal(buffer.read(), source[::-1])
    two = np.zeros((count, 2), np.float32)
    buffer.read(two[:, 1])
    assert np.array_equal(two[:, 1], source[::-1]) and not two[:, 0].any()
    shot = device.telemetry.snapshot()
    assert (shot.uploads, shot.downloads, shot.bytes_uploaded, shot.bytes_downloaded) == (2, 4, 8 * count, 16 * count)
    assert device.pinned_pool.held_bytes - device.pinned_pool.cached_bytes <= 2 * 4 * count + 8192 + 3 * 512 + 64 * 1024


@pytest.mark.usefixtures("small")
def test_pinned_memory_is_not_copied_on_the_host(device: Any, fake: Any) -> None:
    array, buffer = device.pinned(3000, vp.f32), device.allocate(3000, vp.f32)
    misses = device.telemetry.pinned_pool_misses + device.telemetry.pinned_pool_hits
    for work in (lambda: buffer.write(array), lambda: buffer.read(array)):
        fake.log.clear()
        work()
        assert sum(name.startswith("cuMemcpy") for name in fake.log) == 1 and fake.log.count("cuEventSynchronize") == 1
    assert device.telemetry.pinned_pool_misses + device.telemetry.pinned_pool_hits == misses


@pytest.mark.usefixtures("small")
def test_small_writes_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = install(monkeypatch, StreamedDriver(eager=0.0, total=1 << 24))
    device = CudaDevice(0)
    buffer, data = device.allocate(64, vp.f32), np.ones(64, np.float32)
    buffer.write(data)
    data[:] = 5  # on its way from pinned memory, where nobody changes it
    assert any(driver.queues.values())
    assert buffer.read().tolist() == [1] * 64
    device.close()


@pytest.mark.usefixtures("small")
def test_many_small_ranges_are_read_with_one_wait(device: Any, fake: Any) -> None:
    buffer = device.upload(np.arange(1000, dtype=np.float32))
    fake.log.clear()
    got = device.download_ranges([(buffer, 10 * n, 10 * n + 5) for n in range(60)])
    assert fake.log.count("cuEventSynchronize") == 1 and fake.log.count("cuMemcpyDtoHAsync") == 60
    assert all(part.tolist() == list(range(10 * n, 10 * n + 5)) for n, part in enumerate(got))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "name", ["cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuEventRecord", "cuEventSynchronize", "cuMemHostAlloc", "cuEventCreate", "cuStreamWaitEvent"]
)
@pytest.mark.parametrize("count", [20, 500, 5000])
def test_a_failing_call_is_raised_and_nothing_is_lost(device: Any, fake: Any, name: str, count: int) -> None:
    data = np.arange(count, dtype=np.float32)
    buffer = device.upload(data)
    raised: set[str] = set()
    for turn in range(12):
        for work in (lambda: buffer.write(data), buffer.read):
            fake.fail[name] = [0] * turn + [CUresult.CUDA_ERROR_NOT_SUPPORTED]
            try:
                work()
            except DriverError as error:
                raised.add(error.status)
            fake.fail.clear()
    buffer.write(data)
    assert np.array_equal(buffer.read(), data) and raised <= {"CUDA_ERROR_NOT_SUPPORTED (801)"}
    assert raised or name in ("cuEventCreate", "cuMemHostAlloc", "cuStreamWaitEvent")  # which are not always called
    del work
    out = [block for block in gc.get_objects() if type(block).__name__ == "PinnedBlock" and block._is_out and block._pool is device.pinned_pool]
    assert len(out) <= 1  # what small writes go through


def test_a_lost_device_ends_a_transfer(fake: Any, small: None) -> None:
    device = CudaDevice(0)
    buffer = device.allocate(5000, vp.f32)
    fake.fail["cuEventRecord"] = [0] * 4 + [CUresult.CUDA_ERROR_ILLEGAL_ADDRESS] * 100
    with pytest.raises(DeviceLost):
        buffer.read()
    with pytest.raises(DeviceLost, match="first cause"):
        buffer.write(np.zeros(5000, np.float32))
    device.close()


@pytest.mark.usefixtures("small")
def test_freeing_while_another_thread_reads(device: Any, fake: Any) -> None:
    """The memory goes when the read is over."""
    original, freed, reading = fake.cuEventSynchronize, [], []

    def free_in_between(event: Any) -> Any:
        if reading and not freed:
            freed.append(True)
            buffer.free()
            assert device.memory.cached_bytes == 0
        return original(event)

    object.__setattr__(fake, "cuEventSynchronize", free_in_between)  # before native code asks for its address
    buffer = device.upload(np.arange(5000, dtype=np.float32))
    reading.append(True)
    assert np.array_equal(buffer.read(), np.arange(5000))
    assert freed and device.memory.cached_bytes == 20480
    with pytest.raises(BindingError, match="freed"):
        buffer.read()


@pytest.mark.usefixtures("small")
def test_transfers_in_many_threads(device: Any) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(15):
            data = rng.integers(0, 1000, int(rng.choice([10, 100, 1000, 3000]))).astype(np.float32)
            buffer = device.upload(data)
            if not np.array_equal(buffer.read(), data):
                wrong.append(seed)
            buffer.free()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and device.memory.allocated_bytes == 0


# ---- the order of streams


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(30))
def test_any_order_that_events_allow_gives_the_same(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Random work over buffers that come and go, some used on a stream of somebody else's; the model runs it in the order of the program."""
    rng = random.Random(seed)
    driver = install(monkeypatch, StreamedDriver(seed, eager=rng.choice([0.0, 0.2, 0.6]), total=1 << 24))
    device = CudaDevice(0)
    pipeline = device.compile_native(AXPY)
    sizes = (40, 300, 2000)
    live: list[tuple[Any, np.ndarray[Any, Any]]] = []
    launches: list[tuple[Any, Any, Any, float]] = []

    def make() -> None:
        count = rng.choice(sizes)
        data = np.float32(rng.randrange(100)) + np.arange(count, dtype=np.float32) % 7
        live.append((device.upload(data), data.copy()) if rng.random() < 0.7 else (device.allocate(count, vp.f32), np.zeros(count, np.float32)))

    def like(count: int, *but: Any) -> list[Any]:
        return [pair for pair in live if pair[0].shape[0] == count and all(pair is not other for other in but)]

    for _ in range(6):
        make()
    for _ in range(60):
        what = rng.choice(["make", "free", "write", "read", "copy", "fill", "bind", "launch", "launch", "set", "part", "after"])
        pair = rng.choice(live)
        buffer, model = pair
        others = like(len(model), pair)
        if what == "make":
            make()
        elif what == "free" and len(live) > 3:
            live.remove(pair)
            launches = [one for one in launches if one[1] is not pair and one[2] is not pair]
            buffer.free()
        elif what == "write":
            model[:] = rng.randrange(1000)
            buffer.write(model)
        elif what == "part":
            model[5:30] = rng.randrange(1000)
            buffer[5:30].write(model[5:30])
        elif what == "read":
            assert np.array_equal(buffer.read(), model), what
        elif what == "after" and all(pair is not used for one in launches for used in one[1:3]):
            event = device.record_event()
            for launch, x, y, a in launches:
                launch()
                y[1][:] += np.float32(a) * x[1]
            assert np.array_equal(buffer.read(after=event), model), what
        elif what == "copy" and others:
            other = rng.choice(others)
            buffer.copy_from(other[0])
            model[:] = other[1]
        elif what == "fill":
            model[:] = value = rng.randrange(50)
            buffer.fill(value)
        elif what == "bind" and others and len(launches) < 4:
            other = rng.choice(others)
            used = {id(p) for one in launches for p in one[1:3]}
            if id(pair) not in used and id(other) not in used:  # launches on two streams are for the user to order
                launch = pipeline.bind(x=other[0], y=buffer, a=2.0)
                launches.append((launch.on(Stream(900 + rng.randrange(2))) if rng.random() < 0.6 else launch, other, pair, 2.0))
        elif what == "launch" and launches:
            launch, x, y, a = rng.choice(launches)
            launch()
            y[1][:] += np.float32(a) * x[1]
        elif what == "set" and launches:
            number = rng.randrange(len(launches))
            launch, x, y, a = launches[number]
            used = {id(p) for one in launches for p in one[1:3]}
            spare = [p for p in like(len(x[1]), x, y) if id(p) not in used]
            if spare:
                new = rng.choice(spare)
                launch.set(x=new[0])
                launches[number] = (launch, new, y, a)
    device.synchronize()
    for buffer, model in live:
        assert np.array_equal(buffer.read(), model)
    device.close()
    assert not driver.blocks and not driver.pinned


@pytest.mark.usefixtures("small")
def test_a_read_does_not_wait_for_what_is_enqueued_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy stream goes on while our own is busy."""
    driver = install(monkeypatch, StreamedDriver(eager=0.0, total=1 << 24))
    device = CudaDevice(0)
    data, busy = np.arange(500, dtype=np.float32), device.allocate(64, vp.f32)
    buffer = device.upload(data)
    order, done = device.context.order, driver.cuMemcpyDtoHAsync
    copied: list[bool] = []

    def then_more(first: int | None, then: int | None) -> None:
        order(first, then)
        # Another thread's work, enqueued while the read is on its way: it begins once the first chunk has arrived.
        driver.enqueue(device.context.stream, mark)

    def copy(*arguments: Any) -> Any:
        status = done(*arguments)
        driver.enqueue(arguments[3], lambda: (copied.append(True), setattr(mark, "done", True)))
        return status

    mark = Mark()
    monkeypatch.setattr(device.context, "order", then_more)
    object.__setattr__(driver, "cuMemcpyDtoHAsync", copy)
    assert np.array_equal(buffer.read(), data) and len(copied) == 4
    busy.fill(1)
    device.close()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("count", [1, 64, 200, 1025, 5000])
def test_a_read_after_an_event_waits_for_that_alone(monkeypatch: pytest.MonkeyPatch, count: int, pinned: bool) -> None:
    driver = install(monkeypatch, StreamedDriver(eager=0.0, total=1 << 24))
    device = CudaDevice(0)
    x, y, z = [device.upload(np.full(count, value, np.float32)) for value in (1, 2, 3)]
    pipeline = device.compile_native(AXPY)
    pipeline.bind(x=x, y=y, a=10.0)()
    event = device.record_event()
    held = driver.hold(device.context.stream)
    later = pipeline.bind(x=y, y=z, a=1.0)
    later()
    out = device.pinned(count, vp.f32) if pinned else np.zeros(count, np.float32)
    assert y.read(out, after=event) is out and out.tolist() == [12] * count and not held.done
    held.done = True
    assert z.read().tolist() == [15] * count
    held = driver.hold(device.context.stream)
    driver.cuMemsetD8Async(y.handle, 0, 4 * count, 900)  # somebody else's work, which goes on
    assert not y.read(after=device.record_event(Stream(900))).any() and not held.done
    held.done = True
    device.close()


@pytest.mark.usefixtures("small")
def test_a_read_after_an_event_needs_nothing_of_a_stream_that_others_wait_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write in another thread waits for the kernel that runs; the read goes past both."""
    driver = install(monkeypatch, StreamedDriver(eager=0.0, total=1 << 24))
    device = CudaDevice(0)
    x, y = device.upload(np.arange(5000, dtype=np.float32)), device.allocate(5000, vp.f32)
    event = device.record_event()
    device.synchronize()
    held, waits = driver.hold(device.context.stream), device.telemetry.waits
    writer = threading.Thread(target=y.write, args=(np.ones(5000, np.float32),))
    writer.start()
    while device.telemetry.waits < waits + 1:
        time.sleep(0.001)
    assert np.array_equal(x.read(after=event), np.arange(5000)) and writer.is_alive()
    held.done = True
    writer.join()
    assert y.read().all()
    device.close()


def arrived(driver: StreamedDriver, buffer: Any) -> bytes:
    """What a buffer's memory holds once the streams have run that are not the device's own two."""
    context = buffer.device.context
    for stream in set(driver.queues) - {int(context.stream), int(context.copy_stream)}:
        driver.cuStreamSynchronize(stream)
    return ctypes.string_at(buffer.handle, buffer.size_bytes)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("count", [65, 200, 1025, 5000])
def test_an_upload_does_not_wait_for_what_is_enqueued(monkeypatch: pytest.MonkeyPatch, count: int, pinned: bool) -> None:
    """While a kernel runs it goes to memory of the driver's; what comes later on our stream finds it there. Once all is over it takes what was freed."""
    driver = install(monkeypatch, StreamedDriver(eager=0.0, total=1 << 24))
    device = CudaDevice(0)
    data = device.pinned(count, vp.f32) if pinned else np.empty(count, np.float32)
    data[:] = np.arange(count)
    freed, y = device.upload(data), device.upload(np.ones(count, np.float32))
    place = freed.handle
    held = driver.hold(device.context.stream)
    freed.free()
    x = device.upload(data)
    assert x.handle != place and arrived(driver, x) == data.tobytes()
    device.compile_native(AXPY).bind(x=x, y=y, a=2.0)()
    held.done = True
    assert np.array_equal(y.read(), 1 + 2 * data)
    again = device.upload(data)
    assert again.handle == place and arrived(driver, again) == data.tobytes()
    device.close()
    assert not driver.blocks


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(6))
def test_an_upload_takes_what_was_freed_once_its_last_use_is_over(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """A loop of upload, launch, free: while the kernels are late two blocks take turns, each waiting for its own last use and no later one."""
    driver = install(monkeypatch, StreamedDriver(seed, eager=0.0, total=1 << 24))
    device = CudaDevice(0)
    pipeline, total = device.compile_native(AXPY), device.allocate(1000, vp.f32)
    holds, places = [], []
    for turn in range(6):
        x = device.upload(np.full(1000, turn + 1, np.float32))
        places.append(x.handle)
        holds.append(driver.hold(device.context.stream))
        pipeline.bind(x=x, y=total, a=1.0)()
        x.free()
        if turn:
            holds[turn - 1].done = True  # before the kernel that used the block that the next turn takes
    assert len(set(places)) == 2 and places[2:] == places[:4] and device.memory.held_bytes == 3 * 4096
    for hold in holds:
        hold.done = True
    assert total.read().tolist() == [21] * 1000
    device.close()


@pytest.mark.usefixtures("small")
def test_what_is_freed_behind_a_fence_is_not_over_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = install(monkeypatch, StreamedDriver(eager=0.0, total=1 << 24))
    device = CudaDevice(0)
    data = np.arange(1000, dtype=np.float32)
    freed = device.upload(data)  # which leaves a fence behind it
    place = freed.handle
    held = driver.hold(device.context.stream)
    freed.free()
    while driver.step():
        pass  # all but what is held: the fence is over, the use of what was freed is not
    x = device.upload(data)
    assert x.handle != place and arrived(driver, x) == data.tobytes()
    held.done = True
    device.close()


@pytest.mark.usefixtures("small")
def test_both_ways_are_busy_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload comes to its end while a read waits on its stream, and the other way round."""
    driver = install(monkeypatch, StreamedDriver(eager=0.0, total=1 << 24))
    device = CudaDevice(0)
    data = np.arange(5000, dtype=np.float32)
    x, out = device.upload(data), np.zeros(5000, np.float32)
    device.synchronize()
    held = driver.hold(device.context.copy_stream)
    reader = threading.Thread(target=x.read, args=(out,))
    reader.start()
    up = device.upload(data + 1)
    assert arrived(driver, up) == (data + 1).tobytes() and reader.is_alive()
    held.done = True
    reader.join()
    assert np.array_equal(out, data) and np.array_equal(up.read(), data + 1)
    device.close()


@pytest.mark.parametrize("reached", [True, False])
def test_copies_between_gpus_are_ordered_with_both(monkeypatch: pytest.MonkeyPatch, reached: bool) -> None:
    for seed in range(10):
        driver = install(monkeypatch, StreamedDriver(seed, eager=0.2, total=1 << 24))
        if not reached:
            monkeypatch.setattr(driver, "cuDeviceCanAccessPeer", lambda device, other: (CUresult.CUDA_SUCCESS, 0))
        first, second = CudaDevice(0), CudaDevice(1)
        x, y = first.upload(np.arange(300, dtype=np.float32)), second.allocate(300, vp.f32)
        x.fill(3)
        second.copy_peer(x, y)
        x.fill(4)
        second.copy_peer(x[:100], y[200:])
        x.free()
        first.allocate(300, vp.f32)
        assert y.read().tolist() == [3] * 200 + [4] * 100
        assert driver.log.count("cuCtxEnablePeerAccess") == driver.log.count("cuMemPoolSetAccess") == reached
        assert second.telemetry.copies == 2
        first.close()
        second.close()


@pytest.mark.usefixtures("small")
def test_more_small_writes_than_pinned_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, StreamedDriver(eager=0.0, total=1 << 24))
    device = CudaDevice(0)
    buffers = [device.allocate(50, vp.f32) for _ in range(40)]
    for number, buffer in enumerate(buffers):
        buffer.write(np.full(50, number, np.float32))
    assert all(buffer.read().tolist() == [number] * 50 for number, buffer in enumerate(buffers))
    device.close()


@pytest.mark.parametrize("seed", range(8))
def test_what_a_launch_elsewhere_is_set_to_has_arrived(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    install(monkeypatch, StreamedDriver(seed, eager=0.0, total=1 << 24))
    device = CudaDevice(0)
    x, y = device.allocate(20, vp.f32), device.allocate(20, vp.f32)
    launch = device.compile_native(AXPY).bind(x=x, y=y, a=1.0).on(Stream(42))
    for number in range(5):
        launch.set(x=device.upload(np.full(20, number, np.float32)))()
    launch.on(Stream(43))()
    launch.on(Stream(int(device.context.stream)))()
    assert y.read().tolist() == [0 + 1 + 2 + 3 + 4 + 4 + 4] * 20
    device.close()
