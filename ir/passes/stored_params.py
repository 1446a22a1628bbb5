"""stored_params: a Program that reads params from memory.

    program axpy(n) {                       program axpy(n) {
      param a: f32                            buffer x: f32[n] read
      buffer x: f32[n] read                   buffer y: f32[n] read_write
      buffer y: f32[n] read_write   ->        buffer a: f32[1] read
      let i = global_id.x                     let a = a[0], let i = global_id.x
      y[i] = a * x[i] + y[i]                  y[i] = a * x[i] + y[i]
    }                                       }

It is for callers who have the values on the device.
"""

from __future__ import annotations

from collections.abc import Collection

from vyre_py.ir.check import check
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.errors import ValidationError
from vyre_py.ir.language.nodes import Access, Atom, Const, Memory, Param, Space, Value
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u32
from vyre_py.ir.passes.rewriter import Rewriter

__all__ = ["with_stored_params"]


class _Storer(Rewriter):
    def __init__(self, program: Program, names: Collection[str]) -> None:
        super().__init__(program)
        stored = [param for param in program.params if param.name in names]
        self.params = [param for param in program.params if param.name not in names]
        places = [Memory(param.name, Space.BUFFER, param.type, (DimConst(1),), Access.READ) for param in stored]
        self.memories = [*program.memories, *places]
        self.values: dict[Atom, Value] = {
            param: self.load(place, (Const(u32, 0),), param.name) for param, place in zip(stored, places, strict=True)
        }  # fmt: skip

    def atom(self, atom: Atom) -> Atom:
        return self.values.get(atom, atom) if isinstance(atom, Param) else super().atom(atom)


def with_stored_params(program: Program, names: Collection[str]) -> Program | None:
    """The Program with buffers of one element, behind its other ones, in place of the params of these names. None where it would break a rule."""
    storer = _Storer(program, names)
    for index in storer.indices():
        storer.copy(index)
    made = storer.finish()
    try:
        check(made)
    except ValidationError:
        return None
    return made
