"""Tensors of PyTorch as arguments: which type of the language is which dtype, and their memory as NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch

from vyre_py.ir.language import types
from vyre_py.ir.language.errors import Unsupported
from vyre_py.ir.language.types import Type

__all__ = ["DTYPES", "TYPES", "as_array", "dtype_of", "require_cpu", "require_device"]

TYPES: Final[Mapping[Any, Type]] = {
    torch.bool: types.bool_,
    torch.int8: types.i8, torch.int16: types.i16, torch.int32: types.i32, torch.int64: types.i64,
    torch.uint8: types.u8, torch.uint16: types.u16, torch.uint32: types.u32, torch.uint64: types.u64,
    torch.float16: types.f16, torch.bfloat16: types.bf16, torch.float32: types.f32, torch.float64: types.f64,
    torch.float8_e4m3fn: types.f8e4m3, torch.float8_e5m2: types.f8e5m2,
}  # fmt: skip
DTYPES: Final[Mapping[str, Any]] = {type_.name: dtype for dtype, type_ in TYPES.items()}
_BITS: Final = {1: torch.uint8, 2: torch.int16}  # what NumPy takes in place of floats that it has not


def dtype_of(type_: Type) -> Any:
    """The dtype of a tensor whose elements, or their components, have this type."""
    return DTYPES[type_.scalar.name]


def require_cpu(device: Any, what: str) -> None:
    """Raises Unsupported for memory that is not the host's."""
    if device.type != "cpu":
        raise Unsupported(what, [f"tensors on {device.type}: tensors on cpu are what it takes so far"])


def require_device(device: Any, what: str) -> None:
    """Raises Unsupported for devices whose graphs are not compiled."""
    if device.type not in ("cpu", "cuda"):
        raise Unsupported(what, [f"tensors on {device.type}: tensors on cpu and cuda are what it takes"])


def as_array(tensor: Any) -> np.ndarray[Any, Any]:
    """The memory of a tensor on the CPU, as a NumPy array of its shape and strides. Raises TypeError for dtypes that neither NumPy nor the language has."""
    type_ = TYPES.get(tensor.dtype)
    if type_ is None or type_.in_numpy:
        array: np.ndarray[Any, Any] = tensor.detach().numpy()
        return array
    return np.asarray(tensor.detach().view(_BITS[tensor.element_size()]).numpy()).view(type_.dtype)
