"""Resident buffers: typed, shaped ranges of a device's memory."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.hostarray import host_array
from vyre_py.ir.types import Scalar

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["Allocation", "Buffer"]


def _give_back(device: Device, handle: Any, size_bytes: int) -> None:
    device.telemetry.bytes_allocated -= size_bytes
    device._free(handle, size_bytes)


class Allocation:
    """A piece of device memory, given back when the last buffer over it goes."""

    __slots__ = ("__weakref__", "_finalizer", "handle", "size_bytes")

    def __init__(self, device: Device, handle: Any, size_bytes: int) -> None:
        self.handle = handle
        self.size_bytes = size_bytes
        self._finalizer = weakref.finalize(self, _give_back, device, handle, size_bytes)
        self._finalizer.atexit = False  # the process gives everything back; the device may be gone by then

    @property
    def freed(self) -> bool:
        """Whether the memory was given back."""
        return not self._finalizer.alive

    def free(self) -> None:
        """Gives the memory back now; again is quiet."""
        self._finalizer()


class Buffer:
    """A C-contiguous array in a device's memory. Slicing the first axis gives a view; `free` gives the memory back early.

    Attributes: `device`, `shape`, `type`, `allocation`, `offset_bytes` within it, `size_bytes`.
    """

    __slots__ = ("allocation", "device", "offset_bytes", "shape", "size_bytes", "type")

    def __init__(self, device: Device, allocation: Allocation, offset_bytes: int, shape: tuple[int, ...], type_: Scalar) -> None:
        self.device = device
        self.allocation = allocation
        self.offset_bytes = offset_bytes
        self.shape = shape
        self.type = type_
        count = 1
        for axis in shape:
            count *= axis
        self.size_bytes = count * type_.size_bytes

    def __repr__(self) -> str:
        return f"<Buffer {self.type}{list(self.shape)} on {self.device.name}>"

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, range_: slice) -> Buffer:
        """A view of rows `start:stop`; both must lie within the buffer, and the step must be 1."""
        if not isinstance(range_, slice) or range_.step not in (None, 1):
            raise BindingError("buffer", ["only ranges start:stop of the first axis can be taken"])
        start = 0 if range_.start is None else range_.start
        stop = self.shape[0] if range_.stop is None else range_.stop
        if not 0 <= start <= stop <= self.shape[0]:
            raise BindingError("buffer", [f"rows {start}:{stop} do not lie within 0:{self.shape[0]}"])
        row = self.size_bytes // self.shape[0] if self.shape[0] else 0
        return Buffer(self.device, self.allocation, self.offset_bytes + start * row, (stop - start, *self.shape[1:]), self.type)

    def reshape(self, *shape: int) -> Buffer:
        """The same elements in another shape of the same count."""
        view = Buffer(self.device, self.allocation, self.offset_bytes, tuple(shape), self.type)
        if view.size_bytes != self.size_bytes or not shape or min(shape) < 0:
            raise BindingError("buffer", [f"shape {list(shape)} does not hold the elements of {list(self.shape)}"])
        return view

    @property
    def handle(self) -> Any:
        """The device's own handle. Raises BindingError after `free`."""
        if self.allocation.freed:
            raise BindingError("buffer", ["the buffer was freed"])
        return self.allocation.handle

    def write(self, array: Any) -> None:
        """Copies a host array of this shape and dtype in."""
        data = host_array(array, "array")
        if data.dtype != self.type.dtype or data.shape != self.shape:
            raise BindingError("write", [f"{self.type.dtype}{list(self.shape)} is needed, got {data.dtype}{list(data.shape)}"])
        handle = self.handle
        self.device._require_usable()
        if self.size_bytes:
            self.device._write(handle, self.offset_bytes, np.ascontiguousarray(data).reshape(-1).view(np.uint8))
            self.device.telemetry.bytes_uploaded += self.size_bytes

    def read(self, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """A host copy; waits for the launches before it. `out`, of this shape and dtype and any strides, is written in place."""
        if out is not None and (out.dtype != self.type.dtype or out.shape != self.shape or not out.flags.writeable):
            raise BindingError("read", [f"out must be a writeable {self.type.dtype}{list(self.shape)}, got {out.dtype}{list(out.shape)}"])
        handle = self.handle
        self.device._require_usable()
        direct = out is not None and out.flags.c_contiguous
        target = out if out is not None and direct else np.empty(self.shape, self.type.dtype)
        if self.size_bytes:
            self.device._read(handle, self.offset_bytes, target.reshape(-1).view(np.uint8))
            self.device.telemetry.bytes_downloaded += self.size_bytes
        self.device.telemetry.syncs += 1
        if out is not None and not direct:
            out[...] = target
            return out
        return target

    def copy_from(self, source: Buffer) -> None:
        """Copies another buffer of the same device, shape and type in."""
        if source.device is not self.device or source.shape != self.shape or source.type is not self.type or self.overlaps(source):
            raise BindingError("copy_from", [f"a separate {self.type}{list(self.shape)} on {self.device.name} is needed, got {source!r}"])
        self.device._require_usable()
        if self.size_bytes:
            self.device._copy(source.handle, source.offset_bytes, self.handle, self.offset_bytes, self.size_bytes)

    def overlaps(self, other: Buffer) -> bool:
        """Whether the two share any byte."""
        return (
            self.allocation is other.allocation
            and self.offset_bytes < other.offset_bytes + other.size_bytes
            and other.offset_bytes < self.offset_bytes + self.size_bytes
        )

    def free(self) -> None:
        """Gives the memory back once the launches so far are done; other views over it are then unusable, and say so."""
        self.allocation.free()
