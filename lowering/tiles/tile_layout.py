"""Who holds which elements of a tile.

The invocations of a workgroup make a grid of `rows` by `columns`, both powers of two. By the layout that most tiles have, the last axis of a tile of two or
three axes goes along the columns, the one before along the rows; the only axis of a tile of one goes along all invocations, row by row. Along an axis over
which it is shared, element e belongs to invocation e % T of T, as register e // T. So neighbours along the last axis lie in neighbouring invocations; for
wide accesses each has V neighbours together: element (b T + t) V + k is register b V + k of invocation t. An
extent of 1 is not shared: all invocations along that axis hold the element. So tiles that broadcast against each other meet in one invocation, and so do
tiles of one shape.

The last register along an axis may stand for an element past the extent, where T does not divide it. What it holds there is never seen.

Whatever the layout, the element of a register along an axis is a place that the invocation has on a `Line`, and a number beyond it. Where the first element
of a tile lies in a memory is an offset; what those are `Multiples` of says which groups of elements are neighbours there, and which sums cannot wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from math import gcd, prod
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.nodes import Atom, Const, For, Let, Statement, Tile, Value, Var
from vyre_py.ir.language.program import Program

__all__ = ["NOT_SHARED", "InvocationGrid", "Line", "Multiples", "TileLayout", "invocation_grid", "power_of_two", "shapes_of"]

_LEAST: Final = 32  # invocations
_MOST: Final = 256  # what every device of WebGPU has
_HELD: Final = 32  # elements of the largest tile that an invocation holds, where there are enough invocations
_NEIGHBOURS: Final = 32  # that load what lies side by side
_FEW: Final = 16
_FEWEST: Final = 8

_MOST_POWER: Final = 1 << 31
_DEEPEST: Final = 8
_RULES: Final[Mapping[str, Callable[..., int]]] = {"add": gcd, "sub": gcd, "mul": lambda a, b: a * b, "min": gcd, "max": gcd}


@dataclass(frozen=True, slots=True)
class Line:
    """Places of invocations: 0, `step`, 2 `step` and so on, for those that are 0, 1, 2 ... in what their number becomes when it is divided by `over` and then
    taken modulo `count`; to that is added the same of `then`, if there is another part."""

    over: int
    count: int
    step: int = 1
    then: Line | None = None

    @property
    def is_shared(self) -> bool:
        """Whether invocations have different places on it."""
        return self.count > 1 or (self.then is not None and self.then.is_shared)


NOT_SHARED: Final = Line(1, 1)


class TileLayout:
    """How tiles lie in the registers of a workgroup's invocations."""

    def line(self, shape: tuple[int, ...], axis: int) -> Line:
        """The places along an axis, were it shared."""
        raise NotImplementedError

    def offsets(self, shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
        """For each register along an axis, how far its element is from the invocation's place."""
        raise NotImplementedError

    def held(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """How many elements along each axis an invocation holds."""
        return tuple([len(self.offsets(shape, axis)) for axis in range(len(shape))])

    def neighbours(self, shape: tuple[int, ...], axis: int) -> int:
        """How many registers in a row along an axis hold neighbours, the first of which is at a multiple of as many."""
        return 1

    def registers(self, shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """The registers of a tile, by their number along each axis, the last axis fastest."""
        return product(*map(range, self.held(shape)))

    def is_ragged(self, shape: tuple[int, ...], axis: int, register: int) -> bool:
        """Whether a register along an axis is past the extent in some invocations."""
        return False


@dataclass(frozen=True, slots=True)
class InvocationGrid(TileLayout):
    """The invocations of a workgroup, and how tiles are shared out among them unless something asks for another layout. Along the last axis each has up to
    `width` neighbours together, a power of two."""

    rows: int
    columns: int
    width: int = 1

    @property
    def count(self) -> int:
        """How many invocations there are."""
        return self.rows * self.columns

    def line(self, shape: tuple[int, ...], axis: int) -> Line:
        """All invocations, or the rows, or the columns; none for the first of three axes."""
        step = self.neighbours(shape, axis)
        if len(shape) == 1:
            return Line(1, self.count, step)
        return (NOT_SHARED, Line(self.columns, self.rows), Line(1, self.columns, step))[axis - len(shape)]

    def neighbours(self, shape: tuple[int, ...], axis: int) -> int:
        """As many as divide the last extent."""
        return gcd(self.width, shape[axis]) if axis == len(shape) - 1 else 1

    def along(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """How many invocations share each axis of a tile."""
        return tuple([1 if extent == 1 else self.line(shape, axis).count for axis, extent in enumerate(shape)])

    def stride(self, shape: tuple[int, ...], axis: int) -> int:
        """By how much the number of an invocation rises along an axis of a tile."""
        return self.line(shape, axis).over

    def offsets(self, shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
        """Every so many elements, some neighbours."""
        together = self.neighbours(shape, axis)
        return tuple([first + k for first in range(0, shape[axis], self.along(shape)[axis] * together) for k in range(together)])

    def is_ragged(self, shape: tuple[int, ...], axis: int, register: int) -> bool:
        """Whether a register along an axis is past the extent in some invocations."""
        together = self.neighbours(shape, axis)
        return (register // together + 1) * self.along(shape)[axis] * together > shape[axis]


class Multiples:
    """Which powers of two the offsets of a Program are multiples of, whatever runs. Of a `body` that grows, statements are taken in when somebody asks."""

    def __init__(self, body: Sequence[Statement]) -> None:
        self._body, self._seen = body, 0
        self._made_by: dict[int, Statement] = {}

    def of(self, atom: Atom, depth: int = _DEEPEST) -> int:
        """A power of two that an offset is known to be a multiple of, up to wrapping."""
        if isinstance(atom, Const):
            return atom.bits & -atom.bits or _MOST_POWER
        if not isinstance(atom, Value) or not depth:
            return 1
        for s in islice(self._body, self._seen, None):
            if s.result is not None:
                self._made_by[s.result.id] = s
        self._seen = len(self._body)
        s = self._made_by[atom.id]
        if isinstance(s, For):
            return gcd(self.of(s.args[0], depth - 1), self.of(s.args[2], depth - 1))
        if isinstance(s, Let) and s.op.name in _RULES:
            return min(_MOST_POWER, _RULES[s.op.name](*[self.of(a, depth - 1) for a in s.args[:2]]))
        return 1


def shapes_of(program: Program) -> list[tuple[int, ...]]:
    """The shapes of what holds elements: results and variables."""
    types = [s.result.type for s in program.body if s.result is not None] + [s.variable.type for s in program.body if isinstance(s, Var)]
    return [t.shape for t in types if t.is_tile]


def invocation_grid(
    program: Program, given: tuple[int, int, int] | None = None, count: int = 0, width: int = 1, *, blocks: bool = False
) -> InvocationGrid:  # fmt: skip
    """The invocations for a Program of tiles: `count`, or as many as hold its largest tile in a few registers each, in rows over which all tiles take the
    fewest registers together, and those of about 32 where there is a choice. With `blocks` the sums of a product that an invocation holds are first of all as
    few rows and columns as may be, each of which it loads once for all of them. `given` are as many as somebody asked for along x, y and z; powers of two.
    Each has `width` neighbours together."""
    if given is not None:
        return InvocationGrid(given[1] * given[2], given[0], width)
    shapes = shapes_of(program)
    largest = max(map(prod, shapes), default=1)
    count = count or min(_MOST, max(_LEAST, power_of_two(largest // _HELD)))
    least = min(_FEW, count)
    if width > 1:
        least = min(least, power_of_two(max([shape[-1] for shape in shapes], default=1) // width))
    sums = [s.bound.type.shape for s in program.body if blocks and isinstance(s, Tile) and s.op.name.startswith("mma")]
    if sums:
        least = min(least, _FEWEST)

    def cost(grid: InvocationGrid) -> tuple[int, int, int]:
        return _cost(grid, shapes), sum([sum(grid.held(shape)) for shape in sums]), abs(grid.columns - _NEIGHBOURS)

    return min(_grids(count, least, width), key=cost)


def power_of_two(n: int) -> int:
    """The least power of two from n on."""
    return 1 << max(0, n - 1).bit_length()


def _grids(count: int, columns: int, width: int) -> Iterator[InvocationGrid]:
    while columns <= count:
        yield InvocationGrid(count // columns, columns, width)
        columns *= 2


def _cost(grid: InvocationGrid, shapes: Iterable[tuple[int, ...]]) -> int:
    return sum(prod(grid.held(shape)) for shape in shapes)
