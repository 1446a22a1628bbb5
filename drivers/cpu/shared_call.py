"""Calls of a pipeline's native entry by a caller who lends threads: LLVM IR that does for them what `workers` does for launches.

The caller hands over a function that has some other thread run a task, with what it takes first, and how many tasks are wanted at most. The calling thread
works too, so nothing waits for a thread that is busy elsewhere: a task that begins when all ranges are taken leaves at once, and the caller leaves when
those that began have left. What the tasks share is on the heap, and goes with the last of them.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from vyre_py.drivers.cpu.launch import SHARED_INVOCATIONS
from vyre_py.drivers.cpu.native_run import KERNEL_LOADS, RUN_FUNCTION, STEPS_FUNCTION
from vyre_py.drivers.native.native_entry import TOTAL_LOADS
from vyre_py.drivers.native.shorthand import written_out
from vyre_py.drivers.native.structs import StructType
from vyre_py.drivers.sharing.c_callable import CALLABLE, KERNEL
from vyre_py.lowering.llvm import jit
from vyre_py.lowering.llvm.callable import GRID_WORDS

__all__ = ["shared_call"]

_SYMBOL: Final = "vyre_call_shared"
_ROOM: Final = 128  # for a mutex, or a condition: 64 bytes at most on the systems that there are
_RANGES: Final = 4  # a thread: they even out kernels whose workgroups differ

# Kernel, argument block, bytes of scratch memory, the next workgroup, how many there are, workgroups of a range, status, grid; then, under the mutex, how many
# still hold the job, how many help, and whether it is closed to others.
_JOB: Final = StructType(
    "Job", function="ptr", block="ptr", scratch="i64", next="i64", total="i64", step="i64", status="i32", x="i32", y="i32", z="i32", held="i64", helpers="i64",
    closed="i64", mutex=f"[{_ROOM} x i8]", condition=f"[{_ROOM} x i8]",
)  # fmt: skip
# What the caller lends; see `shared_call`.
_THREADS: Final = StructType("Threads", lend="ptr", context="ptr", count="i64", quick="i64")

_DECLARATIONS: Final = f"""
{RUN_FUNCTION}
declare ptr @calloc(i64, i64)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_mutex_destroy(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_destroy(ptr)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
"""

# Takes ranges until none is left, or a thread has no memory.
_WORK: Final = """
define internal void @work(ptr %job) {
entry:
  %function = load Job.function of %job
  %block = load Job.block of %job
  %scratch = load Job.scratch of %job
  %next_at = address Job.next of %job
  %total = load Job.total of %job
  %step = load Job.step of %job
  %status_at = address Job.status of %job
  %x = load Job.x of %job
  %y = load Job.y of %job
  %z = load Job.z of %job
  br label %head
head:
  %first = atomicrmw add ptr %next_at, i64 %step monotonic
  %some = icmp slt i64 %first, %total
  %before = load atomic i32, ptr %status_at monotonic, align 4
  %fine = icmp eq i32 %before, 0
  %more = and i1 %some, %fine
  br i1 %more, label %body, label %done
body:
  %behind = add i64 %first, %step
  %end = call i64 @llvm.smin.i64(i64 %behind, i64 %total)
  %status = call i32 @run_kernel(ptr %function, ptr %block, i64 %scratch, i64 %first, i64 %end, i32 %x, i32 %y, i32 %z)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %head, label %failed
failed:
  store atomic i32 %status, ptr %status_at monotonic, align 4
  br label %done
done:
  ret void
}

; Gives back the lock, and a share of the job, which goes with the last.
define internal void @leave(ptr %job, i64 %shares) {
entry:
  %held_at = address Job.held of %job
  %mutex = address Job.mutex of %job
  %condition = address Job.condition of %job
  %held = load i64, ptr %held_at
  %left = sub i64 %held, %shares
  store i64 %left, ptr %held_at
  call i32 @pthread_mutex_unlock(ptr %mutex)
  %last = icmp eq i64 %left, 0
  br i1 %last, label %drop, label %done
drop:
  call i32 @pthread_mutex_destroy(ptr %mutex)
  call i32 @pthread_cond_destroy(ptr %condition)
  call void @free(ptr %job)
  br label %done
done:
  ret void
}

; The work of a thread that was lent.
define internal void @help(ptr %job) {
entry:
  %helpers_at = address Job.helpers of %job
  %closed_at = address Job.closed of %job
  %mutex = address Job.mutex of %job
  %condition = address Job.condition of %job
  call i32 @pthread_mutex_lock(ptr %mutex)
  %closed = load i64, ptr %closed_at
  %late = icmp ne i64 %closed, 0
  br i1 %late, label %done, label %enter
enter:
  %before = load i64, ptr %helpers_at
  %with = add i64 %before, 1
  store i64 %with, ptr %helpers_at
  call i32 @pthread_mutex_unlock(ptr %mutex)
  call void @work(ptr %job)
  call i32 @pthread_mutex_lock(ptr %mutex)
  %then = load i64, ptr %helpers_at
  %without = sub i64 %then, 1
  store i64 %without, ptr %helpers_at
  call i32 @pthread_cond_signal(ptr %condition)
  br label %done
done:
  call void @leave(ptr %job, i64 1)
  ret void
}
"""

# What a job is made of, all else of which is zero.
_FIELDS: Final = "\n".join(
    f"  store {_JOB.fields[field]} {value}, Job.{field} of %job"
    for field, value in {
        "function": "%function", "block": "%block", "scratch": "%scratch", "next": "%first", "total": "%total", "step": "%step", "status": "0",
        "x": "%x", "y": "%y", "z": "%z", "held": "%shares",
    }.items()
)  # fmt: skip

# Runs the workgroups from %first on in the calling thread and in those lent.
_TOGETHER: Final = f"""
define internal i32 @run_together(ptr %function, ptr %block, i64 %scratch, i64 %first, i64 %total, i32 %x, i32 %y, i32 %z, ptr %threads) {{
entry:
  %lend = load Threads.lend of %threads
  %context = load Threads.context of %threads
  %count = load Threads.count of %threads
  %workers = add i64 %count, 1
  %ranges = mul i64 %workers, {_RANGES}
  %left = sub i64 %total, %first
  %up = add i64 %left, %ranges
  %over = sub i64 %up, 1
  %even = sdiv i64 %over, %ranges
  %step = call i64 @llvm.smax.i64(i64 %even, i64 1)
  %behind = sub i64 %left, 1
  %others = sdiv i64 %behind, %step
  %wanted = call i64 @llvm.smin.i64(i64 %others, i64 %count)
  %size_at = getelementptr %Job, ptr null, i64 1
  %size = ptrtoint ptr %size_at to i64
  %job = call ptr @calloc(i64 1, i64 %size)
  %none = icmp eq ptr %job, null
  br i1 %none, label %alone, label %make
alone:
  %alone_status = call i32 @run_kernel(ptr %function, ptr %block, i64 %scratch, i64 %first, i64 %total, i32 %x, i32 %y, i32 %z)
  ret i32 %alone_status
make:
  %shares = add i64 %wanted, 1
{_FIELDS}
  %status_at = address Job.status of %job
  %helpers_at = address Job.helpers of %job
  %closed_at = address Job.closed of %job
  %mutex = address Job.mutex of %job
  %condition = address Job.condition of %job
  call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  call i32 @pthread_cond_init(ptr %condition, ptr null)
  br label %head
head:
  %at = phi i64 [ 0, %make ], [ %after, %taken ]
  %more = icmp slt i64 %at, %wanted
  br i1 %more, label %ask, label %begin
ask:
  %refused = call i32 %lend(ptr %context, ptr @help, ptr %job)
  %after = add i64 %at, 1
  %is_taken = icmp eq i32 %refused, 0
  br i1 %is_taken, label %taken, label %begin
taken:
  br label %head
begin:
  %unasked = sub i64 %wanted, %at
  %mine = add i64 %unasked, 1
  call void @work(ptr %job)
  call i32 @pthread_mutex_lock(ptr %mutex)
  store i64 1, ptr %closed_at
  br label %look
look:
  %helping = load i64, ptr %helpers_at
  %over_now = icmp eq i64 %helping, 0
  br i1 %over_now, label %finish, label %wait
wait:
  call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %look
finish:
  %status = load i32, ptr %status_at
  call void @leave(ptr %job, i64 %mine)
  ret i32 %status
}}
"""

_CALL: Final = f"""
define i32 @{_SYMBOL}(ptr %callable, ptr %addresses, ptr %sizes, ptr %params, ptr %threads) {{
entry:
  %state = load Callable.state of %callable
  %mode = load i64, ptr %state
  %plain = icmp eq i64 %mode, 0
  br i1 %plain, label %plan, label %otherwise
otherwise:
  %call = load Callable.call of %callable
  %said = call i32 %call(ptr %callable, ptr %addresses, ptr %sizes, ptr %params, ptr null)
  ret i32 %said
plan:
  %bytes = load Callable.block_bytes of %callable
  %block = alloca i8, i64 %bytes, align 16
  %grid = alloca [{GRID_WORDS} x i64], align 8
  %planner = load Callable.plan of %callable
  %number = call i32 %planner(ptr %addresses, ptr %sizes, ptr %params, ptr %block, ptr %grid)
  %planned = icmp sge i32 %number, 0
  br i1 %planned, label %fits, label %wrong
wrong:
  ret i32 %number
fits:
{TOTAL_LOADS}  br i1 %none, label %done, label %choose
done:
  ret i32 0
choose:
  %kernels = load Callable.kernels of %callable
{KERNEL_LOADS}  %count = load Threads.count of %threads
  %is_lonely = icmp slt i64 %count, 1
  %is_alone = or i1 %as_one, %is_lonely
  br i1 %is_alone, label %alone, label %measure
alone:
  %status = call i32 @run_kernel(ptr %function, ptr %block, i64 %scratch, i64 0, i64 %total, i32 %x4, i32 %y4, i32 %z4)
  ret i32 %status
measure:
  %workgroup = address Callable.workgroup of %callable
  %width = load i32 0 of %workgroup
  %height = load i32 1 of %workgroup
  %depth = load i32 2 of %workgroup
  %area = mul i32 %width, %height
  %volume = mul i32 %area, %depth
  %each = zext i32 %volume to i64
  %invocations = mul i64 %total, %each
  %large = icmp sge i64 %invocations, {SHARED_INVOCATIONS}
  br i1 %large, label %together, label %look
look:
  %quick = load Threads.quick of %threads
  %is_quick = icmp sle i64 %invocations, %quick
  br i1 %is_quick, label %alone, label %small
small:
  %ran = call i64 @run_steps(ptr %function, ptr %block, i64 %scratch, i64 %total, i32 %x4, i32 %y4, i32 %z4, i1 false)
  %all = icmp eq i64 %ran, %total
  br i1 %all, label %done, label %together
together:
  %first = phi i64 [ 0, %measure ], [ %ran, %small ]
  %shared = call i32 @run_together(ptr %function, ptr %block, i64 %scratch, i64 %first, i64 %total, i32 %x4, i32 %y4, i32 %z4, ptr %threads)
  ret i32 %shared
}}
"""


@cache
def shared_call() -> int:
    """The address of a function that is called as `call` of `vyre_callable_t`, with threads in the stream's place: the address of four words, which are a
    function `int lend(void *context, void (*task)(void *), void *data)` that gives 0 where it has taken the task, the `context`, how many tasks are wanted at
    most, and a number of invocations, up to which a grid is known to take no time worth looking at.

    It stays for good, and waits by POSIX's mutexes: elsewhere it cannot be linked."""
    text = written_out("\n".join([_DECLARATIONS, _WORK, _TOGETHER, STEPS_FUNCTION, _CALL]), CALLABLE, KERNEL, _JOB, _THREADS)
    return jit.link("vyre-shared-call", text, (_SYMBOL,))[_SYMBOL]
