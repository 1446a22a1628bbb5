"""Every device that WebGPU reaches, through wgpu-py: Vulkan, Metal and D3D12. Importing this loads no GPU library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vyre_py.drivers.errors import DeviceUnavailable
from vyre_py.drivers.wgpu.library import adapters, require_own_process
from vyre_py.ir.imports import importing

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["count", "open_device"]


def count() -> int:
    """How many adapters are here, one at least. Raises DeviceUnavailable, which says why there is none."""
    require_own_process()
    if found := len(adapters()):
        return found
    raise DeviceUnavailable(
        "no WebGPU adapter is here", cause="there is no Vulkan, Metal or D3D12 driver", remedy="install one; Mesa's Vulkan drivers run on any CPU"
    )


def open_device(ordinal: int) -> Device:
    """A new device. Raises DeviceUnavailable."""
    with importing:
        from vyre_py.drivers.wgpu.device import WgpuDevice

    return WgpuDevice(ordinal)
