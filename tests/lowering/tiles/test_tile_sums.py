"""Programs made for tensor cores whose sums are read, scaled, set or made by others than one product of a loop; run by an oracle on whole numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cores_machine import run, viewed
from test_tile_cores import FORMS

import vyre_py as vp
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Array
from vyre_py.lowering.compile import compile_for
from vyre_py.lowering.target import parse_target
from vyre_py.lowering.tiles.cores import for_rings
from vyre_py.lowering.tiles.grid_walk import walks_grid

SIZES = {"m": 80, "n": 80, "k": 144}
SIDE = 64  # of tiles, and of the steps along k


def of_products(write: Callable[..., None], *, rows: int = SIDE, columns: int = SIDE) -> Program:
    """A Program that writes `z` and `w` of x [m, k], y [k, n] and yt [n, k], by `write(b, left, right, turned, acc, k, stores)`: three functions of an offset
    along k that give factors, a variable of sums, how long k is, and two functions that store a tile."""
    with vp.TileBuilder("sums") as b:
        m, n, k = b.dim("m"), b.dim("n"), b.dim("k")
        x, y, yt = b.read("x", vp.bf16, m, k), b.read("y", vp.bf16, k, n), b.read("yt", vp.bf16, n, k)
        z, w = b.write("z", vp.f32, m, n), b.write("w", vp.f32, m, n)
        b.grid(vp.ceil_div(n, columns), vp.ceil_div(m, rows))
        i, j = b.let("i", b.workgroup_id(1) * rows), b.let("j", b.workgroup_id(0) * columns)

        def store(buffer: Any) -> Callable[[Any], None]:
            return lambda tile: buffer.__setitem__((i, j), tile)

        write(
            b, lambda p: x.tile(i, p, shape=(rows, SIDE)), lambda p: y.tile(p, j, shape=(SIDE, columns)), lambda p: yt.tile(j, p, shape=(columns, SIDE)).T,
            b.var("acc", vp.f32, shape=(rows, columns)), k, (store(z), store(w)),
        )  # fmt: skip
    return b.program


def conditional(b: Any, left: Any, right: Any, turned: Any, acc: Any, k: Any, stores: Any) -> None:
    """A turn's sums are kept only in some turns."""
    with b.for_(0, k, SIDE, name="p") as p:
        s = vp.mma(left(p), right(p), acc, tensor=True)
        with b.if_(p < SIDE):
            acc.set(s)
    stores[0](acc)


def peeled(b: Any, left: Any, right: Any, turned: Any, acc: Any, k: Any, stores: Any) -> None:
    """The first product stands before the loop."""
    acc.set(vp.mma(left(0), right(0), acc, tensor=True))
    with b.for_(SIDE, k, SIDE, name="p") as p:
        acc.set(vp.mma(left(p), right(p), acc, tensor=True))
    stores[0](acc)


def unturned(b: Any, left: Any, right: Any, turned: Any, acc: Any, k: Any, stores: Any) -> None:
    """Factors whose axes are named in their own order."""
    with b.for_(0, k, SIDE, name="p") as p:
        acc.set(vp.mma(left(p).transpose(0, 1), right(p).transpose(0, 1), acc, tensor=True))
    stores[0](acc)


def one_of_another(b: Any, left: Any, right: Any, turned: Any, acc: Any, k: Any, stores: Any) -> None:
    """The first factor is a product that no loop computes, which lies otherwise than what a ring brings."""
    first = vp.mma(left(0), right(0), b.fill(0.0, (SIDE, SIDE), vp.f32), tensor=True)
    factor = vp.cast(vp.min(vp.max(first, -3.0), 3.0), vp.bf16)
    with b.for_(0, k, SIDE, name="p") as p:
        acc.set(vp.mma(factor, right(p), acc, tensor=True))
    stores[0](acc)


def scaled(read: bool, store: bool) -> Callable[..., None]:
    """What the second product of a turn adds to is scaled, while the turn looks at it as it was."""

    def write(b: Any, left: Any, right: Any, turned: Any, acc: Any, k: Any, stores: Any) -> None:
        seen, first = b.var("seen", vp.f32, shape=acc.shape), b.let("x0", left(0))
        with b.for_(0, k, SIDE, name="p") as p:
            s = vp.mma(first, turned(p), b.fill(0.0, acc.shape, vp.f32), tensor=True)
            factor = vp.cast(vp.min(vp.max(s, -2.0), 2.0), vp.bf16)
            by = vp.select(s.reduce("max", 1) > 3.0, vp.const(2.0, vp.f32), vp.const(1.0, vp.f32))
            grown = acc * by
            if read:
                seen.set(seen + b.let("now", acc))
            if store:
                stores[1](acc)
            acc.set(vp.mma(factor, right(p), grown, tensor=True))
        stores[0](acc)
        if not store:
            stores[1](seen)

    return write


def few_columns(b: Any, left: Any, right: Any, turned: Any, acc: Any, k: Any, stores: Any) -> None:
    """Strips of eight rows, which workgroups of a cluster can't bring half each."""
    with b.for_(0, k, SIDE, name="p", pipeline=3) as p:
        acc.set(vp.mma(left(p), turned(p), acc, tensor=True))
    stores[0](acc)


CASES: dict[str, Program] = {
    "conditional": of_products(conditional), "peeled": of_products(peeled), "unturned": of_products(unturned), "one of another": of_products(one_of_another),
    "read": of_products(scaled(read=True, store=False)), "stored": of_products(scaled(read=False, store=True)),
    "read by two": of_products(scaled(read=True, store=True), rows=2 * SIDE), "conditional for two": of_products(conditional, rows=2 * SIDE),
    "few columns": of_products(few_columns, rows=2 * SIDE, columns=8),
}  # fmt: skip


def arrays_for(sizes: dict[str, int]) -> dict[str, Array]:
    rng, (m, n, k) = np.random.default_rng(29), sizes.values()
    whole = {name: rng.integers(-1, 2, shape).astype(vp.bf16.dtype) for name, shape in {"x": (m, k), "y": (k, n), "yt": (n, k)}.items()}
    return whole | {name: np.full((m, n), 77, np.float32) for name in "zw"}


@pytest.mark.parametrize("form", ["warps", *FORMS])
@pytest.mark.parametrize("case", CASES)
def test_sums_are_right(case: str, form: str) -> None:
    program, meant = CASES[case], vp.device("reference").compile_native(CASES[case]).dispatch(arrays_for(SIZES))
    made = for_rings(program, "the oracle", 224 << 10, warpgroups=form != "warps", **FORMS["wide" if form == "warps" else form])
    arrays = arrays_for(SIZES)
    run(made, viewed(made, arrays), SIZES, *([3] if walks_grid(made) else []))
    for name, array in meant.items():
        assert np.array_equal(arrays[name], array), f"{name}: {np.sum(arrays[name] != array)} of {array.size}"


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
