"""Tiles: a product of matrices in three lines, with a bias and an activation in the same pass, and softmax of its rows. Who computes which element, and what
lies in whose memory, is the compiler's affair.

    python examples/15_matmul_tiles.py [device]
"""

import sys

import numpy as np

import vyre_py as vp

ROWS, COLUMNS, DEPTH = 64, 64, 32


def matmul() -> vp.Program:
    """c = relu(a b + bias)."""
    with vp.TileBuilder("matmul") as b:
        m, n, k = b.dim("m"), b.dim("n"), b.dim("k")
        a, w, bias = b.read("a", vp.bf16, m, k), b.read("w", vp.bf16, k, n), b.read("bias", vp.f32, n)
        c = b.write("c", vp.f32, m, n)
        b.grid(vp.ceil_div(n, COLUMNS), vp.ceil_div(m, ROWS))  # a workgroup for each tile of the result
        i, j = b.workgroup_id(1) * ROWS, b.workgroup_id(0) * COLUMNS
        acc = b.var("acc", vp.f32, shape=(ROWS, COLUMNS))
        with b.for_(0, k, DEPTH) as p:  # past the edges a load is zero, and adds nothing
            acc.set(vp.mma(a.tile(i, p, shape=(ROWS, DEPTH)), w.tile(p, j, shape=(DEPTH, COLUMNS)), acc, tensor=True))
        c[i, j] = vp.max(acc + bias.tile(j, shape=COLUMNS).reshape((1, COLUMNS)), 0)  # and a store is dropped
    return b.program


def softmax(columns: int) -> vp.Program:
    """target[i, j] = exp(source[i, j]) / sum over j of exp(source[i, j])."""
    with vp.TileBuilder("softmax") as b:
        rows = b.dim("rows")
        source, target = b.read("source", vp.f32, rows, columns), b.write("target", vp.f32, rows, columns)
        b.grid(vp.ceil_div(rows, 8))
        i = b.workgroup_id(0) * 8
        x = source.tile(i, 0, shape=(8, columns))
        e = vp.exp(x - x.reduce("max", 1))  # the greatest of each row, an extent of 1, goes with all columns
        target[i, 0] = e / e.reduce("add", 1)
    return b.program


device = vp.device(sys.argv[1] if len(sys.argv) > 1 else None)
generator = np.random.default_rng(15)
left, right = (generator.normal(size=shape).astype(vp.bf16.dtype) for shape in ((150, 70), (70, 90)))
shift = generator.normal(size=90).astype(np.float32)
made = device.compile_native(matmul()).dispatch({"a": left, "w": right, "bias": shift})["c"]
wanted = np.maximum(left.astype(np.float64) @ right.astype(np.float64) + shift, 0)
np.testing.assert_allclose(made, wanted, atol=1e-4)  # a tensor core cuts its sums; the bound of its error is in the guide
same = device.compile_native(vp.ops.matmul(vp.bf16, vp.f32, bias=True, activation="relu")).dispatch({"a": left, "b": right, "bias": shift})["c"]
np.testing.assert_allclose(same, made, atol=1e-4)  # ready-made
shares = device.compile_native(softmax(90)).dispatch({"source": made})["target"]
powers = np.exp(wanted - wanted.max(axis=1, keepdims=True))
np.testing.assert_allclose(shares, powers / powers.sum(axis=1, keepdims=True), rtol=1e-3)
print(f"{left.shape[0]} x {left.shape[1]} by {right.shape[0]} x {right.shape[1]}, and softmax of the rows, as NumPy's, on {device.name}")
