"""Programs of tiles through every door: exact round trips, shapes that no column holds, and columns that ask for what no tile is."""

from __future__ import annotations

import contextlib
import json
import random
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from every_tile import tile_programs
from malformed import redigested
from test_from_nodes import arrays_of
from test_json import SCHEMA, problem

from vyre_py.ir.check import check
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import OF_TILES, Dim, DimConst, Grid
from vyre_py.ir.language.errors import ValidationError, WireError
from vyre_py.ir.language.nodes import (
    TILE_KINDS,
    Access,
    Const,
    For,
    Get,
    Let,
    Space,
    Statement,
    Tile,
    TileLoad,
    TileStore,
    Value,
    Var,
    Variable,
    const,
)
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.tiles.tile_ops import TILE_OPS
from vyre_py.ir.language.types import _TILES, Type, f32, i32, tile_of, u32, vector_of
from vyre_py.ir.wire.codes import TYPE_CODES
from vyre_py.ir.wire.record import DIGEST_BYTES
from vyre_py.ir.wire.statement_codes import CODES

ZERO = const(u32, 0)
X = {"name": "x", "space": "buffer", "type": "f32", "shape": ["n", "n"], "access": "read_write"}


def through_bytes(program: Program) -> Program:
    return Program.from_bytes(program.to_bytes(places=True))


def through_json(program: Program) -> Program:
    return Program.from_json(program.to_json(places=True))


def through_arrays(program: Program) -> Program:
    return Program.from_nodes(**arrays_of(program))


DOORS = pytest.mark.parametrize("through", [through_bytes, through_json, through_arrays], ids=lambda door: door.__name__)


def types(program: Program) -> list[Type]:
    """Those of all values and variables."""
    return [*[s.result.type for s in program.body if s.result is not None], *[s.variable.type for s in program.body if isinstance(s, Var)]]


def begun(*, rank: int = 2, type_: Type = f32, of_tiles: bool = True) -> Assembler:
    a = Assembler("p", OF_TILES if of_tiles else (64, 1, 1))
    n = a.dim("n")
    a.grid = Grid(False, (n, DimConst(1), DimConst(1)))
    a.memory("x", Space.BUFFER, type_, (n,) * rank, Access.READ_WRITE)
    return a


def loaded(a: Assembler, *extents: int) -> Value:
    return a.tile_load(a.memories[0], (ZERO,) * a.memories[0].rank, extents)


# ---------------------------------------------------------------- round trips


def test_the_programs_have_every_op_and_statement() -> None:
    body = [s for program in tile_programs() for s in program.body]
    assert {s.op for s in body if isinstance(s, Tile)} == set(TILE_OPS.values())
    assert {type(s) for s in body} >= {*TILE_KINDS, Var, Get, For, Let}
    assert {len(t.shape) for program in tile_programs() for t in types(program)} == {0, 1, 2, 3}


@DOORS
@pytest.mark.parametrize("program", tile_programs(), ids=lambda program: program.name)
def test_programs_of_tiles_come_back(program: Program, through: Callable[[Program], Program]) -> None:
    again = through(program)
    check(again)
    assert again == program and again.of_tiles and again.grid == program.grid
    assert all(one is other for one, other in zip(types(again), types(program), strict=True))
    assert again.to_bytes() == program.to_bytes()
    assert problem(json.loads(again.to_json(places=True)), SCHEMA) is None


def test_whatever_is_accepted_is_written_again_as_it_was() -> None:
    """Every byte of a Program changed under a right digest."""
    accepted = 0
    for program in tile_programs():
        if program.name not in ("matmul", "statements"):
            continue
        data = program.to_bytes()
        for at in range(len(data) - DIGEST_BYTES):
            changed = redigested(data[:at] + bytes([data[at] ^ 0x01 << at % 7]) + data[at + 1 :])
            with contextlib.suppress(WireError):
                again = Program.from_bytes(changed)
                assert again.to_bytes() == changed
                accepted += changed != data
                with contextlib.suppress(ValidationError):
                    check(again)
    assert accepted > 30


@pytest.mark.parametrize("number", range(200))
def test_whatever_the_arrays_hold(number: int) -> None:
    """Entries changed at random: refused by name, or a Program that `check` has the last word on, and that is written."""
    r = random.Random(number)
    arguments = arrays_of(r.choice(tile_programs()))
    for _ in range(r.choice((1, 1, 3))):
        column = r.choice(("codes", "types", "refs", "operands", "constant_bits", "constant_types"))
        values = list(arguments[column])
        values[r.randrange(len(values))] = r.choice((0, 1, 2, 4, 5, 255, 1 << 17, (1 << 32) - 1, r.choice(list(CODES.values())), r.choice(values)))
        arguments[column] = values
    arguments["workgroup"] = r.choice((OF_TILES, OF_TILES, (64, 1, 1)))
    try:
        program = Program.from_nodes(**arguments)
    except WireError:
        return
    assert through_bytes(program) == program
    with contextlib.suppress(ValidationError):
        check(program)


# ---------------------------------------------------------------- wrong types


def wrong(statement: Callable[[Assembler, Value], Statement]) -> Program:
    """A Program with a tile of 4 by 6 and a statement about it."""
    a = begun()
    a.emit(statement(a, loaded(a, 4, 6)))
    return a.finish()


def misfit(a: Assembler, x: Value) -> Statement:
    turned = a.tile(TILE_OPS["transpose"], (x,), (1, 0))
    return Let(a.value(f32), (x, turned), OPS["add"])


WRONG: list[tuple[str, Callable[[Assembler, Value], Statement], str]] = [
    ("the element of a tile load", lambda a, x: TileLoad(a.value(tile_of(i32, (2, 2))), (ZERO, ZERO, const(u32, 2), const(u32, 2)), a.memories[0]), "V203"),
    ("the element of a tile op", lambda a, x: Tile(a.value(tile_of(i32, (4, 1))), (x, const(u32, 1)), TILE_OPS["reduce_add"]), "V203"),
    ("the element of a let", lambda a, x: Let(a.value(tile_of(i32, (4, 6))), (x, x), OPS["add"]), "V203"),
    ("the element of a variable", lambda a, x: Var(None, (x,), Variable(0, tile_of(i32, (4, 6)))), "V204"),
    ("what a tile op takes", lambda a, x: Tile(a.value(f32), (x, const(u32, 1)), TILE_OPS["reduce_and"]), "V201"),
    ("an axis that is not there", lambda a, x: Tile(a.value(f32), (x, const(u32, 2)), TILE_OPS["reduce_add"]), "V201"),
    ("no number", lambda a, x: Tile(a.value(f32), (x,), TILE_OPS["reduce_add"]), "V202"),
    ("no operand", lambda a, x: Tile(a.value(f32), (), TILE_OPS["mma"]), "V202"),
    ("too many", lambda a, x: Tile(a.value(f32), (x,) * 255, TILE_OPS["transpose"]), "V601"),
    ("a number that is a value", lambda a, x: Tile(a.value(f32), (x, x), TILE_OPS["reshape"]), "V601"),
    ("an extent that is a size", lambda a, x: TileLoad(a.value(f32), (ZERO, ZERO, Dim("n"), Dim("n")), a.memories[0]), "V601"),
    ("no extents", lambda a, x: TileLoad(a.value(f32), (ZERO, ZERO), a.memories[0]), "V202"),
    ("extents of nothing", lambda a, x: TileLoad(a.value(f32), (ZERO,) * 4, a.memories[0]), "V604"),
    ("a huge extent", lambda a, x: TileLoad(a.value(f32), (ZERO, ZERO, const(u32, 1 << 31), const(u32, 1)), a.memories[0]), "V604"),
    ("extents whose product is 0 in 64 bits", lambda a, x: TileLoad(a.value(f32), (ZERO, ZERO, *(Const(u32, 1 << 31),) * 2), a.memories[0]), "V604"),
    ("a tile of vectors", lambda a, x: Tile(a.value(vector_of(f32, 2)), (const(f32, 1.0), const(u32, 4)), TILE_OPS["fill"]), "V203"),
    ("a store of too much", lambda a, x: TileStore(None, (ZERO, ZERO, *(const(u32, 1 << 17),) * 2, x), a.memories[0]), "V604"),
    ("tiles that do not fit", misfit, "V201"),
]  # fmt: skip


@DOORS
@pytest.mark.parametrize(("statement", "code"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_what_check_refuses_comes_back(statement: Callable[[Assembler, Value], Statement], code: str, through: Callable[[Program], Program]) -> None:
    program = wrong(statement)
    again = through(program)
    assert again == program and types(again) == types(program)
    with pytest.raises(ValidationError) as caught:
        check(again)
    assert code in caught.value.codes


@DOORS
def test_tiles_in_a_program_of_invocations_come_back(through: Callable[[Program], Program]) -> None:
    a = begun(of_tiles=False)
    a.var(tile_of(f32, (4, 6)), loaded(a, 4, 6))
    program = a.finish()
    again = through(program)
    assert again == program and types(again) == types(program)
    with pytest.raises(ValidationError) as caught:
        check(again)
    assert set(caught.value.codes) == {"V602"}


def unwritable(program: Program) -> WireError:
    with pytest.raises(WireError) as caught:
        program.to_json()
    with pytest.raises(WireError) as caught:
        program.to_bytes()
    return caught.value


def huge(a: Assembler, x: Value) -> Statement:
    column, row = loaded(a, 1 << 16, 1), loaded(a, 1, 1 << 16)
    return Let(a.value(tile_of(f32, (1 << 16, 1 << 16))), (column, row), OPS["add"])


def got(a: Assembler, x: Value) -> Statement:
    variable = a.var(x.type, x)
    return Get(a.value(tile_of(f32, (2, 2))), (), variable)


UNWRITABLE: list[tuple[str, Callable[[Assembler, Value], Statement]]] = [
    ("a tile op", lambda a, x: Tile(a.value(tile_of(f32, (4, 2))), (x, const(u32, 1)), TILE_OPS["reduce_add"])),
    ("a scalar where a tile is", lambda a, x: Let(a.value(f32), (x, x), OPS["add"])),
    ("a tile where none is", lambda a, x: Let(a.value(tile_of(f32, (4,))), (ZERO,), OPS["cast"])),
    ("a tile load", lambda a, x: TileLoad(a.value(tile_of(f32, (2, 2))), (ZERO, ZERO, const(u32, 2), ZERO), a.memories[0])),
    ("a variable", lambda a, x: Var(None, (x,), Variable(0, f32))),
    ("a get", got),
    ("a for", lambda a, x: For(a.value(x.type), (x, x, x))),
    ("more than a tile may have", huge),
    ("a type of nobody", lambda a, x: Let(a.value(replace(x.type)), (x, x), OPS["add"])),
]  # fmt: skip


def test_a_tile_of_vectors_is_refused_by_both() -> None:
    pairs = vector_of(f32, 2)
    a = begun(rank=1, type_=pairs)
    a.emit(TileLoad(a.value(tile_of(pairs, (4,))), (ZERO, const(u32, 4)), a.memories[0]))
    assert unwritable(a.finish()).codes == ("W113",)
    with pytest.raises(ValidationError) as caught:
        check(a.finish())
    assert caught.value.codes == ("V101",)


@DOORS
def test_a_tile_of_scalars_from_vectors_comes_back_and_is_refused_by_check(through: Callable[[Program], Program]) -> None:
    a = begun(rank=1, type_=vector_of(f32, 2))
    loaded(a, 4)
    again = through(a.finish())
    assert again == a.finish()
    with pytest.raises(ValidationError) as caught:
        check(again)
    assert caught.value.codes == ("V604",)


@pytest.mark.parametrize("statement", [row[1] for row in UNWRITABLE], ids=[row[0] for row in UNWRITABLE])
def test_shapes_that_do_not_follow_are_not_written(statement: Callable[[Assembler, Value], Statement]) -> None:
    a = begun()
    a.emit(statement(a, loaded(a, 4, 6)))
    if a.open:
        a.end()
    error = unwritable(a.finish())
    index = len(a.body) - 1 - isinstance(a.body[-2], For)
    assert error.codes == ("W113",) and error.where == f"statement {index}", str(error)
    with pytest.raises(ValidationError) as caught:
        check(a.finish())
    assert statement is not huge or caught.value.codes == ("V604",)


# ---------------------------------------------------------------- hostile columns


def made(codes: list[str], args: list[list[int]], constants: list[int], **changes: Any) -> Program:
    """A Program of tiles over u32 constants, whose statements all bind an f32."""
    arguments: dict[str, Any] = {
        "name": "p", "dims": ["n"], "memories": [X], "codes": codes, "types": ["f32"] * len(codes), "constant_types": ["u32"] * len(constants),
        "constant_bits": constants, "operands": [4 * row + 1 for one in args for row in one], "offsets": np.cumsum([0, *map(len, args)]),
        "workgroup": OF_TILES, "grid": ["n", 1, 1],
    }  # fmt: skip
    return Program.from_nodes(**(arguments | changes))


@pytest.mark.parametrize("rank", [0, 1, 3, 4, 8, 40, 120])
@pytest.mark.parametrize("extent", [0, 1, 2, 1 << 17, (1 << 17) + 1, 1 << 31, (1 << 32) - 1])
def test_extents_of_any_size_and_number(rank: int, extent: int) -> None:
    memory = X | {"shape": ["n"] * rank}
    program = made(["tile_load"], [[0] * rank + [1] * rank], [0, extent], memories=[memory])
    (type_,) = types(program)
    assert type_ is (tile_of(f32, (extent,) * rank) if extent and 1 <= rank <= 3 and extent**rank <= 1 << 17 else f32)
    assert through_bytes(program) == through_json(program) == program
    with contextlib.suppress(ValidationError):
        check(program)


@pytest.mark.parametrize("op", TILE_OPS.values(), ids=lambda op: op.name)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 255])
@pytest.mark.parametrize("number", [0, 1, 3, 1 << 17, (1 << 32) - 1])
def test_tile_ops_with_any_operands(op: Any, count: int, number: int) -> None:
    program = made([f"tile_{op.name}"], [[0] * count], [number])
    assert through_bytes(program) == through_json(program) == program
    with contextlib.suppress(ValidationError):
        check(program)


def test_extents_of_other_types() -> None:
    for type_, bits in (("i32", 4), ("u64", 1 << 63), ("f32", 0x40000000), ("bool", 1)):
        program = made(["tile_load"], [[0, 0, 1, 1]], [0, bits], constant_types=["u32", type_])
        assert through_bytes(program) == through_json(program) == program
        with pytest.raises(ValidationError) as caught:
            check(program)
        assert set(caught.value.codes) == {"V601"}


def test_as_many_shapes_as_statements() -> None:
    """Each of another shape: what is read costs what its Program takes, and is read as fast as others are."""
    count = 20_000
    constants = list(range(count + 1))
    program = made(["tile_load"] * count, [[0, 0, k + 1, 1] for k in range(count)], constants)
    data = program.to_bytes()
    assert len(set(types(program))) == count
    del program
    tracemalloc.start()
    again = Program.from_bytes(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2000 * count
    assert again.to_bytes() == data


def test_a_type_goes_with_the_last_program_that_has_it() -> None:
    program = made(["tile_load"], [[0, 0, 1, 1]], [0, 363])
    assert "tile(f32, 363, 363)" not in _TILES  # no tile is so large
    program = made(["tile_load"], [[0, 0, 1, 2]], [0, 361, 359])
    assert "tile(f32, 361, 359)" in _TILES
    del program
    assert "tile(f32, 361, 359)" not in _TILES


def test_names_of_codes_and_types_in_json() -> None:
    a = begun(rank=1)
    x = loaded(a, 8)
    a.tile(TILE_OPS["reduce_add"], (x,), (0,), "sum")
    load, fold = json.loads(a.finish().to_json())["body"]
    assert load == {"do": "tile_load", "type": "f32", "memory": "x", "args": [["u32", 0], ["u32", 8]]}
    assert fold == {"do": "tile_reduce_add", "type": "f32", "name": "sum", "args": [0, ["u32", 0]]}
    assert CODES["tile_reduce_add"] == 0x3020 and TYPE_CODES["f32"] == 12
