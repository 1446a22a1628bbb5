"""Programs made for tensor cores of several loops, and of several products in one; run by an oracle on whole numbers. It runs all invocations together: which
loops have warpgroups that wait for each other is looked at by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cores_machine import run, viewed
from test_tile_cores import FORMS

import vyre_py as vp
from vyre_py.ir.language.dims import evaluate_dim
from vyre_py.ir.language.nodes import ArrivalsTell, BoxCopy, WarpgroupSignal
from vyre_py.ir.language.program import Program
from vyre_py.lowering.compile import compile_for
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.target import parse_target
from vyre_py.lowering.tiles.cores import for_rings
from vyre_py.lowering.tiles.grid_walk import walks_grid

SIZES = {"m": 128, "n": 144}
MEMORY_BYTES = 227 << 10


def attention(inside: Callable[..., None], *, loops: int = 1, apart: bool = True) -> Program:
    """Sums over blocks of keys of queries' products with these, clipped, and with values: two products in a turn, the second of which may be computed in the
    next turn. `inside(b, p, n, beside, make, sums)` writes a turn, of what makes tiles and products, and of two variables. There are so many `loops`."""
    with vp.TileBuilder("attention") as b:
        m, n = b.dim("m"), b.dim("n")
        q, k, v = b.read("q", vp.bf16, m, 64), b.read("k", vp.bf16, n, 64), b.read("v", vp.bf16, n, 64)
        x, c = b.read("x", vp.bf16, m, n), b.read("c", vp.f32, n, m)
        z, w = b.write("z", vp.f32, m, 64), b.write("w", vp.f32, m, 64)
        b.grid(1, vp.ceil_div(m, 128))
        i = b.let("i", b.workgroup_id(1) * 128)
        o, u = b.var("o", vp.f32, shape=(128, 64)), b.var("u", vp.f32, shape=(128, 64))

        def scores(p: Any) -> Any:
            return vp.mma(q_tile, k.tile(p, 0, shape=(64, 64)).T, b.fill(0.0, (128, 64), vp.f32), tensor=True)

        def onto(p: Any, s: Any, sums: Any) -> None:
            sums.set(vp.mma(vp.cast(vp.min(vp.max(s, -3.0), 3.0), vp.bf16), v.tile(p, 0, shape=(64, 64)), sums, tensor=True))

        def other(p: Any) -> None:
            u.set(vp.mma(x.tile(i, p, shape=(128, 64)), v.tile(p, 0, shape=(64, 64)), u, tensor=True))

        for first, end in ((0, n),) if loops == 1 else ((0, 64), (64, n)):
            q_tile = q.tile(i, 0, shape=(128, 64))
            with b.for_(first, end, 64, name="p", pipeline=0 if apart else 3) as p:
                inside(b, p, n, (x.tile(i, p, shape=(128, 64)), c.tile(p, i, shape=(64, 128))), (scores, onto, other), (o, u))
        z[i, 0], w[i, 0] = o, u
    return b.program


def plain(b: Any, p: Any, n: Any, beside: Any, make: Any, sums: Any) -> None:
    scores, onto, _ = make
    onto(p, scores(p), sums[0])


def exchanged_first(b: Any, p: Any, n: Any, beside: Any, make: Any, sums: Any) -> None:
    """All meet before the first product."""
    scores, onto, _ = make
    turned = b.let("turned", beside[1].T)
    onto(p, scores(p) + turned, sums[0])


def loaded_first(b: Any, p: Any, n: Any, beside: Any, make: Any, sums: Any) -> None:
    """What is loaded before the first product, and used behind it, keeps nobody."""
    scores, onto, _ = make
    onto(p, scores(p) + vp.cast(beside[0], vp.f32), sums[0])


def another_last(b: Any, p: Any, n: Any, beside: Any, make: Any, sums: Any) -> None:
    """A product reads strips behind the one that is computed late."""
    scores, onto, other = make
    onto(p, scores(p), sums[0])
    other(p)


def another_between(b: Any, p: Any, n: Any, beside: Any, make: Any, sums: Any) -> None:
    scores, onto, other = make
    s = scores(p)
    other(p)
    onto(p, s, sums[0])


def greatest(b: Any, p: Any, n: Any, beside: Any, make: Any, sums: Any) -> None:
    """Something else is set from the first product."""
    scores, onto, _ = make
    s = scores(p)
    sums[1].set(vp.max(sums[1], s))
    onto(p, s, sums[0])


def nested(b: Any, p: Any, n: Any, beside: Any, make: Any, sums: Any) -> None:
    """A loop within the loop has a late product of its own."""
    scores, onto, _ = make
    onto(p, scores(p), sums[0])
    with b.for_(0, n, 64, name="r", pipeline=2) as r:
        onto(r, scores(r), sums[1])


def product(write: Callable[..., None], tile: tuple[int, int] = (64, 64)) -> Program:
    """A Program that writes `z` of x [m, n] and y [n, m] in bf16, and xs and ys in f32, by `write(b, factors, strict, acc, n)`."""
    with vp.TileBuilder("product") as b:
        (rows, columns), m, n = tile, b.dim("m"), b.dim("n")
        x, y, xs, ys = [b.read(name, t, *shape) for name, t, shape in (
            ("x", vp.bf16, (m, n)), ("y", vp.bf16, (n, m)), ("xs", vp.f32, (m, n)), ("ys", vp.f32, (n, m)))]  # fmt: skip
        z = b.write("z", vp.f32, m, m)
        b.grid(vp.ceil_div(m, columns), vp.ceil_div(m, rows))
        i, j = b.let("i", b.workgroup_id(1) * rows), b.let("j", b.workgroup_id(0) * columns)
        acc = b.var("acc", vp.f32, shape=tile)
        count = write(
            b, lambda p: (x.tile(i, p, shape=(rows, 64)), y.tile(p, j, shape=(64, columns))),
            lambda p: (xs.tile(i, p, shape=(rows, 16)), ys.tile(p, j, shape=(16, columns))), acc, n,
        )  # fmt: skip
        z[i, j] = acc if count is None else acc + count
    return b.program


def counted(b: Any, factors: Any, strict: Any, acc: Any, n: Any) -> Any:
    """Beside a scan over the workgroups in their own order."""
    before = b.grid_scan("add", b.workgroup_id(0) + b.workgroup_id(1) * 10 + 1)
    with b.for_(0, n, 64, name="p") as p:
        acc.set(vp.mma(*factors(p), acc, tensor=True))
    return vp.cast(before, vp.f32)


def two_strict(b: Any, factors: Any, strict: Any, acc: Any, n: Any) -> Any:
    more = b.var("more", vp.f32, shape=acc.shape)
    with b.for_(0, n, 16, name="p") as p:
        acc.set(vp.mma(*strict(p), acc))
        more.set(vp.mma(*strict(p), more))
    return more + 0.0


def both_kinds(b: Any, factors: Any, strict: Any, acc: Any, n: Any) -> Any:
    with b.for_(0, n, 64, name="p", pipeline=3) as p:
        acc.set(vp.mma(*factors(p), acc, tensor=True))
    with b.for_(0, n, 16, name="r", pipeline=3) as r:
        acc.set(vp.mma(*strict(r), acc))


def two_loops(b: Any, factors: Any, strict: Any, acc: Any, n: Any) -> Any:
    """Whose rings have room beside each other with fewer strips than each by itself."""
    for _ in range(2):
        with b.for_(0, n, 64, name="p") as p:
            acc.set(vp.mma(*factors(p), acc, tensor=True))


CASES: dict[str, Program] = {
    "plain": attention(plain), "exchanged first": attention(exchanged_first), "loaded first": attention(loaded_first),
    "another last": attention(another_last), "another between": attention(another_between), "two loops on one variable": attention(greatest, loops=2),
    "nested": attention(nested, apart=False), "counted": product(counted), "two strict": product(two_strict), "both kinds": product(both_kinds),
    "two loops": product(two_loops, (128, 128)),
}  # fmt: skip
IN_TURNS = ("plain", "loaded first", "another between", "two loops on one variable")


def arrays_of(program: Program) -> dict[str, Any]:
    rng = np.random.default_rng(31)
    return {
        memory.name: rng.integers(-1, 2, [evaluate_dim(dim, SIZES) for dim in memory.shape]).astype(memory.type.dtype) for memory in program.buffers
    }  # fmt: skip


@pytest.mark.parametrize("form", ["warps", *FORMS])
@pytest.mark.parametrize("case", CASES)
def test_loops_are_right(case: str, form: str) -> None:
    program, arrays = CASES[case], arrays_of(CASES[case])
    meant = vp.device("reference").compile_native(program).dispatch(arrays_of(program))
    made = for_rings(program, "the oracle", MEMORY_BYTES, warpgroups=form != "warps", **FORMS["wide" if form == "warps" else form])
    run(made, viewed(made, arrays), SIZES, *([3] if walks_grid(made) else []))
    for name, array in meant.items():
        assert np.array_equal(arrays[name], array), f"{name}: {np.sum(arrays[name] != array)} of {array.size}"
    takes_turns = any(isinstance(s, WarpgroupSignal) for s in made.body)
    assert takes_turns is (case in IN_TURNS and form != "warps")


@pytest.mark.parametrize("case", CASES)
def test_loops_compile(case: str) -> None:
    compile_for(CASES[case], [parse_target("compute_90a")])


def test_workgroups_of_other_turns_share_no_copies() -> None:
    """One would wait for ever for what the other does not copy."""

    def write(b: Any, factors: Any, strict: Any, acc: Any, n: Any) -> None:
        with b.for_(0, b.workgroup_id(1) * 128 + 128, 64, name="p") as p:
            acc.set(vp.mma(factors(p)[0], factors(0)[1], acc, tensor=True))

    made = for_rings(product(write, (128, 256)), "the oracle", MEMORY_BYTES, wide=True, warpgroups=True, boxes=True)
    copies = [s for s in made.body if isinstance(s, BoxCopy)]
    assert copies and all(s.shared < 0 for s in copies) and not any(isinstance(s, ArrivalsTell) and s.shared for s in made.body)


def test_products_that_no_warps_share_are_refused() -> None:
    with vp.TileBuilder("two") as b:
        x, y, z, w = b.read("x", vp.bf16, 128, 64), b.read("y", vp.bf16, 64, 256), b.write("z", vp.f32, 128, 256), b.write("w", vp.f32, 16, 32)
        b.grid(1)
        for buffer, (rows, columns) in ((z, (128, 256)), (w, (16, 32))):
            buffer[0, 0] = vp.mma(x.tile(0, 0, shape=(rows, 64)), y.tile(0, 0, shape=(64, columns)), b.fill(0.0, (rows, columns), vp.f32), tensor=True)
    with pytest.raises(Unsupported, match=r"mma_tensor of 16 x 32 by 8 warps, as a larger one needs,.*tiles that are more alike"):
        compile_for(b.program, [parse_target("compute_80")])
