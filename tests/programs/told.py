"""A Program that asserts, and that prints."""

from __future__ import annotations

__all__ = ["TEXT"]

TEXT = """\
program tell(n) workgroup(32) {
  buffer x: u32[n] read
  buffer y: u32[n] write
  let i = global_id.x
  y[i] = x[i] + 1
  assert x[i] != 7, "x[{}] is {}", i, x[i]
  if x[i] == 9 {
    print "nine at {}", i
  }
}
"""
