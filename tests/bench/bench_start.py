"""From `import` to the first result in a fresh process, with a warm cache, beside Numba's: processor time, less NumPy's own import.

    python tests/bench/bench_start.py [ROUNDS]     20 rounds unless given
    python tests/bench/bench_start.py --cuda [ROUNDS]     step by step on a GPU, on the wall, beside the driver's own context

Each process imports NumPy, then ours, opens the CPU, and gets one result of axpy over 1,000 elements: of a Program that is built there, whose code comes from
the disk cache, and of an artifact that is read from a file. Numba's process has the same function with `cache=True`. They take turns; modules are compiled to
bytecode before.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import row

_ROOT = Path(__file__).resolve().parents[2]
_ROUNDS = 20

_BEGIN = """
import sys, time
import numpy as np
xs, ys = np.linspace(0, 1, 1000, dtype=np.float32), np.ones(1000, np.float32)
wanted = np.float32(2) * xs + ys
begin = time.process_time()
"""
_END = """
end = time.process_time()
assert np.array_equal(out, wanted)
print(begin * 1e3, (end - begin) * 1e3)
"""
_BUILT = """
import vyre_py as vp
with vp.ProgramBuilder("axpy") as b:
    n = b.dim("n")
    a = b.param("a", vp.f32)
    x, y = b.read("x", vp.f32, n), b.read_write("y", vp.f32, n)
    i = b.global_id(0)
    y[i] = a * x[i] + y[i]
"""
_FIRST = {
    "built, code from the disk cache": _BUILT + 'out = vp.device("cpu").compile_native(b.program).dispatch({"x": xs, "y": ys, "a": 2.0})["y"]',
    "an artifact from a file": 'import vyre_py as vp\nout = vp.device("cpu").load(vp.Artifact.load(sys.argv[1])).dispatch({"x": xs, "y": ys, "a": 2.0})["y"]',
    "numba, cache=True": "from axpy_of_numba import axpy\naxpy(np.float32(2), xs, ys)\nout = ys",
}
_NUMBA = """
import numba
@numba.njit(cache=True)
def axpy(a, x, y):
    for i in range(x.size):
        y[i] = a * x[i] + y[i]
"""
_COMPILED = _BUILT + 'vp.compile_native(b.program, "cpu").save(sys.argv[1])'

_STEPS = ("import", "open", "compile, from the disk cache", "first dispatch", "next dispatch")
_ON_GPU = (
    """
import sys, time
import numpy as np
xs, ys = np.linspace(0, 1, 1000, dtype=np.float32), np.ones(1000, np.float32)
times = [time.perf_counter()]
def step(value=None):
    times.append(time.perf_counter())
    return value
"""
    + _BUILT
    + """
step()
device = step(vp.device("cuda"))
pipeline = step(device.compile_native(b.program))
for _ in range(2):
    out = step(pipeline.dispatch({"x": xs, "y": ys, "a": 2.0})["y"])
assert np.array_equal(out, np.float32(2) * xs + ys)
print(*[(after - before) * 1e3 for before, after in zip(times, times[1:])])
"""
)
_DRIVER = """
import time
begin = time.perf_counter()
from cuda.bindings import driver as cuda
middle = time.perf_counter()
cuda.cuInit(0)
_, device = cuda.cuDeviceGet(0)
_, context = cuda.cuDevicePrimaryCtxRetain(device)
cuda.cuCtxSetCurrent(context)
print((middle - begin) * 1e3, (time.perf_counter() - middle) * 1e3)
"""


def _run(text: str, folder: Path) -> list[float]:
    """What a process of its own prints."""
    paths = os.pathsep.join([str(_ROOT), str(folder), os.environ.get("PYTHONPATH", "")])
    places = {"PYTHONPATH": paths, "VYRE_CACHE_DIR": str(folder / "cache"), "NUMBA_CACHE_DIR": str(folder / "numba")}
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, "-c", text, str(folder / "axpy.vyre")], env=kept | places, capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def on_gpu(rounds: int) -> None:
    """Prints the steps on a GPU, medians over processes that take turns with those of the driver alone."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        taken, alone = zip(*[(_run(_ON_GPU, folder), _run(_DRIVER, folder)) for _ in range(rounds + 1)][1:], strict=True)  # the first fills caches
    steps = [statistics.median(times) for times in zip(*taken, strict=True)]
    imported, opened = (statistics.median(times) for times in zip(*alone, strict=True))
    peers = [(imported, "cuda.bindings"), (opened, "a context by cuda.bindings")]
    for number, (name, taken_ms) in enumerate(zip(_STEPS, steps, strict=True)):
        row(name, taken_ms, "ms", *(peers[number] if number < len(peers) else ()))


def main() -> None:
    """Prints the table."""
    if sys.argv[1:2] == ["--cuda"]:
        on_gpu(int(sys.argv[2]) if sys.argv[2:] else _ROUNDS)
        return
    rounds = int(sys.argv[1]) if sys.argv[1:] else _ROUNDS
    found: dict[str, list[list[float]]] = {name: [] for name in _FIRST}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "axpy_of_numba.py").write_text(_NUMBA, encoding="ascii")
        _run("import sys\n" + _COMPILED, folder)
        for number in range(rounds + 1):
            for name, text in _FIRST.items():
                taken = _run(_BEGIN + text + _END, folder)
                if number:  # the first fills caches
                    found[name].append(taken)
    alone = statistics.median(taken[0] for runs in found.values() for taken in runs)
    row("a process that imports NumPy", alone, "ms")
    *ours, peer = [(name, statistics.median(taken[1] for taken in runs)) for name, runs in found.items()]
    for name, taken_ms in ours:
        row(f"first result: {name}", taken_ms, "ms", peer[1], peer[0])


if __name__ == "__main__":
    main()
