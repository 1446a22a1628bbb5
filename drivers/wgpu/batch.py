"""Batches: launches, copies and fills that are encoded together, and submitted as one command buffer.

WebGPU's command buffers run once, and what can be encoded for later, bundles, is for rendering alone: so a sequence and a replay of a graph are encoded
anew each time, into as few passes as copies among the launches allow. Within a pass each dispatch sees what those before it have written.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from vyre_py.drivers.wgpu.library import native
from vyre_py.drivers.wgpu.memory import WORD_BYTES, Storage

if TYPE_CHECKING:
    from vyre_py.drivers.wgpu.device import WgpuDevice
    from vyre_py.drivers.wgpu.launch import WgpuLaunch

__all__ = ["Batch", "Pattern", "Rider", "is_whole"]

_FILL_BYTES: Final = 1 << 20


class Rider(Protocol):
    """What goes with a launch in its batch. `writes` are the times that its pass writes."""

    writes: dict[str, Any] | None

    def encode(self, encoder: Any) -> None:
        """Encodes what comes behind the launch."""

    def submitted(self) -> None:
        """The batch was submitted."""


class Batch:
    """Commands on their way into one submission. Every method raises what wgpu-py raises."""

    __slots__ = ("_counts", "_device", "_encoder", "_label", "_libf", "_null", "_pass", "_pipeline", "_rider", "_within")

    def __init__(self, device: WgpuDevice, label: str = "", rider: Rider | None = None) -> None:
        api = native()
        self._device, self._label, self._rider = device, label, rider
        self._libf, self._null = api.libf, api.ffi.NULL
        self._encoder: Any = None
        self._pass: Any = None  # in which dispatches are encoded now
        self._within: Any = None  # its handle
        self._pipeline: Any = None  # that is set in it
        self._counts: list[Callable[[], None]] = []

    def dispatch(self, launch: WgpuLaunch, pipeline: Any, group: Any, grid: tuple[Any, int] | None = None) -> None:
        """A launch; the grid is its own, or what three words of a buffer, from an offset on, are by then."""
        if self._pass is None:
            self._pass = self._encoding().begin_compute_pass(timestamp_writes=None if self._rider is None else self._rider.writes)
            self._within, self._pipeline = self._pass._internal, None
        within, libf = self._within, self._libf
        # What wgpu-py's methods do, without their lists of no offsets.
        if pipeline is not self._pipeline:
            libf.wgpuComputePassEncoderSetPipeline(within, pipeline._internal)
            self._pipeline = pipeline
        libf.wgpuComputePassEncoderSetBindGroup(within, 0, group._internal, 0, self._null)
        if grid is None:
            libf.wgpuComputePassEncoderDispatchWorkgroups(within, *launch.dispatched)
        else:
            self._pass.dispatch_workgroups_indirect(*grid)
        self._counts.append(launch.count)

    def copy(self, source: Any, source_offset: int, target: Any, target_offset: int, size_bytes: int) -> None:
        """A copy between two of wgpu's buffers, of whole words."""
        self._end_pass()
        self._encoding().copy_buffer_to_buffer(source, source_offset, target, target_offset, size_bytes)

    def clear(self, buffer: Any, offset: int, size_bytes: int) -> None:
        """Zeros in whole words."""
        self._end_pass()
        self._encoding().clear_buffer(buffer, offset, size_bytes)

    def fill(self, buffer: Any, offset: int, size_bytes: int, pattern: Pattern) -> None:
        """A pattern over and over, in whole words."""
        if pattern.storage is None:
            self.clear(buffer, offset, size_bytes)
            return
        source = pattern.storage.buffer
        for at in range(0, size_bytes, pattern.piece_bytes):
            self.copy(source, 0, buffer, offset + at, min(pattern.piece_bytes, size_bytes - at))

    def then(self, count: Callable[[], None]) -> None:
        """Has something counted once all is submitted."""
        self._counts.append(count)

    def submit(self) -> None:
        """Submits what is encoded, and counts its launches."""
        encoder, self._encoder = self._encoder, None
        if encoder is None:
            return
        self._end_pass()
        if self._rider is not None:
            self._rider.encode(encoder)
        self._device.gpu.queue.submit([encoder.finish()])
        if self._rider is not None:
            self._rider.submitted()
        counts, self._counts = self._counts, []
        for count in counts:
            count()

    def _encoding(self) -> Any:
        if self._encoder is None:
            self._encoder = self._device.gpu.create_command_encoder(label=self._label)
        return self._encoder

    def _end_pass(self) -> None:
        if self._pass is not None:
            self._pass.end()
            self._pass = None


def is_whole(*offsets_and_sizes: int) -> bool:
    """Whether bytes are whole words."""
    return not any(number % WORD_BYTES for number in offsets_and_sizes)


class Pattern:
    """Memory with a pattern over and over, which fills copy; none for zeros. It goes back with the object. Raises OutOfMemory, and what wgpu-py raises."""

    __slots__ = ("__weakref__", "piece_bytes", "storage")

    def __init__(self, device: WgpuDevice, size_bytes: int, pattern: bytes) -> None:
        unit = pattern * (1 if is_whole(len(pattern)) else WORD_BYTES)
        data = unit * -(-min(size_bytes, _FILL_BYTES) // len(unit))
        self.piece_bytes = len(data)
        self.storage: Storage | None = None
        if any(pattern):
            self.storage = device._allocate_unset(len(data))
            weakref.finalize(self, device._free, self.storage, len(data)).atexit = False
            device._write(self.storage, 0, np.frombuffer(data, np.uint8))
