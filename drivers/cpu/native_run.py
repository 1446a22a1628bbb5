"""Native code that runs workgroups of a kernel in the calling thread, with scratch memory around them."""

from __future__ import annotations

from typing import Final

from vyre_py.lowering.statuses import CStatus

__all__ = ["RUN_FUNCTION"]

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
