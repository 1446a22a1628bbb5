"""Modules of many lines: what LLVM does about them in reasonable time, and the stack that it needs.

Measured on one core, for the host: LLVM's pipeline takes minutes for 40,000 lines where a few linear passes take a second. Its code generation takes time
with the square of the longest straight piece at levels 1 to 3 (0.1 to 1 s for 3,000 lines, 0.6 to 25 s for 10,000), and is close to linear at level 0. It
calls itself for operands of operands: 60,000 lines that depend on one another overflowed a stack of 8 MiB, which ends the process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from vyre_py.lowering.errors import Missing, ToolchainError, Unsupported

__all__ = ["Size", "measure"]

_T = TypeVar("_T")

_LARGE_LINES: Final = 20_000
_STRAIGHT_LINES: Final = 4_000
# Past these the stack of the calling thread, of which nothing is known, is left alone.
_DEEP_LINES: Final = 4_000
_STACK_BYTES: Final = 256 << 20
# What is refused takes some minutes.
_MOST_LINES: Final = 250_000

_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Size:
    """How many lines a module has, in LLVM IR or PTX, metadata left out, and the longest piece of LLVM IR
    without a label."""

    lines: int
    straight: int

    @property
    def large(self) -> bool:
        """Whether only passes that take linear time are for it."""
        return self.lines >= _LARGE_LINES or self.straight >= _STRAIGHT_LINES

    def generation(self, level: int) -> int:
        """The level of code generation, where `level` (0 to 3) is asked for."""
        return 0 if self.straight >= _STRAIGHT_LINES else level

    def require(self, who: str) -> None:
        """Raises Unsupported for a module that would take too long."""
        if self.lines > _MOST_LINES:
            help_ = f"at most {_MOST_LINES:,} are compiled: loops in place of statements written out, or several Programs, make fewer"
            raise Unsupported(who, [Missing(f"a Program that makes {self.lines:,} lines of LLVM IR", help=help_)])

    def run(self, work: Callable[[], _T]) -> _T:
        """What `work` gives or raises, done with as much stack as LLVM needs for such a module. Raises ToolchainError where there is no memory for that."""
        return work() if self.lines < _DEEP_LINES else _with_stack(work)


def measure(text: str) -> Size:
    """The size of a module's text."""
    total = straight = longest = 0
    for line in text.splitlines():
        if line.startswith("!"):
            continue
        total += 1
        straight = straight + 1 if line.startswith(" ") else 0
        longest = max(longest, straight)
    return Size(total, longest)


def _with_stack(work: Callable[[], _T]) -> _T:
    given: list[_T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            given.append(work())
        except BaseException as error:  # noqa: BLE001 - whatever it is, the caller raises it
            raised.append(error)

    thread = threading.Thread(target=run, name="vyre-llvm", daemon=True)
    try:
        with _lock:
            before = threading.stack_size(_STACK_BYTES)  # of all threads that are started from now on
            try:
                thread.start()
            finally:
                threading.stack_size(before)
    except (RuntimeError, MemoryError) as error:
        raise ToolchainError("LLVM", f"a Program of this length is compiled with a stack of {_STACK_BYTES >> 20} MiB, and there is no memory for it") from error
    thread.join()
    if raised:
        raise raised[0]
    return given[0]


def _forked() -> None:
    """In a forked child: a thread of the parent may have held the lock."""
    global _lock  # noqa: PLW0603 - the one lock of the process
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
