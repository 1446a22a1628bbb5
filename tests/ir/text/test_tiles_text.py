"""Programs of tiles as text: exact round trips, how literals get their types beside tiles, and what text refuses."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tiles import arguments_for, generate_tiles

from vyre_py.ir.check import check
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import OF_TILES, DimConst, Grid
from vyre_py.ir.language.errors import ParseError, ProgramError, ValidationError
from vyre_py.ir.language.nodes import Access, Const, Let, Space, Tile, TileLoad, Var, const
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.tiles.tile_ops import TILE_OPS
from vyre_py.ir.language.types import Type, f16, f32, i32, tile_of, u32
from vyre_py.ir.text.notebook.program_markup import program_html
from vyre_py.ir.text.parser import parse
from vyre_py.ir.text.printer import print_program
from vyre_py.ir.text.tokens import Tokens

ONE = DimConst(1)
CHANGES = (
    "", "fill", "tile", "tile(f32, 4)", "item", "mma", ":", "[", "]", ")", "0", "4", "f32", "vec2(1.0, 2.0)", "iota(0, 4)", "4294967296", "-1",
    "subgroup_ballot", "workgroup", "tiles", "barrier", "local_id.x", "select(true, 1.0, 2.0)", "cast", ".x", ": 4", "== 1", "* 2.0",
)  # fmt: skip
HEAD = """program p(n) tiles grid(n) {
  buffer x: f32[n] read_write
  buffer z: f32[n, n] read_write
  buffer c: u32[n] read_write
  let t = z[0 : 4, 0 : 8]
"""


def parts(program: Program) -> tuple[object, ...]:
    """All that a Program is but its names of values, to compare."""
    return program.name, program.workgroup, program.grid, repr(program.params), repr(program.memories), repr(program.body)


def round_trip(program: Program) -> str:
    text = print_program(program)
    again = parse(text)
    assert parts(again) == parts(program), text
    assert print_program(again) == text
    return text


def body(text: str) -> Program:
    return parse(f"{HEAD}{text}\n}}")


def refused(text: str) -> str:
    with pytest.raises((ParseError, ValidationError)) as caught:
        check(body(text))
    (found,) = caught.value.diagnostics
    assert found.place is not None and found.place.line == HEAD.count("\n") + 1
    return f"{found.code} {found.message}" + (f" ({found.help})" if found.help else "")


def last_let(program: Program) -> Let:
    return [s for s in program.body if isinstance(s, Let)][-1]


MATMUL = """program matmul(m, n, k) tiles grid(ceil_div(n, 256), ceil_div(m, 128)) {
  buffer a: bf16[m, k] read
  buffer b: bf16[k, n] read
  buffer c: f32[m, n] write
  let i = workgroup_id.y * 128
  let j = workgroup_id.x * 256
  var acc: tile(f32, 128, 256) = fill(0.0f32, 128, 256)
  for p in 0..k step 64 {
    acc = mma(a[i : 128, p : 64], b[p : 64, j : 256], acc)
  }
  c[i : 128, j : 256] = acc
}
"""


@pytest.mark.parametrize(
    "text",
    [
        MATMUL,
        """program softmax(n, m) tiles grid(n) {
  buffer x: f32[n, m] read
  buffer y: f32[n, m] write
  let row = x[workgroup_id.x, 0 : 1024]
  let inside = iota(0, 1024) < m
  let exponential = select(inside, exp(row - reduce_max(select(inside, row, -inf), 0)), 0.0)
  y[workgroup_id.x, 0 : 1024] = exponential / reduce_add(exponential, 0)
}
""",
        """program histogram(n) tiles grid(ceil_div(n, 64)) {
  buffer x: u32[n] read
  buffer sums: u32[2, 16] read_write
  let v4 = reshape(x[workgroup_id.x * 64 : 64], 64, 1) % 16 == transpose(iota(0, 16, 1), 1, 0)
  let sum = reduce_add(cast(v4, u32), 0)
  tile_atomic_add(sums[1, 0 : 16], reshape(sum, 16))
  if item(reduce_max(sum, 1)) > 3 {
    return
  }
}
""",
        """program tiles(tile) tiles grid(tile, 2) {
  buffer fill: f16[tile, 3, tile] read_write
  let iota = workgroup_id.y
  var reduce_add: tile(f16, 2, 3) = fill[-1 : 2, 0 : 3, iota]
  reduce_add = mma_tensor(fill(1.0f16, 2, 2), reduce_add, exclusive_max(reduce_add, 1))
  let exact = mma_sm90(fill(1.0f16, 2, 2), reduce_add, fill(0.0f32, 2, 3))
  fill[iota, 0 : 2, iota * 3 : 3] = -(reduce_add + 0.5) + cast(exact, f16)
}
""",
    ],
)
def test_what_is_printed_is_what_was_read(text: str) -> None:
    assert round_trip(parse(text)) == text
    check(parse(text))


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_come_back(seed: int) -> None:
    program = generate_tiles(random.Random(seed), tensor_floats=True)
    check(program)
    round_trip(program)
    given, sizes = arguments_for(program, np.random.default_rng(seed))
    assert set(given) == set(sizes) | {p.name for p in program.params} | {m.name for m in program.buffers}


def test_every_tile_op_is_read_and_printed() -> None:
    seen = {s.op for seed in range(200) for s in generate_tiles(random.Random(seed), tensor_floats=True).body if isinstance(s, Tile)}
    few = {row for name, row in TILE_OPS.items() if name.startswith("mma_sm90")}  # which few targets compute, so that no generated Program has them
    assert seen == set(TILE_OPS.values()) - few
    assert not set(TILE_OPS) & set(OPS)


def test_accesses_have_an_extent_for_each_axis() -> None:
    program = body("let a = z[workgroup_id.x, -3 : 5]\nz[1 : 2, 3] = x[4 : 2]\ntile_atomic_add(x[c[0] : 8], x[5u32 : 8])")
    loads = [s for s in program.body if isinstance(s, TileLoad)]
    assert [(s.extents, s.bound.type) for s in loads] == [
        ((4, 8), tile_of(f32, (4, 8))), ((0, 5), tile_of(f32, (5,))), ((2,), tile_of(f32, (2,))), ((8,), tile_of(f32, (8,))),
    ]  # fmt: skip
    negative = loads[1].args[1]
    assert isinstance(negative, Const) and negative.type is i32 and negative.value == -3


def test_a_program_out_of_bounds_prints_and_comes_back() -> None:
    """`check` refuses it; text shows it as it is."""
    a = Assembler("p", OF_TILES)
    a.grid = Grid(False, (ONE, ONE, ONE))
    x = a.memory("x", Space.BUFFER, f32, (ONE, ONE), Access.READ_WRITE)
    zero = const(u32, 0)
    a.tile_store(x, (zero, zero), (0, 0), a.tile_load(x, (zero, zero), (0, 0)))
    a.tile_store(x, (zero, zero), (4_000_000_000, 0), a.tile_load(x, (zero, zero), (4_000_000_000, 0)))
    assert "x[0 : 0, 0 : 0] = x[0 : 0, 0 : 0]\n  x[0 : 4000000000, 0] = x[0 : 4000000000, 0]" in round_trip(a.finish())


@pytest.mark.parametrize(
    ("expression", "type_"),
    [
        ("t * 2.0", tile_of(f32, (4, 8))),
        ("2.0 * t", tile_of(f32, (4, 8))),
        ("t + (1.0 + 2.0) * 3.0", tile_of(f32, (4, 8))),
        ("-(1.0 + 2.0) * t", tile_of(f32, (4, 8))),
        ("clamp(t, 0.0, 1.0)", tile_of(f32, (4, 8))),
        ("fma(1.0, 2.0, t)", tile_of(f32, (4, 8))),
        ("ldexp(t, 1)", tile_of(f32, (4, 8))),
        ("cast(t, f16) * 2.0", tile_of(f16, (4, 8))),
        ("cast(t, tile(f16, 4, 8)) * 2.0", tile_of(f16, (4, 8))),
        ("reshape(t, 32) * z[0, 0]", tile_of(f32, (32,))),
        ("t + reduce_add(t, 1) - reduce_add(t, 0)", tile_of(f32, (4, 8))),
        ("iota(1, 4, 1) + iota(0, 1, 8) * 2", tile_of(u32, (4, 8))),
        ("select(t > 0.0, 1.0, 2.0f32)", tile_of(f32, (4, 8))),
        ("select(reduce_add(t, 1) > 0.0, 1.0, 2.0) * x[0]", tile_of(f32, (4, 1))),
        ("(select(reduce_add(t, 0) > 0.0, 1.0, 2.0) + 3.0) * reduce_add(t, 1)", tile_of(f32, (4, 8))),
        ("x[0] - select(t > 0.0, 1.0, 2.0) * 2.0 + x[0] * select(t < 1.0, 1.0, 2.0)", tile_of(f32, (4, 8))),
        ("select(x[0] > 0.0, t, 0.0)", tile_of(f32, (4, 8))),
    ],
)
def test_a_literal_has_the_type_of_the_elements_beside_it(expression: str, type_: Type) -> None:
    program = body(f"let v = {expression}")
    assert last_let(program).bound.type is type_
    assert all(not arg.type.is_tile for s in program.body for arg in s.args if isinstance(arg, Const))
    check(program)
    round_trip(program)


def test_a_variable_of_tiles() -> None:
    program = body("var v: tile(f32, 4, 8) = t\nv = v + 1.0\nz[0 : 4, 0 : 8] = v * v")
    (var,) = [s for s in program.body if isinstance(s, Var)]
    assert var.variable.type is tile_of(f32, (4, 8))
    check(program)
    assert "  v = v + 1.0\n  z[0 : 4, 0 : 8] = v * v\n" in round_trip(program)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("let v = fill(0.0, 4)", "P104 nothing here fixes the type of this literal"),
        ("let v = fill(1.0f32, 4u32)", "P102 found `4u32`, expected extents: whole numbers without a suffix"),
        ("let v = fill(1.0f32, n)", "P102 found `n`, expected extents: whole numbers without a suffix"),
        ("let v = reduce_add(t, t)", "P102 found `t`, expected axis: a whole number without a suffix"),
        ("let v = reduce_add(t, 4294967296)", "P102 found `4294967296`, expected axis: a whole number without a suffix"),
        ("let v = reduce_add(t)", "V202 reduce_add takes x, axis, got 1 operand"),
        ("let v = reduce_add(t, 1, 2)", "V202 reduce_add takes x, axis, got 3 operands"),
        ("let v = item(t, t)", "V202 item takes x, got 2 operands"),
        ("let v = item(t)", "V201 item(tile(f32, 4, 8)): "),
        ("let v = reduc_add(t, 1)", "P103 the operation reduc_add is not known here (did you mean reduce_add or reduce_and?)"),
        ("let v = x[0 : 4.0]", "P102 found `4.0`, expected an extent: a whole number without a suffix"),
        ("let v = x[0 : n]", "P102 found `n`, expected an extent: a whole number without a suffix"),
        ("let v = x[0 :]", "P102 found `]`, expected an extent: a whole number without a suffix"),
        ("let v = x[0 : 4 5]", "P102 found `5`, expected `,` or `]`"),
        ("let v = uniform_load(x[0 : 4])", "P102 found `:`, expected `,` or `]`"),
        ("let v = y[0 : 4]", "P103 the array y is not known here"),
        ("let v = tile_atomic_add(x[0 : 4], x[0 : 4])", "P101 tile_atomic_add gives no value (it is a statement)"),
        ("tile_atomic_add(x[0], 1.0)", "P102 found no extent, expected one behind an index at least (a tile has extents: x[i : 128])"),
        ("fill(1.0f32, 4)", "P102 found `fill`, expected a statement (give the value a name: let name = fill(...))"),
        ("var v: tile(f32) = t", "V604 a tile has 1 to 3 axes, not 0"),
        ("var v: tile(f32, 0) = t", "V604 a tile has extents of at least 1"),
        ("var v: tile(f32x2, 4) = t", "V604 the elements of tiles are scalars, not f32x2"),
        ("var v: tile(f32, 512, 512) = t", "V604 a tile of 262144 elements, at most 131072 are allowed"),
        ("var v: tile(f33, 4) = t", "P103 the type f33 is not known here"),
        ("var v: tile = t", "P103 the type tile is not known here"),
        ("let v = t + 1", "P105 1 is an integer, and f32 is needed: write 1.0"),
        ("let v = x[0 : 300000] + 1.0", "V604 a tile of 300000 elements"),
    ],
)
def test_what_is_refused(line: str, found: str) -> None:
    assert refused(line).startswith(found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("program p workgroup(4) tiles grid(1) {}", "P102 found `tiles`"),
        ("program p tiles workgroup(4) grid(1) {}", "P102 found `workgroup`"),
        ("program p workgroup(0, 0, 0) grid(1) {}", "V504 a workgroup of 0 x 0 x 0"),
        ("program p grid(1) {\nlet v = fill(1.0f32, 4)\n}", "P103 the operation fill is not known here"),
        ("program p tiles grid(1) {\nfunction f(x: f32) -> f32 {\nreturn fill(x, 1)\n}\n}", "P103 the operation fill is not known here"),
        ("program p tiles grid(1) {\nparam v: tile(f32, 4)\n}", "P103 the type tile is not known here"),
        ("program p tiles grid(1) {\nbuffer v: tile(f32, 4)[4] read\n}", "P103 the type tile is not known here"),
    ],
)
def test_what_is_refused_around_it(text: str, found: str) -> None:
    with pytest.raises(ProgramError) as caught:
        parse(text)
    first = caught.value.diagnostics[0]
    assert f"{first.code} {first.message}".startswith(found)
    if "fill" in text:
        assert first.help is not None and "Programs of tiles" in first.help
    if "tiles" in found or "workgroup" in found:
        assert first.help is not None and "says tiles" in first.help


def test_a_function_may_be_called_as_a_tile_op_where_there_are_none() -> None:
    program = parse("program p(n) {\nfunction fill(x: f32) -> f32 { return x }\nbuffer y: f32[n] read_write\ny[global_id.x] = fill(y[global_id.x])\n}")
    check(program)
    round_trip(program)


def test_memories_of_vectors_have_no_tiles() -> None:
    with pytest.raises(ValidationError) as caught:
        check(parse("program p tiles grid(1) {\nbuffer v: f32x2[4] read_write\nv[0 : 4] = v[0 : 4] * 2.0\n}"))
    assert set(caught.value.codes) == {"V604"}


def test_tiles_have_colours() -> None:
    html = program_html(parse(MATMUL))
    assert ">tiles</span>" in html and ">tile</span>(" in html


@pytest.mark.parametrize("seed", range(12))
def test_a_changed_token_gives_a_finding_or_another_program(seed: int) -> None:
    r = random.Random(seed)
    words = Tokens(print_program(generate_tiles(r)), "t").words[:-1]
    for _ in range(25):
        changed = list(words)
        changed[r.randrange(len(changed))] = r.choice((*CHANGES, r.choice(words)))
        try:
            program = parse(" ".join(changed))
        except ProgramError:
            continue
        round_trip(program)
