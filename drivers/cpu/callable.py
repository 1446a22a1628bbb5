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
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.memory.encoding import encode_param
from vyre_py.drivers.observe.trace import tracing
from vyre_py.ir.language.dims import is_size
from vyre_py.ir.language.nodes import Memory
from vyre_py.lowering.llvm import jit
from vyre_py.lowering.llvm.callable import PLAN_SYMBOL, plan_code

if TYPE_CHECKING:
    from vyre_py.drivers.cpu.module import CpuKernel
    from vyre_py.drivers.device import Device
    from vyre_py.drivers.pipeline import Pipeline

__all__ = ["CpuCallEntry", "make"]

_PLANNER: Final = ctypes.PYFUNCTYPE(  # keeps the interpreter's lock, since it takes less than giving that away
    ctypes.c_int32, *[ctypes.c_void_p] * 5
)
_GRID: Final = ctypes.c_int64 * 7  # workgroups, those of the entry, invocations that the Program asks for
_Held = tuple[int, tuple[int, ...], Any]  # address, shape in elements, and what holds the memory


def make(pipeline: Pipeline) -> CallEntry:
    """The pipeline as a function. The general one where its launches need more than arguments. Raises ToolchainError where llvmlite cannot be loaded."""
    steps, limits = pipeline.part.steps, pipeline.device.limits
    code = plan_code(pipeline.artifact.interface, steps[0], limits.workgroups, limits.elements, limits.buffer_bytes) if len(steps) == 1 else None
    if code is None:
        return CallEntry(pipeline)
    return CpuCallEntry(pipeline, jit.link("vyre-callable", code.text, (PLAN_SYMBOL,))[PLAN_SYMBOL], code.params_bytes)


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

    __slots__ = ("_addresses", "_buffers", "_dims", "_kernels", "_names", "_params", "_params_bytes", "_planner", "_sizes", "_threads", "_workgroup")

    def __init__(self, pipeline: Pipeline, planner: int, params_bytes: int) -> None:
        super().__init__(pipeline)
        interface = pipeline.artifact.interface
        self._buffers, self._params, self._dims = tuple(map(_Wanted, interface.buffers)), interface.params, interface.dims
        self._names = (*[memory.name for memory in interface.buffers], *[param.name for param in interface.params])
        self._addresses = Struct(f"{len(interface.buffers)}Q")
        self._sizes = Struct(f"{sum(memory.rank for memory in interface.buffers) + len(interface.dims)}q")
        self._params_bytes = params_bytes
        self._planner = _PLANNER(planner)
        self._kernels: tuple[CpuKernel, ...] = pipeline._codes[0]
        self._threads = core_count()
        self._workgroup = prod(pipeline.part.steps[0].workgroup)

    def __call__(self, *arguments: Any, **named: Any) -> None:
        """As `CallEntry`."""
        device = self.pipeline.device
        planned = None
        if tracing() is None and device._recording is None and not device.closed:
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
        return None if number < 0 else (number, list(grid), block)
