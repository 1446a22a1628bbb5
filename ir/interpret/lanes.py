"""Which invocations run together, and where each of them is."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, Final

import numpy as np

from vyre_py.ir.cached import cached_property
from vyre_py.ir.check.facts import has_grid_barrier
from vyre_py.ir.interpret.arguments import Arguments
from vyre_py.ir.interpret.params import InterpretError
from vyre_py.ir.language.dims import WORD_LIMIT, evaluate_extent
from vyre_py.ir.language.nodes import Space
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Array

__all__ = ["Batches", "Lanes"]

# Enough lanes to drown Python's cost per statement, few enough for a dozen arrays to stay in the cache.
_BATCH_LANES: Final = 1 << 16
_BATCH_BYTES: Final = 1 << 28
# Of a grid that waits for itself, which is one batch: more than any GPU holds at once.
_TOGETHER_LANES: Final = 1 << 22
_TOGETHER_BYTES: Final = 1 << 30


class Lanes:
    """A batch of whole workgroups; lane `w * workgroup invocations + local index` is an invocation of its w-th workgroup. `totals` has, by the index of a
    grid scan, what the workgroups of earlier batches folded to; all batches of a run share it."""

    def __init__(
        self, workgroup: tuple[int, int, int], groups: tuple[int, int, int], first: int, count: int, subgroup: int = 0,
        totals: dict[int, Any] | None = None,
    ) -> None:  # fmt: skip
        self.workgroup = workgroup
        self.subgroup = subgroup
        self.groups = groups
        self.first = first
        self.group_count = count
        self.group_lanes = prod(workgroup)
        self.count = count * self.group_lanes
        self.totals: dict[int, Any] = {} if totals is None else totals
        self._answers: dict[str, Array] = {}

    @cached_property
    def local_index(self) -> Array:
        """Each lane's number in its workgroup."""
        return np.tile(np.arange(self.group_lanes, dtype=np.uint32), self.group_count)

    @cached_property
    def group(self) -> Array:
        """Each lane's workgroup, counted from the batch's first."""
        return np.repeat(np.arange(self.group_count, dtype=np.int64), self.group_lanes)

    def query(self, name: str) -> Array:
        """The answer to a query of the op table, u32."""
        if name not in self._answers:
            self._answers[name] = self._answer(name)
        return self._answers[name]

    def _answer(self, name: str) -> Array:
        if name == "local_index":
            return self.local_index
        if name == "subgroup_lane":
            return self.local_index % np.uint32(self.subgroup)
        if name == "subgroup_id":
            return self.local_index // np.uint32(self.subgroup)
        what, axis_name = name.split(".")
        axis = "xyz".index(axis_name)
        if what == "workgroup_size":
            return np.array([self.workgroup[axis]], np.uint32)
        if what == "num_workgroups":
            return np.array([self.groups[axis]], np.uint32)
        if what == "local_id":
            return self.local_index // np.uint32(prod(self.workgroup[:axis])) % np.uint32(self.workgroup[axis])
        if what == "workgroup_id":
            # Spread from one answer per workgroup: 64-bit division is the slow part.
            numbers = np.arange(self.first, self.first + self.group_count, dtype=np.int64)
            places = numbers // prod(self.groups[:axis]) % self.groups[axis]
            return np.repeat(places.astype(np.uint32), self.group_lanes)
        if what == "global_id":
            return self.query(f"workgroup_id.{axis_name}") * np.uint32(self.workgroup[axis]) + self.query(f"local_id.{axis_name}")
        raise InterpretError(f"unknown query {name}")


def _invocations(program: Program) -> tuple[int, int, int]:
    """The size of a workgroup; for a Program of tiles one lane stands for it."""
    return (1, 1, 1) if program.of_tiles else program.workgroup


class Batches:
    """The whole grid, batch by batch; in one batch where it has a barrier, so that all workgroups reach it before any passes it.

    Raises InterpretError for a grid of 2^32 or more invocations along an axis, and for one with a barrier that is too large for a batch.
    """

    def __init__(self, program: Program, arguments: Arguments) -> None:
        self.workgroup, self.subgroup = _invocations(program), program.subgroup
        extents = [arguments.size(extent, evaluate_extent) for extent in program.grid.extents]
        if program.grid.over:
            extents = [-(-extent // size) for extent, size in zip(extents, self.workgroup, strict=True)]
        self.groups = (extents[0], extents[1], extents[2])
        if any(groups * size >= WORD_LIMIT for groups, size in zip(self.groups, self.workgroup, strict=True)):
            raise InterpretError(f"a grid of {self.groups} workgroups of {self.workgroup} has 2^32 or more invocations along an axis")
        group_lanes = prod(self.workgroup)
        group_bytes = 1 + sum(
            prod(arguments.extents[m]) * m.type.size_bytes * (group_lanes if m.space is Space.PRIVATE else 1)
            for m in program.memories
            if m.space in (Space.PRIVATE, Space.WORKGROUP)
        )
        group_bytes += sum([prod(s.result.type.shape) * s.result.type.size_bytes for s in program.body if s.result is not None and s.result.type.is_tile])
        self.at_once = max(1, min(_BATCH_LANES // group_lanes, _BATCH_BYTES // group_bytes))
        if has_grid_barrier(program):
            self.at_once = max(1, min(_TOGETHER_LANES // group_lanes, _TOGETHER_BYTES // group_bytes))
            if prod(self.groups) > self.at_once:
                raise InterpretError(f"a grid of {prod(self.groups)} workgroups cannot wait for itself: at most {self.at_once} of them run at once")

    def __iter__(self) -> Iterator[Lanes]:
        total, totals = prod(self.groups), dict[int, Any]()
        for first in range(0, total, self.at_once):
            yield Lanes(self.workgroup, self.groups, first, min(self.at_once, total - first), self.subgroup, totals)
