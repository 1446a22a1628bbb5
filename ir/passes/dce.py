"""Dead code elimination: a statement without an effect, whose result is unused, is removed.

It marks from the effects backward. A statement needs the statements that bind its operands, and the block that holds it; a get
needs every set of its variable. A `for` without effects is removed, since it ends; a `loop` stays, since it may not end.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.effects import DROPPABLE, Effect, any_of, at_most
from vyre_py.ir.language.nodes import Else, End, Memory, MemoryStatement, Space, Value, VariableStatement
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes.rewriter import Rewriter

__all__ = ["dce"]

_LOCAL: Final = (Space.WORKGROUP, Space.PRIVATE)
_DROPPABLE: Final = at_most(DROPPABLE | Effect.CONVERGES)  # what goes, goes for all lanes of a subgroup
_READS: Final = any_of(Effect.READS)
_STORES: Final = at_most(Effect.WRITES)
_GETS: Final = any_of(Effect.GETS)
_WRITES_VARIABLES: Final = any_of(Effect.SETS | Effect.DECLARES)
_REPEATS: Final = any_of(Effect.REPEATS)
_LEAVES: Final = any_of(Effect.LEAVES)


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
                if isinstance(statement, End) and _REPEATS[type(self.program.body[closed])]:
                    loops.pop()
                self.parent[index] = closed
            else:
                self.parent[index] = blocks[-1] if blocks else -1
            if statement.result is not None:
                self.made_at[statement.result.id] = index
            if isinstance(statement, VariableStatement) and _WRITES_VARIABLES[type(statement)]:
                self.variable_at[statement.variable.id].append(index)
            elif isinstance(statement, MemoryStatement) and _STORES[type(statement)] and statement.memory.space in _LOCAL:
                self.stored_at.setdefault(statement.memory, []).append(index)
            elif _LEAVES[type(statement)]:
                self.jumps.setdefault(loops[-1], []).append(index)
            elif not _DROPPABLE[type(statement)]:
                self.need(index)
            if statement.opens or isinstance(statement, Else):
                blocks.append(index)
                if _REPEATS[type(statement)]:
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
            if isinstance(statement, VariableStatement) and _GETS[type(statement)]:
                also, self.variable_at[statement.variable.id] = self.variable_at[statement.variable.id], []
            elif isinstance(statement, MemoryStatement) and _READS[type(statement)]:
                also = [store for memory in (statement.memory, *statement.also_reads) for store in self.stored_at.pop(memory, [])]
            elif _REPEATS[type(statement)]:
                also = self.jumps.get(index, [])
            for other in also:
                self.need(other)


def dce(program: Program) -> Program:
    """Removes unused values, variables that are never read, stores to private and workgroup memory that is never loaded, and empty blocks. Returns the
    same object where there is nothing to remove."""
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
