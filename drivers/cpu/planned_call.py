"""Native code of calls that were planned for one set of sizes: it puts the addresses of arrays into the plan's argument block, and runs the grid.

For callers that know sizes and strides better than `bind` does: other compilers, whose kernels index the memory behind an array as they like. An array may have
any shape and strides; that its elements reach as far as the plan needs is looked at, and so is that the sizes are the plan's. Arrays may overlap. What does not
fit goes to the method `_slow` of the function, in Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

from vyre_py.drivers.cpu.launch import SHARED_INVOCATIONS
from vyre_py.drivers.cpu.module import CpuKernel
from vyre_py.drivers.cpu.native_run import RUN_FUNCTION, STEPS_FUNCTION
from vyre_py.drivers.launch import LaunchPlan
from vyre_py.drivers.native.arrays import ExchangeTable
from vyre_py.drivers.native.call_state import entry_method
from vyre_py.drivers.native.structs import PLANNED
from vyre_py.drivers.native.values import VALUE_KINDS
from vyre_py.lowering.llvm.callable import GRID_WORDS

__all__ = ["PlannedCall", "planned_method", "unplanned"]

_SYMBOL: Final = "vyre_planned_cpu"
# The builtin, after `ENTRY_CALLS`. A call goes with the arrays, then with the numbers. Where the plan has a place for the report, which is a word of its own on
# the stack, `_rest` hears of one that is not zero: it is told then that all workgroups have run.
_CALL: Final = f"""
{RUN_FUNCTION}
{STEPS_FUNCTION}
; the address of an array on the host, and how many bytes its elements span; -1 where it is none that can be asked
define internal i64 @take_span(ptr %state, ptr %value, ptr %address) {{
entry:
  %tensor = alloca %Tensor, align 8
  %count = load Planned.exchange_count of %state
  %table = load Planned.exchanges of %state
  %row = call ptr @exchange_of(ptr %table, i64 %count, ptr %value)
  %unknown = icmp eq ptr %row, null
  br i1 %unknown, label %no, label %view
no:
  ret i64 -1
view:
  %function = load Exchange.function of %row
  %status = call i32 %function(ptr %value, ptr %tensor)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %error, label %viewed
error:
  call void @PyErr_Clear()
  ret i64 -1
viewed:
  %place = load Tensor.place of %tensor
  %place_wanted = load Planned.place of %state
  %elsewhere = icmp ne i64 %place, %place_wanted
  %shape = load Tensor.shape of %tensor
  %strides = load Tensor.strides of %tensor
  %untold = icmp eq ptr %strides, null
  %odd = or i1 %elsewhere, %untold
  br i1 %odd, label %no, label %begin
begin:
  %data = load Tensor.data of %tensor
  %offset = load Tensor.offset of %tensor
  %first = add i64 %data, %offset
  store i64 %first, ptr %address
  %axes4 = load Tensor.axes of %tensor
  %axes = sext i32 %axes4 to i64
  br label %head
head:
  %at = phi i64 [ 0, %begin ], [ %next, %add ]
  %elements = phi i64 [ 1, %begin ], [ %more, %add ]
  %left = icmp slt i64 %at, %axes
  br i1 %left, label %axis, label %done
axis:
  %size = load i64 %at of %shape
  %none = icmp eq i64 %size, 0
  br i1 %none, label %empty, label %add
empty:
  ret i64 0
add:
  %stride = load i64 %at of %strides
  %steps = sub i64 %size, 1
  %reach = mul i64 %steps, %stride
  %more = add i64 %elements, %reach
  %next = add i64 %at, 1
  br label %head
done:
  %bits_at = getelementptr i8, ptr %tensor, i64 21
  %bits1 = load i8, ptr %bits_at
  %bits = zext i8 %bits1 to i64
  %whole = mul i64 %elements, %bits
  %bytes = udiv i64 %whole, 8
  ret i64 %bytes
}}

define ptr @{_SYMBOL}(ptr %self, ptr %args, i64 %positional, ptr %keywords) {{
entry:
  %report = alloca i64, align 8
  %address = alloca i64, align 8
  %object = call ptr @PyObject_GetAttr(ptr %self, ptr {{state_name}})
  %absent = icmp eq ptr %object, null
  br i1 %absent, label %failed, label %begin
failed:
  ret ptr null
begin:
  ; The function holds its state until the lock is given back; what is looked at behind that is loaded before.
  call void @Py_DecRef(ptr %object)
  %state = call ptr @PyByteArray_AsString(ptr %object)
  %mode_word = load Planned.mode of %state
  %mode = load i64, ptr %mode_word
  %arrays = load Planned.array_count of %state
  %numbers = load Planned.number_count of %state
  %wanted_count = add i64 %arrays, %numbers
  %free = icmp eq i64 %mode, 0
  %counted = icmp eq i64 %wanted_count, %positional
  %unnamed = icmp eq ptr %keywords, null
  %p1 = and i1 %free, %counted
  %plain = and i1 %p1, %unnamed
  br i1 %plain, label %tables, label %slow
slow:
  %slow_result = call ptr @call_slow(ptr %self, ptr %args, i64 %positional, ptr %keywords)
  ret ptr %slow_result
tables:
  %number_table = load Planned.numbers of %state
  br label %number_head
number_head:
  %n = phi i64 [ 0, %tables ], [ %n_next, %number_fits ]
  %n_more = icmp ult i64 %n, %numbers
  br i1 %n_more, label %number, label %look
number:
  %n_place = add i64 %arrays, %n
  %n_value = load ptr %n_place of %args
  %n_converted = call {{ i64, i1 }} @convert(ptr %n_value, i64 {VALUE_KINDS["i64"]})
  %n_is = extractvalue {{ i64, i1 }} %n_converted, 0
  %n_good = extractvalue {{ i64, i1 }} %n_converted, 1
  %n_wanted = load i64 %n of %number_table
  %n_same = icmp eq i64 %n_is, %n_wanted
  %n_fits = and i1 %n_same, %n_good
  br i1 %n_fits, label %number_fits, label %slow
number_fits:
  %n_next = add i64 %n, 1
  br label %number_head
look:
  %total = load Planned.total of %state
  %nothing = icmp eq i64 %total, 0
  br i1 %nothing, label %finished, label %fill
fill:
  %block_bytes = load Planned.block_bytes of %state
  %block = alloca i8, i64 %block_bytes, align 16
  %template = load Planned.block of %state
  call void @llvm.memcpy.p0.p0.i64(ptr %block, ptr %template, i64 %block_bytes, i1 false)
  %array_table = load Planned.arrays of %state
  br label %array_head
array_head:
  %a = phi i64 [ 0, %fill ], [ %a_next, %array_fits ]
  %a_more = icmp ult i64 %a, %arrays
  br i1 %a_more, label %array, label %reporting
array:
  %a_value = load ptr %a of %args
  %a_span = call i64 @take_span(ptr %state, ptr %a_value, ptr %address)
  %a_row = getelementptr [2 x i64], ptr %array_table, i64 %a
  %a_needs = load i64, ptr %a_row
  %a_enough = icmp sge i64 %a_span, %a_needs
  br i1 %a_enough, label %array_fits, label %slow
array_fits:
  %a_offset = load i64 1 of %a_row
  %a_target = getelementptr i8, ptr %block, i64 %a_offset
  %a_begin = load i64, ptr %address
  store i64 %a_begin, ptr %a_target
  %a_next = add i64 %a, 1
  br label %array_head
reporting:
  store i64 0, ptr %report
  %report_offset = load Planned.report_offset of %state
  %reports = icmp sge i64 %report_offset, 0
  br i1 %reports, label %report_put, label %choose
report_put:
  %report_target = getelementptr i8, ptr %block, i64 %report_offset
  store ptr %report, ptr %report_target
  br label %choose
choose:
  %number_of_entry = load Planned.entry of %state
  %function = load Planned.function of %state
  %scratch = load Planned.scratch_bytes of %state
  %alone_word = load Planned.alone of %state
  %alone = icmp ne i64 %alone_word, 0
  %invocations = load Planned.invocations of %state
  %x = load Planned.x of %state
  %y = load Planned.y of %state
  %z = load Planned.z of %state
  %grid = alloca [{GRID_WORDS} x i64], align 8
  call void @llvm.memset.p0.i64(ptr %grid, i8 0, i64 {8 * GRID_WORDS}, i1 false)
  store i64 %x, ptr %grid
  store i64 %y, i64 1 of %grid
  store i64 %z, i64 2 of %grid
  %x4 = trunc i64 %x to i32
  %y4 = trunc i64 %y to i32
  %z4 = trunc i64 %z to i32
  %many = icmp uge i64 %invocations, {SHARED_INVOCATIONS}
  %together = xor i1 %alone, true
  %shared = and i1 %many, %together
  br i1 %shared, label %rest, label %here
here:
  %thread = call ptr @PyEval_SaveThread()
  %ran = call i64 @run_steps(ptr %function, ptr %block, i64 %scratch, i64 %total, i32 %x4, i32 %y4, i32 %z4, i1 %alone)
  call void @PyEval_RestoreThread(ptr %thread)
  %all = icmp eq i64 %ran, %total
  %told = load i64, ptr %report
  %silent = icmp eq i64 %told, 0
  %good = and i1 %all, %silent
  br i1 %good, label %finished, label %rest
rest:
  %from = phi i64 [ 0, %choose ], [ %ran, %here ]
  %result = call ptr @call_rest(ptr %self, i64 %number_of_entry, i64 %from, ptr %grid, ptr %block, i64 %block_bytes)
  ret ptr %result
finished:
  call void @Py_IncRef(ptr {{none}})
  ret ptr {{none}}
}}
"""


class PlannedCall(bytearray):
    """A plan as the bytes that native code reads; it holds all that these point to. Attributes: `plan`, and `alone`, whether the grid runs in one thread."""

    __slots__ = ("_held", "alone", "plan")

    def __init__(
        self, plan: LaunchPlan, kernel: CpuKernel, arrays: Sequence[tuple[int, int]], report: int | None, numbers: Sequence[int], mode: int,
        exchanges: ExchangeTable,
    ) -> None:  # fmt: skip
        """`arrays` are the bytes that each array has to span, and where its address goes in the block; `report` is where that of a word goes that the kernel
        reports in, `numbers` are the sizes that were planned for, and `mode` is the address of a word that is 0 where native code may go on."""
        x, y, z = plan.grid
        total, place = x * y * z, plan.device.dlpack_device
        assert place is not None  # the host's memory is what DLPack has words for
        self.plan = plan
        self.alone = total == 1 or bool(plan.step.entries[plan.entry].details.get("ordered"))
        rows = (ctypes.c_int64 * (2 * len(arrays)))(*[word for row in arrays for word in row])
        sizes = (ctypes.c_int64 * len(numbers))(*numbers)
        block = (ctypes.c_char * len(plan.block)).from_buffer_copy(plan.block)
        types = (ctypes.c_char * len(exchanges.rows)).from_buffer(exchanges.rows)
        self._held = (kernel, rows, sizes, block, types)
        super().__init__(PLANNED.pack(
            mode, ctypes.addressof(types), len(exchanges), place[0] | place[1] << 32, ctypes.addressof(rows), len(arrays), ctypes.addressof(sizes),
            len(numbers), ctypes.addressof(block), len(block), -1 if report is None else report, plan.entry, kernel.address, kernel.scratch_bytes, total,
            total * prod(plan.step.workgroup), x, y, z, int(self.alone),
        ))  # fmt: skip

    def know(self, exchanges: ExchangeTable) -> None:
        """Has native code ask arrays of the types that were learned meanwhile."""
        at = PLANNED.offset("exchange_count")
        self[at : at + 8] = len(exchanges).to_bytes(8, "little")


def unplanned(mode: int) -> bytearray:
    """The words of a function that has no plan yet; `mode` is the address of a word that is not 0, for good."""
    words = bytearray(PLANNED.size_bytes)
    words[:8] = mode.to_bytes(8, "little")
    return words


def planned_method(owner: type) -> Callable[..., Any]:
    """The method `__call__` of a type whose instances have `_state` (a `PlannedCall`, or what `unplanned` gives), `_slow` and `_rest`. Raises ToolchainError
    where llvmlite cannot be loaded."""
    return entry_method(owner, _SYMBOL, _CALL, "__call__($self, /, *arguments)\n--\n\nRuns the kernel; see vyre_py.drivers.cpu.planned_call.")
