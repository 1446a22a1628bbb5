"""Ready Programs of `vp.ops`, as anybody gets them, beside PyTorch. `rows_scans` has `vp.Sort`, which is made of three of them, `rows_tiles` products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import gcd, prod
from typing import Any, Final

import numpy as np

import vyre_py as vp
from tests.bench.cuda.rows_scans import raced
from tests.bench.cuda.table import Bench, Row, at_least
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type

__all__ = ["OPS_ROWS"]

_BLOCK: Final = 1 << 20  # random elements, which are repeated
_EPSILON: Final = 1e-5
_K: Final = 8
_BINS: Final = 256
_ORDER: Final = (3, 1, 0, 2)

Shape = tuple[int, ...]
# What PyTorch does with its module and an array of these sizes, and vectors of ones and zeros as long as the last axis.
ByTorch = Callable[[Any, Any, Any, Any], object]
Results = Callable[[Shape], Mapping[str, Shape]]


@dataclass(frozen=True, slots=True)
class _Case:
    """A Program over an array of a type: its shape, a small one for dry runs, the names and shapes of the results, and what it is in PyTorch."""

    program: Callable[[Shape], Program]
    type: Type
    shape: Shape
    small: Shape
    results: Results
    by_torch: ByTorch

    def measure(self, bench: Bench) -> dict[str, float]:
        """GB/s of what has to be loaded and stored at least."""
        shape = self.small if bench.dry else self.shape
        program, results = self.program(shape), self.results(shape)
        buffers: dict[str, Buffer] = {}
        for memory in program.buffers:
            own = results.get(memory.name, shape if memory.rank == len(shape) else shape[-1:])
            buffers[memory.name] = bench.device.allocate(own, memory.type) if memory.name in results else _filled(bench, own, memory.type)
        launch = bench.device.compile_native(program).bind(buffers)

        def peer(library: Any) -> Callable[[], object]:
            there = _there(library, shape, self.type)
            ones, zeros = (make(shape[-1], device="cuda", dtype=there.dtype) if self.type.is_float else None for make in (library.ones, library.zeros))
            return lambda: self.by_torch(library, there, ones, zeros)

        moved = prod(shape) * self.type.size_bytes + sum([prod(own) * buffers[name].type.size_bytes for name, own in results.items()])
        found = raced(bench, launch, peer, moved)
        for buffer in buffers.values():
            buffer.free()
        return found


def _filled(bench: Bench, shape: Shape, type_: Type) -> Buffer:
    """Random elements: of zeros some Programs take another time."""
    buffer, count = bench.device.allocate(shape, type_), prod(shape)
    block = gcd(count, _BLOCK)
    generator = np.random.default_rng(1)
    row = generator.standard_normal(block, np.float32) if type_.is_float else generator.integers(0, _BINS, block)
    times = (count // block, block)
    bench.device.copy_strided(bench.device.upload(row.astype(type_.dtype), type_), 0, (0, 1), buffer.reshape(times), 0, (block, 1), times)
    return buffer


def _there(library: Any, shape: Shape, type_: Type) -> Any:
    if not type_.is_float:
        return library.randint(0, _BINS, shape, device="cuda", dtype=library.uint8 if type_ is vp.u8 else library.int32)
    return library.randn(shape, device="cuda", dtype={vp.f32: library.float32, vp.f16: library.float16}[type_])


def _same(shape: Shape) -> dict[str, Shape]:
    return {"target": shape}


def _norms() -> dict[str, tuple[_Case, float]]:
    """What goes over rows, of 8,192 and of 1,024 columns."""
    made: dict[str, tuple[_Case, float]] = {}
    for shape, share in (((16384, 8192), 1.9), ((131072, 1024), 1.0)):
        size = f"of {shape[0]} x {shape[1]}"

        def over(make: Callable[[int], Program], by: ByTorch, shape: Shape = shape, results: Results = _same) -> _Case:
            return _Case(lambda own: make(own[1]), vp.f32, shape, (4, 256), results, by)

        made |= {
            f"ops.softmax {size}": (over(lambda n: vp.ops.softmax(vp.f32, n), lambda t, x, w, b: t.softmax(x, dim=1)), share),
            f"ops.layer_norm {size}": (
                over(lambda n: vp.ops.layer_norm(vp.f32, n), lambda t, x, w, b: t.nn.functional.layer_norm(x, x.shape[1:], w, b, _EPSILON)), 1.0,
            ),
            f"ops.rms_norm {size}": (over(lambda n: vp.ops.rms_norm(vp.f32, n), lambda t, x, w, b: t.nn.functional.rms_norm(x, x.shape[1:], w, _EPSILON)), 1.0),
            f"ops.sum {size}": (over(lambda n: vp.ops.sum(vp.f32, 2, 1), lambda t, x, w, b: t.sum(x, dim=1), results=lambda s: {"target": s[:1]}), 1.0),
        }  # fmt: skip
    return made


def _turned(type_: Type) -> _Case:
    return _Case(lambda s: vp.ops.transpose(type_), type_, (16384, 16384), (65, 70), lambda s: {"target": s[::-1]}, lambda t, x, w, b: x.T.contiguous())


_CASES: Final[Mapping[str, tuple[_Case, float]]] = {
    "ops.transpose of 16384^2 f32": (_turned(vp.f32), 3.3),
    "ops.transpose of 16384^2 f16": (_turned(vp.f16), 5.0),
    "ops.permute of rank 4, f32": (_Case(
        lambda s: vp.ops.permute(vp.f32, _ORDER), vp.f32, (64, 128, 64, 256), (3, 2, 5, 7), lambda s: {"target": tuple([s[axis] for axis in _ORDER])},
        lambda t, x, w, b: x.permute(_ORDER).contiguous(),
    ), 2.0),
    **_norms(),
    "ops.prefix_sum of 1 GiB f32": (_Case(
        lambda s: vp.ops.prefix_sum(vp.f32, on="sm_90"), vp.f32, (1 << 28,), (1 << 13,), _same, lambda t, x, w, b: t.cumsum(x, 0),
    ), 1.05),
    "ops.histogram of 2^28 u8": (_Case(
        lambda s: vp.ops.histogram(vp.u8, _BINS), vp.u8, (1 << 28,), (1 << 12,), lambda s: {"counts": (_BINS,)},
        lambda t, x, w, b: t.bincount(x, minlength=_BINS),
    ), 7.0),
    "ops.top_k, 8 of 16384 x 8192": (_Case(
        lambda s: vp.ops.top_k(vp.f32, _K), vp.f32, (16384, 8192), (4, 256), lambda s: {"values": (s[0], _K), "places": (s[0], _K)},
        lambda t, x, w, b: t.topk(x, _K, dim=1),
    ), 1.5),
}  # fmt: skip


OPS_ROWS: Final = tuple([Row(name, "GB/s", case.measure, "PyTorch", at_least(share)) for name, (case, share) in _CASES.items()])
