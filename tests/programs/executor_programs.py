"""Programs for executors: one that is done at once, and one that never is; and looking at processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import vyre_py as vp
from vyre_py.ir.language.program import Program

__all__ = ["AXPY", "ENDLESS", "GOOD", "IDLE", "PATIENCE", "RIGHT", "XS", "idle", "is_alive", "settled", "used_seconds", "works"]

AXPY = Program.from_text("""
program axpy(n) workgroup(64) {
  param a: u32
  buffer x: u32[n] read
  buffer y: u32[n] read_write
  let i = global_id.x
  y[i] = a * x[i] + y[i]
}
""")
XS = np.arange(100, dtype=np.uint32)
GOOD = {"x": XS, "y": XS, "a": 3}
RIGHT = XS * np.uint32(4)
PATIENCE = 60.0  # for what happens in a moment on a machine that is not busy


def endless() -> Program:
    """Runs as long as flag[0] is zero, which nothing changes."""
    with vp.ProgramBuilder("endless", workgroup=64) as b:
        flag, out = b.read("flag", vp.u32, 1), b.read_write("out", vp.u32, b.dim("n"))
        turns = b.var("turns", vp.u32)
        with b.loop():
            turns += 1
            out[b.global_id(0)] = turns
            b.break_if(flag[0] != 0)
    return b.program


def idle(kind: str) -> dict[str, Any]:
    """Arguments with which it runs. Vulkan in software leaves a loop after 2^16 turns, so that it takes many invocations to keep it busy."""
    return {"flag": np.zeros(1, np.uint32), "out": np.zeros(1 << 22 if kind == "wgpu" else 64, np.uint32)}


ENDLESS = endless()
IDLE = idle("cpu")


def settled(seen: Callable[[], bool]) -> bool:
    """Whether something becomes true in time."""
    end = time.monotonic() + PATIENCE
    while not seen():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def works(executor: vp.Executor) -> None:
    np.testing.assert_array_equal(executor.dispatch(AXPY, GOOD)["y"], RIGHT)


def is_alive(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def used_seconds(pid: int) -> float:
    """The processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
