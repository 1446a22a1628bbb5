"""The arrays of a Program of tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vyre_py.ir.builder.expressions import Expr, Index, Operand
from vyre_py.ir.builder.handles import ArrayHandle, NamedArray
from vyre_py.ir.builder.where import fail, missing
from vyre_py.ir.language.errors import shown
from vyre_py.ir.public import public

if TYPE_CHECKING:
    from vyre_py.ir.builder.tiles.tile_emitter import TileEmitter

__all__ = ["TileArrayHandle"]


@public
class TileArrayHandle(NamedArray):
    """An array of a Program of tiles: `a.tile(i, j, shape=(128, 64))` loads a tile, `a[i, j] = x` stores one, or an element where x is a scalar; `a[i, j]`
    loads an element, the same for the whole workgroup. Past the ends, along each axis by itself, a load is zero and a store is dropped.

    Offsets are integers, one for each axis. A tile that has fewer axes than the array has its last ones, and lies at one index of the others.
    """

    __slots__ = ()

    builder: TileEmitter

    def tile(self, *offsets: Operand, shape: int | Sequence[int | None]) -> Expr:
        """The tile of this shape from the offsets on: an extent for each axis of the array, None for one that the tile has not. `a.tile(i, g, j,
        shape=(64, None, 32))` is a tile of (64, 32) elements of the array's type. A shape that has fewer extents is about the last axes.

        Raises ValidationError: V202 for another number of offsets, V601 and V604 for a shape that no tile has, B108 for an array that is only written.
        """
        return self.builder.emit_tile_load(self.memory, offsets, shape)

    def __setitem__(self, index: Index, value: Operand) -> None:
        if isinstance(value, Expr) and value.type.is_tile:
            self.builder.emit_tile_store(self.memory, index, value, None)
        else:
            super().__setitem__(index, value)

    def tile_store(self, index: Index, value: Expr, *, axes: int | Sequence[int] | None = None) -> None:
        """Stores a tile of the array's type from the offsets `index` on, as `a[i, j] = value` does, whose axes are `axes` of the array, ascending:
        `a.tile_store((i, g, j), x, axes=(0, 2))`.

        Raises ValidationError: V201 for elements of another type and an axis that is not there, V202 for another number of offsets, B108 for an array that is
        only read, for axes that are not the tile's, and for what is no tile.
        """
        if not isinstance(value, Expr) or not value.type.is_tile:
            fail("B108", f"tile_store stores a tile, got {shown(value)}", f"{self.memory.name}[i] = x stores an element")
        self.builder.emit_tile_store(self.memory, index, value, axes)

    def atomic_add(self, index: Index, value: Expr, *, axes: int | Sequence[int] | None = None) -> None:
        """Adds a tile of the array's type to what lies from the offsets `index` on, each element as a relaxed atomic, so that workgroups may add to the same
        ones; `axes` as in `tile_store`. The order is not fixed, so sums of floats may differ in their last bits.

        Raises ValidationError as `tile_store`; V603 for what is no tile, B108 for an array whose elements have no atomic add.
        """
        self.builder.emit_tile_add(self.memory, index, value, axes)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if name.startswith("_") or not hasattr(ArrayHandle, name):
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}", name=name, obj=self)
            own = self.memory.name
            instead = f"a load is the same for the whole workgroup: {own}[i]" if name == "uniform_load" else f"add a tile: {own}.atomic_add(i, x)"
            missing(f"the array {own!r} of a Program of tiles has no {name}", instead)
