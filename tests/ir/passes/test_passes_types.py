"""Folding and simplifying keep what every op computes, over every scalar type: constants, chains of conversions, and every form that an
algebraic law speaks of."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
from elements import random_array
from op_programs import Signature, arguments_of, differing, program_of, run, signatures

from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import DimConst, Grid
from vyre_py.ir.language.nodes import Access, Atom, Const, Let, Space, Value, const
from vyre_py.ir.language.op import Operand
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import SCALARS, TYPES, Kind, Type, encode, f64, u32
from vyre_py.ir.passes import optimise
from vyre_py.ir.passes.fold import evaluate_constant
from vyre_py.ir.passes.simplify import simplify


def chain_of(op: str, *types: Type) -> Program:
    """y[i] = op(op(x[i], types[1]), types[2])."""
    a = Assembler("chain")
    n = a.dim("n")
    x = a.memory("x", Space.BUFFER, types[0], (n,), Access.READ)
    y = a.memory("y", Space.BUFFER, types[-1], (n,), Access.READ_WRITE)
    i = a.let(OPS["global_id.x"], ())
    value: Atom = a.load(x, (i,))
    for t in types[1:]:
        value = a.let(OPS[op], (value,), t)
    a.store(y, (i,), value)
    return a.finish()


def chains(op: str, source: Type) -> Iterator[tuple[Type, ...]]:
    """The types of every pair of conversions from a type."""
    types = TYPES if op == "bitcast" else SCALARS
    steps = {t: [u for u in types.values() if OPS[op].result_type((t,), u) is not None] for t in types.values()}
    return ((source, middle, target) for middle in steps[source] for target in steps[middle])


def assert_chain_is_kept(op: str, types: tuple[Type, ...], rng: np.random.Generator) -> bool:
    """That simplifying keeps the result; whether it shortened the chain."""
    program = chain_of(op, *types)
    made = simplify(program)
    check(made)
    source = random_array(rng, types[0], (256,))
    want, got = (np.zeros_like(random_array(rng, types[-1], (256,))) for _ in range(2))
    for one, result in ((program, want), (made, got)):
        interpret(SimpleNamespace(program=one), {"x": source, "y": result}, {"n": 256})
    assert not differing(want, got, types[-1]).any(), f"{op} {types}\n{made}"
    return len(made.body) < len(program.body) or any(isinstance(s, Let) and s.op is OPS[op] and s.args[0].type is types[0] for s in made.body[-2:])


@pytest.mark.parametrize("source", SCALARS.values(), ids=str)
def test_chains_of_casts(source: Type) -> None:
    rng = np.random.default_rng(source.bits)
    shortened = {types for types in chains("cast", source) if assert_chain_is_kept("cast", types, rng)}
    through = [t for t in SCALARS.values() if (source, t, source) in shortened]
    assert through or source is f64, "there and back through a type that holds everything is nothing at all"


@pytest.mark.parametrize("source", [t for t in TYPES.values() if t.kind is not Kind.BOOL], ids=str)
def test_chains_of_bitcasts(source: Type) -> None:
    rng = np.random.default_rng(source.total_bits)
    for types in chains("bitcast", source):
        assert_chain_is_kept("bitcast", types, rng)


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.evaluate is not None])
def test_constants_of_every_type_fold_to_what_is_computed(name: str) -> None:
    rng = np.random.default_rng(len(name))
    for s in signatures(OPS[name]):
        if any(t.is_vector for t in (*s.operands, s.result)):
            continue
        arguments = arguments_of(s, rng, 12)
        want = run(SimpleNamespace(program=program_of(s)), s, arguments)
        for k in range(12):
            args = [Const(t, int(x[k : k + 1].view(f"u{t.size_bytes}")[0])) for t, x in zip(s.operands, arguments.values(), strict=True)]
            if s.pattern:
                args.append(Const(u32, 0))
            folded = evaluate_constant(s.op, s.result, tuple(args))
            assert folded is not None and folded.type is s.result
            got = np.array([folded.bits], f"u{s.result.size_bytes}").view(s.result.dtype)
            assert not differing(want[k : k + 1], got, s.result).any(), f"{s} of {args}: {folded}, computed {want[k]!r}"


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.evaluate is not None])
def test_laws_hold_for_every_type(name: str) -> None:
    """The op over equal operands, over its own result, and with a constant on either side, before and after the passes."""
    rng = np.random.default_rng(len(name))
    for s in signatures(OPS[name]):
        t = s.operands[0]
        if set(s.op.operands) != {Operand.T} or t.is_vector or s.result.is_vector:
            continue
        program = law_program(s)
        x = random_array(rng, t, (64,))
        results = []
        for level in (0, 2):
            outs = {m.name: random_array(np.random.default_rng(4), m.type, (64,)) for m in program.memories[1:]}
            interpret(optimise(check(program), expand=frozenset(), level=level), {"x": x, **outs}, {"n": 64})
            results.append(outs)
        for m in program.memories[1:]:
            assert not differing(results[0][m.name], results[1][m.name], m.type).any(), f"{s}\n{program}"


def law_program(s: Signature) -> Program:
    """Every way in which a law may see an op."""
    a = Assembler("laws")
    n = a.dim("n")
    t = s.operands[0]
    x = a.memory("x", Space.BUFFER, t, (n,), Access.READ)
    i = a.let(OPS["global_id.x"], ())
    made: list[Value] = []
    value, other = a.load(x, (i,)), a.load(x, (a.let(OPS["xor"], (i, const(u32, 1))),))
    count = len(s.operands)
    constants = [Const(t, bits) for bits in {0, 1, (1 << t.bits) - 1, 1 << (t.bits - 1), encode(t, t.kind is Kind.BOOL or 1), 1 << t.bits // 2}]
    makings: list[tuple[Atom, ...]] = [(value,) * count, (value, other, value)[:count]]
    for c in constants:
        makings += [(value, c, c)[:count], (c, value, value)[:count]]
    for args in makings:
        made.append(a.let(s.op, args))
        if s.result is t:
            for c in constants[:3]:
                made.append(a.let(s.op, (made[-1], c, value)[:count]))
            made.append(a.let(s.op, (made[-1],) * count))
    for k, result in enumerate(made):
        a.store(a.memory(f"y{k}", Space.BUFFER, result.type, (n,), Access.READ_WRITE), (i,), result)
    a.grid = Grid(True, (n, DimConst(1), DimConst(1)))
    return a.finish()
