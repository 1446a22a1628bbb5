"""Memory of a process that dispatches for long: it is what it was after the first few.

`VYRE_DISPATCHES=200000` takes each so many; there are few without it.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from device_kinds import open_device

from vyre_py.ir.language.program import Program

_COUNT: Final = int(os.environ.get("VYRE_DISPATCHES", "1000"))
# Of pages that allocators hold back for later, which many dispatches share.
_MOST_BYTES: Final = 8 << 20
_PROGRAM: Final = """program shift(n) workgroup(64) over(n) { param by: u32\n buffer x: u32[n] read\n buffer y: u32[n] write
  y[global_id.x] = x[global_id.x] + by }"""


def _resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux alone says there how much memory a process has")
@pytest.mark.parametrize("kind", ["cpu", "wgpu", "cuda"])
def test_memory_is_flat(kind: str) -> None:
    device = open_device(kind)
    pipeline = device.compile_native(Program.from_text(_PROGRAM))
    arrays = [np.arange(n, dtype=np.uint32) for n in (1, 63, 64, 1000)]

    def dispatch(turn: int) -> None:
        x = arrays[turn % len(arrays)]
        assert pipeline.dispatch(x=x, by=turn)["y"][-1] == x[-1] + turn

    for turn in range(max(200, _COUNT // 10)):
        dispatch(turn)
    allocated, resident = device.telemetry.bytes_allocated, _resident_bytes()
    for turn in range(_COUNT):
        dispatch(turn)
    grown = _resident_bytes() - resident
    print(f"{_COUNT} dispatches on {device}: {grown / 1024:.0f} KiB more of {resident / 1024:.0f}")
    assert grown < _MOST_BYTES and device.telemetry.bytes_allocated == allocated
