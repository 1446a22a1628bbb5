"""contract: a product that is used by sums only becomes part of a fused multiply-add, which rounds once instead of twice.

Not one of `PASSES`, since it changes results: it is for numerics "fast". It runs before ops are expanded, so that the code of `ir/math` and
`lowering/legal` stays as it is: some of it depends on the error of a single rounding.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom, Let, Value
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import f32, f64
from vyre_py.ir.math import MathBuilder
from vyre_py.ir.passes.lets import rewrite_lets

__all__ = ["contract"]

# The narrower floats are computed in f32, where a sum of a rounded product costs less than their fused multiply-add.
_FUSED: Final = (f32, f64)
_SUMS: Final = ("add", "sub")


def contract(program: Program) -> Program:
    """The Program with f32 and f64 products fused into the sums and differences that use them, where nothing else does; the same
    object without any. Takes scalars only. Of two products in one sum the first is fused."""
    single = _only_summed(program)
    factors: dict[int, tuple[Atom, ...]] = {}  # new product -> what it multiplies

    def wanted(let: Let) -> bool:
        if let.op.name == "mul":
            return let.bound.id in single
        return _is_sum(let) and any(isinstance(a, Value) and a.id in single for a in let.args)

    def write(m: MathBuilder, let: Let, args: tuple[Atom, ...]) -> Atom:
        if let.op.name == "mul":
            product = m("mul", *args)
            factors[product.id] = args
            return product
        return _fused(m, let.op.name == "sub", args, factors)

    return rewrite_lets(program, wanted, write)


def _is_sum(let: Let) -> bool:
    return let.op.name in _SUMS and let.bound.type in _FUSED


def _only_summed(program: Program) -> set[int]:
    """The products that sums use, each once, and nothing else does: x * x - x * x stays 0 where both are one value."""
    products = {s.bound.id for s in program.body if isinstance(s, Let) and s.op.name == "mul" and s.bound.type in _FUSED}
    summed: set[int] = set()
    for statement in program.body:
        values = [a.id for a in statement.args if isinstance(a, Value)]
        if isinstance(statement, Let) and _is_sum(statement) and len(set(values)) == len(values):
            summed.update(values)
        else:
            products.difference_update(values)
    return products & summed


def _fused(m: MathBuilder, minus: bool, args: tuple[Atom, ...], factors: dict[int, tuple[Atom, ...]]) -> Atom:
    """args[0] + args[1] or, for `minus`, their difference; one of them is a product."""
    first, second = args
    if isinstance(first, Value) and first.id in factors:
        return m("fma", *factors[first.id], m("neg", second) if minus else second)
    assert isinstance(second, Value)  # as contract asks
    a, b = factors[second.id]
    return m("fma", m("neg", a) if minus else a, b, first)
