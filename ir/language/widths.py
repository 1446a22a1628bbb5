"""Widths: which sizes of a Program may be 2^32 and more.

A buffer that is indexed with i64 or u64 anywhere is wide: it may have up to `SIZE_LIMIT` elements. One that is indexed with i32 and u32
only is narrow: it has fewer than 2^32 elements, so that 32 bits are enough for its checks and offsets. A buffer that is never accessed may have any
size. One whose constant axes alone make 2^32 elements is wide, whatever its indices.

A dim may be 2^32 and more where it is a size of a wide buffer, or is taken whole: a cast of a size to i64 or u64 gives the size itself. Elsewhere a
size is a u32, and binding fails for a larger one. Binding checks all this (`drivers.binding`), so that analyses and emitters may rely on it.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import WORD_LIMIT, Dim, DimConst, DimExpr, DimOp, dims_of
from vyre_py.ir.language.nodes import Let, Memory, MemoryStatement, Statement
from vyre_py.ir.language.types import Type, i32, i64, u32, u64

if TYPE_CHECKING:
    from vyre_py.ir.language.program import Program

__all__ = ["INDEX_TYPES", "WIDE_TYPES", "Widths", "least_count", "whole_size", "widths"]

INDEX_TYPES: Final = (i32, u32, i64, u64)  # each index of an access has its own
WIDE_TYPES: Final[frozenset[Type]] = frozenset({i64, u64})


@dataclass(frozen=True, slots=True)
class Widths:
    """The buffers of a Program that are not narrow, and the dims that may be 2^32 and more."""

    buffers: frozenset[Memory]
    dims: frozenset[Dim]

    @property
    def names(self) -> frozenset[str]:
        """The names of all of them; dims and memories share one space of names."""
        return frozenset([m.name for m in self.buffers] + [d.name for d in self.dims])

    def may_exceed(self, memory: Memory, axis: DimExpr) -> bool:
        """Whether an axis of a memory may have 2^32 elements and more."""
        if memory not in self.buffers:
            return False
        if isinstance(axis, DimConst):
            return axis.value >= WORD_LIMIT
        return isinstance(axis, DimOp) or axis in self.dims


def whole_size(statement: Statement) -> DimExpr | None:
    """The size that a statement takes whole, as a cast to i64 or u64 does; None for all others."""
    if isinstance(statement, Let) and statement.op.name == "cast" and statement.bound.type in WIDE_TYPES:
        return next((atom for atom in statement.args if isinstance(atom, (Dim, DimConst, DimOp))), None)
    return None


def least_count(memory: Memory) -> int:
    """The elements that the constant axes alone make."""
    return prod([axis.value for axis in memory.shape if isinstance(axis, DimConst)])


def widths(program: Program) -> Widths:
    """The widths of a Program of sound form."""
    accessed: dict[Memory, bool] = {}  # whether any index has 64 bits
    whole: list[DimExpr] = []
    words: set[Dim] = set()  # dims that binding keeps below 2^32 for a reason of their own
    for statement in program.body:
        if isinstance(statement, MemoryStatement):
            wide = any(index.type in WIDE_TYPES for index in statement.indices)
            for memory in (statement.memory, *statement.also_reads):
                accessed[memory] = wide or accessed.get(memory, False)
        if (size := whole_size(statement)) is not None:
            whole.append(size)
        else:
            words.update(atom for atom in statement.args if isinstance(atom, Dim))
    buffers = frozenset(m for m in program.buffers if accessed.get(m, True) or least_count(m) >= WORD_LIMIT)
    for memory in program.buffers:
        if memory in buffers:
            whole += memory.shape
        else:
            words.update(axis for axis in memory.shape if isinstance(axis, Dim))
    return Widths(buffers, frozenset(dim for size in whole for dim in dims_of(size)) - words)
