"""The binary form: exact round trips, one form for one Program, the registry, the committed vectors, and what is refused."""

from __future__ import annotations

import hashlib
import json
import random
import re
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from executed_lines import lines_executed
from filetest import files, text_of
from generator import Seeded, generate
from malformed import redigested
from tree import ROOT
from wire_pages import COMMAND, FILES, MALFORMED, VECTORS, vector

from vyre_py.ir.check import check
from vyre_py.ir.check.limits import MAX_NAME, MAX_NESTING, MAX_STATEMENTS
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import DIM_OPS, MAX_DIM_TERMS, Dim, DimConst, DimExpr, DimOp, Grid
from vyre_py.ir.language.errors import Place, WireError
from vyre_py.ir.language.nodes import (
    ATOMIC_KINDS,
    FENCES,
    STATEMENTS,
    Access,
    Const,
    Get,
    Let,
    Param,
    Space,
    Statement,
    Store,
    Subgroup,
    Tile,
    Value,
    Variable,
    const,
)
from vyre_py.ir.language.op import Scope
from vyre_py.ir.language.ops import ATOMICS_BY_SPELLING, OPS, SUBGROUPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.rules import RULES
from vyre_py.ir.language.tiles.tile_ops import TILE_OPS
from vyre_py.ir.language.types import SCALARS, TYPES, f32, i32, u32, vector_of
from vyre_py.ir.text.parser import parse
from vyre_py.ir.wire import codes, statement_codes, tables
from vyre_py.ir.wire.binary import PROGRAM
from vyre_py.ir.wire.flat import COLUMNS, COUNTS
from vyre_py.ir.wire.record import DIGEST_BYTES

FOLDER = ROOT / "tests" / "vectors"


def everything(program: Program) -> dict[str, Any]:
    """What a Program holds beside its statements, for comparison to the last field."""
    return {
        "match": program.match, "names": dict(program.value_names), "variables": dict(program.variable_names), "doc": program.doc, "grid": program.grid,
        "counts": (program.value_count, program.variable_count), "workgroup": program.workgroup,
    }


def round_trip(program: Program) -> bytes:
    data = program.to_bytes()
    again = Program.from_bytes(data)
    assert again == program
    assert everything(again) == everything(program)
    assert again.to_bytes(places=True) == data
    return data


def refused(data: Any) -> WireError:
    with pytest.raises(WireError) as caught:
        Program.from_bytes(data)
    assert str(caught.value)
    return caught.value


def read(data: bytes) -> tuple[Program | None, int]:
    """The Program, or None and the offset at fault."""
    try:
        return Program.from_bytes(data), -1
    except WireError as error:
        return None, error.where if isinstance(error.where, int) else -1


def small() -> Assembler:
    a = Assembler("p")
    n = a.dim("n")
    a.memory("y", Space.BUFFER, f32, (n,), Access.READ_WRITE)
    return a


# ---------------------------------------------------------------- round trips


@pytest.mark.parametrize("number", range(40))
def test_generated_programs_come_back(number: int) -> None:
    program = generate(Seeded(number)).program
    round_trip(program)
    assert check(Program.from_bytes(program.to_bytes())).capabilities == check(program).capabilities


@pytest.mark.parametrize("path", files("run"), ids=lambda path: path.stem)
def test_filetests_come_back(path: Path) -> None:
    for text in text_of(path).split("\nprogram ")[1:]:
        program = parse("program " + text)
        round_trip(program)
        again = Program.from_bytes(program.to_bytes(places=True))
        assert [again.place(k) for k in range(len(again.body))] == [without_source(program.place(k)) for k in range(len(program.body))]
        assert again.declared == {name: without_source(place) for name, place in program.declared.items()}
        assert again.to_bytes(places=True) == program.to_bytes(places=True)


def without_source(place: Place | None) -> Place | None:
    return None if place is None else Place(place.file, place.line, place.column, place.width)


@pytest.mark.parametrize("type_", SCALARS.values(), ids=str)
def test_every_bit_of_a_constant_comes_back(type_: Any) -> None:
    a = small()
    patterns = {0, 1, (1 << type_.bits) - 1, 1 << (type_.bits - 1), *(random.Random(1).randrange(1 << type_.bits) for _ in range(20))}
    for bits in patterns:
        a.var(type_, Const(type_, bits))
    again = Program.from_bytes(round_trip(a.finish()))
    assert {s.args[0].bits for s in again.body} == patterns  # type: ignore[union-attr]  # constants, all of them


def test_every_code_comes_back() -> None:
    """Every op and atomic, with operands that need not fit: whether they do is for `check`."""
    a = small()
    (memory,) = a.memories
    first = a.let(OPS["global_id.x"], ())
    for row in OPS.values():
        a.emit(Let(a.value(u32), (first,) * len(row.operands), row))
    for atomic in ATOMICS_BY_SPELLING.values():
        if atomic.reads:
            a.atomic(atomic, memory, (first,), (first,) * atomic.operands)
        else:
            a.atomic_store(atomic, memory, (first,), first)
    for scope in Scope:
        a.fence(scope)
    for type_ in TYPES.values():
        a.emit(Let(a.value(type_), (first,), OPS["cast"]))
    round_trip(a.finish())


def sizes(r: random.Random, dims: list[Dim], terms: int) -> DimExpr:
    if terms == 1:
        return r.choice([*dims, DimConst(r.choice((0, 1, 7, 2**32 - 1, 2**32, 2**48 - 1)))])
    left = r.randrange(1, terms)
    return DimOp(r.choice(list(DIM_OPS)), sizes(r, dims, left), sizes(r, dims, terms - left))


@pytest.mark.parametrize("number", range(20))
def test_sizes_come_back(number: int) -> None:
    r = random.Random(number)
    a = Assembler("p", (8, 4, 2))
    dims = [a.dim(name) for name in ("n", "m", "k")]
    shared = sizes(r, dims, 3)
    for k in range(4):
        a.memory(f"m{k}", Space.BUFFER, i32, tuple(sizes(r, dims, r.choice((1, 2, 5, MAX_DIM_TERMS))) for _ in range(r.randrange(1, 5))), Access.WRITE)
    a.grid = Grid(r.random() < 0.5, (shared, DimOp("mul", shared, shared), DimConst(1)))
    a.var(u32, DimOp("max", shared, sizes(r, dims, 9)))
    round_trip(a.finish())


def test_equal_programs_have_equal_bytes_and_others_others() -> None:
    text = 'program p(n) {\nbuffer y: f32[n] read_write\nlet NAME = global_id.x\ny[NAME] = 1.5f32\n}\n'
    one, other = parse(text.replace("NAME", "i")), parse(text.replace("NAME", "j"))
    assert one == other
    assert one.to_bytes(names=False) == other.to_bytes(names=False)
    assert one.to_bytes() != other.to_bytes()
    assert Program.from_bytes(one.to_bytes(names=False)).value_names == {}
    assert parse(text.replace("1.5", "2.5")).to_bytes(names=False) != one.to_bytes(names=False)


def test_places_are_left_out_unless_asked_for() -> None:
    program = parse("program p(n) over(n) {\nbuffer y: f32[n] write\ny[0u32] = 1.0f32\n}\n", "secret.vir")
    assert b"secret" not in program.to_bytes()
    assert Program.from_bytes(program.to_bytes()).place(0) is None
    assert Program.from_bytes(program.to_bytes(places=True)).place(0) == without_source(program.place(0))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_bytes_will_do(kind: Callable[[bytes], Any]) -> None:
    program = vector("control")
    assert Program.from_bytes(kind(program.to_bytes())) == program


def test_other_memory_formats_are_read_as_bytes() -> None:
    data = vector("axpy").to_bytes()
    padded = np.frombuffer(data + b"\0" * (-len(data) % 4), np.uint8)
    assert Program.from_bytes(memoryview(padded)[: len(data)]) == vector("axpy")
    assert refused(memoryview(padded)[::2]).codes == ("W116",)


@pytest.mark.parametrize("thing", [None, "text", 1, [1, 2], np.zeros(3)])
def test_other_things_are_no_bytes(thing: Any) -> None:
    assert refused(thing).codes == ("W116",)


# ---------------------------------------------------------------- the registry


def test_the_registry_is_complete() -> None:
    assert set(codes.TYPE_CODES) == set(TYPES)
    assert set(codes.SCALAR_CODES) == set(SCALARS)
    assert set(codes.SIZE_CODES) == set(DIM_OPS)
    assert set(codes.SPACE_CODES) == {space.value for space in Space}
    assert set(codes.ACCESS_CODES) == {access.value for access in Access}
    prefixed = {"": OPS, "atomic_": ATOMICS_BY_SPELLING, "subgroup_": SUBGROUPS, "tile_": TILE_OPS}
    rows = {f"{prefix}{name}" for prefix, table in prefixed.items() for name in table}
    plain = set(statement_codes.CODES) - rows
    assert rows < set(statement_codes.CODES) and len(rows) == sum(map(len, prefixed.values()))
    words = {re.sub(r"(?<=.)(?=[A-Z])", "_", kind.__name__).lower() for kind in set(STATEMENTS) - {Let, *ATOMIC_KINDS, *FENCES.values(), Subgroup, Tile}}
    assert plain == words | {f"fence.{scope.value}" for scope in Scope} | {statement_codes.CALL}


def test_no_number_stands_for_two_things() -> None:
    for table in (statement_codes.CODES, codes.TYPE_CODES, codes.SPACE_CODES, codes.ACCESS_CODES, codes.SIZE_CODES, codes.OPERAND_KINDS):
        assert len(set(table.values())) == len(table)
    assert max(statement_codes.CODES.values()) < 1 << 16
    assert max(codes.TYPE_CODES.values()) < 1 << 8
    assert 0 not in statement_codes.CODES.values()
    assert 0 not in codes.TYPE_CODES.values()


def test_numbers_of_the_first_version_never_change() -> None:
    """`registry.json` holds them. It may grow, by a new name; a row of it is never edited."""
    frozen = json.loads((FOLDER / "registry.json").read_text(encoding="utf-8"))
    for table, numbers in frozen.items():
        now = getattr(statement_codes if table == "CODES" else codes, table)
        assert {name: now.get(name) for name in numbers} == numbers, f"{table}: a number has changed"
        assert set(numbers) == set(now), f"{table}: add the new names to tests/vectors/registry.json"


def test_types_are_scalar_and_lanes() -> None:
    for name, code in codes.TYPE_CODES.items():
        type_ = TYPES[name]
        assert code == codes.SCALAR_CODES[type_.scalar.name] + 64 * (type_.lanes - 1)
        assert bool(tables.IS_SCALAR[code]) is not type_.is_vector


# ---------------------------------------------------------------- vectors and pages


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_is_generated_is_fresh(path: Path) -> None:
    assert path.read_bytes() == FILES[path](), f"{path.name} is not what the tables say now: {COMMAND} rewrites it"


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_are_read(name: str) -> None:
    data = (FOLDER / f"{name}.vyre").read_bytes()
    program = Program.from_bytes(data)
    check(program)
    assert program == vector(name) == Program.from_json((FOLDER / f"{name}.json").read_bytes())
    assert program.to_bytes(places=True) == data


@pytest.mark.parametrize("row", json.loads(MALFORMED.read_text(encoding="utf-8")), ids=lambda row: row["what"])
def test_malformed_vectors_are_refused(row: dict[str, Any]) -> None:
    with pytest.raises(WireError) as caught:
        Program.from_bytes(bytes.fromhex(row["wire"])) if "wire" in row else Program.from_json(row["json"])
    assert (caught.value.codes, caught.value.where) == ((row["code"],), row["where"])
    assert caught.value.diagnostics[0].help or not RULES[row["code"]].help


def test_every_rule_of_the_door_has_a_malformed_vector_or_a_test() -> None:
    shown = {row["code"] for row in json.loads(MALFORMED.read_text(encoding="utf-8"))}
    elsewhere = {"W113", "W116"}  # about Programs and arguments, which are no bytes
    assert shown | elsewhere == {code for code in RULES if code.startswith("W")}


# ---------------------------------------------------------------- refusals


def test_the_version_is_named_with_ours() -> None:
    data = bytearray(vector("axpy").to_bytes())
    data[4:6] = struct.pack("<H", 7)
    error = refused(bytes(data))
    assert error.codes == ("W102",)
    assert "it is of format 7: a newer vyre-py wrote it; this one reads formats up to 2" in str(error)


def test_every_flipped_bit_and_truncation_is_noticed() -> None:
    data = vector("sizes").to_bytes()
    for at in range(len(data)):
        assert refused(data[:at]).codes[0] in ("W101", "W103")
        for bit in range(8):
            assert refused(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]).codes[0] in ("W101", "W102", "W103", "W104")


def test_the_digest_is_of_all_before_it() -> None:
    data = vector("types").to_bytes()
    assert hashlib.sha256(data[:-DIGEST_BYTES]).digest() == data[-DIGEST_BYTES:]


def test_whatever_is_accepted_is_written_again_as_it_was() -> None:
    """Every byte of a Program changed under a right digest: refused, or the one form of another Program."""
    accepted = 0
    for name in ("control", "sizes"):
        data = vector(name).to_bytes(places=name == "sizes")
        for at in range(len(data) - DIGEST_BYTES):
            for mask in (0x01, 0x02, 0x40, 0xFF):
                changed = redigested(data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :])
                program, where = read(changed)
                assert program is not None or 0 <= where < len(data)
                if program is not None:
                    accepted += changed != data
                    assert program.to_bytes(places=True) == changed
    assert accepted > 100


@pytest.mark.parametrize(
    ("depth", "fine"), [(MAX_NESTING, True), (MAX_NESTING + 1, False), (5000, False)],
)
def test_nesting_is_bounded(depth: int, fine: bool) -> None:
    a = small()
    for _ in range(depth):
        a.loop()
    for _ in range(depth):
        a.end()
    program = a.finish()
    if fine:
        round_trip(program)
        return
    with pytest.raises(WireError) as caught:
        program.to_bytes()
    assert caught.value.codes == ("W107",)


def test_names_are_bounded_in_characters() -> None:
    a = Assembler("é" * MAX_NAME)
    round_trip(a.finish())
    a.name = "é" * (MAX_NAME + 1)
    with pytest.raises(WireError) as caught:
        a.finish().to_bytes()
    assert caught.value.codes == ("W107",)
    a.name, a.doc = "p", "é" * 100_000  # a doc is no name
    round_trip(a.finish())


def test_absurd_counts_cost_nothing() -> None:
    data = bytearray(vector("axpy").to_bytes())
    for k in range(len(COUNTS)):
        made = bytearray(data)
        struct.pack_into("<I", made, 12 + 4 * k, (1 << 32) - 1)
        tracemalloc.start()
        error = refused(redigested(bytes(made)))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert error.codes == ("W103",)
        assert peak < 1 << 20


@pytest.mark.parametrize("last", ["operands", "types", "text"])
def test_a_large_refusal_takes_little_memory(last: str) -> None:
    """Tens of megabytes, wrong at the very end: nothing has been built by then."""
    rows = MAX_STATEMENTS
    columns: dict[str, Any] = {
        "string_lengths": [0, 1], "size_ops": [1], "size_left": [1], "size_right": [0], "codes": np.full(rows, statement_codes.CODES["logical_not"]),
        "types": np.full(rows, codes.TYPE_CODES["bool"]), "counts": np.ones(rows, "u1"), "refs": np.zeros(rows, "<u4"),
        "operands": np.full(rows, 1), "constant_types": [1], "constant_bits": [1],
    }
    text = b"p"
    if last == "operands":
        columns[last][-1] = 4 * rows
    elif last == "types":
        columns[last][-1] = 63
    else:
        text = b"\xff"
    arrays = {column.name: np.array(columns.get(column.name, []), column.dtype) for column in COLUMNS}
    counts = {column.count: len(arrays[column.name]) // column.per for column in reversed(COLUMNS)} | {"text_bytes": 1, "data_bytes": 0}
    header = PROGRAM.head.pack(b"\x89VYR", 1, 0, 0, *[counts[name] for name in COUNTS], 1, 0, 1, 1, 1, 1, 0, 0, 0)
    data = redigested(header + b"".join([arrays[column.name].tobytes() for column in COLUMNS]) + text + bytes(DIGEST_BYTES))
    assert len(data) > 10 << 20
    tracemalloc.start()
    refused(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


def test_more_bytes_than_are_read() -> None:
    assert refused(vector("axpy").to_bytes()[:104] + bytes(PROGRAM.limit_bytes)).codes == ("W107",)


def test_the_header_is_as_wide_as_its_fields() -> None:
    assert PROGRAM.head.size == struct.calcsize("<" + "".join(code for code, _ in PROGRAM.fields.values())) == 104


# ---------------------------------------------------------------- Programs that cannot be written


def unwritable(program: Program) -> WireError:
    with pytest.raises(WireError) as caught:
        program.to_bytes()
    with pytest.raises(WireError):
        program.to_json()
    return caught.value


def with_statement(statement: Statement) -> Program:
    a = small()
    a.let(OPS["global_id.x"], ())
    a.emit(statement)
    return a.finish()


@pytest.mark.parametrize(
    "statement",
    [
        Store(None, (Value(0, u32), const(f32, 1.0)), Assembler("q").memory("z", Space.PRIVATE, f32, (DimConst(1),), Access.READ_WRITE)),
        Store(None, (Value(0, u32),), None),  # type: ignore[arg-type]  # what nobody has checked
        Let(None, (), OPS["global_id.x"]),
        Let(Value(7, u32), (), OPS["global_id.x"]),
        Let(Value(1, u32), (Value(0, u32),), OPS["neg"]),  # another value 0
        Let(Value(1, u32), (Value(1, u32),), OPS["neg"]),
        Let(Value(1, u32), (Param("a", u32),), OPS["neg"]),
        Let(Value(1, u32), (Dim("other"),), OPS["neg"]),
        Let(Value(1, u32), (DimConst(-1),), OPS["neg"]),
        Let(Value(1, u32), (DimConst(1 << 48),), OPS["neg"]),
        Let(Value(1, u32), (Const(u32, 1 << 70),), OPS["neg"]),
        Let(Value(1, u32), (Const(u32, 1 << 40),), OPS["neg"]),
        Let(Value(1, u32), (Const(vector_of(u32, 2), 1),), OPS["neg"]),
        Let(Value(1, u32), (None,), OPS["neg"]),  # type: ignore[arg-type]  # as above
        Let(Value(1, u32), (const(u32, 1),) * 300, OPS["add"]),
        Get(Value(1, u32), (), Variable(0, u32)),
    ],
    ids=repr,
)  # fmt: skip
def test_unsound_statements_are_not_written(statement: Statement) -> None:
    error = unwritable(with_statement(statement))
    assert error.codes[0] in ("W113", "W112")


def test_what_a_target_made_is_not_written() -> None:
    a = small()
    a.params.append(Param("a.x", f32, ("a", 0)))
    assert "target" in str(unwritable(a.finish()))


def test_two_dims_of_one_name_are_not_written() -> None:
    a = small()
    a.dim("n")
    assert unwritable(a.finish()).codes == ("W113",)


@pytest.mark.parametrize(
    "change",
    [{"name": 3}, {"doc": None}, {"workgroup": (1, -1, 1)}, {"workgroup": (1 << 40, 1, 1)}, {"grid": None}, {"body": (1,)}, {"value_names": {9: "x"}}],
)
def test_unsound_heads_are_not_written(change: dict[str, Any]) -> None:
    assert unwritable(replace(small().finish(), **change)).codes == ("W113",)


def test_lone_surrogates_have_no_bytes() -> None:
    a = small()
    a.doc = "\ud800"
    assert unwritable(a.finish()).codes == ("W108",)


# ---------------------------------------------------------------- cost


def chain(statements: int) -> Program:
    a = small()
    (memory,) = a.memories
    i = a.let(OPS["global_id.x"], ())
    value = a.load(memory, (i,))
    for k in range(statements):
        value = a.let(OPS["add"], (value, const(f32, float(k % 50))))
    a.store(memory, (i,), value)
    return a.finish()


@pytest.mark.parametrize("form", ["to_bytes", "from_bytes", "to_json", "from_json"])
def test_the_cost_is_linear(form: str) -> None:
    def work(statements: int) -> Callable[[], object]:
        program = chain(statements)
        data = program.to_bytes() if form.endswith("bytes") else program.to_json()
        return getattr(program, form) if form.startswith("to") else lambda: getattr(Program, form)(data)  # type: ignore[no-any-return]  # a bound method

    once, twice = (lines_executed(work(statements), "/ir/") for statements in (2000, 4000))
    assert twice < 2.2 * once
