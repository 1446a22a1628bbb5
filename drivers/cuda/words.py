"""Words of device memory for kernels themselves: cancel flags, and the counts by which workgroups meet at a grid barrier."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from vyre_py.drivers.errors import DriverError

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.context import Context

__all__ = ["WORD_BYTES", "Words"]

WORD_BYTES: Final = 8
_SLAB_WORDS: Final = 4096


class Words:
    """Zeroed words of 8 bytes, made in slabs that stay until the device is closed."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._slabs: list[int] = []
        self._idle: list[int] = []
        self._lock = threading.RLock()  # a finaliser may run inside a call that holds it

    def take(self) -> int:
        """The address of a word that is zero for whatever is enqueued on our stream from now on. Raises OutOfMemory, DeviceLost."""
        context, doing = self._context, f"{self._context.name} has no memory for a kernel's own words"
        context.enter()
        with self._lock:
            if not self._idle:
                slab = int(context.ok(context.cuda.cuMemAlloc(WORD_BYTES * _SLAB_WORDS), doing))
                self._slabs.append(slab)
                self._idle += range(slab, slab + WORD_BYTES * _SLAB_WORDS, WORD_BYTES)
            word = self._idle.pop()
        try:
            context.ok(context.cuda.cuMemsetD32Async(word, 0, WORD_BYTES // 4, context.stream), doing)
        except DriverError:
            self.give(word)
            raise
        return word

    def give(self, word: int) -> None:
        """Takes a word back: nothing that is enqueued after what our stream holds uses it. Quiet after `close`, and in a forked child."""
        if self._context.gone:  # a thread of the parent of a forked child may have held the lock
            return
        with self._lock:
            if self._slabs:
                self._idle.append(word)

    def trim(self) -> None:
        """Frees them where nobody has any. Call it once nothing is enqueued."""
        with self._lock:
            if len(self._idle) == _SLAB_WORDS * len(self._slabs):
                self.close()

    def close(self) -> None:
        """Frees all of them, whatever the context's state."""
        context = self._context
        with self._lock:
            for slab in self._slabs:
                context.note(context.cuda.cuMemFree(slab), f"{context.name} cannot free memory")
            self._slabs.clear()
            self._idle.clear()
