"""One CUDA device in many threads: results stay right, whatever the others do meanwhile. Over the stand-in for the driver, and on a GPU."""

from __future__ import annotations

import ctypes
import random
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import inject
import numpy as np
import pytest
import test_cuda_faults as faults
from axpy import AXPY, axpy_kernel
from device_kinds import open_device
from fake_cuda import CUresult
from inject import InjectedDriver, ramp
from long_loop import LONG

import vyre_py as vp
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.native.structs import HEAD
from vyre_py.ir.text.parser import parse


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> InjectedDriver:
    driver = InjectedDriver(total=1 << 26)
    driver.kernels = dict(inject.KERNELS)
    faults.install(monkeypatch)(driver)
    return driver


@pytest.fixture
def quick() -> Iterator[None]:
    """Threads that change places a hundred times as often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(before / 100)
    yield
    sys.setswitchinterval(before)


def together(*work: Callable[[], None], seconds: float = 120.0) -> None:
    """Runs functions at once, each in a thread of its own, and raises the first thing that any of them raised."""
    raised: list[BaseException] = []
    ready = threading.Barrier(len(work))

    def run(one: Callable[[], None]) -> None:
        try:
            ready.wait()
            one()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test fails by it
            raised.append(error)

    threads = [threading.Thread(target=run, args=(one,), daemon=True) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if raised:
        raise raised[0]


# ---------------------------------------------------------------- a launch moves while a list of it goes through Python


@pytest.fixture
def moving(fake: InjectedDriver) -> Iterator[tuple[CudaDevice, Any, threading.Thread]]:
    """A device, a launch, and a thread that moves it to another stream."""
    device = CudaDevice(0)
    launch = device.compile_native(AXPY).bind(x=device.upload(ramp(4)), y=device.upload(ramp(4)), a=2.0)
    stream = device.stream()
    yield device, launch, threading.Thread(target=lambda: launch.on(stream), daemon=True)
    device.close()


def begun(mover: threading.Thread, launch: Any) -> None:
    """Starts a move, once; when this returns the launch's list is invalid, or another."""
    if mover.ident is None:
        calls = launch.kernel.calls
        mover.start()
        while launch.kernel.calls is calls and not struct.unpack_from("<q", calls.state, HEAD.offset("invalid"))[0]:
            time.sleep(0.001)


@pytest.mark.parametrize("way", ["launch", "sequence"])
def test_a_launch_that_finds_no_memory_twice_is_made_before_it_moves(fake: InjectedDriver, moving: Any, way: str) -> None:
    """The move waits for the launch, and the launch, whose call fails again, does not wait for the move."""
    device, launch, mover = moving
    call = {"launch": launch, "sequence": device.sequence(launch)}[way]
    device.context.relief.steps = [lambda: begun(mover, launch), lambda: None]
    fake.fail["cuLaunchKernel"] = [CUresult.CUDA_ERROR_OUT_OF_MEMORY] * 2
    together(call, seconds=10.0)
    mover.join(10)
    assert not mover.is_alive() and launch.kernel.stream != int(device.context.stream)
    assert device.telemetry.launches == 1 and launch.kernel.calls.in_flight == 0


def test_a_launch_does_not_move_while_a_trace_runs_a_sequence_of_it(moving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device, launch, mover = moving
    sequence, own = device.sequence(launch, launch), int(device.context.stream)
    shown = device._show
    found = []

    def show(run: Callable[[], object], *args: Any) -> None:
        mover.start()
        mover.join(0.2)
        shown(run, *args)
        found.append(launch.kernel.stream)

    monkeypatch.setattr(device, "_show", show)
    with device.trace():
        sequence()
    mover.join(10)
    assert found == [own] and launch.kernel.stream != own


# ---------------------------------------------------------------- everything at once


def scaled(factor: int) -> Any:
    """A Program of its own: y = factor * x + y, under the same name."""
    return parse(f"""program axpy_{factor}(n) workgroup(64) {{
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  let i = global_id.x
  y[i] = {factor}.0 * x[i] + y[i]
}}""")


class Worker:
    """One thread's share: whatever it does, it checks."""

    def __init__(self, device: Any, number: int, end: float, factors: int) -> None:
        self.device, self.end, self.factors = device, end, factors
        self.random = random.Random(number)
        self.axpy = device.compile_native(AXPY)
        self.done = dict.fromkeys(("dispatch", "large", "submit", "dropped", "launch", "set", "sequence", "resident", "compile", "trim"), 0)

    def __call__(self) -> None:
        while time.monotonic() < self.end:
            what = self.random.choice(list(self.done))
            getattr(self, f"do_{what}")()
            self.done[what] += 1

    def given(self, count: int) -> tuple[dict[str, Any], Any]:
        a = float(self.random.randrange(1, 9))
        x, y = ramp(count) % 64, np.full(count, float(self.random.randrange(9)), np.float32)
        return {"x": x, "y": y, "a": a}, np.float32(a) * x + y

    def do_dispatch(self) -> None:
        given, wanted = self.given(self.random.choice((1, 100, 257, 5000)))
        inject.expect(self.axpy.dispatch(given)["y"], wanted)

    def do_large(self) -> None:
        given, wanted = self.given(60_000)
        out = np.empty(60_000, np.float32)
        inject.expect(self.axpy.dispatch(given, out={"y": out})["y"], wanted)

    def do_submit(self) -> None:
        several = [self.given(self.random.choice((100, 3000))) for _ in range(3)]
        pending = [self.axpy.submit(given) for given, _ in several]
        for one, (_, wanted) in zip(pending[::-1], several[::-1], strict=True):
            inject.expect(one.result(60.0)["y"], wanted)

    def do_dropped(self) -> None:
        self.axpy.submit(self.given(200)[0])

    def bound(self) -> tuple[Any, Any, Any, dict[str, Any]]:
        given, _ = self.given(300)
        x, y = self.device.upload(given["x"]), self.device.upload(given["y"])
        return self.axpy.bind(x=x, y=y, a=given["a"]), x, y, given

    def do_launch(self) -> None:
        launch, x, y, given = self.bound()
        launch()
        launch()
        inject.expect(y.read(), np.float32(2 * given["a"]) * given["x"] + given["y"])
        x.free()
        with pytest.raises(BindingError, match="'x' was freed"):
            launch()

    def do_set(self) -> None:
        launch, _, y, given = self.bound()
        z = self.device.allocate(300, vp.f32)
        launch.set(y=z, a=3.0)()
        launch.set(y=y, a=1.0)()
        inject.expect(z.read(), 3 * given["x"])
        inject.expect(y.read(), given["x"] + given["y"])

    def do_sequence(self) -> None:
        launch, x, y, given = self.bound()
        z = self.device.allocate(300, vp.f32)
        self.device.sequence(launch, vp.copy_step(y, z), vp.fill_step(x, 0.0), launch)()
        inject.expect(z.read(), np.float32(given["a"]) * given["x"] + given["y"])
        inject.expect(y.read(), z.read())

    def do_resident(self) -> None:
        name = f"{id(self)} {self.random.random()}"
        handle = self.device.resident.put(ramp(64), name, evictable=True)
        copy = self.device.allocate(64, vp.f32)
        with self.device.resident.using(handle) as (kept,):
            copy.copy_from(kept)
        inject.expect(copy.read(), ramp(64))
        copy.free()
        self.device.resident.drop(handle)

    def do_compile(self) -> None:
        factor = self.random.randrange(1, self.factors)
        given, _ = self.given(100)
        result = self.device.compile_native(scaled(factor)).dispatch(x=given["x"], y=given["y"])["y"]
        inject.expect(result, np.float32(factor) * given["x"] + given["y"])

    def do_trim(self) -> None:
        if self.random.random() < 0.2:
            self.device.trim()


def scaled_kernel(factor: int) -> Callable[[bytes], None]:
    def kernel(block: bytes) -> None:
        x_at, y_at, n = struct.unpack_from("<QQI", block)
        axpy_kernel(struct.pack("<QQfI", x_at, y_at, factor, n))

    return kernel


def test_everything_at_once(fake: InjectedDriver, quick: None) -> None:
    fake.kernels.update({f"vyre_axpy_{factor}": scaled_kernel(factor) for factor in range(1, 4)})
    device = CudaDevice(0)
    workers = [Worker(device, number, time.monotonic() + 3.0, 4) for number in range(6)]
    together(*workers)
    assert all(sum(worker.done[what] for worker in workers) for what in workers[0].done)
    del workers
    device.trim()
    assert not inject.idle_problems(device), inject.idle_problems(device)
    device.close()
    assert not fake.left()


def test_everything_at_once_on_a_gpu() -> None:
    """Sixteen threads for five seconds."""
    device = open_device("cuda")
    device.trim()
    before = device.telemetry.snapshot()
    workers = [Worker(device, number, time.monotonic() + 5.0, 8) for number in range(16)]
    together(*workers)
    done = {what: sum(worker.done[what] for worker in workers) for what in workers[0].done}
    assert all(done.values()), f"not all was done: {done}"
    del workers
    device.trim()
    after = device.telemetry.snapshot()
    assert after["bytes_allocated"] == before["bytes_allocated"], f"{after['bytes_allocated'] - before['bytes_allocated']} bytes are left over after {done}"


# ---------------------------------------------------------------- set, while others launch

PAIR = parse("""program pair(n) workgroup(1) over(1) {
  param a: u32
  param b: u64
  buffer next: u32[1] read_write
  buffer out: u64[n, 2] read_write
  let k = atomic_add(next[0u32], 1u32)
  out[k, 0u32] = cast(a, u64)
  out[k, 1u32] = b
}""")
FACTOR = 0x1_0000_0001  # so that both halves of b tell


def pair_kernel(seen: list[Any]) -> Callable[[bytes], None]:
    def kernel(block: bytes) -> None:
        seen.append(struct.unpack_from("<QQI4xQ", block, 0))

    return kernel


def set_while_others_launch(device: Any, launch: Any, launches: int) -> None:
    """Two threads launch, one sets both params at once. Every 50 launches wait until something was set, however busy the machine is."""
    over, was_set = threading.Event(), threading.Event()

    def sets() -> None:
        number = 0
        while not over.is_set():
            number = number % 1_000_000 + 1
            launch.set(a=number, b=number * FACTOR)
            was_set.set()

    def runs() -> None:
        for done in range(launches):
            if done % 50 == 0:
                was_set.clear()
                assert was_set.wait(60), "the thread that sets has stopped"
            launch()

    def both() -> None:
        try:
            together(runs, runs)
        finally:
            over.set()

    together(sets, both)
    device.synchronize()


def test_a_launch_sees_what_was_set_together(fake: InjectedDriver, quick: None) -> None:
    device = CudaDevice(0)
    seen: list[Any] = []
    fake.kernels["vyre_pair"] = pair_kernel(seen)
    next_, out = device.allocate(1, vp.u32), device.allocate((16, 2), vp.u64)
    set_while_others_launch(device, device.compile_native(PAIR).bind(a=0, b=0, next=next_, out=out), 1500)
    assert len(seen) == 3000 and all(b == a * FACTOR for *_, a, b in seen)
    assert len({a for *_, a, _ in seen}) > 2, "nothing was set in between"
    device.close()


def test_a_launch_sees_what_was_set_together_on_a_gpu() -> None:
    device = open_device("cuda")
    launches = 20_000
    next_, out = device.allocate(1, vp.u32), device.allocate((2 * launches, 2), vp.u64)
    set_while_others_launch(device, device.compile_native(PAIR).bind(a=0, b=0, next=next_, out=out), launches)
    pairs = out.read()
    assert next_.read()[0] == 2 * launches
    torn = np.flatnonzero(pairs[:, 1] != pairs[:, 0] * np.uint64(FACTOR))
    assert not torn.size, f"{torn.size} torn pairs, such as {pairs[torn[:5]]}"
    assert len(np.unique(pairs[:, 0])) > 10, "nothing was set in between"


MARK = parse("""program mark(n) workgroup(64) over(n) {
  param a: u32
  buffer out: u32[n] read_write
  let old = out[global_id.x]
  out[global_id.x] = max(old, a)
}""")


def mark_kernel(block: bytes) -> None:
    out_at, a, n = struct.unpack_from("<QII", block)
    out = np.ctypeslib.as_array((ctypes.c_uint32 * n).from_address(out_at))
    np.maximum(out, np.uint32(a), out=out)


def buffers_and_params(device: Any, launches: int) -> None:
    """A buffer and a param that are set together reach a launch together; a buffer that is no longer bound may go at once."""
    launch = device.compile_native(MARK).bind(a=1, out=(first := device.allocate(64, vp.u32)))
    wrong: list[Any] = []
    over = threading.Event()

    def sets() -> None:
        number, held = 1, [first]
        while not over.is_set():
            number += 1
            held.append(device.allocate(64, vp.u32))
            launch.set(a=number, out=held[-1])
            if len(held) > 8:
                old = held.pop(0)
                found = set(old.read().tolist()) - {0, number - 8}
                if found:
                    wrong.append((number - 8, found))
                del old  # nobody holds it any more: its memory goes to the next

    def runs() -> None:
        try:
            for _ in range(launches):
                launch()
        finally:
            over.set()

    together(sets, runs)
    assert not wrong, f"launches saw one half of what was set: {wrong[:5]}"


def test_buffers_are_set_together_with_params(fake: InjectedDriver, quick: None) -> None:
    device = CudaDevice(0)
    fake.kernels["vyre_mark"] = mark_kernel
    buffers_and_params(device, 3000)
    device.close()
    assert not fake.left()


def test_buffers_are_set_together_with_params_on_a_gpu() -> None:
    buffers_and_params(open_device("cuda"), 30_000)


# ---------------------------------------------------------------- graphs and sequences


def shared_replays(device: Any, replays: int) -> None:
    """One graph and one sequence in several threads, while another updates the graph."""
    pipeline = device.compile_native(AXPY)
    x, y, z = device.upload(np.ones(64, np.float32)), device.allocate(64, vp.f32), device.allocate(64, vp.f32)
    launch, other = pipeline.bind(x=x, y=y, a=1.0), pipeline.bind(x=x, y=z, a=1.0)
    graph, sequence = device.capture(launch), device.sequence(other, other)
    over = threading.Event()

    def updates() -> None:
        while not over.is_set():
            graph.update()
            launch.set(a=1.0)

    def runs() -> None:
        for _ in range(replays):
            graph()
            sequence()

    def many() -> None:
        try:
            together(runs, runs, runs)
        finally:
            over.set()

    together(updates, many)
    inject.expect(y.read(), np.full(64, 3.0 * replays, np.float32))
    inject.expect(z.read(), np.full(64, 6.0 * replays, np.float32))


def test_replays_in_threads(fake: InjectedDriver, quick: None) -> None:
    device = CudaDevice(0)
    shared_replays(device, 200)
    device.close()
    assert not fake.left()


def test_replays_in_threads_on_a_gpu() -> None:
    shared_replays(open_device("cuda"), 2000)


def captures_beside_launches(device: Any, turns: int) -> None:
    """While one thread captures, others' launches are refused by name, and never become part of the graph."""
    pipeline = device.compile_native(AXPY)
    x, y, z = device.upload(np.ones(64, np.float32)), device.allocate(64, vp.f32), device.allocate(64, vp.f32)
    mine, theirs = pipeline.bind(x=x, y=y, a=1.0), pipeline.bind(x=x, y=z, a=1.0)
    over, made, refusals = threading.Event(), [0], []

    def capture() -> None:
        try:
            for _ in range(turns):
                graph = device.capture(lambda: (mine(), mine()))
                assert graph.nodes == 2
                graph()
        finally:
            over.set()

    def launches() -> None:
        while not over.is_set():
            try:
                theirs()
            except vp.LaunchError as error:
                refusals.append(str(error))
            else:
                made[0] += 1

    together(capture, launches)
    assert all("captures a graph" in refusal for refusal in refusals), set(refusals)
    inject.expect(y.read(), np.full(64, 2.0 * turns, np.float32))
    inject.expect(z.read(), np.full(64, float(made[0]), np.float32))


def test_captures_beside_launches(fake: InjectedDriver, quick: None) -> None:
    device = CudaDevice(0)
    captures_beside_launches(device, 50)
    assert not fake.misuse
    device.close()


def test_captures_beside_launches_on_a_gpu() -> None:
    captures_beside_launches(open_device("cuda"), 300)


# ---------------------------------------------------------------- a full queue

def test_a_full_queue_holds_up_one_thread_only() -> None:
    """The driver has a thread wait once about a thousand launches are enqueued behind a slow one. Others go on: the interpreter's lock is given up."""
    device = open_device("cuda")
    slow = device.compile_native(LONG).bind(y=device.upload(np.ones(1, np.uint32)), turns=400_000_000)
    x, y = device.upload(np.ones(64, np.float32)), device.allocate(64, vp.f32)
    quick = device.compile_native(AXPY).bind(x=x, y=y, a=1.0)
    device.synchronize()
    count, ticks, calls, over = 5000, [], [], threading.Event()

    def ticking() -> None:
        while not over.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    other = threading.Thread(target=ticking, daemon=True)
    other.start()
    begin = time.monotonic()
    slow()
    for _ in range(count):
        before = time.monotonic()
        quick()
        calls.append((time.monotonic() - before, before))
    enqueued = time.monotonic()
    device.synchronize()
    over.set()
    other.join(10.0)
    inject.expect(y.read(), np.full(64, float(count), np.float32))
    took, at = max(calls)
    assert took > 0.05, f"no launch had to wait: the longest took {took} s of {enqueued - begin} s, so that this shows nothing"
    between = sum(at < tick < at + took for tick in ticks)
    assert between > 10 * took, f"another thread had {between} turns while a launch waited for {took} s"


def test_a_full_queue_and_a_pending_result() -> None:
    """One thread waits in a launch; others dispatch, read and allocate, each in its turn behind the slow kernel, and none hangs."""
    device = open_device("cuda")
    slow = device.compile_native(LONG).bind(y=device.upload(np.ones(1, np.uint32)), turns=2_000_000)
    pipeline = device.compile_native(AXPY)
    x, y = device.upload(np.ones(64, np.float32)), device.allocate(64, vp.f32)
    quick = pipeline.bind(x=x, y=y, a=1.0)
    given = {"x": ramp(1000), "y": np.ones(1000, np.float32), "a": 2.0}

    def launches() -> None:
        slow()
        for _ in range(3000):
            quick()

    def dispatches() -> None:
        for _ in range(3):
            inject.expect(pipeline.dispatch(given)["y"], 2 * ramp(1000) + 1)
            inject.expect(pipeline.submit(given).result(60.0)["y"], 2 * ramp(1000) + 1)

    def allocates() -> None:
        for _ in range(50):
            device.allocate(1000, vp.f32).free()

    together(launches, dispatches, allocates)
    inject.expect(y.read(), np.full(64, 3000.0, np.float32))
