"""Native code of calls that were planned for one set of sizes: it puts the addresses of arrays into the plan's argument block, and goes on as a device has it.

For callers that know sizes and strides better than `bind` does: other compilers, whose kernels index the memory behind an array as they like. An array may have
any shape and strides; that its elements reach as far as the plan needs is looked at, and so is that the sizes are the plan's. Arrays may overlap. What does not
fit goes to the method `_slow` of the function, in Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from vyre_py.drivers.native.arrays import ExchangeTable
from vyre_py.drivers.native.structs import PLANNED_HEAD
from vyre_py.drivers.native.values import VALUE_KINDS

__all__ = ["TAKE_SPAN", "PlannedWords", "planned_begin", "unplanned"]

# Of an array, after `ENTRY_CALLS`.
TAKE_SPAN: Final = """
; the address of an array, and how many bytes its elements span; -1 where it is none that can be asked
define internal i64 @take_span(ptr %state, ptr %value, ptr %address) {
entry:
  %tensor = alloca %Tensor, align 8
  %count = load PlannedHead.exchange_count of %state
  %table = load PlannedHead.exchanges of %state
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
  %place_wanted = load PlannedHead.place of %state
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
  %element = load Tensor.element of %tensor
  %shifted = lshr i32 %element, 8
  %bits4 = and i32 %shifted, 255
  %bits = zext i32 %bits4 to i64
  %whole = mul i64 %elements, %bits
  %bytes = udiv i64 %whole, 8
  ret i64 %bytes
}

"""


def planned_begin(symbol: str, *, allocas: str = "", look: str = "  br label %fill\n", more: int = 0) -> str:
    """How the builtin of that name begins, after `ENTRY_CALLS` and `TAKE_SPAN`: it goes to the block `filled` with the %block of %block_bytes, all addresses in
    it, and their %bits, each set that is in any of them. A call goes with the %arrays, the %numbers, and so many `more` arguments from %known_count on. There
    are %object, the %state and its words, and the block `slow`, which leaves the call to Python. `allocas` come first, and `look` before the block is made."""
    return f"""
define ptr @{symbol}(ptr %self, ptr %args, i64 %positional, ptr %keywords) {{
entry:
{allocas}  %address = alloca i64, align 8
  %object = call ptr @PyObject_GetAttr(ptr %self, ptr {{state_name}})
  %absent = icmp eq ptr %object, null
  br i1 %absent, label %failed, label %begin
failed:
  ret ptr null
begin:
  ; The function holds its state until the lock is given back; what is looked at behind that is loaded before.
  call void @Py_DecRef(ptr %object)
  %state = call ptr @PyByteArray_AsString(ptr %object)
  %mode_word = load PlannedHead.mode of %state
  %mode = load i64, ptr %mode_word
  %arrays = load PlannedHead.array_count of %state
  %numbers = load PlannedHead.number_count of %state
  %known_count = add i64 %arrays, %numbers
  %wanted_count = add i64 %known_count, {more}
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
  %number_table = load PlannedHead.numbers of %state
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
{look}fill:
  %block_bytes = load PlannedHead.block_bytes of %state
  %block = alloca i8, i64 %block_bytes, align 16
  %template = load PlannedHead.block of %state
  call void @llvm.memcpy.p0.p0.i64(ptr %block, ptr %template, i64 %block_bytes, i1 false)
  %array_table = load PlannedHead.arrays of %state
  br label %array_head
array_head:
  %a = phi i64 [ 0, %fill ], [ %a_next, %array_fits ]
  %bits = phi i64 [ 0, %fill ], [ %bits_next, %array_fits ]
  %a_more = icmp ult i64 %a, %arrays
  br i1 %a_more, label %array, label %filled
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
  %bits_next = or i64 %bits, %a_begin
  %a_next = add i64 %a, 1
  br label %array_head
"""


class PlannedWords(bytearray):
    """The words that native code reads of a plan; it holds all that these point to. A device's own words follow those of every plan."""

    __slots__ = ("_held",)

    def __init__(
        self, place: tuple[int, int], block: bytes | bytearray, arrays: Sequence[tuple[int, int]], numbers: Sequence[int], mode: int, exchanges: ExchangeTable,
        own: bytes, held: Any,
    ) -> None:  # fmt: skip
        """`place` is DLPack's kind and number of the device; `arrays` are the bytes that each array has to span, and where its address goes in the block;
        `numbers` are the sizes that were planned for, and `mode` is the address of a word that is 0 where native code may go on."""
        rows = (ctypes.c_int64 * (2 * len(arrays)))(*[word for row in arrays for word in row])
        sizes = (ctypes.c_int64 * len(numbers))(*numbers)
        template = (ctypes.c_char * len(block)).from_buffer_copy(block)
        types = (ctypes.c_char * len(exchanges.rows)).from_buffer(exchanges.rows)
        self._held = (held, rows, sizes, template, types)
        head = PLANNED_HEAD.pack(
            mode, ctypes.addressof(types), len(exchanges), place[0] | place[1] << 32, ctypes.addressof(rows), len(arrays), ctypes.addressof(sizes),
            len(numbers), ctypes.addressof(template), len(block),
        )  # fmt: skip
        super().__init__(head + own)

    def know(self, exchanges: ExchangeTable) -> None:
        """Has native code ask arrays of the types that were learned meanwhile."""
        at = PLANNED_HEAD.offset("exchange_count")
        self[at : at + 8] = len(exchanges).to_bytes(8, "little")


def unplanned(mode: int) -> bytearray:
    """The words of a function that has no plan yet; `mode` is the address of a word that is not 0, for good."""
    return bytearray(PLANNED_HEAD.pack(mode, *[0] * (len(PLANNED_HEAD.fields) - 1)))
