"""Collectives as steps, over the stand-ins for the CUDA driver and for NCCL; and one rank through NCCL itself, where there is a GPU."""

from __future__ import annotations

import ctypes
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from axpy import AXPY, axpy_kernel
from device_kinds import open_device
from fake_cuda import CUresult
from fake_device import installed, opened
from fake_graphs import FakeGraphDriver
from fake_nccl import FakeNccl

import vyre_py as vp
from vyre_py.drivers.cuda.kernels import collective
from vyre_py.drivers.errors import BindingError, DeviceLost, DeviceUnavailable, LaunchError
from vyre_py.lowering.errors import Unsupported


@pytest.fixture
def fake(monkeypatch):
    return installed(monkeypatch, FakeGraphDriver(total=1 << 28), axpy_kernel)


@pytest.fixture
def device(fake):
    with opened(fake) as made:
        yield made


@pytest.fixture
def nccl(monkeypatch):
    made = FakeNccl(ranks=3, rank=1)
    monkeypatch.setattr(collective, "load", lambda: made)
    yield made
    assert made.open_groups == 0


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.float16, np.float32, np.float64])
def test_sums_of_every_type_of_nccl(device, nccl, dtype):
    x = np.arange(6).astype(dtype)
    source, target, part = device.upload(x), device.upload(np.zeros_like(x)), device.upload(np.zeros(2, dtype))
    vp.all_reduce_step(nccl.handle, source, target)()
    vp.reduce_scatter_step(nccl.handle, source, part)()
    assert np.array_equal(target.read(), 3 * x) and np.array_equal(part.read(), 3 * x[2:4])


@pytest.mark.parametrize(("op", "wanted"), [("sum", 6), ("prod", 8), ("max", 2), ("min", 2), ("avg", 2)])
def test_reductions_by_name_and_in_place(device, nccl, op, wanted):
    buffer = device.upload(np.full(4, 2, np.float32))
    vp.all_reduce_step(nccl.handle, buffer, buffer, op=op)()
    assert buffer.read().tolist() == [wanted] * 4
    whole = device.upload(np.full(6, 2, np.float32))
    vp.reduce_scatter_step(nccl.handle, whole, whole[2:4], op=op)()
    assert whole.read().tolist() == [2, 2, wanted, wanted, 2, 2]


@pytest.mark.parametrize("type_", [vp.f32, vp.bf16, vp.i16, vp.bool_, vp.f8e4m3, vp.f32x3], ids=str)
def test_what_only_moves_has_any_type(device, nccl, type_):
    shape = (2, type_.lanes) if type_.is_vector else (2,)
    x = np.random.default_rng(3).integers(0, 2, shape).astype(type_.dtype)
    source, whole = device.upload(x, type_), device.allocate(6, type_)
    vp.all_gather_step(nccl.handle, source, whole)()
    assert np.array_equal(whole.read(), np.concatenate([x] * 3))
    vp.broadcast_step(nccl.handle, source, root=2)()
    assert nccl.calls[-1][0] == "Broadcast" and nccl.calls[-1][3:6] == (source.size_bytes, 1, 2) and np.array_equal(source.read(), x)
    vp.all_gather_step(nccl.handle, whole[2:4], whole)()


def test_an_exchange_is_one_group_on_our_stream(device, nccl):
    x = np.arange(40, dtype=np.float32).reshape(10, 4)
    field = device.upload(x)
    step = vp.exchange_step(nccl.handle, [(field[1:2], 0), (field[8:9], 2)], [(field[9:10], 2), (field[0:1], 0)])
    nccl.calls.clear()
    step()
    assert [call[0] for call in nccl.calls] == ["GroupStart", "Send", "Send", "Recv", "Recv", "GroupEnd"]
    assert [call[2:5] for call in nccl.calls[1:5]] == [(16, 1, 0), (16, 1, 2), (16, 1, 2), (16, 1, 0)]
    assert {call[-1] for call in nccl.calls[1:5]} == {int(device.context.stream)}
    found = field.read()
    assert np.array_equal(found[9], x[1]) and np.array_equal(found[0], x[8]) and np.array_equal(found[1:9], x[1:9])


def test_in_sequences_between_launches_and_in_graphs(device, fake, nccl):
    x, y = device.upload(np.arange(4, dtype=np.float32)), device.upload(np.ones(4, np.float32))
    launch = device.compile_native(AXPY).bind(x=x, y=y, a=2.0)
    sequence = device.sequence(launch, vp.all_reduce_step(nccl.handle, y, y), launch)
    sequence()
    wanted = 3 * (2 * np.arange(4) + 1) + 2 * np.arange(4)
    assert np.array_equal(y.read(), wanted)
    nccl.calls.clear()
    recorded = device.capture(sequence)
    assert [call[0] for call in nccl.calls] == ["AllReduce"]  # NCCL records its kernels itself, on the stream that is captured
    assert recorded.nodes == 2  # the stand-in's NCCL adds none


def test_what_gives_a_communicator(device, nccl):
    x = device.upload(np.ones(4, np.float32))
    for owner in (nccl.handle, SimpleNamespace(ptr=nccl.handle), SimpleNamespace(_comm_ptr=lambda: nccl.handle), SimpleNamespace(comm=nccl.handle)):
        vp.all_reduce_step(owner, x, x)()
    for wrong, words in ((None, "communicator is needed"), (True, "communicator is needed"), (0, "no address"), (SimpleNamespace(ptr=0), "no address")):
        with pytest.raises(BindingError, match=words):
            vp.all_reduce_step(wrong, x, x)
    nccl.number = 1
    with pytest.raises(BindingError, match="it is of the GPU 1"):
        vp.all_reduce_step(nccl.handle, x, x)
    nccl.fail = {"CommCount": 4}
    with pytest.raises(LaunchError, match=r"ncclInvalidArgument \(4\)"):
        vp.all_reduce_step(nccl.handle, x, x)


def test_what_does_not_fit_is_refused(device, nccl):
    comm = nccl.handle

    def made(count, type_=vp.f32):
        return device.allocate(count, type_)

    whole = made(6)
    for call, words in (
        (lambda: vp.all_reduce_step(comm, made(4), made(5)), "'target' needs 4 elements"),
        (lambda: vp.all_reduce_step(comm, made(4), made(4, vp.f64)), "'target' needs elements of f32"),
        (lambda: vp.all_reduce_step(comm, made(4), made(4), op="mean"), "op is one of 'sum'"),
        (lambda: vp.all_reduce_step(comm, whole[0:4], whole[1:5]), "'target' overlaps 'source'"),
        (lambda: vp.all_gather_step(comm, made(4), made(4)), "'target' needs 12 elements, those of 'source' on 3 ranks"),
        (lambda: vp.all_gather_step(comm, whole[0:2], whole), "'target' overlaps 'source'"),
        (lambda: vp.reduce_scatter_step(comm, made(4), made(4)), "'source' needs 12 elements"),
        (lambda: vp.reduce_scatter_step(comm, whole, whole[4:6]), "'target' overlaps 'source'"),
        (lambda: vp.broadcast_step(comm, made(4), root=3), "root is a whole number below 3"),
        (lambda: vp.broadcast_step(comm, device.constant(np.ones(4, np.float32))), "may only be read"),
        (lambda: vp.broadcast_step(comm, 7), "'source' is a resident buffer"),
        (lambda: vp.exchange_step(comm, [], []), "nothing is sent"),
        (lambda: vp.exchange_step(comm, [(made(4), 5)], []), "the rank to send is a whole number below 3"),
        (lambda: vp.exchange_step(comm, [made(4)], []), "pairs of a buffer and a rank"),
        (lambda: vp.exchange_step(comm, [(whole[0:2], 0)], [(whole[1:3], 0)]), "overlaps another one"),
    ):  # fmt: skip
        with pytest.raises(BindingError, match=words):
            call()
    for type_ in (vp.i16, vp.bool_, vp.f8e4m3):
        with pytest.raises(Unsupported, match=f"all_reduce of {type_}"):
            vp.all_reduce_step(comm, made(4, type_), made(4, type_))
    nccl.calls.clear()
    gone = made(4)
    step = vp.all_reduce_step(comm, gone, gone)
    nccl.calls.clear()
    gone.free()
    with pytest.raises(BindingError, match="'source' was freed"):
        step()
    assert nccl.calls == []


@pytest.mark.parametrize("status", [*collective._STATUSES, 99])
@pytest.mark.parametrize("name", ["AllReduce", "GroupStart", "Send", "Recv", "GroupEnd"])
def test_each_status_is_its_error_and_leaves_nothing_over(device, fake, nccl, status, name):
    x, y = device.upload(np.ones(4, np.float32)), device.allocate(4, vp.f32)
    step = vp.all_reduce_step(nccl.handle, x, y) if name == "AllReduce" else vp.exchange_step(nccl.handle, [(x, 0)], [(y, 0)])
    words = collective._STATUSES.get(status, (f"NCCL's status {status}",))[0]
    for run, doing in ((step, "cannot be enqueued"), (device.sequence(vp.fill_step(x, 1.0), step), r"step 1 \(.*\) of a sequence")):
        fake.current.context = 55
        nccl.fail = {name: status}
        with pytest.raises(LaunchError, match=rf"(?s){doing}.*{words} \({status}\).*stand-in's words for {status}"):
            run()
        assert nccl.open_groups == 0 and fake.current.context == 55
        nccl.sent.clear()
        nccl._receives.clear()
        run()
        assert y.read().tolist() == ([3] if name == "AllReduce" else [1]) * 4 and nccl.open_groups == 0


def test_a_context_that_cannot_be_made_current_and_a_lost_device(device, fake, nccl):
    x = device.upload(np.ones(4, np.float32))
    step = vp.all_reduce_step(nccl.handle, x, x)
    nccl.calls.clear()
    fake.fail["cuCtxPushCurrent"] = [CUresult.CUDA_ERROR_INVALID_VALUE]
    with pytest.raises(LaunchError, match="CUDA_ERROR_INVALID_VALUE"):
        step()
    fake.fail["cuMemsetD32Async"] = [CUresult.CUDA_ERROR_ILLEGAL_ADDRESS]
    with pytest.raises(DeviceLost):
        vp.fill_step(x, 1.0)()
    with pytest.raises(DeviceLost):
        step()
    assert nccl.calls == []


def test_without_nccl_it_is_said_how_to_get_it(device, monkeypatch):
    x = device.upload(np.ones(4, np.float32))
    collective.load.cache_clear()
    monkeypatch.setattr(collective, "_LIBRARY", "libnccl-that-is-nowhere.so")
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    with pytest.raises(DeviceUnavailable, match="pip install nvidia-nccl"):
        vp.all_reduce_step(1, x, x)
    collective.load.cache_clear()


@pytest.mark.parametrize("kind", ["cpu", "reference", "wgpu"])
def test_other_devices_refuse_by_name(kind):
    device = open_device(kind)
    x = device.allocate(4, vp.f32)
    for call in (
        lambda: vp.all_reduce_step(1, x, x), lambda: vp.all_gather_step(1, x, x), lambda: vp.reduce_scatter_step(1, x, x), lambda: vp.broadcast_step(1, x),
        lambda: vp.exchange_step(1, [(x, 0)], []),
    ):  # fmt: skip
        with pytest.raises(Unsupported, match="collectives"):
            call()


def test_one_rank_through_nccl_itself():
    device = open_device("cuda")
    try:
        nccl = collective.load()
    except DeviceUnavailable as error:
        if "nccl" in os.environ.get("VYRE_REQUIRE_DEVICES", "").split(","):
            raise
        pytest.skip(str(error))
    handle, devices = ctypes.c_void_p(), (ctypes.c_int * 1)(device.dlpack_device[1])
    assert nccl.ncclCommInitAll(ctypes.byref(handle), 1, devices) == 0
    try:
        x = np.arange(1000, dtype=np.float32)
        source, target = device.upload(x), device.allocate(1000, vp.f32)
        launch = device.compile_native(AXPY).bind(x=source, y=target, a=2.0)
        steps = [
            vp.all_gather_step(handle.value, source, target), launch, vp.all_reduce_step(handle.value, target, target, op="max"),
            vp.exchange_step(handle.value, [(target[:10], 0)], [(target[10:20], 0)]), vp.broadcast_step(handle.value, target),
        ]  # fmt: skip
        wanted = 3 * x
        wanted[10:20] = wanted[:10]
        sequence = device.sequence(*steps)
        sequence()
        assert np.array_equal(target.read(), wanted)
        target.fill(0.0)
        with device.capture(sequence) as graph:  # NCCL destroys no communicator that a graph uses: it waits until the graph is closed
            graph.repeat(2)
            assert np.array_equal(target.read(), wanted)
    finally:
        device.synchronize()
        assert nccl.ncclCommDestroy(handle) == 0
