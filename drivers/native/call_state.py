"""Native code of a pipeline's function: the arguments of a call, as Python hands them over, to addresses, sizes and bytes of params, and those to a plan.

A device's own text ends in the builtin, which runs what was planned. What is not plain goes to the method `_slow` of the function, in Python.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.native.arrays import ARRAYS, NAMES, ExchangeTable, pack_wanted
from vyre_py.drivers.native.builtins import (
    FAST_KEYWORDS,
    SLOW_CALL,
    MethodDefinition,
    link_builtins,
    new_method,
    with_objects,
)
from vyre_py.drivers.native.shorthand import written_out
from vyre_py.drivers.native.structs import ENTRY
from vyre_py.drivers.native.values import CONVERT, VALUE_KINDS
from vyre_py.drivers.sharing.c_callable import KERNEL
from vyre_py.ir.language.nodes import Memory
from vyre_py.lowering.artifact.parts import Interface
from vyre_py.lowering.llvm.callable import GRID_WORDS

__all__ = ["ENTRY_CALLS", "EntryState", "entry_method"]

_STATE_NAME, _SLOW_NAME, _REST_NAME, _STREAM, _CUDA_STREAM = map(sys.intern, ("_state", "_slow", "_rest", "stream", "__cuda_stream__"))
_WORD_BYTES: Final = 8

# What a device's text calls: `take_arguments`, `release`, and `call_rest`, which hands a plan to the method `_rest` of the function.
ENTRY_CALLS: Final = f"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
{CONVERT}
{ARRAYS}
; gives back what was held
define internal void @release(ptr %held, i64 %count) {{
entry:
  br label %head
head:
  %at = phi i64 [ 0, %entry ], [ %next, %go_on ]
  %more = icmp ult i64 %at, %count
  br i1 %more, label %look, label %done
look:
  %object = load ptr %at of %held
  %some = icmp ne ptr %object, null
  br i1 %some, label %drop, label %go_on
drop:
  call void @Py_DecRef(ptr %object)
  br label %go_on
go_on:
  %next = add i64 %at, 1
  br label %head
done:
  ret void
}}

; puts the arguments where their names are in the order of declaration; false where one is unknown, given twice, or one too many
define internal i1 @by_name(ptr %state, ptr %args, i64 %positional, ptr %keywords, ptr %given) alwaysinline {{
entry:
  %count = load Entry.name_count of %state
  %names = load Entry.names of %state
  %buffers = load Entry.buffer_count of %state
  %params = load Entry.param_count of %state
  %slots = add i64 %buffers, %params
  ; one more than names: the stream's, where the Program has one of that name
  %room = add i64 %count, 1
  %bytes = mul i64 %room, 8
  call void @llvm.memset.p0.i64(ptr %given, i8 0, i64 %bytes, i1 false)
  %too_many = icmp ugt i64 %positional, %slots
  br i1 %too_many, label %no, label %copy
copy:
  %first = mul i64 %positional, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %given, ptr %args, i64 %first, i1 false)
  %none = icmp eq ptr %keywords, null
  br i1 %none, label %yes, label %sized
sized:
  %named = call i64 @PyTuple_Size(ptr %keywords)
  br label %head
head:
  %at = phi i64 [ 0, %sized ], [ %next, %put ]
  %more = icmp slt i64 %at, %named
  br i1 %more, label %find, label %yes
find:
  %name = call ptr @PyTuple_GetItem(ptr %keywords, i64 %at)
  br label %seek
seek:
  %number = phi i64 [ 0, %find ], [ %number_next, %on ]
  %left = icmp ult i64 %number, %count
  br i1 %left, label %compare, label %no
compare:
  %its = load ptr %number of %names
  %same = icmp eq ptr %its, %name
  br i1 %same, label %found, label %on
on:
  %number_next = add i64 %number, 1
  br label %seek
found:
  %place = getelementptr ptr, ptr %given, i64 %number
  %before = load ptr, ptr %place
  %free = icmp eq ptr %before, null
  br i1 %free, label %put, label %no
put:
  %index = add i64 %positional, %at
  %value = load ptr %index of %args
  store ptr %value, ptr %place
  %next = add i64 %at, 1
  br label %head
yes:
  ret i1 true
no:
  ret i1 false
}}

; false where something has to go through Python; what is held then is released by the caller as well
; the object that was given as the stream, or null, goes to %stream_out
define internal i1 @take_arguments(ptr %state, ptr %args, i64 %positional, ptr %keywords, ptr %given, ptr %addresses, ptr %sizes, ptr %bytes, ptr %held,
                                   ptr %stream_out) {{
entry:
  %bits = alloca i64, align 8
  %buffers = load Entry.buffer_count of %state
  %held_bytes = mul i64 %buffers, 8
  call void @llvm.memset.p0.i64(ptr %held, i8 0, i64 %held_bytes, i1 false)
  %named = call i1 @by_name(ptr %state, ptr %args, i64 %positional, ptr %keywords, ptr %given)
  br i1 %named, label %tables, label %no
tables:
  %wanted_table = load Entry.buffers of %state
  %params = load Entry.param_count of %state
  %param_table = load Entry.params of %state
  %dims = load Entry.dim_count of %state
  %size_count = load Entry.size_count of %state
  %dim_first = sub i64 %size_count, %dims
  br label %buffer_head
buffer_head:
  %b = phi i64 [ 0, %tables ], [ %b_next, %buffer_taken ]
  %b_more = icmp ult i64 %b, %buffers
  br i1 %b_more, label %buffer, label %param_head
buffer:
  %b_value = load ptr %b of %given
  %b_none = icmp eq ptr %b_value, null
  br i1 %b_none, label %no, label %buffer_take
buffer_take:
  %wanted = getelementptr %Wanted, ptr %wanted_table, i64 %b
  %first = load Wanted.first of %wanted
  %b_sizes = getelementptr i64, ptr %sizes, i64 %first
  %b_address = getelementptr i64, ptr %addresses, i64 %b
  %b_held = getelementptr ptr, ptr %held, i64 %b
  %b_fits = call i1 @take_array(ptr %state, ptr %b_value, ptr %wanted, ptr %b_address, ptr %b_sizes, ptr %b_held)
  br i1 %b_fits, label %buffer_taken, label %no
buffer_taken:
  %b_next = add i64 %b, 1
  br label %buffer_head
param_head:
  %p = phi i64 [ 0, %buffer_head ], [ %p_next, %param_taken ]
  %target = phi ptr [ %bytes, %buffer_head ], [ %target_next, %param_taken ]
  %p_more = icmp ult i64 %p, %params
  br i1 %p_more, label %param, label %dim_head
param:
  %p_number = add i64 %buffers, %p
  %p_value = load ptr %p_number of %given
  %p_none = icmp eq ptr %p_value, null
  br i1 %p_none, label %no, label %param_take
param_take:
  %p_row = getelementptr [2 x i64], ptr %param_table, i64 %p
  %kind = load i64, ptr %p_row
  %p_size = load i64 1 of %p_row
  %converted = call {{ i64, i1 }} @convert(ptr %p_value, i64 %kind)
  %p_bits = extractvalue {{ i64, i1 }} %converted, 0
  %p_fits = extractvalue {{ i64, i1 }} %converted, 1
  br i1 %p_fits, label %param_taken, label %no
param_taken:
  store i64 %p_bits, ptr %bits
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %bits, i64 %p_size, i1 false)
  %target_next = getelementptr i8, ptr %target, i64 %p_size
  %p_next = add i64 %p, 1
  br label %param_head
dim_head:
  %d = phi i64 [ 0, %param_head ], [ %d_next, %dim_taken ]
  %d_more = icmp ult i64 %d, %dims
  %d_behind = add i64 %buffers, %params
  %d_number = add i64 %d_behind, %d
  %d_value = load ptr %d_number of %given
  br i1 %d_more, label %dim, label %taken
dim:
  %d_size_number = add i64 %dim_first, %d
  %d_none = icmp eq ptr %d_value, null
  br i1 %d_none, label %dim_unset, label %dim_set
dim_set:
  %d_converted = call {{ i64, i1 }} @convert(ptr %d_value, i64 {VALUE_KINDS["u64"]})
  %d_bits = extractvalue {{ i64, i1 }} %d_converted, 0
  %d_fits = extractvalue {{ i64, i1 }} %d_converted, 1
  br i1 %d_fits, label %dim_taken, label %no
dim_unset:
  br label %dim_taken
dim_taken:
  %d_size = phi i64 [ -1, %dim_unset ], [ %d_bits, %dim_set ]
  store i64 %d_size, i64 %d_size_number of %sizes
  %d_next = add i64 %d, 1
  br label %dim_head
taken:
  ; the last name is that of the stream, unless the Program has one of its own
  %default = icmp eq ptr %d_value, {{none}}
  %stream = select i1 %default, ptr null, ptr %d_value
  store ptr %stream, ptr %stream_out
  ret i1 true
no:
  ret i1 false
}}

; self._rest(number, begin, grid, block), whose result is the builtin's
define internal ptr @call_rest(ptr %self, i64 %number, i64 %begin, ptr %grid, ptr %block, i64 %block_bytes) noinline {{
entry:
  %given = alloca [4 x ptr], align 8
  %n = call ptr @PyLong_FromLongLong(i64 %number)
  %b = call ptr @PyLong_FromLongLong(i64 %begin)
  %g = call ptr @PyBytes_FromStringAndSize(ptr %grid, i64 {8 * GRID_WORDS})
  %k = call ptr @PyBytes_FromStringAndSize(ptr %block, i64 %block_bytes)
  %method = call ptr @PyObject_GetAttr(ptr %self, ptr {{rest_name}})
  store ptr %n, ptr %given
  store ptr %b, ptr 1 of %given
  store ptr %g, ptr 2 of %given
  store ptr %k, ptr 3 of %given
  %no_n = icmp eq ptr %n, null
  %no_b = icmp eq ptr %b, null
  %no_g = icmp eq ptr %g, null
  %no_k = icmp eq ptr %k, null
  %no_method = icmp eq ptr %method, null
  %w1 = or i1 %no_n, %no_b
  %w2 = or i1 %no_g, %no_k
  %w3 = or i1 %w1, %w2
  %wrong = or i1 %w3, %no_method
  br i1 %wrong, label %drop, label %go
go:
  %made = call ptr @PyObject_Vectorcall(ptr %method, ptr %given, i64 4, ptr null)
  br label %drop
drop:
  %result = phi ptr [ null, %entry ], [ %made, %go ]
  call void @release(ptr %given, i64 4)
  br i1 %no_method, label %end, label %drop_method
drop_method:
  call void @Py_DecRef(ptr %method)
  br label %end
end:
  ret ptr %result
}}
{SLOW_CALL}"""


class EntryState:
    """The state of one function, and all that it points to. Attribute: `words`, the bytes that native code reads."""

    ROOM: ClassVar[int] = ENTRY.size_bytes

    __slots__ = ("_held", "exchanges", "words")

    def __init__(
        self, interface: Interface, place: tuple[int, int] | None, mode: int, plan: int, params_bytes: int, block_bytes: int, kernels: int, workgroup: int,
        counters: Sequence[int], extra: int = 0,
    ) -> None:  # fmt: skip
        """`place` is DLPack's kind and number of the device, `mode` the address of its mode word, `plan` that of the native plan, `kernels` that of its table
        of kernels, `counters` are addresses of words to add to, and `extra` is the device's own."""
        own = [thing.name for things in (interface.buffers, interface.params, interface.dims) for thing in things]
        names = [sys.intern(name) for name in own] + ([] if _STREAM in own else [_STREAM])
        first, rows = 0, b""
        for memory in interface.buffers:
            rows += pack_wanted(memory, first, place)
            first += memory.rank
        kinds = [word for param in interface.params for word in (VALUE_KINDS.get(param.type.name, 0), param.type.size_bytes)]
        self.exchanges = ExchangeTable()
        tables = [self._words([*map(id, names), 0]), bytearray(rows or 8), self._words(kinds or [0]), self.exchanges.rows, self._words(list(counters))]
        pins = [(ctypes.c_char * len(table)).from_buffer(table) for table in tables]
        at = [ctypes.addressof(pin) for pin in pins]
        size_count = first + len(interface.dims)
        self.words = bytearray(ENTRY.pack(
            mode, at[0], len(names), at[1], len(interface.buffers), at[2], len(interface.params), len(interface.dims), size_count, params_bytes,
            block_bytes, at[3], 0, plan, kernels, workgroup, at[4], extra,
        ))  # fmt: skip
        self._held = (names, tables, pins, [memory.type.dtype for memory in interface.buffers])

    @staticmethod
    def _words(numbers: Sequence[int]) -> bytearray:
        return bytearray(b"".join([number.to_bytes(_WORD_BYTES, "little") for number in numbers]))

    def misfit(self, memory: Memory, value: Any) -> str:
        """Why native code does not take a value for a buffer, after its name; empty where it does, or a rule is broken that `bind` names."""
        if isinstance(value, Buffer):
            return ""
        if type(value) is np.ndarray:
            odd = [f"has dtype {value.dtype}, not {memory.type.dtype}"] if value.dtype != memory.type.dtype else []
            return ", and ".join(odd + ([] if value.flags.c_contiguous else ["is not C-contiguous"]))
        return "" if self.exchanges.knows(value) else f"is a {type(value).__name__}, which is no array that native code knows"

    def learn(self, value: Any) -> bool:
        """Has native code ask arrays of a value's type from now on; gives whether it is new."""
        if not self.exchanges.learn(value):
            return False
        at = ENTRY.offset("exchange_count")
        self.words[at : at + _WORD_BYTES] = len(self.exchanges).to_bytes(_WORD_BYTES, "little")
        return True


_definitions: list[MethodDefinition] = []  # what methods point to


def entry_method(owner: type, name: str, text: str, doc: str) -> Callable[..., Any]:
    """The method `__call__` of a type whose instances have `_state` (the words of an `EntryState`), `_slow` and `_rest`. `text` is the device's own, which
    defines `name` and follows `ENTRY_CALLS`. Raises ToolchainError where llvmlite cannot be loaded."""
    objects = {
        "array_type": np.ndarray, "buffer_type": Buffer, "state_name": _STATE_NAME, "slow_name": _SLOW_NAME, "rest_name": _REST_NAME,
        "cuda_stream_name": _CUDA_STREAM, **NAMES,
    }  # fmt: skip
    address = link_builtins("vyre-entry", written_out(with_objects(ENTRY_CALLS + text, objects), KERNEL), (name,))[name]
    definition = MethodDefinition(b"__call__", address, FAST_KEYWORDS, doc.encode())
    _definitions.append(definition)
    made: Callable[..., Any] = new_method(owner, ctypes.addressof(definition))
    return made
