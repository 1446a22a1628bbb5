"""Floats of 8 and 16 bits through f32: every op and cast gives the bits that the interpreter computes directly; only moves remain, and casts of f16 and
bf16 from and to f32."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from elements import random_array
from op_programs import Signature, arguments_of, assert_same_results, program_of, run, signatures

from vyre_py.ir.check import check
from vyre_py.ir.language.nodes import Let
from vyre_py.ir.language.ops import EXPANDED_ONLY, OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import SCALARS, Type, bf16, f8e4m3, f8e5m2, f16, f32, f64, i32, i64, u32, u64
from vyre_py.ir.passes import Optimised, optimise, unoptimised
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.compile import prepare
from vyre_py.lowering.kinds import STRICT_EXPANSIONS, TARGET_KINDS, expanded_for
from vyre_py.lowering.legal.floats import narrow_floats
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import parse_target

NARROW = (f16, bf16)
STORED = (f8e4m3, f8e5m2)
ALL_BITS = np.arange(1 << 16, dtype=np.uint16)


def every(t: Type) -> np.ndarray:
    """Every number of a type of 8 or 16 bits."""
    return ALL_BITS[: 1 << t.bits].astype(f"u{t.size_bytes}").view(t.dtype)


def assert_legal(program: Program) -> None:
    """What emitters rely on, whatever the passes do afterwards."""
    check(program)
    for s in program.body:
        if isinstance(s, Let) and s.op.name not in ("select", "bitcast"):
            types = {a.type for a in (*s.args, s.bound)}
            assert types.isdisjoint((*NARROW, *STORED)) or (s.op.name == "cast" and types <= {f32, *NARROW} and f32 in types), f"{s.op.name} over {types}"


def legal(program: Program, level: int) -> Optimised:
    made = optimise(check(program), expand=frozenset(n for n, op in OPS.items() if op.expands), legal=(narrow_floats,), level=level)
    assert_legal(made.program)
    return made


def assert_kept(s: Signature, arguments: dict[str, Any], level: int = 2) -> None:
    program = program_of(s)
    want = run(unoptimised(check(program), expand=EXPANDED_ONLY), s, arguments)
    assert_same_results(s, arguments, want, run(legal(program, level), s, arguments))


def narrow_signatures(name: str) -> list[Signature]:
    return [s for s in signatures(OPS[name]) if any(t in (*NARROW, *STORED) for t in (*s.operands, s.result))]


NAMES = [name for name, op in OPS.items() if not op.is_query and name not in EXPANDED_ONLY and narrow_signatures(name)]


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("name", NAMES)
def test_every_op(name: str, level: int) -> None:
    rng = np.random.default_rng(len(name))
    for s in narrow_signatures(name):
        assert_kept(s, arguments_of(s, rng, 3000), level)


@pytest.mark.parametrize("type_", NARROW, ids=str)
@pytest.mark.parametrize("name", [n for n in NAMES if len(OPS[n].operands) == 1 and n not in ("cast", "bitcast")])
def test_every_operand(name: str, type_: Type) -> None:
    for s in signatures(OPS[name]):
        if s.operands == (type_,):
            assert_kept(s, {"x0": ALL_BITS.view(type_.dtype)})


@pytest.mark.parametrize("source", [*STORED, *NARROW], ids=str)
def test_every_cast_of_every_number(source: Type) -> None:
    for target in SCALARS.values():
        if target is not source:
            assert_kept(Signature(OPS["cast"], (source,), target), {"x0": every(source)})


# ---------------------------------------------------------------- what would round twice


def ties(t: Type) -> np.ndarray:
    """Every number of a narrow type, and half-way to the next one, as f64."""
    with np.errstate(invalid="ignore"):
        numbers = every(t).astype(np.float32).astype(np.float64)
    numbers = np.unique(numbers[np.isfinite(numbers)])
    return np.concatenate([numbers, (numbers[1:] + numbers[:-1]) / 2])


@pytest.mark.parametrize("target", [*STORED, *NARROW], ids=str)
def test_f64_next_to_ties(target: Type) -> None:
    exact = ties(target)
    nearby = [exact + np.abs(exact) * step for step in (2.0**-30, -(2.0**-30), 2.0**-25)]
    x = np.concatenate([exact, np.nextafter(exact, np.inf), np.nextafter(exact, -np.inf), *nearby])
    edges = [np.inf, -np.inf, np.nan, -0.0, 5e-324, 2.0**-25, 2.0**-134, 2.0**-135, 1.5 * 2.0**-134]
    edges += [464.0, 464.01, 480.0, 61439.99, 61440.0, 65519.99, 65520.0, 65520.01, 3.39e38, 3.4e38, -3.4e38, 1e300]
    assert_kept(Signature(OPS["cast"], (f64,), target), {"x0": np.concatenate([x, np.array(edges)])})


@pytest.mark.parametrize("target", [*STORED, *NARROW], ids=str)
@pytest.mark.parametrize("source", [i32, u32, i64, u64], ids=str)
def test_integers_next_to_ties(source: Type, target: Type) -> None:
    found = {source.minimum, source.minimum + 1, source.maximum, source.maximum - 1, 65519, 65520, 65521, 65536, 65537}
    for exponent in range(source.bits):
        for top in range(256, 512):
            # Nine bits and a tie, and that with little above and below.
            base = top << exponent >> 8
            found |= {base + d for d in (-1, 0, 1)} | {-base + d for d in (-1, 0, 1)} | {base + (1 << exponent >> 30), base - (1 << exponent >> 30)}
    for exponent in range(11, 17):
        found |= {(top << exponent >> 11) + d for top in range(2048, 4096, 7) for d in (-1, 0, 1)}
    x = np.array(sorted(v for v in found if source.minimum <= v <= source.maximum), source.dtype)
    assert_kept(Signature(OPS["cast"], (source,), target), {"x0": x})


def fused_operands(t: Type, count: int) -> dict[str, np.ndarray]:
    """Products all over the exponents, with a third operand that cancels them, nearly so, or makes a tie."""
    rng = np.random.default_rng(t.bits + t.canonical_nan)

    def anything() -> Any:
        return rng.integers(0, 1 << 16, count).astype(np.uint16).view(t.dtype)

    a, b, c = anything(), anything(), anything()
    with np.errstate(all="ignore"):
        product = a.astype(np.float64) * b.astype(np.float64)
        near = (-product).astype(np.float32).astype(t.dtype)
        shifted = (product * np.exp2(rng.integers(-20, 21, count))).astype(np.float32).astype(t.dtype)
    moved = (near.view(np.uint16) + rng.integers(-1, 2, count).astype(np.uint16)).view(t.dtype)
    edges = random_array(rng, t, (count,))
    return {"x0": np.concatenate([a] * 5), "x1": np.concatenate([b] * 5), "x2": np.concatenate([c, near, shifted, moved, edges])}


@pytest.mark.parametrize("type_", NARROW, ids=str)
def test_fused_multiply_add(type_: Type) -> None:
    assert_kept(Signature(OPS["fma"], (type_,) * 3), fused_operands(type_, 60_000))


def rounded(exact: Fraction, t: Type) -> float:
    """A finite number rounded to nearest even in a narrow type, by whole numbers alone."""
    precision, least, most = {f16: (11, -24, 65520), bf16: (8, -133, Fraction(2) ** 128 - Fraction(2) ** 119)}[t]
    size = abs(exact)
    if size >= most:
        return float("inf") if exact > 0 else float("-inf")
    exponent = 0
    if size:
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - precision + 1, least)
    return float(round(exact / unit) * unit)


@pytest.mark.parametrize("type_", NARROW, ids=str)
def test_fused_multiply_add_against_whole_numbers(type_: Type) -> None:
    operands = {k: v[::101] for k, v in fused_operands(type_, 60_000).items()}
    finite = np.all([np.isfinite(v.astype(np.float32)) for v in operands.values()], axis=0)
    operands = {k: v[finite] for k, v in operands.items()}
    s = Signature(OPS["fma"], (type_,) * 3)
    got = run(legal(program_of(s), 2), s, operands).astype(np.float64)
    columns = [v.astype(np.float64).tolist() for v in operands.values()]
    for a, b, c, result in zip(*columns, got.tolist(), strict=True):
        assert rounded(Fraction(a) * Fraction(b) + Fraction(c), type_) == result, (a, b, c, result)


# ---------------------------------------------------------------- the pass itself


def test_moves_are_left_alone() -> None:
    text = """program p(n) {
  param a: f16
  buffer x: bf16[n] read_write
  buffer w: u16[n] read_write
  let i = global_id.x
  var v: bf16 = x[i]
  v = select(i < 3u32, x[i + 1u32], v)
  x[i] = v
  w[i] = bitcast(a, u16) + bitcast(v, u16)
}"""
    program = parse(text)
    assert narrow_floats(program) is program


def test_names_and_places_are_kept() -> None:
    program = parse("program p(n) over(n) {\n buffer x: f16[n] read_write\n let twice = x[0u32] + x[1u32]\n x[0u32] = twice\n}", "here.vir")
    made = narrow_floats(program)
    assert_legal(made)
    assert "twice" in made.value_names.values()
    assert all(made.place(k) is not None for k in range(len(made.body)))


def test_passes_do_not_undo_it() -> None:
    """A merged chain of casts would bring back what was taken apart."""
    text = """program p(n) {
  buffer x: f16[n] read_write
  buffer y: bf16[n] read_write
  buffer z: u8[n] read_write
  let i = global_id.x
  y[i] = cast(cast(cast(z[i], f16), f32), bf16)
  z[i] = cast(cast(x[i], f64), u8)
  x[i] = cast(cast(cast(x[i], f32), f64), f16)
}"""
    for level in (0, 1, 2):
        legal(parse(text), level)


# ---------------------------------------------------------------- the route to each target

MIXED = """program mixed(n) {
  param s: f16x3
  buffer x: f16x3[n] read
  buffer y: bf16[n] read_write
  buffer z: u8x4[n] read_write
  let i = global_id.x
  let v = rsqrt(fma(x[i], s, x[i])) % s
  y[i] = cast(dot(v, s), bf16) + exp(y[i])
  z[i] = saturating_add(z[i], extract_bits(z[i], 1u32, 3u32))
}"""


@pytest.mark.parametrize("name", ["sm_75", "sm_90", "cpu"])
def test_llvm_targets_see_scalars_and_moves(name: str) -> None:
    made = prepare(parse(MIXED), parse_target(name), CompileOptions()).program
    assert_legal(made)
    atoms = [a for s in made.body for a in (*s.args, *([s.result] if s.result is not None else ()))]
    assert not any(a.type.is_vector for a in (*atoms, *made.params, *made.memories))
    assert {s.op.name for s in made.body if isinstance(s, Let)}.isdisjoint({"rsqrt", "rem", "exp", "extract_bits"})


def test_the_reference_keeps_types_and_what_it_can_evaluate() -> None:
    made = prepare(parse(MIXED), parse_target("reference"), CompileOptions()).program
    ops = {s.op.name: s.args[0].type for s in made.body if isinstance(s, Let) and s.args}
    assert {"rsqrt", "rem", "extract_bits", "saturating_add"} <= ops.keys() and "exp" not in ops
    assert ops["rsqrt"] is f16 and ops["saturating_add"] is SCALARS["u8"]


def test_what_each_kind_of_target_leaves_to_expansions() -> None:
    assert expanded_for("reference") == EXPANDED_ONLY
    for kind in TARGET_KINDS:
        left = expanded_for(kind)
        assert left <= STRICT_EXPANSIONS and {"cbrt", "erf"} <= left
        # rem has rows for integers everywhere, and an expansion for floats.
        assert ("rem" in left) is (kind != "reference")
