"""Bounds: decides, for each access and axis, whether the index is known to lie inside, so that no check is needed."""

from __future__ import annotations

from vyre_py.ir.language.nodes import MemoryStatement
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes.bounds.ranges import Ranges

__all__ = ["axis_checks", "bounds", "inside"]


def bounds(program: Program) -> tuple[int, ...]:
    """Per statement a bit for each axis whose index is known to lie inside whenever the statement runs; 0 for other statements.

    Holds for this very Program: any later pass makes it void.
    """
    return inside(program, Ranges(program))


def inside(program: Program, ranges: Ranges) -> tuple[int, ...]:
    """The same by an analysis that has not begun its walk."""
    proven = [0] * len(program.body)
    for index, statement in enumerate(program.body):
        if isinstance(statement, MemoryStatement):
            pairs = zip(statement.indices, statement.memory.shape, strict=True)
            proven[index] = sum([1 << axis for axis, (at, extent) in enumerate(pairs) if ranges.inside(at, extent)])
        ranges.visit(index)
    return tuple(proven)


def axis_checks(program: Program) -> int:
    """How many axes all accesses have together: the number of checks when nothing is proven."""
    return sum([s.memory.rank for s in program.body if isinstance(s, MemoryStatement)])
