"""Memory and transfers on a real GPU: sizes of every way, order with kernels and with streams of others, and memory that stays flat."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axpy import AXPY
from device_kinds import open_device
from test_strided import one_case
from tree import PATH

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.drivers.errors import BindingError, OutOfMemory
from vyre_py.drivers.registry import is_available
from vyre_py.ir.text.parser import parse

MIB = 1 << 20
# Around each limit of `drivers.cuda.memory.transfer`, and odd.
SIZES = (1, 7, 65535, 65536, 65537, 300_001, MIB + 3, 4 * MIB - 1, 4 * MIB, 4 * MIB + 5, 37 * MIB + 11, 150 * MIB + 13)


@pytest.fixture(scope="module")
def device() -> Any:
    return open_device("cuda")


@pytest.fixture
def busy(device: Any) -> Iterator[Any]:
    """Work that the GPU is busy with for some milliseconds, over buffers of its own: call it to enqueue more."""
    x, y = device.allocate(1 << 26, vp.f32), device.allocate(1 << 26, vp.f32)
    launch = device.compile_native(AXPY).bind(x=x, y=y, a=1.0)

    def more() -> None:
        for _ in range(20):
            launch()

    more()
    yield more
    device.synchronize()
    x.free()
    y.free()


def noise(size_bytes: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, size_bytes, np.uint8)


@pytest.mark.parametrize("pinned", [False, True], ids=["pageable", "pinned"])
@pytest.mark.parametrize("size", SIZES)
def test_every_size_goes_both_ways_while_kernels_run(device: Any, busy: Any, size: int, pinned: bool) -> None:
    data = noise(size, size)
    source = device.pinned(size, vp.u8) if pinned else data.copy()
    source[:] = data
    buffer = device.upload(source)
    source[:] = 0  # which the copy no longer reads
    busy()
    target = device.pinned(size, vp.u8) if pinned else None
    got = buffer.read(target)
    assert np.array_equal(got, data), f"{size} bytes differ first at {np.flatnonzero(got != data)[0]}"
    buffer.write(data[::-1])  # backward, so that no plain copy does it
    assert np.array_equal(buffer.read(), data[::-1]), f"{size} bytes backward"
    buffer.free()


@pytest.mark.parametrize("shape", [(3000, 4000), (7, 1000, 999), (2, 3, 5, 70_001), (20_000_001,)])
def test_arrays_of_any_strides(device: Any, shape: tuple[int, ...]) -> None:
    base = np.random.default_rng(1).random([2 * n for n in shape[:1]] + list(shape[1:]), np.float32)
    views = [base[::2], base[1::2][..., ::-1], base[: shape[0]].transpose(*reversed(range(len(shape))))]
    for number, view in enumerate(views):
        buffer = device.upload(view)
        assert np.array_equal(buffer.read(), view), f"view {number} of {shape} up"
        out = np.zeros_like(base)
        place = [out[::2], out[1::2][..., ::-1], out[: shape[0]].transpose(*reversed(range(len(shape))))][number]
        buffer.read(place)
        assert np.array_equal(place, view) and np.count_nonzero(out) <= view.size, f"view {number} of {shape} down"
        buffer.free()


@pytest.mark.parametrize("count", [1000, 100_000, 20_000_000])
def test_transfers_are_ordered_with_launches(device: Any, count: int) -> None:
    """Upload, launch, download, again and again with other numbers: a copy that came too early or too late shows."""
    x, y = device.allocate(count, vp.f32), device.allocate(count, vp.f32)
    launch = device.compile_native(AXPY).bind(x=x, y=y, a=1.0)
    total = 0.0
    for turn in range(12):
        x.write(np.full(count, turn, np.float32))
        for _ in range(5):
            launch()
        x.fill(1000 + turn)  # after the launches
        total += 5 * turn
        got = y.read()
        assert (got == total).all(), f"turn {turn}: {got[got != total][:3]} instead of {total}"
    x.free()
    y.free()


def test_threads_transfer_at_once(device: Any) -> None:
    wrong: list[str] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for turn in range(12):
            data = noise(rng.choice([100, 70_000, 3 * MIB, 20 * MIB + 1]), seed)
            buffer = device.upload(data)
            if not np.array_equal(buffer.read(), data):
                wrong.append(f"thread {seed}, turn {turn}, {data.size} bytes")
            buffer.free()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


def test_freeing_while_another_thread_reads(device: Any) -> None:
    data = noise(64 * MIB)
    for _ in range(5):
        buffer = device.upload(data)
        got: list[Any] = []

        def read(buffer: Any = buffer, got: list[Any] = got) -> None:
            with suppress(BindingError):
                got.append(buffer.read())

        reader = threading.Thread(target=read)
        reader.start()
        time.sleep(0.002)
        buffer.free()
        device.upload(noise(64 * MIB, 9)).free()
        reader.join()
        assert not got or np.array_equal(got[0], data)  # or the buffer was freed before the read began


def test_pinned_arrays(device: Any) -> None:
    for shape, type_ in (((1000, 3), vp.f32), (77, vp.u8), ((5, 5), vp.f64), (9, vp.bf16), (6, vp.f32x3)):
        array = device.pinned(shape, type_)
        assert not np.asarray(array, np.float64).any() and array.dtype == type_.dtype
    held = device.pinned_pool.held_bytes
    views = [device.pinned(1 << 20, vp.f32)[10:] for _ in range(3)]
    assert device.pinned_pool.held_bytes > held or device.pinned_pool.cached_bytes >= 0
    views[0][:] = 5
    del views
    gc.collect()
    assert device.pinned_pool.cached_bytes <= device.pinned_pool.keep_bytes


@pytest.mark.parametrize("name", ["u8", "i16", "f32", "u64", "f64", "u8x3", "f32x3", "f64x4"])
def test_fills_of_every_width(device: Any, name: str) -> None:
    type_ = getattr(vp, name)
    value: Any = list(range(1, type_.lanes + 1)) if type_.is_vector else 77
    for count in (1, 3, 1000, 5_000_001):
        buffer = device.allocate(count + 2, type_)
        buffer[1 : count + 1].fill(value)
        got = buffer.read()
        assert not got[0].any() and not got[-1].any() and (got[1:-1] == np.array(value, type_.dtype)).all(), f"{count} of {name}"
        buffer.free()


@pytest.mark.parametrize("seed", range(6))
def test_strided_copies(device: Device, seed: int) -> None:
    rng = random.Random(100 + seed)
    for _ in range(25):
        shape = [rng.randint(1, rng.choice([3, 9, 40])) for _ in range(rng.randint(0, 5))]
        one_case(device, rng, shape, rng.choice([np.uint8, np.int16, np.float32, np.float64]))
    one_case(device, rng, [rng.randint(1, 3) for _ in range(8)], np.float32)
    one_case(device, rng, [rng.randint(3, 9), rng.randint(100_000, 300_000)], rng.choice([np.uint8, np.float32]))


def test_a_strided_copy_within_a_graph(device: Any) -> None:
    """Shape, strides and offsets are in the graph by value."""
    x = np.arange(64 * 100, dtype=np.float32).reshape(64, 100)
    source, target = device.upload(x), device.allocate((50, 32), vp.f32)
    device.copy_strided(source, 0, [100, 1], target, 0, [32, 1], [1, 1])  # compiled before the capture
    device.copy_strided(source, 0, [100, 2], target, 0, [1, 32], [32, 50])
    target.fill(0)
    graph = device.capture(device.copy_strided, source, 0, [100, 2], target, 0, [1, 32], [32, 50])
    assert not target.read().any()
    for turn in range(3):
        source.write(x + turn)
        graph()
        assert np.array_equal(target.read(), (x + turn)[:32, ::2].T), f"replay {turn}"


def test_memory_runs_out_and_comes_back(device: Any) -> None:
    device.trim()
    _, free_before, total = device.context.cuda.cuMemGetInfo()
    retries = device.telemetry.oom_retries
    held: list[Any] = []
    piece = max(1 << 30, total // 24)
    with pytest.raises(OutOfMemory) as caught:
        held.extend(device.allocate(piece, vp.u8) for _ in range(100))
    error = caught.value
    assert error.asked == piece and error.limit == total and error.held >= piece * len(held) and error.free < piece + (1 << 30), str(error)
    assert device.telemetry.oom_retries >= retries + 2
    small = device.upload(np.arange(1000))  # what is left serves small requests
    assert np.array_equal(small.read(), np.arange(1000))
    held[0].free()
    held.append(held)  # type: ignore[arg-type]  # a cycle, which only the collector frees
    del held, caught, error
    again = device.allocate(2 * piece, vp.u8)  # by collecting the rest
    assert not again[:1000].read().any()
    again.free()
    device.trim()
    _, free_after, _ = device.context.cuda.cuMemGetInfo()
    assert abs(free_after - free_before) < 256 * MIB, f"{free_before} bytes were free, now {free_after}"
    assert device.memory.held_bytes < 64 * MIB or device.memory.allocated_bytes < 64 * MIB


# Its launches need so much local memory that the driver has to find more.
DEEP = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry deep(.param .u64 y, .param .u32 k)
{
    .local .align 8 .b8 depot[65536];
    .reg .b32 %k, %v;
    .reg .b64 %y, %at, %depot;
    ld.param.u64 %y, [y];
    ld.param.u32 %k, [k];
    mov.u64 %depot, depot;
    mul.wide.u32 %at, %k, 4;
    add.u64 %at, %at, %depot;
    st.local.u32 [%at], %k;
    ld.local.u32 %v, [%at];
    st.global.u32 [%y], %v;
    ret;
}
"""


def test_all_that_takes_memory_gets_what_is_kept(device: Any) -> None:
    """Others hold nearly all of the GPU's memory, and our pool the rest."""
    device.trim()
    driver, context = device.context.cuda, device.context
    y = device.allocate(1, vp.u32)
    before, eaten = device.memory.keep_bytes, []
    device.memory.keep_bytes = 1 << 40
    try:
        device.allocate(min(48 << 30, driver.cuMemGetInfo()[1] // 2), vp.u8).free()
        kept, retries = device.memory.cached_bytes, device.telemetry.oom_retries
        with context.entered():
            size = 1 << 30
            while size >= 2 * MIB:
                status, address = driver.cuMemAlloc(size)
                if status:
                    size //= 2
                else:
                    eaten.append(address)
        device.load_ptx(DEEP, "deep", [("y", vp.u32, "write"), ("k", vp.u32)]).bind(y=y, k=3, grid=1, workgroup=32)()
        assert y.read()[0] == 3
        assert device.telemetry.oom_retries > retries and device.memory.cached_bytes < kept
    finally:
        device.memory.keep_bytes = before
        with context.entered():
            for address in eaten:
                driver.cuMemFree(address)
        device.trim()


@pytest.mark.parametrize("kept", [True, False])
def test_a_replay_that_finds_no_memory_while_some_is_left(device: Any, kept: bool) -> None:
    """What is kept goes to it; where none is kept it is OutOfMemory. Either way the replays after it are as those before."""
    device.trim()
    held: list[Any] = []
    _, free, _ = device.context.cuda.cuMemGetInfo()

    def work() -> None:
        first = device.allocate(free // 2, vp.u8)
        held[:] = [device.allocate(1000, vp.u32)]
        held[0].fill(7)
        first.free()

    graph = device.capture(work)
    graph()
    keep_bytes = device.memory.keep_bytes
    try:
        for _ in range(3):
            device.trim()
            retries = device.telemetry.oom_retries
            device.memory.keep_bytes = 1 << 50
            eaten = device.allocate(device.context.cuda.cuMemGetInfo()[1] - (1 << 30), vp.u8)  # graphs keep some of theirs, for what is left
            if kept:
                eaten.free()
                graph()
                device.synchronize()
                assert device.telemetry.oom_retries > retries
            else:
                with pytest.raises(OutOfMemory, match="what the graph allocates"):
                    graph()
                device.synchronize()
                with pytest.raises(BindingError, match="replay that first"):
                    held[0].read()
                eaten.free()
                graph()
            assert (held[0].read() == 7).all()
            graph.repeat(2)
            assert (held[0].read() == 7).all()
    finally:
        device.memory.keep_bytes = keep_bytes
        graph.close()
        device.trim()


def test_prepared_dispatches_stay_under_the_caps(device: Any) -> None:
    device.trim()
    pools = device.pinned_pool, device.memory
    base = [pool.held_bytes for pool in pools]
    text = "program p{k}(n) workgroup(64) over(n) {{\n buffer x: u8[n] read\n buffer y: u8[n] write\n y[global_id.x] = x[global_id.x] + {k}u8\n}}"
    for k in (1, 2, 3):
        pipeline = device.compile_native(parse(text.format(k=k)))
        for turn in range(16):
            x = np.full(4 * MIB - 4096 * turn, turn, np.uint8)
            assert (pipeline.dispatch(x=x)["y"] == turn + k).all()
            assert all(pool.held_bytes - held <= pool.keep_bytes + 16 * MIB for pool, held in zip(pools, base, strict=True))
    device.trim()


def test_a_budget(device: Any) -> None:
    device.trim()
    reserved = int(device.telemetry.snapshot()["graph_memory_reserved_bytes"])  # what graphs keep counts, too
    device.memory.limit_bytes = device.memory.held_bytes + reserved + 100 * MIB
    try:
        first = device.allocate(60 * MIB, vp.u8)
        with pytest.raises(OutOfMemory, match=r"device\.memory\.limit_bytes"):
            device.allocate(60 * MIB, vp.u8)
        first.free()
        device.allocate(80 * MIB, vp.u8).free()
    finally:
        device.memory.limit_bytes = None


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * 4096


def test_a_hundred_thousand_small_cycles_keep_memory_flat(device: Any) -> None:
    data = np.arange(64, dtype=np.float32)

    def cycles(count: int) -> None:
        for number in range(count):
            buffer = device.upload(data)
            if number % 16 == 0:
                assert buffer.read()[63] == 63
            buffer.free()

    cycles(5000)
    gc.collect()
    host = _resident_bytes()
    _, free, _ = device.context.cuda.cuMemGetInfo()
    events = device.context.events.made
    cycles(100_000)
    gc.collect()
    _, free_after, _ = device.context.cuda.cuMemGetInfo()
    assert _resident_bytes() - host < 16 * MIB, f"host memory grew by {_resident_bytes() - host} bytes"
    assert free - free_after < 16 * MIB, f"device memory grew by {free - free_after} bytes"
    assert device.context.events.made <= events + 16 and device.memory.cached_bytes <= device.memory.keep_bytes


# ---- streams of others


def test_launches_on_streams_of_torch_are_ordered_with_memory(device: Any) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA here")
    streams = [torch.cuda.Stream() for _ in range(2)]

    class Stream:
        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, self.stream.cuda_stream

    count = 3_000_000
    x, y = device.allocate(count, vp.f32), device.allocate(count, vp.f32)
    launch = device.compile_native(AXPY).bind(x=x, y=y, a=1.0)
    total = 0.0
    for turn in range(20):
        launch.on(Stream(streams[turn % 2]))
        x.write(np.full(count, turn, np.float32))
        for _ in range(4):
            launch()
        x.fill(-1.0)
        total += 4 * turn
        got = y.read()
        assert (got == total).all(), f"turn {turn}: {got[got != total][:3]} instead of {total}"
    for turn in range(20):  # freed while it runs, and given out again at once
        x, y = device.upload(np.ones(count, np.float32)), device.allocate(count, vp.f32)
        launch = device.compile_native(AXPY).bind(x=x, y=y, a=2.0).on(Stream(streams[0]))
        for _ in range(5):
            launch()
        x.free()
        device.upload(np.full(count, 100, np.float32)).free()
        assert (y.read() == 10).all(), f"turn {turn}"
        y.free()


def test_memory_of_torch_on_its_own_stream(device: Any) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA here")
    tensor = torch.ones(2_000_000, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        for turn in range(10):
            tensor.mul_(2)
            buffer = device.wrap(tensor)
            assert (buffer.read() == 2.0 ** (turn + 1)).all(), f"turn {turn}"
            buffer.free()
    assert not device.memory.foreign_use.streams(tensor.data_ptr(), 4)


DESTROYED = """
import numpy as np, vyre_py as vp
from cuda.bindings import driver
from axpy import AXPY
device = vp.device("cuda")
class Stream:
    def __cuda_stream__(self):
        return 0, int(stream)
device.context.cuda.cuCtxSetCurrent(device.context.handle)
status, stream = driver.cuStreamCreate(1)
x, y = device.upload(np.ones(1000, np.float32)), device.upload(np.zeros(1000, np.float32))
device.compile_native(AXPY).bind(x=x, y=y, a=3.0).on(Stream())()
driver.cuStreamSynchronize(stream)
driver.cuStreamDestroy(stream)
assert (y.read() == 3).all()
x.free()
print("fine")
"""


def test_a_stream_that_its_owner_destroyed(device: Any) -> None:
    code = f"import sys; sys.path[:0] = {PATH!r}\n{DESTROYED}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.strip() == "fine", f"exit status {done.returncode}: {done.stderr[-2000:]}"


# ---- more than one device


def test_copies_between_gpus() -> None:
    first = open_device("cuda")
    if not is_available("cuda:1"):
        pytest.skip("there is one GPU")
    second = vp.device("cuda:1")
    for count in (1, 1000, 10_000_001):
        data = np.random.default_rng(count).random(count, np.float32)
        x, y = first.upload(data), second.allocate(count, vp.f32)
        for turn in range(5):
            x.write(data + turn)
            second.copy_peer(x, y)
            x.fill(0)  # after the copy
            assert np.array_equal(y.read(), data + turn), f"{count} elements, turn {turn}"
        first.copy_peer(y, x)
        assert np.array_equal(x.read(), data + 4), f"{count} elements back"
        x.free()
        y.free()


def test_copies_between_a_gpu_and_the_cpu(device: Any) -> None:
    cpu = vp.device("cpu")
    data = noise(150 * MIB + 5)
    x, y = cpu.upload(data), device.allocate(data.size, vp.u8)
    device.copy_peer(x, y)
    back = cpu.allocate(data.size, vp.u8)
    cpu.copy_peer(y, back)
    assert np.array_equal(back.read(), data)
    y.free()
