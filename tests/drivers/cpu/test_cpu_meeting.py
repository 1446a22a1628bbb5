"""Grids whose workgroups meet on the CPU: all run at once, or none does. What they compute is in `tests/lowering/test_grid_barrier.py` and in filetests."""

from __future__ import annotations

import _thread
import gc
import signal
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from children import TAKES_CTRL_C, child_environment

import vyre_py as vp
from vyre_py.drivers.cpu import workers
from vyre_py.drivers.pending import poll
from vyre_py.ir.text.parser import parse

# Each workgroup reads what another one, further off each turn, wrote in the turn before.
TURNS = """program turns(n) workgroup(32) over(n) {
  param turns: u32
  buffer x: u32[n] read_write
  let i = global_id.x
  for k in 0..turns {
    let v = x[(i + k * 97 + 32) % n]
    grid_barrier
    x[i] = v * 1664525 + k
    grid_barrier
  }
}"""

ENDLESS = """program endless(n) workgroup(8) over(n) {
  buffer x: u32[n] read_write
  loop {
    x[global_id.x] = x[global_id.x] + 1
    grid_barrier
  }
}"""


def turned(x: Any, turns: int) -> Any:
    for k in range(turns):
        x = np.roll(x, -(k * 97 + 32)) * np.uint32(1664525) + np.uint32(k)
    return x


def numbers(count: int) -> Any:
    return np.random.default_rng(count).integers(0, 1 << 32, count, np.uint32)


@pytest.mark.parametrize("workgroups", [1, 2, 3, 64, 300])
def test_more_workgroups_than_cores_meet(workgroups: int) -> None:
    device, x = vp.device("cpu"), numbers(32 * workgroups)
    held = device.upload(x)
    launch = device.compile_native(parse(TURNS)).bind(x=held, turns=5)
    launch()
    assert np.array_equal(held.read(), turned(x, 5))
    sequence = device.sequence(launch, launch)
    graph = device.capture(sequence)
    graph()
    assert np.array_equal(held.read(), turned(turned(turned(x, 5), 5), 5))


def test_a_launch_that_threads_call_at_once() -> None:
    """Each call counts its own workgroups."""
    device = vp.device("cpu")
    held = device.upload(numbers(32 * 6))
    launch = device.compile_native(parse(TURNS)).bind(x=held, turns=40)
    threads = [threading.Thread(target=launch, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def test_the_function_of_a_pipeline_takes_the_slow_way() -> None:
    x = numbers(320)
    call = vp.device("cpu").compile_native(parse(TURNS)).callable()
    given = x.copy()
    call(given, turns=3)
    assert np.array_equal(given, turned(x, 3))


def test_what_cannot_be_had_is_refused_by_name() -> None:
    device = vp.device("cpu")
    pipeline = device.compile_native(parse(TURNS))
    with pytest.raises(vp.LaunchError, match="its 1025 workgroups have to run at once, and 1024 fit"):
        pipeline.dispatch(x=np.zeros(32 * 1024 + 1, np.uint32), turns=1)
    launch = pipeline.bind(x=device.allocate(64, vp.u32), turns=1)
    with pytest.raises(vp.Unsupported, match="a launch with a grid barrier"):
        _ = launch.c_address
    both = """program both(n) workgroup(32) over(n) { buffer x: u32[n] read_write
      let before = grid_scan(add, workgroup_id.x)\n grid_barrier\n x[global_id.x] = before }"""
    with pytest.raises(vp.Unsupported, match="a grid_scan and a grid_barrier in one Program"):
        vp.compile_native(parse(both), "cpu")


def test_none_runs_where_one_would_lack_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    device, x = vp.device("cpu"), numbers(32 * 8)
    held = device.upload(x)
    launch = device.compile_native(parse(TURNS)).bind(x=held, turns=2)
    real, started, before = workers.start_new_thread, list[int](), _thread._count()

    def scarce(*given: Any) -> int:
        if len(started) == 5:
            raise RuntimeError("can't start new thread")
        started.append(real(*given))
        return started[-1]

    with monkeypatch.context() as patch:
        patch.setattr(workers, "start_new_thread", scarce)
        with pytest.raises(vp.LaunchError, match="the system gives 5 of 8 threads"):
            launch()
    assert poll(lambda: _thread._count() == before, 60) and np.array_equal(held.read(), x)
    launch()
    assert np.array_equal(held.read(), turned(x, 2))


def test_none_runs_where_one_would_lack_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    device, x = vp.device("cpu"), numbers(32 * 8)
    held = device.upload(x)
    launch = device.compile_native(parse(TURNS)).bind(x=held, turns=2)

    def none(size_bytes: int) -> None:
        raise MemoryError(f"{size_bytes} bytes")

    with monkeypatch.context() as patch:
        patch.setattr(workers, "_ScratchBlock", none)
        with pytest.raises(vp.LaunchError, match="bytes"):
            launch()
    assert np.array_equal(held.read(), x)


def test_waits_at_a_barrier_end_after_their_time() -> None:
    device = vp.device("cpu")
    pipeline = device.compile_native(parse(ENDLESS), vp.CompileOptions(interruptible=True))
    x = device.upload(np.zeros(200, np.uint32))
    with pytest.raises(vp.DispatchTimeout):
        pipeline.dispatch(x=x, config=vp.DispatchConfig(timeout=0.2))
    assert np.ptp(x.read()) <= 1  # workgroups that meet are at most a turn apart


CTRL_C = """
import sys, threading, os, signal, time
import numpy as np, vyre_py as vp
from vyre_py.ir.text.parser import parse
device = vp.device("cpu")
turns = device.compile_native(parse(sys.argv[1]))
endless = device.compile_native(parse(sys.argv[2]), vp.CompileOptions(interruptible=True))
for launch, seconds in ((turns.bind(x=device.allocate(320, vp.u32), turns=3000), 0.05), (endless.bind(x=device.allocate(320, vp.u32)), 0.2)):
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        for _ in range(1000):
            launch()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def test_ctrl_c_ends_what_can_be_ended_and_waits_for_the_rest() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TAKES_CTRL_C + CTRL_C, TURNS, ENDLESS], env=child_environment(), capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip
    assert done.stdout.splitlines() == ["interrupted"] * 2 and done.returncode == 0, done.stderr


def test_signals_at_any_moment_leave_no_thread_behind() -> None:
    """A handler raises while threads start, run and leave."""
    device = vp.device("cpu")
    launch = device.compile_native(parse(TURNS)).bind(x=device.allocate(32 * 12, vp.u32), turns=2)

    class Stop(Exception):
        """What the handler raises."""

    def stop(*_: object) -> None:
        raise Stop

    threads, before, raised = _thread._count(), signal.signal(signal.SIGALRM, stop), 0
    gc.disable()  # what a handler raises in somebody's callback of the collector is nobody's to catch
    try:
        for step in range(60):
            try:
                signal.setitimer(signal.ITIMER_REAL, 20e-6 * (step + 1))
                launch()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Stop:
                raised += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    assert raised
    assert poll(lambda: _thread._count() == threads, 60)
    launch()
