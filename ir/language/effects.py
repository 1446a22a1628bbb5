"""What statements do beside computing a result: the column of their table that passes and targets ask before they drop, move or repeat one."""

from __future__ import annotations

from collections.abc import Callable
from enum import Flag, auto
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from vyre_py.ir.language.nodes import Statement

__all__ = ["DROPPABLE", "JUMPS", "ORDERS", "SYNCHRONISES", "Effect", "Kinds", "any_of", "at_most"]


class Effect(Flag):
    """What a kind of statement does. A new effect is in no pass's list of what it may touch, so statements that have it stay where they are."""

    NONE = 0
    READS = auto()  # its memory
    WRITES = auto()  # its memory
    GETS = auto()  # its variable
    SETS = auto()  # its variable
    DECLARES = auto()  # its variable
    CONTENDS = auto()  # accesses one element at the same time as other invocations, in an order that they see
    ORDERS = auto()  # other memory accesses of its invocation, as other invocations see them: none moves past it
    SYNCHRONISES = auto()  # waits for the workgroup, and makes its writes visible to it
    SYNCHRONISES_GRID = auto()  # waits for the grid, and makes its writes visible to it
    LEAVES = auto()  # ends a loop or its turn
    RETURNS = auto()  # ends the invocation
    NESTS = auto()  # opens, parts or closes a block
    BRANCHES = auto()  # its block runs under a condition
    REPEATS = auto()  # its block runs any number of times
    ENDLESS = auto()  # may never end
    CONVERGES = auto()  # all lanes of its subgroup execute it together: it may go, for all of them, and stays where it is
    REPORTS = auto()  # tells the host something, in an order that it sees
    SCANS_GRID = auto()  # each workgroup takes part once, and waits for those with a smaller number
    COPIES = auto()  # begins copies, or waits for them: they write until then


class Kinds(dict["type[Statement]", bool]):
    """Whether a kind of statement has a property of its effects, looked up by kind and worked out once for each."""

    def __init__(self, holds: Callable[[Effect], bool]) -> None:
        super().__init__()
        self._holds = holds

    def __missing__(self, kind: type[Statement]) -> bool:
        found = self[kind] = self._holds(kind.effect)
        return found


def at_most(allowed: Effect) -> Kinds:
    """The kinds whose effects are all allowed. Passes ask for permission in this way: an effect that is added later is then refused."""
    return Kinds(lambda effect: not effect & ~allowed)


def any_of(wanted: Effect) -> Kinds:
    """The kinds that do something of what is wanted."""
    return Kinds(lambda effect: bool(effect & wanted))


# What matters to nothing but its own invocation's later statements: it may go where none of them needs it.
DROPPABLE: Final = Effect.READS | Effect.GETS | Effect.SETS | Effect.DECLARES | Effect.LEAVES | Effect.NESTS | Effect.BRANCHES | Effect.REPEATS

# What several passes and targets ask.
SYNCHRONISES: Final = any_of(Effect.SYNCHRONISES)
ORDERS: Final = any_of(Effect.ORDERS)
JUMPS: Final = any_of(Effect.LEAVES | Effect.RETURNS)
