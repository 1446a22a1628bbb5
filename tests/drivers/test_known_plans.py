"""Binds of shapes that were bound before: the same plans and errors as by a pipeline that knows none, and what may differ is looked at each time."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any

import numpy as np
import pytest
from axpy import TEXT_64
from device_kinds import open_device
from exchanged import Exchanged, exchange_table
from fake_device import installed
from fake_graphs import FakeGraphDriver

import vyre_py as vp
from vyre_py.drivers import pipeline
from vyre_py.drivers.cache import known_plans
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.sharing import exchange
from vyre_py.ir.text.parser import parse

AXPY = parse(TEXT_64)
KINDS = ("reference", "cpu", "cuda stand-in")


@pytest.fixture(params=KINDS)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param in ("reference", "cpu"):
        yield open_device(request.param)
        return
    installed(monkeypatch, FakeGraphDriver(total=1 << 28), lambda block: None)
    made = CudaDevice(0)
    yield made
    made.close()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The binds that were looked at closely, by name of the Program."""
    calls: list[str] = []
    general = pipeline.bind_arguments
    monkeypatch.setattr(pipeline, "bind_arguments", lambda *given, **named: calls.append(given[1].name) or general(*given, **named))
    return calls


def fresh(device: Any, program: vp.Program) -> Any:
    """A pipeline that no other test has."""
    shared = device.compile_native(program)
    return pipeline.Pipeline(device, shared.artifact, shared.part, shared._codes, shared.stages)


def unknowing(device: Any, program: vp.Program) -> Any:
    """A pipeline that knows no plans."""
    made = fresh(device, program)
    made._known = None
    return made


def said(made: Any, arguments: Any, **named: Any) -> str:
    """What a bind that is refused says."""
    with pytest.raises(vp.BindingError) as found:
        made.bind(arguments, **named)
    return str(found.value)


def buffers(device: Any, count: int = 1000) -> tuple[Any, Any]:
    return device.upload(np.arange(count, dtype=np.float32)), device.upload(np.ones(count, np.float32))


def test_a_second_bind_of_a_shape_is_known(device: Any, slow: list[str]) -> None:
    made = fresh(device, AXPY)
    pairs = [buffers(device) for _ in range(3)]
    launches = [made.bind({"x": x, "y": y, "a": float(k)}) for k, (x, y) in enumerate(pairs)]
    launches.append(made.bind(x=pairs[0][0], y=pairs[1][1], a=7.0))
    in_order = [made.bind([*buffers(device), 1.0]), made.bind(buffers(device), a=1.0), made.bind(dict(zip("xy", buffers(device), strict=True)), a=1.0)]
    assert slow == ["axpy"] and all(launch.plan.grid == launches[0].plan.grid for launch in in_order)
    made.bind([*buffers(device), 1.0], config=vp.DispatchConfig())  # looked at
    made.bind(x=buffers(device)[0], y=buffers(device)[1], a=1.0, n=1000)
    small = buffers(device, 10)
    made.bind(x=small[0], y=small[1], a=1.0)
    assert slow == ["axpy"] * 4
    made.bind(x=small[0], y=small[1], a=1.0)
    assert slow == ["axpy"] * 4
    for launch, other in itertools.combinations(launches, 2):
        assert launch.plan.binding.buffers is not other.plan.binding.buffers and launch.plan.block is not other.plan.block
    if device.kind != "cuda":  # the stand-in's kernel does nothing
        for k, ((x, y), launch) in enumerate(zip(pairs, launches, strict=False)):
            launch()
            np.testing.assert_array_equal(y.read(), k * x.read() + 1)
        launches[0].set(a=10.0)
        launches[0]()
        launches[1]()
        np.testing.assert_array_equal(pairs[0][1].read(), 10 * pairs[0][0].read() + 1)
        np.testing.assert_array_equal(pairs[1][1].read(), 2 * pairs[1][0].read() + 1)


def test_plans_are_those_of_a_pipeline_that_knows_none(device: Any, slow: list[str]) -> None:
    """Of every type of params, over memory that begins anywhere, for sizes that entries differ for."""
    names = ["bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "f64", "f32x3", "i32x2", "bf16x2", "u8x4", "f16x3"]
    values = {
        "b": [False, True, np.True_], "i": [0, -1, 7, -(2**31), 2**31 - 1, 2**63 - 1, np.int8(3)], "u": [0, 7, 2**32 - 1, 2**64 - 1, np.uint8(3)],
        "f": [0.0, -0.0, 1.5, 1e300, -1e300, 3e38, 3.4028235677973366e38, float("inf"), float("nan"), 2**53 + 1, -(2**31), 5, np.float32(2.5), np.float64(0.1)],
    }  # fmt: skip
    loads = "\n  ".join(f"param p{k}: {name}" for k, name in enumerate(names))
    program = parse(f"""program params(n) workgroup(64) {{
  {loads}
  buffer x: f32[n] read
  buffer y: f32[n] write
  y[global_id.x] = x[global_id.x] + p11 + p13.x
}}""")
    known, none = fresh(device, program), unknowing(device, program)
    memory = device.upload(np.zeros(4096, np.float32)), device.upload(np.zeros(4096, np.float32))
    random = np.random.default_rng(5)

    def value(name: str) -> Any:
        if name[-2] == "x":
            return [float(random.integers(9)) if "f" in name else int(random.integers(9)) for _ in range(int(name[-1]))]
        return values[name[0]][random.integers(len(values[name[0]]))]

    agreed = 0
    for _ in range(400):
        count, starts = int(random.choice([16, 64, 1000])), random.integers(0, 9, 2)
        given = {"x": memory[0][starts[0] : starts[0] + count], "y": memory[1][starts[1] : starts[1] + count]}
        for k, name in enumerate(names):
            plain: Any = {"i": 1, "u": 1, "f": 1.25, "b": name == "bool" or 1.25}[name[0]]
            given[f"p{k}"] = value(name) if "x" in name or random.random() < 0.1 else plain
        try:
            wanted = none.bind(given).plan
        except vp.BindingError:
            assert said(known, given) == said(none, given)
            continue
        plan, agreed = known.bind(given).plan, agreed + 1
        assert (plan.entry, plan.grid, bytes(plan.block), plan.config) == (wanted.entry, wanted.grid, bytes(wanted.block), wanted.config)
        assert plan.binding.params == wanted.binding.params and plan.binding.sizes == wanted.binding.sizes and plan.binding.shapes == wanted.binding.shapes
        assert plan.amounts() == wanted.amounts() and plan.buffers == wanted.buffers
    # One knows nothing; the other looked closely at what does not fit, which was asked twice of the first, and once at each of three shapes.
    assert agreed > 100 and slow.count("params") == 400 + 2 * (400 - agreed) + 3


def test_errors_are_those_of_a_pipeline_that_knows_none(device: Any) -> None:
    known, none = fresh(device, AXPY), unknowing(device, AXPY)
    x, y = buffers(device)
    known.bind(x=x, y=y, a=1.0)
    gone, other = buffers(device)[0], vp.device("cpu" if device.kind != "cpu" else "reference")
    gone.free()
    fits = {"x": x, "y": y, "a": 1.0}
    for wrong in (
        {"x": gone}, {"y": gone}, {"y": x}, {"y": device.constant(np.ones(1000, np.float32))}, {"x": other.upload(np.ones(1000, np.float32))},
        {"x": device.upload(np.ones(1000, np.int32))}, {"x": device.upload(np.ones(999, np.float32))}, {"x": device.upload(np.ones((10, 100), np.float32))},
        {"a": "2"}, {"a": True}, {"a": None}, {"a": [1.0]}, {"x": 3}, {"x": None}, {"b": 1.0}, {"n": 999}, {"x": np.ones(999, np.float32)},
        {"x": np.ones(2000, np.float32)[::2]}, {"x": np.ones(1000)}, {"x": np.ones(4001, np.uint8)[1:].view(np.float32)}, {"x": [1.0] * 1000},
    ):  # fmt: skip
        given: dict[str, Any] = {**fits, **wrong}
        assert said(known, given) == said(none, given) == said(known, None, **given)
    for left_out in fits:
        given = {name: value for name, value in fits.items() if name != left_out}
        for extra in ({}, {"z": 1.0}):
            assert said(known, {**given, **extra}) == said(none, {**given, **extra})
    with pytest.raises(vp.BindingError, match="given twice"):
        known.bind(fits, a=1.0)
    for odd in ([x, y, 1.0, 2.0], [x, y], (x, 1.0), "xya"):
        assert said(known, odd) == said(none, odd)
    assert said(known, [x, y], x=x) == said(none, [x, y], x=x)
    large = device.upload(np.zeros(2000, np.float32))
    known.bind(x=large[:1000], y=large[1000:], a=1.0)
    with pytest.raises(vp.BindingError, match="overlaps"):
        known.bind(x=large[:1000], y=large[999:1999], a=1.0)


def test_options_and_closed_devices_are_looked_at(slow: list[str]) -> None:
    device = open_device("cpu")
    made, (x, y) = fresh(device, AXPY), buffers(device)
    made.bind(x=x, y=y, a=1.0)
    labelled = made.bind(x=x, y=y, a=1.0, config=vp.DispatchConfig(label="mine"))
    assert labelled.plan.label == "mine" and made.bind(x=x, y=y, a=1.0).plan.label == "" and slow == ["axpy"] * 2


def test_what_is_known_keeps_no_memory(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_plans, "_KEPT", 4)
    made = fresh(device, AXPY)
    x, y = buffers(device)
    watched = [weakref.ref(buffer.allocation) for buffer in (x, y)]
    launch = made.bind(x=x, y=y, a=1.0)
    again = made.bind(x=x, y=y, a=1.0)
    del launch, again, x, y
    gc.collect()
    assert not [one for one in watched if one() is not None]
    for count in range(1, 12):
        x, y = buffers(device, count)
        made.bind(x=x, y=y, a=1.0)
    assert len(made._known._known) <= 4


def test_launches_of_one_shape_count_as_before(device: Any) -> None:
    made = fresh(device, AXPY)
    x, y = buffers(device)
    launches = [made.bind(x=x, y=y, a=1.0) for _ in range(3)]
    before = device.telemetry.snapshot()
    for launch in launches:
        launch()
    del launches, launch
    device.synchronize()
    found = device.telemetry.snapshot() - before
    assert found["launches"] == 3 and found["elements_launched"] == 3000


@pytest.mark.parametrize("worth", [0, 1 << 62])
def test_arrays_of_others_are_known_by_their_shapes(slow: list[str], worth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's, and those of a library with DLPack's exchange table, which are given back with their launches, and may not be used once freed; taken over by
    native code, and by Python."""
    monkeypatch.setattr(exchange, "_WORTH", worth)
    Exchanged.handed = 0
    device = open_device("cpu")
    made, (x, y) = fresh(device, AXPY), buffers(device)
    made.bind(x=x, y=y, a=1.0)
    kind = type("Kind", (Exchanged,), {"__dlpack_c_exchange_api__": exchange_table(1, managed=True)})
    for maker in (np.copy, lambda array: kind(array.copy())):
        one, two = maker(np.arange(1000, dtype=np.float32)), maker(np.ones(1000, np.float32))
        launch = made.bind(x=one, y=two, a=2.0)
        launch()
        np.testing.assert_array_equal(two if isinstance(two, np.ndarray) else two.array, 2 * np.arange(1000) + 1)
        assert launch.plan.buffers["x"].shape == (1000,) and slow == ["axpy"]
        launch.plan.buffers["x"].free()
        with pytest.raises(vp.BindingError, match="was freed"):
            launch()
        del launch
    assert Exchanged.handed == 2 and not Exchanged.held
    wants = kind(np.ones(1000, np.float32))
    wants.requires_grad = True
    made.bind(x=wants, y=y, a=1.0)  # by __dlpack__, which a library may refuse
    unlike = [kind(np.ones(1000, np.float32), **other) for other in ({"place": 2}, {"element": 5 | 64 << 8 | 1 << 16}, {"element": 7 | 32 << 8 | 1 << 16})]
    broken = kind(np.ones(1000, np.float32))
    broken.words = None
    for odd in (kind(np.ones(1000, np.float32), [2]), *unlike, broken):
        made.bind(x=odd, y=y, a=1.0)  # by __dlpack__ again, which tells the truth
    bound = [made.bind(x=kind(np.full(1000, 3, np.float32)), y=y, a=1.0) for _ in range(3)]
    assert len(Exchanged.held) == 3
    first = y.read()
    for launch in bound:
        launch()
    np.testing.assert_array_equal(y.read(), first + 9)
    del bound, launch
    assert slow == ["axpy"] and not Exchanged.held


def test_what_a_table_refuses_is_said_by_dlpack() -> None:
    device = open_device("cpu")
    kind = type("Kind", (Exchanged,), {"__dlpack_c_exchange_api__": exchange_table(1, managed=True), "__dlpack__": lambda self, **options: 3})
    assert device.wrap(kind(np.ones(3, np.float32))).read().tolist() == [1] * 3
    inherits = type("Inherits", (kind,), {})
    broken = kind(np.ones(3, np.float32))
    broken.words = None
    for refused in (inherits(np.ones(3, np.float32)), broken, kind(np.ones(3, np.float32), element=5 | 64 << 8 | 1 << 16)):
        with pytest.raises(vp.BindingError, match="__dlpack__ gave 3, which is not a DLPack capsule"):
            device.wrap(refused)
    assert not Exchanged.held
