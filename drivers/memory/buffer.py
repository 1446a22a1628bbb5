"""Resident buffers: typed, shaped ranges of a device's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.event import Event
from vyre_py.drivers.memory.encoding import encode_param
from vyre_py.drivers.memory.host_arrays import Host, components_of, host_array, no_memory, result_view
from vyre_py.drivers.memory.shapes import one_shape
from vyre_py.drivers.observe.trace import spanned
from vyre_py.ir.imports import importing
from vyre_py.ir.language.dims import is_count
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import Param
from vyre_py.ir.language.types import Type, u8
from vyre_py.ir.public import Closing, public
from vyre_py.ir.travel import Stationary

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device
    from vyre_py.drivers.memory.allocation import Allocation

__all__ = ["Buffer", "host_shape", "whole_sizes"]

# What a NumPy array can have, and thus what can be read back.
_MAX_RANK: Final = 32
_MAX_COUNT: Final = 1 << 60


def whole_sizes(shape: Any) -> tuple[int, ...] | None:
    """A shape given as one whole number or several, as Python's own; None for what is no shape."""
    given = shape if isinstance(shape, (list, tuple)) else (shape,)
    if not 1 <= len(given) <= _MAX_RANK or not all(map(is_count, given)):
        return None
    sizes = tuple(map(int, given))
    # A shape without elements may still be too large for an array.
    return None if 0 in sizes and prod(s for s in sizes if s) > _MAX_COUNT else sizes


def host_shape(shape: tuple[int, ...], type_: Type) -> tuple[int, ...]:
    """The shape of a NumPy array of so many elements of a type, the components of a vector along an axis of their own, the last."""
    return (*shape, type_.lanes) if type_.is_vector else shape


@public
class Buffer(Closing, Stationary):
    """A C-contiguous array in a device's memory. Slicing the first axis gives a view; `free` gives the memory back early.

    Attributes: `device`, `shape` in elements, `type` of an element, `allocation`, `offset_bytes` within it, `size_bytes`, `readonly` for a
    constant, and where another library owns the memory and allows no writes. DLPack (`numpy.from_dlpack(buffer)` on the CPU,
    `torch.from_dlpack(buffer)`) and, on CUDA, `__cuda_array_interface__` share the memory with other libraries.
    """

    travels_as = "send read(), a NumPy array, and upload that there"

    # `_record` is the device kind's own, made when it first looks at the buffer.
    __slots__ = ("__weakref__", "_record", "allocation", "device", "offset_bytes", "readonly", "shape", "size_bytes", "type")

    def __init__(self, device: Device, allocation: Allocation, offset_bytes: int, shape: tuple[int, ...], type_: Type, readonly: bool = False) -> None:
        self.device = device
        self.allocation = allocation
        self.offset_bytes = offset_bytes
        self.shape = shape
        self.type = type_
        self.readonly = readonly
        self.size_bytes = prod(shape) * type_.size_bytes
        self._record: Any = None

    @property
    def host_shape(self) -> tuple[int, ...]:
        """The shape of a NumPy array of the same elements: one axis more where they are vectors, the components."""
        return host_shape(self.shape, self.type)

    def __repr__(self) -> str:
        return f"<Buffer {self.type}{list(self.shape)} on {self.device.name}>"

    def _repr_html_(self) -> str:
        with importing:
            from vyre_py.drivers.observe.cards import buffer_html

        return buffer_html(self)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, range_: slice) -> Buffer:
        """A view of rows `start:stop`. Raises BindingError unless both lie within the buffer and the step is 1."""
        if not isinstance(range_, slice) or not (range_.step is None or (isinstance(range_.step, int) and range_.step == 1)):
            raise BindingError("buffer", ["only ranges start:stop of the first axis can be taken; read() gives the elements as a NumPy array"])
        rows = whole_sizes((0 if range_.start is None else range_.start, self.shape[0] if range_.stop is None else range_.stop))
        if rows is None or not rows[0] <= rows[1] <= self.shape[0]:
            raise BindingError("buffer", [f"rows {shown(range_.start)}:{shown(range_.stop)} do not lie within 0:{self.shape[0]}"])
        start, stop = rows
        row = self.size_bytes // self.shape[0] if self.shape[0] else 0
        return Buffer(self.device, self.allocation, self.offset_bytes + start * row, (stop - start, *self.shape[1:]), self.type, self.readonly)

    def reshape(self, *shape: int | Sequence[int]) -> Buffer:
        """The same elements in another shape of the same count, given as whole numbers or as one sequence of them. One may be -1: what the others leave.

        Raises BindingError for a shape of another count.
        """
        sizes = whole_sizes(given := one_shape(shape, prod(self.shape)))
        if sizes is None or prod(sizes) != prod(self.shape):
            raise BindingError("buffer", [f"shape {shown(list(given))} does not hold the elements of {list(self.shape)}"])
        return Buffer(self.device, self.allocation, self.offset_bytes, sizes, self.type, self.readonly)

    def view(self, type_: Type, *shape: int | Sequence[int]) -> Buffer:
        """The same bytes as elements of another type, in a shape given as for `reshape`; without one the last axis becomes shorter or longer, as NumPy's does.

        Raises BindingError for a shape that has not as many bytes, and where the first element would not be aligned to its size.
        """
        if not isinstance(type_, Type):
            raise BindingError("view", [f"a type of the language is needed, got {shown(type_)}"])
        row_bytes = self.shape[-1] * self.type.size_bytes
        shape = one_shape(shape, self.size_bytes // type_.size_bytes)
        sizes = whole_sizes(shape or (*self.shape[:-1], row_bytes // type_.size_bytes))
        if sizes is None or prod(sizes) * type_.size_bytes != self.size_bytes or not (shape or row_bytes % type_.size_bytes == 0):
            wanted = f"{type_}{shown(list(shape))}" if shape else f"rows of {type_}"
            raise BindingError("view", [f"{wanted} do not divide the {self.size_bytes} bytes of {self.type}{list(self.shape)}"])
        begin = (self.device._address(self.handle) or 0) + self.offset_bytes
        if begin % type_.scalar.size_bytes:
            raise BindingError("view", [f"it begins at byte {begin}, where {type_} must begin at a multiple of {type_.scalar.size_bytes}"])
        return Buffer(self.device, self.allocation, self.offset_bytes, sizes, type_, self.readonly)

    def as_bytes(self) -> Buffer:
        """The same memory as one axis of u8."""
        return Buffer(self.device, self.allocation, self.offset_bytes, (self.size_bytes,), u8, self.readonly)

    @property
    def handle(self) -> Any:
        """The device's own handle. Raises BindingError after `free`."""
        if self.allocation.freed:
            raise BindingError("buffer", [f"the buffer {self.allocation.absence}"])
        return self.allocation.handle

    @property
    def address(self) -> int:
        """Where the first byte lies on the device, for code of others. Raises Unsupported on devices without addresses, BindingError after `free`."""
        at = self.device._address(self.handle)
        if at is None:
            self.device._lacks("addresses of buffers")
        return int(at) + self.offset_bytes

    def write(self, array: Any) -> None:
        """Copies a host array of `host_shape` and the components' dtype in, or for vectors of two complex numbers of `shape`. Raises BindingError for any
        other, and after `free`; DeviceLost."""
        data = components_of(host_array(array, "array"), self.type)
        if data.dtype != self.type.dtype or data.shape != self.host_shape:
            raise BindingError("write", [f"{self.type.dtype}{list(self.host_shape)} is needed, got {data.dtype}{list(data.shape)}"])
        self._require_writeable("write")
        self._upload(data, self.device._write_array)

    @spanned("upload", lambda buffer: {"bytes": buffer.size_bytes})
    def _upload(self, data: Host, write: Callable[[Any, int, Host], None]) -> None:
        """Copies an array that fits in, by a hook of the device."""
        handle = self.handle
        self.device.require_usable()
        self.device.require_no_capture(f"a buffer on {self.device.name} cannot be written")
        if self.size_bytes:
            with self.allocation.held():
                write(handle, self.offset_bytes, data)
            self.device.telemetry.uploads += 1
            self.device.telemetry.bytes_uploaded += self.size_bytes

    @spanned("download", lambda buffer: {"bytes": buffer.size_bytes})
    def read(self, out: Host | None = None, after: Event | None = None) -> Host:
        """A host copy; waits for the launches before it. `out`, of `host_shape`, the components' dtype and any strides, or of complex numbers for vectors
        of two, is written in place.

        With an event (`device.record_event`) the copy comes `after` that, and on CUDA after nothing else: launches that were enqueued later run meanwhile,
        and must not write this memory.

        Raises BindingError for any other `out` or `after`, for an event where replays of a graph free the memory, and after `free`; OutOfMemory when the host
        has none for the result, LaunchError for an event of a capture, KernelAssertion where an assert of a launch failed, DeviceLost.
        """
        shape = self.host_shape
        view = None if out is None else result_view(out, shape, self.type)
        if out is not None and view is None:
            got = f"{out.dtype}{list(out.shape)}" if isinstance(out, np.ndarray) else type(out).__name__
            raise BindingError("read", [f"out must be a writeable {self.type.dtype}{list(shape)}, got {got}"])
        if after is not None and not isinstance(after, Event):
            raise BindingError("read", [f"after is an event (device.record_event gives one), got {shown(after)}"])
        handle = self.handle
        self.device.require_usable()
        self.device.require_no_capture(f"a buffer on {self.device.name} cannot be read")
        if after is not None and self.allocation.transient:
            raise BindingError("read", ["memory of a graph is read after all that is enqueued: pass no event, or copy it to another buffer first"])
        try:
            target = np.empty(shape, self.type.dtype) if view is None else view
        except MemoryError as error:
            raise no_memory(f"a buffer on {self.device.name} cannot be read", error) from error
        if self.size_bytes:
            with self.allocation.held():
                if after is None:
                    self.device._read_array(handle, self.offset_bytes, target)
                else:
                    self.device._read_after(handle, self.offset_bytes, target, after)
            self.device.telemetry.downloads += 1
            self.device.telemetry.bytes_downloaded += self.size_bytes
        self.device.telemetry.syncs += 1
        self.device.reports.settle()
        return target if out is None else out

    def copy_from(self, source: Buffer) -> None:
        """Copies another buffer of the same device, shape and type in. Raises BindingError for any other, and for one that overlaps."""
        fits = isinstance(source, Buffer) and source.device is self.device and source.is_like(self)
        if not fits or self.overlaps(source):
            raise BindingError("copy_from", [f"a separate {self.type}{list(self.shape)} on {self.device.name} is needed, got {shown(source)}"])
        self._require_writeable("copy_from")
        self.device.require_usable()
        if (recording := self.device._recording) is not None:
            recording.copy(source, self)
        elif self.size_bytes:
            self.device._copy(source.handle, source.offset_bytes, self.handle, self.offset_bytes, self.size_bytes)
            self.device.telemetry.copies += 1
            self.device.telemetry.bytes_copied += self.size_bytes

    def fill(self, value: Any) -> None:
        """Writes one value to all elements: a number that the type holds, as for a param; for vectors a sequence or array of components.

        Raises BindingError for any other, and after `free`.
        """
        pattern = encode_param(Param("value", self.type), value)
        handle = self.handle
        self._require_writeable("fill")
        self.device.require_usable()
        if (recording := self.device._recording) is not None:
            recording.fill(self, value, pattern)
        elif self.size_bytes:
            self.device._fill(handle, self.offset_bytes, self.size_bytes, pattern)
            self.device.telemetry.fills += 1
            self.device.telemetry.bytes_filled += self.size_bytes

    def use_on(self, stream: Any) -> None:
        """Declares that foreign code uses the memory on a stream (any object with `__cuda_stream__`). From now on reads, writes, copies, fills and frees
        are ordered with that stream. `launch.on` does so for its buffers. Raises Unsupported where there are no streams."""
        self.device.require_usable()
        if self.handle:
            self.device._use_on(self, stream)

    def is_like(self, other: Buffer) -> bool:
        """Whether both hold as many components of one scalar type, along the same axes."""
        return self.type.scalar is other.type.scalar and self.host_shape == other.host_shape

    def _require_writeable(self, doing: str) -> None:
        if self.readonly:
            raise BindingError(doing, ["this memory may only be read: it is a constant, or another library owns it and allows no writes"])

    def overlaps(self, other: Buffer) -> bool:
        """Whether the two share any byte."""
        if not isinstance(other, Buffer):
            raise BindingError("overlaps", [f"a buffer is needed, got {type(other).__name__}"])
        if other.device is not self.device or self.allocation.freed or other.allocation.freed:
            return False
        # Two allocations may be one piece of memory where another library owns it, so addresses decide where there are any.
        mine, its = self.device._address(self.handle), self.device._address(other.handle)
        if self.allocation is not other.allocation and (mine is None or its is None):
            return False
        if not (self.size_bytes and other.size_bytes):
            return False
        begin, other_begin = (mine or 0) + self.offset_bytes, (its or 0) + other.offset_bytes
        return begin < other_begin + other.size_bytes and other_begin < begin + self.size_bytes

    def __dlpack__(
        self, *, stream: int | None = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = None
    ) -> Any:
        """The memory as a DLPack capsule; on CUDA `stream` waits for the launches so far. A vector's components are the last axis."""
        with importing:
            from vyre_py.drivers.sharing.handover import capsule_of  # few buffers are handed over

        return capsule_of(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's kind and number of the device. Raises BufferError where memory can't be handed over."""
        if self.device.dlpack_device is None:
            raise BufferError(f"memory on {self.device.name} can't be handed over: read() copies it to the host")
        return self.device.dlpack_device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The memory for libraries of CUDA, version 3. Raises AttributeError elsewhere."""
        with importing:
            from vyre_py.drivers.sharing.handover import cuda_interface_of

        return cuda_interface_of(self)

    def free(self) -> None:
        """Gives the memory back once the launches so far are done; other views over it are then unusable, and say so. No other thread may be launching
        with it at that moment: a launch looks whether its buffers are there, and is then on its way.

        Raises BindingError for a buffer that shares its memory with others of an arena, of weights or of constants: those are freed whole; and for memory that
        a replay of a graph left there.
        """
        if self.allocation.owner:
            raise BindingError("free", [f"the memory belongs to {self.allocation.owner}"])
        self.allocation.free()

    close = free  # which the end of a `with` block calls
