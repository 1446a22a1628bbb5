"""Pending results: on their way to staging buffers from the start, while the caller goes on, and the device with what comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.dispatch import Run
from vyre_py.drivers.memory.host_arrays import no_memory, result_view
from vyre_py.drivers.pending import PolledPending
from vyre_py.drivers.wgpu.completion import Mark
from vyre_py.drivers.wgpu.launch import last_of
from vyre_py.drivers.wgpu.memory import WORD_BYTES, words_around
from vyre_py.drivers.wgpu.readback import Reading

if TYPE_CHECKING:
    from vyre_py.drivers.wgpu.device import WgpuDevice

__all__ = ["WgpuPending"]

# Results up to so many bytes are on their way from the start; larger ones are fetched when they are asked for.
_EARLY_BYTES: Final = 64 << 20


class WgpuPending(PolledPending):
    """A dispatch that was enqueued. What it staged is freed in the order of the queue; dropped, it gives its staging buffer back."""

    def __init__(self, run: Run, device: WgpuDevice) -> None:
        super().__init__(repr(run.pipeline.name))
        self._run, self._device = run, device
        self._reading: Reading | None = None
        self._doing = f"fetch the results of {run.pipeline.name!r}"
        interface = run.binding.interface
        self._fetched = [m.name for m in interface.buffers if m.access.writes and m.name in run.staged and run.staged[m.name].size_bytes]
        self._late = sum(run.staged[name].size_bytes for name in self._fetched) > _EARLY_BYTES
        try:
            self._mark: Mark = device.attempt(self._doing, self._begin)
        except BaseException:
            run.finish()
            raise
        if not self._late:
            run.finish()

    def _begin(self) -> Mark:
        """Starts the run, with its results behind it in the same submission."""
        device = self._device
        last = last_of(self._run.launch)
        if self._late or not self._fetched or last is None:
            self._run.start()
            if self._late or not self._fetched:
                return device.completions.submitted()
            self._reading = device.readback.begin(self._ranges())
        else:
            follower = device.readback.follower(self._ranges())
            try:
                with last.ridden(follower):
                    self._run.start()
            finally:
                follower.close()
            assert follower.reading is not None  # it was submitted with the launch
            self._reading = follower.reading
        device.telemetry.downloads += len(self._fetched)
        device.telemetry.bytes_downloaded += sum([self._run.staged[name].size_bytes for name in self._fetched])
        return self._reading.mark

    def _ranges(self) -> list[tuple[Any, int, int]]:
        ranges = []
        for name in self._fetched:
            buffer = self._run.staged[name]
            begin, end = words_around(buffer.offset_bytes, buffer.size_bytes)
            ranges.append((buffer.handle.buffer, begin, end - begin))
        return ranges

    def _is_done(self) -> bool:
        self._device.require_usable()
        return self._device.attempt(self._doing, self._device.completions.is_done, self._mark)

    def _wait(self, timeout: float | None) -> bool:
        self._device.require_usable()
        self._device.telemetry.syncs += 1
        if timeout is not None:
            return self._device.attempt(self._doing, self._device.completions.wait, self._mark, timeout)
        self._device.attempt(self._doing, self._device.await_mark, self._mark)
        return True

    def _collect(self) -> dict[str, Any]:
        try:
            if self._late:
                return self._run.collect()
            results = {m.name: self._written(m.name) for m in self._run.binding.interface.buffers if m.access.writes}
            self._run.settle()
            return results
        finally:
            if self._late:
                self._run.finish()
            if self._reading is not None:
                self._reading.close()

    def _written(self, name: str) -> Any:
        buffer = self._run.binding.buffers[name]
        if name not in self._run.staged:
            return buffer
        try:
            data = np.empty(buffer.host_shape, buffer.type.dtype)
        except MemoryError as error:
            raise no_memory(self._doing, error) from error
        if name in self._fetched:
            assert self._reading is not None  # which has what is fetched
            offset = buffer.offset_bytes % WORD_BYTES
            self._device.attempt(self._doing, self._reading.take, self._fetched.index(name), offset, data.reshape(-1).view(np.uint8))
        if (out := self._run.out.get(name)) is None:
            return data
        view = result_view(out, buffer.host_shape, buffer.type)
        assert view is not None  # it was looked at before anything ran (`outputs`)
        view[...] = data
        return out
