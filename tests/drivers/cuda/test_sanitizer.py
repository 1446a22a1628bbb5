"""compute-sanitizer on a GPU: it finds a fault that is planted, and nothing in a Program that does the like, so that a quiet run means something.

`make test-gpu-memcheck` runs this, and then the core of the GPU suite under memcheck; `make test-gpu-racecheck` this, and then Programs of tiles of all kinds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache

import pytest
from children import child_environment
from device_kinds import open_device
from tree import file_of

FAULT, TILES = file_of("gpu_fault.py"), file_of("gpu_tiles.py")
FOUND = 99
# A store through an index that lies past the end, which the language drops.
DROPPED = """
import numpy as np, vyre_py as vp
program = vp.Program.from_text('''program far(n) workgroup(64) over(n) {
  buffer x: u32[n] read
  buffer y: u32[n] read_write
  let at = x[global_id.x]
  y[at] = x[at] + 1
}''')
x, y = np.array([0, 1 << 20, 0xffffffff, 1024], np.uint32), np.zeros(4, np.uint32)
pipeline = vp.device("cuda").compile_native(program)
for _ in range(3):
    assert list(pipeline.dispatch({"x": x, "y": y})["y"]) == [1, 0, 0, 0]
device = vp.device("cuda")
xd, yd = device.upload(x), device.upload(y)
pipeline.bind(x=xd, y=yd)()
assert list(yd.read()) == [1, 0, 0, 0]
"""


@cache
def sanitizer() -> str:
    """The program; without it the test is skipped, or fails when VYRE_REQUIRE_DEVICES names it."""
    open_device("cuda")
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if found is None:
        why = "compute-sanitizer is not installed; it comes with the CUDA toolkit"
        if "sanitizer" in os.environ.get("VYRE_REQUIRE_DEVICES", "").split(","):
            pytest.fail(why)
        pytest.skip(why)
    return found


def checked(*command: str, tool: str = "memcheck") -> subprocess.CompletedProcess[str]:
    """A run of Python under a tool; errors that calls of the driver return are no findings, since ours asks for some. Code is compiled, not taken from a
    cache, where what was compiled without barriers would be found by others."""
    options = ["--tool", tool, "--error-exitcode", str(FOUND), *(["--report-api-errors", "no"] if tool == "memcheck" else [])]
    environment = child_environment(VYRE_CACHE_LIMIT="0")
    return subprocess.run([sanitizer(), *options, sys.executable, *command], env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("memory", ["pool", "driver"])
def test_memcheck_finds_a_store_one_element_past_a_buffer(memory: str) -> None:
    done = checked(str(FAULT), memory)
    assert done.returncode == FOUND, f"it ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "Invalid __global__ write of size 4 bytes" in done.stdout + done.stderr, done.stdout[-3000:]


@pytest.mark.parametrize("command", [(str(FAULT), "none"), ("-c", DROPPED)], ids=["the last element", "a store that is dropped"])
def test_memcheck_finds_nothing_where_nothing_is_wrong(command: tuple[str, ...]) -> None:
    done = checked(*command)
    assert done.returncode == 0, f"it ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "0 errors" in done.stdout + done.stderr, done.stdout[-3000:]


def test_racecheck_finds_barriers_that_are_left_out() -> None:
    done = checked(str(TILES), "planted", tool="racecheck")
    assert done.returncode == FOUND, f"it ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "Race reported between" in done.stdout + done.stderr, done.stdout[-3000:]


def test_racecheck_finds_nothing_where_they_are() -> None:
    done = checked(str(TILES), "whole", tool="racecheck")
    assert done.returncode == 0, f"it ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "0 hazards displayed" in done.stdout + done.stderr, done.stdout[-3000:]
