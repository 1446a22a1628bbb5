"""The jobs of ranks, each a thread over stand-ins for the driver and for NCCL: that what they compare is right, and the steps too, without a GPU."""

from __future__ import annotations

import ctypes
import struct
import threading
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rank_jobs
from fake_graphs import FakeGraphDriver
from ranked_nccl import RankedNccl
from ranks import Rank

import vyre_py as vp
from vyre_py.drivers.cuda import library
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.cuda.kernels import collective


def heat(block: bytes) -> None:
    """One launch of the stencil over its argument block."""
    old_at, new_at, rate, height, width = struct.unpack_from("<QQfII", block)
    old, new = [np.ctypeslib.as_array((ctypes.c_float * (height * width)).from_address(at)).reshape(height, width) for at in (old_at, new_at)]
    wide = np.pad(old, 1)
    around = wide[1:-1, :-2] + wide[1:-1, 2:]
    around = around + wide[:-2, 1:-1]
    around = around + wide[2:, 1:-1]
    new[:] = old + np.float32(rate) * (around - np.float32(4) * old)


class Repeated:
    """In place of a graph: the stand-in's NCCL makes its calls at once, and so are they made again."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self) -> None:
        self._function()

    def repeat(self, times: int) -> None:
        for _ in range(times):
            self._function()


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("job", ["collectives", "stencil"])
def test_a_job(job: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, nccl, failed = threading.local(), RankedNccl(count), list[str]()
    monkeypatch.setattr(library, "load", lambda: here.driver)
    monkeypatch.setattr(collective, "load", lambda: nccl)
    monkeypatch.setattr(CudaDevice, "capture", lambda device, function: Repeated(function))
    monkeypatch.setattr(vp, "device", lambda name: here.device)

    def work(number: int) -> None:
        here.driver = FakeGraphDriver(total=1 << 28)
        here.driver.kernel = heat
        here.device = CudaDevice(number)
        try:
            getattr(rank_jobs, job)(Rank(number, count, tmp_path, {"library": "nccl", "shape": [61, 40]}))
        except BaseException:  # noqa: BLE001 - told below, and the others end by their barrier
            failed.append(traceback.format_exc())
        finally:
            here.device.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and not nccl.wrong, "\n".join([*failed, *map(repr, nccl.wrong)])
