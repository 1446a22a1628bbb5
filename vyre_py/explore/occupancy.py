"""How many workgroups of a kernel a multiprocessor of an NVIDIA GPU holds at once, and what limits them.

The figures are those of the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; registers are given to warps in units, and each
workgroup takes 1 KiB of workgroup memory more from sm_80 on. Nothing here looks at a GPU: the driver's own answer may differ by how it divides memory
between the cache and workgroups.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final, TypedDict

from vyre_py.lowering.llvm.gpu.architectures import generation

__all__ = ["Occupancy", "occupancy_of"]

WARP: Final = 32
_REGISTERS: Final = 1 << 16
_REGISTER_UNIT: Final = 256  # of a warp
_PARTS: Final = 4  # of a multiprocessor, each with its own warps and a fourth of the registers
# Compute capability -> warps, workgroups and KiB of workgroup memory of a multiprocessor.
_MULTIPROCESSORS: Final[Mapping[int, tuple[int, int, int]]] = {
    70: (64, 32, 96), 72: (64, 32, 96), 75: (32, 16, 64), 80: (64, 32, 164), 86: (48, 16, 100), 87: (48, 16, 164), 89: (48, 24, 100),
    90: (64, 32, 228), 100: (64, 32, 228), 103: (64, 32, 228), 110: (48, 24, 228), 120: (48, 24, 100), 121: (48, 24, 100),
}  # fmt: skip


class Occupancy(TypedDict):
    """`workgroups` that run at once on a multiprocessor, `warps` in them of `most_warps`, and by what each is limited: how many `by` each."""

    workgroups: int
    warps: int
    most_warps: int
    by: dict[str, int]
    limited: list[str]


def occupancy_of(arch: str, workgroup: tuple[int, int, int], registers: int, workgroup_bytes: int) -> Occupancy | None:
    """The occupancy of a kernel with so many registers a thread and bytes of workgroup memory; None for an architecture without figures."""
    figures = _MULTIPROCESSORS.get(generation(arch))
    warps = -(-prod(workgroup) // WARP)
    if figures is None or not warps:
        return None
    most_warps, most_workgroups, kib = figures
    of_warp = -(-max(registers, 1) * WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    reserved = 1024 if generation(arch) >= 80 else 0
    by = {
        "warps": most_warps // warps,
        "workgroups": most_workgroups,
        "registers": _REGISTERS // _PARTS // of_warp * _PARTS // warps,
    }
    if workgroup_bytes:
        by["workgroup memory"] = (kib << 10) // (workgroup_bytes + reserved)
    count = min(by.values())
    return {
        "workgroups": count, "warps": count * warps, "most_warps": most_warps, "by": by, "limited": [name for name, most in by.items() if most == count],
    }  # fmt: skip
