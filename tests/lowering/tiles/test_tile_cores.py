"""Programs made for tensor cores, run by an oracle on whole numbers: what is copied where, what each lane loads and stores, swizzles and edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cores_machine import run

import vyre_py as vp
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Array, Type
from vyre_py.lowering.tiles.cores import for_tensor_cores


def matmul(t: Type, to: Type, tile: tuple[int, int, int], *, turn_a: bool, turn_b: bool) -> Program:
    (m, n, k), sums = tile, vp.f32 if t.is_float else vp.i32
    with vp.TileBuilder("matmul") as b:
        rows, columns, depth = b.dim("rows"), b.dim("columns"), b.dim("depth")
        x, y = b.read("x", t, *((depth, rows) if turn_a else (rows, depth))), b.read("y", t, *((columns, depth) if turn_b else (depth, columns)))
        z = b.write("z", to, rows, columns)
        b.grid(vp.ceil_div(columns, n), vp.ceil_div(rows, m))
        i, j = b.workgroup_id(1) * m, b.workgroup_id(0) * n
        acc = b.var("acc", sums, shape=(m, n))
        with b.for_(0, depth, k) as p:
            left = x.tile(p, i, shape=(k, m)).T if turn_a else x.tile(i, p, shape=(m, k))
            right = y.tile(j, p, shape=(n, k)).T if turn_b else y.tile(p, j, shape=(k, n))
            acc.set(vp.mma(left, right, acc, tensor=True))
        z[i, j] = vp.cast(acc, to)
    return b.program


def viewed(program: Program, arrays: dict[str, Array]) -> dict[str, Any]:
    """The arrays, in groups where the Program has views of them."""
    made: dict[str, Any] = {}
    for memory in program.buffers:
        array = arrays[memory.name]
        last = memory.shape[-1]
        made[memory.name] = array.reshape(*array.shape[:-1], -1, last.value) if memory.rank > array.ndim and isinstance(last, DimConst) else array
    return made


# Elements of the factors and of the result, tile, which factors are transposed, whether by warpgroups.
CASES = [
    (vp.bf16, vp.bf16, (64, 64, 64), False, False, False),
    (vp.f16, vp.f32, (128, 64, 32), False, True, False),
    (vp.bf16, vp.f16, (32, 64, 16), True, False, False),
    (vp.bf16, vp.f32, (64, 64, 128), True, True, False),
    (vp.f32, vp.f32, (64, 32, 32), False, True, False),
    (vp.f32, vp.f32, (32, 32, 16), False, False, False),
    (vp.u8, vp.i32, (64, 64, 64), False, True, False),
    (vp.i8, vp.i32, (32, 32, 32), False, False, False),
    (vp.bf16, vp.bf16, (64, 64, 64), False, False, True),
    (vp.f16, vp.f16, (128, 96, 64), False, True, True),
]


@pytest.mark.parametrize("wide", [True, False], ids=["wide", "any"])
@pytest.mark.parametrize(("t", "to", "tile", "turn_a", "turn_b", "warpgroups"), CASES, ids=str)
def test_products_are_right(t: Type, to: Type, tile: tuple[int, int, int], turn_a: bool, turn_b: bool, warpgroups: bool, wide: bool) -> None:
    (m, n, k), rng = tile, np.random.default_rng(17)
    rows, columns, depth = (m + 16, n + 16, 2 * k + 16) if wide else (m + 3, n + 5, 2 * k + 7)
    program = for_tensor_cores(matmul(t, to, tile, turn_a=turn_a, turn_b=turn_b), "the oracle", 96 << 10, wide=wide, warpgroups=warpgroups)
    x, y = [rng.integers(0 if t is vp.u8 else -4, 5, shape).astype(np.float32) for shape in ((rows, depth), (depth, columns))]
    z = np.full((rows, columns), 77, np.float32).astype(to.dtype)
    arrays = {"x": np.ascontiguousarray(x.T if turn_a else x).astype(t.dtype), "y": np.ascontiguousarray(y.T if turn_b else y).astype(t.dtype), "z": z}
    run(program, viewed(program, arrays), {"rows": rows, "columns": columns, "depth": depth})
    meant = (x @ y).astype(to.dtype)
    assert np.array_equal(z, meant), f"{np.sum(z != meant)} of {z.size}"
