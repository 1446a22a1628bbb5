"""Which invocations race: the accesses of each element that can still race, and whether a barrier orders two of them.

Two accesses of one element by different invocations race where one of them is a plain write and nothing orders the two. A barrier orders the invocations
of a workgroup, a grid barrier all, and an atomic or fence that acquires orders whatever came before the release that it reads from (`edges`). These are no
races: atomics with atomics, plain reads with atomics, and writes of the value that another has written.

Time is counted in moments: each statement that accesses memory, and each barrier, is one. For each element two accesses of each kind are kept, which is
enough. They are of different workgroups where there are such, since one of them then races with any later access. Otherwise they are the latest access
of the workgroup and one of another invocation since the workgroup's last barrier.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

import numpy as np

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.interpret.invocations import apart, element_text, invocation_text, workgroup_text
from vyre_py.ir.language.errors import Diagnostic, RaceError
from vyre_py.ir.language.nodes import Memory
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.rules import finding
from vyre_py.ir.language.types import Array

__all__ = ["AGAINST", "AccessKind", "History", "Race", "Touch"]


class AccessKind(Enum):
    """What is done to an element; the value says it of an invocation, or of the workgroup of a Program of tiles, which counts as one."""

    READ = "reads"
    WRITE = "writes"
    ATOMIC = "changes"
    COPY = "is copying into"  # until its invocation waits for it


# What each kind of access races with.
AGAINST: Final[Mapping[AccessKind, tuple[AccessKind, ...]]] = {
    AccessKind.READ: (AccessKind.WRITE,),
    AccessKind.WRITE: (AccessKind.READ, AccessKind.WRITE, AccessKind.ATOMIC),
    AccessKind.ATOMIC: (AccessKind.WRITE,),
}


_APART: Final = (
    "use atomics, give each workgroup elements of its own, or part the work by b.grid_barrier() or a second launch; an atomic that acquires what another "
    "released orders two workgroups"
)
_APART_IN_TILES: Final = (
    "let each workgroup store to elements of its own, add to them by tile_atomic_add (in Python z.atomic_add((i, j), x)), or part the work by a second launch"
)


@dataclass(frozen=True, slots=True)
class Touch:
    """One statement's accesses to a memory: the elements touched, the invocation that touches each, when its workgroup was last at a barrier, the moment
    before which all is ordered before it, and the moment it is now."""

    at: Array
    who: Array
    since: Array
    after: Array
    now: int

    def only(self, chosen: Array) -> Touch:
        """Those of some invocations."""
        return Touch(self.at[chosen], self.who[chosen], self.since[chosen], self.after[chosen], self.now)


class History:
    """The accesses of one kind to each element of a memory, two of them: by whom, and when; a moment before all others stands for none."""

    def __init__(self, elements: int) -> None:
        self.who = np.zeros((2, elements), np.int64)
        self.when = np.full((2, elements), -1, np.int64)

    def racing(self, touch: Touch, number: int) -> Array:
        """Whether access `number` of each element is one that nothing orders before this of another invocation."""
        who, when = self._kept(number, touch.at)
        unordered = (when >= touch.after) & (apart(who, touch.who) | (when >= touch.since))
        found: Array = unordered & (who != touch.who)
        return found

    def add(self, touch: Touch) -> None:
        """Takes accesses up. Of several to one element each turn takes one or two, until none is left that changes an answer."""
        while touch.at.size:
            (first, when_first), (second, when_second) = self._kept(0, touch.at), self._kept(1, touch.at)
            known, full = when_first >= touch.after, when_second >= touch.after
            decided = full & apart(first, second)
            elsewhere = apart(first, touch.who)
            over = ~elsewhere & (when_first < touch.since)
            anew = ~decided & (~known | over)
            beside = ~decided & ~anew & (elsewhere | (~full & (first != touch.who)))
            self._put(0, touch.only(anew))
            self.when[1][touch.at[anew]] = -1
            self._put(1, touch.only(beside))
            touch = touch.only(anew | beside)

    def _kept(self, number: int, at: Array) -> tuple[Array, Array]:
        return self.who[number].take(at), self.when[number].take(at)

    def _put(self, number: int, touch: Touch) -> None:
        """Makes these access `number` of their elements; of several to one element the first stays, since NumPy writes in order."""
        self.who[number][touch.at[::-1]] = touch.who[::-1]
        self.when[number][touch.at] = touch.now


@dataclass(frozen=True, slots=True)
class Race:
    """Two accesses that nothing orders: of an element, given by its number in the memory or in the workgroup's share of it, what each does, by whom, and
    the index of its statement; the later one first."""

    memory: Memory
    extents: tuple[int, ...]
    element: int
    does: tuple[AccessKind, AccessKind]
    who: tuple[int, int]
    statements: tuple[int, int]

    def error(self, program: Program, groups: tuple[int, int, int]) -> RaceError:
        """The finding, at the place of the later access; and one at the place of the earlier, where that is another statement."""
        element = element_text(self.memory, self.extents, self.element)
        group, other = (workgroup_text(who, groups) for who in self.who)
        if program.of_tiles:
            return self._error_in_tiles(program, element, group, other)
        later, earlier = (invocation_text(who, program.workgroup) for who in self.who)
        shared = group == other
        of_other = "" if shared else f" of workgroup {other}"
        does, did = self.does
        between = "without a barrier between them" if shared else "and nothing orders two workgroups"
        if did is AccessKind.COPY:
            between = "and has not waited for that"
        said = f"{element}: invocation {later} of workgroup {group} {does.value} it, invocation {earlier}{of_other} {did.value} it, {between}"
        return self._found(program, said, self._help(shared), f"invocation {earlier}{of_other} {did.value} {element}")

    def _error_in_tiles(self, program: Program, element: str, group: str, other: str) -> RaceError:
        """The same for a Program of tiles, whose workgroups are not made of invocations."""
        does, did = [kind.value for kind in self.does]
        said = f"{element}: workgroup {group} {does} it, workgroup {other} {did} it, and nothing orders two workgroups"
        return self._found(program, said, _APART_IN_TILES, f"workgroup {other} {did} {element}")

    def _found(self, program: Program, said: str, help: str, earlier: str) -> RaceError:
        found = [finding("R101", said, program.place(self.statements[0]), help)]
        if self.statements[0] != self.statements[1]:
            found.append(Diagnostic("R101", f"the earlier of the two: {earlier} here", program.place(self.statements[1])))
        return RaceError(found)

    def _help(self, shared: bool) -> str:
        if self.does[1] is AccessKind.COPY:
            return "wait for the copy first, b.copy_wait(0), and then put b.barrier() where others touch what it wrote (in text: copy_wait 0; barrier)"
        if not shared:
            return _APART
        if self.statements[0] == self.statements[1]:
            return "let one invocation write it, use an atomic, or put b.barrier() into the loop around it (in text: barrier)"
        if self.statements[0] < self.statements[1]:
            return "put b.barrier() between a turn of the loop and the next (in text: barrier)"
        return "put b.barrier() between them (in text: barrier); what many add to, an atomic adds to"
