"""A device's primary context and the one stream that everything of ours goes through, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vyre_py.drivers.cuda.status import failure
from vyre_py.drivers.errors import DeviceLost, DriverError

__all__ = ["Context"]


class Context:
    """The primary context, shared with other libraries in the process, and a stream of our own.

    Attributes: `cuda` (the driver library), `name` of the device, `device`, `handle`, `stream`; `foreign` says that a launch went to a
    stream of somebody else's: from then on memory is touched only while the whole context is idle, since nothing else orders our
    stream with theirs.
    """

    def __init__(self, cuda: Any, ordinal: int) -> None:
        self.cuda = cuda
        self.name = f"cuda:{ordinal}"
        self.foreign = False
        self.on_loss: Callable[[DriverError], None] | None = None
        self.device = self.ok(cuda.cuDeviceGet(ordinal), f"{self.name} can't be opened")
        self.handle = self.ok(cuda.cuDevicePrimaryCtxRetain(self.device), f"{self.name} gives no context")
        try:
            self.enter()
            self.stream = self.ok(cuda.cuStreamCreate(int(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING)), f"{self.name} gives no stream")
        except DriverError:
            cuda.cuDevicePrimaryCtxRelease(self.device)
            raise

    def ok(self, result: tuple[Any, ...], doing: str) -> Any:
        """What a driver call gave after its status. Raises the status's error; one that ends the context marks the device as lost."""
        if result[0]:
            raise self.failure(result[0], doing)
        return result[1] if len(result) > 1 else None

    def failure(self, status: Any, doing: str, otherwise: type[DriverError] = DriverError) -> DriverError:
        """The error for a status, with the device marked as lost where that is what it means."""
        error = failure(status, doing, otherwise)
        if isinstance(error, DeviceLost) and self.on_loss is not None:
            self.on_loss(error)
        return error

    def attribute(self, name: str) -> int:
        """A device attribute, by its name without the prefix."""
        key = getattr(self.cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.ok(self.cuda.cuDeviceGetAttribute(key, self.device), f"{self.name} does not say its {name}"))

    def enter(self) -> None:
        """Makes the context current in this thread. Always asked for anew: other libraries change it behind our back."""
        self.ok(self.cuda.cuCtxSetCurrent(self.handle), f"{self.name} can't be made current")

    def wait(self, doing: str) -> None:
        """Waits for our stream, and for everybody's once there were foreign ones."""
        self.ok(self.cuda.cuCtxSynchronize() if self.foreign else self.cuda.cuStreamSynchronize(self.stream), doing)

    def settle(self, doing: str) -> None:
        """Around a memory operation: waits where streams that nothing orders might touch the same memory."""
        if self.foreign:
            self.wait(doing)

    def order(self, first: int | None, then: int | None) -> None:
        """Has what stream `then` is given from now on wait for what stream `first` holds; None is our own."""
        doing, cuda = f"{self.name} cannot order two streams", self.cuda
        event = self.ok(cuda.cuEventCreate(int(cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING)), doing)
        try:
            self.ok(cuda.cuEventRecord(event, self.stream if first is None else cuda.CUstream(first)), doing)
            self.ok(cuda.cuStreamWaitEvent(self.stream if then is None else cuda.CUstream(then), event, 0), doing)
        finally:
            cuda.cuEventDestroy(event)

    def finish(self) -> None:
        """Waits for our stream, and says nothing of what went wrong: the next call will."""
        self.cuda.cuCtxSetCurrent(self.handle)
        self.cuda.cuStreamSynchronize(self.stream)

    def close(self) -> None:
        """Gives stream and context back, whatever their state."""
        self.cuda.cuStreamDestroy(self.stream)
        self.cuda.cuDevicePrimaryCtxRelease(self.device)
