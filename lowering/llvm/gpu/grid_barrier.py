"""The barrier of a grid on NVIDIA GPUs: one invocation of each workgroup meets those of the others (`lowering.llvm.arrivals`).

The order of memory is the pattern of the PTX memory model, all at the scope of the device; the workgroup barriers around it order the accesses of the
other invocations by its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from vyre_py.lowering.llvm.arrivals import meet
from vyre_py.lowering.llvm.text import Writer

__all__ = ["DEVICE", "meet_grid", "registers"]

# The scope of what workgroups say to each other, in LLVM's words.
DEVICE: Final = 'syncscope("device")'


def registers(w: Writer, name: str, combine: str) -> str:
    """Three special registers of a name, joined by an instruction."""
    x, y, z = [w.call("i32", f"llvm.nvvm.read.ptx.sreg.{name}.{axis}") for axis in "xyz"]
    return w.let(f"{combine} i32 {w.let(f'{combine} i32 {x}, {y}')}, {z}")


def meet_grid(w: Writer, arrivals: str, local_index: str, pause: Callable[[], None]) -> None:
    """Has invocation 0 of the workgroup (`local_index`, i32) wait for all workgroups; `arrivals` points to the word. A workgroup barrier has to
    stand before it and behind it. `pause` writes what is done each time that it has looked in vain."""
    arrive, met = w.label("arrive"), w.label("met")
    w.branch(w.let(f"icmp eq i32 {local_index}, 0"), arrive, met)
    w.block(arrive)
    leads = w.let(f"icmp eq i32 {registers(w, 'ctaid', 'or')}, 0")
    meet(w, f"ptr addrspace(1) {arrivals}", leads, registers(w, "nctaid", "mul"), f"{DEVICE} ", pause)
    w.block(met)
