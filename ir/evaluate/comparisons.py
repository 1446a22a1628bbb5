"""Comparisons, classes of floats, and choice."""

from __future__ import annotations

import numpy as np

from vyre_py.ir.evaluate.arrays import aligned, through_f32
from vyre_py.ir.language.types import Array, Type

__all__: list[str] = []  # through the package


@through_f32
def eq(t: Type, a: Array, b: Array) -> Array:
    equal: Array = a == b
    return equal


@through_f32
def ne(t: Type, a: Array, b: Array) -> Array:
    differ: Array = a != b
    return differ


@through_f32
def lt(t: Type, a: Array, b: Array) -> Array:
    less: Array = a < b
    return less


@through_f32
def le(t: Type, a: Array, b: Array) -> Array:
    not_above: Array = a <= b
    return not_above


@through_f32
def gt(t: Type, a: Array, b: Array) -> Array:
    greater: Array = a > b
    return greater


@through_f32
def ge(t: Type, a: Array, b: Array) -> Array:
    not_below: Array = a >= b
    return not_below


@through_f32
def is_nan(t: Type, a: Array) -> Array:
    found: Array = np.isnan(a)
    return found


@through_f32
def is_inf(t: Type, a: Array) -> Array:
    found: Array = np.isinf(a)
    return found


@through_f32
def is_finite(t: Type, a: Array) -> Array:
    found: Array = np.isfinite(a)
    return found


def select(t: Type, condition: Array, a: Array, b: Array) -> Array:
    return np.where(*aligned(condition, a, b))
