"""Streams and events: bounded pools, since the driver's own grow without end and cost microseconds to make."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.errors import LaunchError

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.context import Context

__all__ = ["BLOCKING", "POOL_LIMIT", "TIMED", "TRANSFER", "Events", "Streams"]

POOL_LIMIT: Final = 128
# Sorts of events.
BLOCKING: Final = 1
TIMED: Final = 2
# The sort of streams that transfers of ours alone use; no priority has this number.
TRANSFER: Final = 1


class _HandlePool:
    """Handles, each of some sort: `made` counts those that exist, `idle` those that wait to be used again."""

    what = ""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._idle: list[Any] = []
        self._all: list[Any] = []
        self._sorts: dict[int, int] = {}
        self._lock = threading.RLock()  # a finaliser may run inside a call that holds it

    @property
    def made(self) -> int:
        """How many exist."""
        return len(self._all)

    @property
    def idle(self) -> int:
        """How many of them are idle."""
        return len(self._idle)

    def take(self, sort: int = 0) -> Any:
        """An idle handle of a sort, or a new one. Raises LaunchError when 128 are in use."""
        with self._lock:
            for place, handle in enumerate(self._idle):
                if self._sorts[int(handle)] == sort:
                    return self._idle.pop(place)
            if len(self._all) >= POOL_LIMIT and self._idle:
                other = self._idle.pop()
                self._all.remove(other)
                self._sorts.pop(int(other), None)
                self._destroy(other)
            if len(self._all) >= POOL_LIMIT:
                raise LaunchError(
                    f"{self._context.name} has no {self.what} left", meaning=f"{POOL_LIMIT} are in use",
                    remedy=f"wait for pending results, or give {self.what}s back",
                )  # fmt: skip
            handle = self._make(sort)
            self._all.append(handle)
            self._sorts[int(handle)] = sort
            return handle

    def give(self, handle: Any) -> None:
        """Takes a handle back. Quiet after `close`, and in a forked child."""
        if self._context.handles_invalid:  # a thread of the parent may have held the lock
            return
        with self._lock:
            if self._all:
                self._idle.append(handle)

    @contextmanager
    def borrowed(self, sort: int = 0) -> Iterator[Any]:
        """A handle for the time of a block. What was told to wait for an event goes on to do so when it is used again, and a stream goes on with
        what it holds."""
        handle = self.take(sort)
        try:
            yield handle
        finally:
            self.give(handle)

    def trim(self) -> None:
        """Destroys the idle ones."""
        with self._lock:
            while self._idle:
                handle = self._idle.pop()
                self._all.remove(handle)
                self._sorts.pop(int(handle), None)
                self._destroy(handle)

    def close(self) -> None:
        """Destroys all of them, in any state."""
        with self._lock:
            for handle in self._all:
                self._destroy(handle)
            self._all.clear()
            self._idle.clear()

    def _make(self, sort: int) -> Any:
        raise NotImplementedError

    def _destroy(self, handle: Any) -> None:
        raise NotImplementedError


class Streams(_HandlePool):
    """Streams that do not wait for the legacy default stream. Their sorts are their priorities, the driver's own numbers, and `TRANSFER`."""

    what = "stream"

    def _make(self, sort: int) -> Any:
        context, cuda = self._context, self._context.cuda
        flags = int(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING)
        result = cuda.cuStreamCreateWithPriority(flags, sort) if sort < 0 else cuda.cuStreamCreate(flags)
        return context.ok(result, f"{context.name} gives no stream")

    def _destroy(self, handle: Any) -> None:
        self._context.note(self._context.cuda.cuStreamDestroy(handle), f"{self._context.name} cannot destroy a stream")


class Events(_HandlePool):
    """Events. Those of sort `TIMED` take the time, of others none does. Who waits for one of sort `BLOCKING` sleeps; for others a thread spins,
    which is quicker and takes a core."""

    what = "event"

    def _make(self, sort: int) -> Any:
        context, flags = self._context, self._context.cuda.CUevent_flags
        kinds = {BLOCKING: int(flags.CU_EVENT_DISABLE_TIMING) | int(flags.CU_EVENT_BLOCKING_SYNC), TIMED: int(flags.CU_EVENT_DEFAULT)}
        return context.ok(context.cuda.cuEventCreate(kinds.get(sort, int(flags.CU_EVENT_DISABLE_TIMING))), f"{context.name} gives no event")

    def _destroy(self, handle: Any) -> None:
        self._context.note(self._context.cuda.cuEventDestroy(handle), f"{self._context.name} cannot destroy an event")
