"""Filetests that are written when they are collected, and that all filetests together run every op, conversion, atomic and memory of every type."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import permutations

import pytest
from exact_samples import EDGES
from filetest import files, read_cases
from vir_text import number_text
from write_filetests import FILES

from vyre_py.ir.language.nodes import Atomic, Let, Load, MemoryStatement, Space, Store, UniformLoad, Var
from vyre_py.ir.language.op import Result
from vyre_py.ir.language.ops import ATOMICS, OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import SCALARS, TYPES, Kind, Type, encode
from vyre_py.ir.text.lexer import literal_bits


def test_written_files_are_among_those_that_run() -> None:
    assert {f"{name}.vir" for name in FILES} <= {path.name for path in files("run")}
    assert all(len(read_cases(path)) > 0 and not path.exists() for path in files("run") if path.stem in FILES)


@pytest.mark.parametrize("t", list(SCALARS.values()), ids=str)
def test_a_number_reads_back(t: Type) -> None:
    for value in EDGES[t]:
        text = number_text(t, value)
        if ":" in text:
            bits = int(text.partition(":")[2], 16)
        else:
            bits = literal_bits(t, text.lstrip("-"), text.startswith("-"))
        assert bits == (value if t.is_float else encode(t, value))


# ---------------------------------------------------------------- what runs


@cache
def programs() -> tuple[Program, ...]:
    """All Programs of the run filetests."""
    return tuple(case.parse() for path in files("run") for case in read_cases(path))


def lets() -> Iterator[tuple[Program, Let]]:
    for program in programs():
        yield from ((program, s) for s in program.body if isinstance(s, Let))


def test_every_op_runs_on_every_type() -> None:
    run = {(s.op.name, a.type.scalar) for _, s in lets() for a in s.args}
    # Those that may be approximated have no bits to expect: tests/lowering/test_asked_approximations.py runs them.
    wanted = {(name, t) for name, row in OPS.items() if row.result is not Result.GIVEN and not row.approximates for t in row.of}
    assert not wanted - run
    assert not {name for name, row in OPS.items() if row.is_query} - {s.op.name for _, s in lets()}


def test_every_lanewise_op_runs_on_vectors() -> None:
    run = {s.op.name for _, s in lets() if s.bound.type.is_vector}
    assert not {name for name, row in OPS.items() if row.is_lanewise and not row.is_query and not row.approximates} - run


def test_every_conversion_runs() -> None:
    run = {(s.op.name, s.args[0].type, s.bound.type) for _, s in lets() if s.op.result is Result.GIVEN}
    assert not {("cast", *pair) for pair in permutations(SCALARS.values(), 2)} - run
    assert not {("bitcast", a, b) for a, b in permutations(TYPES.values(), 2) if a.total_bits == b.total_bits and Kind.BOOL not in (a.kind, b.kind)} - run
    assert {lanes for _, a, b in run if a.lanes == b.lanes > 1 for lanes in (b.lanes,)} == {2, 3, 4}
    picked = {(a.scalar, a.lanes, b.lanes) for name, a, b in run if name == "swizzle"}
    assert not {(t, k, n) for t in SCALARS.values() for k in (2, 3, 4) for n in (1, 2, 3, 4)} - picked


def test_every_memory_holds_every_type() -> None:
    accesses = {(type(s), s.memory.space, s.memory.type) for p in programs() for s in p.body if isinstance(s, MemoryStatement)}
    for t in TYPES.values():
        assert {(Load, space, t) for space in Space} <= accesses
        assert {(Store, space, t) for space in Space if space is not Space.TABLE} <= accesses
    assert {t for kind, _, t in accesses if kind is UniformLoad} == set(TYPES.values())
    assert {s.variable.type for p in programs() for s in p.body if isinstance(s, Var) and not s.variable.type.is_tile} == set(TYPES.values())
    assert {param.type for p in programs() for param in p.params} == set(TYPES.values())


def test_every_atomic_runs_on_every_type() -> None:
    run = {(s.op.name, s.memory.space, s.memory.type) for p in programs() for s in p.body if isinstance(s, Atomic)}
    assert not {(name, space, t) for name, row in ATOMICS.items() for t in row.of for space in (Space.BUFFER, Space.WORKGROUP)} - run
