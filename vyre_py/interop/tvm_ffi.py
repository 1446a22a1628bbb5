"""Programs as functions of TVM FFI, which PyTorch, JAX, C++ and Rust call: `function`.

    from vyre_py.interop.tvm_ffi import function

    axpy = function(program)
    axpy(x, y, 2.0)  # tensors of PyTorch, NumPy's by tvm_ffi.from_dlpack

Arguments are the buffers in order of declaration, then the params, then the dims that are the size of no axis, all by place. Nothing is made: what a Program
writes is an argument, too. Tensors are contiguous, on the function's device, and of the declared types; sizes are checked as `bind` does. Calls have no Python:
`lowering/llvm/adapters/tvm_ffi.py` writes each function. On the CPU they run in the calling thread, on a GPU they are one launch on the stream that TVM FFI has
for it now (`tvm_ffi.use_torch_stream`). TVM FFI does not tell of the negative bit of PyTorch's tensors: give `x.resolve_neg()` of one that may have it.
Nor does it tell of arrays of JAX, which never change elsewhere: give none for what is written.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any

from vyre_py.drivers.sharing.c_callable import CCallableWords
from vyre_py.drivers.sharing.dlpack import TYPE_OF_WORD, data_type
from vyre_py.interop.hidden_device import gpu_device, host_device
from vyre_py.ir.extras import with_extra
from vyre_py.ir.language.nodes import Memory
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.llvm import jit
from vyre_py.lowering.llvm.adapters.tvm_ffi import (
    FUNCTION_SYMBOL,
    RAISE_SYMBOL,
    STREAM_SYMBOL,
    TvmPlace,
    TvmTensor,
    function_text,
    takes_param,
)

with with_extra("tvm-ffi", __name__):
    import tvm_ffi

if TYPE_CHECKING:
    from vyre_py.drivers.callable import CallEntry
    from vyre_py.drivers.device import Device
    from vyre_py.ir.language.program import Program
    from vyre_py.lowering.artifact.parts import Interface
    from vyre_py.lowering.options import CompileOptions

__all__ = ["function"]


def _tensor(interface: Interface, memory: Memory) -> TvmTensor:
    kind = data_type(memory.type.scalar)
    lanes = memory.type.lanes if memory.type.is_vector else 0
    apart = {other.name for written, other in interface.apart() if written is memory}
    numbers = tuple([number for number, other in enumerate(interface.buffers) if other.name in apart])
    return TvmTensor(memory.name, str(memory.type), memory.type.size_bytes, kind.code | kind.bits << 8 | 1 << 16, memory.shape, lanes, numbers)


def _device(name: str) -> Device:
    """The device of a name. Raises Unsupported for kinds that have no functions, DeviceUnavailable."""
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()) or (kind == "cpu" and int(number or 0)):
        raise Unsupported("a function of TVM FFI", [Missing(f"device {name!r}", help="'cpu', 'cuda' and 'cuda:1' are such names")])
    return host_device() if kind == "cpu" else gpu_device(int(number or 0))


@cache  # code stays for good in any case, one for each Program
def _entry(program: Program, options: CompileOptions | None, device: Device) -> tuple[int, CallEntry]:
    """The address of the function, and what it calls."""
    entry = device.compile_native(program, options).callable()
    kind, number = device.dlpack_device or (0, 0)
    place = TvmPlace("in the memory of the CPU" if device.kind == "cpu" else f"on {device.name}", kind, number, device.kind == "cuda")
    interface = entry.pipeline.artifact.interface
    if refused := [param for param in interface.params if not takes_param(param.type)]:
        names = ", ".join(f"{param.name!r} ({param.type})" for param in refused)
        raise Unsupported("a function of TVM FFI", [Missing(f"params that are no numbers of its own: {names}", help="take buffers of one element")])
    solved = {axis for memory in interface.buffers for axis in memory.shape}
    text = function_text(
        interface.name, place, [_tensor(interface, memory) for memory in interface.buffers], [(param.name, param.type) for param in interface.params],
        [(dim.name, dim not in solved) for dim in interface.dims], entry.c_address, CCallableWords.from_address(entry.c_address).call,
        {word: type_.name for word, type_ in TYPE_OF_WORD.items()},
    )  # fmt: skip
    library = ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi())  # it is loaded already
    theirs = {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in (RAISE_SYMBOL, STREAM_SYMBOL)}
    return jit.link("vyre-tvm", text, (FUNCTION_SYMBOL,), theirs)[FUNCTION_SYMBOL], entry


def function(program: Program, options: CompileOptions | None = None, device: str = "cpu") -> Any:
    """The Program as a `tvm_ffi.Function`, compiled for a device: "cpu", "cuda" or "cuda:1". What does not fit is a TypeError or a ValueError of a call.

    Raises what compiling raises; Unsupported for a Program whose launches need more than arguments, for params that are vectors or floats of 8 and 16 bits, and
    for other devices; DeviceUnavailable.
    """
    address, entry = _entry(program, options, _device(device))
    return tvm_ffi.Function.__from_extern_c__(address, keep_alive_object=entry)
