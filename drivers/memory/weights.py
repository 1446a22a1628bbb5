"""Weights in half precision: many arrays, f16 and bf16 mixed, converted once on the host, in one allocation beside the arena of what is computed from them.

    weights = device.weights({"w1": w1, "w2": w2}, type=vp.bf16)
    chain = device.chain([(multiply, {"a": "x", "b": weights["w1"], "c": "h"}), ...], ...)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.allocation import Allocation
from vyre_py.drivers.memory.arena.planner import ALIGNMENT, ArenaPlan
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.memory.host_arrays import Host, host_array
from vyre_py.ir.evaluate.conversions import cast
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.types import Type, bf16, f16, f32, scalar_of, u8
from vyre_py.ir.public import Closing, public
from vyre_py.ir.travel import Stationary

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["Weights"]

_OWNER: Final = "weights: Weights.free gives it back whole"


@public
class Weights(Closing, Stationary):
    """Arrays by name as f16 or bf16, each at an offset of its own, a multiple of 256 bytes; `weights["w1"]` is a read-only Buffer.

    `arrays` hold numbers of any type of the language; each is rounded once, to nearest even, whatever its type. `type` is f16 or bf16, or says by name which
    of them each array is. `add` takes more later. Raises BindingError for other types and what is no array of numbers; OutOfMemory.

    Attributes: `device`, `types` by name, `offsets` in bytes by name, `size_bytes` of all, `full_bytes` that f32 would take in the same layout,
    `overflows`, how many finite numbers of each array became infinite; names without any are left out.
    """

    travels_as = "send the arrays, and make them there"

    __slots__ = ("_pieces", "_shapes", "device", "full_bytes", "offsets", "overflows", "size_bytes", "types")

    def __init__(self, device: Device, arrays: Mapping[str, Any], *, type: Type | Mapping[str, Type] = f16) -> None:  # noqa: A002 - what it is called everywhere
        self.device = device
        self.types: Mapping[str, Type] = {}
        self.offsets: Mapping[str, int] = {}
        self.size_bytes = self.full_bytes = 0
        self.overflows: dict[str, int] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._pieces: list[tuple[int, Allocation]] = []  # each with where it begins, as if they lay end to end
        self.add(arrays, type=type)

    def add(self, arrays: Mapping[str, Any], *, type: Type | Mapping[str, Type] = f16) -> None:  # noqa: A002 - as above
        """Takes more arrays, in one more allocation: what is bound already stays as it is. Raises BindingError, also for a name that is here, and
        OutOfMemory; then nothing was taken."""
        if self._pieces and self.freed:
            raise BindingError("weights", ["they were freed"])
        if not isinstance(arrays, Mapping) or not all(isinstance(name, str) for name in arrays):
            raise BindingError("weights", [f"a mapping of names to arrays is needed, got {shown(arrays)}"])
        types = dict(type) if isinstance(type, Mapping) else dict.fromkeys(arrays, type)
        problems = [f"{name!r} is here already" for name in arrays if name in self._shapes]
        if isinstance(type, Mapping):
            problems += [f"{name!r} has no type" for name in arrays if name not in types] + [f"{shown(n)} is not an array" for n in types if n not in arrays]
        odd = [of for of in ([type] if not isinstance(type, Mapping) else types.values()) if of is not f16 and of is not bf16]
        problems += [f"they are kept as f16 or bf16, got {shown(of)}" for of in odd]
        if problems:
            raise BindingError("weights", problems)
        given = {name: _numbers(array, name) for name, array in arrays.items()}
        shapes = {name: array.shape for name, array in given.items()}
        offsets, size_bytes = _laid_out(shapes, types)
        allocation: Allocation = self.device.allocate(size_bytes, u8).allocation
        allocation.owner = _OWNER
        self._pieces.append((self.size_bytes, allocation))
        self.offsets = MappingProxyType({**self.offsets, **{name: self.size_bytes + offset for name, offset in offsets.items()}})
        self.types = MappingProxyType({**self.types, **{name: types[name] for name in shapes}})
        self._shapes |= shapes
        self.size_bytes += size_bytes
        self.full_bytes += _laid_out(shapes, dict.fromkeys(shapes, f32))[1]
        for name, array in given.items():
            self._write(name, array)

    def at(self, plan: ArenaPlan, offset_bytes: int) -> Buffer:
        """The array of the same name as the value at an offset of an arena: the copy in half precision, for a caller that knows a value by its place alone.

        Raises BindingError where no such value begins there, or several do that are needed at different times.
        """
        found = [name for name, at in plan.offsets.items() if at == offset_bytes and name in self._shapes]
        if len(found) != 1:
            raise BindingError("weights", [f"at {shown(offset_bytes)} of the arena begin {shown(found) if found else 'no values'} that are kept here as well"])
        return self[found[0]]

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

    @property
    def freed(self) -> bool:
        """Whether `free` was called."""
        return any(allocation.freed for _, allocation in self._pieces)

    def free(self) -> None:
        """Gives the memory back; launches over it then refuse. Again is quiet."""
        for _, allocation in self._pieces:
            allocation.free()

    close = free  # which the end of a `with` block calls

    def __repr__(self) -> str:
        kinds = " and ".join(sorted({str(of) for of in self.types.values()})) or "nothing"
        return f"<Weights of {len(self)} arrays as {kinds} in {self.size_bytes} bytes on {self.device.name}>"

    def _require(self, name: str) -> None:
        if not isinstance(name, str) or name not in self._shapes:
            raise BindingError("weights", [f"there is no array {shown(name)}; there are {shown(list(self._shapes))}"])

    def _buffer(self, name: str, *, readonly: bool) -> Buffer:
        begin, allocation = next(piece for piece in reversed(self._pieces) if piece[0] <= self.offsets[name])
        return Buffer(self.device, allocation, self.offsets[name] - begin, self._shapes[name], self.types[name], readonly)

    def _write(self, name: str, array: Host) -> None:
        with np.errstate(all="ignore"):
            rounded = cast(self.types[name], array)
            overflows = int(np.count_nonzero(np.isinf(rounded.astype(np.float32)) & np.isfinite(array.astype(np.float64))))
        self.overflows.pop(name, None)
        if overflows:
            self.overflows[name] = overflows
        self._buffer(name, readonly=False).write(rounded)


def _numbers(array: Any, name: str) -> Host:
    """A host array of numbers of the language, with one axis at least."""
    data = host_array(array, name)
    if scalar_of(data.dtype) is None:
        raise BindingError("weights", [f"{name!r} has dtype {data.dtype}, which is not a type of the language"])
    return data.reshape(data.shape or (1,))


def _laid_out(shapes: Mapping[str, tuple[int, ...]], types: Mapping[str, Type]) -> tuple[dict[str, int], int]:
    """Offsets by name, and the bytes that all take."""
    offsets: dict[str, int] = {}
    end = 0
    for name, shape in shapes.items():
        offsets[name] = end
        end += -(-prod(shape) * types[name].size_bytes // ALIGNMENT) * ALIGNMENT
    return offsets, end
