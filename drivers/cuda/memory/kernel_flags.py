"""Words of device memory for kernels themselves: cancel flags, and the counts by which workgroups meet at a grid barrier."""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from vyre_py.drivers.errors import DriverError
from vyre_py.lowering.layout import SlotKind

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.context import Context

__all__ = ["Words"]

WORD_BYTES: Final = 8
_SLAB_WORDS: Final = 4096
# Words are written by copies, which the device's copy engine makes: to fill is a kernel, and finds no room beside one that fills the device.
_ONE: Final = ctypes.c_uint64(1)
_ZEROS: Final = (ctypes.c_uint64 * _SLAB_WORDS)()


class Words:
    """Words of 8 bytes that are zero at first, made in slabs that stay until the device is closed.

    A kernel that ran to its end leaves its words ready for the next one of the same use, so they are zeroed only once: beside whatever is enqueued, and
    done when `take` returns, so that no capture takes that for its own, and no launch comes before it. A flag is zero then. A count of arrivals may have
    its top bit set (`lowering.llvm.gpu.grid_barrier`), so that a word never serves as both.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._slabs: list[int] = []
        self._fresh: list[int] = []
        self._idle: dict[SlotKind, list[int]] = defaultdict(list)
        self._lock = threading.RLock()  # a finaliser may run inside a call that holds it

    def take(self, use: SlotKind) -> int:
        """The address of a word that is ready for work enqueued from now on, within a capture too. Raises OutOfMemory, DeviceLost."""
        with self._context.entered(), self._lock:
            if self._idle[use]:
                return self._idle[use].pop()
            if not self._fresh:
                slab = self._slab()
                self._slabs.append(slab)
                self._fresh += range(slab, slab + WORD_BYTES * _SLAB_WORDS, WORD_BYTES)
            return self._fresh.pop()

    def _slab(self) -> int:
        """New words, all of them zero."""
        context, cuda = self._context, self._context.cuda
        doing = f"{context.name} has no memory for a kernel's own words"
        with context.relaxed(doing):
            slab = int(context.ok(context.relief.attempt(lambda: cuda.cuMemAlloc(ctypes.sizeof(_ZEROS))), doing))
            try:
                stream = context.control_stream
                context.ok(cuda.cuMemcpyHtoDAsync(slab, ctypes.addressof(_ZEROS), ctypes.sizeof(_ZEROS), stream), doing)
                context.ok(cuda.cuStreamSynchronize(stream), doing)
            except DriverError:
                context.note(cuda.cuMemFree(slab), f"{context.name} cannot free memory")
                raise
        return slab

    def raise_flag(self, word: int) -> None:
        """Sets a word to 1 at once, without waiting for enqueued work. Raises DriverError."""
        context = self._context
        result = context.cuda.cuMemcpyHtoDAsync(word, ctypes.addressof(_ONE), WORD_BYTES, context.control_stream)
        context.ok(result, f"{context.name} cannot stop a kernel")

    def reset(self, *words: int) -> None:
        """Sets words to zero, in order with what is enqueued on our stream; a capture would take that for its own, so it waits for the end of one. Raises
        DriverError."""
        context = self._context
        context.busy.value += 1  # no capture begins before it is enqueued
        try:
            if context.later(lambda: self.reset(*words)):
                return
            for word in words:
                context.ok(context.cuda.cuMemsetD32Async(word, 0, WORD_BYTES // 4, context.stream), f"{context.name} cannot reset a kernel")
        finally:
            context.busy.value -= 1

    def give(self, use: SlotKind, word: int) -> None:
        """Takes a word back: nothing that is enqueued after what our stream holds uses it. Quiet after `close`, and in a forked child."""
        if self._context.handles_invalid:  # a thread of the parent of a forked child may have held the lock
            return
        with self._lock:
            if self._slabs:
                self._idle[use].append(word)

    def trim(self) -> None:
        """Frees them if none is in use. Call it once nothing is enqueued."""
        with self._lock:
            if len(self._fresh) + sum(map(len, self._idle.values())) == _SLAB_WORDS * len(self._slabs):
                self.close()

    def close(self) -> None:
        """Frees all of them, in any state of the context."""
        context = self._context
        with self._lock:
            for slab in self._slabs:
                context.note(context.cuda.cuMemFree(slab), f"{context.name} cannot free memory")
            self._slabs.clear()
            self._fresh.clear()
            self._idle.clear()
