"""What asserts and prints say in a run of the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vyre_py.ir.interpret.lanes import Lanes
from vyre_py.ir.language.nodes import REPORT_HEAD_WORDS, Assert, Atom, ReportStatement
from vyre_py.ir.language.types import Array, Kind, Type
from vyre_py.ir.text.messages import words_of

__all__ = ["Reports", "Said"]


class Said(NamedTuple):
    """What one invocation said: the statement's message, the invocation's number in the grid and global id (x, y, z), and the values in words of 32 bits,
    low ones first."""

    message: str
    invocation: int
    global_id: tuple[int, ...]
    words: tuple[int, ...]


class Reports:
    """What is said in a run, with room for so many words of prints (None: any number), of which a print takes `REPORT_HEAD_WORDS` and those of its values.

    Attributes: `extents` along x, y and z, beyond which invocations are not heard (None: all are); `failed`, the first assert that failed in the invocation
    of the least number; `said`, the prints as they came; `dropped`, how many found no room.
    """

    def __init__(self, room: int | None = None, extents: tuple[int, ...] | None = None) -> None:
        self.extents = extents
        self.failed: Said | None = None
        self.dropped = 0
        self._room = room
        self.said: list[Said] = []

    @property
    def printed(self) -> list[Said]:
        """The prints in order of invocations, those of one in its own order."""
        return sorted(self.said, key=lambda said: said.invocation)

    def take(self, s: ReportStatement, values: Sequence[Array], mask: Array, lanes: Lanes) -> None:
        """Takes up what the lanes in a mask say."""
        if self.extents is not None:
            for axis, extent in zip("xyz", self.extents, strict=True):
                mask = mask & (lanes.query(f"global_id.{axis}") < extent)
        at = np.flatnonzero(mask)
        if not isinstance(s, Assert):
            self.said += self._said(s, values, at[: self._fitting(s.values, len(at))], lanes)
        elif len(at):
            (first,) = self._said(s, values, at[:1], lanes)
            if self.failed is None or first.invocation < self.failed.invocation:
                self.failed = first

    def _fitting(self, values: Sequence[Atom], count: int) -> int:
        """How many of so many prints there is room for; after one that there is none for, there is none for others."""
        if self._room is None:
            return count
        size = REPORT_HEAD_WORDS + sum([words_of(value.type) for value in values])
        fitting = min(count, self._room // size)
        self._room = 0 if fitting < count else self._room - fitting * size
        self.dropped += count - fitting
        return fitting

    def _said(self, s: ReportStatement, values: Sequence[Array], at: Array, lanes: Lanes) -> list[Said]:
        """What lanes say, in their order."""
        ids = np.stack([lanes.query(f"global_id.{axis}")[at] for axis in "xyz"], axis=1)
        columns = [_words(atom.type, value if len(value) == 1 else value[at], len(at)) for atom, value in zip(s.values, values, strict=True)]
        words = np.concatenate([np.zeros((len(at), 0), np.uint32), *columns], axis=1)
        numbers = at + lanes.first * lanes.group_lanes
        return [Said(s.message, *row) for row in zip(numbers.tolist(), map(tuple, ids.tolist()), map(tuple, words.tolist()), strict=True)]


def _words(type_: Type, value: Array, count: int) -> Array:
    """The words of a value of so many lanes, or of one that they share, a row for each lane."""
    if type_.kind is Kind.BOOL:
        bits = value.astype(np.uint32)
    else:
        bits = np.ascontiguousarray(value).view(f"<u{value.itemsize}")
        if type_.is_float:
            bits = np.where(np.isnan(value), bits.dtype.type(type_.canonical_nan), bits)
    bits = bits.reshape(len(value), type_.lanes)
    words = bits.view("<u4") if bits.itemsize > 4 else bits.astype(np.uint32)
    return np.broadcast_to(words, (count, words.shape[1]))
