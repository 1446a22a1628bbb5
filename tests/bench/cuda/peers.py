"""What we are measured against, each loaded when first wanted: a C loop around `cuLaunchKernel`, cuda.bindings, cuda.core, PyTorch, CuPy."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from importlib import import_module
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.cuda.timing import Work, repeated
from vyre_py.drivers.cuda.launch.launch import BoundKernel

__all__ = ["Absent", "block_loop", "core_launch", "cupy", "cupy_launch", "forbid", "packed_launch", "torch", "triton_launch", "values_loop"]


class Absent(Exception):
    """A peer that is not here."""


_forbidden: list[str] = []  # why no library is to be used, if so


def forbid(why: str) -> None:
    """From now on no library is a peer: a stand-in's addresses are none to a real GPU."""
    _forbidden.append(why)


def _library(name: str, title: str) -> Any:
    if _forbidden:
        raise Absent(_forbidden[0])
    try:
        return import_module(name)
    except ImportError as error:
        raise Absent(f"{title} is not installed ({error})") from error


@cache
def torch() -> Any:
    """PyTorch with a GPU. Raises Absent."""
    found = _library("torch", "PyTorch")
    if not found.cuda.is_available():
        raise Absent("this PyTorch sees no GPU")
    found.cuda.init()
    return found


@cache
def cupy() -> Any:
    """CuPy. Raises Absent."""
    return _library("cupy", "CuPy")


# ---- the floor

_LAUNCH = "typedef int (*launch_t)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);"
_C = f"""
{_LAUNCH}
int launch_loop(launch_t launch, void *function, const unsigned *shape, void *stream, void **values, void **extra, int times)
{{
    unsigned gx = shape[0], gy = shape[1], gz = shape[2], bx = shape[3], by = shape[4], bz = shape[5], bytes = shape[6];
    for (int i = 0; i < times; i++) {{
        int status = launch(function, gx, gy, gz, bx, by, bz, bytes, stream, values, extra);
        if (status) return status;
    }}
    return 0;
}}
"""
_LOADS = "\n".join(f"  %at{n} = getelementptr i32, ptr %shape, i64 {n}\n  %s{n} = load i32, ptr %at{n}" for n in range(7))
_LLVM = f"""
define i32 @launch_loop(ptr %launch, ptr %function, ptr %shape, ptr %stream, ptr %values, ptr %extra, i32 %times) {{
entry:
{_LOADS}
  br label %head
head:
  %i = phi i32 [ 0, %entry ], [ %next, %more ]
  %go = icmp slt i32 %i, %times
  br i1 %go, label %body, label %done
body:
  %status = call i32 %launch(ptr %function, {", ".join(f"i32 %s{n}" for n in range(7))}, ptr %stream, ptr %values, ptr %extra)
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %failed, label %more
more:
  %next = add i32 %i, 1
  br label %head
failed:
  ret i32 %status
done:
  ret i32 0
}}
"""
_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 6, ctypes.c_int)
_kept: list[Any] = []  # code that function pointers point into


def _compiled(compiler: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "loop.c"), Path(folder, "loop.so")
        source.write_text(_C, encoding="ascii")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True, capture_output=True)
        loaded = ctypes.CDLL(str(library))
    _kept.append(loaded)
    return _PROTOTYPE(("launch_loop", loaded))


def _jitted() -> Any:
    from llvmlite import binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    linker = llvm.create_lljit_compiler()
    library = llvm.JITLibraryBuilder().add_ir(_LLVM).export_symbol("launch_loop").link(linker, "launch-loop")
    _kept.extend((linker, library))
    return _PROTOTYPE(library["launch_loop"])


@cache
def loop_function() -> Any:
    """The loop in C, compiled by this machine's C compiler; by LLVM where there is none, or it does not work."""
    compiler = shutil.which("cc")
    if compiler is not None:
        try:
            return _compiled(compiler)
        except (OSError, subprocess.CalledProcessError):
            pass
    return _jitted()


def _loop(kernel: BoundKernel, values: Any, extra: Any) -> Work:
    plan, context = kernel.plan, kernel.device.context
    shape = (ctypes.c_uint * 7)(*kernel.grid, *plan.step.workgroup, kernel.module.workgroup_bytes)
    loop, launch = loop_function(), context.function("cuLaunchKernel")
    function, stream = int(kernel.module.function), int(context.stream)

    def work(times: int) -> None:
        status = loop(launch, function, shape, stream, values, extra, times)
        if status:
            raise RuntimeError(f"the C loop's launch gave status {status}")

    return work


def values_loop(kernel: BoundKernel) -> Work:
    """The C loop over a kernel of ours, on its stream; a pointer to each argument, as `kernelParams` has it."""
    slots = kernel.plan.step.layout.slots
    return _loop(kernel, (ctypes.c_void_p * max(1, len(slots)))(*[kernel.block_address + slot.offset_bytes for slot in slots]), None)


def block_loop(kernel: BoundKernel) -> Work:
    """The same, with the arguments in one block, as our own launches have them."""
    size = ctypes.c_size_t(kernel.plan.step.layout.size_bytes)
    extra = (ctypes.c_void_p * 5)(1, kernel.block_address, 2, ctypes.addressof(size), 0)
    looping = _loop(kernel, None, extra)

    def work(times: int, _held: Any = size) -> None:
        looping(times)

    return work


# ---- launches from Python


def packed_launch(kernel: BoundKernel) -> Work:
    """`cuLaunchKernel` of cuda.bindings, with the same kernel and the arguments packed before."""
    plan, launch = kernel.plan, kernel.device.context.cuda.cuLaunchKernel
    slots = plan.step.layout.slots
    values = (ctypes.c_void_p * len(slots))(*[kernel.block_address + slot.offset_bytes for slot in slots])
    given = (kernel.module.function, *kernel.grid, *plan.step.workgroup, kernel.module.workgroup_bytes, int(kernel.stream), ctypes.addressof(values), 0)

    def work(times: int, _held: Any = values) -> None:
        for _ in repeat(None, times):
            launch(*given)

    return work


_AXPY = r"""extern "C" __global__ void axpy(float *y, const float *x, float a, int n)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = a * x[i] + y[i]; }"""


def core_launch(x: int, y: int, count: int) -> tuple[Work, Work]:
    """`cuda.core.launch` of an axpy with four arguments on a stream of its own; and the same with a wait after each. Raises Absent."""
    core = _library("cuda.core", "cuda.core")
    device = core.Device()
    device.set_current()
    stream = device.create_stream()
    options = core.ProgramOptions(arch="sm_{}{}".format(*device.compute_capability))
    kernel = core.Program(_AXPY, "c++", options).compile("cubin").get_kernel("axpy")
    config = core.LaunchConfig(grid=-(-count // 256), block=256)
    launch, a, n = core.launch, np.float32(2), np.int32(count)

    def only(times: int) -> None:
        for _ in repeat(None, times):
            launch(stream, config, kernel, y, x, a, n)

    def waiting(times: int) -> None:
        for _ in repeat(None, times):
            launch(stream, config, kernel, y, x, a, n)
            stream.sync()

    return only, waiting


def cupy_launch(count: int) -> Work:
    """A CuPy RawKernel. Raises Absent."""
    library = cupy()
    kernel = library.RawKernel(_AXPY, "axpy")
    x, y = library.ones(count, dtype=library.float32), library.ones(count, dtype=library.float32)
    grid, given = (-(-count // 256),), (y, x, np.float32(2), np.int32(count))
    return repeated(lambda: kernel(grid, (256,), given))


def triton_launch(x: Any, y: Any) -> Work:
    """An axpy of Triton's over two of PyTorch's tensors and a number. Raises Absent."""
    _library("triton", "Triton")
    made = import_module("tests.bench.cuda.triton_axpy")
    count = x.numel()
    kernel, grid, block = made.axpy, (-(-count // made.BLOCK),), made.BLOCK

    def work(times: int) -> None:
        for _ in repeat(None, times):
            kernel[grid](y, x, 2.0, count, block=block)

    return work
