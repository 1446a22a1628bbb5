"""The op table: rows that make sense, laws that hold, and no row that a target of ours misses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from generator import INTERESTING

from vyre_py.ir.math import EXPANSIONS
from vyre_py.ir.ops import OPS, Law, Level, Op, Operand, Result
from vyre_py.ir.types import Scalar, bool_
from vyre_py.lowering.llvm.ops import EMITTERS
from vyre_py.lowering.wgsl.ops import QUERIES, ROWS

Array = np.ndarray[Any, np.dtype[Any]]

CALCULATIONS = [row for row in OPS.values() if row.evaluate is not None and row.result is not Result.GIVEN]


def values(t: Scalar) -> Array:
    """Interesting and random elements."""
    rng = np.random.default_rng(t.bits)
    special = np.array([v if not t.is_integer else int(v) for v in INTERESTING[t]]).astype(t.dtype)
    raw = rng.integers(0, 1 << 32, 400, dtype=np.uint32)
    return np.concatenate([special, (raw & 1).astype(np.bool_) if t is bool_ else raw.view(t.dtype) if t.size_bytes == 4 else raw.astype(t.dtype)])


def equal(a: Array, b: Array) -> bool:
    if a.dtype.kind == "f":
        return bool(np.all((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))))
    return bool(np.array_equal(a, b))


def apply(row: Op, *args: Array) -> Array:
    assert row.evaluate is not None
    t = next(t for t in row.of if t.dtype == args[-1].dtype)
    operands = tuple(bool_ if p is Operand.BOOL else t for p in row.operands)
    result_type = row.result_type(operands)
    assert result_type is not None
    with np.errstate(all="ignore"):
        result: Array = row.evaluate(result_type, *args)
    assert result.dtype == result_type.dtype
    return result


@pytest.mark.parametrize("row", CALCULATIONS, ids=lambda row: row.name)
def test_laws(row: Op) -> None:
    for t in row.of:
        x = values(t)
        y = np.roll(x, 7)
        exact = not t.is_float
        if row.laws & Law.COMMUTES:
            assert equal(apply(row, x, y), apply(row, y, x))
        if row.laws & Law.IDEMPOTENT:
            assert equal(apply(row, x, x), x)
        if row.laws & Law.INVOLUTION:
            assert equal(apply(row, apply(row, x)), x)
        if row.laws & Law.PROJECTION:
            assert equal(apply(row, apply(row, x)), apply(row, x))
        if row.laws & Law.ASSOCIATIVE_INT and exact:
            z = np.roll(x, 31)
            assert equal(apply(row, apply(row, x, y), z), apply(row, x, apply(row, y, z)))
        if row.laws & Law.SELF_ZERO_INT and exact:
            assert not apply(row, x, x).any()
        if row.laws & Law.SELF_TRUE and exact:
            assert apply(row, x, x).all()
        if row.laws & Law.SELF_FALSE and exact:
            assert not apply(row, x, x).any()
        if row.right_identity is not None and exact:
            assert equal(apply(row, x, constant(t, row.right_identity, x)), x)
        if row.right_absorber is not None and exact:
            c = constant(t, row.right_absorber, x)
            assert equal(apply(row, x, c), c)


def constant(t: Scalar, number: int, like: Array) -> Array:
    return np.full(like.shape, number, np.int64).astype(t.dtype)


@pytest.mark.parametrize("row", OPS.values(), ids=lambda row: row.name)
def test_a_row_is_whole(row: Op) -> None:
    assert row.doc.endswith(".")
    speaks_of_t = row.result in (Result.T, Result.UNSIGNED)
    assert not speaks_of_t or Operand.T in row.operands
    assert row.is_query == (not row.operands)
    assert (row.evaluate is None) == (row.is_query or row.expands)
    assert bool(row.of) != row.is_query
    assert not row.is_query or row.level in Level


def test_every_target_has_every_row() -> None:
    plain = {name for name, row in OPS.items() if not row.is_query and not row.expands}
    queries = {name.partition(".")[0] for name, row in OPS.items() if row.is_query}
    expanded = {name for name, row in OPS.items() if row.expands}
    missing = {
        "math": expanded - set(EXPANSIONS),
        "llvm": plain - set(EMITTERS),
        "wgsl": (plain | expanded) - set(ROWS),
        "wgsl queries": queries - set(QUERIES),
    }
    assert not any(missing.values()), missing
