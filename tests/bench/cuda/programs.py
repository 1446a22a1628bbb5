"""The Programs that are measured."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from vyre_py.ir.language.program import Program

__all__ = ["AXPY", "BUSY", "DENSE", "ENDLESS", "TWICE", "TWO_INSTRUCTIONS", "mandelbrot", "nothing"]

_MANDELBROT = Path(__file__).resolve().parents[3] / "examples" / "03_mandelbrot.py"

AXPY = Program.from_text("""program axpy(n) workgroup(256) {
  param a: f32
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  let i = global_id.x
  y[i] = a * x[i] + y[i]
}""")
TWICE = Program.from_text("""program twice(n) workgroup(256) {
  buffer x: f32[n] read
  buffer y: f32[n] write
  y[global_id.x] = x[global_id.x] * 2.0 + 1.0
}""")
# Takes as long as it is told to.
BUSY = Program.from_text("""program busy(n) workgroup(256) {
  param turns: u32
  buffer y: u32[n] write
  var a: u32 = global_id.x
  for k in 0u32..turns { a = (a ^ (a >> 7u32)) * 1664525 + k }
  y[global_id.x] = a
}""")
# Nothing sets the flag.
ENDLESS = Program.from_text("""program endless(n) workgroup(64) {
  buffer flag: u32[1] read
  buffer out: u32[n] read_write
  loop {
    out[global_id.x] = out[global_id.x] + 1
    if flag[0] != 0 { break }
  }
}""")
TWO_INSTRUCTIONS = Program.from_text("""program two(n) workgroup(256) {
  param last: u32
  buffer out: u32[n] write
  var a: u32 = global_id.x
  loop { a = a * 1664525 + 1013904223; if a >> 18 == last { break } }
  out[global_id.x] = a
}""")
DENSE = Program.from_text("""program dense(rows, inner, columns) workgroup(16, 16) over(columns, rows) {
  buffer x: f32[rows, inner] read
  buffer w: f32[inner, columns] read
  buffer y: f32[rows, columns] write
  var total: f32 = 0.0
  for k in 0..inner { total = total + x[global_id.y, k] * w[k, global_id.x] }
  y[global_id.y, global_id.x] = max(total, 0.0)
}""")


@cache
def mandelbrot() -> Program:
    """The example's own Program: what it does before it asks for a device."""
    names: dict[str, Any] = {}
    exec(_MANDELBROT.read_text(encoding="utf-8").split("device =")[0], names)
    program: Program = names["b"].program
    return program


def nothing(count: int) -> str:
    """PTX of a kernel that takes so many u32 and does nothing."""
    parameters = ", ".join(f".param .u32 p{n}" for n in range(count))
    return f".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing({parameters})\n{{\n  ret;\n}}\n"
