"""The LLVM IR of the builtins that run a list of calls: `call_list` says what they do and how their state lies."""

from __future__ import annotations

from typing import Final

from vyre_py.drivers.cuda.native.driver_call import EXTRA_WORDS
from vyre_py.drivers.native.shorthand import argument_loads
from vyre_py.drivers.native.structs import ARGUMENTS

__all__ = ["LIST_CODE"]

# What a call takes: its words, but for the places that may hold the launch's own.
_ARGUMENTS: Final = ", ".join(f"i64 %{'x' if n in (3, 10) else 'v'}{n}" for n in range(ARGUMENTS))

# In shorthand; `{none}` is Python's None (`builtins.with_objects`).
LIST_CODE: Final = """
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
{extra_words}  %count = load Head.call_count of %state
  %calls = load Head.calls of %state
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
  %function = load Call.function of %call
  %form = load Call.form of %call
  %bytes = load Call.block_bytes of %call
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
  %count = load Head.call_count of %state
  %calls = load Head.calls of %state
  br label %head
head:
  %at = phi i64 [ 0, %entry ], [ %next, %body ]
  %copy = phi ptr [ %copies, %entry ], [ %copy_next, %body ]
  %more = icmp ult i64 %at, %count
  br i1 %more, label %body, label %done
body:
  %call = getelementptr %Call, ptr %calls, i64 %at
  %block = load Call.block of %call
  %bytes = load Call.block_bytes of %call
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
  %first = load Head.counter of %state
  %much = load Head.counter_amount of %state
  %much_turned = mul i64 %much, %turns
  %old = load i64, ptr %first
  %new = add i64 %old, %much_turned
  store i64 %new, ptr %first
  %second = load Head.record of %state
  %more = load Head.record_amount of %state
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
  %mine_at = address Head.in_flight of %state
  %mine = load i64, ptr %mine_at
  %mine_then = add i64 %mine, %by
  store i64 %mine_then, ptr %mine_at
  %mode_word = load Head.mode of %state
  %busy_at = getelementptr i64, ptr %mode_word, i64 1
  %busy = load i64, ptr %busy_at
  %busy_then = add i64 %busy, %by
  store i64 %busy_then, ptr %busy_at
  %count = load Head.member_count of %state
  %alone = icmp eq i64 %count, 0
  br i1 %alone, label %done, label %members
members:
  %table = load Head.members of %state
  br label %body
body:
  %at = phi i64 [ 0, %members ], [ %next, %body ]
  %member = load ptr %at of %table
  %its_at = address Head.in_flight of %member
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
  br label %look
look:
  %others = load Head.in_flight of %state
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
  %exclusive = load Head.exclusive of %state
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
  %count = load Head.alive_count of %state
  %table = load Head.alive of %state
  br label %head
head:
  %at = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i64 %at, %count
  br i1 %more, label %look, label %alive
look:
  %word = load ptr %at of %table
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
  %table = load Head.members of %state
  br label %body
body:
  %at = phi i64 [ 0, %entry ], [ %next, %fresh ]
  %member = load ptr %at of %table
  %invalid = load Head.invalid of %member
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
  %bytes = load Head.copies_bytes of %state
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
  %mode_word = load Head.mode of %state
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
  %invalid = load Head.invalid of %state
  %is_current = icmp eq i64 %invalid, 0
  br i1 %is_current, label %look, label %freed
look:
  %dead = call i64 @first_dead(ptr %state)
  %live = icmp slt i64 %dead, 0
  br i1 %live, label %look_on, label %freed
look_on:
  %members = load Head.member_count of %state
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

; Writes pieces, each an address, a number of bytes and where they come from. Called with the interpreter's lock held, so at once.
define void @vyre_scatter(ptr %pieces, i64 %count) {
entry:
  br label %head
head:
  %at = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i64 %at, %count
  br i1 %more, label %body, label %done
body:
  %piece = getelementptr %Piece, ptr %pieces, i64 %at
  %target = load Piece.target of %piece
  %bytes = load Piece.bytes of %piece
  %source = load Piece.source of %piece
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %bytes, i1 false)
  %next = add i64 %at, 1
  br label %head
done:
  ret void
}
""".replace("{extra_words}", EXTRA_WORDS).replace("{loads}", argument_loads(ARGUMENTS)).replace("{arguments}", _ARGUMENTS)
