"""How far results of ready Programs are off, against the bounds that their docstrings state: of random data, and of data that cancel, lie far from zero, or
round one way.

Wanted results are exact sums (`math.fsum`), or are computed in f64, and of f64 in `numpy.longdouble`: what these are off is far below the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from device_kinds import open_device

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.ir.language.tiles.tensor_model import tensor_model

Array = np.ndarray[Any, np.dtype[Any]]
TYPES = [vp.f16, vp.bf16, vp.f32, vp.f64]
STRICT = [vp.f32, vp.f64]
HALVES = {vp.f16: 2.0**-11, vp.bf16: 2.0**-8}  # what results of 16 bits are off more, of themselves
LEAST = {vp.f16: 2.0**-14, vp.bf16: 2.0**-126, vp.f32: 2.0**-126, vp.f64: 2.0**-1022}  # the least normal numbers


def unit(type_: vp.Type) -> float:
    return 2.0**-53 if type_ is vp.f64 else 2.0**-24


def device_of(type_: vp.Type, n: int, compiles: bool = True) -> Device:
    """The CPU has long ones of f32. To compile others takes longer than all this on the interpreter, which has the same bits."""
    return open_device("cpu" if type_ is vp.f32 and n > 300 and compiles else "reference")


def wide(x: Array) -> Array:
    return x.astype(np.longdouble if x.dtype == np.float64 else np.float64)


def rows(n: int, type_: vp.Type, most: float = 3.0) -> Array:
    """Rows of random numbers, of sizes that differ much, that cancel, of one sign, that round one way, far from zero, and of one size."""
    generator = np.random.default_rng((n, type_.size_bytes))
    pairs = generator.normal(size=(n + 1) // 2) * 10 ** generator.uniform(-most, most, (n + 1) // 2)
    cancelled = np.concatenate([pairs, -pairs])[generator.permutation(2 * len(pairs))][:n]
    step = 2.0 ** -{vp.f16: 10, vp.bf16: 7, vp.f32: 23, vp.f64: 52}[type_]
    return np.stack([
        generator.normal(size=n), generator.normal(size=n) * 10 ** generator.uniform(-most, most, n), cancelled, np.abs(generator.normal(size=n)),
        np.full(n, 1 + step), 5 + generator.normal(size=n), np.where(np.arange(n) % 2, 1.0, -1 - step),
    ]).astype(type_.dtype)  # fmt: skip


def exact_sums(x: Array) -> Array:
    """Sums along the last axis, each rounded to f64 once."""
    return np.array([math.fsum(row) for row in x.astype(np.float64).tolist()])


def within(found: Array, wanted: Array, bound: Array, type_: vp.Type, of: Array | bool = True) -> None:
    """Errors are within the bound, and the rounding of results of 16 bits; where not all count, `of` says which."""
    assert found.dtype == type_.dtype
    off, bound = np.abs(wide(found) - wanted), bound + HALVES.get(type_, 0.0) * np.abs(wanted)
    beyond = ~(off <= bound) & of  # a NaN is beyond
    assert not beyond.any(), np.argwhere(beyond)[:3]


def normal(wanted: Array, type_: vp.Type) -> Array:
    found: Array = np.abs(wanted) >= LEAST[type_]
    return found


# ---------------------------------------------------------------- folds


@pytest.mark.parametrize("type_", TYPES, ids=str)
@pytest.mark.parametrize("name", ["sum", "mean"])
def test_sums_and_means(name: str, type_: vp.Type) -> None:
    make, of_mean = getattr(vp.ops, name), name == "mean"
    for n in (100, 9001):
        x = rows(n, type_)
        total, size = exact_sums(x), exact_sums(np.abs(x))
        for k, program, given in ((12, make(type_), x[2]), (7, make(type_, 2), x), (5, make(type_, 2, 0), np.ascontiguousarray(x.T))):
            found = device_of(type_, n, not of_mean).compile_native(program).dispatch({"source": given})["target"]
            here = slice(2, 3) if k == 12 else slice(None)
            wanted, bound = total[here] / (n if of_mean else 1), size[here] / (n if of_mean else 1)
            count = math.ceil(n / 2**k) + (k + 1 if of_mean else k - 1)
            within(found, wanted, count * unit(type_) * bound, type_, normal(wanted, type_) if of_mean else True)


def prefix_cases(n: int, type_: vp.Type) -> Iterator[tuple[Array, Array, Array]]:
    for x in rows(n, type_)[[1, 2, 4]]:
        high, low = np.zeros(n + 1), np.zeros(n + 1)  # sums in two parts, by S. Boldo's and others' exact sum of two
        for i, value in enumerate(x.astype(np.float64).tolist()):
            before = high[i]
            high[i + 1] = before + value
            part = high[i + 1] - before
            low[i + 1] = low[i] + ((before - (high[i + 1] - part)) + (value - part))
        yield x, wide(high) + low, np.cumsum(np.abs(wide(x)))


@pytest.mark.parametrize(("type_", "on"), [(vp.f32, None), (vp.f32, "sm_90"), (vp.f64, None)], ids=str)
def test_prefix_sums(type_: vp.Type, on: str | None) -> None:
    for n in (100, 13_004):
        cases = list(prefix_cases(n, type_))
        for exclusive in (False, True):
            program = vp.ops.prefix_sum(type_, exclusive=exclusive, on=on)
            pipeline = device_of(type_, n, exclusive is (on is None)).compile_native(program)
            for x, sums, sizes in cases:
                bound = (np.arange(n) // 4096 + 25) * unit(type_) * sizes
                within(pipeline.dispatch({"source": x})["target"], sums[:-1] if exclusive else sums[1:], bound, type_)


# ---------------------------------------------------------------- rows


ROWS = [(100, True), (100, False), (2500, True), (9001, False)]  # lengths, and whether the Program has them


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_softmax(type_: vp.Type) -> None:
    for n, is_fixed in ROWS if type_ is not vp.f64 else [*ROWS[:2], (2100, False)]:  # exponentials of f64 are slow there
        x = rows(n, type_, 1.5)[::2 if type_ is vp.f64 else 1]
        pipeline = device_of(type_, n, not is_fixed).compile_native(vp.ops.softmax(type_, n if is_fixed else None))
        below = wide(x).max(axis=1, keepdims=True) - wide(x)
        wanted = np.exp(-below) / np.exp(-below).sum(axis=1, keepdims=True)
        bound = (below + math.log(n) + 4 * math.ceil(n / 2048) + 13) * unit(type_) * wanted
        within(pipeline.dispatch({"source": x})["target"], wanted, bound, type_, normal(wanted, type_))


@pytest.mark.parametrize("type_", TYPES, ids=str)
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_norms(name: str, type_: vp.Type) -> None:
    epsilon = 1e-5
    for n, is_fixed in ROWS:
        x, weight, bias = rows(n, type_)[[0, 2, 3, 5, 6]], rows(n, type_)[3], rows(n, type_)[0]
        if type_ in STRICT:
            x[3] += 300  # as many deviations from zero
        given = {"source": x, "weight": weight} | ({"bias": bias} if name == "layer_norm" else {})
        program = getattr(vp.ops, name)(type_, n if is_fixed else None, epsilon=epsilon)
        found = device_of(type_, n, name == "layer_norm" and not is_fixed).compile_native(program).dispatch(given)["target"]
        y, c, u = wide(x), math.ceil(n / 2048), unit(type_)
        off = y - exact_sums(x)[:, None] / n if name == "layer_norm" else y
        root, size = np.sqrt((off * off).mean(axis=1, keepdims=True) + epsilon), np.sqrt((y * y).mean(axis=1, keepdims=True))
        t = off / root
        if name == "layer_norm":
            wanted = t * wide(weight) + wide(bias)
            bound = (4 * c + 15) * u * (1 + np.abs(t)) * (1 + size / root) * np.abs(wide(weight)) + u * np.abs(wanted)
        else:
            wanted = t * wide(weight)
            bound = (c / 2 + 10) * u * np.abs(wanted)
        within(found, wanted, bound, type_, normal(wanted, type_))


# ---------------------------------------------------------------- products


def factors(k: int, type_: vp.Type) -> tuple[Array, Array]:
    """Rows and columns, of f16 and of 8 bits without what is subnormal or has no room."""
    most = 3.0 if type_ in (vp.bf16, *STRICT) else 0.5
    x = np.concatenate([rows(k, vp.f64, most), -rows(k, vp.f64, most)[::-1]])
    return x.astype(type_.dtype), x[::-1].T.copy().astype(type_.dtype)


def products(a: Array, b: Array) -> tuple[Array, Array]:
    """a b, and the sums of |a b|: exact but for the last roundings, since a product of two f64 is the sum of two."""
    x, y = wide(a), wide(b)
    terms = x[:, None, :] * y.T[None]
    head = terms.astype(np.float64)
    tail = (terms - head).astype(np.float64)
    flat = np.concatenate([head, tail], axis=-1).reshape(-1, 2 * a.shape[1])
    return exact_sums(flat).reshape(terms.shape[:2]), np.abs(terms).sum(axis=-1)


@pytest.mark.parametrize("type_", [*TYPES, vp.f8e4m3], ids=str)
def test_strict_products(type_: vp.Type) -> None:
    to = vp.f64 if type_ is vp.f64 else vp.f32
    u = unit(to)
    for k in (1, 33, 500):
        (a, b), device = factors(k, type_), device_of(type_, k)
        wanted, size = products(a, b)
        for result in (to, type_) if type_ in HALVES else (to,):
            program = vp.ops.matmul(type_, result, tensor=False, tiles=(16, 16, 8))
            within(device.compile_native(program).dispatch({"a": a, "b": b})["c"], wanted, k * u * size, result, abs(wanted) < 60_000)
        program = vp.ops.matmul(type_, to, tensor=False, tiles=(16, 16, 8), scaled=True, bias=True, residual=True)
        bias, residual = rows(b.shape[1], to)[0], np.resize(rows(b.shape[1], to), wanted.shape)
        scaled = wanted * 0.3125
        added = scaled + wide(bias)
        bound = k * u * size * 0.3125 + u * (abs(scaled) + abs(added) + abs(added + wide(residual)))
        given = {"a": a, "b": b, "scale": 0.3125, "bias": bias, "residual": residual}
        within(device.compile_native(program).dispatch(given)["c"], added + wide(residual), bound, to)


@pytest.mark.parametrize(
    ("type_", "tensor"),
    [*((type_, "sm_90") for type_ in (vp.f16, vp.bf16, vp.f32, vp.f8e4m3, vp.f8e5m2)), (vp.f8e4m3, "sm_90:warps")],
    ids=str,
)
def test_products_of_tensor_cores(type_: vp.Type, tensor: str) -> None:
    """As the interpreter computes them, to the bit."""
    model = tensor_model(type_, vp.f32, by_warps=tensor.endswith("warps"))
    assert model is not None
    for k in (1, 70, 300):
        a, b = factors(k, type_)
        wanted, size = products(a, b)
        program = vp.ops.matmul(type_, vp.f32, tensor=tensor, tiles=(16, 16, 64))
        found = open_device("reference").compile_native(program).dispatch({"a": a, "b": b})["c"]
        each = math.ceil(k / model.at_once) * ((model.at_once + 1) * 2.0**-model.bits + 2.0 ** (1 - model.kept))
        within(found, wanted, (each + (2.0**-9 if type_ is vp.f32 else 0)) * size, vp.f32)


# ---------------------------------------------------------------- attention


def attended(arrays: dict[str, Array], scale: float, causal: bool, head_u: float, n_u: float) -> tuple[Array, Array, Array]:
    """The result, the bound of strict products, and w: head_u for head u, n_u for n u."""
    q, k, v = (wide(arrays[name][0, 0]) for name in "qkv")
    s, sizes = scale * (q @ k.T), scale * (abs(q) @ abs(k).T)
    (m, n), u = s.shape, unit(vp.f32)
    seen = np.arange(n) - n <= np.arange(m)[:, None] - m if causal else np.ones((m, n), bool)
    s = np.where(seen, s, -np.inf)
    p = np.exp(s - s.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    a, w = np.where(seen, sizes, 0).max(axis=1, keepdims=True), p @ abs(v)
    return p @ v, (2 * (head_u + 7 * u) * a + 2 * n_u + 15 * u) * w, w


def attention_cases(type_: vp.Type, head: int, m: int, n: int) -> Iterator[dict[str, Array]]:
    """Scores of a size, large ones that cancel, and those that rise, so that the greatest of each tile is above the one before; values that cancel."""
    generator = np.random.default_rng((head, m, n))
    q, k, v = (generator.normal(size=(1, 1, rows_, head)) for rows_ in (m, n, n))
    big = q.copy()
    big[..., ::2], big[..., 1::2] = 8.0, -8.0
    rising = np.abs(k) * np.linspace(0, 2, n)[:, None]
    signs = np.where(np.arange(n) % 2, 1.0, -1.0)[:, None]
    for x, y, z in ((q, k, v), (big, np.abs(k), np.abs(v) * signs), (np.abs(q), rising, np.abs(v))):
        yield {"q": x.astype(type_.dtype), "k": y.astype(type_.dtype), "v": z.astype(type_.dtype)}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("type_", [vp.f16, vp.bf16, vp.f32], ids=str)
def test_attention(type_: vp.Type, causal: bool) -> None:
    cases: list[tuple[int, int, int, tuple[int, int] | None, bool | str]]
    cases = [(16, 5, 40, (16, 8), False), (64, 20, 320, None, False), (64, 20, 100, (16, 64), "sm_90")]
    for head, m, n, tiles, tensor in cases:
        strict, u = tensor is False, unit(vp.f32)
        pipeline = device_of(type_, n, causal).compile_native(vp.ops.attention(type_, head, causal=causal, tensor=tensor, tiles=tiles))
        model = tensor_model(type_, vp.f32, by_warps=False)
        assert model is not None
        cut = (model.at_once + 1) * 2.0**-model.bits + 2.0 ** (1 - model.kept)
        head_u, n_u = (head * u, n * u) if strict else (math.ceil(head / model.at_once) * cut, math.ceil(n / model.at_once) * cut)
        if type_ is vp.f32 and not strict:
            head_u, n_u = head_u + 2.0**-9, n_u + 2.0**-9
        for arrays in attention_cases(type_, head, m, n):
            wanted, bound, w = attended(arrays, head**-0.5, causal, head_u, n_u)
            more = HALVES.get(type_, 0.0) * w + (2.0**-25 * abs(wide(arrays["v"][0, 0])).sum(axis=0) if type_ is vp.f16 else 0)
            within(pipeline.dispatch(arrays)["out"][0, 0], wanted, bound + more, type_, normal(wanted, type_))
