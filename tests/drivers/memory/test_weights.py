"""Weights in half precision, and constants: what lies on a device for everybody."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from device_kinds import open_device
from hypothesis import given, settings
from hypothesis import strategies as st

import vyre_py as vp
from vyre_py.drivers.cpu.device import CpuDevice
from vyre_py.drivers.device import Device
from vyre_py.drivers.errors import BindingError
from vyre_py.ir.language.types import Type

BITS = {vp.f16: (10, -14, 65504), vp.bf16: (7, -126, float.fromhex("0x1.fep127"))}  # fraction bits, least exponent, greatest number


def nearest_even(x: float, type_: Type) -> float:
    """The number of a type that is nearest to x, by exact arithmetic."""
    fraction_bits, least, greatest = BITS[type_]
    if not np.isfinite(x) or x == 0:
        return x
    exact = abs(Fraction(x))
    exponent = least
    while exact >= Fraction(2) ** (exponent + 1):
        exponent += 1
    unit = Fraction(2) ** (exponent - fraction_bits)
    rounded = round(exact / unit) * unit  # Python rounds halves to even
    return float(np.copysign(float(rounded) if rounded <= Fraction(greatest) else np.inf, x))


@pytest.mark.parametrize("type_", BITS, ids=str)
@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=50))
def test_doubles_are_rounded_once(type_: Type, drawn: list[float]) -> None:
    hard = [1 + 2.0**-8 + 2.0**-30, 1 + 2.0**-11 + 2.0**-40, 65519.999999999, 65520.0, 2.0**-25, 2.0**-25 * (1 + 2.0**-50), 1e-40, -1e300, np.inf]
    array = np.array(drawn + hard)
    weights = open_device("cpu").weights({"w": array}, type=type_)
    expected = np.array([nearest_even(x, type_) for x in array.tolist()])
    np.testing.assert_array_equal(weights["w"].read().astype(np.float64), expected)
    overflows = int((np.isinf(expected) & np.isfinite(array)).sum())
    assert weights.overflows == ({"w": overflows} if overflows else {})
    weights.free()


def test_one_allocation_half_the_bytes(device: Device) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "w1": rng.standard_normal((64, 96)).astype(np.float32), "b1": rng.standard_normal(96), "empty": np.zeros((0, 3)), "scalar": np.float32(0.1),
        "whole": np.arange(-5, 5), "mask": np.array([True, False]), "bf": rng.standard_normal(7).astype(ml_dtypes.bfloat16), "turned": rng.random((5, 9)).T,
    }
    before = device.telemetry.allocations
    weights = device.weights(arrays, type=vp.bf16)
    assert device.telemetry.allocations == before + 1
    assert {weights[name].allocation for name in weights} == {weights["w1"].allocation}
    assert list(weights) == list(arrays) and len(weights) == 8
    ends = [weights.offsets[name] + weights[name].size_bytes for name in weights]
    assert all(offset % 256 == 0 for offset in weights.offsets.values())
    assert all(end <= following for end, following in zip(ends, list(weights.offsets.values())[1:], strict=False))
    assert weights.size_bytes >= ends[-1] and weights.size_bytes < weights.full_bytes
    assert device.weights({"w": arrays["w1"]}).size_bytes * 2 == 64 * 96 * 4
    for name, array in arrays.items():
        np.testing.assert_array_equal(weights[name].read(), np.asarray(array).astype(np.float32).reshape(weights[name].shape).astype(ml_dtypes.bfloat16))
    assert "8 arrays as bf16" in repr(weights) and weights.overflows == {}


def test_both_kinds_side_by_side_and_more_later(device: Device) -> None:
    with vp.ProgramBuilder("both") as b:
        n = b.dim("n")
        u, v, out = b.read("u", vp.f16, n), b.read("v", vp.bf16, n), b.write("out", vp.f32, n)
        i = b.global_id(0)
        out[i] = vp.cast(u[i], vp.f32) + vp.cast(v[i], vp.f32)
    weights = device.weights({"u": np.full(5, 1e30), "v": np.full(5, 1e30), "empty": np.zeros(0)}, type={"u": vp.f16, "v": vp.bf16, "empty": vp.f16})
    assert weights.types == {"u": vp.f16, "v": vp.bf16, "empty": vp.f16} and weights.overflows == {"u": 5}
    assert weights["u"].allocation is weights["v"].allocation and "as bf16 and f16" in repr(weights)
    weights.update("u", np.arange(5))
    weights.update("v", np.full(5, 0.5))
    out = device.allocate(5, vp.f32)
    launch = device.compile_native(b.program).bind(u=weights["u"], v=weights["v"], out=out)
    size, full, bound = weights.size_bytes, weights.full_bytes, weights["u"].allocation
    for wrong, type_, words in (
        ({"u": np.ones(3)}, vp.f16, "'u' is here already"), ({"w": np.ones(3)}, vp.f32, "f16 or bf16, got f32"), ({"w": np.ones(3)}, {}, "'w' has no type"),
        ({"w": np.ones(3)}, {"w": vp.f16, "x": vp.f16}, "'x' is not an array"), ({"w": "text"}, vp.f16, "is a str"),
    ):
        with pytest.raises(BindingError, match=words):
            weights.add(wrong, type=type_)
    assert (weights.size_bytes, weights.full_bytes, len(weights)) == (size, full, 3)
    weights.add({"w": np.arange(4.0), "t": [0.25]}, type={"w": vp.bf16, "t": vp.f16})
    assert weights.types["w"] is vp.bf16 and weights["w"].read().astype(float).tolist() == [0, 1, 2, 3] and weights["t"].read().tolist() == [0.25]
    assert weights["u"].allocation is bound and weights.offsets["w"] == size and weights.size_bytes == size + 512 and weights.full_bytes == full + 512
    weights.update("w", np.ones(4))
    assert weights["w"].read().astype(float).tolist() == [1] * 4
    launch()
    assert out.read().tolist() == [0.5, 1.5, 2.5, 3.5, 4.5]
    weights.free()
    assert weights.freed
    for call in (launch, weights["w"].read, lambda: weights.add({"z": np.ones(1)})):
        with pytest.raises(BindingError, match="freed"):
            call()


def test_the_copy_of_what_lies_at_an_offset_of_an_arena() -> None:
    values = [vp.ArenaValue(name, (300,), vp.f32) for name in ("x", "w1", "w2", "h", "y")]
    steps = [vp.ArenaStep(("x", "w1"), ("h",)), vp.ArenaStep(("h", "w2"), ("y",))]
    plan = vp.plan_arena(values, steps, inputs=("x", "w1", "w2"), outputs=("y",))
    weights = open_device("cpu").weights({"w1": np.full(300, 1.0), "w2": np.full(300, 2.0)})
    for number, name in ((1, "w1"), (2, "w2")):
        found = weights.at(plan, plan.offsets[name])
        assert found.type is vp.f16 and found.address == weights[name].address and found.read()[0] == number
    for nowhere in (plan.offsets["x"], plan.offsets["w1"] + 256, -1):
        with pytest.raises(BindingError, match="begin no values"):
            weights.at(plan, nowhere)


def test_an_array_is_replaced_in_place(device: Device) -> None:
    with vp.ProgramBuilder("widen") as b:
        n = b.dim("n")
        w, out = b.read("w", vp.f16, n), b.write("out", vp.f32, n)
        out[b.global_id(0)] = vp.cast(w[b.global_id(0)], vp.f32)
    weights = device.weights({"a": np.ones(5), "b": np.full(5, 2.0)})
    out = device.allocate(5, vp.f32)
    launch = device.compile_native(b.program).bind(w=weights["a"], out=out)
    weights.update("a", np.array([1e6, 2, 3, 4, -1e6]))
    assert weights.overflows == {"a": 2}
    launch()
    np.testing.assert_array_equal(out.read(), [np.inf, 2, 3, 4, -np.inf])
    weights.update("a", [5, 6, 7, 8, 9])
    launch()
    np.testing.assert_array_equal(out.read(), [5, 6, 7, 8, 9])
    np.testing.assert_array_equal(weights["b"].read(), np.full(5, 2, np.float16))
    assert weights.overflows == {}
    with pytest.raises(BindingError, match="may only be read"):
        weights["a"].write(np.zeros(5, np.float16))
    with pytest.raises(BindingError, match=r"belongs to weights: Weights\.free"):
        weights["a"].free()
    weights.free()
    weights.free()
    with pytest.raises(BindingError, match="freed"):
        launch()


def test_what_are_no_weights_is_refused(strict_device: Device) -> None:
    ones = np.ones(3)
    for arrays, type_, problem in (
        ({"a": ones}, vp.f32, "kept as f16 or bf16, got f32"), ({"a": ones}, np.float16, "kept as f16 or bf16"), ([ones], vp.f16, "a mapping of names"),
        ({1: ones}, vp.f16, "a mapping of names"), ({"a": np.array(["x"])}, vp.f16, "no numbers"), ({"a": np.array([1j])}, vp.f16, "not a type of the"),
    ):
        with pytest.raises(BindingError, match=problem):
            strict_device.weights(arrays, type=type_)
    weights = strict_device.weights({"a": ones})
    for change, problem in (
        (lambda: weights["z"], "no array 'z'"), (lambda: weights.update("z", ones), "no array 'z'"), (lambda: weights[["a"]], "no array"),
        (lambda: weights.update("a", np.ones(4)), r"shape \[3\], got \[4\]"),
    ):
        with pytest.raises(BindingError, match=problem):
            change()
    assert strict_device.weights({}).size_bytes == 0


# ---------------------------------------------------------------- constants


@pytest.fixture
def fresh() -> Iterator[Device]:
    """A CPU device of its own, whose counters nobody else changes."""
    made = CpuDevice(0)
    yield made
    made.close()


def test_the_same_bytes_are_the_same_constant(device: Device) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    constant = device.constant(array)
    np.testing.assert_array_equal(constant.read(), array)
    hits = device.telemetry.constant_hits
    assert device.constant(array.copy()) is constant
    assert device.constant(np.asfortranarray(array)) is constant
    assert device.telemetry.constant_hits == hits + 2
    others = [array.ravel(), array.view(np.uint32), array + 1, array.astype(np.float64)]
    assert len({id(device.constant(other)) for other in others} | {id(constant)}) == 5
    vectors = device.constant(array, vp.f32x3)
    assert vectors.shape == (2,) and vectors is device.constant(array, vp.f32x3) and vectors is not constant
    array[0, 0] = 99
    assert constant.read()[0, 0] == 0


def test_nobody_changes_or_frees_a_constant(device: Device) -> None:
    constant = device.constant(np.arange(8, dtype=np.uint32))
    with vp.ProgramBuilder("clear") as b:
        x = b.write("x", vp.u32, b.dim("n"))
        x[b.global_id(0)] = 0
    pipeline, zeros = device.compile_native(b.program), np.zeros(8, np.uint32)
    for change in (lambda: constant.write(zeros), lambda: pipeline.bind(x=constant), lambda: constant[1:3].write(zeros[:2]), lambda: constant.fill(0)):
        with pytest.raises(BindingError, match="may only be read"):
            change()
    for free in (constant.free, constant[2:5].free, constant.view(vp.u8, 32).free):
        with pytest.raises(BindingError, match="belongs to the device's constants"):
            free()
    assert constant.readonly and constant[1:].readonly and constant.view(vp.f32, 8).readonly
    np.testing.assert_array_equal(constant.read(), np.arange(8))
    with pytest.raises(BindingError):
        device.constant(np.array(["a"]))
    with pytest.raises(BindingError, match="a type of the language"):
        device.constant(np.ones(2, np.float32), "f32")


def test_constants_are_held_within_bounds_and_live_while_used(fresh: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = fresh.constant(np.full(1000, 3, np.uint8))
    ids = [weakref.ref(fresh.constant(np.full(1000, number, np.uint16))) for number in range(300)]
    gc.collect()
    assert sum(ref() is not None for ref in ids) == 256 and len(fresh.constants) == 257  # and the one that somebody has
    assert fresh.telemetry.snapshot()["constants"] == 257
    monkeypatch.setattr("vyre_py.drivers.memory.constants._HELD_BYTES", 10_000)
    fresh.constant(np.zeros(1000, np.uint16))
    gc.collect()
    assert len(fresh.constants) == 1 + 5
    fresh.trim()
    gc.collect()
    assert len(fresh.constants) == 1 and fresh.constant(np.full(1000, 3, np.uint8)) is kept
    assert fresh.telemetry.bytes_allocated == 1000
    rows = kept[5:9]
    del kept
    fresh.trim()
    gc.collect()
    np.testing.assert_array_equal(rows.read(), [3] * 4)


def test_constants_survive_capture_and_replay(device: Device) -> None:
    """The array is gone, the cache was dropped, and other memory has come and gone: the graph still finds the constant."""
    with vp.ProgramBuilder("look_up") as b:
        n = b.dim("n")
        table, out = b.read("table", vp.f32, n), b.read_write("out", vp.f32, n)
        out[b.global_id(0)] = out[b.global_id(0)] + table[b.global_id(0)]
    out = device.allocate(1000, vp.f32)
    expected = np.arange(1000, dtype=np.float32)
    launch = device.compile_native(b.program).bind(table=device.constant(expected.copy()), out=out)
    graph = device.capture(launch)
    del launch
    device.trim()
    gc.collect()
    for _ in range(5):
        device.upload(np.full(1000, 7, np.float32)).free()
    graph.repeat(3)
    np.testing.assert_array_equal(out.read(), 3 * expected, err_msg=f"the constant was lost on {device.name}")
    graph.close()
