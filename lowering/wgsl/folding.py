"""Where a driver's compiler might fold the trip count of a loop, and must not.

Drivers were seen to end the process there: Mesa counts the turns of a loop as (last - first) / step, by the processor's signed division, which traps
for the least number and -1. It does so for any integer that a loop steps by a known amount, whether the amount is known by other variables, by unrolled
inner loops or by conversions. So a variable, or an element of a private array, that a loop sets to a value that could be known is set through a word that
only the launch knows.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import Atom, Const, End, For, Get, Let, Load, Loop, Set, Space, Statement, Store, Value
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import i32, i64, u32, u64

__all__ = ["foldable"]

# Queries that the workgroup's size may answer.
_SIZED: Final = ("workgroup_size", "local_id", "local_index")


def foldable(program: Program) -> frozenset[int]:
    """The statements, by index, in loops that set an integer to what is computed of constants and variables alone."""
    known = [False] * program.value_count
    found: list[int] = []
    blocks: list[bool] = []  # whether each open block is, or lies in, a loop

    def is_known(atom: Atom) -> bool:
        return known[atom.id] if isinstance(atom, Value) else isinstance(atom, (Const, DimConst))

    for index, s in enumerate(program.body):
        if s.opens:
            blocks.append(isinstance(s, (For, Loop)) or (bool(blocks) and blocks[-1]))
        elif isinstance(s, End):
            blocks.pop()
        if s.result is not None:
            known[s.result.id] = _is_computed(s) and all(map(is_known, s.args))
        elif blocks and blocks[-1] and (value := _kept(s)) is not None and value.type in (i32, u32, i64, u64) and is_known(value):
            found.append(index)
    return frozenset(found)


def _kept(s: Statement) -> Value | None:
    """The value that a statement sets a variable or an element of a private array to."""
    kept = s.args[-1] if isinstance(s, Set) or (isinstance(s, Store) and s.memory.space is Space.PRIVATE) else None
    return kept if isinstance(kept, Value) else None


def _is_computed(s: Statement) -> bool:
    """Whether a statement's result follows from its operands, and variables, alone."""
    if isinstance(s, Let):
        return not s.op.is_query or s.op.name.partition(".")[0] in _SIZED
    return isinstance(s, (Get, For)) or (isinstance(s, Load) and s.memory.space is Space.PRIVATE)
