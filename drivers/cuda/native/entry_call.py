"""Native code of functions on CUDA: a call for C, and the builtin that Python calls. Each is one call of the driver.

Buffers of the device are launched over on its own stream. Arrays of one other library are launched over on the stream that the library works on now, which its
exchange table tells, so that the launch comes after what the library enqueued before, and before what it enqueues later; where a stream is given it has to be
that one. All else goes to Python, where streams are ordered with each other.
"""

from __future__ import annotations

from typing import Final

from vyre_py.drivers.cuda.native.driver_call import extra_words, in_context
from vyre_py.drivers.native.native_entry import C_PLAN, COUNT_FUNCTION, entry_begin
from vyre_py.drivers.native.shorthand import written_out
from vyre_py.drivers.sharing.c_callable import CALLABLE, KERNEL
from vyre_py.lowering.llvm.callable import GRID_WORDS

__all__ = ["C_CALL", "C_CALL_SYMBOL", "ENQUEUE", "ENQUEUE_FUNCTION", "ENQUEUE_SYMBOL", "ENTRY_CALL", "ENTRY_CALL_SYMBOL"]

_LAUNCHED_AT: Final = 3  # of the grid's words, the first of those that the entry takes

# Within a function: the workgroups that the entry takes, of a planned %grid.
_GROUP_LOADS: Final = "\n".join(f"  %g{axis} = load i64 {_LAUNCHED_AT + number} of %grid" for number, axis in enumerate("xyz"))

# Launches a kernel, of a planned number, with a planned block; the first three of the grid's words are not looked at. Gives the driver's status.
_LAUNCH_FUNCTION: Final = f"""
define internal i32 @launch_kernel(ptr %launcher, ptr %kernel, i64 %index, ptr %grid, i64 %stream, ptr %block, i64 %bytes) {{
entry:
{extra_words("ptr %block")}  %function = load Kernel.function of %kernel
  %shared = load Kernel.workgroup_bytes of %kernel
{_GROUP_LOADS}
  %width = load Launcher.width of %launcher
  %heights = load Launcher.heights of %launcher
  %height = load i64 %index of %heights
  %depth = load Launcher.depth of %launcher
  %launch = load Launcher.launch of %launcher
  %status = call i32 %launch(ptr %function, i64 %gx, i64 %gy, i64 %gz, i64 %width, i64 %height, i64 %depth, i64 %shared, i64 %stream, i64 0,
                             i64 %extra_word)
  ret i32 %status
}}
"""

ENQUEUE_SYMBOL: Final = "vyre_enqueue_cuda"
# The same with the context made current where it is not, in shorthand.
ENQUEUE_FUNCTION: Final = f"""
{_LAUNCH_FUNCTION}
{in_context("launch_kernel", "ptr %launcher, ptr %kernel, i64 %index, ptr %grid, i64 %stream, ptr %block, i64 %bytes", "Launcher")}
define i32 @{ENQUEUE_SYMBOL}(ptr %launcher, ptr %kernel, i64 %index, ptr %grid, i64 %stream, ptr %block, i64 %bytes) {{
entry:
  %status = call i32 @in_context(ptr %launcher, ptr %launcher, ptr %kernel, i64 %index, ptr %grid, i64 %stream, ptr %block, i64 %bytes)
  ret i32 %status
}}
"""
# By itself, for callers that pack blocks.
ENQUEUE: Final = written_out(ENQUEUE_FUNCTION, KERNEL)

C_CALL_SYMBOL: Final = "vyre_call_cuda"
# What follows the plan in its text. Its state is a launcher, whose word of callers counts threads in here: who closes the device or captures on it first says
# so in the mode word, and then waits for them.
C_CALL: Final = written_out(f"""
{ENQUEUE_FUNCTION}
define i32 @{C_CALL_SYMBOL}(ptr %callable, ptr %addresses, ptr %sizes, ptr %params, ptr %stream) {{
entry:
  %block = alloca i8, i64 {{block_bytes}}, align 16
  %grid = alloca [{GRID_WORDS} x i64], align 8
  %launcher = load Callable.state of %callable
  %callers = load Launcher.callers of %launcher
  %came = atomicrmw add ptr %callers, i64 1 seq_cst
  %status = call i32 @planned_call(ptr %callable, ptr %launcher, ptr %addresses, ptr %sizes, ptr %params, ptr %stream, ptr %block, ptr %grid)
  %went = atomicrmw sub ptr %callers, i64 1 seq_cst
  ret i32 %status
}}

define internal i32 @planned_call(ptr %callable, ptr %launcher, ptr %addresses, ptr %sizes, ptr %params, ptr %stream, ptr %block, ptr %grid) {{
entry:
  %mode_word = load Launcher.mode of %launcher
  %mode = load atomic i64, ptr %mode_word seq_cst, align 8
{C_PLAN}run:
  %kernels = load Callable.kernels of %callable
  %index = zext i32 %number to i64
  %kernel = getelementptr %Kernel, ptr %kernels, i64 %index
  %bytes = load Callable.block_bytes of %callable
  %own = load Launcher.stream of %launcher
  %given = ptrtoint ptr %stream to i64
  %unset = icmp eq i64 %given, 0
  %chosen = select i1 %unset, i64 %own, i64 %given
  %status = call i32 @{ENQUEUE_SYMBOL}(ptr %launcher, ptr %kernel, i64 %index, ptr %grid, i64 %chosen, ptr %block, i64 %bytes)
  ret i32 %status
}}
""", CALLABLE, KERNEL)

# Which stream a launch over %given arguments goes to; the flag is false for what has to go through Python.
_STREAM_FUNCTIONS: Final = """
; the handle of an object with __cuda_stream__
define internal { i64, i1 } @handle_of(ptr %object) {
entry:
  %none = alloca ptr, align 8
  %overflow = alloca i32, align 4
  %method = call ptr @PyObject_GetAttr(ptr %object, ptr {cuda_stream_name})
  %absent = icmp eq ptr %method, null
  br i1 %absent, label %error, label %ask
error:
  call void @PyErr_Clear()
  br label %no
no:
  ret { i64, i1 } { i64 0, i1 false }
ask:
  %pair = call ptr @PyObject_Vectorcall(ptr %method, ptr %none, i64 0, ptr null)
  call void @Py_DecRef(ptr %method)
  %failed = icmp eq ptr %pair, null
  br i1 %failed, label %error, label %told
told:
  %pair_type_at = getelementptr i8, ptr %pair, i64 {type_at}
  %pair_type = load ptr, ptr %pair_type_at
  %is_tuple = icmp eq ptr %pair_type, {tuple_type}
  br i1 %is_tuple, label %sized, label %drop
sized:
  %count = call i64 @PyTuple_Size(ptr %pair)
  %is_pair = icmp eq i64 %count, 2
  br i1 %is_pair, label %read, label %drop
read:
  %number = call ptr @PyTuple_GetItem(ptr %pair, i64 1)
  %number_type_at = getelementptr i8, ptr %number, i64 {type_at}
  %number_type = load ptr, ptr %number_type_at
  %is_int = icmp eq ptr %number_type, {int_type}
  br i1 %is_int, label %whole, label %drop
whole:
  %handle = call i64 @PyLong_AsLongLongAndOverflow(ptr %number, ptr %overflow)
  %over = load i32, ptr %overflow
  %fits = icmp eq i32 %over, 0
  br label %drop
drop:
  %value = phi i64 [ 0, %told ], [ 0, %sized ], [ 0, %read ], [ %handle, %whole ]
  %good = phi i1 [ false, %told ], [ false, %sized ], [ false, %read ], [ %fits, %whole ]
  call void @Py_DecRef(ptr %pair)
  %r0 = insertvalue { i64, i1 } poison, i64 %value, 0
  %r1 = insertvalue { i64, i1 } %r0, i1 %good, 1
  ret { i64, i1 } %r1
}

define internal { i64, i1 } @stream_of(ptr %state, ptr %launcher, ptr %given, i64 %buffers, ptr %stream) {
entry:
  %out = alloca i64, align 8
  %any = icmp ne i64 %buffers, 0
  br i1 %any, label %first, label %own
first:
  ; the row of a library's type, null for Buffers
  %count = load Entry.exchange_count of %state
  %table = load Entry.exchanges of %state
  %first_value = load ptr, ptr %given
  %row = call ptr @exchange_of(ptr %table, i64 %count, ptr %first_value)
  br label %head
head:
  %at = phi i64 [ 1, %first ], [ %next, %same ]
  %more = icmp ult i64 %at, %buffers
  br i1 %more, label %look, label %alike
look:
  %value = load ptr %at of %given
  %its = call ptr @exchange_of(ptr %table, i64 %count, ptr %value)
  %is_same = icmp eq ptr %its, %row
  br i1 %is_same, label %same, label %no
same:
  %next = add i64 %at, 1
  br label %head
alike:
  %ours = icmp eq ptr %row, null
  br i1 %ours, label %own, label %theirs
own:
  %unset = icmp eq ptr %stream, null
  %own_handle = load Launcher.stream of %launcher
  %o0 = insertvalue { i64, i1 } poison, i64 %own_handle, 0
  %o1 = insertvalue { i64, i1 } %o0, i1 %unset, 1
  ret { i64, i1 } %o1
theirs:
  %asked = load Exchange.stream of %row
  %silent = icmp eq ptr %asked, null
  br i1 %silent, label %no, label %ask
ask:
  %wanted = load Entry.buffers of %state
  %place = load Wanted.place of %wanted
  %kind = trunc i64 %place to i32
  %high = lshr i64 %place, 32
  %ordinal = trunc i64 %high to i32
  store i64 0, ptr %out
  %status = call i32 %asked(i32 %kind, i32 %ordinal, ptr %out)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %error, label %told
error:
  call void @PyErr_Clear()
  br label %no
told:
  %now = load i64, ptr %out
  %t0 = insertvalue { i64, i1 } poison, i64 %now, 0
  %streamless = icmp eq ptr %stream, null
  br i1 %streamless, label %current, label %compare
current:
  %t1 = insertvalue { i64, i1 } %t0, i1 true, 1
  ret { i64, i1 } %t1
compare:
  %handle = call { i64, i1 } @handle_of(ptr %stream)
  %handle_value = extractvalue { i64, i1 } %handle, 0
  %handle_good = extractvalue { i64, i1 } %handle, 1
  %handle_same = icmp eq i64 %handle_value, %now
  %good = and i1 %handle_good, %handle_same
  %t2 = insertvalue { i64, i1 } %t0, i1 %good, 1
  ret { i64, i1 } %t2
no:
  ret { i64, i1 } { i64 0, i1 false }
}
"""

ENTRY_CALL_SYMBOL: Final = "vyre_entry_cuda"
# The builtin, after `ENTRY_CALLS`; `Entry.extra` is the address of a launcher. The mode is looked at again before the launch, since an object's own code may
# have run meanwhile; from there on this thread is counted in the word after the mode.
ENTRY_CALL: Final = f"""
{_LAUNCH_FUNCTION}
{_STREAM_FUNCTIONS}
{COUNT_FUNCTION}
declare double @llvm.rint.f64(double)
{entry_begin(ENTRY_CALL_SYMBOL)}
choose:
  %launcher = load Entry.extra of %state
  %chosen = call {{ i64, i1 }} @stream_of(ptr %state, ptr %launcher, ptr %given, i64 %buffers, ptr %stream)
  %handle = extractvalue {{ i64, i1 }} %chosen, 0
  %ordered = extractvalue {{ i64, i1 }} %chosen, 1
  %mode_now = load i64, ptr %mode_word
  %still_free = icmp eq i64 %mode_now, 0
  %go = and i1 %ordered, %still_free
  br i1 %go, label %launch, label %give_up
launch:
  %kernels = load Entry.kernels of %state
  %index = zext i32 %number to i64
  %kernel = getelementptr %Kernel, ptr %kernels, i64 %index
  %busy_at = getelementptr i64, ptr %mode_word, i64 1
  %busy = load i64, ptr %busy_at
  %busy_more = add i64 %busy, 1
  store i64 %busy_more, ptr %busy_at
  %thread = call ptr @PyEval_SaveThread()
  %status = call i32 @launch_kernel(ptr %launcher, ptr %kernel, i64 %index, ptr %grid, i64 %handle, ptr %block, i64 %block_bytes)
  call void @PyEval_RestoreThread(ptr %thread)
  %busy_now = load i64, ptr %busy_at
  %busy_less = sub i64 %busy_now, 1
  store i64 %busy_less, ptr %busy_at
  %launched = icmp eq i32 %status, 0
  br i1 %launched, label %count, label %give_up
count:
  call void @release(ptr %held, i64 %buffers)
{_GROUP_LOADS}
  %gxy = mul i64 %gx, %gy
  %groups = mul i64 %gxy, %gz
  %width = load Launcher.width of %launcher
  %depth = load Launcher.depth of %launcher
  %heights = load Launcher.heights of %launcher
  %height = load i64 %index of %heights
  %area = mul i64 %width, %height
  %workgroup = mul i64 %area, %depth
  %invocations = mul i64 %groups, %workgroup
  %occupancies = load Launcher.occupancies of %launcher
  %occupancy = load double %index of %occupancies
  %invocations_f = uitofp i64 %invocations to double
  %busy_f = fmul double %invocations_f, %occupancy
  %rounded = call double @llvm.rint.f64(double %busy_f)
  %occupied = fptoui double %rounded to i64
  %asked = load i64 {GRID_WORDS - 1} of %grid
  %counters = load Entry.counters of %state
  call void @add_to(ptr %counters, i64 0, i64 1)
  call void @add_to(ptr %counters, i64 1, i64 %asked)
  call void @add_to(ptr %counters, i64 2, i64 %invocations)
  call void @add_to(ptr %counters, i64 3, i64 %occupied)
  call void @add_to(ptr %counters, i64 4, i64 %block_bytes)
  call void @Py_IncRef(ptr {{none}})
  ret ptr {{none}}
}}
"""
