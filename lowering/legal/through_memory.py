"""through_memory: shuffles by way of workgroup memory, for targets whose own lanes are not those of the Program's subgroups.

Each invocation stores what it has at its own place and waits at a barrier; then it loads what it is to get. So control has to be uniform for the workgroup.
Exchanges in a row take turns with two arrays, and then need one barrier each: who stores to an array for the second time has passed a barrier that all
others reach only after they have loaded from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

from vyre_py.ir.check.uniformity import analyse
from vyre_py.ir.language.assembler import Rewriter
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.effects import JUMPS, SYNCHRONISES, Effect, any_of
from vyre_py.ir.language.nodes import Access, Atom, Memory, Space, Subgroup
from vyre_py.ir.language.op import Level
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type
from vyre_py.ir.math.builder import MathBuilder, word
from vyre_py.lowering.errors import Missing

__all__ = ["missing_together", "through_memory"]

_NESTS: Final = any_of(Effect.NESTS)
_ARRAYS: Final = 2


def missing_together(program: Program, why: str) -> Iterator[Missing]:
    """The subgroup ops to which a workgroup does not come together; `why` says what they take workgroup memory for."""
    if not any(isinstance(s, Subgroup) for s in program.body):
        return
    control = analyse(program).control
    for index, s in enumerate(program.body):
        if isinstance(s, Subgroup) and control[index] > Level.WORKGROUP:
            help_ = f"{why}, and then a whole workgroup has to come there together: move it out of the branch or loop"
            yield Missing(f"subgroup_{s.op.name} where only a subgroup agrees", program.place(index), help_)


def through_memory(program: Program) -> Program:
    """The Program, all of whose subgroup ops are shuffles of scalars to which workgroups come together, without any; the same object without one."""
    if not any(isinstance(s, Subgroup) for s in program.body):
        return program
    exchanger = _Exchanger(program)
    for index in exchanger.indices():
        exchanger.take(index)
    return exchanger.finish()


class _Exchanger(Rewriter):
    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._m = MathBuilder(self)
        self._arrays: dict[tuple[Type, int], Memory] = {}
        self._turn = -1  # the array that the last exchange used, if no loop or branch has begun or ended since

    def take(self, index: int) -> None:
        """Takes in old statement `index`."""
        s = self.program.body[index]
        if isinstance(s, Subgroup):
            self.place = self.program.place(index)
            self.map[s.bound.id] = self._exchanged(self.atom(s.args[0]), self.atom(s.args[1]))
            return
        if _NESTS[type(s)] or JUMPS[type(s)] or SYNCHRONISES[type(s)]:
            self._turn = -1
        self.copy(index)

    def _exchanged(self, x: Atom, lane: Atom) -> Atom:
        m = self._m
        if self._turn < 0:
            self.barrier()  # others may still load from either
        self._turn = (self._turn + 1) % _ARRAYS
        array = self._array(x.type, self._turn)
        here = self.let(OPS["local_index"], ())
        self.store(array, (here,), x)
        self.barrier()
        first = m("and", here, word(-self.subgroup & 0xFFFFFFFF))
        # Past the end of the array, and so zero, where there is no such lane.
        return self.load(array, (m("select", m("lt", lane, word(self.subgroup)), m("or", first, lane), word(prod(self.workgroup))),))

    def _array(self, type_: Type, turn: int) -> Memory:
        if (type_, turn) not in self._arrays:
            name = f"subgroup:{type_}.{turn}"
            while any(name == m.name for m in self.memories):
                name += "'"
            self._arrays[type_, turn] = self.memory(name, Space.WORKGROUP, type_, (DimConst(prod(self.workgroup)),), Access.READ_WRITE)
        return self._arrays[type_, turn]
