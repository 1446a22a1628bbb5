"""Sobol points: the low-discrepancy sequence, equal to SciPy's bit for bit.

The direction numbers are those of S. Joe and F. Y. Kuo, "Constructing Sobol sequences with better two-dimensional projections", SIAM J. Sci. Comput. 30
(2008), for 1 to 21,201 dimensions, from the table that SciPy carries. Points come in the order of I. A. Antonov and V. M. Saleev, "An economic
method of computing LP-tau sequences" (1979): point n is the exclusive or of the direction numbers that the Gray code of n selects, and differs by one
of them from the point before.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import vyre_py as vp
from vyre_py.drivers.errors import BindingError, DriverError
from vyre_py.ir.builder.program_builder import ProgramBuilder
from vyre_py.ir.extras import extra
from vyre_py.ir.imports import importing
from vyre_py.ir.language.dims import is_count
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, f32, f64, u32, u64
from vyre_py.ir.public import public
from vyre_py.ir.travel import Stationary
from vyre_py.ops.checks import device_of

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device
    from vyre_py.drivers.launch import Launch
    from vyre_py.drivers.memory.buffer import Buffer
    from vyre_py.drivers.memory.host_arrays import Host
    from vyre_py.drivers.pipeline import Pipeline

__all__ = ["MAX_DIMENSIONS", "Sobol", "direction_numbers", "sobol_program"]

MAX_DIMENSIONS: Final = 21_201
_MAX_BITS: Final = 64
_RUN: Final = 8  # points that an invocation computes, each but the first from the one before
_TABLE: Final = ("stats", "_sobol_direction_numbers.npz")

Words = np.ndarray[Any, np.dtype[Any]]


def word_type(bits: int) -> Type:
    """What holds so many bits: u32 or u64."""
    return u32 if bits <= u32.size_bytes * 8 else u64


@cache
def _table() -> tuple[Words, Words]:
    """The primitive polynomials, and the first direction numbers of each, by dimension. Raises DriverError where SciPy is not installed."""
    try:
        # SciPy's folder is found by importing it, and NumPy imports what reads the file.
        with importing, as_file(files("scipy").joinpath(*_TABLE)) as path, np.load(path, allow_pickle=False) as table:
            return table["poly"].astype(np.uint64), table["vinit"].astype(np.uint64)
    except (ImportError, OSError, KeyError) as error:
        remedy = extra("ops")
        raise DriverError("Sobol points need the table of direction numbers that SciPy 1.14 and newer carries", cause=str(error), remedy=remedy) from error


def direction_numbers(dimensions: int, bits: int = 30) -> Words:
    """The direction numbers as u32[bits, dimensions], or u64 above 32 bits: row k belongs to bit k of a point's Gray code.

    `dimensions` from 1 to 21,201, `bits` from 1 to 64. The recurrence is that of P. Bratley and B. L. Fox, "Algorithm 659" (1988), section 2, for
    all dimensions at once. Raises BindingError for other numbers, DriverError where SciPy is not installed.
    """
    _require("dimensions", dimensions, MAX_DIMENSIONS)
    _require("bits", bits, _MAX_BITS)
    polynomials, first = (rows[:dimensions] for rows in _table())
    degrees = np.frexp(polynomials.astype(np.float64))[1] - 1  # polynomials are small: an f64 holds them
    numbers = np.zeros((bits, dimensions), np.uint64)
    numbers[:, 0] = 1
    known = min(bits, first.shape[1])
    numbers[:known, 1:] = np.where(np.arange(known)[:, None] < degrees[1:], first[1:, :known].T, 0)
    for degree in sorted(set(degrees[1:].tolist())):
        columns = 1 + np.flatnonzero(degrees[1:] == degree)
        for row in range(degree, bits):
            made = numbers[row - degree, columns]
            for k in range(degree):
                has_term = (polynomials[columns] >> np.uint64(degree - 1 - k)) & np.uint64(1)
                made = made ^ has_term * (numbers[row - k - 1, columns] << np.uint64(k + 1))
            numbers[row, columns] = made
    shifts = np.arange(bits - 1, -1, -1, dtype=np.uint64)[:, None]
    return (numbers << shifts).astype(word_type(bits).dtype)


@public
def sobol_program(type_: Type = f64, bits: int = 30) -> Program:
    """points[k, d] = coordinate d of point `start` + k, a number from 0 up to 1, for any count of points and dimensions.

    Reads `directions`, what `direction_numbers` gives. A coordinate has `bits` bits, and is rounded once to `type_`: f64 holds 53 of them and f32
    24; with more, the greatest coordinates round to 1. The sequence ends before point 2^`bits`. Raises BindingError for
    a type that is neither f32 nor f64, or bits that are not from 1 to 64.
    """
    if type_ is not f32 and type_ is not f64:
        raise BindingError("sobol", [f"points are f32 or f64, got {shown(type_)}"])
    _require("bits", bits, _MAX_BITS)
    word = word_type(bits)
    with ProgramBuilder("sobol") as b:
        count, dimensions = b.dim("count"), b.dim("dimensions")
        start = b.param("start", word)
        directions = b.read("directions", word, bits, dimensions)
        points = b.write("points", type_, count, dimensions)
        b.over(vp.ceil_div(count, _RUN) * dimensions)  # on one axis, so that few dimensions fill the workgroups as well as many
        i = b.global_id(0)
        row, column = b.let("row", i // dimensions * _RUN), b.let("column", i % dimensions)
        index = b.let("index", start + vp.cast(row, word))
        gray = b.let("gray", index ^ (index >> 1))
        point = b.var("point", word)
        with b.for_(0, word.size_bytes * 8 - vp.cast(vp.clz(gray), u32), name="bit") as bit:
            chosen = (gray >> vp.cast(bit, word)) & 1
            point.set(point ^ chosen * directions[bit, column])
        with b.for_(0, _RUN, name="k") as k:
            points[row + k, column] = vp.cast(point, type_) * 2.0**-bits
            changed = vp.cast(vp.ctz(index + vp.cast(k, word) + 1), u32)
            point.set(point ^ directions[changed, column])
    return b.program


@public
class Sobol(Stationary):
    """The Sobol sequence in so many dimensions on a device: the points of `scipy.stats.qmc.Sobol(dimensions, scramble=False, bits=bits)`.

    Attributes: `device`, `dimensions`, `bits`, `type`, `pipeline`, and `directions`, a constant buffer: it is on the device before this returns, and
    launches, captured ones too, may be run any number of times. Raises what `direction_numbers` and `sobol_program` raise, and ValidationError B108
    at the caller's line for what is no device.
    """

    travels_as = "send its dimensions, type and bits, and make one there"

    __slots__ = ("bits", "device", "dimensions", "directions", "pipeline", "type")

    def __init__(self, device: Device, dimensions: int, *, type: Type = f64, bits: int = 30) -> None:  # noqa: A002 - what it is called everywhere
        device_of(device)
        numbers = direction_numbers(dimensions, bits)
        self.device = device
        self.dimensions = dimensions
        self.bits = bits
        self.type: Type = type
        self.pipeline: Pipeline = device.compile_native(sobol_program(type, bits))
        self.directions: Buffer = device.constant(numbers)

    def bind(self, points: Buffer, start: int = 0) -> Launch:
        """A launch that writes points `start`, `start` + 1 and so on to a buffer of shape [count, dimensions]; `launch.set(start=...)` goes on.

        Raises BindingError for a buffer of another shape or type, and for points past the last, 2^bits - 1.
        """
        launch = self.pipeline.bind({"points": points, "directions": self.directions, "start": start})
        self._require_points(start, points.shape[0])
        return launch

    def points(self, count: int, start: int = 0) -> Host:
        """Points `start` to `start` + `count` - 1 on the host, as `type`[count, dimensions]. Raises BindingError past the last, 2^bits - 1."""
        self._require_points(start, count)
        buffer = self.device.allocate((count, self.dimensions), self.type)
        try:
            self.bind(buffer, start)()
            return buffer.read()
        finally:
            buffer.free()

    def _require_points(self, start: Any, count: Any) -> None:
        if not is_count(start) or not is_count(count) or int(start) + int(count) > 1 << self.bits:
            raise BindingError("sobol", [f"{shown(count)} points from {shown(start)} on do not lie within the 2^{self.bits} that {self.bits} bits give"])

    def __repr__(self) -> str:
        return f"<Sobol in {self.dimensions} dimensions with {self.bits} bits as {self.type} on {self.device.name}>"


def _require(what: str, value: Any, most: int) -> None:
    if not is_count(value) or not 1 <= value <= most:
        raise BindingError("sobol", [f"{what} are a whole number from 1 to {most}, got {shown(value)}"])
