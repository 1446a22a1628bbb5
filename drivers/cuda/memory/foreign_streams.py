"""Which foreign streams use which memory of ours, and how their work is ordered with ours.

Our own stream orders everything of ours. A launch that was moved to a foreign stream (`launch.on`) is recorded for each allocation that it is bound to.
A copy, a fill or a free of that memory makes our stream and the recorded streams wait for each other, and no other stream.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterable
from dataclasses import field
from typing import Any, Final

from vyre_py.drivers.cuda.context import Context
from vyre_py.drivers.errors import DriverError, LaunchError
from vyre_py.drivers.observe.telemetry import Telemetry
from vyre_py.ir.data_classes import dataclass

__all__ = ["ForeignStreamUse"]

# The status of the legacy default stream while a stream that waits for it is captured.
_CAPTURED: Final = "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"


@dataclass(slots=True)
class _ForeignUse:
    """The end of an allocation, and the foreign streams that may use it, each with the object that keeps it alive."""

    end: int
    streams: dict[int, Any] = field(default_factory=dict)


class ForeignStreamUse:
    """The foreign use of one device's memory. False without any. Attributes: `by_address`, the uses by the address of their allocation, and `none`, a live word
    for native lists: zero while there is any."""

    def __init__(self, context: Context, telemetry: Telemetry) -> None:
        self._context = context
        self._telemetry = telemetry
        self.by_address: dict[int, _ForeignUse] = {}
        self.none = ctypes.c_uint64(1)
        self._adopted: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self.by_address)

    def add(self, begin: int, size_bytes: int, stream: int, owner: Any) -> None:
        """Records that a stream may use an allocation from now on. Keeps the stream's `owner` alive."""
        if begin and size_bytes:
            self.by_address.setdefault(begin, _ForeignUse(begin + size_bytes)).streams[stream] = owner
            self.none.value = not self.by_address  # no call, and so no other thread, between the look and the store

    def remove(self, begin: int) -> None:
        """Forgets an allocation."""
        self.by_address.pop(begin, None)
        self.none.value = not self.by_address  # as in `add`

    def adopt(self, begin: int) -> None:
        """Counts a buffer over memory of another library."""
        self._adopted[begin] = self._adopted.get(begin, 0) + 1

    def leave(self, begin: int) -> None:
        """Waits on the host for the streams that use memory of another library, and forgets them with the last buffer over it. Raises nothing: an error is
        raised by the next call."""
        context, cuda = self._context, self._context.cuda
        use = self.by_address.get(begin)
        if use is not None and context.usable:
            with context.visited():
                statuses = [cuda.cuStreamSynchronize(cuda.CUstream(stream))[0] for stream in list(use.streams)]
                if any(statuses):
                    context.note(cuda.cuCtxSynchronize(), f"{context.name} failed while it ran")
        left = self._adopted.pop(begin, 1) - 1
        if left:
            self._adopted[begin] = left
        else:
            self.remove(begin)

    def streams(self, begin: int, size_bytes: int) -> list[int]:
        """The foreign streams that may use any of these bytes. By range, since memory of another library may be known by several addresses."""
        end = begin + size_bytes
        found: dict[int, None] = {}
        for at, use in list(self.by_address.items()):
            if at < end and begin < use.end:
                found.update(dict.fromkeys(use.streams))
        return list(found)

    def captured(self, begin: int, size_bytes: int) -> bool:
        """Whether a stream that uses these bytes is being captured: its work then runs at a later time."""
        return any(self._is_captured(stream) for stream in self.streams(begin, size_bytes))

    def before(self, doing: str, *ranges: tuple[int, int]) -> list[int]:
        """Makes our stream wait for the foreign streams that use these ranges (first byte, bytes). Returns those streams, for `after`.

        Raises LaunchError while one of them is being captured.
        """
        streams = list(dict.fromkeys(stream for begin, size_bytes in ranges for stream in self.streams(begin, size_bytes)))
        if any(map(self._is_captured, streams)):
            raise LaunchError(doing, meaning="a stream that uses this memory is being captured", remedy="end the capture first, or use other memory")
        for stream in streams:
            self.join(stream, doing)
        return streams

    def after(self, streams: Iterable[int]) -> None:
        """Makes foreign streams wait for what is enqueued on our stream. A stream that is being captured cannot wait for work outside the capture: there the
        host waits."""
        context, cuda = self._context, self._context.cuda
        doing = f"{context.name} cannot order two streams"
        for stream in streams:
            if self._is_captured(stream):
                context.wait(f"{context.name} failed while it ran")
                continue
            with context.events.borrowed() as event:
                context.ok(cuda.cuEventRecord(event, context.stream), doing)
                ordered = context.note(cuda.cuStreamWaitEvent(cuda.CUstream(stream), event, 0), doing)
            if not ordered:  # most likely its owner destroyed it
                context.wait(f"{context.name} failed while it ran")
            self._telemetry.waits += 1

    def wait(self, doing: str, begin: int = 0, size_bytes: int = 1 << 64) -> None:
        """Waits on the host for the foreign streams that use these bytes; for all of them by default."""
        context, cuda = self._context, self._context.cuda
        for stream in self.streams(begin, size_bytes):
            (status,) = cuda.cuStreamSynchronize(cuda.CUstream(stream))
            if status:  # its owner destroyed it, and its work may still run
                context.ok(cuda.cuCtxSynchronize(), doing)

    def join(self, stream: int, doing: str) -> None:
        """Makes our stream wait for what is enqueued on a foreign stream."""
        context, cuda = self._context, self._context.cuda
        with context.events.borrowed() as event:
            (status,) = cuda.cuEventRecord(event, cuda.CUstream(stream))
            if status:  # its owner destroyed it, and its work may still run
                context.ok(cuda.cuCtxSynchronize(), doing)
                return
            context.ok(cuda.cuStreamWaitEvent(context.stream, event, 0), doing)
        self._telemetry.waits += 1

    def join_all(self, streams: Collection[int]) -> bool:
        """`join` for several streams, for a finaliser: raises nothing, and runs in any thread. False where a stream is being captured or the device fails; then
        nothing is certain to be ordered."""
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
