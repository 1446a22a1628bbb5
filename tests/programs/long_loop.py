"""A loop over which no compiler finds a formula: as long on the device as is asked for, and nothing for the host that waits."""

from __future__ import annotations

from typing import Final

from vyre_py.ir.text.parser import parse

__all__ = ["LONG"]

LONG: Final = parse("""program long workgroup(1) over(1) {
  param turns: u32
  buffer y: u32[1] read_write
  var k: u32 = 0u32
  loop {
    if k == turns { break }
    k = k + 1u32
    y[0u32] = y[0u32] * 1664525u32
  }
}""")
