"""The grid of a Program that gives none, and where one has to be given.

The default is one invocation for each element of the first written buffer, its last axis on x. It applies if the stores agree with it: every
store and every atomic on a buffer goes to the invocation's own element of a buffer of that shape. The own element has the index `global_id.x`
on the last axis, `global_id.y` on the one before and `global_id.z` on the first of three, each as it is or cast to another type of index.
Conditions and loops around a store do not matter, nor do accesses of workgroup memory and private arrays. An index that is shifted, clamped,
computed, loaded, constant or read from a variable is not the own element. Then the number of invocations is unknown: a Program without `over`
or `grid` has `NO_GRID`, which `check` refuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from vyre_py.ir.language.dims import DimConst, DimExpr, Grid
from vyre_py.ir.language.nodes import (
    Atom,
    Atomic,
    End,
    Let,
    Memory,
    MemoryStatement,
    Return,
    Space,
    Statement,
    Store,
    Value,
)
from vyre_py.ir.language.widths import INDEX_TYPES

if TYPE_CHECKING:
    from vyre_py.ir.language.program import Program

__all__ = ["MAX_DEFAULT_RANK", "NO_GRID", "ONE_WORKGROUP", "default_grid", "first_stray", "first_written", "likely_extents", "writes_whole"]

MAX_DEFAULT_RANK: Final = 3
_ZERO, _ONE = DimConst(0), DimConst(1)
# What a Program has that must give its grid and does not: no workgroup at all, so that nothing runs by mistake.
NO_GRID: Final = Grid(False, (_ZERO, _ZERO, _ZERO))
# The grid of a Program that writes nothing.
ONE_WORKGROUP: Final = Grid(False, (_ONE, _ONE, _ONE))

_IDS: Final = {"global_id.x": 0, "global_id.y": 1, "global_id.z": 2}
_CASTS: Final = ("cast", "bitcast")
_SEEN: Final = frozenset((*_IDS, *_CASTS))


def first_written(memories: Iterable[Memory]) -> Memory | None:
    """The first buffer that is written, if any."""
    return next((m for m in memories if m.space is Space.BUFFER and m.access.writes), None)


def default_grid(memories: Iterable[Memory], body: Iterable[Statement]) -> Grid:
    """The grid when none is given: see the module. Takes time linear in the body."""
    written = first_written(memories)
    if written is None:
        return ONE_WORKGROUP
    if written.rank > MAX_DEFAULT_RANK or first_stray(written, body) is not None:
        return NO_GRID
    x, y, z = [*reversed(written.shape), _ONE, _ONE, _ONE][:3]
    return Grid(True, (x, y, z))


def _is_buffer(memory: object) -> bool:
    # Asked before the form of a Program is proven, too.
    return isinstance(memory, Memory) and memory.space is Space.BUFFER


class _Ids:
    """Which values are a component of `global_id`, in a walk over a body."""

    def __init__(self) -> None:
        self._axes: dict[int, int] = {}

    def see(self, let: Let) -> None:
        """Takes note of what a statement binds."""
        if let.result is None:
            return
        axis = _IDS.get(let.op.name)
        if axis is None and let.op.name in _CASTS and let.args and let.result.type in INDEX_TYPES and let.args[0].type in INDEX_TYPES:
            axis = self.axis(let.args[0])
        if axis is not None:
            self._axes[let.result.id] = axis

    def axis(self, atom: Atom) -> int | None:
        """The component that an index is, if any."""
        return self._axes.get(atom.id) if isinstance(atom, Value) else None


def first_stray(written: Memory, body: Iterable[Statement]) -> int | None:
    """The index of the first store or atomic on a buffer that goes to another element than the invocation's own of a buffer shaped as `written`."""
    ids = _Ids()
    for index, statement in enumerate(body):
        if isinstance(statement, Let):
            if statement.op.name in _SEEN:
                ids.see(statement)
        elif isinstance(statement, (Store, Atomic)) and _is_buffer(statement.memory):
            axes = range(statement.memory.rank - 1, -1, -1)
            own = [ids.axis(atom) for atom in statement.indices] == list(axes)
            if not own or (statement.memory is not written and statement.memory.shape != written.shape):
                return index
    return None


def likely_extents(body: Sequence[Statement]) -> tuple[DimExpr, ...]:
    """The extents that a Program without a grid most likely means: for each component of `global_id` that is an index of a buffer, that axis of the
    first such buffer. Empty where x is not among them."""
    ids, found = _Ids(), dict[int, DimExpr]()
    for statement in body:
        if isinstance(statement, Let):
            ids.see(statement)
        elif isinstance(statement, MemoryStatement) and statement.memory.space is Space.BUFFER:
            for extent, atom in zip(statement.memory.shape, statement.indices, strict=False):
                axis = ids.axis(atom)
                if axis is not None:
                    found.setdefault(axis, extent)
    return tuple([found.get(axis, _ONE) for axis in range(max(found) + 1)]) if 0 in found else ()


def writes_whole(program: Program, memory: Memory) -> bool:
    """Whether every element of a buffer is stored to, whatever the arguments: by one statement outside all blocks, at the invocation's own element of a grid
    that has the buffer's extents. False where that is not seen. Takes time linear in the body."""
    if not program.grid.over or any(isinstance(statement, Return) for statement in program.body):
        return False
    ids, depth = _Ids(), 0
    for statement in program.body:
        depth += statement.opens - isinstance(statement, End)
        if isinstance(statement, Let):
            ids.see(statement)
        elif isinstance(statement, Store) and statement.memory is memory and not depth:
            axes = [ids.axis(atom) for atom in statement.indices]
            own = {axis: extent for axis, extent in zip(axes, memory.shape, strict=True) if axis is not None}
            if len(own) == memory.rank and tuple([own.get(axis, _ONE) for axis in range(3)]) == program.grid.extents:
                return True
    return False
