"""Evaluations over vectors: lanewise rows against the scalar ones, the others against oracles of their own."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from exact_conversions import (
    CODES,
    cross,
    distance,
    dot,
    length,
    normalize,
    packed,
    reflect,
    refract,
    stored,
    taken,
    unpacked,
)
from exact_floats import FORMATS
from exact_samples import EDGES, Number, array, drawn, numbers, same

from vyre_py.ir.language.op import Op, Operand, Result
from vyre_py.ir.language.ops import OPS, swizzle_bits, swizzle_lanes
from vyre_py.ir.language.types import SCALARS, TYPES, Array, Kind, Type, bool_, f32, i32, u8, u32, u64, vector_of

LANEWISE = [row for row in OPS.values() if row.evaluate is not None and row.is_lanewise and row.name != "cast"]
VECTORS = [t for t in TYPES.values() if t.is_vector]
BITCASTS = [(s, t) for s in TYPES.values() for t in TYPES.values() if s is not t and s.total_bits == t.total_bits and Kind.BOOL not in (s.kind, t.kind)]
FORMS = [name[4:] for name in OPS if name.startswith("pack")]
ROWS = 100


def random_vectors(t: Type, seed: int, count: int = ROWS) -> list[tuple[Number, ...]]:
    """Components of vectors (of a scalar, one), a third of them edges."""
    edges, plain = EDGES[t.scalar], drawn(t.scalar, count * t.lanes + 1, seed)
    mixed = [edges[(k * 7 + seed) % len(edges)] if k % 3 == 0 else x for k, x in enumerate(plain)]
    return [tuple(mixed[k * t.lanes : (k + 1) * t.lanes]) for k in range(count)]


def elements(t: Type, rows: list[tuple[Number, ...]]) -> Array:
    """The array of a type's elements, from the components of each."""
    flat = array(t.scalar, [x for row in rows for x in row])
    return flat.reshape(-1, t.lanes) if t.is_vector else flat


def evaluate(row: Op, result: Type, *operands: Array) -> list[tuple[Number, ...]]:
    """The components of each result; its shape must be the type's."""
    assert row.evaluate is not None
    with np.errstate(all="ignore"):
        found: Array = row.evaluate(result, *operands)
    assert found.ndim == (2 if result.is_vector else 1) and (not result.is_vector or found.shape[1] == result.lanes)
    return list(zip(*(numbers(result.scalar, c) for c in (found.T if result.is_vector else [found])), strict=True))


def check(t: Type, got: list[tuple[Number, ...]], wanted: list[tuple[Number, ...]], exact: bool = False) -> None:
    alike = [len(g) == len(w) and all(a == b if exact else same(t.scalar, a, b) for a, b in zip(g, w, strict=True)) for g, w in zip(got, wanted, strict=True)]
    assert all(alike), [(g, w) for g, w, a in zip(got, wanted, alike, strict=True) if not a][:5]


# ---------------------------------------------------------------- lanewise


@pytest.mark.parametrize("row", LANEWISE, ids=lambda row: row.name)
@pytest.mark.parametrize("lanes", [2, 3, 4])
def test_a_lanewise_row_is_its_scalar_self_in_each_component(row: Op, lanes: int) -> None:
    for scalar in sorted(row.of, key=str):
        others = [p for p in row.operands if p is not Operand.T]
        for spread in product((1, lanes), repeat=len(others)):  # one bool or u32 for all components, or one for each
            widths = iter(spread)
            types = tuple(vector_of(p.fixed or scalar, lanes if p is Operand.T else next(widths)) for p in row.operands)
            result = row.result_type(types)
            single = row.result_type(tuple(t.scalar for t in types))
            assert result is not None and single is not None and result.scalar is single and result.lanes == lanes
            columns = [elements(t, random_vectors(t, seed=k)) for k, t in enumerate(types)]
            got = evaluate(row, result, *columns)
            each = [evaluate(row, single, *[np.ascontiguousarray(c[:, k]) if c.ndim > 1 else c for c in columns]) for k in range(lanes)]
            check(result, got, [tuple(x for (x,) in parts) for parts in zip(*each, strict=True)])
            # One element that stands for all.
            got = evaluate(row, result, *[c[:1] for c in columns[:-1]], columns[-1])
            wanted = evaluate(row, result, *[np.repeat(c[:1], ROWS, axis=0) for c in columns[:-1]], columns[-1])
            check(result, got, wanted)


@pytest.mark.parametrize("lanes", [2, 3, 4])
def test_casts_go_by_component(lanes: int) -> None:
    for source, target in product(SCALARS.values(), repeat=2):
        if source is not target:
            column = elements(vector_of(source, lanes), random_vectors(vector_of(source, lanes), seed=1))
            got = evaluate(OPS["cast"], vector_of(target, lanes), column)
            each = [evaluate(OPS["cast"], target, np.ascontiguousarray(column[:, k])) for k in range(lanes)]
            check(target, got, [tuple(x for (x,) in parts) for parts in zip(*each, strict=True)])


# ---------------------------------------------------------------- put together and taken apart


@pytest.mark.parametrize("t", VECTORS, ids=str)
def test_vectors_are_made_and_taken_apart_with_their_bits(t: Type) -> None:
    rows = random_vectors(t, seed=3)
    columns = [array(t.scalar, list(c)) for c in zip(*rows, strict=True)]
    made = evaluate(OPS[f"vec{t.lanes}"], t, *columns)
    check(t, made, rows, exact=True)
    one_for_all = evaluate(OPS[f"vec{t.lanes}"], t, columns[0][:1], *columns[1:])
    check(t, one_for_all, [(rows[0][0], *row[1:]) for row in rows], exact=True)
    whole = elements(t, rows)
    for count in (1, 2, 3, 4):
        for letters in product("xyzw"[: t.lanes], repeat=count):
            bits = swizzle_bits("".join(letters))
            assert swizzle_lanes(bits, count) == tuple("xyzw".index(c) for c in letters)
            got = evaluate(OPS["swizzle"], vector_of(t.scalar, count), whole[:20], np.array([bits], np.uint32))
            check(t, got, [tuple(row["xyzw".index(c)] for c in letters) for row in rows[:20]], exact=True)


@pytest.mark.parametrize("t", list(SCALARS.values()), ids=str)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_scalar_is_splat(t: Type, count: int) -> None:
    rows = random_vectors(t, seed=4)
    got = evaluate(OPS["swizzle"], vector_of(t, count), elements(t, rows), np.array([0], np.uint32))
    check(t, got, [row * count for row in rows], exact=True)


# ---------------------------------------------------------------- vectors made one


@pytest.mark.parametrize("t", [t for t in VECTORS if t.kind is not Kind.BOOL], ids=str)
def test_products_and_lengths_round_each_step(t: Type) -> None:
    a, b = random_vectors(t, seed=5, count=400), random_vectors(t, seed=6, count=400)
    left, right, scalar = elements(t, a), elements(t, b), t.scalar
    check(scalar, evaluate(OPS["dot"], scalar, left, right), [(dot(scalar, x, y),) for x, y in zip(a, b, strict=True)])
    if t.is_float:
        check(scalar, evaluate(OPS["length"], scalar, left), [(length(scalar, x),) for x in a])
        check(scalar, evaluate(OPS["distance"], scalar, left, right), [(distance(scalar, x, y),) for x, y in zip(a, b, strict=True)])
        check(t, evaluate(OPS["normalize"], t, left), [normalize(scalar, x) for x in a])
        # Small numbers, so that most rays pass.
        f, small = FORMATS[scalar], [tuple(x & ~(FORMATS[scalar].infinity >> 1) if k % 3 else x for x in row) for k, row in enumerate(a)]
        eta = [x for (x,) in random_vectors(scalar, seed=7, count=400 - 2)] + [f.one, 0]
        bent = evaluate(OPS["refract"], t, elements(t, small), right, array(scalar, eta))
        check(t, bent, [refract(scalar, x, y, e) for x, y, e in zip(small, b, eta, strict=True)])
        check(t, evaluate(OPS["reflect"], t, left, right), [reflect(scalar, x, y) for x, y in zip(a, b, strict=True)])
    if t.lanes == 3:
        check(t, evaluate(OPS["cross"], t, left, right), [cross(scalar, x, y) for x, y in zip(a, b, strict=True)])


@pytest.mark.parametrize("lanes", [2, 3, 4])
def test_all_and_any(lanes: int) -> None:
    rows = list(product((False, True), repeat=lanes))
    column = elements(vector_of(bool_, lanes), rows)
    assert evaluate(OPS["all"], bool_, column) == [(all(r),) for r in rows]
    assert evaluate(OPS["any"], bool_, column) == [(any(r),) for r in rows]


# ---------------------------------------------------------------- bits


def test_bitcasts_between_all_types_of_one_size() -> None:
    assert {(u32, TYPES["u8x4"]), (TYPES["u32x2"], u64), (TYPES["f16x2"], f32), (TYPES["bf16x3"], TYPES["i16x3"])} <= set(BITCASTS)
    for source, target in BITCASTS:
        assert OPS["bitcast"].result_type((source,), target) is target
        rows = random_vectors(source, seed=7, count=60)
        got = evaluate(OPS["bitcast"], target, elements(source, rows))
        check(target, got, [taken(target, stored(source, row)) for row in rows], exact=True)


def test_bitcasts_put_the_little_end_first() -> None:
    assert evaluate(OPS["bitcast"], TYPES["u8x4"], np.array([0x04030201], np.uint32)) == [(1, 2, 3, 4)]
    assert evaluate(OPS["bitcast"], u64, np.array([[1, 2]], np.uint32)) == [((2 << 32) + 1,)]
    assert evaluate(OPS["bitcast"], u32, elements(TYPES["f16x2"], [(0x7C01, 0x3C00)])) == [(0x3C007E00,)]


# ---------------------------------------------------------------- packing

@pytest.mark.parametrize("form", FORMS)
def test_pack_and_unpack(form: str) -> None:
    pack, unpack = OPS[f"pack{form}"], OPS[f"unpack{form}"]
    whole = unpack.fixed
    assert whole is not None and pack.fixed is u32 and pack.result_type((whole,)) is u32 and unpack.result_type((u32,)) is whole
    rows = random_vectors(whole, seed=8, count=2000)
    if whole.is_float:  # around the middles between two parts, and past both ends
        f = FORMATS[f32]
        exact = [Fraction(k, 2 * d) for d in (127, 255, 32767, 65535) for k in (*range(-9, 10), 2 * d - 1, 2 * d, 2 * d + 1, -2 * d - 1)]
        near = [b + d for b in map(f.rounded, exact) for d in (-1, 0, 1) if b + d >= 0]
        rows += [tuple(near[(k + j * 5) % len(near)] for j in range(whole.lanes)) for k in range(len(near))]
    got = evaluate(pack, u32, elements(whole, rows))
    assert got == [(packed(form, row),) for row in rows]
    words = [w for (w,) in got] + drawn(u32, 2000, seed=9)
    check(whole, evaluate(unpack, whole, np.array(words, np.uint32)), [unpacked(form, w) for w in words])


def test_there_are_nine_forms() -> None:
    assert len(FORMS) == 9 and set(FORMS) == {*CODES, "2x16_float"}
    assert [name[6:] for name in OPS if name.startswith("unpack")] == FORMS


@pytest.mark.parametrize("form", [f for f in FORMS if f.startswith("2x16")])
def test_all_halves_survive_unpacking_and_packing(form: str) -> None:
    halves = np.arange(1 << 16, dtype=np.uint32)
    words = halves | halves[::-1] << np.uint32(16)
    pack, unpack = OPS[f"pack{form}"].evaluate, OPS[f"unpack{form}"]
    assert pack is not None and unpack.evaluate is not None and unpack.fixed is not None
    with np.errstate(all="ignore"):
        again = pack(u32, unpack.evaluate(unpack.fixed, words))
    wanted = words.view(np.uint16).copy()
    if form == "2x16_snorm":
        wanted[wanted == 0x8000] = 0x8001  # both stand for -1
    if form == "2x16_float":
        wanted[np.isnan(wanted.view(np.float16))] = 0x7E00
    assert (again.view(np.uint16) == wanted).all()


def test_a_row_with_an_odd_shape_is_evaluated_here() -> None:
    """Rows that are neither lanewise nor conversions: each has a test of its own above."""
    odd = {name for name, row in OPS.items() if row.evaluate is not None and not row.is_lanewise and row.result is not Result.GIVEN}
    packing: set[Any] = {f"{way}{form}" for way in ("pack", "unpack") for form in FORMS}
    assert odd == {"vec2", "vec3", "vec4", "dot", "length", "cross", "all", "any", "distance", "normalize", "reflect", "refract"} | packing
    assert OPS["cast"].is_lanewise and not OPS["bitcast"].is_lanewise and not OPS["swizzle"].is_lanewise
    assert OPS["unpack4x8_uint"].result_type((u32,)) is TYPES["u32x4"] and OPS["unpack4x8_sint"].fixed is vector_of(i32, 4) and u8.lanes == 1
