"""The checker: the laws of types, memory and limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from check_programs import ONE, TRUE, ZERO, N, assembler, codes, declared, loose

from vyre_py.ir.check.limits import MAX_NAME, MAX_NESTING, MAX_STATEMENTS
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import DimConst, DimExpr, DimOp, Grid
from vyre_py.ir.language.nodes import (
    Access,
    Barrier,
    Const,
    End,
    For,
    Get,
    If,
    Let,
    Load,
    Return,
    Set,
    Space,
    Store,
    Value,
    const,
)
from vyre_py.ir.language.ops import ATOMICS, OPS
from vyre_py.ir.language.types import TYPES, Type, bf16, bool_, f32, f64, i8, i32, i64, u8, u16, u32, u64, vector_of

# ---------------------------------------------------------------- types: V201 to V209


def test_v201_v202_v203_ops() -> None:
    def one(result: Type, name: str, *args: Any) -> tuple[str, ...]:
        return codes(loose(Let(Value(0, result), args, OPS[name])))

    f, i, b = const(f32, 1.0), const(i32, 1), TRUE
    assert one(u32, "add", ONE, ONE) == ()
    assert one(u32, "add", ONE) == one(u32, "local_index", ONE) == one(u32, "cast") == ("V202",)
    assert one(u8, "add", const(u8, 1), const(u8, 1)) == one(f32, "rem", f, f) == ()
    assert one(u32, "add", ONE, i) == one(bool_, "add", b, b) == one(u8, "add", const(u8, 1), const(i8, 1)) == ("V201",)
    assert one(u32, "select", ONE, ONE, ONE) == one(f32, "bitcast", f) == one(bool_, "bitcast", ONE) == ("V201",)
    assert one(f32, "sqrt", ONE) == one(f32, "not", f) == ("V201",)
    assert one(i32, "add", ONE, ONE) == one(i32, "abs_diff", i, i) == one(u32, "lt", ONE, ONE) == ("V203",)
    assert one(u8, "select", b, const(u8, 1), const(u8, 2)) == one(f32, "cast", const(u8, 1)) == ()


def test_every_op_refuses_a_wrong_operand() -> None:
    """No row accepts a bool and a float for the same T, and the message of each refusal can be made."""
    for row in OPS.values():
        for type_ in (bool_, u8, f32):
            args = tuple(Const(type_, 0) for _ in row.operands)
            found = codes(loose(Let(Value(0, type_), args, row), subgroup=32))
            accepted = row.result_type(tuple(a.type for a in args), type_ if row.result.name == "GIVEN" else None)
            assert found == (() if accepted is type_ else ("V201",) if accepted is None else ("V203",)), row


def test_v201_to_v204_vectors() -> None:
    def one(name: str, given: Type | None, *args: Any) -> tuple[str, ...]:
        a = Assembler("t")
        params = [a.param(f"p{k}", arg) if isinstance(arg, Type) else arg for k, arg in enumerate(args)]
        row = OPS[name]
        a.emit(Let(a.value(given or row.result_type(tuple(p.type for p in params)) or u32), tuple(params), row))
        return codes(a.finish())

    x2, x3, b3 = vector_of(f32, 2), vector_of(f32, 3), vector_of(bool_, 3)
    assert one("add", None, x3, x3) == one("lt", b3, x3, x3) == one("select", x3, b3, x3, x3) == one("select", x3, bool_, x3, x3) == ()
    assert one("add", None, x3, f32) == one("add", None, x3, x2) == one("select", None, vector_of(bool_, 2), x3, x3) == ("V201",)
    assert one("select", None, vector_of(u32, 3), x3, x3) == one("vec2", None, x2, x2) == one("cross", None, x2, x2) == ("V201",)
    assert one("dot", None, f32, f32) == one("all", None, bool_) == one("length", None, vector_of(u32, 2)) == ("V201",)
    assert one("lt", bool_, x3, x3) == one("dot", x3, x3, x3) == one("add", f32, x3, x3) == ("V203",)
    assert one("cast", vector_of(u8, 3), x3) == one("bitcast", vector_of(u16, 4), vector_of(f32, 2)) == ()
    assert one("cast", vector_of(u8, 2), x3) == one("bitcast", vector_of(u16, 3), x2) == one("bitcast", vector_of(bool_, 4), u32) == ("V201",)
    assert one("extract_bits", None, vector_of(u8, 2), u32, vector_of(u32, 2)) == ()
    assert one("extract_bits", None, vector_of(u8, 2), u32, vector_of(u32, 3)) == one("extract_bits", None, u8, i32, u32) == ("V201",)
    a, m = declared(Space.PRIVATE, x3, (DimConst(1),), Access.READ_WRITE)
    a.store(m, (ZERO,), const(f32, 1.0))
    a.emit(Load(a.value(f32), (ZERO,), m))
    assert codes(a.finish()) == ("V204", "V203")


@pytest.mark.parametrize(
    ("source", "pattern", "result", "expected"),
    [
        (vector_of(f32, 3), 0b100100, vector_of(f32, 3), ()),
        (vector_of(f32, 2), 0b01, f32, ()),
        (f32, 0, vector_of(f32, 4), ()),
        (vector_of(f32, 2), 0b10, f32, ("V210",)),
        (vector_of(f32, 3), 0b11000000, vector_of(f32, 4), ("V210",)),
        (vector_of(f32, 3), 0b100, f32, ("V210",)),
        (vector_of(f32, 3), 1 << 31, vector_of(f32, 3), ("V210",)),
        (f32, 1, f32, ("V210",)),
        (vector_of(f32, 3), 0, u32, ("V201",)),
        (vector_of(f32, 3), const(i32, 0), f32, ("V201",)),
        (vector_of(f32, 3), DimConst(0), f32, ("V210",)),
    ],
)
def test_v210_swizzles(source: Type, pattern: Any, result: Type, expected: tuple[str, ...]) -> None:
    a = Assembler("t")
    p = a.param("p", source)
    a.emit(Let(a.value(result), (p, const(u32, pattern) if isinstance(pattern, int) else pattern), OPS["swizzle"]))
    assert codes(a.finish()) == expected


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
    def count(start: Any, stop: Any, step: Any, result: Type = u32) -> tuple[str, ...]:
        return codes(loose(For(Value(0, result), (start, stop, step)), End(None, ()), match=(1, 0)))

    assert codes(loose(If(None, (ONE,)), End(None, ()), match=(1, 0))) == ("V206",)
    a = Assembler("t")
    a.if_(a.param("p", vector_of(bool_, 2)))
    a.end()
    assert codes(a.finish()) == ("V206",)
    assert codes(loose(If(None, ()), End(None, ()), match=(1, 0))) == ("V202",)
    assert count(ZERO, DimConst(3), ONE) == count(const(i32, 3), const(i32, 0), const(i32, -1), i32) == ()
    assert count(ZERO, const(i32, 1), ONE) == count(ZERO, ONE, const(i32, 1)) == ("V207",)
    assert count(const(f32, 0.0), const(f32, 1.0), const(f32, 1.0), f32) == ("V207",)
    assert count(ZERO, ONE, ZERO) == ("V208",)
    assert count(ZERO, ONE, DimConst(2)) == ()  # no constant of the language: it counts up
    assert count(ZERO, ONE, ONE, i32) == ("V203",)


@pytest.mark.parametrize(
    "size",
    [
        DimConst(-1),
        DimConst(1 << 48),
        pytest.param(DimConst(10**5000), id="huge"),
        DimOp("sub", DimConst(1), DimConst(2)),
        DimOp("mul", DimConst(1 << 31), DimConst(1 << 17)),
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


def test_v209_sizes_as_values() -> None:
    """A size of more than 32 bits is no u32, and is one where a cast to 64 bits takes it whole."""
    large = DimOp("mul", DimConst(1 << 16), DimConst(1 << 16))
    for size in (DimConst(1 << 32), large):
        for type_, expected in ((f32, ("V209",)), (i32, ("V209",)), (u64, ()), (i64, ())):
            a, _ = assembler()
            a.let(OPS["cast"], (size,), type_)
            a.grid = Grid(False, (size, N, N))
            assert codes(a.finish()) == expected
    assert codes(loose(Let(Value(0, u64), (), OPS["cast"]))) == ("V202",)


# ---------------------------------------------------------------- memory: V301 to V310


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
    for name, row in ATOMICS.items():
        for type_ in TYPES.values():
            a, m = declared(Space.WORKGROUP, type_, (DimConst(1),), Access.READ_WRITE)
            operand = a.param("p", type_)
            if row.reads:
                a.atomic(row, m, (ZERO,), (operand,) * row.operands)
            else:
                a.atomic_store(row, m, (ZERO,), operand)
            assert codes(a.finish()) == (() if type_ in row.of else ("V304",)), (name, type_)
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
    for type_, size in ((vector_of(f64, 3), 24), (vector_of(bool_, 4), 4), (bf16, 2), (vector_of(bf16, 3), 6)):
        assert one(Space.TABLE, type_, fixed, read, bytes(6 * size)) == ()
        assert one(Space.TABLE, type_, fixed, read, bytes(6 * size - 1)) == ("V306",)


def test_v307_leaves_room_for_the_components_of_vectors() -> None:
    def one(type_: Type, *shape: DimExpr) -> tuple[str, ...]:
        return codes(declared(Space.BUFFER, type_, shape, Access.READ)[0].finish())

    eight = (N,) * 8
    assert one(vector_of(f32, 3), *eight) == one(f32, *eight, DimConst(2)) == one(f32, *eight, DimConst(4)) == ()
    for shape in ((*eight, N), (*eight, DimConst(1)), (*eight, DimConst(5)), (*eight, DimConst(2), DimConst(2))):
        assert one(f32, *shape) == ("V307",)
    assert one(vector_of(f32, 3), *eight, DimConst(2)) == ("V307",)


def test_v310_grid() -> None:
    a, _ = declared(Space.BUFFER, u32, (N,) * 4, Access.WRITE)
    a.grid = None
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
    a.let(OPS["local_index"], (), name=long)
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
