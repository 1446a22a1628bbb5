"""Calls written out: the body of a function at the end of a Program, or of another function."""

from __future__ import annotations

from vyre_py.ir.functions.function import Function
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.nodes import (
    Atom,
    Const,
    Load,
    Memory,
    MemoryStatement,
    Space,
    Store,
    Value,
    Var,
    Variable,
    VariableStatement,
)
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.types import u32

__all__ = ["BodyWriter"]


class BodyWriter:
    """Writes bodies at the end of `out`. The arrays of a function are declared there once, for all its calls."""

    def __init__(self, out: Assembler) -> None:
        self.out = out
        self._arrays: dict[Memory, Memory] = {}

    def write(self, function: Function, args: tuple[Atom, ...]) -> Atom:
        """The result of a call. The new statements carry the places of the body, where they are known, else that of the call."""
        return _Body(self, function, args).write()

    def array(self, function: Function, old: Memory) -> Memory:
        """What stands for an array of a function."""
        if old not in self._arrays:
            out = self.out
            taken = {d.name for d in out.dims} | {p.name for p in out.params} | {m.name for m in out.memories}
            name = f"{function.name}.{old.name}"
            while name in taken:
                name += "'"
            self._arrays[old] = out.memory(name, old.space, old.type, old.shape, old.access, old.data)
        return self._arrays[old]


class _Body:
    """One body, with what stands for its values and variables."""

    def __init__(self, writer: BodyWriter, function: Function, args: tuple[Atom, ...]) -> None:
        self.writer, self.out, self.function, self.program = writer, writer.out, function, function.program
        self.map: dict[int, Atom] = dict(enumerate(args))  # by value id: the parameters are the first
        self.variables: dict[int, Variable] = {}

    def write(self) -> Atom:
        """The result."""
        out, place = self.out, self.out.place
        for memory in self.program.memories:
            if memory.space is Space.PRIVATE:
                self._clear(self.writer.array(self.function, memory))
        for index in range(len(self.function.types), len(self.program.body) - 1):
            out.place = self.program.place(index) or place
            self._statement(index)
        return self._atom(self.program.body[-1].args[-1])

    def _atom(self, atom: Atom) -> Atom:
        return self.map[atom.id] if isinstance(atom, Value) else atom

    def _statement(self, index: int) -> None:
        out, old, names = self.out, self.program.body[index], self.program
        args = tuple([self._atom(a) for a in old.args])
        result: Value | None = None
        if old.result is not None:
            result = self.map[old.result.id] = out.value(old.result.type, names.value_names.get(old.result.id))
        if isinstance(old, Var):
            self.variables[old.variable.id] = out.var(old.variable.type, args[0], names.variable_names.get(old.variable.id))
        elif isinstance(old, VariableStatement):
            out.emit(type(old)(result, args, self.variables[old.variable.id]))
        elif isinstance(old, MemoryStatement):
            assert isinstance(old, (Load, Store))  # V112
            out.emit(type(old)(result, args, self.writer.array(self.function, old.memory)))
        else:
            out.emit(old.rebuilt(result, args))

    def _clear(self, memory: Memory) -> None:
        """Writes zeros, with which the array begins in each call."""
        out = self.out
        indices = tuple([out.for_(Const(u32, 0), axis, Const(u32, 1)) for axis in memory.shape])
        zero: Atom = Const(memory.type.scalar, 0)
        out.store(memory, indices, out.let(OPS["swizzle"], (zero, Const(u32, 0)), memory.type) if memory.type.is_vector else zero)
        for _ in indices:
            out.end()
