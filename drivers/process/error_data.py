"""Errors as plain data: class, text and fields. An error that is raised in a worker process is raised again in the process that asked.

Nothing is unpickled, and names are looked up in the tables below only. Data that does not fit them is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any, Final

from vyre_py.drivers.errors import (
    BindingError,
    CacheError,
    DeviceLost,
    DeviceUnavailable,
    DispatchTimeout,
    DriverError,
    KernelAssertion,
    LaunchError,
    OutOfMemory,
)
from vyre_py.ir.language.errors import (
    Diagnostic,
    ParseError,
    Place,
    ProgramError,
    RaceError,
    UnwrittenRead,
    ValidationError,
    VyreError,
    WireError,
    remade,
)
from vyre_py.lowering.errors import ArtifactError, LoweringError, Missing, ToolchainError, Unsupported

__all__ = ["ErrorDataBroken", "describe", "rebuild"]


class ErrorDataBroken(Exception):
    """Data that describes no error."""


_DRIVER: Final[Mapping[str, Any]] = {"status": "", "meaning": "", "cause": "", "remedy": ""}
_PROGRAM: Final[Mapping[str, Any]] = {"diagnostics": Diagnostic}

# Class -> its fields: the type of which a field holds any number (tuple: anything), or a value that stands where none of its type was given.
# Numbers and texts beyond these go along as they are.
_CLASSES: Final[Mapping[type[VyreError], Mapping[str, Any]]] = {
    VyreError: {},
    ProgramError: _PROGRAM, ParseError: _PROGRAM, ValidationError: _PROGRAM, RaceError: _PROGRAM,
    UnwrittenRead: _PROGRAM, WireError: {**_PROGRAM, "where": None},
    LoweringError: {}, Unsupported: {"who": "", "items": Missing}, ToolchainError: {"tool": "", "text": ""}, ArtifactError: {"part": "", "path": ""},
    DriverError: _DRIVER, DeviceUnavailable: _DRIVER, OutOfMemory: _DRIVER, BindingError: {**_DRIVER, "problems": str},
    KernelAssertion: {
        **_DRIVER, "message": "", "values": tuple, "global_id": int, "workgroup_id": int, "local_id": int, "where": "", "others": 0,
    },
    LaunchError: _DRIVER, DispatchTimeout: _DRIVER, DeviceLost: _DRIVER, CacheError: _DRIVER,
}  # fmt: skip
_BY_NAME: Final = {kind.__name__: kind for kind in _CLASSES}

# Dataclass -> its fields and the types that each takes.
_RECORDS: Final[Mapping[type[Any], Mapping[str, tuple[type[Any], ...]]]] = {
    Place: {"file": (str,), "line": (int,), "column": (int,), "width": (int,), "source": (str,), "around": (tuple,)},
    Missing: {"what": (str,), "place": (Place, NoneType), "help": (str,)},
    Diagnostic: {"code": (str,), "message": (str,), "place": (Place, NoneType), "help": (str,)},
}
_RECORD_BY_NAME: Final = {kind.__name__: kind for kind in _RECORDS}

_PLAIN: Final = (NoneType, bool, int, float, str)

_MAX_TEXT: Final = 1 << 14  # characters of one text
_MAX_ITEMS: Final = 128  # of one tuple
_MAX_TOTAL: Final = 1 << 18  # characters of all texts of an error
_MAX_DEPTH: Final = 5  # a place in a finding in a tuple, and what is around it
_MAX_WHOLE: Final = 1 << 64


class _Describer:
    """Turns values into JSON's kinds, and drops what is past the bounds."""

    def __init__(self) -> None:
        self.left = _MAX_TOTAL

    def text(self, text: str) -> str:
        kept = min(_MAX_TEXT, self.left)
        self.left -= min(len(text), kept)
        return text if len(text) <= kept else text[: max(kept - 3, 0)] + "..."

    def value(self, value: object) -> Any:
        if value is None or isinstance(value, (bool, float)):
            return value
        if isinstance(value, int):
            return value if abs(value) < _MAX_WHOLE else None
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, tuple):
            return [self.value(item) for item in value[:_MAX_ITEMS]]
        fields = _RECORDS.get(type(value))
        return None if fields is None else {type(value).__name__: {name: self.value(getattr(value, name)) for name in fields}}


def describe(error: VyreError) -> dict[str, Any]:
    """An error as JSON's kinds: its class, or the nearest that the table knows, its text, and its fields. Long texts are cut."""
    kind = next(known for known in type(error).__mro__ if known in _CLASSES)
    describer = _Describer()
    text = describer.text(str(error))
    return {"class": kind.__name__, "text": text, "fields": {name: describer.value(value) for name, value in vars(error).items()}}


def rebuild(data: object) -> VyreError:
    """The error that `describe` described: the same class, text and fields. Raises ErrorDataBroken for malformed data."""
    if not isinstance(data, dict) or not isinstance(data.get("text"), str) or not isinstance(data.get("fields"), dict):
        raise ErrorDataBroken("an error without a text or fields")
    kind = _BY_NAME.get(str(data.get("class")))
    if kind is None:
        raise ErrorDataBroken("an error of an unknown class")
    error = remade(kind, (data["text"],))
    given = {name: _value(value, _MAX_DEPTH) for name, value in data["fields"].items() if name.isidentifier() and not name.startswith("_")}
    known = _CLASSES[kind]
    for name, expected in known.items():
        setattr(error, name, _fitting(given.get(name), expected))
    for name, value in given.items():
        if name not in known and isinstance(getattr(kind, name, None), _PLAIN) and isinstance(value, _PLAIN):
            setattr(error, name, value)
    return error


def _fitting(value: Any, expected: Any) -> Any:
    """A field's value, or what stands for one that does not fit."""
    if isinstance(expected, type):
        return value if isinstance(value, tuple) and (expected is tuple or all(type(item) is expected for item in value)) else ()
    return value if isinstance(value, _PLAIN if expected is None else type(expected)) else expected


def _value(data: object, depth: int) -> Any:
    if not depth:
        raise ErrorDataBroken("an error with fields within fields")
    if isinstance(data, list):
        return tuple(_value(item, depth - 1) for item in data)
    return _record(data, depth) if isinstance(data, dict) else data


def _record(data: dict[str, Any], depth: int) -> Any:
    (name, given), *more = data.items() or [("", None)]
    kind = _RECORD_BY_NAME.get(name)
    if kind is None or more or not isinstance(given, dict) or given.keys() != _RECORDS[kind].keys():
        raise ErrorDataBroken("an error with a field of an unknown kind")
    values = {field: _value(value, depth - 1) for field, value in given.items()}
    for field, types in _RECORDS[kind].items():
        if type(values[field]) not in types:
            raise ErrorDataBroken(f"{field} of a {name} is a {type(values[field]).__name__}")
    return kind(**values)
