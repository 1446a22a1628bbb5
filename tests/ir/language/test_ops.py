"""The op table: rows that make sense, laws that hold, and no row that a target of ours misses."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from elements import INTERESTING, random_array
from exact_integers import wrap
from exact_samples import array, numbers, same

from vyre_py.ir.language.op import RELAXED, Law, Level, Op, Operand, Result, Scope
from vyre_py.ir.language.ops import ATOMICS, ATOMICS_BY_SPELLING, EXPANDED_ONLY, OPS, swizzle_bits, swizzle_lanes
from vyre_py.ir.language.types import (
    SCALARS,
    TYPES,
    Array,
    Kind,
    Type,
    bool_,
    encode,
    f32,
    f64,
    i32,
    i64,
    u32,
    u64,
    vector_of,
)
from vyre_py.ir.math import EXPANSIONS, VECTOR_EXPANSIONS
from vyre_py.lowering.legal.split64_ops import FUNCTIONS
from vyre_py.lowering.llvm.ops import EMITTERS
from vyre_py.lowering.wgsl.ops import QUERIES, ROWS

CALCULATIONS = [row for row in OPS.values() if row.evaluate is not None and row.result is not Result.GIVEN]
SPEAKS_OF_T = {Result.T, Result.BOOL, Result.UNSIGNED, Result.I32, Result.COMPONENT, Result.VECTOR}

# ---------------------------------------------------------------- laws


def values(t: Type) -> Array:
    """Interesting and random elements of a scalar type, and of its vectors with these as components."""
    word = f"u{t.scalar.size_bytes}"
    special = np.array([encode(t.scalar, v) for v in INTERESTING[t.scalar]], word).view(t.dtype)
    plain = random_array(np.random.default_rng(t.bits), t.scalar, (720,))
    found = np.concatenate([special, plain])[: 12 * ((special.size + plain.size) // 12)]
    return found.reshape(-1, t.lanes) if t.is_vector else found


def equal(a: Array, b: Array) -> bool:
    """The same bits, but that all NaNs are one."""
    assert a.dtype == b.dtype and a.shape == b.shape
    t = next(t for t in SCALARS.values() if t.dtype == a.dtype)
    return all(same(t, x, y) for x, y in zip(numbers(t, a.ravel()), numbers(t, b.ravel()), strict=True))


def apply(row: Op, t: Type, *args: Array) -> Array:
    assert row.evaluate is not None
    operands = tuple(p.beside(t) for p in row.operands)
    result_type = row.result_type(operands)
    assert result_type is not None
    with np.errstate(all="ignore"):
        result: Array = row.evaluate(result_type, *args)
    assert result.dtype == result_type.dtype
    return result


def constant(t: Type, number: int, like: Array) -> Array:
    one = bool(number) if t.kind is Kind.BOOL else wrap(t, number) if t.is_integer else encode(t.scalar, number)
    return np.broadcast_to(array(t.scalar, [one]), like.shape)


LAWFUL = [
    (row, vector_of(t, min(row.lanes)))
    for row in CALCULATIONS
    for t in sorted(row.of, key=str)
    if row.laws or row.right_identity is not None or row.right_absorber is not None
]


@pytest.mark.parametrize(("row", "t"), LAWFUL, ids=lambda x: getattr(x, "name", None))
def test_laws(row: Op, t: Type) -> None:
    assert set(row.operands) == {Operand.T}
    x = values(t)
    y = np.roll(x, 7, axis=0)
    exact = not t.is_float
    if row.laws & Law.COMMUTES:
        assert equal(apply(row, t, x, y), apply(row, t, y, x))
    if row.laws & Law.IDEMPOTENT:
        assert equal(apply(row, t, x, x), x)
    if row.laws & Law.INVOLUTION:
        assert equal(apply(row, t, apply(row, t, x)), x)
    if row.laws & Law.PROJECTION:
        assert equal(apply(row, t, apply(row, t, x)), apply(row, t, x))
    if row.laws & Law.ASSOCIATIVE_INT and exact:
        z = np.roll(x, 31, axis=0)
        assert equal(apply(row, t, apply(row, t, x, y), z), apply(row, t, x, apply(row, t, y, z)))
    if row.laws & Law.SELF_ZERO_INT and exact:
        assert not apply(row, t, x, x).any()
    if row.laws & Law.SELF_TRUE and exact:
        assert apply(row, t, x, x).all()
    if row.laws & Law.SELF_FALSE and exact:
        assert not apply(row, t, x, x).any()
    if row.right_identity is not None and exact:
        assert equal(apply(row, t, x, constant(t, row.right_identity, x)), x)
    if row.right_absorber is not None and exact:
        c = constant(t, row.right_absorber, x)
        assert equal(apply(row, t, x, c), c)


def test_laws_that_do_not_hold_are_noticed() -> None:
    """The checks above can fail: each of these is almost a law."""
    i8, x = SCALARS["i8"], values(SCALARS["i8"])
    y, z = np.roll(x, 7), np.roll(x, 31)
    assert not equal(apply(OPS["sub"], i8, x, y), apply(OPS["sub"], i8, y, x))
    added = OPS["saturating_add"]
    assert not equal(apply(added, i8, apply(added, i8, x, y), z), apply(added, i8, x, apply(added, i8, y, z)))
    assert not equal(apply(OPS["mul"], f32, values(f32), constant(f32, 0, values(f32))), constant(f32, 0, values(f32)))


# ---------------------------------------------------------------- shapes


@pytest.mark.parametrize("row", OPS.values(), ids=lambda row: row.name)
def test_a_row_is_whole(row: Op) -> None:
    assert OPS[row.name] is row and row.doc.endswith(".")
    assert (row.fixed is not None) == (row.result is Result.FIXED)
    assert row.result not in SPEAKS_OF_T or Operand.T in row.operands
    assert row.is_query == (not row.operands) == (not row.of)
    assert (row.evaluate is None) == (row.is_query or row.name in EXPANDED_ONLY)
    assert row.expands <= row.of <= set(SCALARS.values())
    assert row.name not in EXPANDED_ONLY or row.expands == row.of
    assert row.lanes and row.lanes <= {1, 2, 3, 4}
    assert not row.is_query or (isinstance(row.level, Level) and row.fixed is u32)
    assert row.result is not Result.VECTOR or (row.lanes == {1} and set(row.operands) == {Operand.T} and len(row.operands) in (2, 3, 4))
    assert row.result is not Result.COMPONENT or 1 not in row.lanes
    # Laws of an identity or an absorber are about a second operand of the same type.
    assert (row.right_identity is None and row.right_absorber is None) or row.operands == (Operand.T, Operand.T)
    binary = Law.COMMUTES | Law.IDEMPOTENT | Law.ASSOCIATIVE_INT | Law.SELF_ZERO_INT | Law.SELF_TRUE | Law.SELF_FALSE
    assert not row.laws & binary or row.operands == (Operand.T, Operand.T)
    assert not row.laws & (Law.INVOLUTION | Law.PROJECTION) or (row.operands == (Operand.T,) and row.result is Result.T)


def test_a_sign_between_two_operands_is_one_op_for_each_type() -> None:
    spelled = [(row.infix, len(row.operands), t) for row in OPS.values() if row.infix for t in row.of]
    assert len(spelled) == len(set(spelled))


@pytest.mark.parametrize("row", [row for row in OPS.values() if Operand.T in row.operands], ids=lambda row: row.name)
def test_what_a_row_accepts(row: Op) -> None:
    for t in TYPES.values():
        accepted = t.scalar in row.of and t.lanes in row.lanes
        result = row.result_type(tuple(p.beside(t) for p in row.operands))
        assert (result is not None) == accepted
        if result is None:
            continue
        expected = {
            Result.T: (t.scalar, t.lanes), Result.BOOL: (bool_, t.lanes), Result.I32: (i32, t.lanes), Result.COMPONENT: (t.scalar, 1),
            Result.VECTOR: (t.scalar, len(row.operands)),
            Result.UNSIGNED: (SCALARS.get(f"u{t.bits}"), t.lanes), Result.FIXED: (row.fixed and row.fixed.scalar, row.fixed and row.fixed.lanes),
        }[row.result]  # fmt: skip
        assert (result.scalar, result.lanes) == expected
        # The operands beside T: one for all components, or one for each, and no other number of them.
        for at, pattern in enumerate(row.operands):
            for other in TYPES.values():
                types = tuple(other if k == at else p.beside(t) for k, p in enumerate(row.operands))
                if pattern is Operand.T:
                    fits = other is t or (row.operands.count(Operand.T) == 1 and other.scalar in row.of and other.lanes in row.lanes)
                elif pattern is Operand.COMPONENT:
                    fits = other is t.scalar
                else:
                    fits = other.scalar is pattern.fixed and other.lanes in (1, t.lanes)
                assert (row.result_type(types) is not None) == fits, types
        operands = tuple(p.beside(t) for p in row.operands)
        assert row.result_type(operands[:-1]) is None and row.result_type((*operands, t)) is None
        assert row.result_type(operands, t) is None  # a type is written out for conversions only


def test_what_conversions_accept() -> None:
    cast, bitcast, swizzle = OPS["cast"], OPS["bitcast"], OPS["swizzle"]
    for source, target in product(TYPES.values(), repeat=2):
        assert (cast.result_type((source,), target) is target) == (source is not target and source.lanes == target.lanes)
        bits = source.total_bits == target.total_bits and source is not target and Kind.BOOL not in (source.kind, target.kind)
        assert (bitcast.result_type((source,), target) is target) == bits
        assert (swizzle.result_type((source, u32), target) is target) == (source.scalar is target.scalar)
        assert swizzle.result_type((source, i32), target) is None and swizzle.result_type((source, TYPES["u32x2"]), target) is None
    assert cast.result_type((f32,)) is None and cast.result_type((f32, f32), i32) is None


@pytest.mark.parametrize("row", [row for row in OPS.values() if not row.is_query], ids=lambda row: row.name)
def test_a_row_is_lanewise_where_every_vector_gives_a_vector_of_its_length(row: Op) -> None:
    """That each component is then the scalar op of the components is shown in test_evaluate_vectors.py."""
    if row.result is Result.GIVEN:
        assert row.is_lanewise == (row.name == "cast")
        return
    scalar = min(row.of, key=str)
    found = [row.result_type(tuple(p.beside(vector_of(scalar, n)) for p in row.operands)) for n in (1, 2, 3, 4)]
    assert row.is_lanewise == ([t.lanes if t else 0 for t in found] == [1, 2, 3, 4])


def test_swizzle_patterns() -> None:
    assert swizzle_bits("x") == 0 and swizzle_bits("zyx") == 0b000110 and swizzle_bits("wwww") == 0xFF
    for count in (1, 2, 3, 4):
        for lanes in product(range(4), repeat=count):
            assert swizzle_lanes(swizzle_bits("".join("xyzw"[k] for k in lanes)), count) == lanes
    for wrong in ("r", "xq", "X"):
        with pytest.raises(ValueError, match="substring"):
            swizzle_bits(wrong)


# ---------------------------------------------------------------- atomics


def test_atomics_are_their_ops() -> None:
    words = {i32, u32, i64, u64}
    of = {name: row.of - words for name, row in ATOMICS.items()}
    assert all(row.of >= words for row in ATOMICS.values())
    assert of == dict.fromkeys(ATOMICS, frozenset()) | {"add": {f32, f64}, "min": {f32}, "max": {f32}, "load": {f32, f64}, "store": {f32, f64}}
    for name, row in ATOMICS.items():
        for t in row.of:
            x = values(t)
            y = np.roll(x, 7)
            with np.errstate(all="ignore"):
                new = row.evaluate(x, *[[], [y], [np.where(x > 0, x, y), y]][row.operands])
            expected = {"load": x, "store": y, "exchange": y, "compare_exchange": np.where((x > 0) | (x == y), y, x)}.get(name)
            if name == "nand":
                expected = apply(OPS["not"], t, apply(OPS["and"], t, x, y))
            assert equal(new, apply(OPS[name], t, x, y) if expected is None else expected), (name, t)


def test_an_atomic_has_the_orders_that_fit_it() -> None:
    loads, stores = [{name for name, row in ATOMICS.items() if row.orders == orders} for orders in (("relaxed", "acquire"), ("relaxed", "release"))]
    assert (loads, stores) == ({"load"}, {"store"})
    assert len(ATOMICS_BY_SPELLING) == 10 * 7 + 2 * 3 and set(ATOMICS) < set(ATOMICS_BY_SPELLING)
    for spelled, row in ATOMICS_BY_SPELLING.items():
        order = row.order
        assert spelled == row.spelling and row.name in ATOMICS and order.name in row.orders and row.evaluate is ATOMICS[row.name].evaluate
        assert (order.acquires, order.releases) == (order.name in ("acquire", "acq_rel"), order.name in ("release", "acq_rel"))
        assert row.order is RELAXED or spelled == f"{row.name}.{order.name}" + ("" if order.scope is Scope.DEVICE else ".workgroup")


# ---------------------------------------------------------------- targets


def test_every_op_that_expands_has_an_expansion() -> None:
    assert set(EXPANSIONS) == {name for name, row in OPS.items() if row.expands and row.is_lanewise}


def test_every_target_has_every_row() -> None:
    rows = {name: row for name, row in OPS.items() if not row.is_query}
    # Vectors are taken apart before a target sees a Program, and what remains of the ops on them is written in others.
    moves = {"swizzle", "vec2", "vec3", "vec4"}
    apart = {name for name, row in rows.items() if name not in moves and not row.is_lanewise and row.result is not Result.GIVEN}
    assert set(VECTOR_EXPANSIONS) == apart
    plain = {name for name, row in rows.items() if not row.expands} - apart - moves
    queries = {name.partition(".")[0] for name, row in OPS.items() if row.is_query and not name.startswith("subgroup_")}  # those become others first
    missing = {"llvm": plain - set(EMITTERS), "wgsl": plain - set(ROWS), "wgsl queries": queries - set(QUERIES)}
    assert not any(missing.values()), missing
    unknown = {"llvm": set(EMITTERS) - set(rows), "wgsl": set(ROWS) - set(rows) - {op.name for op in FUNCTIONS.values()}}
    assert not any(unknown.values()), unknown
