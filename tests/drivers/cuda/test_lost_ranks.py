"""Watches over ranks, over the stand-ins for the CUDA driver and for NCCL: a stream that does not go on, and what NCCL says by itself."""

from __future__ import annotations

import gc
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from axpy import AXPY, axpy_kernel
from device_kinds import open_device
from fake_cuda import CUresult
from fake_device import installed
from fake_graphs import FakeGraphDriver
from fake_nccl import FakeNccl

import vyre_py as vp
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.cuda.kernels import collective, lost_ranks
from vyre_py.drivers.errors import BindingError, DispatchTimeout, LaunchError
from vyre_py.drivers.pending import poll
from vyre_py.lowering.errors import Unsupported

TIMEOUT = 0.2


@pytest.fixture
def nccl(monkeypatch):
    made = FakeNccl(ranks=3, rank=1)
    monkeypatch.setattr(collective, "load", lambda: made)
    monkeypatch.setattr(lost_ranks, "_INTERVAL", 0.005)
    monkeypatch.setattr(lost_ranks, "_GRACE", 0.2)
    monkeypatch.setattr(lost_ranks, "_AGREED", 0.05)
    return made


@pytest.fixture
def driver(monkeypatch):
    """One whose stream stands still while `stuck` is set."""

    class Driver(FakeGraphDriver):
        stuck = threading.Event()

        def cuEventQuery(self, event):
            return (CUresult.CUDA_ERROR_NOT_READY if self.stuck.is_set() else CUresult.CUDA_SUCCESS,)

    made = Driver(total=1 << 28)
    made.stuck.clear()
    return installed(monkeypatch, made, axpy_kernel)


@pytest.fixture
def device(driver):
    before = set(threading.enumerate())
    made = CudaDevice(0)
    yield made
    driver.stuck.clear()
    made.close()
    assert poll(lambda: not set(threading.enumerate()) - before, 5), threading.enumerate()


def lost(watch):
    return poll(lambda: watch.failure is not None, 10)


def test_work_that_goes_on_is_left_alone(device, nccl):
    x = device.upload(np.ones(4, np.float32))
    step = vp.all_reduce_step(nccl.handle, x, x, op="max")
    with vp.watch_ranks(device, nccl.handle, timeout=TIMEOUT) as watch:
        deadline = time.monotonic() + 3 * TIMEOUT
        while time.monotonic() < deadline:
            step()
            device.synchronize()
        graph = device.capture(device.sequence(vp.fill_step(x, 1.0), step))
        graph()
        watch.check()
        assert watch.failure is None and not nccl.ended
    assert "failed" not in repr(watch)


@pytest.mark.parametrize("revokes", [True, False])
def test_a_rank_that_is_late(device, driver, nccl, revokes):
    """Waits, steps, sequences and graphs raise, the communicator is ended by who made it, and then the device is as before."""
    if not revokes:
        del nccl.ncclCommRevoke
    nccl.on_end = lambda how: driver.stuck.clear()
    x, y = device.upload(np.ones(4, np.float32)), device.allocate(4, vp.f32)
    step = vp.all_reduce_step(nccl.handle, x, y)
    launch = device.compile_native(AXPY).bind(x=x, y=y, a=2.0)
    sequence = device.sequence(launch, step)
    graph = device.capture(sequence)
    nested = device.capture(graph)
    begin = time.monotonic()
    watch = vp.watch_ranks(device, nccl.handle, timeout=TIMEOUT)
    driver.stuck.set()
    assert lost(watch) and TIMEOUT <= time.monotonic() - begin < 5
    for wait in (device.synchronize, y.read, device.record_event().wait, device.streams.compute.synchronize, watch.check):
        with pytest.raises(DispatchTimeout, match=r"with 3 ranks has come to its end for 0.2 s"):
            wait()
    with pytest.raises(DispatchTimeout):
        device.compile_native(AXPY).dispatch(x=np.ones(4, np.float32), y=y, a=1.0)
    assert poll(lambda: nccl.ended == ["revoke" if revokes else "abort"], 5) and "failed" in repr(watch)
    nccl.calls.clear()
    for run in (step, sequence, graph, nested, lambda: graph.repeat(2), lambda: device.capture(step), lambda: device.capture(sequence)):
        with pytest.raises(LaunchError, match="communicator was ended, since a rank was lost"):
            run()
    assert not [call for call in nccl.calls if call[0] == "AllReduce"]
    watch.close()
    watch.close()
    launch()
    device.synchronize()
    again = vp.all_reduce_step(nccl.handle, x, y)  # another communicator at the same address
    again()
    assert y.read().tolist() == [3] * 4


def test_other_ranks_have_time_to_find_out(device, driver, nccl, monkeypatch):
    """What waits on other ranks ends as soon as one rank ends the communicator, so each tells its own users well before."""
    monkeypatch.setattr(lost_ranks, "_AGREED", 0.4)
    told, ended = list[float](), list[float]()
    doubt = device.reports.doubt
    monkeypatch.setattr(device.reports, "doubt", lambda *words: (told.append(time.monotonic()), doubt(*words)))
    nccl.on_end = lambda how: (ended.append(time.monotonic()), driver.stuck.clear())
    x = device.upload(np.ones(4, np.float32))
    step = vp.all_reduce_step(nccl.handle, x, x)
    with vp.watch_ranks(device, nccl.handle, timeout=TIMEOUT) as watch:
        driver.stuck.set()
        assert lost(watch)
        with pytest.raises(LaunchError, match="communicator was ended"):
            step()
        assert poll(lambda: bool(ended), 10) and ended[0] - told[0] >= 0.4


def test_what_revoking_does_not_end_is_aborted_by_its_owner(device, driver, nccl):
    aborted = []
    owner = SimpleNamespace(ptr=nccl.handle, abort=lambda: (aborted.append(True), driver.stuck.clear()))
    with vp.watch_ranks(device, owner, timeout=TIMEOUT) as watch:
        driver.stuck.set()
        assert lost(watch) and poll(lambda: bool(aborted), 5)
        assert nccl.ended == ["revoke"]


def test_what_nccl_tells_of_itself(device, nccl):
    with vp.watch_ranks(device, nccl.handle, timeout=60) as watch:
        nccl.told = 7  # in progress
        time.sleep(0.05)
        assert watch.failure is None
        nccl.told = 6
        assert lost(watch)
        with pytest.raises(LaunchError, match=r"(?s)has lost a rank: ncclRemoteError \(6\).*stand-in's words for 6"):
            device.synchronize()
        assert watch.failure is not watch.failure  # each who waits has one of its own
    device.synchronize()


def test_a_driver_that_takes_no_more_work(device, driver, nccl):
    """The mark itself does not come back; the communicator is ended all the same."""
    stands = threading.Event()
    driver.cuEventRecord = lambda event, stream: (stands.wait(10), CUresult.CUDA_SUCCESS)[1:]
    nccl.on_end = lambda how: stands.set()
    with vp.watch_ranks(device, nccl.handle, timeout=TIMEOUT) as watch:
        assert lost(watch) and poll(stands.is_set, 5)
    del driver.cuEventRecord


def test_watches_end_with_their_device_and_when_dropped(driver, nccl):
    device = CudaDevice(0)
    dropped, closed = [vp.watch_ranks(device, nccl.handle, timeout=60) for _ in range(2)]
    assert len(device.watches) == 2
    del dropped
    gc.collect()
    assert len(device.watches) == 1
    device.close()
    assert not device.watches and poll(lambda: not [t for t in threading.enumerate() if t.name.startswith("vyre-ranks")], 5)
    closed.close()


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "soon", True, None])
def test_a_timeout_is_a_time(device, nccl, timeout):
    with pytest.raises(BindingError, match="timeout is a time in seconds"):
        vp.watch_ranks(device, nccl.handle, timeout=timeout)


def test_what_is_no_communicator_and_other_devices(device, nccl):
    with pytest.raises(BindingError, match="communicator is needed"):
        vp.watch_ranks(device, None, timeout=1)
    with pytest.raises(Unsupported, match="collectives"):
        vp.watch_ranks(open_device("cpu"), 1, timeout=1)
