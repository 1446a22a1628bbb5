"""Rows: accesses to neighbouring elements that one access of a vector does.

    let "v.x" = x[k, 0]
    let "v.y" = x[k, 1]      ->  one access of 16 bytes, where x is f32[n, 4] and begins on a multiple of 16
    let "v.z" = x[k, 2]
    let "v.w" = x[k, 3]

Vectors of the language become such accesses once they are taken apart (`ir.passes.scalarise`). Loads may leave lanes out, since the whole group lies
within the memory wherever one element does; stores may not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import (
    Atom,
    Const,
    CopyAsync,
    Else,
    End,
    Let,
    Load,
    Memory,
    MemoryStatement,
    Space,
    Statement,
    Store,
    Value,
)
from vyre_py.ir.language.types import u32
from vyre_py.ir.passes import Optimised
from vyre_py.ir.passes.simplify import same
from vyre_py.lowering.artifact.parts import Aligned, Need

__all__ = ["WIDEST_BYTES", "AdjacentAccess", "Row", "element_rows", "further", "needs_of"]

WIDEST_BYTES: Final = 16
_KINDS: Final = (Load, Store, CopyAsync)  # what rows are made of


@dataclass(frozen=True, slots=True)
class AdjacentAccess:
    """An access beside another one: `elements` past that of statement `leader`, which comes before it in the same block. A multiple of `align_bytes`."""

    leader: int
    elements: int
    align_bytes: int


@dataclass(frozen=True, slots=True)
class Row:
    """Statements that follow one another, one for each of `lanes`, which says which element of a group of `width` neighbours each touches. The
    group lies on a multiple of its size wherever the memory begins on one."""

    lanes: tuple[int, ...]
    width: int

    def size_bytes(self, statement: MemoryStatement) -> int:
        """Bytes of the group, the first of whose statements is given."""
        return self.width * statement.memory.type.size_bytes


def element_rows(optimised: Optimised, spaces: frozenset[Space] = frozenset({Space.BUFFER})) -> dict[int, Row]:
    """The rows of a Program on memory of these spaces, and of its copies, by their first statement. Linear in the statements."""
    found: dict[int, Row] = {}
    body, index = optimised.program.body, 0
    while index < len(body):
        statement = body[index]
        row = None
        if isinstance(statement, _KINDS) and _is_wanted(statement, spaces) and _last(statement) is not None:
            row = _row(statement, list(_beside(optimised, index, statement)))
        if row is not None:
            found[index] = row
        index += len(row.lanes) if row is not None else 1
    return found


def further(optimised: Optimised) -> dict[int, AdjacentAccess]:
    """Loads from workgroup memory whose first index is that of an earlier one in the block plus a number, by statement; all indices of both are inside, so that
    the sum does not wrap, and the address is the earlier one's plus a number, which instructions take. Linear in the statements."""
    found: dict[int, AdjacentAccess] = {}
    sums: dict[int, tuple[int, int]] = {}  # by value: another one, and the number that was added to it
    begun: dict[tuple[Memory, int, tuple[int, ...]], int] = {}
    for index, s in enumerate(optimised.program.body):
        if s.opens or isinstance(s, (Else, End)):
            begun.clear()
        elif isinstance(s, Let) and s.op.name == "add" and isinstance(s.args[0], Value) and isinstance(s.args[1], Const):
            sums[s.bound.id] = s.args[0].id, s.args[1].bits
        elif isinstance(s, Load) and isinstance(s.indices[0], Value) and (within := _all_inside(optimised, index, s)) is not None:
            own, size = s.indices[0].id, s.memory.type.size_bytes
            base, number = sums.get(own, (own, 0))
            leader = begun.get((s.memory, base, within))
            if leader is None or not number:
                begun.setdefault((s.memory, own, within), index)
                continue
            stride = prod([extent.value for extent in s.memory.shape[1:] if isinstance(extent, DimConst)])
            found[leader] = AdjacentAccess(leader, 0, size)
            found[index] = AdjacentAccess(leader, number * stride, size)
    return found


def _all_inside(optimised: Optimised, index: int, s: Load) -> tuple[int, ...] | None:
    """The indices of a load from workgroup memory behind the first one, which are numbers, where all are known to be inside."""
    found = [a.bits for a, e in zip(s.indices[1:], s.memory.shape[1:], strict=True) if isinstance(a, Const) and isinstance(e, DimConst) and a.bits < e.value]
    is_inside = s.memory.space is Space.WORKGROUP and optimised.proven[index] & 1 and len(found) == s.memory.rank - 1
    return tuple(found) if is_inside else None


def needs_of(rows: Mapping[int, Row], body: Sequence[Statement], others: Sequence[Need] = ()) -> tuple[Need, ...]:
    """What the memory of rows has to begin on a multiple of, joined to other needs."""
    most = {need.buffer: need.size_bytes for need in others if isinstance(need, Aligned)}
    for index, row in rows.items():
        statement = body[index]
        assert isinstance(statement, _KINDS)
        if statement.memory.space is not Space.BUFFER:
            continue  # it begins on a multiple of all
        most[statement.memory.name] = max(most.get(statement.memory.name, 1), row.size_bytes(statement))
    return (*[Aligned(name, size) for name, size in most.items()], *[need for need in others if not isinstance(need, Aligned)])


def _is_wanted(statement: Load | Store | CopyAsync, spaces: frozenset[Space]) -> bool:
    return statement.memory.space in spaces or isinstance(statement, CopyAsync)


def _last(statement: Load | Store | CopyAsync) -> int | None:
    """The index along the last axis, where that is a number within it."""
    index, extent = statement.indices[-1], statement.memory.shape[-1]
    if isinstance(index, Const) and index.type is u32 and isinstance(extent, DimConst) and index.bits < extent.value:
        return index.bits
    return None


def _beside(optimised: Optimised, first: int, leader: Load | Store | CopyAsync) -> Iterator[int]:
    """The last indices of the statements from `first` on that do what the first does, elsewhere along the last axis; no more than a row may have."""
    last = 1 << leader.memory.rank - 1
    for index, statement in enumerate(optimised.program.body[first : first + WIDEST_BYTES], first):
        if not isinstance(statement, type(leader)) or statement.memory is not leader.memory or not _same(statement.indices[:-1], leader.indices[:-1]):
            return
        place = _last(statement)
        if place is None or optimised.proven[index] | last != optimised.proven[first] | last:
            return
        yield place


def _same(one: Sequence[Atom], other: Sequence[Atom]) -> bool:
    return all(same(a, b) for a, b in zip(one, other, strict=True))


def _row(leader: Load | Store | CopyAsync, places: Sequence[int]) -> Row | None:
    """The widest row that begins with the first of these places; None without one."""
    extent = leader.memory.shape[-1]
    width = WIDEST_BYTES // leader.memory.type.size_bytes
    while width > 1:
        lanes: list[int] = []
        for place in places:
            if place // width != places[0] // width or place % width in lanes:
                break
            lanes.append(place % width)
        fits = isinstance(extent, DimConst) and extent.value % width == 0
        if fits and len(lanes) > 1 and (isinstance(leader, Load) or len(lanes) == width):
            return _narrowed(lanes, width) if isinstance(leader, Load) else Row(tuple(lanes), width)
        width //= 2
    return None


def _narrowed(lanes: Sequence[int], width: int) -> Row:
    """A row of loads over the least group that has all its lanes."""
    while width > 2 and len({lane // (width // 2) for lane in lanes}) == 1:
        width //= 2
        lanes = [lane % width for lane in lanes]
    return Row(tuple(lanes), width)
