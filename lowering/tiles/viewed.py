"""The rewrite of a Program of tiles over views of its buffers: groups of neighbours along the last axis, which an invocation loads and stores by one access.

It is for memory that begins on a multiple of the group's size, and rows that are as long as some of these (`lowering.views`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import gcd
from typing import Any, Final

from vyre_py.ir.language.dims import DimConst, dim_op
from vyre_py.ir.language.nodes import (
    Access,
    Atom,
    Load,
    Memory,
    MemoryStatement,
    Space,
    Tile,
    TileLoad,
    TileMemoryStatement,
    TileStore,
    Value,
)
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u32
from vyre_py.ir.math.builder import word
from vyre_py.lowering.rows import WIDEST_BYTES
from vyre_py.lowering.tiles.exchange import outside
from vyre_py.lowering.tiles.rewrite import Rewrite
from vyre_py.lowering.tiles.tile_layout import Multiples, TileLayout, invocation_grid

__all__ = ["ViewedRewrite", "over_views", "splits", "view_of"]

# What lays elements out by itself, one after another: products and scans.
_BY_ELEMENT: Final = ("mma", "inclusive", "exclusive")


class ViewedRewrite(Rewrite):
    """A Program in which views stand for some buffers: `see` says how many elements the groups of each have. What touches these is loads, and stores of
    tiles."""

    _views: Mapping[Memory, Memory] = {}

    def see(self, lanes: Mapping[Memory, int]) -> None:
        """Takes views in place of these buffers."""
        self._views = {memory: view_of(memory, several) for memory, several in lanes.items()}
        self._given = Multiples(self.program.body)

    def lanes_of(self, memory: Memory) -> int:
        """How many elements the groups of a buffer have; 1 without a view."""
        extent = self._views[memory].shape[-1] if memory in self._views else DimConst(1)
        assert isinstance(extent, DimConst)  # of a view
        return extent.value

    def indices_along(
        self, s: TileMemoryStatement, memory_axis: int, offset: Atom, layout: TileLayout, axis: int, register: int, *, once: bool, whole: bool
    ) -> tuple[Atom, ...]:
        """The index of a register's element along an axis; two for the last axis of a view, where the registers of a group follow one another."""
        lanes = self.lanes_of(s.memory)
        split = memory_axis == s.memory.rank - 1 and lanes > 1
        if not split or layout.neighbours(s.shape, axis) % lanes or self._given.of(s.indices[memory_axis]) % lanes:
            return super().indices_along(s, memory_axis, offset, layout, axis, register, once=once, whole=whole)
        m, shift, first = self.m, lanes.bit_length() - 1, register - register % lanes
        element = self.element(layout, s.shape, axis, first)
        step: Atom = m("shr", element, shift)
        group: Atom = m("add", m("shr", offset, shift), step if offset.type is u32 else m.cast(step, offset.type))
        if not whole and layout.is_ragged(s.shape, axis, first):
            group = self.where(m("lt", element, word(s.shape[axis])), group, outside(offset.type))
        return group, word(register % lanes)

    def load(self, memory: Memory, indices: tuple[Atom, ...], name: str | None = None) -> Value:
        """result = memory[indices], of what stands for the memory."""
        return super().load(self._views.get(memory, memory), self._split(memory, indices), name)

    def store(self, memory: Memory, indices: tuple[Atom, ...], value: Atom) -> None:
        """memory[indices] = value, of what stands for the memory."""
        super().store(self._views.get(memory, memory), self._split(memory, indices), value)

    def _split(self, memory: Memory, indices: tuple[Atom, ...]) -> tuple[Atom, ...]:
        """The indices of an element of what stands for a memory, out of those of the memory."""
        if memory not in self._views or len(indices) > memory.rank:
            return indices
        (*outer, last), lanes = indices, self.lanes_of(memory)
        return (*outer, self.m("shr", last, lanes.bit_length() - 1), self.m("and", last, lanes - 1))

    def finish(self, places: Any = None) -> Program:
        """The Program, with the views of its buffers in their place."""
        self.memories = [self._views.get(m, m) for m in self.memories]
        return super().finish(places)

    def copy(self, index: int) -> Value | None:
        """Copies old statement `index`; a load of a buffer that has a view is of that."""
        s = self.program.body[index]
        if isinstance(s, Load) and s.memory in self._views:
            made = self.map[s.bound.id] = self.load(s.memory, tuple([self.atom(a) for a in s.args]), self.program.value_names.get(s.bound.id))
            return made
        return super().copy(index)


def over_views(program: Program, target: str, memory_bytes: int, workgroup: tuple[int, int, int] | None, lanes: int) -> Program | None:
    """A Program of invocations as `without_tiles` makes it, over views of the buffers whose elements are touched as tiles, in groups of up to 16 bytes; None
    where nothing would be wider."""
    if any(isinstance(s, Tile) and s.op.name.partition("_")[0] in _BY_ELEMENT for s in program.body):
        return None
    multiples = Multiples(program.body)
    wide = {m: several for m in program.buffers if (several := _together(program, m, multiples)) > 1}
    if not wide:
        return None
    rewrite = ViewedRewrite(program, target, invocation_grid(program, workgroup, width=max(wide.values())), memory_bytes, lanes=lanes)
    rewrite.see(wide)
    return rewrite.run()


def _together(program: Program, memory: Memory, multiples: Multiples) -> int:
    """How many elements of a buffer may be one access of tiles; 1 where some statement keeps them apart."""
    touching = [s for s in program.body if isinstance(s, MemoryStatement) and s.memory is memory]
    tiles = [s for s in touching if isinstance(s, (TileLoad, TileStore)) and s.extents[-1] > 1]
    others = [s for s in touching if not isinstance(s, (TileLoad, TileStore))]
    if memory.space is not Space.BUFFER or not tiles or any(not isinstance(s, Load) or memory.access is not Access.READ for s in others):
        return 1
    several = gcd(WIDEST_BYTES // memory.type.size_bytes, *[gcd(s.extents[-1], multiples.of(s.indices[-1])) for s in tiles])
    return several if splits(memory, several) else 1


def splits(memory: Memory, lanes: int) -> bool:
    """Whether the rows of a buffer may be groups of elements."""
    last = memory.shape[-1]
    return not isinstance(last, DimConst) or last.value % lanes == 0


def view_of(memory: Memory, lanes: int) -> Memory:
    """A buffer, whose last axis becomes one of groups and one of the elements of each."""
    *outer, last = memory.shape
    return replace(memory, shape=(*outer, dim_op("ceil_div", last, DimConst(lanes)), DimConst(lanes)))
