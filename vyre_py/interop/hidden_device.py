"""The CPU device of code that other libraries keep, for as long as the process lives."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from vyre_py.drivers.cpu import open_device

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["host_device"]


@cache
def host_device() -> Device:
    """A device that users do not see, so that none closes it or captures on it."""
    return open_device(0)
