"""What the device has done: marks behind submitted work, events among them, and buffers that are mapped for reading. No wait is without a bound.

wgpu-py's own waits have none, and its thread blocks within wgpu meanwhile, which other calls may then wait for. So the two calls that tell of an end are
made here, by wgpu-native's C interface, and the device is polled by whoever waits.
"""

from __future__ import annotations

import time
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.event import Event
from vyre_py.drivers.wgpu.library import native

if TYPE_CHECKING:
    from vyre_py.drivers.wgpu.device import WgpuDevice

__all__ = ["Completions", "Mark", "WgpuEvent"]

# A wait polls without a pause at first, and then at pauses of a part of what it took so far: short work isn't kept waiting, nor long work watched.
_SPIN_SECONDS: Final = 200e-6
_PAUSE_PART: Final = 8
_LONGEST_PAUSE_SECONDS: Final = 1e-3

_numbers = count(1)
_pending: dict[int, Mark] = {}  # what wgpu will call back for, by the number that it was given


class Mark:
    """Something that will be `done`; `problem` is what wgpu says where it failed."""

    __slots__ = ("done", "problem")

    def __init__(self) -> None:
        self.done = False
        self.problem = ""


@cache
def _callbacks() -> tuple[Any, Any]:
    """The functions that wgpu calls at the end of submitted work, and of a mapping; one of each serves all."""
    api = native()

    def finish(failed: bool, message: Any, number: Any) -> None:
        mark = _pending.pop(int(api.ffi.cast("uintptr_t", number)), None)
        if mark is not None:
            mark.problem = (api.from_c_string_view(message) or "no reason was given") if failed else ""
            mark.done = True

    def work_done(status: int, message: Any, number: Any, _: Any) -> None:
        finish(status != api.lib.WGPUQueueWorkDoneStatus_Success, message, number)

    def mapped(status: int, message: Any, number: Any, _: Any) -> None:
        finish(status != api.lib.WGPUMapAsyncStatus_Success, message, number)

    arguments = "WGPUStringView, void *, void *"
    return (
        api.ffi.callback(f"void(WGPUQueueWorkDoneStatus, {arguments})", work_done),
        api.ffi.callback(f"void(WGPUMapAsyncStatus, {arguments})", mapped),
    )


class Completions:
    """The ends of what one device was given. Any thread may use it; every method raises what wgpu-py raises."""

    def __init__(self, gpu: Any) -> None:
        self._gpu = gpu
        self._api = native()
        self._work_done, self._mapped = _callbacks()

    def submitted(self) -> Mark:
        """A mark behind all that was submitted so far."""
        mark, info = self._asked("WGPUQueueWorkDoneCallbackInfo *", self._work_done)
        self._api.libf.wgpuQueueOnSubmittedWorkDone(self._gpu.queue._internal, info)
        return mark

    def mapping(self, buffer: Any) -> Mark:
        """A mark that is done once a buffer, as a whole, can be read: after all that was submitted so far and uses it."""
        mark, info = self._asked("WGPUBufferMapCallbackInfo *", self._mapped)
        self._api.libf.wgpuBufferMapAsync(buffer._internal, self._api.lib.WGPUMapMode_Read, 0, buffer.size, info)
        return mark

    def view(self, buffer: Any, size_bytes: int) -> Any:
        """The first bytes of a mapped buffer, with the buffer protocol, until it is unmapped."""
        address = self._api.libf.wgpuBufferGetConstMappedRange(buffer._internal, 0, buffer.size)
        return self._api.ffi.buffer(address, size_bytes)

    def unmap(self, buffer: Any) -> None:
        """Ends a mapping, also one that is not done yet."""
        self._api.libf.wgpuBufferUnmap(buffer._internal)

    def is_done(self, mark: Mark) -> bool:
        """Looks whether something is done. Raises RuntimeError where it failed."""
        if not mark.done:
            self._api.libf.wgpuDevicePoll(self._gpu._internal, False, self._api.ffi.NULL)
        if mark.problem:
            raise RuntimeError(mark.problem)
        return mark.done

    def wait(self, mark: Mark, seconds: float) -> bool:
        """Waits for so long at most; gives whether it is done. Raises RuntimeError where it failed."""
        begin = time.monotonic()
        while not self.is_done(mark):
            waited = time.monotonic() - begin
            if waited >= seconds:
                return False
            if waited > _SPIN_SECONDS:
                time.sleep(min(waited / _PAUSE_PART, _LONGEST_PAUSE_SECONDS, seconds - waited))
        return True

    def _asked(self, kind: str, callback: Any) -> tuple[Mark, Any]:
        mark, number = Mark(), next(_numbers)
        _pending[number] = mark
        ffi, lib = self._api.ffi, self._api.lib
        info = ffi.new(kind, {"mode": lib.WGPUCallbackMode_AllowProcessEvents, "callback": callback, "userdata1": ffi.cast("void *", number)})
        return mark, info[0]


class WgpuEvent(Event):
    """A mark in the one queue of a device."""

    __slots__ = ("_mark",)

    device: WgpuDevice

    def __init__(self, device: WgpuDevice) -> None:
        super().__init__(device)
        self._mark = device.attempt("record an event", device.completions.submitted)

    def done(self) -> bool:
        """Whether all is done that was held; does not wait. Raises DeviceLost."""
        self.device.require_usable()
        return self.device.attempt("look at an event", self.device.completions.is_done, self._mark)

    def wait(self) -> None:
        """Waits on the host until it is done. Raises LaunchError within a capture, DispatchTimeout at the device's limit of waits, DeviceLost."""
        self.device.require_usable()
        self.device.require_no_capture(f"{self.device.name} cannot wait for an event")
        self.device.telemetry.syncs += 1
        self.device.attempt("wait for an event", self.device.await_mark, self._mark)
        self.device.reports.settle()
