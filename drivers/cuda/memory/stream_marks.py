"""Marks on memory that streams of others use: which memory, which streams.

Everything of ours goes through our own stream, which orders it. A launch that was moved to somebody else's stream (`launch.on`) leaves a mark
on each allocation that it is bound to, and whoever copies, fills or frees that memory has the streams in question wait for each other, and no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from vyre_py.drivers.cuda.context import Context
from vyre_py.drivers.errors import DriverError, LaunchError
from vyre_py.drivers.observe.telemetry import Telemetry

__all__ = ["Marks"]

# What the legacy default stream answers while a stream that waits for it is captured.
_CAPTURED: Final = "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"


@dataclass(slots=True)
class _Mark:
    """The end of an allocation, and the streams that may use it, each with the object that keeps it alive."""

    end: int
    streams: dict[int, Any] = field(default_factory=dict)


class Marks:
    """The marks of one device. False where there are none. Attribute: `by_address`, those that there are, by where their allocation begins."""

    def __init__(self, context: Context, telemetry: Telemetry) -> None:
        self._context = context
        self._telemetry = telemetry
        self.by_address: dict[int, _Mark] = {}
        self._adopted: Counter[int] = Counter()

    def __bool__(self) -> bool:
        return bool(self.by_address)

    def add(self, begin: int, size_bytes: int, stream: int, owner: Any) -> None:
        """From now on a stream may use an allocation; its `owner` is kept alive."""
        if begin and size_bytes:
            self.by_address.setdefault(begin, _Mark(begin + size_bytes)).streams[stream] = owner

    def remove(self, begin: int) -> None:
        """Forgets an allocation."""
        self.by_address.pop(begin, None)

    def adopt(self, begin: int) -> None:
        """Counts a buffer over memory of another library."""
        self._adopted[begin] += 1

    def leave(self, begin: int) -> None:
        """Waits on the host for the streams that use such memory, and forgets them with the last buffer over it. Raises nothing: the next call will."""
        context, cuda = self._context, self._context.cuda
        mark = self.by_address.get(begin)
        if mark is not None and context.usable:
            with context.visited():
                statuses = [cuda.cuStreamSynchronize(cuda.CUstream(stream))[0] for stream in list(mark.streams)]
                if any(statuses):
                    context.note(cuda.cuCtxSynchronize(), f"{context.name} failed while it ran")
        self._adopted[begin] -= 1
        if self._adopted[begin] <= 0:
            del self._adopted[begin]
            self.remove(begin)

    def streams(self, begin: int, size_bytes: int) -> list[int]:
        """Streams that may use any of these bytes. By range, since memory that belongs to others may be known by several addresses."""
        end = begin + size_bytes
        found: dict[int, None] = {}
        for at, mark in list(self.by_address.items()):
            if at < end and begin < mark.end:
                found.update(dict.fromkeys(mark.streams))
        return list(found)

    def captured(self, begin: int, size_bytes: int) -> bool:
        """Whether somebody captures a stream that uses these bytes: what it is given then runs at some later time."""
        return any(self._is_captured(stream) for stream in self.streams(begin, size_bytes))

    def before(self, doing: str, *ranges: tuple[int, int]) -> list[int]:
        """Has our stream wait for what streams of others were given for ranges (first byte, bytes), and gives those streams, for `after`.

        Raises LaunchError while one of them is captured by somebody.
        """
        streams = list(dict.fromkeys(stream for begin, size_bytes in ranges for stream in self.streams(begin, size_bytes)))
        if any(map(self._is_captured, streams)):
            raise LaunchError(doing, meaning="a stream that uses this memory is being captured", remedy="end the capture first, or use other memory")
        for stream in streams:
            self.join(stream, doing)
        return streams

    def after(self, streams: Iterable[int]) -> None:
        """Has streams of others wait for what our stream was given so far; while one is captured, which waits for nothing outside, the host does."""
        context, cuda = self._context, self._context.cuda
        doing = f"{context.name} cannot order two streams"
        for stream in streams:
            if self._is_captured(stream):
                context.wait(f"{context.name} failed while it ran")
                continue
            with context.events.borrowed() as event:
                context.ok(cuda.cuEventRecord(event, context.stream), doing)
                ordered = context.note(cuda.cuStreamWaitEvent(cuda.CUstream(stream), event, 0), doing)
            if not ordered:  # destroyed by its owner, most likely
                context.wait(f"{context.name} failed while it ran")
            self._telemetry.waits += 1

    def wait(self, doing: str, begin: int = 0, size_bytes: int = 1 << 64) -> None:
        """Waits on the host for the streams that use these bytes, or for all of them."""
        context, cuda = self._context, self._context.cuda
        for stream in self.streams(begin, size_bytes):
            (status,) = cuda.cuStreamSynchronize(cuda.CUstream(stream))
            if status:  # destroyed by its owner, and what it held may still run
                context.ok(cuda.cuCtxSynchronize(), doing)

    def join(self, stream: int, doing: str) -> None:
        """Has our stream wait for what a stream of somebody else's was given so far."""
        context, cuda = self._context, self._context.cuda
        with context.events.borrowed() as event:
            (status,) = cuda.cuEventRecord(event, cuda.CUstream(stream))
            if status:  # destroyed by its owner, and what it held may still run
                context.ok(cuda.cuCtxSynchronize(), doing)
                return
            context.ok(cuda.cuStreamWaitEvent(context.stream, event, 0), doing)
        self._telemetry.waits += 1

    def join_all(self, streams: Collection[int]) -> bool:
        """As `join` for several, for a finaliser: quiet, in whatever thread. False, with nothing ordered for sure, where one of them is captured by
        somebody, or the device fails."""
        context = self._context
        if not streams:
            return True
        with context.visited():
            try:
                if any(map(self._is_captured, streams)):
                    return False
                for stream in streams:
                    self.join(stream, f"{context.name} cannot order two streams")
            except DriverError:
                return False
        return True

    def _is_captured(self, stream: int) -> bool:
        context, cuda = self._context, self._context.cuda
        status, state = cuda.cuStreamIsCapturing(cuda.CUstream(stream))
        if status:
            context.note((status,), f"{context.name} does not say whether a stream is captured")
            return bool(status.name == _CAPTURED)
        return int(state) != int(cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE)
