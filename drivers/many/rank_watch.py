"""A watch over the ranks of a communicator, so that who waits for one that is lost gets an error rather than waiting for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vyre_py.drivers.errors import BindingError, DriverError
from vyre_py.ir.language.errors import shown
from vyre_py.ir.public import Closing, public
from vyre_py.ir.travel import Stationary

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["RankWatch", "watch_ranks"]


@public
class RankWatch(Closing, Stationary):
    """A watch that `watch_ranks` made. Attributes: `device`, `timeout` in seconds. `close()`, and the end of a `with` block, end it."""

    travels_as = "make one there with vp.watch_ranks()"

    __slots__ = ("__weakref__", "device", "timeout")

    def __init__(self, device: Device, timeout: float) -> None:
        self.device, self.timeout = device, timeout

    def __repr__(self) -> str:
        return f"<RankWatch on {self.device.name}, {self.timeout} s{'' if self.failure is None else ', failed'}>"

    @property
    def failure(self) -> DriverError | None:
        """What ended the communicator, as waits raise it; None while all is well."""
        raise NotImplementedError

    def check(self) -> None:
        """Raises what ended the communicator, if something did."""
        if (failure := self.failure) is not None:
            raise failure


@public
def watch_ranks(device: Device, communicator: Any, *, timeout: float) -> RankWatch:
    """Watches over what a device does with the other ranks of a communicator: `with vp.watch_ranks(device, communicator, timeout=60.0):` around the work.

    A rank is taken for lost once NCCL says so, or once nothing that was enqueued on the device's own stream has come to its end for `timeout` seconds. What was
    enqueued together, a graph that is replayed a thousand times say, has to end in less. A second later the communicator is revoked. With an older
    NCCL, which cannot do that, or where it was not enough, it is aborted, by the method `abort` of who made it where there is one. So kernels that wait
    for the rank end, here and on the other ranks. Where another rank's watch is more than that second behind, a step that waits there ends without an error
    and with values of no worth; its next step over the communicator raises. So before results are saved, have another step over the communicator come to
    its end.

    From then on until the watch is closed whoever waits for the device, or reads from it, gets DispatchTimeout, or LaunchError where NCCL said it; and so
    do steps and graphs that use the communicator, for good. What they had not written before is of no value. The device is as good as before.

    The communicator is as for `all_reduce_step`. Raises BindingError for what is none, and for a timeout that is no positive number; Unsupported on other
    devices than CUDA, DeviceUnavailable without NCCL.
    """
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < float("inf"):
        raise BindingError("watch_ranks", [f"timeout is a time in seconds, got {shown(timeout)}"])
    return device._watch_ranks(device._communicator(communicator), float(timeout))
