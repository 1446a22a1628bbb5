"""The same work as `kernel_programs` in Numba, in loops as one writes them for it, without fastmath and on one thread."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

F = np.float32
U = np.uint32


@numba.njit
def axpy(a: Any, x: Any, y: Any) -> None:
    for i in range(x.size):
        y[i] = a * x[i] + y[i]


@numba.njit
def total(x: Any) -> Any:
    """Eight sums, since it may not reorder one."""
    sums = np.zeros(8, np.float32)
    for i in range(0, x.size, 8):
        for k in range(8):
            sums[k] += x[i + k]
    return sums.sum()


@numba.njit
def mandelbrot(turns: Any) -> None:
    for j in range(turns.shape[0]):
        for i in range(turns.shape[1]):
            cr, ci, re, im, n = F(i) * F(3.0 / 1024) - F(2), F(j) * F(2.0 / 1024) - F(1), F(0), F(0), 0
            while n < 100 and re * re + im * im <= F(4):
                re, im = re * re - im * im + cr, F(2) * re * im + ci
                n += 1
            turns[j, i] = n


@numba.njit
def transpose(x: Any, y: Any) -> None:
    """By tiles."""
    h, w = x.shape
    for top in range(0, h, 32):
        for left in range(0, w, 32):
            for j in range(left, left + 32):
                for i in range(top, top + 32):
                    y[j, i] = x[i, j]


@numba.njit
def softmax(x: Any, y: Any) -> None:
    for r in range(x.shape[0]):
        top, every = F(-np.inf), F(0)
        for c in range(x.shape[1]):
            top = max(top, x[r, c])
        for c in range(x.shape[1]):
            y[r, c] = math.exp(x[r, c] - top)
            every += y[r, c]
        for c in range(x.shape[1]):
            y[r, c] = y[r, c] / every


@numba.njit
def bodies(p: Any, pull: Any) -> None:
    """One after the other along the inner loop: bodies are lanes."""
    n = p.shape[1]
    pull[:] = 0
    for j in range(n):
        for i in range(n):
            x, y, z = p[0, j] - p[0, i], p[1, j] - p[1, i], p[2, j] - p[2, i]
            square = x * x + y * y + z * z + F(0.01)
            weight = F(1) / (square * math.sqrt(square))
            pull[0, i] += x * weight
            pull[1, i] += y * weight
            pull[2, i] += z * weight


@numba.njit
def scan(x: Any, y: Any) -> None:
    """In two passes over blocks, as several threads would."""
    sums = np.zeros(x.size // 4096 + 1, np.int32)
    for g in range(x.size // 4096):
        s = np.int32(0)
        for i in range(g * 4096, (g + 1) * 4096):
            s += x[i]
        sums[g + 1] = sums[g] + s
    for g in range(x.size // 4096):
        s = sums[g]
        for i in range(g * 4096, (g + 1) * 4096):
            s += x[i]
            y[i] = s


@numba.njit
def histogram(x: Any, bins: Any) -> None:
    for i in range(x.size):
        bins[x[i]] += U(1)


@numba.njit
def stencil(old: Any, new: Any, rate: Any) -> None:
    """Of the middle only."""
    h, w = old.shape
    for y in range(1, h - 1):
        for x in range(1, w - 1):
            new[y, x] = old[y, x] + rate * (old[y, x - 1] + old[y, x + 1] + old[y - 1, x] + old[y + 1, x] - F(4) * old[y, x])


@numba.njit
def life(old: Any, new: Any) -> None:
    """Of the middle only, in bytes."""
    h, w = old.shape
    for y in range(1, h - 1):
        for x in range(1, w - 1):
            c = np.uint8(np.uint8(np.uint8(old[y - 1, x - 1] + old[y - 1, x]) + np.uint8(old[y - 1, x + 1] + old[y, x - 1]))
                         + np.uint8(np.uint8(old[y, x + 1] + old[y + 1, x - 1]) + np.uint8(old[y + 1, x] + old[y + 1, x + 1])))  # fmt: skip
            new[y, x] = np.uint8((c == 3) | ((c == 2) & (old[y, x] == 1)))


@numba.njit
def spmv(ptr: Any, col: Any, val: Any, x: Any, y: Any) -> None:
    for r in range(y.size):
        t = F(0)
        for k in range(ptr[r], ptr[r + 1]):
            t += val[k] * x[col[k]]
        y[r] = t


@numba.njit
def argmax(x: Any, out: Any) -> None:
    for r in range(x.shape[0]):
        top, place = x[r, 0], 0
        for c in range(1, x.shape[1]):
            if x[r, c] > top:
                top, place = x[r, c], c
        out[r] = place


@numba.njit
def matmul(a: Any, c: Any, out: Any) -> None:
    out[:] = 0
    for first in range(0, a.shape[1], 64):
        for r in range(a.shape[0]):
            for k in range(first, first + 64):
                for j in range(c.shape[1]):
                    out[r, j] += a[r, k] * c[k, j]


@numba.njit
def fft(z: Any, one: Any, other: Any, roots: Any) -> None:
    """Ten passes of radix 4; the last leaves its result in `other`."""
    quarter, s, x, y = z.size // 4, 1, z, one
    for _ in range(10):
        for p in range(quarter // s):
            for q in range(s):
                i = p * s + q
                a, b, c, d = x[i], x[i + quarter], x[i + 2 * quarter], x[i + 3 * quarter]
                turned = np.complex64(complex((b - d).imag, -(b - d).real))
                y[q + s * 4 * p] = a + c + (b + d)
                y[q + s * (4 * p + 1)] = (a - c + turned) * roots[p * s]
                y[q + s * (4 * p + 2)] = (a + c - (b + d)) * roots[2 * p * s]
                y[q + s * (4 * p + 3)] = (a - c - turned) * roots[3 * p * s]
        x, y, s = y, (other if y is one else one), s * 4


@numba.njit
def bitonic(keys: Any, x: Any) -> None:
    x[:] = keys
    size = 2
    while size <= x.size:
        stride = size // 2
        while stride:
            for t in range(x.size // 2):
                low = ((t & ~(stride - 1)) << 1) | (t & (stride - 1))
                p, q = x[low], x[low + stride]
                swap = (p > q) == ((low & size) == 0)
                x[low], x[low + stride] = (q if swap else p), (p if swap else q)
            stride //= 2
        size *= 2


@numba.njit
def radix(keys: Any, a: Any, z: Any) -> None:
    """Eight passes of four bits; the last leaves its result in `a`."""
    a[:] = keys
    for shift in range(0, 32, 4):
        starts = np.zeros(17, np.int64)
        for i in range(a.size):
            starts[((a[i] >> U(shift)) & U(15)) + 1] += 1
        for d in range(16):
            starts[d + 1] += starts[d]
        for i in range(a.size):
            d = (a[i] >> U(shift)) & U(15)
            z[starts[d]] = a[i]
            starts[d] += 1
        a, z = z, a
