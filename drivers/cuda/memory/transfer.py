"""Transfers between host and device.

Small arrays are copied into pinned memory and transferred from there, in order with what is enqueued; a write does not wait. Larger ones go in chunks
through pinned memory on a stream beside ours, ordered with it by events. While the device copies one chunk the host copies another. From a few megabytes
on several threads do so, since one alone is slower than the bus. Host memory that is pinned already is transferred directly.

Reads go through the copy stream. Each write, and each read after an event, has a stream of the pool to itself, so that they do not wait for each other,
and the bus is busy both ways.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from itertools import accumulate
from typing import Any, Final, TypeVar

import numpy as np

from vyre_py.drivers.cores import core_count
from vyre_py.drivers.cuda.context import Context
from vyre_py.drivers.cuda.memory import bulk
from vyre_py.drivers.cuda.memory.memory import CudaMemory
from vyre_py.drivers.cuda.memory.pieces import Piece, pieces
from vyre_py.drivers.cuda.memory.pinned import PinnedBlock, PinnedPool
from vyre_py.drivers.cuda.memory.ring import ALIGN, Ring, view_of
from vyre_py.drivers.cuda.streams import BLOCKING, TRANSFER
from vyre_py.drivers.errors import DriverError, LaunchError
from vyre_py.drivers.memory.host_arrays import Host
from vyre_py.drivers.observe.telemetry import Telemetry
from vyre_py.ir.data_classes import dataclass

__all__ = ["Transfers"]

# Up to so many bytes a copy goes through one piece of pinned memory on our own stream.
_SMALL_BYTES: Final = 64 << 10
# From so many on several threads copy, at most so many, each with so many chunks on their way: together they leave some of the pinned pool to others.
_THREADED_BYTES: Final = 4 << 20
_THREADS: Final = 14
_IN_FLIGHT: Final = 2
# Chunks: of what one thread copies, and of what many do.
_CHUNK_BYTES: Final = 256 << 10
_THREADED_CHUNK_BYTES: Final = 4 << 20
# Of arrays without strides: few threads, or more from so many bytes on, since to begin takes each some time; and chunks of at most so much. Smaller
# ones would have more on their way at once, but the driver takes ten microseconds and more for each, one thread at a time.
_FEW_THREADS: Final = 4
_BULK_BYTES: Final = 96 << 20
_BULK_THREADS: Final = 8
_BULK_CHUNK_BYTES: Final = 2 << 20
# How many small arrays are read with one wait.
_BATCH: Final = 64

# A chunk, and the event after what last used it.
_Lane = tuple[PinnedBlock, Any]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Way:
    """One transfer: up to the device or down, the first byte there, the host's array, the stream of all copies (CUstream).

    A thread's part of it goes through chunks of so many bytes, with events of a sort: where several copy, they sleep while they wait, and leave
    the cores to those that copy.
    """

    up: bool
    address: int
    array: Host
    stream: Any
    doing: str


def _address(array: Host) -> int:
    return int(array.__array_interface__["data"][0])


class Transfers:
    """Transfers of one device. An address may lie anywhere within an allocation; a transfer raises DriverError, OutOfMemory and DeviceLost, and LaunchError
    within a capture. The caller makes the context current, and keeps the memory from being freed meanwhile."""

    def __init__(self, context: Context, memory: CudaMemory, pinned: PinnedPool, telemetry: Telemetry) -> None:
        self._context = context
        self._foreign_use = memory.foreign_use
        self._pinned = pinned
        self._telemetry = telemetry
        self._ring = Ring(context, pinned)
        self._crew: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    # ---- host to device

    def write(self, address: int, source: Host) -> None:
        """Copies a host array of any strides in, after what is enqueued. The source may be changed on return, when its bytes may still be on their way."""
        context, doing = self._context, f"{self._context.name} cannot be written"
        if source.nbytes <= _SMALL_BYTES:
            with context.using(doing):
                streams = self._foreign_use.before(doing, (address, source.nbytes)) if self._foreign_use else []
                self._ring.send(address, source, doing)
                self._foreign_use.after(streams)
            return
        with context.streams.borrowed(TRANSFER) as stream:
            with context.using(doing):
                streams = self._foreign_use.before(doing, (address, source.nbytes)) if self._foreign_use else []
                self._order(None, int(stream))
            self._bring(_Way(True, address, source, stream, doing), streams)

    @contextmanager
    def apart(self, size_bytes: int) -> Iterator[Any]:
        """A stream for an upload of so many bytes by `write_apart` to memory that no work uses (`CudaMemory.take_apart`); None where `write` is better."""
        if size_bytes <= _SMALL_BYTES:
            yield None
            return
        with self._context.entered(), self._context.streams.borrowed(TRANSFER) as stream:
            yield stream

    def write_apart(self, stream: Any, address: int, source: Host) -> None:
        """As `write`, on the stream that the memory was taken for; waits for nothing that is enqueued."""
        self._bring(_Way(True, address, source, stream, f"{self._context.name} cannot be written"), [])

    def _bring(self, way: _Way, streams: list[int]) -> None:
        """Uploads an array, and makes our stream, and foreign streams that use the memory, wait for it."""
        try:
            self._move(way)
        except BaseException:
            with suppress(DriverError):
                self._order(int(way.stream), None)  # what other threads still write is not used again before
            raise
        with self._context.using(way.doing):
            self._order(int(way.stream), None)
            self._foreign_use.after(streams)

    def _send(self, way: _Way, parts: deque[Piece], chunk_bytes: int, sort: int) -> None:
        """One thread's part of an upload: takes pieces until none is left. A chunk is filled again once the copy out of it is done."""
        context, cuda = self._context, self._context.cuda
        with self._lanes(way, parts) as lanes:
            turn = 0
            while (part := _next(parts)) is not None:
                offset, piece = part
                if turn < _IN_FLIGHT:
                    lanes.append(self._lane(chunk_bytes, sort))
                block, event = lanes[turn % _IN_FLIGHT]
                if turn >= _IN_FLIGHT:
                    context.ok(cuda.cuEventSynchronize(event), way.doing)
                np.copyto(view_of(block, 0, piece), piece)  # without the interpreter's lock
                context.ok(cuda.cuMemcpyHtoDAsync(way.address + offset, block.address, piece.nbytes, way.stream), way.doing)
                context.ok(cuda.cuEventRecord(event, way.stream), way.doing)
                turn += 1

    # ---- device to host

    def read(self, address: int, target: Host) -> None:
        """Copies bytes out into a host array of any strides, after what is enqueued; waits for that, and for nothing that is enqueued later."""
        if target.nbytes <= _SMALL_BYTES:
            self.read_small([(address, target)])
            return
        context, doing = self._context, f"{self._context.name} cannot be read"
        with context.using(doing):
            if self._foreign_use:
                self._foreign_use.before(doing, (address, target.nbytes))
            self._order(None, int(context.copy_stream))
        self._move(_Way(False, address, target, context.copy_stream, doing))

    def read_after(self, address: int, target: Host, event: Any) -> None:
        """As `read`, after an event (a handle) and nothing else. Raises LaunchError for one of a capture."""
        context, doing = self._context, f"{self._context.name} cannot be read"
        with context.streams.borrowed(TRANSFER) as stream:
            (status,) = context.cuda.cuStreamWaitEvent(stream, event, 0)
            if status:
                raise context.failure(status, doing, LaunchError)
            self._telemetry.waits += 1
            self._move(_Way(False, address, target, stream, doing))

    def read_all(self, wanted: Sequence[Piece]) -> None:
        """`read` for several, with one wait for many small ones."""
        batch: list[Piece] = []
        for address, target in wanted:
            if target.nbytes > _SMALL_BYTES:
                self.read(address, target)
                continue
            batch.append((address, target))
            if len(batch) == _BATCH:
                self.read_small(batch)
                batch = []
        if batch:
            self.read_small(batch)

    def read_small(self, wanted: Sequence[Piece]) -> None:
        """Copies several arrays out, with one wait; all of them go through one piece of pinned memory."""
        context, cuda, doing = self._context, self._context.cuda, f"{self._context.name} cannot be read"
        places = [0, *accumulate(-(-target.nbytes // ALIGN) * ALIGN for _, target in wanted)]
        block = self._pinned.take(places[-1])
        try:
            with context.events.borrowed() as event:
                with context.using(doing):
                    if self._foreign_use:
                        self._foreign_use.before(doing, *[(address, target.nbytes) for address, target in wanted])
                    for place, (address, target) in zip(places, wanted, strict=False):
                        context.ok(cuda.cuMemcpyDtoHAsync(block.address + place, address, target.nbytes, context.stream), doing)
                    context.ok(cuda.cuEventRecord(event, context.stream), doing)
                context.ok(cuda.cuEventSynchronize(event), doing)
            for place, (_, target) in zip(places, wanted, strict=False):
                np.copyto(target, view_of(block, place, target))
        except BaseException:
            context.finish()  # a copy may still write to memory that is about to be reused
            raise
        finally:
            block.give()

    def _receive(self, way: _Way, parts: deque[Piece], chunk_bytes: int, sort: int) -> None:
        """One thread's part of a download: has the next chunks on their way while it copies one out."""
        context, cuda = self._context, self._context.cuda
        with self._lanes(way, parts) as lanes:
            idle: list[_Lane] = []
            coming: deque[tuple[_Lane, Host]] = deque()
            while True:
                while len(coming) < _IN_FLIGHT and (part := _next(parts)) is not None:
                    if not idle:
                        lanes.append(self._lane(chunk_bytes, sort))
                        idle.append(lanes[-1])
                    block, event = idle.pop()
                    offset, piece = part
                    context.ok(cuda.cuMemcpyDtoHAsync(block.address, way.address + offset, piece.nbytes, way.stream), way.doing)
                    context.ok(cuda.cuEventRecord(event, way.stream), way.doing)
                    coming.append(((block, event), piece))
                if not coming:
                    return
                (block, event), piece = coming.popleft()
                context.ok(cuda.cuEventSynchronize(event), way.doing)
                np.copyto(piece, view_of(block, 0, piece))  # without the interpreter's lock; fresh memory gets its pages here
                idle.append((block, event))

    # ---- both ways

    def _order(self, first: int | None, then: int | None) -> None:
        self._context.order(first, then)
        self._telemetry.waits += 1

    def _direct(self, way: _Way) -> None:
        """One copy, and the wait for it: the owner of the host memory may change it next."""
        context, cuda = self._context, self._context.cuda
        copy = cuda.cuMemcpyHtoDAsync if way.up else cuda.cuMemcpyDtoHAsync
        ends = (way.address, _address(way.array)) if way.up else (_address(way.array), way.address)
        with context.events.borrowed() as event:
            context.ok(copy(*ends, way.array.nbytes, way.stream), way.doing)
            context.ok(cuda.cuEventRecord(event, way.stream), way.doing)
            context.ok(cuda.cuEventSynchronize(event), way.doing)

    def _is_pinned(self, array: Host) -> bool:
        """Whether the driver knows all of an array's memory as pinned; where it knows nothing of an address, it says so by a status."""
        cuda = self._context.cuda
        if not array.flags.c_contiguous:
            return False
        first = _address(array)
        for address in (first, first + array.nbytes - 1):
            status, kind = cuda.cuPointerGetAttribute(cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
            if status or int(kind) != int(cuda.CUmemorytype.CU_MEMORYTYPE_HOST):
                return False
        return True

    def _move(self, way: _Way) -> None:
        """Moves an array: as it is where it is pinned, else piece by piece by one thread or several, in native code where several move one without strides.
        Raises what went wrong in any of them, once all have ended."""
        array = way.array
        if self._is_pinned(array):
            self._direct(way)
            return
        work = partial(self._send if way.up else self._receive, way)
        threads = min(_THREADS, core_count()) if array.nbytes >= _THREADED_BYTES else 1
        if threads == 1:
            work(deque(pieces(array, _CHUNK_BYTES)), _CHUNK_BYTES, 0)
            return
        if array.flags.c_contiguous:
            self._move_whole(way)
            return
        part_bytes = min(_THREADED_CHUNK_BYTES, max(_CHUNK_BYTES, array.nbytes // (threads * _IN_FLIGHT)))
        parts = deque(pieces(array, part_bytes))
        self._together(min(threads, len(parts)), partial(work, parts, _THREADED_CHUNK_BYTES, BLOCKING))

    def _move_whole(self, way: _Way) -> None:
        """Has several threads copy an array without strides in native code."""
        size_bytes = way.array.nbytes
        threads = min(_BULK_THREADS if size_bytes >= _BULK_BYTES else _FEW_THREADS, core_count())
        chunk_bytes = min(_BULK_CHUNK_BYTES, max(_CHUNK_BYTES, size_bytes // (threads * 2 * bulk.LANES)))
        job = bulk.Bulk(self._context, way.up, way.address, _address(way.array), size_bytes, chunk_bytes, int(way.stream), way.doing)
        lanes: list[_Lane] = []
        try:
            for _ in range(bulk.LANES * min(threads, -(-size_bytes // chunk_bytes))):
                lanes.append(self._lane(chunk_bytes, 0))  # noqa: PERF401 - those that were taken before one fails go back
            pairs = deque(zip(lanes[::2], lanes[1::2], strict=True))

            def work() -> None:
                if (pair := _next(pairs)) is not None:
                    job.work(pair)

            self._together(len(pairs), work)
        except BaseException:
            self._settle(way)
            raise
        finally:
            for block, event in lanes:
                block.give(after=event)

    def _settle(self, way: _Way) -> None:
        """After a failure: waits until the device has finished all copies. Raises nothing, so that the first error is reported."""
        context = self._context
        context.note(context.cuda.cuStreamSynchronize(way.stream), f"{context.name} failed while it copied")

    def _together(self, threads: int, work: Callable[[], None]) -> None:
        """Has several threads work, this one included, until there is nothing left to do. Raises what went wrong in any of them, once all have ended."""
        others = self._start(threads - 1, partial(self._helped, work))
        try:
            work()
        finally:
            for other in others:
                other.cancel()  # one that has not begun, since other transfers have all threads, would find nothing left to do
            wait(others)
        for other in others:
            if not other.cancelled():
                other.result()

    def _helped(self, work: Callable[[], None]) -> None:
        with self._context.entered():
            work()

    def _start(self, count: int, work: Callable[[], None]) -> list[Future[None]]:
        """Has so many other threads begin some work; fewer, or none, while the interpreter ends."""
        with self._lock:
            if self._crew is None:
                self._crew = ThreadPoolExecutor(_THREADS, thread_name_prefix=f"{self._context.name} copies")
            crew = self._crew
        started: list[Future[None]] = []
        with suppress(RuntimeError):  # no new threads any more: those that there are, and this one, do it
            while len(started) < count:
                started.append(crew.submit(work))
        return started

    def _lane(self, chunk_bytes: int, sort: int) -> _Lane:
        event = self._context.events.take(sort)
        try:
            return self._pinned.take(chunk_bytes), event
        except BaseException:
            self._context.events.give(event)
            raise

    @contextmanager
    def _lanes(self, way: _Way, parts: deque[Any]) -> Iterator[list[_Lane]]:
        """The chunks of one thread, which go back once nothing uses them. When something fails, the other threads find nothing left to do."""
        lanes: list[_Lane] = []
        try:
            yield lanes
        except BaseException:
            parts.clear()
            self._settle(way)
            raise
        finally:
            for block, event in lanes:
                block.give(after=event)

    def trim(self) -> None:
        """Gives back the pinned memory that small writes keep. Raises LaunchError within a capture, DeviceLost."""
        with self._context.using(f"{self._context.name} cannot trim its memory"):
            self._ring.trim()

    def close(self) -> None:
        """Ends the threads, and releases pinned memory and events. Call it once nothing is enqueued."""
        with self._lock:
            crew, self._crew = self._crew, None
        if crew is not None:
            crew.shutdown()
        self._ring.close()


def _next(parts: deque[_T]) -> _T | None:
    """The next part, for one of several threads."""
    try:
        return parts.popleft()
    except IndexError:
        return None
