"""Facts about a sound Program that several readers share: arrays over its dense ids."""

from __future__ import annotations

from vyre_py.ir.nodes import Let, Value, Var
from vyre_py.ir.program import Program

__all__ = ["capabilities", "declarations", "definitions", "uses"]


def uses(program: Program) -> tuple[int, ...]:
    """How many operands each value stands as, by value id."""
    counts = [0] * program.value_count
    for statement in program.body:
        for atom in statement.args:
            if isinstance(atom, Value):
                counts[atom.id] += 1
    return tuple(counts)


def definitions(program: Program) -> tuple[int, ...]:
    """The index of the statement that binds each value, by value id."""
    return tuple([index for index, statement in enumerate(program.body) if statement.result is not None])


def declarations(program: Program) -> tuple[int, ...]:
    """The index of the Var that declares each variable, by variable id."""
    return tuple([index for index, statement in enumerate(program.body) if isinstance(statement, Var)])


def capabilities(program: Program) -> frozenset[str]:
    """What the ops of the body ask of a device beyond the language's core."""
    used = {statement.op for statement in program.body if isinstance(statement, Let)}
    return frozenset(op.capability for op in used if op.capability is not None)
