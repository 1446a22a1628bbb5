"""Device memory: storage buffers from a pool by size class, and copies in, out and between them.

WebGPU copies whole words only. A range that begins or ends inside a word is copied with its neighbours, which are read first.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.host_arrays import Bytes
from vyre_py.drivers.memory.pool import SizePool, bytes_from, class_bytes
from vyre_py.drivers.observers import Watched
from vyre_py.drivers.wgpu.readback import Readback, Reading

if TYPE_CHECKING:
    from vyre_py.drivers.observe.telemetry import Telemetry
    from vyre_py.drivers.wgpu.launch import WgpuLaunch

__all__ = ["WORD_BYTES", "Storage", "WgpuMemory", "words_around"]

WORD_BYTES: Final = 4
_KEPT_BYTES: Final = 256 << 20
# Up to so many bytes are zeroed by writing zeros, which needs no submission.
_WRITTEN_ZEROS: Final = bytes(64 << 10)
# What is larger is read in pieces of so many bytes, of which one is copied on the host while the device makes the next.
_PIECE_BYTES: Final = 32 << 20


class Storage:
    """One allocation: wgpu's buffer of whole words, and the launches that are bound to it.

    It is freed by releasing the object, never by WebGPU's `destroy`: wgpu-native ends the process when work that uses a destroyed buffer is submitted, which
    another thread may be about to do. wgpu keeps the memory until submitted work is done.
    """

    __slots__ = ("__weakref__", "_buffer", "launches")

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer
        self.launches: Watched[WgpuLaunch] = Watched()

    @property
    def buffer(self) -> Any:
        """wgpu's buffer. Raises BindingError when another thread has released it meanwhile."""
        buffer = self._buffer
        if buffer is None:
            raise BindingError("buffer", ["the buffer was freed"])
        return buffer

    @property
    def released(self) -> bool:
        """Whether the buffer was released."""
        return self._buffer is None

    def release(self) -> Any:
        """Releases the buffer, and gives it, or None where it was released. Launches that are bound to it raise from now on."""
        buffer, self._buffer = self._buffer, None
        for launch in self.launches.now():
            launch.disarm()
        return buffer


def words_around(offset: int, size_bytes: int) -> tuple[int, int]:
    """The whole words that a range of bytes touches: their first byte, and the one after their last."""
    return offset - offset % WORD_BYTES, -(-(offset + size_bytes) // WORD_BYTES) * WORD_BYTES


class WgpuMemory:
    """Allocates and copies. Every method raises what wgpu-py raises.

    At most `keep_bytes` of freed memory (256 MiB, or what VYRE_DEVICE_POOL_BYTES says) are kept for the next allocations of their class. Everything goes
    through one queue, so that what used a freed buffer comes before what uses it next. `wait` is how a reading is waited for.
    """

    def __init__(self, package: ModuleType, device: Any, readback: Readback, telemetry: Telemetry, wait: Callable[[Reading], None]) -> None:
        """Raises DriverError for VYRE_DEVICE_POOL_BYTES that is no number of bytes."""
        self._device: Any = device
        self._readback, self._telemetry, self._wait = readback, telemetry, wait
        usage = package.BufferUsage
        self._usage = usage.STORAGE | usage.INDIRECT | usage.COPY_SRC | usage.COPY_DST
        self._largest = device.limits["max-buffer-size"] // WORD_BYTES * WORD_BYTES
        self._held_bytes = 0
        self._kept: SizePool[Any] = SizePool(bytes_from("VYRE_DEVICE_POOL_BYTES", _KEPT_BYTES), self._drop)
        telemetry.gauge("device_pool_cached_bytes", lambda: self._kept.cached_bytes)
        telemetry.gauge("device_pool_held_bytes", lambda: self._held_bytes)

    def close(self) -> None:
        """Releases the device."""
        self._device = None
        self._kept.drain()

    def clear(self) -> None:
        """Drops what is kept."""
        self._kept.shrink()

    def allocate(self, size_bytes: int, zeroed: bool) -> Storage:
        """Memory; what WebGPU gives is zeroed, and it knows no empty buffers."""
        _, size = words_around(0, max(1, size_bytes))
        wanted = max(size, min(class_bytes(size), self._largest))
        self._telemetry.device_pool_bytes_asked += size_bytes
        buffer = self._kept.take(wanted)
        if buffer is None:
            self._telemetry.device_pool_misses += 1
            return Storage(self._made(wanted))
        self._telemetry.device_pool_hits += 1
        if zeroed:
            self._clear(buffer, size)
        return Storage(buffer)

    def free(self, storage: Storage) -> None:
        """Takes memory back. Never raises; may be called from a finaliser."""
        buffer = storage.release()
        if buffer is not None and self._device is not None:
            self._kept.give(buffer, buffer.size)

    def write(self, storage: Storage, offset: int, source: Bytes) -> None:
        """Copies bytes in."""
        begin, end = words_around(offset, source.size)
        if end - begin == source.size:
            self._device.queue.write_buffer(storage.buffer, begin, source)
            return
        words = np.empty(end - begin, np.uint8)
        for edge in {begin, end - WORD_BYTES}:
            self.read(storage, edge, words[edge - begin : edge - begin + WORD_BYTES])
        words[offset - begin : offset - begin + source.size] = source
        self._device.queue.write_buffer(storage.buffer, begin, words)

    def read(self, storage: Storage, offset: int, target: Bytes) -> None:
        """Waits for what was submitted before, then copies bytes out."""
        pieces = [(at, min(_PIECE_BYTES, target.size - at)) for at in range(0, target.size, _PIECE_BYTES)]
        ahead: list[tuple[Reading, int, Bytes]] = []
        for at, size_bytes in pieces:
            begin, end = words_around(offset + at, size_bytes)
            reading = self._readback.begin([(storage.buffer, begin, end - begin)])
            ahead.append((reading, offset + at - begin, target[at : at + size_bytes]))
            if len(ahead) > 1:
                self._taken(*ahead.pop(0))
        for row in ahead:
            self._taken(*row)

    def copy(self, source: Storage, source_offset: int, target: Storage, target_offset: int, size_bytes: int) -> None:
        """Copies between two ranges that do not overlap; through the host where words are cut, or both lie in one buffer."""
        if source is target or (source_offset | target_offset | size_bytes) % WORD_BYTES:
            through = np.empty(size_bytes, np.uint8)
            self.read(source, source_offset, through)
            self.write(target, target_offset, through)
        else:
            encoder = self._device.create_command_encoder()
            encoder.copy_buffer_to_buffer(source.buffer, source_offset, target.buffer, target_offset, size_bytes)
            self._device.queue.submit([encoder.finish()])

    def _taken(self, reading: Reading, offset: int, target: Bytes) -> None:
        try:
            self._wait(reading)
            reading.take(0, offset, target)
        finally:
            reading.close()

    def _made(self, size_bytes: int) -> Any:
        made = self._device.create_buffer(size=size_bytes, usage=self._usage)
        self._held_bytes += size_bytes
        return made

    def _clear(self, buffer: Any, size_bytes: int) -> None:
        if size_bytes <= len(_WRITTEN_ZEROS):
            self._device.queue.write_buffer(buffer, 0, _WRITTEN_ZEROS, 0, size_bytes)
        else:
            encoder = self._device.create_command_encoder()
            encoder.clear_buffer(buffer, 0, size_bytes)
            self._device.queue.submit([encoder.finish()])

    def _drop(self, buffer: Any, size_bytes: int) -> None:
        self._held_bytes -= size_bytes
