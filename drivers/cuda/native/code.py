"""The LLVM IR of the builtins in `drivers.cuda.native.call_list`, which says what they do and how their state lies.

One module because it is one text for LLVM, whose functions share their types and call each other.

All of Python's own functions that are called here belong to its stable interface, and are called with the lock of the interpreter held,
except between `PyEval_SaveThread` and `PyEval_RestoreThread`.
"""

from __future__ import annotations

from typing import Final

__all__ = ["PYTHON_FUNCTIONS", "TEXT"]

# What the text below calls of Python.
PYTHON_FUNCTIONS: Final = (
    "PyByteArray_AsString", "PyErr_Clear", "PyEval_RestoreThread", "PyEval_SaveThread", "PyFloat_AsDouble", "PyList_GetItem", "PyList_SetItem",
    "PyLong_AsLongLong", "PyLong_AsLongLongAndOverflow", "PyLong_FromLongLong", "PyMem_RawFree", "PyMem_RawMalloc", "PyObject_CallObject", "PyObject_GetAttr",
    "PyObject_Vectorcall", "PyTuple_GetItem", "PyTuple_New", "PyTuple_SetItem", "PyTuple_Size", "Py_DecRef", "Py_IncRef",
)

# The types are those of `structs`, which has the numbers of the fields that stand in braces. `call_list` fills in other words in braces: addresses, and text.
TEXT: Final = """
{structs}

declare ptr @PyTuple_GetItem(ptr, i64)
declare i64 @PyTuple_Size(ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyByteArray_AsString(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyMem_RawMalloc(i64)
declare void @PyMem_RawFree(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyObject_CallObject(ptr, ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare void @PyErr_Clear()
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; handler(index, status), whose result is the builtin's
define internal ptr @hand_over(ptr %handler, i64 %index, i64 %status) noinline {
  %pair = call ptr @PyTuple_New(i64 2)
  %none = icmp eq ptr %pair, null
  br i1 %none, label %failed, label %fill
fill:
  %i = call ptr @PyLong_FromLongLong(i64 %index)
  %no_i = icmp eq ptr %i, null
  br i1 %no_i, label %drop, label %second
second:
  call i32 @PyTuple_SetItem(ptr %pair, i64 0, ptr %i)
  %s = call ptr @PyLong_FromLongLong(i64 %status)
  %no_s = icmp eq ptr %s, null
  br i1 %no_s, label %drop, label %hand
hand:
  call i32 @PyTuple_SetItem(ptr %pair, i64 1, ptr %s)
  %result = call ptr @PyObject_CallObject(ptr %handler, ptr %pair)
  call void @Py_DecRef(ptr %pair)
  ret ptr %result
drop:
  call void @Py_DecRef(ptr %pair)
  ret ptr null
failed:
  ret ptr null
}

; Makes the calls from %first on, and all of them in every further turn; gives the number that were made, and the last status.
define internal { i64, i64 } @make_calls(ptr %state, ptr %copies, i64 %first, i64 %turns) {
entry:
{extra_words}  %count = load i64, ptr %state
  %calls_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.calls}
  %calls = load ptr, ptr %calls_at
  br label %turn
turn:
  %turn_number = phi i64 [ 0, %entry ], [ %turn_next, %turned ]
  %from = phi i64 [ %first, %entry ], [ 0, %turned ]
  br label %head
head:
  %at = phi i64 [ 0, %turn ], [ %next, %done ]
  %copy = phi ptr [ %copies, %turn ], [ %copy_next, %done ]
  %more = icmp ult i64 %at, %count
  br i1 %more, label %body, label %turned
turned:
  %turn_next = add i64 %turn_number, 1
  %again = icmp ult i64 %turn_next, %turns
  br i1 %again, label %turn, label %all
body:
  %call = getelementptr %Call, ptr %calls, i64 %at
  %function = load ptr, ptr %call
  %form_at = getelementptr %Call, ptr %call, i64 0, i32 {Call.form}
  %form = load i64, ptr %form_at
  %bytes_at = getelementptr %Call, ptr %call, i64 0, i32 {Call.block_bytes}
  %bytes = load i64, ptr %bytes_at
  store i64 %bytes, ptr %size
  store ptr %copy, ptr %e1
  %bytes_up = add i64 %bytes, 15
  %rounded = and i64 %bytes_up, -16
  %copy_next = getelementptr i8, ptr %copy, i64 %rounded
  %skipped = icmp ult i64 %at, %from
  br i1 %skipped, label %done, label %make
make:
  {loads}
  %is_launch = icmp eq i64 %form, 1
  %is_launch_ex = icmp eq i64 %form, 2
  %x3 = select i1 %is_launch_ex, i64 %extra_word, i64 %v3
  %x10 = select i1 %is_launch, i64 %extra_word, i64 %v10
  %given = call i32 %function({arguments})
  %unheard = icmp eq i64 %form, 3
  %good = icmp eq i32 %given, 0
  %fine = or i1 %unheard, %good
  br i1 %fine, label %done, label %stop
done:
  %next = add i64 %at, 1
  br label %head
stop:
  %status = zext i32 %given to i64
  %r0 = insertvalue { i64, i64 } poison, i64 %at, 0
  %r1 = insertvalue { i64, i64 } %r0, i64 %status, 1
  ret { i64, i64 } %r1
all:
  %a0 = insertvalue { i64, i64 } poison, i64 %count, 0
  %a1 = insertvalue { i64, i64 } %a0, i64 0, 1
  ret { i64, i64 } %a1
}

; Copies every argument block: what other threads set from now on is not seen.
define internal void @copy_blocks(ptr %state, ptr %copies) {
entry:
  %count = load i64, ptr %state
  %calls_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.calls}
  %calls = load ptr, ptr %calls_at
  br label %head
head:
  %at = phi i64 [ 0, %entry ], [ %next, %body ]
  %copy = phi ptr [ %copies, %entry ], [ %copy_next, %body ]
  %more = icmp ult i64 %at, %count
  br i1 %more, label %body, label %done
body:
  %call = getelementptr %Call, ptr %calls, i64 %at
  %block_at = getelementptr %Call, ptr %call, i64 0, i32 {Call.block}
  %block = load ptr, ptr %block_at
  %bytes_at = getelementptr %Call, ptr %call, i64 0, i32 {Call.block_bytes}
  %bytes = load i64, ptr %bytes_at
  call void @llvm.memcpy.p0.p0.i64(ptr %copy, ptr %block, i64 %bytes, i1 false)
  %bytes_up = add i64 %bytes, 15
  %rounded = and i64 %bytes_up, -16
  %copy_next = getelementptr i8, ptr %copy, i64 %rounded
  %next = add i64 %at, 1
  br label %head
done:
  ret void
}

define internal void @count(ptr %state, i64 %turns) alwaysinline {
  %first_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.counter}
  %first = load ptr, ptr %first_at
  %much_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.counter_amount}
  %much = load i64, ptr %much_at
  %much_turned = mul i64 %much, %turns
  %old = load i64, ptr %first
  %new = add i64 %old, %much_turned
  store i64 %new, ptr %first
  %second_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.record}
  %second = load ptr, ptr %second_at
  %more_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.record_amount}
  %more = load i64, ptr %more_at
  %more_turned = mul i64 %more, %turns
  %old2 = load i64, ptr %second
  %new2 = add i64 %old2, %more_turned
  store i64 %new2, ptr %second
  ret void
}

; Counts this thread in among those that make calls of the list, or out: %by is 1 or -1. The lists that it is made of count it as well, and so does
; the device, in the word after its mode.
define internal void @enter(ptr %state, i64 %by) alwaysinline {
entry:
  %mine_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.in_flight}
  %mine = load i64, ptr %mine_at
  %mine_then = add i64 %mine, %by
  store i64 %mine_then, ptr %mine_at
  %mode_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.mode}
  %mode_word = load ptr, ptr %mode_at
  %busy_at = getelementptr i64, ptr %mode_word, i64 1
  %busy = load i64, ptr %busy_at
  %busy_then = add i64 %busy, %by
  store i64 %busy_then, ptr %busy_at
  %count_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.member_count}
  %count = load i64, ptr %count_at
  %alone = icmp eq i64 %count, 0
  br i1 %alone, label %done, label %members
members:
  %table_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.members}
  %table = load ptr, ptr %table_at
  br label %body
body:
  %at = phi i64 [ 0, %members ], [ %next, %body ]
  %member_at = getelementptr ptr, ptr %table, i64 %at
  %member = load ptr, ptr %member_at
  %its_at = getelementptr %Head, ptr %member, i64 0, i32 {Head.in_flight}
  %its = load i64, ptr %its_at
  %its_then = add i64 %its, %by
  store i64 %its_then, ptr %its_at
  %next = add i64 %at, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %body, label %done
done:
  ret void
}

; Waits, with the interpreter's lock given up, until no other thread makes calls of a list that one thread at a time may make.
define internal void @await_turn(ptr %state) noinline {
entry:
  %mine_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.in_flight}
  br label %look
look:
  %others = load i64, ptr %mine_at
  %free = icmp eq i64 %others, 0
  br i1 %free, label %done, label %wait
wait:
  %thread = call ptr @PyEval_SaveThread()
  call void @PyEval_RestoreThread(ptr %thread)
  br label %look
done:
  ret void
}

define internal void @take_turn(ptr %state) alwaysinline {
entry:
  %exclusive_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.exclusive}
  %exclusive = load i64, ptr %exclusive_at
  %any = icmp eq i64 %exclusive, 0
  br i1 %any, label %done, label %await
await:
  call void @await_turn(ptr %state)
  br label %done
done:
  ret void
}

; Which pointer of the table of live words leads to a zero; -1 if none.
define internal i64 @first_dead(ptr %state) {
entry:
  %count_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.alive_count}
  %count = load i64, ptr %count_at
  %table_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.alive}
  %table = load ptr, ptr %table_at
  br label %head
head:
  %at = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i64 %at, %count
  br i1 %more, label %look, label %alive
look:
  %word_at = getelementptr ptr, ptr %table, i64 %at
  %word = load ptr, ptr %word_at
  %value = load i64, ptr %word
  %dead = icmp eq i64 %value, 0
  br i1 %dead, label %found, label %body
body:
  %next = add i64 %at, 1
  br label %head
found:
  ret i64 %at
alive:
  ret i64 -1
}

; Whether a list that this one is made of was given up for another, or has a dead word.
define internal i1 @any_stale(ptr %state, i64 %count) noinline {
entry:
  %table_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.members}
  %table = load ptr, ptr %table_at
  br label %body
body:
  %at = phi i64 [ 0, %entry ], [ %next, %fresh ]
  %member_at = getelementptr ptr, ptr %table, i64 %at
  %member = load ptr, ptr %member_at
  %invalid_at = getelementptr %Head, ptr %member, i64 0, i32 {Head.invalid}
  %invalid = load i64, ptr %invalid_at
  %current = icmp eq i64 %invalid, 0
  br i1 %current, label %look, label %stale
look:
  %dead = call i64 @first_dead(ptr %member)
  %live = icmp slt i64 %dead, 0
  br i1 %live, label %fresh, label %stale
fresh:
  %next = add i64 %at, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %body, label %all
stale:
  ret i1 true
all:
  ret i1 false
}

; self is (state, handler, what is kept)
define internal ptr @perform(ptr %self, i64 %first, i64 %turns) {
entry:
  %object = call ptr @PyTuple_GetItem(ptr %self, i64 0)
  %state = call ptr @PyByteArray_AsString(ptr %object)
  %bytes_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.copies_bytes}
  %bytes = load i64, ptr %bytes_at
  %small = icmp ule i64 %bytes, 8192
  %on_stack = select i1 %small, i64 %bytes, i64 0
  %stack = alloca i8, i64 %on_stack, align 16
  br i1 %small, label %run, label %large
large:
  %heap = call ptr @PyMem_RawMalloc(i64 %bytes)
  %none = icmp eq ptr %heap, null
  br i1 %none, label %no_memory, label %run
run:
  %copies = phi ptr [ %stack, %entry ], [ %heap, %large ]
  ; Held meanwhile: another thread may drop the list.
  call void @Py_IncRef(ptr %self)
  call void @copy_blocks(ptr %state, ptr %copies)
  call void @enter(ptr %state, i64 1)
  %thread = call ptr @PyEval_SaveThread()
  %made = call { i64, i64 } @make_calls(ptr %state, ptr %copies, i64 %first, i64 %turns)
  call void @PyEval_RestoreThread(ptr %thread)
  call void @enter(ptr %state, i64 -1)
  br i1 %small, label %judge, label %give_back
give_back:
  call void @PyMem_RawFree(ptr %copies)
  br label %judge
judge:
  %status = extractvalue { i64, i64 } %made, 1
  %good = icmp eq i64 %status, 0
  br i1 %good, label %counted, label %bad
counted:
  call void @count(ptr %state, i64 %turns)
  call void @Py_DecRef(ptr %self)
  call void @Py_IncRef(ptr {none})
  ret ptr {none}
bad:
  %index = extractvalue { i64, i64 } %made, 0
  %handler = call ptr @PyTuple_GetItem(ptr %self, i64 1)
  %result = call ptr @hand_over(ptr %handler, i64 %index, i64 %status)
  call void @Py_DecRef(ptr %self)
  ret ptr %result
no_memory:
  %handler2 = call ptr @PyTuple_GetItem(ptr %self, i64 1)
  %result2 = call ptr @hand_over(ptr %handler2, i64 -1, i64 -2)
  ret ptr %result2
}

; METH_NOARGS: tests the mode, then makes all calls. In a forked child a thread of the parent may have the turn, so the mode is tested first.
define ptr @vyre_call(ptr %self, ptr %unused) {
entry:
  %object = call ptr @PyTuple_GetItem(ptr %self, i64 0)
  %state = call ptr @PyByteArray_AsString(ptr %object)
  %mode_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.mode}
  %mode_word = load ptr, ptr %mode_at
  %mode_first = load i64, ptr %mode_word
  %wait = icmp eq i64 %mode_first, 0
  br i1 %wait, label %turn, label %refused
turn:
  call void @take_turn(ptr %state)
  %mode = load i64, ptr %mode_word
  %go = icmp eq i64 %mode, 0
  br i1 %go, label %current, label %refused
current:
  ; The builtin of an invalid list calls the handler, which knows the list's successor.
  %invalid_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.invalid}
  %invalid = load i64, ptr %invalid_at
  %is_current = icmp eq i64 %invalid, 0
  br i1 %is_current, label %look, label %freed
look:
  %dead = call i64 @first_dead(ptr %state)
  %live = icmp slt i64 %dead, 0
  br i1 %live, label %look_on, label %freed
look_on:
  %members_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.member_count}
  %members = load i64, ptr %members_at
  %alone = icmp eq i64 %members, 0
  br i1 %alone, label %run, label %look_into
look_into:
  %stale = call i1 @any_stale(ptr %state, i64 %members)
  br i1 %stale, label %freed, label %run
run:
  %result = tail call ptr @perform(ptr %self, i64 0, i64 1)
  ret ptr %result
refused:
  %why = phi i64 [ %mode_first, %entry ], [ %mode, %turn ]
  %h1 = call ptr @PyTuple_GetItem(ptr %self, i64 1)
  %r1 = call ptr @hand_over(ptr %h1, i64 -1, i64 %why)
  ret ptr %r1
freed:
  %h2 = call ptr @PyTuple_GetItem(ptr %self, i64 1)
  %r2 = call ptr @hand_over(ptr %h2, i64 -1, i64 -1)
  ret ptr %r2
}

; METH_O: makes the calls from a number on, whatever the mode.
define ptr @vyre_resume(ptr %self, ptr %first) {
  %at = call i64 @PyLong_AsLongLong(ptr %first)
  %bad = icmp slt i64 %at, 0
  br i1 %bad, label %wrong, label %run
run:
  %object = call ptr @PyTuple_GetItem(ptr %self, i64 0)
  %state = call ptr @PyByteArray_AsString(ptr %object)
  call void @take_turn(ptr %state)
  %result = tail call ptr @perform(ptr %self, i64 %at, i64 1)
  ret ptr %result
wrong:
  ret ptr null
}

; METH_O: makes all calls so many times over, whatever the mode.
define ptr @vyre_repeat(ptr %self, ptr %times) {
  %turns = call i64 @PyLong_AsLongLong(ptr %times)
  %bad = icmp slt i64 %turns, 1
  br i1 %bad, label %wrong, label %run
run:
  %object = call ptr @PyTuple_GetItem(ptr %self, i64 0)
  %state = call ptr @PyByteArray_AsString(ptr %object)
  call void @take_turn(ptr %state)
  %result = tail call ptr @perform(ptr %self, i64 0, i64 %turns)
  ret ptr %result
wrong:
  ret ptr null
}

{convert}
; The slot of a name, by identity of the text; -1 if there is none.
define internal i64 @slot_of(ptr %state, ptr %name) {
entry:
  %count_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.slot_count}
  %count = load i64, ptr %count_at
  %slots_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.slots}
  %slots = load ptr, ptr %slots_at
  br label %head
head:
  %at = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i64 %at, %count
  br i1 %more, label %look, label %absent
look:
  %slot = getelementptr %Slot, ptr %slots, i64 %at
  %its = load ptr, ptr %slot
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
  %signature = load i64, ptr %record
  %wanted_at = getelementptr %Slot, ptr %slot, i64 0, i32 {Slot.signature}
  %wanted = load i64, ptr %wanted_at
  %fits = icmp eq i64 %signature, %wanted
  br i1 %fits, label %live, label %no
live:
  %alive_at = getelementptr %Record, ptr %record, i64 0, i32 {Record.alive}
  %alive = load ptr, ptr %alive_at
  %word = load i64, ptr %alive
  %is_alive = icmp ne i64 %word, 0
  %readonly_at = getelementptr %Record, ptr %record, i64 0, i32 {Record.readonly}
  %readonly = load i64, ptr %readonly_at
  %written_at = getelementptr %Slot, ptr %slot, i64 0, i32 {Slot.written}
  %written = load i64, ptr %written_at
  %forbidden = and i64 %readonly, %written
  %allowed = icmp eq i64 %forbidden, 0
  %ok = and i1 %is_alive, %allowed
  br i1 %ok, label %enter, label %no
enter:
  %begin_at = getelementptr %Record, ptr %record, i64 0, i32 {Record.begin}
  %begin = load i64, ptr %begin_at
  %end_at = getelementptr %Record, ptr %record, i64 0, i32 {Record.end}
  %end = load i64, ptr %end_at
  %next_begin = getelementptr %Slot, ptr %slot, i64 0, i32 {Slot.next_begin}
  store i64 %begin, ptr %next_begin
  %next_end = getelementptr %Slot, ptr %slot, i64 0, i32 {Slot.next_end}
  store i64 %end, ptr %next_end
  %next_alive = getelementptr %Slot, ptr %slot, i64 0, i32 {Slot.next_alive}
  %alive_word = ptrtoint ptr %alive to i64
  store i64 %alive_word, ptr %next_alive
  ret i1 true
no:
  ret i1 false
}

; Whether what slot %mine is to hold next keeps clear of all that the other slots are to hold.
define internal i1 @keeps_clear(ptr %slots, i64 %count, i64 %mine) {
entry:
  %slot = getelementptr %Slot, ptr %slots, i64 %mine
  %begin_at = getelementptr %Slot, ptr %slot, i64 0, i32 {Slot.next_begin}
  %begin = load i64, ptr %begin_at
  %end_at = getelementptr %Slot, ptr %slot, i64 0, i32 {Slot.next_end}
  %end = load i64, ptr %end_at
  %written_at = getelementptr %Slot, ptr %slot, i64 0, i32 {Slot.written}
  %written = load i64, ptr %written_at
  br label %head
head:
  %at = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i64 %at, %count
  br i1 %more, label %look, label %clear
look:
  %other = getelementptr %Slot, ptr %slots, i64 %at
  %kind_at = getelementptr %Slot, ptr %other, i64 0, i32 {Slot.kind}
  %kind = load i64, ptr %kind_at
  %is_buffer = icmp eq i64 %kind, 7
  %is_other = icmp ne i64 %at, %mine
  %its_begin_at = getelementptr %Slot, ptr %other, i64 0, i32 {Slot.next_begin}
  %its_begin = load i64, ptr %its_begin_at
  %its_end_at = getelementptr %Slot, ptr %other, i64 0, i32 {Slot.next_end}
  %its_end = load i64, ptr %its_end_at
  %its_written_at = getelementptr %Slot, ptr %other, i64 0, i32 {Slot.written}
  %its_written = load i64, ptr %its_written_at
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
  %count_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.slot_count}
  %count = load i64, ptr %count_at
  %slots_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.slots}
  %slots = load ptr, ptr %slots_at
  %frozen_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.frozen}
  %frozen_word = load i64, ptr %frozen_at
  ; What a launch that is just being made uses must not go before it is enqueued: Python holds on to it.
  %in_flight_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.in_flight}
  %in_flight = load i64, ptr %in_flight_at
  %frozen = or i64 %frozen_word, %in_flight
  br label %copy_head
copy_head:
  %c = phi i64 [ 0, %begin ], [ %c_next, %copy_body ]
  %c_more = icmp ult i64 %c, %count
  br i1 %c_more, label %copy_body, label %take_head
copy_body:
  %cs = getelementptr %Slot, ptr %slots, i64 %c
  %now_begin_at = getelementptr %Slot, ptr %cs, i64 0, i32 {Slot.begin}
  %now_begin = load i64, ptr %now_begin_at
  %now_end_at = getelementptr %Slot, ptr %cs, i64 0, i32 {Slot.end}
  %now_end = load i64, ptr %now_end_at
  %then_begin_at = getelementptr %Slot, ptr %cs, i64 0, i32 {Slot.next_begin}
  store i64 %now_begin, ptr %then_begin_at
  %then_end_at = getelementptr %Slot, ptr %cs, i64 0, i32 {Slot.next_end}
  store i64 %now_end, ptr %then_end_at
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
  %number_at = getelementptr [8 x i64], ptr %numbers, i64 0, i64 %t
  store i64 %number, ptr %number_at
  %value_at = getelementptr ptr, ptr %args, i64 %t
  %value = load ptr, ptr %value_at
  %slot = getelementptr %Slot, ptr %slots, i64 %number
  %kind_at = getelementptr %Slot, ptr %slot, i64 0, i32 {Slot.kind}
  %kind = load i64, ptr %kind_at
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
  %bits_at = getelementptr [8 x i64], ptr %values, i64 0, i64 %t
  store i64 %bits, ptr %bits_at
  br label %taken
taken:
  %t_next = add i64 %t, 1
  br label %take_head
clear_head:
  %k = phi i64 [ 0, %take_head ], [ %k_next, %cleared ]
  %k_more = icmp ult i64 %k, %wanted
  br i1 %k_more, label %clear, label %describe_head
clear:
  %k_number_at = getelementptr [8 x i64], ptr %numbers, i64 0, i64 %k
  %k_number = load i64, ptr %k_number_at
  %k_slot = getelementptr %Slot, ptr %slots, i64 %k_number
  %k_kind_at = getelementptr %Slot, ptr %k_slot, i64 0, i32 {Slot.kind}
  %k_kind = load i64, ptr %k_kind_at
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
  %e_number_at = getelementptr [8 x i64], ptr %numbers, i64 0, i64 %e
  %e_number = load i64, ptr %e_number_at
  %e_slot = getelementptr %Slot, ptr %slots, i64 %e_number
  %e_first_at = getelementptr %Slot, ptr %e_slot, i64 0, i32 {Slot.boxes}
  %e_first = load ptr, ptr %e_first_at
  %e_begin_at = getelementptr %Slot, ptr %e_slot, i64 0, i32 {Slot.next_begin}
  %e_begin = load i64, ptr %e_begin_at
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
  %b_next_at = getelementptr %Boxes, ptr %b, i64 0, i32 {Boxes.next}
  %b_next = load ptr, ptr %b_next_at
  %b_encode_at = getelementptr %Boxes, ptr %b, i64 0, i32 {Boxes.encode}
  %b_encode = load ptr, ptr %b_encode_at
  %b_type_at = getelementptr %Boxes, ptr %b, i64 0, i32 {Boxes.type}
  %b_type = load i64, ptr %b_type_at
  %b_rank_at = getelementptr %Boxes, ptr %b, i64 0, i32 {Boxes.rank}
  %b_rank = load i64, ptr %b_rank_at
  %b_extents_at = getelementptr %Boxes, ptr %b, i64 0, i32 {Boxes.extents}
  %b_extents = load ptr, ptr %b_extents_at
  %b_pitches_at = getelementptr %Boxes, ptr %b, i64 0, i32 {Boxes.pitches}
  %b_pitches = load ptr, ptr %b_pitches_at
  %b_box_at = getelementptr %Boxes, ptr %b, i64 0, i32 {Boxes.box}
  %b_box = load ptr, ptr %b_box_at
  %b_strides_at = getelementptr %Boxes, ptr %b, i64 0, i32 {Boxes.strides}
  %b_strides = load ptr, ptr %b_strides_at
  %b_swizzle_at = getelementptr %Boxes, ptr %b, i64 0, i32 {Boxes.swizzle}
  %b_swizzle = load i64, ptr %b_swizzle_at
  %b_promotion_at = getelementptr %Boxes, ptr %b, i64 0, i32 {Boxes.promotion}
  %b_promotion = load i64, ptr %b_promotion_at
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
  %w_number_at = getelementptr [8 x i64], ptr %numbers, i64 0, i64 %w
  %w_number = load i64, ptr %w_number_at
  %w_slot = getelementptr %Slot, ptr %slots, i64 %w_number
  %w_kind_at = getelementptr %Slot, ptr %w_slot, i64 0, i32 {Slot.kind}
  %w_kind = load i64, ptr %w_kind_at
  %place_at = getelementptr %Slot, ptr %w_slot, i64 0, i32 {Slot.address}
  %place = load ptr, ptr %place_at
  %w_bits_at = getelementptr [8 x i64], ptr %values, i64 0, i64 %w
  %w_bits = load i64, ptr %w_bits_at
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
  %from_begin_at = getelementptr %Slot, ptr %w_slot, i64 0, i32 {Slot.next_begin}
  %from_begin = load i64, ptr %from_begin_at
  %from_end_at = getelementptr %Slot, ptr %w_slot, i64 0, i32 {Slot.next_end}
  %from_end = load i64, ptr %from_end_at
  %from_alive_at = getelementptr %Slot, ptr %w_slot, i64 0, i32 {Slot.next_alive}
  %from_alive = load i64, ptr %from_alive_at
  %to_begin_at = getelementptr %Slot, ptr %w_slot, i64 0, i32 {Slot.begin}
  store i64 %from_begin, ptr %to_begin_at
  %to_end_at = getelementptr %Slot, ptr %w_slot, i64 0, i32 {Slot.end}
  store i64 %from_end, ptr %to_end_at
  %to_alive_at = getelementptr %Slot, ptr %w_slot, i64 0, i32 {Slot.alive}
  %to_alive = load ptr, ptr %to_alive_at
  store i64 %from_alive, ptr %to_alive
  store i64 %from_begin, ptr %place
  %f_first_at = getelementptr %Slot, ptr %w_slot, i64 0, i32 {Slot.boxes}
  %f_first = load ptr, ptr %f_first_at
  br label %fill_head
fill_head:
  %f = phi ptr [ %f_first, %address ], [ %f_next, %fill ]
  %f_room = phi i64 [ %w_room, %address ], [ %f_rooms, %fill ]
  %f_none = icmp eq ptr %f, null
  br i1 %f_none, label %written, label %fill
fill:
  %f_from = getelementptr [8 x [128 x i8]], ptr %rooms, i64 0, i64 %f_room
  %f_behind_at = getelementptr %Boxes, ptr %f, i64 0, i32 {Boxes.behind}
  %f_behind = load i64, ptr %f_behind_at
  %f_to = getelementptr i8, ptr %place, i64 %f_behind
  call void @llvm.memcpy.p0.p0.i64(ptr %f_to, ptr %f_from, i64 128, i1 false)
  %f_rooms = add i64 %f_room, 1
  %f_next_at = getelementptr %Boxes, ptr %f, i64 0, i32 {Boxes.next}
  %f_next = load ptr, ptr %f_next_at
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
  %h_number_at = getelementptr [8 x i64], ptr %numbers, i64 0, i64 %h
  %h_number = load i64, ptr %h_number_at
  %h_slot = getelementptr %Slot, ptr %slots, i64 %h_number
  %h_kind_at = getelementptr %Slot, ptr %h_slot, i64 0, i32 {Slot.kind}
  %h_kind = load i64, ptr %h_kind_at
  %h_buffer = icmp eq i64 %h_kind, 7
  br i1 %h_buffer, label %swap, label %held
swap:
  %list_at = getelementptr %Head, ptr %state, i64 0, i32 {Head.held}
  %list = load ptr, ptr %list_at
  %index_at = getelementptr %Slot, ptr %h_slot, i64 0, i32 {Slot.place}
  %index = load i64, ptr %index_at
  %new_at = getelementptr ptr, ptr %args, i64 %h
  %new = load ptr, ptr %new_at
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
  %d_old_at = getelementptr [8 x ptr], ptr %olds, i64 0, i64 %d
  %d_old = load ptr, ptr %d_old_at
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
  %method = call ptr @PyObject_GetAttr(ptr %self, ptr {slow_name})
  %no_method = icmp eq ptr %method, null
  br i1 %no_method, label %failed, label %go
go:
  %answer = call ptr @PyObject_Vectorcall(ptr %method, ptr %args, i64 %positional, ptr %keywords)
  call void @Py_DecRef(ptr %method)
  ret ptr %answer
failed:
  ret ptr null
}

; Writes pieces, each an address, a number of bytes and where they come from. Called with the interpreter's lock held, so at once.
define void @vyre_scatter(ptr %pieces, i64 %count) {
entry:
  br label %head
head:
  %at = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i64 %at, %count
  br i1 %more, label %body, label %done
body:
  %piece = getelementptr { ptr, i64, ptr }, ptr %pieces, i64 %at
  %target = load ptr, ptr %piece
  %bytes_at = getelementptr { ptr, i64, ptr }, ptr %piece, i64 0, i32 1
  %bytes = load i64, ptr %bytes_at
  %source_at = getelementptr { ptr, i64, ptr }, ptr %piece, i64 0, i32 2
  %source = load ptr, ptr %source_at
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %bytes, i1 false)
  %next = add i64 %at, 1
  br label %head
done:
  ret void
}
"""
