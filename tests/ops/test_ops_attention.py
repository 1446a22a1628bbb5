"""Attention against NumPy in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_kinds import open_device

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.lowering.compile import emit_text

Array = np.ndarray[Any, np.dtype[Any]]
TINY = (16, 16)  # tiles of which few queries and keys have several
# Type -> how far a mean of numbers of size 1 may be off: its rounding, and that of the exponentials.
BOUNDS = {vp.f16: 2e-3, vp.bf16: 2e-2, vp.f32: 2e-6}


def given(type_: vp.Type, head: int, m: int, n: int, heads: int = 1, shared: int = 1, batch: int = 1) -> dict[str, Array]:
    generator = np.random.default_rng((head, m, n, heads, shared))
    shapes = {"q": (batch, heads, m, head), "k": (batch, shared, n, head), "v": (batch, shared, n, head)}
    return {name: generator.normal(size=shape).astype(type_.dtype) for name, shape in shapes.items()}


def wanted(arrays: dict[str, Array], causal: bool, scale: float | None = None) -> Array:
    q, k, v = (arrays[name].astype(np.float64) for name in "qkv")
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    s = q @ k.swapaxes(2, 3) * (q.shape[-1] ** -0.5 if scale is None else scale)
    m, n = s.shape[2:]
    if causal:
        s = np.where(np.arange(n) - n <= np.arange(m)[:, None] - m, s, -np.inf)
    p = np.exp(s - np.maximum(s.max(axis=-1, keepdims=True, initial=-1e300), -1e300))
    total = p.sum(axis=-1, keepdims=True)
    out: Array = p @ v / np.where(total == 0, 1, total)
    return out


def found(device: Device, arrays: dict[str, Array], type_: vp.Type, **options: Any) -> Array:
    program = vp.ops.attention(type_, arrays["q"].shape[-1], **options)
    out: Array = device.compile_native(program).dispatch(arrays)["out"]
    assert out.dtype == type_.dtype
    return out


def close(out: Array, right: Array, type_: vp.Type) -> None:
    np.testing.assert_allclose(out.astype(np.float64), right, rtol=BOUNDS[type_], atol=BOUNDS[type_])


@pytest.mark.parametrize("head", [64, 128, 256])
@pytest.mark.parametrize("arch", ["sm_86", "sm_120"])
def test_tiles_without_a_machine_fit_small_workgroup_memory(arch: str, head: int) -> None:
    assert "mma.sync" in emit_text(vp.ops.attention(vp.f32, head, tensor=True), arch.replace("sm_", "compute_"))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("type_", [vp.f16, vp.bf16, vp.f32], ids=str)
def test_any_lengths_and_grouped_heads(type_: vp.Type, causal: bool) -> None:
    device = open_device("cpu")
    pipeline = device.compile_native(vp.ops.attention(type_, causal=causal, tiles=TINY))
    for m, n in [(1, 1), (1, 37), (16, 16), (19, 50), (50, 19), (33, 33)]:
        arrays = given(type_, 64, m, n, heads=6, shared=2, batch=2)
        close(pipeline.dispatch(arrays)["out"], wanted(arrays, causal), type_)


@pytest.mark.parametrize("type_", [vp.bf16, vp.f32], ids=str)
@pytest.mark.parametrize("head", [20, 64, 128])
def test_the_tiles_that_it_has_unless_given(head: int, type_: vp.Type) -> None:
    arrays = given(type_, head, 131, 140)
    for causal in (False, True):
        close(found(open_device("cpu"), arrays, type_, causal=causal), wanted(arrays, causal), type_)


@pytest.mark.parametrize("type_", [vp.f16, vp.f32], ids=str)
def test_the_same_bits_on_strict_devices(strict_device: Device, type_: vp.Type) -> None:
    arrays = given(type_, 24, 21, 37, heads=2)
    bits = [found(device, arrays, type_, causal=True, tensor=False, tiles=TINY) for device in (open_device("reference"), strict_device)]
    assert np.array_equal(*[out.view(np.uint8) for out in bits])
    close(bits[0], wanted(arrays, True), type_)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("type_", [vp.f16, vp.bf16], ids=str)
@pytest.mark.parametrize(
    ("head", "tiles"), [(64, None), (128, None), (64, (128, 128)), (128, (128, 128)), (128, (64, 64)), (20, None), (256, (64, 32))], ids=str
)
def test_by_tensor_cores(head: int, tiles: tuple[int, int] | None, type_: vp.Type, causal: bool) -> None:
    pipeline = open_device("cuda").compile_native(vp.ops.attention(type_, head, causal=causal, tiles=tiles))
    for m, n, heads, shared, batch in [(1, 1, 1, 1, 1), (128, 128, 1, 1, 1), (129, 127, 6, 2, 2), (50, 700, 4, 1, 1), (700, 50, 2, 2, 1), (5, 0, 1, 1, 1)]:
        arrays = given(type_, head, m, n, heads, shared, batch)
        close(pipeline.dispatch(arrays)["out"], wanted(arrays, causal), type_)


@pytest.mark.parametrize("head", [64, 128])
def test_what_fits_the_memory_of_every_device(head: int) -> None:
    arrays = given(vp.f32, head, 35, 40, heads=2)
    close(found(open_device("wgpu"), arrays, vp.f32, causal=True), wanted(arrays, True), vp.f32)


def test_nothing_seen_gives_zeros_and_large_scores_are_no_overflow() -> None:
    device = open_device("cpu")
    empty = given(vp.f32, 8, 3, 0)
    assert found(device, empty, vp.f32, tiles=TINY).tolist() == np.zeros((1, 1, 3, 8)).tolist()
    arrays = given(vp.f32, 8, 30, 4)
    out = found(device, arrays, vp.f32, causal=True, tiles=TINY)
    assert not out[0, 0, :26].any() and np.array_equal(out[0, 0, 26], arrays["v"][0, 0, 0])
    arrays = given(vp.f32, 8, 20, 40)
    np.testing.assert_allclose(found(device, arrays, vp.f32, scale=1000.0, tiles=TINY), wanted(arrays, False, 1000.0), rtol=1e-3, atol=1e-3)


def test_a_score_that_is_nan_or_infinite_makes_its_row_nan() -> None:
    arrays = given(vp.f32, 8, 20, 40)
    arrays["q"][0, 0, 3, 2], arrays["q"][0, 0, 7] = np.nan, np.inf
    out = found(open_device("cpu"), arrays, vp.f32, tiles=TINY)
    assert np.isnan(out[0, 0, [3, 7]]).all() and not np.isnan(np.delete(out, [3, 7], axis=2)).any()


@pytest.mark.parametrize(
    ("target", "head", "on"),
    [("compute_86", 128, None), ("compute_120", 256, None), ("compute_80", 128, "sm_80"), ("compute_90a", 256, "sm_90")],
)
def test_every_machine_has_room_for_what_it_takes_by_itself(target: str, head: int, on: str | None) -> None:
    text = emit_text(vp.ops.attention(vp.bf16, head, on=on), target, form="vir")
    assert "tensor_core" in text or "warpgroup_product" in text
    assert on or str(vp.ops.attention(vp.bf16, head, on=target)) == str(vp.ops.attention(vp.bf16, head))


@pytest.mark.parametrize("head", [80, 112])
def test_heads_that_are_no_whole_rows_of_warpgroups_have_room_too(head: int) -> None:
    text = emit_text(vp.ops.attention(vp.bf16, head, on="sm_90"), "compute_90a")
    assert "mma.sync" in text


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((vp.f64,), {}, "the type of attention is none of those that there are: f64"),
        ((vp.f32, 0), {}, "the length of a head is a whole number from 1 to 256, got 0"),
        ((), {"scale": float("nan")}, "the scale of scores is a positive number, got nan"),
        ((), {"tiles": (64, 64, 32)}, "tiles are a tuple of 2 extents, queries and keys, got"),
        ((), {"tiles": (1024, 1024)}, "make one of 1048576 elements"),
        ((vp.f32, 256), {"tiles": (16, 1024)}, "make one of 262144 elements"),
        ((), {"scale": 10**400}, "the scale of scores is a positive number, got 1000"),
        ((), {"scale": True}, "the scale of scores is a positive number, got True"),
        ((), {"scale": 1e300}, "the scale of scores is a positive number, got 1e"),
        ((), {"causal": np.zeros(2)}, "causal is True or False, got array"),
        ((), {"tensor": [1]}, "tensor is True, False or an architecture"),
        ((), {"tensor": "sm_80"}, "tensor is True, False or an architecture whose bits are known, got 'sm_80'"),
        ((), {"tiles": (64, 0)}, "an extent of tiles is a whole number from 1 to 1024, got 0"),
    ],
)
def test_what_there_is_not_is_refused_at_the_callers_line(arguments: tuple[Any, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(vp.ValidationError, match=message) as caught:
        vp.ops.attention(*arguments, **options)
    (finding,) = caught.value.diagnostics
    assert finding.code == "B108" and finding.place is not None and finding.place.file == __file__


def test_numbers_and_flags_of_numpy_are_taken_as_pythons_are() -> None:
    assert vp.ops.attention(scale=np.float32(0.5), causal=np.True_, tensor=np.False_) == vp.ops.attention(scale=0.5, causal=True)
