"""How many workgroups run at once: how busy a kernel can keep the device, and whether all workgroups of a cooperative launch fit.

A grid barrier waits for every workgroup. It would wait for ever for a workgroup that cannot start because others occupy all multiprocessors. So a launch
that does not fit is refused before it runs.
"""

from __future__ import annotations

from math import prod
from typing import Any

from vyre_py.drivers.cuda.context import Context
from vyre_py.drivers.errors import LaunchError
from vyre_py.lowering.errors import Missing, Unsupported

__all__ = ["occupancy", "require_resident", "resident_workgroups"]

_Axes = tuple[int, int, int]


def _per_multiprocessor(context: Context, function: Any, workgroup: _Axes, dynamic_bytes: int) -> int:
    with context.entered():
        result = context.cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, prod(workgroup), dynamic_bytes)
    return int(context.ok(result, f"{context.name} does not say how many workgroups run at once"))


def resident_workgroups(context: Context, function: Any, workgroup: _Axes, dynamic_bytes: int) -> int:
    """How many workgroups of a kernel (CUfunction) the whole device runs at once, when it runs nothing else: `workgroup` is the size of each in
    invocations along x, y, z, `dynamic_bytes` the workgroup memory that the launch gives it. Raises DriverError."""
    return _per_multiprocessor(context, function, workgroup, dynamic_bytes) * context.attribute("MULTIPROCESSOR_COUNT")


def occupancy(context: Context, function: Any, workgroup: _Axes, dynamic_bytes: int) -> float:
    """The share of a multiprocessor's threads, 0 to 1, that a kernel (CUfunction) can keep busy, given registers and workgroup memory: what CUDA calls
    theoretical occupancy. Raises DriverError."""
    busy = _per_multiprocessor(context, function, workgroup, dynamic_bytes) * prod(workgroup)
    return min(1.0, busy / context.attribute("MAX_THREADS_PER_MULTIPROCESSOR"))


def require_resident(context: Context, function: Any, workgroup: _Axes, dynamic_bytes: int, grid: _Axes, name: str) -> None:
    """Lets a cooperative launch of `grid` workgroups along x, y, z pass; `name` is the kernel's, for people.

    Raises Unsupported for a device without cooperative launch, LaunchError for a grid that is larger than what runs at once.
    """
    if not context.attribute("COOPERATIVE_LAUNCH"):
        help_ = "it cannot run all workgroups at once; part the Program in two at its grid barrier and launch one after the other"
        raise Unsupported(context.name, [Missing("cooperative launch", help=help_)])
    each = _per_multiprocessor(context, function, workgroup, dynamic_bytes)
    multiprocessors = context.attribute("MULTIPROCESSOR_COUNT")
    fit = each * multiprocessors
    if prod(grid) <= fit:
        return
    size = " x ".join(map(str, workgroup))
    raise LaunchError(
        f"{name} cannot be launched on {context.name}: its {prod(grid)} workgroups have to run at once, and {fit} fit",
        meaning=f"each of {multiprocessors} multiprocessors runs {each} workgroups of {size} invocations with {dynamic_bytes} bytes of workgroup memory",
        cause="a grid that has an invocation for every element" if each else "a workgroup that is too large by itself",
        remedy=(
            f"give a grid of at most {fit} workgroups (grid(...) in the Program, or DispatchConfig.grid), and let each invocation go over the elements in a "
            "loop, by steps of the grid's size"
            if each
            else "compile with a smaller workgroup (CompileOptions.workgroup), or declare less workgroup memory"
        ),
    )
