"""Streams and events: bounded pools, since the driver's own grow without end and cost microseconds to make."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.errors import LaunchError

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.context import Context

__all__ = ["POOL_LIMIT", "Events", "Streams"]

POOL_LIMIT: Final = 128


class _Pool:
    """Handles of one sort: `made` counts those that exist, `idle` those that wait to be used again."""

    what = ""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._idle: list[Any] = []
        self._all: list[Any] = []
        self._lock = threading.Lock()

    @property
    def made(self) -> int:
        """How many exist."""
        return len(self._all)

    @property
    def idle(self) -> int:
        """How many of them nobody uses."""
        return len(self._idle)

    def take(self) -> Any:
        """A handle that nobody uses, made if there is none. Raises LaunchError when 128 are in use."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
            if len(self._all) >= POOL_LIMIT:
                raise LaunchError(
                    f"{self._context.name} has no {self.what} left", meaning=f"{POOL_LIMIT} are in use",
                    remedy=f"wait for pending results, or give {self.what}s back",
                )  # fmt: skip
            handle = self._make()
            self._all.append(handle)
            return handle

    def give(self, handle: Any) -> None:
        """Takes a handle back. Quiet after `close`."""
        with self._lock:
            if self._all:
                self._idle.append(handle)

    def close(self) -> None:
        """Destroys all of them, whatever their state."""
        with self._lock:
            for handle in self._all:
                self._destroy(handle)
            self._all.clear()
            self._idle.clear()

    def _make(self) -> Any:
        raise NotImplementedError

    def _destroy(self, handle: Any) -> None:
        raise NotImplementedError


class Streams(_Pool):
    """Streams that do not wait for the legacy default stream."""

    what = "stream"

    def _make(self) -> Any:
        context, cuda = self._context, self._context.cuda
        return context.ok(cuda.cuStreamCreate(int(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING)), f"{context.name} gives no stream")

    def _destroy(self, handle: Any) -> None:
        self._context.cuda.cuStreamDestroy(handle)


class Events(_Pool):
    """Events that take no time."""

    what = "event"

    def _make(self) -> Any:
        context, cuda = self._context, self._context.cuda
        return context.ok(cuda.cuEventCreate(int(cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING)), f"{context.name} gives no event")

    def _destroy(self, handle: Any) -> None:
        self._context.cuda.cuEventDestroy(handle)

    @contextmanager
    def borrowed(self) -> Iterator[Any]:
        """An event for the time of a block. What was told to wait for it goes on to do so when it is used again."""
        event = self.take()
        try:
            yield event
        finally:
            self.give(event)
