"""What a value of a JSON text has to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vyre_py.ir.language.dims import WORD_LIMIT
from vyre_py.ir.language.errors import shown
from vyre_py.ir.wire.json.json_text import Wrong

__all__ = ["list_of", "mapping_of", "text_of", "whole_of", "word_of"]


def mapping_of(value: object, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """An object that has the required keys, and none but these and the optional ones. Raises Wrong."""
    if not isinstance(value, dict):
        raise Wrong("W115", f"found {shown(value)}, expected an object")
    for key in required:
        if key not in value:
            raise Wrong("W115", f"the key {key!r} is missing")
    if unknown := value.keys() - {*required, *optional}:
        raise Wrong("W115", f"the key {shown(min(unknown))} is not known here; known are {', '.join((*required, *optional))}")
    return value


def text_of(value: object, key: str) -> str:
    """A string, found at a key. Raises Wrong."""
    if not isinstance(value, str):
        raise Wrong("W115", f"found {shown(value)}, expected a string", f"/{key}")
    return value


def whole_of(value: object, path: str, limit: int = WORD_LIMIT) -> int:
    """A whole number from 0 on and below a limit, found at a path. Raises Wrong."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < limit:
        raise Wrong("W115", f"found {shown(value)}, expected a whole number from 0 to {limit - 1}", path)
    return value


def word_of(table: Mapping[str, int], value: object, key: str, what: str) -> int:
    """The code of a word of a table, found at a key; `what` says what is expected. Raises Wrong."""
    code = table.get(value) if isinstance(value, str) else None
    if code is None:
        raise Wrong("W105", f"found {shown(value)}, expected {what}", f"/{key}")
    return code


def list_of(value: object, key: str, count: int | None = None) -> list[Any]:
    """A list, of so many values where a count is given, found at a key. Raises Wrong."""
    if not isinstance(value, list) or (count is not None and len(value) != count):
        raise Wrong("W115", f"found {shown(value)}, expected a list" + (f" of {count}" if count is not None else ""), f"/{key}")
    return value
