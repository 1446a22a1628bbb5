"""Weights between two ends, and what lies between them."""

from __future__ import annotations

import numpy as np

from vyre_py.ir.evaluate.comparisons import lt
from vyre_py.ir.evaluate.fused import fma
from vyre_py.ir.evaluate.numbers import clamp, div, mul, neg, sub
from vyre_py.ir.language.types import Array, Type

__all__: list[str] = []  # through the package


def _number(t: Type, value: int) -> Array:
    """A small whole number as an array of one element, which broadcasts with scalars and vectors."""
    return np.full(1, value, np.float32).astype(t.dtype)


def step(t: Type, edge: Array, x: Array) -> Array:
    return np.where(lt(t, x, edge), _number(t, 0), _number(t, 1))


def saturate(t: Type, x: Array) -> Array:
    return clamp(t, x, _number(t, 0), _number(t, 1))


def smoothstep(t: Type, low: Array, high: Array, x: Array) -> Array:
    weight = saturate(t, div(t, sub(t, x, low), sub(t, high, low)))
    return mul(t, mul(t, weight, weight), sub(t, _number(t, 3), mul(t, _number(t, 2), weight)))


def mix(t: Type, a: Array, b: Array, weight: Array) -> Array:
    return fma(t, weight, b, fma(t, neg(t, weight), a, a))
