"""One memory as a batch of invocations sees it: bounds rules, loads, stores and atomics."""

from __future__ import annotations

from math import prod
from typing import Self

import numpy as np

from vyre_py.ir.evaluate.arrays import aligned
from vyre_py.ir.interpret import atomics
from vyre_py.ir.interpret.arguments import Arguments, axis_of_components, storage_dtype
from vyre_py.ir.interpret.lanes import Lanes
from vyre_py.ir.language.nodes import Memory, Space
from vyre_py.ir.language.op import AtomicOp
from vyre_py.ir.language.types import Array, Kind

__all__ = ["Bank", "of_lanes"]


def of_lanes(lanes: Array, values: Array) -> Array:
    """The values of these lanes, from an array over all lanes or one element that stands for all."""
    return np.broadcast_to(values, (lanes.size, *values.shape[1:])) if len(values) == 1 else values[lanes]


class Bank:
    """The elements of one memory, flat (those of vectors with an axis of components), each workgroup's or invocation's own share from
    `base[lane]` on.

    Indices are arrays of i32, u32, i64 or u64, one per axis, over all lanes or of one element that stands for all.
    """

    def __init__(self, memory: Memory, arguments: Arguments, lanes: Lanes) -> None:
        self.memory = memory
        self.extents = arguments.extents[memory]
        self.base: Array | None = None
        if memory in arguments.flat:
            self.flat = arguments.flat[memory]
            return
        share = prod(self.extents)
        private = memory.space is Space.PRIVATE
        count = share * (lanes.count if private else lanes.group_count)
        self.flat = np.zeros((count, *axis_of_components(memory.type)), storage_dtype(memory.type))
        self.base = (np.arange(lanes.count, dtype=np.int64) if private else lanes.group) * share

    @classmethod
    def of_each(cls, memory: Memory, arguments: Arguments, lanes: Lanes, values: Array) -> Self:
        """A memory of one element, of which each lane has its own: the one in `values`, or the only one there."""
        made = cls(memory, arguments, lanes)
        made.flat = of_lanes(np.arange(lanes.count), values).astype(storage_dtype(memory.type), copy=memory.access.writes)
        made.base = np.arange(lanes.count, dtype=np.int64)
        return made

    def locate(self, indices: tuple[Array, ...]) -> tuple[Array, Array]:
        """Where the elements lie (anywhere at all for those outside), and which are inside, each axis by itself."""
        offset: Array = np.zeros(1, np.int64)
        inside: Array = np.ones(1, np.bool_)
        for index, extent in zip(indices, self.extents, strict=True):
            inside = inside & (index < extent)
            if index.dtype.kind == "i":
                inside = inside & (index >= 0)
            # As i64, since NumPy adds i64 and u64 in floats; what wraps belongs to lanes outside, as a whole memory fits 48 bits.
            offset = offset * extent + index.astype(np.int64, copy=False)
        return (offset if self.base is None else offset + self.base), inside

    def load(self, indices: tuple[Array, ...]) -> Array:
        """The elements, bits kept; zero outside."""
        offset, inside = self.locate(indices)
        if self.flat.size == 0:
            return np.zeros((1, *self.flat.shape[1:]), self.memory.type.dtype)
        found: Array = self.flat.take(offset, axis=0, mode="clip")
        if not inside.all():
            inside, found = aligned(inside, found)
            found = np.where(inside, found, found.dtype.type(0))
        return found != 0 if self.memory.type.kind is Kind.BOOL else found

    def store(self, indices: tuple[Array, ...], value: Array, active: Array) -> None:
        """Writes the elements of active lanes, bits kept; drops those outside. Of several lanes at one element one wins."""
        offset, inside = self.locate(indices)
        lanes = np.flatnonzero(active & inside)
        if lanes.size:
            self.flat[of_lanes(lanes, offset)] = of_lanes(lanes, value)

    def atomic(self, op: AtomicOp, indices: tuple[Array, ...], operands: tuple[Array, ...], active: Array, wants_old: bool) -> Array:
        """Applies `op` once for each active lane that is inside, lane by lane; the old values, zero where nothing was done
        (and anywhere when `wants_old` is false)."""
        offset, inside = self.locate(indices)
        lanes = np.flatnonzero(active & inside)
        old: Array = np.zeros(active.shape, self.flat.dtype)
        if lanes.size:
            chosen = tuple(of_lanes(lanes, operand) for operand in operands)
            found = atomics.apply(op, self.flat, of_lanes(lanes, offset), chosen, wants_old)
            if found is not None:
                old[lanes] = found
        return old
