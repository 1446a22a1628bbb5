"""Sequences and graphs mean the same on every device."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest
from device_kinds import KINDS, open_device

import vyre_py as vp
from vyre_py.drivers.errors import BindingError, LaunchError
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.errors import Unsupported

AXPY = parse("""program axpy(n) workgroup(64) {
  param a: i32
  buffer x: i32[n] read
  buffer y: i32[n] read_write
  let i = global_id.x
  y[i] = a * x[i] + y[i]
}""")

# Doubles y and counts the flag down.
COUNTDOWN = parse("""program countdown(n) workgroup(64) over(n) {
  buffer flag: u32[1] read_write
  buffer y: u32[n] read_write
  let i = global_id.x
  y[i] = y[i] * 2
  if i == 0 { flag[0u32] = flag[0u32] - 1 }
}""")
N = 100


@pytest.fixture(params=KINDS)
def device(request):
    return open_device(request.param)


@pytest.fixture
def axpy(device):
    pipeline = device.compile_native(AXPY)

    def bind(a=2, x=None, y=None):
        x = device.upload(np.arange(N, dtype=np.int32)) if x is None else x
        y = device.upload(np.ones(N, np.int32)) if y is None else y
        return pipeline.bind(x=x, y=y, a=a), x, y

    return bind


X = np.arange(N, dtype=np.int32)


def test_a_sequence_runs_its_steps_in_order(device, axpy):
    launch, _, y = axpy()
    z = device.allocate(N, vp.i32)
    other, _, _ = axpy(-3, y, z)
    inner = device.sequence(vp.fill_step(z, 5), other)
    sequence = device.sequence(launch, inner, vp.copy_step(z, y))
    assert len(sequence) == 4
    sequence()
    assert np.array_equal(y.read(), 5 - 3 * (2 * X + 1))
    launch.set(a=0)
    other.set(a=1)
    sequence()
    assert np.array_equal(y.read(), 5 + 5 - 3 * (2 * X + 1))


def test_a_sequence_refuses_what_is_no_step(device, axpy):
    launch, _, y = axpy()
    with pytest.raises(BindingError, match="Python code cannot be part"):
        device.sequence(launch, lambda: None)
    with pytest.raises(BindingError, match="one step"):
        device.sequence()
    with pytest.raises(BindingError, match="step 0 is a launch"):
        device.sequence(None)
    elsewhere = vp.device("cpu" if device.kind != "cpu" else "reference").upload(X)
    for wrong in (lambda: vp.copy_step(elsewhere, y), lambda: device.sequence(vp.fill_step(elsewhere, 1)), lambda: vp.fill_step(y, 0.5)):
        with pytest.raises(BindingError):
            wrong()


def test_a_freed_buffer_stops_the_whole_sequence(device, axpy):
    launch, _, y = axpy()
    z = device.allocate(N, vp.i32)
    sequence = device.sequence(launch, vp.fill_step(z, 1))
    z.free()
    with pytest.raises(BindingError, match="was freed"):
        sequence()
    assert np.array_equal(y.read(), np.ones(N))


def test_fills_of_every_width(device):
    for type_, value in ((vp.u8, 7), (vp.i16, -3), (vp.f32, 1.5), (vp.f16, 0.25), (vp.u64, (1 << 40) + 3), (vp.f32x3, (1.0, 2.0, 3.0)), (vp.bool_, True)):
        buffer = device.allocate(33, type_)
        device.sequence(vp.fill_step(buffer[1:32], value))()
        wanted = np.zeros(buffer.host_shape, buffer.type.dtype)
        wanted[1:32] = value
        assert np.array_equal(buffer.read(), wanted), type_


def test_capture_runs_nothing_and_replay_does(device, axpy):
    launch, _, y = axpy()
    z = device.allocate(N, vp.i32)
    sequence = device.sequence(launch, launch)
    before = device.telemetry.snapshot()

    def work(more):
        launch()
        z.copy_from(y)
        z.fill(3) if more else None
        sequence()
        return "value"

    graph = device.capture(work, False)
    assert graph.value == "value" and graph.nodes == 4 and graph.conditional == ""
    assert np.array_equal(y.read(), np.ones(N)) and not z.read().any()
    graph()
    assert np.array_equal(z.read(), 2 * X + 1) and np.array_equal(y.read(), 6 * X + 1)
    graph.repeat(2)
    assert np.array_equal(z.read(), 14 * X + 1) and np.array_equal(y.read(), 18 * X + 1)
    graph.repeat(0)
    counted = device.telemetry.snapshot()
    grown = {name: counted[name] - before[name] for name in ("launches", "graphs_captured", "graph_replays", "graph_launches")}
    assert grown == {"launches": 0, "graphs_captured": 1, "graph_replays": 3, "graph_launches": 9}


def test_arguments_are_those_of_the_capture_until_an_update(device, axpy):
    launch, x, y = axpy()
    second, _, _ = axpy(1, x, y)
    graph = device.capture(lambda: (launch(), second()))
    z = device.upload(np.zeros(N, np.int32))
    launch.set(a=10, y=z)
    second.set(a=7)
    graph()
    assert np.array_equal(y.read(), 3 * X + 1) and not z.read().any()
    assert graph.update(launch) == 1 and graph.update(launch) == 0
    graph()
    assert np.array_equal(z.read(), 10 * X) and np.array_equal(y.read(), 4 * X + 1)
    assert graph.update() == 1
    assert graph.set(second, y=z).set(launch, a=0) is graph
    y.free()
    graph()
    assert np.array_equal(z.read(), 17 * X)
    stranger, _, _ = axpy()
    with pytest.raises(BindingError, match="not part of the graph"):
        graph.update(stranger)
    with pytest.raises(BindingError, match="launches are needed"):
        graph.update(3)
    with pytest.raises(BindingError):
        graph.set(launch, b=3)


def test_the_same_launch_twice_with_other_arguments(device, axpy):
    launch, _, y = axpy(1)

    def work():
        for a in (1, 10, 100):
            launch.set(a=a)
            launch()

    graph = device.capture(work)
    graph()
    assert np.array_equal(y.read(), 111 * X + 1)
    assert graph.update() == 2  # those that had 1 and 10
    graph()
    assert np.array_equal(y.read(), 411 * X + 1)


def test_the_graph_keeps_its_buffers(device, axpy):
    launch, x, y = axpy()
    graph = device.capture(launch)
    gone = weakref.ref(x.allocation)
    del launch, x
    gc.collect()
    graph()
    assert np.array_equal(y.read(), 2 * X + 1)
    del graph
    gc.collect()
    assert gone() is None


def test_a_freed_buffer_stops_replays(device, axpy):
    launch, x, y = axpy()
    z = device.upload(X)
    graph = device.capture(lambda: (launch(), vp.copy_step(z, x)()))
    z.free()
    with pytest.raises(BindingError, match="'source' was freed"):
        graph()
    assert np.array_equal(y.read(), np.ones(N))
    with pytest.raises(BindingError, match="was freed"):
        device.capture(vp.copy_step(z, x))
    x.free()
    with pytest.raises(BindingError, match="'x' was freed"):
        device.capture(launch)
    launch, x, y = axpy()
    graph = device.capture(launch)
    graph.close()
    graph.close()
    with pytest.raises(LaunchError, match="closed"):
        graph()


def test_memory_is_frozen_while_capturing(device, axpy):
    launch, x, y = axpy()
    pipeline = device.compile_native(AXPY)

    def work():
        launch()
        if device.kind == "cuda":  # a node of the graph (test_cuda_graphs.py)
            device.allocate(4, vp.i32).free()
        else:
            with pytest.raises(LaunchError, match="a graph is being captured"):
                device.allocate(4, vp.i32)
        for call in (
            lambda: device.upload(X), x.read, lambda: x.write(X), device.synchronize, device.trim, device.close,
            lambda: device.capture(launch), lambda: pipeline.dispatch(x=X, y=X, a=1), lambda: pipeline.submit(x=X, y=X, a=1),
        ):  # fmt: skip
            with pytest.raises(LaunchError, match="a graph is being captured"):
                call()

    graph = device.capture(work)
    graph()
    assert np.array_equal(y.read(), 2 * X + 1)


def test_a_failing_capture_leaves_the_device_usable(device, axpy):
    launch, _, y = axpy()

    def work():
        launch()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        device.capture(work)
    with pytest.raises(LaunchError, match="launched nothing"):
        device.capture(lambda: None)
    with pytest.raises(BindingError, match="a function is needed"):
        device.capture(launch.plan)
    assert np.array_equal(y.read(), np.ones(N))
    launch()
    device.capture(launch)()
    assert np.array_equal(y.read(), 4 * X + 1)


def test_other_threads_are_told_who_captures(device, axpy):
    launch, x, y = axpy()
    told = []

    def other():
        for call in (launch, device.sequence(launch), lambda: device.upload(X), x.read, lambda: x.copy_from(y), lambda: device.capture(launch)):
            try:
                call()
            except LaunchError as error:
                told.append(error.cause)

    def work():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        launch()

    graph = device.capture(work)
    assert told == [f"the thread 'MainThread' captures a graph on {device.name}"] * 6 and graph.nodes == 1


def test_a_graph_within_a_graph(device, axpy):
    launch, _, y = axpy(1)
    inner = device.capture(lambda: (launch(), launch()))
    outer = device.capture(lambda: (inner(), launch.set(a=10)()))
    inner.update()
    outer()
    assert np.array_equal(y.read(), 12 * X + 1)
    inner()
    assert np.array_equal(y.read(), 32 * X + 1)


def test_capture_while(device):
    flag, y = device.upload(np.array([5], np.uint32)), device.upload(np.ones(N, np.uint32))
    launch = device.compile_native(COUNTDOWN).bind(flag=flag, y=y)
    graph = device.capture_while(flag, launch)
    assert graph.conditional in ("device", "host") and graph.nodes == 1 and graph.turns() == 0
    graph()
    assert graph.turns() == 5 and (y.read() == 32).all() and flag.read()[0] == 0
    graph()
    assert graph.turns() == 0 and (y.read() == 32).all()
    bounded = device.capture_while(flag, launch, limit=2)
    flag.write(np.array([9], np.uint32))
    bounded()
    assert bounded.turns() == 2 and flag.read()[0] == 7 and (y.read() == 128).all()
    z = device.upload(np.ones(N, np.uint32))
    graph.set(launch, y=z)()
    assert graph.turns() == 7 and (z.read() == 128).all() and (y.read() == 128).all()
    for wrong in ((y.view(vp.i32), launch), (flag, 3), (None, launch)):
        with pytest.raises(BindingError):
            device.capture_while(*wrong)
    for limit in (-1, 1.5, 1 << 32):
        with pytest.raises(BindingError, match="limit"):
            device.capture_while(flag, launch, limit=limit)
    with pytest.raises(LaunchError, match="launched nothing"):
        device.capture_while(flag, lambda: None)
    with pytest.raises(LaunchError, match="no turns"):
        device.capture(launch).turns()


def test_events(device):
    x, y = device.upload(np.arange(1000, dtype=np.int32)), device.upload(np.ones(1000, np.int32))
    launch = device.compile_native(AXPY).bind(x=x, y=y, a=2)
    launch()
    event = device.record_event()
    device.wait_event(event)
    later = device.compile_native(AXPY).bind(x=y, y=device.upload(np.ones(1000, np.int32)), a=2)
    later()
    wanted = 1 + 2 * np.arange(1000, dtype=np.int32)
    out = np.zeros((1000, 2), np.int32)
    assert np.array_equal(y.read(after=event), wanted) and np.array_equal(y[10:20].read(after=event), wanted[10:20])
    y.read(out[:, 1], after=event)
    assert np.array_equal(out[:, 1], wanted) and not out[:, 0].any()
    event.wait()
    assert event.done() and event.device is device
    assert device.allocate(0, vp.i32).read(after=event).size == 0
    other = vp.device("reference")
    if other is not device:
        assert np.array_equal(y.read(after=other.record_event()), wanted) and other.upload(np.ones(3)).read(after=event).tolist() == [1, 1, 1]
        device.wait_event(other.record_event())
        other.wait_event(event)
    for wrong in (lambda: y.read(after=3), lambda: device.wait_event(None), lambda: y.read(None, True)):
        with pytest.raises(BindingError, match="an event"):
            wrong()
    with pytest.raises(LaunchError):
        device.capture(lambda: (launch(), y.read(after=event)))
    y.free()
    with pytest.raises(BindingError, match="freed"):
        y.read(after=event)


def test_what_a_device_has_not_got_is_refused_by_name(device):
    if device.kind == "cuda":
        assert device.streams.compute.raw and device.raw.stream
        return
    a = device.allocate((2, 2), vp.f32)
    for call, name in (
        (lambda: device.record_event(3), "streams"), (lambda: device.wait_event(device.record_event(), 3), "streams"), (lambda: device.streams, "streams"),
        (device.stream, "streams"), (lambda: device.load_ptx("", "x", []), "load_ptx"),
        (lambda: vp.gemm_step(a, device.allocate((2, 2), vp.f32), device.allocate((2, 2), vp.f32)), "gemm"),
        (lambda: device.gemm(a, device.allocate((2, 2), vp.f32), device.allocate((2, 2), vp.f32)), "gemm"),
        (lambda: device.capture(vp.fill_step(a, 1.0)).on(None), "streams"),
    ):  # fmt: skip
        with pytest.raises(Unsupported, match=name):
            call()
