"""The devices of code that other libraries keep, for as long as the process lives."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from vyre_py.drivers import cpu, cuda

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["gpu_device", "host_device"]


@cache
def host_device() -> Device:
    """A device that users do not see, so that none closes it or captures on it."""
    return cpu.open_device(0)


@cache
def gpu_device(ordinal: int) -> Device:
    """The same for a GPU. Raises DeviceUnavailable."""
    return cuda.open_device(ordinal)
