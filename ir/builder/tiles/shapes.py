"""The numbers of tiles as Python gives them: extents and axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vyre_py.ir.builder.where import fail
from vyre_py.ir.imports import deferred
from vyre_py.ir.language.describe import PYTHON
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import Memory

if TYPE_CHECKING:
    from vyre_py.ir.builder.tiles import tile_refusals
else:
    (tile_refusals,) = deferred("vyre_py.ir.builder.tiles", "tile_refusals")

__all__ = ["Shape", "axis_of", "extents_along", "extents_of", "instead_of_slices", "stored_along"]

Shape = int | Sequence[int]


def _whole(what: str, value: object) -> int:
    """A whole number. Raises ValidationError V601 for anything else."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        fail("V601", f"{what} is a whole number, got {shown(value)}", "shape=(128, 64), axis=1: what the Program computes is not known when it is written")
    return int(value)


def extents_of(shape: object) -> tuple[int, ...]:
    """The extents of a tile. Raises ValidationError: V601 for what are no whole numbers, V604 for those that no tile has."""
    given = shape if isinstance(shape, (tuple, list)) else (shape,)
    extents = tuple([_whole("an extent of a tile", extent) for extent in given])
    if (fault := tile_refusals.refusal_shape(extents, PYTHON)) is not None:
        fail("V604", *fault)
    return extents


def extents_along(memory: Memory, shape: object) -> tuple[int, ...]:
    """The extent of a tile along each axis of a memory, 0 for one that it has not: None, or in front of a shape that has fewer. Raises ValidationError: V202
    for a shape that has more, and what `extents_of` raises."""
    given = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if len(given) > memory.rank:
        fail("V202", f"{_axes(memory)}, the shape of the tile {len(given)}", "write one extent per axis, and None for an axis that the tile has not")
    found = iter(extents_of([extent for extent in given if extent is not None]))
    return (*[0] * (memory.rank - len(given)), *[0 if extent is None else next(found) for extent in given])


def stored_along(memory: Memory, shape: tuple[int, ...], axes: object) -> tuple[int, ...]:
    """The extent of a tile of this shape along each axis of a memory: its axes are `axes` of the memory, the last ones where that is None. Raises
    ValidationError: V202 for a tile that has more, V201 for an axis that is not there, B108 for others than it has, or in another order."""
    if axes is None:
        if len(shape) > memory.rank:
            fail("V202", f"{_axes(memory)}, the tile {len(shape)}", "make it a tile of as many: x.reshape((128,))")
        found = list(range(memory.rank - len(shape), memory.rank))
    else:
        found = [axis_of(repr(memory.name), memory.rank, axis) for axis in (axes if isinstance(axes, (tuple, list)) else (axes,))]
        if len(found) != len(shape) or found != sorted(set(found)):
            message = f"{len(shape)} ascending axes of {memory.name!r} are needed, one for each of the tile, got {shown(axes)}"
            fail("B108", message, "x.transpose(...) puts the axes of a tile in order")
    return tuple([shape[found.index(axis)] if axis in found else 0 for axis in range(memory.rank)])


def axis_of(what: str, rank: int, axis: object) -> int:
    """An axis of something of so many, from its end where it is negative. Raises ValidationError: V601 for what is no whole number, V201 for an axis that is
    not there."""
    found = _whole("an axis", axis)
    if not -rank <= found < rank:
        fail("V201", f"{what} has no axis {found}", f"it has the axes {', '.join(map(str, range(rank)))}; -1 is the last")
    return found % rank


def _axes(memory: Memory) -> str:
    return f"{memory.name!r} has {memory.rank} {'axis' if memory.rank == 1 else 'axes'}"


def instead_of_slices(memory: Memory, index: Sequence[object]) -> str:
    """What loads and stores the tile that slices of an array mean; where their bounds are not all numbers, an example with as many axes."""
    found = [_offset_and_extent(i) for i in index]
    if None in found or len(found) != memory.rank:
        found = [(axis, "8") for axis in "ijklmnpq"[: memory.rank]]
    at, extents = (", ".join(parts) for parts in zip(*filter(None, found), strict=True))
    shape = f"({extents})" if memory.rank > 1 else extents
    return f"{memory.name}.tile({at}, shape={shape}) loads a tile, and {memory.name}[{at}] = t stores one"


def _offset_and_extent(i: object) -> tuple[str, str] | None:
    """Those of an index, an extent of None, or of a slice, as they are written; None of what has bounds that are computed, none, or less than none."""
    if not isinstance(i, slice):
        return (str(i), "None") if type(i) is int else None
    start = 0 if i.start is None else i.start
    if i.step is not None or type(start) is not int or type(i.stop) is not int or not 0 <= start < i.stop:
        return None
    return str(start), str(i.stop - start)
