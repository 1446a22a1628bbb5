"""Correctly rounded reciprocals of f32 without a branch, where the operand is known to be far from the ends of the range.

PTX's `rcp.rn` and `div.rn` look at the exponents first, and call a function for what overflows or is subnormal. Where a Program clamps the divisor between
constants there is nothing to look at: the approximation and one step of Newton's method by fused multiply-adds are what `rcp.rn` itself computes then, on
every architecture (ptxas 13.5, sm_75 to sm_120). The hardware's approximation is such that this rounds correctly; of any within 1 ULP it would not.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom, Const, Let, Value
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import f32
from vyre_py.lowering.llvm.text import Writer

__all__ = ["plain_reciprocals", "reciprocal"]

# Well inside what `rcp.rn` takes without a call: 2^-126 to 2^126.
_LEAST, _MOST = 2.0**-100, 2.0**100
_APPROXIMATION: Final = "llvm.nvvm.rcp.approx.ftz.f"


def _between(low: Atom, high: Atom) -> bool:
    return isinstance(low, Const) and isinstance(high, Const) and _LEAST <= float(low.value) <= float(high.value) <= _MOST


def plain_reciprocals(program: Program) -> frozenset[Value]:
    """The values 1 / x of f32 whose x is clamped between such constants: what a clamp gives for a NaN lies between them, too."""
    clamped: set[Atom] = set()
    found: set[Value] = set()
    for s in program.body:
        if not isinstance(s, Let) or s.bound.type is not f32:
            continue
        if s.op.name == "clamp" and _between(s.args[1], s.args[2]):
            clamped.add(s.bound)
        elif s.op.name == "div" and s.args[1] in clamped and isinstance(s.args[0], Const) and s.args[0].value == 1.0:
            found.add(s.bound)
    return frozenset(found)


def reciprocal(w: Writer, x: str) -> str:
    """1 / x, rounded correctly."""
    near = w.call("float", _APPROXIMATION, ("float", x))
    error = w.call("float", "llvm.fma.f32", ("float", w.let(f"fneg float {x}")), ("float", near), ("float", "1.0"))
    return w.call("float", "llvm.fma.f32", ("float", near), ("float", error), ("float", near))
