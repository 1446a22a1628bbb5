"""Products of matrices on tensor cores, and products of lanes from strips like theirs: which they are, and how their sums lie in registers.

A subgroup of 32 invocations, a warp, adds products of 16 x K by K x 8 to sums of 16 x 8, four elements each invocation (`nodes.TensorCore`), where K elements
of a factor are 32 bytes. The warps of a workgroup make a grid over the tile, and each has a block of such sums. The factors lie in workgroup memory, from
where a warp loads what its lanes need.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import prod
from types import MappingProxyType
from typing import Final, TypeGuard

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.nodes import Get, Let, Set, Statement, Tile, TileLoad, Value, Var
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.tiles.tile_ops import MMA_TYPES
from vyre_py.ir.language.types import Type, f32
from vyre_py.lowering.tiles.tile_layout import InvocationGrid, Line, TileLayout

__all__ = [
    "BYTE_FLOATS_SINCE", "DEEP_BYTES", "HELD_BYTES", "ROWS", "TOGETHER", "WARP", "Accumulator", "Along", "Gathered",
    "LaneSums", "Layouts", "accumulators", "cores_take", "gathered", "invocations_for", "is_modelled", "lane_sums", "warpgroups_take",
]

WARP: Final = 32
ROWS: Final = 16  # of a sum
DEEP_BYTES: Final = 32  # of a factor along k, that a product takes
_COLUMNS: Final = 8
TOGETHER: Final = 8  # neighbours that a lane stores
_SHARERS: Final = 4  # lanes of a row of sums
_HELD: Final = 128  # registers of a sum that an invocation has at most, of the 255 that there are
_WORD_BYTES: Final = 4
_LEAST_WARPS, _MOST_WARPS = 4, 8
_WARPGROUP: Final = 4  # warps
_WARPGROUP_ROWS: Final = 64
_WIDEST: Final = 256  # columns of a product of a warpgroup
_WARPGROUP_BYTES: Final = 4  # of the largest elements that it takes
_ROW_BYTES: Final = 128  # of a swizzled row
_TURNED_BYTES: Final = 2  # of the elements that warpgroups take from rows that do not go along k
HELD_BYTES: Final = 2  # of those of a first factor that they take from registers
_MODELLED: Final = ("mma_sm90", "mma_sm90_warps")
_PRODUCTS: Final = ("mma_tensor", *_MODELLED)
_LANES: Final = ((8, 4), (4, 8))  # of a warp over a product of lanes, rows by columns; the first are the faster where both fit
_LANE_HELD: Final = 64  # registers of such a sum that a lane has at most, beside those of the factors
_GROUP: Final = 4  # elements that it takes together
BYTE_FLOATS_SINCE: Final = 89  # the generation from which on tensor cores take factors of 8 bits that are floats


@dataclass(frozen=True, slots=True)
class Accumulator(TileLayout):
    """Sums of a tile in the registers of `down` by `across` warps. A tile that has one column, or one row, of them is held by all lanes along that axis."""

    down: int
    across: int

    def line(self, shape: tuple[int, ...], axis: int) -> Line:
        """Warps, and within them lanes."""
        block = max(1, shape[axis] // (self.down, self.across)[axis])
        if axis == 0:
            return Line(WARP * self.across, self.down, block, Line(4, 8))
        return Line(WARP, self.across, block, Line(1, 4, 2))

    def offsets(self, shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
        """Along rows every eighth, along columns two in every eight."""
        if shape[axis] == 1:
            return (0,)
        if axis == 0:
            return tuple(range(0, shape[0] // self.down, 8))
        return tuple([first + k for first in range(0, shape[1] // self.across, _COLUMNS) for k in range(2)])

    def neighbours(self, shape: tuple[int, ...], axis: int) -> int:
        """Two along columns."""
        return 2 if axis == 1 and shape[1] > 1 else 1


@dataclass(frozen=True, slots=True)
class Gathered(Accumulator):
    """The same sums, handed on among the four lanes that share their rows: each has neighbours, `TOGETHER` of them, out of as many groups of columns."""

    def line(self, shape: tuple[int, ...], axis: int) -> Line:
        """Warps, and within them lanes."""
        if axis == 0:
            return Accumulator.line(self, shape, axis)
        return Line(WARP, self.across, shape[1] // self.across, Line(1, _SHARERS, TOGETHER))

    def offsets(self, shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
        """Along rows every eighth, along columns neighbours in every block that four lanes share."""
        if axis == 0:
            return Accumulator.offsets(self, shape, axis)
        return tuple([first + k for first in range(0, shape[1] // self.across, _SHARERS * TOGETHER) for k in range(TOGETHER)])

    def neighbours(self, shape: tuple[int, ...], axis: int) -> int:
        """As many as lie together along columns."""
        return TOGETHER if axis == 1 else 1


@dataclass(frozen=True, slots=True)
class LaneSums(TileLayout):
    """Sums of a product of lanes in the registers of `down` by `across` warps, of which each has a block, and each of its `lanes`, rows by columns, so many
    `neighbours_along` rows and columns of it in every so many times as many."""

    down: int
    across: int
    lanes: tuple[int, int]
    neighbours_along: tuple[int, int]

    def line(self, shape: tuple[int, ...], axis: int) -> Line:
        """Warps, and within them lanes."""
        together, (rows, columns) = self.neighbours_along[axis], self.lanes
        if axis == 0:
            return Line(WARP * self.across, self.down, shape[0] // self.down, Line(columns, rows, together))
        return Line(WARP, self.across, shape[1] // self.across, Line(1, columns, together))

    def offsets(self, shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
        """Every so many elements, some neighbours."""
        if shape[axis] == 1:
            return (0,)
        together = self.neighbours_along[axis]
        block, lanes = shape[axis] // (self.down, self.across)[axis], self.lanes[axis]
        return tuple([first + k for first in range(0, block, lanes * together) for k in range(together)])

    def neighbours(self, shape: tuple[int, ...], axis: int) -> int:
        """As many as a factor has side by side."""
        return self.neighbours_along[axis] if shape[axis] > 1 else 1


@dataclass(frozen=True, slots=True)
class Along(TileLayout):
    """What has one axis, as a layout has it along an `axis` where the other's extent is 1."""

    of: TileLayout
    axis: int

    def _whole(self, shape: tuple[int, ...]) -> tuple[int, int]:
        return (1, shape[0]) if self.axis else (shape[0], 1)

    def line(self, shape: tuple[int, ...], axis: int) -> Line:
        """As along that axis."""
        return self.of.line(self._whole(shape), self.axis)

    def offsets(self, shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
        """As along that axis."""
        return self.of.offsets(self._whole(shape), self.axis)

    def neighbours(self, shape: tuple[int, ...], axis: int) -> int:
        """As along that axis."""
        return self.of.neighbours(self._whole(shape), self.axis)


def gathered(layout: TileLayout, shape: tuple[int, ...]) -> Gathered | None:
    """The layout for storing sums of a shape in long rows; None where there is none."""
    if not isinstance(layout, Accumulator) or shape[0] == 1 or shape[1] % (layout.across * _SHARERS * TOGETHER):
        return None
    return Gathered(layout.down, layout.across)


def cores_take(s: Statement) -> bool:
    """Whether tensor cores compute a statement."""
    if not isinstance(s, Tile) or s.op.name not in _PRODUCTS:
        return False
    a, b, acc = [x.type for x in s.values]
    (m, k), (_, n) = a.shape, b.shape
    fits = not (m % ROWS or k * a.scalar.size_bytes % DEEP_BYTES or n % _COLUMNS)
    return fits and acc.scalar in MMA_TYPES.get((a.scalar, b.scalar), ()) and _warps(acc) is not None


def is_modelled(s: Statement) -> TypeGuard[Tile]:
    """Whether a statement is a product that has the bits of some tensor cores."""
    return isinstance(s, Tile) and s.op.name in _MODELLED


def warpgroups_take(s: Statement, invocations: int, *, along_k: tuple[bool, bool]) -> bool:
    """Whether the warpgroups of so many invocations compute a statement that tensor cores do, whose factors lie in rows that go `along_k` or not."""
    assert isinstance(s, Tile)  # what tensor cores take
    (m, k), (_, n), size = s.args[0].type.shape, s.args[1].type.shape, s.args[0].type.scalar.size_bytes
    turned = size == _TURNED_BYTES and n * size % _ROW_BYTES == 0
    # Integers of two types take a newer PTX than sm_90a has by itself.
    types = s.args[0].type.scalar is s.args[1].type.scalar or s.args[0].type.scalar.is_float
    rows = types and s.op.name != "mma_sm90_warps" and size <= _WARPGROUP_BYTES and k * size % _ROW_BYTES == 0 and along_k[0] and (along_k[1] or turned)
    return rows and m == invocations // (WARP * _WARPGROUP) * _WARPGROUP_ROWS and n <= _WIDEST


def lane_sums(s: Statement, warps: int = 0, *, along_k: tuple[bool, bool] = (False, False)) -> LaneSums | None:
    """How the sums of a strict product of f32 lie that lanes compute, whose factors lie in rows that go `along_k` or not, over so many `warps`, or as few as
    hold them; None for any other statement, and for shapes that do not fit."""
    if not isinstance(s, Tile) or s.op.name != "mma" or any(a.type.scalar is not f32 for a in s.values):
        return None
    (m, n), depth = s.bound.type.shape, s.args[0].type.shape[1]
    neighbours = tuple([1 if goes_along else _GROUP for goes_along in along_k])
    fitting = [
        (down, across, lanes) for lanes in _LANES for down, across in _grids()
        if warps in (0, down * across) and depth % _GROUP == 0 and m % (down * lanes[0] * _GROUP) == 0 and n % (across * lanes[1] * _GROUP) == 0
        and _held(s.bound.type, down * across) <= _LANE_HELD
    ]  # fmt: skip
    best = min(fitting, key=lambda one: (one[0] * one[1], m // (one[0] * one[2][0]) + n // (one[1] * one[2][1])), default=None)
    return best and LaneSums(*best, (neighbours[0], neighbours[1]))


def _grids() -> Iterator[tuple[int, int]]:
    warps = _LEAST_WARPS
    while warps <= _MOST_WARPS:
        down = 1
        while down <= warps:
            yield down, warps // down
            down *= 2
        warps *= 2


def _held(sums: Type, warps: int) -> int:
    """How many registers an invocation has of a tile of sums."""
    return prod(sums.shape) // (WARP * warps) * max(1, sums.scalar.size_bytes // _WORD_BYTES)


def _warps(sums: Type, held: int = _HELD) -> tuple[int, int] | None:
    """The warps over a tile of sums: as few as hold it, each invocation so much at most, in blocks whose factors are the smallest; None where there are
    none."""
    m, n = sums.shape
    fitting = [
        (down, across) for down, across in _grids()
        if m % (ROWS * down) == 0 and n % (_COLUMNS * across) == 0 and _held(sums, down * across) <= held
    ]  # fmt: skip
    return min(fitting, key=lambda grid: (grid[0] * grid[1], m // grid[0] + n // grid[1]), default=None)


def _loads_beside(program: Program) -> bool:
    """Whether a tile as large as sums is loaded that is no factor of a product."""
    sums = {s.result.type.shape for s in program.body if cores_take(s) and s.result is not None}
    factors = {a.id for s in program.body if cores_take(s) for a in s.args[:2] if isinstance(a, Value)}
    for s in reversed(program.body):
        if isinstance(s, Tile) and s.op.name == "transpose" and s.bound.id in factors:
            factors |= {a.id for a in s.args if isinstance(a, Value)}
    return any(isinstance(s, TileLoad) and s.bound.id not in factors and s.bound.type.shape in sums for s in program.body)


def invocations_for(program: Program, *, warpgroups: bool, unpacks: bool = False) -> int:
    """How many invocations the products of a Program on tensor cores need; 0 where it has none. Where the target has products of `warpgroups`, as many as
    have 64 rows for each. What is loaded beside sums needs registers, and so do floats of 8 bits where the target `unpacks` these, to multiply them as f16."""
    needs_more = _loads_beside(program) or (unpacks and any(cores_take(s) and s.args[0].type.scalar.is_storage for s in program.body))
    sums = [s.result.type for s in program.body if cores_take(s) and s.result is not None]
    rows = [type_.shape[0] for type_ in sums]
    if not sums:
        return WARP * max([layout.down * layout.across for s in program.body if (layout := lane_sums(s)) is not None], default=0)
    if warpgroups and rows and all(m % _WARPGROUP_ROWS == 0 and m // _WARPGROUP_ROWS * _WARPGROUP <= _MOST_WARPS for m in rows):
        return WARP * _WARPGROUP * max(rows) // _WARPGROUP_ROWS
    grids = [(needs_more and _warps(type_, _HELD // 2)) or _warps(type_) for type_ in sums]
    warps = max([prod(grid) for grid in grids if grid is not None], default=0)
    # Sums of several products are held at once, in whole rows where these are folded.
    more = 2 * warps
    if 0 < more <= _MOST_WARPS and sum([_held(type_, warps) for type_ in sums]) > _HELD and not any(m % (ROWS * more) for m in rows):
        warps = more
    return WARP * warps


def _shape(s: Statement) -> tuple[int, int]:
    assert s.result is not None  # a product's
    m, n = s.result.type.shape
    return m, n


def _accumulator(shape: tuple[int, int], warps: int, *, whole_rows: bool) -> Accumulator | None:
    """The layout of sums over all warps there are, each of which has whole rows where that is wanted and can be."""
    m, n = shape
    fitting = [
        (down, warps // down) for down in (1, 2, 4, 8) if down <= warps and m % (ROWS * down) == 0 and n % (_COLUMNS * (warps // down)) == 0
    ]  # fmt: skip
    best = min(fitting, key=lambda grid: (whole_rows and grid[1] > 1, m // grid[0] + n // grid[1]), default=None)
    return best and Accumulator(*best)


def _folds_rows(s: Statement) -> bool:
    """Whether a statement folds each row of a tile."""
    return isinstance(s, Tile) and s.op.name.startswith("reduce_") and s.numbers[0] == 1 and len(s.args[0].type.shape) == 2


@dataclass(frozen=True, slots=True)
class Layouts:
    """The layouts of the values and variables of a Program that have one of their own, by number."""

    values: Mapping[int, TileLayout]
    variables: Mapping[int, TileLayout]


def accumulators(
    program: Program, invocations: InvocationGrid, of_warpgroups: Collection[int] = (), of_registers: Collection[int] = (),
    of_lanes: Mapping[int, LaneSums] = MappingProxyType({}),
) -> Layouts:  # fmt: skip
    """Which values and variables lie as sums of tensor cores or lanes do: those sums, what goes element by element from them, rows of such that are folded,
    variables that are set to any of these, and what is made for them alone. The products `of_warpgroups` are named by statement, those `of_registers`, whose
    first factor the lanes hold as they hold sums, and those `of_lanes`.

    A value that is made of one variable whose layout is found later is looked at again, so the walk is repeated until nothing changes: as often as variables
    depend on each other at most.
    """
    values: dict[int, TileLayout] = {}
    variables: dict[int, TileLayout] = {}
    warps, whole_rows = invocations.count // WARP, any(map(_folds_rows, program.body))
    own = {index: of_lanes.get(index, Accumulator(warps, 1)) for index in (*of_warpgroups, *of_lanes)}
    # What such a product is added to lies as its sums do, whatever it was set to before; as those of warpgroups, where both are.
    for indices in (of_lanes, of_warpgroups):
        made = {s.bound.id: own[index] for index in indices if isinstance(s := program.body[index], Tile)}
        variables |= {s.variable.id: made[s.args[0].id] for s in program.body if isinstance(s, Set) and isinstance(s.args[0], Value) and s.args[0].id in made}
    before = -1
    while before != len(variables):
        before = len(variables)
        for index, s in enumerate(program.body):
            layout: TileLayout | None = None
            if index in own:
                layout = own[index]
            elif cores_take(s):
                layout = _accumulator(_shape(s), warps, whole_rows=whole_rows)
            elif _folds_rows(s) and isinstance(a := s.args[0], Value) and isinstance(of := values.get(a.id), Accumulator) and of.across == 1:
                layout = of
            elif isinstance(s, Get):
                layout = variables.get(s.variable.id)
            elif isinstance(s, Let) and s.bound.type.is_tile:
                layout = next((values[a.id] for a in s.args if isinstance(a, Value) and a.id in values and a.type.shape == s.bound.type.shape), None)
            elif isinstance(s, (Var, Set)) and isinstance(s.args[0], Value) and s.args[0].id in values:
                variables.setdefault(s.variable.id, values[s.args[0].id])
            if layout is not None and s.result is not None:
                values[s.result.id] = layout
    _go_with(program, values, {index: Accumulator(warps, 1) for index in of_registers})
    return Layouts(values, variables)


def _adds_axis(s: Statement) -> int | None:
    """The axis that a tile of one has in one of two, of which the other's extent is 1, where a statement makes this of it."""
    if not isinstance(s, Tile) or s.op.name != "reshape" or len(s.args[0].type.shape) != 1 or len(s.bound.type.shape) != 2:
        return None
    return s.bound.type.shape.index(s.args[0].type.shape[0]) if 1 in s.bound.type.shape else None


def _go_with(program: Program, values: dict[int, TileLayout], of_registers: Mapping[int, TileLayout]) -> None:
    """Gives what is loaded or counted, and what goes element by element from it, the layout of all that is computed from it, where they have one: so nothing
    of it goes from one invocation to another. First factors of some products have one, too."""
    wanted: dict[int, set[TileLayout | None]] = {}
    for index, s in reversed(list(enumerate(program.body))):
        made = s.result
        is_free = isinstance(s, (Let, TileLoad)) or (isinstance(s, Tile) and s.op.name == "iota") or _adds_axis(s) is not None
        if is_free and made is not None and made.type.is_tile and made.id not in values and len(found := wanted.get(made.id, set())) == 1:
            (layout,) = found
            if layout is not None:
                values[made.id] = layout
        for k, a in enumerate(s.args):
            if isinstance(a, Value) and a.type.is_tile:
                goes = values.get(made.id) if isinstance(s, Let) and made is not None else of_registers.get(index) if k == 0 else None
                if made is not None and made.id in values and (axis := _adds_axis(s)) is not None:
                    goes = Along(values[made.id], axis)
                wanted.setdefault(a.id, set()).add(goes)
