"""The CPU device: host code on all cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vyre_py.ir.imports import importing

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["count", "open_device"]


def count() -> int:
    """How many devices of this kind there are; always one, with all cores that this process may use."""
    return 1


def open_device(ordinal: int) -> Device:
    """The device."""
    with importing:
        from vyre_py.drivers.cpu.device import CpuDevice

    return CpuDevice(ordinal)
