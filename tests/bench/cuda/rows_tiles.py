"""Products of matrices on tiles, by tensor cores, beside PyTorch, which calls cuBLAS: 16-bit factors and results, sums in f32."""

from __future__ import annotations

from typing import Any, Final

import vyre_py as vp
from tests.bench.cuda.peers import torch
from tests.bench.cuda.table import Bench, Row, at_least
from tests.bench.cuda.timing import Work, repeated
from vyre_py.ir.language.program import Program

__all__ = ["TILE_ROWS", "matmul"]

_TIMES: Final = 10


def matmul(m: int, n: int, k: int, *, transposed: bool, tensor: bool = True) -> Program:
    """Tiles of m x n by steps of k; the second factor lies as it is, or transposed."""
    with vp.TileBuilder("matmul") as b:
        rows, columns, depth = b.dim("rows"), b.dim("columns"), b.dim("depth")
        x, z = b.read("x", vp.bf16, rows, depth), b.write("z", vp.bf16, rows, columns)
        y = b.read("y", vp.bf16, columns, depth) if transposed else b.read("y", vp.bf16, depth, columns)
        b.grid(vp.ceil_div(columns, n), vp.ceil_div(rows, m))
        i, j = b.workgroup_id(1) * m, b.workgroup_id(0) * n
        acc = b.var("acc", vp.f32, shape=(m, n))
        with b.for_(0, depth, k) as p:
            factor = y.tile(j, p, shape=(n, k)).T if transposed else y.tile(p, j, shape=(k, n))
            acc.set(vp.mma(x.tile(i, p, shape=(m, k)), factor, acc, tensor=tensor))
        z[i, j] = vp.cast(acc, vp.bf16)
    return b.program


def _matmul(
    bench: Bench, rows: int, columns: int, depth: int, *, transposed: bool, arch: str, tile: tuple[int, int, int] = (128, 256, 64)
) -> dict[str, float]:
    """TFLOP/s; for the code of another architecture than the device's own with `arch`."""
    device = bench.device
    rows, columns, depth = bench.size(rows, 128), bench.size(columns, 256), bench.size(depth, 64)
    program = matmul(*tile, transposed=transposed)
    pipeline = device.load(vp.compile_native(program, [arch])) if arch and not bench.dry else device.compile_native(program)
    shapes = {"x": (rows, depth), "y": (columns, depth) if transposed else (depth, columns), "z": (rows, columns)}
    # Random numbers: with zeros the cores draw less power, and run faster.
    library = None if bench.dry else torch()
    tensors: dict[str, Any] = {}
    if library is not None:
        tensors = {name: library.randn(shape, device="cuda", dtype=library.bfloat16) for name, shape in shapes.items()}
        library.cuda.synchronize()
    launch = pipeline.bind(tensors or {name: device.allocate(shape, vp.bf16) for name, shape in shapes.items()})

    def ours() -> None:
        for _ in range(bench.size(_TIMES, 1)):
            launch()
        device.synchronize()

    def by_torch() -> Work:
        given = torch()
        x, y = tensors["x"], tensors["y"].T if transposed else tensors["y"]
        out = given.empty_like(tensors["z"])

        def once() -> None:
            for _ in range(_TIMES):
                given.matmul(x, y, out=out)
            given.cuda.synchronize()

        return repeated(once)

    found = bench.race({"ours": repeated(ours)}, {"PyTorch matmul": by_torch}, rounds=9)
    times = bench.size(_TIMES, 1)
    return {name: 2 * times * rows * columns * depth / us / 1e6 for name, us in found.items()}


def _row(rows: int, columns: int, depth: int, promise: float, *, transposed: bool = False, arch: str = "") -> Row:
    size = f"{rows} x {columns} x {depth}" if len({rows, columns, depth}) > 1 else f"{rows}^3"
    name = f"matmul {size}, bf16{', second transposed' if transposed else ''}{f', code for {arch}' if arch else ''}"

    def work(bench: Bench) -> dict[str, float]:
        return _matmul(bench, rows, columns, depth, transposed=transposed, arch=arch)

    work.__name__ = f"matmul_{rows}_{columns}_{depth}{'_transposed' * transposed}{arch}"
    return Row(name, "TFLOP/s", work, "PyTorch matmul", at_least(promise))


TILE_ROWS = (
    *(_row(*size, 1.0, transposed=transposed) for size in ((4096, 4096, 4096), (8192, 8192, 8192), (16384, 4096, 4096)) for transposed in (False, True)),
    _row(4095, 8191, 4097, 0.9),
    _row(8192, 8192, 8192, 0.48, transposed=True, arch="sm_80"),
)
