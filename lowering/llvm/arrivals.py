"""How the workgroups of a grid meet: one word in memory, in which they count their arrivals.

The scheme is that of CUDA's cooperative groups (`grid_group::sync`, cooperative_groups/details/sync.h): of E workgroups the first adds
2^31 - (E - 1) and each other 1, so that all together add 2^31 and turn the word's top bit, whatever it was, and leave its other bits as they
were. A workgroup that has added waits until the top bit differs from the one that it found. So the word needs no reset for the next barrier or the next
launch. It must start as zero and belong to one launch: two that ran at the same time would count each other's workgroups.

The order of memory is a pattern that holds on GPUs and processors: fence, relaxed atomic, relaxed load, fence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from vyre_py.lowering.llvm.text import Writer

__all__ = ["meet"]

_TOP_BIT: Final = 1 << 31


def meet(w: Writer, word: str, leads: str, count: str, scope: str, pause: Callable[[], None]) -> None:
    """Waits for all workgroups. `word` is a typed pointer to the word, `leads` (i1) says that this workgroup is the first, `count` (i32) how many there are;
    `scope` is LLVM's, or nothing for the whole system. `pause` writes what is done each time that it has looked in vain."""
    look, vain, seen = [w.label(name) for name in ("look", "vain", "seen")]
    turns = w.let(f"xor i32 {w.let(f'sub i32 1, {count}')}, {-_TOP_BIT}")  # to add 2^31 is to turn the top bit
    added = w.let(f"select i1 {leads}, i32 {turns}, i32 1")
    w.line(f"fence {scope}acq_rel")
    found = w.let(f"atomicrmw add {word}, i32 {added} {scope}monotonic, align 4")
    w.block(look)
    now = w.let(f"load atomic i32, {word} {scope}monotonic, align 4")
    differs = w.let(f"xor i32 {now}, {found}")
    w.branch(w.let(f"icmp slt i32 {differs}, 0"), seen, vain)
    w.block(vain)
    pause()
    w.jump(look)
    w.block(seen)
    w.line(f"fence {scope}acq_rel")
