"""Sums, softmax and layer norm over rows, written with subgroups and block primitives, beside PyTorch: each element is loaded once and stored once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np

import vyre_py as vp
from tests.bench.cuda.peers import torch
from tests.bench.cuda.table import Bench, Row, at_least
from tests.bench.cuda.timing import Work
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.ir.language.program import Program

__all__ = ["REDUCTION_ROWS", "layer_norm", "partial_sums", "softmax"]

_LANES: Final = 4  # of a vector, which is one access of 16 bytes
_SUBGROUP: Final = 32
_TIMES: Final = 10
_EPSILON: Final = 1e-5


def _folded(op: Callable[[Any, Any], Any], values: Sequence[Any]) -> Any:
    """The values' components as one number, neighbours first, so that few wait for one another."""
    level = [op(op(v.x, v.y), op(v.z, v.w)) for v in values]
    while len(level) > 1:
        level = [reduce(op, level[k : k + 2]) for k in range(0, len(level), 2)]
    return level[0]


def _add(a: Any, b: Any) -> Any:
    return a + b


class _Rows:
    """A Program's rows while it is built: a workgroup has one, of which each invocation holds every so many vectors; or a subgroup has one."""

    def __init__(self, b: vp.ProgramBuilder, columns: int, threads: int) -> None:
        self.b, self.alone = b, columns <= _SUBGROUP * 32
        across = _SUBGROUP if self.alone else threads
        rows = b.dim("rows")
        shape = (rows, columns // _LANES)
        self.x, self.y = b.read("x", vp.f32x4, *shape), b.write("y", vp.f32x4, *shape)
        b.over(across * rows)
        self.row = b.let("row", b.global_id(0) // across)
        lane = b.subgroup_lane() if self.alone else b.local_id(0)
        self.places = [lane + k * across for k in range(columns // (_LANES * across))]
        self.values = [b.let(f"x{k}", self.x[self.row, place]) for k, place in enumerate(self.places)]

    def reduce(self, op: str, value: Any) -> Any:
        """What all of a row come to."""
        return self.b.subgroup_reduce(op, value) if self.alone else self.b.workgroup_reduce(op, value)

    def store(self, values: Sequence[Any]) -> None:
        """A row's results."""
        for place, value in zip(self.places, values, strict=True):
            self.y[self.row, place] = value


def softmax(columns: int, threads: int) -> Program:
    """exp(x - max) over its sum, along rows of so many columns."""
    with vp.ProgramBuilder("softmax", workgroup=threads, subgroup=_SUBGROUP) as b:
        rows = _Rows(b, columns, threads)
        biggest = rows.reduce("max", _folded(vp.max, rows.values))
        powers = [b.let(f"e{k}", vp.exp(value - vp.splat(biggest, _LANES))) for k, value in enumerate(rows.values)]
        share = b.let("share", 1.0 / rows.reduce("add", _folded(_add, powers)))
        rows.store([power * vp.splat(share, _LANES) for power in powers])
    return b.program


def layer_norm(columns: int, threads: int) -> Program:
    """(x - mean) / sqrt(variance + epsilon) times a weight plus a bias, along rows of so many columns."""
    with vp.ProgramBuilder("layer_norm", workgroup=threads, subgroup=_SUBGROUP) as b:
        weight, bias = (b.read(name, vp.f32x4, columns // _LANES) for name in ("weight", "bias"))
        rows = _Rows(b, columns, threads)
        mean = vp.splat(rows.reduce("add", _folded(_add, rows.values)) * (1.0 / columns), _LANES)
        apart = [b.let(f"d{k}", value - mean) for k, value in enumerate(rows.values)]
        variance = rows.reduce("add", _folded(_add, [d * d for d in apart])) * (1.0 / columns)
        scale = vp.splat(vp.rsqrt(variance + _EPSILON), _LANES)
        rows.store([vp.fma(d * scale, weight[place], bias[place]) for d, place in zip(apart, rows.places, strict=True)])
    return b.program


_SUM_THREADS: Final = 512
_SUM_LOADS: Final = 8  # on their way at once


def partial_sums(groups: int) -> Program:
    """So many sums, each of a workgroup's turns through an array; over its results, in one workgroup, it gives the sum of all, with the same bits each time."""
    with vp.ProgramBuilder("partial_sums", workgroup=_SUM_THREADS, subgroup=_SUBGROUP) as b:
        n = b.dim("n")
        x, sums = b.read("x", vp.f32x4, n), b.write("sums", vp.f32, groups)
        b.grid(groups)
        total = b.var("total", vp.f32x4)
        turn = _SUM_THREADS * _SUM_LOADS
        with b.for_(b.workgroup_id(0) * turn, n, groups * turn) as first:
            loaded = [x[first + k * _SUM_THREADS + b.local_id(0)] for k in range(_SUM_LOADS)]
            while len(loaded) > 1:
                loaded = [reduce(_add, loaded[k : k + 2]) for k in range(0, len(loaded), 2)]
            total += loaded[0]
        sums[b.workgroup_id(0)] = b.workgroup_reduce("add", _folded(_add, [total.get()]))
    return b.program


# ---- what is measured


def _filled(bench: Bench, *shape: int) -> Buffer:
    """Random numbers, the same in every row: of zeros some functions take another time."""
    buffer = bench.device.allocate(shape, vp.f32x4)
    row = np.random.default_rng(1).standard_normal((shape[-1], _LANES), dtype=np.float32)
    bench.device.copy_strided(bench.device.upload(row, vp.f32x4), 0, (*[0] * (len(shape) - 1), 1), buffer, 0, (*shape[1:], 1)[-len(shape) :], shape)
    return buffer


def _sum(bench: Bench) -> dict[str, float]:
    device, count, groups = bench.device, bench.size(1 << 28, 1 << 14), bench.size(1056, 4)
    x, sums, out = _filled(bench, 16, count // _LANES // 16).reshape(count // _LANES), device.allocate(groups, vp.f32), device.allocate(1, vp.f32)
    launches = device.compile_native(partial_sums(groups)).bind(x=x, sums=sums), device.compile_native(partial_sums(1)).bind(x=sums.view(vp.f32x4), sums=out)
    steps = device.sequence(*launches)

    def by_torch() -> Work:
        library = torch()
        there = library.randn(count, device="cuda")
        result = library.zeros((), device="cuda")
        return bench.enqueuing(lambda: library.sum(there, dim=0, out=result), _TIMES)

    found = bench.race({"ours": bench.enqueuing(steps, _TIMES)}, {"PyTorch": by_torch})
    for buffer in (x, sums, out):
        buffer.free()
    return {name: count * 4 * _TIMES / us / 1e3 for name, us in found.items()}


@dataclass(frozen=True, slots=True)
class _Case:
    """A Program over rows, their number and length, the threads of a workgroup, and what it is in PyTorch."""

    program: Callable[[int, int], Program]
    rows: int
    columns: int
    threads: int
    by_torch: Callable[[Any, Any, Any, Any], object]

    def measure(self, bench: Bench) -> dict[str, float]:
        """GB/s of what is loaded and stored."""
        device, rows = bench.device, bench.size(self.rows, 4)
        shape = (rows, self.columns // _LANES)
        x, y = _filled(bench, *shape), device.allocate(shape, vp.f32x4)
        program = self.program(self.columns, self.threads)
        vectors = {buffer.name: _filled(bench, shape[1]) for buffer in program.buffers if buffer.name not in ("x", "y")}
        launch = device.compile_native(program).bind(x=x, y=y, **vectors)

        def by_torch() -> Work:
            library = torch()
            there = library.randn(rows, self.columns, device="cuda")
            weight, bias = library.ones(self.columns, device="cuda"), library.zeros(self.columns, device="cuda")
            return bench.enqueuing(lambda: self.by_torch(library, there, weight, bias), _TIMES)

        found = bench.race({"ours": bench.enqueuing(launch, _TIMES)}, {"PyTorch": by_torch})
        for buffer in (x, y, *vectors.values()):
            buffer.free()
        return {name: 2 * rows * self.columns * 4 * _TIMES / us / 1e3 for name, us in found.items()}


def _by_torch_softmax(library: Any, x: Any, weight: Any, bias: Any) -> object:
    return library.softmax(x, dim=1)


def _by_torch_norm(library: Any, x: Any, weight: Any, bias: Any) -> object:
    return library.nn.functional.layer_norm(x, (x.shape[1],), weight, bias, _EPSILON)


_CASES: Final = {
    "softmax of 16384 x 8192": (_Case(softmax, 16384, 8192, 512, _by_torch_softmax), 1.9),
    "softmax of 131072 x 1024": (_Case(softmax, 131072, 1024, 128, _by_torch_softmax), 1.0),
    "layer norm of 16384 x 8192": (_Case(layer_norm, 16384, 8192, 512, _by_torch_norm), 1.1),
    "layer norm of 131072 x 1024": (_Case(layer_norm, 131072, 1024, 128, _by_torch_norm), 1.5),
}

REDUCTION_ROWS = (
    Row("sum over 1 GiB", "GB/s", _sum, "PyTorch", at_least(1.0)),
    *[Row(name, "GB/s", case.measure, "PyTorch", at_least(factor)) for name, (case, factor) in _CASES.items()],
)
