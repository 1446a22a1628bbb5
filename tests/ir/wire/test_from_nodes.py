"""Programs from flat arrays: the same as from any other door, linear, and every fault named by its entry."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import numpy as np
import pytest
from executed_lines import lines_executed
from generator import Seeded, generate
from wire_pages import VECTORS, vector

from vyre_py.ir.check import check
from vyre_py.ir.language.errors import ValidationError, VyreError, WireError
from vyre_py.ir.language.nodes import Access, Space
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import encode, f32, u32
from vyre_py.ir.text.parser import parse
from vyre_py.ir.wire.codes import ACCESS_CODES, SPACE_CODES, TYPE_CODES, TYPE_NAMES
from vyre_py.ir.wire.flat import Flat
from vyre_py.ir.wire.flatten import flatten
from vyre_py.ir.wire.size_table import size_value
from vyre_py.ir.wire.statement_codes import CODES


def arrays_of(program: Program) -> dict[str, Any]:
    """The arguments of `from_nodes` that describe a Program."""
    flat: Flat = flatten(program, names=True, places=False)
    strings = flat.strings()
    sizes = [size_value(expr) for expr in size_expressions(program, flat)]
    refs = flat.refs.copy()
    regions = refs[flat.codes == CODES["region"]]
    names = sorted(set(regions.tolist()))
    refs[flat.codes == CODES["region"]] = [names.index(ref) for ref in regions.tolist()]
    at = 0
    memories = []
    for memory in program.memories:
        shape = [size_value(axis) for axis in memory.shape]
        row: dict[str, Any] = {"name": memory.name, "space": memory.space.value, "type": memory.type.name, "shape": shape, "access": memory.access.value}
        memories.append(row | ({"data": memory.data} if memory.data else {}))
        at += memory.rank
    return {
        "name": program.name, "doc": program.doc, "codes": flat.codes, "types": flat.types, "refs": refs, "operands": flat.operands,
        "offsets": np.concatenate(([0], np.cumsum(flat.counts, dtype=np.int64))), "constant_types": flat.constant_types, "constant_bits": flat.constant_bits,
        "sizes": sizes, "regions": [strings[name] for name in names], "dims": [dim.name for dim in program.dims],
        "params": [(param.name, param.type.name) for param in program.params], "memories": memories, "workgroup": program.workgroup,
        ("over" if program.grid.over else "grid"): [size_value(extent) for extent in program.grid.extents],
        "value_names": program.value_names, "variable_names": program.variable_names,
    }


def size_expressions(program: Program, flat: Flat) -> list[Any]:
    """The sizes of the table, as expressions."""
    from vyre_py.ir.language.dims import DimConst, DimOp
    from vyre_py.ir.wire.codes import SIZE_CONST, SIZE_DIM, SIZE_OPS

    made: list[Any] = []
    for op, left, right in zip(flat.size_ops.tolist(), flat.size_left.tolist(), flat.size_right.tolist(), strict=True):
        if op == SIZE_CONST:
            made.append(DimConst(right << 32 | left))
        else:
            made.append(program.dims[left] if op == SIZE_DIM else DimOp(SIZE_OPS[op], made[left], made[right]))
    return made


def double(**changes: Any) -> Program:
    """The Program of the docstring, with arguments changed."""
    arguments: dict[str, Any] = {
        "name": "double", "dims": ["n"], "memories": [{"name": "y", "space": "buffer", "type": "f32", "shape": ["n"], "access": "read_write"}],
        "codes": ["global_id.x", "load", "add", "store"], "types": ["u32", "f32", "f32", 0], "refs": [0, 0, 0, 0],
        "operands": [4 * 0, 4 * 1, 4 * 1, 4 * 0, 4 * 2], "offsets": [0, 0, 1, 3, 5],
    }
    return Program.from_nodes(**(arguments | changes))


# ---------------------------------------------------------------- the same Program


@pytest.mark.parametrize("number", range(30))
def test_generated_programs_are_made_again(number: int) -> None:
    program = generate(Seeded(number)).program
    again = Program.from_nodes(**arrays_of(program))
    assert again == program
    assert again.to_bytes() == program.to_bytes()
    check(again)


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_are_made_again(name: str) -> None:
    program = vector(name)
    assert Program.from_nodes(**arrays_of(program)).to_bytes() == program.to_bytes()


def test_the_example_of_the_docstring() -> None:
    assert double() == parse("program double(n) {\nbuffer y: f32[n] read_write\nlet i = global_id.x\nlet v = y[i]\ny[i] = v + v\n}\n")
    check(double())


def test_lists_arrays_numbers_and_names_are_alike() -> None:
    codes = [CODES[name] for name in ("global_id.x", "load", "add", "store")]
    assert double(codes=codes, types=[*[TYPE_CODES[name] for name in ("u32", "f32", "f32")], 0]) == double()
    for dtype in (np.int8, np.uint16, np.int32, np.int64, np.uint64):
        arrays = {name: np.array(values, dtype) for name, values in (("operands", [0, 4, 4, 0, 8]), ("offsets", [0, 0, 1, 3, 5]), ("refs", [0, 0, 0, 0]))}
        assert double(**arrays) == double()
    memory = {"name": "y", "space": Space.BUFFER, "type": f32, "shape": ("n",), "access": Access.READ_WRITE}
    assert double(memories=(memory,), refs=None, dims=("n",)) == double()


def test_constants_sizes_regions_names_and_grids() -> None:
    program = Program.from_nodes(
        "p", dims=["n", "m"], params=[("a", f32), ("b", "u32")], doc="words", workgroup=(8, 8, 1), grid=[("ceil_div", "n", 8), ["max", "m", 1], 1],
        memories=[
            {"name": "t", "space": "table", "type": "u16", "shape": [3], "data": b"\1\0\2\0\3\0"},
            {"name": "w", "space": "workgroup", "type": "f32", "shape": [64]},
            {"name": "y", "space": "buffer", "type": "f32", "shape": [("add", "n", 1), "m"], "access": "write"},
        ],
        codes=["region", "var", "set", "get", "store", "end"], types=[0, "f32", 0, "f32", 0, 0], refs=[1, 0, 0, 0, 2, 0], regions=["unused", "here"],
        constant_types=["f32", "f32", "u32"], constant_bits=[encode(f32, 1.5), encode(f32, 1.5), 7], sizes=["n", ("mul", "n", 2)],
        operands=[4 * 1 + 1, 4 * 0 + 2, 4 * 2 + 1, 4 * 1 + 3, 0], offsets=[0, 0, 1, 2, 2, 5, 5], value_names={0: "v"}, variable_names={0: "acc"},
    )
    wanted = (
        'program p(n, m) workgroup(8, 8) grid(ceil_div(n, 8), max(m, 1), 1) {\n  doc "words"\n  param a: f32\n  param b: u32\n'
        "  table t: u16[3] = [1, 2, 3]\n  workgroup w: f32[64]\n  buffer y: f32[n + 1, m] write\n"
        '  region "here" {\n    var acc: f32 = 1.5\n    acc = a\n    let v = acc\n    y[7u32, dim(n * 2)] = v\n  }\n}\n'
    )
    assert program == parse(wanted)
    assert (program.value_names, program.variable_names) == ({0: "v"}, {0: "acc"})
    check(program)


def test_nothing_at_all() -> None:
    assert Program.from_nodes("p", codes=[], types=[], operands=[], offsets=[0]) == parse("program p() {\n}\n")


def test_rules_are_still_for_check() -> None:
    program = double(codes=["global_id.x", "load", "mul", "store"], types=["u32", "f32", "i32", 0])
    with pytest.raises(ValidationError) as caught:
        check(program)
    assert set(caught.value.codes) == {"V203", "V204"}


# ---------------------------------------------------------------- refusals


REFUSED: list[tuple[dict[str, Any], str, str | None]] = [
    ({"name": 3}, "W116", "name"),
    ({"doc": b""}, "W116", "doc"),
    ({"codes": "add"}, "W116", "codes"),
    ({"codes": None}, "W116", "codes"),
    ({"codes": np.zeros(4)}, "W116", "codes"),
    ({"codes": np.zeros((2, 2), int)}, "W116", "codes"),
    ({"codes": ["global_id.x", "load", "addd", "store"]}, "W105", "codes[2]"),
    ({"codes": ["global_id.x", "load", 1.5, "store"]}, "W116", "codes[2]"),
    ({"codes": ["global_id.x", "load", -1, "store"]}, "W116", "codes[2]"),
    ({"codes": ["global_id.x", "load", 1 << 80, "store"]}, "W116", "codes[2]"),
    ({"codes": ["global_id.x", "load", 1 << 16, "store"]}, "W116", "codes[2]"),
    ({"codes": ["global_id.x", "load", 0x7FF, "store"]}, "W105", "codes[2]"),
    ({"codes": ["global_id.x", "load", "add"]}, "W103", "offsets"),
    ({"codes": ["global_id.x", "load", "add", "loop"]}, "W110", "codes[3]"),
    ({"codes": ["global_id.x", "load", "add", "end"]}, "W110", "codes[3]"),
    ({"types": ["u32", "f32", "f32"]}, "W103", "types"),
    ({"types": ["u32", "f33", "f32", 0]}, "W105", "types[1]"),
    ({"types": ["u32", 63, "f32", 0]}, "W105", "types[1]"),
    ({"types": ["u32", 0, "f32", 0]}, "W112", "types[1]"),
    ({"types": ["u32", "f32", "f32", "f32"]}, "W112", "types[3]"),
    ({"refs": [0, 1, 0, 0]}, "W106", "refs[1]"),
    ({"refs": [1, 0, 0, 0]}, "W109", "refs[0]"),
    ({"refs": [0, 0, 0]}, "W103", "refs"),
    ({"refs": [0, 0, 0, -1]}, "W116", "refs[3]"),
    ({"refs": np.array([0, 0, 0, -1])}, "W116", "refs[3]"),
    ({"operands": [0, 4, 4, 0, 12]}, "W111", "operands[4]"),
    ({"operands": [0, 4, 4, 0, 1]}, "W106", "operands[4]"),
    ({"operands": [0, 4, 4, 0, 2]}, "W106", "operands[4]"),
    ({"operands": [0, 4, 4, 0, 3]}, "W106", "operands[4]"),
    ({"operands": [0, 4, 4, 0]}, "W103", "offsets"),
    ({"offsets": [0, 0, 1, 3]}, "W103", "offsets"),
    ({"offsets": [1, 0, 1, 3, 5]}, "W103", "offsets"),
    ({"offsets": [0, 3, 1, 3, 5]}, "W103", "offsets[2]"),
    ({"offsets": [0, 0, 1, 3, 400], "operands": [0] * 400}, "W103", "offsets[4]"),
    ({"offsets": []}, "W103", "offsets"),
    ({"constant_types": ["f32"]}, "W103", "constant_bits"),
    ({"constant_types": ["f32x2"], "constant_bits": [0]}, "W112", "constant_types[0]"),
    ({"constant_types": ["u8"], "constant_bits": [256]}, "W112", "constant_bits[0]"),
    ({"constant_types": ["u64"], "constant_bits": [1 << 64]}, "W116", "constant_bits[0]"),
    ({"dims": "n"}, "W116", "dims"),
    ({"dims": ["n", "n"]}, "W109", "dims[1]"),
    ({"dims": ["n", 3]}, "W116", "dims[1]"),
    ({"dims": ["n", "x" * 300]}, "W107", "the names"),
    ({"dims": ["n", "\ud800"]}, "W108", "the names"),
    ({"params": [("a",)]}, "W116", "params[0]"),
    ({"params": [("a", "f31")]}, "W105", "params[0]"),
    ({"params": [(1, "f32")]}, "W116", "params[0]"),
    ({"memories": [1]}, "W116", "memories[0]"),
    ({"memories": [{"name": "y"}]}, "W116", "memories[0]"),
    ({"memories": [{"name": "y", "space": "buffer", "type": "f32", "shape": ["n"], "axcess": "read"}]}, "W116", "memories[0]"),
    ({"memories": [{"name": "y", "space": "buffer", "type": "f32", "shape": ["n"]}]}, "W105", "memories[0]"),
    ({"memories": [{"name": "y", "space": "buffer", "type": "f32", "shape": ["m"], "access": "read"}]}, "W106", "memories[0] shape"),
    ({"memories": [{"name": "y", "space": "buffer", "type": "f32", "shape": [("pow", 1, 2)], "access": "read"}]}, "W105", "memories[0] shape"),
    ({"memories": [{"name": "y", "space": "buffer", "type": "f32", "shape": 4, "access": "read"}]}, "W116", "memories[0] shape"),
    ({"memories": [{"name": "y", "space": "buffer", "type": "f32", "shape": [4], "access": "read", "data": "00"}]}, "W116", "memories[0] data"),
    ({"memories": [{"name": "y", "space": ["buffer"], "type": "f32", "shape": [4], "access": "read"}]}, "W105", "memories[0]"),
    ({"sizes": [1.5]}, "W116", "sizes[0]"),
    ({"sizes": [True]}, "W116", "sizes[0]"),
    ({"sizes": [-1]}, "W116", "sizes[0]"),
    ({"regions": [1]}, "W116", "regions[0]"),
    ({"workgroup": (1, 1)}, "W116", "workgroup"),
    ({"workgroup": (1, 1, -1)}, "W116", "workgroup[2]"),
    ({"over": ("n", 1)}, "W116", "over"),
    ({"over": ("n", 1, 1), "grid": (1, 1, 1)}, "W116", "grid"),
    ({"grid": ("n", "k", 1)}, "W106", "grid[1]"),
    ({"value_names": {3: "x"}}, "W106", "value_names[0]"),
    ({"value_names": {0: 1}}, "W116", "value_names[0]"),
    ({"value_names": [(0, "x")]}, "W116", "value_names"),
    ({"variable_names": {0: "x"}}, "W106", "variable_names[0]"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "code", "where"), REFUSED, ids=range(len(REFUSED)))
def test_faults_are_named_by_their_entry(changes: dict[str, Any], code: str, where: str | None) -> None:
    with pytest.raises(WireError) as caught:
        double(**changes)
    assert (caught.value.codes, caught.value.where) == ((code,), where), str(caught.value)


def test_a_deep_size_is_refused_without_recursing() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = ("add", deep, 1)
    with pytest.raises(WireError) as caught:
        double(sizes=[deep])
    assert caught.value.codes == ("W107",)


@pytest.mark.parametrize("number", range(300))
def test_whatever_the_arrays_hold(number: int) -> None:
    """Entries changed at random: refused by name, or a Program that `check` has the last word on."""
    r = random.Random(number)
    arguments = arrays_of(vector(r.choice(("control", "sizes", "types"))))
    for _ in range(r.choice((1, 1, 3))):
        column = r.choice(("codes", "types", "refs", "operands", "offsets", "constant_bits", "constant_types"))
        values = list(arguments[column])
        if values:
            values[r.randrange(len(values))] = r.choice((0, 1, 2, 5, 8, 255, 4096, -1, 1 << 33, r.choice(list(CODES.values())), r.choice(values), "add", None))
        arguments[column] = values
    with contextlib.suppress(WireError, ValidationError):
        check(Program.from_nodes(**arguments))


# ---------------------------------------------------------------- cost


def chain(statements: int) -> dict[str, Any]:
    """A chain of additions as arrays."""
    codes = np.full(statements, CODES["add"])
    codes[[0, 1, -1]] = CODES["global_id.x"], CODES["load"], CODES["store"]
    types = np.full(statements, TYPE_CODES["f32"])
    types[[0, -1]] = TYPE_CODES["u32"], 0
    counts = np.full(statements, 2)
    counts[[0, 1]] = 0, 1
    offsets = np.concatenate(([0], np.cumsum(counts)))
    operands = np.empty(offsets[-1], int)
    operands[0] = 0
    operands[1::2] = operands[2::2] = 4 * np.arange(1, statements - 1)
    operands[-2:] = 0, 4 * (statements - 2)
    memory = {"name": "y", "space": "buffer", "type": "f32", "shape": ["n"], "access": "read_write"}
    return {"name": "chain", "dims": ["n"], "memories": [memory], "codes": codes, "types": types, "operands": operands, "offsets": offsets}


def test_the_cost_is_linear_up_to_checked() -> None:
    once, twice = (lines_executed(lambda statements=statements: check(Program.from_nodes(**chain(statements))), "/ir/") for statements in (2000, 4000))  # type: ignore[misc]  # a lambda has no type
    assert twice < 2.1 * once


def test_a_hundred_thousand_statements() -> None:
    checked = check(Program.from_nodes(**chain(100_000)))
    assert len(checked.program.body) == 100_000


def test_the_words_of_the_tables_are_those_of_the_language() -> None:
    assert {Space(word) for word in SPACE_CODES} == set(Space)
    assert {Access(word) for word in ACCESS_CODES} == set(Access)
    assert TYPE_NAMES[TYPE_CODES["u32"]] == u32.name
    assert issubclass(WireError, VyreError)
