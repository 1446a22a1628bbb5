"""Numerics "fast" against strict: the time of each op, of 64 applied one after another to each of many numbers.

    python tests/bench/bench_fast.py [cuda | cpu]
"""

from __future__ import annotations

import sys

import numpy as np
from measure import row, seconds

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.ir.language.program import Program
from vyre_py.lowering.options import CompileOptions

TURNS = 64
COUNTS = {"cuda": 1 << 24, "cpu": 1 << 16}

# What is done to x, which stays near 1, with y = 0.75.
STEPS = {
    "multiply and add": "x * y + 0.25", "divide": "y / x", "reciprocal": "1.0 / x", "sqrt": "sqrt(x) + y", "rsqrt": "rsqrt(x + y)", "exp": "exp(-x)",
    "exp2": "exp2(-x)", "exp10": "exp10(-x)", "log": "log(x + y) + y", "log2": "log2(x + y) + y", "log10": "log10(x + y) + y", "sin": "sin(x) + y",
    "cos": "cos(x) + y", "tanh": "tanh(x) + y", "pow": "pow(x, y)", "atan": "atan(x) + y",
}  # fmt: skip


def program_of(step: str) -> Program:
    """64 steps for each number."""
    text = f"""program step(n) workgroup(256) over(n) {{
      param y: f32
      buffer a: f32[n] read_write
      let i = global_id.x
      var s: f32 = a[i]
      for k in 0u32..{TURNS} {{
        let x = s
        s = {step}
      }}
      a[i] = s
    }}"""
    return Program.from_text(text)


def nanoseconds(device: Device, step: str, options: CompileOptions, count: int) -> float:
    """The time of a step for one number, with all others done at once."""
    numbers = device.upload(np.linspace(0.5, 1.5, count, dtype=np.float32))
    launch = device.compile_native(program_of(step), options).bind({"a": numbers, "y": 0.75})

    def work() -> None:
        launch()
        device.synchronize()

    taken = seconds(work)
    numbers.free()
    return taken / (count * TURNS) * 1e9


def main() -> None:
    """Prints the table."""
    kind = sys.argv[1] if len(sys.argv) > 1 else "cuda"
    device = vp.device(kind)
    print(device)
    for name, step in STEPS.items():
        fast, strict = (nanoseconds(device, step, CompileOptions(numerics=numerics), COUNTS[kind]) for numerics in ("fast", "strict"))  # type: ignore[arg-type]  # names of numerics
        row(name, fast * 1e3, "ps", strict * 1e3, "strict")


if __name__ == "__main__":
    main()
