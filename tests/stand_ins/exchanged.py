"""Arrays of a library with DLPack's exchange table, whose words a test fills in."""

from __future__ import annotations

import ctypes
import struct
from typing import Any, ClassVar

__all__ = ["Exchanged", "exchange_table"]




class Exchanged:
    """An array of a library of its own: what it tells is a DLTensor that a test has filled in. `array` is the memory."""

    requires_grad = False
    handed = 0  # how many were handed over by the table
    held: ClassVar[dict[int, Any]] = {}  # those of them that were not given back, by address

    def __init__(self, array: Any, strides: Any = None, **fields: int) -> None:
        self.array, self.shape = array, (ctypes.c_int64 * array.ndim)(*array.shape)
        self.strides = None if strides is None else (ctypes.c_int64 * array.ndim)(*strides)
        words = {"data": array.ctypes.data, "place": 1, "axes": array.ndim, "element": 2 | 32 << 8 | 1 << 16, "begin": 0} | fields
        at = 0 if strides is None else ctypes.addressof(self.strides)
        self.words = struct.pack("<QqiIQQQ", words["data"], words["place"], words["axes"], words["element"], ctypes.addressof(self.shape), at, words["begin"])

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
def _view(value: Exchanged, out: int) -> int:
    if value.words is None:
        raise BufferError("not now")
    ctypes.memmove(out, value.words, len(value.words))
    return 0


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _give_back(place: int) -> None:
    del Exchanged.held[place]


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
def _managed(value: Exchanged, out: int) -> int:
    if value.words is None:
        return -1
    words = struct.pack("<IIQQQ", 1, 3, 0, ctypes.cast(_give_back, ctypes.c_void_p).value or 0, 0) + value.words
    memory = ctypes.create_string_buffer(words, len(words))
    ctypes.c_uint64.from_address(out).value = ctypes.addressof(memory)
    Exchanged.held[ctypes.addressof(memory)] = memory, value
    Exchanged.handed += 1
    return 0


def exchange_table(major: int, stream: Any = None, *, managed: bool = False) -> Any:
    """The capsule of a table of that version. `stream(kind, ordinal)` gives the handle of the library's stream, or None for an error; without it the table has
    no such function. `managed` is whether arrays are handed over for good, too."""

    @ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.c_void_p)
    def tell(kind: int, ordinal: int, out: int) -> int:
        if (handle := stream(kind, ordinal)) is None:
            return -1
        ctypes.c_uint64.from_address(out).value = handle
        return 0

    hand_over, view, told = (ctypes.cast(function, ctypes.c_void_p).value or 0 for function in (_managed, _view, tell))
    functions = (0, 0, hand_over * managed, 0, view, told if stream else 0)
    table = (ctypes.c_uint64 * 7)(major | 3 << 32, *functions)
    made = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_New", ctypes.pythonapi))
    _HELD.append((table, tell))
    return made(ctypes.addressof(table), b"dlpack_exchange_api", None)


_HELD: list[Any] = []  # what capsules point to
