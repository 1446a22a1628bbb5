"""Builtins of Python whose code is LLVM IR: what such a text calls of Python, names of Python's objects in it, and methods made of it.

All of Python's functions that are called belong to its stable interface, and are called with the lock of the interpreter held.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["FAST_KEYWORDS", "NO_ARGUMENTS", "ONE_ARGUMENT", "MethodDefinition", "function_addresses", "new_builtin", "new_method", "with_objects"]

# How a builtin is called: Python's METH_ flags.
NO_ARGUMENTS: Final = 0x4
ONE_ARGUMENT: Final = 0x8
FAST_KEYWORDS: Final = 0x80 | 0x2

_WORD_BYTES: Final = 8
_PLAIN: Final[Mapping[str, Any]] = {
    "none": None, "true": True, "false": False, "float_type": float, "int_type": int, "bytearray_type": bytearray, "tuple_type": tuple,
}  # fmt: skip

new_builtin: Final[Any] = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(("PyCFunction_NewEx", ctypes.pythonapi))
new_method: Final[Any] = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p)(("PyDescr_NewMethod", ctypes.pythonapi))


class MethodDefinition(ctypes.Structure):
    """Python's PyMethodDef. What is made of it points to it, so that it has to stay."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


def function_addresses(names: Sequence[str]) -> dict[str, int]:
    """Functions of Python's C interface, by name."""
    return {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in names}


def with_objects(text: str, objects: Mapping[str, Any]) -> str:
    """LLVM IR with the addresses of objects in place of their names in braces, those of Python's own types and constants too. The caller keeps the objects.
    `{type_at}` is where an object says its type: the last word of what all objects begin with, however long that is."""
    text = text.replace("{type_at}", str(object.__basicsize__ - _WORD_BYTES))
    for name, thing in {**_PLAIN, **objects}.items():
        text = text.replace(f"{{{name}}}", f"inttoptr (i64 {id(thing)} to ptr)")
    return text
