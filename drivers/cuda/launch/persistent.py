"""Persistent kernels: how many workgroups are launched for a grid that they walk through (`lowering/llvm/gpu/persistent.py`)."""

from __future__ import annotations

from math import prod
from typing import Any

from vyre_py.drivers.cuda.context import Context
from vyre_py.drivers.cuda.launch.cooperative import resident_workgroups
from vyre_py.drivers.errors import LaunchError

__all__ = ["launched_grid"]

_Axes = tuple[int, int, int]


def launched_grid(context: Context, function: Any, workgroup: _Axes, dynamic_bytes: int, grid: _Axes | None, name: str) -> _Axes:
    """What is launched of a persistent kernel (CUfunction) for a grid of so many workgroups along x, y, z, none of them zero: a row of as many as the
    device runs at once, or fewer if the grid has no more. None is a grid that the device alone knows.

    `workgroup` is the size of each in invocations, `dynamic_bytes` the workgroup memory that the launch gives it, `name` the kernel's, for people.
    Raises LaunchError where not even one fits, DriverError.
    """
    fit = resident_workgroups(context, function, workgroup, dynamic_bytes)
    if not fit:
        size = " x ".join(map(str, workgroup))
        raise LaunchError(
            f"{name} cannot be launched on {context.name}: not one of its workgroups fits", cause="a workgroup that is too large by itself",
            meaning=f"a multiprocessor has too few registers or too little memory for {size} invocations with {dynamic_bytes} bytes of workgroup memory",
            remedy="compile with a smaller workgroup (CompileOptions.workgroup), or declare less workgroup memory",
        )  # fmt: skip
    return fit if grid is None else min(prod(grid), fit), 1, 1
