"""Reading back: what device memory holds goes to staging buffers, which are mapped when the device has come that far, and used again."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.memory.host_arrays import Bytes
from vyre_py.drivers.memory.pool import SizePool, bytes_from, class_bytes
from vyre_py.drivers.wgpu.completion import Completions, Mark

if TYPE_CHECKING:
    from vyre_py.drivers.observe.telemetry import Telemetry

__all__ = ["ALIGN_BYTES", "Follower", "Readback", "Reading"]

ALIGN_BYTES: Final = 8  # where WebGPU lets a mapped range begin
_KEPT_BYTES: Final = 128 << 20


class Readback:
    """The staging buffers of a device, at most `keep_bytes` (128 MiB, or what VYRE_PINNED_POOL_BYTES says) of them kept for the next readings. Every method
    raises what wgpu-py raises."""

    def __init__(self, package: ModuleType, gpu: Any, completions: Completions, telemetry: Telemetry) -> None:
        """Raises DriverError for VYRE_PINNED_POOL_BYTES that is no number of bytes."""
        self._gpu, self.completions, self._telemetry = gpu, completions, telemetry
        self._usage = package.BufferUsage.MAP_READ | package.BufferUsage.COPY_DST
        self._held_bytes = 0
        self._kept: SizePool[Any] = SizePool(bytes_from("VYRE_PINNED_POOL_BYTES", _KEPT_BYTES), self.drop)
        telemetry.gauge("pinned_pool_cached_bytes", lambda: self._kept.cached_bytes)
        telemetry.gauge("pinned_pool_held_bytes", lambda: self._held_bytes)

    def begin(self, ranges: Sequence[tuple[Any, int, int]]) -> Reading:
        """Has ranges of whole words, each a buffer of wgpu's, its first byte and a size, follow what was submitted so far, in one submission."""
        follower = self.follower(ranges)
        try:
            encoder = self._gpu.create_command_encoder()
            follower.encode(encoder)
            self._gpu.queue.submit([encoder.finish()])
            follower.submitted()
        finally:
            follower.close()
        assert follower.reading is not None  # it was submitted
        return follower.reading

    def follower(self, ranges: Sequence[tuple[Any, int, int]]) -> Follower:
        """The same for ranges that are to follow a launch, in its submission."""
        total = sum([-(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES for _, _, size_bytes in ranges])
        return Follower(self, self._take(total), ranges)

    def give(self, staging: Any) -> None:
        """Takes a staging buffer back, whose mapping may not be done. Never raises; may be called from a finaliser."""
        gpu = self._gpu
        if gpu is None:
            return  # with the device closed there is nothing to keep it for
        try:
            self.completions.unmap(staging)
        except Exception:  # noqa: BLE001 - the device is lost: the buffer goes
            self.drop(staging, staging.size)
        else:
            self._kept.give(staging, staging.size)

    def clear(self) -> None:
        """Drops what is kept."""
        self._kept.shrink()

    def close(self) -> None:
        """Drops everything; readings that are under way fail."""
        self._gpu = None
        self._kept.drain()

    def _take(self, size_bytes: int) -> Any:
        wanted = class_bytes(max(size_bytes, ALIGN_BYTES))
        self._telemetry.pinned_pool_bytes_asked += size_bytes
        found = self._kept.take(wanted)
        if found is not None:
            self._telemetry.pinned_pool_hits += 1
            return found
        self._telemetry.pinned_pool_misses += 1
        made = self._gpu.create_buffer(size=wanted, usage=self._usage)
        self._held_bytes += wanted
        return made

    def drop(self, staging: Any, size_bytes: int) -> None:
        """Counts that a staging buffer goes."""
        self._held_bytes -= size_bytes


class Follower:
    """Ranges on their way to a staging buffer, behind a launch. `reading` is there once it was submitted; `close` gives up what never was."""

    __slots__ = ("_owner", "_ranges", "_staging", "reading", "writes")

    def __init__(self, owner: Readback, staging: Any, ranges: Sequence[tuple[Any, int, int]]) -> None:
        self._owner, self._staging, self._ranges = owner, staging, ranges
        self.writes: dict[str, Any] | None = None  # it has no clock
        self.reading: Reading | None = None

    def encode(self, encoder: Any) -> None:
        """Encodes the copies."""
        at = 0
        for buffer, begin, size_bytes in self._ranges:
            encoder.copy_buffer_to_buffer(buffer, begin, self._staging, at, size_bytes)
            at += -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES

    def submitted(self) -> None:
        """Has the staging buffer be mapped."""
        places = [0]
        for _, _, size_bytes in self._ranges:
            places.append(places[-1] + -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES)
        self.reading = Reading(self._owner, self._staging, self._owner.completions.mapping(self._staging), places, places[-1])

    def close(self) -> None:
        """Drops the staging buffer, where no reading has it."""
        if self.reading is None:
            self._owner.drop(self._staging, self._staging.size)


class Reading:
    """A reading that is under way; `mark` says when it is done. The staging buffer goes back with the object, or by `close`."""

    __slots__ = ("__weakref__", "_close", "_owner", "_places", "_staging", "_total", "mark")

    def __init__(self, owner: Readback, staging: Any, mark: Mark, places: list[int], total: int) -> None:
        self._owner, self._staging, self.mark = owner, staging, mark
        self._places, self._total = places, total
        self._close = weakref.finalize(self, owner.give, staging)
        self._close.atexit = False

    def take(self, number: int, offset: int, target: Bytes) -> None:
        """Copies bytes of a range, from an offset within it on, into host memory, once the mark is done."""
        mapped = np.frombuffer(self._owner.completions.view(self._staging, self._total), np.uint8)
        begin = self._places[number] + offset
        target[...] = mapped[begin : begin + target.size]

    def close(self) -> None:
        """Gives the staging buffer back."""
        self._close()
