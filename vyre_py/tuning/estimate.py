"""A model of devices, in clocks of one multiprocessor or core, which puts the likely fastest of several Programs first.

It counts what one workgroup computes and moves, takes the slowest of arithmetic, memory and workgroup memory as the time of its work (the roofline of
S. Williams, A. Waterman and D. Patterson, CACM 52(4), 2009), adds what it waits for, and multiplies by the turns that the workgroups need, of which the last
is seldom full. Its figures are for comparing Programs that do the same; as times they mean little.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from vyre_py.drivers.cores import core_count
from vyre_py.drivers.device import Device
from vyre_py.drivers.observe.work import Counts
from vyre_py.drivers.registry import KINDS
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import evaluate_dim
from vyre_py.ir.language.program import Program
from vyre_py.lowering.tiles.targets import copies_ahead

__all__ = ["estimate"]

_SLOW: Final = 3.0  # what tiles cost that do not fit into registers
_IN_TURN: Final = 2.0  # what products cost whose factors are not copied ahead, of those whose are: on an H200 1.4 of f32, 1.7 to 2.4 of f64
_HALF_BYTES: Final = 2  # a factor of 16 bits
_FEWEST, _MOST = 2, 4  # strips of factors, unless the loop says how many


@dataclass(frozen=True, slots=True)
class _Unit:
    """A multiprocessor or a core: operations a clock by themselves, and on tensor cores, if it has them, with factors of 16 bits, of which twice as many are
    computed as of factors of 32; bytes a clock from its share of memory, from the cache that all units have, and from workgroup memory; bytes of registers and
    of workgroup memory; clocks that a turn of a loop and a workgroup take beside their work, and that what is copied takes to come; and how many workgroups it
    has at a time at most."""

    operations: float
    products: float | None
    memory: float
    cache: float
    shared: float
    registers_bytes: int
    workgroup_bytes: int
    turn: float
    begin: float
    latency: float
    resident: int


# Kind of device -> its unit. For CUDA the figures are those of sm_90, from NVIDIA's white paper on the H100. The tiles of a CPU lie in its first cache, of
# which half is for what else there is.
_FIGURES: Final[Mapping[str, _Unit]] = {
    "cuda": _Unit(256, 4096, 20, 48, 128, 256 << 10, 227 << 10, 80, 1500, 800, 16),
    "wgpu": _Unit(128, None, 16, 32, 64, 128 << 10, 32 << 10, 200, 1000, 0, 16),
    "cpu": _Unit(32, None, 4, 64, 64, 32 << 10, 1 << 20, 100, 500, 0, 1),
    "reference": _Unit(1, None, 1, 1, 1, 1 << 30, 1 << 30, 100_000, 10_000, 0, 1),
}
_UNITS: Final = {kind: _FIGURES[kind] for kind in KINDS}  # a kind without figures is an error here
_GPU_UNITS: Final = 32  # where a device does not say


def _unit_count(device: Device) -> int:
    if device.kind in ("cpu", "reference"):
        return core_count() if device.kind == "cpu" else 1
    found = getattr(getattr(device, "properties", None), "multiprocessors", None)
    return found if isinstance(found, int) and found > 0 else _GPU_UNITS


def estimate(program: Program, device: Device, sizes: Mapping[str, int]) -> float:
    """How many clocks a launch takes, about; only for comparing Programs of the same work. `sizes` are those of all dims."""
    unit, units, counts = _UNITS[device.kind], _unit_count(device), Counts(program, sizes)
    extents = [max(1, evaluate_dim(extent, sizes)) for extent in program.grid.extents]
    if program.grid.over:
        extents = [-(-extent // max(1, width)) for extent, width in zip(extents, program.workgroup, strict=True)]
    groups = prod(extents)
    work = max(
        counts.operations / unit.operations + _products(counts, unit), counts.moved / unit.cache, counts.shared / unit.shared,
    )  # fmt: skip
    if counts.largest_tile > unit.registers_bytes // 2:
        work *= _SLOW
    if counts.staged and device.target.kind == "ptx" and not copies_ahead(program, device.target.for_program(program)):
        work *= _IN_TURN
    stages = counts.stages or max(_FEWEST, min(_MOST, unit.workgroup_bytes // max(1, counts.staged)))
    resident = max(1, min(
        unit.registers_bytes // max(1, 2 * counts.largest_tile), unit.workgroup_bytes // max(1, stages * counts.staged), unit.resident,
    ))  # fmt: skip
    # What is copied for a turn comes while the turns before it are computed, of all workgroups there.
    late = max(0.0, unit.latency - (stages - 1) * resident * work / max(1.0, counts.turns)) if counts.staged else 0.0
    waits = unit.begin + (unit.turn + late) * counts.turns
    whole = sum(prod(evaluate_dim(extent, sizes) for extent in buffer.shape) * buffer.type.size_bytes for buffer in program.buffers)
    # Workgroups that are there together compute while one of them waits; the last of a unit may be alone.
    full, last = divmod(-(-groups // units), resident)
    computed = sum(rounds * max(together * work, work + waits) for rounds, together in ((full, resident), (1, last)) if together)
    return max(computed, whole / (unit.memory * units))


def _products(counts: Counts, unit: _Unit) -> float:
    """The clocks of all products on tensor cores, or in their place."""
    clocks = 0.0
    for kind, operations in counts.arithmetic.items():
        if kind.factors is not None:
            clocks += operations / (unit.operations if unit.products is None else unit.products * _HALF_BYTES / kind.factors.size_bytes)
    return clocks
