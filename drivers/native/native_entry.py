"""Pipelines' functions whose calls are planned in native code: what all kinds of devices share of them, in LLVM IR and in Python.

A kind of device adds the text that runs what was planned, for C and for Python, and says what native code reads of its Buffers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from vyre_py.drivers.binding import arguments_by_name, bind_arguments
from vyre_py.drivers.callable import CallEntry
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.memory.encoding import encode_param
from vyre_py.drivers.native.call_state import EntryState, entry_method
from vyre_py.drivers.native.mode import UNUSABLE, Mode, ModeWord
from vyre_py.drivers.native.values import VALUE_FORMS
from vyre_py.drivers.sharing.c_callable import CCallable, CKernel
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.nodes import Param
from vyre_py.lowering.llvm import jit
from vyre_py.lowering.llvm.callable import GRID_WORDS, PLAN_SYMBOL, PlanCode
from vyre_py.lowering.statuses import CStatus

if TYPE_CHECKING:
    from vyre_py.drivers.pipeline import Pipeline

__all__ = ["COUNT_FUNCTION", "C_PLAN", "TOTAL_LOADS", "NativeEntry", "EntryParts", "entry_begin", "native_type"]

# Adds to the counter of a number.
COUNT_FUNCTION: Final = """
define internal void @add_to(ptr %counters, i64 %number, i64 %amount) alwaysinline {
  %word = load ptr %number of %counters
  %before = load i64, ptr %word
  %after = add i64 %before, %amount
  store i64 %after, ptr %word
  ret void
}
"""

# Within a function: the workgroups of a planned %grid.
TOTAL_LOADS: Final = """
  %x = load i64 0 of %grid
  %y = load i64 1 of %grid
  %z = load i64 2 of %grid
  %xy = mul i64 %x, %y
  %total = mul i64 %xy, %z
  %none = icmp eq i64 %total, 0
"""

# Within a call for C, which has the %mode: refuses, plans, and goes to the block `run` with a plan over at least one workgroup.
C_PLAN: Final = f"""  %gone = and i64 %mode, {UNUSABLE}
  %is_open = icmp eq i64 %gone, 0
  br i1 %is_open, label %here, label %lost
lost:
  ret i32 {int(CStatus.LOST)}
here:
  %capturing = and i64 %mode, {int(Mode.CAPTURING)}
  %is_free = icmp eq i64 %capturing, 0
  br i1 %is_free, label %plan, label %busy
busy:
  ret i32 {int(CStatus.BUSY)}
plan:
  %number = call i32 @{PLAN_SYMBOL}(ptr %addresses, ptr %sizes, ptr %params, ptr %block, ptr %grid)
  %planned = icmp sge i32 %number, 0
  br i1 %planned, label %fits, label %wrong
wrong:
  ret i32 %number
fits:
{TOTAL_LOADS}  br i1 %none, label %done, label %run
done:
  ret i32 0
"""


def entry_begin(symbol: str) -> str:
    """How the builtin of that name begins, after `ENTRY_CALLS`: it goes to the block `choose` with a plan over at least one workgroup. There are %state,
    %mode_word, what was %given, the number of %buffers, what is %held, the object that was given as the %stream or null, the planned %number, %grid and %block
    with its %block_bytes; the block `give_up` leaves the call to Python."""
    return f"""
define ptr @{symbol}(ptr %self, ptr %args, i64 %positional, ptr %keywords) {{
entry:
  %grid = alloca [{GRID_WORDS} x i64], align 8
  %stream_at = alloca ptr, align 8
  %object = call ptr @PyObject_GetAttr(ptr %self, ptr {{state_name}})
  %absent = icmp eq ptr %object, null
  br i1 %absent, label %failed, label %begin
failed:
  ret ptr null
begin:
  ; The function holds its state.
  call void @Py_DecRef(ptr %object)
  %state = call ptr @PyByteArray_AsString(ptr %object)
  %mode_word = load Entry.mode of %state
  %mode = load i64, ptr %mode_word
  %free = icmp eq i64 %mode, 0
  br i1 %free, label %room, label %slow
slow:
  %slow_result = call ptr @call_slow(ptr %self, ptr %args, i64 %positional, ptr %keywords)
  ret ptr %slow_result
room:
  %names = load Entry.name_count of %state
  %given_count = add i64 %names, 1
  %given = alloca ptr, i64 %given_count, align 8
  %buffers = load Entry.buffer_count of %state
  %addresses = alloca i64, i64 %buffers, align 8
  %held = alloca ptr, i64 %buffers, align 8
  %size_count = load Entry.size_count of %state
  %sizes = alloca i64, i64 %size_count, align 8
  %params_bytes = load Entry.params_bytes of %state
  %params = alloca i8, i64 %params_bytes, align 8
  %block_bytes = load Entry.block_bytes of %state
  %block = alloca i8, i64 %block_bytes, align 16
  %taken = call i1 @take_arguments(ptr %state, ptr %args, i64 %positional, ptr %keywords, ptr %given, ptr %addresses, ptr %sizes, ptr %params, ptr %held,
                                   ptr %stream_at)
  br i1 %taken, label %plan, label %give_up
give_up:
  call void @release(ptr %held, i64 %buffers)
  br label %slow
plan:
  %stream = load ptr, ptr %stream_at
  %planner = load Entry.plan of %state
  %number = call i32 %planner(ptr %addresses, ptr %sizes, ptr %params, ptr %block, ptr %grid)
  %planned = icmp sge i32 %number, 0
  br i1 %planned, label %fits, label %give_up
fits:
{TOTAL_LOADS}  br i1 %none, label %give_up, label %choose
"""


@dataclass(frozen=True, slots=True)
class EntryParts:
    """How a device runs what was planned: the `kernels` of the entries; the text that defines `c_symbol`, the call for C, which follows the plan and has
    `{block_bytes}` in it; `record`, which writes what native code reads of one of the device's own buffers; the names of the `counters` that the builtin adds
    to; `extra`, a word of the device's own; for C the `state` that calls look at, the `context` and the `stream`."""

    kernels: Sequence[CKernel]
    c_text: str
    c_symbol: str
    record: Callable[[Buffer], None]
    counters: Sequence[str]
    extra: int
    state: int
    context: int = 0
    stream: int = 0


class NativeEntry(CallEntry):
    """A call that native code plans, for C alone: Python calls the subclass that `native_type` completes."""

    __slots__ = ("_c", "_mode", "_record", "_state", "_told")

    def __init__(self, pipeline: Pipeline, code: PlanCode, mode: ModeWord, parts: EntryParts, lacks: str = "") -> None:
        """`lacks` is why Python's calls have no native code."""
        super().__init__(pipeline, lacks)
        interface, step, device = pipeline.artifact.interface, pipeline.part.steps[0], pipeline.device
        block_bytes = max(1, step.layout.size_bytes)
        at = jit.link("vyre-callable", code.text + parts.c_text.replace("{block_bytes}", str(block_bytes)), (PLAN_SYMBOL, parts.c_symbol))
        self._mode, self._record = mode.word, parts.record
        self._c = CCallable(pipeline, code, at[parts.c_symbol], at[PLAN_SYMBOL], parts.kernels, parts.state, parts.context, parts.stream)
        counters = [device.telemetry.address(name) for name in parts.counters]
        width, height, depth = step.workgroup
        self._told = EntryState(
            interface, device.dlpack_device, mode.address, at[PLAN_SYMBOL], code.params_bytes, step.layout.size_bytes, self._c.kernels_address,
            width * height * depth, counters, parts.extra,
        )  # fmt: skip
        self._state = self._told.words

    @property
    def c_address(self) -> int:
        """As `CallEntry`."""
        return self._c.address

    def _order_misfit(self, given: Mapping[str, Any], stream: Any) -> str:
        """Why native code does not launch over arguments that it takes one by one; empty where it does."""
        return "" if stream is None else f"{self.pipeline.device.name} has no streams"

    def _learn(self, value: Any) -> bool:
        if isinstance(value, Buffer):
            if value._record is not None or value.device is not self.pipeline.device or value.allocation.freed:
                return False
            self._record(value)
            return True
        return self._told.learn(value)

    def explain(self, /, *arguments: Any, **named: Any) -> list[str]:
        """As `CallEntry`."""
        interface, told = self.pipeline.artifact.interface, []
        given, problems = arguments_by_name(interface, arguments, named)
        if problems:
            raise BindingError(interface.name, problems)
        if self._lacks:
            told.append(self._lacks)
        if self._mode.value:
            told.append(f"the device: {', '.join(str(mode.name).lower() for mode in Mode if mode & self._mode.value)}")
        self._made_plain(given)
        for memory in interface.buffers:
            if memory.name not in given or (given[memory.name] is None and not memory.access.reads):
                told.append(f"{memory.name!r} is {'missing' if memory.access.reads else 'left out'}")
            elif why := self._told.misfit(memory, given[memory.name]):
                told.append(f"{memory.name!r} {why}")
        for param in interface.params:
            told += _param_misfits(param, given)
        stream = self._stream_of(given)
        if not told and (why := self._order_misfit(given, stream)):
            told.append(why)
        if not told:
            try:
                bind_arguments(self.pipeline.device, interface, given, {}, staged=False)
            except BindingError as error:
                told += error.problems
        return told


def _param_misfits(param: Param, given: Mapping[str, Any]) -> Sequence[str]:
    """Why native code does not take what is given for a param, which `bind` may refuse as well; empty where it does."""
    if param.name not in given:
        return [f"param {param.name!r} ({param.type}) is missing"]
    value = given[param.name]
    if type(value) in VALUE_FORMS.get(param.type.name, ()):
        return []
    try:
        encode_param(param, value)
    except BindingError as error:
        return error.problems
    kind = type(value).__name__
    return [f"param {param.name!r} ({param.type}) is {'an' if kind[0] in 'aeiou' else 'a'} {kind}, which Python converts"]


_Type = TypeVar("_Type", bound=NativeEntry)
_lock = threading.Lock()


def native_type(type_: type[_Type], symbol: str, text: str) -> type[_Type]:
    """The type, whose calls from Python are the builtin that `text` defines as `symbol`, which is made once a process. Raises ToolchainError where llvmlite
    cannot be loaded."""
    with _lock:
        if "__call__" not in vars(type_):
            doc = "__call__($self, /, *arguments, **named)\n--\n\nBinds and launches, once; see vyre_py.drivers.callable.CallEntry."
            type_.__call__ = entry_method(type_, symbol, text, doc)  # type: ignore[method-assign]  # what is assigned is a method of native code
    return type_
