"""Weights between two ends, and what lies between them, in every float type: each step is rounded in that type."""

from __future__ import annotations

from vyre_py.ir.language.nodes import Atom, const
from vyre_py.ir.math.builder import MathBuilder

__all__ = ["mix", "saturate", "smoothstep", "step"]


def step(m: MathBuilder, edge: Atom, x: Atom) -> Atom:
    """0 where x < edge, else 1, also for NaN."""
    return m("select", m("lt", x, edge), const(x.type, 0.0), const(x.type, 1.0))


def saturate(m: MathBuilder, x: Atom) -> Atom:
    """clamp(x, 0, 1): 0 for NaN."""
    return m("clamp", x, const(x.type, 0.0), const(x.type, 1.0))


def smoothstep(m: MathBuilder, low: Atom, high: Atom, x: Atom) -> Atom:
    """Hermite's cubic t * t * (3 - 2 t) for t = saturate((x - low) / (high - low))."""
    weight = saturate(m, m("div", m("sub", x, low), m("sub", high, low)))
    slope = m("sub", const(x.type, 3.0), m("mul", const(x.type, 2.0), weight))
    return m("mul", m("mul", weight, weight), slope)


def mix(m: MathBuilder, a: Atom, b: Atom, weight: Atom) -> Atom:
    """weight * b + (a - weight * a), each of the two sums fused: a for weight 0 and b for 1."""
    return m("fma", weight, b, m("fma", m("neg", weight), a, a))
