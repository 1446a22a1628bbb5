"""A product of matrices in tiles: each workgroup keeps a tile of both factors in its own memory, where each element is read sixteen times.

    python examples/09_matmul.py [device]
"""

import sys

import numpy as np

import vyre_py as vp

TILE = 16

with vp.ProgramBuilder("matmul", workgroup=(TILE, TILE)) as b:
    rows, inner, columns = b.dim("rows"), b.dim("inner"), b.dim("columns")
    left, right = b.read("left", vp.f32, rows, inner), b.read("right", vp.f32, inner, columns)
    out = b.write("out", vp.f32, rows, columns)
    left_tile, right_tile = b.workgroup("left_tile", vp.f32, TILE, TILE), b.workgroup("right_tile", vp.f32, TILE, TILE)
    x, y, column, row = b.local_id(0), b.local_id(1), b.global_id(0), b.global_id(1)
    total = b.var("total", vp.f32)
    with b.for_(0, inner, TILE) as first:
        left_tile[y, x] = left[row, first + x]  # past the edge a load is zero, and adds nothing
        right_tile[y, x] = right[first + y, column]
        b.barrier()  # both tiles are written before anyone reads them
        for k in range(TILE):
            total.set(vp.fma(left_tile[y, k], right_tile[k, x], total))
        b.barrier()  # and read before anyone writes the next ones
    out[row, column] = total

device = vp.device(sys.argv[1] if len(sys.argv) > 1 else None)
pipeline = device.compile_native(b.program)
generator = np.random.default_rng(1)
a, c = generator.random((150, 70), np.float32), generator.random((70, 90), np.float32)
got = pipeline.dispatch({"left": a, "right": c})["out"]
np.testing.assert_allclose(got, a @ c, rtol=1e-5)
print(f"{a.shape[0]} x {a.shape[1]} by {c.shape[0]} x {c.shape[1]}, as NumPy's, on {device.name}")
