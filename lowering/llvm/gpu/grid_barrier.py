"""The barrier of a grid on NVIDIA GPUs: one word in device memory, in which the workgroups of a launch count their arrivals.

The scheme is that of CUDA's cooperative groups (`grid_group::sync`, cooperative_groups/details/sync.h): of E workgroups the first adds
2^31 - (E - 1) and each other 1, so that all together add 2^31 and turn the word's top bit, whatever it was, and leave its other bits as they
were. A workgroup that has added waits until the top bit differs from the one that it found. So the word needs no reset for the next barrier or the next
launch. It must start as zero and belong to one launch: two that ran at the same time would count each other's workgroups.

The order of memory is the pattern of the PTX memory model: fence, relaxed atomic, relaxed load, fence, all at the scope of the device, by one
invocation; the workgroup barriers around them order the accesses of the others by its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from vyre_py.lowering.llvm.text import Writer

__all__ = ["DEVICE", "meet_grid", "registers"]

# The scope of what workgroups say to each other, in LLVM's words.
DEVICE: Final = 'syncscope("device")'
_TOP_BIT: Final = 1 << 31


def registers(w: Writer, name: str, combine: str) -> str:
    """Three special registers of a name, joined by an instruction."""
    x, y, z = [w.call("i32", f"llvm.nvvm.read.ptx.sreg.{name}.{axis}") for axis in "xyz"]
    return w.let(f"{combine} i32 {w.let(f'{combine} i32 {x}, {y}')}, {z}")


def meet_grid(w: Writer, arrivals: str, local_index: str, pause: Callable[[], None]) -> None:
    """Has invocation 0 of the workgroup (`local_index`, i32) wait for all workgroups; `arrivals` points to the word. A workgroup barrier has to
    stand before it and behind it. `pause` writes what is done each time that it has looked in vain."""
    arrive, look, vain, seen, met = [w.label(name) for name in ("arrive", "look", "vain", "seen", "met")]
    w.branch(w.let(f"icmp eq i32 {local_index}, 0"), arrive, met)
    w.block(arrive)
    leads = w.let(f"icmp eq i32 {registers(w, 'ctaid', 'or')}, 0")
    others = w.let(f"sub i32 1, {registers(w, 'nctaid', 'mul')}")
    turns = w.let(f"xor i32 {others}, {-_TOP_BIT}")  # to add 2^31 is to turn the top bit
    added = w.let(f"select i1 {leads}, i32 {turns}, i32 1")
    w.line(f"fence {DEVICE} acq_rel")
    found = w.let(f"atomicrmw add ptr addrspace(1) {arrivals}, i32 {added} {DEVICE} monotonic, align 4")
    w.block(look)
    now = w.let(f"load atomic i32, ptr addrspace(1) {arrivals} {DEVICE} monotonic, align 4")
    differs = w.let(f"xor i32 {now}, {found}")
    w.branch(w.let(f"icmp slt i32 {differs}, 0"), seen, vain)
    w.block(vain)
    pause()
    w.jump(look)
    w.block(seen)
    w.line(f"fence {DEVICE} acq_rel")
    w.block(met)
