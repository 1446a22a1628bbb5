"""Litmus Programs: two workgroups that write and read two elements, again and again, each time others, and what they may see.

They meet before each turn, by an atomic counter and a loop that looks at it `looks` times at most, since nobody promises that both run at once. The
shapes are those of the literature on memory models (Alglave and others, "GPU Concurrency: Weak Behaviours and Programming Assumptions", ASPLOS 2015):

* message passing, MP: one writes x and then a flag, the other reads the flag and then x. If it sees the flag, it sees x.
* store buffering, SB: each writes an element and then reads the other's. One of them at least sees what the other wrote.

Each stands here with its order, with that of fences, and `relaxed`, where a device may do otherwise, and some device must be seen to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from vyre_py import Program
from vyre_py.ir.language.types import Array

__all__ = ["KEPT", "RELAXED", "arguments", "broken", "litmus"]

# By shape and order: what the workgroup of even number does, and what the other does and puts into `first` and `second`.
_MESSAGE: Final = """
      x[pair, t] = 1
      {fence}
      atomic_store{release}(flag[pair, t], 1)
    }} else {{
      var seen: u32 = 0
      for k in 0u32..looks {{
        seen = atomic_load{acquire}(flag[pair, t])
        if seen == 1 {{ break }}
      }}
      {fence}
      first[pair, t] = seen
      if seen == 1 {{ second[pair, t] = x[pair, t] }}
    }}"""
_BUFFERING: Final = """
      atomic_store(x[pair, t], 1)
      {fence}
      first[pair, t] = atomic_load(flag[pair, t])
    }} else {{
      atomic_store(flag[pair, t], 1)
      {fence}
      second[pair, t] = atomic_load(x[pair, t])
    }}"""
_BODIES: Final[Mapping[str, str]] = {
    "message passing, release and acquire": _MESSAGE.format(fence="", release=".release", acquire=".acquire"),
    "message passing, fences": _MESSAGE.format(fence="fence.device", release="", acquire=""),
    "message passing, relaxed": _MESSAGE.format(fence="", release="", acquire=""),
    "store buffering, fences": _BUFFERING.format(fence="fence.device"),
    "store buffering, relaxed": _BUFFERING.format(fence=""),
}
RELAXED: Final = tuple(name for name in _BODIES if name.endswith("relaxed"))
KEPT: Final = tuple(name for name in _BODIES if name not in RELAXED)


def litmus(name: str) -> Program:
    """A Program of `_BODIES`."""
    return Program.from_text(f"""program litmus(pairs, turns) workgroup(1) grid(pairs * 2) {{
  param looks: u32
  buffer x: u32[pairs, turns] read_write
  buffer flag: u32[pairs, turns] read_write
  buffer met: u32[pairs, turns] read_write
  buffer first: u32[pairs, turns] write
  buffer second: u32[pairs, turns] write
  let pair = workgroup_id.x / 2
  for t in 0u32..turns {{
    atomic_add(met[pair, t], 1)
    for k in 0u32..looks {{
      if atomic_load(met[pair, t]) == 2 {{ break }}
    }}
    if workgroup_id.x % 2 == 0 {{{_BODIES[name]}
  }}
}}""")


def arguments(pairs: int, turns: int, looks: int) -> dict[str, Any]:
    """What a Program takes, for so many pairs of workgroups with so many turns each, who look at most so often for one another."""
    return {"looks": looks, **{name: np.zeros((pairs, turns), np.uint32) for name in ("x", "flag", "met", "first", "second")}}


def broken(name: str, found: Mapping[str, Array]) -> int:
    """How many turns saw what the order of the shape forbids."""
    first, second = found["first"], found["second"]
    return int(np.count_nonzero((first == 1) & (second == 0) if name.startswith("message") else (first == 0) & (second == 0)))
