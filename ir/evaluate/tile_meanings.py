"""What tile ops mean.

These take the result type, the op's numbers, and arrays whose first axis is the workgroup; the axes of the tile follow, of a scalar none.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vyre_py.ir.evaluate.conversions import cast
from vyre_py.ir.evaluate.fused import fma
from vyre_py.ir.evaluate.numbers import add, mul
from vyre_py.ir.evaluate.subgroups import identity
from vyre_py.ir.language.types import Array, Type

__all__: list[str] = []  # through the package

Fold = Callable[[Type, Array, Array], Array]
TileEvaluation = Callable[..., Array]


def fill(t: Type, numbers: tuple[int, ...], x: Array) -> Array:
    return np.broadcast_to(x.reshape(-1, *[1] * len(t.shape)), (len(x), *t.shape))


def iota(t: Type, numbers: tuple[int, ...]) -> Array:
    axis = numbers[0]
    along = np.arange(t.shape[axis], dtype=t.dtype).reshape([-1 if k == axis else 1 for k in range(len(t.shape))])
    return np.broadcast_to(along, t.shape)[np.newaxis]


def transpose(t: Type, numbers: tuple[int, ...], x: Array) -> Array:
    return x.transpose(0, *[1 + axis for axis in numbers])


def reshape(t: Type, numbers: tuple[int, ...], x: Array) -> Array:
    return x.reshape(len(x), *t.shape)


def item(t: Type, numbers: tuple[int, ...], x: Array) -> Array:
    return x.reshape(len(x))


def mma(t: Type, numbers: tuple[int, ...], a: Array, b: Array, acc: Array) -> Array:
    """acc = a b + acc, k ascending: one fused multiply-add for each, of integers a product that is added."""
    s = t.scalar
    a, b = cast(s, a), cast(s, b)
    for k in range(a.shape[2]):
        left, right = a[:, :, k, np.newaxis], b[:, np.newaxis, k]
        acc = fma(s, left, right, acc) if s.is_float else add(s, mul(s, left, right), acc)
    return acc


def _power_of_two(n: int) -> int:
    """The least power of two from n on."""
    return 1 << (n - 1).bit_length()


def reduction(fold: Fold) -> TileEvaluation:
    """x[i] = fold(x[i], x[i + h]) where there is such an element, for h = P / 2, ..., 2, 1, where P is the least power of two from the extent on."""

    def reduce(t: Type, numbers: tuple[int, ...], x: Array) -> Array:
        x = np.moveaxis(x, 1 + numbers[0], 0)
        h = _power_of_two(len(x)) // 2
        while h:
            both = len(x) - h
            x = np.concatenate((fold(t.scalar, x[:both], x[h:]), x[both:h]))
            h //= 2
        return np.moveaxis(x, 0, 1 + numbers[0])

    return reduce


def scan(name: str, fold: Fold, exclusive: bool) -> TileEvaluation:
    """x[i] = fold(x[i], x[i - d]) where there is such an element, for d = 1, 2, 4, ... below the extent (W. D. Hillis and G. L. Steele, "Data parallel
    algorithms", 1986); an exclusive scan moves all that one element on, and begins with the identity."""

    def fold_up(t: Type, numbers: tuple[int, ...], x: Array) -> Array:
        x = np.moveaxis(x, 1 + numbers[0], 0)
        d = 1
        while d < len(x):
            x = np.concatenate((x[:d], fold(t.scalar, x[d:], x[:-d])))
            d *= 2
        if exclusive:
            x = np.concatenate((np.full_like(x[:1], t.dtype.type(identity(name, t.scalar))), x[:-1]))
        return np.moveaxis(x, 0, 1 + numbers[0])

    return fold_up
