"""Ready Programs over the rows of arrays, against NumPy: softmax, norms, the greatest elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_kinds import open_device

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.ops.softmax import LONGEST

Array = np.ndarray[Any, np.dtype[Any]]
KINDS = ["reference", "cpu"]
TYPES = [vp.f16, vp.bf16, vp.f32, vp.f64]
# Lengths, and whether the Program has them: rows as tiles, and in chunks.
LENGTHS = [(1, False), (2049, False), (4099, False), (1, True), (97, True), (2049, True)]
SOME = [(2049, False), (33, True)]
BOUNDS = {vp.f16: 1e-3, vp.bf16: 8e-3, vp.f32: 4e-6, vp.f64: 1e-14}


def random(shape: tuple[int, ...], type_: vp.Type, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(type_.dtype)


def close(found: Array, wanted: Array, type_: vp.Type) -> None:
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=BOUNDS[type_], atol=BOUNDS[type_])


def softmax(x: Array) -> Array:
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True).astype(np.float64))
    wanted: Array = e / e.sum(axis=1, keepdims=True)
    return wanted


def normed(x: Array, centred: bool, epsilon: float = 1e-5) -> Array:
    x = x.astype(np.float64)
    x = x - x.mean(axis=1, keepdims=True) if centred else x
    wanted: Array = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + epsilon)
    return wanted


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_softmax(kind: str, type_: vp.Type) -> None:
    device = open_device(kind)
    for n, is_fixed in LENGTHS if type_ is vp.f32 else SOME:
        x = random((5, n), type_)
        found = device.compile_native(vp.ops.softmax(type_, n if is_fixed else None)).dispatch({"source": x})["target"]
        assert found.dtype == type_.dtype
        close(found, softmax(x), type_)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_norms(kind: str, type_: vp.Type) -> None:
    device = open_device(kind)
    for n, is_fixed in LENGTHS if type_ is vp.f32 else SOME:
        x, weight, bias = random((5, n), type_), random((n,), type_, 1), random((n,), type_, 2)
        columns = n if is_fixed else None
        found = device.compile_native(vp.ops.layer_norm(type_, columns)).dispatch({"source": x, "weight": weight, "bias": bias})["target"]
        close(found, normed(x, True) * weight.astype(np.float64) + bias.astype(np.float64), type_)
        found = device.compile_native(vp.ops.rms_norm(type_, columns)).dispatch({"source": x, "weight": weight})["target"]
        close(found, normed(x, False) * weight.astype(np.float64), type_)


def test_rows_on_wgpu() -> None:
    device, x = open_device("wgpu"), random((5, 97), vp.f32)
    for columns in (None, 97):
        close(device.compile_native(vp.ops.softmax(vp.f32, columns)).dispatch({"source": x})["target"], softmax(x), vp.f32)
        plain = vp.ops.layer_norm(vp.f32, columns, weight=False, bias=False)
        close(device.compile_native(plain).dispatch({"source": x})["target"], normed(x, True), vp.f32)


@pytest.mark.parametrize("columns", [None, 2500])
def test_a_softmax_of_what_is_not_finite(strict_device: Device, columns: int | None) -> None:
    x = np.zeros((6, 2500), np.float32)
    x[0], x[1, 7], x[2, 2499], x[3, :2400], x[4], x[5] = -np.inf, np.nan, np.inf, -np.inf, -3e38, 3e38
    found = strict_device.compile_native(vp.ops.softmax(vp.f32, columns)).dispatch({"source": x})["target"]
    assert np.isnan(found[:3]).all()
    assert (found[3, :2400] == 0).all()
    np.testing.assert_allclose(found[3, 2400:], 0.01, rtol=1e-6)
    np.testing.assert_allclose(found[4:], 1 / 2500, rtol=1e-6)


@pytest.mark.parametrize("columns", [None, 5000])
def test_a_variance_far_from_zero_is_not_cancelled(columns: int | None) -> None:
    x = random((3, 5000), vp.f32) + np.float32(10_000)
    plain = vp.ops.layer_norm(vp.f32, columns, weight=False, bias=False, epsilon=0)
    found = open_device("cpu").compile_native(plain).dispatch({"source": x})["target"]
    np.testing.assert_allclose(found, normed(x, True, 0), atol=3e-3)  # a thousandth is what f32 holds of x


@pytest.mark.parametrize("kind", [*KINDS, "wgpu"])
def test_the_greatest_elements(kind: str) -> None:
    device = open_device(kind)
    for type_ in (vp.f32,) if kind == "wgpu" else (vp.bf16, vp.f32, vp.u8, vp.i64):
        for n, k in ((2049, 10), (5, 8)):
            x = np.random.default_rng(n).integers(0 if type_ is vp.u8 else -50, 50, (3, n)).astype(type_.dtype)
            found = device.compile_native(vp.ops.top_k(type_, k)).dispatch({"source": x})
            order = np.argsort(-x.astype(np.float64), axis=1, kind="stable")[:, :k]
            assert np.array_equal(found["places"][:, :n], order)
            assert np.array_equal(found["values"][:, :n], np.take_along_axis(x, order, 1))
            assert (found["places"][:, n:] == 0xFFFFFFFF).all()


def greatest(row: Array, k: int) -> Array:
    """The columns of the k greatest numbers of a row, the first first of those that are equal."""
    numbers = np.flatnonzero(~np.isnan(row))
    return numbers[np.argsort(-row[numbers], kind="stable")][:k]


@pytest.mark.parametrize("n", [0, 255, 256, 1024, 7937, 9001])
@pytest.mark.parametrize("k", [1, 2, 40])
def test_the_greatest_elements_of_rows_of_many_chunks(strict_device: Device, n: int, k: int) -> None:
    """In order, and in the other; with many that are equal; of little but NaN; and with few other than the least."""
    generator = np.random.default_rng(n)
    x = np.round(generator.normal(size=(7, n)).astype(np.float32), 1)
    x[0].sort()
    x[1, ::-1].sort()
    x[2] = generator.choice([-0.0, 0.0, 1], n)
    x[3, generator.random(n) < 0.99] = np.nan
    x[4, generator.random(n) < 0.999] = -np.inf
    x[5, : n // 2] = np.nan
    found = strict_device.compile_native(vp.ops.top_k(vp.f32, k)).dispatch({"source": x})
    places, values = np.full((len(x), k), 0xFFFFFFFF, np.uint32), np.full((len(x), k), -np.inf, np.float32)
    for i, row in enumerate(x):
        order = greatest(row, k)
        places[i, : len(order)], values[i, : len(order)] = order, row[order]
    assert np.array_equal(found["places"], places)
    assert found["values"].tobytes() == values.tobytes()


@pytest.mark.parametrize("type_", [vp.u8, vp.i32, vp.i64], ids=str)
def test_the_greatest_of_what_is_least(strict_device: Device, type_: vp.Type) -> None:
    """An integer of no other value than its type's least is chosen, and what is left out does not look like it."""
    x = np.full((2, 300), np.iinfo(type_.dtype).min, type_.dtype)
    x[1, [257, 3]] += 1
    found = strict_device.compile_native(vp.ops.top_k(type_, 4)).dispatch({"source": x})
    assert found["places"].tolist() == [[0, 1, 2, 3], [3, 257, 0, 1]]
    assert np.array_equal(found["values"], np.take_along_axis(x, found["places"].astype(int), 1))
    few = strict_device.compile_native(vp.ops.top_k(type_, 4)).dispatch({"source": x[:, :3]})
    assert few["places"].tolist() == [[0, 1, 2, 0xFFFFFFFF]] * 2
    assert (few["values"] == x[0, 0]).all()


def test_the_greatest_of_what_is_not_finite(strict_device: Device) -> None:
    x = np.float32([[np.nan, -np.inf, np.inf, 0, np.nan], [np.nan] * 5])
    found = strict_device.compile_native(vp.ops.top_k(vp.f32, 4)).dispatch({"source": x})
    assert found["places"].tolist() == [[2, 3, 1, 0xFFFFFFFF], [0xFFFFFFFF] * 4]
    assert found["values"].tolist() == [[np.inf, 0, -np.inf, -np.inf], [-np.inf] * 4]


def test_zeros_among_the_greatest_keep_their_signs(strict_device: Device) -> None:
    x = np.zeros((2, 2100), np.float32)
    x[0, ::3], x[1] = -0.0, -1
    x[1, [7, 2099]] = [-0.0, 0.0]
    for type_ in (vp.f32, vp.bf16):
        source = x.astype(type_.dtype)
        found = strict_device.compile_native(vp.ops.top_k(type_, 4)).dispatch({"source": source})
        assert found["places"].tolist() == [[0, 1, 2, 3], [7, 2099, 0, 1]]
        assert found["values"].tobytes() == np.take_along_axis(source, found["places"].astype(int), 1).tobytes()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: vp.ops.softmax(vp.i32), "the type of a softmax is none of those that there are: i32"),
        (lambda: vp.ops.softmax(vp.f32, 0), f"the length of a row is a whole number from 1 to {LONGEST}, got 0"),
        (lambda: vp.ops.softmax(vp.f32, LONGEST + 1), "the length of a row is a whole number"),
        (lambda: vp.ops.layer_norm(vp.u8), "the type of a norm is none"),
        (lambda: vp.ops.rms_norm(vp.f32, True), "the length of a row is a whole number"),
        (lambda: vp.ops.rms_norm(epsilon=-1), "epsilon is a number from 0 up to 1, got -1"),
        (lambda: vp.ops.layer_norm(epsilon=False), "epsilon is a number from 0 up to 1, got False"),
        (lambda: vp.ops.layer_norm(epsilon=np.zeros(2)), "epsilon is a number from 0 up to 1, got array"),
        (lambda: vp.ops.layer_norm(bias=np.zeros(2)), "bias is True or False, got array"),
        (lambda: vp.ops.rms_norm(weight="f32"), "weight is True or False, got 'f32'"),
        (lambda: vp.ops.top_k(vp.bool_), "the type of the elements is none"),
        (lambda: vp.ops.top_k(vp.f32, 257), "k is a whole number from 1 to 256, got 257"),
    ],
)
def test_what_there_is_not_is_refused_at_the_callers_line(call: Any, message: str) -> None:
    with pytest.raises(vp.ValidationError, match=message) as caught:
        call()
    (finding,) = caught.value.diagnostics
    assert finding.code == "B108" and finding.place is not None and finding.place.file == __file__


def test_numbers_and_flags_of_numpy_are_taken_as_pythons_are() -> None:
    assert vp.ops.rms_norm(epsilon=np.float64(1e-5), weight=np.False_) == vp.ops.rms_norm(weight=False)
    assert vp.ops.layer_norm(epsilon=np.float32(0.5)) == vp.ops.layer_norm(epsilon=0.5)
