"""Ops written in the IR itself: transcendental functions, so that every target computes the same bits, and ops that are made of
simpler ones.

Only ops that are exact or correctly rounded are used, so the error that each module states holds wherever strict numerics do.

* `EXPANSIONS`: an op's name -> what writes it for scalars: it takes the builder and the operands, of any type of the row's
  `expands`, and gives the result.
* `WRITTEN_FOR`: the name of an op whose row says `through` -> each of those types, and what writes the op for it alone. The modules about f64
  are in `double`, each beside the one about f32 by its name.
* `VECTOR_EXPANSIONS`: an op's name -> what writes it over the components of its operands, and gives those of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from typing import Any, Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.op import Op
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.types import Type, f32, f64
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.exact.geometry import Components
from vyre_py.ir.math.exact.packing import PACKING

__all__ = ["EXPANSIONS", "VECTOR_EXPANSIONS", "WRITTEN_FOR", "Components", "MathBuilder"]


Written = Callable[..., Atom]

# Where the expansions of ops are that are written for single types.
_FOLDERS: Final[Mapping[Type, str]] = {f32: "", f64: "double."}


def _named(op: Op, folder: str = "") -> Any:
    """The function that the op's row names. Raises if it is missing: the row is wrong then, and the import fails."""
    module, _, name = op.expansion.rpartition(".")
    return resolve_name(f"vyre_py.ir.math.{folder}{module}:{name}")


def _by_type(written: Mapping[Type, Written]) -> Written:
    """What writes the op for each of the types, and for others by way of the first, which holds them."""
    through = next(iter(written))

    def write(m: MathBuilder, *operands: Atom) -> Atom:
        type_ = operands[0].type
        if type_ in written:
            return written[type_](m, *operands)
        return m.cast(written[through](m, *[m.cast(x, through) for x in operands]), type_)

    return write


_WRITTEN: Final = {name: op for name, op in OPS.items() if op.expansion}
WRITTEN_FOR: Final[Mapping[str, Mapping[Type, Written]]] = {
    name: {type_: _named(op, _FOLDERS[type_]) for type_ in op.through} for name, op in _WRITTEN.items() if op.through
}
EXPANSIONS: Final[Mapping[str, Written]] = {
    name: _by_type(WRITTEN_FOR[name]) if op.through else _named(op) for name, op in _WRITTEN.items() if op.is_lanewise
}
VECTOR_EXPANSIONS: Final[Mapping[str, Callable[..., Components]]] = {
    **{name: _named(op) for name, op in _WRITTEN.items() if not op.is_lanewise},
    **PACKING,
}
