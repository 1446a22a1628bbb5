"""Flat arrays, as a compiler hands them over, become columns: `Program.from_nodes` is this, and says what each array holds."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from vyre_py.ir.language.dims import Dim
from vyre_py.ir.language.errors import WireError, shown
from vyre_py.ir.language.nodes import Access, Space
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.rules import finding
from vyre_py.ir.language.types import Array, Type
from vyre_py.ir.wire.build import build
from vyre_py.ir.wire.codes import ACCESS_CODES, OPERAND_KINDS, SPACE_CODES, TYPE_CODES
from vyre_py.ir.wire.flat import EMPTY, Fault, Flat
from vyre_py.ir.wire.flatten import flatten
from vyre_py.ir.wire.intern import Strings, arrange
from vyre_py.ir.wire.size_table import SizeError, SizeTable, read_size
from vyre_py.ir.wire.statement_codes import CODES
from vyre_py.ir.wire.tables import REFERS, REFERS_STRING
from vyre_py.ir.wire.verify import verify

__all__ = ["Names", "Numbers", "from_arrays"]

Numbers = Sequence[int] | Array
Names = Sequence[int] | Sequence[str] | Array

_WORD: Final = (1 << 32) - 1
_MAX_OPERANDS: Final = 255
_MOST_SUBGROUP: Final = (1 << 16) - 1
_SIZE: Final = OPERAND_KINDS["size"]
_MEMORY_KEYS: Final = frozenset({"name", "space", "type", "shape", "access", "data"})
_OWN_ACCESS: Final = {Space.WORKGROUP.value: Access.READ_WRITE.value, Space.PRIVATE.value: Access.READ_WRITE.value, Space.TABLE.value: Access.READ.value}

# A column at fault -> the argument that it was made from, where their names differ.
_ARGUMENTS: Final = {
    "counts": "offsets", "dim_names": "dims", "param_names": "params", "param_types": "params", "memory_names": "memories",
    "memory_types": "memories", "memory_spaces": "memories", "memory_access": "memories", "axes": "memories", "data_lengths": "memories",
    "named_values": "value_names", "named_variables": "variable_names",
}


def _refuse(code: str, where: str, message: str, help: str | None = None) -> WireError:
    return WireError(finding(code, f"{where}: {message}", None, help), where)


def from_arrays(
    name: str, *, codes: Names, types: Names, refs: Numbers | None, operands: Numbers, offsets: Numbers, constant_types: Names, constant_bits: Numbers,
    sizes: Sequence[Any], regions: Sequence[str], dims: Sequence[str], params: Sequence[tuple[str, Any]], memories: Sequence[Mapping[str, Any]],
    workgroup: tuple[int, int, int], over: Sequence[Any] | None, grid: Sequence[Any] | None, doc: str,
    value_names: Mapping[int, str], variable_names: Mapping[int, str], subgroup: int, functions: Sequence[Program],
) -> Program:
    """The Program that the arrays describe: see `Program.from_nodes`. Raises WireError, whose `where` names the entry at fault."""
    head = _Head(dims)
    try:
        columns = {
            "codes": _column("codes", codes, 0xFFFF, "<u2", CODES),
            "types": _column("types", types, 0xFF, "u1", TYPE_CODES),
            "operands": _column("operands", operands, _WORD, "<u4"),
            "constant_types": _column("constant_types", constant_types, 0xFF, "u1", TYPE_CODES),
            "constant_bits": _column("constant_bits", constant_bits, (1 << 64) - 1, "<u8"),
        }
        columns["refs"] = np.zeros_like(columns["codes"], "<u4") if refs is None else _column("refs", refs, _WORD, "<u4")
        columns["counts"] = _counts(_column("offsets", offsets, _WORD, "<u4"), len(columns["codes"]), len(columns["operands"]))
        _same_length(columns, "codes", "types", "refs")
        _same_length(columns, "constant_types", "constant_bits")
        columns |= head.params(params) | head.memories(memories) | head.labels("named_values", "value_names", value_names)
        columns |= head.labels("named_variables", "variable_names", variable_names)
        _renumber(columns, head.region_rows(regions), head.size_rows(sizes))
        extents = head.grid(over, grid)
        x, y, z = head.workgroup(workgroup)
        bodies = tuple(head.functions(functions))
        flat = Flat(
            name=head.string("name", name), doc=head.string("doc", doc), workgroup=(x, y, z),
            subgroup=head.subgroup(subgroup), over=None if over is None and grid is None else over is not None,
            extents=extents, text=b"", data=b"".join(head.data), functions=bodies, **(dict(EMPTY) | head.dim_names() | columns),
        )
        arrange(flat, head.strings, head.sizes, None)
        verify(flat, canonical=False)
        return build(flat)
    except Fault as fault:
        if fault.column == "function":
            raise _refuse(fault.code, f"functions[{fault.index}]", fault.message, fault.help) from None
        where = f"{_ARGUMENTS.get(fault.column, fault.column)}[{fault.index}]" if fault.column in EMPTY else "the names"
        raise _refuse(fault.code, where, fault.message, fault.help) from None


# ---------------------------------------------------------------- columns


def _column(what: str, values: Names, largest: int, dtype: str, names: Mapping[str, int] | None = None) -> Array:
    """A column of whole numbers from 0 to `largest`; names, where the column has some, stand for their numbers."""
    if isinstance(values, np.ndarray):
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise _refuse("W116", what, f"an array of dtype {values.dtype} and shape {list(values.shape)}; one axis of integers is needed")
        array = values
    else:
        array = _listed(what, values, names or {})
    if array.size and (int(array.min()) < 0 or int(array.max()) > largest):
        at = int(((array < 0) | (array > largest)).argmax())
        raise _refuse("W116", f"{what}[{at}]", f"found {int(array[at])}, expected a whole number from 0 to {largest}")
    return array.astype(dtype)


def _listed(what: str, values: object, names: Mapping[str, int]) -> Array:
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise _refuse("W116", what, f"found a {type(values).__name__}, expected a list or array of whole numbers")
    made = []
    for at, value in enumerate(values):
        try:
            made.append(names[value] if isinstance(value, str) else operator.index(value))
        except KeyError:
            raise _refuse("W105", f"{what}[{at}]", f"{shown(value)} is not known here") from None
        except TypeError:
            raise _refuse("W116", f"{what}[{at}]", f"found {shown(value)}, expected a whole number") from None
    try:
        return np.array(made, np.uint64)
    except OverflowError:
        at = next(at for at, value in enumerate(made) if not 0 <= value < 1 << 64)
        raise _refuse("W116", f"{what}[{at}]", f"found {shown(made[at])}, expected a whole number from 0 on") from None


def _counts(offsets: Array, statements: int, operands: int) -> Array:
    """How many operands each statement has."""
    if len(offsets) != statements + 1:
        raise _refuse("W103", "offsets", f"{len(offsets)} entries for {statements} statements; there is one more than statements")
    if offsets[0] or int(offsets[-1]) != operands:
        raise _refuse("W103", "offsets", f"they go from {int(offsets[0])} to {int(offsets[-1])}; the operands from 0 to {operands}")
    counts = np.diff(offsets.astype(np.int64))
    wrong = (counts < 0) | (counts > _MAX_OPERANDS)
    if wrong.any():
        at = int(wrong.argmax())
        raise _refuse("W103", f"offsets[{at + 1}]", f"statement {at} would have {int(counts[at])} operands, from 0 to {_MAX_OPERANDS} are possible")
    return counts.astype("u1")


def _same_length(columns: Mapping[str, Array], first: str, *others: str) -> None:
    for other in others:
        if len(columns[other]) != len(columns[first]):
            raise _refuse("W103", other, f"{len(columns[other])} entries; {first} has {len(columns[first])}")


def _renumber(columns: dict[str, Array], regions: Array, sizes: Array) -> None:
    """References to the caller's regions, messages and sizes become those to the tables."""
    named = np.flatnonzero(REFERS[columns["codes"]] == REFERS_STRING)
    sized = np.flatnonzero(columns["operands"] & 3 == _SIZE)
    for column, at, shift, table, what in (("refs", named, 0, regions, "region or message"), ("operands", sized, 2, sizes, "size")):
        rows = columns[column][at] >> shift
        if len(rows) and int(rows.max()) >= len(table):
            wrong = int((rows >= len(table)).argmax())
            raise _refuse("W106", f"{column}[{int(at[wrong])}]", f"{what} {int(rows[wrong])} where there are {len(table)}")
        columns[column][at] = table[rows] << shift | (_SIZE if shift else 0)


# ---------------------------------------------------------------- declarations


class _Head:
    """What a Program has a few of, read with care for every kind of Python object."""

    def __init__(self, dims: Sequence[str]) -> None:
        self.strings = Strings()
        self.dims: dict[Dim, int] = {}
        for at, dim in enumerate(self.items("dims", dims)):
            self.string(f"dims[{at}]", dim)
            if Dim(dim) in self.dims:
                raise _refuse("W109", f"dims[{at}]", f"two dims have the name {shown(dim)}", "give each dim a name of its own")
            self.dims[Dim(dim)] = at
        self.sizes = SizeTable(self.dims)
        self.data: list[bytes] = []

    @staticmethod
    def items(what: str, values: object, count: int | None = None) -> Sequence[Any]:
        if isinstance(values, (str, bytes)) or not isinstance(values, Sequence) or (count is not None and len(values) != count):
            raise _refuse("W116", what, f"found {shown(values)}, expected a list" + (f" of {count}" if count is not None else ""))
        return values

    def string(self, where: str, text: object) -> int:
        if not isinstance(text, str):
            raise _refuse("W116", where, f"found {shown(text)}, expected a str")
        return self.strings.add(text)

    def size(self, where: str, value: object) -> int:
        try:
            return self.sizes.add(read_size(value, self.dims))
        except SizeError as error:
            raise _refuse("W116" if error.code == "W115" else error.code, where, error.message) from None

    @staticmethod
    def word(where: str, table: Mapping[str, int], value: object, what: str) -> int:
        """The number of a word, which may also be given as a member of its enumeration, or as a Type."""
        name = value.name if isinstance(value, Type) else value.value if isinstance(value, (Space, Access)) else value
        if not isinstance(name, str) or name not in table:
            raise _refuse("W105", where, f"found {shown(value)}, expected {what}")
        return table[name]

    def dim_names(self) -> dict[str, Array]:
        return {"dim_names": np.array([self.strings.add(dim.name) for dim in self.dims], "<u4")}

    def params(self, params: Sequence[tuple[str, Any]]) -> dict[str, Array]:
        pairs = [self.items(f"params[{at}]", pair, 2) for at, pair in enumerate(self.items("params", params))]
        names = [self.string(f"params[{at}]", name) for at, (name, _) in enumerate(pairs)]
        types = [self.word(f"params[{at}]", TYPE_CODES, type_, "a type") for at, (_, type_) in enumerate(pairs)]
        return {"param_names": np.array(names, "<u4"), "param_types": np.array(types, "u1")}

    def memories(self, memories: Sequence[Mapping[str, Any]]) -> dict[str, Array]:
        rows: dict[str, list[int]] = {column: [] for column in EMPTY if column.startswith("memory_") or column in ("axes", "data_lengths")}
        for at, memory in enumerate(self.items("memories", memories)):
            where = f"memories[{at}]"
            if not isinstance(memory, Mapping) or not {"name", "space", "type", "shape"} <= set(memory) <= _MEMORY_KEYS:
                raise _refuse("W116", where, f"found {shown(memory)}, expected a mapping with name, space, type, shape, access and data")
            rows["memory_names"].append(self.string(where, memory["name"]))
            rows["memory_spaces"].append(self.word(where, SPACE_CODES, memory["space"], f"a space: {', '.join(SPACE_CODES)}"))
            rows["memory_types"].append(self.word(where, TYPE_CODES, memory["type"], "a type"))
            space = memory["space"].value if isinstance(memory["space"], Space) else memory["space"]
            access = memory.get("access", _OWN_ACCESS.get(space))
            rows["memory_access"].append(self.word(where, ACCESS_CODES, access, f"an access: {', '.join(ACCESS_CODES)}"))
            shape = self.items(f"{where} shape", memory["shape"])
            if len(shape) > _MAX_OPERANDS:
                raise _refuse("W107", where, f"{len(shape)} axes, at most {_MAX_OPERANDS} are read")
            rows["memory_ranks"].append(len(shape))
            rows["axes"] += [self.size(f"{where} shape", axis) for axis in shape]
            data = memory.get("data", b"")
            if not isinstance(data, bytes):
                raise _refuse("W116", f"{where} data", f"found {shown(data)}, expected bytes: the elements, little-endian, row by row")
            self.data.append(data)
            rows["data_lengths"].append(len(data))
        return {column: np.array(numbers, EMPTY[column].dtype) for column, numbers in rows.items()}

    def labels(self, rows: str, column: str, names: Mapping[int, str]) -> dict[str, Array]:
        if not isinstance(names, Mapping):
            raise _refuse("W116", column, f"found {shown(names)}, expected a mapping of numbers to names")
        numbers = np.sort(_column(column, list(names), _WORD, "<u4"))
        return {rows: numbers, column: np.array([self.string(f"{column}[{number}]", names[number]) for number in numbers.tolist()], "<u4")}

    def functions(self, functions: Sequence[Program]) -> Iterator[Flat]:
        for at, body in enumerate(self.items("functions", functions)):
            if not isinstance(body, Program):
                raise _refuse("W116", f"functions[{at}]", f"found {shown(body)}, expected a Program that is a function's body")
            try:
                yield flatten(body, True, True)
            except Fault as fault:
                raise _refuse(fault.code, f"functions[{at}]", fault.message, fault.help) from None

    def region_rows(self, regions: Sequence[str]) -> Array:
        return np.array([self.string(f"regions[{at}]", text) for at, text in enumerate(self.items("regions", regions))], np.uint32)

    def size_rows(self, sizes: Sequence[Any]) -> Array:
        return np.array([self.size(f"sizes[{at}]", value) for at, value in enumerate(self.items("sizes", sizes))], np.uint32)

    def grid(self, over: Sequence[Any] | None, grid: Sequence[Any] | None) -> tuple[int, int, int]:
        if over is not None and grid is not None:
            raise _refuse("W116", "grid", "over and grid are both given", "over counts invocations, grid counts workgroups: give one")
        extents = over if over is not None else grid
        if extents is None:
            return 0, 0, 0
        what = "over" if over is not None else "grid"
        x, y, z = (self.size(f"{what}[{axis}]", size) for axis, size in enumerate(self.items(what, extents, 3)))
        return x, y, z

    def workgroup(self, sizes: Sequence[int]) -> Sequence[int]:
        return [int(n) for n in _column("workgroup", self.items("workgroup", sizes, 3), _WORD, "<u4")]

    def subgroup(self, size: int) -> int:
        return int(_column("subgroup", [size], _MOST_SUBGROUP, "<u2")[0])
