"""Native code around calls of the driver: the words by which a launch takes its argument block, and the context made current for calls from C."""

from __future__ import annotations

from typing import Final

__all__ = ["EXTRA_WORDS", "extra_words", "in_context"]

# Statuses with which the driver says that another context is current in the calling thread, or none: CUDA_ERROR_INVALID_CONTEXT and _INVALID_HANDLE.
_ELSEWHERE: Final = (201, 400)


# LLVM IR that makes five words, whose address is `%extra_word`: the block's address goes to `%e1`, its bytes to `%size`.
EXTRA_WORDS: Final = """
  %extra = alloca [5 x i64], align 8
  %size = alloca i64, align 8
  ; CU_LAUNCH_PARAM_BUFFER_POINTER, its value, CU_LAUNCH_PARAM_BUFFER_SIZE, its value, CU_LAUNCH_PARAM_END
  %e1 = getelementptr [5 x i64], ptr %extra, i64 0, i64 1
  %e2 = getelementptr [5 x i64], ptr %extra, i64 0, i64 2
  %e3 = getelementptr [5 x i64], ptr %extra, i64 0, i64 3
  %e4 = getelementptr [5 x i64], ptr %extra, i64 0, i64 4
  store i64 1, ptr %extra
  store i64 2, ptr %e2
  store ptr %size, ptr %e3
  store i64 0, ptr %e4
  %extra_word = ptrtoint ptr %extra to i64
"""


def extra_words(block: str) -> str:
    """The same for a block of `%bytes` bytes, an operand with its type."""
    return f"{EXTRA_WORDS}  store {block}, ptr %e1\n  store i64 %bytes, ptr %size\n"


def in_context(function: str, arguments: str, owner: str) -> str:
    """LLVM IR, in shorthand, of `@in_context`, which calls a function of the same text that gives a status of the driver, and again with the context pushed
    where that is what was amiss. It takes the address of a struct `owner`, which has the `context` and, as `push` and `pop`, `cuCtxPushCurrent` and
    `cuCtxPopCurrent`; and the function's own arguments, which are `arguments` with their types."""
    return f"""
define internal i32 @in_context(ptr %owner, {arguments}) {{
entry:
  %popped = alloca ptr, align 8
  %first = call i32 @{function}({arguments})
  switch i32 %first, label %done [ i32 {_ELSEWHERE[0]}, label %enter
    i32 {_ELSEWHERE[1]}, label %enter ]
done:
  ret i32 %first
enter:
  %context = load {owner}.context of %owner
  %push = load {owner}.push of %owner
  %pop = load {owner}.pop of %owner
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
