"""Weights in half precision: many arrays, converted once on the host, in one allocation beside the arena of what is computed from them.

    weights = Weights(device, {"w1": w1, "w2": w2}, type=vp.bf16)
    chain = plan_chain(device, [(multiply, {"a": "x", "b": weights["w1"], "c": "h"}), ...], ...)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.arena_plan import ALIGNMENT
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.hostarray import Host, host_array
from vyre_py.drivers.resident import Allocation, Buffer
from vyre_py.ir.errors import shown
from vyre_py.ir.evaluate.conversions import cast
from vyre_py.ir.types import Type, bf16, f16, f32, scalar_of, u8

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["Weights"]

_OWNER: Final = "weights: Weights.free gives it back whole"


class Weights:
    """Arrays by name as f16 or bf16, each at an offset of its own, a multiple of 256 bytes; `weights["w1"]` is a read-only Buffer.

    `arrays` hold numbers of any type of the language; each is rounded once, to nearest even, whatever its type. `type` is f16 or bf16. Raises
    BindingError for other types and what is no array of numbers; OutOfMemory.

    Attributes: `device`, `type`, `offsets` in bytes by name, `size_bytes` of the allocation, `full_bytes` that f32 would take in the same layout,
    `overflows`, how many finite numbers of each array became infinite; names without any are left out.
    """

    __slots__ = ("_allocation", "_shapes", "device", "full_bytes", "offsets", "overflows", "size_bytes", "type")

    def __init__(self, device: Device, arrays: Mapping[str, Any], *, type: Type = f16) -> None:  # noqa: A002 - what it is called everywhere
        if type is not f16 and type is not bf16:
            raise BindingError("weights", [f"they are kept as f16 or bf16, got {shown(type)}"])
        if not isinstance(arrays, Mapping) or not all(isinstance(name, str) for name in arrays):
            raise BindingError("weights", [f"a mapping of names to arrays is needed, got {shown(arrays)}"])
        given = {name: _numbers(array, name) for name, array in arrays.items()}
        self.device = device
        self.type: Type = type
        self._shapes = {name: array.shape for name, array in given.items()}
        self.offsets, self.size_bytes = _laid_out(self._shapes, type)
        self.full_bytes = _laid_out(self._shapes, f32)[1]
        self.overflows: dict[str, int] = {}
        self._allocation: Allocation = device.allocate(self.size_bytes, u8).allocation
        self._allocation.owner = _OWNER
        for name, array in given.items():
            self._write(name, array)

    def __getitem__(self, name: str) -> Buffer:
        """The array on the device. Raises BindingError for a name that is not here."""
        self._require(name)
        return self._buffer(name, readonly=True)

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def update(self, name: str, array: Any) -> None:
        """Replaces an array by another of its shape, in place: launches that are bound to it use the new one from now on. Raises BindingError."""
        self._require(name)
        data = _numbers(array, name)
        if data.shape != self._shapes[name]:
            raise BindingError("weights", [f"{name!r} has shape {list(self._shapes[name])}, got {list(data.shape)}"])
        self._write(name, data)

    def free(self) -> None:
        """Gives the memory back; launches over it then refuse. Again is quiet."""
        self._allocation.free()

    def __repr__(self) -> str:
        return f"<Weights of {len(self)} arrays as {self.type} in {self.size_bytes} bytes on {self.device.name}>"

    def _require(self, name: str) -> None:
        if not isinstance(name, str) or name not in self._shapes:
            raise BindingError("weights", [f"there is no array {shown(name)}; there are {shown(list(self._shapes))}"])

    def _buffer(self, name: str, *, readonly: bool) -> Buffer:
        return Buffer(self.device, self._allocation, self.offsets[name], self._shapes[name], self.type, readonly)

    def _write(self, name: str, array: Host) -> None:
        with np.errstate(all="ignore"):
            rounded = cast(self.type, array)
            overflows = int(np.count_nonzero(np.isinf(rounded.astype(np.float32)) & np.isfinite(array.astype(np.float64))))
        self.overflows.pop(name, None)
        if overflows:
            self.overflows[name] = overflows
        self._buffer(name, readonly=False).write(rounded)


def _numbers(array: Any, name: str) -> Host:
    """A host array of numbers of the language, with one axis at least."""
    data = host_array(array, name)
    if scalar_of(data.dtype) is None:
        raise BindingError("weights", [f"{name!r} has dtype {data.dtype}, which is none of the language's types"])
    return data.reshape(data.shape or (1,))


def _laid_out(shapes: Mapping[str, tuple[int, ...]], type_: Type) -> tuple[Mapping[str, int], int]:
    """Offsets by name, and the bytes that all take."""
    offsets: dict[str, int] = {}
    end = 0
    for name, shape in shapes.items():
        offsets[name] = end
        end += -(-prod(shape) * type_.size_bytes // ALIGNMENT) * ALIGNMENT
    return MappingProxyType(offsets), end
