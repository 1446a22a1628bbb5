"""Emission: what expressions, variables and arrays call on the builder that made them, to put down ops and accesses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.ir.builder.blocks import Block, Ended
from vyre_py.ir.builder.expressions import Expr, Index, Operand, number
from vyre_py.ir.builder.where import fail, user_place, warn
from vyre_py.ir.functions.function import Function
from vyre_py.ir.imports import deferred, importing
from vyre_py.ir.language.assembler import Assembler, OperandTypeError
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import Access, Atom, Const, Memory, Space, Value, Variable
from vyre_py.ir.language.op import ORDERS, RELAXED, AtomicOp, Op, Scope
from vyre_py.ir.language.op import Operand as Pattern
from vyre_py.ir.language.ops import ATOMICS, ATOMICS_BY_SPELLING, OPS
from vyre_py.ir.language.rules import finding
from vyre_py.ir.language.tiles.tile_ops import TILE_OPS
from vyre_py.ir.language.types import Type, i32, i64, u32, u64, vector_of
from vyre_py.ir.language.widths import INDEX_TYPES

if TYPE_CHECKING:
    from vyre_py.ir.builder.traced import Traced

if TYPE_CHECKING:
    from vyre_py.ir.builder import hints, refusals
    from vyre_py.ir.language import describe
else:
    hints, refusals = deferred("vyre_py.ir.builder", "hints", "refusals")
    (describe,) = deferred("vyre_py.ir.language", "describe")

__all__ = ["Emitter", "scope_named"]

# Operands that are no number's business: any type goes.
_FREE: Final = (Pattern.ANY, Pattern.LANES, Pattern.COMPONENT)
_COUNT: Final = Const(u32, 0)
# What a Python number becomes as an index: the first of these that holds it.
_LITERAL_TYPES: Final = (u32, i32, u64, i64)


def scope_named(name: str) -> Scope:
    """The scope of a name. Raises ValidationError (B108)."""
    found = next((scope for scope in Scope if name == scope.value), None)
    if found is None:
        fail("B108", f"a scope is {' or '.join(scope.value for scope in Scope)}, got {shown(name)}", 'b.fence("workgroup"); scope="workgroup" of an atomic')
    return found


class Emitter(ABC):
    """The part of a builder that emits. Numbers become constants of what they meet; one that meets a vector, and a scalar of its component
    type, stands for all components, and one that meets a tile for all elements. Every wrong call raises ValidationError at the caller's line."""

    _a: Assembler
    _ended: Ended
    inside: list[Block[Any]]  # the open blocks, the innermost last
    _finished: bool = False

    def _require_open(self) -> None:
        if self._finished:
            fail("B103", f"the builder of {self._a.name!r} is finished, and its values, arrays and sizes with it")

    def _here(self) -> Assembler:
        self._require_open()
        self._a.place = user_place()
        return self._a

    # ---- operands

    def _own(self, operand: Expr) -> Atom:
        if operand.builder is not None and operand.builder is not self:
            fail("B105", f"a value of the builder of {operand.builder._a.name!r} was used in {self._a.name!r}")
        atom = operand.atom
        if isinstance(atom, Value) and atom.id < self._ended.live:
            self._ended.refuse(atom, self._a)
        return atom

    def _splat(self, atom: Atom, type_: Type) -> Atom:
        """A scalar as a value of `type_`, repeated where that is a vector or a tile."""
        if type_.is_tile:
            return self._here().tile(TILE_OPS["fill"], (atom,), type_.shape)
        return self._here().let(OPS["swizzle"], (atom, _COUNT), type_) if type_.is_vector else atom

    def _typed(self, operand: Operand, type_: Type, what: str) -> Atom:
        """An operand that must be of `type_`."""
        if not isinstance(operand, Expr):
            return self._splat(number(operand, type_.scalar), type_)
        if operand.type is not type_:
            fail("V201", f"{what} is {type_}, got {operand.type}", hints.convert_hint(operand.type, type_))
        return self._own(operand)

    @staticmethod
    def _common(row: Op, operands: Sequence[Operand]) -> Type | None:
        """T: the component type of the first expression that the row marks so, with the components of the first vector. Beside a tile it is the type of the
        elements: scalars go with tiles as they are."""
        types = [(o.type, p) for o, p in zip(operands, row.operands, strict=True) if isinstance(o, Expr) and p not in _FREE]
        first = next((t for t, p in types if p is Pattern.T), None)
        lanes = next((t.lanes for t, _ in types if t.is_vector), 1)
        return vector_of(first.scalar, lanes) if first is not None and lanes in row.lanes else first

    def emit_op(self, name: str, operands: Sequence[Operand], given: Type | None) -> Expr:
        """Emits an op."""
        row = OPS[name]
        if len(operands) != len(row.operands):
            fail("V202", f"{name} takes {len(row.operands)} operands, got {len(operands)}", row.doc)
        common = self._common(row, operands)
        atoms: list[Atom] = []
        for operand, pattern in zip(operands, row.operands, strict=True):
            wanted = pattern.beside(common) if common is not None else pattern.fixed
            if isinstance(operand, Expr):
                atom = self._own(operand)
                meets = pattern is Pattern.T and common is not None and common.is_vector and atom.type is common.scalar
                atoms.append(self._splat(atom, common) if meets and common is not None else atom)
            elif wanted is None:
                fail("B106", f"nothing says what type {shown(operand)} has in {name}", "vp.const(value, type) gives it one")
            else:
                atoms.append(self._splat(number(operand, wanted.scalar), wanted))
        try:
            return Expr(self, self._here().let(row, tuple(atoms), given))
        except OperandTypeError as error:
            with importing:
                from vyre_py.ir.language.describe import PYTHON

            fail("V201", *refusals.refusal(row, error.operands, given, PYTHON))

    def emit_tile(self, name: str, operands: Sequence[Operand], numbers: Sequence[int]) -> Expr:
        """Emits an op over tiles, which a Program of invocations does not have."""
        fail("V602", f"{name} is for tiles, and {self._a.name!r} is a Program of invocations")

    def emit_call(self, traced: Traced, operands: Sequence[Operand]) -> Expr:
        """Emits a call of a function of the Program."""
        function = self.function_of(traced)
        atoms = tuple([self._typed(o, t, f"{n} of {function.name}") for n, o, t in zip(function.names, operands, function.types, strict=True)])
        return Expr(self, self._called(function, atoms))

    @abstractmethod
    def function_of(self, traced: Traced) -> Function:
        """The Program's function of a Python function, traced where it is first called."""

    @abstractmethod
    def _called(self, function: Function, atoms: tuple[Atom, ...]) -> Atom:
        """What a call gives."""

    def look_at_rebinding(self, operand: Expr) -> None:
        """Warns where `+=` or its like, in a loop, makes a new value of one from outside, so that every turn begins with that one again."""
        loop = next((block for block in reversed(self.inside) if block.turns), None)
        atom = operand.atom
        if loop is not None and not (isinstance(atom, Value) and atom.id >= loop.first):
            message = f"an assignment such as += in the {loop.name} loop at {loop.place} makes a new value, and the next turn begins with the old one"
            help = f"{hints.variable_hint('v', atom.type)} before the loop makes a variable, and += writes it; where no sum is meant, write v = v + x"
            warn(finding("B109", message, user_place(), help))

    # ---- memory

    @staticmethod
    def _require_reads(memory: Memory) -> None:
        if not memory.access.reads:
            fail("B108", f"{memory.name!r} is only written", "declare it with b.read_write to load from it")

    @staticmethod
    def _require_writes(memory: Memory) -> None:
        if not memory.access.writes:
            fail("B108", f"{memory.name!r} is only read", "declare it with b.write or b.read_write to store to it")

    def _indices(self, memory: Memory, index: Index, written: str = "{}[{}]") -> tuple[Atom, ...]:
        """The indices of an access, of which `written` is an example for a name and its axes."""
        given = index if isinstance(index, tuple) else (index,)
        if len(given) != memory.rank:
            axes = f"{memory.rank} {'axis' if memory.rank == 1 else 'axes'}"
            hint = f"write one index per axis: {written.format(memory.name, ', '.join('ijklmnpq'[: memory.rank]))}"
            hint += f"; a component of the element is {memory.name}[i].x" if memory.type.is_vector else ""
            fail("V202", f"{memory.name!r} has {axes}, got {len(given)} {'index' if len(given) == 1 else 'indices'}", hint)
        atoms: list[Atom] = []
        for i in given:
            if isinstance(i, Expr):
                if i.type not in INDEX_TYPES:
                    hint = "take a component: v.x" if i.type.is_vector else "convert it: vp.cast(i, vp.u32)"
                    hint = "an index is one for the whole workgroup; a.tile(i, shape=128) loads a tile from it on" if i.type.is_tile else hint
                    fail("V201", f"an index of {memory.name!r} is i32, u32, i64 or u64, got {i.type}", hint)
                atoms.append(self._own(i))
            elif isinstance(i, (int, np.integer)) and not isinstance(i, bool):
                atoms.append(number(i, next((t for t in _LITERAL_TYPES if t.minimum <= i <= t.maximum), u32)))
            else:
                hint = "slices, floats and arrays are not indices; b.for_ runs over a range"
                fail("V201", f"an index of {memory.name!r} is a whole number, got {shown(i)}", hint)
        return tuple(atoms)

    def emit_load(self, memory: Memory, index: Index, uniform: bool = False) -> Expr:
        """Emits a load."""
        self._require_reads(memory)
        indices = self._indices(memory, index)
        a = self._here()
        return Expr(self, a.uniform_load(memory, indices) if uniform else a.load(memory, indices))

    def emit_store(self, memory: Memory, index: Index, value: Operand) -> None:
        """Emits a store."""
        self._require_writes(memory)
        indices = self._indices(memory, index)
        stored = self._typed(value, memory.type, f"an element of {memory.name!r}")
        self._here().store(memory, indices, stored)

    def emit_copy(self, memory: Memory, index: Index, source: Memory, source_index: Index) -> None:
        """Emits a copy into workgroup memory, with the load of what it copies."""
        if memory.space is not Space.WORKGROUP or source.space is not Space.BUFFER:
            message = f"{memory.name!r} is a {memory.space.value} array and {source.name!r} a {source.space.value}"
            fail("V311", message, "b.copy_async(tile, i, x, j) copies x[j] of a buffer to tile[i] of a workgroup array; elsewhere tile[i] = x[j] does")
        if memory.type is not source.type:
            fail("V204", f"an element of {memory.name!r} is {memory.type}, one of {source.name!r} is {source.type}", "a copy converts nothing")
        indices, value = self._indices(memory, index), self._own(self.emit_load(source, source_index))
        self._here().copy_async(memory, indices, value)

    def _atomic_row(self, op: str, memory: Memory, order: str, scope: str) -> AtomicOp:
        """The row of an atomic with an order that it may have, on a memory that takes it."""
        row = ATOMICS[op]
        if order not in row.orders:
            fail("B108", f"the order of atomic_{op} is {' or '.join(row.orders)}, got {shown(order)}", "order memory further by b.fence()")
        row = ATOMICS_BY_SPELLING[op + ORDERS[order, scope_named(scope)].suffix]
        if memory.access is not Access.READ_WRITE or memory.space not in (Space.BUFFER, Space.WORKGROUP) or memory.type not in row.of:
            message = f"{memory.name!r} is a {memory.access.value} {memory.space.value} of {memory.type}"
            fail("B108", message, f"atomic_{op} works on {describe.family(row.of)} in read_write buffers and workgroup arrays")
        return row

    def emit_atomic(self, op: str, memory: Memory, index: Index, *operands: Operand, order: str = RELAXED.name, scope: str = Scope.DEVICE.value) -> Expr:
        """Emits an atomic."""
        row = self._atomic_row(op, memory, order, scope)
        indices = self._indices(memory, index)
        values = tuple(self._typed(o, memory.type, f"an operand of atomic_{op}") for o in operands)
        return Expr(self, self._here().atomic(row, memory, indices, values))

    def emit_atomic_store(self, memory: Memory, index: Index, value: Operand, order: str, scope: str) -> None:
        """Emits a store that is an atomic."""
        row = self._atomic_row("store", memory, order, scope)
        indices = self._indices(memory, index)
        stored = self._typed(value, memory.type, f"an element of {memory.name!r}")
        self._here().atomic_store(row, memory, indices, stored)

    # ---- variables

    def emit_get(self, variable: Variable) -> Atom:
        """Emits a get."""
        return self._here().get(variable)

    def emit_set(self, variable: Variable, value: Operand) -> None:
        """Emits a set."""
        atom = self._typed(value, variable.type, "the variable")
        self._here().set(variable, atom)
