"""Bulk copies between the host and a device: several threads take chunks from one counter, all of it in native code.

A thread copies a chunk to page-locked memory and enqueues the device's copy of it. Meanwhile it copies the next chunk to its second piece of page-locked
memory. Downloads work the other way round. In Python the threads would wait for the interpreter's lock more than they copy: some three milliseconds, in
which the bus moves 150 megabytes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from vyre_py.drivers.cuda.context import Context
from vyre_py.drivers.cuda.memory.pinned import PinnedBlock
from vyre_py.drivers.native.shorthand import written_out
from vyre_py.drivers.native.structs import StructType
from vyre_py.lowering.llvm import jit

__all__ = ["LANES", "Bulk", "Lane"]

# Pieces of page-locked memory that a thread has: the device copies one while the thread copies another.
LANES: Final = 2

# A piece of page-locked memory, and the event after what last used it.
Lane = tuple[PinnedBlock, Any]

# The next chunk's number, bytes in all, bytes of a chunk, the host's and the device's address, the stream; the driver's copy, event record and event wait.
_JOB: Final = StructType(
    "Job", next="i64", total="i64", chunk="i64", host="i64", device="i64", stream="i64", copy="ptr", record="ptr", wait="ptr",
)  # fmt: skip
_LANE: Final = StructType("Lane", address="i64", event="i64")

# Both functions give the first status that is not zero.
_TEXT: Final = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.umin.i64(i64, i64)

; The offset of a chunk, which no other thread gets; the total of bytes, or more, when none is left.
define internal i64 @take(ptr %job) {
  %number = atomicrmw add ptr %job, i64 1 monotonic
  %chunk = load Job.chunk of %job
  %offset = mul i64 %number, %chunk
  ret i64 %offset
}

; Leaves no chunk for any thread.
define internal void @stop(ptr %job) {
  %total = load Job.total of %job
  %last = add i64 %total, 1
  %ignored = atomicrmw add ptr %job, i64 %last monotonic
  ret void
}

define internal i64 @bytes_of(ptr %job, i64 %offset) {
  %total = load Job.total of %job
  %chunk = load Job.chunk of %job
  %rest = sub i64 %total, %offset
  %size = call i64 @llvm.umin.i64(i64 %rest, i64 %chunk)
  ret i64 %size
}

define internal i32 @wait_for(ptr %job, ptr %lane) {
  %event = load Lane.event of %lane
  %wait = load Job.wait of %job
  %status = call i32 %wait(i64 %event)
  ret i32 %status
}

; Has the device copy, and records the lane's event behind it.
define internal i32 @enqueue(ptr %job, ptr %lane, i64 %target, i64 %source, i64 %size) {
  %stream = load Job.stream of %job
  %copy = load Job.copy of %job
  %status = call i32 %copy(i64 %target, i64 %source, i64 %size, i64 %stream)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %record, label %done
record:
  %event = load Lane.event of %lane
  %record_function = load Job.record of %job
  %recorded = call i32 %record_function(i64 %event, i64 %stream)
  ret i32 %recorded
done:
  ret i32 %status
}

define i64 @vyre_upload(ptr %job, ptr %lanes) {
entry:
  %host = load Job.host of %job
  %device = load Job.device of %job
  %total = load Job.total of %job
  br label %head
head:
  %turn = phi i64 [ 0, %entry ], [ %next, %sent ]
  %offset = call i64 @take(ptr %job)
  %some = icmp ult i64 %offset, %total
  br i1 %some, label %chosen, label %over
chosen:
  %size = call i64 @bytes_of(ptr %job, i64 %offset)
  %number = and i64 %turn, 1
  %lane = getelementptr %Lane, ptr %lanes, i64 %number
  %pinned = load Lane.address of %lane
  %used = icmp uge i64 %turn, 2
  br i1 %used, label %waits, label %fill
waits:
  %waited = call i32 @wait_for(ptr %job, ptr %lane)
  %free = icmp eq i32 %waited, 0
  br i1 %free, label %fill, label %failed
fill:
  %to = inttoptr i64 %pinned to ptr
  %from_word = add i64 %host, %offset
  %from = inttoptr i64 %from_word to ptr
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %size, i1 false)
  %there = add i64 %device, %offset
  %given = call i32 @enqueue(ptr %job, ptr %lane, i64 %there, i64 %pinned, i64 %size)
  %good = icmp eq i32 %given, 0
  br i1 %good, label %sent, label %failed
sent:
  %next = add i64 %turn, 1
  br label %head
failed:
  %status = phi i32 [ %waited, %waits ], [ %given, %fill ]
  call void @stop(ptr %job)
  %wide = zext i32 %status to i64
  ret i64 %wide
over:
  ret i64 0
}

; Waits for a lane, and copies what it holds to where it belongs.
define internal i32 @drain(ptr %job, ptr %lane, i64 %offset) {
  %waited = call i32 @wait_for(ptr %job, ptr %lane)
  %good = icmp eq i32 %waited, 0
  br i1 %good, label %copy, label %done
copy:
  %host = load Job.host of %job
  %to_word = add i64 %host, %offset
  %to = inttoptr i64 %to_word to ptr
  %pinned = load Lane.address of %lane
  %from = inttoptr i64 %pinned to ptr
  %size = call i64 @bytes_of(ptr %job, i64 %offset)
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %size, i1 false)
  br label %done
done:
  ret i32 %waited
}

define i64 @vyre_download(ptr %job, ptr %lanes) {
entry:
  %device = load Job.device of %job
  %total = load Job.total of %job
  br label %head
head:
  ; What the two lanes hold, the one that is next first; -1 for nothing.
  %turn = phi i64 [ 0, %entry ], [ %next, %coming ]
  %older = phi i64 [ -1, %entry ], [ %newer, %coming ]
  %newer = phi i64 [ -1, %entry ], [ %offset, %coming ]
  %number = and i64 %turn, 1
  %lane = getelementptr %Lane, ptr %lanes, i64 %number
  %offset = call i64 @take(ptr %job)
  %held = icmp ne i64 %older, -1
  br i1 %held, label %full, label %empty
full:
  %drained = call i32 @drain(ptr %job, ptr %lane, i64 %older)
  %out = icmp eq i32 %drained, 0
  br i1 %out, label %empty, label %failed
empty:
  %some = icmp ult i64 %offset, %total
  br i1 %some, label %chosen, label %last
chosen:
  %size = call i64 @bytes_of(ptr %job, i64 %offset)
  %pinned = load Lane.address of %lane
  %there = add i64 %device, %offset
  %given = call i32 @enqueue(ptr %job, ptr %lane, i64 %pinned, i64 %there, i64 %size)
  %good = icmp eq i32 %given, 0
  br i1 %good, label %coming, label %failed
coming:
  %next = add i64 %turn, 1
  br label %head
last:
  %more = icmp ne i64 %newer, -1
  br i1 %more, label %rest, label %over
rest:
  %other_number = xor i64 %number, 1
  %other = getelementptr %Lane, ptr %lanes, i64 %other_number
  %emptied = call i32 @drain(ptr %job, ptr %other, i64 %newer)
  %done = icmp eq i32 %emptied, 0
  br i1 %done, label %over, label %failed
failed:
  %status = phi i32 [ %drained, %full ], [ %given, %chosen ], [ %emptied, %rest ]
  call void @stop(ptr %job)
  %wide = zext i32 %status to i64
  ret i64 %wide
over:
  ret i64 0
}
"""


@cache
def _functions() -> dict[str, Callable[..., int]]:
    """The two ways, as functions that give the interpreter's lock away while they run."""
    made = jit.link("vyre-bulk", written_out(_TEXT, _JOB, _LANE), ("vyre_upload", "vyre_download"))
    form = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    return {name: form(address) for name, address in made.items()}


class Bulk:
    """One copy of memory without strides, from the host to the device (`up`) or back, in chunks. Any number of threads may `work` on it at once.
    All goes through one stream (a handle)."""

    def __init__(self, context: Context, up: bool, device: int, host: int, size_bytes: int, chunk_bytes: int, stream: int, doing: str) -> None:
        self._context, self._doing = context, doing
        self._run = _functions()["vyre_upload" if up else "vyre_download"]
        copy = context.function("cuMemcpyHtoDAsync" if up else "cuMemcpyDtoHAsync")
        record, wait = context.function("cuEventRecord"), context.function("cuEventSynchronize")
        self._job = (ctypes.c_uint64 * len(_JOB.fields))(0, size_bytes, chunk_bytes, host, device, stream, copy, record, wait)

    def work(self, lanes: tuple[Lane, Lane]) -> None:
        """Copies chunks, through two lanes of a chunk's size, until none is left. Of an upload the last ones may be on their way on return, and the lanes'
        events tell. Raises what the driver answers; then no thread begins another chunk."""
        words = (ctypes.c_uint64 * (2 * LANES))(*(word for block, event in lanes for word in (block.address, int(event))))
        status = self._run(self._job, words)
        if status:
            raise self._context.failure(self._context.status(status), self._doing)
