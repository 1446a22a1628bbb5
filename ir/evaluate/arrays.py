"""What the evaluations share: arrays as their bits, arrays of narrow floats as f32, and scalars beside vectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import numpy as np

from vyre_py.ir.language.narrowing import is_narrow
from vyre_py.ir.language.types import Array, Type, f32

__all__ = ["Evaluation", "aligned", "bits_of", "through_f32", "whole"]

Evaluation = Callable[..., Array]

_UINT: Final = {n: np.dtype(f"u{n}") for n in (1, 2, 4, 8)}


def bits_of(a: Array) -> Array:
    """The same elements as unsigned integers of their width."""
    return a.view(_UINT[a.dtype.itemsize])


def whole(t: Type, value: int) -> Any:
    """A whole number as a NumPy scalar of the type."""
    return t.dtype.type(value)


def through_f32(f: Evaluation) -> Evaluation:
    """Computes over f16 and bf16 in f32; a result that is a float is rounded back.

    For + - * / and sqrt that is rounding the exact result once, since f32 has more than twice their bits and two
    (S. A. Figueroa, "When is double rounding innocuous?", 1995).
    """

    @wraps(f)
    def evaluate(t: Type, *operands: Array) -> Array:
        if not any(is_narrow(a.dtype) for a in operands):
            return f(t, *operands)
        wide = f(f32 if t.is_float else t, *[a.astype(np.float32) if is_narrow(a.dtype) else a for a in operands])
        return wide.astype(t.dtype) if t.is_float else wide

    return evaluate


def aligned(*operands: Array) -> tuple[Array, ...]:
    """The operands, those that are scalars beside vectors or tiles with axes of one element, so that they broadcast."""
    axes = max([a.ndim for a in operands])
    return tuple([a if a.ndim == axes else a.reshape(len(a), *[1] * (axes - 1)) for a in operands])
