"""Values as text of the language: literals, conversions, and which dtype a value has while a kernel computes.

Half precision is computed in f32 and rounded where it is stored or converted, as PyTorch's own kernels do.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Any, Final

import numpy as np
import sympy
import torch
from torch._inductor.virtualized import OpsWrapper
from torch.utils._python_dispatch import _disable_current_modes

from vyre_py.interop.torch.tensors import TYPES
from vyre_py.lowering.errors import Unsupported

__all__ = ["HALVES", "cast", "common_dtype", "compute_dtype", "literal", "rounded", "type_name", "typed"]

HALVES: Final = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
_WRAPPING: Final = (torch.int8, torch.uint8, torch.int16, torch.uint16)
_LARGEST_F8: Final = 448.0  # of e4m3fn
_BITS: Final = {torch.float32: ("u32", "<I", "<f"), torch.float64: ("u64", "<Q", "<d")}


def compute_dtype(dtype: Any) -> Any:
    """The dtype in which values of a dtype are computed."""
    return torch.float32 if dtype in HALVES else dtype


def type_name(dtype: Any) -> str:
    """The language's name of a dtype. Raises Unsupported for one that the language has not."""
    if dtype not in TYPES:
        raise Unsupported("the backend vyre", [f"the dtype {dtype}"])
    return TYPES[dtype].name


def rounded(value: Any) -> float:
    """A number rounded to f32."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def literal(value: Any, dtype: Any) -> str:
    """A number as a constant of a dtype; infinities and NaN by their bits."""
    name = type_name(dtype)
    if dtype is torch.bool:
        return "true" if value else "false"
    if not dtype.is_floating_point:
        return f"{int(value)}{name}"
    number = rounded(value) if dtype is torch.float32 else float(value)
    if not math.isfinite(number):
        unsigned, word, packed = _BITS[dtype]
        return f"bitcast({struct.unpack(word, struct.pack(packed, number))[0]:#x}{unsigned}, {name})"
    text = repr(number)
    if "." not in text:
        text = text.replace("e", ".0e") if "e" in text else f"{text}.0"
    return text + name


@functools.cache
def _f8_saturates() -> bool:
    """Whether PyTorch has what is too large for e4m3fn become the largest number rather than NaN, which differs between its releases. The CPU and CUDA share
    the function."""
    with _disable_current_modes():  # under which tensors may be fake
        return bool(torch.full((), 2 * _LARGEST_F8, device="cpu").to(torch.float8_e4m3fn).float() == _LARGEST_F8)


def cast(value: Any, dtype: Any) -> str:
    """A variable converted to a dtype that is not its own. Floats become small or unsigned integers by way of wider ones, which wraps as PyTorch does from
    -2^31 to 2^31; all become e4m3fn by way of f32."""
    if dtype is torch.float8_e4m3fn and value.dtype is not torch.bool:
        text = str(value) if value.dtype is torch.float32 else f"cast({value}, f32)"
        if _f8_saturates():
            text = f"select(abs({text}) > {_LARGEST_F8}, copysign({_LARGEST_F8}f32, {text}), {text})"  # a NaN stays one
        return f"cast({text}, f8e4m3)"
    if value.dtype.is_floating_point and dtype in _WRAPPING:
        return f"cast(cast({value}, i32), {type_name(dtype)})"
    if value.dtype.is_floating_point and dtype is torch.uint32:
        return f"cast(cast({value}, i64), u32)"
    return f"cast({value}, {type_name(dtype)})"


def typed(value: Any, dtype: Any) -> str:
    """A variable, number or constant expression as text of a dtype."""
    value = OpsWrapper._unwrap(value)
    if isinstance(value, (bool, int, float)):
        return literal(value, dtype)
    if isinstance(value, sympy.Expr):
        return literal(float(value) if dtype.is_floating_point else int(value), dtype)
    return str(value) if value.dtype == dtype else cast(value, dtype)


def common_dtype(*values: Any) -> Any:
    """The dtype to which operands of one op are brought: that of the variables among them, in which numbers have no say, but that a float makes it a float."""
    unwrapped = [OpsWrapper._unwrap(value) for value in values]
    found = [value.dtype for value in unwrapped if getattr(value, "dtype", None) is not None]
    common = functools.reduce(torch.promote_types, found) if found else torch.int64
    if any(isinstance(value, float) for value in unwrapped) and not common.is_floating_point:
        common = torch.float32
    if common is torch.bool and any(type(value) is int for value in unwrapped):
        common = torch.int64
    return compute_dtype(common)
