"""NVIDIA GPUs through the CUDA driver. Importing this loads no GPU library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vyre_py.drivers.cuda.library import load
from vyre_py.drivers.cuda.status import failure
from vyre_py.drivers.errors import DeviceUnavailable
from vyre_py.ir.imports import importing

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["count", "open_device"]


def count() -> int:
    """How many CUDA devices are here, one at least. Raises DeviceUnavailable, which says why there is none."""
    status, found = load().cuDeviceGetCount()
    if status:
        raise DeviceUnavailable(str(failure(status, "CUDA devices can't be counted")), status=status.name)
    if not found:
        raise DeviceUnavailable("no CUDA device is here", remedy="look at nvidia-smi and CUDA_VISIBLE_DEVICES")
    return int(found)


def open_device(ordinal: int) -> Device:
    """A new device. Raises DeviceUnavailable."""
    with importing:
        from vyre_py.drivers.cuda.device import CudaDevice

    return CudaDevice(ordinal)
