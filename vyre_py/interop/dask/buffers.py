"""Buffers as results of Dask's tasks: they stay on the device of their worker, and go elsewhere as host bytes when something there asks for them."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
from dask.sizeof import sizeof
from distributed.protocol import dask_deserialize, dask_serialize

from vyre_py.drivers.memory.buffer import Buffer, host_shape
from vyre_py.drivers.registry import device
from vyre_py.interop.dask.tasks import read_block
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.types import TYPES

__all__ = ["ResidentArray", "register"]


def _size(buffer: Buffer) -> int:
    return buffer.size_bytes


def _serialize(buffer: Buffer, context: Any = None) -> tuple[dict[str, Any], list[Any]]:
    header = {"device": buffer.device.kind, "type": str(buffer.type), "shape": buffer.shape}
    return header, [buffer.read().reshape(-1).view(np.uint8).data]


def _deserialize(header: dict[str, Any], frames: list[Any]) -> Buffer:
    """The same on the first device of its kind that this process sees. Raises DeviceUnavailable where there is none."""
    type_ = TYPES[header["type"]]
    shape = tuple(header["shape"])
    array = np.frombuffer(frames[0], type_.dtype).reshape(host_shape(shape, type_)) if frames else np.empty(host_shape(shape, type_), type_.dtype)
    return device(header["device"]).upload(array, type_)


@dataclass(frozen=True, slots=True)
class ResidentArray:
    """An array whose blocks are Buffers on the devices of workers: what `map_blocks` makes with `resident=True`, and takes without a copy.

    Attribute: `array`, the Dask array of those blocks, for Dask's scheduling (`client.who_has`); its functions of arrays do not take them.
    """

    array: da.Array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, as NumPy's."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the components."""
        found: np.dtype[Any] = self.array.dtype
        return found

    @property
    def chunks(self) -> tuple[tuple[int, ...], ...]:
        """The sizes of blocks along each axis."""
        found: tuple[tuple[int, ...], ...] = self.array.chunks
        return found

    def read(self) -> da.Array:
        """A Dask array of NumPy's arrays: each block is copied to its worker's host memory."""
        return self.array.map_blocks(read_block, dtype=self.array.dtype, meta=self.array._meta)

    def persist(self, **how: Any) -> ResidentArray:
        """Computes the blocks now, and keeps them where they are. Keywords are those of Dask's `persist`."""
        return ResidentArray(self.array.persist(**how))


def register() -> None:
    """Tells Dask, in this process, how large Buffers are, and how they travel."""
    sizeof.register(Buffer, _size)
    dask_serialize.register(Buffer, _serialize)
    dask_deserialize.register(Buffer, _deserialize)
