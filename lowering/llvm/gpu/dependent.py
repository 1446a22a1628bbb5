"""Programmatic dependent launch on NVIDIA GPUs from sm_90 on: a kernel that may start while its predecessor in the stream still runs.

A kernel allows its successor to start as soon as it has started itself. Before it touches memory that an earlier kernel may have written, it waits until
its predecessor has ended and its writes are visible. All kernels of a chain do both. So each still begins its work after the predecessor has ended; the
time to start a kernel is saved. In a launch without the attribute both instructions do nothing.
"""

from __future__ import annotations

from typing import Final

from vyre_py.lowering.llvm.text import Writer

__all__ = ["SINCE", "let_next_begin", "wait_for_earlier"]

# The first architecture that has it.
SINCE: Final = 90


def _control(w: Writer, action: str) -> None:
    # LLVM's own intrinsics for these are said to touch no memory; loads must not move past the wait.
    w.line(f'call void asm sideeffect "griddepcontrol.{action};", "~{{memory}}"()')


def let_next_begin(w: Writer) -> None:
    """Lets the next kernel of the stream begin, once every workgroup of this one has got here or ended."""
    _control(w, "launch_dependents")


def wait_for_earlier(w: Writer) -> None:
    """Waits until the kernel before has ended and what it wrote can be read."""
    _control(w, "wait")
