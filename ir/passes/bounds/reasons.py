"""Reasons: which guards and loops prove that an index lies inside. The analysis is asked again without each of them, and what is then no longer known follows
from it. That takes a walk for each: it is there for people who look at a Program, not for compilers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from vyre_py.ir.language.nodes import For, If, MemoryStatement
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes.bounds.prove import inside
from vyre_py.ir.passes.bounds.ranges import Ranges
from vyre_py.ir.passes.bounds.transfer import full

__all__ = ["reasons"]

_MOST_VISITS: Final = 100_000  # of statements, in all walks together
_MOST_TWICE: Final = 20  # accesses that several guards prove, each of which takes a walk for every guard

Axis = tuple[int, int]  # a statement, and an axis of its memory


class _Without(Ranges):
    """The analysis, blind to what some guards and loops say."""

    def __init__(self, program: Program, left_out: Collection[int]) -> None:
        super().__init__(program)
        self._left_out = left_out

    def _guarded(self, index: int, truth: bool) -> None:
        if index not in self._left_out:
            super()._guarded(index, truth)

    def _counted(self, index: int, loop: For) -> None:
        if index in self._left_out:
            self._bind(loop.bound, full(loop.bound.type))
        else:
            super()._counted(index, loop)


def reasons(program: Program) -> Mapping[Axis, tuple[int, ...]]:
    """For the axes whose index is known to lie inside, as `bounds` finds them: the statements, If or For, without which it is not. Nothing but the index
    itself proves those of which none is needed. Where several guards prove the same, the last of them is named. Of a Program that this would take long for
    there are none."""
    guards = [index for index, statement in enumerate(program.body) if isinstance(statement, (If, For))]
    if (len(guards) + 2) * len(program.body) > _MOST_VISITS:
        return {}

    def known(left_out: Collection[int]) -> set[Axis]:
        proven = inside(program, _Without(program, left_out))
        return {(index, axis) for index, bits in enumerate(proven) if bits for axis in range(_rank(program, index)) if bits >> axis & 1}

    found: dict[Axis, list[int]] = {where: [] for where in sorted(known(()))}
    by_itself = known(guards)
    for guard in guards:
        for where in found.keys() - known((guard,)):
            found[where].append(guard)
    twice = [where for where, by in found.items() if not by and where not in by_itself]
    for where in twice[:_MOST_TWICE]:
        left_out: set[int] = set()
        for guard in guards:
            if where in known(left_out | {guard}):
                left_out.add(guard)
        found[where] = [guard for guard in guards if guard not in left_out]
    for where in twice[_MOST_TWICE:]:
        del found[where]
    return {where: tuple(by) for where, by in found.items()}


def _rank(program: Program, index: int) -> int:
    statement = program.body[index]
    return statement.memory.rank if isinstance(statement, MemoryStatement) else 0
