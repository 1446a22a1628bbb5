"""What code that is not ours takes, as its user says it: the parameters of a kernel of PTX, machine code or WGSL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import DimConst, is_count
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import Access, Memory, Param, Space
from vyre_py.ir.language.types import Type
from vyre_py.lowering.artifact.parts import Interface
from vyre_py.lowering.layout import POINTER_BYTES

__all__ = ["RawParameter", "axes_of", "declarations", "parameters_of", "shaped"]

_MAX_ALIGN: Final = 16
_ACCESSES: Final[Mapping[str, Access]] = {access.value: access for access in Access}


@dataclass(frozen=True, slots=True)
class RawParameter:
    """One parameter of raw code: a buffer where it has an `access`, else a value."""

    name: str
    type: Type
    access: Access | None

    @property
    def size_bytes(self) -> int:
        """The bytes that a kernel on CUDA takes for it."""
        return self.type.size_bytes if self.access is None else POINTER_BYTES

    @property
    def align_bytes(self) -> int:
        """As CUDA C aligns it: vectors of two and four as a whole."""
        if self.access is not None:
            return POINTER_BYTES
        return min(self.type.size_bytes, _MAX_ALIGN) if self.type.lanes in (1, 2, 4) else self.type.scalar.size_bytes


def parameters_of(who: str, signature: Any) -> tuple[RawParameter, ...]:
    """The parameters of a signature, which `who` was called with. Raises BindingError with all that is wrong with it."""
    if not isinstance(signature, Sequence) or isinstance(signature, (str, bytes)):
        raise BindingError(who, [f"the signature is a sequence of (name, type) and (name, type, access), got {shown(signature)}"])
    found, problems = [], []
    for number, row in enumerate(signature):
        if not (isinstance(row, (tuple, list)) and len(row) in (2, 3) and isinstance(row[0], str) and row[0] and isinstance(row[1], Type)):
            problems.append(f"parameter {number} is (name, type), or (name, type, access) for a buffer, got {shown(row)}")
        elif len(row) == 3 and row[2] not in _ACCESSES:
            problems.append(f"the access of {row[0]!r} is one of {', '.join(_ACCESSES)}, got {shown(row[2])}")
        else:
            found.append(RawParameter(row[0], row[1], _ACCESSES[row[2]] if len(row) == 3 else None))
    names = [parameter.name for parameter in found]
    problems += [f"{name!r} stands in the signature twice" for name in dict.fromkeys(names) if names.count(name) > 1]
    if problems:
        raise BindingError(who, problems)
    return tuple(found)


def axes_of(name: str, value: Any) -> tuple[int, int, int]:
    """Sizes along x, y and z, of which the last may be left out. Raises BindingError for anything else."""
    given = value if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(given) <= 3 or not all(map(is_count, given)):
        raise BindingError("bind", [f"{name} is one to three whole numbers, along x, y, z, got {shown(value)}"])
    x, y, z = (*map(int, given), 1, 1)[:3]
    return x, y, z


def declarations(entry: str, parameters: tuple[RawParameter, ...]) -> Interface:
    """The declarations of a kernel, its buffers without shapes."""
    return Interface(
        entry, (), tuple([Param(p.name, p.type) for p in parameters if p.access is None]),
        tuple([Memory(p.name, Space.BUFFER, p.type, (), p.access) for p in parameters if p.access is not None]),
    )  # fmt: skip


def shaped(names: Interface, buffers: Mapping[str, Any]) -> Interface:
    """The declarations to bind, with the shapes of the buffers themselves."""
    memories = []
    for memory in names.buffers:
        value = buffers.get(memory.name)
        shape = tuple([DimConst(size) for size in value.shape]) if isinstance(value, Buffer) else (DimConst(1),)
        memories.append(Memory(memory.name, memory.space, memory.type, shape, memory.access))
    return Interface(names.name, (), names.params, tuple(memories), frozenset(m.name for m in memories))
