"""Products of warps, in the rewrite of a Program for tensor cores: from strips that lie in whole matrices of 8 rows of 16 bytes, or lane by lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from vyre_py.ir.language.nodes import Atom, Const, MatrixLoad, Memory, Space, TensorCore, Tile, Value
from vyre_py.ir.language.types import Type
from vyre_py.ir.math.builder import word
from vyre_py.lowering.tiles.exchange import Shared
from vyre_py.lowering.tiles.lane_products import LaneRewrite
from vyre_py.lowering.tiles.rings import GROUP_BYTES, Ring, Strip
from vyre_py.lowering.tiles.tensor import DEEP_BYTES, HELD_BYTES, WARP, Accumulator, cores_take
from vyre_py.lowering.tiles.tile_layout import Line

__all__ = ["WarpRewrite"]

_WRITTEN_OUT: Final = 4  # steps along k that follow one another without a loop
_COLUMNS: Final = 8  # of sums that lie together
_LANE_ROW, _LANE_COLUMN = Line(4, 8), Line(1, 4)
# Of four matrices of which a lane tells where a row lies: the row, and the bits of the matrix's number.
_MATRIX_ROW, _MATRIX_ODD, _MATRIX_HIGH = Line(1, 8), Line(8, 2), Line(16, 2)
_SUMS: Final = 4  # that a lane has of a product

# What a lane takes of the two factors, for each 16 rows and for each 8 columns.
_Taken = tuple[list[list[Atom]], list[list[Atom]]]


class WarpRewrite(LaneRewrite):
    """A Program with a plan of its rings, whose products of warps read strips of these, too."""

    _unpacks = False  # whether products of floats of 8 bits are of f16

    def _bind_lanes(self) -> None:
        """Binds what lanes and warps need to know of their places, before all other statements."""
        for line in (_LANE_ROW, _LANE_COLUMN, _MATRIX_ROW, _MATRIX_ODD, _MATRIX_HIGH):
            self.bind(line)
        for s in filter(cores_take, self.program.body):
            assert isinstance(s, Tile)  # what tensor cores take
            for line in (self._columns_line(s), *self._warp_lines(s)):
                self.bind(line)

    def _product(self, index: int, s: Tile) -> Shared:
        (m, depth), (_, n) = s.args[0].type.shape, s.args[1].type.shape
        if s.op.name == "mma_sm90" and s.args[0].type.scalar.is_storage:
            help_ = "warpgroups compute it on sm_90a: 64 or 128 rows, a depth of 128, the second factor transposed; sm_90:warps are the bits of warps"
            self.refuse(f"{s.op.name} of floats of 8 bits by warps", help_)
        layout = self._layouts.values[s.bound.id]
        assert isinstance(layout, Accumulator)  # of what tensor cores compute
        acc = self.moved(self.tile_of(s.args[2]), layout)
        rows, columns = (len(layout.offsets((m, n), 0)) // 2, len(layout.offsets((m, n), 1)) // 2)
        sums = self._sums_of(acc.type, 4 * rows * columns)
        places = {
            (2 * row + h, 2 * column + e): word(4 * (row * columns + column) + 2 * h + e)
            for row in range(rows) for column in range(columns) for h in range(2) for e in range(2)
        }  # fmt: skip
        for r, at in places.items():
            self.store(sums, (at,), acc.registers[r])
        take, is_held = self._taking(s, layout)
        loop = self._plan.block_of(index)
        steps, due = depth * s.args[0].type.scalar.size_bytes // DEEP_BYTES, self._due.pop(loop, lambda: None)
        ring = self._plan.rings.get(loop)
        if steps > _WRITTEN_OUT and not is_held:
            due()
            self._multiply(take(self.for_(word(0), word(steps), word(1))), sums)
            self.end()
        elif ring is not None and len(ring.products) == 1 and ring.ahead > 1 and self._has_room(s, ring):
            # What a step takes is loaded before the step before it is computed. Copies come behind all loads, which would wait for them.
            taken = take(word(0))
            for step in range(steps):
                following = take(word(step + 1)) if step + 1 < steps else taken
                if step + 1 == steps:
                    due()
                self._multiply(taken, sums)
                taken = following
        else:
            for step in range(steps):
                self._multiply(take(word(step)), sums)
                if not step:
                    due()
        return Shared((m, n), layout, {r: self.load(sums, (at,)) for r, at in places.items()})

    def _has_room(self, s: Tile, ring: Ring) -> bool:
        """Whether what a step takes may be loaded a step ahead: places of rows along k take few registers. Bytes that are copied one by one take a register
        each, floats of 8 bits that are multiplied as f16 twice as many."""
        one_by_one = not self._views and self._unpacks and s.args[0].type.scalar.is_storage
        return not one_by_one and all(strip.along_k for strip in ring.loads.values())

    def _taking(self, s: Tile, layout: Accumulator) -> tuple[Callable[[Atom], _Taken], bool]:
        """What gives what a lane takes in a step along k, of 32 bytes, and whether lanes hold the first factor: then the step is a number."""
        right = self._factor(s.args[1], 1)
        if right[0].swizzled and self._holds(s.args[0], layout):
            held = self.tile_of(s.args[0])
            return lambda step: (_of_held(held, step), self._columns_by_matrices(s, right, step)), True
        left = self._factor(s.args[0], 0, swizzled=right[0].swizzled)
        if left[0].swizzled and right[0].swizzled:
            return lambda step: (self._rows_by_matrices(s, left, step), self._columns_by_matrices(s, right, step)), False
        return lambda step: self._by_lanes(s, left, right, step), False

    def _multiply(self, taken: _Taken, sums: Memory) -> None:
        """Adds products of 32 bytes along k."""
        left, right = taken
        for row, of_rows in enumerate(left):
            for column, of_columns in enumerate(right):
                self.emit(TensorCore(None, (word(_SUMS * (row * len(right) + column)), *of_rows, *of_columns), sums))

    def _by_lanes(self, s: Tile, left: tuple[Strip, Atom], right: tuple[Strip, Atom], step: Atom) -> _Taken:
        """What lanes load by themselves."""
        layout, shape = self._layouts.values[s.bound.id], s.bound.type.shape
        rows, columns = [extent // 2 for extent in layout.held(shape)]
        k = self.m("mul", step, DEEP_BYTES // GROUP_BYTES)
        places = [[self.element(layout, shape, 0, 2 * row + h) for h in range(2)] for row in range(rows)]
        of_rows = [[a for place in both for a in self._lane(left, place, k)] for both in places]
        place = self.bind(self._columns_line(s))
        return of_rows, [self._lane(right, self.m("add", place, 8 * column), k) for column in range(columns)]

    def _rows_by_matrices(self, s: Tile, factor: tuple[Strip, Atom], step: Atom) -> list[list[Atom]]:
        """The first factor in whole matrices: in rows and below them, then further along k."""
        down, _ = map(self.bind, self._warp_lines(s))
        row_of, odd, high = map(self.bind, (_MATRIX_ROW, _MATRIX_ODD, _MATRIX_HIGH))
        made: list[list[Atom]] = []
        for row in range(self._layouts.values[s.bound.id].held(s.bound.type.shape)[0] // 2):
            a, b, c, d = self._matrices(factor, self.m("add", down, 16 * row), row_of, odd, high, step)
            made.append([*a, *c, *b, *d])
        return made

    def _columns_by_matrices(self, s: Tile, factor: tuple[Strip, Atom], step: Atom) -> list[list[Atom]]:
        """The second factor in whole matrices: further along k, then in the columns beside."""
        columns = self._layouts.values[s.bound.id].held(s.bound.type.shape)[1] // 2
        _, across = map(self.bind, self._warp_lines(s))
        row_of, odd, high = map(self.bind, (_MATRIX_ROW, _MATRIX_ODD, _MATRIX_HIGH))
        made: list[list[Atom]] = []
        for column in range(0, columns, 2):
            beside = high if column + 1 < columns else word(0)
            a, b, c, d = self._matrices(factor, self.m("add", across, 8 * column), row_of, beside, odd, step)
            made += [[*a, *b], [*c, *d]]
        return made[:columns]

    def _holds(self, atom: Atom, layout: Accumulator) -> bool:
        """Whether lanes hold a first factor as the instruction wants it."""
        is_loaded = isinstance(atom, Value) and atom.id in self._plan.strips
        return not is_loaded and layout.across == 1 and atom.type.scalar.size_bytes == HELD_BYTES and self.tile_of(atom).layout == layout

    def _matrices(self, factor: tuple[Strip, Atom], place: Atom, row: Atom, beyond: Atom, further: Atom, step: Atom) -> list[list[Atom]]:
        """What a lane has of four matrices from a place along the other axis on. It tells where a row lies: the `row`-th, eight places beyond by one bit, and
        16 bytes further along k by another."""
        (strip, first), m = factor, self.m
        beyond = m("mul", beyond, 8)
        if strip.along_k:
            at = self._group(strip, m("add", m("add", place, beyond), row), m("add", m("mul", step, 2), further))
        else:
            k = m("add", m("add", m("mul", step, 16), m("mul", further, 8)), row)
            at = self._group(strip, k, m("shr", m("add", place, beyond), 3))
        type_ = strip.memory.type
        count = GROUP_BYTES // 2 // type_.size_bytes
        memory = self._array(f"tile:matrices.{type_}", Space.PRIVATE, type_, 4 * count)
        self.emit(MatrixLoad(None, (m("add", first, at),), memory, strip.memory, int(not strip.along_k)))
        return [[self.load(memory, (word(q * count + k),)) for k in range(count)] for q in range(4)]

    def _sums_of(self, type_: Type, count: int) -> Memory:
        """The private array of sums, with room for so many."""
        return self._array(f"tile:sums.{type_}.{count}", Space.PRIVATE, type_, count)

    def _lane(self, factor: tuple[Strip, Atom], place: Atom, k: Atom) -> list[Atom]:
        """A group of elements at a place along the other axis, in the k-th group along k, or for lane t of four t groups on."""
        (strip, first), m = factor, self.m
        lanes = strip.lanes
        lane = self.bind(_LANE_COLUMN)
        if strip.along_k:
            group = m("add", first, m("add", m("mul", place, strip.stride // lanes), m("add", lane, k)))
            return [self.load(strip.memory, (group, word(j))) for j in range(lanes)]
        at = m("add", m("mul", lane, lanes * strip.stride), place)
        group = m("add", m("add", first, m("shr", at, lanes.bit_length() - 1)), m("mul", k, strip.stride))
        within = m("and", place, lanes - 1)
        return [self.load(strip.memory, (m("add", group, j * strip.stride // lanes), within)) for j in range(lanes)]

    def _columns_line(self, s: Tile) -> Line:
        """The places along columns of what lanes have of the second factor."""
        layout, (_, n) = self._layouts.values[s.bound.id], s.bound.type.shape
        assert isinstance(layout, Accumulator)  # of what tensor cores compute
        return Line(WARP, layout.across, n // layout.across, _LANE_ROW)

    def _warp_lines(self, s: Tile) -> tuple[Line, Line]:
        """The places of warps along rows and along columns of a product."""
        layout, (rows, columns) = self._layouts.values[s.bound.id], s.bound.type.shape
        assert isinstance(layout, Accumulator)  # of what tensor cores compute
        return Line(WARP * layout.across, layout.down, rows // layout.down), Line(WARP, layout.across, columns // layout.across)


def _of_held(held: Shared, step: Atom) -> list[list[Atom]]:
    """What a lane takes of a first factor that lanes hold as they hold sums."""
    assert isinstance(step, Const)  # a number
    words = range(4 * step.bits, 4 * step.bits + 4)
    return [[held.registers[2 * row + h, k] for h in range(2) for k in words] for row in range(held.layout.held(held.shape)[0] // 2)]
