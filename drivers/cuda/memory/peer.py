"""Copies from one GPU to another, by the devices themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vyre_py.drivers.memory.buffer import Buffer

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.context import Context
    from vyre_py.drivers.cuda.device import CudaDevice

__all__ = ["copy_between"]


def _reach(device: CudaDevice, other: CudaDevice) -> None:
    """Has a device reach another's memory where the machine can do that; else the driver copies through the host by itself."""
    context, cuda = device.context, device.context.cuda
    doing = f"{device.name} cannot reach {other.name}"
    if not context.ok(cuda.cuDeviceCanAccessPeer(context.device, other.context.device), doing):
        return
    with context.entered():
        (status,) = cuda.cuCtxEnablePeerAccess(other.context.handle, 0)
    if status and status.name != "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED":
        raise context.failure(status, doing)
    other.memory.share_with(device.ordinal)


def _follow(first: Context, then: Context, doing: str) -> None:
    """Has what a device's stream is given from now on wait for what another's holds."""
    cuda = first.cuda
    with first.entered(), first.events.borrowed() as event:
        first.ok(cuda.cuEventRecord(event, first.stream), doing)
        with then.entered():
            then.ok(cuda.cuStreamWaitEvent(then.stream, event, 0), doing)


def copy_between(source: Buffer, target: Buffer, known: set[str]) -> None:
    """Enqueues a copy: after what both devices' streams hold, and before what they are given later. `known` are the devices that the target's reaches, by
    name. Raises DriverError, DeviceLost."""
    of: CudaDevice = source.device  # type: ignore[assignment]  # who calls has looked
    to: CudaDevice = target.device  # type: ignore[assignment]  # who calls has looked
    doing = f"{of.name} cannot be copied to {to.name}"
    if of.name not in known:
        _reach(to, of)
        known.add(of.name)
    begin, end = source.handle + source.offset_bytes, target.handle + target.offset_bytes
    with of.context.using(doing), to.context.using(doing):
        with of.context.entered():
            left = of.memory.foreign_use.before(doing, (begin, source.size_bytes))
            _follow(of.context, to.context, doing)
        with to.context.entered():
            kept = to.memory.foreign_use.before(doing, (end, target.size_bytes))
            result = to.context.cuda.cuMemcpyPeerAsync(end, to.context.handle, begin, of.context.handle, source.size_bytes, to.context.stream)
            to.context.ok(result, doing)
            to.memory.foreign_use.after(kept)
            _follow(to.context, of.context, doing)
        with of.context.entered():
            of.memory.foreign_use.after(left)
    to.telemetry.waits += 1
    of.telemetry.waits += 1
