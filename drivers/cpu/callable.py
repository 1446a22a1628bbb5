"""Calls of a pipeline on the CPU: native code plans the launch, for NumPy's arrays and Buffers."""

from __future__ import annotations

import ctypes
from math import prod
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.callable import CallEntry
from vyre_py.drivers.cores import core_count
from vyre_py.drivers.cpu.arguments import Arguments
from vyre_py.drivers.cpu.launch import no_scratch, run_grid
from vyre_py.drivers.cpu.native_run import RUN_FUNCTION
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.memory.encoding import encode_param
from vyre_py.drivers.native.mode import Mode, ModeWord
from vyre_py.drivers.sharing.c_callable import CALLABLE_TYPE, CCallable, CKernel
from vyre_py.ir.language.dims import is_size
from vyre_py.ir.language.nodes import Memory
from vyre_py.lowering.llvm import jit
from vyre_py.lowering.llvm.callable import GRID_WORDS, PLAN_SYMBOL, PlanCode, plan_code
from vyre_py.lowering.statuses import CStatus

if TYPE_CHECKING:
    from vyre_py.drivers.cpu.module import CpuKernel
    from vyre_py.drivers.device import Device
    from vyre_py.drivers.pipeline import Pipeline

__all__ = ["CpuCallEntry", "make"]

_PLANNER: Final = ctypes.PYFUNCTYPE(  # keeps the interpreter's lock, since it takes less than giving that away
    ctypes.c_int32, *[ctypes.c_void_p] * 5
)
_GRID: Final = ctypes.c_int64 * GRID_WORDS
_Held = tuple[int, tuple[int, ...], Any]  # address, shape in elements, and what holds the memory


_CALL_SYMBOL: Final = "vyre_call_cpu"
# What follows the planner in its text: a call for C, whose state is the device's mode word.
_CALL: Final = f"""
{CALLABLE_TYPE}
{RUN_FUNCTION}
define i32 @{_CALL_SYMBOL}(ptr %callable, ptr %addresses, ptr %sizes, ptr %params, ptr %stream) {{
entry:
  %block = alloca i8, i64 {{block_bytes}}, align 16
  %grid = alloca [{GRID_WORDS} x i64], align 8
  %streamless = icmp eq ptr %stream, null
  br i1 %streamless, label %look, label %no_streams
no_streams:
  ret i32 {int(CStatus.STREAM)}
look:
  %mode_at = getelementptr %Callable, ptr %callable, i64 0, i32 19
  %mode_word = load ptr, ptr %mode_at
  %mode = load i64, ptr %mode_word
  %closed = and i64 %mode, {int(Mode.CLOSED)}
  %is_open = icmp eq i64 %closed, 0
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
  %y_at = getelementptr i64, ptr %grid, i64 1
  %z_at = getelementptr i64, ptr %grid, i64 2
  %x = load i64, ptr %grid
  %y = load i64, ptr %y_at
  %z = load i64, ptr %z_at
  %xy = mul i64 %x, %y
  %total = mul i64 %xy, %z
  %none = icmp eq i64 %total, 0
  br i1 %none, label %done, label %run
done:
  ret i32 0
run:
  %kernels_at = getelementptr %Callable, ptr %callable, i64 0, i32 13
  %kernels = load ptr, ptr %kernels_at
  %index = zext i32 %number to i64
  %kernel = getelementptr %Kernel, ptr %kernels, i64 %index
  %function = load ptr, ptr %kernel
  %scratch_at = getelementptr %Kernel, ptr %kernel, i64 0, i32 1
  %scratch = load i64, ptr %scratch_at
  %x4 = trunc i64 %x to i32
  %y4 = trunc i64 %y to i32
  %z4 = trunc i64 %z to i32
  %status = call i32 @run_kernel(ptr %function, ptr %block, i64 %scratch, i64 0, i64 %total, i32 %x4, i32 %y4, i32 %z4)
  ret i32 %status
}}
"""


def make(pipeline: Pipeline, mode: ModeWord) -> CallEntry:
    """The pipeline as a function. The general one where its launches need more than arguments. Raises ToolchainError where llvmlite cannot be loaded."""
    steps, limits = pipeline.part.steps, pipeline.device.limits
    if len(steps) != 1:
        return CallEntry(pipeline, "callable().c_address of a Program of several steps")
    code = plan_code(pipeline.artifact.interface, steps[0], limits.workgroups, limits.elements, limits.buffer_bytes)
    if code is None:
        return CallEntry(pipeline, "callable().c_address of a Program with grid barriers, scans, asserts, prints, or code that can be ended")
    return CpuCallEntry(pipeline, code, mode)


class _Wanted:
    """What a buffer of the interface takes, looked up once."""

    __slots__ = ("dtype", "lanes", "name", "rank", "scalar", "writes")

    def __init__(self, memory: Memory) -> None:
        self.name, self.rank, self.writes = memory.name, memory.rank, memory.access.writes
        self.dtype, self.scalar, self.lanes = memory.type.dtype, memory.type.scalar, memory.type.lanes if memory.type.is_vector else 0


def _array_of(device: Device, wanted: _Wanted, value: Any) -> _Held | None:
    """The address and shape of an array, and what holds its memory; None for what is left to `bind`."""
    shape: tuple[int, ...]
    if type(value) is np.ndarray:
        flags = value.flags
        if value.dtype != wanted.dtype or not flags.c_contiguous or (wanted.writes and not flags.writeable):
            return None
        address, shape, held = int(value.ctypes.data), value.shape, value
    elif isinstance(value, Buffer):
        if value.device is not device or value.allocation.freed or (wanted.writes and value.readonly) or value.type.scalar is not wanted.scalar:
            return None
        address, shape, held = value.handle.address + value.offset_bytes, value.host_shape, value.handle.bytes
    else:
        return None
    if wanted.lanes:
        if not shape or shape[-1] != wanted.lanes:
            return None
        shape = shape[:-1]
    return (address, shape, held) if len(shape) == wanted.rank else None


class CpuCallEntry(CallEntry):
    """A call that native code plans."""

    __slots__ = ("_addresses", "_buffers", "_c", "_dims", "_kernels", "_mode", "_names", "_params", "_planner", "_sizes", "_threads", "_workgroup")

    def __init__(self, pipeline: Pipeline, code: PlanCode, mode: ModeWord) -> None:
        super().__init__(pipeline)
        self._mode = mode.word
        interface, step = pipeline.artifact.interface, pipeline.part.steps[0]
        self._buffers, self._params, self._dims = tuple(map(_Wanted, interface.buffers)), interface.params, interface.dims
        self._names = (*[memory.name for memory in interface.buffers], *[param.name for param in interface.params])
        self._addresses = Struct(f"{len(interface.buffers)}Q")
        self._sizes = Struct(f"{sum(memory.rank for memory in interface.buffers) + len(interface.dims)}q")
        self._kernels: tuple[CpuKernel, ...] = pipeline._codes[0]
        text = code.text + _CALL.replace("{block_bytes}", str(max(1, step.layout.size_bytes)))
        at = jit.link("vyre-callable", text, (PLAN_SYMBOL, _CALL_SYMBOL))
        self._planner = _PLANNER(at[PLAN_SYMBOL])
        rows = [
            CKernel(kernel.address, kernel.scratch_bytes, 0, bool(entry.details.get("ordered")))
            for kernel, entry in zip(self._kernels, step.entries, strict=True)
        ]
        self._c = CCallable(pipeline, code, at[_CALL_SYMBOL], at[PLAN_SYMBOL], rows, mode.address)
        self._threads = core_count()
        self._workgroup = prod(pipeline.part.steps[0].workgroup)

    @property
    def c_address(self) -> int:
        """As `CallEntry`."""
        return self._c.address

    def __call__(self, *arguments: Any, **named: Any) -> None:
        """As `CallEntry`."""
        device = self.pipeline.device
        planned = None
        if not self._mode.value:
            planned = self._plan(arguments, named)
        if planned is None:
            self._general(arguments, named)
            return
        number, grid, block = planned
        x, y, z = grid[:3]
        entry = self.pipeline.part.steps[0].entries[number]
        total = x * y * z
        alone = total == 1 or bool(entry.details.get("ordered"))
        try:
            run_grid(self._kernels[number], block, (x, y, z), total * self._workgroup, alone, self._threads)
        except MemoryError as error:
            raise no_scratch(self.pipeline.name, device.name, self._kernels[number], error) from error
        threads, asked, size_bytes = prod(grid[3:6]) * self._workgroup, grid[6], len(block.block)
        telemetry = device.telemetry
        telemetry.launches += 1
        telemetry.elements_launched += asked
        telemetry.threads_scheduled += threads
        telemetry.parameter_bytes += size_bytes

    def _plan(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[int, list[int], Arguments] | None:
        """The number of the entry, the words of the grid and the argument block; None for what is left to `bind`."""
        given = dict(zip(self._names, arguments, strict=False)) | named
        if len(arguments) > len(self._names) or (arguments and any(name in named for name in self._names[: len(arguments)])):
            return None
        found: list[_Held] = []
        for wanted in self._buffers:
            if (array := _array_of(self.pipeline.device, wanted, given.pop(wanted.name, None))) is None:
                return None
            found.append(array)
        try:
            params = b"".join([encode_param(param, given.pop(param.name)) for param in self._params])
        except (BindingError, KeyError):
            return None
        sizes = [size for _, shape, _ in found for size in shape]
        for dim in self._dims:
            if dim.name in given and not is_size(given[dim.name]):
                return None
            sizes.append(int(given.pop(dim.name, -1)))
        if given:
            return None
        layout = self.pipeline.part.steps[0].layout
        block = Arguments(bytes(layout.size_bytes), {str(number): held for number, (_, _, held) in enumerate(found)})
        grid = _GRID()
        addresses = self._addresses.pack(*[address for address, _, _ in found])
        number = self._planner(addresses, self._sizes.pack(*sizes), params, block.address, ctypes.addressof(grid))
        return None if number < 0 or not prod(grid[:3]) else (number, list(grid), block)
