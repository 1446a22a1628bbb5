"""Builtins of Python whose code is LLVM IR: what such a text calls of Python, names of Python's objects in it, and methods made of it.

All of Python's functions that are called belong to its stable interface, and are called with the lock of the interpreter held, except between
`PyEval_SaveThread` and `PyEval_RestoreThread`.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from vyre_py.lowering.llvm import jit

__all__ = ["FAST_KEYWORDS", "NO_ARGUMENTS", "ONE_ARGUMENT", "SLOW_CALL", "MethodDefinition", "link_builtins", "new_builtin", "new_method", "with_objects"]

# How a builtin is called: Python's METH_ flags.
NO_ARGUMENTS: Final = 0x4
ONE_ARGUMENT: Final = 0x8
FAST_KEYWORDS: Final = 0x80 | 0x2

# What texts may call of Python: its result and what it takes.
_FUNCTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "PyByteArray_AsString": ("ptr", "ptr"), "PyCapsule_GetPointer": ("ptr", "ptr, ptr"), "PyCapsule_New": ("ptr", "ptr, ptr, ptr"),
    "PyBytes_FromStringAndSize": ("ptr", "ptr, i64"), "PyErr_Clear": ("void", ""),
    "PyEval_RestoreThread": ("void", "ptr"), "PyEval_SaveThread": ("ptr", ""), "PyFloat_AsDouble": ("double", "ptr"),
    "PyList_GetItem": ("ptr", "ptr, i64"), "PyList_SetItem": ("i32", "ptr, i64, ptr"), "PyLong_AsLongLong": ("i64", "ptr"),
    "PyLong_AsLongLongAndOverflow": ("i64", "ptr, ptr"), "PyLong_FromLongLong": ("ptr", "i64"), "PyMem_RawFree": ("void", "ptr"),
    "PyMem_RawMalloc": ("ptr", "i64"), "PyObject_CallObject": ("ptr", "ptr, ptr"), "PyObject_GetAttr": ("ptr", "ptr, ptr"),
    "PyObject_Vectorcall": ("ptr", "ptr, ptr, i64, ptr"), "PyTuple_GetItem": ("ptr", "ptr, i64"), "PyTuple_New": ("ptr", "i64"),
    "PyTuple_SetItem": ("i32", "ptr, i64, ptr"), "PyTuple_Size": ("i64", "ptr"), "Py_BuildValue": ("ptr", "ptr, ..."), "Py_DecRef": ("void", "ptr"),
    "Py_IncRef": ("void", "ptr"),
}  # fmt: skip
_CALLED: Final = re.compile(r"@(Py\w+)\(")

# What builtins leave to Python: the method named `{slow_name}` of %self, whose result is the builtin's.
SLOW_CALL: Final = """
define internal ptr @call_slow(ptr %self, ptr %args, i64 %positional, ptr %keywords) noinline {
entry:
  %method = call ptr @PyObject_GetAttr(ptr %self, ptr {slow_name})
  %none = icmp eq ptr %method, null
  br i1 %none, label %failed, label %go
go:
  %result = call ptr @PyObject_Vectorcall(ptr %method, ptr %args, i64 %positional, ptr %keywords)
  call void @Py_DecRef(ptr %method)
  ret ptr %result
failed:
  ret ptr null
}
"""

_WORD_BYTES: Final = 8
_PLAIN: Final[Mapping[str, Any]] = {
    "none": None, "true": True, "false": False, "float_type": float, "int_type": int, "bytearray_type": bytearray, "tuple_type": tuple,
}  # fmt: skip

new_builtin: Final[Any] = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(("PyCFunction_NewEx", ctypes.pythonapi))
new_method: Final[Any] = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p)(("PyDescr_NewMethod", ctypes.pythonapi))


class MethodDefinition(ctypes.Structure):
    """Python's PyMethodDef. What is made of it points to it, so that it has to stay."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


def link_builtins(name: str, text: str, exports: Sequence[str]) -> dict[str, int]:
    """As `jit.link`, of a text that calls Python's functions without declaring them."""
    called = sorted(set(_CALLED.findall(text)))
    declared = [f"declare {_FUNCTIONS[function][0]} @{function}({_FUNCTIONS[function][1]})" for function in called]
    addresses = {function: ctypes.cast(getattr(ctypes.pythonapi, function), ctypes.c_void_p).value or 0 for function in called}
    return jit.link(name, "\n".join([*declared, text]), exports, addresses)


def with_objects(text: str, objects: Mapping[str, Any]) -> str:
    """LLVM IR with the addresses of objects in place of their names in braces, those of Python's own types and constants too. The caller keeps the objects.
    `{type_at}` is where an object says its type: the last word of what all objects begin with, however long that is."""
    text = text.replace("{type_at}", str(object.__basicsize__ - _WORD_BYTES))
    for name, thing in {**_PLAIN, **objects}.items():
        text = text.replace(f"{{{name}}}", f"inttoptr (i64 {id(thing)} to ptr)")
    return text
