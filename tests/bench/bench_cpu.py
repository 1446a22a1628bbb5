"""The CPU device against Numba (parallel) and NumPy in one run.

    pip install numba && python tests/bench/bench_cpu.py

Products of matrices take turns with NumPy's, and both are measured in processor time; OPENBLAS_NUM_THREADS=1 taskset -c 0 gives one thread to each. With more,
OpenBLAS's threads go on looking for work for a while after a product and take the cores from ours: these ratios are too low then.
"""

from __future__ import annotations

import functools
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from kernel_programs import axpy
from measure import per_call_us, row, seconds

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.ir.language.program import Program

COUNT = 1 << 24
SIDE = 1024


@numba.njit(parallel=True)
def numba_axpy(a: Any, x: Any, y: Any) -> None:
    """y = a * x + y."""
    for i in numba.prange(x.size):
        y[i] = a * x[i] + y[i]


@numba.njit(parallel=True)
def numba_mandelbrot(out: Any, width: Any, height: Any, turns: Any) -> None:
    """Turns until escape."""
    for p in numba.prange(width * height):
        cx = np.float32(-2) + np.float32(3) * np.float32(p % width) / np.float32(width)
        cy = np.float32(-1.5) + np.float32(3) * np.float32(p // width) / np.float32(height)
        zx = zy = np.float32(0)
        k = 0
        while k < turns and zx * zx + zy * zy < np.float32(4):
            zx, zy = zx * zx - zy * zy + cx, np.float32(2) * zx * zy + cy
            k += 1
        out[p] = k


def mandelbrot() -> Program:
    """Turns until escape."""
    with vp.ProgramBuilder("mandelbrot") as b:
        side, turns = b.dim("side"), b.param("turns", vp.i32)
        out = b.write("out", vp.i32, side * side)
        p = b.global_id(0)
        cx = vp.cast(p % side, vp.f32) * 3.0 / vp.cast(side, vp.f32) - 2.0
        cy = vp.cast(p // side, vp.f32) * 3.0 / vp.cast(side, vp.f32) - 1.5
        zx, zy, k = b.var("zx", vp.f32), b.var("zy", vp.f32), b.var("k", vp.i32)
        with b.loop():
            b.break_if((k >= turns) | (zx * zx + zy * zy >= 4.0))
            moved = b.let("moved", zx * zx - zy * zy + cx)
            zy.set(2.0 * zx * zy + cy)
            zx.set(moved)
            k += 1
        out[p] = k
    return b.program


def products(device: Device) -> None:
    """Products of matrices, in f32 and of bf16, beside NumPy's in f32."""
    rng = np.random.default_rng(1)
    for type_, (m, k, n), tiles in itertools.product((vp.f32, vp.bf16), ((1024, 1024, 1024), (512, 512, 512), (1000, 777, 1003)), ("small", "medium")):
        a, b, c = rng.random((m, k), np.float32), rng.random((k, n), np.float32), np.empty((m, n), np.float32)
        of = {"a": device.upload(a.astype(type_.dtype)), "b": device.upload(b.astype(type_.dtype)), "c": device.allocate((m, n), type_)}
        launch = device.compile_native(vp.ops.matmul(type_, tiles=tiles)).bind(of)
        ours, peer = in_turns(launch, functools.partial(np.matmul, a, b, out=c))
        rate = 2 * m * k * n / 1e9
        row(f"matmul {m} x {k} x {n} {type_}, {tiles} tiles", rate / ours, "GFLOP/s", rate / peer, "np.matmul f32", True)


def in_turns(ours: Callable[[], object], peer: Callable[[], object], rounds: int = 15) -> tuple[float, float]:
    """The median seconds of processor time of each, one after the other."""
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for call, times in zip((ours, peer), found, strict=True):
            begin = time.process_time()
            call()
            times.append(time.process_time() - begin)
    return statistics.median(found[0]), statistics.median(found[1])


def main() -> None:
    """Prints the table."""
    device = vp.device("cpu")
    print(device)
    rng = np.random.default_rng(1)
    x, y = rng.random(COUNT, np.float32), rng.random(COUNT, np.float32)
    launch = device.compile_native(axpy()).bind({"x": device.upload(x), "y": device.upload(y), "a": 0.5})
    moved = 12 * COUNT / 1e9
    peer = seconds(lambda: numba_axpy(np.float32(0.5), x, y))
    row("axpy 2^24 f32", moved / seconds(launch), "GB/s", moved / peer, "numba parallel", True)
    products(device)
    counts = device.allocate(SIDE * SIDE, vp.i32)
    launch = device.compile_native(mandelbrot()).bind({"out": counts, "turns": 256, "side": SIDE})
    flat = np.empty(SIDE * SIDE, np.int32)
    pixels = SIDE * SIDE / 1e6
    peer = seconds(lambda: numba_mandelbrot(flat, SIDE, SIDE, 256))
    row("mandelbrot 1024^2 x 256", pixels / seconds(launch), "Mpixel/s", pixels / peer, "numba parallel", True)
    small = device.compile_native(axpy()).bind({"x": device.upload(x[:256]), "y": device.upload(y[:256]), "a": 0.5})
    tiny, other = x[:256].copy(), y[:256].copy()
    peer = per_call_us(lambda: numba_axpy(np.float32(0.5), tiny, other), lambda: None)
    row("launch of one workgroup", per_call_us(small, device.synchronize), "us", peer, "numba parallel")

    call, bound = device.compile_native(axpy()).callable(), device.compile_native(axpy())
    peer = per_call_us(lambda: np.add(tiny, other, out=other), lambda: None)
    row("call with two arrays and a scalar", per_call_us(lambda: call(tiny, other, 0.5), device.synchronize), "us", peer, "np.add into an array")

    def bind_and_launch() -> None:
        launch = bound.bind((tiny, other), a=0.5)
        launch()

    row("bind and launch of the same", per_call_us(bind_and_launch, device.synchronize), "us", peer, "np.add into an array")

    def cold() -> None:
        device.trim()
        device.compile_native(axpy())

    row("compile axpy to machine code", seconds(cold) * 1e3, "ms")
    for target in ("sm_90", "wgsl"):
        row(f"compile axpy to {target}", seconds(lambda: vp.compile_native(axpy(), target)) * 1e3, "ms")  # noqa: B023 - called within this turn


if __name__ == "__main__":
    main()
