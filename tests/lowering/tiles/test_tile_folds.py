"""Folds of tiles between the lanes of subgroups, as GPUs have them: the same bits as the interpreter gives, and no race."""

from __future__ import annotations

import zlib
from math import prod

import numpy as np
import pytest
from device_kinds import open_device

import vyre_py as vp
from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import Subgroup, Value
from vyre_py.ir.language.ops import EXPANDED_ONLY
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Array, Type
from vyre_py.ir.passes import as_written, unoptimised
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.tiles import without_tiles
from vyre_py.lowering.tiles.rewrite import Rewrite
from vyre_py.lowering.tiles.tensor import Accumulator
from vyre_py.lowering.tiles.tile_layout import TileLayout, invocation_grid
from vyre_py.lowering.tiles.viewed import over_views

BYTES = 48 << 10
# Shapes of a tile, and the axis along which it is folded.
LINES = [((n,), 0) for n in (1, 2, 3, 20, 31, 32, 33, 64, 100, 255, 256, 300, 1000, 2048)]
ROWS = [((4, n), 1) for n in (2, 3, 16, 20, 33, 100, 256, 1000)] + [((n, 16), 0) for n in (2, 3, 5, 16, 33, 200)] + [((3, 5, 40), k) for k in range(3)]
FOLDS = [
    ("add", vp.f32), ("mul", vp.f16), ("min", vp.f32), ("max", vp.f64), ("add", vp.bf16), ("min", vp.i8), ("xor", vp.u64), ("or", vp.bool_), ("add", vp.u16),
    ("min", vp.u32), ("add", vp.i32), ("mul", vp.u32),
]  # fmt: skip


def folds(op: str, t: Type, shape: tuple[int, ...], axis: int) -> Program:
    """What is folded meets the tile again, so that every invocation needs it."""
    with vp.TileBuilder("folds") as b:
        dims = [b.dim(f"n{k}") for k in range(len(shape))]
        x, y, z = b.read("x", t, *dims), b.write("y", t, *dims), b.write("z", t, *dims)
        b.grid(1)
        tile = x.tile(*[0] * len(shape), shape=shape)
        folded = tile.reduce(op, axis)
        z[(0,) * len(shape)] = folded
        y[(0,) * len(shape)] = vp.select(tile == folded, tile, folded)
    return b.program


def numbers(t: Type, shape: tuple[int, ...]) -> Array:
    """Elements of all magnitudes, among them zeros of both signs, infinities and NaN, in parts of the array, so that not all folds are NaN."""
    generator = np.random.default_rng(zlib.crc32(repr((t, shape)).encode()))
    if not t.is_float:
        return generator.integers(0, 2 if t is vp.bool_ else 256, shape).astype(t.dtype)
    made = generator.standard_normal(shape) * 2.0 ** generator.integers(-4, 4, shape)
    special = generator.choice([0.0, -0.0, np.inf, np.nan], shape)
    return np.where(generator.random(shape) < generator.choice([0.0, 0.01, 0.9]), special, made).astype(t.dtype)


def expected(program: Program, arguments: dict[str, Array], sizes: dict[str, int]) -> None:
    interpret(as_written(check(program), lambda p: p), arguments, sizes)


def assert_same(got: Array, want: Array, what: object) -> None:
    """Bit for bit, all NaN alike."""
    same = got.view(f"u{got.itemsize}") == want.view(f"u{want.itemsize}")
    if got.dtype.kind not in "biu":
        same |= np.isnan(got.astype(np.float64)) & np.isnan(want.astype(np.float64))
    assert same.all(), what


def seen(form: Program, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an array of this shape as a Program has it, perhaps in groups along the last axis."""
    (memory,) = [m for m in form.buffers if m.name == name]
    if memory.rank == len(shape):
        return shape
    lanes = memory.shape[-1]
    assert isinstance(lanes, DimConst) and shape[-1] % lanes.value == 0
    return (*shape[:-1], shape[-1] // lanes.value, lanes.value)


@pytest.mark.parametrize(("op", "t"), FOLDS, ids=str)
@pytest.mark.parametrize("lanes", [32, 8])
def test_folds_have_the_bits_of_the_interpreter(op: str, t: Type, lanes: int) -> None:
    device = open_device("cpu")
    among = 0
    for number, (shape, axis) in enumerate(LINES + ROWS):
        program = folds(op, t, shape, axis)
        workgroup = (None, (16, 4, 1), (8, 16, 1), (128, 2, 1))[number % 4]
        form = without_tiles(program, "compute_90", BYTES, workgroup, lanes=lanes)
        sizes, x = {f"n{k}": n for k, n in enumerate(shape)}, numbers(t, shape)
        want = {"x": x, "y": np.zeros(shape, t.dtype), "z": np.zeros(shape, t.dtype)}
        expected(program, want, sizes)
        for one in filter(None, (form, over_views(program, "compute_90", BYTES, workgroup, lanes))):
            got = {name: (a if name == "x" else np.zeros_like(a)).reshape(seen(one, name, shape)) for name, a in want.items()}
            interpret(unoptimised(check(one), expand=EXPANDED_ONLY), got, sizes, races=True)
            for name in ("y", "z"):
                assert_same(got[name].reshape(shape), want[name], (shape, axis, workgroup, name, one.buffers))
        if number % 5 == len(t.name) % 5:
            on_cpu = device.compile_native(form).dispatch({"x": x, "z": np.zeros(shape, t.dtype)})
            assert_same(on_cpu["y"], want["y"], (shape, axis, workgroup))
        among += any(isinstance(s, Subgroup) for s in form.body)
    assert among > len(LINES)


class OfSums(Rewrite):
    """Gives all tiles of two axes the layout of sums on tensor cores, of four warps with sixteen rows each."""

    def layout_of(self, value: Value) -> TileLayout:
        return Accumulator(4, 1)


@pytest.mark.parametrize(("op", "t"), FOLDS, ids=str)
def test_rows_of_sums_are_folded_where_they_lie(op: str, t: Type) -> None:
    """By bits of the columns' numbers: those of registers, and those of the four lanes that share a row."""
    for shape in ((64, 8), (128, 24), (64, 40), (64, 64)):
        program = folds(op, t, shape, 1)
        rewrite = OfSums(program, "compute_90", invocation_grid(program, (32, 4, 1)), BYTES, lanes=32)
        rewrite.prepare([(Accumulator(4, 1), shape), (Accumulator(4, 1), (shape[0], 1))])
        form = rewrite.run()
        sizes, x = {"n0": shape[0], "n1": shape[1]}, numbers(t, shape)
        want, got = ({"x": x, "y": np.zeros(shape, t.dtype), "z": np.zeros(shape, t.dtype)} for _ in range(2))
        expected(program, want, sizes)
        interpret(unoptimised(check(form), expand=EXPANDED_ONLY), got, sizes, races=True)
        for name in ("y", "z"):
            assert_same(got[name], want[name], (shape, name))
        assert not [m for m in form.memories if m.space.name == "WORKGROUP"] and any(isinstance(s, Subgroup) for s in form.body)


def test_rows_of_a_warp_need_no_workgroup_memory() -> None:
    """Four rows of 1,024 are four warps."""
    form = without_tiles(vp.ops.softmax(vp.f32, 1024), "compute_90", BYTES, lanes=32)
    assert form.subgroup == 32 and form.workgroup == (32, 4, 1)
    assert not [m for m in form.memories if m.space.name == "WORKGROUP"]


def test_what_is_no_whole_subgroup_has_none() -> None:
    form = without_tiles(vp.ops.softmax(vp.f32, 1024), "compute_90", BYTES, (16, 1, 1), lanes=32)
    assert form.subgroup == 0 and not any(isinstance(s, Subgroup) for s in form.body)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("words", [1, 2, 3])
@pytest.mark.parametrize("shape", [(2, 8), (2, 16), (4, 40), (3, 5, 9)])
def test_scans_where_an_invocation_has_room_for_few_elements(shape: tuple[int, ...], words: int, exclusive: bool) -> None:
    """An invocation that has one element of a row hands on that one, though there is room for no more; one that has several needs two."""
    with vp.TileBuilder("scans") as b:
        x, y = b.read("x", vp.u32, *shape), b.write("y", vp.u32, *shape)
        b.grid(1)
        y[(0,) * len(shape)] = x.tile(*[0] * len(shape), shape=shape).scan("add", len(shape) - 1, exclusive=exclusive)
    count = invocation_grid(b.program).count
    try:
        form = without_tiles(b.program, "compute_90", 4 * count * words)
    except Unsupported:
        assert words == 1 and invocation_grid(b.program).held(shape)[-1] > 1
        return
    values = np.arange(1, 1 + prod(shape), dtype=np.uint32).reshape(shape) ** 3
    arguments = {"x": values, "y": np.zeros(shape, np.uint32)}
    interpret(unoptimised(check(form), expand=EXPANDED_ONLY), arguments, {}, races=True)
    wanted = np.cumsum(values, axis=-1, dtype=np.uint32)
    assert np.array_equal(arguments["y"], wanted - values if exclusive else wanted)
