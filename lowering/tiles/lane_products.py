"""Products of lanes, in the rewrite of a Program with rings: chains of fused multiply-adds, as a product means them, from strips that were copied ahead.

The warps of a workgroup make a grid over the tile, and the lanes of a warp one of 4 rows by 8 columns over each block. A lane takes 16 bytes of a factor at a
time: the next four along k of each of its rows, or four of its rows at one k, which therefore are neighbours. The lanes that share a row or a column take the
same ones, and the others' lie in other banks, where strips are swizzled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final

from vyre_py.ir.language.nodes import Atom, Tile
from vyre_py.ir.language.program import Program
from vyre_py.ir.math.builder import word
from vyre_py.lowering.tiles.exchange import Shared
from vyre_py.lowering.tiles.products import add_product
from vyre_py.lowering.tiles.rings import GROUPS, RingPlan, RingTooLarge, Strip
from vyre_py.lowering.tiles.tensor import invocations_for
from vyre_py.lowering.tiles.tile_layout import TileLayout
from vyre_py.lowering.tiles.warpgroups import WarpgroupRewrite

__all__ = ["LaneRewrite", "has_products_of_lanes"]

_WRITTEN_OUT: Final = 1024  # products that follow one another without a loop


def has_products_of_lanes(program: Program, memory_bytes: int) -> bool:
    """Whether lanes compute strict products of a Program of tiles from rings, in at most so many bytes of workgroup memory."""
    with suppress(RingTooLarge):
        return bool(RingPlan(program, invocations_for(program, warpgroups=False), memory_bytes, warpgroups=False).of_lanes)
    return False


class LaneRewrite(WarpgroupRewrite):
    """A Program with a plan of its rings, whose products of lanes read strips of these, too."""

    def _product_of_lanes(self, index: int, s: Tile) -> Shared:
        layout, shape, loop = self._layouts.values[s.bound.id], s.bound.type.shape, self._plan.block_of(index)
        acc = self.moved(self.tile_of(s.args[2]), layout)
        self._due.pop(loop)()  # copies of turns to come, into strips that all have done with
        left, right = [self._factor(atom, number) for number, atom in enumerate(s.args[:2])]
        totals = {r: self.var(acc.type, value) for r, value in acc.registers.items()}

        def multiply(step: Atom) -> None:
            """Adds the products of so many k as lie together in a strip."""
            rows, columns = self._taken(left, layout, shape, 0, step), self._taken(right, layout, shape, 1, step)
            for of_rows, of_columns in zip(rows, columns, strict=True):
                for (row, column), total in totals.items():
                    add_product(self, of_rows[row], of_columns[column], total)

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

        def groups(registers: range, unit: int, apart: int, group: Callable[[Atom], Atom]) -> list[list[Atom]]:
            """The groups that hold registers whose place is `unit` elements long. What is a multiple of eight further lies `apart` times as many groups on: the
            swizzle is the same, and so the address but for a number."""
            begins, found = dict[int, tuple[int, Atom]](), list[list[Atom]]()
            for register in registers:
                place = offsets[register] // unit
                if place % GROUPS not in begins:
                    begins[place % GROUPS] = place, m("add", first, group(self.element(layout, shape, axis, register)))
                begin, at = begins[place % GROUPS]
                at = m("add", at, (place - begin) * apart) if place > begin else at
                found.append([self.load(strip.memory, (at, word(lane))) for lane in range(lanes)])
            return found

        if strip.along_k:
            found = groups(range(len(offsets)), 1, min(GROUPS, strip.length // lanes), lambda place: self._group(strip, place, step))
            yield from ([elements[k] for elements in found] for k in range(lanes))
            return
        for k in range(lanes):
            row = m("add", m("mul", step, lanes), k)
            found = groups(range(0, len(offsets), lanes), lanes, strip.rows, partial(self._at_row, strip, row))
            yield [a for elements in found for a in elements]

    def _at_row(self, strip: Strip, row: Atom, place: Atom) -> Atom:
        """The group in which a place of a row lies."""
        return self._group(strip, row, self.m("shr", place, strip.lanes.bit_length() - 1))
