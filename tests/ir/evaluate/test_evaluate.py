"""Every row's evaluation over scalars against oracles of Python integers and exact fractions, on edge values and random ones."""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from exact_conversions import cast_oracle
from exact_floats import COMPUTED, FLOAT_ORACLES, FORMATS, Format
from exact_floats import fma as exact_fma
from exact_floats import mul as exact_mul
from exact_integers import BOOL_ORACLES, INTEGER_ORACLES, pattern, wrap
from exact_samples import EDGES, Number, array, drawn, every, numbers, same, samples

from vyre_py.ir.evaluate import fused
from vyre_py.ir.language.op import Operand, Result
from vyre_py.ir.language.ops import ATOMICS, OPS
from vyre_py.ir.language.types import SCALARS, Kind, Type, bf16, bool_, f16, f32, f64, i32, i64, u64

FLOATS = list(COMPUTED)
# Over vectors, or of a given type: test_evaluate_vectors.py, and the tests of casts and bitcasts below.
VECTOR_ROWS = {
    name for name, row in OPS.items()
    if row.evaluate is not None and (1 not in row.lanes or row.result is Result.VECTOR or name.startswith("unpack"))
}  # fmt: skip


def compare(name: str, types: tuple[Type, ...], result: Type, rows: list[tuple[Number, ...]], expected: list[Number], exact: bool = False) -> None:
    evaluate = OPS[name].evaluate
    assert evaluate is not None
    columns = [array(t, list(c)) for t, c in zip(types, zip(*rows, strict=True), strict=True)]
    with np.errstate(all="ignore"):
        got = numbers(result, evaluate(result, *columns))
    wrong = [(r, g, e) for r, g, e in zip(rows, got, expected, strict=True) if g != e and (exact or not same(result, g, e))]
    assert not wrong, f"{name} of {types}: {len(wrong)} wrong; first (operands, got, expected): {wrong[:5]}"


def oracle(name: str, t: Type) -> Callable[..., Number]:
    if t.is_float:
        return lambda *operands: FLOAT_ORACLES[name](FORMATS[t], *operands)
    return lambda *operands: (BOOL_ORACLES if t is bool_ else INTEGER_ORACLES)[name](t, *operands)


# ---------------------------------------------------------------- ops of one type

T_ROWS = [
    (name, t)
    for name, row in OPS.items()
    if row.evaluate is not None and row.result is not Result.GIVEN and name not in VECTOR_ROWS | {"select"}
    for t in sorted(row.of, key=str)
]
# Where a field of bits may begin and how long it may be, for every width.
BIT_COUNTS = [0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 2**31, 2**32 - 1]


@pytest.mark.parametrize(("name", "t"), T_ROWS, ids=str)
def test_op(name: str, t: Type) -> None:
    row = OPS[name]
    types = tuple(o.beside(t) for o in row.operands)
    if Operand.U32 in row.operands:
        values = [EDGES[t] + drawn(t, 40, seed=1), EDGES[t][::-1] + drawn(t, 40, seed=2)][: row.operands.count(Operand.T)]
        rows = [(*v, offset, count) for v in zip(*values, strict=True) for offset in BIT_COUNTS for count in BIT_COUNTS]
    else:
        rows = samples(types, seed=len(name))
    result = row.result_type(types)
    assert result is not None
    expected = [oracle(name, t)(*r) for r in rows]
    compare(name, types, result, rows, expected)


def test_every_row_has_an_oracle() -> None:
    elsewhere = {"select", "cast", "bitcast", "swizzle"} | VECTOR_ROWS
    of_ops = {*FLOAT_ORACLES, *INTEGER_ORACLES, *BOOL_ORACLES} - (ATOMICS.keys() - OPS.keys())
    assert {name for name, row in OPS.items() if row.evaluate is not None} == of_ops | elsewhere


@pytest.mark.parametrize("t", list(SCALARS.values()), ids=str)
def test_select_keeps_bits(t: Type) -> None:
    pairs = list(zip(drawn(t, 2000, 5) + EDGES[t], drawn(t, 2000, 6) + EDGES[t][::-1], strict=True))
    rows = [(c, a, b) for c in (False, True) for a, b in pairs]
    compare("select", (bool_, t, t), t, rows, [a if c else b for c, a, b in rows], exact=True)


@pytest.mark.parametrize("name", [n for n, row in OPS.items() if row.evaluate is not None and len(row.operands) > 1 and n not in VECTOR_ROWS | {"swizzle"}])
def test_operands_broadcast(name: str) -> None:
    row = OPS[name]
    for t in sorted(row.of, key=str):
        types = tuple(o.beside(t) for o in row.operands)
        result = row.result_type(types)
        assert result is not None and row.evaluate is not None
        columns = [array(o, drawn(o, 50, seed=k)) for k, o in enumerate(types)]
        for single in range(len(types)):
            given = [c[:1] if k == single else c for k, c in enumerate(columns)]
            spread = [np.repeat(c[:1], 50) if k == single else c for k, c in enumerate(columns)]
            with np.errstate(all="ignore"):
                got, wanted = numbers(result, row.evaluate(result, *given)), numbers(result, row.evaluate(result, *spread))
            assert len(got) == 50 and all(same(result, a, b) for a, b in zip(got, wanted, strict=True))


# ---------------------------------------------------------------- fma


def hard_sums(f: Format, count: int) -> list[tuple[int, int, int]]:
    """Products that miss the middle between two sums by next to nothing, products that lie in it, and sums that cancel; at c's of
    all exponents, subnormal ones among them. And the special values with one another."""
    draw = random.Random(f.fraction)
    unit, last = 1 << f.fraction, (1 << f.fraction) - 1
    up = 1 << (f.fraction + 1) // 2
    rows: list[tuple[int, int, int]] = []
    for k in range(count):
        # Two factors whose product is 2^n, or misses it by 1, or by some thousands.
        a = draw.randrange(1, 1 << draw.randint(1, f.fraction // 2 + 1))
        x, y, n = [
            (unit + 1, unit - 1, 2 * f.fraction),
            (up + 1, up - 1, up.bit_length() * 2 - 2),
            (up, up, up.bit_length() * 2 - 2),
            (unit + a, 2 * unit - 2 * a, 2 * f.fraction + 1),
        ][k % 4]
        exponent = draw.choice([0, 1, 2, f.bias // 2, f.bias, f.bias + 9, 2 * f.bias - 2])
        c = draw.choice([0, 1, 2, last - 1, last, draw.randint(0, last)]) | exponent << f.fraction | draw.choice((0, f.sign))
        # Half of c's quantum, shared out so that both factors are normal.
        half = max(exponent, 1) - f.bias - f.fraction - 1 - n
        left = f.rounded(Fraction(x) * Fraction(2) ** (half // 2))
        right = f.rounded(Fraction(y) * Fraction(2) ** (half - half // 2)) | draw.choice((0, f.sign))
        rows += [(left, right, c), (left, right, f.sign ^ exact_mul(f, left, right))]
    ends = [0, 1, unit, f.one, f.infinity - 1, f.infinity, f.nan]
    return [*rows, *product([s | e for e in ends for s in (0, f.sign)], repeat=3)]


@pytest.mark.parametrize("t", FLOATS, ids=str)
def test_fma_rounds_once_where_the_rounding_is_hard(t: Type) -> None:
    f = FORMATS[t]
    rows = hard_sums(f, 4000)
    compare("fma", (t,) * 3, t, rows, [exact_fma(f, *r) for r in rows])


def test_fma_of_f64_without_the_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing:
        def __init__(self, name: str | None) -> None:
            raise OSError(name)

    f = FORMATS[f64]
    rows = [*samples((f64,) * 3, seed=8), *hard_sums(f, 500)]
    expected = [exact_fma(f, *r) for r in rows]
    fused._one_by_one.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", Missing)
    try:
        assert fused._one_by_one() is fused.exactly
        compare("fma", (f64,) * 3, f64, rows, expected)
    finally:
        fused._one_by_one.cache_clear()


def test_a_c_library_that_rounds_twice_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    class Twice:
        def __init__(self, name: str | None) -> None:
            class Function:
                def __call__(self, a: float, b: float, c: float) -> float:
                    return a * b + c

            self.fma = Function()

    fused._one_by_one.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", Twice)
    try:
        assert fused._one_by_one() is fused.exactly
    finally:
        fused._one_by_one.cache_clear()


# ---------------------------------------------------------------- casts


def traps(source: Type, target: Type) -> list[tuple[Number]]:
    """Middles between numbers of a float target and their neighbours in the source; ends of an integer target."""
    draw = random.Random(source.bits * 100 + target.bits)
    exact: list[Fraction] = []
    if target.is_float:
        f = FORMATS[target]
        low = [draw.randrange(f.infinity) for _ in range(300)] + [0, 1, (1 << f.fraction) - 1, f.one, f.infinity - 1]
        low += [(f.bias + draw.randint(0, 63)) << f.fraction & f.infinity | draw.getrandbits(f.fraction) for _ in range(600)]
        top = Fraction(2) ** (f.bias + 1)
        values = [(Fraction(f.value(b)), Fraction(f.value(b + 1)) if b + 1 < f.infinity else top) for b in low if b < f.infinity]
        exact += [(a + b) / 2 for a, b in values]
        exact += [(a + b) / 2 + d for a, b in values for d in (-1, 1, Fraction(1, 2**22), -Fraction(1, 2**22))]
        exact += [1 + Fraction(1, 2 ** (f.fraction + 1)) + Fraction(d, 2**30) for d in (-1, 0, 1)]
    else:
        exact += [Fraction(2) ** p + d for p in (0, 7, 8, 15, 16, 31, 32, 63, 64) for d in (-1, Fraction(-1, 2), 0, Fraction(1, 2), 1)]
    exact += [-x for x in exact]
    if source.is_float:
        f = FORMATS[source]
        rounded = [f.rounded(x) for x in exact]
        return [(b + d,) for b in rounded for d in (-1, 0, 1) if 0 <= b + d <= f.infinity | f.sign]
    return [(wrap(source, math.floor(x)),) for x in exact] if source.is_integer else []


@pytest.mark.parametrize(("source", "target"), [(s, t) for s in SCALARS.values() for t in SCALARS.values() if s is not t], ids=str)
def test_cast(source: Type, target: Type) -> None:
    rows = samples((source,), seed=9) + traps(source, target)
    compare("cast", (source,), target, rows, [cast_oracle(source, target, r[0]) for r in rows])


@pytest.mark.parametrize(
    ("source", "number", "target", "expected"),
    [
        (f64, 1 + 2**-8 + 2**-30, bf16, 1 + 2**-7),  # in the middle, but for what f32 would drop
        (f64, 1 + 2**-11 + 2**-40, f16, 1 + 2**-10),
        (f64, 1 + 2**-24 + 2**-52, f32, 1 + 2**-23),
        (f32, 1 + 2**-11 + 2**-23, f16, 1 + 2**-10),
        (i32, 2**24 + 2**16 + 1, bf16, 2**24 + 2**17),
        (i64, 2**40 + 2**32 + 1, bf16, 2**40 + 2**33),
        (i64, -(2**40) - 2**32 - 1, bf16, -(2**40) - 2**33),
        (u64, 2**63 + 2**55 + 1, bf16, 2**63 + 2**56),
        (i64, 2**54 + 2**30 + 1, f32, 2**54 + 2**31),
        (u64, 2**64 - 1, f32, 2.0**64),
        (i64, 65519, f16, 65504),
        (i64, 65520, f16, math.inf),
        (f64, 65520.0 - 2**-30, f16, 65504),
        (f64, 3.4e38 * 1e200, bf16, math.inf),
        (f32, 2.0**63, i64, 2**63 - 1),
        (f64, -1e300, i64, -(2**63)),
        (f64, -0.9, u64, 0),
        (f64, 2.0**64 - 2**11, u64, 2**64 - 2**11),
        (f32, math.nan, i32, 0),
        (f32, math.inf, u64, 2**64 - 1),
        (f32, math.nan, bool_, True),
        (f16, -0.0, bool_, False),
    ],
)
def test_casts_that_are_easy_to_get_wrong(source: Type, number: float, target: Type, expected: float) -> None:
    evaluate = OPS["cast"].evaluate
    assert evaluate is not None
    with np.errstate(all="ignore"):
        got = evaluate(target, np.array([number]).astype(source.dtype))
    assert got.dtype == target.dtype and got.tolist() == [expected]


# ---------------------------------------------------------------- bitcasts

SAME_SIZE = [(s, t) for s in SCALARS.values() for t in SCALARS.values() if s is not t and s.bits == t.bits and Kind.BOOL not in (s.kind, t.kind)]


@pytest.mark.parametrize(("source", "target"), SAME_SIZE, ids=str)
def test_bitcast(source: Type, target: Type) -> None:
    rows = samples((source,), seed=10)

    def expected(value: int) -> int:
        if source.is_float:
            bits = FORMATS[source].nan if FORMATS[source].is_nan(value) else value
        else:
            bits = pattern(source, value)
        return bits if target.is_float else wrap(target, bits)

    compare("bitcast", (source,), target, rows, [expected(r[0]) for r in rows], exact=True)


def test_all_numbers_of_the_small_types_are_tried() -> None:
    for t in SCALARS.values():
        if t.bits <= 16:
            assert len(samples((t,), seed=0)) == len(every(t)) == (2 if t is bool_ else 1 << t.bits)
        if t.bits == 8:
            assert len(samples((t, t), seed=0)) == 1 << 16
