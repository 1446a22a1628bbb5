"""Waiting for a launch: up to a time, after which it is stopped, and by the device's own clock."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.cuda.status import NOT_READY
from vyre_py.drivers.cuda.streams import TIMED
from vyre_py.drivers.errors import DispatchTimeout, LaunchError
from vyre_py.drivers.pending import poll

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.context import Context
    from vyre_py.drivers.cuda.launch.launch import CudaLaunch

__all__ = ["event_is_done", "finish_by", "timed"]

# How long a kernel that was told to end may take to do so, before the device counts as lost.
_GRACE: Final = 10.0
_NS_PER_MS: Final = 1_000_000


def event_is_done(context: Context, event: Any, doing: str) -> bool:
    """Whether all work before an event is done. Raises its error."""
    (status,) = context.cuda.cuEventQuery(event)
    if status and status.name != NOT_READY:
        raise context.failure(status, doing, LaunchError)
    return not status


def finish_by(launch: CudaLaunch, deadline: float, timeout: float) -> None:
    """Waits for an interruptible launch until a time by `time.monotonic`, and has its loops end then. Raises DispatchTimeout, with the device as
    good as before; DeviceLost when the kernel does not end."""
    kernel = launch.kernel
    context, doing = kernel.device.context, f"{launch.plan.binding.interface.name!r} failed while it ran"
    with context.entered(), context.events.borrowed() as event:
        context.ok(context.cuda.cuEventRecord(event, context.cuda.CUstream(kernel.stream)), doing)
        if poll(lambda: event_is_done(context, event, doing), max(0.0, deadline - time.monotonic())):
            return
        kernel.device.telemetry.timeouts += 1
        kernel.cancel()
        try:
            over = poll(lambda: event_is_done(context, event, doing), _GRACE)
        finally:
            kernel.reset_flags()
        if not over:
            raise kernel.device.lose(f"{launch.plan.binding.interface.name!r} did not end {_GRACE} s after it was told to")
    raise DispatchTimeout(
        f"{launch.plan.binding.interface.name!r} ran longer than {timeout} s on {context.name}", meaning="its loops were ended; nothing of its results is kept",
        remedy="allow more time, or give it less work",
    )  # fmt: skip


def _give(context: Context, events: list[Any]) -> None:
    for event in events:
        context.events.give(event)


class _Clock:
    """Two events of the device's own clock on a stream, around what it is given in between; they go back with the object."""

    def __init__(self, context: Context, stream: int) -> None:
        self._context, self._stream, self._doing = context, stream, f"{context.name} cannot time a launch"
        self._events: list[Any] = []
        weakref.finalize(self, _give, context, self._events).atexit = False
        with context.entered():
            for _ in range(2):
                self._events.append(context.events.take(TIMED))

    def mark(self, which: int) -> None:
        """Puts the first event, 0, or the last, 1, after what the stream holds."""
        context = self._context
        with context.entered():
            context.ok(context.cuda.cuEventRecord(self._events[which], context.cuda.CUstream(self._stream)), self._doing)

    def elapsed_ns(self) -> int:
        """Nanoseconds between the two; waits for the last."""
        context, cuda = self._context, self._context.cuda
        with context.entered():
            context.ok(cuda.cuEventSynchronize(self._events[1]), self._doing)
            return round(float(context.ok(cuda.cuEventElapsedTime(*self._events), self._doing)) * _NS_PER_MS)


def timed(context: Context, stream: int, start: Callable[[], None]) -> Callable[[], int | None]:
    """Enqueues work on a stream (a handle) between two timing events. It returns a function that gives the nanoseconds between them, once the work is done."""
    clock = _Clock(context, stream)
    clock.mark(0)
    start()
    clock.mark(1)
    return clock.elapsed_ns
