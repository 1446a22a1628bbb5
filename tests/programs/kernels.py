"""Programs for the interpreter, put together in few words."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import DimConst, DimExpr, Grid
from vyre_py.ir.language.nodes import Access, Atom, Memory, Space, Value, const
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, i32, u32

ONE = DimConst(1)


class Kernel(Assembler):
    """An assembler with short spellings; `over` counts the invocations on x, or `groups` the workgroups."""

    def __init__(self, over: int | DimExpr = 0, groups: int = 0, workgroup: int = 8) -> None:
        super().__init__("test", (workgroup, 1, 1))
        extent = DimConst(over) if isinstance(over, int) else over
        self.grid = Grid(False, (DimConst(groups), ONE, ONE)) if groups else Grid(True, (extent, ONE, ONE))

    def buffer(self, name: str, type_: Type, *shape: int | DimExpr) -> Memory:
        return self.array(name, Space.BUFFER, type_, *shape)

    def array(self, name: str, space: Space, type_: Type, *shape: int | DimExpr, data: bytes = b"") -> Memory:
        extents = tuple(DimConst(s) if isinstance(s, int) else s for s in shape)
        return self.memory(name, space, type_, extents, Access.READ if space is Space.TABLE else Access.READ_WRITE, data)

    def __call__(self, name: str, *args: Atom, to: Type | None = None) -> Value:
        return self.let(OPS[name], args, to)

    def run(self, sizes: Mapping[str, int] | None = None, **arguments: Any) -> None:
        run(self.finish(), arguments, sizes or {})


def run(program: Program, arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
    interpret(SimpleNamespace(program=program), arguments, sizes)


def u(value: int) -> Atom:
    return const(u32, value)


def i(value: int) -> Atom:
    return const(i32, value)
