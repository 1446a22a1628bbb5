"""Wrong calls of every kind: each is refused by an error of ours that names what is wrong, nothing is lost, and the device is good after."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from device_kinds import KINDS, open_device

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.drivers.errors import BindingError, DeviceLost, DeviceUnavailable, OutOfMemory
from vyre_py.ir.language.dims import Dim, DimConst, DimExpr, DimOp, Grid
from vyre_py.ir.language.errors import ParseError, ValidationError, VyreError, WireError, shown
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import encode
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.target import parse_target

TEXT = """
program add(n) workgroup(64) {
  param a: u32
  buffer x: u32[n] read
  buffer y: u32[n] read_write
  let i = global_id.x
  y[i] = a * x[i] + y[i]
}
"""
HUGE = 10**5000  # Python refuses to print it
XS = np.arange(100, dtype=np.uint32)


def brief(value: object) -> str:
    """A parameter's name in pytest's report; the same in every process, so without addresses."""
    return "".join(c for c in shown(value).partition(" at 0x")[0][:24] if c.isprintable())


class Liar(np.ndarray[Any, Any]):
    """A subclass that says the wrong things of itself."""

    @property
    def shape(self) -> Any:
        return (7,)

    @shape.setter
    def shape(self, value: Any) -> None:
        raise AttributeError

    def __setitem__(self, key: Any, value: Any) -> None:
        raise AttributeError

    def __array__(self, *arguments: Any, **named: Any) -> Any:
        return "no array"


class Broken:
    """Something whose `__array__` fails, or gives no array."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if isinstance(self.given, Exception):
            raise self.given
        return self.given


NOTHING: list[Any] = [3, 1.5, "text", [1], np.float64(2), XS, object(), np.array(None), HUGE, b"", True]


@pytest.fixture(params=KINDS)
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    opened = open_device(request.param)
    gc.collect()  # what earlier tests have left would be given back in the middle of this one
    before = opened.telemetry.bytes_allocated
    yield opened
    assert opened.telemetry.bytes_allocated == before
    out = opened.compile_native(Program.from_text(TEXT)).dispatch({"x": XS, "y": XS, "a": 3})["y"]
    assert np.array_equal(out, XS * np.uint32(4))


@contextmanager
def refused(kind: type[VyreError]) -> Iterator[None]:
    """Fails unless the block raises just this class."""
    with pytest.raises(kind) as caught:
        yield
    assert caught.type is kind, caught.value


def test_no_such_argument_of_a_call(device: Device) -> None:
    program = Program.from_text(TEXT)
    pipeline = device.compile_native(program)
    good = {"x": XS, "y": XS, "a": 3}
    x, y = device.upload(XS), device.upload(XS)
    launch = pipeline.bind({"x": x, "y": y, "a": 3})
    for thing in NOTHING:
        with refused(WireError if isinstance(thing, bytes) else ValidationError):
            device.compile_native(thing)
        with refused(Unsupported):
            device.compile_native(program, thing)
        with refused(Unsupported):
            vp.compile_native(program, ["reference"], thing)
        with refused(Unsupported):
            device.load(thing)
        with refused(Unsupported):
            pipeline.dispatch(good, config=thing)
        with refused(Unsupported):
            pipeline.bind(launch.plan.buffers, config=thing)
        with refused(BindingError):
            pipeline.dispatch(good, out=thing)
        with refused(BindingError):
            pipeline.dispatch(thing)
        with refused(BindingError):
            launch.set(thing)
        with refused(BindingError):
            device.download(thing)
        with refused(BindingError):
            x.copy_from(thing)
        with refused(BindingError):
            x.overlaps(thing)
        with refused(BindingError):
            device.allocate(4, thing)
        with refused(BindingError):
            device.upload(XS, thing)
        if thing is not XS:
            with refused(BindingError):
                x.read(thing)
    launch.set({"a": 5})()
    assert np.array_equal(y.read(), XS * np.uint32(6))
    x.free()
    y.free()


@pytest.mark.parametrize(
    "value", [HUGE, -HUGE, "3", None, 1j, [1], XS, np.array("q"), object(), b"1", vp.const(1, vp.u32), float("inf"), -1, 1 << 32], ids=brief
)
def test_values_of_params_and_dims(device: Device, value: Any) -> None:
    pipeline = device.compile_native(Program.from_text(TEXT))
    with refused(BindingError):
        pipeline.dispatch({"x": XS, "y": XS, "a": value})
    with refused(BindingError):
        pipeline.dispatch({"x": XS, "y": XS, "a": 3, "n": value})


@pytest.mark.parametrize(
    "given",
    [
        Broken(3), Broken("x"), Broken(ValueError("v")), Broken(AttributeError("a")), Broken(BufferError("b")),
        (k for k in range(3)), {1, 2}, [[1], [1, 2]], XS.astype(np.clongdouble),
        np.ma.array(XS, mask=XS > 3),
    ],
    ids=brief,
)
def test_what_is_no_array(device: Device, given: Any) -> None:
    pipeline = device.compile_native(Program.from_text(TEXT))
    with refused(BindingError):
        pipeline.dispatch({"x": given, "y": XS, "a": 3})
    with refused(BindingError):
        device.upload(given)


def test_subclasses_of_arrays_are_the_arrays_below_them(device: Device) -> None:
    pipeline = device.compile_native(Program.from_text(TEXT))
    out = np.zeros(100, np.uint32).view(Liar)
    given = pipeline.dispatch({"x": XS.view(Liar), "y": XS, "a": 3}, out={"y": out})["y"]
    assert given is out and np.array_equal(np.asarray(out), XS * np.uint32(4))


@pytest.mark.parametrize(
    "shape", [None, 1.5, "ab", (), (1.0,), (-1,), (0, 1 << 63), (1,) * 70, (0,) * 65, [[1]], XS, (HUGE, -1)], ids=brief
)
def test_shapes(device: Device, shape: Any) -> None:
    with refused(BindingError):
        device.allocate(shape, vp.u32)
    buffer = device.upload(XS)
    if not (isinstance(shape, tuple) and shape == (-1,)):  # which is as many as there are
        with refused(BindingError):
            buffer.reshape(shape)
    buffer.free()


def test_sizes_past_any_memory(device: Device) -> None:
    for shape in ((HUGE,), (1 << 70,), (1 << 31, 1 << 31)):
        with refused(OutOfMemory):
            device.allocate(shape, vp.u32)


def test_ranges_of_narrow_numbers_and_of_none(device: Device) -> None:
    wide = device.upload(np.arange(20_000, dtype=np.uint32).reshape(200, 100))
    assert wide[np.uint8(199) :].read().tolist() == [list(range(19_900, 20_000))]
    assert wide.reshape(np.uint8(200), np.int8(100)).shape == (200, 100)
    for range_ in (slice("a", None), slice(0.5, 1.5), slice(None, None, XS), slice(HUGE, None), slice(None, XS), slice(-1, None)):
        with refused(BindingError):
            wide[range_]
    wide.free()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("label", 3), ("grid", (1, 2)), ("grid", (-1, 1, 1)), ("grid", 5), ("grid", "abc"), ("grid", ("a", 1, 1)), ("grid", XS), ("grid", (1.5, 1, 1)),
        ("grid", (True, 1, 1)), ("fixpoint", 3), ("cooperative", "yes"), ("timeout", "soon"), ("timeout", XS), ("timeout", float("nan")),
        ("max_output_bytes", "x"), ("max_output_bytes", -1), ("stream", 5), ("stream", XS),
        ("fixpoint_limit", 0), ("fixpoint_limit", XS), ("cluster", 2), ("cluster", (0, 1, 1)), ("cluster", XS),
    ],
    ids=brief,
)
def test_fields_of_a_config(field: str, value: Any) -> None:
    with pytest.raises(Unsupported, match=field):
        vp.DispatchConfig(**{field: value})


@pytest.mark.parametrize("field", ["workgroup", "numerics", "codegen", "opt", "debug", "interruptible", "persistent", "indirect", "dependent", "boxes"])
@pytest.mark.parametrize("value", [XS, "x", (1, 2), object(), HUGE], ids=brief)
def test_fields_of_options(field: str, value: Any) -> None:
    with pytest.raises(Unsupported, match=field):
        vp.CompileOptions(**{field: value})


def test_grids_that_no_device_can_run(device: Device) -> None:
    pipeline = device.compile_native(Program.from_text("program p(n, m) workgroup(4) over(n - m) { buffer y: u32[n] read_write }"))
    ys = np.zeros(4, np.uint32)
    with refused(BindingError):
        pipeline.dispatch({"y": ys, "m": 5})
    for grid in ((HUGE, 1, 1), (1 << 30, 1 << 30, 1 << 30), (1, 1 << 32, 1)):
        with refused(BindingError):
            pipeline.dispatch({"y": ys, "m": 0}, config=vp.DispatchConfig(grid=grid))
    assert pipeline.dispatch({"y": ys, "m": 0}, config=vp.DispatchConfig(grid=(np.uint8(255), 1, 1)))["y"].tolist() == [0] * 4  # type: ignore[arg-type]  # NumPy's numbers will do


def test_names_of_targets_and_devices() -> None:
    for name in (3, None, XS, b"cpu", "sm_" + "9" * 5000, "sm_٧٠", "cpu:", "sm_60", "cpu:native:٨", "cpu\n"):
        with refused(Unsupported):
            parse_target(name)  # type: ignore[arg-type]  # what is wrong is the type
        with refused(DeviceUnavailable):
            vp.device(name) if name is not None else vp.device("none")  # type: ignore[arg-type]  # as above
    program = Program.from_text(TEXT)
    for targets in (3, None, np.array(None), object()):
        with refused(Unsupported):
            vp.compile_native(program, targets)  # type: ignore[arg-type]  # what is wrong is the type


@pytest.mark.parametrize("kind", ["reference", "cpu", "wgpu"])
def test_calls_after_close(kind: str) -> None:
    opened = open_device(kind)
    pipeline = opened.compile_native(Program.from_text(TEXT))
    buffer = opened.upload(XS)
    launch = pipeline.bind({"x": buffer, "y": opened.upload(XS), "a": 3})
    opened.close()
    for call in (launch, buffer.read, opened.synchronize, lambda: buffer.write(XS), lambda: pipeline.dispatch({"x": XS, "y": XS, "a": 3})):
        with refused(DeviceLost):
            call()
    buffer.free()
    opened.close()
    assert open_device(kind) is not opened


@pytest.mark.parametrize("kind", ["reference", "cpu", "wgpu"])
@pytest.mark.parametrize("ends", ["free", "close"])
def test_many_threads_use_what_another_ends(kind: str, ends: str) -> None:
    """32 threads over one launch, one buffer and one device, while the buffer is freed, and then set again, or the device closed."""
    opened = open_device(kind)
    pipeline = opened.compile_native(Program.from_text(TEXT))
    x, y = opened.upload(XS), opened.upload(XS)
    launch, begun, over = pipeline.bind({"x": x, "y": y, "a": 3}), threading.Semaphore(0), threading.Event()
    wrong: list[BaseException] = []
    refusals, owns = [0] * 32, [pipeline.bind({"x": x, "y": y, "a": 1}) for _ in range(32)]

    def work(number: int) -> None:
        calls = (launch, lambda: launch.set(a=number), y.read, lambda: y.write(XS), owns[number], opened.synchronize)
        turn, left = 0, len(calls)
        while left:
            left -= over.is_set()
            try:
                calls[(number + turn) % len(calls)]()
            except (BindingError, DeviceLost):
                refusals[number] += 1
            except BaseException as error:  # noqa: BLE001 - whatever a thread raises is the test's finding
                wrong.append(error)
                break
            turn += 1
            begun.release()
        begun.release()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for _ in threads:
        begun.acquire()
    (y.free if ends == "free" else opened.close)()  # a free takes effect when the reads of others are done
    over.set()
    for thread in threads:
        thread.join()
    with refused(BindingError if ends == "free" else DeviceLost):
        launch()
    assert not wrong and any(refusals)
    if ends == "free":
        y = opened.upload(XS)
        launch.set(y=y, a=3)()
        assert np.array_equal(y.read(), XS * np.uint32(4))
    opened.close()
    assert np.array_equal(open_device(kind).compile_native(Program.from_text(TEXT)).dispatch({"x": XS, "y": XS, "a": 3})["y"], XS * np.uint32(4))


def test_programs_without_a_digest(device: Device) -> None:
    program = Program.from_text(TEXT)
    wide: DimExpr = Dim("n")
    for _ in range(40):
        wide = DimOp("mul", wide, wide)  # 2^40 terms, of 41 objects
    for broken in (
        replace(program, grid=Grid(True, (wide, DimConst(1), DimConst(1)))),
        replace(program, memories=tuple(replace(m, shape=(wide,)) for m in program.memories)),
        replace(program, grid=None),  # type: ignore[arg-type]  # what is wrong is the type
        replace(program, memories=(1,)),  # type: ignore[arg-type]  # as above
        replace(program, body=(1, 2)),  # type: ignore[arg-type]  # as above
    ):
        with refused(ValidationError):
            device.compile_native(broken)


def test_text_that_is_none() -> None:
    for text in (3, None, b"program", XS):
        with refused(ParseError):
            Program.from_text(text)  # type: ignore[arg-type]  # what is wrong is the type


def test_whole_numbers_round_once_to_floats() -> None:
    # As an f64 this is a tie of two f32, which would go down; it lies above.
    assert encode(vp.f32, ((2**24 + 1) << 30) + 1) == int(np.float32((2**24 + 2) * 2.0**30).view(np.uint32))
    assert encode(vp.f32, -(((2**24 + 1) << 30) + 1)) == int(np.float32(-(2**24 + 2) * 2.0**30).view(np.uint32))
    for value in (0, 1, -1, 2**53, 2**53 + 1, 2**64 - 1, -(2**63)):
        assert encode(vp.f32, value) == int(np.float32(float(value)).view(np.uint32))


def test_memory_freed_by_another_thread_within_a_call() -> None:
    """Between a call's look at a buffer and its use of the memory, another thread may free it."""
    cpu = open_device("cpu")
    x, y, other = cpu.upload(XS), cpu.upload(XS), cpu.upload(XS)
    launch = cpu.compile_native(Program.from_text(TEXT)).bind({"x": x, "y": y, "a": 3})
    memory = other.handle
    other.free()
    with refused(BindingError):
        cpu._write(memory, 0, XS.view(np.uint8))
    with refused(BindingError):
        cpu._read(memory, 0, np.zeros(400, np.uint8))
    with refused(BindingError):
        cpu._copy(memory, 0, x.handle, 0, 400)
    stale: Any = SimpleNamespace(handle=memory, offset_bytes=0)
    with refused(BindingError):
        launch._put({"y": stale}, ())
    launch()
    assert np.array_equal(y.read(), XS * np.uint32(4))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("kind", ["reference", "cpu", "wgpu"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_works_or_refuses(kind: str) -> None:
    opened = open_device(kind)
    pipeline = opened.compile_native(Program.from_text(TEXT))
    buffer = opened.upload(XS)
    launch = pipeline.bind({"x": buffer, "y": opened.upload(XS), "a": 3})
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a child that waits for threads of its parent would do so forever
        status = 1
        try:
            if kind == "wgpu":
                for call in (launch, buffer.read, opened.synchronize, lambda: pipeline.dispatch({"x": XS, "y": XS, "a": 3})):
                    with refused(DeviceLost):
                        call()
                buffer.free()
                opened.close()
                with refused(DeviceUnavailable):
                    vp.device("wgpu")
                status = 0
            else:
                launch()
                status = int(not np.array_equal(pipeline.dispatch({"x": XS, "y": XS, "a": 3})["y"], XS * np.uint32(4)))
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    launch()
    assert np.array_equal(launch.plan.binding.buffers["y"].read(), XS * np.uint32(4))
