"""Sequences, graphs, events, raw code and products on CUDA, over the stand-in for the driver."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import struct
import sys
import threading
import time
import weakref
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from axpy import AXPY, axpy_kernel
from device_kinds import need_nvjitlink
from fake_cuda import CUresult
from fake_device import installed, opened
from fake_graphs import FakeGraphDriver
from ptxas import assemble

import vyre_py as vp
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.cuda.graph import executables
from vyre_py.drivers.cuda.graph import loop as loop_module
from vyre_py.drivers.cuda.kernels import gemm as gemm_module
from vyre_py.drivers.errors import BindingError, DeviceLost, DeviceUnavailable, LaunchError
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.errors import ToolchainError, Unsupported
from vyre_py.lowering.layout import SlotKind
from vyre_py.lowering.llvm.gpu.machine_code import nvjitlink

# Looks at a flag of its own, and at a word where its workgroups meet.
SPIN = parse("""program spin(n) workgroup(1) {
  buffer y: u32[n] read_write
  for k in 0u32..4u32 { y[global_id.x] = y[global_id.x] + k }
  grid_barrier
}""")
N = 4


@pytest.fixture
def fake(monkeypatch):
    return installed(monkeypatch, FakeGraphDriver(total=1 << 28), axpy_kernel)


@pytest.fixture
def device(fake):
    with opened(fake) as made:
        yield made


@pytest.fixture
def axpy(device):
    """Binds y = a * x + y."""
    pipeline = device.compile_native(AXPY)

    def bind(a=2.0, x=None, y=None):
        x = device.upload(np.arange(N, dtype=np.float32)) if x is None else x
        y = device.upload(np.ones(N, np.float32)) if y is None else y
        return pipeline.bind(x=x, y=y, a=a), x, y

    return bind


def values(buffer):
    return buffer.read().tolist()


# ---- sequences


def test_a_sequence_is_one_run_of_driver_calls(device, fake, axpy):
    launch, x, y = axpy()
    other, _, z = axpy(-1.0, x)
    sequence = device.sequence(launch, vp.copy_step(y, z), other, vp.fill_step(x, 7.0))
    fake.log.clear()
    sequence()
    assert fake.log == ["cuLaunchKernel", "cuMemcpyDtoDAsync", "cuLaunchKernel", "cuMemsetD32Async"]
    assert values(y) == [1, 3, 5, 7] and values(z) == [1, 2, 3, 4] and values(x) == [7] * 4
    counted = device.telemetry.snapshot()
    assert counted["launches"] == 2 and counted["copies"] >= 1 and counted["fills"] >= 1 and counted["elements_launched"] == 2 * N
    assert len(sequence) == 4 and "4 steps" in repr(sequence)


@pytest.mark.parametrize("waiting", [False, True])
def test_a_kernel_bound_within_a_capture_has_its_words_at_once(device, fake, waiting):
    """The graph has the launch alone, and the words are zero for a launch that comes before the first replay."""
    pipeline = device.compile_native(SPIN, vp.CompileOptions(interruptible=True))
    y = device.allocate(1, vp.u32)
    if waiting:  # a slab is there
        pipeline.bind(y=y)
    made = []
    seen = []
    kinds = [slot.kind for slot in pipeline.part.steps[0].layout.slots]
    assert kinds.count(SlotKind.CANCEL) == kinds.count(SlotKind.ARRIVALS) == 1
    fake.argument_bytes["vyre_spin"] = pipeline.part.steps[0].layout.size_bytes
    graph = device.capture(lambda: (made.append(pipeline.bind(y=y)), made[0]()))
    assert not fake.misuse and [node.kind for node in fake.graphs[int(graph._replay._handles.graph)].nodes] == ["kernel"]
    fake.kernel = lambda block: seen.extend(ctypes.c_uint64.from_address(word).value for word, _ in made[0].kernel._words.values())
    made[0]()
    graph()
    assert seen == [0] * 4


def test_no_flag_is_a_word_that_counted_arrivals(device):
    """An odd number of grid barriers leaves the top bit of its word set, which would end an interruptible kernel before it begins."""
    pipeline = device.compile_native(SPIN, vp.CompileOptions(interruptible=True))
    y, flags, counts = device.allocate(1, vp.u32), set(), set()
    for _ in range(4):
        launches = [pipeline.bind(y=y) for _ in range(3)]
        for words in ({use: address for use, (address, _) in launch.kernel._words.items()} for launch in launches):
            assert ctypes.c_uint64.from_address(words[SlotKind.CANCEL]).value == 0
            ctypes.c_uint32.from_address(words[SlotKind.ARRIVALS]).value ^= 1 << 31
            flags.add(words[SlotKind.CANCEL])
            counts.add(words[SlotKind.ARRIVALS])
        del launches, words
        gc.collect()
    assert not flags & counts and len(flags) == len(counts) == 3  # they were used again


def test_words_that_a_timeout_left_set_are_reset_beside_a_capture(device, fake):
    kernel = device.compile_native(SPIN, vp.CompileOptions(interruptible=True)).bind(y=device.allocate(1, vp.u32)).kernel
    cancel = ctypes.c_uint64.from_address(kernel._words[SlotKind.CANCEL][0])
    plain = device.sequence(vp.fill_step(device.allocate(4, vp.f32), 1.0))
    kernel.cancel()
    assert cancel.value
    graph = device.capture(lambda: (plain(), kernel.reset_flags()))
    assert graph.nodes == 1 and not cancel.value


def test_a_sequence_costs_no_python_frame(device, fake, axpy):
    launch, _, _ = axpy()
    sequence = device.sequence(*[launch] * 50)
    fake.kernel = None
    frames = []
    here = set(dir(FakeGraphDriver)) | {"call", "<lambda>", "__getattribute__", "__getattr__", "cast", "string_at", "gc_callback"}
    sys.setprofile(lambda frame, event, _: frames.append(frame.f_code.co_name) if event == "call" and frame.f_code.co_name not in here else None)
    try:
        sequence()
    finally:
        sys.setprofile(None)
    assert frames == [] and len(fake.launches) == 50


def test_set_between_runs_takes_effect(device, axpy):
    launch, _, y = axpy()
    sequence = device.sequence(launch, launch)
    sequence()
    launch.set(a=0.5)
    sequence()
    z = device.upload(np.zeros(N, np.float32))
    launch.set(y=z)
    sequence()
    assert values(y) == [1, 6, 11, 16] and values(z) == [0, 1, 2, 3]
    y.free()  # no longer used
    sequence()
    z.free()
    with pytest.raises(BindingError, match=r"step 0 \(axpy\) of a sequence.*\n.*'y' was freed"):
        sequence()
    launch.set(y=device.upload(np.zeros(N, np.float32)))
    sequence()


def test_freed_buffers_of_steps_are_named(device, axpy):
    launch, _, y = axpy()
    z = device.allocate(N, vp.f32)
    sequence = device.sequence(launch, vp.copy_step(y, z), vp.fill_step(z, 0))
    z.free()
    with pytest.raises(BindingError, match=r"step 1 \(copy\) of a sequence.*\n.*'target' was freed"):
        sequence()
    assert values(y) == [1] * 4
    with pytest.raises(BindingError, match="'buffer' was freed"):
        vp.fill_step(z, 0)


def test_a_failing_step_is_named(device, fake, axpy):
    launch, x, _ = axpy()
    sequence = device.sequence(launch, vp.fill_step(x, 1), launch)
    fake.fail["cuLaunchKernel"] = [None, CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES]
    with pytest.raises(LaunchError, match=r"step 2 \(axpy\) of a sequence cannot be enqueued on cuda:0"):
        sequence()
    fake.fail["cuMemsetD32Async"] = [CUresult.CUDA_ERROR_ILLEGAL_ADDRESS]
    with pytest.raises(DeviceLost, match="first cause"):
        sequence()
    fake.log.clear()
    with pytest.raises(DeviceLost, match="first cause"):
        sequence()
    assert fake.log == []


def test_a_sequence_in_a_new_thread_gets_the_context(device, fake, axpy):
    launch, _, y = axpy()
    sequence = device.sequence(launch, launch)
    thread = threading.Thread(target=sequence)
    thread.start()
    thread.join()
    assert values(y) == [1, 5, 9, 13]


def test_sequences_nest_and_refuse_what_is_no_step(device, axpy):
    launch, _, y = axpy()
    nothing = device.compile_native(AXPY).bind(x=device.allocate(0, vp.f32), y=device.allocate(0, vp.f32), a=1.0)
    inner = device.sequence(launch, nothing, launch)
    outer = device.sequence(inner, vp.fill_step(y, 0.0), inner)
    assert len(outer) == 5
    outer()
    assert values(y) == [0, 4, 8, 12]
    with pytest.raises(BindingError) as caught:
        device.sequence(launch, print, 3)
    assert [problem.split(" is ")[0] for problem in caught.value.problems] == ["step 1", "step 2"] and "Python code" in caught.value.problems[0]
    with pytest.raises(BindingError, match="one step"):
        device.sequence()
    other = CudaDevice(0)
    with pytest.raises(BindingError, match="step 0 is on"):
        other.sequence(launch)
    other.close()


class Foreign:
    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


def test_a_launch_that_moved_takes_its_sequence_along(device, fake, axpy):
    launch, x, _ = axpy()
    sequence = device.sequence(launch, launch)
    launch.on(Foreign(42))
    sequence()
    assert [shape[3] for shape in fake.launches] == [42, 42]
    fake.log.clear()
    sequence()
    assert fake.log == ["cuLaunchKernel"] * 2  # the list was made anew: no handler is called any more
    x.free()
    with pytest.raises(BindingError, match="'x' was freed"):
        sequence()


def test_a_dropped_sequence_is_gone_at_once(device, axpy):
    gc.disable()
    try:
        launch, x, _ = axpy()
        sequence = device.sequence(launch, vp.fill_step(x, 0))
        gone = weakref.ref(launch.kernel), weakref.ref(sequence._calls)
        del launch, sequence
        assert [one() for one in gone] == [None, None]
    finally:
        gc.enable()


def test_steps_run_by_themselves(device, fake):
    x, y = device.upload(np.arange(N, dtype=np.float32)), device.allocate(N, vp.f32)
    vp.copy_step(x, y)()
    assert values(y) == [0, 1, 2, 3]
    vp.fill_step(y, 2.5)()
    assert values(y) == [2.5] * 4
    wide = device.allocate(3, vp.f64)
    device.sequence(vp.fill_step(wide, -1.25))()
    assert values(wide) == [-1.25] * 3
    for wrong in (lambda: vp.copy_step(x, wide), lambda: vp.copy_step(x, x), lambda: vp.copy_step(x, 3), lambda: vp.fill_step(y, "a")):
        with pytest.raises(BindingError):
            wrong()


# ---- a driver without a compiler


class Uncompiling(FakeGraphDriver):
    """The stand-in where the driver's compiler for PTX is not installed, or must not be used."""

    why = CUresult.CUDA_ERROR_JIT_COMPILER_NOT_FOUND

    def cuModuleLoadData(self, image):
        return super().cuModuleLoadData(image) if image.startswith(b"\x7fELF") else (self.why, None)

    def cuModuleLoadDataEx(self, image, count, options, values):
        return super().cuModuleLoadDataEx(image, count, options, values) if image.startswith(b"\x7fELF") else (self.why, None)


@pytest.fixture
def uncompiling(monkeypatch):
    return installed(monkeypatch, Uncompiling(total=1 << 28))


@pytest.mark.parametrize("why", ["COMPILER_NOT_FOUND", "COMPILATION_DISABLED"])
def test_without_the_drivers_compiler_machine_code_is_loaded(uncompiling, monkeypatch, why):
    need_nvjitlink()
    monkeypatch.delenv("VYRE_ASSEMBLER", raising=False)
    monkeypatch.setattr(Uncompiling, "why", CUresult[f"CUDA_ERROR_JIT_{why}"])
    uncompiling.kernel = axpy_kernel
    device = CudaDevice(0)
    assert str(device.target) == "sm_90" and not device.loads_ptx
    x, y = device.upload(np.arange(N, dtype=np.float32)), device.upload(np.ones(N, np.float32))
    launch = device.compile_native(AXPY).bind(x=x, y=y, a=2.0)
    launch()
    assert values(y) == [1, 3, 5, 7]
    uncompiling.kernel = lambda block: None
    device.copy_strided(x, N - 1, (-1,), y, 0, (1,), (N,))  # by a kernel of our own
    flag = device.upload(np.zeros(1, np.uint32))
    assert device.capture_while(flag, launch).conditional == "host"
    for refused in (
        lambda: device.load_ptx(PTX, "axpy", [("x", vp.f32, "read")]), lambda: device.load(vp.compile_native(AXPY, "compute_90")),
    ):  # fmt: skip
        with pytest.raises(ToolchainError, match=rf"CUDA_ERROR_JIT_{why}[\s\S]*PTX"):
            refused()
    device.close()


@pytest.mark.parametrize(("switch", "loads"), [("1", False), ("0", True), ("", True)])
@pytest.mark.parametrize("name", ["CUDA_DISABLE_PTX_JIT", "CUDA_DISABLE_JIT"])
def test_a_probe_from_the_drivers_cache_proves_no_compiler(fake, monkeypatch, name, switch, loads):
    """A driver that must not compile still loads PTX that an earlier process has compiled, as the probe is."""
    need_nvjitlink()
    monkeypatch.setenv(name, switch)
    device = CudaDevice(0)
    assert device.loads_ptx is loads
    device.close()


def test_without_any_compiler_code_from_elsewhere_is_loaded(uncompiling, monkeypatch):
    need_nvjitlink()
    artifact = vp.compile_native(AXPY, "sm_90")
    monkeypatch.setattr(nvjitlink, "available", lambda: False)
    monkeypatch.setattr(nvjitlink, "_library", lambda: (_ for _ in ()).throw(ImportError("it is not here")))
    device = CudaDevice(0)
    device.load(artifact)
    with pytest.raises(ToolchainError, match="CUDA_ERROR_JIT_COMPILER_NOT_FOUND"):
        device.compile_native(AXPY)
    device.close()


def test_a_driver_that_loads_nothing_at_all_is_refused(uncompiling, monkeypatch):
    need_nvjitlink()
    uncompiling.fail["cuModuleLoadData"] = [None, CUresult.CUDA_ERROR_INVALID_PTX]
    with pytest.raises(DeviceUnavailable, match="JIT_COMPILER_NOT_FOUND"):
        CudaDevice(0)


# ---- graphs


def test_capture_runs_nothing_and_replay_does(device, fake, axpy):
    launch, x, y = axpy()
    z = device.allocate(N, vp.f32)
    fill, sequence = vp.fill_step(x, 1.0), device.sequence(launch, launch)

    def work(a, b):
        launch()
        z.copy_from(y)
        fill()
        sequence()
        return a + b

    graph = device.capture(work, 40, 2)
    assert graph.value == 42 and graph.nodes == 5 and graph.conditional == "" and fake.launches == []
    assert values(y) == [1] * 4
    fake.log.clear()
    graph()
    assert fake.log == ["cuGraphLaunch"]
    assert values(z) == [1, 3, 5, 7] and values(y) == [5, 7, 9, 11]
    counted = device.telemetry.snapshot()
    assert (counted["graphs_captured"], counted["graph_replays"], counted["graph_launches"], counted["launches"]) == (1, 1, 3, 0)
    assert counted["elements_launched"] == 3 * N and counted["graphs"] == 1
    with pytest.raises(LaunchError, match="no turns"):
        graph.turns()


def test_update_in_place(device, fake, axpy):
    launch, x, y = axpy()
    second, _, _ = axpy(1.0, x, y)
    graph = device.capture(lambda: (launch(), second()))
    launch.set(a=10.0)
    graph()
    assert values(y) == [1, 4, 7, 10]  # as captured
    fake.log.clear()
    assert graph.update() == 1 and graph.update() == 0
    assert fake.log == ["cuGraphExecKernelNodeSetParams"]
    graph()
    assert values(y) == [1, 15, 29, 43]
    z = device.upload(np.zeros(N, np.float32))
    assert graph.set(launch, y=z).set(second, y=z) is graph
    y.free()
    graph()
    assert values(z) == [0, 11, 22, 33] and device.telemetry.graph_updates == 3
    stranger, _, _ = axpy()
    with pytest.raises(BindingError, match="not part of the graph"):
        graph.update(stranger)
    with pytest.raises(BindingError, match="launches are needed"):
        graph.update(3)


def test_an_update_that_the_driver_refuses_makes_the_graph_anew(device, fake, axpy):
    launch, _, y = axpy()
    graph = device.capture(launch)
    launch.set(a=3.0)
    fake.fail["cuGraphExecKernelNodeSetParams"] = [CUresult.CUDA_ERROR_NOT_SUPPORTED]
    assert graph.update(launch) == 1
    graph()
    assert values(y) == [1, 4, 7, 10] and device.telemetry.fallbacks == 1


def test_a_freed_buffer_stops_replays(device, axpy):
    launch, _, y = axpy()
    z = device.allocate(N, vp.f32)
    graph = device.capture(lambda: (launch(), z.copy_from(y)))
    z.free()
    for call in (graph, lambda: graph.repeat(3), graph.update):
        with pytest.raises(BindingError, match="'target' was freed"):
            call()
    assert values(y) == [1] * 4


def test_the_graph_keeps_what_it_uses(device, fake, axpy):
    launch, x, y = axpy()
    graph = device.capture(launch)
    gone = weakref.ref(launch.kernel)
    del launch, x
    gc.collect()
    graph()
    assert values(y) == [1, 3, 5, 7]
    gc.disable()
    try:
        del graph
        assert gone() is None and "executable" not in fake.alive_handles.values() and "graph" not in fake.alive_handles.values()
    finally:
        gc.enable()


def test_repeat_is_one_native_call(device, fake, axpy):
    launch, _, y = axpy(1.0)
    graph = device.capture(launch)
    fake.log.clear()
    graph.repeat(10)
    assert fake.log == ["cuCtxGetCurrent"] + ["cuGraphLaunch"] * 10
    graph.repeat(0)
    assert values(y) == [1, 11, 21, 31]
    assert device.telemetry.graph_replays == 10 and device.telemetry.snapshot()["graph_launches"] == 10
    with pytest.raises(BindingError, match="whole number of times"):
        graph.repeat(-1)
    fake.fail["cuGraphLaunch"] = [None, CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES]
    with pytest.raises(LaunchError, match="cannot be replayed"):
        graph.repeat(3)


def test_what_is_not_possible_while_capturing(device, fake, axpy):
    launch, x, _ = axpy()
    pipeline = device.compile_native(AXPY)
    host = np.ones(N, np.float32)
    event = device.record_event()
    wrong = [
        lambda: device.upload(host), x.read, lambda: x.write(host), device.synchronize, device.trim, device.close,
        lambda: pipeline.dispatch(x=host, y=host, a=1.0), lambda: device.capture(launch), event.wait, event.done,
    ]  # fmt: skip

    def work():
        launch()
        for call in wrong:
            with pytest.raises(LaunchError, match="a graph is being captured") as caught:
                call()
            assert "before the capture" in caught.value.remedy or "before" in str(caught.value)

    graph = device.capture(work)
    assert graph.nodes == 1
    for call in wrong[:1] + wrong[2:5]:
        call()


def test_a_closure_that_raises_leaves_all_usable(device, fake, axpy):
    launch, _, y = axpy()

    def work():
        launch()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        device.capture(work)
    assert "graph" not in fake.alive_handles.values() and not device.context.capturing
    launch()
    assert values(y) == [1, 3, 5, 7]
    with pytest.raises(LaunchError, match="launched nothing"):
        device.capture(lambda: None)
    fake.fail["cuStreamBeginCapture"] = [CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED]
    with pytest.raises(LaunchError, match="cannot capture a graph"):
        device.capture(launch)
    fake.fail["cuGraphInstantiate"] = [CUresult.CUDA_ERROR_OUT_OF_MEMORY] * 3
    with pytest.raises(vp.OutOfMemory, match="cannot be instantiated"):
        device.capture(launch)
    fake.fail["cuLaunchKernel"] = [CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES]
    with pytest.raises(LaunchError, match="was not launched"):
        device.capture(launch)
    gc.collect()
    assert "graph" not in fake.alive_handles.values()
    with pytest.raises(BindingError, match="a function is needed"):
        device.capture(3)
    device.capture(launch)()
    assert values(y) == [1, 5, 9, 13]


def test_a_broken_capture_is_an_error_and_ends(device, fake, axpy):
    launch, _, y = axpy()

    def work():
        launch()
        fake.cuStreamSynchronize(device.raw.stream)

    with pytest.raises(LaunchError, match="CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"):
        device.capture(work)
    fake.misuse.clear()
    launch()
    assert values(y) == [1, 3, 5, 7]


def test_other_threads_are_told_who_captures(device, axpy):
    launch, x, _ = axpy()
    told = []

    def other():
        for call in (launch, device.sequence(launch), lambda: device.upload(np.ones(3)), lambda: device.capture(launch), x.read, device.record_event):
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
    assert told == ["the thread 'MainThread' captures a graph on cuda:0"] * 6 and graph.nodes == 1
    other()
    assert len(told) == 6


def test_a_capture_waits_for_launches_that_are_being_made(device, fake, axpy):
    launch, _, _ = axpy()
    began, order = threading.Event(), []

    def slow(block):
        began.set()
        time.sleep(0.05)
        order.append("launched")

    fake.kernel = slow
    thread = threading.Thread(target=launch)
    thread.start()
    began.wait()
    graph = device.capture(lambda: (order.append("captured"), launch()))
    thread.join()
    assert order == ["launched", "captured"] and graph.nodes == 1 and len(fake.launches) == 1


def test_memory_freed_in_a_capture_goes_after_it(device, fake, axpy):
    launch, _, _ = axpy()
    held = [device.allocate(1000, vp.f32), device.compile_native(AXPY)]
    device._pipelines.clear()
    device._codes.clear()

    def work():
        held[0].free()
        held.clear()
        gc.collect()
        launch()

    before = device.telemetry.bytes_allocated
    device.capture(work)
    assert fake.misuse == [] and device.telemetry.bytes_allocated == before - 4000


def test_a_graph_within_a_graph(device, axpy):
    launch, x, y = axpy(1.0)
    inner = device.capture(lambda: (launch(), launch()))
    outer = device.capture(lambda: (inner(), inner.repeat(2), launch()))
    assert outer.nodes == 4
    outer()
    assert values(y) == [1, 8, 15, 22]
    x.free()
    with pytest.raises(BindingError, match="'x' was freed"):
        outer()


def test_graphs_are_bounded(device, fake, axpy, monkeypatch):
    monkeypatch.setattr(executables, "GRAPH_LIMIT", 3)
    launch, _, y = axpy(1.0)
    graphs = [device.capture(launch) for _ in range(3)]
    graphs[0].set(launch, a=2.0)
    graphs[0]()  # used lately
    fourth = device.capture(launch)
    live = list(fake.alive_handles.values())
    assert live.count("executable") == 3 and live.count("graph") == 4
    assert [bool(graph.raw) for graph in graphs] == [True, False, True]
    assert device.telemetry.snapshot()["graphs"] == 4
    launch.set(a=1.0)
    graphs[1]()  # made again
    for graph in (*graphs, fourth):
        graph()
    assert values(y) == [1, 10, 19, 28]  # 2 + 1 + 2 + 1 + 1 + 2
    assert list(fake.alive_handles.values()).count("executable") == 3


def test_updates_survive_the_bound(device, fake, axpy, monkeypatch):
    monkeypatch.setattr(executables, "GRAPH_LIMIT", 1)
    launch, _, y = axpy(1.0)
    first = device.capture(launch)
    first.set(launch, a=5.0)
    second = device.capture(launch)
    assert not first.raw and second.raw
    first()
    assert values(y) == [1, 6, 11, 16] and first.raw and not second.raw
    second.close()
    with pytest.raises(LaunchError, match="closed"):
        second()


def test_replays_in_many_threads(device, fake, axpy):
    launch, _, _ = axpy(1.0)
    graph = device.capture(launch)

    def run():
        for _ in range(20):
            graph()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for n in range(10):
        graph.set(launch, a=1.0 + n % 2)
    for thread in threads:
        thread.join()
    assert device.telemetry.graph_replays == 80


def test_a_graph_on_another_stream(device, fake, axpy):
    launch, _, _ = axpy()
    graph = device.capture(launch)
    assert graph.on(Foreign(42)) is graph
    graph()
    assert fake.graph_streams == [42]
    with pytest.raises(BindingError, match="__cuda_stream__"):
        graph.on(3)


def test_a_launch_on_a_stream_that_is_not_captured(device, fake, axpy):
    launch, _, _ = axpy()
    moved, _, _ = axpy()
    moved.on(Foreign(42))
    with pytest.raises(LaunchError, match="not part of the capture"):
        device.capture(moved)
    fake.captured.add(42)  # as after an event that it waited for
    with pytest.raises(KeyError):
        device.capture(lambda: (launch(), moved()))


# ---- loops


def countdown(block):
    """flag -= 1, over y's first element as what it counts."""
    x_at, y_at, a, _ = struct.unpack_from("<QQfI", block)
    flag = ctypes.c_uint32.from_address(x_at)
    flag.value -= 1
    ctypes.c_float.from_address(y_at).value += a


@pytest.fixture
def loop(device, fake, axpy):
    flag = device.upload(np.array([3, 0, 0, 0], np.uint32))
    launch, _, y = axpy(1.0, flag.view(vp.f32))
    fake.kernel = countdown
    return flag, launch, y


@pytest.mark.parametrize("where", ["device", "host"])
def test_capture_while(device, fake, loop, where):
    fake.version = 13000 if where == "device" else 12030
    flag, launch, y = loop
    graph = device.capture_while(flag, lambda: launch() or "value")
    assert graph.conditional == where and graph.value == "value" and graph.nodes == 1 and graph.turns() == 0
    graph()
    assert values(y)[0] == 4 and graph.turns() == 3 and flag.read()[0] == 0
    graph()
    assert values(y)[0] == 4 and graph.turns() == 0
    flag.write(np.array([9, 0, 0, 0], np.uint32))
    graph.set(launch, a=0.5)
    graph()
    assert values(y)[0] == 8.5 and graph.turns() == 9
    bounded = device.capture_while(flag, launch, limit=2)
    flag.write(np.array([9, 0, 0, 0], np.uint32))
    bounded.repeat(2)
    assert flag.read()[0] == 5 and bounded.turns() == 2
    flag.free()
    with pytest.raises(BindingError, match="freed"):
        graph()


def test_a_loop_of_nothing_is_refused(device, fake, loop):
    flag, launch, y = loop
    with pytest.raises(LaunchError, match="launched nothing"):
        device.capture_while(flag, lambda: None)
    with pytest.raises(ZeroDivisionError):
        device.capture_while(flag, lambda: 1 / 0)
    assert "graph" not in fake.alive_handles.values()
    for arguments in ((y, launch), (flag, 3), (3, launch)):
        with pytest.raises(BindingError):
            device.capture_while(*arguments)
    with pytest.raises(BindingError, match="limit"):
        device.capture_while(flag, launch, limit=-1)


# ---- events, streams, handles


def test_events_come_from_the_pool_and_go_back(device, fake):
    events = device.context.events
    event = device.record_event()
    fake.fail["cuEventQuery"] = [CUresult.CUDA_ERROR_NOT_READY]
    assert not event.done() and event.done()
    event.wait()
    device.wait_event(event, device.streams.copy)
    assert device.telemetry.waits == 1
    fake.fail["cuEventSynchronize"] = [CUresult.CUDA_ERROR_INVALID_HANDLE]
    with pytest.raises(LaunchError, match="cannot be waited for"):
        event.wait()
    made, handle = events.made, event.raw
    del event
    assert events.idle == events.made == made and device.record_event(Foreign(42)).raw == handle
    fake.fail["cuEventRecord"] = [CUresult.CUDA_ERROR_INVALID_HANDLE]
    with pytest.raises(vp.DriverError):
        device.record_event()
    assert events.idle == events.made
    for wrong in (lambda: device.record_event(3), lambda: device.wait_event(3), lambda: device.wait_event(device.record_event(), 5)):
        with pytest.raises(BindingError):
            wrong()


def test_streams_of_ones_own(device, fake, axpy):
    launch, _, _ = axpy()
    with device.stream(-3) as stream:
        assert stream.priority == -3 and stream.__cuda_stream__() == (0, stream.raw)
        launch.on(stream)()
        assert fake.launches[-1][3] == stream.raw
        stream.synchronize()
        handle = stream.raw
    with pytest.raises(LaunchError, match="closed"):
        stream.raw  # noqa: B018 - the look itself raises
    assert device.stream(-3).raw == handle
    for wrong in (1, -6, "high", True):
        with pytest.raises(BindingError, match="from -5"):
            device.stream(wrong)
    streams = device.streams
    assert (streams.compute.raw, streams.copy.raw) == (device.raw.stream, device.raw.copy_stream)
    streams.compute.close()
    assert device.streams.compute.raw == device.raw.stream


def test_the_pool_of_streams_is_bounded_and_lets_go_of_other_sorts(device, fake):
    held = [device.stream() for _ in range(126)]
    with pytest.raises(LaunchError, match="128 are in use"):
        device.stream(-1)
    held.pop()
    assert device.stream(-1).priority == -1
    assert device.context.streams.made == 128


def test_made_and_idle_are_counted_apart(device):
    def counts():
        shot, raw = device.telemetry.snapshot(), device.raw
        assert (raw.streams, raw.streams_idle) == (shot.streams, shot.streams_idle)
        return shot.streams, shot.streams_idle, shot.events, shot.events_idle

    first = counts()
    assert first[:2] == (2, 0) and first[2] == first[3]
    event = device.record_event()
    with device.stream():
        assert counts() == (3, 0, max(1, first[2]), max(0, first[3] - 1))
    del event
    assert counts() == (3, 1, max(1, first[2]), max(1, first[3]))
    device.trim()
    assert counts() == (2, 0, 0, 0)


def test_the_handle_of_cublaslt_is_told(device, lt):
    assert device.raw.cublaslt == 0
    a, b, out = [device.upload(np.ones((8, 8), np.float32)) for _ in range(3)]
    device.gemm(a, b, out)
    assert device.raw.cublaslt == device.gemm_library.handle != 0


def test_raw_handles_of_code(device, axpy):
    launch, x, _ = axpy()
    pipeline = device.compile_native(AXPY)
    assert launch.raw.module == pipeline.raw.module and launch.raw.function and pipeline.raw.function
    assert x.address == x.handle and x[1:].address == x.handle + 4


# ---- raw code

SIGNATURE = [("x", vp.f32, "read"), ("y", vp.f32, "read_write"), ("a", vp.f32), ("n", vp.u32)]
PTX = ".version 7.0\n.target sm_70\n.visible .entry axpy(.param .u64 x) { ret; }"


def test_load_ptx(device, fake):
    kernel = device.load_ptx(PTX, "axpy", SIGNATURE)
    x, y = device.upload(np.arange(6, dtype=np.float32).reshape(2, 3)), device.upload(np.ones((3, 2), np.float32))
    launch = kernel.bind({"x": x, "y": y}, a=2.0, n=6, grid=2, workgroup=(32, 2), workgroup_bytes=100_000)
    launch()
    assert fake.launches == [((2, 1, 1), (32, 2, 1), 100_000, device.raw.stream)]
    assert values(y) == [[1, 3], [5, 7], [9, 11]]
    launch.set(a=-1.0)
    device.sequence(launch, vp.fill_step(x, 1.0))()
    device.capture(launch)()
    assert values(y) == [[0, 1], [2, 3], [4, 5]]
    assert launch.raw.module == kernel.raw.module and "axpy" in repr(kernel)
    x.free()
    with pytest.raises(BindingError, match="'x' was freed"):
        launch()


def test_load_ptx_keeps_the_module_for_its_launches(device, fake):
    kernel = device.load_ptx(PTX, "axpy", SIGNATURE)
    x, y = device.upload(np.arange(4, dtype=np.float32)), device.upload(np.ones(4, np.float32))
    launch = kernel.bind(x=x, y=y, a=1.0, n=4, grid=1, workgroup=4)
    fake.log.clear()
    del kernel
    gc.collect()
    assert "cuModuleUnload" not in fake.log
    launch()
    del launch
    gc.collect()
    assert "cuModuleUnload" in fake.log


def test_load_ptx_errors(device, fake):
    for signature in (3, [("x",)], [("x", vp.f32, "see")], [("x", "f32")], [("x", vp.f32), ("x", vp.u32)], "xy"):
        with pytest.raises(BindingError):
            device.load_ptx(PTX, "axpy", signature)
    with pytest.raises(BindingError, match="no entry 'other'; it has 'axpy'"):
        device.load_ptx(PTX, "other", SIGNATURE)
    with pytest.raises(ToolchainError, match="line 3: no") as caught:
        device.load_ptx(PTX + "// broken", "axpy", SIGNATURE)
    assert "broken" in caught.value.text
    fake.declared["axpy"] = [(0, 8), (8, 8), (16, 4), (20, 4)]
    kernel = device.load_ptx(PTX, "axpy", SIGNATURE)
    fake.declared["axpy"] = [(0, 8), (8, 8), (16, 8), (24, 4)]
    with pytest.raises(BindingError, match=r"'a' takes 4 bytes at 16, and parameter 2 of the code 8 bytes at 16"):
        device.load_ptx(PTX, "axpy", SIGNATURE)
    with pytest.raises(BindingError, match="the signature has 3 parameters, the code more"):
        device.load_ptx(PTX, "axpy", SIGNATURE[:3])
    fake.fail["cuModuleGetFunction"] = [CUresult.CUDA_ERROR_INVALID_HANDLE]
    with pytest.raises(vp.DriverError):
        device.load_ptx(b"\x7fELF", "axpy", SIGNATURE)
    x = device.allocate(4, vp.f32)
    y = device.allocate(4, vp.f32)
    good = {"x": x, "y": y, "a": 1.0, "n": 4}
    for change in ({"a": "b"}, {"x": y}, {"x": np.ones(4, np.float32)}, {"z": 1}, {"x": device.allocate(4, vp.u8)}):
        with pytest.raises(BindingError):
            kernel.bind({**good, **change}, grid=1, workgroup=1)
    for shape in ({"grid": -1, "workgroup": 1}, {"grid": (1, 2, 3, 4), "workgroup": 1}, {"grid": 1, "workgroup": 0}):
        with pytest.raises(BindingError):
            kernel.bind(good, **shape)
    with pytest.raises(Unsupported, match="workgroups of 2048"):
        kernel.bind(good, grid=1, workgroup=2048)
    kernel.bind(good, grid=0, workgroup=1)()


def test_values_of_raw_code_lie_as_cuda_aligns_them(device, fake):
    seen = []
    fake.kernel = seen.append
    signature = [("c", vp.u8), ("h", vp.f16), ("d", vp.f64), ("v", vp.f32x2), ("w", vp.f32x3), ("p", vp.f32, "write")]
    kernel = device.load_ptx(PTX, "axpy", signature)
    y = device.allocate(4, vp.f32)
    kernel.bind(c=5, h=1.0, d=2.0, v=(1.0, 2.0), w=(3.0, 4.0, 5.0), p=y, grid=1, workgroup=1)()
    assert seen[0] == struct.pack("<Bx2s4xd2f3f4xQ", 5, b"\x00\x3c", 2.0, 1.0, 2.0, 3.0, 4.0, 5.0, y.address)


# ---- products


class FakeLt(ModuleType):
    """cuBLASLt's bindings: descriptions are dictionaries, and the product is NumPy's, over matrices as cuBLASLt has them, column by column."""

    MatmulDescAttribute = SimpleNamespace(TRANSA=3, TRANSB=4)
    MatmulPreferenceAttribute = SimpleNamespace(
        MAX_WORKSPACE_BYTES=1, MIN_ALIGNMENT_A_BYTES=5, MIN_ALIGNMENT_B_BYTES=6, MIN_ALIGNMENT_C_BYTES=7, MIN_ALIGNMENT_D_BYTES=8
    )
    MatrixLayoutAttribute = SimpleNamespace(BATCH_COUNT=5, STRIDED_BATCH_OFFSET=6)
    matmul_heuristic_result_dtype = np.dtype([("algo", "u8", 8), ("rest", "u8", 4)])

    def __init__(self):
        super().__init__("nvmath.bindings.cublasLt")
        self.things, self.number, self.status, self.count = {}, 100, 0, 1
        prototype = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * 16)
        self.function = prototype(self.matmul)
        self.address = ctypes.cast(self.function, ctypes.c_void_p).value

    def _make(self, **details):
        self.number += 1
        self.things[self.number] = details
        return self.number

    def _drop(self, thing):
        del self.things[thing]

    def _put(self, thing, attribute, address, size):
        self.things[thing][attribute] = int.from_bytes(ctypes.string_at(address, size), "little", signed=True)

    def create(self):
        return self._make(kind="handle")

    def matmul_desc_create(self, compute, scale):
        return self._make(compute=compute, scale=scale)

    def matrix_layout_create(self, kind, rows, columns, ld):
        return self._make(type=kind, rows=rows, columns=columns, ld=ld)

    def matmul_preference_create(self):
        return self._make(kind="preference")

    destroy = matmul_desc_destroy = matrix_layout_destroy = matmul_preference_destroy = _drop
    matmul_desc_set_attribute = matrix_layout_set_attribute = matmul_preference_set_attribute = _put

    def matmul_algo_get_heuristic(self, handle, operation, a, b, c, d, preference, wanted, results, count):
        assert wanted == 1
        self.alignments = [self.things[preference][n] for n in (5, 6, 7, 8)]
        ctypes.c_int.from_address(count).value = self.count

    def get_status_name(self, status):
        return {13: "CUBLAS_STATUS_EXECUTION_FAILED"}[status]

    def _matrix(self, layout, address):
        about = self.things[layout]
        dtype = {0: np.float32, 1: np.float64, 2: np.float16}[about["type"]]
        batch, stride = about.get(5, 1), about.get(6, 0)
        size = np.dtype(dtype).itemsize
        found = []
        for n in range(batch):
            raw = (ctypes.c_char * (size * about["ld"] * about["columns"])).from_address(address + n * stride * size)
            found.append(np.frombuffer(raw, dtype).reshape(about["columns"], about["ld"]).T)
        return found

    def matmul(self, handle, operation, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algo, workspace, size, stream):
        if self.status:
            return self.status
        about = self.things[operation]
        scalar = ctypes.c_double if about["scale"] == 1 else ctypes.c_float
        alpha, beta = [scalar.from_address(at).value for at in (alpha, beta)]
        assert workspace and size == 32 << 20 and (c, c_layout) == (d, d_layout)
        for x, y, out in zip(self._matrix(a_layout, a), self._matrix(b_layout, b), self._matrix(d_layout, d), strict=True):
            left, right = x.T if about[3] else x, y.T if about[4] else y
            out[...] = (alpha * (left.astype(np.float64) @ right.astype(np.float64)) + beta * out).astype(out.dtype)
        return 0


@pytest.fixture
def lt(monkeypatch, fake):
    made = FakeLt()
    for name in ("nvmath", "nvmath.bindings"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["nvmath.bindings"], "cublasLt", made, raising=False)
    monkeypatch.setattr(gemm_module, "_address", lambda: made.address)
    return made


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize(("transpose_a", "transpose_b", "batch"), [(False, False, ()), (True, False, ()), (False, True, (3,)), (True, True, (2,))])
def test_gemm(device, lt, dtype, transpose_a, transpose_b, batch):
    rng = np.random.default_rng(5)
    m, k, n = 5, 3, 4
    a = rng.integers(-4, 5, (*batch, *((k, m) if transpose_a else (m, k)))).astype(dtype)
    b = rng.integers(-4, 5, (*batch, *((n, k) if transpose_b else (k, n)))).astype(dtype)
    c = rng.integers(-4, 5, (*batch, m, n)).astype(dtype)
    out = device.upload(c)
    step = vp.gemm_step(device.upload(a), device.upload(b), out, alpha=2.0, beta=-1.0, transpose_a=transpose_a, transpose_b=transpose_b)
    wanted = 2 * (np.swapaxes(a, -1, -2) if transpose_a else a) @ (np.swapaxes(b, -1, -2) if transpose_b else b) - c
    step()
    assert np.array_equal(out.read(), wanted)
    x = device.upload(c)
    device.sequence(vp.copy_step(x, out), step)()
    assert np.array_equal(out.read(), wanted)
    device.gemm(device.upload(a), device.upload(b), out, transpose_a=transpose_a, transpose_b=transpose_b)
    assert np.array_equal(out.read(), (wanted + c) / 2)


def test_gemm_describes_alignment_and_type_of_sums(device, lt):
    a, b, out = [device.upload(np.ones((8, 8), np.float32)) for _ in range(3)]
    step = vp.gemm_step(a.reshape(64)[1:17].reshape(4, 4), b[:4].reshape(32)[:16].reshape(4, 4), out[:2].reshape(16).reshape(4, 4), math="tf32")
    assert lt.alignments[1] == 4 and all(one >= 4 for one in lt.alignments)
    assert [t["compute"] for t in lt.things.values() if "compute" in t] == [77]
    half = device.upload(np.ones((8, 8), np.float16))
    mixed = vp.gemm_step(half, half, out)
    mixed()
    assert (out.read() == 8).all()
    assert [t["compute"] for t in lt.things.values() if "compute" in t] == [77, 68]
    live = len(lt.things)
    gc.disable()
    try:
        del step, mixed
        assert len(lt.things) == live - 10
    finally:
        gc.enable()


def test_gemm_is_refused_where_it_does_not_fit(device, lt):
    def made(*shape, type_=np.float32):
        return device.upload(np.ones(shape, type_))

    a = made(4, 4)
    for wrong in (
        (a, made(3, 4), made(4, 4)), (a, made(4, 4), made(4, 3)), (a, made(4), made(4, 4)), (a, a, a), (a, 3, a), (a, made(2, 4, 4), made(4, 4)),
        (made(0, 4), a, made(0, 4)),
    ):  # fmt: skip
        with pytest.raises(BindingError):
            vp.gemm_step(*wrong)
    for options in ({"alpha": "x"}, {"math": "f16"}):
        with pytest.raises(BindingError):
            vp.gemm_step(a, made(4, 4), made(4, 4), **options)
    for types, options in (((np.int32,) * 3, {}), ((np.float32, np.float32, np.float64), {}), ((np.float64,) * 3, {"math": "tf32"})):
        with pytest.raises(Unsupported, match="gemm of"):
            vp.gemm_step(*[made(4, 4, type_=t) for t in types], **options)
    lt.count = 0
    with pytest.raises(Unsupported, match="no algorithm"):
        vp.gemm_step(a, made(4, 4), made(4, 4))


def test_a_failing_product_is_named(device, lt):
    a, b, out = [device.upload(np.ones((4, 4), np.float32)) for _ in range(3)]
    step = vp.gemm_step(a, b, out)
    sequence = device.sequence(vp.fill_step(a, 1), step)
    lt.status = 13
    with pytest.raises(LaunchError, match=r"step 1 \(product of 4x4 and 4x4\).*CUBLAS_STATUS_EXECUTION_FAILED \(13\)"):
        sequence()
    with pytest.raises(LaunchError, match="product of 4x4 and 4x4 cannot be enqueued"):
        step()


def test_a_product_leaves_the_current_context_as_it_was(device, fake, lt):
    a, b, out = [device.upload(np.ones((4, 4), np.float32)) for _ in range(3)]
    step = vp.gemm_step(a, b, out)
    runs = {"step": step, "sequence": device.sequence(vp.fill_step(a, 1), step, vp.fill_step(b, 1))}
    for name, run in runs.items():
        for lt.status in (0, 13):
            fake.current.context = 55
            with pytest.raises(LaunchError) if lt.status else contextlib.nullcontext():
                run()
            assert fake.current.context == 55, (name, lt.status)
    fake.current.context = 55
    fake.fail["cuCtxPushCurrent"] = [CUresult.CUDA_ERROR_INVALID_VALUE]
    with pytest.raises(LaunchError, match="CUDA_ERROR_INVALID_VALUE"):
        step()
    assert fake.current.context == 55


def test_graphs_with_products_keep_the_order_of_our_stream_where_they_go(device, fake, lt, axpy):
    """All products share one workspace, which only that order keeps apart."""
    order = []
    fake.cuEventRecord = lambda event, stream: order.append(("record", int(stream))) or (CUresult.CUDA_SUCCESS,)
    fake.cuStreamWaitEvent = lambda stream, event, flags: order.append(("wait", int(stream))) or (CUresult.CUDA_SUCCESS,)
    fake.cuGraphLaunch = lambda executable, stream: order.append(("graph", int(stream))) or (CUresult.CUDA_SUCCESS,)
    launch, _, _ = axpy()
    step = vp.gemm_step(*[device.upload(np.ones((4, 4), np.float32)) for _ in range(3)])
    own, other = int(device.context.stream), 42

    def ran(call):
        order.clear()
        call()
        return list(order)

    between = [("record", own), ("wait", other), ("graph", other), ("record", other), ("wait", own)]
    inner = device.capture(lambda: (launch(), step()))
    for graph in (inner, device.capture(inner)):
        before = graph.__call__
        assert ran(graph) == [("graph", own)]
        graph.on(Foreign(other))
        assert ran(graph) == ran(before) == between and ran(lambda graph=graph: graph.repeat(2)) == 2 * between
        device.graphs.trim()  # made anew at the next replay
        assert ran(graph)[-5:] == between
        graph.on(device.streams.compute)
        assert ran(graph) == ran(before) == [("graph", own)]
    plain = device.capture(launch).on(Foreign(other))
    assert ran(plain) == [("graph", other)]
    events = device.context.events
    used = events.made - events.idle
    del inner, graph, before
    gc.collect()
    assert events.made - events.idle == used - 2


def test_gemm_without_the_package(device, monkeypatch):
    monkeypatch.setitem(sys.modules, "nvmath.bindings", None)
    a, b, out = [device.upload(np.ones((4, 4), np.float32)) for _ in range(3)]
    with pytest.raises(DeviceUnavailable, match=r"pip install 'nvmath-python\[cu13\]'"):
        vp.gemm_step(a, b, out)


# ---- faults


def capture_and_update(device, bind):
    launch, _, y = bind()
    graph = device.capture(lambda: (launch(), y.fill(1.0)))
    graph.set(launch, a=3.0)
    graph()
    graph.repeat(2)
    graph.on(Foreign(42))()


def loop_and_update(device, bind):
    launch, _, _ = bind()
    flag = device.upload(np.zeros(1, np.uint32))
    graph = device.capture_while(flag, launch)
    graph()
    graph.set(launch, a=3.0)()
    graph.turns()


def sequence_and_event(device, bind):
    launch, x, y = bind()
    device.sequence(launch, vp.copy_step(y, x), vp.fill_step(y, 2.0))()
    with device.stream(-1) as stream:
        device.wait_event(device.record_event(), stream)
        device.record_event(stream).wait()


def raw_code(device, bind):
    kernel = device.load_ptx(PTX, "axpy", SIGNATURE)
    x, y = device.allocate(4, vp.f32), device.allocate(4, vp.f32)
    kernel.bind(x=x, y=y, a=1.0, n=4, grid=1, workgroup=4, workgroup_bytes=60_000)()


@pytest.mark.parametrize("scenario", [capture_and_update, loop_and_update, sequence_and_event, raw_code], ids=lambda scenario: scenario.__name__)
def test_every_driver_call_may_fail_once(monkeypatch, scenario):
    """The right kind of error, nothing leaked, and a device that goes on, whichever call of the driver fails."""

    def run(name, number):
        driver = installed(monkeypatch, FakeGraphDriver(total=1 << 22), axpy_kernel)
        device = CudaDevice(0)
        pipeline = device.compile_native(AXPY)

        def bind():
            x, y = device.upload(np.arange(N, dtype=np.float32)), device.upload(np.ones(N, np.float32))
            return pipeline.bind(x=x, y=y, a=2.0), x, y

        bind()[0]()
        device.synchronize()
        driver.log.clear()
        if name == "cuStreamEndCapture":  # which ends a capture whatever it answers
            driver.broken_end = number + 1
        elif name:
            driver.fail[name] = [None] * number + [CUresult.CUDA_ERROR_INVALID_VALUE]
        with contextlib.suppress(*[vp.VyreError] if name else []):
            scenario(device, bind)
        log = list(driver.log)
        driver.fail.clear()
        gc.collect()
        assert not driver.capturing and not device.context.capturing and device._recording is None and device.context.busy.value == 0
        launch, _, y = bind()
        launch()
        device.capture(launch)()
        assert values(y) == [1, 5, 9, 13], (name, number)
        del launch, y
        device.close()
        gc.collect()
        left = [what for what in driver.alive_handles.values() if what != "module"]
        assert not left and not driver.misuse and not driver.blocks, (name, number, left, driver.misuse)
        return log

    calls = run("", 0)
    gc.freeze()  # what other tests have left need not be looked at so often
    for name in dict.fromkeys(calls):
        if "Destroy" in name or "Free" in name:  # what can't be given back is lost
            continue
        for number in {0, 1, 2, calls.count(name) - 1} & set(range(calls.count(name))):
            run(name, number)


def test_traces_see_sequences_and_graphs(device, axpy):
    launch, _, y = axpy(1.0)
    sequence, graph = device.sequence(launch, launch), device.capture(launch)
    with vp.trace() as trace:
        sequence()
        graph()
        graph.repeat(2)
        inside = device.capture(lambda: (launch(), graph()))
        inside()
    assert values(y) == [1, 8, 15, 22]
    names = [event["name"] for event in json.loads(trace.to_json())["traceEvents"] if event.get("cat") == "launch"]
    assert names == ["sequence of 2", "graph of 1 kernels", "graph of 1 kernels", "graph of 1 kernels", "graph of 1 kernels"]


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100", "sm_120"])
def test_the_kernel_of_loops_is_assembled(arch):
    assemble(loop_module._CODE.decode(), arch)
