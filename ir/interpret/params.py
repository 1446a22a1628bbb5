"""What params stand for: one element each, from what the caller gave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from vyre_py.ir.language.errors import VyreError
from vyre_py.ir.language.nodes import Param
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Array, Kind, Type, element, encode

__all__ = ["InterpretError", "param_values"]


class InterpretError(VyreError):
    """Arguments that do not fit the Program, or a Program that the interpreter does not take as it is."""


def param_values(program: Program, arguments: Mapping[str, Any]) -> dict[Param, Array]:
    """Each param as an array of one element; a part is given by its own name, or within the argument that it is of. Raises InterpretError
    for one that is missing, or that its argument does not fit."""
    parts = Counter([p.part[0] for p in program.params if p.part])
    values: dict[Param, Array] = {}
    for param in program.params:
        part = param.part if param.name not in arguments else None
        name = part[0] if part else param.name
        if name not in arguments:
            raise InterpretError(f"param {name!r} is missing")
        try:
            if part:
                values[param] = _part(param.type, part[1], parts[name], arguments[name])
            else:
                values[param] = _whole(param.type, arguments[name])
        except (TypeError, OverflowError) as error:
            raise InterpretError(f"param {name!r}: {error}") from None
    return values


def _whole(type_: Type, given: Any) -> Array:
    shape = (type_.lanes,) if type_.is_vector else ()
    if isinstance(given, (np.generic, np.ndarray)):
        if given.shape != shape or given.dtype != type_.dtype:
            raise TypeError(f"it needs one {type_}, got {given.dtype} of shape {given.shape}")
        return np.array(given).reshape(1, *shape)
    if not type_.is_vector:
        return element(type_, encode(type_, given)).reshape(1)
    items = _items(given)
    if len(items) != type_.lanes:
        raise TypeError(f"it needs the {type_.lanes} components of one {type_}, got {type(given).__name__} with {len(items)}")
    return np.stack([_whole(type_.scalar, item) for item in items], axis=1)


def _items(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, (list, tuple)) else (given,)


def _part(type_: Type, offset: int, count: int, given: Any) -> Array:
    """One of `count` parts of an argument, from byte `offset` of it on. A Python number has no width: a list of them stands for
    the parts one by one."""
    if isinstance(given, (np.generic, np.ndarray)):
        raw = given.tobytes()[offset : offset + type_.size_bytes]
        if len(raw) != type_.size_bytes:
            raise TypeError(f"it needs {offset + type_.size_bytes} bytes or more, got {given.dtype} of shape {given.shape}")
        word = np.frombuffer(raw, f"u{type_.size_bytes}")
        return word != 0 if type_.kind is Kind.BOOL else word.view(type_.dtype)
    items = _items(given)
    if len(items) != count:
        raise TypeError(f"it is passed in {count} parts: give a NumPy scalar or array of the argument's type")
    return _whole(type_, items[offset // type_.size_bytes])
