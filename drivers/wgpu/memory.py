"""Device memory: storage buffers, and copies in, out and between them.

WebGPU copies whole words only. A range that begins or ends inside a word is copied with its neighbours, which are read first.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.host_arrays import Bytes
from vyre_py.drivers.observers import Watched

if TYPE_CHECKING:
    from vyre_py.drivers.wgpu.launch import WgpuLaunch

__all__ = ["WORD_BYTES", "Storage", "WgpuMemory", "words_around"]

WORD_BYTES: Final = 4


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

    def release(self) -> None:
        """Releases the buffer. Launches that are bound to it raise from now on."""
        self._buffer = None
        for launch in self.launches.now():
            launch.disarm()


def words_around(offset: int, size_bytes: int) -> tuple[int, int]:
    """The whole words that a range of bytes touches: their first byte, and the one after their last."""
    return offset - offset % WORD_BYTES, -(-(offset + size_bytes) // WORD_BYTES) * WORD_BYTES


class WgpuMemory:
    """Allocates and copies. Every method raises what wgpu-py raises."""

    def __init__(self, package: ModuleType, device: Any) -> None:
        self._device: Any = device
        usage = package.BufferUsage
        self._storage_usage = usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
        self._staging_usage = usage.MAP_READ | usage.COPY_DST
        self._word = self.allocate(WORD_BYTES)

    def close(self) -> None:
        """Releases the device."""
        self._word.release()
        self._device = None

    def allocate(self, size_bytes: int) -> Storage:
        """Zeroed memory; WebGPU zeroes it, and knows no empty buffers."""
        _, end = words_around(0, max(1, size_bytes))
        return Storage(self._device.create_buffer(size=end, usage=self._storage_usage))

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
        begin, end = words_around(offset, target.size)
        staging = self._device.create_buffer(size=end - begin, usage=self._staging_usage)
        self._copy_words(storage.buffer, begin, staging, 0, end - begin)
        staging.map_sync("READ_NOSYNC")
        mapped = np.frombuffer(staging.read_mapped(copy=False), np.uint8)
        target[...] = mapped[offset - begin : offset - begin + target.size]
        del mapped
        staging.unmap()

    def copy(self, source: Storage, source_offset: int, target: Storage, target_offset: int, size_bytes: int) -> None:
        """Copies between two ranges that do not overlap; through the host where words are cut, or both lie in one buffer."""
        if source is target or (source_offset | target_offset | size_bytes) % WORD_BYTES:
            through = np.empty(size_bytes, np.uint8)
            self.read(source, source_offset, through)
            self.write(target, target_offset, through)
        else:
            self._copy_words(source.buffer, source_offset, target.buffer, target_offset, size_bytes)

    def wait(self) -> None:
        """Waits for what was submitted before, by reading a word: wgpu-py's own call for it (0.32) fails on a type of its binding."""
        self.read(self._word, 0, np.empty(WORD_BYTES, np.uint8))

    def _copy_words(self, source: Any, source_offset: int, target: Any, target_offset: int, size_bytes: int) -> None:
        encoder = self._device.create_command_encoder()
        encoder.copy_buffer_to_buffer(source, source_offset, target, target_offset, size_bytes)
        self._device.queue.submit([encoder.finish()])
