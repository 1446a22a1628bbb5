"""Ops written out in simpler ones, against the interpreter's own evaluation of them, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from op_programs import Signature, arguments_of, assert_same_results, program_of, run, signatures

from vyre_py.ir.check import check
from vyre_py.ir.language.nodes import For, Let
from vyre_py.ir.language.ops import EXPANDED_ONLY, OPS
from vyre_py.ir.language.types import SCALARS, Type, bf16, f16, f32, f64, i8, u8
from vyre_py.ir.passes import optimise, unoptimised
from vyre_py.ir.passes.expand import expand

COMPOSITES = [name for name, op in OPS.items() if op.expands and name not in EXPANDED_ONLY]


def assert_expands(s: Signature, arguments: dict[str, np.ndarray]) -> None:
    """Native, expanded with vectors kept, and expanded for a target: all the same."""
    names = frozenset({s.op.name})
    checked = check(program_of(s))
    want = run(unoptimised(checked, expand=frozenset()), s, arguments)
    for made in (unoptimised(checked, expand=names), optimise(checked, expand=names, level=2)):
        check(made.program)
        assert not any(isinstance(x, Let) and x.op is s.op and x.args[0].type.scalar in s.op.expands for x in made.program.body)
        assert_same_results(s, arguments, want, run(made, s, arguments))


def test_the_composites() -> None:
    of_integers = {"extract_bits", "insert_bits", "saturating_add", "saturating_mul", "saturating_sub", "dot4_i8", "dot4_u8"}
    of_floats = {"rem", "remainder", "rsqrt", "step", "smoothstep", "mix", "saturate", "degrees", "radians"}
    parts = {"copysign", "nextafter", "modf_fraction", "frexp_fraction", "frexp_exponent", "ldexp", "quantize_f16"}
    assert set(COMPOSITES) == of_integers | of_floats | parts


@pytest.mark.parametrize("name", COMPOSITES)
def test_every_signature(name: str) -> None:
    rng = np.random.default_rng(len(name))
    for s in signatures(OPS[name]):
        if s.operands[0].scalar in s.op.expands:
            assert_expands(s, arguments_of(s, rng, 1500 if s.operands[0].lanes == 1 else 100))


def pairs_of(t: Type) -> dict[str, np.ndarray]:
    everything = np.arange(256, dtype=np.uint8).view(t.dtype)
    return {"x0": np.repeat(everything, 256), "x1": np.tile(everything, 256)}


@pytest.mark.parametrize("name", ["saturating_add", "saturating_sub", "saturating_mul"])
@pytest.mark.parametrize("type_", [i8, u8], ids=str)
def test_all_pairs_of_bytes(name: str, type_: Type) -> None:
    assert_expands(Signature(OPS[name], (type_, type_)), pairs_of(type_))


@pytest.mark.parametrize("type_", [i8, u8], ids=str)
def test_all_fields_of_all_bytes(type_: Type) -> None:
    x, offset, count = (a.ravel() for a in np.meshgrid(np.arange(256, dtype=np.uint8).view(type_.dtype), *[np.arange(10, dtype=np.uint32)] * 2, indexing="ij"))
    u32 = SCALARS["u32"]
    assert_expands(Signature(OPS["extract_bits"], (type_, u32, u32)), {"x0": x, "x1": offset, "x2": count})
    y = np.random.default_rng(2).permutation(x)
    assert_expands(Signature(OPS["insert_bits"], (type_, type_, u32, u32)), {"x0": x, "x1": y, "x2": offset, "x3": count})


def quotients(t: Type, count: int) -> dict[str, np.ndarray]:
    """Operands whose quotients are near whole numbers, of all sizes; any bits at all; and the edges in all pairs."""
    rng = np.random.default_rng(t.bits)
    word = f"u{t.size_bytes}"

    def anything(n: int) -> np.ndarray:
        return rng.integers(0, 256, (n, t.size_bytes), dtype=np.uint8).view(word)[:, 0].view(t.dtype)

    with np.errstate(all="ignore"):
        y = anything(count)
        near = (y.astype(np.float64) * np.exp2(rng.integers(0, 60, count)) * rng.integers(1, 1000, count)).astype(t.dtype)
        near = (near.view(word) + rng.integers(-2, 3, count).astype(word)).astype(word).view(t.dtype)
    close = (y.view(word) + rng.integers(0, 1 << (t.bits - 6), count).astype(word)).astype(word).view(t.dtype)
    top = np.array(1 << (t.bits - 1), word)
    least_normal = 1 << ({f16: 10, bf16: 7, f32: 23, f64: 52}[t])
    low = np.array([0, 1, 2, 3, least_normal - 1, least_normal, least_normal + 1, t.canonical_nan], word)
    infinity = np.array([np.inf], np.float32).astype(t.dtype).view(word)
    high = np.concatenate([infinity, infinity - 1, infinity - 2, np.array([1, 2, 3, 0.5, 10], np.float32).astype(t.dtype).view(word)])
    edges = np.concatenate([low, high, low | top, high | top]).view(t.dtype)
    x0 = np.concatenate([near, close, anything(count), np.repeat(edges, edges.size)])
    return {"x0": x0, "x1": np.concatenate([y, y, anything(count), np.tile(edges, edges.size)])}


@pytest.mark.parametrize("name", ["rem", "remainder"])
@pytest.mark.parametrize("type_", [f16, bf16, f32, f64], ids=str)
def test_remainders(type_: Type, name: str) -> None:
    assert_expands(Signature(OPS[name], (type_, type_)), quotients(type_, 20_000))


def test_a_remainder_takes_few_turns() -> None:
    program = expand(program_of(Signature(OPS["rem"], (f32, f32))), frozenset({"rem"}))
    assert sum(isinstance(s, For) for s in program.body) == 1
    assert len(program.body) < 160
    types = {a.type for s in program.body for a in s.args}
    assert all(t.bits <= 32 for t in types), "f32 needs no wider word"


@pytest.mark.parametrize("name", ["rsqrt", "saturate", "degrees", "radians", "modf_fraction", "frexp_fraction", "frexp_exponent"])
@pytest.mark.parametrize("type_", [f16, bf16], ids=str)
def test_every_number_of_two_bytes(type_: Type, name: str) -> None:
    assert_expands(Signature(OPS[name], (type_,)), {"x0": np.arange(1 << 16, dtype=np.uint16).view(type_.dtype)})


@pytest.mark.parametrize("type_", [f16, bf16, f32, f64], ids=str)
def test_scaling_to_and_from_the_smallest_numbers(type_: Type) -> None:
    rng = np.random.default_rng(type_.bits)
    word, count = f"u{type_.size_bytes}", 1 << 16
    x = np.arange(count, dtype=np.uint16).view(word) if type_.bits == 16 else rng.integers(0, 256, (count, type_.size_bytes), dtype=np.uint8).view(word)[:, 0]
    reach = {f16: 50, bf16: 280, f32: 300, f64: 2200}[type_]
    s = Signature(OPS["ldexp"], (type_, SCALARS["i32"]))
    assert_expands(s, {"x0": x.view(type_.dtype), "x1": rng.integers(-reach, reach, count).astype(np.int32)})
