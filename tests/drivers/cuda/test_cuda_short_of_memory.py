"""CUDA devices short of memory, over the stand-in for the driver: what is kept for speed goes first, whatever asks, and stays under its caps."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import inject
import numpy as np
import pytest
from fake_cuda import CUresult
from fake_device import installed
from inject import InjectedDriver

import vyre_py as vp
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.cuda.launch import small_dispatch
from vyre_py.drivers.errors import OutOfMemory
from vyre_py.ir.text.parser import parse

NO_MEMORY = CUresult.CUDA_ERROR_OUT_OF_MEMORY
MIB = 1 << 20


class Limited(InjectedDriver):
    """The stand-in, with a limit on page-locked memory."""

    pinned_limit = 1 << 40

    def cuMemHostAlloc(self, size: int, flags: int) -> tuple[Any, ...]:
        if sum(map(len, self.pinned.values())) + size > self.pinned_limit:
            return NO_MEMORY, None
        return super().cuMemHostAlloc(size, flags)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Limited:
    return installed(monkeypatch, Limited(total=1 << 30), lambda block: None)


@pytest.fixture
def device(fake: Limited) -> CudaDevice:
    return CudaDevice(0)


def shifted(by: int) -> Any:
    text = "program p{k}(n) workgroup(64) over(n) {{\n buffer x: u8[n] read\n buffer y: u8[n] write\n let i = global_id.x\n y[i] = x[i] + {k}u8\n}}"
    return parse(text.format(k=by))


class Held:
    """Something of each kind that takes memory, or will."""

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self.y = device.upload(np.zeros(100, np.uint32))
        self.launch = device.compile_native(inject.LOOP).bind(y=self.y)
        self.sequence = device.sequence(self.launch, vp.fill_step(self.y, 1))
        self.graph = device.capture(self.launch)
        self.leaves = device.capture(self._leave)
        self.leaves()
        self.loaded = vp.compile_native(inject.LOOP, "compute_90", vp.CompileOptions(workgroup=(64, 1, 1)))
        self.interruptible = device.compile_native(inject.LOOP, vp.CompileOptions(interruptible=True))

    def _leave(self) -> None:
        self.left = self.device.allocate(100, vp.u32)
        self.left.fill(1)


# What may find no memory, by the driver's call that says so.
ASKS: dict[str, tuple[str, Callable[[Held], Any]]] = {
    "buffer": ("cuMemAllocFromPoolAsync", lambda h: h.device.allocate(2 * MIB, vp.u8)),
    "page-locked memory": ("cuMemHostAlloc", lambda h: h.device.pinned(8 * MIB, vp.u8)),
    "code": ("cuModuleLoadDataEx", lambda h: h.device.load(h.loaded)),
    "code that is loaded late": ("cuModuleGetFunction", lambda h: h.device.load(h.loaded)),
    "words": ("cuMemAlloc", lambda h: h.interruptible.bind(y=h.y)),
    "graph": ("cuGraphInstantiate", lambda h: h.device.capture(h.launch)),
    "launch": ("cuLaunchKernel", lambda h: h.launch()),
    "sequence": ("cuLaunchKernel", lambda h: h.sequence()),
    "replay": ("cuGraphLaunch", lambda h: h.graph()),
    "replays": ("cuGraphLaunch", lambda h: h.graph.repeat(3)),
    "replay that leaves memory": ("cuGraphLaunch", lambda h: (h.leaves(), h.left.read())),
    "replays that leave memory": ("cuGraphLaunch", lambda h: (h.leaves.repeat(3), h.left.read())),
}


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("name", ASKS)
def test_what_is_kept_goes_first(device: CudaDevice, fake: Limited, name: str, times: int) -> None:
    """First what the pools keep, then what else is kept for speed; then it is OutOfMemory, and the next time it works."""
    held = Held(device)
    device.compile_native(shifted(1)).dispatch(x=np.zeros(MIB, np.uint8))
    device.upload(np.zeros(4 * MIB, np.uint8)).free()
    assert device.memory.cached_bytes >= 4 * MIB and device.memory.prepared_bytes == 2 * MIB
    before = device.telemetry.snapshot()
    call, ask = ASKS[name]
    fake.fail[call] = [NO_MEMORY] * times
    asked = None
    if times < 3:
        asked = ask(held)
    else:
        with pytest.raises(OutOfMemory, match=r"CUDA_ERROR_OUT_OF_MEMORY|for what the graph allocates"):
            ask(held)
    assert not fake.fail.pop(call)
    assert (device.telemetry.snapshot() - before)["oom_retries"] == min(times, 2)
    assert device.memory.cached_bytes < MIB and (device.memory.prepared_bytes == 0) == (times > 1)
    del asked
    ask(held)
    device.synchronize()
    assert device.context.busy.value == 0 and not fake.misuse


def test_within_a_capture_nothing_is_given_back(device: CudaDevice, fake: Limited) -> None:
    """That would wait for the stream. The capture goes on."""
    held = Held(device)
    fake.fail["cuMemAlloc"] = [NO_MEMORY]

    def recorded() -> None:
        with pytest.raises(OutOfMemory):
            held.interruptible.bind(y=held.y)
        held.launch()

    device.capture(recorded)()
    assert not fake.misuse and device.telemetry.oom_retries == 0


def held_by(device: CudaDevice) -> tuple[int, int]:
    return device.pinned_pool.held_bytes, device.memory.held_bytes


def test_prepared_dispatches_stay_under_the_caps_of_the_pools(device: CudaDevice, fake: Limited) -> None:
    device.pinned_pool.keep_bytes, device.memory.keep_bytes = 16 * MIB, 12 * MIB
    pipelines = [device.compile_native(shifted(k)) for k in (1, 2, 3)]
    sizes = [MIB - 4096 * k for k in range(8)]
    for pipeline in pipelines:
        for size in sizes:
            assert pipeline.dispatch(x=np.zeros(size, np.uint8))["y"].shape == (size,)
            assert held_by(device)[0] <= 16 * MIB and held_by(device)[1] <= 12 * MIB
    assert min(held_by(device)) > 8 * MIB
    device.trim()
    assert held_by(device) == (0, 0)


def test_the_one_that_was_used_longest_ago_goes_first(device: CudaDevice, fake: Limited) -> None:
    device.memory.keep_bytes = 8 * MIB  # room for four
    first, second = device.compile_native(shifted(1)), device.compile_native(shifted(2))
    x = np.zeros(MIB, np.uint8)
    for pipeline, size in ((first, MIB), (first, MIB - 1), (second, MIB), (second, MIB - 1), (first, MIB), (second, MIB - 2)):
        pipeline.dispatch(x=x[:size])
    kept = [sorted(key[0][0] for key in pipeline._prepared.sets) for pipeline in (first, second)]
    assert kept == [[MIB], [MIB - 2, MIB - 1, MIB]]
    gc.collect()
    assert device.memory.prepared_bytes == 8 * MIB


def test_no_more_sets_than_are_remembered(device: CudaDevice, fake: Limited) -> None:
    pipeline = device.compile_native(shifted(1))
    for size in (*range(1, small_dispatch._SETS + 1), 1, 100, 101):
        pipeline.dispatch(x=np.zeros(size, np.uint8))
    kept = {key[0][0] for key in pipeline._prepared.sets}
    assert len(kept) == small_dispatch._SETS and {1, 100, 101} <= kept and not {2, 3} & kept


def test_what_fits_under_no_cap_goes_the_general_way(device: CudaDevice, fake: Limited) -> None:
    device.memory.keep_bytes = 0
    pipeline = device.compile_native(shifted(1))
    for _ in range(2):
        assert pipeline.dispatch(x=np.zeros(MIB, np.uint8))["y"].shape == (MIB,)
    assert device.memory.prepared_bytes == device.memory.held_bytes == 0
    pipeline.dispatch(x=np.zeros(100, np.uint8))  # through page-locked memory alone
    assert device.pinned_pool.prepared_bytes == 4096 and device.memory.prepared_bytes == 0


def test_a_limit_on_page_locked_memory_fails_nothing_while_what_holds_it_is_ours(device: CudaDevice, fake: Limited) -> None:
    fake.pinned_limit = 24 * MIB
    pipeline = device.compile_native(shifted(1))
    for turn in range(24):
        size = 4 * MIB - 4096 * (turn % 12)
        assert pipeline.dispatch(x=np.zeros(size, np.uint8))["y"].shape == (size,)
    device.upload(np.zeros(MIB, np.uint8))


def test_results_that_callers_hold_leave_dispatches_what_they_need(device: CudaDevice, fake: Limited) -> None:
    fake.pinned_limit = 24 * MIB
    pipeline = device.compile_native(shifted(1))
    results = [pipeline.dispatch(x=np.zeros(3 * MIB, np.uint8)) for _ in range(20)]
    assert len(results) == 20 and device.telemetry.overflows
