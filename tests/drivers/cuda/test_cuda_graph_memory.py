"""Memory that captured graphs allocate, on CUDA, over the stand-in for the driver."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from axpy import AXPY, axpy_kernel
from fake_cuda import CUresult
from fake_device import installed, opened
from inject import Stream
from test_cuda_sequences import FakeGraphDriver, values

import vyre_py as vp
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.cuda.graph import executables
from vyre_py.drivers.errors import BindingError, DriverError, LaunchError, OutOfMemory

MIB = 1 << 20
X = [0.0, 1.0, 2.0, 3.0]
NO_MEMORY = CUresult.CUDA_ERROR_OUT_OF_MEMORY


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeGraphDriver:
    return installed(monkeypatch, FakeGraphDriver(total=64 * MIB), axpy_kernel)


@pytest.fixture
def device(fake: FakeGraphDriver) -> Iterator[CudaDevice]:
    with opened(fake) as made:
        yield made
    assert not fake.graph_memory and not fake.addresses


@pytest.fixture
def axpy(device: CudaDevice) -> vp.Pipeline:
    return device.compile_native(AXPY)


class Made:
    """A graph that computes y = a * x, and leaves y there."""

    def __init__(self, device: CudaDevice, axpy: vp.Pipeline) -> None:
        self.device, self.axpy = device, axpy
        self.x = device.upload(np.array(X, np.float32))
        self.other = device.allocate(4, vp.f32)
        self.graph = device.capture(self._work)

    def _work(self) -> None:
        self.y = self.device.allocate(4, vp.f32)
        self.launch = self.axpy.bind(x=self.x, y=self.y, a=2.0)
        self.launch()


@pytest.fixture
def made(device: CudaDevice, axpy: vp.Pipeline) -> Made:
    return Made(device, axpy)


# ---------------------------------------------------------------- what the captured function frees


def test_what_is_freed_in_the_function_is_there_from_node_to_node(device: CudaDevice, fake: FakeGraphDriver, axpy: vp.Pipeline) -> None:
    x, y, held = device.upload(np.array(X, np.float32)), device.upload(np.ones(4, np.float32)), []
    before = device.memory.held_bytes

    def work() -> None:
        first, second = device.allocate(4, vp.f32), device.allocate(4, vp.f32)
        held.extend([axpy.bind(x=x, y=first, a=3.0), axpy.bind(x=first, y=second, a=2.0), first, second])
        held[0]()
        held[1]()
        first.free()
        y.copy_from(second)
        second.free()
        second.free()

    graph = device.capture(work)
    assert values(y) == [1] * 4 and device.memory.held_bytes == before
    views = graph._views()
    assert [view[:2] for view in views] == [("launch", "axpy"), ("launch", "axpy"), ("copy", "copy")]
    assert views[1].uses[0].buffer is held[2] and "(freed)" in graph._repr_html_() and not fake.graph_memory
    for _ in range(2):
        y.fill(0.0)
        graph()
        assert values(y) == [0, 6, 12, 18] and not fake.graph_memory
    graph.set(held[0], a=1.0)()
    assert values(y) == [0, 2, 4, 6]
    graph.repeat(2)
    outside = (held[0], held[1], held[2].read, held[3].read, lambda: axpy.bind(x=x, y=held[2], a=1.0), lambda: held[3].fill(1.0))
    for call in outside:
        with pytest.raises(BindingError, match="freed"):
            call()
    held[3].free()
    with pytest.raises(LaunchError, match="allocates memory"):
        device.capture(graph)


def test_memory_of_a_capture_that_fails_is_gone(device: CudaDevice, fake: FakeGraphDriver, axpy: vp.Pipeline) -> None:
    held = []

    def work() -> None:
        held.append(device.allocate(4, vp.f32))
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        device.capture(work)
    with pytest.raises(BindingError, match="was freed"):
        held[0].read()
    held[0].free()
    for name in ("cuMemAllocFromPoolAsync", "cuMemsetD8Async"):
        fake.fail[name] = [CUresult.CUDA_ERROR_NOT_SUPPORTED]
        with pytest.raises(DriverError, match="NOT_SUPPORTED"):
            device.capture(lambda: device.allocate(4, vp.f32))


def test_memory_that_could_not_be_zeroed_is_freed_at_once(made: Made, fake: FakeGraphDriver) -> None:
    """The capture goes on without it."""

    def work() -> None:
        fake.fail["cuMemsetD8Async"] = [CUresult.CUDA_ERROR_INVALID_VALUE]
        with pytest.raises(DriverError, match="INVALID_VALUE"):
            made.device.allocate(4, vp.f32)
        made.other.fill(3.0)

    graph = made.device.capture(work)
    graph()
    assert values(made.other) == [3] * 4 and not fake.graph_memory


# ---------------------------------------------------------------- what it leaves


def test_what_the_function_leaves_is_there_until_the_next_replay(made: Made, fake: FakeGraphDriver) -> None:
    device, y = made.device, made.y
    made.graph()
    assert values(y) == [0, 2, 4, 6] and [*fake.graph_memory] == [y.address]
    made.launch()  # bound within the capture, launched outside
    assert values(y) == [0, 4, 8, 12]
    bound = made.axpy.bind(x=y, y=made.other, a=1.0)
    bound()
    device.sequence(bound, vp.copy_step(made.other, y))()
    assert values(made.other) == values(y) == [0, 8, 16, 24]
    y.fill(1.0)
    y[:2].write(np.zeros(2, np.float32))
    assert values(y) == [0, 0, 1, 1] and made.axpy.dispatch(x=y, y=np.ones(4, np.float32), a=1.0)["y"].tolist() == [1, 1, 2, 2]
    made.graph()
    assert values(y) == [0, 2, 4, 6]  # of memory that was zeroed
    launched = len(fake.graph_streams)
    made.graph.set(made.launch, a=3.0).repeat(3)
    assert values(y) == [0, 3, 6, 9] and len(fake.graph_memory) == 1 and len(fake.graph_streams) == launched + 3
    bound()
    assert values(made.other) == [0, 11, 22, 33]


NOT_THERE: dict[str, Callable[[Made], Any]] = {
    "read": lambda m: m.y.read(),
    "write": lambda m: m.y.write(np.zeros(4, np.float32)),
    "fill": lambda m: m.y.fill(0.0),
    "copy": lambda m: m.other.copy_from(m.y),
    "copy to it": lambda m: m.y.copy_from(m.other),
    "strided copy": lambda m: m.device.copy_strided(m.y, 0, (1,), m.other, 0, (1,), (4,)),
    "launch": lambda m: m.launch(),
    "bind": lambda m: m.axpy.bind(x=m.y, y=m.other, a=1.0),
    "set": lambda m: m.axpy.bind(x=m.x, y=m.other, a=1.0).set(x=m.y),
    "dispatch": lambda m: m.axpy.dispatch(x=m.y, y=np.zeros(4, np.float32), a=1.0),
    "step": lambda m: vp.fill_step(m.y, 1.0),
    "sequence": lambda m: m.device.sequence(m.launch)(),
    "another graph": lambda m: m.device.capture(m.launch),
    "address": lambda m: m.y.address,
    "ranges": lambda m: m.device.download_ranges([(m.y, 0, 2)]),
    "store": lambda m: m.device.resident.put(m.y),
    "hand over": lambda m: m.y.__dlpack__(),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_THERE)
def test_before_the_first_replay_it_is_not_there(made: Made, name: str) -> None:
    with pytest.raises(BindingError, match="is memory of a graph that was not replayed yet: replay that first"):
        NOT_THERE[name](made)


ELSEWHERE: dict[str, tuple[type[Exception], Callable[[Made], Any]]] = {
    "graph": (LaunchError, lambda m: m.graph.on(Stream())),
    "launch": (LaunchError, lambda m: m.launch.on(Stream())),
    "set of a moved launch": (LaunchError, lambda m: m.axpy.bind(x=m.x, y=m.other, a=1.0).on(Stream()).set(x=m.y)),
    "use_on": (LaunchError, lambda m: m.y.use_on(Stream())),
    "after an event": (BindingError, lambda m: m.y.read(after=m.device.record_event())),
    "dlpack": (BufferError, lambda m: m.y.__dlpack__()),
    "array interface": (AttributeError, lambda m: m.y.__cuda_array_interface__),
}  # fmt: skip


@pytest.mark.parametrize("name", ELSEWHERE)
def test_only_the_own_stream_uses_it(made: Made, name: str) -> None:
    """That alone is in order with the replays that free it."""
    made.graph()
    kind, call = ELSEWHERE[name]
    with pytest.raises(kind, match=r"memory of a graph|memory there|replays of a graph free"):
        call(made)
    made.launch()
    made.graph()
    assert values(made.y) == [0, 2, 4, 6]


def test_in_the_capture_other_streams_may_use_what_the_function_frees(made: Made) -> None:
    device = made.device

    def work(frees: bool) -> None:
        memory = device.allocate(4, vp.f32)
        memory.use_on(Stream())
        memory.__dlpack__(stream=-1)
        if frees:
            memory.free()

    device.capture(work, True)()
    with pytest.raises(LaunchError, match="free it in the function, once the streams have met"):
        device.capture(work, False)
    assert not device.memory.foreign_use


def test_nobody_else_frees_it(made: Made, fake: FakeGraphDriver) -> None:
    for _ in range(2):
        with pytest.raises(BindingError, match=r"belongs to a graph: its next replay frees it, and so does graph.close\(\)"):
            made.y.free()
        made.graph()
    made.graph.close()
    assert not fake.graph_memory
    with pytest.raises(BindingError, match="was freed"):
        made.y.read()
    with pytest.raises(BindingError, match="'y' was freed"):
        made.launch()


def test_it_outlives_a_graph_that_is_dropped(made: Made, fake: FakeGraphDriver) -> None:
    made.graph()
    del made.graph
    gc.collect()
    assert not fake.graphs and not fake.executables and values(made.y) == [0, 2, 4, 6]
    made.launch()
    assert values(made.y) == [0, 4, 8, 12]
    view = made.y[1:]
    del made.y, made.launch
    gc.collect()
    assert values(view) == [4, 8, 12]
    del view
    gc.collect()
    assert not fake.graph_memory and not fake.addresses


def test_a_graph_that_was_never_replayed_leaves_nothing(made: Made, fake: FakeGraphDriver) -> None:
    del made.graph
    gc.collect()
    with pytest.raises(BindingError):
        made.y.read()
    assert "cuMemFreeAsync" not in fake.log


@pytest.mark.parametrize("dropped", [False, True])
def test_closing_the_device_frees_it(fake: FakeGraphDriver, dropped: bool) -> None:
    device = CudaDevice(0)
    made = Made(device, device.compile_native(AXPY))
    made.graph()
    if dropped:
        del made.graph
        gc.collect()
    device.close()
    assert not fake.graph_memory
    del made, device
    gc.collect()
    assert not fake.misuse and not fake.addresses


def test_another_graph_uses_it_while_it_is_there(made: Made) -> None:
    device = made.device
    made.graph()
    consumer = device.capture(made.axpy.bind(x=made.y, y=made.other, a=1.0))
    for turn in (1, 2):
        made.graph()
        consumer()
        assert values(made.other) == [turn * 2 * value for value in X]
    made.graph.close()
    with pytest.raises(BindingError, match="'x' was freed"):
        consumer()


def test_a_finaliser_within_another_capture_frees_it_after_that(made: Made, fake: FakeGraphDriver) -> None:
    made.graph()

    def work() -> None:
        del made.graph, made.y, made.launch
        gc.collect()
        made.other.fill(5.0)
        assert fake.graph_memory

    graph = made.device.capture(work)
    assert not fake.graph_memory
    graph()
    assert values(made.other) == [5] * 4


def test_replays_wait_for_a_transfer(made: Made, fake: FakeGraphDriver) -> None:
    """A replay in another thread would free what is being read."""
    made.graph()
    threads, copy = [], fake.cuMemcpyDtoHAsync

    def replay() -> None:
        with made.device.context.entered():  # so that native code can make the call
            made.graph()

    def slow(*arguments: Any) -> Any:
        threads.append(threading.Thread(target=replay))
        threads[0].start()
        threads[0].join(0.2)
        assert threads[0].is_alive()
        return copy(*arguments)

    made.launch()
    launched = len(fake.graph_streams)
    fake.cuMemcpyDtoHAsync = slow
    assert values(made.y) == [0, 4, 8, 12] and len(threads) == 1
    threads[0].join(20)
    del fake.cuMemcpyDtoHAsync
    assert len(fake.graph_streams) == launched + 1 and values(made.y) == [0, 2, 4, 6]


@pytest.mark.parametrize("times", [1, 2, 5])
def test_the_first_replays_may_be_repeated(made: Made, fake: FakeGraphDriver, times: int) -> None:
    made.graph.repeat(times)
    assert len(fake.graph_streams) == times and values(made.y) == [0, 2, 4, 6]


def test_a_traced_replay_leaves_it_there(made: Made) -> None:
    with made.device.trace():
        made.graph()
    assert values(made.y) == [0, 2, 4, 6]


# ---------------------------------------------------------------- executable graphs that are made anew


def test_a_graph_whose_memory_is_there_is_not_given_up(made: Made, fake: FakeGraphDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executables, "GRAPH_LIMIT", 2)
    device = made.device
    made.graph()
    others = [device.capture(lambda: made.other.fill(1.0)) for _ in range(3)]
    device.trim()
    assert made.graph.raw and [graph.raw for graph in others] == [0] * 3 and values(made.y) == [0, 2, 4, 6]
    made.graph()
    others[0]()
    assert made.graph.raw


def test_a_graph_whose_memory_is_not_there_is_given_up_and_made_again(made: Made) -> None:
    made.device.trim()
    assert not made.graph.raw
    made.graph()
    assert values(made.y) == [0, 2, 4, 6]


def test_an_update_that_the_driver_refuses_takes_it_away_until_the_next_replay(made: Made, fake: FakeGraphDriver) -> None:
    made.graph()
    fake.fail["cuGraphExecKernelNodeSetParams"] = [CUresult.CUDA_ERROR_INVALID_VALUE]
    made.graph.set(made.launch, a=5.0)
    assert made.device.telemetry.fallbacks == 1 and not fake.graph_memory
    with pytest.raises(BindingError, match="replay that first"):
        made.y.read()
    made.graph()
    assert values(made.y) == [0, 5, 10, 15]


def test_a_launch_takes_no_memory_that_comes_after_it(made: Made) -> None:
    device, axpy, held = made.device, made.axpy, []
    early = axpy.bind(x=made.x, y=made.other, a=1.0)

    def work() -> None:
        early()
        held.append(device.allocate(4, vp.f32))
        held.append(axpy.bind(x=made.x, y=held[0], a=1.0))
        held[1]()

    graph = device.capture(work)
    graph()
    early.set(x=held[0])
    for update in (graph.update, lambda: graph.update(early)):
        with pytest.raises(BindingError, match="'x' is memory that the graph allocates after this launch"):
            update()
    early.set(x=made.x)
    held[1].set(y=made.other, a=2.0)
    graph()
    assert values(held[0]) == X  # as captured
    graph.update()
    made.other.fill(0.0)
    graph()
    assert values(made.other) == [0, 3, 6, 9] and values(held[0]) == [0] * 4


@pytest.mark.parametrize("status", ["CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_OUT_OF_MEMORY"])
def test_a_replay_that_fails_leaves_none(made: Made, fake: FakeGraphDriver, status: str) -> None:
    """What the one before had left is freed once, whatever the driver has done with it."""
    made.graph()
    total = fake.total
    if "MEMORY" in status:
        fake.total = fake.used
    else:
        fake.fail["cuGraphLaunch"] = [CUresult[status]] * 3
    with pytest.raises(DriverError, match=status[11:] if "MEMORY" not in status else "too little free memory for what the graph allocates"):
        made.graph()
    fake.total = total
    fake.fail.clear()
    with pytest.raises(BindingError, match="replay that first"):
        made.y.read()
    assert not fake.graph_memory
    made.graph()
    assert values(made.y) == [0, 2, 4, 6]


# ---------------------------------------------------------------- sizes, budgets, trimming


def figures(error: OutOfMemory) -> tuple[Any, ...]:
    return error.asked, error.free, error.held, error.limit


def test_too_much_is_refused_with_figures_and_the_capture_goes_on(made: Made, fake: FakeGraphDriver) -> None:
    device, said = made.device, []

    def work() -> None:
        first = device.allocate(40 * MIB, vp.u8)
        for size in (65 * MIB, 25 * MIB):
            with pytest.raises(OutOfMemory, match="bytes there at once, and the device has 67,108,864") as caught:
                device.allocate(size, vp.u8)
            said.append(figures(caught.value))
        first.free()
        device.allocate(25 * MIB, vp.u8).free()
        fake.fail["cuMemAllocFromPoolAsync"] = [NO_MEMORY]
        with pytest.raises(OutOfMemory, match=r"cannot allocate 4 bytes in a graph: CUDA_ERROR_OUT_OF_MEMORY \(2\)") as caught:
            device.allocate(4, vp.u8)
        said.append(figures(caught.value))
        device.memory.limit_bytes = device.memory.held_bytes + 10 * MIB
        device.allocate(10 * MIB, vp.u8).free()
        with pytest.raises(OutOfMemory, match="budget") as caught:
            device.allocate(10 * MIB + 1, vp.u8)
        said.append(figures(caught.value))
        made.other.fill(1.0)

    held = device.memory.held_bytes
    free = fake.total - fake.used
    device.capture(work)()
    assert said == [
        (65 * MIB, free, held, fake.total), (25 * MIB, free, held, fake.total), (4, free, held, fake.total),
        (10 * MIB + 1, free, held, held + 10 * MIB),
    ]  # fmt: skip
    assert values(made.other) == [1] * 4


def test_nothing_is_asked_for_no_bytes(made: Made, fake: FakeGraphDriver) -> None:
    held: list[vp.Buffer] = []
    graph = made.device.capture(lambda: (held.append(made.device.allocate((0, 3), vp.f32)), made.other.fill(1.0)))
    assert len(fake.graphs) == 2 and held[0].read().shape == (0, 3)
    graph()
    held[0].free()


def test_a_replay_that_finds_no_memory(made: Made, fake: FakeGraphDriver) -> None:
    """What is kept goes first, then it is OutOfMemory with what the graph has at once."""
    device = made.device

    def work() -> None:
        first, second = device.allocate(20 * MIB, vp.u8), device.allocate(10 * MIB, vp.u8)
        first.free()
        device.allocate(5 * MIB, vp.u8).free()
        second.free()

    graph = device.capture(work)
    kept = device.upload(np.zeros(40 * MIB, np.uint8))
    kept.free()
    graph()
    assert device.telemetry.oom_retries == 1 and device.memory.cached_bytes == 0
    kept = device.allocate(40 * MIB, vp.u8)  # which takes what graphs reserve and do not use
    assert device.telemetry.oom_retries == 2
    with pytest.raises(OutOfMemory, match="too little free memory for what the graph allocates") as caught:
        graph()
    assert figures(caught.value)[0] == 30 * MIB and caught.value.limit == fake.total
    kept.free()
    graph()
    fake.fail["cuGraphInstantiate"] = [NO_MEMORY] * 3
    with pytest.raises(OutOfMemory, match="too little free memory for what the graph allocates") as caught:
        device.capture(work)
    assert caught.value.asked == 30 * MIB


@pytest.mark.parametrize("call", ["replay", "repeat", "traced"])
@pytest.mark.parametrize("enough", [True, False])
def test_a_replay_that_finds_no_memory_clears_away_what_was_left(
    made: Made, fake: FakeGraphDriver, enough: bool, call: str
) -> None:  # fmt: skip
    """After the executable graph: in any other order, `misuse` of the stand-in says what would come of it."""
    device, held = made.device, []

    def work() -> None:
        first = device.allocate(20 * MIB, vp.u8)
        held[:] = [device.allocate(4, vp.f32)]
        held[0].fill(3.0)
        first.free()

    def replay() -> None:
        if call == "repeat":
            graph.repeat(3)
        elif call == "traced":
            with device.trace():
                graph()
        else:
            graph()

    graph = device.capture(work)
    graph()
    device.trim()
    kept = device.upload(np.zeros(50 * MIB, np.uint8))
    for _ in range(2):
        if enough:
            kept.free()
            replay()
            assert values(held[0]) == [3] * 4 and device.telemetry.oom_retries
        else:
            with pytest.raises(OutOfMemory, match="too little free memory for what the graph allocates"):
                replay()
            with pytest.raises(BindingError, match="replay that first"):
                held[0].read()
            assert not fake.graph_memory and not fake.limbo
            kept.free()
            graph()
        device.trim()
        kept = device.upload(np.zeros(50 * MIB, np.uint8))
    kept.free()
    graph()
    graph()
    assert values(held[0]) == [3] * 4


def test_what_graphs_have_is_counted_and_trimmed(device: CudaDevice, fake: FakeGraphDriver) -> None:
    def both() -> tuple[int, int]:
        now = device.telemetry.snapshot()
        return now["graph_memory_used_bytes"], now["graph_memory_reserved_bytes"]

    assert both() == (0, 0) and "cuDeviceGetGraphMemAttribute" not in fake.log
    device.trim()
    assert "cuDeviceGraphMemTrim" not in fake.log

    def work() -> None:
        device.allocate(2 * MIB, vp.u8).free()
        held.append(device.allocate(MIB, vp.u8))

    held: list[vp.Buffer] = []
    graph = device.capture(work)
    graph()
    assert both() == (MIB, 2 * MIB)
    device.trim()
    assert both() == (MIB, MIB) and held[0].read().sum() == 0
    device.memory.limit_bytes = device.memory.held_bytes + 2 * MIB
    held.append(device.allocate(MIB, vp.u8))
    with pytest.raises(OutOfMemory, match="budget"):
        device.allocate(MIB, vp.u8)
    with pytest.raises(OutOfMemory, match="budget"):
        device.capture(lambda: device.allocate(MIB, vp.u8))
    graph.close()
    device.trim()
    assert both() == (0, 0)
    device.close()
    assert both() == (0, 0)


@pytest.mark.parametrize("version", [13000, 12000])
def test_what_is_repeated_allocates_none(device: CudaDevice, fake: FakeGraphDriver, version: int) -> None:
    fake.version = version
    flag = device.upload(np.ones(1, np.uint32))
    with pytest.raises(LaunchError, match="what is captured is repeated"):
        device.capture_while(flag, lambda: device.allocate(4, vp.f32))


def test_a_driver_without_pools_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, FakeGraphDriver(pools=0))
    device = CudaDevice(0)
    with pytest.raises(LaunchError, match="no pools of memory"):
        device.capture(lambda: device.allocate(4, vp.f32))
    device.close()


# ---------------------------------------------------------------- the stand-in itself


def test_the_stand_in_refuses_what_the_driver_does(made: Made, fake: FakeGraphDriver) -> None:
    """As its documentation says: see cuGraphLaunch, cuGraphInstantiate, cuMemFreeAsync and cuGraphAddMemAllocNode there."""
    invalid = CUresult.CUDA_ERROR_INVALID_VALUE
    made.graph()
    (graph,) = fake.graphs
    (executable,) = fake.executables
    assert fake.cuGraphInstantiate(graph, 0)[0] == invalid, "there is one already"
    with made.device.context.entered():
        address = made.y.address
        fake.cuMemFreeAsync(address, 5)
        assert fake.cuMemFreeAsync(address, 5) == (invalid,), "it is not there"
        assert fake.misuse == ["memory of a graph freed again, for which the real driver ends the process"]
        fake.misuse.clear()
        fake.executables[executable].frees_first = False
        assert fake.cuGraphLaunch(executable, 5) == (0,)
        assert fake.cuGraphLaunch(executable, 5) == (invalid,), "it was not freed"
        fake.cuMemFreeAsync(address, 5)
        assert fake.cuGraphLaunch(executable, 5) == (0,)
        fake.executables[executable].frees_first = True
        fake.cuMemsetD8Async(address, 1, 4, 5)
        assert not fake.misuse
        fake.cuMemFreeAsync(address, 5)
        fake.cuMemsetD8Async(address, 1, 4, 5)
    assert fake.misuse == ["a fill of memory that no replay has allocated"]
    fake.misuse.clear()
    made.graph()


MISUSES = {
    "freed, then destroyed": ("fd", ["before its executable graph goes"]),
    "replayed": ("l", ["is replayed again"]),
    "instantiated": ("di", ["is instantiated before"]),
    "destroyed, then freed": ("df", []),
    "destroyed, freed and instantiated": ("dfil", []),
}


@pytest.mark.parametrize("name", MISUSES)
def test_the_stand_in_wants_a_failed_replay_cleared_away(name: str) -> None:
    """One that finds no memory while some is left: first the executable graph goes, then what was left. Otherwise the real driver may end the process."""
    steps, said = MISUSES[name]
    driver, stream = FakeGraphDriver(total=64), 5
    driver.cuCtxSetCurrent(77)
    driver.cuStreamBeginCapture(stream, 1)
    _, address = driver.cuMemAllocFromPoolAsync(40, None, stream)
    _, graph = driver.cuStreamEndCapture(stream)
    handles = [driver.cuGraphInstantiate(graph, 1)[1]]
    calls: dict[str, Callable[[], Any]] = {
        "f": lambda: driver.cuMemFreeAsync(address, stream), "d": lambda: driver.cuGraphExecDestroy(handles.pop()),
        "l": lambda: driver.cuGraphLaunch(handles[0], stream), "i": lambda: handles.append(driver.cuGraphInstantiate(graph, 1)[1]),
    }  # fmt: skip
    assert calls["l"]() == calls["l"]() == (0,) and not driver.limbo
    driver.total = 39
    assert calls["l"]() == (CUresult.CUDA_ERROR_OUT_OF_MEMORY,) and list(driver.limbo) == [address]
    driver.total = 64
    for step in steps:
        calls[step]()
    assert len(driver.misuse) == len(said) and all(text in misuse for text, misuse in zip(said, driver.misuse, strict=True)), driver.misuse


@pytest.mark.parametrize("call", ["cuMemAlloc", "cuMemHostAlloc", "cuMemAllocFromPoolAsync", "cuMemPoolCreate"])
def test_the_stand_in_refuses_to_allocate_in_a_capture(made: Made, fake: FakeGraphDriver, call: str) -> None:
    """On another stream, or on none."""
    arguments = {"cuMemAlloc": (4,), "cuMemHostAlloc": (4, 0), "cuMemAllocFromPoolAsync": (4, 9, 5), "cuMemPoolCreate": (SimpleNamespace(),)}
    with pytest.raises(LaunchError, match="INVALIDATED"):
        made.device.capture(lambda: (made.other.fill(1.0), getattr(fake, call)(*arguments[call])))
    assert fake.misuse
    fake.misuse.clear()
