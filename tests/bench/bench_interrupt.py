"""What options of kernels for NVIDIA GPUs cost: interruptible and persistent against plain, device time.

    python tests/bench/bench_interrupt.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from measure import row, seconds

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.ir.language.program import Program

LAUNCHES = 50
MANDELBROT = Path(__file__).resolve().parents[2] / "examples" / "03_mandelbrot.py"
TWO_INSTRUCTIONS = """program two(n) workgroup(256) {
  param turns: u32
  buffer out: u32[n] write
  var a: u32 = global_id.x
  loop { a = a * 1664525 + 1013904223; if a == turns { break } }
  out[global_id.x] = a
}"""
SHORT_LOOPS = """program short(n) workgroup(256) {
  param turns: u32
  buffer out: u32[n] write
  var a: u32 = global_id.x
  for i in 0u32..turns { for j in 0u32..(a % 8) { a = a * 3 + j } }
  out[global_id.x] = a
}"""
MEMORY = """program rows(n) workgroup(256) {
  param turns: u32
  buffer x: f32[n] read
  buffer out: f32[n] write
  var a: f32 = 0.0
  for k in 0u32..turns { a = a + x[(global_id.x + k * 256) % n] }
  out[global_id.x] = a
}"""
TINY = """program tiny(n) workgroup(256) {
  param turns: u32
  buffer x: f32[n] read_write
  x[global_id.x] = x[global_id.x] + 1.0
}"""


def mandelbrot() -> Program:
    """The example's Program."""
    names: dict[str, object] = {}
    exec(MANDELBROT.read_text(encoding="utf-8").split("device =")[0], names)
    return names["b"].program  # type: ignore[attr-defined,no-any-return]  # the builder


def milliseconds(device: Device, program: Program, options: vp.CompileOptions, arguments: dict[str, object]) -> float:
    """The time of one launch among many."""
    launch = device.compile_native(program, options).bind(arguments)

    def work() -> None:
        for _ in range(LAUNCHES):
            launch()
        device.synchronize()

    return seconds(work) / LAUNCHES * 1e3


def main() -> None:
    """Prints the table."""
    device = vp.device("cuda")
    print(device, sys.version.split()[0])
    image, large = {"out": device.allocate((768, 1024), vp.u32)}, {"out": device.allocate((4096, 4096), vp.u32)}
    numbers = device.upload(np.ones(1 << 20, np.float32))
    out = {"out": device.allocate(1 << 20, vp.u32)}
    cases = {
        "mandelbrot, 256 turns": (mandelbrot(), {**image, "turns": 256}),
        "mandelbrot, 20,000 turns": (mandelbrot(), {**image, "turns": 20_000}),
        "mandelbrot of 4096 x 4096, 256 turns": (mandelbrot(), {**large, "turns": 256}),
        "mandelbrot of 4096 x 4096, 1024 turns": (mandelbrot(), {**large, "turns": 1024}),
        "two instructions, left by chance": (Program.from_text(TWO_INSTRUCTIONS.replace("a == turns", "a >> 18 == turns")), {**out, "turns": 5}),
        "loops of a few turns in a loop": (Program.from_text(SHORT_LOOPS), {**out, "turns": 500}),
        "memory": (Program.from_text(MEMORY), {"x": numbers, "out": device.allocate(1 << 20, vp.f32), "turns": 200}),
        "no loop": (Program.from_text(TINY), {"x": numbers, "turns": 0}),
    }
    for name, (program, arguments) in cases.items():
        plain = milliseconds(device, program, vp.CompileOptions(), arguments)
        for options in (vp.CompileOptions(interruptible=True), vp.CompileOptions(persistent=True), vp.CompileOptions(interruptible=True, persistent=True)):
            what = " + ".join(o for o in ("interruptible", "persistent") if getattr(options, o))
            row(f"{name}, {what}", milliseconds(device, program, options, arguments), "ms", plain, "plain")


if __name__ == "__main__":
    main()
