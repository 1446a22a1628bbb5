"""Native code that looks at arrays: NumPy's, Buffers, and those of libraries with DLPack's exchange table.

It takes what is plain, a C-contiguous array of the wanted dtype, rank and place that may be written where it is, and leaves the rest to Python, which says what
is wrong. NumPy's arrays are read as its C interface declares them (`PyArrayObject_fields`); `layout_problem` looks first whether they lie so.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from functools import cache
from typing import Any, Final

import numpy as np

from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.native.structs import EXCHANGE, RECORD, WANTED
from vyre_py.drivers.sharing.exchange_table import exchange_functions
from vyre_py.ir.language.nodes import Memory
from vyre_py.ir.language.types import SCALARS, Kind, Type

__all__ = ["ARRAYS", "NAMES", "TENSOR_LOOKS", "ExchangeTable", "layout_problem", "pack_record", "pack_wanted"]

# Attributes that the text asks for, by their names in it.
NAMES: Final = {"record_name": sys.intern("_record"), "bytes_name": sys.intern("_bytes"), "grad_name": sys.intern("requires_grad")}

# Where the fields of NumPy's arrays begin: behind what all objects begin with.
_HEAD: Final = object.__basicsize__
_DATA, _RANK, _SHAPE, _DTYPE, _FLAGS = _HEAD, _HEAD + 8, _HEAD + 16, _HEAD + 40, _HEAD + 48
_CONTIGUOUS, _WRITEABLE = 0x1, 0x400

_CODES: Final = {Kind.SINT: 0, Kind.UINT: 1, Kind.FLOAT: 2, Kind.BOOL: 6}
_OTHER_CODES: Final = {"bf16": 4, "f8e4m3": 10, "f8e5m2": 12}  # DLPack's kDLBfloat, kDLFloat8_e4m3fn, kDLFloat8_e5m2
_TYPES: Final = {name: number for number, name in enumerate(SCALARS)}


def _element(type_: Type) -> int:
    """DLPack's word for a scalar type: its code, bits and lanes."""
    return _OTHER_CODES.get(type_.name, _CODES[type_.kind]) | 8 * type_.size_bytes << 8 | 1 << 16


def pack_wanted(memory: Memory, first: int, place: tuple[int, int] | None) -> bytes:
    """What native code asks of an argument for a buffer, whose sizes are from number `first` on. `place` is DLPack's kind and number of the device."""
    type_, writes = memory.type, memory.access.writes
    device = -1 if place is None else place[0] | place[1] << 32
    flags = (_CONTIGUOUS | (_WRITEABLE if writes else 0)) if place == (1, 0) else -1  # NumPy's arrays are the CPU's
    axes, lanes = memory.rank + type_.is_vector, type_.lanes if type_.is_vector else 0
    return WANTED.pack(flags, id(type_.dtype), device, _element(type_.scalar), _TYPES[type_.scalar.name], int(writes), axes, memory.rank, lanes, first)


def pack_record(buffer: Buffer, begin: int, device: int, signature: int = 0) -> bytearray:
    """What native code reads of a buffer. `begin` is its first byte's address, `device` the address of its device's mode word, and `signature` a number that is
    the same for all buffers that may replace it in a launch. It is `Buffer._record`, alone or with what holds the memory."""
    shape, alive = buffer.host_shape, ctypes.addressof(buffer.allocation.alive)
    head = RECORD.pack(signature, begin, begin + buffer.size_bytes, alive, buffer.readonly, device, _TYPES[buffer.type.scalar.name], len(shape))
    return bytearray(head + struct.pack(f"<{len(shape)}Q", *shape))


@cache
def layout_problem() -> str:
    """Why NumPy's arrays cannot be read natively here; empty where they can. Nothing is read that a wrong answer would make unsafe: an array is longer."""
    probe = np.zeros((3, 5), np.float32)
    probe.flags.writeable = False
    if np.ndarray.__basicsize__ < _FLAGS + 8 or ctypes.sizeof(ctypes.c_void_p) != 8:
        return "NumPy's arrays are shorter here than its C interface says"

    def word(at: int, type_: Any = ctypes.c_uint64) -> Any:
        return type_.from_address(id(probe) + at).value

    found = word(_DATA), word(_RANK, ctypes.c_int32), word(_DTYPE), word(_FLAGS, ctypes.c_int32) & (_CONTIGUOUS | _WRITEABLE)
    if found != (probe.ctypes.data, 2, id(probe.dtype), _CONTIGUOUS):
        return "NumPy's arrays lie otherwise here than its C interface says"
    sizes = (ctypes.c_int64 * 2).from_address(word(_SHAPE))
    return "" if tuple(sizes) == probe.shape else "NumPy's shapes lie otherwise here than its C interface says"


class ExchangeTable:
    """Types of other libraries' arrays that native code may ask, learned as they come. Attribute: `rows`, the table in memory."""

    __slots__ = ("_types", "rows")

    ROOM: Final = 16

    def __init__(self) -> None:
        self.rows = bytearray(EXCHANGE.size_bytes * self.ROOM)
        self._types: list[type] = []

    def __len__(self) -> int:
        return len(self._types)

    def knows(self, value: Any) -> bool:
        """Whether the type of a value is among them."""
        return type(value) in self._types

    def learn(self, value: Any) -> bool:
        """Whether the type of a value was added."""
        type_: Any = type(value)
        if type_ in self._types or len(self._types) == self.ROOM:
            return False
        functions = exchange_functions(type_)
        if functions is None or not functions.view or functions.words is None:
            return False
        row = EXCHANGE.pack(id(type_), functions.view, functions.stream, int(functions.needs_grad), *functions.words)
        at = EXCHANGE.size_bytes * len(self._types)
        self.rows[at : at + len(row)] = row
        self._types.append(type_)
        return True

    def stream(self, value: Any, place: tuple[int, int]) -> int | None:
        """The handle of the stream on which the library of a value works now, on a device by DLPack's kind and number; None where that is not told."""
        type_: Any = type(value)
        functions = exchange_functions(type_) if type_ in self._types else None
        return None if functions is None else functions.stream_on(place)


# What is asked of arrays of other libraries.
TENSOR_LOOKS: Final = """
; whether a value is its memory and no more, as its type's Looks tell: nobody wants gradients of it, and its numbers are as they lie there
define internal i1 @is_plain(ptr %value, ptr %looks) alwaysinline {
entry:
  %negative = load Looks.negative of %looks
  %grad = load Looks.grad of %looks
  %asks = icmp ne i64 %grad, 0
  %has_words = icmp ne i64 %negative, 0
  br i1 %has_words, label %words, label %attribute
words:
  %pointer_at = load Looks.pointer_at of %looks
  %pointer_place = getelementptr i8, ptr %value, i64 %pointer_at
  %pointer = load ptr, ptr %pointer_place
  %keys_at = load Looks.keys_at of %looks
  %keys_place = getelementptr i8, ptr %pointer, i64 %keys_at
  %keys = load i64, ptr %keys_place
  %bits = and i64 %keys, %negative
  %as_it_lies = icmp eq i64 %bits, 0
  br i1 %as_it_lies, label %autograd, label %no
autograd:
  %grad_at = load Looks.grad_at of %looks
  %unknown = icmp eq i64 %grad_at, 0
  br i1 %unknown, label %attribute, label %known
known:
  %grad_place = getelementptr i8, ptr %pointer, i64 %grad_at
  %meta = load i64, ptr %grad_place
  %free = icmp eq i64 %meta, 0
  br i1 %free, label %yes, label %attribute
attribute:
  br i1 %asks, label %ask, label %yes
ask:
  %wants = call ptr @PyObject_GetAttr(ptr %value, ptr {grad_name})
  %silent = icmp eq ptr %wants, null
  br i1 %silent, label %error, label %asked
asked:
  call void @Py_DecRef(ptr %wants)
  %unwanted = icmp eq ptr %wants, {false}
  ret i1 %unwanted
error:
  call void @PyErr_Clear()
  br label %no
no:
  ret i1 false
yes:
  ret i1 true
}

; whether strides, in elements, are those of C order
define internal i1 @contiguous(ptr %shape, ptr %strides, i64 %axes) alwaysinline {
entry:
  %packed = icmp eq ptr %strides, null
  br i1 %packed, label %yes, label %head
head:
  %at = phi i64 [ %axes, %entry ], [ %axis, %next ]
  %step = phi i64 [ 1, %entry ], [ %step_next, %next ]
  %none = icmp eq i64 %at, 0
  br i1 %none, label %yes, label %look
look:
  %axis = sub i64 %at, 1
  %size = load i64 %axis of %shape
  %stride = load i64 %axis of %strides
  %one = icmp eq i64 %size, 1
  %fits = icmp eq i64 %stride, %step
  %good = or i1 %one, %fits
  br i1 %good, label %next, label %no
next:
  %step_next = mul i64 %step, %size
  br label %head
yes:
  ret i1 true
no:
  ret i1 false
}
"""

# Takes the address and the sizes of an array for a buffer; false for what has to go through Python. What is held meanwhile, a new reference, goes to %held.
ARRAYS: Final = f"""
; copies the sizes of %axes, and looks whether the last is that of the components of vectors
define internal i1 @take_sizes(ptr %wanted, ptr %shape, ptr %sizes) alwaysinline {{
entry:
  %rank = load Wanted.rank of %wanted
  %bytes = mul i64 %rank, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %sizes, ptr %shape, i64 %bytes, i1 false)
  %lanes = load Wanted.lanes of %wanted
  %scalar = icmp eq i64 %lanes, 0
  br i1 %scalar, label %yes, label %vector
vector:
  %last = load i64 %rank of %shape
  %same = icmp eq i64 %last, %lanes
  ret i1 %same
yes:
  ret i1 true
}}

{TENSOR_LOOKS}
; the row of a value's type in a table of types that may be asked; null where there is none
define internal ptr @exchange_of(ptr %table, i64 %count, ptr %value) alwaysinline {{
entry:
  %type_at = getelementptr i8, ptr %value, i64 {{type_at}}
  %type = load ptr, ptr %type_at
  br label %head
head:
  %at = phi i64 [ 0, %entry ], [ %next, %other ]
  %more = icmp ult i64 %at, %count
  br i1 %more, label %look, label %none
look:
  %row = getelementptr %Exchange, ptr %table, i64 %at
  %row_type = load Exchange.type of %row
  %found = icmp eq ptr %row_type, %type
  br i1 %found, label %yes, label %other
other:
  %next = add i64 %at, 1
  br label %head
yes:
  ret ptr %row
none:
  ret ptr null
}}

define internal i1 @take_array(ptr %state, ptr %value, ptr %wanted, ptr %address, ptr %sizes, ptr %held) alwaysinline {{
entry:
  %tensor = alloca %Tensor, align 8
  %type_at = getelementptr i8, ptr %value, i64 {{type_at}}
  %type = load ptr, ptr %type_at
  %axes = load Wanted.axes of %wanted
  %is_numpy = icmp eq ptr %type, {{array_type}}
  br i1 %is_numpy, label %numpy, label %not_numpy
no:
  ret i1 false
numpy:
  %flags_at = getelementptr i8, ptr %value, i64 {_FLAGS}
  %flags4 = load i32, ptr %flags_at
  %flags = sext i32 %flags4 to i64
  %needs = load Wanted.flags of %wanted
  %has = and i64 %flags, %needs
  %flags_fit = icmp eq i64 %has, %needs
  %dtype_at = getelementptr i8, ptr %value, i64 {_DTYPE}
  %dtype = load i64, ptr %dtype_at
  %dtype_wanted = load Wanted.dtype of %wanted
  %dtype_fits = icmp eq i64 %dtype, %dtype_wanted
  %n_axes_at = getelementptr i8, ptr %value, i64 {_RANK}
  %n_axes4 = load i32, ptr %n_axes_at
  %n_axes = sext i32 %n_axes4 to i64
  %n_axes_fit = icmp eq i64 %n_axes, %axes
  %n1 = and i1 %flags_fit, %dtype_fits
  %n2 = and i1 %n1, %n_axes_fit
  br i1 %n2, label %numpy_sizes, label %no
numpy_sizes:
  %n_shape_at = getelementptr i8, ptr %value, i64 {_SHAPE}
  %n_shape = load ptr, ptr %n_shape_at
  %n_data_at = getelementptr i8, ptr %value, i64 {_DATA}
  %n_data = load i64, ptr %n_data_at
  store i64 %n_data, ptr %address
  %n_fits = call i1 @take_sizes(ptr %wanted, ptr %n_shape, ptr %sizes)
  ret i1 %n_fits
not_numpy:
  %is_buffer = icmp eq ptr %type, {{buffer_type}}
  br i1 %is_buffer, label %buffer, label %foreign
buffer:
  %told = call ptr @PyObject_GetAttr(ptr %value, ptr {{record_name}})
  %untold = icmp eq ptr %told, null
  br i1 %untold, label %error, label %kind
error:
  call void @PyErr_Clear()
  ret i1 false
kind:
  ; The buffer holds its record.
  call void @Py_DecRef(ptr %told)
  %told_type_at = getelementptr i8, ptr %told, i64 {{type_at}}
  %told_type = load ptr, ptr %told_type_at
  %is_pair = icmp eq ptr %told_type, {{tuple_type}}
  br i1 %is_pair, label %pair, label %single
pair:
  %words = call ptr @PyTuple_GetItem(ptr %told, i64 0)
  %owner = call ptr @PyTuple_GetItem(ptr %told, i64 1)
  %memory = call ptr @PyObject_GetAttr(ptr %owner, ptr {{bytes_name}})
  %no_memory = icmp eq ptr %memory, null
  br i1 %no_memory, label %error, label %hold
hold:
  store ptr %memory, ptr %held
  %released = icmp eq ptr %memory, {{none}}
  br i1 %released, label %no, label %read
single:
  %is_record = icmp eq ptr %told_type, {{bytearray_type}}
  br i1 %is_record, label %read, label %no
read:
  %object = phi ptr [ %words, %hold ], [ %told, %single ]
  %record = call ptr @PyByteArray_AsString(ptr %object)
  %r_mode = load Record.device of %record
  %mode = load Entry.mode of %state
  %here = icmp eq ptr %r_mode, %mode
  %alive = load Record.alive of %record
  %alive_word = load i64, ptr %alive
  %lives = icmp ne i64 %alive_word, 0
  %r_type = load Record.type of %record
  %type_wanted = load Wanted.type of %wanted
  %type_fits = icmp eq i64 %r_type, %type_wanted
  %r_axes = load Record.axes of %record
  %r_axes_fit = icmp eq i64 %r_axes, %axes
  %readonly = load Record.readonly of %record
  %writes = load Wanted.writes of %wanted
  %forbidden = and i64 %readonly, %writes
  %allowed = icmp eq i64 %forbidden, 0
  %r1 = and i1 %here, %lives
  %r2 = and i1 %type_fits, %r_axes_fit
  %r3 = and i1 %r1, %r2
  %r4 = and i1 %r3, %allowed
  br i1 %r4, label %buffer_sizes, label %no
buffer_sizes:
  %r_begin = load Record.begin of %record
  store i64 %r_begin, ptr %address
  %r_shape = getelementptr %Record, ptr %record, i64 1
  %r_fits = call i1 @take_sizes(ptr %wanted, ptr %r_shape, ptr %sizes)
  ret i1 %r_fits
foreign:
  %count = load Entry.exchange_count of %state
  %table = load Entry.exchanges of %state
  %row = call ptr @exchange_of(ptr %table, i64 %count, ptr %value)
  %stranger = icmp eq ptr %row, null
  br i1 %stranger, label %no, label %known
known:
  %looks = address Exchange.looks of %row
  %is_plain = call i1 @is_plain(ptr %value, ptr %looks)
  br i1 %is_plain, label %view, label %no
view:
  %function = load Exchange.function of %row
  %status = call i32 %function(ptr %value, ptr %tensor)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %error, label %viewed
viewed:
  %place = load Tensor.place of %tensor
  %place_wanted = load Wanted.place of %wanted
  %place_fits = icmp eq i64 %place, %place_wanted
  %t_axes4 = load Tensor.axes of %tensor
  %t_axes = sext i32 %t_axes4 to i64
  %t_axes_fit = icmp eq i64 %t_axes, %axes
  %element4 = load Tensor.element of %tensor
  %element = zext i32 %element4 to i64
  %element_wanted = load Wanted.element of %wanted
  %element_fits = icmp eq i64 %element, %element_wanted
  %t1 = and i1 %place_fits, %t_axes_fit
  %t2 = and i1 %t1, %element_fits
  br i1 %t2, label %packed, label %no
packed:
  %t_shape = load Tensor.shape of %tensor
  %t_strides = load Tensor.strides of %tensor
  %is_packed = call i1 @contiguous(ptr %t_shape, ptr %t_strides, i64 %axes)
  br i1 %is_packed, label %tensor_sizes, label %no
tensor_sizes:
  %t_data = load Tensor.data of %tensor
  %begin = load Tensor.offset of %tensor
  %t_address = add i64 %t_data, %begin
  store i64 %t_address, ptr %address
  %t_fits = call i1 @take_sizes(ptr %wanted, ptr %t_shape, ptr %sizes)
  ret i1 %t_fits
}}
"""
