"""rsqrt of every float type: 1 / sqrt(x), each of the two correctly rounded."""

from __future__ import annotations

from vyre_py.ir.language.nodes import Atom, const
from vyre_py.ir.math.builder import MathBuilder

__all__ = ["rsqrt"]


def rsqrt(m: MathBuilder, x: Atom) -> Atom:
    """1 / sqrt(x): an infinity of the same sign for zeros, NaN below them, 0 for infinity."""
    return m("div", const(x.type, 1.0), m("sqrt", x))
