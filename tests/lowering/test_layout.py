"""Layouts of argument blocks: each slot where every target looks for it, and each param's bytes cut from its argument."""

from __future__ import annotations

from itertools import pairwise

import pytest
from generator import Seeded, generate

from vyre_py.ir.language.program import Program
from vyre_py.ir.passes.scalarise import scalarise
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.layout import POINTER_BYTES, WORD_BYTES, Layout, SlotKind, lay_out
from vyre_py.lowering.legal.split64 import split_words

ALL = parse("""program all(n, m) workgroup(1) over(m) {
  param b: bool
  param d: f64
  param h: f16
  param q: u64
  param v: u8x3
  param w: i64x2
  buffer x: f32[n, m + 1] read
  buffer y: u8[m] write
  let i = global_id.x
  y[i] = v.y
  let k = dim(n * m) + dim(3)
  y[k] = cast(x[i, 0u32], u8)
}""")


def assert_sound(layout: Layout) -> None:
    """Slots in order and apart, each on a multiple of its elements' size, as CUDA aligns a kernel's parameters."""
    for slot in layout.slots:
        size = POINTER_BYTES if slot.kind is SlotKind.BUFFER else max(slot.type.scalar.size_bytes, WORD_BYTES)
        assert slot.offset_bytes % size == 0 and slot.size_bytes % WORD_BYTES == 0, slot
        assert slot.size_bytes >= (POINTER_BYTES if slot.kind is SlotKind.BUFFER else slot.type.size_bytes)
    for before, after in pairwise(layout.slots):
        assert before.offset_bytes + before.size_bytes <= after.offset_bytes
    assert layout.slots[-1].offset_bytes + layout.slots[-1].size_bytes == layout.size_bytes


@pytest.mark.parametrize("rewrite", [lambda p: p, scalarise, lambda p: split_words(scalarise(p))], ids=["as written", "scalars", "words"])
def test_slots_are_aligned_and_apart(rewrite: object) -> None:
    assert callable(rewrite)
    assert_sound(lay_out(rewrite(ALL)))


def test_slots_of_generated_programs_are_aligned_and_apart() -> None:
    for number in range(40):
        assert_sound(lay_out(scalarise(generate(Seeded(number)).program)))


def test_what_a_block_holds() -> None:
    found = [(s.kind.value, s.name, s.offset_bytes, s.size_bytes) for s in lay_out(scalarise(ALL)).slots]
    assert found == [
        ("buffer", "x", 0, 8), ("buffer", "y", 8, 8),
        ("param", "b", 16, 4), ("param", "d", 24, 8), ("param", "h", 32, 4), ("param", "q", 40, 8),
        ("param", "v.x", 48, 4), ("param", "v.y", 52, 4), ("param", "v.z", 56, 4), ("param", "w.x", 64, 8), ("param", "w.y", 72, 8),
        ("extent", "", 80, 4), ("extent", "", 84, 4), ("extent", "", 88, 4), ("extent", "", 92, 4),
    ]  # fmt: skip


def parts_of(program: Program, name: str, encoded: bytes) -> list[bytes]:
    return [s.cut(encoded) for s in lay_out(program).scalars if s.kind is SlotKind.PARAM and s.source[0] == name]


def test_parts_are_cut_from_their_arguments() -> None:
    wide = bytes(range(1, 17))
    assert parts_of(scalarise(ALL), "v", b"\1\2\3") == [b"\1\0\0\0", b"\2\0\0\0", b"\3\0\0\0"]
    assert parts_of(scalarise(ALL), "w", wide) == [wide[:8], wide[8:]]
    assert parts_of(split_words(scalarise(ALL)), "w", wide) == [wide[k : k + 4] for k in (0, 4, 8, 12)]
    assert parts_of(ALL, "h", b"\1\2") == [b"\1\2\0\0"]
