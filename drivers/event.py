"""Events: marks in what a device was given, to wait for, to order streams by, and to read buffers after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vyre_py.ir.public import public
from vyre_py.ir.travel import Stationary

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["Event"]


@public
class Event(Stationary):
    """A mark, made by `device.record_event`: what the device, or one of its streams, held then is done once the event is. Attribute: `device`.

    Here it is that of a device which does one thing after the other; devices with streams have their own.
    """

    travels_as = "record another there"

    __slots__ = ("__weakref__", "device")

    def __init__(self, device: Device) -> None:
        self.device = device

    def done(self) -> bool:
        """Whether all is done that was held; a device that does not say is waited for. Raises LaunchError within a capture, DeviceLost."""
        self.wait()
        return True

    def wait(self) -> None:
        """Waits on the host until it is done. Raises LaunchError within a capture, DeviceLost, and what went wrong."""
        self.device.synchronize()
