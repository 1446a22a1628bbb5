"""Which results of floating point have to be rounded where they are computed: sums and products whose rounding error is computed next.

    s = a + b                    p = a * b                    s = fma(a, b, c)
    e = b - (s - a)              e = fma(a, b, -p)            e = fma(a, b, c - s)

Compilers of WGSL may compute as if numbers were exact. Then e is 0, and compensated sums (of users, and of `ir.math`) lose their precision. So the result is
passed through integers and combined there with a word that only the launch knows. The compiler cannot cancel terms across it, nor contract a product into
what follows.
"""

from __future__ import annotations

from vyre_py.ir.language.nodes import Atom, Const, Let, Value
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import f32, f64

__all__ = ["rounded_results"]


_Term = int | tuple[str, int] | Atom  # a value's id, a constant's magnitude, or what is the same for the whole grid


def rounded_results(program: Program) -> frozenset[int]:
    """The values, by id, that are part of an error-free sum or product: the sum, and the difference in which one of its terms comes back; the product."""
    found: set[int] = set()
    negated: dict[_Term, _Term] = {}
    sums: dict[_Term, frozenset[_Term]] = {}  # a sum or difference -> its terms, whatever their signs; of a fused one, that which is no product
    products: dict[_Term, frozenset[_Term]] = {}

    def term(atom: Atom) -> _Term:
        if isinstance(atom, Const):
            return "constant", atom.bits & ~(1 << atom.type.bits - 1)
        return negated.get(atom.id, atom.id) if isinstance(atom, Value) else atom

    for s in program.body:
        if not isinstance(s, Let) or s.bound.type not in (f32, f64):
            continue
        terms, result = [term(a) for a in s.args], s.bound.id
        if s.op.name == "neg":
            negated[result] = terms[0]
        elif s.op.name in ("add", "sub"):
            sums[result] = frozenset(terms)
            for whole, part in (terms, terms[::-1]):
                if part in sums.get(whole, ()) and isinstance(whole, int):
                    found |= {whole, result}
        elif s.op.name == "mul":
            products[result] = frozenset(terms)
        elif s.op.name == "fma":
            sums[result] = frozenset(terms[2:])
            if products.get(terms[2]) == frozenset(terms[:2]) and isinstance(terms[2], int):
                found.add(terms[2])
    return frozenset(found)
