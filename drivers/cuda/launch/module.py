"""Modules: machine code, or PTX for the driver's own compiler, loaded, and the kernel in it."""

from __future__ import annotations

import weakref
from typing import Any, Final

from vyre_py.drivers.cuda.context import Context
from vyre_py.drivers.errors import DeviceLost, OutOfMemory
from vyre_py.lowering.artifact.parts import Image
from vyre_py.lowering.errors import ToolchainError

__all__ = ["CudaModule"]

_LOG_BYTES: Final = 16 << 10
_ELF: Final = b"\x7fELF"  # how machine code begins
_STATIC_WORKGROUP_BYTES: Final = 48 << 10


def _unload(context: Context, handle: Any) -> None:
    """Unloads a module that nothing refers to. A kernel of it may still run, so this waits; quiet, since a finaliser calls it."""
    if context.handles_invalid or context.later(lambda: _unload(context, handle)):
        return
    with context.visited():
        context.note(context.cuda.cuCtxSynchronize(), f"{context.name} failed while it ran")
        context.note(context.cuda.cuModuleUnload(handle), f"{context.name} cannot unload code")


class CudaModule:
    """One loaded function: `handle` is its module, `function` its kernel, `workgroup_bytes` what each launch gives it, `occupancy` the share of a
    multiprocessor's threads that it can keep busy, 0 until that is known."""

    __slots__ = ("__weakref__", "_finalizer", "_origin", "function", "handle", "occupancy", "workgroup_bytes")

    def __init__(self, context: Context, image: Image, symbol: str, workgroup_bytes: int, level: int = 4) -> None:
        """`level` is how hard the driver's compiler tries, 0 to 4. Raises ToolchainError with the compiler's log, OutOfMemory, DeviceLost."""
        context.require_no_capture(f"{symbol} cannot be loaded on {context.name}")
        with context.entered():
            self.handle = handle = _load(context, image, symbol, level)
        self._origin: CudaModule | None = None
        self._finalizer = weakref.finalize(self, _unload, context, handle)
        self._finalizer.atexit = False
        self.workgroup_bytes = workgroup_bytes
        self.occupancy = 0.0
        self.function = _function(context, handle, symbol, workgroup_bytes)

    def another(self, context: Context, symbol: str) -> CudaModule:
        """Another kernel of the same code, whose launches give it the same workgroup memory."""
        other = CudaModule.__new__(CudaModule)
        other._finalizer, other._origin, other.handle = self._finalizer, self, self.handle
        other.occupancy, other.workgroup_bytes = 0.0, self.workgroup_bytes
        other.function = _function(context, self.handle, symbol, self.workgroup_bytes)
        return other

    def resized(self, context: Context, workgroup_bytes: int) -> CudaModule:
        """The same kernel, whose launches give it other workgroup memory."""
        other = CudaModule.__new__(CudaModule)
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
        largest = context.cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        with context.entered():
            context.ok(context.cuda.cuFuncSetAttribute(function, largest, workgroup_bytes), doing)


def _function(context: Context, handle: Any, symbol: str, workgroup_bytes: int) -> Any:
    """A kernel of a loaded module, ready for launches that give it so much workgroup memory."""
    doing = f"{context.name} cannot load {symbol}"
    with context.entered():
        status, *found = context.relief.attempt(lambda: context.cuda.cuModuleGetFunction(handle, symbol.encode()))
    if status:
        error = context.failure(status, doing)
        if status.name == "CUDA_ERROR_NOT_FOUND":
            raise ToolchainError("the CUDA driver", f"{error}") from error
        raise error
    (function,) = found
    _allow(context, function, workgroup_bytes, doing)
    return function


def _load(context: Context, image: Image, symbol: str, level: int) -> Any:
    """The module's handle. Raises ToolchainError with the compiler's log, OutOfMemory, DeviceLost."""
    cuda = context.cuda
    log = bytearray(_LOG_BYTES)
    option = cuda.CUjit_option
    options = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, option.CU_JIT_OPTIMIZATION_LEVEL]
    values = [log, _LOG_BYTES, level]
    result = context.relief.attempt(lambda: cuda.cuModuleLoadDataEx(image.code + b"\0", len(options), options, values))
    if not result[0]:
        return result[1]
    error = context.failure(result[0], f"{context.name} cannot load {symbol}")
    if isinstance(error, (OutOfMemory, DeviceLost)):
        raise error
    text = log.split(b"\0", 1)[0].decode(errors="replace").strip()
    code = "" if image.code.startswith(_ELF) else image.code.decode(errors="replace")
    raise ToolchainError("the CUDA driver", f"{error}\n{text}".rstrip(), code) from error
