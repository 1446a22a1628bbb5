"""The rewriter: it copies a Program statement by statement, and is what passes are made of."""

from __future__ import annotations

from collections.abc import Iterator

from vyre_py.ir.check.limits import MAX_STATEMENTS
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.nodes import Atom, Let, Value, Var, Variable, VariableStatement
from vyre_py.ir.language.program import Program

__all__ = ["Overgrown", "Rewriter"]


class Overgrown(Exception):
    """A Program becomes too long on its way to a target: it would have some `statements`, at most `most` are taken. Callers say for which target."""

    def __init__(self, statements: int, most: int) -> None:
        super().__init__(f"{statements} statements, at most {most} are taken")
        self.statements, self.most = statements, most


class Rewriter(Assembler):
    """Copies a Program statement by statement, with values and variables mapped to new ones: what passes are made of.

    `map[id]` is the atom that stands for old value `id`; a pass drops a statement by not copying it, and replaces a value by
    writing its atom into `map`.
    """

    def __init__(self, program: Program) -> None:
        super().__init__(program.name, program.workgroup, program.subgroup)
        self.program = program
        self.grid, self.doc = program.grid, program.doc
        self.dims, self.params, self.memories = list(program.dims), list(program.params), list(program.memories)
        self.functions = list(program.functions)
        self.declared = dict(program.declared)
        self.map: list[Atom | None] = [None] * program.value_count
        self.variable_map: list[Variable | None] = [None] * program.variable_count

    def indices(self) -> Iterator[int]:
        """The numbers of the old statements, for a pass that writes several for one. Raises Overgrown, with what all would become at this rate, before
        memory runs out."""
        count = len(self.program.body)
        for index in range(count):
            if len(self.body) > MAX_STATEMENTS:
                raise Overgrown(len(self.body) * count // index, MAX_STATEMENTS)
            yield index

    def atom(self, atom: Atom) -> Atom:
        """The new atom for an old one."""
        if not isinstance(atom, Value):
            return atom
        mapped = self.map[atom.id]
        assert mapped is not None, "a value is copied before it is used"
        return mapped

    def copy(self, index: int) -> Value | None:
        """Copies old statement `index`; gives its new result."""
        old = self.program.body[index]
        self.place = self.program.place(index)
        args = tuple([self.atom(a) for a in old.args])
        if type(old) is Let:  # most statements are; this is what follows for all, written short
            given = old.bound
            bound = self.map[given.id] = self.value_like(given, self.program.value_names.get(given.id))
            self.emit(old if bound is given and args == old.args else Let(bound, args, old.op))
            return bound
        result: Value | None = None
        if old.result is not None:
            result = self.map[old.result.id] = self.value_like(old.result, self.program.value_names.get(old.result.id))
        if isinstance(old, Var):
            made = self.var(old.variable.type, args[0], self.program.variable_names.get(old.variable.id))
            self.variable_map[old.variable.id] = made
        elif isinstance(old, VariableStatement):
            variable = self.variable_map[old.variable.id]
            assert variable is not None, "a variable is declared before it is used"
            self.emit(type(old)(result, args, variable))
        else:
            self.emit(old if result is old.result and args == old.args else old.rebuilt(result, args))
        return result
