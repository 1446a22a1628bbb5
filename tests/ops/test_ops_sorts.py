"""Sorts by radix against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_kinds import open_device

import vyre_py as vp
from vyre_py.drivers.device import Device

Array = np.ndarray[Any, np.dtype[Any]]
TYPES = [vp.u32, vp.i32, vp.f32]


def random(n: int, type_: vp.Type) -> Array:
    return np.random.default_rng(n).integers(0, 1 << 32, n, np.uint32).view(type_.dtype)


def order(keys: Array) -> Array:
    """The order of keys, as words."""
    words = keys.view(np.uint32)
    words = np.where(np.isnan(keys), np.uint32(0x7FC00000), words)
    if keys.dtype == np.float32:
        return np.where(words >> 31, ~words, words ^ np.uint32(1 << 31))
    return words ^ np.uint32(1 << 31) if keys.dtype == np.int32 else words


def in_order(device: Device, keys: Array, type_: vp.Type, values: Array | None = None) -> tuple[Array, Array | None]:
    count, scan = (device.compile_native(p) for p in (vp.ops.radix_count(type_), vp.ops.prefix_sum(exclusive=True)))
    move = device.compile_native(vp.ops.radix_move(type_, None if values is None else vp.u64))
    for shift in range(0, 32, 8):
        counts = count.dispatch({"keys": keys, "shift": shift})["counts"]
        places = scan.dispatch({"source": counts})["target"]
        out = move.dispatch({"keys": keys, "places": places, "shift": shift} | ({} if values is None else {"values": values}))
        keys, values = out["sorted"], out.get("sorted_values")
    return keys, values


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_keys_and_values_of_any_length(type_: vp.Type) -> None:
    for n in (1, 255, 3072, 10_001):
        keys = random(n, type_)
        keys[n // 2 :] = keys[: n - n // 2]  # equal ones stay in their order
        places = np.argsort(order(keys), kind="stable")
        found, values = in_order(open_device("cpu"), keys, type_, np.arange(n, dtype=np.uint64))
        assert np.array_equal(found.view(np.uint32), keys[places].view(np.uint32))
        assert values is not None and np.array_equal(values, places)


def test_greatest_keys_stay_before_the_end(strict_device: Device) -> None:
    keys = random(3100, vp.u32)
    keys[::3] = 0xFFFFFFFF
    assert np.array_equal(in_order(strict_device, keys, vp.u32)[0], np.sort(keys))


@pytest.mark.parametrize("kind", ["reference", "wgpu"])
def test_other_devices(kind: str) -> None:
    keys = np.random.default_rng(1).normal(size=3100).astype(np.float32)
    assert np.array_equal(in_order(open_device(kind), keys, vp.f32)[0], np.sort(keys))


def test_other_types_are_refused_at_the_callers_line() -> None:
    for make in (lambda: vp.ops.radix_count(vp.f64), lambda: vp.ops.radix_move(vp.u8)):
        with pytest.raises(vp.ValidationError, match="the type of keys is none of those that there are") as caught:
            make()
        (finding,) = caught.value.diagnostics
        assert finding.code == "B108" and finding.place is not None and finding.place.file == __file__
    with pytest.raises(vp.ValidationError, match="the type of values is none"):
        vp.ops.radix_move(vp.u32, vp.u32x2)
