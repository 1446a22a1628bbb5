"""On an NVIDIA GPU: a million launches and the like, with memory that stays flat on both sides and counts that are exact.

VYRE_STRESS multiplies how often everything is done (1: under a minute in all).
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from device_kinds import open_device

import vyre_py as vp
from vyre_py.drivers.observe.snapshot import Snapshot
from vyre_py.ir.language.program import Program

TIMES: Final = float(os.environ.get("VYRE_STRESS", "1"))
MIB: Final = 1 << 20
# What may grow all the same: pools of the driver and of the C library, and what is in flight at a time in ours. What is lost each time adds up to more.
HOST_BYTES: Final = 8 * MIB
DEVICE_BYTES: Final = 4 * MIB
MAY_GROW: Final = {
    "device_pool_held_bytes": DEVICE_BYTES, "pinned_pool_held_bytes": DEVICE_BYTES, "streams": 2, "events": 48, "bytes_allocated": 0, "graphs": 0,
}  # fmt: skip
COUNT: Final = 256
# Processes that share the GPU change what it has free.
ALONE: Final = "PYTEST_XDIST_WORKER" not in os.environ

STEP = Program.from_text("""program step(n) workgroup(256) {
  param a: u32
  buffer y: u32[n] read_write
  y[global_id.x] = y[global_id.x] + a
}""")
SUM = Program.from_text("""program sum(n) workgroup(256) {
  param a: u32
  buffer x: u32[n] read
  buffer y: u32[n] read
  buffer z: u32[n] write
  z[global_id.x] = a * x[global_id.x] + y[global_id.x]
}""")


@pytest.fixture(scope="module")
def device() -> Any:
    return open_device("cuda")


def times(count: int) -> int:
    """How often, for a count that takes its part of a minute."""
    return max(1, round(count * TIMES))


def resident_bytes() -> int:
    """The process's resident memory."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("there is no VmRSS in /proc/self/status")


def device_bytes(device: Any) -> int:
    """Memory of the GPU that is in use, whoever uses it."""
    device.synchronize()
    status, free, total = device.context.cuda.cuMemGetInfo()
    assert not status, status
    return int(total) - int(free)


@contextmanager
def flat(device: Any, name: str) -> Iterator[None]:
    """A block after which as much memory is in use as before, on both sides, and as many streams, events and graphs."""

    def state() -> tuple[int, int, Snapshot]:
        gc.collect()
        used = device_bytes(device)
        return resident_bytes(), used, device.telemetry.snapshot()

    host, used, before = state()
    yield
    host_after, used_after, after = state()
    grown = {gauge: (before[gauge], after[gauge]) for gauge, most in MAY_GROW.items() if after[gauge] - before[gauge] > most}
    assert not grown, f"{name}: {grown}, before and after"
    assert host_after - host < HOST_BYTES, f"{name}: host memory grew from {host:,} to {host_after:,} bytes"
    if ALONE:
        assert used_after - used <= DEVICE_BYTES, f"{name}: device memory in use grew from {used:,} to {used_after:,} bytes"


def counted(device: Any, work: Callable[[], object]) -> Snapshot:
    """What a piece of work adds to the counters."""
    before = device.telemetry.snapshot()
    work()
    found: Snapshot = device.telemetry.snapshot() - before
    return found


def test_a_million_launches(device):
    y = device.allocate(COUNT, vp.u32)
    launch = device.compile_native(STEP).bind(y=y, a=1)

    def work(count: int) -> None:
        for _ in repeat(None, count):
            launch()

    work(20_000)
    many = times(1_000_000)
    with flat(device, f"{many:,} launches"):
        found = counted(device, lambda: work(many))
    assert (found.launches, found.elements_launched, found.threads_scheduled) == (many, many * COUNT, many * COUNT)
    assert found.parameter_bytes == many * len(launch.plan.block)
    assert (y.read() == 20_000 + many).all()


def test_launches_with_a_new_scalar_and_a_new_buffer_each_time(device):
    buffers = [device.allocate(COUNT, vp.u32) for _ in range(2)]
    launch = device.compile_native(STEP).bind(y=buffers[0], a=1)
    many = times(100_000) // 2

    def work(count: int) -> None:
        for number in range(count):
            launch.set(y=buffers[0], a=number & 3)
            launch()
            launch.set(y=buffers[1])
            launch()

    work(1000)
    before = [buffer.read() for buffer in buffers]
    with flat(device, f"{2 * many:,} launches with set"):
        found = counted(device, lambda: work(many))
    assert found.launches == 2 * many
    added = sum(number & 3 for number in range(many))
    for buffer, old in zip(buffers, before, strict=True):
        assert (buffer.read() == old + np.uint32(added)).all()


def test_a_hundred_thousand_dispatches(device):
    pipeline = device.compile_native(SUM)
    x, y = np.arange(COUNT, dtype=np.uint32), np.full(COUNT, 7, np.uint32)

    def work(count: int) -> None:
        for number in range(count):
            x[0] = number
            z = pipeline.dispatch({"x": x, "y": y, "a": 3})["z"]
            assert z[0] == 3 * number + 7 and z[-1] == 3 * (COUNT - 1) + 7, f"dispatch {number} gave {z[0]} and {z[-1]}"

    work(5000)
    many = times(100_000)
    with flat(device, f"{many:,} dispatches"):
        found = counted(device, lambda: work(many))
    assert (found.dispatches, found.launches, found.syncs) == (many, many, many)
    assert (found.uploads, found.bytes_uploaded) == (2 * many, 2 * many * x.nbytes)
    assert (found.downloads, found.bytes_downloaded) == (many, many * x.nbytes)
    assert found.allocations == found.oom_retries == 0


def test_dispatches_the_general_way_over_many_shapes(device):
    pipeline = device.compile_native(SUM)
    rng = np.random.default_rng(5)
    sizes = [int(size) for size in rng.integers(1, 3000, 60)]
    data = rng.integers(0, 1 << 31, (2, 3000), dtype=np.uint32)

    def work(count: int) -> None:
        for number in range(count):
            size = sizes[number % len(sizes)]
            out = np.empty(size, np.uint32)
            given = {"x": data[0, :size], "y": device.upload(data[1, :size]), "a": number}
            got = pipeline.dispatch(given, out={"z": out})["z"]
            assert got is out and (out == np.uint32(number) * data[0, :size] + data[1, :size]).all(), f"dispatch {number} of {size}"

    work(500)
    many = times(5000)
    with flat(device, f"{many:,} dispatches of {len(sizes)} shapes"):
        found = counted(device, lambda: work(many))
    assert (found.dispatches, found.launches) == (many, many)


def test_ten_thousand_graphs_captured_and_dropped(device):
    y = device.allocate(COUNT, vp.u32)
    launch = device.compile_native(STEP).bind(y=y, a=1)

    def body() -> int:
        for _ in range(3):
            launch()
        return 3

    def work(count: int) -> None:
        for number in range(count):
            graph = device.capture(body)
            if number % 8 == 0:
                graph()

    work(800)
    start = y.read()
    many = times(10_000)
    with flat(device, f"{many:,} graphs"):
        found = counted(device, lambda: work(many))
    replays = -(-many // 8)
    assert (found.graphs_captured, found.graph_replays, found.graph_launches, found.launches) == (many, replays, 3 * replays, 0)
    assert (y.read() == start + np.uint32(3 * replays)).all()


def test_ten_thousand_submits_dropped(device):
    pipeline = device.compile_native(SUM)
    x, y = np.arange(COUNT, dtype=np.uint32), np.ones(COUNT, np.uint32)

    def work(count: int) -> None:
        for number in range(count):
            pending = pipeline.submit({"x": x, "y": y, "a": number})
            if number % 100 == 0:
                assert (pending.result(timeout=30)["z"] == np.uint32(number) * x + y).all(), f"submit {number}"
            del pending

    work(1000)
    device.synchronize()
    device.trim()
    work(1000)
    many = times(10_000)
    with flat(device, f"{many:,} submits"):
        found = counted(device, lambda: work(many))
    assert (found.submits, found.launches) == (many, many)
    assert (pipeline.dispatch({"x": x, "y": y, "a": 5})["z"] == 5 * x + y).all()


def test_sequences_made_and_dropped(device):
    y = device.allocate(COUNT, vp.u32)
    launch = device.compile_native(STEP).bind(y=y, a=1)

    def work(count: int) -> None:
        for _ in range(count):
            device.sequence(launch, launch, vp.fill_step(y, 7), launch)()

    work(500)
    many = times(5000)
    with flat(device, f"{many:,} sequences"):
        found = counted(device, lambda: work(many))
    assert (found.launches, found.fills, found.bytes_filled) == (3 * many, many, many * y.size_bytes)
    assert (y.read() == 8).all()


def test_sixteen_threads_compile_dispatch_launch_and_free(device):
    seconds = 6.0 * TIMES
    end = time.monotonic() + seconds
    failures: list[str] = []
    made = [0] * 16

    def program(number: int) -> Program:
        text = f"buffer y: u32[n] read_write\n  y[global_id.x] = y[global_id.x] * 3 + {number}"
        return Program.from_text(f"program p{number}(n) workgroup(64) {{\n  {text}\n}}")

    def work(thread: int) -> None:
        rng = np.random.default_rng(thread)
        try:
            while time.monotonic() < end and not failures:
                number = int(rng.integers(0, 400))
                pipeline = device.compile_native(program(number))
                y = rng.integers(0, 1 << 30, int(rng.integers(1, 20_000)), dtype=np.uint32)
                want = y * np.uint32(3) + np.uint32(number)
                buffer = device.upload(y)
                launch = pipeline.bind(y=buffer)
                pending = pipeline.submit({"y": y})
                launch()
                checks = {"dispatch": pipeline.dispatch({"y": y})["y"], "launch": buffer.read(), "submit": pending.result(60)["y"]}
                for name, got in checks.items():
                    if not (got == want).all():
                        failures.append(f"thread {thread}, {name} of p{number} over {y.size}: {np.flatnonzero(got != want)[:5]} differ")
                if rng.random() < 0.5:
                    buffer.free()
                made[thread] += 1
        except Exception as error:  # noqa: BLE001 - whatever it is, the test reports it from its own thread
            failures.append(f"thread {thread}: {type(error).__name__}: {error}")

    device.trim()
    before = device.telemetry.snapshot()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 120)
    assert not failures, failures[:3]
    assert not any(thread.is_alive() for thread in threads), "threads hang"
    found = device.telemetry.snapshot() - before
    turns = sum(made)
    assert turns >= 16, made
    assert (found.dispatches, found.submits, found.launches) == (2 * turns, turns, 3 * turns), f"{turns} turns"
    gc.collect()
    device.trim()  # what dispatches keep for the next of their shapes
    assert device.telemetry.snapshot().bytes_allocated <= before.bytes_allocated, "buffers were kept"
