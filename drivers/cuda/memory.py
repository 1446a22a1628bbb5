"""Device memory: stream-ordered allocation from a pool of our own, zeroed, and copies with the host."""

from __future__ import annotations

from typing import Any, Final

from vyre_py.drivers.cuda.context import Context
from vyre_py.drivers.errors import DriverError, OutOfMemory
from vyre_py.drivers.hostarray import Bytes

__all__ = ["Memory"]

_KEPT_BYTES: Final = 256 << 20


class Memory:
    """Allocations of one device. An address is an int; 0 stands for no bytes.

    The pool is not the device's default one, whose settings belong to the whole process. It keeps up to 256 MiB for reuse. A device
    without pools gets plain allocations, which wait for the device when they are freed.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._live: set[int] = set()
        self._pool = self._make_pool() if context.attribute("MEMORY_POOLS_SUPPORTED") else None

    def _make_pool(self) -> Any:
        context, cuda = self._context, self._context.cuda
        wanted = cuda.CUmemPoolProps()
        wanted.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        wanted.handleTypes = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
        wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        wanted.location.id = int(context.device)
        status, pool = cuda.cuMemPoolCreate(wanted)
        if status:
            return None  # virtual GPUs report pools that they don't give
        threshold = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        context.ok(cuda.cuMemPoolSetAttribute(pool, threshold, cuda.cuuint64_t(_KEPT_BYTES)), f"{context.name} refuses the pool's threshold")
        return pool

    def allocate(self, size_bytes: int) -> int:
        """Zeroed memory, ready for whatever is enqueued next. Raises OutOfMemory, after giving cached memory back and trying again."""
        if not size_bytes:
            return 0
        context, cuda, doing = self._context, self._context.cuda, f"{self._context.name} cannot allocate {size_bytes} bytes"
        context.enter()
        try:
            address = int(context.ok(self._take(size_bytes), doing))
        except OutOfMemory:
            context.wait(doing)
            self.trim()
            address = int(context.ok(self._take(size_bytes), doing))
        self._live.add(address)
        try:
            context.ok(cuda.cuMemsetD8Async(address, 0, size_bytes, context.stream), doing)
            context.settle(doing)
        except DriverError:
            self.free(address)
            raise
        return address

    def _take(self, size_bytes: int) -> tuple[Any, ...]:
        cuda = self._context.cuda
        given = cuda.cuMemAlloc(size_bytes) if self._pool is None else cuda.cuMemAllocFromPoolAsync(size_bytes, self._pool, self._context.stream)
        return tuple(given)

    def free(self, address: int) -> None:
        """Gives memory back once what is enqueued is done. Quiet, since finalisers call it: an unusable context has freed it already."""
        if address not in self._live:
            return
        self._live.discard(address)
        context, cuda = self._context, self._context.cuda
        cuda.cuCtxSetCurrent(context.handle)
        if context.foreign:
            cuda.cuCtxSynchronize()
        if self._pool is None:
            cuda.cuMemFree(address)
        else:
            cuda.cuMemFreeAsync(address, context.stream)

    def write(self, address: int, source: Bytes) -> None:
        """Copies host bytes in; waits, since a copy from memory that happens to be page-locked would still be reading it on return."""
        context, doing = self._context, f"{self._context.name} cannot be written"
        context.enter()
        context.settle(doing)
        context.ok(context.cuda.cuMemcpyHtoDAsync(address, source.ctypes.data, source.nbytes, context.stream), doing)
        context.wait(doing)

    def read(self, address: int, target: Bytes) -> None:
        """Copies bytes out, after everything enqueued before."""
        context, doing = self._context, f"{self._context.name} cannot be read"
        context.enter()
        context.settle(doing)
        context.ok(context.cuda.cuMemcpyDtoHAsync(target.ctypes.data, address, target.nbytes, context.stream), doing)
        context.wait(doing)

    def copy(self, source: int, target: int, size_bytes: int) -> None:
        """Copies within the device, in order with what is enqueued."""
        context, doing = self._context, f"{self._context.name} cannot copy"
        context.enter()
        context.settle(doing)
        context.ok(context.cuda.cuMemcpyDtoDAsync(target, source, size_bytes, context.stream), doing)
        context.settle(doing)

    def trim(self) -> None:
        """Gives memory that the pool keeps for reuse back to the system."""
        if self._pool is not None:
            self._context.ok(self._context.cuda.cuMemPoolTrimTo(self._pool, 0), f"{self._context.name} cannot trim its pool")

    def close(self) -> None:
        """Frees everything, whatever the context's state."""
        for address in tuple(self._live):
            self.free(address)
        if self._pool is not None:
            self._context.cuda.cuStreamSynchronize(self._context.stream)
            self._context.cuda.cuMemPoolDestroy(self._pool)
