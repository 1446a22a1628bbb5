"""What keeps what alive and in which order, while work is on its way: over stand-ins for the driver, and what only a GPU proves."""

from __future__ import annotations

import gc
import os
import threading
import time

import numpy as np
import pytest
from axpy import AXPY, axpy_kernel
from device_kinds import open_device
from fake_cuda import CUresult, FakeDriver
from fake_device import installed
from fake_graphs import FakeGraphDriver
from streamed_cuda import StreamedDriver

import vyre_py as vp
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.cuda.native.call_list import STALE
from vyre_py.drivers.cuda.native.command_list import CommandList
from vyre_py.drivers.errors import DeviceLost, DriverError, LaunchError
from vyre_py.ir.language.types import f32, i32
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.options import CompileOptions

LOOP = parse("""program spin(n) workgroup(1) {
  param k: i32
  buffer y: f32[n] read_write
  for j in 0..k { y[global_id.x] = y[global_id.x] + 1.0 }
}""")

def opened(monkeypatch, driver):
    installed(monkeypatch, driver)
    return CudaDevice(0)


class Stream:
    def __init__(self, handle=42):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


@pytest.fixture
def late(monkeypatch):
    return installed(monkeypatch, StreamedDriver(eager=0, total=1 << 24))


def test_words_of_a_kernel_are_used_again_after_the_stream_that_it_runs_on(late):
    device = CudaDevice(0)
    pipeline = device.compile_native(LOOP, CompileOptions(interruptible=True))
    y = device.allocate(1, f32)
    ran = []
    late.kernel = lambda block: ran.append(1)
    launch = pipeline.bind(y=y, k=3)
    device.synchronize()
    launch.on(Stream())()
    words = set(launch.kernel._words.values())
    del launch
    gc.collect()
    again = pipeline.bind(y=y, k=3)
    assert set(again.kernel._words.values()) == words and ran == []
    late.cuStreamSynchronize(device.context.stream)  # the word is zero now, and the kernel that had it is over
    assert ran == [1]
    device.close()


def test_words_of_a_kernel_on_a_captured_stream_stay_its_own(late):
    device = CudaDevice(0)
    pipeline = device.compile_native(LOOP, CompileOptions(interruptible=True))
    y = device.allocate(1, f32)
    late.kernel = lambda block: None
    launch = pipeline.bind(y=y, k=3)
    launch.on(Stream())()
    words = set(launch.kernel._words.values())
    late.captured.add(42)
    del launch
    gc.collect()
    late.captured.clear()
    assert not words & set(pipeline.bind(y=y, k=3).kernel._words.values())
    device.close()


def copied(device, y, z):
    """Ways to copy y to z, each made before any other stream uses them: by a buffer, a step, a sequence, and a sequence in a trace."""
    sequence = device.sequence(vp.copy_step(y, z))

    def traced():
        with device.trace():
            sequence()

    return {"buffer": lambda: z.copy_from(y), "step": vp.copy_step(y, z), "sequence": sequence, "traced sequence": traced}


@pytest.mark.parametrize("way", ["buffer", "step", "sequence", "traced sequence"])
def test_a_copy_comes_after_launches_on_other_streams(late, way):
    device = CudaDevice(0)
    y, z = device.upload(np.ones(1, np.float32)), device.allocate(1, f32)
    late.kernel = axpy_kernel
    launch = device.compile_native(AXPY).bind(x=device.upload(np.full(1, 3, np.float32)), y=y, a=2.0)
    copy = copied(device, y, z)[way]
    device.synchronize()
    launch.on(Stream())()
    copy()
    assert z.read().tolist() == [7]
    device.close()


def test_a_sequence_copies_after_its_own_launches_on_other_streams(late):
    """And what another stream is given later comes after the fill."""
    device = CudaDevice(0)
    y, z = device.upload(np.ones(1, np.float32)), device.allocate(1, f32)
    late.kernel = axpy_kernel
    launch = device.compile_native(AXPY).bind(x=device.upload(np.full(1, 3, np.float32)), y=y, a=2.0)
    sequence = device.sequence(launch, vp.copy_step(y, z), vp.fill_step(y, 10.0))
    launch.on(Stream())
    before = device.telemetry.snapshot()
    sequence()
    launch()
    assert (z.read().tolist(), y.read().tolist()) == ([7], [16])
    counted = device.telemetry.snapshot() - before
    wanted = {"launches": 2, "elements_launched": 2, "copies": 1, "bytes_copied": 4, "fills": 1, "bytes_filled": 4}
    assert {name: counted[name] for name in wanted} == wanted
    device.close()


def test_a_sequence_is_one_native_call_again_once_no_other_stream_uses_memory(late, monkeypatch):
    device = CudaDevice(0)
    y, z, other = device.upload(np.ones(1, np.float32)), device.allocate(1, f32), device.allocate(1, f32)
    asked = []
    handle = CommandList.handle_status
    monkeypatch.setattr(CommandList, "handle_status", lambda self, index, status: asked.append(status) or handle(self, index, status))
    sequence = device.sequence(vp.copy_step(y, z))
    sequence()
    other.use_on(Stream())
    sequence()
    other.free()
    sequence()
    assert asked == [STALE] and z.read().tolist() == [1]
    device.close()


@pytest.mark.parametrize("way", ["dlpack", "interface"])
def test_memory_is_handed_over_after_launches_on_other_streams(late, way):
    device = CudaDevice(0)
    y = device.allocate(1, f32)
    ran = []
    late.kernel = lambda block: ran.append(1)
    device.compile_native(LOOP).bind(y=y, k=3).on(Stream())()
    if way == "dlpack":
        capsule = y.__dlpack__(stream=77)
        late.cuStreamSynchronize(77)
        del capsule
    else:
        late.cuStreamSynchronize(y.__cuda_array_interface__["stream"])
    assert ran == [1]
    device.close()


def test_a_timed_dispatch_has_its_events_on_the_stream_that_the_kernel_goes_to(monkeypatch):
    driver, found = FakeDriver(), []
    device = opened(monkeypatch, driver)
    driver.kernel = lambda block: found.append("kernel")
    monkeypatch.setattr(FakeDriver, "cuEventRecord", lambda self, event, stream: found.append(int(stream)) or (CUresult.CUDA_SUCCESS,))
    device.compile_native(LOOP).dispatch_timed({"y": np.zeros(1, np.float32), "k": 1}, config=DispatchConfig(stream=Stream()))
    at = found.index("kernel")
    assert found[at - 1] == found[at + 1] == 42
    device.close()


def test_the_events_of_timed_dispatches_are_made_once_and_counted(monkeypatch):
    driver, kinds = FakeDriver(), []
    device = opened(monkeypatch, driver)
    make = FakeDriver.cuEventCreate
    monkeypatch.setattr(FakeDriver, "cuEventCreate", lambda self, flags: kinds.append(flags) or make(self, flags))
    pipeline = device.compile_native(LOOP)
    for _ in range(5):
        assert pipeline.dispatch_timed({"y": np.zeros(1, np.float32), "k": 1}).device_ns
        device.record_event()
    assert kinds.count(driver.CUevent_flags.CU_EVENT_DEFAULT) == 2
    shot = device.telemetry.snapshot()
    assert shot.events == shot.events_idle == len(kinds)
    driver.fail["cuEventRecord"] = [CUresult.CUDA_ERROR_INVALID_HANDLE]
    with pytest.raises(DriverError, match="cannot time"):
        pipeline.dispatch_timed({"y": np.zeros(1, np.float32), "k": 1})
    assert device.telemetry.snapshot().events_idle == len(kinds)
    device.close()
    assert not driver.alive_handles


# ---------------------------------------------------------------- several threads


def started(act):
    """Runs something in a thread; gives the thread, and where its error goes."""
    errors = []

    def run():
        try:
            act()
        except Exception as error:  # noqa: BLE001 - looked at by the test
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors


@pytest.mark.parametrize("way", ["write", "read"])
def test_a_device_is_closed_once_transfers_of_other_threads_are_over(monkeypatch, way):
    driver = FakeDriver(total=1 << 26)
    device = opened(monkeypatch, driver)
    buffer = device.allocate(3 << 20, f32)
    begun, go_on = threading.Event(), threading.Event()
    name = "cuMemcpyHtoDAsync" if way == "write" else "cuMemcpyDtoHAsync"
    copy = getattr(FakeDriver, name)

    def slow(self, *given):
        begun.set()
        assert go_on.wait(10)
        return copy(self, *given)

    monkeypatch.setattr(FakeDriver, name, slow)
    data = np.ones(3 << 20, np.float32)
    mover, errors = started((lambda: buffer.write(data)) if way == "write" else buffer.read)
    assert begun.wait(10)
    closer, problems = started(device.close)
    time.sleep(0.05)
    assert closer.is_alive() and driver.blocks
    go_on.set()
    mover.join(20)
    closer.join(20)
    assert not mover.is_alive() and not closer.is_alive() and problems == []
    assert all(isinstance(error, DeviceLost) for error in errors) and not driver.blocks
    with pytest.raises(DeviceLost):
        buffer.write(data)


def test_handing_memory_over_is_no_part_of_another_threads_capture(monkeypatch):
    device = opened(monkeypatch, FakeGraphDriver())
    y = device.allocate(1, f32)
    launch = device.compile_native(LOOP).bind(y=y, k=1)
    found = []

    def captured():
        thread, errors = started(lambda: y.__dlpack__(stream=7))
        thread.join(10)
        found.extend(errors)
        launch()

    graph = device.capture(captured)
    assert [type(error) for error in found] == [LaunchError] and graph.nodes == 1
    y.__dlpack__(stream=7)
    device.close()


def test_an_interrupted_wait_for_a_capture_leaves_the_device_usable(monkeypatch):
    device = opened(monkeypatch, FakeGraphDriver())
    launch = device.compile_native(LOOP).bind(y=device.allocate(1, f32), k=1)
    device.context.busy.value += 1  # another thread makes a call that does not end
    monkeypatch.setattr(time, "sleep", lambda seconds: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        device.capture(launch)
    monkeypatch.undo()
    device.context.busy.value -= 1
    assert device.context.capture is None and device.context.mode.value == 0
    launch()
    device.close()


def test_a_failed_update_of_a_graph_leaves_nothing_that_uses_dropped_buffers(monkeypatch):
    device = opened(monkeypatch, FakeGraphDriver())
    launch = device.compile_native(LOOP).bind(y=device.allocate(1, f32), k=1)
    graph = device.capture(launch)
    assert graph.raw
    new = device.allocate(1, f32)
    launch.set(y=new)
    monkeypatch.setattr(graph._replay, "_change", lambda changed: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        graph.update()
    monkeypatch.undo()
    assert graph.raw == 0
    gc.collect()
    graph()  # made anew, with the arguments of now
    assert graph.raw and new in [buffer for _, buffer in graph._replay.names()]
    device.close()


# ---------------------------------------------------------------- on a GPU

SWAP = parse("""program swap(n) workgroup(256) over(n) {
  param turns: u32
  buffer x: u32[n] read_write
  let i = global_id.x
  for k in 0..turns {
    let v = x[n - 1 - i]
    grid_barrier
    x[i] = v + 1
    grid_barrier
  }
}""")


def test_kernels_that_meet_are_dropped_and_made_on_many_streams():
    """A word where workgroups meet that went to another kernel too early makes one of the two wait for ever."""
    device = open_device("cuda")
    if not device.properties.cooperative_launch:
        pytest.skip("the device has no cooperative launch")
    pipeline, n, turns = device.compile_native(SWAP), 2048, 200
    streams = [device.stream() for _ in range(4)]
    buffers = [device.upload(np.arange(n, dtype=np.uint32)) for _ in streams]
    rounds = 50
    for _ in range(rounds):
        for stream, buffer in zip(streams, buffers, strict=True):
            pipeline.bind({"x": buffer, "turns": turns}).on(stream)()
    for buffer in buffers:
        assert np.array_equal(buffer.read(), np.arange(n, dtype=np.uint32) + rounds * turns)


def test_memory_is_handed_over_after_a_launch_on_another_stream_on_a_gpu():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    device = open_device("cuda")
    program = parse("""program slow(n) workgroup(256) over(n) {
      param turns: u32
      buffer x: i32[n] read_write
      var v: i32 = x[global_id.x]
      for k in 0..turns { v = v * 1664525 + 1013904223 }
      x[global_id.x] = v
    }""")
    n, turns = 1 << 16, 2_000_000
    buffer = device.allocate(n, i32)
    launch = device.compile_native(program).bind({"x": buffer, "turns": turns}).on(device.stream())
    launch()
    early = torch.from_dlpack(buffer).to(torch.int64).sum().item()
    device.synchronize()
    assert early == int(buffer.read().sum(dtype=np.int64))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("size", [100, 20_000, 1 << 20, 8 << 20])
def test_results_can_be_read_in_a_forked_child(size):
    """Results of some sizes lie in page-locked memory, which is host memory to whoever has them."""
    device = open_device("cuda")
    program = parse("""program add(n) workgroup(256) {
      buffer x: f32[n] read
      buffer y: f32[n] write
      y[global_id.x] = x[global_id.x] + 1.0
    }""")
    x = np.arange(size, dtype=np.float32)
    pipeline = device.compile_native(program)
    for _ in range(3):
        y = pipeline.dispatch(x=x)["y"]
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(y, x + 1) else 1)
    assert os.waitpid(child, 0)[1] == 0
