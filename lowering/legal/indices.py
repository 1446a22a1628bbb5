"""indices: 64-bit indices become u32 ones, for targets whose arrays have fewer than 2^32 elements along every axis: WebGPU, and CPUs but for code of one lane.

A number outside 0 to 2^32 - 1 becomes 2^32 - 1, which is past the end of every such axis; all other numbers stay. A negative i64, read as u64, is outside
too. For an index that was widened from 32 bits the narrow value is used, since it is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from vyre_py.ir.language.dims import WORD_LIMIT
from vyre_py.ir.language.nodes import TARGET_KINDS, Atom, Const, Let, MemoryStatement, Statement, Value, const
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import i32, u32, u64
from vyre_py.ir.language.widths import WIDE_TYPES, least_count, whole_size
from vyre_py.ir.passes.rewriter import Rewriter
from vyre_py.lowering.errors import Missing
from vyre_py.lowering.target import Target

__all__ = ["keeps_wide", "missing_elements", "narrow_indices"]

_HELP: Final = "arrays have fewer than 2^32 elements here; part the array, or compile for cuda, or for one lane of a CPU (cpu:native:1)"


def keeps_wide(program: Program, target: Target) -> bool:
    """Whether a target's code computes 64-bit indices as they are: that of one lane of a CPU, which has no vectors of indices, but for products by packed
    panels, which count in 32 bits."""
    return target.kind == "host" and target.lanes == 1 and not any(isinstance(s, TARGET_KINDS) for s in program.body)


def missing_elements(program: Program) -> Iterator[Missing]:
    """Buffers whose constant axes alone make 2^32 elements and more."""
    for memory in program.buffers:
        if (count := least_count(memory)) >= WORD_LIMIT:
            yield Missing(f"{count} elements of {memory.name!r}", program.declared.get(memory.name), _HELP)


def _is_touched(statement: Statement) -> bool:
    return isinstance(statement, MemoryStatement) and any(index.type in WIDE_TYPES for index in statement.indices)


def narrow_indices(program: Program) -> Program:
    """The Program with every i64 and u64 index as a u32 or i32; the same object without any. Binding has to refuse arrays that have
    2^32 elements and more along an axis."""
    if not any(map(_is_touched, program.body)):
        return program
    narrower = _Narrower(program)
    for index in narrower.indices():
        narrower.take(index)
    return narrower.finish()


class _Narrower(Rewriter):
    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._casts = {s.bound.id: s.args[0] for s in program.body if isinstance(s, Let) and s.op.name == "cast" and whole_size(s) is None}

    def take(self, index: int) -> None:
        """Takes in old statement `index`."""
        statement = self.program.body[index]
        if not (isinstance(statement, MemoryStatement) and _is_touched(statement)):
            self.copy(index)
            return
        self.place = self.program.place(index)
        args = [self._index(a) for a in statement.indices] + [self.atom(a) for a in statement.args[statement.memory.rank :]]
        old, result = statement.result, None
        if old is not None:
            result = self.map[old.id] = self.value(old.type, self.program.value_names.get(old.id))
        self.emit(statement.rebuilt(result, tuple(args)))

    def _index(self, atom: Atom) -> Atom:
        """The replacement of an old index."""
        if atom.type not in WIDE_TYPES:
            return self.atom(atom)
        if isinstance(atom, Const):
            return const(u32, int(atom.value) if 0 <= atom.value <= u32.maximum else u32.maximum)
        source = self._casts.get(atom.id) if isinstance(atom, Value) else None
        if source is not None and source.type in (i32, u32):
            return self.atom(source)
        bits = self.atom(atom) if atom.type is u64 else self.let(OPS["cast"], (self.atom(atom),), u64)
        inside = self.let(OPS["min"], (bits, const(u64, u32.maximum)))
        return self.let(OPS["cast"], (inside,), u32)
