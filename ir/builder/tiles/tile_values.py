"""What values that are tiles have beside operators: their shape, and the ops of one tile as methods.

Methods, as NumPy has them, and not functions: the tile says what its axes are, and the top level stays small. A fold is named as in `subgroup_reduce` and
`grid_scan`, so that there is one spelling for each op and none for each pair of a method and an op.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from vyre_py.ir.builder.where import fail
from vyre_py.ir.imports import deferred
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.tiles.tile_ops import TILE_OPS
from vyre_py.ir.language.types import Type

if TYPE_CHECKING:
    from vyre_py.ir.builder.expressions import Expr
    from vyre_py.ir.builder.tiles.shapes import Shape

if TYPE_CHECKING:
    from vyre_py.ir.builder.tiles import shapes
else:
    (shapes,) = deferred("vyre_py.ir.builder.tiles", "shapes")

__all__ = ["TileValue"]

_FOLDS: Final = tuple(dict.fromkeys(row.fold for row in TILE_OPS.values() if row.fold))


class TileValue:
    """The part of a value that is for tiles. Each method raises ValidationError at the caller's line: V602 in a Program of invocations, V201 for a scalar,
    an axis that is not there, and a type that the op does not take; V601 and V604 for numbers that are none of a tile."""

    __slots__ = ()

    @property
    def type(self) -> Type:
        """The type of the value."""
        raise NotImplementedError

    def _tile(self, name: str, *numbers: int) -> Expr:
        """Emits a tile op over this value."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of a tile; () for other values."""
        return self.type.shape

    @property
    def T(self) -> Expr:  # noqa: N802 - as NumPy spells it
        """The tile with its axes in reverse order: (n, m) for (m, n)."""
        return self.transpose()

    def transpose(self, *axes: int) -> Expr:
        """The tile whose axis k is the k-th of these axes of this one: (k, m, n) by `x.transpose(2, 0, 1)` of (m, n, k). Without axes they are reversed."""
        return self._tile("transpose", *[self._axis(axis) for axis in axes or range(len(self.shape))[::-1]])

    def reshape(self, shape: Shape, *more: object) -> Expr:
        """The elements in the same order, the last axis fastest, as a tile of this shape, a tuple, which has as many."""
        if more:
            fail("B108", f"reshape takes one shape, got {1 + len(more)} values", f"a tuple: x.reshape({shown((shape, *more))})")
        return self._tile("reshape", *shapes.extents_of(shape))

    def item(self) -> Expr:
        """The element of a tile that has one, as a scalar."""
        return self._tile("item")

    def reduce(self, op: str, axis: int) -> Expr:
        """The elements along an axis folded by "add", "mul", "min", "max", "and", "or" or "xor", of the same type. The axis stays, with extent 1, so that the
        result goes with the tile again: `x / x.reduce("add", 1)`.

        The order is fixed, so floats have the same bits on every device: x[i] = op(x[i], x[i + h]) where there is such an element, for h = P / 2, ..., 2, 1,
        with P the least power of two from the extent on. Raises ValidationError B108 for another op.
        """
        return self._tile(f"reduce_{_fold(op)}", self._axis(axis))

    def scan(self, op: str, axis: int, *, exclusive: bool = False) -> Expr:
        """Along an axis the elements up to each, or those before it, folded by an op of `reduce`; a tile of the same type. The order is fixed (`ir/OPS.md`)."""
        return self._tile(f"{'exclusive' if exclusive else 'inclusive'}_{_fold(op)}", self._axis(axis))

    def __matmul__(self, other: object) -> NoReturn:
        fail("B108", "`@` is no op: a product of tiles is added to a third one", "vp.mma(a, b, acc), with b.fill(0.0, (m, n), vp.f32) to begin with")

    __rmatmul__ = __matmul__

    def _axis(self, axis: int) -> int:
        type_ = self.type
        return shapes.axis_of(str(type_), len(type_.shape), axis) if type_.is_tile else 0  # without axes the op itself is refused


def _fold(op: str) -> str:
    if op not in _FOLDS:
        fail("B108", f"a tile does not fold with {shown(op)}", f"one of {', '.join(_FOLDS)}")
    return op
