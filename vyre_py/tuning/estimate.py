"""A model of devices, in clocks of one multiprocessor or core, which puts the likely fastest of several Programs first.

It counts what one workgroup computes and moves, takes the slowest of arithmetic, memory and workgroup memory as the time of its work (the roofline of
S. Williams, A. Waterman and D. Patterson, CACM 52(4), 2009), adds what it waits for, and multiplies by the turns that the workgroups need, of which the last
is seldom full. Its figures are for comparing Programs that do the same; as times they mean little.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

from vyre_py.drivers.cores import core_count
from vyre_py.drivers.device import Device
from vyre_py.drivers.registry import KINDS
from vyre_py.ir.language.dims import Dim, DimConst, DimOp, evaluate_dim
from vyre_py.ir.language.nodes import (
    Const,
    End,
    For,
    Let,
    Loop,
    MemoryStatement,
    Space,
    Statement,
    Tile,
    TileMemoryStatement,
)
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type

__all__ = ["estimate"]

_TURNS: Final = 8  # of a loop whose bounds are known when it runs
_WARPGROUP_ROWS: Final = 64  # that read a right factor once, from workgroup memory
_SLOW: Final = 3.0  # what tiles cost that do not fit into registers
_FACTORS: Final = ("mma", "mma_tensor", "mma_sm90")


@dataclass(frozen=True, slots=True)
class _Unit:
    """A multiprocessor or a core: operations a clock by themselves and on tensor cores, bytes a clock from its share of memory, from the cache that all
    units have, and from workgroup memory; bytes of registers and of workgroup memory; clocks that a turn of a loop and a workgroup wait for."""

    operations: float
    products: float
    memory: float
    cache: float
    shared: float
    registers_bytes: int
    workgroup_bytes: int
    turn: float
    begin: float


# Kind of device -> its unit. For CUDA the figures are those of sm_90, from NVIDIA's white paper on the H100. The tiles of a CPU lie in its first cache, of
# which half is for what else there is.
_FIGURES: Final[Mapping[str, _Unit]] = {
    "cuda": _Unit(256, 4096, 20, 48, 128, 256 << 10, 227 << 10, 80, 1500),
    "wgpu": _Unit(128, 128, 16, 32, 64, 128 << 10, 32 << 10, 200, 1000),
    "cpu": _Unit(32, 32, 4, 64, 64, 32 << 10, 1 << 20, 100, 500),
    "reference": _Unit(1, 1, 1, 1, 1, 1 << 30, 1 << 30, 100_000, 10_000),
}
_UNITS: Final = {kind: _FIGURES[kind] for kind in KINDS}  # a kind without figures is an error here
_GPU_UNITS: Final = 32  # where a device does not say


class _Counts:
    """What one workgroup does."""

    def __init__(self, program: Program, sizes: Mapping[str, int]) -> None:
        self.operations = self.products = self.moved = self.shared = self.turns = 0.0
        self.largest_tile = self.staged = 0
        self._sizes = sizes
        self._invocations = max(1, prod(program.workgroup))
        times = [1.0]
        for statement in program.body:
            if isinstance(statement, End):
                times.pop()
            elif statement.opens:
                again = self._turns(statement)
                times.append(times[-1] * again)
                self.turns += times[-1] if again > 1 else 0
            else:
                self._count(statement, times[-1])

    def _turns(self, statement: Statement) -> float:
        if isinstance(statement, For):
            begin, end, step = [self._number(bound) for bound in statement.args]
            return max(1.0, -((begin - end) // step)) if begin is not None and end is not None and step else float(_TURNS)
        return float(_TURNS) if isinstance(statement, Loop) else 1.0

    def _number(self, bound: object) -> int | None:
        if isinstance(bound, Const) and bound.type.is_integer:
            return bound.bits
        return evaluate_dim(bound, self._sizes) if isinstance(bound, (Dim, DimConst, DimOp)) else None

    def _elements(self, type_: Type) -> int:
        return prod(type_.shape) if type_.is_tile else self._invocations

    def _count(self, statement: Statement, times: float) -> None:
        types = [t for atom in (statement.result, *statement.args) if (t := getattr(atom, "type", None)) is not None]
        tiles = [t for t in types if t.is_tile]
        elements = max([self._elements(t) for t in types], default=self._invocations)
        self.largest_tile = max([self.largest_tile, *[prod(t.shape) * t.scalar.size_bytes for t in tiles]])
        if isinstance(statement, Tile) and statement.op.name in _FACTORS:
            left, right, total = tiles[1:4]
            flops = 2.0 * prod(total.shape) * left.shape[1]
            self.products += times * flops * (statement.op.name != "mma")
            self.operations += times * flops * (statement.op.name == "mma")
            factors = [prod(t.shape) * t.scalar.size_bytes for t in (left, right)]
            self.staged += sum(factors)
            self.shared += times * (factors[0] + factors[1] * max(1.0, left.shape[0] / _WARPGROUP_ROWS))
        elif isinstance(statement, MemoryStatement) and statement.memory.space is Space.BUFFER:
            count = max([prod(t.shape) for t in tiles], default=1) if isinstance(statement, TileMemoryStatement) else self._invocations
            self.moved += times * count * statement.memory.type.size_bytes
        elif isinstance(statement, (Let, Tile)):
            self.operations += times * elements


def _unit_count(device: Device) -> int:
    if device.kind in ("cpu", "reference"):
        return core_count() if device.kind == "cpu" else 1
    found = getattr(getattr(device, "properties", None), "multiprocessors", None)
    return found if isinstance(found, int) and found > 0 else _GPU_UNITS


def estimate(program: Program, device: Device, sizes: Mapping[str, int]) -> float:
    """How many clocks a launch takes, about; only for comparing Programs of the same work. `sizes` are those of all dims."""
    unit, units, counts = _UNITS[device.kind], _unit_count(device), _Counts(program, sizes)
    extents = [max(1, evaluate_dim(extent, sizes)) for extent in program.grid.extents]
    if program.grid.over:
        extents = [-(-extent // max(1, width)) for extent, width in zip(extents, program.workgroup, strict=True)]
    groups = prod(extents)
    work = max(
        counts.operations / unit.operations + counts.products / unit.products, counts.moved / unit.cache, counts.shared / unit.shared,
    )  # fmt: skip
    if counts.largest_tile > unit.registers_bytes // 2:
        work *= _SLOW
    resident = min(
        unit.registers_bytes // max(1, 2 * counts.largest_tile), unit.workgroup_bytes // max(1, 3 * counts.staged), 16,
    )  # fmt: skip
    waits = unit.begin + unit.turn * counts.turns
    whole = sum(prod(evaluate_dim(extent, sizes) for extent in buffer.shape) * buffer.type.size_bytes for buffer in program.buffers)
    return max(-(-groups // units) * work + -(-groups // (units * max(1, resident))) * waits, whole / (unit.memory * units))
