"""Programs as functions of TVM FFI, which PyTorch, JAX, C++ and Rust call: `function`.

    from vyre_py.interop.tvm_ffi import function

    axpy = function(program)
    axpy(x, y, 2.0)  # tensors of PyTorch, NumPy's by tvm_ffi.from_dlpack

Arguments are the buffers in order of declaration, then the params, then the dims that are the size of no axis, all by place. Nothing is made: what a Program
writes is an argument, too. Tensors are contiguous, on the CPU, and of the declared types; sizes are checked as `bind` does. Calls run in the calling thread,
without Python: `lowering/llvm/adapters/tvm_ffi.py` writes each function.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any

import tvm_ffi

from vyre_py.drivers.sharing.c_callable import CCallableWords
from vyre_py.drivers.sharing.dlpack import data_type
from vyre_py.interop.hidden_device import host_device
from vyre_py.ir.language.nodes import Memory
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.llvm import jit
from vyre_py.lowering.llvm.adapters.tvm_ffi import FUNCTION_SYMBOL, RAISE_SYMBOL, TvmTensor, function_text, takes_param

if TYPE_CHECKING:
    from vyre_py.drivers.callable import CallEntry
    from vyre_py.ir.language.program import Program
    from vyre_py.lowering.options import CompileOptions

__all__ = ["function"]


def _tensor(memory: Memory) -> TvmTensor:
    kind = data_type(memory.type.scalar)
    lanes = memory.type.lanes if memory.type.is_vector else 0
    return TvmTensor(memory.name, str(memory.type), kind.code | kind.bits << 8 | 1 << 16, memory.rank, lanes)


@cache  # code stays for good in any case, one for each Program
def _entry(program: Program, options: CompileOptions | None) -> tuple[int, CallEntry]:
    """The address of the function, and what it calls."""
    entry = host_device().compile_native(program, options).callable()
    interface = entry.pipeline.artifact.interface
    if refused := [param for param in interface.params if not takes_param(param.type)]:
        names = ", ".join(f"{param.name!r} ({param.type})" for param in refused)
        raise Unsupported("a function of TVM FFI", [Missing(f"params that are no numbers of its own: {names}", help="take buffers of one element")])
    solved = {axis for memory in interface.buffers for axis in memory.shape}
    text = function_text(
        interface.name, [_tensor(memory) for memory in interface.buffers], [(param.name, param.type) for param in interface.params],
        [(dim.name, dim not in solved) for dim in interface.dims], entry.c_address, CCallableWords.from_address(entry.c_address).call,
    )  # fmt: skip
    raises = ctypes.cast(getattr(ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi()), RAISE_SYMBOL), ctypes.c_void_p).value  # the library is loaded already
    return jit.link("vyre-tvm", text, (FUNCTION_SYMBOL,), {RAISE_SYMBOL: raises or 0})[FUNCTION_SYMBOL], entry


def function(program: Program, options: CompileOptions | None = None) -> Any:
    """The Program as a `tvm_ffi.Function`, compiled for the CPU. What does not fit is a TypeError or a ValueError of a call.

    Raises what compiling raises; Unsupported for a Program whose launches need more than arguments, and for params that are vectors or floats of 8 and 16
    bits.
    """
    address, entry = _entry(program, options)
    return tvm_ffi.Function.__from_extern_c__(address, keep_alive_object=entry)
