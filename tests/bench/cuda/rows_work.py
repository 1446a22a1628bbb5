"""Work on the device: interruptible kernels, timeouts, overlap, faults, the executor, and rates of whole kernels."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

import vyre_py as vp
from tests.bench.cuda import lost
from tests.bench.cuda.dry import dry_device
from tests.bench.cuda.peers import torch
from tests.bench.cuda.programs import AXPY, BUSY, ENDLESS, TWICE, TWO_INSTRUCTIONS, mandelbrot
from tests.bench.cuda.table import Bench, Row, at_most, within
from tests.bench.cuda.timing import Work, repeated
from vyre_py.drivers.launch import Launch
from vyre_py.ir.language.program import Program

__all__ = ["WORK_ROWS"]

_INTERRUPTIBLE = vp.CompileOptions(interruptible=True)


# ---- interruptible kernels, and timeouts


def _interruptible(bench: Bench, program: Program, arguments: dict[str, Any], times: int) -> dict[str, float]:
    """Milliseconds of one launch among many, by the device's clock: interruptible, and plain."""
    times = bench.size(times, 1)

    def many(launch: Launch) -> float:
        def start() -> None:
            for _ in range(times):
                launch()

        return bench.device_us(start) / times / 1e3

    launches = {
        "ours": bench.device.compile_native(program, _INTERRUPTIBLE).bind(arguments), "plain": bench.device.compile_native(program).bind(arguments),
    }  # fmt: skip
    for launch in launches.values():
        launch()
    taken: dict[str, list[float]] = {name: [] for name in launches}
    for _ in range(bench.size(15, 1)):
        for name, launch in launches.items():
            taken[name].append(many(launch))
    return {name: statistics.median(times) for name, times in taken.items()}


def interruptible_mandelbrot(bench: Bench) -> dict[str, float]:
    """The example: 1,024 x 768 pixels, 256 turns at most."""
    out = bench.device.allocate((bench.size(768, 2), bench.size(1024, 2)), vp.u32)
    return _interruptible(bench, mandelbrot(), {"out": out, "turns": 256}, 50)


def interruptible_loop(bench: Bench) -> dict[str, float]:
    """A loop of two instructions that each thread leaves when chance will have it."""
    out = bench.device.allocate(bench.size(1 << 20, 8), vp.u32)
    return _interruptible(bench, TWO_INSTRUCTIONS, {"out": out, "last": 5}, 3)


def timeout(bench: Bench) -> dict[str, float]:
    """How long after its timeout of 0.3 s a dispatch of an endless kernel raises, in milliseconds; and whether the next one is right."""
    device, allowed = bench.device, 0.3
    endless, after = device.compile_native(ENDLESS, _INTERRUPTIBLE), device.compile_native(TWICE)
    x, late = np.ones(256, np.float32), []
    for _ in range(bench.size(3, 1)):
        begin = time.perf_counter()
        try:
            endless.dispatch({"flag": np.zeros(1, np.uint32), "out": np.zeros(1 << 12, np.uint32)}, config=vp.DispatchConfig(timeout=allowed))
            if not bench.dry:
                raise RuntimeError("an endless kernel came to an end without its timeout")
        except vp.DispatchTimeout:
            late.append(time.perf_counter() - begin - allowed)
        if not bench.dry and not np.array_equal(after.dispatch({"x": x})["y"], x * 3):
            raise RuntimeError("the dispatch after a timeout gives wrong values")
    return {"ours": max(late, default=0.0) * 1e3}


# ---- overlap


def overlap(bench: Bench) -> dict[str, float]:
    """Eight submits with kernels about as long as the rest of a submit; the kernels alone, and the submits with next to no kernel, added up. In ms."""
    device, count, many = bench.device, bench.size(1 << 21, 64), 8
    pipeline, out = device.compile_native(BUSY), device.allocate(count, vp.u32)
    results = [np.empty(count, np.uint32) for _ in range(many)]

    def submits(turns: int) -> Work:
        def once() -> None:
            for pending in [pipeline.submit({"turns": turns, "n": count}, out={"y": result}) for result in results]:
                pending.result()

        return repeated(once)

    def kernels(turns: int) -> Work:
        launch = pipeline.bind({"y": out, "turns": turns})

        def once() -> None:
            for _ in range(many):
                launch()
            device.synchronize()

        return repeated(once)

    probe = bench.race({"rest": submits(1), "short": kernels(1000), "long": kernels(11000)}, rounds=5)
    turns = max(1, round(10000 * probe["rest"] / max(probe["long"] - probe["short"], 1e-3)))
    if bench.dry:
        turns = 1
    found = bench.race({"ours": submits(turns), "kernels": kernels(turns), "rest": submits(1)}, rounds=7)
    return {"ours": found["ours"] / 1e3, "one after the other": (found["kernels"] + found["rest"]) / 1e3}


# ---- faults, and the executor


def device_lost(bench: Bench) -> dict[str, float]:
    """The slowest of the calls after an illegal address, in a process of its own."""
    if bench.dry:
        return {"ours": lost.slowest_call_us(dry_device(), lost.fault_of_stand_in)}
    done = subprocess.run([sys.executable, "-m", lost.__name__], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(f"the process that faults ended with {done.returncode}: {done.stderr[-2000:]}")
    return {"ours": float(json.loads(done.stdout.splitlines()[-1])["us"])}


def executor(bench: Bench) -> dict[str, float]:
    """A worker's start, its round trip, its end by a timeout, and the call after that: in milliseconds, the round trips in microseconds."""
    device, ones = bench.device, np.ones(256, np.float32)
    pipeline = device.compile_native(AXPY)
    arguments = {"x": ones, "y": ones, "a": 2.0}
    begin = time.perf_counter()
    with vp.Executor("cpu" if bench.dry else device.name) as worker:
        found = {"start": (time.perf_counter() - begin) * 1e3}
        there: dict[str, Any] = {"x": worker.upload(ones), "y": worker.upload(ones), "a": 2.0}
        here: dict[str, Any] = {"x": device.upload(ones), "y": device.upload(ones), "a": 2.0}
        works = {
            "ours": repeated(lambda: worker.dispatch(AXPY, arguments)), "in this process": repeated(lambda: pipeline.dispatch(arguments)),
            "resident": repeated(lambda: worker.dispatch(AXPY, there)), "resident, in this process": repeated(lambda: pipeline.dispatch(here)),
        }  # fmt: skip
        found |= bench.race(works, calls=50, rounds=11)
        worker.compile(ENDLESS)
        begin = time.perf_counter()
        try:
            worker.dispatch(ENDLESS, {"flag": np.zeros(1, np.uint32), "out": np.zeros(64, np.uint32)}, timeout=0.2)
        except vp.DispatchTimeout:
            found["end"] = (time.perf_counter() - begin - 0.2) * 1e3
        begin = time.perf_counter()
        result = worker.dispatch(AXPY, arguments)["y"]
        found["again"] = (time.perf_counter() - begin) * 1e3
    if not np.array_equal(result, ones * 3):
        raise RuntimeError("the dispatch on the new worker gives wrong values")
    return found


# ---- rates


def axpy_1gib(bench: Bench) -> dict[str, float]:
    """a * x + y over 1 GiB each, of which three go over the bus, in GB/s."""
    device, count, times = bench.device, bench.size(1 << 28, 1 << 8), bench.size(10, 1)
    x, y = device.allocate(count, vp.f32), device.allocate(count, vp.f32)
    launch = device.compile_native(AXPY).bind({"x": x, "y": y, "a": 2.0})

    def ours() -> None:
        for _ in range(times):
            launch()
        device.synchronize()

    def by_torch() -> Work:
        library = torch()
        u, v = library.ones(count, device="cuda"), library.ones(count, device="cuda")

        def once() -> None:
            for _ in range(times):
                library.add(u, v, out=v)
            library.cuda.synchronize()

        return repeated(once)

    found = bench.race({"ours": repeated(ours)}, {"PyTorch add": by_torch}, rounds=7)
    x.free()
    y.free()
    return {name: times * 12 * count / us / 1e3 for name, us in found.items()}


def sobol(bench: Bench) -> dict[str, float]:
    """Sobol points in 16 dimensions, millions of coordinates a second: ours on the device, PyTorch's on the host."""
    device, dimensions, count, few = bench.device, 16, bench.size(1 << 22, 64), bench.size(1 << 16, 64)
    points = device.allocate((count, dimensions), vp.f32)
    launch = vp.Sobol(device, dimensions, type=vp.f32, bits=24).bind(points)

    def ours() -> None:
        for _ in range(5):
            launch()
        device.synchronize()

    def by_torch() -> Work:
        engine = torch().quasirandom.SobolEngine(dimensions)
        return repeated(lambda: engine.draw(few))

    found = bench.race({"ours": repeated(ours)}, {"PyTorch SobolEngine": by_torch}, rounds=5)
    amounts = {"ours": 5 * count * dimensions, "PyTorch SobolEngine": few * dimensions}
    points.free()
    return {name: amounts[name] / us for name, us in found.items()}


WORK_ROWS = (
    Row("mandelbrot, interruptible", "ms", interruptible_mandelbrot, "plain", at_most(1.05)),
    Row("loop of two instructions, interruptible", "ms", interruptible_loop, "plain"),
    Row("axpy over 1 GiB arrays", "GB/s", axpy_1gib, "PyTorch add"),
    Row("Sobol, 16 dimensions, coordinates", "M/s", sobol, "PyTorch SobolEngine"),
    Row("8 submits, kernels and read-back overlapped", "ms", overlap, "one after the other", at_most(0.9)),
    Row("timeout of an endless kernel, too late by", "ms", timeout, "", within(200.0)),
    Row("a call on a lost device", "us", device_lost, "", within(1000.0)),
    Row("executor, start of a worker", "ms", executor, "", None, "start"),
    Row("executor, 1 KiB arrays", "us", executor, "in this process"),
    Row("executor, resident arguments", "us", executor, "resident, in this process", None, "resident"),
    Row("executor, end of a worker after a timeout", "ms", executor, "", None, "end"),
    Row("executor, the call after, on a new worker", "ms", executor, "", None, "again"),
)
