"""Tiles that lie in other layouts than most, as those do that tensor cores compute: what moves between layouts is the same tile."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from device_kinds import open_device
from filetest import WATCHING, files, read_cases, run_program
from test_generated import SEED, assert_same
from test_generated_tiles import copied, expected, nth

import vyre_py as vp
from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.nodes import Barrier, Let, TileLoad, Value, Variable
from vyre_py.ir.language.ops import EXPANDED_ONLY
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes import unoptimised
from vyre_py.ir.text.printer import print_program
from vyre_py.lowering.tiles import without_tiles
from vyre_py.lowering.tiles.rewrite import Rewrite
from vyre_py.lowering.tiles.tile_layout import InvocationGrid, TileLayout, invocation_grid, shapes_of

COUNT = int(os.environ.get("VYRE_GENERATED") or 20)
BYTES = 16 << 10


class Mixed(Rewrite):
    """Gives values and variables layouts by chance: the invocations are rows and columns in several ways."""

    def __init__(self, program: Program, seed: int) -> None:
        grid = invocation_grid(program)
        super().__init__(program, "cpu", grid, BYTES)
        self.grids = [InvocationGrid(grid.count >> k, 1 << k) for k in range(grid.count.bit_length())]
        self.seed = seed
        self.own = {s.bound.id for s in program.body if isinstance(s, (Let, TileLoad))}

    def run(self) -> Program:
        self.prepare([(grid, shape) for shape in shapes_of(self.program) for grid in self.grids])
        return super().run()

    def layout_of(self, value: Value) -> TileLayout:
        return random.Random(self.seed * 7919 + value.id).choice(self.grids) if value.id in self.own else self.invocations

    def layout_of_variable(self, variable: Variable) -> TileLayout:
        return random.Random(self.seed * 7927 + variable.id).choice(self.grids)


@pytest.mark.parametrize("batch", range(4))
def test_any_layout_holds_the_same_tile(batch: int) -> None:
    print(f"VYRE_SEED={SEED}")
    for number in range(COUNT * batch // 4, COUNT * (batch + 1) // 4):
        print(f"Program {number}")
        case = nth(number + (1 << 21), "cpu")
        program = Mixed(case.program, number).run()
        got = copied(case)
        interpret(unoptimised(check(program), expand=EXPANDED_ONLY), got, case.sizes, races=True)
        assert_same(case, expected(case), got)


@pytest.mark.parametrize("seed", range(6))
def test_one_register_for_each_invocation_is_not_one_element(seed: int) -> None:
    """All registers of a tile may be one value in an invocation, and another in the next."""
    with vp.TileBuilder("bias") as b:
        n = b.dim("n")
        x, y = b.read("x", vp.u32, n, n), b.write("y", vp.u32, n, n)
        b.grid(1)
        row, column = x.tile(2, 0, shape=(1, 32)), b.iota(0, (64, 32))
        y[0, 0] = x.tile(0, 0, shape=(64, 32)) * 3 + row + column
    device = open_device("cpu")
    numbers = np.random.default_rng(seed).integers(0, 1 << 32, (64, 64), dtype=np.uint32)
    got = device.compile_native(Mixed(b.program, seed).run()).dispatch({"x": numbers})["y"]
    want = numbers[:, :32] * np.uint32(3) + numbers[2, :32] + np.arange(64, dtype=np.uint32)[:, None]
    assert np.array_equal(got[:, :32], want)


def reshaped(shape: tuple[int, ...], to: tuple[int, ...]) -> Program:
    with vp.TileBuilder("reshaped") as b:
        x, y = b.read("x", vp.u32, *[b.dim(f"d{axis}") for axis in range(len(shape))]), b.write("y", vp.u32, *to)
        b.grid(1)
        y[(0,) * len(to)] = x.tile(*[0] * len(shape), shape=shape).reshape(to)
    return b.program


# A shape, another, and whether every invocation holds what it will: not where rows end within a round of invocations, or go along other ones.
RESHAPES = [
    ((8192,), (1, 8192), True), ((1, 8192), (8192,), True), ((1000,), (1, 1000), True), ((1, 1000), (1, 1, 1000), True), ((64, 32), (2048,), True),
    ((3, 32), (1, 3, 32), True), ((3, 20), (1, 3, 20), False), ((256, 1), (256,), False), ((4, 100), (400,), False), ((3, 20), (20, 3), False),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["mixed", "plain", "neighbours"])
@pytest.mark.parametrize(("shape", "to", "stays"), RESHAPES, ids=str)
def test_a_reshape_moves_nothing_that_is_where_it_belongs(shape: tuple[int, ...], to: tuple[int, ...], stays: bool, kind: str) -> None:
    written = reshaped(shape, to)
    grid = invocation_grid(written, width=4 if kind == "neighbours" else 1)
    program = Mixed(written, 3).run() if kind == "mixed" else Rewrite(written, "cpu", grid, BYTES).run()
    if kind == "plain":
        assert stays == (not any(isinstance(s, Barrier) for s in program.body))
    numbers = np.random.default_rng(1).integers(0, 1 << 32, [extent + 1 for extent in shape], dtype=np.uint32)
    got = {"x": numbers, "y": np.zeros(to, np.uint32)}
    interpret(unoptimised(check(program), expand=EXPANDED_ONLY), got, {f"d{axis}": extent + 1 for axis, extent in enumerate(shape)}, races=True)
    assert np.array_equal(got["y"], numbers[tuple(map(slice, shape))].reshape(to))


@pytest.mark.parametrize("kind", ["cpu", "wgpu", "cuda"])
@pytest.mark.parametrize("workgroup", [(1, 32, 1), (1, 1, 64), (64, 1, 1), (2, 4, 2), (1, 1, 1)], ids=str)
def test_invocations_are_asked_for_in_any_shape(kind: str, workgroup: tuple[int, int, int]) -> None:
    """One column has its invocations along y, as one row has them along x."""
    device = open_device(kind)
    with vp.TileBuilder("shapes") as b:
        n = b.dim("n")
        x, y, z = b.read("x", vp.u32, n, n), b.write("y", vp.u32, n, n), b.write("z", vp.u32, n)
        b.grid(1)
        tile = x.tile(0, 0, shape=(9, 20))
        y[0, 0] = tile.T.scan("add", 1)
        z[0] = tile.reduce("max", 0).reshape(20)
    numbers = np.random.default_rng(1).integers(0, 1 << 32, (20, 20), dtype=np.uint32)
    got = device.compile_native(b.program, vp.CompileOptions(workgroup=workgroup)).dispatch({"x": numbers})
    assert np.array_equal(got["y"][:, :9], np.cumsum(numbers[:9].T, axis=1, dtype=np.uint32))
    assert np.array_equal(got["z"], numbers[:9].max(axis=0))


@pytest.mark.parametrize("path", [path for path in files("run") if path.stem.startswith("tiles")], ids=lambda path: path.stem)
def test_invocations_do_not_race(path: Path) -> None:
    """What the filetests say of Programs of tiles, of those of invocations, while the interpreter watches for races."""
    for case in read_cases(path):
        text = print_program(without_tiles(case.parse(), "cpu", BYTES))
        run_program(replace(case, text=text), "reference", WATCHING)
