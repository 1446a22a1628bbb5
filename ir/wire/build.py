"""Building: verified columns become a Program, through the assembler as everything does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate, repeat
from operator import attrgetter
from typing import Any, Final

import numpy as np

from vyre_py.ir.functions.function import Function
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import Dim, Grid
from vyre_py.ir.language.errors import Place
from vyre_py.ir.language.nodes import Atom, Const, Let, Memory, Statement, Subgroup, Tile, Var, Variable, atomic_kind
from vyre_py.ir.language.op import AtomicOp, Op, SubgroupOp
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.tiles.tile_op import TileOp
from vyre_py.ir.wire.codes import ACCESSES, OPERAND_KINDS, SPACES, TYPES_BY_CODE
from vyre_py.ir.wire.flat import Fault, Flat
from vyre_py.ir.wire.size_table import sizes_of
from vyre_py.ir.wire.tables import (
    ATOMICS_BY_CODE,
    CALL_CODE,
    KINDS,
    NUMBERS,
    OPS_BY_CODE,
    SUBGROUPS_BY_CODE,
    TILE_OPS_BY_CODE,
    numbers_of,
)
from vyre_py.ir.wire.value_types import types_of

__all__ = ["build"]

_Args = tuple[Atom, ...]


def build(flat: Flat) -> Program:
    """The Program that verified columns describe, in one walk over them. Raises Fault for a function whose body is none."""
    return _Builder(flat).program()


class _Builder:
    """The tables as nodes, and the statements that `_MAKERS` make of the rows, in order."""

    def __init__(self, flat: Flat) -> None:
        self.flat = flat
        self.strings = flat.strings()
        self.assembler = Assembler(self.strings[flat.name], flat.workgroup, flat.subgroup)
        self.assembler.doc = self.strings[flat.doc]
        self.places: Iterator[Place | None] = iter(self._places()) if len(flat.places) else repeat(None)
        self._declare()
        self.assembler.functions = [_function(number, body) for number, body in enumerate(flat.functions)]
        types, variable_types = types_of(flat)
        names: dict[int, str] = dict(zip(flat.named_values.tolist(), map(self.strings.__getitem__, flat.value_names.tolist()), strict=True))
        # Made in advance, in the order in which the statements below bind them.
        self.values = [self.assembler.value(type_, names.get(number)) for number, type_ in enumerate(types)]
        self.results = iter(self.values)
        self.variables: list[Variable] = []
        named = dict(zip(flat.named_variables.tolist(), map(self.strings.__getitem__, flat.variable_names.tolist()), strict=True))
        self.declared = iter([(type_, named.get(number)) for number, type_ in enumerate(variable_types)])

    def program(self) -> Program:
        flat, assembler, places = self.flat, self.assembler, self.places
        for code, ref, args in zip(flat.codes.tolist(), flat.refs.tolist(), self._operands(), strict=True):
            assembler.place = next(places)
            _MAKERS[code](self, ref, args)
        return assembler.finish()

    # ---- tables

    def _places(self) -> list[Place | None]:
        known: dict[tuple[int, ...], Place | None] = {}
        rows = [tuple(row) for row in self.flat.places.tolist()]
        for row in rows:
            if row not in known:
                known[row] = Place(self.strings[row[0] - 1], *row[1:]) if row[0] else None
        return [known[row] for row in rows]

    def _declare(self) -> None:
        flat, strings, a = self.flat, self.strings, self.assembler
        a.place = next(self.places)
        a.note(None)
        dims: list[Dim] = []
        for name in flat.dim_names.tolist():
            a.place = next(self.places)
            dims.append(a.dim(strings[name]))
        self.sizes = sizes_of(zip(*[column.tolist() for column in flat.size_columns], strict=True), dims)
        for name, code in zip(flat.param_names.tolist(), flat.param_types.tolist(), strict=True):
            a.place = next(self.places)
            a.param(strings[name], TYPES_BY_CODE[code])
        self.memories = list(self._memories())
        if flat.over is not None:
            x, y, z = (self.sizes[extent] for extent in flat.extents)
            a.grid = Grid(flat.over, (x, y, z))

    def _memories(self) -> Iterator[Memory]:
        flat = self.flat
        axes = iter([self.sizes[axis] for axis in flat.axes.tolist()])
        at = 0
        columns = (flat.memory_names, flat.memory_spaces, flat.memory_types, flat.memory_ranks, flat.memory_access, flat.data_lengths)
        for name, space, type_, rank, access, length in zip(*[column.tolist() for column in columns], strict=True):
            self.assembler.place = next(self.places)
            shape = tuple([next(axes) for _ in range(rank)])
            data = bytes(flat.data[at : at + length])
            at += length
            yield self.assembler.memory(self.strings[name], SPACES[space], TYPES_BY_CODE[type_], shape, ACCESSES[access], data)

    def _operands(self) -> Iterator[_Args]:
        """The operands of each statement."""
        flat = self.flat
        constants = [Const(TYPES_BY_CODE[code], bits) for code, bits in zip(flat.constant_types.tolist(), flat.constant_bits.tolist(), strict=True)]
        pools: dict[str, list[Atom]] = {"value": [*self.values], "constant": [*constants], "param": [*self.assembler.params], "size": [*self.sizes]}
        # Kind and row as one number into all pools, one behind the other.
        ordered = [pools[name] for name, _ in sorted(OPERAND_KINDS.items(), key=lambda item: item[1])]
        starts = np.array([0, *accumulate(map(len, ordered))][:-1], np.uint32)
        pool = [atom for atoms in ordered for atom in atoms]
        atoms = [pool[index] for index in (starts[flat.operands & 3] + (flat.operands >> 2)).tolist()]
        at = 0
        for count in flat.counts.tolist():
            yield tuple(atoms[at : at + count])
            at += count

    # ---- statements

    def var(self, args: _Args) -> None:
        """Declares the next variable."""
        type_, name = next(self.declared)
        self.variables.append(self.assembler.var(type_, args[0], name))


def _function(number: int, body: Flat) -> Function:
    try:
        return Function(build(body))
    except ValueError as error:
        raise Fault("W117", f"the body of function {number} is none: {error}", "function", number) from None


_Maker = Callable[[_Builder, int, _Args], None]


def _let(op: Op) -> _Maker:
    return lambda b, ref, args: b.assembler.emit(Let(next(b.results), args, op))


def _atomic(op: AtomicOp) -> _Maker:
    kind = atomic_kind(op)
    return (
        (lambda b, ref, args: b.assembler.emit(kind(next(b.results), args, b.memories[ref], op))) if kind.binds
        else lambda b, ref, args: b.assembler.emit(kind(None, args, b.memories[ref], op))
    )  # fmt: skip


def _together(op: SubgroupOp) -> _Maker:
    return lambda b, ref, args: b.assembler.emit(Subgroup(next(b.results), args, op))


def _tile(op: TileOp) -> _Maker:
    return lambda b, ref, args: b.assembler.emit(Tile(next(b.results), args, op))


# What a statement holds beside its operands -> what its reference counts.
_REFERENCES: Final[Mapping[type, Callable[[Any], Any]]] = {
    Memory: attrgetter("memories"), Variable: attrgetter("variables"), str: attrgetter("strings"),
}  # fmt: skip


def _coded(row: type[Statement]) -> _Maker:
    """Makes statements of a kind that has a code of its own."""
    kind: Any = row  # whose fields its payload says
    if not kind.payload:
        return (
            (lambda b, ref, args: b.assembler.emit(kind(next(b.results), args))) if kind.binds
            else lambda b, ref, args: b.assembler.emit(kind(None, args))
        )  # fmt: skip
    if (numbers := NUMBERS.get(kind.code)) is not None:
        return lambda b, ref, args: b.assembler.emit(kind(next(b.results) if kind.binds else None, args, *numbers_of(ref, len(numbers))))
    (held,) = kind.payload.values()
    referred = _REFERENCES[held]
    return (
        (lambda b, ref, args: b.assembler.emit(kind(next(b.results), args, referred(b)[ref]))) if kind.binds
        else lambda b, ref, args: b.assembler.emit(kind(None, args, referred(b)[ref]))
    )  # fmt: skip


# Code -> what emits the statement, given its reference and operands.
_MAKERS: Final[Mapping[int, _Maker]] = {
    **{code: _coded(kind) for code, kind in KINDS.items()},
    **{code: _let(op) for code, op in OPS_BY_CODE.items()},
    **{code: _atomic(op) for code, op in ATOMICS_BY_CODE.items()},
    **{code: _together(op) for code, op in SUBGROUPS_BY_CODE.items()},
    **{code: _tile(op) for code, op in TILE_OPS_BY_CODE.items()},
    Var.code: lambda b, ref, args: b.var(args),
    CALL_CODE: lambda b, ref, args: b.assembler.emit(Let(next(b.results), args, b.assembler.functions[ref])),
}
