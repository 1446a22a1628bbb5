"""The checker: the laws of form, anything at all as input, and the work it takes."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from check_programs import ONE, TRUE, ZERO, N, assembler, codes, everything, plain, untyped, with_body

from vyre_py.ir.language.dims import Dim, DimConst, DimExpr, DimOp, Grid
from vyre_py.ir.language.nodes import (
    Access,
    Atomic,
    AtomicStore,
    Barrier,
    Const,
    End,
    Get,
    If,
    Let,
    Memory,
    Param,
    Space,
    Statement,
    Store,
    Value,
    Var,
    Variable,
    const,
)
from vyre_py.ir.language.op import Level
from vyre_py.ir.language.ops import ATOMICS, ATOMICS_BY_SPELLING, OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, bool_, f32, i32, u8, u32, vector_of

# ---------------------------------------------------------------- form: V101 V103 V110 V508


MALFORMED: dict[str, Callable[[Program], object]] = {
    "nothing": lambda p: None,
    "text": lambda p: "program t { }",
    "never filled": lambda p: object.__new__(Program),
    "foreign statement": lambda p: with_body(p, "barrier"),
    "abstract statement": lambda p: with_body(p, Statement(None, ())),
    "statement of another class": lambda p: with_body(p, type("Barrier2", (Barrier,), {"effect": Barrier.effect})(None, ())),
    "order of another kind": lambda p: with_body(p, Atomic(Value(1, u32), (ZERO, ONE), p.memories[0], ATOMICS_BY_SPELLING["add.acquire"])),
    "load that stores": lambda p: with_body(p, AtomicStore(None, (ZERO, ONE), p.memories[0], ATOMICS_BY_SPELLING["add"])),
    "unfilled statement": lambda p: with_body(p, object.__new__(Let)),
    "operand that is not an atom": lambda p: with_body(p, Store(None, untyped((ZERO, 1.5)), p.memories[0])),
    "operands in a list": lambda p: with_body(p, Store(None, untyped([ZERO, ONE]), p.memories[0])),
    "result where none is due": lambda p: with_body(p, Barrier(Value(1, u32), ())),
    "no result where one is due": lambda p: with_body(p, Get(None, (), Variable(0, u32))),
    "op of no table": lambda p: with_body(p, Let(Value(1, u32), (ONE, ONE), copy.copy(OPS["add"]))),
    "type of no table": lambda p: with_body(p, Let(Value(1, replace(u32)), (ONE, ONE), OPS["add"])),
    "match too short": lambda p: replace(p, match=()),
    "constant of a vector type": lambda p: with_body(p, Store(None, (ZERO, Const(vector_of(u32, 2), 0)), p.memories[0])),
    "part without a byte": lambda p: replace(p, params=(Param("v", u32, untyped(("v",))),)),
    "part before its argument": lambda p: replace(p, params=(Param("v", u32, ("v", -4)),)),
    "unknown dim operation": lambda p: with_body(p, Store(None, (ZERO, DimOp("pow", N, N)), p.memories[0])),
    "places of another kind": lambda p: replace(p, places=untyped(("line 3",))),
    "names of another kind": lambda p: replace(p, value_names=untyped({0: 3})),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_v101_form(name: str) -> None:
    assert set(codes(MALFORMED[name](plain()))) <= {"V101", "V103"}
    assert "V101" in codes(MALFORMED[name](plain()))


def test_a_param_may_be_a_part_of_an_argument() -> None:
    assert codes(replace(plain(), params=(Param("v.x", u32, ("v", 0)), Param("v.y", u32, ("v", 4))))) == ()


def test_the_digests_tell_types_and_parts_apart() -> None:
    def digests(*params: Param) -> tuple[bytes, bytes]:
        program = replace(plain(), params=params)
        return program.code_digest, program.interface_digest

    made = [
        digests(Param("v", type_, part))
        for type_ in (f32, u32, vector_of(u32, 2), vector_of(u32, 3), vector_of(f32, 2))
        for part in (None, ("v", 0), ("v", 4))
    ]
    assert len({code for code, _ in made}) == len({interface for _, interface in made}) == len(made)
    # Names are no part of the code: which argument a part is of is told by its number.
    two = (Param("a", u32, ("v", 0)), Param("b", u32, ("v", 4))), (Param("c", u32, ("w", 0)), Param("d", u32, ("w", 4)))
    assert digests(*two[0])[0] == digests(*two[1])[0] != digests(Param("a", u32, ("v", 0)), Param("b", u32, ("w", 4)))[0]
    assert digests(*two[0])[1] != digests(*two[1])[1]


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
def test_v110_constant(type_: Type, bits: int) -> None:
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


# ---------------------------------------------------------------- anything at all

JUNK: tuple[object, ...] = (
    None, True, -1, 0, 10**6000, 1.5, "", "\ud800", b"", (), [], {}, object(), Level.GRID, (1,), (None, None, None), Type, u8, f32,
    Value(0, f32), Value(1 << 70, u32), Value(-1, u32), untyped(Value)(None, None), Const(u32, -1), untyped(Const)(None, "x"), Param("q", f32),
    Dim("zzz"), DimConst(-5), DimOp("sub", DimConst(0), DimConst(9)), Variable(3, u8), Memory("m", Space.BUFFER, f32, (), Access.READ),
    object.__new__(Value), object.__new__(Const), object.__new__(Memory), object.__new__(Variable), object.__new__(Dim), object.__new__(DimOp),
    object.__new__(Grid), OPS["sqrt"], ATOMICS["compare_exchange"], Access.WRITE, Space.PRIVATE, Let, End(None, ()), If(None, (TRUE,)),
)  # fmt: skip


def _changed(thing: Any, name: str, junk: object) -> Any:
    made = copy.copy(thing)
    object.__setattr__(made, name, junk)
    return made


def _names(thing: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(thing) if f.init)


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


@pytest.mark.parametrize("index", range(28))
def test_statements_missing_twice_or_moved(index: int) -> None:
    """Refused for the length of its match where that is another; else for blocks or results, unless the statement has to do with none."""
    program = everything()
    body, match = program.body, program.match
    index %= len(body)
    apart = index > max(k for k, statement in enumerate(body) if isinstance(statement, End))
    for made in (body[:index] + body[index + 1 :], body[: index + 1] + body[index:], body[index:] + body[:index]):
        assert ("V101" in codes(replace(program, body=made, match=match))) == (len(made) != len(body))
        found = codes(replace(program, body=made, match=match[: len(made)] + (-1,) * (len(made) - len(match))))
        assert set(found) <= {"V102", "V103"}
        assert bool(found) == (made != body and not (apart and len(made) != len(body)))


# ---------------------------------------------------------------- work


def long(size: int) -> Program:
    """A long Program with blocks, variables, accesses and arithmetic."""
    a, y = assembler()
    i = a.let(OPS["global_id.x"], (), name="i")
    v = a.var(u32, i, "v")
    while len(a.body) < size - 9:
        a.if_(a.let(OPS["lt"], (i, N)))
        a.set(v, a.let(OPS["add"], (a.get(v), a.load(y, (i,)))))
        a.end()
        a.store(y, (a.let(OPS["mul"], (i, DimOp("add", N, DimConst(2)))),), ONE)
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
    a.if_(a.let(OPS["lt"], (a.let(OPS["global_id.x"], ()), N)))
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


def test_ten_thousand_statements_take_few_calls_each() -> None:
    assert _calls(long(10_000)) < 80 * 10_000
