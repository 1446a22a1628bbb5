"""Values that later regions compute again, from workgroup arrays in which nothing has changed since, rather than have them kept.

    let a = c[0, t] + c[1, t]             a is computed anew from c, where nothing has written to c by then
    barrier                       ->      or the region itself writes to nothing of c but to elements [., t],
    d[t] = a                              which no other invocation touches

That takes no more time than to load what was kept, none to store it, and leaves the cache to the arrays.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from vyre_py.ir.check.uniformity import Uniformity
from vyre_py.ir.language.effects import Effect, any_of
from vyre_py.ir.language.nodes import (
    Atom,
    Atomic,
    Barrier,
    Break,
    Continue,
    Else,
    End,
    For,
    Get,
    If,
    Let,
    Load,
    Loop,
    Memory,
    MemoryStatement,
    Return,
    Set,
    Space,
    Statement,
    Store,
    Value,
    Var,
)
from vyre_py.ir.language.op import Level
from vyre_py.ir.language.program import Program
from vyre_py.lowering.llvm.cpu.plan.regions import Plan, places_of

__all__ = ["compute_again"]

# What may be computed again, of no more statements than these a value, and these a value of all that a region imports.
_SIMPLE: Final = frozenset({"add", "sub", "shl", "shr", "and", "or", "xor", "min", "max", "lt", "le", "gt", "ge", "eq", "ne"})
_MOST: Final = 64
_MOST_EACH: Final = 3
_WRITES: Final = any_of(Effect.WRITES)
# Of other kinds of statements nothing is known here: they may write to arrays in some way of their own.
_PLAIN_KINDS: Final = (Let, Load, Store, Var, Get, Set, If, Else, End, For, Loop, Break, Continue, Return, Barrier, Atomic)


class _Again:
    """What can be computed again, and from what."""

    def __init__(self, plan: Plan, program: Program, uniformity: Uniformity, proven: Sequence[int]) -> None:
        self.program, self.uniformity, self.proven = program, uniformity, proven
        self.home = [-1] * len(program.body)  # the first statement of each one's region, -1 for the workgroup's own
        for start, region in plan.regions.items():
            self.home[start : region.stop] = [start] * (region.stop - start)
        closed = accumulate([s.opens - isinstance(s, End) for s in program.body])
        self.depth = [depth - s.opens for depth, s in zip(closed, program.body, strict=True)]
        self.places = places_of(program.body).keys() | {s.bound.id for s in program.body if isinstance(s, Let) and s.op.is_query}
        self.made = {s.result.id: index for index, s in enumerate(program.body) if s.result is not None}
        # Statement by statement, what has to be computed for a value, which is all free of effects; of other values nothing is here.
        self.needs: dict[int, frozenset[int]] = {}
        self.written: dict[Memory, list[int]] = {}
        self.own = {s.bound.id for s in program.body if isinstance(s, Let) and s.op.name == "local_id.x" and program.workgroup[1:] == (1, 1)}
        self._found: dict[tuple[Memory, int], frozenset[Atom | None]] = {}
        for index, s in enumerate(program.body):
            if isinstance(s, MemoryStatement) and _WRITES[type(s)]:
                self.written.setdefault(s.memory, []).append(index)
            if self.home[index] >= 0 and not self.depth[index] and (needs := self._needs(index, s)) is not None:
                self.needs[index] = needs

    def _needs(self, index: int, s: Statement) -> frozenset[int] | None:
        """The statements that a value takes, its own one last; None where it cannot be computed again."""
        again = isinstance(s, Let) and s.op.name in _SIMPLE
        if isinstance(s, Load):
            again = s.memory.space is Space.WORKGROUP and self.proven[index] == (1 << s.memory.rank) - 1
        if not again or s.result is None or self.uniformity.values[s.result.id] <= Level.WORKGROUP or s.result.id in self.places:
            return None
        found = {index}
        for atom in s.args:
            if not isinstance(atom, Value) or atom.id in self.places or self.home[self.made[atom.id]] < 0:
                continue
            needs = self.needs.get(self.made[atom.id])
            if needs is None:
                return None
            found |= needs
        return frozenset(found) if len(found) <= _MOST else None

    def holds(self, value: int, start: int, stop: int) -> frozenset[int] | None:
        """What a region has to compute for a value; None where an array has changed by then, but for the invocation's own elements."""
        needs = self.needs.get(self.made[value])
        if needs is None or self.depth[start]:
            return None
        for index in needs:
            s = self.program.body[index]
            if isinstance(s, Load) and (self._writers(s.memory, self.home[index], start) or not self._lasts(s.memory, start, stop) <= {s.indices[-1]}):
                return None
        return needs

    def _writers(self, memory: Memory, start: int, stop: int) -> Sequence[int]:
        found = self.written.get(memory, [])
        return found[bisect_left(found, start) : bisect_left(found, stop)]

    def _lasts(self, memory: Memory, start: int, stop: int) -> frozenset[Atom | None]:
        """The last indices of what a region writes to an array, where they are the invocation's number, so that it touches its own elements; None of others."""
        if (memory, start) not in self._found:
            writers = [self.program.body[writer] for writer in self._writers(memory, start, stop)]
            self._found[memory, start] = frozenset([s.indices[-1] if isinstance(s, Store) and self._is_own(s.indices[-1]) else None for s in writers])
        return self._found[memory, start]

    def _is_own(self, atom: Atom) -> bool:
        return isinstance(atom, Value) and atom.id in self.own


def compute_again(plan: Plan, program: Program, uniformity: Uniformity, proven: Sequence[int]) -> Plan:
    """A plan in which regions compute values again, where few statements do for all that one imports; bits of `proven` say which axes of accesses need no
    check."""
    if not plan.has_barriers or not all(isinstance(s, _PLAIN_KINDS) for s in program.body):
        return plan
    again = _Again(plan, program, uniformity, proven)
    wanted = dict[int, dict[int, frozenset[int]]]()
    refused = {a.id for s, here in zip(program.body, again.home, strict=True) if here < 0 for a in s.args if isinstance(a, Value)}
    for region in plan.regions.values():
        for value in region.imports:
            needs = again.holds(value, region.start, region.stop)
            if needs is None:
                refused.add(value)
            else:
                wanted.setdefault(region.start, {})[value] = needs
    for found in wanted.values():
        taken = {value: needs for value, needs in found.items() if value not in refused}
        every = frozenset().union(*taken.values())
        if len(every) > _MOST_EACH * len(taken) or not any(isinstance(program.body[index], Load) for index in every):
            refused.update(taken)
    kept = [needs for found in wanted.values() for value, needs in found.items() if value not in refused]
    made = {index: value for value, index in again.made.items()}
    found_again = {made[index]: index for index in sorted(frozenset().union(*kept))}
    return replace(plan, crossing=plan.crossing - found_again.keys(), again=found_again)
