"""The device's own clock: times that a pass writes at its begin and its end, where the adapter has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.launch import Launch
from vyre_py.drivers.wgpu.launch import last_of
from vyre_py.drivers.wgpu.library import native
from vyre_py.drivers.wgpu.readback import Reading

if TYPE_CHECKING:
    from vyre_py.drivers.wgpu.device import WgpuDevice

__all__ = ["TIMESTAMPS", "PassClock", "timed"]

TIMESTAMPS: Final = "timestamp-query"  # the feature, in WebGPU's spelling
_TIMES: Final = 2
_TIME_BYTES: Final = 8


class PassClock:
    """Times the passes of batches that it is given to, one after the other. Every method raises what wgpu-py raises."""

    def __init__(self, device: WgpuDevice) -> None:
        self._device = device
        usage = device.package.BufferUsage.QUERY_RESOLVE | device.package.BufferUsage.COPY_SRC
        self._queries = device.gpu.create_query_set(type="timestamp", count=_TIMES)
        self._times = device.gpu.create_buffer(size=_TIMES * _TIME_BYTES, usage=usage)
        self._readings: list[Reading] = []
        self.writes: dict[str, Any] | None = {"query_set": self._queries, "beginning_of_pass_write_index": 0, "end_of_pass_write_index": 1}

    def encode(self, encoder: Any) -> None:
        """Encodes, behind the pass, that its times go to memory."""
        encoder.resolve_query_set(self._queries, 0, _TIMES, self._times, 0)

    def submitted(self) -> None:
        """Has the times of what was submitted follow."""
        self._readings.append(self._device.readback.begin([(self._times, 0, self._times.size)]))

    def elapsed_ns(self) -> int:
        """Nanoseconds within all passes; waits for them."""
        api = native()
        period_ns = float(api.libf.wgpuQueueGetTimestampPeriod(self._device.gpu.queue._internal))
        ticks = 0
        for reading in self._readings:
            self._device.await_mark(reading.mark)
            times = np.empty(_TIMES, np.uint64)
            reading.take(0, 0, times.view(np.uint8))
            reading.close()
            begin, end = times.tolist()
            ticks += max(0, end - begin)
        return round(ticks * period_ns)


def timed(device: WgpuDevice, launch: Launch, start: Callable[[], None]) -> Callable[[], int | None]:
    """Starts a launch, each of whose calls is timed; what it gives tells the nanoseconds in all of them, once the results are there."""
    doing = "time a launch"
    if (last := last_of(launch)) is None:
        start()
        return lambda: None
    clock = device.attempt(doing, PassClock, device)
    with last.ridden(clock):
        start()
    return lambda: device.attempt(doing, clock.elapsed_ns)
