"""Kernels that stride, gather, count and look at their neighbours, on one core of the CPU against Numba, in turns and processor time.

    pip install numba && NUMBA_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 taskset -c 1 python tests/bench/bench_kernels.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

import vyre_py as vp
from vyre_py.ir.language.program import Program

ROUNDS = 15


def race(what: str, ours: Callable[[], object], peer: Callable[[], object]) -> None:
    """One line: medians of both, taken in turns, in milliseconds, and ours in peers."""
    taken: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(2 * ROUNDS + 2):
        begin = time.process_time()
        (ours, peer)[turn % 2]()
        if turn > 1:
            taken[turn % 2 == 0].append(1e3 * (time.process_time() - begin))
    mine, other = statistics.median(taken[True]), statistics.median(taken[False])
    print(f"{what:34s} {mine:9.3f} ms   numba {other:9.3f} ms   {mine / other:5.2f} of its time", flush=True)


def histogram() -> Program:
    """Counts of bytes, read four at a time, in workgroup memory first."""
    with vp.ProgramBuilder("histogram", workgroup=256) as b:
        n = b.dim("n")
        x, bins = b.read("x", vp.u32, n), b.read_write("bins", vp.u32, 256)
        b.grid(vp.ceil_div(n, 1 << 14))
        local, t = b.workgroup("local", vp.u32, 256), b.local_id()
        b.barrier()
        with b.for_(0, 64) as k:
            i = b.workgroup_id() * (1 << 14) + k * 256 + t
            with b.if_(i < n):
                word = x[i]
                for byte in range(4):
                    local.atomic_add((word >> (8 * byte)) & 255, 1)
        b.barrier()
        bins.atomic_add(t, local[t])
    return b.program


@numba.njit
def numba_histogram(x: Any, bins: Any) -> None:
    """Counts of bytes."""
    for i in range(x.size):
        bins[x[i]] += np.uint32(1)


def stencil() -> Program:
    """Five points, zero beyond the edges."""
    with vp.ProgramBuilder("stencil", workgroup=(64, 4)) as b:
        h, w, rate = b.dim("h"), b.dim("w"), b.param("rate", vp.f32)
        old, new = b.read("old", vp.f32, h, w), b.write("new", vp.f32, h, w)
        x, y = b.global_id(0), b.global_id(1)
        c = old[y, x]
        new[y, x] = c + rate * (old[y, x - 1] + old[y, x + 1] + old[y - 1, x] + old[y + 1, x] - 4.0 * c)
    return b.program


@numba.njit
def numba_stencil(old: Any, new: Any, rate: Any) -> None:
    """Five points, of the middle only."""
    h, w = old.shape
    for y in range(1, h - 1):
        for x in range(1, w - 1):
            new[y, x] = old[y, x] + rate * (old[y, x - 1] + old[y, x + 1] + old[y - 1, x] + old[y + 1, x] - np.float32(4) * old[y, x])


def life() -> Program:
    """A step of the Game of Life in bytes, dead beyond the edges."""
    with vp.ProgramBuilder("life", workgroup=(64, 4)) as b:
        h, w = b.dim("h"), b.dim("w")
        old, new = b.read("old", vp.u8, h, w), b.write("new", vp.u8, h, w)
        x, y = vp.cast(b.global_id(0), vp.i32), vp.cast(b.global_id(1), vp.i32)
        near = [old[y + dy, x + dx] for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dx or dy]
        count = sum(near[1:], near[0])
        new[y, x] = vp.select((count == 3) | ((count == 2) & (old[y, x] == 1)), vp.const(1, vp.u8), vp.const(0, vp.u8))
    return b.program


@numba.njit
def numba_life(old: Any, new: Any) -> None:
    """A step in bytes, of the middle only."""
    h, w = old.shape
    for y in range(1, h - 1):
        for x in range(1, w - 1):
            c = np.uint8(np.uint8(np.uint8(old[y - 1, x - 1] + old[y - 1, x]) + np.uint8(old[y - 1, x + 1] + old[y, x - 1]))
                         + np.uint8(np.uint8(old[y, x + 1] + old[y + 1, x - 1]) + np.uint8(old[y + 1, x] + old[y + 1, x + 1])))  # fmt: skip
            new[y, x] = np.uint8((c == 3) | ((c == 2) & (old[y, x] == 1)))


def spmv() -> Program:
    """A sparse matrix (CSR) times a vector, a row an invocation."""
    with vp.ProgramBuilder("spmv", workgroup=256) as b:
        rows, nnz, cols = b.dim("rows"), b.dim("nnz"), b.dim("cols")
        ptr, col, val = b.read("ptr", vp.u32, rows + 1), b.read("col", vp.u32, nnz), b.read("val", vp.f32, nnz)
        x, y = b.read("x", vp.f32, cols), b.write("y", vp.f32, rows)
        r, total = b.global_id(), b.var("total", vp.f32)
        with b.for_(ptr[r], ptr[r + 1]) as k:
            total += val[k] * x[col[k]]
        y[r] = total
    return b.program


@numba.njit
def numba_spmv(ptr: Any, col: Any, val: Any, x: Any, y: Any) -> None:
    """The same rows."""
    for r in range(y.size):
        t = np.float32(0)
        for k in range(ptr[r], ptr[r + 1]):
            t += val[k] * x[col[k]]
        y[r] = t


def argmax() -> Program:
    """The place of the largest of each row, a row a workgroup: each invocation's, then the first lane's of all."""
    with vp.ProgramBuilder("argmax", workgroup=256) as b:
        rows, cols = b.dim("rows"), b.dim("cols")
        x, where = b.read("x", vp.f32, rows, cols), b.write("where", vp.u32, rows)
        b.grid(rows)
        tops, places = b.workgroup("tops", vp.f32, 256), b.workgroup("places", vp.u32, 256)
        t, r = b.local_id(), b.workgroup_id()
        top, place = b.var("top", vp.f32, float("-inf")), b.var("place", vp.u32, 0)
        with b.for_(t, cols, step=256) as c:
            better = x[r, c] > top
            place.set(vp.select(better, c, place))
            top.set(vp.select(better, x[r, c], top))
        tops[t], places[t] = top, place
        for stride in (128, 64, 32, 16, 8, 4, 2, 1):
            b.barrier()
            with b.if_(t < stride):
                p, q = tops[t + stride], places[t + stride]
                with b.if_((p > tops[t]) | ((p == tops[t]) & (q < places[t]))):
                    tops[t], places[t] = p, q
        with b.if_(t == 0):
            where[r] = places[0]
    return b.program


@numba.njit
def numba_argmax(x: Any, out: Any) -> None:
    """The first of the largest."""
    for r in range(x.shape[0]):
        top, place = x[r, 0], 0
        for c in range(1, x.shape[1]):
            if x[r, c] > top:
                top, place = x[r, c], c
        out[r] = place


def main() -> None:
    """Prints the table, after a look at each result."""
    device = vp.device("cpu")
    print(device)
    rng = np.random.default_rng(5)

    x = rng.normal(128, 30, 1 << 24).clip(0, 255).astype(np.uint8)
    bins, counts = device.allocate((256,), vp.u32), np.zeros(256, np.uint32)
    launch = device.compile_native(histogram()).bind(x=device.upload(x.view(np.uint32)), bins=bins)
    launch()
    np.testing.assert_array_equal(bins.read(), np.bincount(x, minlength=256))
    race("histogram of 2^24 bytes", launch, lambda: numba_histogram(x, counts))

    for what, program, peer, side, arrays, extra in (
        ("stencil 2048^2 f32", stencil(), numba_stencil, 2048, rng.random((2048, 2048), np.float32), {"rate": np.float32(0.2)}),
        ("life 4096^2 u8", life(), numba_life, 4096, (rng.random((4096, 4096)) < 0.3).astype(np.uint8), {}),
    ):
        new, other = device.allocate((side, side), vp.f32 if extra else vp.u8), np.zeros_like(arrays)
        step = device.compile_native(program).bind(old=device.upload(arrays), new=new, **extra)
        step()
        peer(arrays, other, *extra.values())
        np.testing.assert_array_equal(new.read()[1:-1, 1:-1], other[1:-1, 1:-1])
        race(what, step, lambda: peer(arrays, other, *extra.values()))  # noqa: B023 - called within this turn

    rows = 1 << 18
    ptr = np.concatenate([[0], np.cumsum(rng.integers(4, 29, rows))]).astype(np.uint32)
    col, val, vector = rng.integers(0, rows, ptr[-1]).astype(np.uint32), rng.random(ptr[-1], np.float32), rng.random(rows, np.float32)
    y, out = device.allocate((rows,), vp.f32), np.empty(rows, np.float32)
    launch = device.compile_native(spmv()).bind(ptr=device.upload(ptr), col=device.upload(col), val=device.upload(val), x=device.upload(vector), y=y)
    launch()
    numba_spmv(ptr, col, val, vector, out)
    np.testing.assert_allclose(y.read(), out, rtol=1e-5)
    race("sparse matrix, 2^18 rows of 4 to 28", launch, lambda: numba_spmv(ptr, col, val, vector, out))

    table = rng.integers(0, 100_000, (4096, 4096)).astype(np.float32)
    where, places = device.allocate((4096,), vp.u32), np.empty(4096, np.uint32)
    launch = device.compile_native(argmax()).bind(x=device.upload(table), where=where)
    launch()
    np.testing.assert_array_equal(where.read(), table.argmax(1))
    race("argmax of 4096 rows of 4096 f32", launch, lambda: numba_argmax(table, places))


if __name__ == "__main__":
    main()
