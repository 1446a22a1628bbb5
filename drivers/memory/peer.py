"""Copies from one device to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.ir.language.errors import shown

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["copy_peer"]

# Of host memory at once, where the host is in between.
_CHUNK_BYTES: Final = 64 << 20


def copy_peer(device: Device, source: Any, target: Any) -> None:
    """See `Device.copy_peer`."""
    if not isinstance(target, Buffer) or target.device is not device:
        raise BindingError("copy_peer", [f"'target' must be a buffer on {device.name}, got {shown(target)}"])
    if not isinstance(source, Buffer) or not source.is_like(target):
        raise BindingError("copy_peer", [f"'source' must be a {target.type}{list(target.shape)} on any device, got {shown(source)}"])
    if source.device is device:
        target.copy_from(source)
        return
    target._require_writeable("copy_peer")
    for side in (source.device, device):
        side.require_usable()
        side.require_no_capture(f"buffers cannot be copied between {source.device.name} and {device.name}")
    if not target.size_bytes:
        return
    with source.allocation.held(), target.allocation.held():
        if device._copy_peer(source, target):
            device.telemetry.copies += 1
            device.telemetry.bytes_copied += target.size_bytes
            return
        outgoing, incoming = source.as_bytes(), target.as_bytes()
        for begin in range(0, target.size_bytes, _CHUNK_BYTES):
            end = min(begin + _CHUNK_BYTES, target.size_bytes)
            incoming[begin:end].write(outgoing[begin:end].read())
