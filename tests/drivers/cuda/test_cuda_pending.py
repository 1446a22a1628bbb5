"""Submitted dispatches on CUDA as futures, over the stand-in for the driver."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, as_completed, wait

import numpy as np
import pytest
from fake_cuda import CUresult
from fake_device import installed
from test_cuda_sequences import AXPY, FakeGraphDriver, axpy_kernel

import vyre_py as vp
from vyre_py.drivers.cuda.device import CudaDevice

PATIENCE = 60


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeGraphDriver:
    return installed(monkeypatch, FakeGraphDriver(total=1 << 26), axpy_kernel)


@pytest.fixture
def axpy(fake: FakeGraphDriver) -> Iterator[vp.Pipeline]:
    device = CudaDevice(0)
    yield device.compile_native(AXPY)
    device.close()


def submitted(axpy: vp.Pipeline, n: int) -> vp.Pending:
    return axpy.submit(x=np.arange(n, dtype=np.float32), y=np.zeros(n, np.float32), a=2.0)


def right(pending: vp.Pending, n: int) -> bool:
    return np.array_equal(pending.result()["y"], 2 * np.arange(n, dtype=np.float32))


def watchers() -> int:
    return sum(thread.name.startswith("vyre-watch") for thread in threading.enumerate())


def test_who_asks_needs_no_thread(axpy: vp.Pipeline) -> None:
    pending = submitted(axpy, 5)
    assert right(pending, 5) and pending.done() and pending.exception() is None and pending.result(0) is pending.result()
    assert watchers() == 0


def test_futures_of_the_library_know_them(axpy: vp.Pipeline) -> None:
    sizes = {submitted(axpy, n): n for n in (4, 5, 6)}
    assert {sizes[p] for p in as_completed(sizes, timeout=PATIENCE) if right(p, sizes[p])} == {4, 5, 6}
    assert wait([submitted(axpy, 7)], PATIENCE, FIRST_COMPLETED).done
    told: list[object] = []
    pending = submitted(axpy, 8)
    pending.result()
    pending.add_done_callback(told.append)
    assert told == [pending]

    async def both() -> list[dict[str, np.ndarray]]:
        return await asyncio.gather(submitted(axpy, 3), submitted(axpy, 2))

    assert [done["y"].size for done in asyncio.run(both())] == [3, 2]


def test_a_device_that_fails_meanwhile_is_told(axpy: vp.Pipeline, fake: FakeGraphDriver) -> None:
    pending = submitted(axpy, 4)
    fake.fail["cuEventSynchronize"] = [CUresult.CUDA_ERROR_ILLEGAL_ADDRESS] * 9
    (done,) = as_completed([pending], timeout=PATIENCE)
    assert isinstance(done.exception(), vp.DriverError) and done is pending


def test_a_dropped_one_is_gone_at_once(axpy: vp.Pipeline) -> None:
    gc.disable()
    try:
        held = weakref.ref(submitted(axpy, 4))
        assert held() is None
    finally:
        gc.enable()


def test_it_cannot_be_cancelled_and_does_not_travel(axpy: vp.Pipeline) -> None:
    pending = submitted(axpy, 4)
    assert not pending.cancel() and not pending.cancelled() and right(pending, 4)
    with pytest.raises(TypeError, match="send its result"):
        pending.__reduce_ex__(2)
