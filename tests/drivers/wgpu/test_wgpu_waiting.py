"""Waits and what goes with them on WebGPU: their bounds, results on their way, pools, and devices after a loss."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from device_kinds import open_device

import vyre_py as vp
from vyre_py.drivers import registry
from vyre_py.drivers.device import Device
from vyre_py.drivers.errors import BindingError, DeviceLost, DispatchTimeout
from vyre_py.drivers.wgpu.completion import Completions
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u8, u32

SLOW = Program.from_text(
    """program slow(n) workgroup(64) {
  param turns: u32
  buffer x: u32[n] read_write
  var v: u32 = x[global_id.x]
  for k in 0u32..turns { v = v * 1664525u32 + 1013904223u32 ^ (v >> 3u32) }
  x[global_id.x] = v
}"""
)
X = np.arange(1 << 14, dtype=np.uint32)


def long(device: Any) -> int:
    """Turns that take a good part of a second in software, and milliseconds on a GPU."""
    return 20_000 if device.is_software else 5_000_000


def wanted(turns: int, x: np.ndarray[Any, Any] = X) -> np.ndarray[Any, Any]:
    x = x.copy()
    for _ in range(turns):
        x = x * np.uint32(1664525) + np.uint32(1013904223) ^ (x >> np.uint32(3))
    return x


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device("wgpu")


def late(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Has nothing be seen as done, until the list has something in it."""
    over: list[bool] = []
    is_done = Completions.is_done
    monkeypatch.setattr(Completions, "is_done", lambda self, mark: bool(over) and is_done(self, mark))
    return over


def test_a_dispatch_is_given_up_in_time(own: Any) -> None:
    pipeline = own.compile_native(SLOW)
    begin = time.monotonic()
    with pytest.raises(DispatchTimeout, match="runs on"):
        pipeline.dispatch(x=X, turns=long(own), config=vp.DispatchConfig(timeout=0.001))
    assert own.telemetry.timeouts == 1 and time.monotonic() - begin < 60
    np.testing.assert_array_equal(pipeline.dispatch(x=X, turns=9, config=vp.DispatchConfig(timeout=60))["x"], wanted(9))
    with pytest.raises(DispatchTimeout):
        pipeline.submit(x=X, turns=long(own), config=vp.DispatchConfig(timeout=0.001)).result()


def test_every_wait_has_an_end_and_may_be_made_again(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer, pipeline = own.upload(X), own.compile_native(SLOW)
    launch, event = pipeline.bind(x=buffer, turns=3), own.record_event()
    launch()
    pending = pipeline.submit(x=X, turns=5)
    over = late(monkeypatch)
    own.wait_limit_seconds = 0.01
    for wait in (own.synchronize, buffer.read, buffer[1:3].read, event.wait, pending.result, lambda: pending.result(timeout=0.01)):
        with pytest.raises(DispatchTimeout):
            wait()
    assert not event.done() and not pending.done()
    over.append(True)
    own.synchronize()
    event.wait()
    assert event.done() and pending.done()
    np.testing.assert_array_equal(buffer.read(), wanted(3))
    np.testing.assert_array_equal(pending.result()["x"], wanted(5))


def test_results_are_on_their_way_from_the_start(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits in `submit`, whose arguments may change at once."""
    pipeline = device.compile_native(SLOW)
    over = late(monkeypatch)
    x = X.copy()
    several = [(turns, pipeline.submit(x=x, turns=turns)) for turns in range(6)]
    x[:] = 0
    assert not any(pending.done() for _, pending in several)
    over.append(True)
    for turns, pending in reversed(several):
        np.testing.assert_array_equal(pending.result()["x"], wanted(turns))
        assert pending.result() is pending.result()


def test_results_of_every_shape_and_place(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty, odd in bytes, into memory of the caller's with strides, resident, and larger than what is fetched early."""
    program = Program.from_text(
        """program parts(n, m) over(n) {
  buffer x: u8[n] read
  buffer y: u8[n] write
  buffer z: f32x2[n] write
  buffer w: u32[m] write
  buffer r: u32[n] read_write
  let i = global_id.x
  y[i] = x[i] ^ 1u8
  z[i] = vec2(cast(i, f32), 0.5)
  r[i] = i
}"""
    )
    pipeline, n = device.compile_native(program), 77
    x, r = np.arange(n, dtype=np.uint8), device.allocate(n, u32)
    for early in (1 << 20, 1):
        monkeypatch.setattr("vyre_py.drivers.wgpu.pending._EARLY_BYTES", early)
        y, z = np.zeros(2 * n, np.uint8), np.zeros(n, np.complex64)
        got = pipeline.submit({"x": x, "w": np.zeros(0, np.uint32), "r": r}, out={"y": y[::2], "z": z}).result()
        np.testing.assert_array_equal(y[::2], x ^ 1)
        assert not y[1::2].any() and got["z"] is z and got["w"].shape == (0,) and got["r"] is r
        np.testing.assert_array_equal(z, np.arange(n) + 0.5j)
        np.testing.assert_array_equal(r.read(), np.arange(n))


def test_a_result_that_is_dropped_gives_its_memory_back(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = own.compile_native(SLOW)
    over = late(monkeypatch)
    for _ in range(20):
        pipeline.submit(x=X, turns=1)
    figures = own.telemetry.snapshot()
    assert figures.pinned_pool_misses <= 2 and figures.pinned_pool_held_bytes == figures.pinned_pool_cached_bytes > 0
    over.append(True)
    np.testing.assert_array_equal(pipeline.dispatch(x=X, turns=2)["x"], wanted(2))


def test_what_is_read_in_pieces_is_whole(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vyre_py.drivers.wgpu.memory._PIECE_BYTES", 1000)
    data = np.random.default_rng(1).integers(0, 256, 10_007, np.uint8)
    buffer = own.upload(data)
    for begin, end in ((0, 10_007), (1, 9_999), (3, 1003), (5, 6)):
        np.testing.assert_array_equal(buffer[begin:end].read(), data[begin:end])


def test_freed_memory_serves_again_and_is_zero_where_zeros_are_asked_for(own: Any) -> None:
    for count in (5, 70_001, 300_001):  # within what zeros are written to, and beyond
        for _ in range(3):
            buffer = own.allocate(count, u8)
            assert not buffer.read().any()
            buffer.fill(255)
            buffer.free()
    figures = own.telemetry.snapshot()
    assert figures.device_pool_misses <= 4 and figures.device_pool_hits >= 6
    assert figures.device_pool_cached_bytes == figures.device_pool_held_bytes > 0
    own.trim()
    figures = own.telemetry.snapshot()
    assert figures.device_pool_cached_bytes == figures.pinned_pool_cached_bytes == 0
    assert figures.device_pool_held_bytes == figures.pinned_pool_held_bytes == 0


def test_launches_of_freed_memory_do_not_reach_who_has_it_next(own: Any) -> None:
    pipeline = own.compile_native(SLOW)
    first = own.upload(X)
    launch = pipeline.bind(x=first, turns=1)
    launch()
    first.free()
    second = own.upload(X)
    assert own.telemetry.device_pool_hits
    with pytest.raises(vp.BindingError, match="freed"):
        launch()
    np.testing.assert_array_equal(second.read(), X)


def test_memory_is_given_back_before_there_is_none(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    own.upload(X).free()
    made, refused = own._memory._made, []

    def short(size_bytes: int) -> Any:
        if own._memory._kept.cached_bytes:
            refused.append(size_bytes)
            raise RuntimeError("not enough memory left")
        return made(size_bytes)

    monkeypatch.setattr(own._memory, "_made", short)
    assert own.allocate(1 << 20, u8).size_bytes == 1 << 20
    assert refused and own.telemetry.oom_retries == 1


def test_a_lost_device_is_followed_by_a_new_one(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_open", {("wgpu", 0): own})
    assert vp.device("wgpu") is own
    pipeline = own.compile_native(SLOW)
    launch, pending = pipeline.bind(x=own.upload(X), turns=1), pipeline.submit(x=X, turns=1)
    event = own.record_event()
    own.raw.device.destroy()
    with pytest.raises(DeviceLost, match="lost"):
        own.synchronize()
    for call in (launch, event.done, event.wait, pending.done, pending.result, lambda: own.upload(X)):
        with pytest.raises(DeviceLost, match=r"ask vyre_py\.device"):
            call()
    after = vp.device("wgpu")
    assert after is not own and vp.device("wgpu") is after
    np.testing.assert_array_equal(after.compile_native(SLOW).dispatch(x=X, turns=4)["x"], wanted(4))
    after.close()



def test_threads_are_told_that_another_has_closed_the_device(own: Any) -> None:
    pipeline, x = own.compile_native(SLOW), own.upload(X)
    launch = pipeline.bind(x=x, turns=1)
    sequence = own.sequence(launch, vp.fill_step(x, 3), launch)
    calls = [
        launch, sequence, own.capture(sequence), x.read, own.synchronize, lambda: pipeline.dispatch(x=X, turns=1),
        lambda: pipeline.submit(x=X, turns=1).result(), lambda: own.allocate(100_000, u8).read(),
        lambda: x.fill(9), lambda: launch.set(turns=2), lambda: own.record_event().done(),
        lambda: pipeline.dispatch_timed(x=X, turns=1),
    ]  # fmt: skip
    ends: list[BaseException] = []

    def work(call: Any) -> None:
        try:
            while True:
                call()
        except BaseException as error:  # noqa: BLE001 - whatever ends a thread is the test's finding
            ends.append(error)

    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    own.close()
    for thread in threads:
        thread.join()
    assert len(ends) == len(calls) and {type(error) for error in ends} <= {DeviceLost, BindingError}, ends
