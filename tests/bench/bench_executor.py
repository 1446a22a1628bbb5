"""The executor against the same device in this process: what a worker of its own costs a call.

    python tests/bench/bench_executor.py [DEVICE]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from kernel_programs import axpy
from measure import row, seconds

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.ir.language.program import Program


def endless() -> Program:
    """Runs until flag[0] is set, which nothing does."""
    with vp.ProgramBuilder("endless") as b:
        flag, out = b.read("flag", vp.u32, 1), b.read_write("out", vp.u32, 1)
        b.over(1)
        with b.loop():
            out[0] = out[0] + 1
            b.break_if(flag[0] != 0)
    return b.program


def median_us(work: Callable[[], object]) -> float:
    """The median time of one call, in microseconds."""
    return seconds(work, 499) * 1e6


def dispatches(device: Device, executor: vp.Executor) -> None:
    """Host arrays in and out."""
    pipeline, program = device.compile_native(axpy()), axpy()
    for count, name in ((256, "1 KiB"), (1 << 18, "1 MiB"), (1 << 24, "64 MiB")):
        arguments = {"x": np.ones(count, np.float32), "y": np.ones(count, np.float32), "a": 2.0}
        rounds = 499 if count < 1 << 20 else 9
        ours = seconds(lambda: executor.dispatch(program, arguments), rounds) * 1e6  # noqa: B023 - called within this turn
        peer = seconds(lambda: pipeline.dispatch(arguments), rounds) * 1e6  # noqa: B023 - called within this turn
        row(f"dispatch, {name} arrays", ours, "us", peer, "in this process")


def resident(device: Device, executor: vp.Executor) -> None:
    """Nothing but the call goes through the pipes."""
    ones, pipeline, program = np.ones(256, np.float32), device.compile_native(axpy()), axpy()
    there: dict[str, Any] = {"x": executor.upload(ones), "y": executor.upload(ones), "a": 2.0}
    here: dict[str, Any] = {"x": device.upload(ones), "y": device.upload(ones), "a": 2.0}
    peer = median_us(lambda: pipeline.dispatch(here))
    row("dispatch, resident arguments", median_us(lambda: executor.dispatch(program, there)), "us", peer, "in this process")


def recovery(executor: vp.Executor) -> None:
    """An endless kernel, and the call after it."""
    program, stuck = axpy(), endless()
    executor.compile(stuck)
    arguments = {"x": np.ones(256, np.float32), "y": np.ones(256, np.float32), "a": 2.0}
    began = time.perf_counter()
    try:
        executor.dispatch(stuck, {"flag": np.zeros(1, np.uint32), "out": np.zeros(1, np.uint32)}, timeout=0.2)
    except vp.DispatchTimeout:
        row("ending a worker, past its timeout", (time.perf_counter() - began - 0.2) * 1e3, "ms")
    began = time.perf_counter()
    executor.dispatch(program, arguments)
    row("the call after, on a new worker", (time.perf_counter() - began) * 1e3, "ms")


def main() -> None:
    """Prints the table."""
    device = vp.device(sys.argv[1] if len(sys.argv) > 1 else None)
    print(device)
    began = time.perf_counter()
    with vp.Executor(device.name) as executor:
        row("start of a worker", (time.perf_counter() - began) * 1e3, "ms")
        dispatches(device, executor)
        resident(device, executor)
        recovery(executor)


if __name__ == "__main__":
    main()
