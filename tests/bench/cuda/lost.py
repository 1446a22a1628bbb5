"""How quickly calls fail once the device is lost, in a process that ends by it.

    python -m tests.bench.cuda.lost
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import numpy as np

import vyre_py as vp
from tests.bench.cuda.programs import AXPY
from vyre_py.drivers.cuda.device import CudaDevice

__all__ = ["slowest_call_us"]

_ILLEGAL = """.version 7.0
.target sm_70
.address_size 64
.visible .entry illegal(.param .u64 at)
{
  .reg .u64 %a;
  .reg .u32 %v;
  ld.param.u64 %a, [at];
  mov.u32 %v, 1;
  st.global.u32 [%a], %v;
  ret;
}
"""


def fault(device: CudaDevice) -> None:
    """Stores at an address where nothing is, and waits."""
    launch = device.load_ptx(_ILLEGAL, "illegal", [("at", vp.u64)]).bind({"at": 16}, grid=1, workgroup=1)
    launch()
    try:
        device.synchronize()
    except vp.DeviceLost:
        return
    raise RuntimeError("an illegal address was not noticed")


def fault_of_stand_in(device: CudaDevice) -> None:
    """The same where a stand-in for the driver says so."""
    driver = device.context.cuda
    driver.fail["cuStreamSynchronize"] = [driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS]
    try:
        device.synchronize()
    except vp.DeviceLost:
        return
    raise RuntimeError("an illegal address was not noticed")


def slowest_call_us(device: CudaDevice, breaks: Callable[[CudaDevice], None]) -> float:
    """What the slowest of several calls takes to fail once `breaks` has lost the device, in microseconds: of each the median of nine times.

    Raises RuntimeError for a call that does not fail with DeviceLost.
    """
    ones = np.ones(256, np.float32)
    x, y = device.upload(ones), device.upload(ones)
    pipeline = device.compile_native(AXPY)
    launch = pipeline.bind({"x": x, "y": y, "a": 2.0})
    sequence = device.sequence(launch, launch)
    breaks(device)
    calls: dict[str, Callable[[], object]] = {
        "launch": launch, "sequence": sequence, "dispatch": lambda: pipeline.dispatch({"x": ones, "y": ones, "a": 2.0}),
        "submit": lambda: pipeline.submit({"x": ones, "y": ones, "a": 2.0}), "bind": lambda: pipeline.bind({"x": x, "y": y, "a": 2.0}),
        "upload": lambda: device.upload(ones), "read": y.read, "allocate": lambda: device.allocate(1024, vp.f32), "synchronize": device.synchronize,
        "compile": lambda: device.compile_native(AXPY), "capture": lambda: device.capture(launch),
    }  # fmt: skip
    slowest, survived = 0.0, []
    for name, call in calls.items():
        taken = []
        for _ in range(9):
            begin = time.perf_counter()
            try:
                call()
                survived.append(name)
            except vp.DeviceLost:
                pass
            taken.append(time.perf_counter() - begin)
        slowest = max(slowest, statistics.median(taken))
    if survived:
        raise RuntimeError(f"calls on a lost device that did not raise DeviceLost: {sorted(set(survived))}")
    return slowest * 1e6


if __name__ == "__main__":
    cuda = vp.device("cuda")
    assert isinstance(cuda, CudaDevice)
    print(json.dumps({"us": slowest_call_us(cuda, fault)}))
