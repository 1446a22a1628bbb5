"""Reading the JSON form: from the values of the text to columns. `ir.wire.json.json_text` finds the values and bounds what they may cost.

Declarations are read before the body and dims before all, whatever their order in the text.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from vyre_py.ir.check.limits import MAX_FUNCTIONS, MAX_STATEMENTS
from vyre_py.ir.language.dims import DEFAULT_WORKGROUP, Dim, DimExpr
from vyre_py.ir.language.errors import WireError, shown
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.rules import finding
from vyre_py.ir.language.types import SCALARS, Array
from vyre_py.ir.wire.build import build
from vyre_py.ir.wire.codes import ACCESS_CODES, OPERAND_KINDS, SPACE_CODES, TYPE_CODES
from vyre_py.ir.wire.flat import EMPTY, PLACE_FIELDS, Fault, Flat
from vyre_py.ir.wire.intern import Constants, Strings, arrange
from vyre_py.ir.wire.json.json_form import (
    FUNCTIONS,
    LISTS,
    MAX_OPERANDS,
    MAX_ROWS,
    REF_KEYS,
    REQUIRED,
    VERSION,
)
from vyre_py.ir.wire.json.json_numbers import bits_of
from vyre_py.ir.wire.json.json_text import JsonText, Wrong
from vyre_py.ir.wire.json.json_values import list_of, mapping_of, text_of, whole_of, word_of
from vyre_py.ir.wire.size_table import SizeError, SizeTable, read_size
from vyre_py.ir.wire.statement_codes import CODES
from vyre_py.ir.wire.tables import NUMBER_BITS, NUMBERS, TYPED, ref_of
from vyre_py.ir.wire.verify import MAX_DECLARATIONS, verify

__all__ = ["from_json"]

_VALUE, _CONSTANT, _PARAM, _SIZE = (OPERAND_KINDS[kind] for kind in ("value", "constant", "param", "size"))
_VAR: Final = CODES["var"]
_ROWS_LIMIT: Final = 1 << 30  # an operand's row has 30 bits
_OPERAND: Final = 'a value\'s number, ["type", constant], {"param": name} or {"size": size}'
_PLAIN_KEYS: Final = ("args", "place")

_Row = dict[str, Any]


def _statement_keys(code: int) -> frozenset[str]:
    named = ("type", "name") if TYPED[code] else ()
    return frozenset(("do", *_PLAIN_KEYS, *named, *NUMBERS.get(code, ()), *((REF_KEYS[code],) if code in REF_KEYS else ())))


_STATEMENT_KEYS: Final[Mapping[int, frozenset[str]]] = {code: _statement_keys(code) for code in CODES.values()}
_HEAD_KEYS: Final = frozenset((*REQUIRED, *LISTS, "doc", "workgroup", "subgroup", "over", "grid", "place"))


def from_json(text: str | bytes | bytearray | memoryview) -> Program:
    """The Program that JSON text describes. Raises WireError, whose `where` is the JSON pointer of the value at fault."""
    reader = _Reader(JsonText(text))
    try:
        flat = reader.flat()
        try:
            return build(flat)
        except Fault as fault:
            raise Wrong(fault.code, fault.message, f"/{FUNCTIONS}/{fault.index}", fault.help) from None
    except Wrong as wrong:
        place = wrong.path or "the outermost value"
        raise WireError(finding(wrong.code, f"{place}: {wrong.message}", None, wrong.help), wrong.path) from None


class _Reader:
    """The columns as they grow, and the tables that they refer to."""

    def __init__(self, text: JsonText, *, inner: bool = False) -> None:
        self.text = text
        self.inner = inner  # of a function, which has none itself
        self.functions: dict[str, int] = {}
        self.strings, self.constants = Strings(), Constants()
        self.dims: dict[Dim, int] = {}
        self.sizes = SizeTable(self.dims)
        self.params: dict[str, int] = {}
        self.memories: dict[str, int] = {}
        self.columns: dict[str, array[int]] = {name: array(EMPTY[name].dtype.char) for name in EMPTY}
        self.data: list[bytes] = []
        self.values = self.variables = 0
        self.rows = 0  # places that went by before the first that is known
        self.placed = False

    def flat(self) -> Flat:
        """The verified columns. Raises Wrong."""
        head = self._head()
        for key, read in (("dims", self._dim), ("params", self._param), ("memories", self._memory)):
            self._each(key, read)
        over, extents = self._grid(head)
        functions = tuple(self._functions())
        self._each("body", self._statement)
        flat = Flat(
            name=self.strings.add(text_of(head["name"], "name")), doc=self.strings.add(text_of(head.get("doc", ""), "doc")),
            workgroup=self._workgroup(head), subgroup=whole_of(head.get("subgroup", 0), "/subgroup", 1 << 16),
            over=over, extents=extents, text=b"", data=b"".join(self.data), functions=functions, **self._arrays(),
        )
        try:
            arrange(flat, self.strings, self.sizes, self.constants)
            verify(flat, canonical=False)
        except Fault as fault:
            raise Wrong(fault.code, fault.message, self._pointer(flat, fault), fault.help) from None
        return flat

    def _functions(self) -> Iterator[Flat]:
        """The verified columns of the functions' bodies."""
        for number, text in enumerate(self.text.texts(FUNCTIONS)):
            path = f"/{FUNCTIONS}/{number}"
            try:
                self._bound(number, MAX_FUNCTIONS)
                flat = _Reader(text, inner=True).flat()
                self._declare(self.functions, flat.strings()[flat.name], "functions")
                yield flat
            except Wrong as wrong:
                raise Wrong(wrong.code, wrong.message, path + wrong.path, wrong.help) from None

    def _arrays(self) -> dict[str, Array]:
        made = {name: np.frombuffer(self.columns[name], EMPTY[name].dtype.newbyteorder("=")).astype(EMPTY[name].dtype, copy=False) for name in EMPTY}
        made["places"] = made["places"].reshape(-1, PLACE_FIELDS)
        return made

    def _pointer(self, flat: Flat, fault: Fault) -> str:
        if fault.column == "function":
            return f"/{FUNCTIONS}/{fault.index}"
        keys = {"codes": "/do", "types": "/type", "counts": "/args", "refs": ""}
        if fault.column in keys:
            return f"/body/{fault.index}{keys[fault.column]}"
        if fault.column == "operands":
            ends = np.cumsum(flat.counts, dtype=np.int64)
            row = int(np.searchsorted(ends, fault.index, "right"))
            return f"/body/{row}/args/{fault.index - int(ends[row]) + int(flat.counts[row])}"
        return ""

    # ---- the outermost object

    def _head(self) -> _Row:
        """All that is not a list of declarations or statements."""
        known = self.text.keys()
        if "vyre" not in known:
            raise Wrong("W101", 'the key "vyre" is missing')
        version = self.text.load("vyre")
        if version != VERSION or isinstance(version, bool):
            raise Wrong("W102", f"format version {shown(version)}; this vyre-py reads version {VERSION}", "/vyre")
        for key in REQUIRED:
            if key not in known:
                raise Wrong("W115", f"the key {key!r} is missing")
        if unknown := known - _HEAD_KEYS:
            raise Wrong("W115", f"the key {shown(min(unknown))} is not known here; known are {', '.join(sorted(_HEAD_KEYS))}")
        if self.inner and FUNCTIONS in known:
            raise Wrong("W117", "a function has functions of its own", f"/{FUNCTIONS}")
        if {"over", "grid"} <= known:
            raise Wrong("W115", '"over" and "grid" are both there', "/grid", "over counts invocations, grid counts workgroups: give one")
        head = {key: self.text.load(key) for key in known if key not in LISTS}
        self._place(head)
        return head

    def _workgroup(self, head: _Row) -> tuple[int, int, int]:
        x, y, z = (whole_of(n, f"/workgroup/{axis}") for axis, n in enumerate(list_of(head.get("workgroup", list(DEFAULT_WORKGROUP)), "workgroup", 3)))
        return x, y, z

    def _grid(self, head: _Row) -> tuple[bool | None, tuple[int, int, int]]:
        key = next((key for key in ("over", "grid") if key in head), None)
        if key is None:
            return None, (0, 0, 0)
        x, y, z = (self._size(size, f"/{key}/{axis}") for axis, size in enumerate(list_of(head[key], key, 3)))
        return key == "over", (x, y, z)

    def _each(self, key: str, read: Callable[[Any], None]) -> None:
        most = MAX_STATEMENTS if key == "body" else MAX_DECLARATIONS
        for number, value in enumerate(self.text.rows(key)):
            try:
                self._bound(number, most)
                read(value)
            except Wrong as wrong:
                raise Wrong(wrong.code, wrong.message, f"/{key}/{number}{wrong.path}", wrong.help) from None

    # ---- shared

    def _bound(self, number: int, most: int) -> None:
        """Looks at what grows with the text."""
        if number >= most:
            raise Wrong("W107", f"more than {most} are not read")
        for table in (self.strings.rows, self.constants.rows, self.sizes.rows):
            if len(table) > MAX_ROWS:
                raise Wrong("W107", f"more than {MAX_ROWS} different strings, constants or sizes", "", "hand it over as bytes")
        if len(self.columns["operands"]) > MAX_OPERANDS:
            raise Wrong("W107", f"more than {MAX_OPERANDS} operands", "", "hand it over as bytes")

    def _add(self, column: str, number: int) -> None:
        self.columns[column].append(number)

    def _place(self, row: _Row) -> None:
        """The place of a declaration or statement, which every one has a row for."""
        if "place" not in row and not self.placed:
            self.rows += 1
            return
        fields = (0, 0, 0, 0)
        if "place" in row:
            file, line, column, width = list_of(row["place"], "place", PLACE_FIELDS)
            if not isinstance(file, str):
                raise Wrong("W115", f"found {shown(file)}, expected the name of a file", "/place/0")
            line, column, width = (whole_of(n, f"/place/{k}") for k, n in enumerate((line, column, width), 1))
            fields = (self.strings.add(file) + 1, line, column, width)
            if not self.placed:
                self.columns["places"].frombytes(bytes(4 * PLACE_FIELDS * self.rows))
            self.placed = True
        self.columns["places"].extend(fields)

    def _size(self, value: object, path: str) -> int:
        try:
            expr: DimExpr = read_size(value, self.dims)
        except SizeError as error:
            raise Wrong(error.code, error.message, path) from None
        return self.sizes.add(expr)

    @staticmethod
    def _declare(names: dict[str, int], name: str, what: str) -> None:
        if name in names:
            raise Wrong("W115", f"two {what} have the name {shown(name)}", "/name", "give each a name of its own")
        names[name] = len(names)

    # ---- declarations

    def _dim(self, value: object) -> None:
        row = mapping_of(value, ("name",), ("place",))
        name = text_of(row["name"], "name")
        if Dim(name) in self.dims:
            raise Wrong("W115", f"two dims have the name {shown(name)}", "/name", "give each a name of its own")
        self.dims[Dim(name)] = len(self.dims)
        self._add("dim_names", self.strings.add(name))
        self._place(row)

    def _param(self, value: object) -> None:
        row = mapping_of(value, ("name", "type"), ("place",))
        self._declare(self.params, text_of(row["name"], "name"), "params")
        self._add("param_names", self.strings.add(row["name"]))
        self._add("param_types", word_of(TYPE_CODES, row["type"], "type", "a type"))
        self._place(row)

    def _memory(self, value: object) -> None:
        row = mapping_of(value, ("name", "space", "type", "shape", "access"), ("data", "place"))
        self._declare(self.memories, text_of(row["name"], "name"), "memories")
        self._add("memory_names", self.strings.add(row["name"]))
        self._add("memory_spaces", word_of(SPACE_CODES, row["space"], "space", f"one of {', '.join(SPACE_CODES)}"))
        self._add("memory_types", word_of(TYPE_CODES, row["type"], "type", "a type"))
        self._add("memory_access", word_of(ACCESS_CODES, row["access"], "access", f"one of {', '.join(ACCESS_CODES)}"))
        shape = list_of(row["shape"], "shape")
        if len(shape) > 255:
            raise Wrong("W107", f"{len(shape)} axes, at most 255 are read", "/shape")
        self._add("memory_ranks", len(shape))
        for axis, extent in enumerate(shape):
            self._add("axes", self._size(extent, f"/shape/{axis}"))
        self.data.append(self._data(row.get("data", "")))
        self._add("data_lengths", len(self.data[-1]))
        self._place(row)

    @staticmethod
    def _data(value: object) -> bytes:
        try:
            data = bytes.fromhex(text_of(value, "data"))
        except ValueError:
            data = b"?"  # of another length than any text of its own, so that it is refused below
        if not isinstance(value, str) or len(value) != 2 * len(data):
            raise Wrong("W115", "the data are not hexadecimal digits, two a byte", "/data")
        return data

    # ---- statements

    def _statement(self, row: Any) -> None:
        if not isinstance(row, dict) or "do" not in row:
            raise Wrong("W115", f'found {shown(row)}, expected an object with a "do"')
        code = word_of(CODES, row["do"], "do", "a statement or op of the language")
        if not row.keys() <= _STATEMENT_KEYS[code]:
            unknown = min(row.keys() - _STATEMENT_KEYS[code])
            raise Wrong("W115", f"the key {shown(unknown)} is not known in {row['do']}; known are {', '.join(sorted(_STATEMENT_KEYS[code]))}")
        columns = self.columns
        columns["codes"].append(code)
        columns["refs"].append(self._ref(code, row))
        args = row.get("args", [])
        if not isinstance(args, list) or len(args) > 255:
            raise Wrong("W115", f"found {shown(args)}, expected a list of at most 255 operands", "/args")
        columns["counts"].append(len(args))
        for number, value in enumerate(args):
            columns["operands"].append(self._operand(value, number))
        if TYPED[code]:
            columns["types"].append(word_of(TYPE_CODES, row.get("type"), "type", "a type"))
            self._bind(code, row)
        else:
            columns["types"].append(0)
        self._place(row)

    def _bind(self, code: int, row: _Row) -> None:
        """Counts the value or variable that a statement makes, and names it."""
        what, number = ("variable", self.variables) if code == _VAR else ("value", self.values)
        self.variables, self.values = self.variables + (code == _VAR), self.values + (code != _VAR)
        if "name" in row:
            self._add(f"named_{what}s", number)
            self._add(f"{what}_names", self.strings.add(text_of(row["name"], "name")))

    def _ref(self, code: int, row: _Row) -> int:
        if (numbers := NUMBERS.get(code)) is not None:
            return ref_of([whole_of(row.get(name, 0), f"/{name}", 1 << NUMBER_BITS) for name in numbers])
        key = REF_KEYS.get(code)
        if key is None:
            return self.variables if code == _VAR else 0
        if key not in row:
            raise Wrong("W115", f"the key {key!r} is missing")
        if key == "variable":
            return whole_of(row[key], "/variable", _ROWS_LIMIT)
        name = text_of(row[key], key)
        declared = {"memory": self.memories, "function": self.functions}.get(key)
        if declared is None:
            return self.strings.add(name)
        if name not in declared:
            raise Wrong("W106", f"the {key} {shown(name)} is not declared", f"/{key}")
        return declared[name]

    def _operand(self, value: object, number: int) -> int:
        if isinstance(value, int) and not isinstance(value, bool):
            return 4 * whole_of(value, f"/args/{number}", _ROWS_LIMIT) + _VALUE
        if isinstance(value, list) and len(value) == 2:
            return 4 * self._constant(value[0], value[1], f"/args/{number}") + _CONSTANT
        if isinstance(value, dict) and len(value) == 1:
            if "param" in value:
                name = value["param"]
                if not isinstance(name, str) or name not in self.params:
                    raise Wrong("W106", f"the param {shown(name)} is not declared", f"/args/{number}/param")
                return 4 * self.params[name] + _PARAM
            if "size" in value:
                return 4 * self._size(value["size"], f"/args/{number}/size") + _SIZE
        raise Wrong("W115", f"found {shown(value)}, expected {_OPERAND}", f"/args/{number}")

    def _constant(self, name: object, value: object, path: str) -> int:
        if not isinstance(name, str) or name not in SCALARS:
            raise Wrong("W105", f"found {shown(name)}, expected a scalar type", f"{path}/0")
        if isinstance(value, (list, dict)) or value is None:
            raise Wrong("W115", f"found {shown(value)}, expected a number, true, false, or bits such as \"0x7fc00001\"", f"{path}/1")
        try:
            return self.constants.add(TYPE_CODES[name], bits_of(SCALARS[name], value))
        except (TypeError, OverflowError, ValueError) as error:
            raise Wrong("W112", str(error), f"{path}/1") from None
