"""What the atoms of a Program are called in LLVM IR: its values and variables, params and sizes."""

from __future__ import annotations

from vyre_py.ir.language.dims import DimConst, DimExpr, DimOp
from vyre_py.ir.language.nodes import Atom, Const, Param, Value
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, u32, u64
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.llvm.types import literal, llvm_type

__all__ = ["Names"]


class Names:
    """The names in one kernel: values and variables by id, each entered where it is made; params; sizes by their type."""

    def __init__(self, w: Writer, program: Program) -> None:
        self._w, self._program = w, program
        self.values: list[str] = [""] * program.value_count
        self.variables: list[str] = [""] * program.variable_count
        self.params: dict[Param, str] = {}
        self.sizes: dict[tuple[DimExpr, Type], str] = {}

    def atom(self, atom: Atom) -> str:
        """The name of an operand."""
        if isinstance(atom, Value):
            return self.values[atom.id]
        if isinstance(atom, Const):
            return literal(atom)
        if isinstance(atom, Param):
            return self.params[atom]
        return self.size(atom, u32)

    def size(self, expr: DimExpr, type_: Type) -> str:
        """The name of a size, or its number."""
        return str(expr.value) if isinstance(expr, DimConst) else self.sizes[expr, type_]

    def divide_views(self) -> None:
        """Writes how many groups of elements the axes of views have, of which the layout has the elements: these divide them."""
        for memory in self._program.buffers:
            type_ = u64 if memory in self._program.widths.buffers else u32
            for expr in memory.shape:
                if isinstance(expr, DimOp) and (expr, type_) not in self.sizes and (expr.left, type_) in self.sizes and isinstance(expr.right, DimConst):
                    self.sizes[expr, type_] = self._w.let(f"udiv {llvm_type(type_)} {self.size(expr.left, type_)}, {expr.right.value}")
