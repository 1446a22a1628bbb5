"""Accesses far outside of buffers that lie in larger ones, with canaries on both sides: loads give zero, stores and atomics are dropped, on every device."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from device_kinds import KINDS, open_device

from vyre_py.drivers.device import Device
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import SCALARS, Type, bool_

ROWS, COLUMNS, BEFORE, AFTER = 5, 7, 13, 29  # the buffer begins and ends within words
COUNT = ROWS * COLUMNS
NEAR = (
    -(1 << 31), 1 - (1 << 31), -65536, -COUNT, -8, -7, -1, 0, 1, 4, 5, 6, 7, 8, COUNT - 1, COUNT, COUNT + 1, 65535, 65536, 1 << 30, (1 << 31) - 2,
    (1 << 31) - 1,
)  # fmt: skip
FACTORS = (1, 2, 3, 7, 65536, 0x55555556, -1, -(1 << 31))

FLAT = """program flat(m) over(m) {{
  buffer i: {index}[m] read
  buffer k: {index}[m] read
  buffer x: {type}[{count}] read
  buffer y: {type}[{count}] read_write
  buffer got: {type}[m] write
  let at = i[global_id.x] * k[global_id.x]
  got[global_id.x] = x[at]
  if global_id.x < m {{ y[at] = x[0u32] }}
}}"""
GRID = """program grid(m) over(m) {{
  buffer i: {index}[m] read
  buffer k: {index}[m] read
  buffer x: {type}[{rows}, {columns}] read
  buffer y: {type}[{rows}, {columns}] read_write
  buffer got: {type}[m] write
  got[global_id.x] = x[i[global_id.x], k[global_id.x]]
  if global_id.x < m {{ y[i[global_id.x], k[global_id.x]] = x[0u32, 0u32] }}
}}"""
ATOMIC = """program counted(m) over(m) {{
  buffer i: {index}[m] read
  buffer k: {index}[m] read
  buffer y: {type}[{count}] read_write
  if global_id.x < m {{ atomic_add(y[i[global_id.x] * k[global_id.x]], 1{type}) }}
}}"""


@pytest.fixture(scope="module", params=KINDS)
def device(request: pytest.FixtureRequest) -> Device:
    return open_device(request.param)


def cases(index: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Indices and factors, or rows and columns: some 170 pairs."""
    i, k = (np.array(values, np.int64).astype(index.replace("i", "int").replace("u", "uint")) for values in zip(*product(NEAR, FACTORS), strict=True))
    return i, k


def some(type_: Type, count: int) -> np.ndarray[Any, Any]:
    """Values other than zero."""
    if type_ is bool_:
        return np.ones(count, np.bool_)
    return (1 + np.arange(count) % 100).astype(type_.dtype)


class Guarded:
    """An array in the middle of a larger buffer of the device: `part`, with canaries before and after it."""

    def __init__(self, device: Device, array: np.ndarray[Any, Any]) -> None:
        self.held = np.concatenate([some_of(array.dtype, BEFORE), array, some_of(array.dtype, AFTER)])
        self.whole = device.upload(self.held)
        self.part = self.whole[BEFORE : BEFORE + array.size]

    def read(self) -> np.ndarray[Any, Any]:
        """What the part holds now. Nothing around it has changed."""
        now, before = bits(self.whole.read()), bits(self.held)
        for side in (slice(None, BEFORE), slice(-AFTER, None)):
            np.testing.assert_array_equal(now[side], before[side])
        return now[BEFORE:-AFTER]


def bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.view(f"u{array.dtype.itemsize}")


def some_of(dtype: Any, count: int) -> np.ndarray[Any, Any]:
    return np.ones(count, dtype) if dtype == np.bool_ else np.full(count, 77).astype(dtype)


def supported(device: Device, type_: Type) -> bool:
    return type_.name != "f64" or device.kind != "wgpu" or device.target.has_f64


@pytest.mark.parametrize("index", ["i32", "u32"])
def test_nothing_outside_is_read_or_written(device: Device, index: str) -> None:
    """Of every type: some 5,000 accesses in all."""
    i, k = cases(index)
    with np.errstate(over="ignore"):
        flat = i * k
    inside = {"flat": (flat >= 0) & (flat < COUNT), "grid": (i >= 0) & (i < ROWS) & (k >= 0) & (k < COLUMNS)}
    place = {"flat": flat, "grid": i * COLUMNS + k}
    for type_ in [t for t in SCALARS.values() if supported(device, t)]:
        for name, text in (("flat", FLAT), ("grid", GRID)):
            values = some(type_, COUNT)
            x, y = Guarded(device, values), Guarded(device, values[::-1].copy())
            shape = (COUNT,) if name == "flat" else (ROWS, COLUMNS)
            program = Program.from_text(text.format(index=index, type=type_.name, count=COUNT, rows=ROWS, columns=COLUMNS))
            got = device.allocate(i.size, type_)
            arguments = {"i": device.upload(i), "k": device.upload(k), "x": x.part.reshape(shape), "y": y.part.reshape(shape), "got": got}
            device.compile_native(program).bind(arguments)()
            at = np.where(inside[name], place[name], 0).astype(np.int64)
            want = np.where(inside[name], bits(values)[at], 0)
            np.testing.assert_array_equal(bits(got.read()), want, err_msg=f"{type_} {name}")
            np.testing.assert_array_equal(x.read(), bits(values))
            stored = bits(values[::-1].copy())
            stored[at[inside[name]]] = bits(values)[0]
            np.testing.assert_array_equal(y.read(), stored, err_msg=f"{type_} {name}")


@pytest.mark.parametrize("index", ["i32", "u32"])
def test_nothing_outside_is_counted(device: Device, index: str) -> None:
    i, k = cases(index)
    with np.errstate(over="ignore"):
        flat = i * k
    inside = flat[(flat >= 0) & (flat < COUNT)].astype(np.int64)
    for name in ("u32", "i32"):
        y = Guarded(device, np.zeros(COUNT, SCALARS[name].dtype))
        program = Program.from_text(ATOMIC.format(index=index, type=name, count=COUNT))
        device.compile_native(program).bind(i=device.upload(i), k=device.upload(k), y=y.part)()
        np.testing.assert_array_equal(y.read(), np.bincount(inside, minlength=COUNT))
