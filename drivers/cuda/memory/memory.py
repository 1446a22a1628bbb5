"""Device memory: a pool of our own over the driver's stream-ordered one, zeroing and filling, and copies within the device.

Freed memory is reused in the order of our stream, with no call of the driver and no wait. Uploads go beside our stream: they take memory that no
enqueued work uses any more, by the `fences`. Foreign streams that use freed memory are ordered before its reuse by events (`foreign_streams`). A free
within a capture is done at the end of the capture.
"""

from __future__ import annotations

import gc
from functools import partial
from typing import Any, Final

from vyre_py.drivers.cuda.context import Context
from vyre_py.drivers.cuda.graph.graph_memory import Nodes
from vyre_py.drivers.cuda.memory.copies import Work, copy_work, fill_work
from vyre_py.drivers.cuda.memory.fences import Fences
from vyre_py.drivers.cuda.memory.foreign_streams import ForeignStreamUse
from vyre_py.drivers.cuda.memory.relief import NO_MEMORY, NUMBER, exhausted
from vyre_py.drivers.errors import DriverError, LaunchError, OutOfMemory
from vyre_py.drivers.memory.pool import PoolOwner, bytes_from, class_bytes
from vyre_py.drivers.observe.telemetry import Telemetry

__all__ = ["CudaMemory"]

_KEPT_BYTES: Final = 256 << 20
_THRESHOLD_BYTES: Final = 256 << 20
# So many blocks of a class are kept before an upload waits for one of them that is in use.
_AHEAD: Final = 2


# An address, and the number of its free.
_Kept = tuple[int, int]


class CudaMemory(PoolOwner[_Kept]):
    """Allocations of one device. An address is an int; 0 stands for no bytes. Any thread, and any finaliser, may use it.

    The driver's pool is not the device's default one, whose settings belong to the whole process. A device without pools gets plain allocations,
    which wait for the device when they are given back to the driver.

    At most `keep_bytes` (256 MiB, or what VYRE_DEVICE_POOL_BYTES says) of freed memory are kept for reuse.

    Attributes: `limit_bytes`, the most that is asked of the driver in all, for graphs as well (None: what the device has); `foreign_use`, which foreign
    streams use which memory; `held_bytes`, all that the driver gave, in use or kept; `nodes`, what captured graphs allocate.
    """

    def __init__(self, context: Context, telemetry: Telemetry) -> None:
        """Raises DriverError for VYRE_DEVICE_POOL_BYTES or VYRE_POOL_RELEASE_THRESHOLD that is no number of bytes."""
        self.foreign_use = ForeignStreamUse(context, telemetry)
        self._foreign_by_address = self.foreign_use.by_address  # a dict is tested for being empty quicker than the object around it
        self.limit_bytes: int | None = None
        self.held_bytes = 0
        self._context = context
        self._telemetry = telemetry
        self._live: dict[int, int] = {}  # address -> class
        self._late: list[tuple[int, int]] = []  # freed, but used by a stream that is being captured, which cannot be waited for now
        self._fences = Fences(context)
        super().__init__(bytes_from("VYRE_DEVICE_POOL_BYTES", _KEPT_BYTES), self._return)
        self._pool = self._make_pool(bytes_from("VYRE_POOL_RELEASE_THRESHOLD", _THRESHOLD_BYTES)) if context.attribute("MEMORY_POOLS_SUPPORTED") else None
        telemetry.gauge("device_pool_cached_bytes", lambda: self.cached_bytes)
        telemetry.gauge("device_pool_held_bytes", lambda: self.held_bytes)
        self.nodes = Nodes(context, self._pool, self._free_in_order)
        telemetry.gauge("graph_memory_used_bytes", lambda: self.nodes.now("USED_MEM_CURRENT"))
        telemetry.gauge("graph_memory_reserved_bytes", lambda: self.nodes.now("RESERVED_MEM_CURRENT"))

    # ---- settings, and what can be read

    @property
    def release_threshold(self) -> int:
        """The bytes that the driver's own pool holds on to when the device is idle, 256 MiB unless VYRE_POOL_RELEASE_THRESHOLD says otherwise; may
        be set. 0 on a device without pools."""
        return self._threshold if self._pool is not None else 0

    @release_threshold.setter
    def release_threshold(self, size_bytes: int) -> None:
        if self._pool is not None:
            with self._context.entered():
                self._set_threshold(self._pool, size_bytes)

    @property
    def allocated_bytes(self) -> int:
        """Bytes in use, rounded up to size classes."""
        return self.held_bytes - self._kept.cached_bytes

    # ---- the driver's pool

    def _make_pool(self, threshold_bytes: int) -> Any:
        context, cuda = self._context, self._context.cuda
        wanted = cuda.CUmemPoolProps()
        wanted.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        wanted.handleTypes = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
        wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        wanted.location.id = int(context.device)
        status, pool = cuda.cuMemPoolCreate(wanted)
        if status:
            context.note((status,), f"{context.name} gives no pool of memory")
            return None  # virtual GPUs report pools that they don't give
        try:
            self._set_threshold(pool, threshold_bytes)
        except DriverError:
            cuda.cuMemPoolDestroy(pool)
            raise
        return pool

    def _set_threshold(self, pool: Any, size_bytes: int) -> None:
        cuda = self._context.cuda
        threshold = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        result = cuda.cuMemPoolSetAttribute(pool, threshold, cuda.cuuint64_t(size_bytes))
        self._context.ok(result, f"{self._context.name} refuses the pool's threshold")
        self._threshold = size_bytes

    def share_with(self, peer: int) -> None:
        """Has another device, by its ordinal, reach what the driver's pool gives, where there is a pool. Raises DriverError."""
        if self._pool is None:
            return
        cuda = self._context.cuda
        access = cuda.CUmemAccessDesc()
        access.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = peer
        access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        self._context.ok(cuda.cuMemPoolSetAccess(self._pool, [access], 1), f"{self._context.name} cannot be shared with cuda:{peer}")

    # ---- taking

    def allocate(self, size_bytes: int, zeroed: bool = True) -> int:
        """Memory that is ready for whatever is enqueued next; unless `zeroed`, with anything in it. Raises OutOfMemory, after giving back what is
        kept and trying again; LaunchError within a capture."""
        if not size_bytes:
            return 0
        address = self.take(size_bytes)
        if zeroed:
            try:
                self.fill(address, size_bytes, b"\0")
            except DriverError:
                self.free(address)
                raise
        return address

    def take(self, size_bytes: int) -> int:
        """As `allocate`, for at least one byte, with anything in it."""
        if self._context.capture is not None:
            self._context.require_no_capture(f"{self._context.name} cannot allocate {size_bytes} bytes")
        self._telemetry.device_pool_bytes_asked += size_bytes
        size = class_bytes(size_bytes)
        kept = self._kept.take(size)
        if kept is None:
            address = self._ask(size_bytes, size, self._context.stream)
        else:
            address, _ = kept
            self._telemetry.device_pool_hits += 1
        self._live[address] = size
        return address

    def take_apart(self, size_bytes: int, stream: Any) -> int:
        """As `take`, for a stream beside ours (CUstream), which may use it at once; ours comes after that stream's work so far.

        Of what is kept only that is taken at once which nothing uses any more. Where all of it is in use, the driver is asked while little is kept; else the
        stream waits for what was freed longest ago, so that no more memory is held than uploads run ahead by.
        """
        context, doing = self._context, f"{self._context.name} cannot allocate {size_bytes} bytes"
        size = class_bytes(size_bytes)
        self._telemetry.device_pool_bytes_asked += size_bytes
        with context.entered(), context.using(doing):
            address = self._oldest(size, stream)
            if address is None:
                address = self._ask(size_bytes, size, stream)
            else:
                self._telemetry.device_pool_hits += 1
            self._live[address] = size
            try:
                context.order(int(stream), None)
                self._fences.put()
            except DriverError:
                context.note(context.cuda.cuStreamSynchronize(stream), doing)
                self.free(address)
                raise
        return address

    def _oldest(self, size: int, stream: Any) -> int | None:
        """Of a class what was freed longest ago, ready for a stream; None where nothing is kept, or it is better to ask for more."""
        kept = self._kept.take_oldest(size)
        if kept is None:
            return None
        address, number = kept
        try:
            if self._fences.is_over(number):
                return address
            if self._kept.waiting(size) + 1 >= _AHEAD:
                self._fences.order(number, stream)
                return address
        except DriverError:
            self._kept.give(kept, size)
            raise
        self._kept.give(kept, size)
        return None

    def _ask(self, size_bytes: int, size: int, stream: Any) -> int:
        """New memory of the driver, in the order of a stream; where it has none, or the budget leaves none, after `Relief.attempt`."""
        self._telemetry.device_pool_misses += 1
        context, doing = self._context, f"{self._context.name} cannot allocate {size_bytes} bytes"
        with context.entered(), context.using(doing):
            self._reap()
            given = context.relief.attempt(lambda: self._try(size, stream))
            if given[0] and given[0].name == NO_MEMORY:
                raise self.exhausted(doing, size_bytes, over_budget=self._over_budget(size))
            address = int(context.ok(given, doing))
            self.held_bytes += size
        return address

    def _try(self, size: int, stream: Any) -> tuple[Any, ...]:
        """The result of the driver's allocation; out of memory over the budget."""
        context, cuda = self._context, self._context.cuda
        if self._over_budget(size):
            return (context.status(NUMBER),)
        return cuda.cuMemAlloc(size) if self._pool is None else cuda.cuMemAllocFromPoolAsync(size, self._pool, stream)  # type: ignore[no-any-return]  # the driver's answer

    def _over_budget(self, size: int) -> bool:
        return self.limit_bytes is not None and self.held_bytes + self.nodes.now("RESERVED_MEM_CURRENT") + size > self.limit_bytes

    def allocate_node(self, size_bytes: int, there_bytes: int, most_bytes: int, doing: str) -> int:
        """Memory of the graph that our stream is captured into, from this node on, where a replay has `there_bytes` with it. Raises LaunchError where the
        driver has none; OutOfMemory where that is more than the device has, `most_bytes`, or than the budget leaves beside all that is there."""
        context = self._context
        if there_bytes > most_bytes:
            raise self.exhausted(doing, size_bytes, f"a replay would have {there_bytes:,} bytes there at once, and the device has {most_bytes:,}")
        if self.limit_bytes is not None and self.held_bytes + self.nodes.there_bytes + there_bytes > self.limit_bytes:
            raise self.exhausted(doing, size_bytes, over_budget=True)
        status, *given = self.nodes.ask(size_bytes, doing)
        if status and status.name == NO_MEMORY:
            raise self.exhausted(doing, size_bytes)
        if status:
            raise context.failure(status, doing, LaunchError)
        return int(given[0])

    # ---- out of memory

    def drop_kept(self) -> None:
        """Gives back what is kept here and by the driver, buffers that only the garbage collector knows of included."""
        self._kept.shrink()
        gc.collect()
        self._kept.shrink()
        self._reap()
        self._context.wait(f"{self._context.name} failed while it ran")
        self._trim_driver()

    def exhausted(self, doing: str, size_bytes: int, meaning: str = "", over_budget: bool = False) -> OutOfMemory:
        """The error for memory that the device has not got, or the budget does not leave: see `relief.exhausted`."""
        return exhausted(self._context, doing, size_bytes, self.held_bytes, self.limit_bytes, meaning, over_budget)

    # ---- giving back

    def free(self, address: int) -> None:
        """Gives memory back once what is enqueued is done. Quiet, since finalisers call it: an unusable context has freed it already."""
        size = self._live.pop(address, None)
        if size is None:
            return
        context = self._context
        if context.capture is not None and context.later(partial(self._put_back, address, size)):
            return
        if self._foreign_by_address or self._late:
            self._put_back(address, size)
        else:
            self._kept.give((address, self._fences.now), size)

    def _put_back(self, address: int, size: int) -> None:
        """Keeps memory once our stream waits for the streams of others that use it."""
        if self.foreign_use and self._context.usable:
            with self._context.visited():
                ordered = not self.foreign_use.captured(address, size) and self._ordered(address, size)
            if not ordered:
                self._late.append((address, size))
                return
        self.foreign_use.remove(address)
        self._kept.give((address, self._fences.now), size)

    def _ordered(self, address: int, size: int) -> bool:
        """Whether our stream, or at worst the host, waits for the foreign streams. If not, the memory must not be reused."""
        context = self._context
        try:
            self.foreign_use.before(f"{context.name} cannot free memory", (address, size))
        except DriverError:
            return context.usable and not context.cuda.cuCtxSynchronize()[0]
        return True

    def _reap(self) -> None:
        """Pools memory that was freed while a stream that uses it was being captured."""
        for _ in range(len(self._late)):
            self._put_back(*self._late.pop(0))

    def pass_on(self, address: int) -> int | None:
        """The address, for an owner that comes at once, with our stream ordered after the streams of others that use it; None where that can't be."""
        context, size = self._context, self._live.get(address)
        if context.capturing or not context.usable or size is None:
            return None
        if self.foreign_use:
            with context.visited():
                if self.foreign_use.captured(address, size) or not self._ordered(address, size):
                    return None
            self.foreign_use.remove(address)
        return address

    def _return(self, kept: _Kept, size: int) -> None:
        """Gives memory back to the driver. Quiet: a context that was closed has freed it already, and that of a forked child is its parent's."""
        self.held_bytes -= size
        self._free_in_order(kept[0])

    def _free_in_order(self, address: int) -> None:
        context = self._context
        if context.handles_invalid or context.later(lambda: self._give_driver(address)):
            return
        context.busy.value += 1  # no capture may begin before the free is enqueued
        try:
            with context.visited():
                self._give_driver(address)
        finally:
            context.busy.value -= 1

    def _give_driver(self, address: int) -> None:
        context, cuda = self._context, self._context.cuda
        freed = cuda.cuMemFree(address) if self._pool is None else cuda.cuMemFreeAsync(address, context.stream)
        context.note(freed, f"{context.name} cannot free memory")

    # ---- on the device

    def fill(self, begin: int, size_bytes: int, pattern: bytes) -> None:
        """Writes a pattern over and over, in order with what is enqueued: see `copies.fill_work`."""
        self._make(f"{self._context.name} cannot fill {size_bytes} bytes", fill_work(begin, size_bytes, pattern), (begin, size_bytes))

    def copy(self, source: int, target: int, size_bytes: int) -> None:
        """Copies within the device, in order with what is enqueued."""
        self._make(f"{self._context.name} cannot copy", copy_work(source, target, size_bytes), (source, size_bytes), (target, size_bytes))

    def _make(self, doing: str, work: list[Work], *ranges: tuple[int, int]) -> None:
        context = self._context
        with context.entered(), context.using(doing):
            streams = self.foreign_use.before(doing, *ranges) if self.foreign_use else ()
            for name, arguments in work:
                context.ok(getattr(context.cuda, name)(*arguments, context.stream), doing)
            self.foreign_use.after(streams)

    # ---- life

    def trim(self) -> None:
        """Gives what is kept for reuse back to the system, once what is enqueued is done."""
        with self._context.using(f"{self._context.name} cannot trim its memory"):
            self._reap()
            self._kept.shrink()
            self._fences.clear()
            self._context.wait(f"{self._context.name} failed while it ran")
            self._trim_driver()

    def _trim_driver(self) -> None:
        if self._pool is not None:
            self._context.ok(self._context.cuda.cuMemPoolTrimTo(self._pool, 0), f"{self._context.name} cannot trim its pool")
        self.nodes.trim()

    def close(self) -> None:
        """Frees everything, in any state of the context. A forked child leaves that to its parent."""
        context, cuda = self._context, self._context.cuda
        pairs = [*self._late, *self._kept.drain()]
        blocks = [*self._live, *self.nodes.drain(), *(address for address, _ in pairs)]
        self._live.clear()
        self._late.clear()
        self._fences.clear()
        self.held_bytes = 0
        if context.calls_forbidden:
            return
        with context.visited():
            if self.foreign_use:
                cuda.cuCtxSynchronize()
            for address in blocks:
                self._give_driver(address)
            if self._pool is not None:
                cuda.cuStreamSynchronize(context.stream)
                cuda.cuMemPoolDestroy(self._pool)
