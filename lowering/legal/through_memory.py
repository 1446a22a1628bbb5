"""through_memory: shuffles by way of workgroup memory, for targets whose own lanes are not those of the Program's subgroups.

Each invocation stores what it has at its own place and waits at a barrier; then it loads what it is to get. So control has to be uniform for the workgroup.
Exchanges in a row take turns with two arrays, and then need one barrier each: who stores to an array for the second time has passed a barrier that all
others reach only after they have loaded from it.

What a subgroup agrees on that is its whole workgroup is told by a uniform load, so that for the target, too, the workgroup agrees on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

from vyre_py.ir.check.uniformity import analyse
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.effects import JUMPS, SYNCHRONISES, Effect, any_of
from vyre_py.ir.language.nodes import Access, Atom, Memory, Space, Statement, Subgroup, Value
from vyre_py.ir.language.op import Level
from vyre_py.ir.language.ops import OPS, SUBGROUPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type
from vyre_py.ir.math.builder import MathBuilder, word
from vyre_py.ir.passes.rewriter import Rewriter
from vyre_py.lowering.errors import Missing

__all__ = ["EXCHANGES", "missing_together", "through_memory", "told"]

# The ops that are left to it.
EXCHANGES: Final = frozenset({"shuffle", "broadcast"})

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


def told(program: Program) -> Program:
    """The Program with a broadcast of each result that a whole workgroup agrees on, where that is one subgroup; else the same object."""
    if program.subgroup != prod(program.workgroup) or not any(map(_is_agreed, program.body)):
        return program
    out = Rewriter(program)
    for index in out.indices():
        made, s = out.copy(index), program.body[index]
        if made is not None and s.result is not None and _is_agreed(s):
            out.map[s.result.id] = out.together(SUBGROUPS["broadcast"], (made, word(0)))
    return out.finish()


def through_memory(program: Program) -> Program:
    """The Program, all of whose subgroup ops are `EXCHANGES` of scalars to which workgroups come together, without any; the same object without one."""
    if not any(isinstance(s, Subgroup) for s in program.body):
        return program
    exchange = _ThroughMemory(program)
    for index in exchange.indices():
        exchange.take(index)
    return exchange.finish()


def _is_agreed(s: Statement) -> bool:
    return isinstance(s, Subgroup) and s.op.level is Level.SUBGROUP and s.op.name not in EXCHANGES


class _ThroughMemory(Rewriter):
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
            is_told = s.op.name == "broadcast" and self.subgroup == prod(self.workgroup)
            self.map[s.bound.id] = (self._told if is_told else self._exchanged)(self.atom(s.args[0]), self.atom(s.args[1]))
            return
        if _NESTS[type(s)] or JUMPS[type(s)] or SYNCHRONISES[type(s)]:
            self._turn = -1
        self.copy(index)

    def _stored(self, x: Atom) -> tuple[Memory, Value]:
        """The array in which each invocation has its own element, and its place there."""
        if self._turn < 0:
            self.barrier()  # others may still load from either
        self._turn = (self._turn + 1) % _ARRAYS
        array, here = self._array(x.type, self._turn), self.let(OPS["local_index"], ())
        self.store(array, (here,), x)
        return array, here

    def _told(self, x: Atom, lane: Atom) -> Atom:
        """Between two barriers of its own; past the end of the array, and so zero, where there is no such lane."""
        return self.uniform_load(self._stored(x)[0], (lane,))

    def _exchanged(self, x: Atom, lane: Atom) -> Atom:
        m, (array, here) = self._m, self._stored(x)
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
