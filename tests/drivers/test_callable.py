"""Pipelines as functions: what a call does is what `bind` and a launch do, whatever is handed over."""

from __future__ import annotations

import re
import threading
from typing import Any

import numpy as np
import pytest
from device_kinds import open_device

import vyre_py as vp
from vyre_py.drivers.binding import bind_arguments
from vyre_py.drivers.callable import CallEntry
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.cpu.callable import CpuCallEntry
from vyre_py.drivers.launch import plan_launch
from vyre_py.ir.text.parser import parse

AXPY = """program axpy(n) workgroup(64) {
  param a: f32
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  let i = global_id.x
  y[i] = a * x[i] + y[i]
}"""
SIZES = """program sizes(n, m, k) workgroup(8, 4) over(m, n - 1) {
  param u: u8
  param v: i64x2
  buffer p: f32[n, m] read
  buffer q: i16x2[n - 1, max(m, k)] read_write
  buffer r: u8[ceil_div(min(n, k) * 3, 2) + 1] write
  let i = global_id.y
  let j = global_id.x
  q[i, j] = q[i, j] + vec2(cast(k, i16), cast(k, i16))
  r[j] = u + cast(n, u8)
}"""


def _copied(values: dict[str, Any]) -> dict[str, Any]:
    """The same arguments over other memory: what shares memory there does here."""
    bases: dict[int, Any] = {}

    def copied(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        base = value if value.base is None else value.base
        other = bases.setdefault(id(base), base.copy())
        if value.base is None:
            return other
        offset = value.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        view = np.ndarray(value.shape, value.dtype, other, offset, value.strides)
        view.flags.writeable = value.flags.writeable
        return view

    return {name: copied(value) for name, value in values.items()}


def _array(random: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> Any:
    """An array that mostly fits."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    kind = random.integers(16)
    if kind == 0:
        return random.integers(0, 9, shape).astype(np.float64)
    if kind == 1:
        return random.integers(0, 9, (*shape, 2)).astype(dtype)[..., 0]
    if kind == 2:
        return list(shape)
    base = np.frombuffer(random.bytes(size + 80), np.uint8).copy()
    base[:] = random.integers(0, 5, base.shape)
    offset = int(random.choice([0, 16, 4, 1, 64])) if kind < 8 else 0
    array = np.ndarray(shape, dtype, base, offset)
    array.flags.writeable = kind != 3
    return array


def _call(random: np.random.Generator) -> dict[str, Any]:
    n, m, k = (int(random.choice([0, 1, 2, 3, 7, 17])) for _ in range(3))
    off = [int(random.integers(24) == 0) for _ in range(5)]
    values = {
        "p": _array(random, np.float32, (n + off[0], m)),
        "q": _array(random, np.int16, (max(n - 1, 0) + off[1], max(m, k), 2)),
        "r": _array(random, np.uint8, ((min(n, k) * 3 + 1) // 2 + 1 + off[2],)),
        "u": random.choice([3, 3, 3, 300]), "v": (1, -2), "k": k,
    }  # fmt: skip
    if random.integers(12) == 0 and isinstance(values["q"], np.ndarray) and values["q"].base is not None:
        values["r"] = values["q"].base[: len(values["r"])] if isinstance(values["r"], np.ndarray) else values["r"]
    for name in ("p", "k", "u"):
        if random.integers(30) == 0:
            del values[name]
    if random.integers(20) == 0:
        values["n" if random.integers(2) else "other"] = n
    return values


def _outcome(run: Any, values: dict[str, Any]) -> Any:
    try:
        run(values)
    except vp.VyreError as error:
        return type(error), re.sub("0x[0-9a-f]+", "somewhere", str(error))
    return None


def test_random_calls_are_bound_launches() -> None:
    pipeline = open_device("cpu").compile_native(parse(SIZES))
    entry = pipeline.callable()
    assert isinstance(entry, CpuCallEntry)
    random, native, fine = np.random.default_rng(7), 0, 0
    for _ in range(1500):
        values = _call(random)
        other = _copied(values)
        planned = entry._plan((), dict(values))
        if planned is not None:  # with the same arrays: the block holds their addresses
            number, grid, block = planned
            binding = bind_arguments(pipeline.device, pipeline.artifact.interface, values, {}, staged=False)
            plan = plan_launch(pipeline.device, pipeline.part.steps[0], binding, DispatchConfig())
            expected = pipeline.device._make_launch(plan, pipeline._codes[0])
            assert (number, tuple(grid[:3]), tuple(grid[3:6])) == (plan.entry, plan.grid, plan.launched)
            assert bytes(block.block) == bytes(expected._arguments.block)
            assert plan.amounts()["elements_launched"] == grid[6] and not plan.empty
            native += 1
        says = _outcome(lambda v: pipeline.bind(v)(), values)
        assert _outcome(lambda v: entry(**v), other) == says
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                np.testing.assert_array_equal(value, other[name])
        fine += says is None
        # Native code takes all that fits, but for grids of nothing.
        assert planned is not None or says is not None or pipeline.bind(values).plan.empty
    assert native > 150 and native < fine < 1400


@pytest.mark.parametrize("text", [AXPY, AXPY.replace("f32", "f32x4").replace("param a: f32x4", "param a: f32").replace("a * x", "vec4(a, a, a, a) * x")])
def test_a_call_takes_arrays_and_buffers_of_any_size(text: str) -> None:
    device = open_device("cpu")
    pipeline = device.compile_native(parse(text))
    entry, lanes = pipeline.callable(), (4,) if "f32x4" in text else ()
    before = device.telemetry.snapshot()
    for count in (1, 3, 64, 1000, 70_000):
        x, y = np.arange(count * (4 if lanes else 1), dtype=np.float32).reshape(count, *lanes), np.ones((count, *lanes), np.float32)
        resident = device.upload(x, vp.f32x4 if lanes else vp.f32)
        entry(resident, y, a=2.0)
        entry(x, y, 0.5)
        np.testing.assert_array_equal(y, 2.5 * x + 1)
    counted = device.telemetry.snapshot() - before
    assert counted.launches == 10 and counted.elements_launched == 2 * (1 + 3 + 64 + 1000 + 70_000)


def test_what_needs_more_goes_the_general_way() -> None:
    device = open_device("reference")
    entry = device.compile_native(parse(AXPY)).callable()
    x = device.upload(np.ones(5, np.float32), vp.f32)
    y = device.upload(np.ones(5, np.float32), vp.f32)
    entry(x, y, a=2.0)
    assert type(entry) is CallEntry and device.download(y).tolist() == [3] * 5
    cpu = open_device("cpu").compile_native(parse(AXPY), vp.CompileOptions(interruptible=True)).callable()
    z = np.ones(5, np.float32)
    cpu(np.ones(5, np.float32), z, 2.0)
    assert type(cpu) is CallEntry and z.tolist() == [3] * 5


def test_a_call_in_a_capture_is_recorded() -> None:
    device = open_device("cpu")
    entry = device.compile_native(parse(AXPY)).callable()
    x, y = np.ones(5, np.float32), np.ones(5, np.float32)
    graph = device.capture(lambda: entry(x, y, 2.0))
    assert y.tolist() == [1] * 5
    graph()
    assert y.tolist() == [3] * 5


def test_freed_buffers_and_wrong_calls_are_refused() -> None:
    device = open_device("cpu")
    entry = device.compile_native(parse(AXPY)).callable()
    x, y = device.upload(np.ones(5, np.float32), vp.f32), np.ones(5, np.float32)
    x.free()
    with pytest.raises(vp.BindingError, match="'x' was freed"):
        entry(x, y, 2.0)
    with pytest.raises(vp.BindingError, match="'n' is a whole number from 0"):
        entry(np.ones(5, np.float32), y, 2.0, n=-1)
    with pytest.raises(vp.BindingError, match="given twice"):
        entry(y, x=y, y=y, a=2.0)
    with pytest.raises(vp.BindingError, match="4 arguments for 3 slots"):
        entry(np.ones(5, np.float32), y, 2.0, 4)
    with pytest.raises(vp.BindingError, match="'y' is written and overlaps 'x'"):
        entry(y, y, 2.0)
    assert y.tolist() == [1] * 5


def test_threads_share_an_entry() -> None:
    entry = open_device("cpu").compile_native(parse(AXPY)).callable()
    results = [np.ones(100 + number, np.float32) for number in range(4)]

    def calls(y: Any) -> None:
        x = np.ones_like(y)
        for _ in range(50):
            entry(x, y, 1.0)

    threads = [threading.Thread(target=calls, args=(y,)) for y in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((y == 51).all() for y in results)
