"""Launches whose native list is made after another's words, over a stand-in for the driver: word for word those that are made one by one, and as alive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from axpy import AXPY, axpy_kernel
from fake_device import installed
from fake_graphs import FakeGraphDriver

import vyre_py as vp
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.cuda.native.call_list import ListForm
from vyre_py.drivers.native.structs import CALL, HEAD, SLOT


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaDevice]:
    installed(monkeypatch, FakeGraphDriver(total=1 << 28), axpy_kernel)
    made = CudaDevice(0)
    yield made
    made.close()


@pytest.fixture
def formed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The lists that were made after another's words."""
    lists: list[Any] = []
    made = ListForm.made
    monkeypatch.setattr(ListForm, "made", lambda form, *given: lists.append(made(form, *given)) or lists[-1])
    return lists


def buffers(device: CudaDevice, count: int = 1000) -> tuple[Any, Any]:
    return device.upload(np.arange(count, dtype=np.float32)), device.upload(np.ones(count, np.float32))


def words(launch: Any) -> list[tuple[str, int]]:
    """A list's words, with addresses within its state, its block and what it holds as places there."""
    calls, kernel = launch.kernel.calls, launch.kernel
    found = np.frombuffer(calls.state, np.uint64).tolist()
    slots_at = (found[HEAD.number("slots")] - calls.address) // 8
    slots = [slots_at + SLOT.size_bytes // 8 * number for number in range(found[HEAD.number("slot_count")])]
    own = {HEAD.number(field) for field in ("alive", "calls", "slots", "members")} | {slot + SLOT.number("alive") for slot in slots}
    blocks = {HEAD.size_bytes // 8 + CALL.number("block")} | {slot + SLOT.number("address") for slot in slots}
    records = {HEAD.number("record")}
    for at in own | blocks:
        found[at] -= calls.address if at in own else kernel.block_address
    assert found[HEAD.number("held")] == id(kernel.held)
    found[HEAD.number("held")] = 0
    for at in records:
        found[at] = 0  # of launches of one shape it is one
    return list(enumerate(found))


def test_lists_are_those_that_are_made_one_by_one(device: CudaDevice, formed: list[Any]) -> None:
    pipeline = device.compile_native(AXPY)
    memory = [device.upload(np.zeros(4096, np.float32)) for _ in range(2)]
    for count in (16, 1000):
        for first, second in ((0, 0), (1, 0), (0, 3), (1, 1), (4, 8)):
            given = {"x": memory[0][first : first + count], "y": memory[1][second : second + count], "a": 2.5}
            alone = pipeline.bind(given, config=vp.DispatchConfig(label="alone"))  # options are looked at closely
            del formed[:]
            known = [pipeline.bind(given) for _ in range(4)]
            assert len(formed) >= 2 and formed[-1] is known[-1].kernel.calls
            for launch in known:
                assert words(launch) == words(alone) and bytes(launch.kernel.block) == bytes(alone.kernel.block)
                assert launch.kernel.grid == alone.kernel.grid and launch.kernel.module is alone.kernel.module and launch.kernel.call() != alone.kernel.call()
                assert launch.kernel.call().arguments == alone.kernel.call().arguments and launch.kernel.rows[0].counts == alone.kernel.rows[0].counts


def test_they_run_and_change_alone(device: CudaDevice, formed: list[Any]) -> None:
    pipeline = device.compile_native(AXPY)
    pairs = [buffers(device) for _ in range(6)]
    launches = [pipeline.bind(x=x, y=y, a=float(k)) for k, (x, y) in enumerate(pairs)]
    assert len(formed) >= 4
    before = device.telemetry.snapshot()
    for launch in launches:
        launch()
    launches[4].set(a=10.0)
    launches[5].set(y=pairs[4][1])
    for launch in launches[3:]:
        launch()
    x = np.arange(1000, dtype=np.float32)
    for k, factor in enumerate((0, 1, 2, 6, 4 + 10 + 5, 5)):
        np.testing.assert_array_equal(pairs[k][1].read(), factor * x + 1)
    found = device.telemetry.snapshot() - before
    assert found["launches"] == 9 and found["elements_launched"] == 9000
    graph = device.capture(launches[3])
    launches[3].set(a=1.0)
    graph.update()
    graph.repeat(2)
    np.testing.assert_array_equal(pairs[3][1].read(), 8 * x + 1)
    pairs[3][0].free()
    with pytest.raises(vp.BindingError, match="'x' was freed"):
        launches[3]()
    with pytest.raises(vp.BindingError, match="'x' was freed"):
        graph()
    launches[2]()


def test_another_entry_and_another_stream(device: CudaDevice, formed: list[Any]) -> None:
    """`set` to memory that begins elsewhere launches another entry; a launch that moved has a list of its own, and comes back to one like the others'."""
    pipeline = device.compile_native(AXPY)
    x, y = buffers(device)
    launches = [pipeline.bind(x=x, y=y, a=1.0) for _ in range(4)]
    shifted = device.upload(np.zeros(1001, np.float32))[1:]
    wide = launches[3].kernel.plan.entry
    launches[3].set(x=shifted)
    assert launches[3].kernel.plan.entry != wide and launches[2].kernel.plan.entry == wide
    launches[3]()
    launches[3].set(x=x)
    assert launches[3].kernel.plan.entry == wide
    launches[3]()
    stream = device.stream()
    moved = launches[2].on(stream)
    moved()
    assert moved.kernel.call().arguments[8] == stream.raw and launches[1].kernel.call().arguments[8] == int(device.context.stream)
    device.synchronize()
    np.testing.assert_array_equal(y.read(), 2 * np.arange(1000, dtype=np.float32) + 1)
