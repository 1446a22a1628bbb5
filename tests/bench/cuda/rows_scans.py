"""Prefix sums, compaction and a radix sort by scans over the grid, beside PyTorch: the Programs of `examples/`, as they stand there, and of `vp.ops`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

import vyre_py as vp
from tests.bench.cuda.peers import torch
from tests.bench.cuda.table import Bench, Row, at_least
from tests.bench.cuda.timing import Work
from vyre_py.ir.language.program import Program

__all__ = ["SCAN_ROWS", "raced"]

_EXAMPLES: Final = Path(__file__).resolve().parents[3] / "examples"
_TIMES: Final = 10
_LIMIT: Final = 0.5


def _program(example: str, name: str) -> Program:
    """What a function of an example builds."""
    names: dict[str, Any] = {}
    exec((_EXAMPLES / example).read_text(encoding="utf-8").split("device =")[0], names)
    made: Program = names[name]()
    return made


def raced(bench: Bench, ours: Callable[[], Any], peer: Callable[[Any], Callable[[], object]], amount: float) -> dict[str, float]:
    """So much an us, times 1000."""

    def by_torch() -> Work:
        return bench.enqueuing(peer(torch()), _TIMES)

    found = bench.race({"ours": bench.enqueuing(ours, _TIMES)}, {"PyTorch": by_torch})
    return {name: amount * _TIMES / us / 1e3 for name, us in found.items()}


def _prefix_sum(bench: Bench) -> dict[str, float]:
    device, count = bench.device, bench.size(1 << 28, 1 << 13)
    x, y = (device.allocate(count // 4, vp.u32x4) for _ in range(2))
    launch = device.compile_native(_program("13_prefix_sum.py", "prefix_sum")).bind(x=x, y=y)

    def peer(library: Any) -> Callable[[], object]:
        there = library.ones(count, dtype=library.int32, device="cuda")
        result = library.empty_like(there)
        return lambda: library.cumsum(there, 0, dtype=library.int32, out=result)

    found = raced(bench, launch, peer, 2 * count * 4)
    x.free()
    y.free()
    return found


def _compaction(bench: Bench) -> dict[str, float]:
    device, count = bench.device, bench.size(1 << 26, 1 << 10)
    values = np.random.default_rng(2).random(count, np.float32)
    x, y, total = device.upload(values), device.allocate(count, vp.f32), device.allocate(1, vp.u32)
    launch = device.compile_native(_program("12_compaction.py", "compaction")).bind(x=x, y=y, total=total, limit=_LIMIT)

    def peer(library: Any) -> Callable[[], object]:
        there = library.rand(count, device="cuda")
        return lambda: library.masked_select(there, there > _LIMIT)

    found = raced(bench, launch, peer, count)
    for buffer in (x, y, total):
        buffer.free()
    return found


def _radix_sort(bench: Bench) -> dict[str, float]:
    device, count = bench.device, bench.size(1 << 26, 1 << 10)
    source = device.upload(np.random.default_rng(3).integers(0, 1 << 32, count, np.uint32))
    target, sort = device.allocate(count, vp.u32), vp.Sort(device, count)
    run = sort.bind(source, sorted=target)

    def peer(library: Any) -> Callable[[], object]:
        there = library.randint(-(1 << 31), 1 << 31, (count,), dtype=library.int32, device="cuda")
        return lambda: library.sort(there)

    found = raced(bench, run, peer, count)
    del run
    sort.free()
    source.free()
    target.free()
    return found


SCAN_ROWS = (
    Row("prefix sum over 1 GiB", "GB/s", _prefix_sum, "PyTorch", at_least(1.05)),
    Row("compaction of 2^26", "G/s", _compaction, "PyTorch", at_least(0.9)),
    Row("radix sort of 2^26 u32", "G/s", _radix_sort, "PyTorch", at_least(0.9)),
)
