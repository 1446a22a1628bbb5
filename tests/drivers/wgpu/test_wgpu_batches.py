"""Sequences and graphs on WebGPU as one submission, with copies and fills among the launches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_kinds import open_device

import vyre_py as vp
from vyre_py.drivers.errors import BindingError, DeviceLost
from vyre_py.drivers.wgpu.batch import Pattern, is_whole
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import TYPES, u8, u32

TURN = Program.from_text(
    """program turn(n) {
  param a: u32
  buffer x: u32[n] read
  buffer y: u32[n] read_write
  y[global_id.x] = y[global_id.x] * 3u32 + x[global_id.x] + a
}"""
)
N = 70
X = np.arange(N, dtype=np.uint32)


@pytest.fixture(scope="module")
def shared() -> Any:
    return open_device("wgpu")


def submissions(device: Any) -> list[int]:
    """A number for each submission from now on: how many command buffers it has."""
    seen: list[int] = []
    submit = device.gpu.queue.submit

    def counted(buffers: list[Any]) -> None:
        seen.append(len(buffers))
        submit(buffers)

    device.gpu.queue.submit = counted
    return seen


def turned(y: Any, *params: int, x: Any = X) -> Any:
    for a in params:
        y = y * np.uint32(3) + x + np.uint32(a)
    return y


def test_a_sequence_is_one_submission_in_order(own: Any) -> None:
    x, y, z = own.upload(X), own.allocate(N, u32), own.allocate(N, u32)
    pipeline = own.compile_native(TURN)
    first, second = pipeline.bind(x=x, y=y, a=1), pipeline.bind(x=y, y=z, a=2)
    steps = [vp.fill_step(y, 5), first, first, vp.copy_step(y, z), second, vp.fill_step(x, 0), first]
    sequence = own.sequence(*steps)
    seen, before = submissions(own), own.telemetry.snapshot()
    sequence()
    assert seen == [1]
    after = own.telemetry.snapshot() - before
    assert (after.launches, after.copies, after.fills, after.bytes_filled) == (4, 1, 2, 2 * 4 * N)
    want = turned(np.full(N, 5, np.uint32), 1, 1)
    np.testing.assert_array_equal(z.read(), turned(want, 2, x=want))
    np.testing.assert_array_equal(y.read(), turned(want, 1, x=np.uint32(0)))
    x.write(X)
    first.set(a=9)
    sequence()  # with what was set since
    want = turned(np.full(N, 5, np.uint32), 9, 9)
    np.testing.assert_array_equal(y.read(), turned(want, 9, x=np.uint32(0)))


def test_a_replay_is_one_submission_with_arguments_of_its_own(own: Any) -> None:
    x, y = own.upload(X), own.allocate(N, u32)
    launch = own.compile_native(TURN).bind(x=x, y=y, a=1)

    def body() -> None:
        y.fill(3)
        launch.set(a=1)()
        launch.set(a=2)()

    graph = own.capture(body)
    launch.set(a=77)
    seen = submissions(own)
    graph()
    assert seen == [1]
    np.testing.assert_array_equal(y.read(), turned(np.full(N, 3, np.uint32), 1, 2))
    graph.set(launch, a=8)()
    np.testing.assert_array_equal(y.read(), turned(np.full(N, 3, np.uint32), 8, 8))


def test_what_cannot_be_encoded_comes_in_its_place(own: Any) -> None:
    """Bytes that are no whole words, and copies within one buffer."""
    whole = own.upload(np.arange(100, dtype=np.uint8))
    x, y = own.upload(X), own.allocate(N, u32)
    launch = own.compile_native(TURN).bind(x=x, y=y, a=1)
    steps = [
        launch, vp.fill_step(whole[1:4], 200), vp.copy_step(whole[0:40], whole[60:100]), vp.copy_step(whole[61:64], whole[5:8]), launch,
        vp.copy_step(x[0:5], x[20:25]), launch, vp.fill_step(whole[8:8], 1), vp.fill_step(whole[8:12], 7),
    ]  # fmt: skip
    own.sequence(*steps)()
    bytes_, words = np.arange(100, dtype=np.uint8), X.copy()
    bytes_[1:4] = 200
    bytes_[60:100] = bytes_[0:40]
    bytes_[5:8] = bytes_[61:64]
    bytes_[8:12] = 7
    words[20:25] = words[0:5]
    np.testing.assert_array_equal(whole.read(), bytes_)
    np.testing.assert_array_equal(y.read(), turned(turned(np.zeros(N, np.uint32), 1, 1), 1, x=words))


@pytest.mark.parametrize("kind", ["u8", "u16", "f32", "u8x3", "u64x3"])
def test_fills_of_every_size(shared: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written, copied piece by piece, and cleared."""
    monkeypatch.setattr("vyre_py.drivers.wgpu.batch._FILL_BYTES", 1 << 10)
    type_ = TYPES[kind]
    for count in (64, 40_000):
        buffer = shared.allocate(count + 8, type_)
        for value in (3, 0, 5):
            filled = [value] * type_.lanes if type_.is_vector else value
            want = buffer.read()
            buffer[4 : count + 4].fill(filled)
            want[4 : count + 4] = value
            np.testing.assert_array_equal(buffer.read(), want)
            shared.sequence(vp.fill_step(buffer[4 : count + 4], filled))()
            np.testing.assert_array_equal(buffer.read(), want)


def test_freed_memory_is_named_before_anything_runs(own: Any) -> None:
    x, y, z = own.upload(X), own.allocate(N, u32), own.allocate(N, u32)
    launch = own.compile_native(TURN).bind(x=x, y=y, a=1)
    sequence = own.sequence(launch, vp.copy_step(y, z), launch)
    graph = own.capture(lambda: (launch(), z.copy_from(y)))
    z.free()
    for run, what in ((sequence, "step 1 of a sequence"), (graph, "copy")):
        with pytest.raises(BindingError, match=rf"{what}(?s:.)*'target' was freed"):
            run()
    assert not y.read().any()
    x.free()
    with pytest.raises(BindingError, match=r"step 0 of a sequence(?s:.)*'x' was freed"):
        sequence()
    launch.set(x=own.upload(X))
    own.sequence(launch, launch)()
    np.testing.assert_array_equal(y.read(), turned(np.zeros(N, np.uint32), 1, 1))


def test_a_launch_that_is_refused_leaves_a_batch_that_does_nothing(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = own.upload(X), own.allocate(N, u32)
    pipeline = own.compile_native(TURN)
    first, second = pipeline.bind(x=x, y=y, a=1), pipeline.bind(x=x, y=y, a=1)
    sequence = own.sequence(first, second)
    sequence()
    own.synchronize()
    monkeypatch.setattr(type(sequence._runner), "require", lambda self: None)  # another thread frees it after the look
    second.disarm()
    spare = second._buffers["x"]
    second._buffers = {**second._buffers, "x": own.upload(X)}
    second._buffers["x"].free()
    with pytest.raises(BindingError, match="'x' was freed"):
        sequence()
    second._buffers = {**second._buffers, "x": spare}
    np.testing.assert_array_equal(y.read(), turned(np.zeros(N, np.uint32), 1, 1))
    sequence()
    np.testing.assert_array_equal(y.read(), turned(np.zeros(N, np.uint32), 1, 1, 1, 1))


def test_a_lost_device_refuses_sequences_and_replays(own: Any) -> None:
    launch = own.compile_native(TURN).bind(x=own.upload(X), y=own.allocate(N, u32), a=1)
    sequence, graph = own.sequence(launch, launch), own.capture(launch)
    own.raw.device.destroy()
    for run in (sequence, graph, sequence):
        with pytest.raises(DeviceLost):
            run()


def test_patterns(own: Any) -> None:
    assert Pattern(own, 100, bytes(4)).storage is None
    odd = Pattern(own, 100, b"abc")
    assert odd.storage is not None and odd.piece_bytes % 12 == 0 and is_whole(odd.piece_bytes)
    held = own.telemetry.snapshot()
    del odd
    assert own.telemetry.snapshot().device_pool_cached_bytes > held.device_pool_cached_bytes
    assert own.allocate(5, u8).read().tolist() == [0] * 5
