"""Fourier transforms against NumPy in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_kinds import open_device

import vyre_py as vp
from vyre_py.drivers.device import Device

Array = np.ndarray[Any, np.dtype[Any]]
POINTS = [1 << k for k in range(1, 13)]


def rows_of(points: int, rows: int = 3) -> Array:
    generator = np.random.default_rng((points, rows))
    return generator.normal(size=(rows, points, 2)).astype(np.float32)


def found(device: Device, name: str, x: Array) -> Array:
    program = getattr(vp.ops, name)(x.shape[1])
    target: Array = device.compile_native(program).dispatch({"source": x})["target"]
    return target


def numbers(x: Array) -> Array:
    return x[..., 0].astype(np.float64) + 1j * x[..., 1]


@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize("name", ["fft", "ifft"])
def test_transforms_of_every_size(name: str, points: int) -> None:
    x = rows_of(points)
    out, wanted = numbers(found(open_device("cpu"), name, x)), getattr(np.fft, name)(numbers(x), axis=-1)
    off = np.sqrt((np.abs(out - wanted) ** 2).mean() / (np.abs(wanted) ** 2).mean())
    assert off <= 2.0**-24 * np.log2(points)


@pytest.mark.parametrize("name", ["fft", "ifft"])
def test_the_same_bits_on_strict_devices(strict_device: Device, name: str) -> None:
    for points in (2, 8, 64, 256):
        x = rows_of(points, 2)
        assert np.array_equal(*[found(device, name, x).view(np.uint32) for device in (open_device("reference"), strict_device)])


@pytest.mark.parametrize("points", [16, 2048])
def test_what_fits_the_memory_of_every_device(points: int) -> None:
    x = rows_of(points)
    np.testing.assert_allclose(numbers(found(open_device("wgpu"), "fft", x)), np.fft.fft(numbers(x)), atol=2e-4)


def test_one_is_what_the_other_undoes() -> None:
    x, device = rows_of(512), open_device("cpu")
    np.testing.assert_allclose(found(device, "ifft", found(device, "fft", x)), x, atol=2e-6)


@pytest.mark.parametrize(("points", "message"), [(1, "from 2 to 4096, got 1"), (8192, "from 2 to 4096, got 8192"), (12, "is a power of two, got 12")])
def test_other_sizes_are_refused_at_the_callers_line(points: int, message: str) -> None:
    with pytest.raises(vp.ValidationError, match=message) as caught:
        vp.ops.fft(points)
    (finding,) = caught.value.diagnostics
    assert finding.code == "B108" and finding.help and finding.place is not None and finding.place.file == __file__
