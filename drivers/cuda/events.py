"""Events and streams of users: marks in a stream that others wait for, and streams of their own. Both come from bounded pools."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from vyre_py.drivers import event as plain
from vyre_py.drivers.cuda.launch.launch import stream_handle
from vyre_py.drivers.cuda.status import NOT_READY
from vyre_py.drivers.errors import BindingError, DriverError, LaunchError
from vyre_py.ir.language.errors import shown
from vyre_py.ir.public import Closing
from vyre_py.ir.travel import Stationary

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.context import Context
    from vyre_py.drivers.cuda.device import CudaDevice

__all__ = ["CudaEvent", "DeviceStreams", "Stream", "beside_captures", "device_streams", "make_stream", "record_event", "wait_event"]


class CudaEvent(plain.Event):
    """A mark in a stream, made by `device.record_event`: what the stream held then is done once the event is. Attribute: `device`."""

    __slots__ = ("_handle",)

    device: CudaDevice

    def __init__(self, device: CudaDevice, handle: Any) -> None:
        super().__init__(device)
        self._handle = handle
        weakref.finalize(self, device.context.events.give, handle).atexit = False

    @property
    def raw(self) -> int:
        """The driver's own handle (CUevent)."""
        return int(self._handle)

    def done(self) -> bool:
        """Whether all is done that the stream held. Raises LaunchError for an event of a capture, DeviceLost."""
        with self._entered() as context:
            (status,) = context.cuda.cuEventQuery(self._handle)
        if status and status.name == NOT_READY:
            return False
        self._require(status)
        return True

    def wait(self) -> None:
        """Waits on the host until it is done, and for what bound launches that assert or print tell. Raises LaunchError for an event of a capture,
        KernelAssertion, DeviceLost."""
        with self._entered() as context:
            self.device.telemetry.syncs += 1
            (status,) = context.cuda.cuEventSynchronize(self._handle)
        self._require(status)
        self.device.reports.settle()

    @contextmanager
    def _entered(self) -> Iterator[Context]:
        device = self.device
        device.require_usable()
        device.context.require_no_own_capture(f"an event on {device.name} cannot be waited for")
        with device.context.entered():
            yield device.context

    def _require(self, status: Any) -> None:
        if status:
            raise self.device.context.failure(status, f"an event on {self.device.name} cannot be waited for", LaunchError)


class Stream(Closing, Stationary):
    """A stream: what goes to it runs in order, and beside what goes to others. Any library takes it, by `__cuda_stream__`.

    Attributes: `device`, `priority`, 0 or, for more urgent ones, less. One made by `device.stream` is given back by `close`, at the end of a `with`
    block, or with its last user.
    """

    travels_as = "make one there with device.stream()"

    __slots__ = ("__weakref__", "_finalizer", "_handle", "device", "priority")

    def __init__(self, device: CudaDevice, handle: Any, priority: int, owned: bool) -> None:
        self.device, self._handle, self.priority = device, handle, priority
        self._finalizer = weakref.finalize(self, device.context.streams.give, handle) if owned else None
        if self._finalizer is not None:
            self._finalizer.atexit = False

    @property
    def raw(self) -> int:
        """The driver's own handle (CUstream). Raises LaunchError after `close`."""
        if self._finalizer is not None and not self._finalizer.alive:
            raise LaunchError(f"a stream on {self.device.name} cannot be used", cause="it was closed", remedy="device.stream() makes another")
        return int(self._handle)

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.raw

    def __repr__(self) -> str:
        return f"<Stream on {self.device.name}, priority {self.priority}>"

    def synchronize(self) -> None:
        """Waits until what it holds is done. Raises what went wrong."""
        device, context = self.device, self.device.context
        device.require_usable()
        device.require_no_capture(f"a stream on {device.name} cannot be waited for")
        device.telemetry.syncs += 1
        with context.entered():
            context.ok(context.cuda.cuStreamSynchronize(context.cuda.CUstream(self.raw)), f"{device.name} failed while it ran")
        device.reports.settle()

    def close(self) -> None:
        """Gives the stream back, with what it holds: launches that were moved to it must not be used any more. A device's own streams stay."""
        if self._finalizer is not None:
            self._finalizer()


class DeviceStreams(NamedTuple):
    """A device's own streams: the one that everything goes to by default, and the one for transfers beside it."""

    compute: Stream
    copy: Stream


def device_streams(device: CudaDevice) -> DeviceStreams:
    """Objects for a device's own streams."""
    context = device.context
    return DeviceStreams(Stream(device, context.stream, 0, False), Stream(device, context.copy_stream, 0, False))


def make_stream(device: CudaDevice, priority: int) -> Stream:
    """A stream of one's own. Raises BindingError for a priority that the device has not got, LaunchError when 128 are in use."""
    context = device.context
    with context.entered():
        return _made_stream(device, context, priority)


def _made_stream(device: CudaDevice, context: Context, priority: int) -> Stream:
    status, *range_ = context.cuda.cuCtxGetStreamPriorityRange()
    if status:
        raise context.failure(status, f"{context.name} does not say its priorities")
    least, greatest = range_
    if not isinstance(priority, int) or isinstance(priority, bool) or not greatest <= priority <= least:
        raise BindingError("stream", [f"priority is a whole number from {greatest} (most urgent) to {least}, got {shown(priority)}"])
    return Stream(device, context.streams.take(priority), priority, True)


def _stream(device: CudaDevice, stream: Any) -> Any:
    return device.context.stream if stream is None else device.context.cuda.CUstream(stream_handle(stream))


def record_event(device: CudaDevice, stream: Any) -> CudaEvent:
    """An event after what a stream holds so far; None is the device's compute stream.

    Raises BindingError for what is no stream, LaunchError when 128 events are in use, and in a thread that does not capture while another does.
    """
    handle, context = _stream(device, stream), device.context
    with beside_captures(device, "an event cannot be recorded"), context.entered():
        event = context.events.take()
        try:
            context.ok(context.cuda.cuEventRecord(event, handle), f"{context.name} cannot record an event")
        except DriverError:
            context.events.give(event)
            raise
    return CudaEvent(device, event)


def wait_event(device: CudaDevice, event: Any, stream: Any) -> None:
    """Has a stream wait for an event, also one of another device. In a capture this makes the stream part of it.

    Raises BindingError for what is no event or no stream, LaunchError for an event of another capture.
    """
    if not isinstance(event, plain.Event):
        raise BindingError("wait_event", [f"an event is needed (device.record_event gives one), got {shown(event)}"])
    if not isinstance(event, CudaEvent):  # of a device without streams
        event.wait()
        return
    handle, context = _stream(device, stream), device.context
    event.device.require_usable()
    with beside_captures(device, "an event cannot be waited for"), context.entered():
        device.telemetry.waits += 1
        (status,) = context.cuda.cuStreamWaitEvent(handle, event._handle, 0)
    if status:
        raise context.failure(status, f"a stream on {device.name} cannot wait for an event", LaunchError)


@contextmanager
def beside_captures(device: CudaDevice, doing: str) -> Iterator[None]:
    """A block that is part of no other thread's capture: one that begins meanwhile waits for its end. Raises LaunchError, DeviceLost."""
    device.require_usable()
    device.context.busy.value += 1
    try:
        if device._recording is not None:
            device._recording.require_own(doing)
        yield
    finally:
        device.context.busy.value -= 1
