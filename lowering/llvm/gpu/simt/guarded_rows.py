"""Stores of a row of neighbours that a block does alone: one instruction with a predicate, in kernels that have many such, where each block would be a branch,
with an address of its own, to LLVM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vyre_py.ir.check.facts import definitions
from vyre_py.ir.functions.called import signature_of
from vyre_py.ir.language.nodes import Atom, Const, End, Let, Space, Statement, Store, Value, WarpgroupSignal
from vyre_py.ir.language.ops import TRANSCENDENTAL
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u32
from vyre_py.lowering.llvm.addressing import inside
from vyre_py.lowering.llvm.gpu import placed
from vyre_py.lowering.llvm.gpu.simt.accesses import Accesses
from vyre_py.lowering.llvm.gpu.simt.elements import Elements
from vyre_py.lowering.llvm.gpu.simt.names import Names
from vyre_py.lowering.llvm.gpu.tensor_cores import uses_tensor_cores
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.rows import Row

__all__ = ["GuardedRows"]

_HALF_BITS: Final = 16
_HEAVY: Final = frozenset({*TRANSCENDENTAL, "div", "rem", "sqrt"})  # what takes more than a few instructions


class GuardedRows:
    """Those of one kernel, whose accesses know its `rows`. None where functions are written out: the assembler would compute these while products are under
    way, which wait for one another then. None where warpgroups take turns, whose loops it schedules a little worse then: on an H100 attention of heads of 128
    over 8,192 keys is 1 % slower."""

    def __init__(
        self, w: Writer, program: Program, names: Names, elements: Elements, accesses: Accesses, rows: Mapping[int, Row], *, has_functions: bool
    ) -> None:
        self._w, self._program, self._names, self._elements, self._accesses, self._rows = w, program, names, elements, accesses, rows
        self._made_at = definitions(program)
        self._are_stored = uses_tensor_cores(program) and not has_functions and not any(isinstance(s, WarpgroupSignal) for s in program.body)

    def first(self, index: int) -> int | None:
        """The first store of the row that is all that the block of an If stores, behind a few operations at most; None for any other block."""
        if not self._are_stored:
            return None
        body, first = self._program.body, index + 1
        while _is_light(body[first]):
            first += 1
        row, store = self._rows.get(first), body[first]
        if row is None or not isinstance(store, Store) or store.memory.space is not Space.BUFFER:
            return None
        whole = row.size_bytes(store) % placed.WORD_BYTES == 0 and list(row.lanes) == list(range(row.width))
        return first if whole and isinstance(body[first + row.width], End) else None

    def store(self, first: int, condition: str) -> None:
        """Stores such a row where a condition holds; what the block is of is done then."""
        w, row, store = self._w, self._rows[first], self._program.body[first]
        assert isinstance(store, Store)  # as it was found
        if more := inside(w, *self._elements.axes(store), self._elements.row_proven(first, store)):
            condition = w.shared(f"and i1 {condition}, {more}")
        place, _ = self._elements.whole_place(first, store)
        placed.store_words(w, self._words(first, store, row), place, condition)
        self._accesses.done.update(range(first, first + row.width + 1))

    def _words(self, first: int, store: Store, row: Row) -> list[str]:
        """What a row stores as words: those that its elements are halves of, or the words of a vector."""
        w, body, count = self._w, self._program.body, row.size_bytes(store) // placed.WORD_BYTES
        values = [body[number].args[-1] for number in range(first, first + row.width)]
        wholes = [self._whole(*pair) for pair in zip(values[::2], values[1::2], strict=True)] if row.width == 2 * count else []
        if wholes and None not in wholes:
            return [self._names.atom(whole) for whole in wholes if whole is not None]
        many, made = self._accesses.joined(first, store)
        words = w.let(f"bitcast {many} {made} to <{count} x i32>")
        return [w.let(f"extractelement <{count} x i32> {words}, i32 {k}") for k in range(count)]

    def _whole(self, low: Atom, high: Atom) -> Atom | None:
        """The word whose lower and higher half two values are, if there is one."""
        lower, upper = self._made_by(low, "cast"), self._made_by(high, "cast")
        above = None if upper is None else self._made_by(upper.args[0], "shr")
        if lower is None or above is None or lower.args[0] != above.args[0] or above.args[0].type is not u32:
            return None
        by = above.args[1]
        return above.args[0] if isinstance(by, Const) and by.bits == _HALF_BITS else None

    def _made_by(self, atom: Atom, op: str) -> Let | None:
        """The statement that makes a value by an op, whatever type its bits are given then."""
        made = self._program.body[self._made_at[atom.id]] if isinstance(atom, Value) else None
        if isinstance(made, Let) and made.op.name == "bitcast":
            return self._made_by(made.args[0], op)
        return made if isinstance(made, Let) and made.op.name == op else None


def _is_light(s: Statement) -> bool:
    """Whether a statement takes an instruction or two, and may be computed where nothing needs it."""
    return isinstance(s, Let) and not s.op.is_query and s.op.name not in _HEAVY and signature_of(s) is None
