"""Transcendental functions written in the IR itself, so that every target computes the same bits.

Only ops that are exact or correctly rounded are used, so the error that each module states holds wherever strict numerics do.
A function is one entry of `EXPANSIONS`, under the name of its row in the op table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.exp import exp
from vyre_py.ir.math.log import log
from vyre_py.ir.math.sincos import cos, sin
from vyre_py.ir.nodes import Atom

__all__ = ["EXPANSIONS", "MathBuilder"]

EXPANSIONS: Final[Mapping[str, Callable[[MathBuilder, Atom], Atom]]] = {"exp": exp, "log": log, "sin": sin, "cos": cos}
