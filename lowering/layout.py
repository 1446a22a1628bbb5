"""The layout of a kernel's arguments: one block of bytes, the same for every target.

Buffers come first (an 8-byte address each), then params in order of declaration, then hidden slots: dim expressions, which the host
evaluates exactly at bind. A slot takes whole words of 4 bytes and begins on a multiple of its elements' size, so that CUDA, which passes
the slots as kernel parameters, and host code, which reads them from the block, agree; WGSL binds the buffers and reads the rest from a
uniform buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Final

from vyre_py.ir.dims import DimConst, DimExpr
from vyre_py.ir.nodes import Const, Memory, MemoryStatement, Param, Space, Value
from vyre_py.ir.program import Program
from vyre_py.ir.types import Type, u32

__all__ = ["POINTER_BYTES", "WORD_BYTES", "Layout", "Slot", "SlotKind", "element_count", "lay_out"]

POINTER_BYTES: Final = 8
WORD_BYTES: Final = 4


class SlotKind(Enum):
    """What a slot carries."""

    BUFFER = "buffer"
    PARAM = "param"
    EXTENT = "extent"


@dataclass(frozen=True, slots=True)
class Slot:
    """One argument. `type` is the element type of a buffer, the type of a param, u32 for an extent; what is narrower than whole words is
    filled up with zeros (a bool is 0 or 1). `memory`, `param` or `expr` says which declaration it stands for."""

    kind: SlotKind
    name: str
    type: Type
    offset_bytes: int
    size_bytes: int
    memory: Memory | None = None
    param: Param | None = None
    expr: DimExpr | None = None

    @property
    def source(self) -> tuple[str, int]:
        """Of a param: the argument that it is taken from, and the byte of it where it begins."""
        part = self.param.part if self.param is not None else None
        return part or (self.name, 0)

    def cut(self, encoded: bytes) -> bytes:
        """Of a param: the bytes that fill the slot, from those of the whole argument."""
        begin = self.source[1]
        return encoded[begin : begin + self.type.size_bytes].ljust(self.size_bytes, b"\0")


@dataclass(frozen=True, slots=True)
class Layout:
    """All slots in order, and the size of the block."""

    slots: tuple[Slot, ...]
    size_bytes: int

    @property
    def buffers(self) -> tuple[Slot, ...]:
        """The buffer slots."""
        return tuple(s for s in self.slots if s.kind is SlotKind.BUFFER)

    @property
    def scalars(self) -> tuple[Slot, ...]:
        """The slots passed by value: params, then extents."""
        return tuple(s for s in self.slots if s.kind is not SlotKind.BUFFER)


def _extents(program: Program) -> Iterator[DimExpr]:
    """Every size that the code may ask for: axes of accessed buffers, then dim expressions used as operands."""
    for statement in program.body:
        if isinstance(statement, MemoryStatement) and statement.memory.space is Space.BUFFER:
            yield from statement.memory.shape
        for atom in statement.args:
            if not isinstance(atom, (Value, Const, Param)):
                yield atom


def element_count(memory: Memory) -> int:
    """How many elements an array of constant shape has (all but buffers, as `check` proves)."""
    return prod([axis.value for axis in memory.shape if isinstance(axis, DimConst)])


def lay_out(program: Program) -> Layout:
    """The layout of a Program's arguments; deterministic."""
    slots: list[Slot] = []
    offset = 0
    for memory in program.buffers:
        slots.append(Slot(SlotKind.BUFFER, memory.name, memory.type, offset, POINTER_BYTES, memory=memory))
        offset += POINTER_BYTES
    for param in program.params:
        offset += -offset % max(param.type.scalar.size_bytes, WORD_BYTES)
        size = -(-param.type.size_bytes // WORD_BYTES) * WORD_BYTES
        slots.append(Slot(SlotKind.PARAM, param.name, param.type, offset, size, param=param))
        offset += size
    for expr in dict.fromkeys(_extents(program)):
        if not isinstance(expr, DimConst):
            slots.append(Slot(SlotKind.EXTENT, "", u32, offset, WORD_BYTES, expr=expr))
            offset += WORD_BYTES
    return Layout(tuple(slots), offset)
