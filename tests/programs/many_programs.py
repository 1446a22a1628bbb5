"""Programs for tests of compiling many, and looking at child processes."""

from __future__ import annotations

import os
from pathlib import Path

import vyre_py as vp
from vyre_py.ir.language.program import Program

__all__ = ["children", "invalid", "named"]


def named(name: str, turns: int = 1) -> Program:
    """A small Program of a name; each number of turns is other code."""
    with vp.ProgramBuilder(name) as b:
        n = b.dim("n")
        x, y = b.read("x", vp.u32, n), b.write("y", vp.u32, n)
        value = x[b.global_id(0)]
        for k in range(turns):
            value = value * 3 + k
        y[b.global_id(0)] = value
    return b.program


def invalid(name: str) -> Program:
    """A barrier that not all of a workgroup reach."""
    with vp.ProgramBuilder(name) as b:
        b.grid(1)
        y = b.write("y", vp.u32, b.dim("n"))
        with b.if_(b.global_id(0) < 3):
            b.barrier()
        y[b.global_id(0)] = 1
    return b.program


def children() -> list[int]:
    """The numbers of this process's children that live."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text("ascii", "replace").rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == os.getpid() and state != "Z":
            found.append(int(stat.parent.name))
    return found
