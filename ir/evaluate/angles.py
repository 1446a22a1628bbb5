"""Angles in degrees and in radians."""

from __future__ import annotations

from typing import Final

import numpy as np

from vyre_py.ir.evaluate.numbers import mul
from vyre_py.ir.language.types import Array, Type, element, encode

__all__ = ["DEGREES", "RADIANS"]  # the others through the package

# Degrees of a radian, 180 / pi, and radians of a degree. Each type has the number nearest to them (tests/ir/evaluate/test_evaluate.py).
DEGREES: Final = 57.29577951308232
RADIANS: Final = 0.017453292519943295


def _scaled(t: Type, x: Array, factor: float) -> Array:
    return mul(t, x, np.atleast_1d(element(t.scalar, encode(t.scalar, factor))))


def degrees(t: Type, x: Array) -> Array:
    return _scaled(t, x, DEGREES)


def radians(t: Type, x: Array) -> Array:
    return _scaled(t, x, RADIANS)
