"""From a Program to code that is loaded on an NVIDIA GPU, beside NVRTC, Triton and Numba: the same small kernel, imports left out, no cache anywhere.

    python tests/bench/bench_compile.py [PEER ...]     ours nvvm nvrtc triton numba; each runs in processes of its own, in turns
    python tests/bench/bench_compile.py --linear       10,000 and 20,000 statements beside 1,000, for a GPU and for the host
    python tests/bench/bench_compile.py --warm         what a hit in the disk cache takes
    python tests/bench/bench_compile.py --tiles        processor time from Programs of tiles to PTX, in three parts

Prints the first compilation in a fresh process and the median of later ones, each of another kernel (the constant differs), in milliseconds.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ROOT = str(Path(__file__).resolve().parents[2])
_LATER, _PROCESSES = 15, 3
Compile = Callable[[int], object]


def _context() -> Any:
    """The primary context, current; with the driver awake."""
    from cuda.bindings import driver as cuda

    cuda.cuInit(0)
    _, device = cuda.cuDeviceGet(0)
    _, context = cuda.cuDevicePrimaryCtxRetain(device)
    cuda.cuCtxSetCurrent(context)
    return cuda


def _programs() -> list[Any]:
    import vyre_py as vp

    made = []
    for constant in range(1, _LATER + 2):
        with vp.ProgramBuilder("axpy") as b:
            n, a = b.dim("n"), b.param("a", vp.f32)
            x, y = b.read("x", vp.f32, n), b.read_write("y", vp.f32, n)
            i = b.global_id(0)
            y[i] = a * x[i] + y[i] * float(constant)
        made.append(b.program)
    return made


def _import_all(package: Any) -> None:
    """Imports what compiling would import on its way."""
    import pkgutil

    for floor in ("ir", "lowering", "drivers"):
        root = importlib.import_module(f"{package.__name__}.{floor}")
        for found in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
            if not found.name.endswith(("worker", "wgpu.device", "wgpu.module", "nvtx", "gemm")):
                importlib.import_module(found.name)


def ours(codegen: str = "llvm") -> Compile:
    os.environ["VYRE_CACHE_LIMIT"] = "0"
    import llvmlite.binding  # noqa: F401 - imports are left out

    import vyre_py as vp

    _import_all(vp)
    if codegen == "nvvm":
        import cuda.bindings.nvvm  # noqa: F401 - likewise: imports are left out
    device, programs, options = vp.device("cuda"), _programs(), vp.CompileOptions(codegen=codegen)
    time.sleep(1)  # nvJitLink is made ready in the background
    return lambda number: device.compile_native(programs[number], options)


def nvvm() -> Compile:
    return ours("nvvm")


def nvrtc() -> Compile:
    from cuda.bindings import nvrtc as library

    cuda = _context()
    _, device = cuda.cuCtxGetDevice()
    attribute = cuda.CUdevice_attribute
    major = cuda.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)[1]
    minor = cuda.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)[1]
    source = """extern "C" __global__ void axpy(const float* __restrict__ x, float* __restrict__ y, float a, unsigned n)
    { unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = a * x[i] + y[i] * %d.0f; }"""

    def compile_one(number: int) -> None:
        _, program = library.nvrtcCreateProgram((source % (number + 1)).encode(), b"axpy.cu", 0, [], [])
        (status,) = library.nvrtcCompileProgram(program, 1, [f"--gpu-architecture=sm_{major}{minor}".encode()])
        _, size = library.nvrtcGetCUBINSize(program)
        code = b" " * size
        library.nvrtcGetCUBIN(program, code)
        result = cuda.cuModuleLoadData(code)
        if int(status) or int(result[0]):
            raise RuntimeError(f"NVRTC: {status}, {result[0]}")
        library.nvrtcDestroyProgram(program)

    return compile_one


def triton() -> Compile:
    folder = tempfile.mkdtemp()
    os.environ["TRITON_CACHE_DIR"] = folder
    import torch
    import triton as library

    x = torch.ones(4096, device="cuda")
    text = """import triton, triton.language as tl
@triton.jit
def axpy(x, y, a, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, a * tl.load(x + i, i < n) + tl.load(y + i, i < n) * %d.0, i < n)
"""
    kernels = []
    for number in range(_LATER + 1):
        path = Path(folder) / f"k{number}.py"
        path.write_text(text % (number + 1), encoding="ascii")
        spec = importlib.util.spec_from_file_location(f"k{number}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        kernels.append(module.axpy)
    assert library is not None
    return lambda number: kernels[number].warmup(x, x, 2.0, 4096, B=1024, grid=(4,))._init_handles()


def numba() -> Compile:
    import warnings

    import numpy as np

    if not hasattr(np, "row_stack"):
        np.vstack = np.vstack  # type: ignore[attr-defined]  # a name that NumPy has dropped, and some versions of Numba's CUDA part still ask for
    warnings.simplefilter("ignore")  # about older names in other packages
    from numba import cuda, float32, uint32

    cuda.current_context()

    def compile_one(number: int) -> object:
        constant = float(number + 1)

        def axpy(x: Any, y: Any, a: Any, n: Any) -> None:
            i = cuda.grid(1)
            if i < n:
                y[i] = a * x[i] + y[i] * constant

        kernel = cuda.jit(axpy)
        made = kernel.compile((float32[::1], float32[::1], float32, uint32))
        made.bind()
        return made

    return compile_one


PEERS: dict[str, Callable[[], Compile]] = {"ours": ours, "nvvm": nvvm, "nvrtc": nvrtc, "triton": triton, "numba": numba}


def _one(name: str) -> None:
    """What one process does: prints its times in milliseconds."""
    compile_one = PEERS[name]()
    gc.collect()
    taken = []
    for number in range(_LATER + 1):
        begin = time.perf_counter()
        compile_one(number)
        taken.append((time.perf_counter() - begin) * 1e3)
    print(json.dumps(taken))


def _race(names: list[str]) -> None:
    found: dict[str, list[list[float]]] = {name: [] for name in names}
    for _ in range(_PROCESSES):
        for name in names:
            # NVRTC, nvJitLink and the driver share a cache on the disk, which would make all but the first process quick.
            alone = {**os.environ, "CUDA_CACHE_DISABLE": "1"}
            done = subprocess.run([sys.executable, __file__, "--one", name], capture_output=True, text=True, check=False, env=alone)
            if done.returncode:
                print(f"{name}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
                continue
            found[name].append(json.loads(done.stdout.strip().splitlines()[-1]))
    peer = found.get("nvrtc") or []
    base = (statistics.median(t[0] for t in peer), statistics.median(t for run in peer for t in run[1:])) if peer else None
    for name, runs in found.items():
        if runs:
            first, later = statistics.median(t[0] for t in runs), statistics.median(t for run in runs for t in run[1:])
            beside = f"  {first / base[0]:.2f} x and {later / base[1]:.2f} x NVRTC's" if base else ""
            print(f"{name:8s} first {first:8.2f} ms, later {later:7.2f} ms{beside}")


def _linear() -> None:
    """Bodies of 1,000 to 20,000 statements, without loops, in the process's own time."""
    os.environ["VYRE_CACHE_LIMIT"] = "0"
    import vyre_py as vp

    for target in ("sm_90", "cpu"):
        times = {}
        for count in (300, 1_000, 10_000, 20_000):
            with vp.ProgramBuilder("long") as b:
                n = b.dim("n")
                x, y = b.read("x", vp.f32, n), b.write("y", vp.f32, n)
                i = b.global_id(0)
                v = x[i]
                for k in range(count // 2):
                    v = v * 1.0001 + float(k)
                y[i] = v
            begin = time.process_time()
            artifact = vp.compile_native(b.program, target)
            times[count] = (time.process_time() - begin) * 1e3
            print(f"{count} statements for {target}: {times[count]:.0f} ms")
            print(artifact.parts[0].stages)
        print(f"10,000 take {times[10_000] / times[1_000]:.1f} x and 20,000 {times[20_000] / times[1_000]:.1f} x what 1,000 take")


def _tiles() -> None:
    """The process's own time for products and attention on tensor cores: to Programs of invocations, to LLVM IR, and to PTX."""
    sys.path.insert(0, _ROOT)
    import vyre_py as vp
    from vyre_py.lowering.compile import prepare
    from vyre_py.lowering.llvm.gpu import nvptx
    from vyre_py.lowering.options import CompileOptions
    from vyre_py.lowering.target import parse_target

    nvptx.prepare()
    rows = {
        "matmul bf16, large": vp.ops.matmul(vp.bf16, tiles="large"), "matmul bf16, medium": vp.ops.matmul(vp.bf16, tiles="medium"),
        "matmul tf32": vp.ops.matmul(vp.f32, tensor=True, transpose_b=True, tiles=(128, 256, 32)),
        "attention, d 128": vp.ops.attention(vp.bf16, 128, on="sm_90"),
        "attention, d 64": vp.ops.attention(vp.bf16, 64),
    }  # fmt: skip
    for name, program in rows.items():
        for arch in ("sm_90a", "sm_80"):
            target, options, taken = parse_target(f"compute_{arch[3:]}"), CompileOptions(), []
            for _ in range(3):
                begin = time.process_time()
                optimised = prepare(program, target, options)
                prepared = time.process_time()
                nvptx.llvm_text(optimised, target, options)
                written = time.process_time()
                nvptx.lower(optimised, target, options)
                taken.append((prepared - begin, written - prepared, time.process_time() - 2 * written + prepared))
            parts = [statistics.median(column) for column in zip(*taken, strict=True)]
            print(f"{name} for {arch}: {sum(parts):.2f} s: passes {parts[0]:.2f}, LLVM IR {parts[1]:.2f}, LLVM {parts[2]:.2f}", flush=True)


def _warm() -> None:
    """A hit in the disk cache: from the Program to the decoded part, and to the loaded pipeline."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["VYRE_CACHE_DIR"] = folder
        import vyre_py as vp
        from vyre_py.drivers.cache.lookup import clear_memory, compiled, validated
        from vyre_py.lowering.options import CompileOptions
        from vyre_py.lowering.target import parse_target

        for target in ("sm_90", "compute_90", "wgsl", "cpu"):
            checked, parsed, options = validated(_programs()[0]), parse_target(target), CompileOptions()
            compiled(checked, [parsed], options)
            taken = []
            for _ in range(200):
                clear_memory()
                begin = time.perf_counter()
                compiled(checked, [parsed], options)
                taken.append((time.perf_counter() - begin) * 1e6)
            print(f"{target}: file to part {statistics.median(taken):.0f} us, least {min(taken):.0f} us; {vp.cache_layers()['disk']}")


def main() -> None:
    """Runs what the arguments say."""
    given = sys.argv[1:]
    sys.path.insert(0, _ROOT)
    if given[:1] == ["--one"]:
        _one(given[1])
    elif given == ["--linear"]:
        _linear()
    elif given == ["--warm"]:
        _warm()
    elif given == ["--tiles"]:
        _tiles()
    else:
        _race(given or list(PEERS))


if __name__ == "__main__":
    main()
