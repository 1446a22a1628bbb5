"""Kernels on the CPU that are ended from outside: by a time limit, by Ctrl-C, by whatever a signal handler raises."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import child_environment

import vyre_py as vp
from vyre_py.ir.language.program import Program

PATIENCE = 120.0
INTERRUPTIBLE = vp.CompileOptions(interruptible=True)
ENDLESS = {
    "loop": "loop { v = v * 3u32 + 2u32\n if v == 1u32 { break } }",
    "nested": "loop { for k in 0u32..v { v = v | 1u32 }\n if v == 0u32 { break } }",
    "for": "for k in 0u32..4294967295u32 { for l in 0u32..4294967295u32 { for m in 0u32..v { v = (v ^ m) * 3u32 | 1u32 } } }",
    "uneven": "loop { if v == 0u32 { break }\n if v % 5u32 == 1u32 { v = v + 4u32\n continue }\n v = v | 2u32 }",
    "barrier": "loop { t[local_index] = v\n barrier\n v = v + t[63u32 - local_index]\n barrier\n if go == 0u32 { break } }",
}  # fmt: skip


def endless(name: str) -> Program:
    """Writes 7 everywhere first, and never ends where `go` is 1; else it writes what was there, made odd."""
    memory = "workgroup t: u32[64]\n" if name == "barrier" else ""
    return Program.from_text(
        f"program endless(n) workgroup(64) over(n) {{ param go: u32\n buffer x: u32[n] read_write\n {memory}"
        f"var v: u32 = x[global_id.x] | 1u32\n x[global_id.x] = 7u32\n if go == 1u32 {{ {ENDLESS[name]} }}\n x[global_id.x] = v }}"
    )


@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.parametrize("size", [64, 1000, 100_000])
def test_a_time_limit_ends_endless_loops_and_the_device_goes_on(name: str, size: int) -> None:
    device = vp.device("cpu")
    pipeline = device.compile_native(endless(name), INTERRUPTIBLE)
    timeouts, threads = device.telemetry.timeouts, threading.active_count()
    with pytest.raises(vp.DispatchTimeout, match=r"ran longer than 0\.05 s"):
        pipeline.dispatch({"x": np.zeros(size, np.uint32), "go": 1}, config=vp.DispatchConfig(timeout=0.05))
    assert device.telemetry.timeouts == timeouts + 1
    x = pipeline.dispatch({"x": np.zeros(size, np.uint32), "go": 0}, config=vp.DispatchConfig(timeout=PATIENCE))["x"]
    np.testing.assert_array_equal(x, np.ones(size, np.uint32))
    deadline = time.monotonic() + PATIENCE
    while threading.active_count() > threads + 1 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert threading.active_count() <= threads + 1, "no thread is left in a kernel"


def test_code_that_looks_computes_what_other_code_does() -> None:
    text = """program mixed(n) workgroup(64) over(n) { buffer x: u32[n] read_write\n workgroup t: u32[64]\n var v: u32 = x[global_id.x]
      for k in 0u32..v % 9u32 { if k == 5u32 { continue }\n v = v * 3u32 + k\n for l in 0u32..4u32 { if v % 7u32 == l { break }\n v = v ^ l } }
      t[local_index] = v\n barrier\n loop { v = v + 1u32\n if v % 11u32 == 0u32 { break } }\n x[global_id.x] = v + t[63u32 - local_index] }"""
    program, device = Program.from_text(text), vp.device("cpu")
    x = np.random.default_rng(3).integers(0, 1 << 20, 64 * 33, dtype=np.uint32)
    plain, looking = (device.compile_native(program, options).dispatch(x=x)["x"] for options in (vp.CompileOptions(), INTERRUPTIBLE))
    np.testing.assert_array_equal(plain, looking)
    np.testing.assert_array_equal(plain, vp.device("reference").compile_native(program).dispatch(x=x)["x"])


def test_a_time_limit_needs_code_that_looks() -> None:
    pipeline = vp.device("cpu").compile_native(endless("loop"))
    with pytest.raises(vp.Unsupported, match="interruptible=True"):
        pipeline.dispatch({"x": np.zeros(64, np.uint32), "go": 0}, config=vp.DispatchConfig(timeout=1.0))


class TooLate(Exception):
    """What a signal handler raises."""


def test_what_a_signal_handler_raises_ends_a_bound_launch() -> None:
    device = vp.device("cpu")
    x = device.upload(np.zeros(1 << 16, np.uint32))
    launch = device.compile_native(endless("loop"), INTERRUPTIBLE).bind({"x": x, "go": 1})

    def handler(*_: Any) -> None:
        raise TooLate

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for seconds in (0.2, 0.01, 0.001):
            signal.setitimer(signal.ITIMER_REAL, seconds)
            with pytest.raises(TooLate):
                launch()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    launch.set(go=0)()
    assert set(x.read().tolist()) <= {1, 7}, "what an ended call has written stays"


def test_a_launch_within_the_handler_of_a_signal() -> None:
    device = vp.device("cpu")
    pipeline = device.compile_native(endless("loop"), INTERRUPTIBLE)
    y = device.upload(np.zeros(1000, np.uint32))
    outer, inner = pipeline.bind({"x": device.allocate(1 << 16, vp.u32), "go": 1}), pipeline.bind({"x": y, "go": 0})

    def handler(*_: Any) -> None:
        inner()
        raise TooLate

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(TooLate):
            outer()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    np.testing.assert_array_equal(y.read(), np.ones(1000, np.uint32))


def _interrupted(command: list[str], wait_for: str) -> tuple[int, str]:
    """The status and the standard error of a process that gets SIGINT once it has said something."""
    process = subprocess.Popen(command, env=child_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline().strip() == wait_for
        time.sleep(0.5)
        os.kill(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return process.returncode, error


SCRIPT = """
import signal, sys
import numpy as np, vyre_py as vp
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts without
pipeline = vp.device("cpu").compile_native(vp.Program.from_text(sys.argv[1]), vp.CompileOptions(interruptible=True))
print("go", flush=True)
try:
    pipeline.dispatch({"x": np.zeros(100_000, np.uint32), "go": 1})
except KeyboardInterrupt:
    sys.exit(5)
"""


def test_ctrl_c_ends_a_script() -> None:
    status, error = _interrupted([sys.executable, "-c", SCRIPT, str(endless("loop"))], "go")
    assert status == 5, error


def test_the_command_ends_after_its_time(tmp_path: Path) -> None:
    file = tmp_path / "endless.vir"
    file.write_text(str(endless("loop")), encoding="utf-8")
    command = [sys.executable, "-m", "vyre_py", "run", str(file), "--device", "cpu", "go=1", "x=1,2,3", "--timeout", "0.2", "--json"]
    done = subprocess.run(command, env=child_environment(), capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1 and "ran longer than 0.2 s" in json.loads(done.stdout)["error"]["message"], done


def test_another_call_of_a_launch_that_was_ended_says_so() -> None:
    """Two threads run one bound launch: the time of one ends both, and neither call passes for a whole one."""
    device = vp.device("cpu")
    launch = device.compile_native(endless("loop"), INTERRUPTIBLE).bind({"x": device.allocate(64, vp.u32), "go": 1})
    raised: list[BaseException] = []

    def call(seconds: float) -> None:
        try:
            launch.run_by(time.monotonic() + seconds, seconds)  # type: ignore[attr-defined]  # the CPU's launches have it
        except vp.VyreError as error:
            raised.append(error)

    threads = [threading.Thread(target=call, args=(seconds,)) for seconds in (0.3, PATIENCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(type(error).__name__ for error in raised) == ["DispatchTimeout", "LaunchError"]
    launch.set(go=0)()


def test_c_may_run_what_was_ended_before() -> None:
    device = vp.device("cpu")
    x = device.upload(np.zeros(64, np.uint32))
    launch = device.compile_native(endless("loop"), INTERRUPTIBLE).bind({"x": x, "go": 1})
    address = launch.c_address
    with pytest.raises(vp.DispatchTimeout):
        launch.run_by(time.monotonic(), 0.0)  # type: ignore[attr-defined]  # the CPU's launches have it
    launch.set(go=0)
    x.fill(0)
    run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(ctypes.c_uint64.from_address(address + 8).value)
    assert run(address, None) == 0
    np.testing.assert_array_equal(x.read(), np.ones(64, np.uint32))
