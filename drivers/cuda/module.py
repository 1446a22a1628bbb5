"""Modules: PTX loaded by the driver's own compiler, and the kernel in it."""

from __future__ import annotations

import weakref
from typing import Any, Final

from vyre_py.drivers.cuda.context import Context
from vyre_py.drivers.errors import DeviceLost, OutOfMemory
from vyre_py.lowering.artifact import Entry
from vyre_py.lowering.errors import ToolchainError

__all__ = ["Module"]

_LOG_BYTES: Final = 16 << 10
_ELF: Final = b"\x7fELF"  # how machine code begins
_STATIC_WORKGROUP_BYTES: Final = 48 << 10


def _unload(context: Context, handle: Any) -> None:
    """Unloads a module that nothing refers to. A kernel of it may still run, so this waits; quiet, since a finaliser calls it."""
    if context.gone or context.later(lambda: _unload(context, handle)):
        return
    context.cuda.cuCtxSetCurrent(context.handle)
    context.note(context.cuda.cuCtxSynchronize(), f"{context.name} failed while it ran")
    context.note(context.cuda.cuModuleUnload(handle), f"{context.name} cannot unload code")


class Module:
    """One loaded entry: `handle` is its module, `function` its kernel, `workgroup_bytes` what each launch gives it, `occupancy` the share of a
    multiprocessor's threads that it can keep busy, 0 until that is known."""

    __slots__ = ("__weakref__", "_finalizer", "_origin", "function", "handle", "occupancy", "workgroup_bytes")

    def __init__(self, context: Context, entry: Entry, workgroup_bytes: int) -> None:
        context.require_no_capture(f"{entry.symbol} cannot be loaded on {context.name}")
        context.enter()
        self.handle = handle = _load(context, entry)
        self._origin: Module | None = None
        self._finalizer = weakref.finalize(self, _unload, context, handle)
        self._finalizer.atexit = False
        self.workgroup_bytes = workgroup_bytes
        self.occupancy = 0.0
        cuda, doing = context.cuda, f"{context.name} cannot load {entry.symbol}"
        self.function = context.ok(cuda.cuModuleGetFunction(handle, entry.symbol.encode()), doing)
        _allow(context, self.function, workgroup_bytes, doing)

    def resized(self, context: Context, workgroup_bytes: int) -> Module:
        """The same kernel, whose launches give it other workgroup memory."""
        other = Module.__new__(Module)
        other._finalizer, other._origin = self._finalizer, self
        other.handle, other.function, other.occupancy, other.workgroup_bytes = self.handle, self.function, self.occupancy, workgroup_bytes
        _allow(context, self.function, workgroup_bytes, f"{context.name} cannot give a kernel {workgroup_bytes} bytes of workgroup memory")
        return other

    def unload(self) -> None:
        """Unloads now; again is quiet."""
        self._finalizer()


def _allow(context: Context, function: Any, workgroup_bytes: int, doing: str) -> None:
    """Lets launches of a kernel have so much workgroup memory."""
    if workgroup_bytes > _STATIC_WORKGROUP_BYTES:
        context.enter()
        largest = context.cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        context.ok(context.cuda.cuFuncSetAttribute(function, largest, workgroup_bytes), doing)


def _load(context: Context, entry: Entry) -> Any:
    """The module's handle. Raises ToolchainError with the compiler's log, OutOfMemory, DeviceLost."""
    cuda = context.cuda
    log = bytearray(_LOG_BYTES)
    option = cuda.CUjit_option
    options = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, option.CU_JIT_OPTIMIZATION_LEVEL]
    values = [log, _LOG_BYTES, entry.details.get("assembler_level", 4)]
    result = cuda.cuModuleLoadDataEx(entry.code + b"\0", len(options), options, values)
    if not result[0]:
        return result[1]
    error = context.failure(result[0], f"{context.name} cannot load {entry.symbol}")
    if isinstance(error, (OutOfMemory, DeviceLost)):
        raise error
    text = log.split(b"\0", 1)[0].decode(errors="replace").strip()
    code = "" if entry.code.startswith(_ELF) else entry.code.decode(errors="replace")
    raise ToolchainError("the CUDA driver", f"{error}\n{text}".rstrip(), code) from error
