"""The JSON Schema (draft 2020-12) of the JSON form, from the same tables that its reader uses. `ir/program.schema.json` is what this gives."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final

from vyre_py.ir.check.limits import MAX_FUNCTIONS, MAX_NAME, MAX_STATEMENTS
from vyre_py.ir.language.dims import DIM_OPS, SIZE_LIMIT, WORD_LIMIT
from vyre_py.ir.language.types import SCALARS, Kind
from vyre_py.ir.wire.codes import ACCESS_CODES, SCALAR_CODES, SPACE_CODES, TYPE_CODES
from vyre_py.ir.wire.flat import PLACE_FIELDS
from vyre_py.ir.wire.json.json_form import FUNCTIONS, REF_KEYS, REQUIRED, VERSION
from vyre_py.ir.wire.statement_codes import CODES
from vyre_py.ir.wire.tables import NUMBER_BITS, NUMBERS, TYPED

__all__ = ["schema"]

_Schema = dict[str, Any]

_WORD: Final[_Schema] = {"type": "integer", "minimum": 0, "maximum": WORD_LIMIT - 1}
_WHOLE: Final[_Schema] = {"type": "integer", "minimum": 0, "maximum": SIZE_LIMIT - 1}
_ROW: Final[_Schema] = {"type": "integer", "minimum": 0, "maximum": (1 << 30) - 1}
_NUMBER: Final[_Schema] = {"type": "integer", "minimum": 0, "maximum": (1 << NUMBER_BITS) - 1}
_BYTE: Final = 255


def _ref(name: str) -> _Schema:
    return {"$ref": f"#/$defs/{name}"}


def _tuple(*items: _Schema) -> _Schema:
    return {"type": "array", "prefixItems": list(items), "minItems": len(items), "maxItems": len(items)}


def _object(required: dict[str, _Schema], optional: dict[str, _Schema]) -> _Schema:
    return {"type": "object", "properties": required | optional, "required": list(required), "additionalProperties": False}


def _list(of: _Schema, most: int | None = None) -> _Schema:
    return {"type": "array", "items": of} | ({"maxItems": most} if most is not None else {})


def _constants() -> list[_Schema]:
    """A constant of each kind: its type, and a value that the kind has, or its bits."""
    values = {Kind.BOOL: "boolean", Kind.SINT: "integer", Kind.UINT: "integer", Kind.FLOAT: "number"}
    return [
        _tuple({"enum": [name for name in SCALAR_CODES if SCALARS[name].kind is kind]}, {"anyOf": [{"type": value}, _ref("bits")]})
        for kind, value in values.items()
    ]


def _statements() -> list[_Schema]:
    """One form for all statements that have the same keys."""
    def form(item: tuple[str, int]) -> tuple[bool, str, tuple[str, ...]]:
        return bool(TYPED[item[1]]), REF_KEYS.get(item[1], ""), NUMBERS.get(item[1], ())

    forms = []
    for (typed, key, numbers), group in groupby(sorted(CODES.items(), key=form), form):
        required: dict[str, _Schema] = {"do": {"enum": sorted(name for name, _ in group)}}
        optional: dict[str, _Schema] = {"args": _list(_ref("operand"), _BYTE), "place": _ref("place")}
        if typed:
            required["type"] = _ref("type")
            optional["name"] = _ref("name")
        optional |= dict.fromkeys(numbers, _NUMBER)
        if key:
            required[key] = _ROW if key == "variable" else _ref("name")
        forms.append(_object(required, optional))
    return forms


def _definitions() -> dict[str, _Schema]:
    named, placed = {"name": _ref("name")}, {"place": _ref("place")}
    memory = named | {
        "space": {"enum": list(SPACE_CODES)}, "type": _ref("type"), "shape": _list(_ref("size"), _BYTE), "access": {"enum": list(ACCESS_CODES)},
    }
    return {
        "name": {"type": "string", "maxLength": MAX_NAME},
        "type": {"enum": list(TYPE_CODES)},
        "bits": {"description": "A bit pattern.", "type": "string", "pattern": "^0x[0-9a-fA-F]{1,16}$"},
        "place": {"description": "File, line, column (0: unknown), width in columns.", **_tuple({"type": "string"}, *[_WORD] * (PLACE_FIELDS - 1))},
        "size": {
            "description": "A whole number, a dim's name, or an operation on two sizes.",
            "anyOf": [_WHOLE, _ref("name"), _tuple({"enum": list(DIM_OPS)}, _ref("size"), _ref("size"))],
        },
        "operand": {
            "description": "A value by its number, a constant, a param by name, or a size.",
            "anyOf": [_ROW, *_constants(), _object({"param": _ref("name")}, {}), _object({"size": _ref("size")}, {})],
        },
        "dim": _object(named, placed),
        "param": _object(named | {"type": _ref("type")}, placed),
        "memory": _object(memory, {"data": {"type": "string", "pattern": "^([0-9a-fA-F]{2})*$"}, **placed}),
        "statement": {"oneOf": _statements()},
        "function": {"description": "The body of a function: a Program that ir/WIRE.md tells of.", **_program({})},
    }


def _program(more: dict[str, _Schema]) -> _Schema:
    """A Program, which may have the keys in `more` beside those of all."""
    sizes = _tuple(*[_ref("size")] * 3)
    required: dict[str, _Schema] = {
        "vyre": {"description": "The version of the form.", "const": VERSION},
        "name": _ref("name"),
        "body": _list(_ref("statement"), MAX_STATEMENTS),
    }
    assert tuple(required) == REQUIRED
    optional: dict[str, _Schema] = {
        "doc": {"type": "string"},
        "workgroup": {"description": "Invocations along x, y, z; 0, 0, 0 for a Program of tiles.", **_tuple(*[_WORD] * 3)},
        "subgroup": {"description": "Invocations of a subgroup; 0, as without it, is none.", "type": "integer", "minimum": 0, "maximum": (1 << 16) - 1},
        "over": {"description": "Invocations along x, y, z. Without both: the first written buffer's shape, where each store is to the own element.", **sizes},
        "grid": {"description": "Workgroups along x, y, z.", **sizes},
        "dims": _list(_ref("dim")),
        "params": _list(_ref("param")),
        "memories": _list(_ref("memory")),
        "place": _ref("place"),
    }
    return {**_object(required, optional | more), "not": {"required": ["over", "grid"]}}


def schema() -> _Schema:
    """The schema as an object for `json.dumps`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A vyre Program",
        **_program({FUNCTIONS: _list(_ref("function"), MAX_FUNCTIONS)}),
        "$defs": _definitions(),
    }
