"""Native code of functions on the CPU: a call for C, and the builtin that Python calls, which runs small grids in the calling thread.

Larger grids, and those that turn out to take long, go on in Python, where other threads help: `_rest` of the function.
"""

from __future__ import annotations

from typing import Final

from vyre_py.drivers.cpu.launch import SHARED_INVOCATIONS
from vyre_py.drivers.cpu.native_run import KERNEL_LOADS, RUN_FUNCTION, STEPS_FUNCTION
from vyre_py.drivers.native.native_entry import C_PLAN, COUNT_FUNCTION, entry_begin
from vyre_py.drivers.native.shorthand import written_out
from vyre_py.drivers.sharing.c_callable import CALLABLE, KERNEL
from vyre_py.lowering.llvm.callable import GRID_WORDS
from vyre_py.lowering.statuses import CStatus

__all__ = ["C_CALL", "C_CALL_SYMBOL", "ENTRY_CALL", "ENTRY_CALL_SYMBOL"]

C_CALL_SYMBOL: Final = "vyre_call_cpu"
# What follows the plan in its text. Its state is the device's mode word.
C_CALL: Final = written_out(f"""
{RUN_FUNCTION}
define i32 @{C_CALL_SYMBOL}(ptr %callable, ptr %addresses, ptr %sizes, ptr %params, ptr %stream) {{
entry:
  %block = alloca i8, i64 {{block_bytes}}, align 16
  %grid = alloca [{GRID_WORDS} x i64], align 8
  %streamless = icmp eq ptr %stream, null
  br i1 %streamless, label %look, label %no_streams
no_streams:
  ret i32 {int(CStatus.STREAM)}
look:
  %mode_word = load Callable.state of %callable
  %mode = load i64, ptr %mode_word
{C_PLAN}run:
  %kernels = load Callable.kernels of %callable
{KERNEL_LOADS}  %status = call i32 @run_kernel(ptr %function, ptr %block, i64 %scratch, i64 0, i64 %total, i32 %x4, i32 %y4, i32 %z4)
  ret i32 %status
}}
""", CALLABLE, KERNEL)

ENTRY_CALL_SYMBOL: Final = "vyre_entry_cpu"
# The builtin, after `ENTRY_CALLS`; `Entry.extra` is the address of the number of threads.
ENTRY_CALL: Final = f"""
{RUN_FUNCTION}
{STEPS_FUNCTION}
{COUNT_FUNCTION}
{entry_begin(ENTRY_CALL_SYMBOL)}
choose:
  %streamless = icmp eq ptr %stream, null
  br i1 %streamless, label %load, label %give_up
load:
  %kernels = load Entry.kernels of %state
{KERNEL_LOADS}  %threads_word = load Entry.extra of %state
  %threads = load i64, ptr %threads_word
  %single = icmp ule i64 %threads, 1
  %alone = or i1 %as_one, %single
  %workgroup = load Entry.workgroup of %state
  %invocations = mul i64 %total, %workgroup
  %many = icmp uge i64 %invocations, {SHARED_INVOCATIONS}
  %together = xor i1 %alone, true
  %shared = and i1 %many, %together
  br i1 %shared, label %rest, label %here
here:
  %thread = call ptr @PyEval_SaveThread()
  %ran = call i64 @run_steps(ptr %function, ptr %block, i64 %scratch, i64 %total, i32 %x4, i32 %y4, i32 %z4, i1 %alone)
  call void @PyEval_RestoreThread(ptr %thread)
  %all = icmp eq i64 %ran, %total
  br i1 %all, label %count, label %rest
rest:
  %first = phi i64 [ 0, %load ], [ %ran, %here ]
  %result = call ptr @call_rest(ptr %self, i64 %index, i64 %first, ptr %grid, ptr %block, i64 %block_bytes)
  call void @release(ptr %held, i64 %buffers)
  ret ptr %result
count:
  call void @release(ptr %held, i64 %buffers)
  %counters = load Entry.counters of %state
  %asked = load i64 {GRID_WORDS - 1} of %grid
  call void @add_to(ptr %counters, i64 0, i64 1)
  call void @add_to(ptr %counters, i64 1, i64 %asked)
  call void @add_to(ptr %counters, i64 2, i64 %invocations)
  call void @add_to(ptr %counters, i64 3, i64 %block_bytes)
  call void @Py_IncRef(ptr {{none}})
  ret ptr {{none}}
}}
"""
