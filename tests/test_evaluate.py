"""Every row's evaluation against oracles of Python integers and exact fractions, on edge values and random ones."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from vyre_py.ir.ops import OPS, Operand, Result
from vyre_py.ir.types import SCALARS, Kind, Scalar, bool_, f32, i32, u8, u32

Number = Any  # a bool, an int, or the bits of an f32

CANONICAL_NAN = 0x7FC00000

# ---------------------------------------------------------------- f32 as bits, exactly


def value_of(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def is_nan(bits: int) -> bool:
    return bits & 0x7FFFFFFF > 0x7F800000


def is_inf(bits: int) -> bool:
    return bits & 0x7FFFFFFF == 0x7F800000


def is_finite(bits: int) -> bool:
    return not is_nan(bits) and not is_inf(bits)


def rounded(exact: Fraction, negative_zero: bool = False) -> int:
    """The bits of the f32 nearest to a rational number, ties to even, subnormals and overflow included."""
    if exact == 0:
        return 0x80000000 if negative_zero else 0
    sign, magnitude = (0x80000000 if exact < 0 else 0), abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    quantum = max(exponent, -126) - 23
    scaled = round(magnitude / Fraction(2) ** quantum)  # Python rounds ties to even
    # A carry into the next binade is what adding to the bits does by itself.
    bits = scaled if quantum == -149 else ((quantum + 150) << 23) + (scaled - (1 << 23))
    return sign | min(bits, 0x7F800000)


def from_float(value: float) -> int:
    """The bits of a float that is zero, infinite or NaN, or an f32 already."""
    return CANONICAL_NAN if math.isnan(value) else int(struct.unpack("<I", struct.pack("<f", value))[0])


def _special(compute: Callable[..., Any], *bits: int) -> int:
    with np.errstate(all="ignore"):
        return from_float(float(compute(*(np.float64(value_of(b)) for b in bits))))


def f_add(a: int, b: int) -> int:
    if not (is_finite(a) and is_finite(b)):
        return _special(lambda x, y: x + y, a, b)
    return rounded(Fraction(value_of(a)) + Fraction(value_of(b)), negative_zero=a == b == 0x80000000)


def f_neg(a: int) -> int:
    return a ^ 0x80000000


def f_mul(a: int, b: int) -> int:
    if not (is_finite(a) and is_finite(b)):
        return _special(lambda x, y: x * y, a, b)
    return rounded(Fraction(value_of(a)) * Fraction(value_of(b)), negative_zero=bool((a ^ b) >> 31)) | ((a ^ b) & 0x80000000)


def f_div(a: int, b: int) -> int:
    if not (is_finite(a) and is_finite(b)) or value_of(b) == 0:
        return _special(lambda x, y: x / y, a, b)
    return rounded(Fraction(value_of(a)) / Fraction(value_of(b)), negative_zero=bool((a ^ b) >> 31)) | ((a ^ b) & 0x80000000)


def f_fma(a: int, b: int, c: int) -> int:
    if not (is_finite(a) and is_finite(b) and is_finite(c)):
        return _special(lambda x, y, z: x * y + z, a, b, c)
    exact_product = Fraction(value_of(a)) * Fraction(value_of(b))
    negative = exact_product == 0 and bool((a ^ b) >> 31) and c == 0x80000000
    return rounded(exact_product + Fraction(value_of(c)), negative_zero=negative)


def f_sqrt(a: int) -> int:
    x = value_of(a)
    if math.isnan(x) or x < 0 or x == 0 or math.isinf(x):
        return CANONICAL_NAN if x < 0 else a
    # The root of x * 2^400 as an integer has so many bits that the last one only says "more than".
    scaled = Fraction(x) * 2**400
    root = math.isqrt(int(scaled))
    sticky = 0 if root * root == scaled else 1
    return rounded(Fraction(2 * root + sticky, 2**201))


def _whole(pick: Callable[[float], int]) -> Callable[[int], int]:
    def apply(a: int) -> int:
        if not is_finite(a):
            return a
        whole = pick(value_of(a))
        return rounded(Fraction(whole)) if whole else a & 0x80000000

    return apply


def f_extreme(wanted: Callable[[float, float], bool], zero: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def apply(a: int, b: int) -> int:
        if is_nan(a) or is_nan(b):
            return b if is_nan(a) else a
        x, y = value_of(a), value_of(b)
        if x == y == 0:
            return zero(a, b)
        return a if wanted(x, y) else b

    return apply


f_min = f_extreme(lambda x, y: x < y, lambda a, b: a | b)
f_max = f_extreme(lambda x, y: x > y, lambda a, b: a & b)
f_floor = _whole(math.floor)


def f_sign(a: int) -> int:
    x = value_of(a)
    return from_float(math.copysign(1.0, x)) if x < 0 or x > 0 else a


FLOAT_ORACLES: Mapping[str, Callable[..., Number]] = {
    "add": f_add,
    "sub": lambda a, b: f_add(a, f_neg(b)),
    "mul": f_mul,
    "div": f_div,
    "fma": f_fma,
    "neg": f_neg,
    "abs": lambda a: a & 0x7FFFFFFF,
    "sign": f_sign,
    "min": f_min,
    "max": f_max,
    "clamp": lambda x, low, high: f_min(f_max(x, low), high),
    "sqrt": f_sqrt,
    "floor": f_floor,
    "ceil": _whole(math.ceil),
    "trunc": _whole(math.trunc),
    "round": _whole(round),
    "fract": lambda a: f_add(a, f_neg(f_floor(a))),
    "eq": lambda a, b: value_of(a) == value_of(b),
    "ne": lambda a, b: value_of(a) != value_of(b),
    "lt": lambda a, b: value_of(a) < value_of(b),
    "le": lambda a, b: value_of(a) <= value_of(b),
    "gt": lambda a, b: value_of(a) > value_of(b),
    "ge": lambda a, b: value_of(a) >= value_of(b),
    "is_nan": is_nan,
    "is_inf": is_inf,
    "is_finite": is_finite,
}

# ---------------------------------------------------------------- integers, by Python's


def wrap(type_: Scalar, value: int) -> int:
    return (value - type_.minimum) % (1 << type_.bits) + type_.minimum


def pattern(value: int) -> int:
    return value % (1 << 32)


def i_div(t: Scalar, a: int, b: int) -> int:
    if b == 0:
        return a
    return wrap(t, abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))


def i_rem(t: Scalar, a: int, b: int) -> int:
    return 0 if b == 0 else a - b * (abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))


def rotated(t: Scalar, a: int, count: int) -> int:
    text = f"{pattern(a):032b}"
    count %= 32
    return wrap(t, int(text[count:] + text[:count], 2))


INTEGER_ORACLES: Mapping[str, Callable[..., Number]] = {
    "add": lambda t, a, b: wrap(t, a + b),
    "sub": lambda t, a, b: wrap(t, a - b),
    "mul": lambda t, a, b: wrap(t, a * b),
    "div": i_div,
    "rem": i_rem,
    "neg": lambda t, a: wrap(t, -a),
    "abs": lambda t, a: wrap(t, abs(a)),
    "sign": lambda t, a: (a > 0) - (a < 0),
    "min": lambda t, a, b: min(a, b),
    "max": lambda t, a, b: max(a, b),
    "clamp": lambda t, x, low, high: min(max(x, low), high),
    "and": lambda t, a, b: a & b,
    "or": lambda t, a, b: a | b,
    "xor": lambda t, a, b: a ^ b,
    "not": lambda t, a: wrap(t, ~a),
    "shl": lambda t, a, b: wrap(t, a << (b % 32)),
    "shr": lambda t, a, b: a >> (b % 32),
    "rotl": rotated,
    "rotr": lambda t, a, b: rotated(t, a, -b),
    "popcount": lambda t, a: f"{pattern(a):b}".count("1"),
    "clz": lambda t, a: 32 - pattern(a).bit_length(),
    "ctz": lambda t, a: f"1{pattern(a):032b}"[::-1].index("1"),
    "reverse_bits": lambda t, a: wrap(t, int(f"{pattern(a):032b}"[::-1], 2)),
    "mul_hi": lambda t, a, b: (a * b) >> 32,
    "abs_diff": lambda t, a, b: abs(a - b),
    "eq": lambda t, a, b: a == b,
    "ne": lambda t, a, b: a != b,
    "lt": lambda t, a, b: a < b,
    "le": lambda t, a, b: a <= b,
    "gt": lambda t, a, b: a > b,
    "ge": lambda t, a, b: a >= b,
}

BOOL_ORACLES: Mapping[str, Callable[..., Number]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "logical_and": lambda a, b: a and b,
    "logical_or": lambda a, b: a or b,
    "logical_not": lambda a: not a,
}

# ---------------------------------------------------------------- samples

_F32_EDGES = [
    0x00000000, 0x00000001, 0x00000002, 0x007FFFFF, 0x00800000, 0x00800001, 0x01000000, 0x33800000, 0x34000000, 0x3EFFFFFF, 0x3F000000, 0x3F000001,
    0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3FC00000, 0x40000000, 0x40200000, 0x40400000, 0x4AFFFFFF, 0x4B000000, 0x4B000001, 0x4EFFFFFF, 0x4F000000,
    0x4F7FFFFF, 0x4F800000, 0x5F000000, 0x7E800000, 0x7F7FFFFE, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001, 0x7FFFFFFF,
]
F32_EDGES = [*_F32_EDGES, *(b | 0x80000000 for b in _F32_EDGES)]
I32_EDGES = [0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x55555555, 0x7FFFFFFE, 0x7FFFFFFF]
EDGES: Mapping[Scalar, list[Number]] = {
    bool_: [False, True],
    u8: [0, 1, 2, 127, 128, 254, 255],
    i32: [*I32_EDGES, *(-v for v in I32_EDGES[1:]), -(2**31)],
    u32: [*I32_EDGES, *(2**32 - v for v in I32_EDGES[1:]), 2**31],
    f32: F32_EDGES,
}


def random_numbers(type_: Scalar, count: int, seed: int) -> list[Number]:
    rng = np.random.default_rng(seed)
    if type_ is f32:
        wild = rng.integers(0, 1 << 32, count // 2)
        # Exponents that lie near one another, so that sums cancel and round.
        near = rng.integers(118, 137, count - count // 2) << 23 | rng.integers(0, 1 << 23, count - count // 2) | rng.integers(0, 2, count - count // 2) << 31
        return [*wild.tolist(), *near.tolist()]
    values = rng.integers(type_.minimum, type_.maximum, count, endpoint=True)
    shifted = values >> rng.integers(0, type_.bits, count)
    return [bool(v) if type_ is bool_ else v for v in shifted.tolist()]


def samples(types: tuple[Scalar, ...], seed: int) -> list[tuple[Number, ...]]:
    edges = [EDGES[t] if len(types) < 3 else EDGES[t][:: max(1, len(EDGES[t]) // 17)] for t in types]
    drawn = [random_numbers(t, 2000, seed + k) for k, t in enumerate(types)]
    return [*product(*edges), *zip(*drawn, strict=True)]


def array(type_: Scalar, numbers: list[Number]) -> Any:
    return np.array(numbers, np.uint32).view(np.float32) if type_ is f32 else np.array(numbers, type_.dtype)


def numbers(type_: Scalar, values: Any) -> list[Number]:
    assert values.dtype == type_.dtype, (values.dtype, type_)
    found: list[Number] = (values.view(np.uint32) if type_ is f32 else values).tolist()
    return found


def same(type_: Scalar, a: Number, b: Number) -> bool:
    return a == b or (type_ is f32 and is_nan(a) and is_nan(b))


def compare(name: str, types: tuple[Scalar, ...], result: Scalar, rows: list[tuple[Number, ...]], expected: list[Number], exact: bool = False) -> None:
    evaluate = OPS[name].evaluate
    assert evaluate is not None
    columns = [array(t, list(c)) for t, c in zip(types, zip(*rows, strict=True), strict=True)]
    with np.errstate(all="ignore"):
        got = numbers(result, evaluate(result, *columns))
    wrong = [(r, g, e) for r, g, e in zip(rows, got, expected, strict=True) if not (g == e if exact else same(result, g, e))]
    assert not wrong, f"{name} of {types}: {len(wrong)} wrong; first (operands, got, expected): {wrong[:5]}"


# ---------------------------------------------------------------- tests

T_ROWS = [
    (name, type_)
    for name, row in OPS.items()
    if row.evaluate is not None and row.result is not Result.GIVEN and name != "select"
    for type_ in sorted(row.of, key=str)
]


@pytest.mark.parametrize(("name", "type_"), T_ROWS)
def test_op(name: str, type_: Scalar) -> None:
    row = OPS[name]
    assert set(row.operands) == {Operand.T}
    types = (type_,) * len(row.operands)
    rows = samples(types, seed=len(name))
    if type_ is bool_:
        expected = [BOOL_ORACLES[name](*r) for r in rows]
    elif type_ is f32:
        expected = [FLOAT_ORACLES[name](*r) for r in rows]
    else:
        expected = [INTEGER_ORACLES[name](type_, *r) for r in rows]
    result = row.result_type(types)
    assert result is not None
    compare(name, types, result, rows, expected)


def test_fma_rounds_once_where_the_rounding_is_hard() -> None:
    # Products that miss half a quantum of the addend by less than f64 can tell: (2^23 + 1)(2^23 - 1) and (2^12 + 1)(2^24 - 2^12 + 1),
    # scaled; the sums are normal, at a binade's edge, and subnormal. And sums that cancel.
    rng = np.random.default_rng(11)
    rows: list[tuple[int, ...]] = []
    for k, mantissa in enumerate([0, 1, 2, 0x7FFFFE, 0x7FFFFF, *rng.integers(0, 1 << 23, 2000).tolist()]):
        x, y, half = ((1 << 23) + 1, (1 << 23) - 1, 46) if k % 2 else ((1 << 12) + 1, (1 << 24) - (1 << 12) + 1, 36)
        for exponent in (0, 1, 2, 60, 127, 200):
            quantum = max(exponent, 1) - 150
            left, right = Fraction(x) * Fraction(2) ** -12, Fraction(y) * Fraction(2) ** (12 + quantum - 1 - half)
            if right < Fraction(2) ** -126:  # it would not be exact: move the scale to the other side
                left, right = left * Fraction(2) ** -90, right * Fraction(2) ** 90
            for sign in (0, 0x80000000):
                rows.append((rounded(left), rounded(right), mantissa | exponent << 23 | sign))
                rows.append((rounded(left) | sign, rounded(right), f_neg(f_mul(rounded(left), rounded(right))) | sign))
    compare("fma", (f32,) * 3, f32, rows, [f_fma(*r) for r in rows])


@pytest.mark.parametrize("type_", list(SCALARS.values()))
def test_select_keeps_bits(type_: Scalar) -> None:
    rows = [(c, a, b) for c in (False, True) for a, b in samples((type_, type_), seed=5)]
    compare("select", (bool_, type_, type_), type_, rows, [a if c else b for c, a, b in rows], exact=True)


def cast_oracle(source: Scalar, target: Scalar, value: Number) -> Number:
    if target.kind is Kind.BOOL:
        return value & 0x7FFFFFFF != 0 if source is f32 else value != 0
    if target is f32:
        return value if source is f32 else rounded(Fraction(int(value)))
    if source is not f32:
        return wrap(target, int(value))
    if is_nan(value):
        return 0
    x = value_of(value)
    return min(max(math.trunc(x) if math.isfinite(x) else (-(2**40) if x < 0 else 2**40), target.minimum), target.maximum)


@pytest.mark.parametrize(("source", "target"), [(s, t) for s in SCALARS.values() for t in SCALARS.values() if s is not t])
def test_cast(source: Scalar, target: Scalar) -> None:
    rows = samples((source,), seed=9)
    if source is f32:  # whole numbers around the ends of every range
        ends = [Fraction(2) ** p + d for p in (0, 7, 8, 23, 24, 31, 32) for d in (-1, Fraction(-1, 2), 0, Fraction(1, 2), 1)]
        rows += [(rounded(e * s),) for e in ends for s in (1, -1)]
    else:  # ties and near ties of the rounding to 24 bits
        ties = [(1 << p) + d for p in (24, 25, 30, 31) for d in (-129, -128, -127, -65, -64, -63, -3, -2, -1, 0, 1, 2, 3, 63, 64, 65, 127, 128, 129, 192)]
        rows += [(wrap(source, e * s) if source.is_integer else bool(e & 1),) for e in ties for s in (1, -1)]
    compare("cast", (source,), target, rows, [cast_oracle(source, target, r[0]) for r in rows])


@pytest.mark.parametrize(("source", "target"), [(s, t) for s in (i32, u32, f32) for t in (i32, u32, f32) if s is not t])
def test_bitcast(source: Scalar, target: Scalar) -> None:
    rows = samples((source,), seed=10)

    def oracle(value: int) -> int:
        bits = CANONICAL_NAN if source is f32 and is_nan(value) else pattern(value)
        return bits if target is f32 else wrap(target, bits)

    compare("bitcast", (source,), target, rows, [oracle(r[0]) for r in rows], exact=True)


@pytest.mark.parametrize("name", [n for n, row in OPS.items() if row.evaluate is not None and len(row.operands) > 1])
def test_operands_broadcast(name: str) -> None:
    row = OPS[name]
    type_ = min(row.of, key=str)
    types = tuple(bool_ if o is Operand.BOOL else type_ for o in row.operands)
    result = row.result_type(types)
    assert result is not None and row.evaluate is not None
    columns = [array(t, random_numbers(t, 50, seed=k)) for k, t in enumerate(types)]
    for single in range(len(types)):
        given = [c[:1] if k == single else c for k, c in enumerate(columns)]
        spread = [np.repeat(c[:1], 50) if k == single else c for k, c in enumerate(columns)]
        with np.errstate(all="ignore"):
            got, wanted = numbers(result, row.evaluate(result, *given)), numbers(result, row.evaluate(result, *spread))
        assert all(same(result, a, b) for a, b in zip(got, wanted, strict=True))


def test_every_row_has_an_oracle() -> None:
    oracles = {*FLOAT_ORACLES, *INTEGER_ORACLES, *BOOL_ORACLES, "select", "cast", "bitcast"}
    assert {name for name, row in OPS.items() if row.evaluate is not None} == oracles
