"""The types: their rows, and numbers to bits and back."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from exact_floats import FORMATS
from exact_integers import wrap
from exact_samples import EDGES, drawn
from tree import ROOT

from vyre_py.ir.language.narrowing import from_f64, from_integers, odd_f32, odd_sum, sticky
from vyre_py.ir.language.types import (
    SCALARS,
    TYPES,
    Kind,
    Type,
    bf16,
    bool_,
    decode,
    element,
    encode,
    f16,
    f32,
    f64,
    i8,
    i32,
    scalar_of,
    signed_of,
    u8,
    u64,
    unsigned_of,
    vector_of,
)

INTEGERS = [t for t in SCALARS.values() if t.is_integer]
FLOATS = list(FORMATS)

# ---------------------------------------------------------------- rows


def test_there_are_fifteen_scalars_and_three_vectors_of_each() -> None:
    assert list(SCALARS) == ["bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64"]
    assert set(TYPES) == set(SCALARS) | {f"{name}x{lanes}" for name in SCALARS for lanes in (2, 3, 4)}
    assert all(TYPES[t.name] is t and str(t) == repr(t) == t.name for t in TYPES.values())


@pytest.mark.parametrize("t", TYPES.values(), ids=str)
def test_a_type_is_whole(t: Type) -> None:
    assert vector_of(t.scalar, t.lanes) is t and t.is_vector == (t.lanes > 1) and not t.scalar.is_vector
    assert (t.scalar.kind, t.scalar.bits, t.scalar.dtype) == (t.kind, t.bits, t.dtype)
    assert t.total_bits == t.bits * t.lanes
    assert t.size_bytes == t.dtype.itemsize * t.lanes  # tightly packed
    assert [t.is_integer, t.is_float, t.is_signed] == [t.kind in (Kind.SINT, Kind.UINT), t.kind is Kind.FLOAT, t.kind is Kind.SINT]
    if t.is_integer:
        info = np.iinfo(t.dtype)
        assert (t.minimum, t.maximum) == (info.min, info.max)
        assert unsigned_of(t).kind is Kind.UINT and signed_of(t).kind is Kind.SINT
        assert {unsigned_of(t).bits, signed_of(t).bits} == {t.bits} and {unsigned_of(t).lanes, signed_of(t).lanes} == {t.lanes}
    if t.is_float:
        assert t.canonical_nan == FORMATS[t.scalar].nan  # quiet, positive, no payload
        assert unsigned_of(t) is vector_of(SCALARS[f"u{t.bits}"], t.lanes)
    assert bool_.maximum == 1


def test_dtypes() -> None:
    for t in SCALARS.values():
        assert scalar_of(t.dtype) is t
        assert scalar_of(t.dtype.type) is t
    assert bf16.dtype == np.dtype(ml_dtypes.bfloat16) and scalar_of(ml_dtypes.bfloat16) is bf16
    assert TYPES["bf16x3"].dtype is bf16.dtype
    others: list[Any] = [np.complex64, "U3", "S4", object, "M8[s]", "V2", np.dtype([("x", "f4")]), ml_dtypes.float8_e4m3, ml_dtypes.int4]
    assert [scalar_of(d) for d in others] == [None] * len(others)
    assert scalar_of(np.dtype(np.float32).newbyteorder()) is None
    assert scalar_of("float32") is f32


def test_importing_the_package_does_not_import_ml_dtypes() -> None:
    """Few Programs have a bf16, and the import is not free; asking what type any other dtype is must not need it either."""
    code = (
        "import sys, vyre_py as vp, vyre_py.ir.interpret, vyre_py.ir.passes.pipeline, vyre_py.lowering.compile\n"
        "from vyre_py.ir.language.types import scalar_of\n"
        "assert scalar_of('complex64') is None and scalar_of('f4') is vp.f32\n"
        "assert 'ml_dtypes' not in sys.modules, 'imported'\n"
        "from vyre_py.ir.language.types import bf16\n"
        "assert bf16.dtype.name == 'bfloat16' and 'ml_dtypes' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------- encode, decode, element


@pytest.mark.parametrize("t", INTEGERS, ids=str)
def test_integers_there_and_back(t: Type) -> None:
    for value in [*EDGES[t], *drawn(t, 200, seed=1)]:
        bits = encode(t, value)
        assert 0 <= bits < 1 << t.bits and wrap(t, bits) == value
        assert decode(t, bits) == value and element(t, bits).item() == value
        assert encode(t, t.dtype.type(value)) == bits
    for wrong in (t.minimum - 1, t.maximum + 1, 10**40, -(10**40)):
        with pytest.raises(OverflowError, match="does not fit"):
            encode(t, wrong)


@pytest.mark.parametrize("t", FLOATS, ids=str)
def test_every_number_of_a_float_type_there_and_back(t: Type) -> None:
    f = FORMATS[t]
    for bits in range(1 << 16) if t.bits == 16 else [*EDGES[t], *drawn(t, 2000, seed=2)]:
        value = decode(t, bits)
        assert isinstance(value, float)
        if f.is_nan(bits):
            assert math.isnan(value)
        else:
            assert value == f.value(bits) and encode(t, value) == bits
    for bits in [*EDGES[t], *drawn(t, 2000, seed=2)]:
        made = element(t, bits)
        assert made.shape == () and made.dtype == t.dtype and int(made.view(f"u{t.size_bytes}")) == bits  # payloads too
    assert f.is_nan(encode(t, math.nan))
    assert encode(t, math.inf) == f.infinity and encode(t, -0.0) == f.sign


@pytest.mark.parametrize("t", FLOATS, ids=str)
def test_encode_rounds_once(t: Type) -> None:
    f = FORMATS[t]
    draw = random.Random(3)
    fields = [min(max(f.bias + draw.randint(-30, 14), 1), (f.infinity >> f.fraction) - 1) for _ in range(500)]
    near = [f.value(field << f.fraction | draw.getrandbits(f.fraction)) for field in fields]
    middles = [x * (1 + 2.0 ** -(f.fraction + 1)) for x in near] if t is not f64 else near
    for x in [math.nextafter(m, to) for m in middles for to in (math.inf, -math.inf, m)] + [5e-324, 1e308, 65519.99, 65520.0, 3.4028235677973366e38]:
        assert encode(t, x) == f.rounded(Fraction(x)) and encode(t, -x) == f.rounded(-Fraction(x), f.sign)
    # Integers past what f64 holds: a sticky bit decides what the middle does.
    for power in (11, 16, 24, 53, 54, 63, 64, 100, 127, 128, 1023, 1024, 2000):
        for low in (0, 1):
            for half in (0, 1 << max(power - f.fraction - 1, 0)):
                value = (1 << power) + half + low
                assert encode(t, value) == f.rounded(Fraction(value)), (power, low, half)
                assert encode(t, -value) == f.rounded(-Fraction(value))
    own: list[Any] = [np.float32(0.1), np.int64(-3), np.float16(1.5), ml_dtypes.bfloat16(3.140625)]
    assert [encode(t, x) for x in own] == [f.rounded(Fraction(x.item())) for x in own]


def test_bools_there_and_back() -> None:
    given: list[Any] = [False, True, np.True_]
    assert [encode(bool_, b) for b in given] == [0, 1, 1]
    assert decode(bool_, 0) is False and decode(bool_, 1) is True and decode(bool_, 7) is True
    assert element(bool_, 1).dtype == np.bool_ and element(bool_, 2).item() is True and element(bool_, 0).item() is False


WRONG: list[tuple[Type, Any, str]] = [
    (bool_, 1, "1 is not a bool"),
    (bool_, "yes", "is not a bool"),
    (i32, True, "a bool is not a valid i32"),
    (f32, np.False_, "a bool is not a valid f32"),
    (i8, 1.0, "1.0 is not an integer"),
    (u64, None, "None is not an integer"),
    (f16, "1.5", "is not a number"),
    (bf16, 1j, "is not a number"),
    (f64, [1.0], "is not a number"),
]


@pytest.mark.parametrize(("t", "value", "message"), WRONG, ids=str)
def test_the_wrong_kind_of_number_is_refused(t: Type, value: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        encode(t, value)


# ---------------------------------------------------------------- rounding


def test_rounding_to_odd_keeps_what_was_cut() -> None:
    draw = random.Random(4)
    for _ in range(2000):
        value = draw.getrandbits(draw.randint(1, 300)) * draw.choice((1, -1))
        kept = int(sticky(value))
        cut = max(0, abs(value).bit_length() - 53)
        assert abs(kept) >> cut == abs(value) >> cut | (abs(value) % (1 << cut) != 0)
    assert sticky(10**400) == math.inf and sticky(-(10**400)) == -math.inf
    x = np.array([1 + 2.0**-30, 1 - 2.0**-40, 1 + 2.0**-23, 1e300, -1e300, 1e-60, -1e-60, np.nan, np.inf, 0.0, -0.0])
    with np.errstate(all="ignore"):
        got = odd_f32(x)
        total = odd_sum(np.array([1.0, 1.0, 2.0**60, np.inf, 1.0]), np.array([2.0**-80, -(2.0**-80), 1.0, 1.0, 2.0**-52]))
    wanted = [1 + 2.0**-23, 1 - 2.0**-24, 1 + 2.0**-23, float(np.finfo(np.float32).max), -float(np.finfo(np.float32).max), 2.0**-149, -(2.0**-149)]
    assert got[:7].tolist() == wanted and math.isnan(got[7]) and got[8:].tobytes() == np.array([np.inf, 0.0, -0.0], np.float32).tobytes()
    assert total.tolist() == [1 + 2.0**-52, 1 - 2.0**-53, 2.0**60 + 2.0**8, math.inf, 1 + 2.0**-52]


@pytest.mark.parametrize("t", [t for t in FLOATS if t.bits <= 16], ids=str)
def test_narrow_floats_are_rounded_once_from_everything(t: Type) -> None:
    f = FORMATS[t]
    draw = random.Random(5)
    reals = [f.value(draw.randrange(f.infinity)) * (1 + 2.0 ** -(f.fraction + 1)) * (1 + draw.choice((0, 1, -1)) * 2.0**-52) for _ in range(3000)]
    with np.errstate(all="ignore"):
        assert from_f64(np.array(reals), t.dtype).view(f"u{t.size_bytes}").tolist() == [f.rounded(Fraction(x)) for x in reals]
        for whole in INTEGERS:
            wholes = [wrap(whole, (1 << p) + (1 << max(p - f.fraction - 1, 0)) + d) for p in range(whole.bits) for d in (-1, 0, 1)]
            got = from_integers(np.array(wholes, whole.dtype), t.dtype).view(f"u{t.size_bytes}").tolist()
            assert got == [f.rounded(Fraction(x)) for x in wholes], whole
    assert u8.dtype == np.uint8
