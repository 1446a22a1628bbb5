"""What atomics and fences order between invocations, for the search for races: an edge goes from each release to each acquire that reads from it.

An edge is the moment of its release, and orders whatever came before that moment, of any invocation. So it may order more than it does on a device, where
only what the releasing invocation did or had learnt of comes before it: a race that an edge hides is not found, and no race is found that is none.
"""

from __future__ import annotations

import numpy as np

from vyre_py.ir.language.op import AtomicOp, Scope
from vyre_py.ir.language.types import Array

__all__ = ["Edges", "Released"]

_NEVER = -1
_SEVERAL = -1


class Released:
    """For each element of a memory what reading it by an acquire orders: all before the moment `wide` for everybody, all before `near` for a workgroup,
    the number of which is in `group`; of what several have released near, each takes all."""

    def __init__(self, elements: int) -> None:
        self.wide = np.full(elements, _NEVER, np.int64)
        self.near = np.full(elements, _NEVER, np.int64)
        self.group = np.full(elements, _SEVERAL, np.int64)

    def seen(self, at: Array, group: Array) -> tuple[Array, Array]:
        """What invocations of these workgroups may learn of elements, each for the scope of the device and for that of the workgroup."""
        own = (self.group[at] == group) | (self.group[at] == _SEVERAL)
        near: Array = np.where(own, self.near[at], _NEVER)
        return np.maximum(near, self.wide[at]), near

    def write(self, at: Array, group: Array, wide: Array, near: Array, goes_on: bool) -> None:
        """Atomics write elements, after these moments. A read-modify-write hands on what was released to the element before; a store does not."""
        if not goes_on:
            self.wide[at] = self.near[at] = _NEVER
        others = (self.near[at] != _NEVER) & (self.group[at] != group)
        self.group[at] = group
        self.group[at[others | (self.group[at] != group)]] = _SEVERAL
        np.maximum.at(self.wide, at, wide)
        np.maximum.at(self.near, at, np.maximum(near, wide))


class Edges:
    """For each lane of a batch, `group` of which is the number of its workgroup: the moment before which all is ordered before whatever it does next
    (`after`), what it has read and a fence may yet acquire, and the moments of its fences. The two rows of each are for the device and the workgroup."""

    def __init__(self, group: Array) -> None:
        self.group = group
        self.after = np.zeros(group.size, np.int64)
        self._read = np.full((2, group.size), _NEVER, np.int64)
        self._fenced = np.full((2, group.size), _NEVER, np.int64)

    def fence(self, scope: Scope, lanes: Array, now: int) -> None:
        """These lanes come to a fence."""
        near = scope is Scope.WORKGROUP
        self.after[lanes] = np.maximum(self.after[lanes], self._read[int(near), lanes])
        self._fenced[int(near) :, lanes] = now

    def barrier(self, arrived: Array) -> None:
        """Workgroups come to a barrier whole: what one of their lanes has learnt all have."""
        of_groups = self.after.reshape(arrived.size, -1)
        of_groups[arrived] = of_groups[arrived].max(axis=1, keepdims=True)

    def atomic(self, op: AtomicOp, released: Released, at: Array, lanes: Array, now: int) -> None:
        """These lanes do an atomic at these elements, one lane after another."""
        order, group = op.order, self.group[lanes]
        wide, near = released.seen(at, group)
        if op.writes:
            fenced_wide, fenced_near = self._fenced[:, lanes]
            all_now = np.full(lanes.size, now)
            of_device = order.releases and order.scope is Scope.DEVICE
            released.write(at, group, all_now if of_device else fenced_wide, all_now if order.releases else fenced_near, op.reads)
        if op.reads:
            later = np.ones(at.size, np.bool_)  # of several at one element all but the first, which may read what any of them has just written
            later[np.unique(at, return_index=True)[1]] = False
            after_wide, after_near = released.seen(at, group)
            wide, near = np.where(later, after_wide, wide), np.where(later, after_near, near)
            self._read[:, lanes] = np.maximum(self._read[:, lanes], (wide, near))
            if order.acquires:
                self.after[lanes] = np.maximum(self.after[lanes], wide if order.scope is Scope.DEVICE else near)
