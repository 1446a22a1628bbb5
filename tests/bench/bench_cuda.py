"""The CUDA device against cuda.bindings, Triton and PyTorch in one run; peers that are not installed are left out.

    python tests/bench/bench_cuda.py
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from measure import per_call_us, row, seconds

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.ir.program import Program

GIB_FLOATS = 1 << 28


def axpy() -> Program:
    """y = a * x + y, unguarded."""
    with vp.ProgramBuilder("axpy") as b:
        n, a = b.dim("n"), b.param("a", vp.f32)
        x, y = b.read("x", vp.f32, n), b.read_write("y", vp.f32, n)
        i = b.global_id(0)
        y[i] = a * x[i] + y[i]
    return b.program


def launches(device: Device) -> None:
    """A bound launch against cuLaunchKernel through cuda.bindings with the arguments packed before: one kernel, one stream."""
    from cuda.bindings import driver

    launch: Any = device.compile_native(axpy()).bind({"x": device.upload(np.ones(1024, np.float32)), "y": device.upload(np.ones(1024, np.float32)), "a": 2.0})
    ours = per_call_us(launch, device.synchronize)
    packed = partial(driver.cuLaunchKernel, *launch._run.args)  # the same kernel, stream and packed arguments
    peer = per_call_us(packed, device.synchronize)
    row("bound launch", ours, "us", peer, "cuda.bindings, packed")
    row("launch and wait", per_call_us(lambda: (launch(), device.synchronize()), device.synchronize, 500), "us")
    row("launch.set of a param", per_call_us(lambda: launch.set(a=3.0), device.synchronize), "us")


def bandwidth(device: Device) -> None:
    """axpy over arrays of 1 GiB; three of them move."""
    x, y = device.allocate(GIB_FLOATS, vp.f32), device.allocate(GIB_FLOATS, vp.f32)
    launch = device.compile_native(axpy()).bind({"x": x, "y": y, "a": 2.0})

    def ten() -> None:
        for _ in range(10):
            launch()
        device.synchronize()

    ours = 10 * 12 * GIB_FLOATS / seconds(ten) / 1e9
    peer = None
    try:
        import torch

        u, v = torch.rand(GIB_FLOATS, device="cuda"), torch.rand(GIB_FLOATS, device="cuda")

        def torch_ten() -> None:
            for _ in range(10):
                torch.add(u, v, out=v)
            torch.cuda.synchronize()

        peer = 10 * 12 * GIB_FLOATS / seconds(torch_ten) / 1e9
    except ImportError:
        print("PyTorch is not installed")
    row("axpy over 1 GiB arrays", ours, "GB/s", peer, "PyTorch add", True)
    x.free()
    y.free()


def transfers(device: Device) -> None:
    """Host arrays in and out."""
    pipeline = device.compile_native(axpy())
    for count, name in ((256, "1 KiB"), (1 << 18, "1 MiB")):
        x, y = np.ones(count, np.float32), np.ones(count, np.float32)
        row(f"dispatch, {name} arrays", seconds(lambda: pipeline.dispatch({"x": x, "y": y, "a": 2.0}), 99) * 1e6, "us")  # noqa: B023 - called within this turn


def compiles(device: Device) -> None:
    """From a Program to a loaded kernel."""

    def cold() -> None:
        device.trim()
        device.compile_native(axpy())

    row("compile and load axpy", seconds(cold) * 1e3, "ms")


def main() -> None:
    """Prints the table."""
    device = vp.device("cuda")
    print(device)
    launches(device)
    bandwidth(device)
    transfers(device)
    compiles(device)


if __name__ == "__main__":
    main()
