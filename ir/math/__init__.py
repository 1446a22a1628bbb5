"""Ops written in the IR itself: transcendental functions, so that every target computes the same bits, and ops that are made of
simpler ones.

Only ops that are exact or correctly rounded are used, so the error that each module states holds wherever strict numerics do.

* `EXPANSIONS`: an op's name -> what writes it for scalars: it takes the builder and the operands, of any type of the row's
  `expands`, and gives the result. That of an op that only its expansion defines (`ops.EXPANDED_ONLY`) takes f32 alone, and
  `passes.expand` goes through f32 for the narrower floats.
* `VECTOR_EXPANSIONS`: an op's name -> what writes it over the components of its operands, and gives those of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.math.asin import acos, asin
from vyre_py.ir.math.atan import atan, atan2
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.erf import erf, erfc
from vyre_py.ir.math.exact import geometry
from vyre_py.ir.math.exact.fields import extract_bits, insert_bits
from vyre_py.ir.math.exact.geometry import Components
from vyre_py.ir.math.exact.packing import PACKING
from vyre_py.ir.math.exact.remainder import rem
from vyre_py.ir.math.exact.saturating import saturating_add, saturating_mul, saturating_sub
from vyre_py.ir.math.exp import exp, exp2, exp10, expm1
from vyre_py.ir.math.hyperbolic import cosh, sinh, tanh
from vyre_py.ir.math.inverse_hyperbolic import acosh, asinh, atanh
from vyre_py.ir.math.log import log, log1p, log2, log10
from vyre_py.ir.math.pow import power
from vyre_py.ir.math.roots import cbrt, hypot
from vyre_py.ir.math.rsqrt import rsqrt
from vyre_py.ir.math.sincos import cos, sin
from vyre_py.ir.math.tan import tan

__all__ = ["EXPANSIONS", "VECTOR_EXPANSIONS", "Components", "MathBuilder"]

EXPANSIONS: Final[Mapping[str, Callable[..., Atom]]] = {
    # of several types
    "rem": rem,
    "rsqrt": rsqrt,
    "saturating_add": saturating_add,
    "saturating_sub": saturating_sub,
    "saturating_mul": saturating_mul,
    "extract_bits": extract_bits,
    "insert_bits": insert_bits,
    # transcendental functions, of f32
    "exp": exp,
    "exp2": exp2,
    "exp10": exp10,
    "expm1": expm1,
    "log": log,
    "log2": log2,
    "log10": log10,
    "log1p": log1p,
    "pow": power,
    "sinh": sinh,
    "cosh": cosh,
    "tanh": tanh,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
    "sin": sin,
    "cos": cos,
    "tan": tan,
    "asin": asin,
    "acos": acos,
    "atan": atan,
    "atan2": atan2,
    "cbrt": cbrt,
    "hypot": hypot,
    "erf": erf,
    "erfc": erfc,
}

VECTOR_EXPANSIONS: Final[Mapping[str, Callable[..., Components]]] = {
    "dot": geometry.dot,
    "length": geometry.length,
    "cross": geometry.cross,
    "all": geometry.all_,
    "any": geometry.any_,
    **PACKING,
}
