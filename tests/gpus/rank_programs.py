"""The Programs that jobs over several GPUs run."""

from __future__ import annotations

from typing import Final

from vyre_py.ir.text.parser import parse

__all__ = ["ADD", "HEAT", "MEET", "SCALE", "SPREAD"]

# Numbers that wrap around: the same bits in whatever order ranks are added.
SPREAD: Final = parse("""program spread(n) workgroup(256) {
  param a: i32
  buffer x: i32[n] read
  buffer y: i32[n] read_write
  y[global_id.x] = a * x[global_id.x] + y[global_id.x]
}""")
MEET: Final = parse("""program meet(n) workgroup(256) {
  buffer y: i32[n] read_write
  y[global_id.x] = y[global_id.x] * 5 + 7
}""")
# Floats whose products are exact, so that no fused multiplication of another compiler's makes a difference.
ADD: Final = parse("""program add(n) workgroup(256) {
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  y[global_id.x] = x[global_id.x] * 0.5 + y[global_id.x]
}""")
SCALE: Final = parse("""program scale(n) workgroup(256) {
  buffer y: f32[n] read_write
  y[global_id.x] = y[global_id.x] * 0.75
}""")
HEAT: Final = parse("""program heat(height, width) workgroup(32, 8) {
  param rate: f32
  buffer old: f32[height, width] read
  buffer new: f32[height, width] read_write
  let x = global_id.x
  let y = global_id.y
  let here = old[y, x]
  let around = old[y, x - 1] + old[y, x + 1] + old[y - 1, x] + old[y + 1, x]
  new[y, x] = here + rate * (around - 4.0 * here)
}""")
