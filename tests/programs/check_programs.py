"""Programs for the tests of the checker, and what it finds in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vyre_py.ir.check import check
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import Dim, DimConst, DimExpr, DimOp, Grid
from vyre_py.ir.language.errors import Place, ValidationError
from vyre_py.ir.language.nodes import (
    Access,
    Memory,
    Space,
    Statement,
    const,
)
from vyre_py.ir.language.ops import ATOMICS, OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, bool_, f32, i32, u8, u32, vector_of

N = Dim("n")
ZERO, ONE = const(u32, 0), const(u32, 1)


def codes(program: Any) -> tuple[str, ...]:
    """The codes of all findings about anything; empty for a valid Program."""
    try:
        check(program)
    except ValidationError as error:
        return error.codes
    return ()


def untyped(thing: object) -> Any:
    """What a type checker would refuse where it goes."""
    return thing


def assembler() -> tuple[Assembler, Memory]:
    a = Assembler("t", (64, 1, 1))
    a.dims.append(N)
    a.grid = Grid(True, (N, DimConst(1), DimConst(1)))
    return a, a.memory("y", Space.BUFFER, u32, (N,), Access.READ_WRITE)


def everything() -> Program:
    """A valid Program with every kind of declaration, statement and operand."""
    a, y = assembler()
    a.doc = "All of it."
    p = a.param("p", f32)
    tile = a.memory("tile", Space.WORKGROUP, u32, (DimConst(64),), Access.READ_WRITE)
    own = a.memory("own", Space.PRIVATE, u8, (DimConst(2), DimConst(2)), Access.READ_WRITE)
    table = a.memory("table", Space.TABLE, u32, (DimConst(2),), Access.READ, bytes(8))
    a.place = Place("x.py", 3)
    i = a.let(OPS["global_id.x"], (), name="i")
    direction = a.param("direction", vector_of(f32, 3))
    small = a.let(OPS["cast"], (i,), u8)
    a.store(own, (ZERO, const(i32, -1)), small)
    turned = a.let(OPS["swizzle"], (direction, const(u32, 0b000110)), vector_of(f32, 3))
    v = a.var(f32, a.let(OPS["dot"], (turned, direction)), "v")
    a.region("r")
    c = a.let(OPS["lt"], (i, DimOp("ceil_div", N, DimConst(2))))
    a.if_(c)
    a.set(v, a.let(OPS["add"], (a.get(v), p)))
    a.else_()
    a.atomic(ATOMICS["compare_exchange"], y, (i,), (ZERO, ONE))
    a.end()
    a.end()
    a.place = None
    k = a.for_(ZERO, N, ONE, "k")
    a.barrier()
    u = a.uniform_load(tile, (k,))
    a.if_(a.let(OPS["eq"], (u, a.load(table, (k,)))))
    a.continue_()
    a.end()
    a.end()
    a.loop()
    a.break_()
    a.end()
    a.store(y, (i,), DimConst(4))
    a.return_()
    return a.finish()


def with_body(program: Program, *statements: Any) -> Program:
    """The Program with more statements, whatever they are, and nothing else brought up to date but `match`."""
    return replace(program, body=(*program.body, *statements), match=(*program.match, *[-1] * len(statements)))


def plain() -> Program:
    a, y = assembler()
    a.store(y, (a.let(OPS["global_id.x"], ()),), ONE)
    return a.finish()


def loose(*statements: Statement, match: tuple[int, ...] | None = None, subgroup: int = 0) -> Program:
    """A Program of these statements alone, with this `match`."""
    program = Assembler("t", subgroup=subgroup).finish()
    made = match if match is not None else (-1,) * len(statements)
    return replace(program, body=statements, match=made, value_count=sum(s.result is not None for s in statements))


TRUE = const(bool_, True)


def declared(
    space: Space, type_: Type, shape: tuple[DimExpr, ...], access: Access, data: bytes = b""
) -> tuple[Assembler, Memory]:
    a = Assembler("t")
    a.dims.append(N)
    a.grid = Grid(True, (N, DimConst(1), DimConst(1)))
    return a, a.memory("m", space, type_, shape, access, data)
