"""Launches of the CPU device for C: one call runs the whole grid in the calling thread, in native code."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, Final

from vyre_py.drivers.cpu.launch import CpuLaunch
from vyre_py.drivers.cpu.native_run import RUN_FUNCTION
from vyre_py.drivers.launch import Launch
from vyre_py.drivers.native.shorthand import written_out
from vyre_py.drivers.native.structs import c_struct
from vyre_py.drivers.sharing.c_launch import ALIVE_FUNCTION, LAUNCH, CLaunch
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.llvm import jit
from vyre_py.lowering.statuses import CStatus

__all__ = ["make"]

_TEXT: Final = f"""
{ALIVE_FUNCTION}
{RUN_FUNCTION}

define i32 @vyre_run_cpu(ptr %launch, ptr %stream) {{
entry:
  %grid = address Launch.grid of %launch
  %x = load i32 0 of %grid
  %y = load i32 1 of %grid
  %z = load i32 2 of %grid
  %x_wide = zext i32 %x to i64
  %y_wide = zext i32 %y to i64
  %z_wide = zext i32 %z to i64
  %xy = mul i64 %x_wide, %y_wide
  %total = mul i64 %xy, %z_wide
  %streamless = icmp eq ptr %stream, null
  br i1 %streamless, label %some, label %no_streams
no_streams:
  ret i32 {int(CStatus.STREAM)}
some:
  %none = icmp eq i64 %total, 0
  br i1 %none, label %done, label %look
done:
  ret i32 0
look:
  %state = load Launch.state of %launch
  %gone = load State.gone of %state
  %is_gone = icmp ne i64 %gone, 0
  br i1 %is_gone, label %lost, label %alive
lost:
  ret i32 {int(CStatus.LOST)}
alive:
  %count = load State.count of %state
  %words = load State.words of %state
  %all_there = call i1 @all_alive(i64 %count, ptr %words)
  br i1 %all_there, label %all_alive, label %freed
freed:
  ret i32 {int(CStatus.FREED)}
all_alive:
  %function = load Launch.function of %launch
  %arguments = load Launch.arguments of %launch
  %scratch_bytes = load Launch.scratch_bytes of %launch
  %status = call i32 @run_kernel(ptr %function, ptr %arguments, i64 %scratch_bytes, i64 0, i64 %total, i32 %x, i32 %y, i32 %z)
  ret i32 %status
}}
"""


class _CpuLaunchState(ctypes.Structure):
    """Whether the device is gone, the number of live words, and where their addresses are."""

    _fields_ = (("gone", ctypes.c_uint64), ("count", ctypes.c_uint64), ("words", ctypes.c_void_p))


@cache
def _run() -> int:
    """Where the code that runs a launch begins. It stays for good."""
    return jit.link("vyre-c-launch", written_out(_TEXT, LAUNCH, c_struct("State", _CpuLaunchState)), ("vyre_run_cpu",))["vyre_run_cpu"]


def make(launch: Launch) -> CLaunch:
    """The descriptor of a launch of the CPU device, or of one over no workgroups."""
    return CLaunch(launch.plan, _run()) if launch.plan.empty else CpuCLaunch(launch)


class CpuCLaunch(CLaunch):
    """The descriptor of a launch, whose argument block is the launch's own."""

    __slots__ = ("_arguments", "_kernel", "_live", "_state")

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch.plan, _run())
        assert isinstance(launch, CpuLaunch)
        if launch.plan.step.cooperative:
            missing = Missing("a launch with a grid barrier", help="its workgroups need a thread each; C runs the grid in the calling thread alone")
            raise Unsupported("c_address on the CPU", [missing])
        if launch.plan.grid_buffer is not None:
            raise Unsupported("c_address on the CPU", [Missing("a launch whose grid is a buffer", help="C runs the grid that the descriptor says")])
        self._kernel = kernel = launch._kernel
        function: Any = kernel.run
        self._live = (ctypes.c_uint64 * max(1, len(launch.plan.step.layout.buffers)))()
        self._state = _CpuLaunchState(0, len(launch.plan.step.layout.buffers), ctypes.addressof(self._live))
        words = self.words
        words.function, words.scratch_bytes = ctypes.cast(function, ctypes.c_void_p).value, kernel.scratch_bytes
        words.state = ctypes.addressof(self._state)
        self.follow(launch)

    def follow(self, launch: Launch) -> None:
        """Looks at the arguments and buffers that are bound now, and whether the device is there."""
        assert isinstance(launch, CpuLaunch)
        arguments = launch._arguments
        self.words.arguments, self._arguments = arguments.address, arguments
        bound = launch._bound()
        for number, slot in enumerate(launch.plan.step.layout.buffers):
            self._live[number] = ctypes.addressof(bound[slot.name].allocation.alive)
        self._state.gone = launch.plan.device.closed
