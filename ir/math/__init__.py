"""Ops written in the IR itself: transcendental functions, so that every target computes the same bits, and ops that are made of
simpler ones.

Only ops that are exact or correctly rounded are used, so the error that each module states holds wherever strict numerics do.

* `EXPANSIONS`: an op's name -> what writes it for scalars: it takes the builder and the operands, of any type of the row's
  `expands`, and gives the result; where the row says `through`, of that type alone, and `passes.expand` converts.
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

__all__ = ["EXPANSIONS", "VECTOR_EXPANSIONS", "Components", "MathBuilder", "expanded"]


def _named(op: Op) -> Any:
    """The function that the op's row names. Raises if it is missing: the row is wrong then, and the import fails."""
    module, _, name = op.expansion.rpartition(".")
    return resolve_name(f"vyre_py.ir.math.{module}:{name}")


_WRITTEN: Final = {name: op for name, op in OPS.items() if op.expansion}
EXPANSIONS: Final[Mapping[str, Callable[..., Atom]]] = {name: _named(op) for name, op in _WRITTEN.items() if op.is_lanewise}
VECTOR_EXPANSIONS: Final[Mapping[str, Callable[..., Components]]] = {
    **{name: _named(op) for name, op in _WRITTEN.items() if not op.is_lanewise},
    **PACKING,
}


def expanded(m: MathBuilder, op: Op, args: tuple[Atom, ...]) -> Atom:
    """Writes an op of `EXPANSIONS` over scalars out, in the type that it goes through."""
    type_, written = args[0].type, EXPANSIONS[op.name]
    if op.through is None or op.through is type_:
        return written(m, *args)
    return m.cast(written(m, *[m.cast(a, op.through) for a in args]), type_)
