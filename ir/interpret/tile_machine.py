"""Programs of tiles: a lane is a workgroup, and a tile an array with an axis of lanes and those of the tile.

An array may have one lane that stands for all, as elsewhere in the interpreter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vyre_py.ir.functions.called import signature_of
from vyre_py.ir.interpret.lanes import Lanes
from vyre_py.ir.interpret.machine import Machine
from vyre_py.ir.language.nodes import Let, Tile, TileAtomicAdd, TileLoad, TileMemoryStatement, TileStore
from vyre_py.ir.language.ops import ATOMICS
from vyre_py.ir.language.types import Array
from vyre_py.ir.language.walks import Handlers

__all__ = ["TileMachine"]

_NEVER_INSIDE = 1 << 62  # an index of no memory, to which an extent may be added


def _beside(x: Array, shape: tuple[int, ...]) -> Array:
    """A scalar of each lane, beside tiles of a shape; a tile as it is."""
    return x if x.ndim > 1 else x.reshape(-1, *[1] * len(shape))


class TileMachine(Machine):
    """Runs a Program of tiles for a batch of workgroups."""

    def _let(self, index: int, s: Let) -> int:
        shape = s.bound.type.shape
        if not shape:
            return super()._let(index, s)
        operands = [_beside(a, shape) for a in self._atoms(s.args)]
        lanes = max([len(a) for a in operands])
        flat = tuple([np.broadcast_to(a, (lanes, *shape)).reshape(-1) for a in operands])
        if s.op.evaluate is not None:
            made = s.op.evaluate(s.bound.type.scalar, *flat)
        else:
            signature = signature_of(s)
            assert signature is not None  # Arguments refuses what is not expanded
            made = self._called(signature, flat, Lanes((1, 1, 1), (len(flat[0]), 1, 1), 0, len(flat[0])))
        self._bind(s, made.reshape(lanes, *shape))
        return index + 1

    def _places(self, s: TileMemoryStatement) -> tuple[Array, ...]:
        """The indices of the elements, of which each axis of the memory has an array that goes along its own axis of the tile."""
        made: list[Array] = []
        axes = len(s.shape)
        for offset, extent in zip(self._atoms(s.indices), s.extents, strict=True):
            if offset.dtype.kind == "u":
                given = np.minimum(offset, offset.dtype.type(min(_NEVER_INSIDE, np.iinfo(offset.dtype).max)))
            else:
                given = offset
            here = given.astype(np.int64).reshape(-1, *[1] * axes)
            if extent:
                axis = sum(1 for earlier in s.extents[: len(made)] if earlier)
                here = here + np.arange(extent).reshape([-1 if k == axis else 1 for k in range(axes)])
            made.append(here)
        return tuple(made)

    def _tile_load(self, index: int, s: TileLoad) -> int:
        found = self.banks[s.memory].load(self._places(s))
        self._bind(s, np.broadcast_to(found, (len(found), *s.shape)))
        return index + 1

    def _elements(self, s: TileMemoryStatement) -> tuple[tuple[Array, ...], Array]:
        """The elements of a tile in memory, one after the other, of one workgroup after the other: indices, and which of them are of workgroups that are on."""
        shape = (self.lanes.count, *s.shape)
        indices = tuple([np.broadcast_to(a, shape).reshape(-1) for a in self._places(s)])
        return indices, np.broadcast_to(_beside(self.active, s.shape), shape).reshape(-1)

    def _written(self, s: TileStore | TileAtomicAdd) -> Array:
        """What is written to those elements."""
        return np.broadcast_to(self._atom(s.value), (self.lanes.count, *s.shape)).reshape(-1)

    def _tile_store(self, index: int, s: TileStore) -> int:
        indices, active = self._elements(s)
        self.banks[s.memory].store(indices, self._written(s), active)
        return index + 1

    def _tile_add(self, index: int, s: TileAtomicAdd) -> int:
        indices, active = self._elements(s)
        self.banks[s.memory].atomic(ATOMICS["add"], indices, (self._written(s),), active, wants_old=False)
        return index + 1

    def _tile(self, index: int, s: Tile) -> int:
        self._bind(s, s.op.evaluate(s.bound.type, s.numbers, *self._atoms(s.values)))
        return index + 1


TileMachine.steps = Handlers[Any]("the interpreter", {
    **Machine.steps, Let: TileMachine._let,
    TileLoad: TileMachine._tile_load, TileStore: TileMachine._tile_store, TileAtomicAdd: TileMachine._tile_add, Tile: TileMachine._tile,
})  # fmt: skip
