"""What the lanes of a subgroup do together.

These take the result type and arrays with the axes (subgroup, lane), and of vectors the components, unlike the other evaluations, and give such an array.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vyre_py.ir.evaluate.comparisons import eq
from vyre_py.ir.language.types import Array, Kind, Type, bool_

__all__: list[str] = []  # through the package

Together = Callable[..., Array]

_SCALAR_AXES = 2


def _lanes(x: Array) -> Array:
    return np.arange(x.shape[1], dtype=np.uint32)


def _moved(x: Array, source: Array, inside: Array) -> Array:
    """The first operand of lane `source`, its bits as they are; zero where that is not `inside` the subgroup."""
    components = (1,) * (x.ndim - 2)
    at, inside = (np.broadcast_to(a, x.shape[:2]).reshape(*x.shape[:2], *components) for a in (source, inside))
    found: Array = np.take_along_axis(x, np.where(inside, at, 0).astype(np.intp), 1)
    return np.where(inside, found, found.dtype.type(0))


def shuffle(t: Type, x: Array, i: Array) -> Array:
    return _moved(x, i, i < x.shape[1])


def shuffle_xor(t: Type, x: Array, mask: Array) -> Array:
    return _moved(x, _lanes(x) ^ mask, mask < x.shape[1])


def shuffle_up(t: Type, x: Array, d: Array) -> Array:
    return _moved(x, _lanes(x) - d, d <= _lanes(x))


def shuffle_down(t: Type, x: Array, d: Array) -> Array:
    return _moved(x, _lanes(x) + d, d < x.shape[1] - _lanes(x))


def _words(t: Type, on: Array) -> Array:
    """Masks, a bit for each element of the last axis, as 32-bit words: on an axis of their own where there are several, as components."""
    bits = np.packbits(on, axis=-1, bitorder="little")
    padded = np.zeros((*bits.shape[:-1], 4 * t.lanes), np.uint8)
    padded[..., : bits.shape[-1]] = bits
    words: Array = padded.view(np.uint32)
    return words if t.is_vector else words[..., 0]


def ballot(t: Type, c: Array) -> Array:
    words = _words(t, c)[:, np.newaxis]
    return np.broadcast_to(words, (*c.shape, *words.shape[2:]))


def match(t: Type, x: Array) -> Array:
    equal = eq(bool_, x[:, :, np.newaxis], x[:, np.newaxis])
    both: Array = equal if x.ndim == _SCALAR_AXES else np.logical_and.reduce(equal, axis=-1)  # the components
    return _words(t, both)  # whose last axis is the other lane


def all_(t: Type, c: Array) -> Array:
    return np.broadcast_to(c.all(axis=1, keepdims=True), c.shape)


def any_(t: Type, c: Array) -> Array:
    return np.broadcast_to(c.any(axis=1, keepdims=True), c.shape)


def identity(fold: str, t: Type) -> bool | int | float:
    """What an exclusive scan of a scalar type begins with."""
    if fold in ("min", "max"):
        if t.is_float:
            return float("inf") if fold == "min" else float("-inf")
        return t.maximum if fold == "min" else t.minimum
    if t.kind is Kind.BOOL:
        return fold == "and"
    return {"mul": 1, "and": -1 if t.is_signed else t.maximum}.get(fold, 0)


def reduction(fold: Callable[[Type, Array, Array], Array]) -> Together:
    """x = fold(x, x of lane ^ d) for d = S/2, ..., 2, 1."""

    def reduce(t: Type, x: Array) -> Array:
        d = x.shape[1] // 2
        while d:
            x = fold(t, x, x[:, _lanes(x) ^ np.uint32(d)])
            d //= 2
        return x

    return reduce


def scan(name: str, fold: Callable[[Type, Array, Array], Array], exclusive: bool) -> Together:
    """x = fold(x, x of lane - d) for d = 1, 2, ..., S/2 in the lanes that have such a one (W. D. Hillis and G. L. Steele, "Data parallel algorithms",
    1986); an exclusive scan moves all that one lane up, and begins with the identity."""

    def fold_up(t: Type, x: Array) -> Array:
        d = 1
        while d < x.shape[1]:
            x = np.concatenate((x[:, :d], fold(t, x[:, d:], x[:, :-d])), axis=1)
            d *= 2
        if not exclusive:
            return x
        first = np.full_like(x[:, :1], t.dtype.type(identity(name, t.scalar)))
        return np.concatenate((first, x[:, :-1]), axis=1)

    return fold_up
