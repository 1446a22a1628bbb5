"""Counted loops: Loops with an induction variable that changes by one in every turn, and a test of it that ends the loop.

Such a Loop can be strip-mined at no cost in a turn: the test compares the induction variable with a nearer bound (`interruptible`).

The test is the condition of an If that only breaks. Each turn executes the test once and the step of the induction variable once, in either order:

* The test first: no statement before it in a turn has a side effect. So a turn that a nearer bound ended can be repeated: it takes the same path, and
  leaves at the same place unless the nearer bound ended it. At a break between test and step the induction variable is not at the bound.
* The step first: no statement behind the test in a turn has a side effect. So the next turn can start where a nearer bound has ended one. The test depends
  on the induction variable only. At a break before the step the induction variable is not at the bound.

No other break stands behind the step, and no continue skips step or test. The bound is known before the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final

from vyre_py.ir.check.facts import definitions, uses
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.effects import Effect, at_most
from vyre_py.ir.language.nodes import (
    Atom,
    Break,
    Const,
    Continue,
    End,
    For,
    Get,
    If,
    Let,
    Loop,
    Region,
    Set,
    Statement,
    Value,
    Variable,
)
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import i32, u32

__all__ = ["Counter", "Counters"]

# What leaves no trace: done again, it does the same. A Var is set anew.
_STRAIGHT: Final = Effect.READS | Effect.GETS | Effect.DECLARES | Effect.NESTS
_TRACELESS: Final = at_most(_STRAIGHT | Effect.BRANCHES | Effect.LEAVES | Effect.RETURNS)
_TRACELESS_STRAIGHT: Final = at_most(_STRAIGHT)

# Comparison, the counter on its left -> the steps with which it comes true in time, whatever the bound. A counter that must pass its bound (gt) may
# never do so; one that meets it (eq), or passes all numbers up to the largest (ge), must.
_STEPS: Final[Mapping[str, tuple[int, ...]]] = {"ge": (1,), "le": (-1,), "eq": (1, -1)}
_MIRRORED: Final[Mapping[str, str]] = {"ge": "le", "le": "ge", "gt": "lt", "lt": "gt", "eq": "eq", "ne": "ne"}


@dataclass(frozen=True, slots=True)
class Counter:
    """How a Loop counts: `variable` changes by `step`, 1 or -1, in every turn, and the loop ends when the comparison of this index says `name`
    (as it would with the variable on its left); its operand `side` is the bound. The step comes before the test if it is `late`."""

    variable: Variable
    step: int
    comparison: int
    name: str
    side: int
    late: bool


@dataclass(slots=True)
class _Turn:
    """The statements of one turn of a Loop, by index: its Sets by variable; `certain`, those that every turn executes unless it leaves earlier; `tests`,
    the certain Ifs that only break; the breaks and the continues of this Loop."""

    sets: dict[Variable, list[int]] = field(default_factory=dict)
    certain: set[int] = field(default_factory=set)
    tests: list[int] = field(default_factory=list)
    breaks: list[int] = field(default_factory=list)
    continues: list[int] = field(default_factory=list)


def _turn(body: Sequence[Statement], opener: int, stop: int) -> _Turn:
    turn = _Turn()
    blocks: list[Statement] = []
    for index in range(opener + 1, stop):
        s = body[index]
        if isinstance(s, End):
            blocks.pop()
            continue
        is_certain = all(isinstance(b, Region) for b in blocks)
        is_own = not any(isinstance(b, (For, Loop)) for b in blocks)
        if s.opens:
            blocks.append(s)
        if isinstance(s, Set):
            turn.sets.setdefault(s.variable, []).append(index)
            if is_certain:
                turn.certain.add(index)
        elif isinstance(s, If) and is_certain and isinstance(body[index + 1], Break) and isinstance(body[index + 2], End):
            turn.tests.append(index)
        elif isinstance(s, Break) and is_own:
            turn.breaks.append(index)
        elif isinstance(s, Continue) and is_own:
            turn.continues.append(index)
    return turn


class Counters:
    """Finds the counters of one Program's Loops."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.body = program.body
        self.definitions = definitions(program)
        self.uses = uses(program)

    def of(self, opener: int) -> Counter | None:
        """The counter of the Loop that the statement of this index opens, None where none is found. No Loop or For is in it but such as turn a known
        number of times."""
        return next(_Search(self, opener, self._program.match[opener]).counters(), None)


class _Search:
    """For the counter of one Loop."""

    def __init__(self, counters: Counters, opener: int, stop: int) -> None:
        self._body, self._definitions, self._uses = counters.body, counters.definitions, counters.uses
        self._opener, self._stop = opener, stop
        self._turn = _turn(self._body, opener, stop)
        # What changes by one: its variable -> the index of the Set, and the step.
        self._steps: dict[Variable, tuple[int, int]] = {}
        for variable, places in self._turn.sets.items():
            if len(places) == 1 and places[0] in self._turn.certain and (step := self._step(places[0], variable)):
                self._steps[variable] = places[0], step
        self._becomes = {self._body[place].args[0]: variable for variable, (place, _) in self._steps.items()}

    def counters(self) -> Iterator[Counter]:
        """All that there are."""
        for test in self._turn.tests:
            condition = self._body[test].args[0]
            for index, name in self._comparisons(condition):
                left, right = self._body[index].args
                yield from self._counter(test, index, name, left, right, 1)
                yield from self._counter(test, index, _MIRRORED[name], right, left, 0)

    def _counter(self, test: int, index: int, name: str, counted: Atom, bound: Atom, side: int) -> Iterator[Counter]:
        variable = self._counted(counted, test)
        if variable is None or self._inside(bound) is not None:
            return
        place, step = self._steps[variable]
        alone = self._body[index].result is self._body[test].args[0]
        if step in _STEPS.get(name, ()) and self._may_stop(test, place, alone=alone):
            yield Counter(variable, step, index, name, side, late=place < test)

    def _inside(self, atom: Atom) -> int | None:
        """The index of the statement of a turn that gives this."""
        index = self._definitions[atom.id] if isinstance(atom, Value) else self._opener
        return index if index > self._opener else None

    def _let(self, atom: Atom) -> Let | None:
        index = self._inside(atom)
        s = None if index is None else self._body[index]
        return s if isinstance(s, Let) else None

    def _read(self, atom: Atom) -> tuple[int, Variable] | None:
        """Where a turn reads this from a variable, and the variable."""
        index = self._inside(atom)
        s = None if index is None else self._body[index]
        return (index, s.variable) if index is not None and isinstance(s, Get) else None

    def _step(self, place: int, variable: Variable) -> int:
        """By how much this Set changes its variable, if that is 1 or -1, else 0."""
        change = self._let(self._body[place].args[0])
        if change is None or variable.type not in (u32, i32) or change.op.name not in ("add", "sub"):
            return 0
        before, by = change.args if change.op.name == "sub" or isinstance(change.args[1], Const) else change.args[::-1]
        read = self._read(before)
        if read is None or read[0] > place or read[1] is not variable or not isinstance(by, Const):
            return 0
        amount = by.bits if change.op.name == "add" else -by.bits
        return {1: 1, 0xFFFFFFFF: -1}.get(amount & 0xFFFFFFFF, 0)

    def _comparisons(self, condition: Atom) -> Iterator[tuple[int, str]]:
        """The comparisons, by index, each of which makes the condition true, and what they say when they do so."""
        pending = [(condition, True)]
        while pending:
            atom, straight = pending.pop()
            let = self._let(atom)
            if let is None or self._uses[let.bound.id] != 1:
                continue
            if let.op.name == "logical_not":
                pending.append((let.args[0], not straight))
            elif let.op.name == ("logical_or" if straight else "logical_and"):
                pending += [(a, straight) for a in let.args]
            elif let.op.negation is not None:
                yield self._definitions[let.bound.id], let.op.name if straight else let.op.negation

    def _counted(self, atom: Atom, test: int) -> Variable | None:
        """The induction variable whose value the atom is when a turn executes the test."""
        if (read := self._read(atom)) is not None:
            index, variable = read
            place, _ = self._steps.get(variable, (self._stop, 0))
            return variable if variable in self._steps and (test < place or place < index) else None
        became = self._becomes.get(atom)
        return became if became is not None and self._steps[became][0] < test else None

    def _may_stop(self, test: int, place: int, *, alone: bool) -> bool:
        """Whether the loop can be stopped at the test, where the comparison stands `alone` or not, and gone on with by beginning a turn."""
        others = [b for b in self._turn.breaks if b != test + 1]
        if any(b > place for b in others) or any(c < max(place, test) for c in self._turn.continues):
            return False
        if test < place:
            return all(_TRACELESS[type(s)] for s in self._body[self._opener + 1 : test])
        return alone and all(_TRACELESS_STRAIGHT[type(s)] for s in self._body[test + 3 : self._stop])
