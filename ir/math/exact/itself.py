"""Ops that may be approximated, where they are not: each is the op that it approximates."""

from __future__ import annotations

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.math.builder import MathBuilder

__all__ = ["div", "sqrt"]


def div(m: MathBuilder, x: Atom, y: Atom) -> Atom:
    """x / y."""
    return m("div", x, y)


def sqrt(m: MathBuilder, x: Atom) -> Atom:
    """The square root."""
    return m("sqrt", x)
