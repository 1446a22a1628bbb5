"""Angles in degrees and in radians, in every float type: one product with the constant that is nearest in that type."""

from __future__ import annotations

from vyre_py.ir.evaluate.angles import DEGREES, RADIANS
from vyre_py.ir.language.nodes import Atom, const
from vyre_py.ir.math.builder import MathBuilder

__all__ = ["degrees", "radians"]


def degrees(m: MathBuilder, x: Atom) -> Atom:
    """x * (180 / pi)."""
    return m("mul", x, const(x.type, DEGREES))


def radians(m: MathBuilder, x: Atom) -> Atom:
    """x * (pi / 180)."""
    return m("mul", x, const(x.type, RADIANS))
