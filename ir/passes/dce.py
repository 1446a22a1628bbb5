"""Dead code: what has no effect, and whose result nobody needs, goes.

Marks from the effects backward: a statement needs the statements that bind its operands, the block that it lies in, and a get
needs every set of its variable. A `for` that does nothing goes, since it ends; a `loop` stays, since it may not.
"""

from __future__ import annotations

from vyre_py.ir.assembler import Rewriter
from vyre_py.ir.nodes import (
    Atomic,
    Barrier,
    Break,
    Continue,
    Else,
    End,
    For,
    Get,
    Load,
    Loop,
    Memory,
    Return,
    Set,
    Space,
    Statement,
    Store,
    UniformLoad,
    Value,
    Var,
)  # fmt: skip
from vyre_py.ir.program import Program

__all__ = ["dce"]

_LOCAL = (Space.WORKGROUP, Space.PRIVATE)


class _Marker:
    """Where things are made, and what is needed."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.needed = [False] * len(program.body)
        self.pending: list[int] = []
        self.made_at = [-1] * program.value_count
        self.parent = [-1] * len(program.body)
        self.variable_at: list[list[int]] = [[] for _ in range(program.variable_count)]  # declaration and sets
        self.stored_at: dict[Memory, list[int]] = {}  # stores to memory that ends with the workgroup
        self.jumps: dict[int, list[int]] = {}  # loop -> breaks and continues
        self._survey()

    def _survey(self) -> None:
        blocks: list[int] = []
        loops: list[int] = []
        for index, statement in enumerate(self.program.body):
            if isinstance(statement, (End, Else)):
                closed = blocks.pop()
                if isinstance(statement, End) and isinstance(self.program.body[closed], (For, Loop)):
                    loops.pop()
                self.parent[index] = closed
            else:
                self.parent[index] = blocks[-1] if blocks else -1
            if statement.result is not None:
                self.made_at[statement.result.id] = index
            if isinstance(statement, (Var, Set)):
                self.variable_at[statement.variable.id].append(index)
            elif isinstance(statement, Store) and statement.memory.space in _LOCAL:
                self.stored_at.setdefault(statement.memory, []).append(index)
            elif isinstance(statement, (Break, Continue)):
                self.jumps.setdefault(loops[-1], []).append(index)
            elif _acts(statement):
                self.need(index)
            if statement.opens or isinstance(statement, Else):
                blocks.append(index)
                if isinstance(statement, (For, Loop)):
                    loops.append(index)

    def need(self, index: int) -> None:
        """Marks a statement."""
        if index >= 0 and not self.needed[index]:
            self.needed[index] = True
            self.pending.append(index)

    def spread(self) -> None:
        """Marks what marked statements need."""
        while self.pending:
            index = self.pending.pop()
            statement = self.program.body[index]
            self.need(self.parent[index])
            for atom in statement.args:
                if isinstance(atom, Value):
                    self.need(self.made_at[atom.id])
            also: list[int] = []
            if isinstance(statement, Get):
                also, self.variable_at[statement.variable.id] = self.variable_at[statement.variable.id], []
            elif isinstance(statement, (Load, UniformLoad, Atomic)):
                also = self.stored_at.pop(statement.memory, [])
            elif isinstance(statement, (For, Loop)):
                also = self.jumps.get(index, [])
            for other in also:
                self.need(other)


def _acts(statement: Statement) -> bool:
    return isinstance(statement, (Atomic, Barrier, UniformLoad, Return, Loop, Store))


def dce(program: Program) -> Program:
    """Drops unused values, variables nobody reads, stores to private and workgroup memory nobody loads, and empty blocks. A
    Program in which nothing is to be done is given back itself."""
    marker = _Marker(program)
    marker.spread()
    for index, statement in enumerate(program.body):
        if isinstance(statement, End):
            marker.needed[index] = marker.needed[program.match[index]]
    if all(marker.needed):
        return program
    rewriter = Rewriter(program)
    for index, needed in enumerate(marker.needed):
        if needed:
            rewriter.copy(index)
    return rewriter.finish()
