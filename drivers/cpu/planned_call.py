"""Calls on the CPU that were planned for one set of sizes (`drivers/native/planned.py`): they run the grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

from vyre_py.drivers.cpu.launch import SHARED_INVOCATIONS
from vyre_py.drivers.cpu.module import CpuKernel
from vyre_py.drivers.cpu.native_run import RUN_FUNCTION, STEPS_FUNCTION
from vyre_py.drivers.launch import LaunchPlan
from vyre_py.drivers.native.arrays import ExchangeTable
from vyre_py.drivers.native.call_state import entry_method
from vyre_py.drivers.native.planned import TAKE_SPAN, PlannedWords, planned_begin
from vyre_py.drivers.native.structs import PLANNED
from vyre_py.lowering.llvm.callable import GRID_WORDS

__all__ = ["PlannedCall", "planned_method"]

_SYMBOL: Final = "vyre_planned_cpu"
_ALLOCAS: Final = "  %report = alloca i64, align 8\n"
_LOOK: Final = """  %own = getelementptr %PlannedHead, ptr %state, i64 1
  %total = load Planned.total of %own
  %nothing = icmp eq i64 %total, 0
  br i1 %nothing, label %finished, label %fill
"""
# The builtin, after `ENTRY_CALLS`. Where the plan has a place for the report, which is a word of its own on the stack, `_rest` hears of one that is not zero:
# it is told then that all workgroups have run.
_CALL: Final = f"""
{RUN_FUNCTION}
{STEPS_FUNCTION}
{TAKE_SPAN}
{planned_begin(_SYMBOL, allocas=_ALLOCAS, look=_LOOK)}filled:
  store i64 0, ptr %report
  %report_offset = load Planned.report_offset of %own
  %reports = icmp sge i64 %report_offset, 0
  br i1 %reports, label %report_put, label %choose
report_put:
  %report_target = getelementptr i8, ptr %block, i64 %report_offset
  store ptr %report, ptr %report_target
  br label %choose
choose:
  %number_of_entry = load Planned.entry of %own
  %function = load Planned.function of %own
  %scratch = load Planned.scratch_bytes of %own
  %alone_word = load Planned.alone of %own
  %alone = icmp ne i64 %alone_word, 0
  %invocations = load Planned.invocations of %own
  %x = load Planned.x of %own
  %y = load Planned.y of %own
  %z = load Planned.z of %own
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


class PlannedCall(PlannedWords):
    """A plan as native code reads it. Attributes: `plan`, and `alone`, whether the grid runs in one thread."""

    __slots__ = ("alone", "plan")

    def __init__(
        self, plan: LaunchPlan, kernel: CpuKernel, arrays: Sequence[tuple[int, int]], report: int | None, numbers: Sequence[int], mode: int,
        exchanges: ExchangeTable,
    ) -> None:  # fmt: skip
        """As `PlannedWords`; `report` is where in the block the address of a word goes that the kernel reports in."""
        x, y, z = plan.grid
        total, place = x * y * z, plan.device.dlpack_device
        assert place is not None  # the host's memory is what DLPack has words for
        self.plan = plan
        self.alone = total == 1 or bool(plan.step.entries[plan.entry].details.get("ordered"))
        own = PLANNED.pack(
            -1 if report is None else report, plan.entry, kernel.address, kernel.scratch_bytes, total, total * prod(plan.step.workgroup), x, y, z,
            int(self.alone),
        )  # fmt: skip
        super().__init__(place, plan.block, arrays, numbers, mode, exchanges, own, kernel)


def planned_method(owner: type) -> Callable[..., Any]:
    """The method `__call__` of a type whose instances have `_state` (a `PlannedCall`, or what `unplanned` gives), `_slow` and `_rest`. Raises ToolchainError
    where llvmlite cannot be loaded."""
    return entry_method(owner, _SYMBOL, _CALL, "__call__($self, /, *arguments)\n--\n\nRuns the kernel; see vyre_py.drivers.cpu.planned_call.")
