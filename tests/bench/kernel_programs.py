"""The Programs of `bench_kernels`, as one writes them who knows the language and no processor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import vyre_py as vp
from vyre_py.ir.language.program import Program

BLOCK, ITEMS, DIGITS = 256, 16, 16
TILE = BLOCK * ITEMS


def axpy() -> Program:
    """y = a x + y."""
    with vp.ProgramBuilder("axpy") as b:
        n, a = b.dim("n"), b.param("a", vp.f32)
        x, y = b.read("x", vp.f32, n), b.read_write("y", vp.f32, n)
        i = b.global_id(0)
        y[i] = a * x[i] + y[i]
    return b.program


def sums_of_groups() -> Program:
    """A sum for each workgroup, of 64 elements an invocation."""
    with vp.ProgramBuilder("sums", workgroup=BLOCK) as b:
        n = b.dim("n")
        x, sums = b.read("x", vp.f32, n), b.write("sums", vp.f32, vp.ceil_div(n, 64 * BLOCK))
        b.grid(vp.ceil_div(n, 64 * BLOCK))
        total = b.var("total", vp.f32)
        with b.for_(0, 64) as k:
            total += x[b.workgroup_id() * (64 * BLOCK) + k * BLOCK + b.local_id()]
        sums[b.workgroup_id()] = b.workgroup_reduce("add", total)
    return b.program


def mandelbrot() -> Program:
    """How soon points leave, 100 turns at most."""
    with vp.ProgramBuilder("mandelbrot", workgroup=(16, 16)) as b:
        h, w = b.dim("h"), b.dim("w")
        y = b.write("turns", vp.u32, h, w)
        b.over(w, h)
        i, j = b.global_id(0), b.global_id(1)
        cr, ci = vp.cast(i, vp.f32) * (3.0 / 1024) - 2.0, vp.cast(j, vp.f32) * (2.0 / 1024) - 1.0
        re, im, turns = b.var("re", vp.f32), b.var("im", vp.f32), b.var("turns", vp.u32)
        with b.for_(0, 100):
            a, c = re.get(), im.get()
            with b.if_(a * a + c * c > 4.0):
                b.break_()
            re.set(a * a - c * c + cr)
            im.set(2.0 * a * c + ci)
            turns += 1
        y[j, i] = turns
    return b.program


def transpose() -> Program:
    """By tiles of 32 x 32 in workgroup memory."""
    with vp.ProgramBuilder("transpose", workgroup=(32, 8)) as b:
        h, w = b.dim("h"), b.dim("w")
        x, y = b.read("x", vp.f32, h, w), b.write("y", vp.f32, w, h)
        b.grid(vp.ceil_div(w, 32), vp.ceil_div(h, 32))
        tile = b.workgroup("tile", vp.f32, 32, 33)
        i, j, left, top = b.local_id(0), b.local_id(1), b.workgroup_id(0) * 32, b.workgroup_id(1) * 32
        for k in range(0, 32, 8):
            tile[j + k, i] = x[top + j + k, left + i]
        b.barrier()
        for k in range(0, 32, 8):
            y[left + j + k, top + i] = tile[i, j + k]
    return b.program


def softmax() -> Program:
    """Of rows, one a workgroup."""
    with vp.ProgramBuilder("softmax", workgroup=BLOCK) as b:
        rows, cols = b.dim("rows"), b.dim("cols")
        x, y = b.read("x", vp.f32, rows, cols), b.write("y", vp.f32, rows, cols)
        b.grid(rows)
        r, t, top, total = b.workgroup_id(), b.local_id(), b.var("top", vp.f32, float("-inf")), b.var("total", vp.f32)
        with b.for_(t, cols, step=BLOCK) as c:
            top.set(vp.max(top, x[r, c]))
        most = b.let("most", b.workgroup_reduce("max", top))
        with b.for_(t, cols, step=BLOCK) as c:
            total += vp.exp(x[r, c] - most)
        every = b.let("every", b.workgroup_reduce("add", total))
        with b.for_(t, cols, step=BLOCK) as c:
            y[r, c] = vp.exp(x[r, c] - most) / every
    return b.program


def bodies() -> Program:
    """What all bodies pull each with."""
    with vp.ProgramBuilder("bodies", workgroup=64) as b:
        n = b.dim("n")
        p, pull = b.read("p", vp.f32, 3, n), b.write("pull", vp.f32, 3, n)
        b.over(n)
        i = b.global_id(0)
        own, sums = [p[k, i] for k in range(3)], [b.var(f"s{k}", vp.f32) for k in range(3)]
        with b.for_(0, n) as j:
            far = [p[k, j] - own[k] for k in range(3)]
            square = far[0] * far[0] + far[1] * far[1] + far[2] * far[2] + 0.01
            weight = 1.0 / (square * vp.sqrt(square))
            for k in range(3):
                sums[k] += far[k] * weight
        for k in range(3):
            pull[k, i] = sums[k]
    return b.program


def _workgroup_scan(b: Any, shared: Any, t: Any, value: Any, size: int) -> int:
    """The inclusive scan over the workgroup (Hillis and Steele), in one of two halves of `shared`; gives which. Below lane 0 a load is zero."""
    shared[0, t] = value
    here, stride = 0, 1
    while stride < size:
        b.barrier()
        shared[1 - here, t] = shared[here, t] + shared[here, t - stride]
        here, stride = 1 - here, stride * 2
    b.barrier()
    return here


def block_sums() -> Program:
    """Sums of blocks, for `scan`."""
    with vp.ProgramBuilder("block_sums", workgroup=BLOCK) as b:
        n = b.dim("n")
        x, sums = b.read("x", vp.i32, n), b.write("sums", vp.i32, vp.ceil_div(n, TILE))
        b.grid(vp.ceil_div(n, TILE))
        part, t, g, total = b.workgroup("part", vp.i32, 2, BLOCK), b.local_id(), b.workgroup_id(), b.var("total", vp.i32)
        with b.for_(0, ITEMS) as k:
            total += x[g * TILE + k * BLOCK + t]
        here = _workgroup_scan(b, part, t, total, BLOCK)
        with b.if_(t == BLOCK - 1):
            sums[g] = part[here, t]
    return b.program


def scan() -> Program:
    """Scans blocks, and adds what the blocks before come to."""
    with vp.ProgramBuilder("scan", workgroup=BLOCK) as b:
        n = b.dim("n")
        x, y, before = b.read("x", vp.i32, n), b.write("y", vp.i32, n), b.read("before", vp.i32, vp.ceil_div(n, TILE))
        b.grid(vp.ceil_div(n, TILE))
        tile, part = b.workgroup("tile", vp.i32, ITEMS, BLOCK + 1), b.workgroup("part", vp.i32, 2, BLOCK)
        t, g = b.local_id(), b.workgroup_id()
        for e in [k * BLOCK + t for k in range(ITEMS)]:
            tile[e % ITEMS, e // ITEMS] = x[g * TILE + e]
        b.barrier()
        mine = [tile[0, t]]
        for k in range(1, ITEMS):
            mine.append(mine[-1] + tile[k, t])
        here = _workgroup_scan(b, part, t, mine[-1], BLOCK)
        base = part[here, t - 1] + before[g - 1]
        for k in range(ITEMS):
            tile[k, t] = mine[k] + base
        b.barrier()
        for e in [k * BLOCK + t for k in range(ITEMS)]:
            y[g * TILE + e] = tile[e % ITEMS, e // ITEMS]
    return b.program


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


def stencil() -> Program:
    """Five points, zero beyond the edges."""
    with vp.ProgramBuilder("stencil", workgroup=(64, 4)) as b:
        h, w, rate = b.dim("h"), b.dim("w"), b.param("rate", vp.f32)
        old, new = b.read("old", vp.f32, h, w), b.write("new", vp.f32, h, w)
        x, y = b.global_id(0), b.global_id(1)
        c = old[y, x]
        new[y, x] = c + rate * (old[y, x - 1] + old[y, x + 1] + old[y - 1, x] + old[y + 1, x] - 4.0 * c)
    return b.program


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


def spmv(lanes: int) -> Program:
    """A sparse matrix (CSR) times a vector, so many invocations a row."""
    with vp.ProgramBuilder(f"spmv{lanes}", workgroup=256) as b:
        rows, nnz, cols = b.dim("rows"), b.dim("nnz"), b.dim("cols")
        ptr, col, val = b.read("ptr", vp.u32, rows + 1), b.read("col", vp.u32, nnz), b.read("val", vp.f32, nnz)
        x, y = b.read("x", vp.f32, cols), b.write("y", vp.f32, rows)
        b.over(rows * lanes)
        t, r, total = b.local_id(), b.global_id() // lanes, b.var("total", vp.f32)
        with b.for_(ptr[r] + t % lanes, ptr[r + 1], step=lanes) as k:
            total += val[k] * x[col[k]]
        if lanes == 1:
            y[r] = total
        else:
            part = b.workgroup("part", vp.f32, 256)
            part[t] = total
            b.barrier()
            with b.if_(t % lanes == 0):
                y[r] = sum((part[t + k] for k in range(1, lanes)), part[t])
    return b.program


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


def matmul(tile: int = 64, depth: int = 16, each: int = 4) -> Program:
    """out = a c by tiles in workgroup memory, 4 x 4 an invocation."""
    side = tile // each
    with vp.ProgramBuilder("matmul", workgroup=(side, side)) as b:
        m, n, kk = b.dim("m"), b.dim("n"), b.dim("k")
        a, c, out = b.read("a", vp.f32, m, kk), b.read("c", vp.f32, kk, n), b.write("out", vp.f32, m, n)
        b.grid(vp.ceil_div(n, tile), vp.ceil_div(m, tile))
        a_tile, b_tile = b.workgroup("a_tile", vp.f32, depth, tile + 4), b.workgroup("b_tile", vp.f32, depth, tile)
        tx, ty, t, top, left = b.local_id(0), b.local_id(1), b.local_index(), b.workgroup_id(1) * tile, b.workgroup_id(0) * tile
        sums = [[b.var(f"c{i}{j}", vp.f32) for j in range(each)] for i in range(each)]
        with b.for_(0, vp.ceil_div(kk, depth)) as step:
            for q in [e * side * side + t for e in range(tile * depth // (side * side))]:
                a_tile[q % depth, q // depth] = a[top + q // depth, step * depth + q % depth]
                b_tile[q // tile, q % tile] = c[step * depth + q // tile, left + q % tile]
            b.barrier()
            for k in range(depth):
                column, row = [a_tile[k, ty * each + i] for i in range(each)], [b_tile[k, tx * each + j] for j in range(each)]
                for i in range(each):
                    for j in range(each):
                        sums[i][j].set(vp.fma(column[i], row[j], sums[i][j]))
            b.barrier()
        for i in range(each):
            for j in range(each):
                out[top + ty * each + i, left + tx * each + j] = sums[i][j]
    return b.program


def fft4() -> Program:
    """A pass of a complex FFT (Stockham, radix 4), with roots from a table in a buffer."""

    def mul(a: Any, c: Any) -> Any:
        return vp.vec2(a.x * c.x - a.y * c.y, a.x * c.y + a.y * c.x)

    with vp.ProgramBuilder("fft4") as b:
        n, s = b.dim("n"), b.param("s", vp.u32)
        x, y, roots = b.read("x", vp.f32x2, n), b.write("y", vp.f32x2, n), b.read("roots", vp.f32x2, n)
        b.over(vp.ceil_div(n, 4))
        i = b.global_id()
        q, p = i % s, i // s
        a = [x[i + j * (n // 4)] for j in range(4)]
        even, odd = (a[0] + a[2], a[1] + a[3]), (a[0] - a[2], a[1] - a[3])
        turned = vp.vec2(odd[1].y, -odd[1].x)
        out = [even[0] + even[1], odd[0] + turned, even[0] - even[1], odd[0] - turned]
        with b.if_(i < n // 4):
            for k in range(4):
                y[q + s * (4 * p + k)] = mul(out[k], roots[p * s * k]) if k else out[k]
    return b.program


def _exchange(load: Callable[[Any], Any], store: Callable[[Any, Any], None], low: Any, high: Any, up: Any) -> None:
    x, y = load(low), load(high)
    swap = (x > y) == up
    store(low, vp.select(swap, y, x))
    store(high, vp.select(swap, x, y))


def bitonic_step() -> Program:
    """One stride of one size of a bitonic sort."""
    with vp.ProgramBuilder("bitonic_step", workgroup=BLOCK) as b:
        n, size, stride = b.dim("n"), b.param("size", vp.u32), b.param("stride", vp.u32)
        x = b.read_write("x", vp.u32, n)
        b.grid(vp.ceil_div(n, 2 * BLOCK))
        t = b.global_id()
        low = ((t & ~(stride - 1)) << 1) | (t & (stride - 1))
        _exchange(x.__getitem__, x.__setitem__, low, low + stride, (low & size) == 0)
    return b.program


def radix_count() -> Program:
    """How often each digit is in each tile."""
    with vp.ProgramBuilder("radix_count", workgroup=BLOCK) as b:
        n, shift = b.dim("n"), b.param("shift", vp.u32)
        groups = vp.ceil_div(n, TILE)
        keys, counts, local = b.read("keys", vp.u32, n), b.write("counts", vp.u32, DIGITS, groups), b.workgroup("local", vp.u32, DIGITS)
        b.grid(groups)
        t, g = b.local_id(), b.workgroup_id()
        b.barrier()
        for k in range(ITEMS):
            i = g * TILE + k * BLOCK + t
            with b.if_(i < n):
                local.atomic_add((keys[i] >> shift) & (DIGITS - 1), 1)
        b.barrier()
        with b.if_(t < DIGITS):
            counts[t, g] = local[t]
    return b.program


def radix_scan() -> Program:
    """The exclusive scan of the counts, in one workgroup."""
    with vp.ProgramBuilder("radix_scan", workgroup=1024) as b:
        n = b.dim("n")
        counts, part, t, each = b.read_write("counts", vp.u32, n), b.workgroup("part", vp.u32, 2, 1024), b.local_id(), vp.ceil_div(n, 1024)
        b.grid(1)
        total = b.var("total", vp.u32)
        with b.for_(0, each) as k:
            total += counts[t * each + k]
        here = _workgroup_scan(b, part, t, total, 1024)
        run = b.var("run", vp.u32, part[here, t - 1])
        with b.for_(0, each) as k:
            c = counts[t * each + k]
            counts[t * each + k] = run
            run += c
    return b.program


def radix_scatter() -> Program:
    """Each key to its place: an invocation has 16 neighbours, and a counter for each digit."""
    with vp.ProgramBuilder("radix_scatter", workgroup=BLOCK) as b:
        n, shift = b.dim("n"), b.param("shift", vp.u32)
        groups = vp.ceil_div(n, TILE)
        keys, out, starts = b.read("keys", vp.u32, n), b.write("out", vp.u32, n), b.read("starts", vp.u32, DIGITS, groups)
        b.grid(groups)
        tile, counters = b.workgroup("tile", vp.u32, ITEMS, BLOCK + 1), b.workgroup("counters", vp.u32, DIGITS, BLOCK)
        part, first, t, g = b.workgroup("part", vp.u32, 2, BLOCK), b.workgroup("first", vp.u32, DIGITS), b.local_id(), b.workgroup_id()
        for e in [k * BLOCK + t for k in range(ITEMS)]:
            tile[e % ITEMS, e // ITEMS] = keys[g * TILE + e]
        b.barrier()
        mine = [tile[k, t] for k in range(ITEMS)]
        digits, ok = [(key >> shift) & (DIGITS - 1) for key in mine], [g * TILE + t * ITEMS + k < n for k in range(ITEMS)]
        ranks = []
        for d, inside in zip(digits, ok, strict=True):
            old = b.var("old", vp.u32)
            with b.if_(inside):
                old.set(counters[d, t])
                counters[d, t] = old + 1
            ranks.append(old.get())
        b.barrier()
        at = [t * DIGITS + k for k in range(DIGITS)]
        values = [counters[a // BLOCK, a % BLOCK] for a in at]
        run = part[_workgroup_scan(b, part, t, sum(values[1:], values[0]), BLOCK), t - 1]
        for a, v in zip(at, values, strict=True):
            counters[a // BLOCK, a % BLOCK] = run
            run = run + v
        b.barrier()
        with b.if_(t < DIGITS):
            first[t] = starts[t, g] - counters[t, 0]
        b.barrier()
        for key, d, rank, inside in zip(mine, digits, ranks, ok, strict=True):
            with b.if_(inside):
                out[first[d] + counters[d, t] + rank] = key
    return b.program
