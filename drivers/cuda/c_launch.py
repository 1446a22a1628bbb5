"""Launches of CUDA devices for C: one call of the driver, in native code that tests the same words as the launch itself.

It reads the call from the state of the launch's call list (`native.call_list`), and so sees what `launch.set` changed in native code.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Final

from vyre_py.drivers.cuda.launch.launch import CudaLaunch
from vyre_py.drivers.cuda.native import call_list
from vyre_py.drivers.cuda.native.driver_call import extra_words, in_context
from vyre_py.drivers.native.mode import UNUSABLE, Mode
from vyre_py.drivers.native.shorthand import argument_loads, written_out
from vyre_py.drivers.native.structs import c_struct
from vyre_py.drivers.sharing.c_launch import ALIVE_FUNCTION, LAUNCH, CLaunch
from vyre_py.lowering.llvm import jit
from vyre_py.lowering.statuses import CStatus

if TYPE_CHECKING:
    from vyre_py.drivers.launch import Launch

__all__ = ["make"]

_CAPTURED: Final = int(Mode.CAPTURING)
_LAUNCH_ARGUMENTS: Final = 9  # that are taken from the call, up to the stream
_CONFIG_BYTES: Final = 56
_CONFIG_STREAM_AT: Final = 32

# %State: the call list's state, the device's context, what makes that current and what takes it back, and
# the word that counts threads in here: who closes the device or captures on it first says so in the mode word, and then waits for them.
_TEXT: Final = f"""
{ALIVE_FUNCTION}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; Makes the first call of a list with the argument block as it is, on a stream if there is one; gives the status.
define internal i32 @launch(ptr %list, ptr %stream) {{
entry:
  %config = alloca i8, i64 {_CONFIG_BYTES}, align 8
  %call = load Head.calls of %list
  %function = load Call.function of %call
  %form = load Call.form of %call
  %block_at = address Call.block of %call
  %block = load i64, ptr %block_at
  %bytes = load Call.block_bytes of %call
{extra_words("i64 %block")}  %stream_word = ptrtoint ptr %stream to i64
  %own = icmp eq i64 %stream_word, 0
  {{loads}}
  %plain = icmp eq i64 %form, {call_list.LAUNCH}
  br i1 %plain, label %as_arguments, label %as_config
as_arguments:
  %chosen = select i1 %own, i64 %v8, i64 %stream_word
  %s1 = call i32 %function(i64 %v0, i64 %v1, i64 %v2, i64 %v3, i64 %v4, i64 %v5, i64 %v6, i64 %v7, i64 %chosen, i64 0, i64 %extra_word)
  ret i32 %s1
as_config:
  %given = inttoptr i64 %v0 to ptr
  call void @llvm.memcpy.p0.p0.i64(ptr %config, ptr %given, i64 {_CONFIG_BYTES}, i1 false)
  %stream_at = getelementptr i8, ptr %config, i64 {_CONFIG_STREAM_AT}
  %its = load i64, ptr %stream_at
  %chosen2 = select i1 %own, i64 %its, i64 %stream_word
  store i64 %chosen2, ptr %stream_at
  %config_word = ptrtoint ptr %config to i64
  %s2 = call i32 %function(i64 %config_word, i64 %v1, i64 0, i64 %extra_word)
  ret i32 %s2
}}

; What forbids the list to run; 0 where nothing does.
define internal i32 @obstacle(ptr %list) {{
entry:
  %mode_word = load Head.mode of %list
  %mode = load atomic i64, ptr %mode_word seq_cst, align 8
  %gone = and i64 %mode, {UNUSABLE}
  %is_gone = icmp ne i64 %gone, 0
  br i1 %is_gone, label %lost, label %here
lost:
  ret i32 {int(CStatus.LOST)}
here:
  %captured = and i64 %mode, {_CAPTURED}
  %invalid_at = address Head.invalid of %list
  %invalid = load atomic i64, ptr %invalid_at seq_cst, align 8
  %either = or i64 %captured, %invalid
  %is_busy = icmp ne i64 %either, 0
  br i1 %is_busy, label %busy, label %look
busy:
  ret i32 {int(CStatus.BUSY)}
look:
  %count = load Head.alive_count of %list
  %words = load Head.alive of %list
  %all_there = call i1 @all_alive(i64 %count, ptr %words)
  br i1 %all_there, label %alive, label %freed
freed:
  ret i32 {int(CStatus.FREED)}
alive:
  ret i32 0
}}

{in_context("launch", "ptr %list, ptr %stream", "State")}
define i32 @vyre_run_cuda(ptr %launch, ptr %stream) {{
entry:
  %grid = address Launch.grid of %launch
  %x = load i32 0 of %grid
  %y = load i32 1 of %grid
  %z = load i32 2 of %grid
  %no_x = icmp eq i32 %x, 0
  %no_y = icmp eq i32 %y, 0
  %no_z = icmp eq i32 %z, 0
  %no_xy = or i1 %no_x, %no_y
  %none = or i1 %no_xy, %no_z
  br i1 %none, label %done, label %begin
done:
  ret i32 0
begin:
  %state = load Launch.state of %launch
  %list = load State.list of %state
  %callers = load State.callers of %state
  %ignored = atomicrmw add ptr %callers, i64 1 seq_cst
  %why = call i32 @obstacle(ptr %list)
  %refused = icmp ne i32 %why, 0
  br i1 %refused, label %leave, label %try
try:
  %launched = call i32 @in_context(ptr %state, ptr %list, ptr %stream)
  br label %leave
leave:
  %status = phi i32 [ %why, %begin ], [ %launched, %try ]
  %ignored2 = atomicrmw sub ptr %callers, i64 1 seq_cst
  ret i32 %status
}}
"""


class _CudaLaunchState(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in ("list", "context", "push", "pop", "callers"))


def _text() -> str:
    return written_out(_TEXT.replace("{loads}", argument_loads(_LAUNCH_ARGUMENTS)), LAUNCH, c_struct("State", _CudaLaunchState))


@cache
def _run() -> int:
    """Where the code that runs a launch begins. It stays for good."""
    return jit.link("vyre-c-launch-cuda", _text(), ("vyre_run_cuda",))["vyre_run_cuda"]


def make(launch: Launch) -> CLaunch:
    """The descriptor of a launch of a CUDA device, or of one over no workgroups."""
    return CLaunch(launch.plan, _run()) if launch.plan.empty else CudaCLaunch(launch)


class CudaCLaunch(CLaunch):
    """The descriptor of a launch. Its argument block is the launch's own, and so is the state of its call list."""

    __slots__ = ("_calls", "_context", "_state")

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch.plan, _run())
        assert isinstance(launch, CudaLaunch)
        launch._leave_boxes()  # C may write addresses to the block
        kernel = launch.kernel
        self._context = context = kernel.device.context
        handle, callers = int(context.handle), ctypes.addressof(context.callers)
        self._state = _CudaLaunchState(0, handle, context.function("cuCtxPushCurrent"), context.function("cuCtxPopCurrent"), callers)
        self.words.context, self.words.state, self.words.arguments = handle, ctypes.addressof(self._state), kernel.block_address
        self._held = (*self._held, kernel.block)
        self.follow(launch)

    def follow(self, launch: Launch) -> None:
        """Takes the list, entry and stream that the launch has now."""
        assert isinstance(launch, CudaLaunch)
        kernel = launch.kernel
        self._calls = kernel.calls
        words = self.words
        words.function, words.workgroup_bytes, words.stream = int(kernel.module.function), kernel.module.workgroup_bytes, kernel.stream
        words.grid = kernel.grid
        self._state.list = kernel.calls.address
