"""Correctly rounded reciprocals of f32 without a branch, where the operand is known to be far from the ends of the range, and quotients of any.

PTX's `rcp.rn` and `div.rn` look at the exponents first, and call a function for what overflows or is subnormal. Where a Program clamps the divisor between
constants there is nothing to look at: the approximation and one step of Newton's method by fused multiply-adds are what `rcp.rn` itself computes then, on
every architecture (ptxas 13.5, sm_75 to sm_120). The hardware's approximation is such that this rounds correctly; of any within 1 ULP it would not.

Where a kernel may not call at all, quotients are computed in f64: of two f32 none lies so near to the middle of two neighbours that what is within 2^-50 of it
would be rounded to another f32, also a subnormal one (S. A. Figueroa, "When is double rounding innocuous?", 1995), unless it is that middle, which is exact.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom, Const, Let, Value
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import f32
from vyre_py.lowering.llvm.text import Writer

__all__ = ["plain_reciprocals", "quotient", "reciprocal"]

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


def quotient(w: Writer, x: str, y: str) -> str:
    """x / y, rounded correctly, with nothing that the assembler makes a call of: the approximation is good for 20 bits at least, a step of Newton's method for
    twice as many, and another one for the quotient for twice those."""
    above, below = w.let(f"fpext float {x} to double"), w.let(f"fpext float {y} to double")
    near = w.call("double", "llvm.nvvm.rcp.approx.ftz.d", ("double", below))
    minus = w.let(f"fneg double {below}")
    error = w.call("double", "llvm.fma.f64", ("double", minus), ("double", near), ("double", "1.0"))
    nearer = w.call("double", "llvm.fma.f64", ("double", near), ("double", error), ("double", near))
    first = w.let(f"fmul double {above}, {nearer}")
    rest = w.call("double", "llvm.fma.f64", ("double", minus), ("double", first), ("double", above))
    second = w.call("double", "llvm.fma.f64", ("double", rest), ("double", nearer), ("double", first))
    # By zero and by what is not finite, and of that, the approximation gives the quotient, whose steps would be NaN; zeros keep their sign.
    plain = w.let(f"fmul double {above}, {near}")
    size = w.call("double", "llvm.fabs.f64", ("double", plain))
    is_finite = w.let(f"and i1 {w.let(f'fcmp ogt double {size}, 0.0')}, {w.let(f'fcmp olt double {size}, 0x7FF0000000000000')}")
    return w.let(f"fptrunc double {w.let(f'select i1 {is_finite}, double {second}, double {plain}')} to float")
