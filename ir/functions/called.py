"""Functions that code calls: for a function of the Program's own, and for an op that a Program has so often that writing out its expansion at each use would
take too long to compile.

The op itself stands for the call: a target that finds one without a row of its own calls the function of its signature. So passes see a pure op, whose
rules of types, uniformity and laws are those of its row.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from vyre_py.ir.functions.function import Definition, Function
from vyre_py.ir.language.nodes import Let, Memory
from vyre_py.ir.language.op import Op
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type
from vyre_py.ir.math import EXPANSIONS, MathBuilder

__all__ = ["Signature", "function_program", "parameters_of", "result_of", "signature_of"]


class Signature(NamedTuple):
    """An op over scalars of these types."""

    op: Op
    operands: tuple[Type, ...]
    result: Type

    @property
    def name(self) -> str:
        """The function's name in code."""
        if isinstance(self.op, Function):
            return f"def_{self.op.name}"
        return "_".join(["fn", self.op.name, *map(str, self.operands)])


def signature_of(let: Let) -> Signature | None:
    """The function that stands for a Let, over tiles for each element; None where there is none: its op is not made of others, or works over vectors."""
    types, result = tuple([_element(a.type) for a in let.args]), _element(let.bound.type)
    if isinstance(let.op, Function):
        return Signature(let.op, types, result)
    if let.op.name not in EXPANSIONS or any(t.is_vector for t in types):
        return None
    type_ = let.op.operand_type(types)
    return Signature(let.op, types, result) if type_ in let.op.expands else None


def _element(type_: Type) -> Type:
    return type_.scalar if type_.is_tile else type_


@lru_cache(maxsize=256)
def function_program(signature: Signature) -> Program:
    """What a function computes, as a kernel of its own: it loads each operand from a buffer of one element, and stores the result to another.
    Targets make parameters and a return of these."""
    if isinstance(signature.op, Function):
        return signature.op.program
    out = Definition(signature.name, tuple([(f"x{k}", type_) for k, type_ in enumerate(signature.operands)]), signature.result)
    out.give(EXPANSIONS[signature.op.name](MathBuilder(out), *out.parameters))
    return out.finish()


def parameters_of(program: Program) -> tuple[Memory, ...]:
    """The buffers of a function's Program that hold its operands."""
    return program.buffers[:-1]


def result_of(program: Program) -> Memory:
    """The buffer of a function's Program that takes its result."""
    return program.buffers[-1]
