"""The uniform blocks of launches: places in a few buffers that all launches share.

Not a ring: a launch keeps the words that it was bound with for as long as it lives, in graphs and sequences, too, and a ring would come around to them. So
a place is taken at bind and goes back with the launch. What `set` writes, and what the next owner of a place writes, comes after all that was submitted
before: wgpu has one queue.
"""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from types import ModuleType
from typing import Any, Final

from vyre_py.lowering.wgsl.uniform_block import MAX_WORDS

__all__ = ["UniformBlock", "Uniforms"]

_SHARED_BYTES: Final = 16 * MAX_WORDS  # four of the largest blocks


class UniformBlock:
    """A place in a buffer of wgpu's: `resource` is what a bind group has of it."""

    __slots__ = ("__weakref__", "_buffer", "_queue", "offset", "resource")

    def __init__(self, queue: Any, buffer: Any, offset: int, size_bytes: int) -> None:
        self._queue, self._buffer, self.offset = queue, buffer, offset
        self.resource = {"buffer": buffer, "offset": offset, "size": size_bytes}

    def place(self, offset: int) -> tuple[Any, int]:
        """wgpu's buffer, and where in it an offset of the block lies."""
        return self._buffer, self.offset + offset

    def write(self, offset: int, data: bytes | bytearray) -> None:
        """Writes words, in order with what is submitted: launches before keep the words that they were given."""
        self._queue.write_buffer(self._buffer, self.offset + offset, data)


class Uniforms:
    """The blocks of one device. Any thread may take one."""

    def __init__(self, package: ModuleType, gpu: Any) -> None:
        self._gpu = gpu
        self._usage = package.BufferUsage.UNIFORM | package.BufferUsage.COPY_DST
        self._align_bytes = gpu.limits["min-uniform-buffer-offset-alignment"]
        self._lock = threading.Lock()
        self._buffer: Any = None  # of which places are cut now, from `_next` on
        self._next = _SHARED_BYTES
        self._free: defaultdict[int, list[tuple[Any, int]]] = defaultdict(list)  # places by size, which finalisers add to

    def block(self, size_bytes: int) -> UniformBlock:
        """A block of so many bytes, with anything in them. Raises what wgpu-py raises."""
        size = -(-size_bytes // self._align_bytes) * self._align_bytes
        try:
            place = self._free[size].pop()
        except IndexError:
            place = self._cut(size)
        made = UniformBlock(self._gpu.queue, *place, size_bytes)
        weakref.finalize(made, self._free[size].append, place).atexit = False
        return made

    def _cut(self, size: int) -> tuple[Any, int]:
        with self._lock:
            if self._next + size > _SHARED_BYTES:
                self._buffer = self._gpu.create_buffer(size=_SHARED_BYTES, usage=self._usage)
                self._next = 0
            place = self._buffer, self._next
            self._next += size
            return place
