"""Ops written in the IR itself: transcendental functions, so that every target computes the same bits, and ops that are made of
simpler ones.

Only ops that are exact or correctly rounded are used, so the error that each module states holds wherever strict numerics do.

* `EXPANSIONS`: an op's name -> what writes it for scalars: it takes the builder and the operands, of any type of the row's
  `expands`, and gives the result. Where the row says `through`, the function in its module writes the op for those types, whose constants stand there
  side by side.
* `VECTOR_EXPANSIONS`: an op's name -> what writes it over the components of its operands, and gives those of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from typing import Any, Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.op import Op
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.exact.geometry import Components
from vyre_py.ir.math.exact.packing import PACKING

__all__ = ["EXPANSIONS", "VECTOR_EXPANSIONS", "Components", "MathBuilder"]

Written = Callable[..., Atom]


def _named(op: Op) -> Any:
    """The function that the op's row names. Raises if it is missing: the row is wrong then, and the import fails."""
    module, _, name = op.expansion.rpartition(".")
    return resolve_name(f"vyre_py.ir.math.{module}:{name}")


def _of_all(op: Op) -> Written:
    """What writes the op: its function, for types that it is not written for by way of the first that it is, which holds them."""
    written: Written = _named(op)
    if not op.through:
        return written

    def write(m: MathBuilder, *operands: Atom) -> Atom:
        type_ = operands[0].type
        if type_ in op.through:
            return written(m, *operands)
        return m.cast(written(m, *[m.cast(x, op.through[0]) for x in operands]), type_)

    return write


_WRITTEN: Final = {name: op for name, op in OPS.items() if op.expansion}
EXPANSIONS: Final[Mapping[str, Written]] = {name: _of_all(op) for name, op in _WRITTEN.items() if op.is_lanewise}
VECTOR_EXPANSIONS: Final[Mapping[str, Callable[..., Components]]] = {
    **{name: _named(op) for name, op in _WRITTEN.items() if not op.is_lanewise},
    **PACKING,
}
