"""The LLVM IR of the method that changes the argument block of a launch, `launch.set`, for plain cases.

Those are Python's own numbers, and Buffers of the same signature. It follows `LIST_CODE` in one text, and calls none of its functions.
"""

from __future__ import annotations

from typing import Final

from vyre_py.drivers.native.builtins import SLOW_CALL
from vyre_py.drivers.native.values import CONVERT

__all__ = ["SET_CODE"]

# In shorthand; names in braces are objects of Python's (`builtins.with_objects`).
SET_CODE: Final = (
    CONVERT
    + SLOW_CALL
    + """
; The slot of a name, by identity of the text; -1 if there is none.
define internal i64 @slot_of(ptr %state, ptr %name) {
entry:
  %count = load Head.slot_count of %state
  %slots = load Head.slots of %state
  br label %head
head:
  %at = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i64 %at, %count
  br i1 %more, label %look, label %absent
look:
  %slot = getelementptr %Slot, ptr %slots, i64 %at
  %its = load Slot.name of %slot
  %same = icmp eq ptr %its, %name
  br i1 %same, label %found, label %body
body:
  %next = add i64 %at, 1
  br label %head
found:
  ret i64 %at
absent:
  ret i64 -1
}

; Enters a buffer as what slot %slot is to hold next; false for what has to go through Python.
define internal i1 @take_buffer(ptr %value, ptr %slot) {
entry:
  %type_at = getelementptr i8, ptr %value, i64 {type_at}
  %type = load ptr, ptr %type_at
  %is_buffer = icmp eq ptr %type, {buffer_type}
  br i1 %is_buffer, label %ask, label %no
ask:
  %object = call ptr @PyObject_GetAttr(ptr %value, ptr {record_name})
  %none = icmp eq ptr %object, null
  br i1 %none, label %nameless, label %kind
nameless:
  ; The slow way says what is wrong, and must not begin with an error set.
  call void @PyErr_Clear()
  br label %no
kind:
  %object_type_at = getelementptr i8, ptr %object, i64 {type_at}
  %object_type = load ptr, ptr %object_type_at
  ; The buffer holds its record.
  call void @Py_DecRef(ptr %object)
  %is_record = icmp eq ptr %object_type, {bytearray_type}
  br i1 %is_record, label %read, label %no
read:
  %record = call ptr @PyByteArray_AsString(ptr %object)
  %signature = load Record.signature of %record
  %wanted = load Slot.signature of %slot
  %fits = icmp eq i64 %signature, %wanted
  br i1 %fits, label %live, label %no
live:
  %alive = load Record.alive of %record
  %word = load i64, ptr %alive
  %is_alive = icmp ne i64 %word, 0
  %readonly = load Record.readonly of %record
  %written = load Slot.written of %slot
  %forbidden = and i64 %readonly, %written
  %allowed = icmp eq i64 %forbidden, 0
  %ok = and i1 %is_alive, %allowed
  br i1 %ok, label %enter, label %no
enter:
  %begin = load Record.begin of %record
  %end = load Record.end of %record
  store i64 %begin, Slot.next_begin of %slot
  store i64 %end, Slot.next_end of %slot
  %alive_word = ptrtoint ptr %alive to i64
  store i64 %alive_word, Slot.next_alive of %slot
  ret i1 true
no:
  ret i1 false
}

; Whether what slot %mine is to hold next keeps clear of all that the other slots are to hold.
define internal i1 @keeps_clear(ptr %slots, i64 %count, i64 %mine) {
entry:
  %slot = getelementptr %Slot, ptr %slots, i64 %mine
  %begin = load Slot.next_begin of %slot
  %end = load Slot.next_end of %slot
  %written = load Slot.written of %slot
  br label %head
head:
  %at = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i64 %at, %count
  br i1 %more, label %look, label %clear
look:
  %other = getelementptr %Slot, ptr %slots, i64 %at
  %kind = load Slot.kind of %other
  %is_buffer = icmp eq i64 %kind, 7
  %is_other = icmp ne i64 %at, %mine
  %its_begin = load Slot.next_begin of %other
  %its_end = load Slot.next_end of %other
  %its_written = load Slot.written of %other
  %any_written = or i64 %written, %its_written
  %matters = icmp ne i64 %any_written, 0
  %before = icmp ult i64 %begin, %its_end
  %after = icmp ult i64 %its_begin, %end
  %c1 = and i1 %before, %after
  %c2 = and i1 %c1, %matters
  %c3 = and i1 %c2, %is_other
  %clash = and i1 %c3, %is_buffer
  br i1 %clash, label %clashes, label %body
body:
  %next = add i64 %at, 1
  br label %head
clear:
  ret i1 true
clashes:
  ret i1 false
}

; METH_FASTCALL | METH_KEYWORDS of the type: launch.set(name=value, ...). All or nothing, and at once for other threads. What is not plain
; goes to launch._set, in Python.
define ptr @vyre_set(ptr %self, ptr %args, i64 %positional, ptr %keywords) {
entry:
  %numbers = alloca [8 x i64], align 8
  %values = alloca [8 x i64], align 8
  %olds = alloca [8 x ptr], align 8
  %rooms = alloca [8 x [128 x i8]], align 64
  %has_none = icmp eq ptr %keywords, null
  %has_positional = icmp ne i64 %positional, 0
  %plain_no = or i1 %has_none, %has_positional
  br i1 %plain_no, label %slow, label %sized
sized:
  %wanted = call i64 @PyTuple_Size(ptr %keywords)
  %many = icmp ugt i64 %wanted, 8
  br i1 %many, label %slow, label %ask
ask:
  %object = call ptr @PyObject_GetAttr(ptr %self, ptr {state_name})
  %absent = icmp eq ptr %object, null
  br i1 %absent, label %failed, label %begin
begin:
  ; The launch holds its state.
  call void @Py_DecRef(ptr %object)
  %state = call ptr @PyByteArray_AsString(ptr %object)
  %count = load Head.slot_count of %state
  %slots = load Head.slots of %state
  %frozen_word = load Head.frozen of %state
  ; What a launch that is just being made uses must not go before it is enqueued: Python holds on to it.
  %in_flight = load Head.in_flight of %state
  %frozen = or i64 %frozen_word, %in_flight
  br label %copy_head
copy_head:
  %c = phi i64 [ 0, %begin ], [ %c_next, %copy_body ]
  %c_more = icmp ult i64 %c, %count
  br i1 %c_more, label %copy_body, label %take_head
copy_body:
  %cs = getelementptr %Slot, ptr %slots, i64 %c
  %now_begin = load Slot.begin of %cs
  %now_end = load Slot.end of %cs
  store i64 %now_begin, Slot.next_begin of %cs
  store i64 %now_end, Slot.next_end of %cs
  %c_next = add i64 %c, 1
  br label %copy_head
take_head:
  %t = phi i64 [ 0, %copy_head ], [ %t_next, %taken ]
  %t_more = icmp ult i64 %t, %wanted
  br i1 %t_more, label %take, label %clear_head
take:
  %name = call ptr @PyTuple_GetItem(ptr %keywords, i64 %t)
  %number = call i64 @slot_of(ptr %state, ptr %name)
  %unknown = icmp slt i64 %number, 0
  br i1 %unknown, label %slow, label %known
known:
  store i64 %number, i64 %t of %numbers
  %value = load ptr %t of %args
  %slot = getelementptr %Slot, ptr %slots, i64 %number
  %kind = load Slot.kind of %slot
  %is_buffer = icmp eq i64 %kind, 7
  br i1 %is_buffer, label %buffer, label %scalar
buffer:
  %is_frozen = icmp ne i64 %frozen, 0
  br i1 %is_frozen, label %slow, label %free
free:
  %entered = call i1 @take_buffer(ptr %value, ptr %slot)
  br i1 %entered, label %taken, label %slow
scalar:
  %converted = call { i64, i1 } @convert(ptr %value, i64 %kind)
  %good = extractvalue { i64, i1 } %converted, 1
  br i1 %good, label %keep, label %slow
keep:
  %bits = extractvalue { i64, i1 } %converted, 0
  store i64 %bits, i64 %t of %values
  br label %taken
taken:
  %t_next = add i64 %t, 1
  br label %take_head
clear_head:
  %k = phi i64 [ 0, %take_head ], [ %k_next, %cleared ]
  %k_more = icmp ult i64 %k, %wanted
  br i1 %k_more, label %clear, label %describe_head
clear:
  %k_number = load i64 %k of %numbers
  %k_slot = getelementptr %Slot, ptr %slots, i64 %k_number
  %k_kind = load Slot.kind of %k_slot
  %k_buffer = icmp eq i64 %k_kind, 7
  br i1 %k_buffer, label %k_look, label %cleared
k_look:
  %is_clear = call i1 @keeps_clear(ptr %slots, i64 %count, i64 %k_number)
  br i1 %is_clear, label %cleared, label %slow
cleared:
  %k_next = add i64 %k, 1
  br label %clear_head
describe_head:
  ; All boxes of the buffers are described before anything is written: the driver may refuse.
  %e = phi i64 [ 0, %clear_head ], [ %e_next, %described ]
  %e_room = phi i64 [ 0, %clear_head ], [ %b_room, %described ]
  %e_more = icmp ult i64 %e, %wanted
  br i1 %e_more, label %describe, label %write_head
describe:
  %e_number = load i64 %e of %numbers
  %e_slot = getelementptr %Slot, ptr %slots, i64 %e_number
  %e_first = load Slot.boxes of %e_slot
  %e_begin = load Slot.next_begin of %e_slot
  br label %encode_head
encode_head:
  %b = phi ptr [ %e_first, %describe ], [ %b_next, %encoded ]
  %b_room = phi i64 [ %e_room, %describe ], [ %b_rooms, %encoded ]
  %b_none = icmp eq ptr %b, null
  br i1 %b_none, label %described, label %fits
fits:
  %b_many = icmp uge i64 %b_room, 8
  br i1 %b_many, label %slow, label %encode
encode:
  %b_next = load Boxes.next of %b
  %b_encode = load Boxes.encode of %b
  %b_type = load Boxes.type of %b
  %b_rank = load Boxes.rank of %b
  %b_extents = load Boxes.extents of %b
  %b_pitches = load Boxes.pitches of %b
  %b_box = load Boxes.box of %b
  %b_strides = load Boxes.strides of %b
  %b_swizzle = load Boxes.swizzle of %b
  %b_promotion = load Boxes.promotion of %b
  %b_to = getelementptr [8 x [128 x i8]], ptr %rooms, i64 0, i64 %b_room
  %b_type32 = trunc i64 %b_type to i32
  %b_rank32 = trunc i64 %b_rank to i32
  %b_swizzle32 = trunc i64 %b_swizzle to i32
  %b_promotion32 = trunc i64 %b_promotion to i32
  %b_status = call i32 %b_encode(ptr %b_to, i32 %b_type32, i32 %b_rank32, i64 %e_begin, ptr %b_extents, ptr %b_pitches, ptr %b_box, ptr %b_strides, i32 0,
                                 i32 %b_swizzle32, i32 %b_promotion32, i32 0)
  %b_rooms = add i64 %b_room, 1
  %b_good = icmp eq i32 %b_status, 0
  br i1 %b_good, label %encoded, label %slow
encoded:
  br label %encode_head
described:
  %e_next = add i64 %e, 1
  br label %describe_head
write_head:
  %w = phi i64 [ 0, %describe_head ], [ %w_next, %written ]
  %w_room = phi i64 [ 0, %describe_head ], [ %w_rooms, %written ]
  %w_more = icmp ult i64 %w, %wanted
  br i1 %w_more, label %write, label %hold_head
write:
  %w_number = load i64 %w of %numbers
  %w_slot = getelementptr %Slot, ptr %slots, i64 %w_number
  %w_kind = load Slot.kind of %w_slot
  %place = load Slot.address of %w_slot
  %w_bits = load i64 %w of %values
  switch i64 %w_kind, label %wide [ i64 7, label %address
    i64 1, label %narrow
    i64 3, label %narrow
    i64 4, label %narrow ]
narrow:
  %low = trunc i64 %w_bits to i32
  store i32 %low, ptr %place
  br label %written
wide:
  store i64 %w_bits, ptr %place
  br label %written
address:
  %from_begin = load Slot.next_begin of %w_slot
  %from_end = load Slot.next_end of %w_slot
  %from_alive = load Slot.next_alive of %w_slot
  store i64 %from_begin, Slot.begin of %w_slot
  store i64 %from_end, Slot.end of %w_slot
  %to_alive = load Slot.alive of %w_slot
  store i64 %from_alive, ptr %to_alive
  store i64 %from_begin, ptr %place
  %f_first = load Slot.boxes of %w_slot
  br label %fill_head
fill_head:
  %f = phi ptr [ %f_first, %address ], [ %f_next, %fill ]
  %f_room = phi i64 [ %w_room, %address ], [ %f_rooms, %fill ]
  %f_none = icmp eq ptr %f, null
  br i1 %f_none, label %written, label %fill
fill:
  %f_from = getelementptr [8 x [128 x i8]], ptr %rooms, i64 0, i64 %f_room
  %f_behind = load Boxes.behind of %f
  %f_to = getelementptr i8, ptr %place, i64 %f_behind
  call void @llvm.memcpy.p0.p0.i64(ptr %f_to, ptr %f_from, i64 128, i1 false)
  %f_rooms = add i64 %f_room, 1
  %f_next = load Boxes.next of %f
  br label %fill_head
written:
  %w_rooms = phi i64 [ %w_room, %narrow ], [ %w_room, %wide ], [ %f_room, %fill_head ]
  %w_next = add i64 %w, 1
  br label %write_head
hold_head:
  %h = phi i64 [ 0, %write_head ], [ %h_next, %held ]
  %h_more = icmp ult i64 %h, %wanted
  br i1 %h_more, label %hold, label %drop_head
hold:
  %old_at = getelementptr [8 x ptr], ptr %olds, i64 0, i64 %h
  store ptr null, ptr %old_at
  %h_number = load i64 %h of %numbers
  %h_slot = getelementptr %Slot, ptr %slots, i64 %h_number
  %h_kind = load Slot.kind of %h_slot
  %h_buffer = icmp eq i64 %h_kind, 7
  br i1 %h_buffer, label %swap, label %held
swap:
  %list = load Head.held of %state
  %index = load Slot.place of %h_slot
  %new = load ptr %h of %args
  %old = call ptr @PyList_GetItem(ptr %list, i64 %index)
  call void @Py_IncRef(ptr %old)
  store ptr %old, ptr %old_at
  call void @Py_IncRef(ptr %new)
  call i32 @PyList_SetItem(ptr %list, i64 %index, ptr %new)
  br label %held
held:
  %h_next = add i64 %h, 1
  br label %hold_head
drop_head:
  ; Last of all, when nothing of the state is looked at any more: to drop a buffer may run code that launches or sets this very launch.
  %d = phi i64 [ 0, %hold_head ], [ %d_next, %dropped ]
  %d_more = icmp ult i64 %d, %wanted
  br i1 %d_more, label %drop, label %finished
drop:
  %d_old = load ptr %d of %olds
  %d_none = icmp eq ptr %d_old, null
  br i1 %d_none, label %dropped, label %let_go
let_go:
  call void @Py_DecRef(ptr %d_old)
  br label %dropped
dropped:
  %d_next = add i64 %d, 1
  br label %drop_head
finished:
  call void @Py_IncRef(ptr %self)
  ret ptr %self
slow:
  %answer = call ptr @call_slow(ptr %self, ptr %args, i64 %positional, ptr %keywords)
  ret ptr %answer
failed:
  ret ptr null
}
"""
)
