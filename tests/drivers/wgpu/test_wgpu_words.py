"""Small elements on WebGPU: stores of whole words where memory begins on one, by atomics elsewhere, with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_kinds import open_device

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.ir.language.types import SCALARS, Type, bool_
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.compile import compile_for, emit_text
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target

Array = np.ndarray[Any, np.dtype[Any]]
SMALL = [t for t in SCALARS.values() if t.size_bytes < 4]
MAP = "program map(n) {{ buffer x: {t}[n] read\n buffer y: {t}[n] write\n let i = global_id.x\n y[i] = x[i] }}"
CHOSEN = """program chosen(n) {
  param least: f32
  buffer x: u8[n] read
  buffer z: f32[n] read
  buffer y: i16[n] read_write
  let i = global_id.x
  if i < n { if z[i] < least { y[i] = cast(x[i], i16) * 3i16 } else { y[i] = y[i] - 1i16 } }
}"""
ROWS = """program rows(n) {
  buffer x: u8x4[n] read
  buffer y: u8x4[n] write
  y[global_id.x] = x[global_id.x] + x[n - 1 - global_id.x]
}"""
WHOLE = Target("wgsl")


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device("wgpu")


def some(t: Type, n: int) -> Array:
    words = np.random.default_rng(n).integers(0, 2 if t is bool_ else 1 << t.bits, n)
    return words.astype(f"u{t.size_bytes}").view(t.dtype)


def bits(values: Array) -> Array:
    return values.view(f"u{values.dtype.itemsize}")


@pytest.mark.parametrize("type_", SMALL, ids=str)
def test_every_length_and_every_place(device: Device, type_: Type) -> None:
    """What is outside of the argument keeps its bits, NaNs their payloads."""
    pipeline = device.load(compile_for(parse(MAP.format(t=type_)), [WHOLE]))
    wide, plain = pipeline.part.steps[0].entries
    assert wide.elements == 4 // type_.size_bytes and plain.symbol == "main"
    for n, begin in ((1, 0), (3, 1), (1024, 0), (2050, 4), (5003, 3), (5003, 0)):
        x, y = some(type_, n + begin), some(type_, n + begin + 2)
        held, out = device.upload(x), device.upload(y)
        launch = pipeline.bind(x=held[begin:], y=out[begin : begin + n])
        launch()
        assert launch.plan.entry == int(begin * type_.size_bytes % 4 > 0)
        got = device.download(out)
        np.testing.assert_array_equal(bits(got[begin : begin + n]), bits(x[begin:]))
        np.testing.assert_array_equal(bits(got[:begin]), bits(y[:begin]))
        np.testing.assert_array_equal(bits(got[begin + n :]), bits(y[begin + n :]))


def test_stores_that_not_every_invocation_makes(device: Device) -> None:
    """Conditions that differ within a word, types of several sizes, and a condition of the Program's own."""
    pipeline, reference = (d.compile_native(parse(CHOSEN)) for d in (device, open_device("reference")))
    for n in (7, 4096, 6001):
        given = {"x": some(SCALARS["u8"], n), "y": some(SCALARS["i16"], n), "z": np.random.default_rng(n).random(n, np.float32), "least": 0.5}
        want = reference.dispatch(given)["y"]
        np.testing.assert_array_equal(pipeline.dispatch(given)["y"], want)
        bound = {name: device.upload(value) if isinstance(value, np.ndarray) else value for name, value in given.items()}
        pipeline.bind(bound)()
        np.testing.assert_array_equal(device.download(bound["y"]), want)


def test_components_of_vectors(device: Device) -> None:
    pipeline = device.compile_native(parse(ROWS))
    x = np.random.default_rng(4).integers(0, 256, (1001, 4), np.uint8)
    held = device.upload(np.concatenate([x[:1, :2].ravel(), x.ravel()]))
    for begin, given in ((0, device.upload(x.ravel())), (2, held)):
        out = device.allocate(begin + x.size, vp.u8)
        launch = pipeline.bind(x=given[begin:].view(vp.u8x4, 1001), y=out[begin:].view(vp.u8x4, 1001))
        launch()
        assert launch.plan.entry == int(begin > 0)
        np.testing.assert_array_equal(device.download(out)[begin:].reshape(-1, 4), x + x[::-1])


def test_a_launch_takes_the_entry_that_its_buffers_allow(device: Device) -> None:
    """With `set`, back and forth, in sequences and replays; a grid that is given is one of single elements."""
    pipeline, x = device.compile_native(parse(MAP.format(t="u8"))), some(SCALARS["u8"], 3000)
    held, out = device.upload(x), device.allocate(3001, vp.u8)
    launch = pipeline.bind(x=held, y=out[:3000])
    sequence = device.sequence(launch)
    graph = device.capture(launch)
    for begin in (0, 1, 0):
        launch.set(y=out[begin : begin + 3000])
        assert launch.plan.entry == begin
        for run in (launch, sequence):
            out.write(np.zeros(3001, np.uint8))
            run()
            np.testing.assert_array_equal(device.download(out)[begin : begin + 3000], x)
    out.write(np.zeros(3001, np.uint8))
    graph()
    np.testing.assert_array_equal(device.download(out)[:3000], x)
    given = pipeline.bind(x=held, y=out[:3000], config=vp.DispatchConfig(grid=(12, 1, 1)))
    assert given.plan.entry == 1
    with pytest.raises(vp.BindingError):
        launch.set(y=device.allocate(2, vp.u8))
    assert launch.plan.entry == 0


def test_the_text() -> None:
    """One store of a word instead of two atomics an element; not where optimisation is off, nor where nothing becomes a whole word."""
    text = emit_text(parse(MAP.format(t="u8")), "wgsl")
    full = text[text.index("fn main_x4") :].partition("} else {")[0]
    assert full.count("atomicStore(") == 1 and "atomicAnd" not in full and full.count("b0[") == 1
    assert "main_x" not in emit_text(parse(MAP.format(t="u8")), "wgsl", CompileOptions(opt=0)) + emit_text(parse(MAP.format(t="u32")), "wgsl")
    scattered = "program p(n) over(n) { buffer x: u32[n] read\n buffer y: u8[n] read_write\n y[x[global_id.x]] = 1u8 }"
    assert "main_x" not in emit_text(parse(scattered), "wgsl")
