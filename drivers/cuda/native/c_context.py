"""Native code of calls from C: the context is made current where the calling thread has another, or none."""

from __future__ import annotations

from typing import Final

__all__ = ["in_context"]

# Statuses with which the driver says that another context is current in the calling thread, or none: CUDA_ERROR_INVALID_CONTEXT and _INVALID_HANDLE.
_ELSEWHERE: Final = (201, 400)


def in_context(function: str, arguments: str) -> str:
    """LLVM IR of `@in_context`, which calls a function of the same text that gives a status of the driver, and again with the context pushed where that is what
    was amiss. It takes the context, `cuCtxPushCurrent`, `cuCtxPopCurrent`, and the function's own arguments, which are `arguments` with their types."""
    return f"""
define internal i32 @in_context(ptr %context, ptr %push, ptr %pop, {arguments}) {{
entry:
  %popped = alloca ptr, align 8
  %first = call i32 @{function}({arguments})
  switch i32 %first, label %done [ i32 {_ELSEWHERE[0]}, label %enter
    i32 {_ELSEWHERE[1]}, label %enter ]
done:
  ret i32 %first
enter:
  %pushed = call i32 %push(ptr %context)
  %failed = icmp ne i32 %pushed, 0
  br i1 %failed, label %refused, label %again
refused:
  ret i32 %pushed
again:
  %second = call i32 @{function}({arguments})
  %unheard = call i32 %pop(ptr %popped)
  ret i32 %second
}}
"""
