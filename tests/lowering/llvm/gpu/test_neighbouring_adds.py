"""Additions by neighbouring lanes as one of four elements: on a machine for PTX each is made once, whoever makes it; and where they must not be."""

from __future__ import annotations

import numpy as np
import ptx_threads
import pytest
from ptxas import assemble_together

from vyre_py.ir.text.parser import parse
from vyre_py.lowering.compile import emit_text, prepare
from vyre_py.lowering.llvm.gpu import nvptx
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target

FOUR = ".v4.f32 ["
COUNT = 150  # of elements that are added, by workgroups of 96: the last warp of each grid has too few lanes
SIZE = 96
# Each `{body}` adds `x[i]`, where there is one.
TEXT = """program added(n, m) workgroup(96) over(n) {{
  buffer y: f32[m] read_write
  buffer x: f32[n] read
  buffer to: u32[n] read
  {declared}
  let i = global_id.x
  if i < n {{
    {body}
  }}
}}"""
PLAIN = TEXT.format(declared="", body="if x[i] > 0.0 { atomic_add(y[to[i]], x[i]) }")
# Places by the number of an element.
PLACES = {
    "neighbours": lambda i, random: i % SIZE,
    "neighbours from one on": lambda i, random: (i + 1) % SIZE,
    "some outside": lambda i, random: i % SIZE + random.integers(0, 2, i.size) * SIZE * (i % 4 == 3),
    "groups of four": lambda i, random: np.repeat(random.permutation(SIZE // 4), 4)[i % SIZE] * 4 + i % 4,
    "four of one": lambda i, random: i // 4 % SIZE,
    "backwards": lambda i, random: SIZE - 1 - i % SIZE,
    "any": lambda i, random: random.integers(0, SIZE + 20, i.size),
    "mostly neighbours": lambda i, random: np.where(random.random(i.size) < 0.9, i % SIZE, random.integers(0, SIZE, i.size)),
}


@pytest.mark.parametrize("positive", [1.0, 0.8], ids=["all", "most"])
@pytest.mark.parametrize("place", PLACES)
def test_each_addition_is_made_once(place: str, positive: float) -> None:
    """Lanes without an element, outside, and where a branch was not taken, take no part."""
    random = np.random.default_rng(5)
    target, options = Target("ptx", "sm_90"), CompileOptions()
    prepared = prepare(parse(PLAIN), target, options)
    made = nvptx.lower(prepared, target, options)
    assert FOUR in made.text and ".version 8.1\n" in made.text
    to = PLACES[place](np.arange(COUNT), random).astype(np.uint32)
    x = np.where(random.random(COUNT) < positive, random.integers(1, 100, COUNT), 0).astype(np.float32)
    y = random.integers(0, 100, SIZE).astype(np.float32)
    want = y.copy()
    np.add.at(want, to[to < SIZE], x[to < SIZE])
    ptx_threads.run(made, made.entries[-1], prepared, options, {"x": x, "y": y, "to": to}, {"n": COUNT, "m": SIZE})
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("arch", ["sm_90", "sm_90a", "sm_100", "sm_120"])
def test_the_assembler_takes_them(arch: str) -> None:
    ptx = emit_text(parse(PLAIN), arch)
    assert FOUR in ptx
    assemble_together([ptx], arch)


@pytest.mark.parametrize(
    ("declared", "body"),
    [
        ("buffer old: f32[n] write", "old[i] = atomic_add(y[to[i]], x[i])"),
        ("", "atomic_add(y[to[i]], x[i] + y[i])"),
        ("", "atomic_add(y[to[i]], x[i])\natomic_max(y[i], 3.0)"),
        ("", "atomic_add.release(y[to[i]], x[i])"),
        ("", "atomic_add(y[to[i]], x[i])\nfence.device"),
        ("", "y[i] = 0.0\natomic_add(y[to[i]], x[i])"),
        ("workgroup w: f32[32]", "atomic_add(w[to[i]], x[i])"),
        ("buffer k: u32[m] read_write", "atomic_add(k[to[i]], 1)"),
        ("buffer d: f64[m] read_write", "atomic_add(d[to[i]], 1.0)"),
    ],
    ids=["asked for", "loaded", "another atomic", "ordered", "fence", "stored", "workgroup", "u32", "f64"],
)
def test_others_are_made_one_by_one(declared: str, body: str) -> None:
    assert FOUR not in emit_text(parse(TEXT.format(declared=declared, body=body)), "sm_90")


def test_older_architectures_have_none() -> None:
    assert FOUR not in emit_text(parse(PLAIN), "sm_89")
