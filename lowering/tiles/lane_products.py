"""Products of lanes, in the rewrite of a Program with rings: chains of fused multiply-adds, as a product means them, from strips that were copied ahead.

The warps of a workgroup make a grid over the tile, and the lanes of a warp one of 8 rows by 4 columns over each block. A lane takes 16 bytes of a factor at a
time: the next four along k of each of its rows, from strips that are swizzled, or four of its rows at one k, which therefore are neighbours. The lanes that
share a row or a column take the same ones, and the others' lie in other banks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from vyre_py.ir.language.nodes import Atom, Const, Tile
from vyre_py.ir.language.program import Program
from vyre_py.ir.math.builder import word
from vyre_py.lowering.tiles.exchange import Shared
from vyre_py.lowering.tiles.products import add_product
from vyre_py.lowering.tiles.rings import GROUPS, RingPlan, RingTooLarge, Strip
from vyre_py.lowering.tiles.tensor import invocations_for
from vyre_py.lowering.tiles.tile_layout import TileLayout
from vyre_py.lowering.tiles.warpgroups import WarpgroupRewrite

__all__ = ["LaneRewrite", "has_products_of_lanes"]

_WRITTEN_OUT: Final = 2048  # products that follow one another without a loop


def has_products_of_lanes(program: Program, memory_bytes: int) -> bool:
    """Whether lanes compute strict products of a Program of tiles from rings, in at most so many bytes of workgroup memory."""
    with suppress(RingTooLarge):
        return bool(RingPlan(program, invocations_for(program, warpgroups=False), memory_bytes, warpgroups=False).of_lanes)
    return False


def _order(layout: TileLayout, shape: tuple[int, ...], *, is_along_k: bool) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """A key by which a lane's sums are sorted, in whose order it computes them: row by row, one to the right and the next to the left. So one product after
    another shares a factor with it, which need not come from a bank of registers again. Columns that are loaded together go first where a factor is along k.
    Where none is, neighbouring rows are loaded together, and so lie in different banks: every second one goes first."""
    several = layout.neighbours(shape, 1)
    group = several if several > 1 else shape[1]

    def by_columns(place: tuple[int, ...]) -> tuple[int, ...]:
        row, column = place
        return column // group, row, -column if row % 2 else column

    def by_banks(place: tuple[int, ...]) -> tuple[int, ...]:
        row, column = place
        return row % 2, row, -column if row // 2 % 2 else column

    return by_columns if is_along_k else by_banks


class LaneRewrite(WarpgroupRewrite):
    """A Program with a plan of its rings, whose products of lanes read strips of these, too."""

    def _product_of_lanes(self, index: int, s: Tile) -> Shared:
        layout, shape, loop = self._layouts.values[s.bound.id], s.bound.type.shape, self._plan.block_of(index)
        acc = self.moved(self.tile_of(s.args[2]), layout)
        self._due.pop(loop, lambda: None)()  # copies of turns to come, into strips that all have done with
        left, right = [self._factor(atom, number) for number, atom in enumerate(s.args[:2])]
        totals = {r: self.var(acc.type, value) for r, value in acc.registers.items()}
        in_turns = sorted(totals, key=_order(layout, shape, is_along_k=left[0].along_k or right[0].along_k))

        def multiply(step: Atom) -> None:
            """Adds the products of so many k as lie together in a strip."""
            rows, columns = self._taken(left, layout, shape, 0, step), self._taken(right, layout, shape, 1, step)
            for of_rows, of_columns in zip(rows, columns, strict=True):
                for row, column in in_turns:
                    add_product(self, of_rows[row], of_columns[column], totals[row, column])

        depth = s.args[0].type.shape[1]
        steps = depth // left[0].lanes
        if len(totals) * depth <= _WRITTEN_OUT:
            for step in range(steps):  # whose places in a strip are numbers, or the same in all turns of the loop
                multiply(word(step))
        else:
            multiply(self.for_(word(0), word(steps), word(1)))
            self.end()
        return Shared(shape, layout, {r: self.get(total) for r, total in totals.items()})

    def _taken(self, factor: tuple[Strip, Atom], layout: TileLayout, shape: tuple[int, ...], axis: int, step: Atom) -> Iterator[list[Atom]]:
        """What a lane has of a factor at each k of a step, by register along an axis of the sums."""
        (strip, first), m, lanes = factor, self.m, factor[0].lanes
        offsets = layout.offsets(shape, axis)
        if strip.along_k:
            found = [self._at(strip, at) for at in self._rows(factor, layout, shape, axis, step)]
            yield from ([elements[k] for elements in found] for k in range(lanes))
            return
        begin = m("add", first, m("shr", self.element(layout, shape, axis, 0), lanes.bit_length() - 1))
        before = 0
        if isinstance(step, Const):
            before = step.bits * lanes * strip.stride
        else:
            begin = m("add", begin, m("mul", step, strip.stride))
        for k in range(lanes):
            places = [before + k * strip.stride + offset for offset in offsets[::lanes]]
            yield [a for place in places for a in self._at(strip, m("add", begin, place // lanes) if place else begin)]

    def _rows(self, factor: tuple[Strip, Atom], layout: TileLayout, shape: tuple[int, ...], axis: int, step: Atom) -> Iterator[Atom]:
        """Where the groups of a lane's rows lie. A multiple of eight rows further the swizzle is the same, and so the address but for a number."""
        (strip, first), m = factor, self.m
        apart, begins = strip.across, dict[int, tuple[int, Atom]]()
        for register, row in enumerate(layout.offsets(shape, axis)):
            if row % GROUPS not in begins:
                begins[row % GROUPS] = row, m("add", first, self._group(strip, self.element(layout, shape, axis, register), step))
            begin, at = begins[row % GROUPS]
            yield m("add", at, (row - begin) * apart) if row > begin else at

    def _at(self, strip: Strip, place: Atom) -> list[Atom]:
        """The elements of a group."""
        return [self.load(strip.memory, (place, word(lane))) for lane in range(strip.lanes)]
