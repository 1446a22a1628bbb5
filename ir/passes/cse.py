"""Common subexpressions: a value that an enclosing block has computed already is not computed again.

Ops are pure, queries included. Loads count where nothing may write: read-only buffers and tables. A variable's value is carried
from its last set, or last get, as long as no set can lie between.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable
from dataclasses import field
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.effects import Effect, any_of
from vyre_py.ir.language.nodes import (
    Access,
    Atom,
    Const,
    Else,
    End,
    For,
    Get,
    Let,
    Load,
    Loop,
    Set,
    Statement,
    Value,
    Var,
    VariableStatement,
)
from vyre_py.ir.language.op import Law
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes.fold import merged_end
from vyre_py.ir.passes.rewriter import Rewriter

__all__ = ["cse"]

_SETS: Final = any_of(Effect.SETS)
_COMMUTING: Final = frozenset(name for name, op in OPS.items() if Law.COMMUTES in op.laws)


@dataclass(slots=True)
class _OpenScope:
    """An open block: keys to forget at its end, what variables held when it began, and those that it sets."""

    index: int
    loops: int
    keys: list[Hashable] = field(default_factory=list)
    held: list[tuple[int, tuple[Atom, int] | None]] = field(default_factory=list)
    sets: set[int] = field(default_factory=set)


def _key(atom: Atom) -> Hashable:
    return (atom.type.name, atom.bits) if isinstance(atom, Const) else atom


class _Sharer(Rewriter):
    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.known: dict[Hashable, Value] = {}
        self.held: dict[int, tuple[Atom, int]] = {}  # variable -> the atom it holds, and how many loops were open then
        self.scopes = [_OpenScope(-1, 0)]
        self.loops: list[tuple[int, int]] = []  # the open loops, as ranges of statements
        self.set_at: list[list[int]] = [[] for _ in range(program.variable_count)]
        for index, statement in enumerate(program.body):
            if isinstance(statement, VariableStatement) and _SETS[type(statement)]:
                self.set_at[statement.variable.id].append(index)

    # ---- scopes

    def _open(self, index: int) -> None:
        if isinstance(self.program.body[index], (For, Loop)):
            self.loops.append((index, merged_end(self.program, index)))
        self.scopes.append(_OpenScope(index, len(self.loops)))

    def _close(self) -> None:
        scope = self.scopes.pop()
        for key in scope.keys:
            del self.known[key]
        for variable, before in reversed(scope.held):
            if before is None:
                self.held.pop(variable, None)
            else:
                self.held[variable] = before
        # After the block a variable that it sets holds one thing or another; the same is so for the blocks around.
        for variable in scope.sets:
            self._hold(variable, None)
        self.scopes[-1].sets |= scope.sets
        if self.loops and self.loops[-1][0] == scope.index:
            self.loops.pop()

    def _hold(self, variable: int, atom: Atom | None) -> None:
        self.scopes[-1].held.append((variable, self.held.get(variable)))
        if atom is None:
            self.held.pop(variable, None)
        else:
            self.held[variable] = (atom, len(self.loops))

    def _holds(self, variable: int) -> Atom | None:
        """The atom that a variable is known to hold: no loop that was entered since may set it."""
        found = self.held.get(variable)
        if found is None:
            return None
        atom, depth = found
        if depth < len(self.loops):
            first, last = self.loops[depth]
            at = bisect_left(self.set_at[variable], first)
            if at < len(self.set_at[variable]) and self.set_at[variable][at] < last:
                return None
        return atom

    # ---- statements

    def take(self, index: int) -> None:
        """Takes in old statement `index`."""
        statement = self.program.body[index]
        if isinstance(statement, (End, Else)):
            opened = self.scopes[-1].index
            self._close()
            self.copy(index)
            if isinstance(statement, Else):
                self._open(opened)
        elif isinstance(statement, Get):
            self._get(index, statement)
        elif (key := self._pure(statement)) is not None:
            if key in self.known:
                self.map[statement.bound.id] = self.known[key]
            else:
                made = self.copy(index)
                assert made is not None
                self.known[key] = made
                self.scopes[-1].keys.append(key)
        else:
            self.copy(index)
            if isinstance(statement, (Var, Set)):
                self._hold(statement.variable.id, self.atom(statement.args[0]))
            elif isinstance(statement, VariableStatement) and _SETS[type(statement)]:
                self._hold(statement.variable.id, None)
            if isinstance(statement, VariableStatement) and _SETS[type(statement)]:
                self.scopes[-1].sets.add(statement.variable.id)
            if statement.opens:
                self._open(index)

    def _get(self, index: int, statement: Get) -> None:
        atom = self._holds(statement.variable.id)
        if atom is None:
            made = self.copy(index)
            assert made is not None
            self._hold(statement.variable.id, made)
        else:
            self.map[statement.bound.id] = atom

    def _pure(self, statement: Statement) -> Hashable | None:
        """What a statement computes, where that depends on its operands only."""
        if isinstance(statement, Let):
            args = [_key(self.atom(a)) for a in statement.args]
            if statement.op.name in _COMMUTING:
                args.sort(key=lambda a: a.id if isinstance(a, Value) else -1)
            return (statement.op.name, statement.bound.type.name, *args)
        if isinstance(statement, Load) and statement.memory.access is Access.READ:
            return (statement.memory, *[_key(self.atom(a)) for a in statement.args])
        return None


def cse(program: Program) -> Program:
    """Merges equal pure Lets, and equal loads of memory that nothing writes; carries variables from sets to gets. A
    Program in which nothing is to be done is given back itself."""
    sharer = _Sharer(program)
    for index in range(len(program.body)):
        sharer.take(index)
    return program if len(sharer.body) == len(program.body) else sharer.finish()
