"""Ways to run a pipeline besides `dispatch`: submitted, timed, to a fixpoint, on every device."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import as_completed, wait

import numpy as np
import pytest
from axpy import AXPY
from device_kinds import KINDS, open_device
from long_loop import LONG

import vyre_py as vp
from vyre_py.drivers.errors import BindingError, DispatchTimeout
from vyre_py.drivers.pending import ThreadPending
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.errors import Unsupported

# Every turn each element becomes the greatest of itself and its left neighbour: n - 1 turns until nothing changes.
SPREAD = parse("""program spread(n) workgroup(64) over(n) {
  buffer x: u32[n] read_write
  buffer changed: u32[1] read_write
  let i = global_id.x
  if i > 0u32 && i < n && x[i - 1u32] > x[i] {
    x[i] = x[i - 1u32]
    changed[0u32] = 1u32
  }
}""")


@pytest.fixture(params=KINDS)
def device(request):
    return open_device(request.param)


def arguments(n=1000):
    return {"x": np.arange(n, dtype=np.float32), "y": np.ones(n, np.float32), "a": 2.0}


def wanted(n=1000):
    return 2 * np.arange(n, dtype=np.float32) + 1


def test_submit(device):
    pipeline = device.compile_native(AXPY)
    given = arguments()
    pending = pipeline.submit(given)
    given["x"][:] = given["y"][:] = -1  # what was submitted is what was there then
    assert np.array_equal(pending.result()["y"], wanted())
    assert pending.done() and pending.result()["y"] is pending.result(0)["y"]


def test_submit_many_and_drop_some(device):
    pipeline = device.compile_native(AXPY)
    pendings = [pipeline.submit(arguments(100 + k)) for k in range(20)]
    del pendings[::2]
    gc.collect()
    assert [p.result()["y"].size for p in pendings] == list(range(101, 120, 2))
    assert all(np.array_equal(p.result()["y"], wanted(101 + 2 * k)) for k, p in enumerate(pendings))


def test_submit_in_a_coroutine(device):
    pipeline = device.compile_native(AXPY)

    async def both():
        return await asyncio.gather(*(one(pipeline.submit(arguments(n))) for n in (10, 2000)))

    async def one(pending):
        return (await pending)["y"]

    small, large = asyncio.run(both())
    assert np.array_equal(small, wanted(10)) and np.array_equal(large, wanted(2000))


def test_submitted_dispatches_are_futures(device):
    pipeline = device.compile_native(AXPY)
    sizes = {pipeline.submit(arguments(100 + k)): 100 + k for k in range(5)}
    assert all(np.array_equal(p.result()["y"], wanted(sizes[p])) for p in as_completed(sizes, timeout=60))
    more = [pipeline.submit(arguments(n)) for n in (3, 30)]
    assert wait(more, timeout=60).not_done == set()
    told = threading.Event()
    pending = pipeline.submit(arguments(7))
    pending.add_done_callback(lambda p: told.set() if p is pending and np.array_equal(p.result()["y"], wanted(7)) else None)
    assert told.wait(60) and pending.exception() is None and not pending.cancel() and isinstance(pending, vp.Pending)


def test_what_a_submitted_dispatch_raises_is_told():
    failing = ThreadPending("fails", lambda: {}["none"])
    (done,) = as_completed([failing], timeout=60)
    assert isinstance(done.exception(), KeyError)


def test_submit_writes_in_place_and_takes_buffers(device):
    pipeline = device.compile_native(AXPY)
    out = np.zeros(1000, np.float32)
    assert pipeline.submit(arguments(), out={"y": out}).result()["y"] is out
    assert np.array_equal(out, wanted())
    y = device.upload(np.ones(1000, np.float32))
    result = pipeline.submit({**arguments(), "y": y}).result()
    assert result["y"] is y and np.array_equal(y.read(), wanted())


def test_submit_refuses_what_dispatch_refuses(device):
    with pytest.raises(BindingError, match="param 'a'"):
        device.compile_native(AXPY).submit({**arguments(), "a": "two"})
    pending = device.compile_native(AXPY).submit(arguments())
    with pytest.raises(BindingError, match="a time in seconds"):
        pending.result("soon")
    pending.result()


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_result_that_is_late(kind):
    device = open_device(kind)
    pipeline = device.compile_native(LONG)
    turns = 300_000_000 if kind == "cpu" else 3_000_000
    pending = pipeline.submit(y=np.ones(1, np.uint32), turns=turns)
    with pytest.raises(DispatchTimeout, match="it still runs"):
        pending.result(0.0)
    assert pending.result()["y"][0] == pow(1664525, turns, 2**32)


def test_submit_from_threads(device):
    pipeline = device.compile_native(AXPY)
    wrong = []

    def work(n):
        wrong.extend(k for k in range(n, n + 5) if not np.array_equal(pipeline.submit(arguments(k)).result()["y"], wanted(k)))

    threads = [threading.Thread(target=work, args=(100 * k + 1,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_timed(device):
    before = device.telemetry.snapshot()
    timed = device.compile_native(AXPY).dispatch_timed(arguments(5000))
    assert np.array_equal(timed.results["y"], wanted(5000))
    assert timed.wall_ns >= timed.enqueue_ns + timed.wait_ns - 1 > 0
    assert timed.device_ns is None or 0 < timed.device_ns < timed.wall_ns
    assert (timed.device_ns is not None) == (device.kind == "cuda" or getattr(device, "has_clock", False))
    change = device.telemetry.snapshot() - before
    assert change["timed_dispatches"] == 1 and change["timed_with_device"] == (timed.device_ns is not None)


def test_fixpoint(device):
    pipeline = device.compile_native(SPREAD)
    x = np.zeros(130, np.uint32)
    x[0] = 7
    before = device.telemetry.snapshot()
    out = pipeline.dispatch(x=x, changed=np.ones(1, np.uint32), config=vp.DispatchConfig(fixpoint="changed"))
    assert (out["x"] == 7).all() and out["changed"][0] == 0
    assert 2 <= (device.telemetry.snapshot() - before)["launches"] <= 131
    resident = device.upload(x)
    out = pipeline.dispatch(x=resident, changed=np.ones(1, np.uint32), config=vp.DispatchConfig(fixpoint="changed"))
    assert out["x"] is resident and (resident.read() == 7).all()


def test_fixpoint_up_to_a_limit():
    device = open_device("reference")  # whose invocations run in a known order: one step a turn
    x = np.zeros(130, np.uint32)
    x[0] = 7
    out = device.compile_native(SPREAD).dispatch(x=x, changed=np.zeros(1, np.uint32), config=vp.DispatchConfig(fixpoint="changed", fixpoint_limit=3))
    assert out["changed"][0] == 1 and not (out["x"] == 7).all()


def test_fixpoint_over_what_is_no_flag(device):
    for name in ("x9", "a"):
        with pytest.raises(BindingError, match="is not a written buffer of integers; those are x, changed"):
            device.compile_native(SPREAD).dispatch(
                x=np.zeros(4, np.uint32), changed=np.zeros(1, np.uint32), config=vp.DispatchConfig(fixpoint=name)
            )  # fmt: skip


def test_a_time_limit_needs_code_that_can_be_stopped(device):
    """But on WebGPU, where no code can, and the call gives up."""
    if not device.ends_kernels:
        assert device.compile_native(AXPY).dispatch(arguments(), config=vp.DispatchConfig(timeout=60.0))
        return
    with pytest.raises(Unsupported, match="timeout"):
        device.compile_native(AXPY).dispatch(arguments(), config=vp.DispatchConfig(timeout=1.0))


def test_max_output_bytes(device):
    pipeline = device.compile_native(AXPY)
    assert pipeline.dispatch(arguments(), config=vp.DispatchConfig(max_output_bytes=4000))["y"].size == 1000
    with pytest.raises(BindingError, match="the outputs take 4000 bytes; max_output_bytes is 3999"):
        pipeline.dispatch(arguments(), config=vp.DispatchConfig(max_output_bytes=3999))
    with pytest.raises(BindingError, match="max_output_bytes"):
        pipeline.submit(arguments(), config=vp.DispatchConfig(max_output_bytes=3999))


def test_a_limit_of_nothing_is_refused():
    with pytest.raises(Unsupported, match="fixpoint_limit"):
        vp.DispatchConfig(fixpoint_limit=3)
