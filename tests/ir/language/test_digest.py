"""Digests: each change to what a Program computes changes its code, each change to what a caller sees its interface, and nothing else does."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import OF_TILES, DimConst, Grid
from vyre_py.ir.language.nodes import Access, Let, Space, Tile, const
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.tiles.tile_ops import TILE_OPS
from vyre_py.ir.language.types import f16, f32, tile_of, u32
from vyre_py.ir.text.parser import parse

TEXT = """program p(n, m) workgroup(8, 4) over(n, m, 1) {
  doc "what it does"
  param a: f32
  param s: u32
  buffer x: f32[m, n + 2] read
  buffer y: f32[m, n] read_write
  workgroup tile: u32[32]
  private own: i32[3]
  table t: u32[2] = [1, 2]
  let i = global_id.x
  var total: f32 = 0.0
  total = total + a * x[global_id.y, i]
  if i < 4u32 { y[global_id.y, i] = total - a }
  for k in 0u32..s step 2u32 { tile[k] = t[i] }
  region "last" { barrier }
  let seen = uniform_load(tile[0u32])
  let old = atomic_add(tile[1u32], 1u32)
  own[seen] = cast(old, i32)
}"""

# What the Program computes: the text, and what stands there instead.
CODE = [
    ("workgroup(8, 4)", "workgroup(4, 8)"), ("over(n, m, 1)", "over(m, n, 1)"), ("over(n, m, 1)", "grid(n, m, 1)"),
    ("param s: u32\n", "param s: u32\n  param r: i8\n"),
    ("x: f32[m, n + 2] read", "x: f32[m, n + 3] read"), ("x: f32[m, n + 2] read", "x: f32[m, n * 2] read"), ("x: f32[m, n + 2] read", "x: f32[n, m + 2] read"),
    ("x: f32[m, n + 2] read", "x: f32[m, n + 2] read_write"), ("tile: u32[32]", "tile: u32[33]"), ("own: i32[3]", "own: i32[4]"), ("[1, 2]", "[1, 3]"),
    ("global_id.x", "global_id.z"), ("total - a", "a - total"), ("total - a", "total + a"), ("= 0.0", "= -0.0"), ("i < 4u32", "i < 5u32"),
    ("i < 4u32", "4u32 < i"),
    ("0u32..s", "1u32..s"), ("step 2u32", "step 3u32"), ("tile[k]", "tile[i]"), ('region "last" { barrier }', 'region "last" { }'),
    ('region "last"', 'region "first"'),
    ("uniform_load(tile[0u32])", "tile[0u32]"), ("atomic_add", "atomic_sub"), ("cast(old, i32)", "bitcast(old, i32)"),
]  # fmt: skip

# What a caller sees, and the code does not: a name, and another.
INTERFACE = [("p", "q"), ("n", "width"), ("a", "b"), ("x", "z")]

# What neither says.
NAMES = [("i", "j"), ("total", "sum"), ("k", "turn"), ("seen", "known")]


ORDERED = """program p(n) {
  buffer x: u32[n] read_write
  buffer y: u32[n] write
  atomic_store(x[0u32], 1u32)
  fence.device
  y[1u32] = atomic_add(x[1u32], 2u32)
  y[2u32] = atomic_load(x[2u32])
}"""


def renamed(old: str, new: str) -> Program:
    """The Program with a name changed wherever it stands alone."""
    return parse(re.sub(rf'(?<![\w."]){old}(?![\w"])', new, TEXT))


def test_every_order_and_scope_is_code_of_its_own() -> None:
    written = {"fence.device": ["fence.device", "fence.workgroup"]}
    for name, orders in (("store", ["", "release"]), ("load", ["", "acquire"]), ("add", ["", "acquire", "release", "acq_rel"])):
        scopes = ("", ".workgroup")
        written[f"atomic_{name}("] = [f"atomic_{name}{f'.{order}{scope}' if order else ''}(" for order in orders for scope in (scopes if order else ("",))]
    texts = {ORDERED.replace(before, after) for before, others in written.items() for after in others}
    programs = list(map(parse, sorted(texts)))
    assert len(programs) == 1 + 1 + 2 + 2 + 6
    assert len({program.code_digest for program in programs}) == len(set(programs)) == len(programs)


@pytest.mark.parametrize(("before", "after"), CODE, ids=lambda text: text.strip())
def test_what_changes_the_code(before: str, after: str) -> None:
    assert before in TEXT
    one, other = parse(TEXT), parse(TEXT.replace(before, after, 1))
    assert one.code_digest != other.code_digest and one != other


def test_types_of_constants_change_the_code() -> None:
    """Where nothing else differs, as where their bits are taken."""
    text = "program p over(1) {\n buffer y: u32[1] write\n y[0u32] = bitcast(1i32, u32)\n}"
    one, other = parse(text), parse(text.replace("1i32", "f32:0x1"))
    assert one.code_digest != other.code_digest


@pytest.mark.parametrize("other", [*(renamed(*names) for names in INTERFACE), parse(TEXT.replace("what it does", "what it did"))], ids=str)
def test_what_changes_the_interface_alone(other: Program) -> None:
    one = parse(TEXT)
    assert one.code_digest == other.code_digest and one.interface_digest != other.interface_digest and one != other


@pytest.mark.parametrize("names", NAMES)
def test_names_of_values_and_places_change_nothing(names: tuple[str, str]) -> None:
    assert parse(TEXT) == renamed(*names) == parse(TEXT.replace("\n", "\n\n"))


def _of_tiles(
    extents: tuple[int, ...] = (4, 6), axis: int = 0, op: str = "reduce_add", adds: bool = False, acc: tuple[int, int] = (4, 6),
    workgroup: tuple[int, int, int] = OF_TILES,
) -> Program:
    a = Assembler("p", workgroup)
    a.grid = Grid(False, (DimConst(1),) * 3)
    memory = a.memory("x", Space.BUFFER, f32, (a.dim("n"),) * 2, Access.READ_WRITE)
    x = a.tile_load(memory, (const(u32, 0),) * 2, extents)
    a.tile(TILE_OPS[op], (x,), (axis,))
    variable = a.tile(TILE_OPS["fill"], (const(f32, 0.0),), acc)
    a.var(variable.type, variable)
    (a.tile_atomic_add if adds else a.tile_store)(memory, (const(u32, 0),) * 2, extents, x)
    return a.finish()


def test_what_changes_the_code_of_tiles() -> None:
    programs = [
        _of_tiles(), _of_tiles(extents=(6, 4)), _of_tiles(extents=(4, 12)), _of_tiles(axis=1), _of_tiles(op="reduce_max"), _of_tiles(op="inclusive_add"),
        _of_tiles(adds=True), _of_tiles(acc=(6, 4)), _of_tiles(workgroup=(1, 1, 1)),
    ]  # fmt: skip
    assert len({program.code_digest for program in programs}) == len(set(programs)) == len(programs)
    assert _of_tiles() == programs[0] and hash(_of_tiles()) == hash(programs[0])


def test_a_tile_op_is_no_op_of_the_same_name() -> None:
    """Whatever names the two tables will have in common."""
    one, other = Assembler("p", OF_TILES), Assembler("p", OF_TILES)
    one.emit(Tile(one.value(tile_of(f16, (4,))), (const(u32, 1),), replace(TILE_OPS["transpose"], name="both")))
    other.emit(Let(other.value(tile_of(f16, (4,))), (const(u32, 1),), replace(OPS["add"], name="both")))
    assert one.finish().code_digest != other.finish().code_digest
