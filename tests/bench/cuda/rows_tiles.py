"""Products of matrices on tiles, by tensor cores, beside PyTorch, which calls cuBLAS: bf16 with sums in f32, f32 as tf32, f8e4m3, and i8 with sums in i32."""

from __future__ import annotations

from typing import Any, Final

import vyre_py as vp
from tests.bench.cuda.peers import torch
from tests.bench.cuda.table import Bench, Row, at_least
from tests.bench.cuda.timing import Work, repeated
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type

__all__ = ["TILE_ROWS", "matmul"]

_TIMES: Final = 10
_RESULTS: Final = {vp.bf16: vp.bf16, vp.f32: vp.f32, vp.f8e4m3: vp.bf16, vp.i8: vp.i32}
_ROW_BYTES: Final = 128  # of a factor's tile


def matmul(m: int, n: int, k: int, *, transposed: bool, tensor: bool = True, of: Type = vp.bf16) -> Program:
    """Tiles of m x n by steps of k; the second factor lies as it is, or transposed."""
    with vp.TileBuilder("matmul") as b:
        rows, columns, depth = b.dim("rows"), b.dim("columns"), b.dim("depth")
        x, z = b.read("x", of, rows, depth), b.write("z", _RESULTS[of], rows, columns)
        y = b.read("y", of, columns, depth) if transposed else b.read("y", of, depth, columns)
        b.grid(vp.ceil_div(columns, n), vp.ceil_div(rows, m))
        i, j = b.workgroup_id(1) * m, b.workgroup_id(0) * n
        acc = b.var("acc", vp.f32 if of.is_float else vp.i32, shape=(m, n))
        with b.for_(0, depth, k) as p:
            factor = y.tile(j, p, shape=(n, k)).T if transposed else y.tile(p, j, shape=(k, n))
            acc.set(vp.mma(x.tile(i, p, shape=(m, k)), factor, acc, tensor=tensor))
        z[i, j] = vp.cast(acc, _RESULTS[of])
    return b.program


def _matmul(bench: Bench, rows: int, columns: int, depth: int, *, transposed: bool, arch: str, of: Type) -> dict[str, float]:
    """TFLOP/s; for the code of another architecture than the device's own with `arch`."""
    tile = (128, 256, _ROW_BYTES // of.size_bytes)
    device = bench.device
    rows, columns, depth = bench.size(rows, 128), bench.size(columns, 256), bench.size(depth, tile[2])
    program = matmul(*tile, transposed=transposed, of=of)
    pipeline = device.load(vp.compile_native(program, [arch])) if arch and not bench.dry else device.compile_native(program)
    shapes = {"x": (rows, depth), "y": (columns, depth) if transposed else (depth, columns), "z": (rows, columns)}
    types = {"x": of, "y": of, "z": _RESULTS[of]}
    tensors = {} if bench.dry else {name: _random(shape, types[name]) for name, shape in shapes.items()}
    launch = pipeline.bind(tensors or {name: device.allocate(shape, types[name]) for name, shape in shapes.items()})

    def ours() -> None:
        for _ in range(bench.size(_TIMES, 1)):
            launch()
        device.synchronize()

    def by_torch() -> Work:
        given = torch()
        given.backends.cuda.matmul.allow_tf32 = True
        x, y = tensors["x"], tensors["y"].T if transposed else tensors["y"]
        out, one = given.empty_like(tensors["z"]), given.ones((), device="cuda")

        def once() -> None:
            for _ in range(_TIMES):
                if of is vp.f8e4m3:
                    given._scaled_mm(x, y, one, one, out_dtype=given.bfloat16, use_fast_accum=True, out=out)
                elif of.is_float:
                    given.matmul(x, y, out=out)
                else:
                    given._int_mm(x, y, out=out)
            given.cuda.synchronize()

        return repeated(once)

    found = bench.race({"ours": repeated(ours)}, {"PyTorch matmul": by_torch}, rounds=9)
    times = bench.size(_TIMES, 1)
    return {name: 2 * times * rows * columns * depth / us / 1e6 for name, us in found.items()}


def _random(shape: tuple[int, int], type_: Type) -> Any:
    """Random numbers on the GPU: with zeros the cores draw less power, and run faster."""
    library = torch()
    if type_.is_float:
        made = library.randn(shape, device="cuda").to({vp.bf16: library.bfloat16, vp.f8e4m3: library.float8_e4m3fn}.get(type_, library.float32))
    else:
        made = library.randint(-128, 128, shape, device="cuda", dtype=library.int8 if type_ is vp.i8 else library.int32)
    library.cuda.synchronize()
    return made


def _row(rows: int, columns: int, depth: int, promise: float, *, transposed: bool = False, arch: str = "", of: Type = vp.bf16) -> Row:
    size = f"{rows} x {columns} x {depth}" if len({rows, columns, depth}) > 1 else f"{rows}^3"
    name = f"matmul {size}, {of}{', second transposed' if transposed else ''}{f', code for {arch}' if arch else ''}"

    def work(bench: Bench) -> dict[str, float]:
        return _matmul(bench, rows, columns, depth, transposed=transposed, arch=arch, of=of)

    work.__name__ = f"matmul_{rows}_{columns}_{depth}{'_transposed' * transposed}{arch}{f'_{of}' * (of is not vp.bf16)}"
    return Row(name, "TFLOP/s", work, "PyTorch matmul", at_least(promise))


TILE_ROWS = (
    *(_row(*size, 1.0, transposed=transposed) for size in ((4096, 4096, 4096), (8192, 8192, 8192), (16384, 4096, 4096)) for transposed in (False, True)),
    _row(4095, 8191, 4097, 0.9),
    *(_row(8192, 8192, 8192, 0.48, transposed=transposed, arch="sm_80") for transposed in (False, True)),
    _row(8192, 8192, 8192, 1.0, transposed=True, of=vp.f32),
    _row(8192, 8192, 8192, 0.95, transposed=True, of=vp.f8e4m3),
    _row(8192, 8192, 8192, 1.0, transposed=True, of=vp.i8),
)
