"""What every device does alike: dispatch, resident buffers, launches, binding errors, telemetry, life."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.drivers.registry import KINDS
from vyre_py.ir.language.program import Program


def axpy(kind: Any = vp.u32) -> Program:
    with vp.ProgramBuilder("axpy", workgroup=64) as b:
        n = b.dim("n")
        a = b.param("a", kind)
        x, y = b.read("x", kind, n), b.read_write("y", kind, n)
        i = b.global_id(0)
        y[i] = a * x[i] + y[i]
    return b.program


def pair(count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(count)
    return rng.integers(0, 1 << 32, count, dtype=np.uint32), rng.integers(0, 1 << 32, count, dtype=np.uint32)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1000, 70_001])
def test_dispatch(device: Device, count: int) -> None:
    x, y = pair(count)
    before = x.copy(), y.copy()
    out = device.compile_native(axpy()).dispatch({"x": x, "y": y, "a": 3})
    assert set(out) == {"y"} and out["y"] is not y
    np.testing.assert_array_equal(out["y"], np.uint32(3) * x + y)
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(y, before[1])


def test_dispatch_takes_any_array_like(device: Device) -> None:
    x, y = pair(64)
    pipeline = device.compile_native(axpy())
    expected = np.uint32(5) * x + y
    wide = np.zeros((64, 3), np.uint32)
    wide[:, 1] = x
    swapped = y.astype(y.dtype.newbyteorder())
    for xs, ys in ((wide[:, 1], y), (x[::-1][::-1], swapped), (memoryview(x), y)):
        np.testing.assert_array_equal(pipeline.dispatch({"x": xs, "y": ys, "a": np.uint32(5)})["y"], expected)
    np.testing.assert_array_equal(pipeline.dispatch([x, y, 5])["y"], expected)
    np.testing.assert_array_equal(pipeline.dispatch(x=x, y=y, a=5)["y"], expected)
    np.testing.assert_array_equal(pipeline.dispatch({"x": x}, y=y, a=5)["y"], expected)


def test_dispatch_into_out(device: Device) -> None:
    x, y = pair(64)
    target = np.zeros((64, 2), np.uint32)
    out = device.compile_native(axpy()).dispatch({"x": x, "y": y, "a": 2}, out={"y": target[:, 1]})
    np.testing.assert_array_equal(target[:, 1], np.uint32(2) * x + y)
    assert not target[:, 0].any() and np.shares_memory(out["y"], target)


def test_an_output_that_is_only_written_may_be_left_out(device: Device) -> None:
    with vp.ProgramBuilder("iota") as b:
        out = b.write("out", vp.u32, b.dim("n"), 2)
        out[b.global_id(1), b.global_id(0)] = b.global_id(1) * 10 + b.global_id(0)
    result = device.compile_native(b.program).dispatch({"n": 3})["out"]
    np.testing.assert_array_equal(result, [[0, 1], [10, 11], [20, 21]])


def test_resident_buffers_and_launches(device: Device) -> None:
    x, y = pair(1000)
    xd, yd = device.upload(x), device.upload(y)
    pipeline = device.compile_native(axpy())
    launch = pipeline.bind({"x": xd, "y": yd, "a": 3})
    launch()
    expected = np.uint32(3) * x + y
    np.testing.assert_array_equal(device.download(yd), expected)
    launch.set(a=7)()
    expected = np.uint32(7) * x + expected
    np.testing.assert_array_equal(yd.read(), expected)
    other = device.upload(y)
    assert launch.set({"x": yd, "y": other}) is launch
    launch()
    np.testing.assert_array_equal(other.read(), np.uint32(7) * expected + y)
    np.testing.assert_array_equal(yd.read(), expected)


def test_set_refuses_what_does_not_fit_and_changes_nothing(device: Device) -> None:
    x, y = pair(64)
    xd, yd = device.upload(x), device.upload(y)
    launch = device.compile_native(axpy()).bind({"x": xd, "y": yd, "a": 3})
    with pytest.raises(vp.BindingError) as caught:
        launch.set({"a": 1.5, "y": device.upload(y[:5]), "q": 1})
    assert len(caught.value.problems) == 3
    for overlap in ({"x": yd}, {"y": xd}, {"a": 4, "x": yd}):
        with pytest.raises(vp.BindingError, match="overlaps"):
            launch.set(overlap)
    launch()
    np.testing.assert_array_equal(yd.read(), np.uint32(3) * x + y)


def test_ranges(device: Device) -> None:
    x, y = pair(200)
    whole = device.upload(np.concatenate([x, y]))
    launch = device.compile_native(axpy()).bind({"x": whole[3:50], "y": whole[201:248], "a": 2})
    launch()
    expected = np.concatenate([x, y])
    expected[201:248] += np.uint32(2) * expected[3:50]
    np.testing.assert_array_equal(whole.read(), expected)
    part = whole[10:14]
    part.write(np.arange(4, dtype=np.uint32))
    np.testing.assert_array_equal(whole.read()[9:15], [expected[9], 0, 1, 2, 3, expected[14]])
    for bad in (slice(0, 401), slice(-1, 3), slice(5, 2), slice(0, 10, 2)):
        with pytest.raises(vp.BindingError):
            whole[bad]


def test_byte_ranges(device: Device) -> None:
    with vp.ProgramBuilder("negative") as b:
        n = b.dim("n")
        x, y = b.read("x", vp.u8, n), b.write("y", vp.u8, n)
        i = b.global_id(0)
        y[i] = vp.cast(255 - vp.cast(x[i], vp.u32), vp.u8)
    data = np.arange(64, dtype=np.uint8)
    source, target = device.upload(data), device.upload(np.full(64, 9, np.uint8))
    device.compile_native(b.program).bind({"x": source[5:18], "y": target[3:16]})()
    expected = np.full(64, 9, np.uint8)
    expected[3:16] = 255 - data[5:18]
    np.testing.assert_array_equal(target.read(), expected)


def test_copy_and_allocate(device: Device) -> None:
    x, _ = pair(37)
    first, second = device.upload(x), device.allocate(37, vp.u32)
    assert not second.read().any()
    second.copy_from(first)
    np.testing.assert_array_equal(second.read(), x)
    with pytest.raises(vp.BindingError):
        first.copy_from(first)


def test_a_bool_is_true_for_every_byte_but_zero(device: Device) -> None:
    """Arrays of bools of others hold such bytes; elements lie side by side, and past the end there is nothing true."""
    with vp.ProgramBuilder("truths", workgroup=64) as b:
        n = b.dim("n")
        x, y, z = b.read("x", vp.bool_, n), b.write("y", vp.i32, n), b.write("z", vp.bool_, n)
        i = b.global_id(0)
        y[i] = vp.cast(x[i], vp.i32) + 2 * vp.cast(x[i + 1], vp.i32)
        z[i] = ~x[i]
    data = np.array([*range(256), 0, 128, 2, 0, 0, 255], np.uint8)
    out = device.compile_native(b.program).dispatch({"x": data.view(bool)})
    truths = (data != 0).astype(np.int32)
    np.testing.assert_array_equal(out["y"], truths + 2 * np.append(truths[1:], 0))
    np.testing.assert_array_equal(out["z"].view(np.uint8), 1 - truths)


def test_a_bool_is_no_count(device: Device) -> None:
    for wrong in (True, (4, True), np.True_):
        with pytest.raises(vp.BindingError, match="whole numbers"):
            device.allocate(wrong, vp.u32)
    with pytest.raises(vp.BindingError, match="rows True:3"):
        device.allocate(4, vp.u32)[True:3]
    with pytest.raises(vp.Unsupported, match="grid"):
        vp.DispatchConfig(grid=(1, 1, True))


PROBLEMS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["'a'", "'x'", "'y'"]),
    ({"x": np.zeros(4, np.uint32), "y": np.zeros(5, np.uint32), "a": 1}, ["dim 'n' is 4 from axis 0 of 'x', but axis 0 of 'y' has 5"]),
    ({"x": np.zeros(4, np.float32), "y": np.zeros((4, 1), np.uint32), "a": -1, "z": 3}, ["'z'", "-1", "float32", "1 axes"]),
    ({"x": "text", "y": None, "a": "1"}, ["'x'", "'y'", "'a'"]),
    ({"x": np.zeros(4, np.uint32), "y": np.zeros(4, np.uint32), "a": 1, "n": 5}, ["dim 'n' is 5 from its argument"]),
    ({"x": np.zeros(4, np.uint32), "y": np.zeros(4, np.uint32), "a": 1, "n": -1}, ["dim 'n' is a whole number"]),
]


@pytest.mark.parametrize(("arguments", "needles"), PROBLEMS)
def test_every_mismatch_is_reported_at_once(device: Device, arguments: dict[str, Any], needles: list[str]) -> None:
    pipeline = device.compile_native(axpy())
    gc.collect()  # what earlier tests left for the collector is not freed between the two looks
    held = device.telemetry.bytes_allocated
    with pytest.raises(vp.BindingError) as caught:
        pipeline.dispatch(arguments)
    assert len(caught.value.problems) >= len(needles)
    for needle in needles:
        assert needle in str(caught.value)
    assert device.telemetry.bytes_allocated == held
    x, y = pair(10)
    np.testing.assert_array_equal(pipeline.dispatch({"x": x, "y": y, "a": 1})["y"], x + y)


def test_bind_refuses_host_arrays_foreign_buffers_overlap_and_freed(device: Device) -> None:
    pipeline = device.compile_native(axpy())
    x = device.upload(np.zeros(8, np.uint32))
    with pytest.raises(vp.BindingError, match="resident"):
        pipeline.bind({"x": [0] * 8, "y": x, "a": 1})
    with pytest.raises(vp.BindingError, match="overlaps"):
        pipeline.bind({"x": x[0:5], "y": x[3:8], "a": 1})
    pipeline.bind({"x": x[0:4], "y": x[4:8], "a": 1})()
    freed = device.upload(np.zeros(8, np.uint32))
    freed.free()
    freed.free()
    with pytest.raises(vp.BindingError, match="freed"):
        pipeline.bind({"x": freed, "y": x, "a": 1})
    elsewhere = vp.device("cpu" if device.kind == "reference" else "reference").upload(np.zeros(8, np.uint32))
    with pytest.raises(vp.BindingError, match="is on"):
        pipeline.bind({"x": elsewhere, "y": x, "a": 1})


def test_sizes_that_do_not_fit(device: Device) -> None:
    with vp.ProgramBuilder("sizes") as b:
        n = b.dim("n")
        x, out = b.read("x", vp.u32, n), b.write("out", vp.u32, n - 2)
        out[b.global_id(0)] = x[b.global_id(0)]
    pipeline = device.compile_native(b.program)
    np.testing.assert_array_equal(pipeline.dispatch({"x": np.arange(5, dtype=np.uint32)})["out"], [0, 1, 2])
    assert pipeline.dispatch({"x": np.zeros(2, np.uint32)})["out"].size == 0
    with pytest.raises(vp.BindingError, match="n - 2 = -1, which is negative"):
        pipeline.dispatch({"x": np.zeros(1, np.uint32)})
    with pytest.raises(vp.BindingError, match="n - 2 = 3, got 4"):
        pipeline.dispatch({"x": np.zeros(5, np.uint32), "out": np.zeros(4, np.uint32)})
    with pytest.raises(vp.BindingError, match="fewer than 2\\^32"):
        pipeline.dispatch({"x": np.lib.stride_tricks.as_strided(np.zeros(1, np.uint32), (1 << 32,), (0,))})


def test_a_grid_over_the_limit(device: Device) -> None:
    with vp.ProgramBuilder("grid", workgroup=1) as b:
        out = b.write("out", vp.u32, 1)
        b.grid(1, b.dim("n"), 1 << 31)
        out[b.global_id(2)] = 1
    pipeline = device.compile_native(b.program)
    with pytest.raises(vp.BindingError, match="the grid along"):
        pipeline.dispatch({"n": 1 << 31} if device.kind in ("cuda", "wgpu") else {"n": (1 << 32) - 1}, config=vp.DispatchConfig(grid=(1, 1, 1 << 33)))
    assert pipeline.dispatch({"n": 0}, config=vp.DispatchConfig(grid=(1, 1, 1)))["out"] == [1]


def test_an_allocation_too_large(device: Device) -> None:
    held = device.telemetry.bytes_allocated
    with pytest.raises(vp.OutOfMemory):
        device.allocate(1 << 50, vp.f32)
    with pytest.raises(vp.BindingError):
        device.allocate(-1, vp.f32)
    assert device.telemetry.bytes_allocated == held
    assert device.allocate(3, vp.f32).read().tolist() == [0, 0, 0]


def test_the_same_program_compiles_once(device: Device) -> None:
    device.trim()
    before = device.telemetry.snapshot()
    first, second = device.compile_native(axpy()), device.compile_native(axpy())
    after = device.telemetry.snapshot()
    assert first is second
    assert after["compiles"] - before["compiles"] == 1
    assert after["memory_cache_hits"] - before["memory_cache_hits"] == 1
    assert device.compile_native(axpy(), vp.CompileOptions(opt=0)) is not first


def test_counters(device: Device) -> None:
    x, y = pair(100)
    pipeline = device.compile_native(axpy())
    gc.collect()  # what earlier tests left goes now
    before = device.telemetry.snapshot()
    pipeline.dispatch({"x": x, "y": y, "a": 1})
    gc.collect()
    after = device.telemetry.snapshot()
    moved = {name: after[name] - before[name] for name in after}
    assert moved["launches"] == 1 and moved["bytes_uploaded"] == 800 and moved["bytes_downloaded"] == 400
    # Small arrays lie in memory that the GPU and the host share.
    assert moved["syncs"] >= 1 and moved["allocations"] == (0 if device.kind == "cuda" else 2) and moved["bytes_allocated"] == 0


def test_what_is_not_there_is_refused_by_name(device: Device) -> None:
    if device.kind != "cuda":
        for field, value in (("cooperative", True), ("cluster", (2, 1, 1))):
            with pytest.raises(vp.Unsupported, match=field):
                device.compile_native(axpy()).dispatch({}, config=vp.DispatchConfig(**{field: value}))
        for field in ("persistent", "indirect", "dependent", "boxes") + (("interruptible",) if device.kind != "cpu" else ()):
            with pytest.raises(vp.Unsupported, match=field):
                device.compile_native(axpy(), vp.CompileOptions(**{field: True}))
    with pytest.raises(vp.Unsupported, match=r"opt=7.*codegen='gcc'|codegen='gcc'.*opt=7"):
        vp.CompileOptions(opt=7, codegen="gcc")  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(vp.BindingError, match="max_output_bytes"):
        device.compile_native(axpy()).dispatch([*pair(10), 1], config=vp.DispatchConfig(max_output_bytes=39))


def test_an_invalid_program_is_refused_and_the_device_stays_good(device: Device) -> None:
    broken = Program.from_text("program p(n) over(n) { buffer x: u32[n] read_write\n if global_id.x < 3u32 { barrier } \n x[0] = 1 }")
    with pytest.raises(vp.ValidationError, match="V4"):
        device.compile_native(broken)
    x, y = pair(10)
    np.testing.assert_array_equal(device.compile_native(axpy()).dispatch([x, y, 1])["y"], x + y)


def test_artifacts_hold_several_targets() -> None:
    artifact = vp.compile_native(axpy(), ["compute_70", "compute_90", "wgsl", "cpu", "reference"])
    assert artifact.targets == ("compute_70", "compute_90", "wgsl", "cpu", "reference")
    x, y = pair(100)
    for name in ("cpu", "reference"):
        np.testing.assert_array_equal(vp.device(name).load(artifact).dispatch([x, y, 9])["y"], np.uint32(9) * x + y)
    with pytest.raises(vp.Unsupported, match="compile for reference"):
        vp.device("reference").load(vp.compile_native(axpy(), "cpu"))
    with pytest.raises(vp.Unsupported, match="sm_10"):
        vp.compile_native(axpy(), "sm_10")


def test_names_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert vp.device("cpu") is vp.device("cpu:0")
    for wrong in ("gpu", "cpu:x", "cpu:9999", "", "CUDA", "cpu:0:0"):
        if wrong:
            with pytest.raises(vp.DeviceUnavailable):
                vp.device(wrong)
            assert not vp.is_available(wrong)
    monkeypatch.setenv("VYRE_DEVICE", "reference")
    assert vp.device() is vp.device("reference")
    listed = vp.devices()
    assert {d.name.split(":")[0] for d in listed} == set(KINDS)
    assert all(d.description for d in listed)


def test_the_best_device_is_no_software(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VYRE_DEVICE", raising=False)
    reference = vp.device("reference")
    monkeypatch.setattr("vyre_py.drivers.registry.KINDS", ("cpu", "reference"))
    assert vp.device() is vp.device("cpu")
    monkeypatch.setattr(vp.device("cpu"), "is_software", True, raising=False)
    assert vp.device() is reference
    monkeypatch.setattr(reference, "is_software", True, raising=False)
    with pytest.raises(vp.DeviceUnavailable, match="taken by name only"):
        vp.device()


def test_close_is_quiet_in_any_order() -> None:
    from vyre_py.drivers.cpu import open_device

    own = open_device(0)
    buffer = own.upload(np.arange(4, dtype=np.uint32))
    pipeline = own.compile_native(axpy())
    own.close()
    own.close()
    with pytest.raises(vp.DeviceLost, match="closed"):
        pipeline.dispatch([*pair(4), 1])
    with pytest.raises(vp.DeviceLost):
        buffer.read()
    buffer.free()
    del buffer, pipeline, own
    gc.collect()
