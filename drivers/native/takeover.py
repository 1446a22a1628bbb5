"""Native code that takes over arrays of a library by DLPack's exchange table, as `dlpack.import_by_table` does, in a fraction of the time.

It takes what is plain, and leaves the rest to Python, which says what is wrong. What was taken over is held by a capsule, which gives it back when it goes.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from vyre_py.drivers.native.arrays import NAMES, TENSOR_LOOKS
from vyre_py.drivers.native.builtins import ONE_ARGUMENT, MethodDefinition, link_builtins, new_builtin, with_objects
from vyre_py.drivers.native.shorthand import written_out
from vyre_py.drivers.native.structs import LOOKS
from vyre_py.drivers.sharing.dlpack import CPU
from vyre_py.drivers.sharing.exchange_table import exchange_functions
from vyre_py.lowering.errors import ToolchainError

__all__ = ["Taken", "taker"]

# The address, the shape, DLPack's word for the type, the flags, what holds the memory, and the handle of the library's stream.
Taken = tuple[int, tuple[int, ...], int, int, object, int]

_SYMBOL: Final = "vyre_take_over"
_FLAGS_AT, _TENSOR_AT, _DELETER_AT = 24, 32, 16  # in a DLManagedTensorVersioned, which begins with the version
_TAKER: Final = struct.Struct("<3Q")

_TEXT: Final = f"""
@format = internal constant [7 x i8] c"KNIKNK\\00"
{TENSOR_LOOKS}
define internal void @give_back(ptr %managed) {{
entry:
  %deleter_at = getelementptr i8, ptr %managed, i64 {_DELETER_AT}
  %deleter = load ptr, ptr %deleter_at
  %none = icmp eq ptr %deleter, null
  br i1 %none, label %done, label %call
call:
  call void %deleter(ptr %managed)
  br label %done
done:
  ret void
}}

define internal void @capsule_goes(ptr %capsule) {{
entry:
  %managed = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr null)
  call void @give_back(ptr %managed)
  ret void
}}

; Gives what `Taken` says, or None. %taker has the function that hands over, DLPack's word for the wanted device, the function that tells the stream, and the
; type's Looks.
define ptr @{_SYMBOL}(ptr %self, ptr %value) {{
entry:
  %out = alloca ptr
  %stream_out = alloca i64
  store ptr null, ptr %out
  store i64 0, ptr %stream_out
  %taker = call ptr @PyByteArray_AsString(ptr %self)
  %looks = getelementptr i64, ptr %taker, i64 3
  %is_plain = call i1 @is_plain(ptr %value, ptr %looks)
  br i1 %is_plain, label %take, label %no
error:
  call void @PyErr_Clear()
  br label %no
no:
  call void @Py_IncRef(ptr {{none}})
  ret ptr {{none}}
take:
  %function = load ptr, ptr %taker
  %status = call i32 %function(ptr %value, ptr %out)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %error, label %taken
taken:
  %managed = load ptr, ptr %out
  %nothing = icmp eq ptr %managed, null
  br i1 %nothing, label %no, label %look
look:
  %major = load i32, ptr %managed
  %known = icmp eq i32 %major, 1
  %tensor = getelementptr i8, ptr %managed, i64 {_TENSOR_AT}
  %place = load Tensor.place of %tensor
  %place_wanted = load i64 1 of %taker
  %here = icmp eq i64 %place, %place_wanted
  %ours = and i1 %known, %here
  br i1 %ours, label %sizes, label %return
sizes:
  %axes4 = load Tensor.axes of %tensor
  %axes = sext i32 %axes4 to i64
  %shape = load Tensor.shape of %tensor
  %strides = load Tensor.strides of %tensor
  %packed = call i1 @contiguous(ptr %shape, ptr %strides, i64 %axes)
  br i1 %packed, label %stream, label %return
return:
  call void @give_back(ptr %managed)
  br label %no
stream:
  %tells = load ptr 2 of %taker
  %silent = icmp eq ptr %tells, null
  br i1 %silent, label %made, label %told
told:
  %kind = trunc i64 %place to i32
  %high = lshr i64 %place, 32
  %ordinal = trunc i64 %high to i32
  %untold4 = call i32 %tells(i32 %kind, i32 %ordinal, ptr %stream_out)
  %untold = icmp ne i32 %untold4, 0
  br i1 %untold, label %odd, label %made
odd:
  call void @PyErr_Clear()
  br label %return
made:
  %capsule = call ptr @PyCapsule_New(ptr %managed, ptr null, ptr @capsule_goes)
  %no_capsule = icmp eq ptr %capsule, null
  br i1 %no_capsule, label %odd, label %listed
listed:
  %list = call ptr @PyTuple_New(i64 %axes)
  %no_list = icmp eq ptr %list, null
  br i1 %no_list, label %drop, label %head
head:
  %axis = phi i64 [ 0, %listed ], [ %axis_next, %put ]
  %more = icmp slt i64 %axis, %axes
  br i1 %more, label %one, label %whole
one:
  %size = load i64 %axis of %shape
  %number = call ptr @PyLong_FromLongLong(i64 %size)
  %no_number = icmp eq ptr %number, null
  br i1 %no_number, label %drop_list, label %put
put:
  call i32 @PyTuple_SetItem(ptr %list, i64 %axis, ptr %number)
  %axis_next = add i64 %axis, 1
  br label %head
whole:
  %data = load Tensor.data of %tensor
  %begin = load Tensor.offset of %tensor
  %address = add i64 %data, %begin
  %element = load Tensor.element of %tensor
  %flags_at = getelementptr i8, ptr %managed, i64 {_FLAGS_AT}
  %flags = load i64, ptr %flags_at
  %handle = load i64, ptr %stream_out
  %result = call ptr (ptr, ...) @Py_BuildValue(ptr @format, i64 %address, ptr %list, i32 %element, i64 %flags, ptr %capsule, i64 %handle)
  ret ptr %result
drop_list:
  call void @Py_DecRef(ptr %list)
  br label %drop
drop:
  call void @Py_DecRef(ptr %capsule)
  ret ptr null
}}
"""


_definitions: list[MethodDefinition] = []  # what builtins point to


@lru_cache(maxsize=1)
def _function() -> int:
    """The address of the definition. Raises ToolchainError where llvmlite cannot be loaded."""
    address = link_builtins("vyre-take-over", written_out(with_objects(_TEXT, NAMES)), (_SYMBOL,))[_SYMBOL]
    _definitions.append(MethodDefinition(b"take_over", address, ONE_ARGUMENT, b"Takes over an array, or gives None."))
    return ctypes.addressof(_definitions[-1])


@lru_cache(maxsize=64)  # a bound, since it holds the types
def taker(type_: type, place: tuple[int, int]) -> Callable[[Any], Taken | None] | None:
    """What takes over arrays of a type on a device, by DLPack's kind and number: it gives None for what is left to Python. None for types that have no
    table of their own, do not tell their streams, or may negate in an unknown way, and where llvmlite cannot be loaded."""
    functions = exchange_functions(type_)
    if functions is None or functions.managed is None or functions.words is None or not (functions.stream or place[0] == CPU):
        return None
    try:
        definition = _function()
    except ToolchainError:
        return None
    stream = 0 if place[0] == CPU else functions.stream
    made: Callable[[Any], Taken | None]
    looks = LOOKS.pack(int(functions.needs_grad), *functions.words)
    made = new_builtin(definition, bytearray(_TAKER.pack(functions.managed_at, place[0] | place[1] << 32, stream) + looks), None)
    return made
