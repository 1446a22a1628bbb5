"""Flattening: a Program becomes columns, sorted into the canonical order. The inverse of `build`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.ir.language.dims import Dim
from vyre_py.ir.language.errors import Place, shown
from vyre_py.ir.language.nodes import (
    ATOMIC_KINDS,
    Atom,
    Atomic,
    Const,
    Let,
    Memory,
    Param,
    Statement,
    Subgroup,
    Tile,
    Value,
    Var,
    Variable,
)
from vyre_py.ir.language.op import Op
from vyre_py.ir.language.types import Array, Type
from vyre_py.ir.language.walks import Handlers
from vyre_py.ir.wire.codes import ACCESS_CODES, OPERAND_KINDS, SPACE_CODES, TYPE_NUMBERS
from vyre_py.ir.wire.flat import EMPTY, Fault, Flat
from vyre_py.ir.wire.intern import Constants, Strings, arrange
from vyre_py.ir.wire.size_table import SizeTable
from vyre_py.ir.wire.tables import (
    ATOMIC_CODES,
    BINDS,
    CALL_CODE,
    KINDS,
    NUMBER_BITS,
    NUMBERS,
    OP_CODES,
    SUBGROUP_CODES,
    TILE_CODES,
    ref_of,
)
from vyre_py.ir.wire.value_types import types_of

if TYPE_CHECKING:
    from vyre_py.ir.language.program import Program

__all__ = ["flatten"]

_VALUE, _CONSTANT, _PARAM, _SIZE = (OPERAND_KINDS[kind] for kind in ("value", "constant", "param", "size"))
_NO_TYPE: Final = 0


def flatten(program: Program, names: bool, places: bool) -> Flat:
    """The columns of a Program, with the names of its values and variables, and its places, where asked.

    Takes time linear in the Program. Raises Fault W113, with the statement at fault where there is one, for a Program that is not of sound
    form, or that was made for a target.
    """
    flattener = _Flattener(program)
    try:
        return flattener.flat(names, places)
    except Fault as fault:
        raise Fault("W113", fault.message, *flattener.at, help=fault.help) if fault.code == "W113" else fault from None
    # An unchecked Program may hold anything: fields of any type, nodes of any kind, numbers of any size.
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise Fault("W113", f"a part of it is malformed ({type(error).__name__}: {str(error)[:80]})", *flattener.at) from None


def _refuse(message: str) -> Fault:
    return Fault("W113", message, "")


class _Flattener:
    """One walk. `at` is the column and row being written, for faults."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.at: tuple[str, int] = ("name", 0)
        self.strings, self.constants = Strings(), Constants()
        self.dims: dict[Dim, int] = {}
        self.sizes = SizeTable(self.dims)
        self.params: dict[Param, int] = {}
        self.memories: dict[Memory, int] = {}
        self.functions: dict[Op, int] = {function: row for row, function in enumerate(program.functions)}
        self.values: list[Value] = []
        self.variables: list[Variable] = []
        self.codes: list[int] = []
        self.types: list[int] = []
        self.refs: list[int] = []
        self.counts: list[int] = []
        self.operands: list[int] = []

    def flat(self, names: bool, places: bool) -> Flat:
        _WRITERS.require(self.program)
        p = self.program
        name, doc = self.strings.add(p.name), self.strings.add(p.doc)
        declared = self.declarations()
        x, y, z = (self.sizes.add(extent) for extent in p.grid.extents)
        for index, statement in enumerate(p.body):
            self.at = ("codes", index)
            self.statement(statement)
        self.at = ("name", 0)
        columns = declared | {
            "codes": np.array(self.codes, "<u2"), "types": np.array(self.types, "u1"), "refs": np.array(self.refs, "<u4"),
            "counts": np.array(self.counts, "u1"), "operands": np.array(self.operands, "<u4"),
        }
        if names:
            columns |= self.labels("named_values", "value_names", p.value_names, len(self.values))
            columns |= self.labels("named_variables", "variable_names", p.variable_names, len(self.variables))
        if places:
            columns["places"] = self.places()
        width, height, depth = p.workgroup
        if min(p.workgroup) < 0 or max(p.workgroup) >= 1 << 32:
            raise _refuse("a workgroup's size is not a number of 32 bits")
        if not 0 <= p.subgroup < 1 << 16:
            raise _refuse("a subgroup's size is not a number of 16 bits")
        data = b"".join([memory.data for memory in p.memories])
        text = b""
        bodies = tuple([self.function(number, names, places) for number in range(len(p.functions))])
        made = Flat(
            name=name, doc=doc, workgroup=(width, height, depth), subgroup=p.subgroup, over=p.grid.over, extents=(x, y, z), text=text, data=data,
            functions=bodies, **(dict(EMPTY) | columns),
        )
        arrange(made, self.strings, self.sizes, self.constants)
        self.shapes(made)
        return made

    def function(self, number: int, names: bool, places: bool) -> Flat:
        """The columns of a function's body."""
        body = self.program.functions[number].program
        if body.functions:
            raise _refuse("a function has functions of its own")
        try:
            return flatten(body, names, places)
        except Fault as fault:
            raise Fault(fault.code, f"function {number}: {fault.message}", "", help=fault.help) from None

    def shapes(self, made: Flat) -> None:
        """Every type is what a reader of the columns makes of them: they say nothing of the shapes of tiles, which follow from the operands."""
        bound, declared = types_of(made)
        pairs = (
            ([value.type for value in self.values], bound, BINDS[made.codes]),
            ([variable.type for variable in self.variables], declared, made.codes == Var.code),
        )  # fmt: skip
        for types, given, rows in pairs:
            if types != given:
                at = next(k for k, (type_, other) in enumerate(zip(types, given, strict=True)) if type_ is not other)
                self.at = ("codes", int(np.flatnonzero(rows)[at]))
                raise _refuse(f"it makes a {shown(types[at])} of operands that give a {shown(given[at])}")

    # ---- declarations

    def declarations(self) -> dict[str, Array]:
        p, add = self.program, self.strings.add
        for dim in p.dims:
            if dim in self.dims:
                raise _refuse("two dims have one name")
            self.dims[dim] = len(self.dims)
        for param in p.params:
            if param.part is not None:
                raise _refuse(f"param {param.name!r} is a part of another: the Program was made for a target")
        self.params |= {param: row for row, param in enumerate(p.params)}
        self.memories |= {memory: row for row, memory in enumerate(p.memories)}
        return {
            "dim_names": np.array([add(dim.name) for dim in p.dims], "<u4"),
            "param_names": np.array([add(param.name) for param in p.params], "<u4"),
            "param_types": np.array([TYPE_NUMBERS[param.type] for param in p.params], "u1"),
            "memory_names": np.array([add(memory.name) for memory in p.memories], "<u4"),
            "memory_types": np.array([TYPE_NUMBERS[memory.type] for memory in p.memories], "u1"),
            "memory_spaces": np.array([SPACE_CODES[memory.space.value] for memory in p.memories], "u1"),
            "memory_access": np.array([ACCESS_CODES[memory.access.value] for memory in p.memories], "u1"),
            "memory_ranks": np.array([memory.rank for memory in p.memories], "u1"),
            "data_lengths": np.array([len(memory.data) for memory in p.memories], "<u4"),
            "axes": np.array([self.sizes.add(axis) for memory in p.memories for axis in memory.shape], "<u4"),
        }

    def labels(self, rows: str, column: str, names: Mapping[int, str], count: int) -> dict[str, Array]:
        if names and not 0 <= min(names) <= max(names) < count:
            raise _refuse(f"a name is given to number {max(names)}, where there are {count}")
        numbers = sorted(names)
        return {rows: np.array(numbers, "<u4"), column: np.array([self.strings.add(names[number]) for number in numbers], "<u4")}

    def places(self) -> Array:
        p = self.program
        names = [*[dim.name for dim in p.dims], *[param.name for param in p.params], *[memory.name for memory in p.memories]]
        known = [p.declared.get(None), *map(p.declared.get, names)]
        known += [p.place(index) for index in range(len(p.body))]
        if not any(known):
            return EMPTY["places"]
        return np.array([self.place(place) for place in known], "<u4")

    def place(self, place: Place | None) -> tuple[int, int, int, int]:
        return (0, 0, 0, 0) if place is None else (self.strings.add(place.file) + 1, place.line, place.column, place.width)

    # ---- statements

    def statement(self, s: Statement) -> None:
        bound = len(self.values)
        _WRITERS[type(s)](self, s)
        self.counts.append(len(s.args))
        if s.result is not None and bound == len(self.values):
            raise _refuse("a statement that binds nothing has a result")

    def row(self, s: Statement, code: int, ref: int = 0) -> None:
        """The operands, then the result: a statement does not use what it binds."""
        for atom in s.args:
            self.operands.append(self.operand(atom))
        self.codes.append(code)
        self.refs.append(ref)
        self.types.append(_NO_TYPE)

    def bind(self, s: Statement) -> None:
        """The result of the row just written."""
        result = s.result
        if result is None or result.id != len(self.values):
            raise _refuse("a result is missing, or not numbered in program order")
        self.types[-1] = _element(result.type)
        self.values.append(result)

    def operand(self, atom: Atom) -> int:
        if isinstance(atom, Value):
            if self.values[atom.id] is not atom:
                raise _refuse("a value is used that no statement here binds")
            return 4 * atom.id + _VALUE
        if isinstance(atom, Const):
            return 4 * self.constants.add(TYPE_NUMBERS[atom.type], atom.bits) + _CONSTANT
        if isinstance(atom, Param):
            return 4 * self.params[atom] + _PARAM
        return 4 * self.sizes.add(atom) + _SIZE

    def let(self, s: Let) -> None:
        if (called := self.functions.get(s.op)) is not None:
            self.row(s, CALL_CODE, called)
        else:
            self.row(s, OP_CODES[s.op])
        self.bind(s)

    def atomic(self, s: Atomic) -> None:
        self.row(s, ATOMIC_CODES[s.op], self.memories[s.memory])
        if s.binds:
            self.bind(s)

    def together(self, s: Subgroup) -> None:
        self.row(s, SUBGROUP_CODES[s.op])
        self.bind(s)

    def tile(self, s: Tile) -> None:
        self.row(s, TILE_CODES[s.op])
        self.bind(s)

    def var(self, s: Var) -> None:
        if s.variable.id != len(self.variables):
            raise _refuse("the variables are not numbered in program order")
        self.row(s, s.code, len(self.variables))
        self.types[-1] = _element(s.variable.type)
        self.variables.append(s.variable)

    def variable(self, variable: Variable) -> int:
        if self.variables[variable.id] is not variable:
            raise _refuse("a variable is used that no statement here declares")
        return variable.id


def _element(type_: Type) -> int:
    """The number of a type, of a tile's that of an element."""
    return TYPE_NUMBERS[type_.scalar if type_.is_tile else type_]


_Writer = Callable[[_Flattener, Any], None]

# What a statement holds beside its operands -> the number that stands for it.
_REFERENCES: Final[Mapping[type, Callable[[_Flattener, Any], int]]] = {
    Memory: lambda f, held: f.memories[held], Variable: lambda f, held: f.variable(held), str: lambda f, held: f.strings.add(held),
}


def _numbers(s: Statement, names: tuple[str, ...]) -> int:
    """The ref of a statement's numbers."""
    found = [getattr(s, name) for name in names]
    if not all(0 <= number < 1 << NUMBER_BITS for number in found):
        raise _refuse(f"the {' or '.join(names)} of a {s.spelling} is not a number of {NUMBER_BITS} bits")
    return ref_of(found)


def _coded(kind: type[Statement]) -> _Writer:
    """Writes statements of a kind that has a code of its own."""
    code, binds = kind.code, kind.binds
    numbers = NUMBERS.get(code)
    name, refer = next(((name, _REFERENCES[held]) for name, held in kind.payload.items() if held is not int), ("", None))

    def write(f: _Flattener, s: Statement) -> None:
        f.row(s, code, _numbers(s, numbers) if numbers is not None else 0 if refer is None else refer(f, getattr(s, name)))
        if binds:
            f.bind(s)

    return write


_WRITERS: Final[Handlers[_Writer]] = Handlers("the wire format", {
    **{kind: _coded(kind) for kind in KINDS.values()},
    **dict.fromkeys(ATOMIC_KINDS, _Flattener.atomic), Let: _Flattener.let, Var: _Flattener.var, Subgroup: _Flattener.together,
    Tile: _Flattener.tile,
})  # fmt: skip
