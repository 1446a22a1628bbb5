"""Buffers as memory of other libraries, without a copy: DLPack and `__cuda_array_interface__`. `exchange` is the other way, and says what is ordered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.sharing import dlpack

if TYPE_CHECKING:
    from vyre_py.drivers.memory.buffer import Buffer

__all__ = ["capsule_of", "cuda_interface_of"]

_DEFAULT_STREAM: Final = 1  # CUDA's legacy default stream, which is what a consumer means that names none
_NO_ORDER: Final = -1
_TRANSIENT: Final = "memory that replays of a graph free can't be handed over: copy it to another buffer"


def capsule_of(
    buffer: Buffer, stream: int | None, max_version: tuple[int, int] | None, dl_device: tuple[int, int] | None, copy: bool | None
) -> Any:
    """See `Buffer.__dlpack__`. Raises BufferError, as the protocol asks, for memory that can't be shared."""
    device = buffer.device
    here = device.dlpack_device
    if here is None:
        raise BufferError(f"memory on {device.name} can't be handed over: read() copies it to the host")
    if copy or (dl_device is not None and tuple(dl_device) != here):
        raise BufferError("only the memory itself is handed over, where it is: read() copies it to the host")
    if buffer.readonly and (max_version is None or max_version[0] < 1):
        raise BufferError("this memory may only be read, which DLPack before 1.0 can't say")
    handle = buffer.handle
    if buffer.allocation.transient:
        raise BufferError(_TRANSIENT)
    if device._exchange_stream() is None:
        if stream is not None:
            raise BufferError(f"{device.name} has no streams")
    elif stream != _NO_ORDER:
        with device._ordered(buffer):  # after streams of others, which launches over it were moved to
            device._order(None, _DEFAULT_STREAM if stream is None else stream)
    address = (device._address(handle) or 0) + buffer.offset_bytes
    return dlpack.export(address, buffer.host_shape, buffer.type.scalar, here, buffer.allocation.lend(), max_version, readonly=buffer.readonly)


def cuda_interface_of(buffer: Buffer) -> dict[str, Any]:
    """See `Buffer.__cuda_array_interface__`. Raises AttributeError off CUDA, and for types that the interface lacks."""
    device, type_ = buffer.device, buffer.type.scalar
    if device.dlpack_device is None or device.dlpack_device[0] != dlpack.CUDA:
        raise AttributeError(f"a buffer on {device.name} has no __cuda_array_interface__")
    if not type_.in_numpy:
        raise AttributeError(f"the CUDA array interface has no {type_}: use DLPack")
    if buffer.allocation.transient:
        raise AttributeError(_TRANSIENT)
    address = (device._address(buffer.handle) or 0) + buffer.offset_bytes if buffer.size_bytes else 0
    with device._ordered(buffer):
        pass  # the stream below comes after those of others, which launches over it were moved to
    return {
        "shape": buffer.host_shape, "typestr": type_.dtype.str, "data": (address, buffer.readonly), "version": 3, "strides": None,
        "stream": device._exchange_stream(),
    }  # fmt: skip
