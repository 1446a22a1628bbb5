"""Fences in our stream, which tell when other streams may use memory that was freed in its order."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Final

from vyre_py.drivers.cuda.context import Context
from vyre_py.drivers.cuda.status import NOT_READY
from vyre_py.drivers.errors import DriverError

__all__ = ["Fences"]

# How many stand in the stream at most, so that none has to be looked for long.
_LIMIT: Final = 4


class Fences:
    """The fences of one device. A fence comes after all that was freed, and thus used, before it was put. Attribute: `now`, the number of what is freed now, an
    attribute since who frees reads it each time; what has one number lies between the same fences.

    Where our stream is asked, or given something, the context is current and no capture runs.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()
        self.now = 1
        self._over = 0  # nothing that was freed as this number, or before, is used any more
        self._placed: deque[tuple[int, Any]] = deque()  # the last number that is before it, and the event

    def put(self) -> None:
        """A fence after what our stream holds, unless several stand there. Raises DriverError."""
        context = self._context
        with self._lock:
            if len(self._placed) < _LIMIT:
                event, last = context.events.take(), self.now
                self.now += 1  # before the event is recorded: what is freed meanwhile counts as after it
                try:
                    context.ok(context.cuda.cuEventRecord(event, context.stream), f"{context.name} cannot order two streams")
                except DriverError:
                    context.events.give(event)
                    raise
                self._placed.append((last, event))

    def is_over(self, number: int) -> bool:
        """Whether nothing uses any more what was freed as this number. Raises DriverError."""
        context, cuda = self._context, self._context.cuda
        with self._lock:
            now = self.now
            self.now += 1  # before the stream is asked, for the same reason
            if number > self._over and self._says(cuda.cuStreamQuery(context.stream)):
                self._over = now
            while self._placed and (self._placed[0][0] <= self._over or self._says(cuda.cuEventQuery(self._placed[0][1]))):
                last, event = self._placed.popleft()
                self._over = max(self._over, last)
                context.events.give(event)
            return number <= self._over

    def _says(self, answer: tuple[Any]) -> bool:
        """Whether a query says that all is done."""
        (status,) = answer
        if status and status.name != NOT_READY:
            raise self._context.failure(status, f"{self._context.name} failed while it ran")
        return not status

    def order(self, number: int, stream: Any) -> None:
        """Has a stream (CUstream) wait until nothing uses any more what was freed as this number. Raises DriverError."""
        context = self._context
        with self._lock:
            event = next((event for last, event in self._placed if number <= last), None)
            if event is not None:
                context.ok(context.cuda.cuStreamWaitEvent(stream, event, 0), f"{context.name} cannot order two streams")
                return
        context.order(None, int(stream))

    def clear(self) -> None:
        """Gives the events back."""
        with self._lock:
            while self._placed:
                self._context.events.give(self._placed.popleft()[1])
