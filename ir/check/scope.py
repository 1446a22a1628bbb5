"""Scope: every name and value that is used has been declared or bound before, in an enclosing block.

Laws, for a Program of sound form whose blocks nest:

* V107: the params, dims and memories that are used are among those that the Program declares.
* V108: a value is used after the statement that binds it, inside that statement's block, and it is that statement's own value;
  the value of a For exists in its block.
* V109: a variable is used after its declaration, inside the declaration's block, and it is the one declared there.
"""

from __future__ import annotations

from vyre_py.ir.check.findings import HEAD, Findings, Where, atom_text, quoted, variable_text
from vyre_py.ir.language.dims import Dim, DimConst, DimExpr, DimOp, dims_of
from vyre_py.ir.language.nodes import Else, End, Get, MemoryStatement, Param, Set, Statement, Value, Var, Variable
from vyre_py.ir.language.program import Program

__all__ = ["check_scope"]


class _ScopeCheck:
    """One walk. A block is a number; `open` says by number whether the walk is still inside."""

    def __init__(self, program: Program, findings: Findings) -> None:
        self.program, self.findings = program, findings
        self.dims, self.params, self.memories = set(program.dims), set(program.params), set(program.memories)
        self.known: set[int] = set()  # ids of dim expressions already looked at; the Program keeps them alive
        self.values: list[tuple[Value, int]] = []  # by value id: what was bound, in which block
        self.variables: list[tuple[Variable, int]] = []
        self.open = bytearray(b"\1")
        self.stack = [0]

    def enter(self) -> None:
        self.stack.append(len(self.open))
        self.open.append(1)

    def leave(self) -> None:
        self.open[self.stack.pop()] = 0

    def dim(self, where: Where, expr: DimExpr, role: str) -> None:
        if id(expr) in self.known:
            return
        self.known.add(id(expr))
        for dim in dims_of(expr):
            if dim not in self.dims:
                self.findings.add("V107", where, f"dim {quoted(dim.name)} {role} is not declared")

    def atom(self, index: int, atom: object) -> None:
        if isinstance(atom, Value):
            if atom.id >= len(self.values):
                self.findings.add("V108", index, f"{atom_text(self.program, atom)} is used before it is bound")
                return
            bound, block = self.values[atom.id]
            if bound is not atom:
                self.findings.add(
                    "V108",
                    index,
                    f"a value numbered {atom.id} is used that no statement here binds",
                    "a value belongs to the Program that made it",
                )
            elif not self.open[block]:
                self.findings.add("V108", index, f"{atom_text(self.program, atom)} is used after the end of its block")
        elif isinstance(atom, Param):
            if atom not in self.params:
                self.findings.add("V107", index, f"param {quoted(atom.name)} is not declared")
        elif isinstance(atom, (Dim, DimConst, DimOp)):
            self.dim(index, atom, "here")

    def variable(self, index: int, variable: Variable) -> None:
        if variable.id >= len(self.variables):
            self.findings.add("V109", index, f"{variable_text(self.program, variable)} is used before it is declared")
            return
        declared, block = self.variables[variable.id]
        if declared is not variable:
            self.findings.add(
                "V109", index, f"a variable numbered {variable.id} is used that no statement here declares"
            )
        elif not self.open[block]:
            self.findings.add(
                "V109", index, f"{variable_text(self.program, variable)} is used after the end of its block"
            )

    def statement(self, index: int, statement: Statement) -> None:
        for atom in statement.args:
            self.atom(index, atom)
        if isinstance(statement, MemoryStatement):
            if statement.memory not in self.memories:
                self.findings.add("V107", index, f"memory {quoted(statement.memory.name)} is not declared")
        elif isinstance(statement, (Get, Set)):
            self.variable(index, statement.variable)
        elif isinstance(statement, Var):
            self.variables.append((statement.variable, self.stack[-1]))
        elif isinstance(statement, (Else, End)):
            self.leave()
        if statement.opens or isinstance(statement, Else):
            self.enter()
        if statement.result is not None:
            self.values.append((statement.result, self.stack[-1]))

    def header(self) -> None:
        for memory in self.program.memories:
            for axis in memory.shape:
                self.dim(memory.name, axis, f"in the shape of {quoted(memory.name)}")
        for extent in self.program.grid.extents:
            self.dim(HEAD, extent, "in the grid")


def check_scope(program: Program, findings: Findings) -> None:
    """Reports what is used where it does not exist."""
    scope = _ScopeCheck(program, findings)
    scope.header()
    for index, statement in enumerate(program.body):
        scope.statement(index, statement)
