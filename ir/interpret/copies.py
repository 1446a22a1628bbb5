"""Copies into workgroup memory that are in flight, as a machine that watches keeps them: from where they begin to where their invocation waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.nodes import Memory
from vyre_py.ir.language.types import Array

__all__ = ["Copies", "Copy"]

# A loop may begin copies without end, and wait for none: beyond so many records those of a statement are joined.
_MOST_APART: Final = 64


@dataclass(frozen=True, slots=True)
class Copy:
    """The copies that one execution of a statement began: the lanes, the group that each is in, and the element that each writes."""

    statement: int
    memory: Memory
    lanes: Array
    groups: Array
    at: Array

    def only(self, chosen: Array) -> Copy:
        """Those of some lanes."""
        return replace(self, lanes=self.lanes[chosen], groups=self.groups[chosen], at=self.at[chosen])


def _joined(copies: list[Copy]) -> Copy:
    """A statement's copies as one: of those of one lane to one element the last, which is waited for last."""
    lanes, groups, at = (np.concatenate([getattr(copy, name) for copy in copies])[::-1] for name in ("lanes", "groups", "at"))
    _, kept = np.unique(np.stack([lanes, at]), axis=1, return_index=True)
    return replace(copies[0], lanes=lanes[kept], groups=groups[kept], at=at[kept])


class Copies:
    """All that is in flight in a batch of so many lanes."""

    def __init__(self, lanes: int) -> None:
        self._committed = np.zeros(lanes, np.int64)  # how many groups each lane has
        self._flying: list[Copy] = []

    def begin(self, statement: int, memory: Memory, lanes: Array, at: Array) -> None:
        """Takes copies up."""
        self._flying.append(Copy(statement, memory, lanes, self._committed[lanes], at))
        if len(self._flying) > _MOST_APART:
            by_statement: dict[tuple[int, Memory], list[Copy]] = {}
            for copy in self._flying:
                by_statement.setdefault((copy.statement, copy.memory), []).append(copy)
            self._flying = list(map(_joined, by_statement.values()))

    def commit(self, active: Array) -> None:
        """The active lanes make a group of what they have begun."""
        self._committed[active] += 1

    def wait(self, active: Array, groups: int) -> Iterator[Copy]:
        """The copies that the active lanes wait for when so many groups may still be in flight, which then are no more."""
        flying, self._flying = self._flying, []
        for copy in flying:
            done = active[copy.lanes] & ((groups == 0) | (copy.groups < self._committed[copy.lanes] - groups))
            if done.any():
                yield copy.only(done)
            if not done.all():
                self._flying.append(copy.only(~done))

    def touched(self, memory: Memory, at: Array) -> tuple[int, int, int] | None:
        """Where among some elements of a memory is the first that a copy in flight writes, the lane of that copy, and its statement."""
        for copy in self._flying:
            if copy.memory is memory and (touched := np.isin(at, copy.at)).any():
                first = int(np.flatnonzero(touched)[0])
                return first, int(copy.lanes[np.flatnonzero(copy.at == at[first])[0]]), copy.statement
        return None
