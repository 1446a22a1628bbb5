"""Pipelines as functions: what a call does is what `bind` and a launch do, whatever is handed over."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import threading
from typing import Any

import numpy as np
import pytest
from axpy import TEXT_64 as AXPY
from device_kinds import open_device
from exchanged import Exchanged, exchange_table
from random_calls import SIZES, outcome
from told import TEXT as TELL

import vyre_py as vp
from vyre_py.drivers.binding import bind_arguments
from vyre_py.drivers.callable import CallEntry
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.cpu.callable import CpuCallEntry
from vyre_py.drivers.launch import plan_launch
from vyre_py.drivers.native.values import VALUE_KINDS
from vyre_py.drivers.sharing.c_callable import CCallableWords
from vyre_py.ir.text.parser import parse


class Lent:
    """An array of a library that has DLPack and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)


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
        "u": random.choice([3, 3, 3, 300]).item(), "v": -2, "k": k,
    }  # fmt: skip
    if random.integers(12) == 0 and isinstance(values["q"], np.ndarray) and values["q"].base is not None:
        values["r"] = values["q"].base[: len(values["r"])] if isinstance(values["r"], np.ndarray) else values["r"]
    for name in ("p", "k", "u"):
        if random.integers(30) == 0:
            del values[name]
    if random.integers(20) == 0:
        values["n" if random.integers(2) else "other"] = n
    return values


def _assert_planned(pipeline: Any, entry: Any, values: dict[str, Any]) -> None:
    """The native plan of arguments is the plan of their binding."""
    binding = bind_arguments(pipeline.device, pipeline.artifact.interface, values, {}, staged=False)
    plan = plan_launch(pipeline.device, pipeline.part.steps[0], binding, DispatchConfig())
    words, interface = CCallableWords.from_address(entry.c_address), pipeline.artifact.interface
    addresses = (ctypes.c_uint64 * words.address_count)(*[values[memory.name].ctypes.data for memory in interface.buffers])
    sizes = [size for memory in interface.buffers for size in values[memory.name].shape[: memory.rank]]
    sizes += [values.get(dim.name, -1) for dim in interface.dims]
    params = b"".join([binding.params[param.name] for param in interface.params])
    block, grid = (ctypes.c_char * words.block_bytes)(), (ctypes.c_int64 * 7)()
    number = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 5)(words.plan)(addresses, (ctypes.c_int64 * len(sizes))(*sizes), params, block, grid)
    assert (number, tuple(grid[:3]), tuple(grid[3:6])) == (plan.entry, plan.grid, plan.launched)
    assert plan.amounts()["elements_launched"] == grid[6] and not plan.empty
    assert bytes(block) == bytes(pipeline.device._make_launch(plan, pipeline._codes[0])._arguments.block)


def _native_calls(text: str, seed: int, count: int, slow: list[Any]) -> tuple[int, int]:
    """How many of so many random calls native code took, and how many were right; each does what a bound launch does."""
    pipeline = open_device("cpu").compile_native(parse(text))
    entry, random = pipeline.callable(), np.random.default_rng(seed)
    assert isinstance(entry, CpuCallEntry)
    native = fine = 0
    for _ in range(count):
        values = _call(random)
        other = _copied(values)
        says = outcome(lambda **given: pipeline.bind(given)(), values)
        slow.clear()
        assert outcome(entry, other) == says
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                np.testing.assert_array_equal(value, other[name])
        fine += says is None
        if not slow:
            _assert_planned(pipeline, entry, values)
            native += 1
        # Native code takes all that fits, but for grids of nothing.
        assert not slow or says is not None or pipeline.bind(values).plan.empty
        assert bool(entry.explain(**values)) == (says is not None)
    return native, fine


def test_random_calls_are_bound_launches(slow: list[Any]) -> None:
    native, fine = _native_calls(SIZES, 7, int(os.environ.get("VYRE_CALLS", "1500")), slow)
    assert native > 150 and native < fine


@pytest.mark.parametrize("name", ["f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool", "f16", "bf16"])
def test_numbers_are_bound_as_bind_does(name: str, slow: list[Any]) -> None:
    """Every edge value of every type: native code takes Python's own numbers that fit, and the rest says what `bind` says."""
    text = f"program one(n) workgroup(1) over(1) {{\n param a: {name}\n buffer out: {name}[n] read_write\n out[0u32] = a\n}}"
    pipeline = open_device("cpu").compile_native(parse(text))
    entry, type_ = pipeline.callable(), pipeline.artifact.interface.params[0].type
    edges = [0, 1, -1, *[(1 << bits) + by for bits in (7, 8, 15, 16, 31, 32, 63, 64) for by in (-1, 0, 1)]]
    values = [*edges, *[-edge for edge in edges], True, False, 0.0, -0.0, 2.5, 1e39, 1e-46, 3.4028236e38, float("inf"), float("nan"), "x", None, 1j]
    values += [np.float32(1.5), np.float64(2.5), np.int8(-3), np.uint64(1 << 63), np.float32("nan"), np.bool_(True)]
    native = 0
    for value in values:
        out, other = np.zeros(1, type_.dtype), np.zeros(1, type_.dtype)
        says = outcome(lambda **given: pipeline.bind(given)(), {"a": value, "out": out})
        slow.clear()
        assert outcome(entry, {"a": value, "out": other}) == says
        assert out.tobytes() == other.tobytes(), value
        native += not slow
    assert (native > 1) == (name in VALUE_KINDS)


@pytest.mark.parametrize("name", ["f32", "f64", "f16"])
def test_whole_numbers_of_floats_are_taken_where_they_are_exact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"program one(n) workgroup(1) over(1) {{\n param a: {name}\n buffer out: {name}[n] read_write\n out[0u32] = a\n}}"
    pipeline = open_device("cpu").compile_native(parse(text))
    entry, type_, bound = pipeline.callable(), pipeline.artifact.interface.params[0].type, list[Any]()
    general = type(pipeline).bind
    monkeypatch.setattr(type(pipeline), "bind", lambda self, given, **named: bound.append(given["a"]) or general(self, given, **named))
    bits = {"f32": 24, "f64": 53, "f16": 0}[name]  # native code has no numbers of f16
    within = [sign * value for value in (0, 1, 2, 1000, (1 << bits) - 1, 1 << bits) for sign in (1, -1)] if bits else []
    beyond = [sign * value for value in ((1 << bits) + 1, (1 << 70) + 1, 10**30) for sign in (1, -1)]
    for value in within + beyond:
        out, other = np.zeros(1, type_.dtype), np.zeros(1, type_.dtype)
        bound.clear()
        entry(out, value)
        assert bound == ([] if value in within else [value])
        general(pipeline, {"out": other, "a": value})()
        assert out.tobytes() == other.tobytes(), value
    for wrong, words in ((True, "a bool is not a valid"), ("2", "'2' is not a number")):
        with pytest.raises(vp.BindingError, match=words):
            entry(out, wrong)


def test_calls_that_bind_makes_use_plans_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    entry, planned = open_device("cpu").compile_native(parse(AXPY)).callable(), list[Any]()
    general = entry.pipeline._launch
    monkeypatch.setattr(type(entry.pipeline), "_launch", lambda self, *given: planned.append(given) or general(*given))
    x, y = np.arange(5, dtype=np.float32), np.ones(5, np.float32)
    for _ in range(3):
        entry(Lent(x), y, 2.0)
    assert len(planned) == 1 and y.tolist() == [1, 7, 13, 19, 25]


def test_names_that_are_only_equal_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "program one(n) workgroup(64) over(n) {\n buffer source: f32[n] read\n buffer target: f32[n] write\n target[global_id.x] = source[global_id.x]\n}"
    pipeline = open_device("cpu").compile_native(parse(text))
    entry, x, y = pipeline.callable(), np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    monkeypatch.setattr(type(pipeline), "bind", None)  # the way that takes long
    entry(**{"".join(["sour", "ce"]): x, "".join(["tar", "get"]): y})
    np.testing.assert_array_equal(x, y)


def test_outputs_that_are_left_out_are_made() -> None:
    device = open_device("cpu")
    text = """program both(n) workgroup(64) {
      param a: f32
      buffer x: f32[n] read
      buffer y: f32x2[n] write
      buffer z: u8[n] write
      let i = global_id.x
      if i > 0 { y[i] = vec2(a * x[i], x[i]) }
      z[i] = 7u8
    }"""
    entry, x = device.compile_native(parse(text)).callable(), np.arange(5, dtype=np.float32)
    y, z = entry(x, a=2.0)
    np.testing.assert_array_equal(y, np.stack([2 * x, x], axis=1))
    assert z.tolist() == [7] * 5 and y.shape == (5, 2) and y.dtype == np.float32
    mine = np.zeros(5, np.uint8)
    np.testing.assert_array_equal(entry(x, None, mine, 1.0), np.stack([x, x], axis=1))
    assert mine.tolist() == [7] * 5 and entry(x, y, z, 3.0) is None
    resident = entry(device.upload(x), a=2.0, z=None)
    assert isinstance(resident[0], vp.Buffer) and isinstance(resident[1], vp.Buffer)
    np.testing.assert_array_equal(resident[0].read(), 2 * np.stack([x, x / 2], axis=1))
    with pytest.raises(vp.BindingError, match=r"param 'a' .* is missing"):
        entry(x)
    with pytest.raises(vp.BindingError, match=r"'x' .* is missing"):
        entry(a=1.0)


COPY = "program copied(n) {\n buffer x: f32[n] read\n buffer z: f32[n] write\n z[global_id.x] = x[global_id.x]\n}"


def test_outputs_are_made_beside_whatever_bind_takes() -> None:
    entry, x = open_device("cpu").compile_native(parse(COPY)).callable(), np.arange(5, dtype=np.float32)
    for given in (x, Lent(x), memoryview(x), open_device("cpu").upload(x), x.view(np.matrix).A1, np.array(4, np.float32)):
        z = entry(given)
        got = z.read() if isinstance(z, vp.Buffer) else z
        assert got.tolist() == (x.tolist() if got.size > 1 else [4])


@pytest.mark.parametrize("kind", ["cpu", "reference"])
def test_outputs_that_are_left_out_change_no_words(kind: str) -> None:
    device = open_device(kind)
    pipeline = device.compile_native(parse(COPY))
    entry, freed, n = pipeline.callable(), device.upload(np.ones(4, np.float32)), 4
    freed.free()
    resident = device.upload(np.ones(n, np.float32))
    odd = [
        np.ones(n), np.ones(2 * n, np.float32)[::2], np.ma.masked_array(np.ones(n, np.float32)), np.ones(n, np.complex64), np.ones(n, object), [1.0] * n, None,
        3.0, "x", freed, device.upload(np.ones(n)), Lent(np.ones(n)), open_device("reference" if kind == "cpu" else "cpu").upload(np.ones(n, np.float32)),
    ]  # fmt: skip
    odd += [np.ones(n, np.float32), memoryview(np.ones(n, np.float32))] if kind == "reference" else []
    for x in odd:
        says = outcome(pipeline.bind, {"x": x, "z": resident})
        assert says is not None and outcome(entry, {"x": x}) == says and "'z'" not in says[1]
    assert outcome(entry, {"x": resident, "n": 5}) == outcome(pipeline.bind, {"x": resident, "n": 5, "z": device.upload(np.ones(5, np.float32))})


def test_a_stream_is_for_devices_that_have_them() -> None:
    device = open_device("cpu")
    entry = device.compile_native(parse(AXPY)).callable()
    x, y = np.ones(5, np.float32), np.ones(5, np.float32)
    entry(x, y, 1.0, stream=None)
    with pytest.raises(vp.Unsupported, match="dispatch option stream"):
        entry(x, y, 1.0, stream=3)
    assert y.tolist() == [2] * 5
    own = device.compile_native(parse(AXPY.replace("param a", "param stream").replace("a *", "stream *"))).callable()
    own(x, y, stream=2.0)
    assert y.tolist() == [4] * 5


def test_arrays_of_other_libraries_are_taken_by_their_table(slow: list[Any]) -> None:
    device = open_device("cpu")
    entry = device.compile_native(parse(AXPY)).callable()
    kind = type("Kind", (Exchanged,), {"__dlpack_c_exchange_api__": exchange_table(1)})
    y = kind(np.ones(6, np.float32))
    entry(kind(np.arange(6, dtype=np.float32)), y, 2.0)
    assert len(slow) == 1 and y.array.tolist() == [1, 3, 5, 7, 9, 11]  # the type was learned
    for taken in (kind(np.ones(6, np.float32)), kind(np.ones(6, np.float32), [1]), kind(np.ones(7, np.float32), begin=4, data=0)):
        taken.shape[0] = 6
        if taken.words[:8] == bytes(8):
            taken.words = struct.pack("<Q", taken.array.ctypes.data) + taken.words[8:]
        entry(taken, y, 1.0)
    assert len(slow) == 1 and y.array.tolist() == [4, 6, 8, 10, 12, 14]
    ones = np.ones(6, np.float32)
    for odd in (
        kind(ones, [2]), kind(ones, place=2), kind(ones, place=1 | 1 << 32), kind(ones, element=0 | 32 << 8 | 1 << 16),
        kind(ones, element=2 | 32 << 8 | 2 << 16), kind(ones, axes=2), kind(ones, axes=0),
    ):  # fmt: skip
        before = len(slow)
        entry(odd, y, 1.0)  # through `__dlpack__`, which tells the truth
        assert len(slow) == before + 1
    wants = kind(ones)
    wants.requires_grad = True
    before = len(slow)
    entry(wants, y, 1.0)
    assert len(slow) == before + 1


def test_a_call_on_the_cpu_raises_what_it_told(capsys: pytest.CaptureFixture[str]) -> None:
    device = open_device("cpu")
    entry = device.compile_native(parse(TELL)).callable()
    x, y = np.array([1, 9, 7], np.uint32), np.zeros(3, np.uint32)
    for call in (lambda: entry(x, y), lambda: entry(x)):
        with pytest.raises(vp.KernelAssertion, match=r"x\[2\] is 7"):
            call()
        assert capsys.readouterr().out == "nine at 1\n"
    device.synchronize()  # nothing is told twice
    assert y.tolist() == [2, 10, 8] and entry(x[:2]).tolist() == [2, 10] and capsys.readouterr().out == "nine at 1\n"


@pytest.mark.parametrize("kind", ["cpu", "reference"])
def test_a_name_may_be_self(kind: str) -> None:
    device = open_device(kind)
    entry = device.compile_native(parse(AXPY.replace("param a", "param self").replace("a *", "self *"))).callable()
    x, y = device.upload(np.ones(3, np.float32)), device.upload(np.ones(3, np.float32))
    entry(x=x, y=y, self=2.0)
    entry(x, y, self=np.float32(2))
    assert y.read().tolist() == [5] * 3 and bool(entry.explain(x=x, y=y, self=2.0)) == (kind == "reference")


def test_tables_of_other_versions_are_left_alone(slow: list[Any]) -> None:
    entry = open_device("cpu").compile_native(parse(AXPY)).callable()
    kind, y = type("Later", (Exchanged,), {"__dlpack_c_exchange_api__": exchange_table(2)}), np.ones(3, np.float32)
    for _ in range(2):
        entry(kind(np.ones(3, np.float32)), y, 1.0)
    assert len(slow) == 2 and y.tolist() == [3] * 3
    assert entry.explain(kind(np.ones(3, np.float32)), y, 1.0) == ["'x' is a Later, which is no array that native code knows"]


def test_a_call_says_why_it_is_slow() -> None:
    device = open_device("cpu")
    entry = device.compile_native(parse(AXPY)).callable()
    x, y = np.ones(5, np.float32), np.ones(5, np.float32)
    assert entry.explain(x, y, 1.0) == [] and entry.explain(device.upload(x), y, a=1.0) == []
    assert entry.explain(x[::2], y, 1.0) == ["'x' is not C-contiguous"]
    assert entry.explain(x.astype(np.float64), y, 1.0) == ["'x' has dtype float64, not float32"]
    assert entry.explain(x.astype(">f4")[::2], y, 1.0) == ["'x' has dtype >f4, not float32, and is not C-contiguous"]
    assert entry.explain(x, y, "1") == ["param 'a' (f32): '1' is not a number"]
    assert entry.explain(x, y, None) == ["param 'a' (f32): None is not a number"]
    assert entry.explain(x, y) == ["param 'a' (f32) is missing"]
    assert entry.explain(y=y, a=1.0) == ["'x' is missing"]
    assert entry.explain(x, y, np.float64(0.1)) == ["param 'a' (f32) is a float64, which Python converts"]
    assert entry.explain(x, y, 2) == [] and entry.explain(x, y, (1 << 24) + 1) == ["param 'a' (f32) is an int, which Python converts"]
    outputs = device.compile_native(parse(COPY)).callable()
    assert outputs.explain(x) == outputs.explain(x, None) == ["'z' is left out"]
    assert entry.explain(memoryview(x), y, 1.0) == ["'x' is a memoryview, which is no array that native code knows"]
    assert entry.explain(x, y[1:], 1.0) == ["dim 'n' is 5 from axis 0 of 'x', but axis 0 of 'y' has 4"]
    with vp.trace():
        assert entry.explain(x, y, 1.0) == ["the device: observed"]
    assert "no native code" in open_device("reference").compile_native(parse(AXPY)).callable().explain(x, y, 1.0)[0]


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


def test_calls_keep_and_leak_nothing() -> None:
    """Of arguments, of the memory behind Buffers, and of what a call of either way makes."""
    device = open_device("cpu")
    entry = device.compile_native(parse(AXPY)).callable()
    x, y = device.upload(np.ones(5, np.float32), vp.f32), np.ones(5, np.float32)
    entry(x, y, 1.0)
    memory, large = x.handle.bytes, np.ones(1 << 17, np.float32)
    held = [x, y, memory, large, x._record, entry, 0.5]
    before = [sys.getrefcount(thing) for thing in held]
    for _ in range(200):
        entry(x, y, 1.0)
        with pytest.raises(vp.BindingError):
            entry(x, y[1:], 1.0)
        with pytest.raises(vp.BindingError):
            entry(x, y, "no")
    entry(np.ones_like(large), large, 0.5)  # in several threads, by `_rest`
    assert [sys.getrefcount(thing) for thing in held] == before


def test_a_buffer_may_be_freed_while_others_call() -> None:
    """A call holds its memory, so that it ends over what it began with; the next is refused."""
    device = open_device("cpu")
    entry = device.compile_native(parse(AXPY)).callable()
    for _ in range(40):
        x, y = device.upload(np.ones(4000, np.float32), vp.f32), np.zeros(4000, np.float32)
        begun, told = threading.Event(), list[str]()

        def calls(x: Any = x, y: Any = y, begun: Any = begun, told: Any = told) -> None:
            try:
                while True:
                    entry(x, y, 1.0)
                    begun.set()
            except vp.BindingError as error:
                told.append(str(error))

        thread = threading.Thread(target=calls)
        thread.start()
        begun.wait(60)
        x.free()
        thread.join(60)
        assert "'x' was freed" in told[0] and len(set(y.tolist())) == 1
