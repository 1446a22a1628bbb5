"""Vectors put together, taken apart, and made one."""

from __future__ import annotations

import numpy as np

from vyre_py.ir.evaluate.comparisons import lt
from vyre_py.ir.evaluate.numbers import add, div, mul, sqrt, sub
from vyre_py.ir.language.types import Array, Type

__all__: list[str] = []  # through the package


def vector(t: Type, *components: Array) -> Array:
    return np.stack(np.broadcast_arrays(*components), axis=1)


def swizzle(t: Type, a: Array, pattern: Array) -> Array:
    columns = a if a.ndim > 1 else a[:, np.newaxis]
    bits = int(pattern.flat[0])
    picked = columns[:, [bits >> 2 * k & 3 for k in range(t.lanes)]]
    return picked if t.is_vector else picked[:, 0]


def dot(t: Type, a: Array, b: Array) -> Array:
    products = mul(t, a, b)
    total = products[:, 0]
    for k in range(1, products.shape[1]):
        total = add(t, total, products[:, k])
    return total


def length(t: Type, a: Array) -> Array:
    return sqrt(t, dot(t, a, a))


def distance(t: Type, a: Array, b: Array) -> Array:
    return length(t, sub(t, a, b))


def normalize(t: Type, a: Array) -> Array:
    return div(t, a, length(t.scalar, a)[:, np.newaxis])


def reflect(t: Type, i: Array, n: Array) -> Array:
    across = dot(t.scalar, n, i)
    return sub(t, i, mul(t, add(t.scalar, across, across)[:, np.newaxis], n))


def refract(t: Type, i: Array, n: Array, eta: Array) -> Array:
    s = t.scalar
    one, across = np.ones(1, np.float32).astype(t.dtype), dot(s, n, i)
    k = sub(s, one, mul(s, mul(s, eta, eta), sub(s, one, mul(s, across, across))))
    along = add(s, mul(s, eta, across), sqrt(s, k))
    bent = sub(t, mul(t, eta[:, np.newaxis], i), mul(t, along[:, np.newaxis], n))
    return np.where(lt(s, k, np.zeros_like(one))[:, np.newaxis], np.zeros_like(bent), bent)


def cross(t: Type, a: Array, b: Array) -> Array:
    next_, after = [1, 2, 0], [2, 0, 1]
    return sub(t, mul(t, a[:, next_], b[:, after]), mul(t, a[:, after], b[:, next_]))


def all_(t: Type, a: Array) -> Array:
    every: Array = np.logical_and.reduce(a, axis=1)
    return every


def any_(t: Type, a: Array) -> Array:
    some: Array = np.logical_or.reduce(a, axis=1)
    return some
