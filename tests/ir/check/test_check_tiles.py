"""Tiles in the checker: what text cannot say, and that Programs that the checker refuses print all the same."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from check_programs import codes, loose

from vyre_py.ir.builder.tiles.tile_refusals import refusal_tile
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.describe import PYTHON, TEXT, Dialect
from vyre_py.ir.language.dims import OF_TILES, DimConst, Grid
from vyre_py.ir.language.nodes import (
    Access,
    Const,
    Memory,
    Space,
    Statement,
    Tile,
    TileAtomicAdd,
    TileLoad,
    TileStore,
    Value,
    const,
)
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.tiles.tile_op import TileOp
from vyre_py.ir.language.tiles.tile_ops import TILE_OPS
from vyre_py.ir.language.types import Type, f32, i32, tile_of, u32, vector_of
from vyre_py.ir.text.printer import print_program

ONE = DimConst(1)
ZERO, FOUR, SIGNED = const(u32, 0), const(u32, 4), const(i32, 4)
HALF = const(f32, 0.5)
FOURS = tile_of(f32, (4,))


def assembler() -> tuple[Assembler, Memory]:
    a = Assembler("p", OF_TILES)
    a.grid = Grid(False, (ONE, ONE, ONE))
    return a, a.memory("x", Space.BUFFER, f32, (DimConst(64),), Access.READ_WRITE)


def found(program: Program) -> tuple[str, ...]:
    print_program(program)  # which shows what is refused, too
    return codes(program)


@pytest.mark.parametrize("wrong", [SIGNED, HALF, DimConst(4)])
def test_v601_numbers_and_extents_are_constant(wrong: Const | DimConst) -> None:
    a, x = assembler()
    t = a.tile_load(x, (ZERO,), (4,))
    a.emit(TileLoad(a.value(FOURS), (ZERO, wrong), x))
    a.emit(TileStore(None, (ZERO, wrong, t), x))
    a.emit(TileAtomicAdd(None, (ZERO, wrong, t), x))
    a.emit(Tile(a.value(FOURS), (HALF, wrong), TILE_OPS["fill"]))
    a.emit(Tile(a.value(FOURS), (t, wrong), TILE_OPS["inclusive_add"]))
    assert found(a.finish()) == ("V601",) * 5


def test_v202_v203_of_tiles() -> None:
    a, x = assembler()
    t = a.tile_load(x, (ZERO,), (4,))
    a.emit(TileLoad(a.value(FOURS), (ZERO,), x))
    a.emit(TileLoad(a.value(FOURS), (ZERO, FOUR, FOUR), x))
    a.emit(TileStore(None, (ZERO, t), x))
    a.emit(TileAtomicAdd(None, (t,), x))
    a.emit(Tile(a.value(FOURS), (), TILE_OPS["mma"]))
    a.emit(Tile(a.value(FOURS), (HALF,), TILE_OPS["fill"]))
    a.emit(TileLoad(a.value(tile_of(f32, (5,))), (ZERO, FOUR), x))
    a.emit(TileLoad(a.value(f32), (ZERO, FOUR), x))
    a.emit(Tile(a.value(tile_of(u32, (4,))), (HALF, FOUR), TILE_OPS["fill"]))
    assert found(a.finish()) == ("V202",) * 6 + ("V203",) * 3


@pytest.mark.parametrize("type_", [tile_of(f32, (4,) * 4), tile_of(f32, (1 << 20,))])
def test_a_type_that_is_too_large_for_a_tile_is_a_finding_of_its_own(type_: Type) -> None:
    a, _ = assembler()
    a.emit(Tile(a.value(type_), (HALF, *[const(u32, n) for n in type_.shape]), TILE_OPS["fill"]))
    assert found(a.finish()) == ("V201",)


@pytest.mark.parametrize("type_", [tile_of(vector_of(f32, 2), (4,)), tile_of(f32, (0,)), Type("x", FOURS.kind, 32, 1, (4,))])
def test_a_type_that_is_no_tile_is_a_fault_of_form(type_: Type) -> None:
    a, _ = assembler()
    a.emit(Tile(Value(0, type_), (HALF, FOUR), TILE_OPS["fill"]))
    assert set(codes(a.finish())) == {"V101", "V103"}


def test_a_cast_makes_no_tile_of_a_scalar() -> None:
    assert OPS["cast"].result_type((i32,), FOURS) is None
    assert OPS["bitcast"].result_type((i32,), FOURS) is None
    assert OPS["cast"].result_type((tile_of(i32, (4,)),), FOURS) is FOURS


def test_v602_of_every_kind() -> None:
    x = Memory("x", Space.BUFFER, f32, (DimConst(64),), Access.READ_WRITE)
    t = Value(0, FOURS)
    statements: tuple[Statement, ...] = (
        TileLoad(t, (ZERO, FOUR), x), TileStore(None, (ZERO, FOUR, t), x), TileAtomicAdd(None, (ZERO, FOUR, t), x),
        Tile(Value(1, FOURS), (HALF, FOUR), TILE_OPS["fill"]),
    )  # fmt: skip
    program = replace(loose(*statements), memories=(x,), grid=Grid(False, (ONE, ONE, ONE)))
    assert found(program) == ("V602",) * 4


@pytest.mark.parametrize("op", TILE_OPS.values(), ids=lambda op: op.name)
@pytest.mark.parametrize("dialect", [TEXT, PYTHON], ids=["text", "python"])
def test_whatever_an_op_refuses_it_says_why(op: TileOp, dialect: Dialect) -> None:
    r = random.Random(op.code)
    shapes = ((1,), (4,), (2, 3), (3, 2), (3, 3), (1, 2, 3), (1 << 18,), (2,) * 4)
    given = [f32, i32, vector_of(f32, 2), *[tile_of(t, shape) for t in (f32, i32) for shape in shapes]]
    refused = 0
    for _ in range(500):
        operands = tuple(r.choices(given, k=op.operands))
        numbers = tuple(r.choices((0, 1, 2, 3, 4, 6, 1 << 20), k=len(op.numbers) + (r.randrange(4) if op.numbers and op.numbers[-1].endswith("...") else 0)))
        if op.result_type(operands, numbers) is None:
            message, help_ = refusal_tile(op, operands, numbers, dialect)
            assert message.startswith(f"{op.name}({', '.join([*map(str, operands), *map(str, numbers)])}): ") and help_
            refused += 1
    assert refused
