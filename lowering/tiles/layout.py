"""Who holds which elements of a tile.

The invocations of a workgroup make a grid of `rows` by `columns`, both powers of two. The last axis of a tile of two or three axes goes along the columns,
the one before along the rows; the only axis of a tile of one goes along all invocations, row by row. Along an axis over which it is shared, element e
belongs to invocation e % T of T, as register e // T. So neighbours along the last axis lie in neighbouring invocations. An extent of 1 is not
shared: all invocations along that axis hold the element. So tiles that broadcast against each other meet in one invocation, and so do tiles of one shape.

The last register along an axis may stand for an element past the extent, where T does not divide it. What it holds there is never seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final

from vyre_py.ir.language.nodes import Var
from vyre_py.ir.language.program import Program

__all__ = ["InvocationGrid", "invocation_grid", "shapes_of"]

_LEAST: Final = 32  # invocations
_MOST: Final = 256  # what every device of WebGPU has
_HELD: Final = 32  # elements of the largest tile that an invocation holds, where there are enough invocations
_NEIGHBOURS: Final = 32  # that load what lies side by side
_FEW: Final = 16


@dataclass(frozen=True, slots=True)
class InvocationGrid:
    """The invocations of a workgroup, and how tiles are shared out among them."""

    rows: int
    columns: int

    @property
    def count(self) -> int:
        """How many invocations there are."""
        return self.rows * self.columns

    def along(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """How many invocations share each axis of a tile."""
        whole = (self.count,) if len(shape) == 1 else (1, self.rows, self.columns)[-len(shape) :]
        return tuple([1 if extent == 1 else t for extent, t in zip(shape, whole, strict=True)])

    def strides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """By how much the number of an invocation rises along each axis of a tile."""
        return (1,) if len(shape) == 1 else (self.count, self.columns, 1)[-len(shape) :]

    def held(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """How many elements along each axis an invocation holds."""
        return tuple([-(-extent // t) for extent, t in zip(shape, self.along(shape), strict=True)])

    def registers(self, shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """The registers of a tile, by their number along each axis, the last axis fastest."""
        return product(*map(range, self.held(shape)))

    def is_ragged(self, shape: tuple[int, ...], axis: int, register: int) -> bool:
        """Whether a register along an axis is past the extent in some invocations."""
        t = self.along(shape)[axis]
        return (register + 1) * t > shape[axis]


def shapes_of(program: Program) -> list[tuple[int, ...]]:
    """The shapes of what holds elements: results and variables."""
    types = [s.result.type for s in program.body if s.result is not None] + [s.variable.type for s in program.body if isinstance(s, Var)]
    return [t.shape for t in types if t.is_tile]


def invocation_grid(program: Program, given: tuple[int, int, int] | None = None) -> InvocationGrid:
    """The invocations for a Program of tiles: as many as hold its largest tile in a few registers each, in rows over which all tiles take the fewest
    registers together, and those of about 32 where there is a choice. `given` are as many as somebody asked for along x and y; powers of two."""
    if given is not None:
        return InvocationGrid(given[1] * given[2], given[0])
    shapes = shapes_of(program)
    largest = max(map(prod, shapes), default=1)
    count = min(_MOST, max(_LEAST, _power_of_two(largest // _HELD)))
    return min(_grids(count), key=lambda grid: (_cost(grid, shapes), abs(grid.columns - _NEIGHBOURS)))


def _power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def _grids(count: int) -> Iterator[InvocationGrid]:
    columns = min(_FEW, count)
    while columns <= count:
        yield InvocationGrid(count // columns, columns)
        columns *= 2


def _cost(grid: InvocationGrid, shapes: Iterable[tuple[int, ...]]) -> int:
    return sum(prod(grid.held(shape)) for shape in shapes)
