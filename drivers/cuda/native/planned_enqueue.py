"""Calls on CUDA that were planned for one set of sizes (`drivers/native/planned.py`): each is one call of the driver, on the stream whose handle is given last.

Nothing is counted or recorded. The lock of the interpreter is given back for the driver's call, which waits where too much is enqueued.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

from vyre_py.drivers.cuda.launch.launcher import Launcher
from vyre_py.drivers.cuda.native.entry_call import ENQUEUE_FUNCTION, ENQUEUE_SYMBOL
from vyre_py.drivers.native.arrays import ExchangeTable
from vyre_py.drivers.native.call_state import entry_method
from vyre_py.drivers.native.planned import TAKE_SPAN, PlannedWords, planned_begin
from vyre_py.drivers.native.structs import ENQUEUED, ENQUEUED_ROW
from vyre_py.drivers.native.values import VALUE_KINDS

__all__ = ["PlannedEnqueue", "planned_method"]

_SYMBOL: Final = "vyre_planned_cuda"
# What a Program has reported is for Python to raise.
_LOOK: Final = f"""
  %own = getelementptr %PlannedHead, ptr %state, i64 1
  %stream_value = load ptr %known_count of %args
  %stream_told = call {{ i64, i1 }} @convert(ptr %stream_value, i64 {VALUE_KINDS["i64"]})
  %stream = extractvalue {{ i64, i1 }} %stream_told, 0
  %stream_good = extractvalue {{ i64, i1 }} %stream_told, 1
  br i1 %stream_good, label %report, label %slow
report:
  %problem_at = load Enqueued.problem of %own
  %silent = icmp eq ptr %problem_at, null
  br i1 %silent, label %fill, label %ask
ask:
  %problem = load volatile i32, ptr %problem_at
  %none_told = icmp eq i32 %problem, 0
  br i1 %none_told, label %fill, label %slow
"""
_CALL: Final = f"""
{ENQUEUE_FUNCTION}
{TAKE_SPAN}
{planned_begin(_SYMBOL, look=_LOOK, more=1)}filled:
  %mask = load Enqueued.misaligned of %own
  %odd_bits = and i64 %bits, %mask
  %odd = icmp ne i64 %odd_bits, 0
  %which = zext i1 %odd to i64
  %rows = load Enqueued.rows of %own
  %row = getelementptr %EnqueuedRow, ptr %rows, i64 %which
  %kernel = load EnqueuedRow.kernel of %row
  %index = load EnqueuedRow.number of %row
  %grid = load EnqueuedRow.grid of %row
  %launcher = load Enqueued.launcher of %own
  ; What the plan holds stays for the driver's call.
  call void @Py_IncRef(ptr %object)
  %thread = call ptr @PyEval_SaveThread()
  %status = call i32 @{ENQUEUE_SYMBOL}(ptr %launcher, ptr %kernel, i64 %index, ptr %grid, i64 %stream, ptr %block, i64 %block_bytes)
  call void @PyEval_RestoreThread(ptr %thread)
  call void @Py_DecRef(ptr %object)
  %launched = icmp eq i32 %status, 0
  br i1 %launched, label %finished, label %slow
finished:
  call void @Py_IncRef(ptr {{none}})
  ret ptr {{none}}
}}
"""


class PlannedEnqueue(PlannedWords):
    """A plan as native code reads it."""

    __slots__ = ()

    def __init__(
        self, place: tuple[int, int], launcher: Launcher, entries: Sequence[tuple[int, Any]], alignment: int, problem: int, block: bytes,
        arrays: Sequence[tuple[int, int]], numbers: Sequence[int], mode: int, exchanges: ExchangeTable,
    ) -> None:  # fmt: skip
        """As `PlannedWords`. `entries` are those for arrays that begin on multiples of `alignment`, and for any: the number of each, and its grid as the
        launcher's `enqueue` takes it. `problem` is the address of a word that is not 0 where Python has something to raise; 0 for none."""
        rows = (ctypes.c_char * (2 * ENQUEUED_ROW.size_bytes)).from_buffer_copy(
            b"".join([ENQUEUED_ROW.pack(launcher.kernel_address(number), number, ctypes.addressof(grid)) for number, grid in entries])
        )
        own = ENQUEUED.pack(launcher.address, problem, alignment - 1, ctypes.addressof(rows))
        super().__init__(place, block, arrays, numbers, mode, exchanges, own, (launcher, entries, rows))


def planned_method(owner: type) -> Callable[..., Any]:
    """The method `__call__` of a type whose instances have `_state` (a `PlannedEnqueue`, or what `unplanned` gives), `_slow` and `_rest`, which is not called.
    Raises ToolchainError where llvmlite cannot be loaded."""
    return entry_method(owner, _SYMBOL, _CALL, "__call__($self, /, *arguments)\n--\n\nEnqueues the kernel; see vyre_py.drivers.cuda.native.planned_enqueue.")
