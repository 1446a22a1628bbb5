"""Shapes as callers of `Buffer.reshape` and `Buffer.view` give them."""

from __future__ import annotations

from math import prod
from typing import Any

from vyre_py.ir.language.dims import is_count

__all__ = ["one_shape"]


def one_shape(shape: tuple[Any, ...], elements: int) -> tuple[Any, ...]:
    """A shape that was given as several arguments, or as one sequence. One axis of it may be -1: as long as so many elements make it, where that is whole."""
    given = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else shape
    left = [axis for axis, size in enumerate(given) if isinstance(size, int) and size == -1]
    sizes = [size for axis, size in enumerate(given) if axis not in left]
    if len(left) != 1 or not all(map(is_count, sizes)):
        return given
    others = prod(map(int, sizes))
    return (*given[: left[0]], elements // others, *given[left[0] + 1 :]) if others and elements % others == 0 else given
