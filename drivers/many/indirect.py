"""Grids that are read from a buffer when a launch begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from vyre_py.drivers.binding import BindingPlan, solve_grid
from vyre_py.drivers.config import GRID_WORDS
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.many.commands import require_memory
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.lowering.errors import Missing, Unsupported

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device
    from vyre_py.drivers.launch import LaunchPlan

__all__ = ["read_grid", "require_grid", "written_grid"]


def require_grid(device: Device, binding: BindingPlan, grid: Buffer) -> None:
    """Raises Unsupported where the device can't read a grid, BindingError for a buffer of another device, one that was freed, and one that the launch
    writes."""
    if not device.reads_grids:
        raise Unsupported(device.name, [Missing("dispatch option grid as a buffer", help="read it, and give three numbers")])
    if grid.device is not device:
        raise BindingError("grid", [f"the buffer is on {grid.device.name}, and the launch on {device.name}"])
    if grid.allocation.freed:
        raise BindingError(binding.interface.name, [f"'grid' {grid.allocation.absence}"])
    if written := written_grid(binding, binding.buffers, grid):
        raise BindingError(binding.interface.name, written)


def written_grid(binding: BindingPlan, buffers: Mapping[str, Buffer], grid: Buffer) -> list[str]:
    """A sentence for every written buffer that shares bytes with the grid: workgroups that begin later would read another one."""
    written = [memory.name for memory in binding.interface.buffers if memory.access.writes and memory.name in buffers]
    return [f"the launch writes the memory of its grid: {name!r} is part of it" for name in written if buffers[name].overlaps(grid)]


def read_grid(plan: LaunchPlan) -> tuple[int, int, int] | None:
    """On a device whose launches run to their end at once: the grid that a plan's buffer has now; None where nothing is to run, since a count is 0, or more
    than a launch may have. Raises BindingError when the buffer was freed."""
    grid, device = plan.grid_buffer, plan.device
    assert grid is not None  # who asks knows
    require_memory(plan.binding.interface.name, {"grid": grid})
    words = np.empty(GRID_WORDS, np.uint32)
    with grid.allocation.held():
        device._read_array(grid.handle, grid.offset_bytes, words)
    x, y, z = map(int, words)
    try:
        found = solve_grid(plan.step, {}, (x, y, z), device.limits.workgroups, device.name)
    except BindingError:
        return None
    return None if 0 in found else found
