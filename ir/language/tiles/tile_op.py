"""What a row of the table of tile ops is: `TileOp`, and the rules by which the types of operands and the numbers give the result's type. The rows are in
`tile_ops`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from math import prod
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.types import Array, Type, tile_of

__all__ = ["MAX_TILE_ELEMENTS", "MAX_TILE_RANK", "TileOp", "TileRule", "broadcast", "is_tile_shape"]

MAX_TILE_RANK: Final = 3
MAX_TILE_ELEMENTS: Final = 1 << 17

# Types of the operands, and the numbers -> the result's type, or None where they do not fit.
TileRule = Callable[[tuple[Type, ...], tuple[int, ...]], Type | None]


def is_tile_shape(shape: tuple[int, ...]) -> bool:
    """Whether a tile may have these extents."""
    return 1 <= len(shape) <= MAX_TILE_RANK and min(shape) >= 1 and prod(shape) <= MAX_TILE_ELEMENTS


def broadcast(shapes: tuple[tuple[int, ...], ...]) -> tuple[int, ...] | None:
    """The shape of what lanewise ops make of tiles of these shapes: of one rank, where an extent of 1 goes with any. None where they do not fit."""
    if len({len(shape) for shape in shapes}) != 1:
        return None
    made = tuple([max(extents) for extents in zip_longest(*shapes)])
    return made if all(extent in (1, whole) for shape in shapes for extent, whole in zip(shape, made, strict=True)) else None


@dataclass(frozen=True, slots=True, eq=False)
class TileOp:
    """An op that computes a tile, or from one, beyond the lanewise ones of the op table. It has no effects.

    Its operands are `operands` values, then numbers: u32 constants, which `numbers` names; the last of them may be several, where its name ends in "...".
    `of` are the scalar types of the first operand's elements. `rule` says what type the result has. `evaluate(result_type, numbers, *arrays)` is the
    meaning, over arrays with an axis of workgroups and then those of the tile.
    """

    name: str
    code: int
    names: tuple[str, ...]
    numbers: tuple[str, ...]
    of: frozenset[Type]
    rule: TileRule
    evaluate: Callable[..., Array]
    doc: str
    fold: str = ""  # the op that it folds with

    @property
    def operands(self) -> int:
        """How many values it takes; numbers follow."""
        return len(self.names)

    def takes(self, count: int) -> bool:
        """Whether it takes so many numbers."""
        some = bool(self.numbers) and self.numbers[-1].endswith("...")
        return count >= len(self.numbers) if some else count == len(self.numbers)

    def result_type(self, operands: tuple[Type, ...], numbers: tuple[int, ...]) -> Type | None:
        """The result's type for values of these types and these numbers, or None where the row does not accept them."""
        if len(operands) != self.operands or not self.takes(len(numbers)) or any(t.is_vector for t in operands):
            return None
        if operands and operands[0].scalar not in self.of:
            return None
        made = self.rule(operands, numbers)
        return made if made is None or not made.shape or is_tile_shape(made.shape) else None

    def __repr__(self) -> str:
        return f"<tile op {self.name}>"


# ---------------------------------------------------------------- rules


def filled(operands: tuple[Type, ...], numbers: tuple[int, ...]) -> Type | None:
    """A scalar, as a tile of these extents."""
    return None if operands[0].is_tile or not is_tile_shape(numbers) else tile_of(operands[0], numbers)


def counted(type_: Type) -> TileRule:
    """Numbers along an axis of a tile of these extents."""
    return lambda operands, numbers: tile_of(type_, numbers[1:]) if is_tile_shape(numbers[1:]) and numbers[0] < len(numbers) - 1 else None


def folded(operands: tuple[Type, ...], numbers: tuple[int, ...]) -> Type | None:
    """The tile with an extent of 1 along an axis."""
    (t,), (axis,) = operands, numbers
    return tile_of(t.scalar, (*t.shape[:axis], 1, *t.shape[axis + 1 :])) if axis < len(t.shape) else None


def scanned(operands: tuple[Type, ...], numbers: tuple[int, ...]) -> Type | None:
    """The same type, of a tile that has the axis."""
    return operands[0] if numbers[0] < len(operands[0].shape) else None


def transposed(operands: tuple[Type, ...], numbers: tuple[int, ...]) -> Type | None:
    """The tile whose axis k is the axis of that number."""
    shape = operands[0].shape
    return tile_of(operands[0].scalar, [shape[axis] for axis in numbers]) if shape and sorted(numbers) == list(range(len(shape))) else None


def reshaped(operands: tuple[Type, ...], numbers: tuple[int, ...]) -> Type | None:
    """A tile of these extents with as many elements."""
    shape = operands[0].shape
    return tile_of(operands[0].scalar, numbers) if shape and is_tile_shape(numbers) and prod(numbers) == prod(shape) else None


def single(operands: tuple[Type, ...], numbers: tuple[int, ...]) -> Type | None:
    """The element of a tile that has one."""
    return operands[0].scalar if operands[0].is_tile and prod(operands[0].shape) == 1 else None


def multiplied(accumulators: Callable[[Type, Type, Type], bool]) -> TileRule:
    """(m, k) times (k, n), added to (m, n), whose type the product has."""

    def rule(operands: tuple[Type, ...], numbers: tuple[int, ...]) -> Type | None:
        a, b, to = operands
        if not all(len(t.shape) == 2 for t in operands) or a.shape[1] != b.shape[0] or to.shape != (a.shape[0], b.shape[1]):
            return None
        return to if accumulators(a.scalar, b.scalar, to.scalar) else None

    return rule
