"""A ring of pinned memory that small writes go through, so that none of them waits."""

from __future__ import annotations

import threading
from typing import Any, Final

import numpy as np

from vyre_py.drivers.cuda.context import Context
from vyre_py.drivers.cuda.memory.pinned import PinnedBlock, PinnedPool
from vyre_py.drivers.memory.host_arrays import Host

__all__ = ["ALIGN", "Ring", "view_of"]

# So many sections of so many bytes, each used again once what left it has arrived.
SECTIONS: Final = 8
SECTION_BYTES: Final = 256 << 10
ALIGN: Final = 64


def view_of(block: PinnedBlock, place: int, like: Host) -> Host:
    """A part of a pinned block as an array of the shape and type of another."""
    return block.bytes[place : place + like.nbytes].view(like.dtype).reshape(like.shape)


class Ring:
    """Pinned memory that small writes go through, one after the other."""

    def __init__(self, context: Context, pinned: PinnedPool) -> None:
        self._context = context
        self._pinned = pinned
        self._block: PinnedBlock | None = None
        self._left: list[Any] = [None] * SECTIONS  # after what left a section
        self._at = 0
        self._lock = threading.Lock()

    def send(self, target: int, source: Host, doing: str) -> None:
        """Enqueues a copy of at most a section's bytes. The source may be reused on return."""
        context, cuda = self._context, self._context.cuda
        with self._lock:
            if self._block is None:
                self._block = self._pinned.take(SECTIONS * SECTION_BYTES)
            place = self._place(source.nbytes, doing)
            np.copyto(view_of(self._block, place, source), source)
            context.ok(cuda.cuMemcpyHtoDAsync(target, self._block.address + place, source.nbytes, context.stream), doing)

    def _place(self, size_bytes: int, doing: str) -> int:
        context, cuda = self._context, self._context.cuda
        section = self._at // SECTION_BYTES
        if self._at + size_bytes > (section + 1) * SECTION_BYTES:
            if self._left[section] is None:
                self._left[section] = context.events.take()
            context.ok(cuda.cuEventRecord(self._left[section], context.stream), doing)
            section = (section + 1) % SECTIONS
            if self._left[section] is not None:
                context.ok(cuda.cuEventSynchronize(self._left[section]), doing)
            self._at = section * SECTION_BYTES
        place = self._at
        # A section that is exactly full is left by the next write.
        self._at = min(place + -(-size_bytes // ALIGN) * ALIGN, (section + 1) * SECTION_BYTES - 1)
        return place

    def trim(self) -> None:
        """Waits for transfers in progress, and releases the memory until the next write."""
        context = self._context
        with self._lock:
            if self._block is not None:
                context.ok(context.cuda.cuStreamSynchronize(context.stream), f"{context.name} failed while it ran")
                self._give_back(self._block)

    def close(self) -> None:
        """Gives the memory back. Call it once nothing is enqueued."""
        with self._lock:
            if self._block is not None:
                self._give_back(self._block)

    def _give_back(self, block: PinnedBlock) -> None:
        block.give()
        for event in filter(None, self._left):
            self._context.events.give(event)
        self._block, self._left, self._at = None, [None] * SECTIONS, 0
