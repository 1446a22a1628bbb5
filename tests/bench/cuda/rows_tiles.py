"""Products of matrices of `vp.ops`, beside PyTorch, which calls cuBLAS: by tensor cores bf16 with sums in f32, f32 as tf32, f8e4m3, and i8 with sums in i32;
strict ones of f32, in which each element is a chain of fused multiply-adds."""

from __future__ import annotations

import re
from math import prod
from typing import Any, Final

import vyre_py as vp
from tests.bench.cuda.peers import torch
from tests.bench.cuda.table import Bench, Row, at_least
from tests.bench.cuda.timing import Work, repeated
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type

__all__ = ["TILE_ROWS"]

_TIMES: Final = 10
_RESULTS: Final = {vp.bf16: vp.bf16, vp.f32: vp.f32, vp.f8e4m3: vp.bf16, vp.i8: vp.i32}


@dataclass(frozen=True, slots=True)
class _Product:
    """A product of matrices: sizes along rows, columns and depth, of tiles too; for the code of another architecture than the device's own with `arch`."""

    rows: int
    columns: int
    depth: int
    tiles: tuple[int, int, int]
    of: Type = vp.bf16
    batch: int = 0
    transposed: bool = False
    strict: bool = False
    arch: str = ""

    @property
    def name(self) -> str:
        """What a table calls it."""
        size = f"{self.rows} x {self.columns} x {self.depth}" if len({self.rows, self.columns, self.depth}) > 1 else f"{self.rows}^3"
        many, lies = f"{self.batch} of " * bool(self.batch), ", second transposed" * self.transposed
        return f"matmul {many}{size}, {self.of}{', strict' * self.strict}{lies}{f', code for {self.arch}' * bool(self.arch)}"

    def program(self) -> Program:
        """The Program of `vp.ops`."""
        return vp.ops.matmul(
            self.of, _RESULTS[self.of], batched=bool(self.batch), transpose_b=self.transposed, tensor=not self.strict, tiles=self.tiles
        )  # fmt: skip

    def race(self, bench: Bench) -> dict[str, float]:
        """TFLOP/s of ours and of PyTorch's."""
        device, (m, n, k) = bench.device, self.tiles
        rows, columns, depth = bench.size(self.rows, m), bench.size(self.columns, n), bench.size(self.depth, k)
        batch, times = [bench.size(self.batch, 2)] * bool(self.batch), bench.size(_TIMES, 1)
        made = vp.compile_native(self.program(), [self.arch]) if self.arch and not bench.dry else None
        pipeline = device.load(made) if made is not None else device.compile_native(self.program())
        shapes = {"a": (*batch, rows, depth), "b": (*batch, *((columns, depth) if self.transposed else (depth, columns))), "c": (*batch, rows, columns)}
        types = {"a": self.of, "b": self.of, "c": _RESULTS[self.of]}
        tensors = {} if bench.dry else {name: _random(shape, types[name]) for name, shape in shapes.items()}
        launch = pipeline.bind(tensors or {name: device.allocate(shape, types[name]) for name, shape in shapes.items()})

        def ours() -> None:
            for _ in range(times):
                launch()
            device.synchronize()

        def by_torch() -> Work:
            given = torch()
            given.backends.cuda.matmul.allow_tf32 = not self.strict
            x, y = tensors["a"], tensors["b"].mT if self.transposed else tensors["b"]
            out, one = given.empty_like(tensors["c"]), given.ones((), device="cuda")

            def once() -> None:
                for _ in range(_TIMES):
                    if self.of is vp.f8e4m3:
                        given._scaled_mm(x, y, one, one, out_dtype=given.bfloat16, use_fast_accum=True, out=out)
                    elif self.of.is_float:
                        given.matmul(x, y, out=out)
                    else:
                        given._int_mm(x, y, out=out)
                given.cuda.synchronize()

            return repeated(once)

        found = bench.race({"ours": repeated(ours)}, {"PyTorch matmul": by_torch}, rounds=9)
        return {name: 2 * times * prod(batch) * rows * columns * depth / us / 1e6 for name, us in found.items()}


def _random(shape: tuple[int, ...], type_: Type) -> Any:
    """Random numbers on the GPU: with zeros the cores draw less power, and run faster."""
    library = torch()
    if type_.is_float:
        made = library.randn(shape, device="cuda").to({vp.bf16: library.bfloat16, vp.f8e4m3: library.float8_e4m3fn}.get(type_, library.float32))
    else:
        made = library.randint(-128, 128, shape, device="cuda", dtype=library.int8 if type_ is vp.i8 else library.int32)
    library.cuda.synchronize()
    return made


def _row(promise: float, product: _Product) -> Row:
    def work(bench: Bench) -> dict[str, float]:
        return product.race(bench)

    work.__name__ = re.sub(r"\W+", "_", product.name)
    return Row(product.name, "TFLOP/s", work, "PyTorch matmul", at_least(promise))


_LARGE: Final = (128, 256, 64)
_SIZES: Final = ((4096, 4096, 4096), (8192, 8192, 8192), (16384, 4096, 4096))
TILE_ROWS = (
    *(_row(1.0, _Product(*size, _LARGE, transposed=transposed)) for size in _SIZES for transposed in (False, True)),
    _row(0.9, _Product(4095, 8191, 4097, _LARGE)),
    _row(0.9, _Product(1024, 1024, 1024, _LARGE, batch=64)),
    *(_row(0.9, _Product(16, 8192, 8192, (16, 64, 128), transposed=transposed)) for transposed in (False, True)),
    *(_row(0.48, _Product(8192, 8192, 8192, _LARGE, transposed=transposed, arch="sm_80")) for transposed in (False, True)),
    _row(1.0, _Product(8192, 8192, 8192, (128, 256, 32), of=vp.f32, transposed=True)),
    *(_row(0.95, _Product(8192, 8192, 8192, (64, 128, 32), of=vp.f32, strict=True, transposed=transposed)) for transposed in (False, True)),
    _row(0.95, _Product(8192, 8192, 8192, (128, 256, 128), of=vp.f8e4m3, transposed=True)),
    _row(1.0, _Product(8192, 8192, 8192, (128, 256, 128), of=vp.i8, transposed=True)),
)
