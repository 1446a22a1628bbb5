"""Pending results on a GPU: read back on the copy stream, while the compute stream continues."""

from __future__ import annotations

import weakref
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.cuda.launch.waiting import event_is_done
from vyre_py.drivers.cuda.memory.pinned import PinnedBlock
from vyre_py.drivers.dispatch import Run
from vyre_py.drivers.memory.buffer import Buffer, host_shape
from vyre_py.drivers.memory.host_arrays import no_memory
from vyre_py.drivers.pending import PolledPending, poll

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.device import CudaDevice

__all__ = ["CudaPending"]

# Results up to so many bytes are on their way to page-locked memory from the start; larger ones are fetched when they are asked for.
_EARLY_BYTES: Final = 64 << 20
_ALIGN: Final = 64


def _release(device: CudaDevice, staged: tuple[Buffer, ...], block: PinnedBlock | None, event: Any) -> None:
    """Gives back what a pending result held, each piece once the device is done with it. Quiet, since a finaliser calls it."""
    context, doing = device.context, f"{device.name} cannot give back what a pending result used"
    if context.usable:
        # Staged memory is used again in the order of our stream, or at worst once the host has waited.
        with context.visited():
            if not context.note(context.cuda.cuStreamWaitEvent(context.stream, event, 0), doing):
                context.note(context.cuda.cuEventSynchronize(event), doing)
    for buffer in staged:
        buffer.free()
    if block is None:
        context.events.give(event)
    else:
        block.give(event)


class CudaPending(PolledPending):
    """A dispatch that was enqueued. When dropped it frees its memory in the order of the streams, without waiting."""

    def __init__(self, run: Run, device: CudaDevice) -> None:
        super().__init__(repr(run.pipeline.name))
        self._run = run
        self._device = device
        self._doing = f"{run.pipeline.name!r} failed while it ran on {device.name}"
        context = device.context
        try:
            run.start()
            with context.entered():
                event = context.events.take()
        except BaseException:
            run.finish()
            raise
        block: PinnedBlock | None = None
        self._places: dict[str, int] = {}
        try:
            with context.entered(), context.using(self._doing):
                block = self._read_back(event)
        finally:
            # From here on whatever happens is cleaned up by the finaliser, this object's own loss included.
            self._event, self._block = event, block
            self._finalizer = weakref.finalize(self, _release, device, tuple(run.staged.values()), block, event)
            self._finalizer.atexit = False

    def _read_back(self, event: Any) -> PinnedBlock | None:
        """Has results follow the kernel to page-locked memory, and records the event behind them."""
        context, cuda = self._device.context, self._device.context.cuda
        names = [m.name for m in self._run.binding.interface.buffers if m.access.writes and m.name in self._run.staged]
        total = 0
        for name in names:
            self._places[name] = total
            total += -(-self._run.staged[name].size_bytes // _ALIGN) * _ALIGN
        stream = int(self._run.launch.kernel.stream) if hasattr(self._run.launch, "kernel") else int(context.stream)
        if not 0 < total <= _EARLY_BYTES:
            self._places.clear()
            context.ok(cuda.cuEventRecord(event, cuda.CUstream(stream)), self._doing)
            return None
        block = self._device.pinned_pool.take(total)
        try:
            context.order(stream, int(context.copy_stream))
            for name in names:
                buffer = self._run.staged[name]
                if buffer.size_bytes:
                    source, target = buffer.handle + buffer.offset_bytes, block.address + self._places[name]
                    context.ok(cuda.cuMemcpyDtoHAsync(target, source, buffer.size_bytes, context.copy_stream), self._doing)
            context.ok(cuda.cuEventRecord(event, context.copy_stream), self._doing)
        except BaseException:
            context.note(cuda.cuStreamSynchronize(context.copy_stream), self._doing)  # a copy may still write to memory that is about to be reused
            block.give()
            raise
        telemetry = self._device.telemetry
        telemetry.downloads += len(names)
        telemetry.bytes_downloaded += sum(self._run.staged[name].size_bytes for name in names)
        return block

    def _require_askable(self) -> None:
        self._device.require_usable()
        self._device.context.require_no_own_capture(f"a result cannot be waited for on {self._device.name}")

    def _is_done(self) -> bool:
        self._require_askable()
        with self._device.context.entered():
            return event_is_done(self._device.context, self._event, self._doing)

    def _wait(self, timeout: float | None) -> bool:
        context = self._device.context
        self._require_askable()
        self._device.telemetry.syncs += 1
        if timeout is not None:
            return poll(self.done, timeout)  # another thread may take the results meanwhile, and release the event
        with context.entered():
            context.ok(context.cuda.cuEventSynchronize(self._event), self._doing)
        return True

    def _collect(self) -> dict[str, Any]:
        try:
            if self._block is None:
                return self._run.collect()
            results = {m.name: self._written(m.name) for m in self._run.binding.interface.buffers if m.access.writes}
            self._run.settle()
            return results
        finally:
            self._finalizer()

    def _written(self, name: str) -> Any:
        buffer = self._run.binding.buffers[name]
        if name not in self._places:
            return buffer
        assert self._block is not None  # places are in the block
        shape, dtype = host_shape(buffer.shape, buffer.type), buffer.type.dtype
        begin = self._places[name]
        data = self._block.bytes[begin : begin + prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
        out = self._run.out.get(name)
        if out is None:
            try:
                return data.copy()
            except MemoryError as error:
                raise no_memory(self._doing, error) from error
        np.copyto(np.asarray(out), data)
        return out
