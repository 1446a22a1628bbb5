"""Lists of commands on CUDA, over the stand-in for the driver: the same questions, in the same order, whatever the list is made of."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from axpy import AXPY, axpy_kernel
from fake_graphs import FakeGraphDriver

import vyre_py as vp
from vyre_py.drivers import cuda
from vyre_py.drivers.cuda import library
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.cuda.native.call_list import NO_MEMORY, STALE
from vyre_py.drivers.cuda.native.command_list import CommandList, NativeCommand, perform
from vyre_py.drivers.errors import BindingError, DeviceLost, LaunchError, OutOfMemory
from vyre_py.drivers.many import commands
from vyre_py.drivers.many.commands import WAIT, CommandKind
from vyre_py.drivers.observe.metrics import METRICS

N = 4


@dataclass
class Made:
    """A device with one of each list, over the buffers `x` and `y`; `z` is what the sequence fills."""

    device: CudaDevice
    fake: FakeGraphDriver

    def __post_init__(self) -> None:
        device = self.device
        self.x, self.y = device.upload(np.arange(N, dtype=np.float32)), device.upload(np.ones(N, np.float32))
        self.z = device.allocate(N, vp.f32)
        self.pipeline = device.compile_native(AXPY)
        self.launch = self.pipeline.bind(x=self.x, y=self.y, a=2.0)
        self.sequence = device.sequence(vp.fill_step(self.z, 1.0), self.launch, vp.copy_step(self.y, self.z))
        self.graph = device.capture(self.launch)
        self.dispatch()
        (row,) = self.pipeline._prepared.sets.values()
        self.prepared = row.idle[0]._work
        self.lists: dict[str, CommandList] = {
            "launch": self.launch.kernel, "sequence": self.sequence._calls, "graph": self.graph._replay, "prepared dispatch": self.prepared,
        }  # fmt: skip

    def dispatch(self) -> Any:
        return self.pipeline.dispatch(x=np.arange(N, dtype=np.float32), y=np.ones(N, np.float32), a=2.0)

    def enqueued(self) -> list[str]:
        """The work that the driver was given."""
        return [name for name in self.fake.log if name.startswith(("cuLaunch", "cuGraphLaunch", "cuMemset", "cuMemcpyDtoD"))]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    fake = FakeGraphDriver(total=1 << 28)
    fake.kernel = axpy_kernel
    for module in (library, cuda):
        monkeypatch.setattr(module, "load", lambda: fake)
    device = CudaDevice(0)
    yield Made(device, fake)
    device.close()
    assert not fake.misuse and not fake.capturing


LISTS = ("launch", "sequence", "graph", "prepared dispatch")
USED = LISTS[:3]  # what is called again by whoever holds it


def beside(device: CudaDevice, launch: Callable[[], Any], work: Callable[[], Any]) -> None:
    """Does something in this thread while another one captures."""
    begun, go_on = threading.Event(), threading.Event()

    def function() -> None:
        launch()
        begun.set()
        assert go_on.wait(10)

    thread = threading.Thread(target=lambda: device.capture(function))
    thread.start()
    assert begun.wait(10)
    try:
        work()
    finally:
        go_on.set()
        thread.join(10)


def test_every_kind_counts_what_is_a_counter() -> None:
    kinds = [kind for kind in vars(commands).values() if isinstance(kind, CommandKind)]
    assert len(kinds) == len({kind.name for kind in kinds}) > 5
    for kind in kinds:
        assert all(METRICS[name].kind == "counter" for name in (kind.counter, kind.counter_bytes) if name), kind.name
        assert not kind.counter_bytes or kind.counts(8) == {kind.counter: 1, kind.counter_bytes: 8}
        assert kind.counts(0) == {}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("status", [STALE, 8])  # a capture begins after native code has looked, and before
def test_a_list_is_not_enqueued_while_another_thread_captures(made: Made, name: str, status: int) -> None:
    found: list[LaunchError] = []

    def work() -> None:
        made.fake.log.clear()
        with pytest.raises(LaunchError) as caught:
            made.lists[name].handle_status(-1, status)
        found.append(caught.value)
        assert not made.enqueued()

    beside(made.device, made.launch, work)
    assert "captures a graph on cuda:0" in found[0].cause


@pytest.mark.parametrize("name", USED)
def test_freed_memory_comes_before_a_capture(made: Made, name: str) -> None:
    made.y.free()
    other = made.pipeline.bind(x=made.x, y=made.device.allocate(N, vp.f32), a=1.0)

    def work() -> None:
        with pytest.raises(BindingError, match=r"'(y|source)' was freed"):
            made.lists[name].handle_status(-1, 8)

    beside(made.device, other, work)


@pytest.mark.parametrize("name", LISTS)
def test_a_closed_device_comes_before_all(made: Made, name: str) -> None:
    made.y.free()
    made.device.close()
    made.fake.log.clear()
    with pytest.raises(DeviceLost, match="cuda:0 is closed"):
        made.lists[name].handle_status(-1, STALE)
    assert not made.enqueued()


@pytest.mark.parametrize("name", LISTS)
def test_a_host_without_memory_is_told(made: Made, name: str) -> None:
    made.fake.log.clear()
    with pytest.raises(OutOfMemory, match="the host has no memory for the arguments"):
        made.lists[name].handle_status(-1, NO_MEMORY)
    assert not made.enqueued()


@pytest.mark.parametrize("name", USED)
def test_a_list_is_run_once_its_memory_is_there(made: Made, name: str) -> None:
    """Native code has seen a dead word, and by now another buffer is in its place."""
    made.fake.log.clear()
    made.lists[name].handle_status(-1, STALE)
    assert made.enqueued() == {
        "launch": ["cuLaunchKernel"], "sequence": ["cuMemsetD32Async", "cuLaunchKernel", "cuMemcpyDtoDAsync"], "graph": ["cuGraphLaunch"],
    }[name]  # fmt: skip


def test_a_prepared_dispatch_counts_what_its_rows_count(made: Made) -> None:
    before = made.device.telemetry.snapshot()
    assert made.dispatch()["y"].tolist() == [1, 3, 5, 7]
    counted = made.device.telemetry.snapshot() - before
    wanted = {"dispatches": 1, "launches": 1, "syncs": 1, "uploads": 2, "bytes_uploaded": 8 * N, "downloads": 1, "bytes_downloaded": 4 * N, "copies": 0}
    assert {name: counted[name] for name in wanted} == wanted
    assert [row.kind.name for row in made.prepared.rows] == ["upload", "upload", "clear", "launch", "download", "wait"]


COUNTED = (
    "copies", "bytes_copied", "fills", "bytes_filled", "launches", "graph_launches", "graph_replays", "elements_launched",
    "graphs_captured",
)  # fmt: skip


def replayed(device: Any) -> dict[str, float]:
    """What a device counts for a graph of launches, copies and fills, with a sequence and another graph in it, and for two replays."""
    x, y, z = device.upload(np.arange(N, dtype=np.float32)), device.upload(np.ones(N, np.float32)), device.allocate(N, vp.f32)
    launch = device.compile_native(AXPY).bind(x=x, y=y, a=2.0)
    sequence = device.sequence(vp.copy_step(y, z), launch)
    inner = device.capture(lambda: (launch(), x.copy_from(z)))
    before = device.telemetry.snapshot()
    graph = device.capture(lambda: (launch(), z.fill(3.0), sequence(), inner()))
    graph.repeat(2)
    counted = device.telemetry.snapshot() - before
    return {name: counted[name] for name in COUNTED}


def test_replays_count_what_they_do_on_each_device(made: Made) -> None:
    found = replayed(made.device)
    assert found == replayed(vp.device("cpu"))
    assert (found["copies"], found["fills"], found["graph_launches"], found["graph_replays"]) == (4, 2, 6, 2)


def test_a_list_of_lists_is_made_anew_with_them(made: Made) -> None:
    calls = CommandList(made.device, [made.launch.kernel, made.launch.kernel], "two launches")
    run = calls.builtin()
    run()
    before, other = calls.calls, made.device.stream()
    made.launch.on(other)
    run()  # the builtin of the old list
    own, its = int(made.device.context.stream), int(other.__cuda_stream__()[1])
    assert [stream for *_, stream in made.fake.launches][-4:] == [own, own, its, its]
    assert calls.calls is not before and not calls.refresh()


def test_a_list_with_what_cannot_be_captured_is_refused_whole(made: Made) -> None:
    """The launch comes first, and is no node of the graph either."""
    context = made.device.context
    wait = NativeCommand(WAIT, calls=())
    calls = CommandList(made.device, [made.launch.kernel, wait], "a launch and a wait")

    def work() -> None:
        made.launch()
        with pytest.raises(LaunchError, match="a launch and a wait"):
            calls.builtin()()

    graph = made.device.capture(work)
    assert graph.nodes == 1 and context.capture is None


def test_calls_of_the_driver_count_nothing(made: Made) -> None:
    context = made.device.context
    before = made.device.telemetry.snapshot()
    perform(made.device, made.launch.kernel.rows[0].calls, "a launch that nobody counts")
    assert made.device.telemetry.snapshot()["launches"] == before["launches"] and made.enqueued()[-1] == "cuLaunchKernel"
    assert context.busy.value == 0
