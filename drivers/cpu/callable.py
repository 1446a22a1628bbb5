"""Calls of a pipeline on the CPU: native code takes the arguments, plans the launch and runs it."""

from __future__ import annotations

import threading
from math import prod
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.binding import arguments_by_name, bind_arguments
from vyre_py.drivers.callable import CallEntry
from vyre_py.drivers.cores import core_count
from vyre_py.drivers.cpu.arguments import Arguments
from vyre_py.drivers.cpu.launch import no_scratch
from vyre_py.drivers.cpu.native_call import C_CALL, C_CALL_SYMBOL, ENTRY_CALL, ENTRY_CALL_SYMBOL
from vyre_py.drivers.cpu.native_run import CLOCK
from vyre_py.drivers.cpu.workers import run_alone, run_together
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.native.arrays import layout_problem, pack_record
from vyre_py.drivers.native.call_state import EntryState, entry_method
from vyre_py.drivers.native.mode import Mode, ModeWord
from vyre_py.drivers.native.values import VALUE_FORMS
from vyre_py.drivers.sharing.c_callable import CCallable, CKernel
from vyre_py.lowering.llvm import jit
from vyre_py.lowering.llvm.callable import GRID_WORDS, PLAN_SYMBOL, PlanCode, plan_code

if TYPE_CHECKING:
    from vyre_py.drivers.cpu.module import CpuKernel
    from vyre_py.drivers.pipeline import Pipeline

__all__ = ["CpuCallEntry", "make"]

_GRID: Final = Struct(f"<{GRID_WORDS}q")
_COUNTED: Final = ("launches", "elements_launched", "threads_scheduled", "parameter_bytes")
_lock = threading.Lock()


def make(pipeline: Pipeline, mode: ModeWord) -> CallEntry:
    """The pipeline as a function. The general one where its launches need more than arguments. Raises ToolchainError where llvmlite cannot be loaded."""
    steps, limits = pipeline.part.steps, pipeline.device.limits
    if len(steps) != 1:
        return CallEntry(pipeline, "a Program of several steps")
    code = plan_code(pipeline.artifact.interface, steps[0], limits.workgroups, limits.elements, limits.buffer_bytes)
    if code is None:
        return CallEntry(pipeline, "a Program with grid barriers, scans over the grid, asserts or prints, or code that can be ended")
    problem = "the system has no clock that native code can read" if CLOCK is None else layout_problem()
    return CpuCallEntry(pipeline, code, mode, problem) if problem else _native_type()(pipeline, code, mode)


class CpuCallEntry(CallEntry):
    """A call that native code plans. Python calls its subclass `_NativeCallEntry`; this one is for C alone, where Python's objects lie in an unknown way."""

    __slots__ = ("_c", "_kernels", "_mode", "_state", "_threads", "_told")

    def __init__(self, pipeline: Pipeline, code: PlanCode, mode: ModeWord, lacks: str = "") -> None:
        super().__init__(pipeline, lacks)
        interface, step, device = pipeline.artifact.interface, pipeline.part.steps[0], pipeline.device
        self._kernels: tuple[CpuKernel, ...] = pipeline._codes[0]
        self._threads, self._mode = core_count(), mode.word
        block_bytes = max(1, step.layout.size_bytes)
        at = jit.link("vyre-callable", code.text + C_CALL.replace("{block_bytes}", str(block_bytes)), (PLAN_SYMBOL, C_CALL_SYMBOL))
        rows = [
            CKernel(kernel.address, kernel.scratch_bytes, 0, bool(entry.details.get("ordered")))
            for kernel, entry in zip(self._kernels, step.entries, strict=True)
        ]
        self._c = CCallable(pipeline, code, at[C_CALL_SYMBOL], at[PLAN_SYMBOL], rows, mode.address)
        counters = [device.telemetry.address(name) for name in _COUNTED]
        self._told = EntryState(
            interface, device.dlpack_device, mode.address, at[PLAN_SYMBOL], code.params_bytes, step.layout.size_bytes, self._c.kernels_address,
            prod(step.workgroup), counters, self._threads,
        )  # fmt: skip
        self._state = self._told.words

    @property
    def c_address(self) -> int:
        """As `CallEntry`."""
        return self._c.address

    def _learn(self, value: Any) -> bool:
        if isinstance(value, Buffer):
            if value._record is not None or value.device is not self.pipeline.device or value.allocation.freed:
                return False
            memory = value.handle
            value._record = pack_record(value, memory.address + value.offset_bytes, self._c.state), memory
            return True
        return self._told.learn(value)

    def explain(self, *arguments: Any, **named: Any) -> list[str]:
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
            if memory.name not in given:
                told.append(f"{memory.name!r} is left out")
            elif why := self._told.misfit(memory, given[memory.name]):
                told.append(f"{memory.name!r} {why}")
        for param in interface.params:
            value = given.get(param.name)
            if type(value) not in VALUE_FORMS.get(param.type.name, ()):
                told.append(f"param {param.name!r} ({param.type}) is a {type(value).__name__}, which Python converts")
        if not told:
            try:
                bind_arguments(self.pipeline.device, interface, given, {}, staged=False)
            except BindingError as error:
                told += error.problems
        return told

    def _rest(self, number: int, begin: int, grid: bytes, block: bytes) -> None:
        """Runs the workgroups from `begin` on, of a launch that native code planned and whose memory it holds."""
        x, y, z, *launched, asked = _GRID.unpack(grid)
        kernel, total, device = self._kernels[number], x * y * z, self.pipeline.device
        arguments = Arguments(block, {})
        try:
            if self._c.words.kernels[number].ordered or total == 1:
                run_alone(kernel, arguments, begin, total, (x, y, z))
            else:
                run_together(kernel, arguments, begin, total, (x, y, z), self._threads)
        except MemoryError as error:
            raise no_scratch(self.pipeline.name, device.name, kernel, error) from error
        threads, size_bytes = prod(launched) * prod(self.pipeline.part.steps[0].workgroup), len(block)
        telemetry = device.telemetry
        telemetry.launches += 1
        telemetry.elements_launched += asked
        telemetry.threads_scheduled += threads
        telemetry.parameter_bytes += size_bytes


class _NativeCallEntry(CpuCallEntry):
    """The same, called in native code from Python, too."""

    __slots__ = ()


def _native_type() -> type[CpuCallEntry]:
    """The type whose calls are native code, which is made once a process."""
    with _lock:
        if "__call__" not in vars(_NativeCallEntry):
            doc = "__call__($self, /, *arguments, **named)\n--\n\nBinds and launches, once; see vyre_py.drivers.callable.CallEntry."
            made = entry_method(_NativeCallEntry, ENTRY_CALL_SYMBOL, ENTRY_CALL, doc)
            _NativeCallEntry.__call__ = made  # type: ignore[method-assign]  # what is assigned is a method of native code
    return _NativeCallEntry
