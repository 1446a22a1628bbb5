"""Calls of a pipeline on the CPU: native code takes the arguments, plans the launch and runs it."""

from __future__ import annotations

import ctypes
from math import prod
from struct import Struct
from typing import TYPE_CHECKING, Final, cast

from vyre_py.drivers.callable import CallEntry
from vyre_py.drivers.cpu.arguments import Arguments
from vyre_py.drivers.cpu.launch import no_scratch
from vyre_py.drivers.cpu.native_call import C_CALL, C_CALL_SYMBOL, ENTRY_CALL, ENTRY_CALL_SYMBOL
from vyre_py.drivers.cpu.native_run import CLOCK
from vyre_py.drivers.cpu.workers import run_alone, run_together
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.native.arrays import layout_problem, pack_record
from vyre_py.drivers.native.mode import ModeWord
from vyre_py.drivers.native.native_entry import EntryParts, NativeEntry, native_type
from vyre_py.drivers.sharing.c_callable import CKernel
from vyre_py.lowering.llvm.callable import GRID_WORDS, PlanCode, plan_code

if TYPE_CHECKING:
    from vyre_py.drivers.cpu.device import CpuDevice
    from vyre_py.drivers.cpu.module import CpuKernel
    from vyre_py.drivers.pipeline import Pipeline

__all__ = ["CpuCallEntry", "make"]

_GRID: Final = Struct(f"<{GRID_WORDS}q")
_COUNTED: Final = ("launches", "elements_launched", "threads_scheduled", "parameter_bytes")


def make(pipeline: Pipeline, mode: ModeWord) -> CallEntry:
    """The pipeline as a function. The general one where its launches need more than arguments. Raises ToolchainError where llvmlite cannot be loaded."""
    steps, limits = pipeline.part.steps, pipeline.device.limits
    if len(steps) != 1:
        return CallEntry(pipeline, "a Program of several steps")
    code = plan_code(pipeline.artifact.interface, steps[0], limits.workgroups, limits.elements, limits.buffer_bytes)
    if code is None:
        return CallEntry(pipeline, "a Program with grid barriers, scans over the grid, asserts or prints, or code that can be ended")
    problem = "the system has no clock that native code can read" if CLOCK is None else layout_problem()
    return CpuCallEntry(pipeline, code, mode, problem) if problem else native_type(_NativeCallEntry, ENTRY_CALL_SYMBOL, ENTRY_CALL)(pipeline, code, mode)


class CpuCallEntry(NativeEntry):
    """A call on the CPU. Python calls its subclass `_NativeCallEntry`; this one is for C alone, where Python's objects lie in an unknown way."""

    __slots__ = ("_device", "_kernels")

    def __init__(self, pipeline: Pipeline, code: PlanCode, mode: ModeWord, lacks: str = "") -> None:
        self._kernels: tuple[CpuKernel, ...] = pipeline._codes[0]
        self._device = cast("CpuDevice", pipeline.device)  # which makes no other
        rows = [
            CKernel(kernel.address, kernel.scratch_bytes, 0, bool(entry.details.get("ordered")))
            for kernel, entry in zip(self._kernels, pipeline.part.steps[0].entries, strict=True)
        ]
        state, threads = mode.address, ctypes.addressof(self._device.thread_word)

        def record(buffer: Buffer) -> None:
            memory = buffer.handle
            buffer._record = pack_record(buffer, memory.address + buffer.offset_bytes, state), memory

        super().__init__(pipeline, code, mode, EntryParts(rows, C_CALL, C_CALL_SYMBOL, record, _COUNTED, threads, state), lacks)

    def _rest(self, number: int, begin: int, grid: bytes, block: bytes) -> None:
        """Runs the workgroups from `begin` on, of a launch that native code planned and whose memory it holds."""
        x, y, z, *launched, asked = _GRID.unpack(grid)
        kernel, total, device = self._kernels[number], x * y * z, self._device
        arguments = Arguments(block, {})
        try:
            if self._c.words.kernels[number].ordered or total == 1:
                run_alone(kernel, arguments, begin, total, (x, y, z))
            else:
                run_together(kernel, arguments, begin, total, (x, y, z), device.threads)
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
