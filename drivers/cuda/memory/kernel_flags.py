"""Words of device memory for kernels themselves: cancel flags, the counts by which workgroups meet at a grid barrier, and what scans over the grid publish."""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from vyre_py.drivers.errors import DriverError
from vyre_py.lowering.layout import SlotKind

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.context import Context

__all__ = ["Words"]

WORD_BYTES: Final = 8
_SLAB_WORDS: Final = 4096
# Blocks of several words that nobody uses: as many bytes are kept.
_KEPT_BYTES: Final = 64 << 20
# Words are written by copies, which the device's copy engine makes: to fill is a kernel, and finds no room beside one that fills the device.
_ONE: Final = ctypes.c_uint64(1)
_ZEROS: Final = (ctypes.c_uint64 * _SLAB_WORDS)()


class Words:
    """Words of 8 bytes that are zero at first. Single ones are made in slabs that stay until the device is closed, several together in a block of their own,
    which is kept for the next use of as many while all that are kept take no more than `_KEPT_BYTES`: the oldest are evicted.

    New words are zeroed beside whatever is enqueued, and done when `take` returns, so that no capture takes that for its own, and no launch comes before it.
    A kernel that ran to its end leaves a single word ready for the next one of the same use: a flag is zero then, and a count of arrivals may have its top
    bit set (`lowering.llvm.gpu.grid_barrier`). A block of several may mean something else to another kernel, so it is zeroed when it is given back.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._made: set[int] = set()  # slabs and blocks
        self._fresh: list[int] = []
        self._idle: dict[tuple[SlotKind, int], list[int]] = defaultdict(list)
        self._kept: dict[int, tuple[SlotKind, int]] = {}  # of the idle, blocks of several words, the oldest first
        self._evicted: list[int] = []
        self._kept_bytes = self._in_use = 0
        self._lock = threading.RLock()  # a finaliser may run inside a call that holds it

    def take(self, use: SlotKind, words: int = 1) -> int:
        """The address of so many words that are ready for work enqueued from now on, within a capture too. Raises OutOfMemory, DeviceLost."""
        with self._context.entered(), self._lock:
            self._free_evicted()
            found = self._idle[use, words].pop() if self._idle[use, words] else None
            if found is not None:
                if self._kept.pop(found, None) is not None:
                    self._kept_bytes -= words * WORD_BYTES
            elif words > 1:
                found = self._zeros(words * WORD_BYTES)
            else:
                if not self._fresh:
                    slab = self._zeros(ctypes.sizeof(_ZEROS))
                    self._fresh += range(slab, slab + WORD_BYTES * _SLAB_WORDS, WORD_BYTES)
                found = self._fresh.pop()
            self._in_use += 1
            return found

    def _zeros(self, size_bytes: int) -> int:
        """New words, all of them zero."""
        context, cuda, piece = self._context, self._context.cuda, ctypes.sizeof(_ZEROS)
        doing = f"{context.name} has no memory for a kernel's own words"
        with context.relaxed(doing):
            made = int(context.ok(context.relief.attempt(lambda: cuda.cuMemAlloc(size_bytes)), doing))
            try:
                stream = context.control_stream
                for offset in range(0, size_bytes, piece):
                    context.ok(cuda.cuMemcpyHtoDAsync(made + offset, ctypes.addressof(_ZEROS), min(piece, size_bytes - offset), stream), doing)
                context.ok(cuda.cuStreamSynchronize(stream), doing)
            except DriverError:
                context.note(cuda.cuMemFree(made), f"{context.name} cannot free memory")
                raise
        self._made.add(made)
        return made

    def raise_flag(self, word: int) -> None:
        """Sets a word to 1 at once, without waiting for enqueued work. Raises DriverError."""
        context = self._context
        result = context.cuda.cuMemcpyHtoDAsync(word, ctypes.addressof(_ONE), WORD_BYTES, context.control_stream)
        context.ok(result, f"{context.name} cannot stop a kernel")

    def reset(self, blocks: Iterable[tuple[int, int]]) -> None:
        """Sets words to zero, so many from each address on, in order with what is enqueued on our stream; a capture would take that for its own, so it waits
        for the end of one. Raises DriverError."""
        context = self._context
        context.busy.value += 1  # no capture begins before it is enqueued
        try:
            if context.later(lambda: self.reset(blocks)):
                return
            for address, words in blocks:
                status = context.cuda.cuMemsetD32Async(address, 0, words * WORD_BYTES // 4, context.stream)
                context.ok(status, f"{context.name} cannot reset a kernel")
        finally:
            context.busy.value -= 1

    def give(self, use: SlotKind, address: int, words: int = 1) -> None:
        """Takes words back: nothing that is enqueued after what our stream holds uses them. Quiet after `close`, and in a forked child."""
        context = self._context
        if context.handles_invalid:  # a thread of the parent of a forked child may have held the lock
            return
        with self._lock:
            if not self._made:
                return
            self._in_use -= 1
            self._idle[use, words].append(address)
            if words > 1:
                self._keep(address, use, words)

    def _keep(self, address: int, use: SlotKind, words: int) -> None:
        """Zeroes a block behind what our stream holds, and keeps it."""
        context = self._context
        with context.visited():
            status = context.cuda.cuMemsetD32Async(address, 0, words * WORD_BYTES // 4, context.stream)
            context.note(status, f"{context.name} cannot reset a kernel")
        self._kept[address] = use, words
        self._kept_bytes += words * WORD_BYTES
        self._evict(_KEPT_BYTES)

    def _evict(self, limit: int) -> None:
        """Evicts the oldest blocks until so many bytes are kept. They are freed later: that waits for the device, and a finaliser must not."""
        while self._kept_bytes > limit:
            address = next(iter(self._kept))
            use, words = self._kept.pop(address)
            self._idle[use, words].remove(address)
            self._kept_bytes -= words * WORD_BYTES
            self._evicted.append(address)

    def _free_evicted(self) -> None:
        context = self._context
        while self._evicted:
            address = self._evicted.pop()
            self._made.discard(address)
            context.note(context.cuda.cuMemFree(address), f"{context.name} cannot free memory")

    def drop_kept(self) -> None:
        """Frees the blocks that nobody uses, unless another thread is about to take or give some."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._evict(0)
            if self._evicted:
                with self._context.entered():
                    self._free_evicted()
        finally:
            self._lock.release()

    def trim(self) -> None:
        """Frees what nobody uses. Call it once nothing is enqueued."""
        with self._lock:
            if self._in_use:
                self.drop_kept()
            else:
                self.close()

    def close(self) -> None:
        """Frees all of them, in any state of the context."""
        context = self._context
        with self._lock:
            for address in sorted(self._made):
                context.note(context.cuda.cuMemFree(address), f"{context.name} cannot free memory")
            for held in (self._made, self._fresh, self._idle, self._kept, self._evicted):
                held.clear()
            self._kept_bytes = self._in_use = 0
