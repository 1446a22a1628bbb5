"""Numbers as they lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.host_arrays import host_array
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import Param
from vyre_py.ir.language.types import Type, encode, scalar_of

if TYPE_CHECKING:
    from vyre_py.lowering.layout import Layout

__all__ = ["decode_params", "encode_param"]


def _bits(type_: Type, value: Any) -> int:
    """The bit pattern of a number, NumPy's own included, as a value of a scalar type. Raises what `encode` raises."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, np.generic):
        if type_.is_float and value.dtype == type_.dtype:
            return int(np.asarray(value).view(f"u{type_.size_bytes}"))
        given = scalar_of(value.dtype)
        value = value.item() if given is None or given.in_numpy else float(value)
    return encode(type_, value)


def _named(param: Param) -> str:
    return f"param {param.name!r} ({param.type})"


def encode_param(param: Param, value: Any) -> bytes:
    """An argument for a param as it lies in memory: a number, or for a vector a sequence or array of its components, or where there are two a complex
    number. Raises BindingError with a sentence for each component that is wrong."""
    type_ = param.type
    components: Any = (value,)
    if type_.is_vector:
        if isinstance(value, (complex, np.complexfloating)) and type_.lanes == 2 and type_.is_float:
            value = (value.real, value.imag)
        components = value if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else host_array(value, param.name)
        if (isinstance(components, np.ndarray) and components.ndim != 1) or len(components) != type_.lanes:
            raise BindingError(param.name, [f"{_named(param)}: a sequence or array of its {type_.lanes} components is needed, got {shown(value)}"])
    encoded, problems = [], []
    for number, component in enumerate(components):
        try:
            encoded.append(_bits(type_.scalar, component).to_bytes(type_.scalar.size_bytes, "little"))
        except (TypeError, OverflowError) as error:
            problems.append(f"{_named(param)}{f', component {number}' if type_.is_vector else ''}: {error}")
    if problems:
        raise BindingError(param.name, problems)
    return b"".join(encoded)


def decode_params(layout: Layout, block: bytes | bytearray) -> dict[str, Any]:
    """The params in a block of arguments, as NumPy's numbers, by the names of their slots: of a vector each component has one."""
    taken = {slot.name: bytes(block[slot.offset_bytes : slot.offset_bytes + slot.type.size_bytes]) for slot in layout.params}
    return {slot.name: np.frombuffer(taken[slot.name], slot.type.dtype)[0] for slot in layout.params}
