"""Sorts by radix against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_kinds import open_device

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.ops import sorts

Array = np.ndarray[Any, np.dtype[Any]]
TYPES = {
    "cpu": [vp.u32, vp.i32, vp.f32, vp.f16, vp.f64],
    "reference": [vp.u16, vp.i16, vp.bf16, vp.u64, vp.i64],
}
_READ_ONLY = "a constant's, bytes, or another library's that allows no writes"


def random(n: int, type_: vp.Type) -> Array:
    """Keys of any bits, half of them twice."""
    keys = np.frombuffer(np.random.default_rng(n).bytes(n * type_.size_bytes), type_.dtype).copy()
    if type_.is_float:
        keys[::7], keys[1::7], keys[2::7] = 0.0, -0.0, np.inf
    keys[n // 2 :] = keys[: n - n // 2]
    return keys


def order(keys: Array, type_: vp.Type) -> Array:
    """How NumPy puts them in order, but -0 before +0."""
    if not type_.is_float:
        return np.argsort(keys, kind="stable")
    with np.errstate(invalid="ignore"):  # NaNs of any bits
        wide = keys.astype(np.float64)
    return np.lexsort(((wide == 0) & ~np.signbit(wide), wide))


def words(keys: Array) -> Array:
    return keys.view(f"u{keys.dtype.itemsize}")


@pytest.mark.parametrize(("kind", "type_"), [(kind, type_) for kind, types in TYPES.items() for type_ in types], ids=str)
def test_keys_and_values(kind: str, type_: vp.Type) -> None:
    """Buffers where they lie, and to other ones."""
    device = open_device(kind)
    for n in (1, 255, 3072, 10_001) if type_ is vp.u32 else (4200,):
        keys, numbers = random(n, type_), np.arange(n, dtype=np.uint64)
        places = order(keys, type_)
        with vp.Sort(device, n, type_, values=vp.u64) as sort:
            x, y, z, w = device.upload(keys, type_), device.upload(numbers), device.allocate(n, type_), device.allocate(n, vp.u64)
            sort.bind(x, y, sorted=z, sorted_values=w)()
            assert np.array_equal(words(z.read()), words(keys[places])) and np.array_equal(w.read(), places)
            assert x.read().tobytes() == keys.tobytes() and np.array_equal(y.read(), numbers)
            sort.bind(x, y)()
            assert x.read().tobytes() == z.read().tobytes() and np.array_equal(y.read(), places)


def test_greatest_keys_stay_before_the_end(strict_device: Device) -> None:
    keys = random(3100, vp.u32)
    keys[::3] = 0xFFFFFFFF
    assert np.array_equal(vp.Sort(strict_device, keys.size).dispatch(keys)["sorted"], np.sort(keys))


def test_webgpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """In tiles of two rows: the compiler of a device in software takes a minute for all twelve."""
    monkeypatch.setattr(sorts, "_rows", lambda type_: 2)
    keys = np.random.default_rng(1).normal(size=600).astype(np.float32)
    out = vp.Sort(open_device("wgpu"), keys.size, vp.f32, values=vp.u32).dispatch(keys, np.arange(600, dtype=np.uint32))
    assert np.array_equal(out["sorted"], np.sort(keys)) and np.array_equal(out["sorted_values"], np.argsort(keys, kind="stable"))


def test_a_sort_is_a_step_of_a_sequence_and_may_be_captured(strict_device: Device) -> None:
    keys = random(3100, vp.u32)
    source, x = strict_device.upload(keys), strict_device.allocate(keys.shape, vp.u32)
    sort = vp.Sort(strict_device, keys.size)
    assert repr(sort) == f"<Sort of 3100 keys of u32 on {strict_device.name}>" and sort.size_bytes == 4 * (3100 + 2 * 512)
    run = strict_device.sequence(vp.copy_step(source, x), sort.bind(x))
    graph = strict_device.capture(run)
    for call in (run, run, graph, graph):
        vp.fill_step(x, 7)()
        call()
        assert np.array_equal(x.read(), np.sort(keys))
    graph.close()
    sort.free()
    sort.free()
    with pytest.raises(vp.BindingError, match="was freed"):
        run()


def test_no_keys_at_all() -> None:
    out = vp.Sort(open_device("reference"), 0, vp.f32, values=vp.u8).dispatch(np.zeros(0, np.float32), np.zeros(0, np.uint8))
    assert {name: (array.shape, array.dtype) for name, array in out.items()} == {"sorted": ((0,), np.float32), "sorted_values": ((0,), np.uint8)}


def test_buffers_that_do_not_fit_are_named() -> None:
    device = open_device("reference")
    keys, short, numbers = device.allocate(9, vp.f32), device.allocate(8, vp.f32), device.allocate(9, vp.u32)
    plain, paired = vp.Sort(device, 9, vp.f32), vp.Sort(device, 9, vp.f32, values=vp.u32)
    rows = [
        (lambda: plain.bind(short), "'keys' is a f32[9] on reference:0, got <Buffer f32[8] on reference:0>"),
        (lambda: plain.bind(numbers), "'keys' is a f32[9] on reference:0, got <Buffer u32[9] on reference:0>"),
        (lambda: plain.bind(open_device("cpu").allocate(9, vp.f32)), "'keys' is a f32[9] on reference:0, got <Buffer f32[9] on cpu:0>"),
        (lambda: plain.bind(np.zeros(9, np.float32)), "'keys' is a resident buffer (device.upload makes one), got ndarray"),
        (lambda: plain.bind(keys, numbers), "'values' is given, but this sort has no values: vp.Sort(..., values=vp.u32) has"),
        (lambda: paired.bind(keys), "'values' is a resident buffer (device.upload makes one), got NoneType"),
        (lambda: paired.bind(keys, numbers, sorted=keys), "'sorted_values' is a resident buffer (device.upload makes one), got NoneType"),
        (lambda: plain.dispatch(np.zeros(9)), "dtype float64 is not f32"),
        (lambda: plain.bind(device.constant(np.zeros(9, np.float32))), f"'sorted' is written, and its memory may only be read: {_READ_ONLY}"),
    ]
    for call, said in rows:
        with pytest.raises(vp.BindingError) as caught:
            call()
        assert caught.value.problems == (said,)


def test_other_types_are_refused_at_the_callers_line() -> None:
    device = open_device("reference")
    no_keys = "the type of keys is none of those that there are"
    rows = [
        (lambda: vp.ops.radix_count(vp.f8e4m3), no_keys),
        (lambda: vp.ops.radix_move(vp.u8), no_keys),
        (lambda: vp.Sort(device, 9, vp.bool_), no_keys),
        (lambda: vp.ops.radix_move(vp.u32, vp.u32x2), "the type of values is none"),
        (lambda: vp.Sort(device, 9, values=vp.u32x2), "the type of values is none"),
        (lambda: vp.Sort("cpu", 10), "a device is needed, got 'cpu'"),
        (lambda: vp.Sobol("cpu", 2), "a device is needed, got 'cpu'"),
        (lambda: vp.Sort(device, -1), "the count of keys is a whole number up to 4294967295, got -1"),
        (lambda: vp.Sort(device, 2**32), "the count of keys is a whole number up to 4294967295, got 4294967296"),
    ]
    for call, said in rows:
        with pytest.raises(vp.ValidationError, match=said) as caught:
            call()
        (finding,) = caught.value.diagnostics
        assert finding.code == "B108" and finding.help and finding.place is not None and finding.place.file == __file__
