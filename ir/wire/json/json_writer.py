"""Writing the JSON form: keys in one order, one declaration or statement a line, ASCII only, so that a Program has one text."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from vyre_py.ir.language.dims import WORD_LIMIT
from vyre_py.ir.language.errors import WireError
from vyre_py.ir.language.rules import finding
from vyre_py.ir.language.types import Type, decode
from vyre_py.ir.wire.binary import verified
from vyre_py.ir.wire.codes import (
    ACCESS_CODES,
    OPERAND_KINDS,
    SIZE_CONST,
    SIZE_DIM,
    SIZE_OPS,
    SPACE_CODES,
    TYPE_NAMES,
    TYPES_BY_CODE,
)
from vyre_py.ir.wire.flat import Flat
from vyre_py.ir.wire.json.json_form import EXACT_INTEGERS, FUNCTIONS, MAX_TEXT, REF_KEYS, VERSION
from vyre_py.ir.wire.statement_codes import CODE_NAMES, CODES
from vyre_py.ir.wire.tables import NUMBERS, numbers_of

if TYPE_CHECKING:
    from vyre_py.ir.language.program import Program

__all__ = ["constant_value", "to_json"]

_SPACES: Final = {code: name for name, code in SPACE_CODES.items()}
_ACCESSES: Final = {code: name for name, code in ACCESS_CODES.items()}
_CONSTANT, _PARAM, _SIZE = (OPERAND_KINDS[kind] for kind in ("constant", "param", "size"))
_VAR: Final = CODES["var"]


def to_json(program: Program, names: bool = True, places: bool = False) -> str:
    """The JSON text of a Program, with the names of its values and variables, and its places, where asked.

    Raises WireError as `pack` does, W113 also where two params or two memories have one name, W107 where the text is too long.
    """
    flat = verified(program, names, places)
    names_of = {"params": flat.param_names.tolist(), "memories": flat.memory_names.tolist(), FUNCTIONS: [body.strings()[body.name] for body in flat.functions]}
    for what, named in names_of.items():
        if len(set(named)) != len(named):
            raise WireError(finding("W113", f"two {what} have one name, by which the JSON form knows them"), "the Program")
    text = "".join(_Writer(flat).lines())
    if len(text) > MAX_TEXT:
        message = f"the JSON form has {len(text)} characters, at most {MAX_TEXT} are allowed"
        raise WireError(finding("W107", message, None, "hand it over as bytes: program.to_bytes()"), "the Program")
    return text


def constant_value(type_: Type, bits: int) -> str:
    """A constant as JSON: a number that every reader holds exactly, or the bits in a string."""
    value = decode(type_, bits)
    if isinstance(value, bool):
        return "true" if value else "false"
    exact = math.isfinite(value) if isinstance(value, float) else abs(value) <= EXACT_INTEGERS
    return repr(value) if exact else f'"{bits:#0{2 + type_.bits // 4}x}"'


class _Writer:
    """The tables as JSON texts, which the lines are put together from."""

    def __init__(self, flat: Flat) -> None:
        self.flat = flat
        self.strings = [json.dumps(text) for text in flat.strings()]
        self.sizes = self._sizes()
        types = [TYPES_BY_CODE[code] for code in flat.constant_types.tolist()]
        self.constants = [f'["{type_}", {constant_value(type_, bits)}]' for type_, bits in zip(types, flat.constant_bits.tolist(), strict=True)]
        self.params = [f'{{"param": {self.strings[name]}}}' for name in flat.param_names.tolist()]
        self.memories = [self.strings[name] for name in flat.memory_names.tolist()]
        self.functions = [json.dumps(body.strings()[body.name]) for body in flat.functions]
        self.places = iter([self._place(*row) for row in flat.places.tolist()])

    def _sizes(self) -> list[str]:
        made: list[str] = []
        for op, left, right in zip(self.flat.size_ops.tolist(), self.flat.size_left.tolist(), self.flat.size_right.tolist(), strict=True):
            if op == SIZE_CONST:
                made.append(str(right * WORD_LIMIT + left))
            else:
                made.append(self.strings[self.flat.dim_names[left]] if op == SIZE_DIM else f'["{SIZE_OPS[op]}", {made[left]}, {made[right]}]')
        return made

    def _place(self, file: int, line: int, column: int, width: int) -> str:
        return f', "place": [{self.strings[file - 1]}, {line}, {column}, {width}]' if file else ""

    def lines(self) -> Iterator[str]:
        """The text, in pieces."""
        flat = self.flat
        yield f'{{\n"vyre": {VERSION},\n"name": {self.strings[flat.name]},\n"doc": {self.strings[flat.doc]}'
        place = next(self.places, "")
        yield place.replace(", ", ",\n", 1)
        yield f',\n"workgroup": {list(flat.workgroup)}' + (f',\n"subgroup": {flat.subgroup}' if flat.subgroup else "")
        yield f',\n"{"over" if flat.over else "grid"}": [{", ".join([self.sizes[x] for x in flat.extents])}]'
        bodies = [*({FUNCTIONS: self._bodies()}.items() if flat.functions else ())]
        for key, rows in (("dims", self._dims()), ("params", self._params()), ("memories", self._memories()), *bodies, ("body", self._body())):
            yield f',\n"{key}": ['
            for number, row in enumerate(rows):
                yield f"{',' if number else ''}\n{row}"
            yield "]"
        yield "\n}\n"

    def _bodies(self) -> Iterator[str]:
        for body in self.flat.functions:
            yield "".join(_Writer(body).lines()).rstrip()

    def _dims(self) -> Iterator[str]:
        for name in self.flat.dim_names.tolist():
            yield f'{{"name": {self.strings[name]}{next(self.places, "")}}}'

    def _params(self) -> Iterator[str]:
        for name, code in zip(self.flat.param_names.tolist(), self.flat.param_types.tolist(), strict=True):
            yield f'{{"name": {self.strings[name]}, "type": "{TYPE_NAMES[code]}"{next(self.places, "")}}}'

    def _memories(self) -> Iterator[str]:
        flat = self.flat
        axes = iter([self.sizes[axis] for axis in flat.axes.tolist()])
        at = 0
        columns = (flat.memory_types, flat.memory_spaces, flat.memory_access, flat.memory_ranks, flat.data_lengths)
        for name, type_, space, access, rank, length in zip(self.memories, *[column.tolist() for column in columns], strict=True):
            shape = ", ".join([next(axes) for _ in range(rank)])
            data = f', "data": "{flat.data[at : at + length].hex()}"' if length else ""
            at += length
            head = f'{{"name": {name}, "space": "{_SPACES[space]}", "type": "{TYPE_NAMES[type_]}"'
            yield f'{head}, "shape": [{shape}], "access": "{_ACCESSES[access]}"{data}{next(self.places, "")}}}'

    def _operands(self) -> list[str]:
        """All operands: a value is its number."""
        rows = zip((self.flat.operands & 3).tolist(), (self.flat.operands >> 2).tolist(), strict=True)
        pools = {_CONSTANT: self.constants, _PARAM: self.params, _SIZE: [f'{{"size": {size}}}' for size in self.sizes]}
        return [pools[kind][row] if kind else str(row) for kind, row in rows]

    def _names(self, numbers: str, names: str) -> dict[int, str]:
        return {n: self.strings[name] for n, name in zip(getattr(self.flat, numbers).tolist(), getattr(self.flat, names).tolist(), strict=True)}

    def _body(self) -> Iterator[str]:
        flat, operands = self.flat, self._operands()
        values, variables = self._names("named_values", "value_names"), self._names("named_variables", "variable_names")
        at = value = variable = 0
        for code, type_, ref, count in zip(flat.codes.tolist(), flat.types.tolist(), flat.refs.tolist(), flat.counts.tolist(), strict=True):
            parts = [f'{{"do": "{CODE_NAMES[code]}"']
            name: str | None = None
            if type_:
                parts.append(f'"type": "{TYPE_NAMES[type_]}"')
                if code == _VAR:
                    name, variable = variables.get(variable), variable + 1
                else:
                    name, value = values.get(value), value + 1
            if code in NUMBERS:
                names = NUMBERS[code]
                parts += [f'"{name}": {number}' for name, number in zip(names, numbers_of(ref, len(names)), strict=True) if number]
            elif (key := REF_KEYS.get(code)) is not None:
                texts = {"memory": self.memories, "function": self.functions}.get(key, self.strings)
                parts.append(f'"{key}": {ref if key == "variable" else texts[ref]}')
            if name is not None:
                parts.append(f'"name": {name}')
            if count:
                parts.append(f'"args": [{", ".join(operands[at : at + count])}]')
            at += count
            yield ", ".join(parts) + next(self.places, "") + "}"
