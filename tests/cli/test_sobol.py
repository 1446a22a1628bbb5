"""Sobol points equal SciPy's, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_kinds import open_device

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.drivers.errors import BindingError, DriverError
from vyre_py.ops import sobol
from vyre_py.ops.sobol import MAX_DIMENSIONS, Sobol, direction_numbers, sobol_program

pytestmark = pytest.mark.filterwarnings("ignore:The balance properties of Sobol")

# dimensions, bits, points, first point: one and all dimensions, all of a short sequence, both words, runs that begin anywhere
CASES = [
    (1, 30, 64, 0), (1, 30, 1, 0), (2, 30, 100, 0), (2, 30, 33, 1), (3, 30, 50, 7), (5, 8, 256, 0), (4, 31, 17, 1023), (40, 32, 9, 4095), (100, 20, 64, 1000),
    (7, 33, 40, 5), (3, 53, 31, 64), (6, 64, 65, 3), (1111, 30, 12, 300), (MAX_DIMENSIONS, 30, 9, 0), (MAX_DIMENSIONS, 30, 3, 14), (MAX_DIMENSIONS, 64, 5, 2),
]  # fmt: skip


def scipys(dimensions: int, bits: int) -> Any:
    """SciPy's own generator."""
    from scipy.stats import qmc  # takes a second, which not every process that collects tests has to spend

    return qmc.Sobol(dimensions, scramble=False, bits=bits)


def scipy_points(dimensions: int, bits: int, count: int, start: int) -> np.ndarray:
    return scipys(dimensions, bits).random(start + count)[start:]


@pytest.mark.parametrize(("dimensions", "bits", "count", "start"), CASES)
def test_points_equal_scipys(device: Device, dimensions: int, bits: int, count: int, start: int) -> None:
    expected = scipy_points(dimensions, bits, count, start)
    if device.kind != "wgpu" or device.target.has_f64:
        points = Sobol(device, dimensions, bits=bits).points(count, start)
        assert points.dtype == np.float64 and points.shape == (count, dimensions)
        assert np.array_equal(points, expected), f"{np.count_nonzero(points != expected)} of {points.size} differ on {device.name}"
    singles = Sobol(device, dimensions, type=vp.f32, bits=bits).points(count, start)
    if device.kind == "wgpu":
        np.testing.assert_allclose(singles, expected.astype(np.float32), rtol=1e-6)  # native floats
    else:
        assert np.array_equal(singles, expected.astype(np.float32))


def test_far_points_and_the_last(strict_device: Device) -> None:
    """SciPy walks to a point; its own direction numbers give any at once."""
    for dimensions, bits, start in ((3, 30, 2**30 - 20), (5, 64, 2**64 - 20), (2, 32, 2**32 - 20), (2, 48, 2**47 - 3), (9, 30, 123_456_789)):
        numbers = scipys(dimensions, bits)._sv.astype(object)
        expected = []
        for index in range(start, start + 20):
            gray = index ^ (index >> 1)
            point = [0] * dimensions
            for bit in range(bits):
                point = [p ^ (int(numbers[d, bit]) if gray >> bit & 1 else 0) for d, p in enumerate(point)]
            expected.append([p / 2**bits for p in point])  # Python's division rounds once
        assert np.array_equal(Sobol(strict_device, dimensions, bits=bits).points(20, start), np.array(expected)), (dimensions, bits)


def test_singles_of_24_bits_are_exact_and_below_one(strict_device: Device) -> None:
    points = Sobol(strict_device, 2, type=vp.f32, bits=24).points(4096, 2**24 - 4096)
    assert points.max() < 1 and np.array_equal(points * 2.0**24, np.round(points * 2.0**24))
    last = 0x2AAAAAAA  # its Gray code has all 30 bits
    assert Sobol(strict_device, 1, type=vp.f32, bits=30).points(1, last) == 1 > Sobol(strict_device, 1).points(1, last)  # as the docstring says


@pytest.mark.parametrize("bits", [1, 5, 18, 30, 32, 33, 64])
def test_direction_numbers_equal_scipys(bits: int) -> None:
    dimensions = 2 if bits < 18 else MAX_DIMENSIONS  # SciPy's own are for as many bits as a polynomial has, at least
    expected = scipys(dimensions, bits)._sv
    numbers = direction_numbers(dimensions, bits)
    assert numbers.dtype == expected.dtype and np.array_equal(numbers, expected.T)
    assert np.array_equal(direction_numbers(dimensions, 18)[: min(bits, 18)] >> 0, direction_numbers(MAX_DIMENSIONS, 18)[: min(bits, 18), :dimensions])


def test_a_bound_launch_goes_on_where_it_is_told(device: Device) -> None:
    made = Sobol(device, 6, type=vp.f32, bits=24)
    assert "6 dimensions with 24 bits as f32" in repr(made)
    buffer = device.allocate((128, 6), vp.f32)
    launch = made.bind(buffer)
    expected = scipy_points(6, 24, 512, 0).astype(np.float32)
    for start in (0, 128, 384, 256):
        launch.set(start=start)()
        np.testing.assert_allclose(buffer.read(), expected[start : start + 128], rtol=0 if device.kind != "wgpu" else 1e-6)
    assert device.constant(direction_numbers(6, 24)) is made.directions is Sobol(device, 6, bits=24, type=vp.f32).directions
    assert made.pipeline is Sobol(device, 9, bits=24, type=vp.f32).pipeline  # dimensions are solved at bind


def test_capture_and_replay(device: Device) -> None:
    made = Sobol(device, 3, type=vp.f32)
    buffer = device.allocate((100, 3), vp.f32)
    launch = made.bind(buffer)
    graph = device.capture(launch)
    expected = scipy_points(3, 30, 300, 0).astype(np.float32)
    for start in (0, 200, 100):
        graph.set(launch, start=start)()
        np.testing.assert_allclose(buffer.read(), expected[start : start + 100], rtol=0 if device.kind != "wgpu" else 1e-6, err_msg=device.name)
    graph.close()


def test_what_there_is_not_is_refused() -> None:
    device = open_device("cpu")
    for dimensions in (0, -1, MAX_DIMENSIONS + 1, 2.0, True, "3", None):
        with pytest.raises(BindingError, match="dimensions are a whole number from 1 to 21201"):
            Sobol(device, dimensions)
    for bits in (0, 65, 30.0):
        with pytest.raises(BindingError, match="bits are a whole number from 1 to 64"):
            sobol_program(bits=bits)
    for type_ in (vp.f16, vp.u32, np.float32, vp.f32x2):
        with pytest.raises(BindingError, match="points are f32 or f64"):
            Sobol(device, 2, type=type_)
    made = Sobol(device, 2, bits=10)
    assert made.points(0).shape == (0, 2) and made.points(1024).shape == (1024, 2) and made.points(1, 1023).shape == (1, 2)
    for count, start in ((1025, 0), (1, 1024), (2, 1023), (-1, 0), (1, -1), (1.5, 0)):
        with pytest.raises(BindingError, match=r"do not lie within the 2\^10 that 10 bits give"):
            made.points(count, start)
    with pytest.raises(BindingError, match=r"do not lie within the 2\^10"):
        made.bind(device.allocate((20, 2), vp.f64), 1010)
    with pytest.raises(BindingError, match="'points' needs elements of f64"):
        made.bind(device.allocate((20, 2), vp.f32))
    with pytest.raises(BindingError, match="dim 'dimensions' is 2 from"):
        made.bind(device.allocate((20, 3), vp.f64))


@pytest.mark.parametrize("missing", [ModuleNotFoundError("No module named 'scipy'"), FileNotFoundError("no such file")])
def test_without_scipy_the_error_says_what_to_install(missing: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(name: str) -> object:
        raise missing

    monkeypatch.setattr(sobol, "files", nowhere)
    monkeypatch.setattr(sobol, "_table", sobol._table.__wrapped__)
    with pytest.raises(DriverError, match=r"(?s)SciPy 1.14 and newer.*pip install '\.\[ops\]'"):
        Sobol(open_device("cpu"), 2)
