"""Programs of tiles for tensor cores, of several loops, and of several products in one, or whose sums are read, scaled, set or made by others than one
product of a loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

import vyre_py as vp
from vyre_py.ir.language.dims import evaluate_dim
from vyre_py.ir.language.program import Program

__all__ = ["LOOPS", "LOOP_SIZES", "SUMS", "SUM_SIZES", "arrays_of", "product"]

LOOP_SIZES: Final = {"m": 128, "n": 144}
SUM_SIZES: Final = {"m": 80, "n": 80, "k": 144}
SIDE: Final = 64  # of tiles of sums, and of the steps along k


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


LOOPS: Final[Mapping[str, Program]] = {
    "plain": attention(plain), "exchanged first": attention(exchanged_first), "loaded first": attention(loaded_first),
    "another last": attention(another_last), "another between": attention(another_between), "two loops on one variable": attention(greatest, loops=2),
    "nested": attention(nested, apart=False), "counted": product(counted), "two strict": product(two_strict), "both kinds": product(both_kinds),
    "two loops": product(two_loops, (128, 128)),
}  # fmt: skip


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


SUMS: Final[Mapping[str, Program]] = {
    "conditional": of_products(conditional), "peeled": of_products(peeled), "unturned": of_products(unturned), "one of another": of_products(one_of_another),
    "read": of_products(scaled(read=True, store=False)), "stored": of_products(scaled(read=False, store=True)),
    "read by two": of_products(scaled(read=True, store=True), rows=2 * SIDE), "conditional for two": of_products(conditional, rows=2 * SIDE),
    "few columns": of_products(few_columns, rows=2 * SIDE, columns=8),
}  # fmt: skip


def arrays_of(program: Program, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Small whole numbers, whose sums are exact in any order."""
    rng = np.random.default_rng(31)
    return {
        memory.name: rng.integers(-1, 2, [evaluate_dim(dim, sizes) for dim in memory.shape]).astype(memory.type.dtype) for memory in program.buffers
    }  # fmt: skip
