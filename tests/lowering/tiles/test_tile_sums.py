"""Programs made for tensor cores whose sums are read, scaled, set or made by others than one product of a loop; run by an oracle on whole numbers."""

from __future__ import annotations

import numpy as np
import pytest
from cores_machine import run, viewed
from device_kinds import open_device
from product_programs import SUM_SIZES, SUMS, arrays_of
from test_tile_cores import FORMS

import vyre_py as vp
from vyre_py.ir.language.program import Program
from vyre_py.lowering.compile import compile_for
from vyre_py.lowering.target import parse_target
from vyre_py.lowering.tiles.cores import for_rings
from vyre_py.lowering.tiles.grid_walk import walks_grid


@pytest.mark.parametrize("form", ["warps", *FORMS])
@pytest.mark.parametrize("case", SUMS)
def test_sums_are_right(case: str, form: str) -> None:
    program, meant = SUMS[case], vp.device("reference").compile_native(SUMS[case]).dispatch(arrays_of(SUMS[case], SUM_SIZES))
    made = for_rings(program, "the oracle", 224 << 10, warpgroups=form != "warps", **FORMS["wide" if form == "warps" else form])
    arrays = arrays_of(SUMS[case], SUM_SIZES)
    run(made, viewed(made, arrays), SUM_SIZES, *([3] if walks_grid(made) else []))
    for name, array in meant.items():
        assert np.array_equal(arrays[name], array), f"{name}: {np.sum(arrays[name] != array)} of {array.size}"


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("sizes", [SUM_SIZES, {"m": 131, "n": 77, "k": 93}], ids=str)
@pytest.mark.parametrize("case", SUMS)
def test_devices_agree_on_sums(case: str, sizes: dict[str, int], kind: str) -> None:
    meant, got = [open_device(which).compile_native(SUMS[case]).dispatch(arrays_of(SUMS[case], sizes)) for which in ("reference", kind)]
    for name, array in meant.items():
        assert np.array_equal(got[name], array), f"{name}: {np.sum(got[name] != array)} of {array.size}"


def of_a_chain(length: int) -> Program:
    """A product at a place that a chain of statements computes, each of two uses of the one before."""
    with vp.TileBuilder("chain") as b:
        m, n, k = b.dim("m"), b.dim("n"), b.dim("k")
        x, y, z = b.read("x", vp.bf16, m, k), b.read("y", vp.bf16, k, n), b.write("z", vp.f32, m, n)
        b.grid(vp.ceil_div(n, 128), vp.ceil_div(m, 128))
        i, j = b.workgroup_id(1) * 128, b.workgroup_id(0)
        for _ in range(length):
            j = j ^ (j >> 1)
        acc = b.var("acc", vp.f32, shape=(128, 128))
        with b.for_(0, k, 64) as p:
            acc.set(vp.mma(x.tile(i, p, shape=(128, 64)), y.tile(p, j * 128, shape=(64, 128)), acc, tensor=True))
        z[i, j * 128] = acc
    return b.program


def test_places_may_be_computed_by_long_chains() -> None:
    """By a look at each statement once: one at each way through them would take for ever."""
    compile_for(of_a_chain(600), [parse_target("compute_90a")])


@pytest.mark.parametrize("target", ["cpu", "wgsl", "compute_80"])
@pytest.mark.parametrize("reshaped", [False, True])
def test_tiles_may_be_computed_by_long_chains(reshaped: bool, target: str) -> None:
    """Without a call of Python's inside another for each of their statements."""
    with vp.TileBuilder("chain") as b:
        x, z = b.read("x", vp.i32, 64), b.write("z", vp.i32, 64)
        b.grid(1)
        tile = x.tile(0, shape=64)
        for step in range(500):
            tile = tile.reshape((8, 8) if step % 2 == 0 else 64) if reshaped and step < 40 else tile + 1
        z[0] = tile
    compile_for(b.program, [parse_target(target)])
