"""Native code that runs workgroups of a kernel in the calling thread, with scratch memory around them; what a call does between its plan and that."""

from __future__ import annotations

import time
from typing import Final

from vyre_py.drivers.cpu.launch import SHARED_NS, TELLING_NS
from vyre_py.lowering.statuses import CStatus

__all__ = ["CLOCK", "KERNEL_LOADS", "RUN_FUNCTION", "STEPS_FUNCTION"]

# The system's clock that never goes back; None where there is none that native code can read.
CLOCK: Final[int | None] = getattr(time, "CLOCK_MONOTONIC", None)

# Scratch memory up to this size is on the stack of the calling thread, whose size is unknown here; more comes from malloc.
_STACK_BYTES: Final = 16 << 10
_ALIGN: Final = 64

# Runs the workgroups %first to %end - 1 of a vyre_kernel_t; gives a status.
RUN_FUNCTION: Final = f"""
declare ptr @malloc(i64)
declare void @free(ptr)

define internal i32 @run_kernel(ptr %function, ptr %arguments, i64 %scratch_bytes, i64 %first, i64 %end, i32 %x, i32 %y, i32 %z) {{
entry:
  %small = icmp ule i64 %scratch_bytes, {_STACK_BYTES}
  br i1 %small, label %on_stack, label %on_heap
on_stack:
  %stack = alloca i8, i64 %scratch_bytes, align {_ALIGN}
  call void %function(ptr %arguments, ptr %stack, i64 %first, i64 %end, i32 %x, i32 %y, i32 %z)
  ret i32 0
on_heap:
  %with_room = add i64 %scratch_bytes, {_ALIGN}
  %heap = call ptr @malloc(i64 %with_room)
  %no_memory = icmp eq ptr %heap, null
  br i1 %no_memory, label %refused, label %run
refused:
  ret i32 {int(CStatus.MEMORY)}
run:
  %heap_word = ptrtoint ptr %heap to i64
  %heap_up = add i64 %heap_word, {_ALIGN - 1}
  %heap_aligned = and i64 %heap_up, {-_ALIGN}
  %scratch = inttoptr i64 %heap_aligned to ptr
  call void %function(ptr %arguments, ptr %scratch, i64 %first, i64 %end, i32 %x, i32 %y, i32 %z)
  call void @free(ptr %heap)
  ret i32 0
}}
"""

# Runs all in this thread where it is %alone, else 1 workgroup, then 8, then 64, and so on, until the rest would take long; gives the number of the first that
# was not run. Where there is no memory it stops, and who goes on from there is told so again.
STEPS_FUNCTION: Final = f"""
declare i32 @clock_gettime(i32, ptr)

define internal i64 @now_ns() {{
  %time = alloca [2 x i64], align 8
  %status = call i32 @clock_gettime(i32 {CLOCK or 0}, ptr %time)
  %s = load i64, ptr %time
  %ns = load i64 1 of %time
  %s_ns = mul i64 %s, 1000000000
  %now = add i64 %s_ns, %ns
  ret i64 %now
}}

define internal i64 @run_steps(ptr %function, ptr %block, i64 %scratch, i64 %total, i32 %x, i32 %y, i32 %z, i1 %alone) {{
entry:
  %count_first = select i1 %alone, i64 %total, i64 1
  br label %turn
turn:
  %begin = phi i64 [ 0, %entry ], [ %end, %again ]
  %count = phi i64 [ %count_first, %entry ], [ %count_next, %again ]
  %far = add i64 %begin, %count
  %past = icmp ugt i64 %far, %total
  %end = select i1 %past, i64 %total, i64 %far
  %began = call i64 @now_ns()
  %status = call i32 @run_kernel(ptr %function, ptr %block, i64 %scratch, i64 %begin, i64 %end, i32 %x, i32 %y, i32 %z)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %stop, label %ran
stop:
  ret i64 %begin
ran:
  %all = icmp eq i64 %end, %total
  br i1 %all, label %done, label %judge
done:
  ret i64 %total
judge:
  %ended = call i64 @now_ns()
  %elapsed = sub i64 %ended, %began
  %left = sub i64 %total, %end
  %ran_count = sub i64 %end, %begin
  %expected = mul i64 %elapsed, %left
  %allowed = mul i64 %ran_count, {SHARED_NS}
  %dear = icmp sgt i64 %expected, %allowed
  %telling = icmp sge i64 %elapsed, {TELLING_NS}
  %long = and i1 %dear, %telling
  br i1 %long, label %handed, label %again
handed:
  ret i64 %end
again:
  %count_next = mul i64 %count, 8
  br label %turn
}}
"""

# Within a function, behind `TOTAL_LOADS`: the kernel of a planned %number, out of the table %kernels, with the sizes of the grid as it takes them.
KERNEL_LOADS: Final = """
  %x4 = trunc i64 %x to i32
  %y4 = trunc i64 %y to i32
  %z4 = trunc i64 %z to i32
  %index = zext i32 %number to i64
  %kernel = getelementptr %Kernel, ptr %kernels, i64 %index
  %function = load Kernel.function of %kernel
  %scratch = load Kernel.scratch_bytes of %kernel
  %ordered = load Kernel.ordered of %kernel
  %in_order = icmp ne i64 %ordered, 0
  %is_one = icmp eq i64 %total, 1
  %as_one = or i1 %in_order, %is_one
"""
