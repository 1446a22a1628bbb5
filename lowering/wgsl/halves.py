"""Halves: buffers of f16 that are arrays of f16, where the device has those and converts as the language does (`drivers.wgpu.trials`).

A store is one of 16 bits then, where in an array of words it takes two atomics. f16 in WGSL are numbers, though, and no way leads from their bits to them:
a NaN may come out as another. So a buffer is one of halves where that is never seen: what is loaded is only cast to f32, and what is stored was cast from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from vyre_py.ir.language.nodes import (
    Atom,
    Const,
    Let,
    Load,
    Memory,
    MemoryStatement,
    Space,
    Statement,
    Store,
    Value,
    const,
)
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import decode, f16, f32

__all__ = ["Halves"]


class Halves:
    """Those of a Program, for a target where they are `wanted`. `memories` are the buffers, `widened` the values, by id, that loads of them give as f32."""

    def __init__(self, program: Program, wanted: bool) -> None:
        accesses = [s for s in program.body if isinstance(s, MemoryStatement) and s.memory.type is f16] if wanted else []
        self._casts = {s.bound.id: s.args[0] for s in program.body if isinstance(s, Let) and _is_cast(s, f16)} if accesses else {}
        moved = frozenset(_moved(program)) if accesses else frozenset()
        others = {s.memory for s in accesses if not self._is_of_numbers(s, moved)}
        self.memories: frozenset[Memory] = frozenset(s.memory for s in accesses if s.memory.space is Space.BUFFER) - others
        self.widened = frozenset(s.bound.id for s in accesses if isinstance(s, Load) and s.memory in self.memories)

    def _is_of_numbers(self, statement: MemoryStatement, moved: frozenset[int]) -> bool:
        if isinstance(statement, Store):
            value = statement.value
            return value.id in self._casts if isinstance(value, Value) else isinstance(value, Const) and not math.isnan(float(decode(f16, value.bits)))
        return isinstance(statement, Load) and statement.bound.id not in moved

    def rounded(self, value: Atom) -> Atom:
        """The f32 that a store to one of `memories` rounds."""
        if isinstance(value, Value):
            return self._casts[value.id]
        assert isinstance(value, Const)  # `_is_of_numbers`
        return const(f32, float(decode(f16, value.bits)))


def _is_cast(statement: Statement, to: object) -> bool:
    return isinstance(statement, Let) and statement.op.name == "cast" and statement.bound.type is to and statement.args[0].type in (f16, f32)


def _moved(program: Program) -> Iterator[int]:
    """The values of f16, by id, that something else is done with than to cast them to f32."""
    for statement in program.body:
        if not _is_cast(statement, f32):
            yield from (atom.id for atom in statement.args if isinstance(atom, Value) and atom.type is f16)
