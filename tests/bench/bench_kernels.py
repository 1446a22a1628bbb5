"""Seventeen kernels on one core of the CPU against Numba, in turns: what each takes of the processor, and of the clock.

    pip install numba && NUMBA_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 taskset -c 1 python tests/bench/bench_kernels.py [NAME ...]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import kernel_peers as peers
import kernel_programs as programs
import numpy as np

import vyre_py as vp
from vyre_py.ir.language.program import Program

ROUNDS = 15

# What runs ours, what runs the peer's, and pairs of results that have to be near.
Case = tuple[Callable[[], object], Callable[[], object], Callable[[], list[tuple[Any, Any]]]]


class Bench:
    """The device, and arrays for the cases."""

    def __init__(self) -> None:
        self.device = vp.device("cpu")
        self.rng = np.random.default_rng(5)

    def bind(self, program: Program, **given: Any) -> Any:
        """A launch; arrays are uploaded."""
        held = {name: self.device.upload(a) if isinstance(a, np.ndarray) else a for name, a in given.items()}
        return self.device.compile_native(program).bind(held)

    def plain(self, program: Program, peer: Callable[..., object], out: str, given: dict[str, Any], *, inner: bool = False) -> Case:
        """A case whose peer takes the same arrays, the result last."""
        held = {name: self.device.upload(a) if isinstance(a, np.ndarray) else a for name, a in given.items()}
        other, cut = given[out].copy(), (slice(1, -1),) * 2 if inner else ()
        arguments = [other if name == out else a for name, a in given.items()]
        return self.bind(program, **held), lambda: peer(*arguments), lambda: [(held[out].read()[cut], other[cut])]

    # ---- cases

    def axpy(self) -> Case:
        x, y = self.rng.random(1 << 24, np.float32), self.rng.random(1 << 24, np.float32)
        return self.plain(programs.axpy(), peers.axpy, "y", {"a": np.float32(0.5), "x": x, "y": y})

    def sum(self) -> Case:
        x, sums = self.rng.random(1 << 24, np.float32), self.device.allocate((1 << 10,), vp.f32)
        launch = self.bind(programs.sums_of_groups(), x=x, sums=sums)
        return launch, lambda: peers.total(x), lambda: [(sums.read().sum(dtype=np.float64), x.sum(dtype=np.float64))]

    def mandelbrot(self) -> Case:
        return self.plain(programs.mandelbrot(), peers.mandelbrot, "turns", {"turns": np.zeros((1024, 1024), np.uint32)})

    def transpose(self) -> Case:
        x = self.rng.random((2048, 2048), np.float32)
        return self.plain(programs.transpose(), peers.transpose, "y", {"x": x, "y": np.zeros_like(x)})

    def softmax(self) -> Case:
        x = self.rng.random((2048, 2048), np.float32)
        return self.plain(programs.softmax(), peers.softmax, "y", {"x": x, "y": np.zeros_like(x)})

    def bodies(self) -> Case:
        p = self.rng.random((3, 4096), np.float32)
        return self.plain(programs.bodies(), peers.bodies, "pull", {"p": p, "pull": np.zeros_like(p)})

    def scan(self) -> Case:
        x = self.rng.integers(-100, 100, 1 << 24, np.int32)
        held, y, z = self.device.upload(x), self.device.allocate(x.shape, vp.i32), np.empty_like(x)
        sums, before, nothing = (self.device.upload(np.zeros(size, np.int32)) for size in (1 << 12, 1 << 12, 1))
        first, last = self.device.compile_native(programs.block_sums()), self.device.compile_native(programs.scan())
        steps = [first.bind(x=held, sums=sums), last.bind(x=sums, y=before, before=nothing), last.bind(x=held, y=y, before=before)]
        return self.device.sequence(*steps), lambda: peers.scan(x, z), lambda: [(y.read(), z)]

    def histogram(self) -> Case:
        x = self.rng.normal(128, 30, 1 << 24).clip(0, 255).astype(np.uint8)
        bins, counts = self.device.allocate((256,), vp.u32), np.zeros(256, np.uint32)
        launch = self.bind(programs.histogram(), x=x.view(np.uint32), bins=bins)
        return launch, lambda: peers.histogram(x, counts), lambda: [(bins.read(), counts)]

    def matmul(self) -> Case:
        a, c = self.rng.random((1024, 1024), np.float32), self.rng.random((1024, 1024), np.float32)
        return self.plain(programs.matmul(), peers.matmul, "out", {"a": a, "c": c, "out": np.zeros_like(a)})

    def stencil(self) -> Case:
        old, rate = self.rng.random((2048, 2048), np.float32), np.float32(0.2)
        return self.plain(programs.stencil(), peers.stencil, "new", {"old": old, "new": np.zeros_like(old), "rate": rate}, inner=True)

    def life(self) -> Case:
        old = (self.rng.random((4096, 4096)) < 0.3).astype(np.uint8)
        return self.plain(programs.life(), peers.life, "new", {"old": old, "new": np.zeros_like(old)}, inner=True)

    def spmv(self, lanes: int = 1) -> Case:
        rows = 1 << 18
        ptr = np.concatenate([[0], np.cumsum(self.rng.integers(4, 29, rows))]).astype(np.uint32)
        col, val = self.rng.integers(0, rows, ptr[-1]).astype(np.uint32), self.rng.random(ptr[-1], np.float32)
        given = {"ptr": ptr, "col": col, "val": val, "x": self.rng.random(rows, np.float32), "y": np.zeros(rows, np.float32)}
        return self.plain(programs.spmv(lanes), peers.spmv, "y", given)

    def spmv8(self) -> Case:
        return self.spmv(8)

    def argmax(self) -> Case:
        x = self.rng.integers(0, 100_000, (4096, 4096)).astype(np.float32)
        return self.plain(programs.argmax(), peers.argmax, "where", {"x": x, "where": np.zeros(4096, np.uint32)})

    def fft(self) -> Case:
        n = 1 << 20
        z = (self.rng.standard_normal(n) + 1j * self.rng.standard_normal(n)).astype(np.complex64)
        roots = np.exp(-2j * np.pi * np.arange(n) / n).astype(np.complex64)
        source, held = (self.device.upload(a.view(np.float32).reshape(-1, 2), vp.f32x2) for a in (z, roots))
        buffers, pipeline, steps = [self.device.allocate((n,), vp.f32x2) for _ in range(2)], self.device.compile_native(programs.fft4()), []
        for k in range(10):
            steps.append(pipeline.bind(x=source, y=buffers[k % 2], roots=held, s=4**k))
            source = buffers[k % 2]
        one, other = np.empty_like(z), np.empty_like(z)
        return self.device.sequence(*steps), lambda: peers.fft(z, one, other, roots), lambda: [(source.read().reshape(-1).view(np.complex64), other)]

    def bitonic(self) -> Case:
        keys = self.rng.integers(0, 1 << 32, 1 << 18, np.uint32)
        source, x, y = self.device.upload(keys), self.device.allocate(keys.shape, vp.u32), np.empty_like(keys)
        step = self.device.compile_native(programs.bitonic_step())
        sizes = [(1 << k, 1 << j) for k in range(1, 19) for j in reversed(range(k))]
        launches = [vp.copy_step(source, x), *[step.bind(x=x, size=size, stride=stride) for size, stride in sizes]]
        return self.device.sequence(*launches), lambda: peers.bitonic(keys, y), lambda: [(x.read(), y)]

    def radix(self) -> Case:
        keys = self.rng.integers(0, 1 << 32, 1 << 20, np.uint32)
        source, a, z, p, q = self.device.upload(keys), *[self.device.allocate(keys.shape, vp.u32) for _ in "az"], *[np.empty_like(keys) for _ in "pq"]
        counts = self.device.allocate((16, keys.size >> 12), vp.u32)
        count, scan, scatter = (self.device.compile_native(one()) for one in (programs.radix_count, programs.radix_scan, programs.radix_scatter))
        steps = [vp.copy_step(source, a)]
        for shift in range(0, 32, 4):
            steps += [count.bind(keys=a, counts=counts, shift=shift), scan.bind(counts=counts.reshape(-1))]
            steps.append(scatter.bind(keys=a, out=z, starts=counts, shift=shift))
            a, z = z, a
        return self.device.sequence(*steps), lambda: peers.radix(keys, p, q), lambda: [(a.read(), p), (p, np.sort(keys))]


CASES = {
    "axpy": "2^24 f32", "sum": "2^24 f32", "mandelbrot": "1024^2, 100 turns", "transpose": "2048^2 f32", "softmax": "2048 rows of 2048 f32",
    "bodies": "4096", "scan": "2^24 i32", "histogram": "2^24 bytes", "matmul": "1024^3 f32", "stencil": "2048^2 f32", "life": "4096^2 u8",
    "spmv": "2^18 rows of 4 to 28", "spmv8": "eight invocations a row", "argmax": "4096 rows of 4096", "fft": "2^20 complex", "bitonic": "2^18 u32",
    "radix": "2^20 u32",
}  # fmt: skip


def race(*sides: Callable[[], object]) -> list[tuple[float, float]]:
    """Medians of each, taken in turns, in milliseconds of the processor and of the clock."""
    taken: list[list[tuple[float, float]]] = [[] for _ in sides]
    for _ in range(ROUNDS + 1):
        for side, times in zip(sides, taken, strict=True):
            begin = time.process_time(), time.perf_counter()
            side()
            times.append((1e3 * (time.process_time() - begin[0]), 1e3 * (time.perf_counter() - begin[1])))
    return [(statistics.median(t[0] for t in times[1:]), statistics.median(t[1] for t in times[1:])) for times in taken]


def main(wanted: list[str]) -> None:
    """Prints the table, after a look at each result."""
    bench = Bench()
    print(f"{bench.device}; medians of {ROUNDS} rounds in turns, ms")
    print(f"{'':11s}{'':24s}{'processor':>10s} {'Numba':>9s} {'ratio':>6s}  {'clock':>9s} {'Numba':>9s} {'ratio':>6s}")
    for name in wanted or CASES:
        ours, peer, results = getattr(bench, name)()
        ours()
        peer()
        for mine, other in results():
            np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-2 if name == "fft" else 0)
        (mine, my_wall), (other, other_wall) = race(ours, peer)
        times = f"{mine:10.3f} {other:9.3f} {mine / other:6.2f}  {my_wall:9.3f} {other_wall:9.3f} {my_wall / other_wall:6.2f}"
        print(f"{name:11s}{CASES[name]:24s}{times}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
