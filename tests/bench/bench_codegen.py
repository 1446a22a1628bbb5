"""The two ways to PTX beside each other: compile time, registers, spills, and the time of a launch; writes `lowering/codegen.json`.

    python tests/bench/bench_codegen.py [cuda | none]

`none` leaves the launches out, since it needs no GPU, and writes nothing. The page `lowering/CODEGEN.md` is made from the file by `python tests/pages.py`.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tree import ROOT, on_path

on_path()
os.environ["VYRE_CACHE_LIMIT"] = "0"

import numpy as np  # noqa: E402 - the path and the environment above must stand first

import vyre_py as vp  # noqa: E402 - as above
from vyre_py.demo import programs as demo  # noqa: E402 - as above
from vyre_py.drivers.cache.lookup import clear_memory  # noqa: E402 - as above
from vyre_py.ir.language.program import Program  # noqa: E402 - as above

FILE: Final = ROOT / "lowering" / "codegen.json"
WAYS: Final = ("llvm", "nvvm")
_TARGET: Final = "sm_90"
_ROUNDS: Final = 7


def _elementwise(name: str, body: str) -> Program:
    head = f"program {name}(n) workgroup(256) {{\n  buffer x: f32[n] read\n  buffer y: f32[n] read_write\n  let i = global_id.x\n"
    return Program.from_text(f"{head}  y[i] = {body}\n}}")


_SUMS = Program.from_text("""program sums(n, m) workgroup(256) over(n) {
  buffer x: f32[n, m] read
  buffer y: f32[n] write
  var total: f32 = 0.0
  for k in 0..m { total = total + x[global_id.x, k] }
  y[global_id.x] = total
}""")
_PRODUCT = Program.from_text("""program product(rows, inner, columns) workgroup(16, 16) over(columns, rows) {
  buffer x: f32[rows, inner] read
  buffer w: f32[inner, columns] read
  buffer y: f32[rows, columns] write
  var total: f32 = 0.0
  for k in 0..inner { total = total + x[global_id.y, k] * w[k, global_id.x] }
  y[global_id.y, global_id.x] = total
}""")
_MIX = Program.from_text("""program mix(n) workgroup(256) {
  buffer y: u32[n] write
  var a: u32 = global_id.x
  for k in 0u32..256u32 { a = (a ^ (a >> 7u32)) * 1664525 + k }
  y[global_id.x] = a
}""")


def _mandelbrot() -> Program:
    names: dict[str, Any] = {}
    exec((ROOT / "examples" / "03_mandelbrot.py").read_text(encoding="utf-8").split("device =")[0], names)
    program: Program = names["b"].program
    return program


_BIG, _ROWS, _SIDE = 1 << 26, 1 << 14, 1024
# Name -> the Program, and the shapes and scalars that it is launched with.
CASES: Final[Mapping[str, tuple[Callable[[], Program], Mapping[str, Any]]]] = {
    "axpy": (lambda: _elementwise("axpy", "0.5 * x[i] + y[i]"), {"x": _BIG, "y": _BIG}),
    "exp": (lambda: _elementwise("exp", "exp(x[i])"), {"x": _BIG, "y": _BIG}),
    "sin": (lambda: _elementwise("sin", "sin(x[i])"), {"x": _BIG, "y": _BIG}),
    "pow": (lambda: _elementwise("pow", "pow(x[i], y[i])"), {"x": _BIG, "y": _BIG}),
    "row sums": (lambda: _SUMS, {"x": (_ROWS, 1024), "y": _ROWS}),
    "product": (lambda: _PRODUCT, {"x": (_SIDE, _SIDE), "w": (_SIDE, _SIDE), "y": (_SIDE, _SIDE)}),
    "mix of integers": (lambda: _MIX, {"y": 1 << 22}),
    "mandelbrot": (_mandelbrot, {"out": (2048, 2048), "turns": 256}),
    "histogram": (demo.histogram, {"picture": (2048, 2048, 3), "bins": 256}),
}


def _compiled(program: Program, way: str) -> tuple[dict[str, float], vp.Artifact]:
    """Milliseconds to machine code, registers and bytes of spills of the entry that takes any arguments."""
    options, taken = vp.CompileOptions(codegen="nvvm" if way == "nvvm" else "llvm"), []
    for _ in range(_ROUNDS):
        clear_memory()
        begin = time.perf_counter()
        artifact = vp.compile_native(program, _TARGET, options)
        taken.append((time.perf_counter() - begin) * 1e3)
    (step,) = artifact.parts[0].steps
    found = step.images[0].resources[step.entries[-1].symbol]
    if "spill_store_bytes" not in found:
        raise SystemExit(f"the assembler says nothing of spills:\n{step.images[0].log}")
    return {
        "compile_ms": round(statistics.median(taken), 1), "registers": found["registers"],
        "spill_bytes": found["spill_store_bytes"] + found["spill_load_bytes"],
    }, artifact  # fmt: skip


def _launched(device: Any, artifact: vp.Artifact, given: Mapping[str, Any]) -> float:
    """Microseconds of a launch, by the device's clock."""
    interface = artifact.interface
    arguments: dict[str, Any] = {param.name: given[param.name] for param in interface.params}
    buffers = []
    for memory in interface.buffers:
        shape = given[memory.name]
        data = np.linspace(0.5, 1.5, int(np.prod(shape))).reshape(shape).astype(memory.type.dtype)
        buffers.append(device.upload(data))
        arguments[memory.name] = buffers[-1]
    pipeline = device.load(artifact)
    launch = pipeline.bind(arguments)
    taken = []
    for _ in range(_ROUNDS + 2):
        from vyre_py.drivers.cuda.launch.waiting import timed

        elapsed = timed(device.context, int(device.context.stream), launch)
        device.synchronize()
        taken.append((elapsed() or 0) / 1e3)
    for buffer in buffers:
        buffer.free()
    return round(statistics.median(taken[2:]), 1)


def main() -> None:
    """Prints the figures, and writes them where they were all taken."""
    kind = sys.argv[1] if len(sys.argv) > 1 else "cuda"
    device: Any = vp.device("cuda") if kind == "cuda" else None
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for name, (make, given) in CASES.items():
        program = make()
        rows[name] = {}
        for way in WAYS:
            rows[name][way], artifact = _compiled(program, way)
            if device is not None:
                rows[name][way]["launch_us"] = _launched(device, artifact, given)
        print(name, rows[name], flush=True)
    if device is not None:
        report = {"device": device.properties.name, "target": _TARGET, "rows": rows}
        FILE.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        if (out := os.environ.get("OUT")) is not None:
            (Path(out) / FILE.name).write_text(FILE.read_text(encoding="utf-8"), encoding="utf-8")


if __name__ == "__main__":
    main()
