"""Pinned host memory: page-locked, seen by the device too, in a pool by size class."""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from math import prod
from typing import Any, Final

import numpy as np

from vyre_py.drivers.cuda.context import Context
from vyre_py.drivers.cuda.memory.relief import NO_MEMORY
from vyre_py.drivers.cuda.status import NOT_READY
from vyre_py.drivers.errors import BindingError, OutOfMemory
from vyre_py.drivers.memory.buffer import host_shape, whole_sizes
from vyre_py.drivers.memory.host_arrays import Bytes, Host
from vyre_py.drivers.memory.pool import PoolOwner, bytes_from, class_bytes
from vyre_py.drivers.observe.telemetry import Telemetry
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.types import Type

__all__ = ["PinnedBlock", "PinnedPool"]

_KEPT_BYTES: Final = 128 << 20
_PAGE_BYTES: Final = 4096
_IN_FLIGHT: Final = 32  # blocks that wait for events, of which there are few


class PinnedBlock:
    """A piece of pinned memory: `address` on the host, `device_address`, `size_bytes` as asked, and the `bytes` themselves as an array.

    Their content is unspecified at first. `give` returns the block; its bytes must not be touched from then on.
    """

    __slots__ = ("_is_out", "_pool", "_whole", "address", "bytes", "capacity", "device_address", "size_bytes")

    def __init__(self, pool: PinnedPool, address: int, device_address: int, capacity: int) -> None:
        self._pool = pool
        self._is_out = False
        self._whole: Bytes = np.ctypeslib.as_array((ctypes.c_uint8 * capacity).from_address(address))
        self.address, self.device_address, self.capacity = address, device_address, capacity
        self.size_bytes = capacity
        self.bytes = self._whole

    def out(self, size_bytes: int) -> None:
        """Hands the block out, for so many bytes."""
        self._is_out = True
        self.size_bytes = size_bytes
        self.bytes = self._whole[:size_bytes]

    def give(self, after: Any = None) -> None:
        """Hands the block back, for others at once, or once an event of the context's pool is done, which is handed over with it. Again is quiet."""
        if self._is_out:
            self._is_out = False
            self._pool.back(self, after)


class PinnedPool(PoolOwner[PinnedBlock]):
    """The pinned memory of one device, at most `keep_bytes` (128 MiB, or what VYRE_PINNED_POOL_BYTES says) of it kept for reuse.

    Every block holds the primary context, so that its memory stays whatever is closed first. Attributes: `held_bytes`, in use or kept.
    """

    def __init__(self, context: Context, telemetry: Telemetry) -> None:
        """Raises DriverError for VYRE_PINNED_POOL_BYTES that is no number of bytes."""
        self.held_bytes = 0
        self._context = context
        self._telemetry = telemetry
        super().__init__(bytes_from("VYRE_PINNED_POOL_BYTES", _KEPT_BYTES), self._drop)
        self._waiting: deque[tuple[PinnedBlock, Any]] = deque()
        telemetry.gauge("pinned_pool_cached_bytes", lambda: self.cached_bytes)
        telemetry.gauge("pinned_pool_held_bytes", lambda: self.held_bytes)

    @property
    def lent_bytes(self) -> int:
        """Bytes that callers hold, and those of transfers in progress."""
        return self.held_bytes - self._kept.cached_bytes - self._kept.reserved_bytes

    def take(self, size_bytes: int) -> PinnedBlock:
        """A block of at least so many bytes. Raises OutOfMemory, DeviceLost."""
        self._telemetry.pinned_pool_bytes_asked += size_bytes
        size = class_bytes(max(size_bytes, _PAGE_BYTES))
        if self._waiting and self._context.capture is None:  # which asks events that are no part of one
            with self._context.entered():
                self._collect()
        block = self._kept.take(size)
        if block is None:
            self._telemetry.pinned_pool_misses += 1
            with self._context.entered():
                block = self._make(size)
        else:
            self._telemetry.pinned_pool_hits += 1
        block.out(size_bytes)
        return block

    def array(self, shape: Any, type_: Any) -> Host:
        """A NumPy array of zeros over pinned memory, which goes back when the last array over it does. Raises BindingError for a shape or type that is
        none, OutOfMemory."""
        sizes = whole_sizes(shape)
        if sizes is None:
            raise BindingError("pinned", [f"shape {shown(shape)} is not one or more whole numbers that an array can have"])
        if not isinstance(type_, Type):
            raise BindingError("pinned", [f"a type of the language is needed, got {shown(type_)}"])
        _, data = self.lease(prod(sizes) * type_.size_bytes)
        data.fill(0)
        return data.view(type_.dtype).reshape(host_shape(sizes, type_))

    def lease(self, size_bytes: int) -> tuple[int, Bytes]:
        """The address of a block, and an array over its bytes, whatever they hold: the block goes back when the last array over it does. Raises OutOfMemory,
        DeviceLost."""
        block = self.take(size_bytes)
        return block.address, np.asarray(_Lease(block))

    def back(self, block: PinnedBlock, after: Any) -> None:
        """See `PinnedBlock.give`."""
        if after is None or self._context.handles_invalid:  # once the device is closed nothing is on its way
            self._kept.give(block, block.capacity)
        else:
            self._waiting.append((block, after))

    def _collect(self, every: bool = False) -> None:
        """Takes blocks back whose events are done, and waits for the oldest while there are too many, or for every one."""
        context, cuda = self._context, self._context.cuda
        doing = f"{context.name} failed while it ran"
        while self._waiting:
            try:
                block, event = self._waiting.popleft()
            except IndexError:  # another thread took the last one
                return
            waits = every or len(self._waiting) >= _IN_FLIGHT
            (status,) = cuda.cuEventSynchronize(event) if waits else cuda.cuEventQuery(event)
            if status and status.name != NOT_READY:
                context.note((status,), doing)
            if status and not waits and context.usable:
                self._waiting.appendleft((block, event))
                return
            context.events.give(event)
            self._kept.give(block, block.capacity)

    def _make(self, size: int) -> PinnedBlock:
        context, cuda, doing = self._context, self._context.cuda, f"{self._context.name} cannot pin {size} bytes of host memory"
        flags = int(cuda.CU_MEMHOSTALLOC_PORTABLE) | int(cuda.CU_MEMHOSTALLOC_DEVICEMAP)
        with context.relaxed(doing):
            given = context.relief.attempt(lambda: cuda.cuMemHostAlloc(size, flags))
        if given[0] and given[0].name == NO_MEMORY:
            raise OutOfMemory(
                doing, status=f"{NO_MEMORY} (2)", meaning="the system has too little memory that may be page-locked",
                cause="large transfers, or arrays of device.pinned", remedy="drop such arrays, call device.trim(), or ask for less",
                asked=size, held=self.held_bytes,
            )  # fmt: skip
        address = int(context.ok(given, doing))
        try:
            seen = int(context.ok(cuda.cuMemHostGetDevicePointer(address, 0), doing))
            context.ok(cuda.cuDevicePrimaryCtxRetain(context.device), doing)
        except BaseException:
            cuda.cuMemFreeHost(address)
            raise
        self.held_bytes += size
        return PinnedBlock(self, address, seen, size)

    def _drop(self, block: PinnedBlock, size: int) -> None:
        """Unpins a block. Quiet; a forked child leaves that to its parent."""
        context = self._context
        self.held_bytes -= size
        if not context.calls_forbidden and not context.later(lambda: self._unpin(block)):
            self._unpin(block)

    def _unpin(self, block: PinnedBlock) -> None:
        context, cuda = self._context, self._context.cuda
        with context.visited():
            context.note(cuda.cuMemFreeHost(block.address), f"{context.name} cannot free pinned memory")
        context.note(cuda.cuDevicePrimaryCtxRelease(context.device), f"{context.name} cannot release its context")

    def trim(self) -> None:
        """Gives back what is kept, once it is done with."""
        self._collect(every=True)
        self._kept.shrink()

    def close(self) -> None:
        """Gives back what is kept, and keeps nothing any more: blocks that are out go when they are given. Call it once nothing is enqueued."""
        while self._waiting:
            block, _ = self._waiting.popleft()
            self._kept.give(block, block.capacity)
        self.keep_bytes = 0


class _Lease:
    """The base of an array over a block, which views of views hold too."""

    __slots__ = ("__array_interface__", "__weakref__")

    def __init__(self, block: PinnedBlock) -> None:
        self.__array_interface__ = {"data": (block.address, False), "shape": (block.size_bytes,), "typestr": "|u1", "version": 3}
        weakref.finalize(self, block.give).atexit = False  # the process gives everything back; the driver may be gone by then
