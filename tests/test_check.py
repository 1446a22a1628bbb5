"""The checker: each law on Programs that text cannot express, anything at all as input, and the work it takes."""

from __future__ import annotations

import copy
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest

import vyre_py.ir.check
from vyre_py.ir.assembler import Assembler
from vyre_py.ir.check import Checked, check
from vyre_py.ir.check.facts import capabilities, declarations, definitions, uses
from vyre_py.ir.check.findings import MAX_FINDINGS
from vyre_py.ir.check.limits import MAX_NAME, MAX_NESTING, MAX_STATEMENTS
from vyre_py.ir.dims import Dim, DimConst, DimExpr, DimOp
from vyre_py.ir.errors import Place, ValidationError
from vyre_py.ir.nodes import (
    Access,
    Barrier,
    Const,
    Else,
    End,
    For,
    Get,
    If,
    Let,
    Load,
    Memory,
    Param,
    Region,
    Return,
    Set,
    Space,
    Statement,
    Store,
    Value,
    Var,
    Variable,
    const,
)
from vyre_py.ir.ops import ATOMICS, OPS, Level, op
from vyre_py.ir.program import Grid, Program
from vyre_py.ir.rules import RULES
from vyre_py.ir.types import Scalar, bool_, f32, i32, u8, u32

N = Dim("n")
ZERO, ONE = const(u32, 0), const(u32, 1)


def codes(program: object) -> tuple[str, ...]:
    """The codes of all findings; empty for a valid Program."""
    try:
        check(program)  # type: ignore[arg-type]  # anything is checked
    except ValidationError as error:
        return error.codes
    return ()


def assembler() -> tuple[Assembler, Memory]:
    a = Assembler("t", (64, 1, 1))
    a.dims.append(N)
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
    i = a.let(op("global_id.x"), (), name="i")
    small = a.let(op("cast"), (i,), u8)
    a.store(own, (ZERO, const(i32, -1)), small)
    v = a.var(f32, p, "v")
    a.region("r")
    c = a.let(op("lt"), (i, DimOp("ceil_div", N, DimConst(2))))
    a.if_(c)
    a.set(v, a.let(op("add"), (a.get(v), p)))
    a.else_()
    a.atomic(ATOMICS["compare_exchange"], y, (i,), (ZERO, ONE))
    a.end()
    a.end()
    a.place = None
    k = a.for_(ZERO, N, ONE, "k")
    a.barrier()
    u = a.uniform_load(tile, (k,))
    a.if_(a.let(op("eq"), (u, a.load(table, (k,)))))
    a.continue_()
    a.end()
    a.end()
    a.loop()
    a.break_()
    a.end()
    a.store(y, (i,), DimConst(4))
    a.return_()
    return a.finish()


# ---------------------------------------------------------------- what comes back


def test_checked_carries_the_proof() -> None:
    program = everything()
    checked = check(program)
    assert isinstance(checked, Checked) and checked.program is program
    assert len(checked.uniformity.values) == program.value_count == len(uses(program)) == len(definitions(program))
    assert len(checked.uniformity.variables) == program.variable_count == len(declarations(program))
    assert len(checked.uniformity.control) == len(program.body)
    assert checked.capabilities == capabilities(program) == frozenset()
    assert checked.uniformity.values[0] is Level.VARYING


def test_facts() -> None:
    a, y = assembler()
    i = a.let(op("global_id.x"), ())
    v = a.var(u32, i)
    total = a.let(op("add"), (i, i))
    a.store(y, (i,), total)
    a.get(v)
    program = a.finish()
    assert uses(program) == (4, 1, 0)
    assert definitions(program) == (0, 2, 4)
    assert declarations(program) == (1,)


def test_an_empty_body_is_valid() -> None:
    assert codes(Assembler("t").finish()) == ()


def test_dead_statements_are_valid() -> None:
    a, y = assembler()
    a.return_()
    a.store(y, (ZERO,), ONE)
    a.loop()
    a.break_()
    a.continue_()
    a.end()
    assert codes(a.finish()) == ()


def test_findings_come_in_program_order_with_places() -> None:
    a, y = assembler()
    a.param("n", u32)
    a.place = Place("x.vir", 7)
    a.store(y, (const(f32, 0.0),), ONE)
    a.place = Place("x.vir", 8)
    a.break_()
    with pytest.raises(ValidationError) as caught:
        check(a.finish())
    assert [(d.code, d.place and d.place.line) for d in caught.value.diagnostics] == [
        ("V105", None),
        ("V205", 7),
        ("V104", 8),
    ]
    assert all(d.help for d in caught.value.diagnostics)


def test_findings_are_capped_and_counted() -> None:
    a, y = assembler()
    for _ in range(MAX_FINDINGS + 23):
        a.store(y, (ZERO,), const(i32, 0))
    with pytest.raises(ValidationError) as caught:
        check(a.finish())
    assert caught.value.codes == ("V204",) * MAX_FINDINGS + ("V599",)
    assert "23" in caught.value.diagnostics[-1].message


# ---------------------------------------------------------------- form: V101 V103 V110 V508


def with_body(program: Program, *statements: Statement) -> Program:
    """The Program with more statements, whatever they are, and nothing else brought up to date but `match`."""
    return replace(program, body=(*program.body, *statements), match=(*program.match, *[-1] * len(statements)))


def plain() -> Program:
    a, y = assembler()
    a.store(y, (a.let(op("global_id.x"), ()),), ONE)
    return a.finish()


MALFORMED: dict[str, Callable[[Program], object]] = {
    "nothing": lambda p: None,
    "text": lambda p: "program t { }",
    "never filled": lambda p: object.__new__(Program),
    "foreign statement": lambda p: with_body(p, "barrier"),  # type: ignore[arg-type]
    "abstract statement": lambda p: with_body(p, Statement(None, ())),
    "statement of another class": lambda p: with_body(p, type("Barrier2", (Barrier,), {})(None, ())),
    "unfilled statement": lambda p: with_body(p, object.__new__(Let)),
    "operand that is no atom": lambda p: with_body(p, Store(None, (ZERO, 1.5), p.memories[0])),  # type: ignore[arg-type]
    "operands in a list": lambda p: with_body(p, Store(None, [ZERO, ONE], p.memories[0])),  # type: ignore[arg-type]
    "result where none is due": lambda p: with_body(p, Barrier(Value(1, u32), ())),
    "no result where one is due": lambda p: with_body(p, Get(None, (), Variable(0, u32))),
    "op of no table": lambda p: with_body(p, Let(Value(1, u32), (ONE, ONE), copy.copy(op("add")))),
    "type of no table": lambda p: with_body(p, Let(Value(1, copy.copy(u32)), (ONE, ONE), op("add"))),
    "match too short": lambda p: replace(p, match=()),
    "unknown dim operation": lambda p: with_body(p, Store(None, (ZERO, DimOp("pow", N, N)), p.memories[0])),
    "places of another kind": lambda p: replace(p, places=("line 3",)),  # type: ignore[arg-type]
    "names of another kind": lambda p: replace(p, value_names={0: 3}),  # type: ignore[dict-item]
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_v101_form(name: str) -> None:
    assert set(codes(MALFORMED[name](plain()))) <= {"V101", "V103"}
    assert "V101" in codes(MALFORMED[name](plain()))


def test_v103_ids() -> None:
    program = plain()
    assert codes(replace(program, value_count=2)) == ("V103",)
    assert codes(replace(program, value_count=10**18)) == ("V103",)
    assert codes(replace(program, variable_count=-1)) == ("V103",)
    assert "V103" in codes(with_body(program, Get(Value(0, u32), (), Variable(0, u32))))
    assert "V103" in codes(with_body(program, Var(None, (ONE,), Variable(7, u32))))


@pytest.mark.parametrize(
    ("type_", "bits"), [(bool_, 2), (u8, 256), (u32, 1 << 32), (i32, -1), pytest.param(f32, 10**5000, id="huge")]
)
def test_v110_constant(type_: Scalar, bits: int) -> None:
    program = plain()
    assert codes(with_body(program, Store(None, (ZERO, Const(type_, bits)), program.memories[0]))) == ("V110",)


def _deep(left: bool) -> DimExpr:
    expr: DimExpr = N
    for _ in range(100_000):
        expr = DimOp("add", expr, N) if left else DimOp("add", N, expr)
    return expr


@pytest.mark.parametrize("left", [True, False])
def test_v508_dim_terms(left: bool) -> None:
    program = plain()
    deep = _deep(left)
    assert codes(with_body(program, Store(None, (ZERO, deep), program.memories[0]))) == ("V508",)
    assert codes(replace(program, grid=Grid(True, (deep, N, N)))) == ("V508",)
    cyclic = DimOp("add", N, N)
    object.__setattr__(cyclic, "left" if left else "right", cyclic)
    assert codes(replace(program, grid=Grid(True, (cyclic, N, N)))) == ("V508",)


# ---------------------------------------------------------------- structure: V102 V104 V105 V106


def loose(*statements: Statement, match: tuple[int, ...] | None = None) -> Program:
    """A Program of these statements alone, with this `match`."""
    program = Assembler("t").finish()
    made = match if match is not None else (-1,) * len(statements)
    return replace(program, body=statements, match=made, value_count=sum(s.result is not None for s in statements))


TRUE = const(bool_, True)
UNMATCHED: dict[str, Program] = {
    "an End alone": loose(End(None, ())),
    "an Else alone": loose(Else(None, ())),
    "an Else in a region": loose(Region(None, (), "r"), Else(None, ()), End(None, ()), match=(1, 2, 0)),
    "two Elses": loose(If(None, (TRUE,)), Else(None, ()), Else(None, ()), End(None, ()), match=(1, 2, 3, 0)),
    "never closed": loose(If(None, (TRUE,)), match=(1,)),
    "dangling match": loose(If(None, (TRUE,)), End(None, ()), match=(99, 0)),
    "huge match": loose(If(None, (TRUE,)), End(None, ()), match=(1, 10**5000)),
    "match of a plain statement": loose(Barrier(None, ()), match=(0,)),
    "crossed": loose(If(None, (TRUE,)), If(None, (TRUE,)), End(None, ()), End(None, ()), match=(2, 3, 0, 1)),
}


@pytest.mark.parametrize("name", UNMATCHED)
def test_v102_blocks(name: str) -> None:
    assert set(codes(UNMATCHED[name])) == {"V102"}


def test_v104_escape_outside_of_a_loop() -> None:
    a = Assembler("t")
    a.loop()
    a.break_()
    a.end()
    a.if_(TRUE)
    a.break_()
    a.continue_()
    a.end()
    assert codes(a.finish()) == ("V104", "V104")


def test_v105_v106_names() -> None:
    a, _ = assembler()
    a.param("y", u32)
    a.dim("n")
    a.param("", u32)
    assert codes(a.finish()) == ("V105", "V106", "V105")
    assert codes(Assembler("").finish()) == ("V106",)


# ---------------------------------------------------------------- scope: V107 V108 V109


def test_v107_undeclared() -> None:
    a, _ = assembler()
    other = Memory("other", Space.BUFFER, u32, (), Access.READ)
    a.store(other, (Param("q", u32),), Dim("m"))
    a.grid = Grid(True, (DimOp("add", N, Dim("k")), DimConst(1), DimConst(1)))
    a.memory("z", Space.BUFFER, u32, (Dim("j"),), Access.READ)
    assert codes(a.finish()) == ("V107",) * 5
    # A memory like a declared one is still another.
    program = plain()
    assert codes(with_body(program, Store(None, (ZERO, ONE), copy.copy(program.memories[0])))) == ("V107",)


def test_v108_values() -> None:
    a, y = assembler()
    a.if_(TRUE)
    inner = a.let(op("global_id.x"), ())
    a.else_()
    a.store(y, (inner,), ONE)
    a.end()
    k = a.for_(ZERO, ONE, ONE)
    a.end()
    a.store(y, (k,), ONE)
    a.store(y, (Value(999, u32),), ONE)
    a.store(y, (Value(0, u32),), ONE)
    assert codes(a.finish()) == ("V108",) * 4


def test_v108_a_value_is_no_operand_of_its_own_statement() -> None:
    own = Value(0, u32)
    assert codes(loose(Let(own, (own, ONE), op("add")))) == ("V108",)
    assert codes(loose(For(own, (own, ONE, ONE)), End(None, ()), match=(1, 0))) == ("V108",)


def test_v109_variables() -> None:
    a, _ = assembler()
    a.loop()
    v = a.var(u32, ONE)
    a.break_()
    a.end()
    a.set(v, ONE)
    a.set(Variable(5, u32), ONE)
    a.set(Variable(0, u32), ONE)
    assert codes(a.finish()) == ("V109",) * 3


# ---------------------------------------------------------------- types: V201 to V209


def test_v201_v202_v203_ops() -> None:
    def one(result: Scalar, name: str, *args: Any) -> tuple[str, ...]:
        return codes(loose(Let(Value(0, result), args, op(name))))

    f, i, b = const(f32, 1.0), const(i32, 1), TRUE
    assert one(u32, "add", ONE, ONE) == ()
    assert one(u32, "add", ONE) == one(u32, "local_index", ONE) == one(u32, "cast") == ("V202",)
    assert one(u32, "add", ONE, i) == one(bool_, "add", b, b) == one(u8, "add", const(u8, 1), const(u8, 1)) == ("V201",)
    assert one(u32, "select", ONE, ONE, ONE) == one(f32, "bitcast", f) == one(bool_, "bitcast", ONE) == ("V201",)
    assert one(f32, "sqrt", ONE) == one(i32, "rem", f, f) == ("V201",)
    assert one(i32, "add", ONE, ONE) == one(i32, "abs_diff", i, i) == one(u32, "lt", ONE, ONE) == ("V203",)
    assert one(u8, "select", b, const(u8, 1), const(u8, 2)) == one(f32, "cast", const(u8, 1)) == ()


def test_every_op_refuses_a_wrong_operand() -> None:
    """No row accepts a bool and a float for the same T, and the message of each refusal can be made."""
    for row in OPS.values():
        for type_ in (bool_, u8, f32):
            args = tuple(Const(type_, 0) for _ in row.operands)
            found = codes(loose(Let(Value(0, type_), args, row)))
            accepted = row.result_type(tuple(a.type for a in args), type_ if row.result.name == "GIVEN" else None)
            assert found == (() if accepted is type_ else ("V201",) if accepted is None else ("V203",)), row


def test_v202_to_v205_accesses() -> None:
    a, y = assembler()
    a.emit(Load(a.value(i32), (ZERO,), y))
    a.load(y, ())
    a.load(y, (ZERO, ZERO))
    a.load(y, (const(bool_, True),))
    a.load(y, (const(u8, 1),))
    a.emit(Store(None, (), y))
    a.store(y, (ZERO,), const(f32, 1.0))
    a.atomic(ATOMICS["add"], y, (ZERO,), ())
    a.atomic(ATOMICS["add"], y, (ZERO,), (const(i32, 1),))
    v = a.var(u32, const(i32, 1))
    a.emit(Set(None, (), v))
    a.emit(Get(a.value(f32), (), v))
    a.emit(Barrier(None, (ONE,)))
    a.emit(Return(None, (ONE,)))
    assert codes(a.finish()) == (
        "V203", "V202", "V202", "V205", "V205", "V202", "V204", "V202", "V204", "V204", "V202", "V203", "V202", "V202",
    )  # fmt: skip


def test_v206_v207_v208_control() -> None:
    def count(start: Any, stop: Any, step: Any, result: Scalar = u32) -> tuple[str, ...]:
        return codes(loose(For(Value(0, result), (start, stop, step)), End(None, ()), match=(1, 0)))

    assert codes(loose(If(None, (ONE,)), End(None, ()), match=(1, 0))) == ("V206",)
    assert codes(loose(If(None, ()), End(None, ()), match=(1, 0))) == ("V202",)
    assert count(ZERO, DimConst(3), ONE) == count(const(i32, 3), const(i32, 0), const(i32, -1), i32) == ()
    assert count(ZERO, const(i32, 1), ONE) == count(ZERO, ONE, const(i32, 1)) == ("V207",)
    assert count(const(f32, 0.0), const(f32, 1.0), const(f32, 1.0), f32) == ("V207",)
    assert count(ZERO, ONE, ZERO) == count(ZERO, ONE, DimConst(2)) == ("V208",)
    assert count(ZERO, ONE, ONE, i32) == ("V203",)


@pytest.mark.parametrize(
    "size",
    [
        DimConst(-1),
        DimConst(1 << 32),
        pytest.param(DimConst(10**5000), id="huge"),
        DimOp("sub", DimConst(1), DimConst(2)),
        DimOp("mul", DimConst(1 << 31), DimConst(2)),
        DimOp("ceil_div", N, DimConst(0)),
        DimOp("ceil_div", DimConst(1), DimOp("sub", DimConst(1), DimConst(1))),
    ],
)
def test_v209_sizes(size: DimExpr) -> None:
    a, y = assembler()
    a.store(y, (ZERO,), size)
    assert codes(a.finish()) == ("V209",)
    a, _ = assembler()
    a.grid = Grid(False, (size, N, N))
    assert codes(a.finish()) == ("V209",)


# ---------------------------------------------------------------- memory: V301 to V310


def declared(
    space: Space, type_: Scalar, shape: tuple[DimExpr, ...], access: Access, data: bytes = b""
) -> tuple[Assembler, Memory]:
    a = Assembler("t")
    a.dims.append(N)
    return a, a.memory("m", space, type_, shape, access, data)


def test_v301_v302_v303_access() -> None:
    a, m = declared(Space.BUFFER, u32, (N,), Access.WRITE)
    a.load(m, (ZERO,))
    a.uniform_load(m, (ZERO,))
    a.atomic(ATOMICS["add"], m, (ZERO,), (ONE,))
    assert codes(a.finish()) == ("V301", "V301", "V303")
    a, m = declared(Space.BUFFER, u32, (N,), Access.READ)
    a.store(m, (ZERO,), ONE)
    a.atomic(ATOMICS["add"], m, (ZERO,), (ONE,))
    assert codes(a.finish()) == ("V302", "V303")


def test_v304_v308_spaces() -> None:
    a, m = declared(Space.PRIVATE, u32, (DimConst(1),), Access.READ_WRITE)
    a.atomic(ATOMICS["add"], m, (ZERO,), (ONE,))
    a.uniform_load(m, (ZERO,))
    assert codes(a.finish()) == ("V304", "V308")
    a, m = declared(Space.WORKGROUP, f32, (DimConst(1),), Access.READ_WRITE)
    a.atomic(ATOMICS["add"], m, (ZERO,), (const(f32, 1.0),))
    assert codes(a.finish()) == ("V304",)
    a, m = declared(Space.TABLE, u32, (DimConst(1),), Access.READ, bytes(4))
    a.atomic(ATOMICS["add"], m, (ZERO,), (ONE,))
    a.store(m, (ZERO,), ONE)
    assert codes(a.finish()) == ("V304", "V302")


def test_v305_v306_v307_v309_declarations() -> None:
    def one(*arguments: Any) -> tuple[str, ...]:
        return codes(declared(*arguments)[0].finish())

    rw, read, fixed = Access.READ_WRITE, Access.READ, (DimConst(2), DimConst(3))
    for space in (Space.WORKGROUP, Space.PRIVATE):
        assert one(space, u32, fixed, rw) == ()
        assert one(space, u32, (N,), rw) == one(space, u32, (DimConst(0),), rw) == ("V305",)
        assert one(space, u32, fixed, read) == ("V309",)
        assert one(space, u32, fixed, rw, b"1234") == ("V306",)
    assert one(Space.TABLE, u32, fixed, read, bytes(24)) == one(Space.TABLE, bool_, fixed, read, bytes(6)) == ()
    assert one(Space.TABLE, u32, fixed, read, bytes(23)) == one(Space.TABLE, u32, fixed, read) == ("V306",)
    assert one(Space.TABLE, u32, fixed, rw, bytes(24)) == ("V309",)
    assert one(Space.TABLE, u32, (N,), read, bytes(24)) == ("V305",)
    assert one(Space.BUFFER, u32, (DimConst(0),), read) == one(Space.BUFFER, u32, (N,) * 8, read) == ()
    assert one(Space.BUFFER, u32, (), read) == one(Space.BUFFER, u32, (N,) * 9, read) == ("V307",)
    assert one(Space.BUFFER, u32, (N,), read, b"1") == ("V306",)


def test_v310_grid() -> None:
    a, _ = declared(Space.BUFFER, u32, (N,) * 4, Access.WRITE)
    assert codes(a.finish()) == ("V310",)
    a.grid = Grid(True, (N, N, N))
    assert codes(a.finish()) == ()


# ---------------------------------------------------------------- limits


def test_v501_nesting() -> None:
    for depth, expected in ((MAX_NESTING, ()), (MAX_NESTING + 1, ("V501",)), (50_000, ("V501",))):
        a = Assembler("t")
        for _ in range(depth):
            a.loop()
        for _ in range(depth):
            a.end()
        assert codes(a.finish()) == expected


def test_v502_statements() -> None:
    size = MAX_STATEMENTS + 1
    program = Assembler("t").finish()
    assert codes(replace(program, body=(Barrier(None, ()),) * size, match=(-1,) * size)) == ("V502",)


def test_v503_names() -> None:
    long = "x" * (MAX_NAME + 1)
    a = Assembler(long)
    a.dim(long)
    a.region(long)
    a.let(op("local_index"), (), name=long)
    a.end()
    a.var(u32, ONE, "x" * MAX_NAME)
    assert codes(a.finish()) == ("V503",) * 4


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((1024, 1, 1), ()), ((16, 1, 64), ()), ((0, 1, 1), ("V504",)), ((-8, -8, 1), ("V504",)), ((1025, 1, 1), ("V504",)),
        ((1, 1, 65), ("V504",)), ((32, 33, 1), ("V504",)), pytest.param((10**5000, 1, 1), ("V504",), id="huge"),
    ],
)  # fmt: skip
def test_v504_workgroup(size: tuple[int, int, int], expected: tuple[str, ...]) -> None:
    assert codes(Assembler("t", size).finish()) == expected


@pytest.mark.parametrize(
    ("space", "limit", "code"),
    [(Space.WORKGROUP, 227 << 10, "V505"), (Space.PRIVATE, 64 << 10, "V506"), (Space.TABLE, 16 << 20, "V507")],
)
def test_v505_v506_v507_bytes(space: Space, limit: int, code: str) -> None:
    access = Access.READ if space is Space.TABLE else Access.READ_WRITE
    for extra, expected in ((0, ()), (1, (code,))):
        a = Assembler("t")
        for name, size in (("a", limit - 4), ("b", 4 + extra)):
            a.memory(name, space, u8, (DimConst(size),), access, bytes(size) if space is Space.TABLE else b"")
        assert codes(a.finish()) == expected
    huge = declared(space, u32, (DimConst((1 << 32) - 1),) * 8, access)[0].finish()
    assert code in codes(huge)


# ---------------------------------------------------------------- anything at all

JUNK: tuple[object, ...] = (
    None, True, -1, 0, 10**6000, 1.5, "", "\ud800", b"", (), [], {}, object(), Level.GRID, (1,), (None, None, None), Scalar, u8, f32,
    Value(0, f32), Value(1 << 70, u32), Value(-1, u32), Value(None, None), Const(u32, -1), Const(None, "x"), Param("q", f32),  # type: ignore[arg-type]
    Dim("zzz"), DimConst(-5), DimOp("sub", DimConst(0), DimConst(9)), Variable(3, u8), Memory("m", Space.BUFFER, f32, (), Access.READ),
    object.__new__(Value), object.__new__(Const), object.__new__(Memory), object.__new__(Variable), object.__new__(Dim), object.__new__(DimOp),
    object.__new__(Grid), op("sqrt"), ATOMICS["compare_exchange"], Access.WRITE, Space.PRIVATE, Let, End(None, ()), If(None, (TRUE,)),
)  # fmt: skip


def _changed(thing: Any, name: str, junk: object) -> Any:
    made = copy.copy(thing)
    object.__setattr__(made, name, junk)
    return made


def _names(thing: object) -> tuple[str, ...]:
    return tuple(f.name for f in fields(thing) if f.init)  # type: ignore[arg-type]


def _with_changed_memory(program: Program, number: int, memory: Memory) -> Program:
    """The Program with another memory in the place of one, in the body as well."""
    old = program.memories[number]
    body = tuple(_changed(s, "memory", memory) if getattr(s, "memory", None) is old else s for s in program.body)
    return replace(program, memories=(*program.memories[:number], memory, *program.memories[number + 1 :]), body=body)


def _mutants(program: Program, junk: Any) -> Iterator[object]:
    for name in _names(program):
        old = getattr(program, name)
        for made in (junk, (junk,), (*old, junk)) if isinstance(old, tuple) else (junk,):
            changes: dict[str, Any] = {name: made}
            yield replace(program, **changes)
    for number, memory in enumerate(program.memories):
        for name in _names(memory):
            yield _with_changed_memory(program, number, _changed(memory, name, junk))
        yield _with_changed_memory(program, number, _changed(memory, "shape", (junk,)))
    for name in _names(program.grid):
        yield replace(program, grid=_changed(program.grid, name, junk))
    for index, statement in enumerate(program.body):
        changed = [junk, *(_changed(statement, name, junk) for name in _names(statement))]
        changed += [
            _changed(statement, "args", (*statement.args[:k], junk, *statement.args[k + 1 :]))
            for k in range(len(statement.args) + 1)
        ]
        if statement.result is not None:
            changed += [
                _changed(statement, "result", _changed(statement.result, name, junk)) for name in ("id", "type")
            ]
        for made in changed:
            yield replace(program, body=(*program.body[:index], made, *program.body[index + 1 :]))


@pytest.mark.parametrize("number", range(len(JUNK)))
def test_anything_is_refused_or_valid(number: int) -> None:
    """Every part of a Program replaced by junk: a finding, or a Program that is valid all the same, but nothing else."""
    junk = JUNK[number]
    refused = total = 0
    for mutant in _mutants(everything(), junk):
        total += 1
        found = codes(mutant)
        refused += bool(found)
        assert all(str(d) for d in found)
    assert refused > total // 2


@pytest.mark.parametrize("index", range(0, 40, 3))
def test_statements_missing_twice_or_moved(index: int) -> None:
    program = everything()
    body, match = program.body, program.match
    index %= len(body)
    for made in (body[:index] + body[index + 1 :], body[: index + 1] + body[index:], body[index:] + body[:index]):
        for joined in (match, match[: len(made)] + (-1,) * (len(made) - len(match))):
            codes(replace(program, body=made, match=joined))


# ---------------------------------------------------------------- work


def long(size: int) -> Program:
    """A long Program with blocks, variables, accesses and arithmetic."""
    a, y = assembler()
    i = a.let(op("global_id.x"), (), name="i")
    v = a.var(u32, i, "v")
    while len(a.body) < size - 9:
        a.if_(a.let(op("lt"), (i, N)))
        a.set(v, a.let(op("add"), (a.get(v), a.load(y, (i,)))))
        a.end()
        a.store(y, (a.let(op("mul"), (i, DimOp("add", N, DimConst(2)))),), ONE)
    return a.finish()


def _calls(program: object) -> int:
    """How many functions checking calls, Python's and builtin ones."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        codes(program)
    finally:
        sys.setprofile(None)
    return count


def wrong(size: int) -> Program:
    """A long Program in which every barrier is refused, each for a reason that lies far back."""
    a, y = assembler()
    a.if_(a.let(op("lt"), (a.let(op("global_id.x"), ()), N)))
    a.return_()
    a.end()
    while len(a.body) < size:
        a.region("r")
        a.if_(TRUE)
        a.return_()
        a.end()
        a.end()
        a.barrier()
        a.store(y, (const(f32, 0.0),), const(f32, 0.0))
    return a.finish()


@pytest.mark.parametrize("make", [long, wrong])
def test_work_is_linear(make: Callable[[int], Program]) -> None:
    calls = [_calls(make(size)) / size for size in (1000, 2000, 4000)]
    assert max(calls) < 1.3 * min(calls)


def test_ten_thousand_statements_take_well_under_half_a_second() -> None:
    program = long(10_000)
    begin = time.perf_counter()
    check(program)
    assert time.perf_counter() - begin < 0.5


# ---------------------------------------------------------------- the codes


CODES = [code for code in RULES if code.startswith("V")]
HERE = Path(__file__)


@pytest.mark.parametrize("code", CODES)
def test_every_code_is_a_law_and_is_shown(code: str) -> None:
    """Each stands among the laws at the head of a module, and has a filetest, or a test here where text cannot express it."""
    laws = " ".join(
        importlib.import_module(f"vyre_py.ir.check.{m.name}").__doc__ or ""
        for m in iter_modules(vyre_py.ir.check.__path__)
    )
    assert code in laws or code == "V599"
    assert (HERE.parent / "filetests" / "check" / f"{code}.vir").is_file() or f'"{code}"' in HERE.read_text(
        encoding="utf-8"
    )


def test_declarations_have_places() -> None:
    text = 'program t(n) workgroup(0) {\n  param "": u32\n  workgroup w: f32[n]\n}\n'
    with pytest.raises(ValidationError) as caught:
        check(Program.from_text(text, "t.vir"))
    assert [(d.code, str(d.place)) for d in caught.value.diagnostics] == [
        ("V106", "t.vir:2:9"), ("V305", "t.vir:3:13"), ("V504", "t.vir:1:1"),
    ]  # fmt: skip
