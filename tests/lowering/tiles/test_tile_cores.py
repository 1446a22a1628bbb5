"""Programs made for tensor cores, run by an oracle on whole numbers: what is copied where, what each lane loads and stores, swizzles and edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from cores_machine import run, viewed

import vyre_py as vp
from vyre_py.ir.language.nodes import BoxCopy, Space, WarpgroupRegisters
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type
from vyre_py.lowering.layout import element_count
from vyre_py.lowering.tiles.cores import for_rings
from vyre_py.lowering.tiles.grid_walk import walks_grid
from vyre_py.lowering.tiles.lane_products import has_products_of_lanes


def matmul(t: Type, to: Type, tile: tuple[int, int, int], *, turn_a: bool, turn_b: bool, sums: Type | None = None, tensor: bool = True) -> Program:
    (m, n, k), sums = tile, sums or (vp.i32 if not t.is_float else vp.f64 if t is vp.f64 else vp.f32)
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
            acc.set(vp.mma(left, right, acc, tensor=tensor))
        z[i, j] = vp.cast(acc, to)
    return b.program


def has_boxes(program: Program) -> bool:
    return any(isinstance(s, BoxCopy) for s in program.body)


# The forms that a Program has for some arguments.
FORMS: dict[str, dict[str, bool]] = {"boxes": {"wide": True, "boxes": True}, "wide": {"wide": True}, "any": {"wide": False}}

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
    (vp.f8e4m3, vp.f32, (32, 32, 32), False, True, False),
    (vp.f8e5m2, vp.bf16, (64, 32, 128), False, True, True),
    (vp.f64, vp.f64, (32, 32, 8), False, True, False),
    (vp.f64, vp.f64, (64, 32, 16), True, False, False),
]
# Their strips are padded, for loads of single elements.
UNBOXED = [(vp.f32, (32, 32, 16)), (vp.i8, (32, 32, 32)), (vp.f64, (32, 32, 8)), (vp.f64, (64, 32, 16))]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("t", "to", "tile", "turn_a", "turn_b", "warpgroups"), CASES, ids=str)
def test_products_are_right(t: Type, to: Type, tile: tuple[int, int, int], turn_a: bool, turn_b: bool, warpgroups: bool, form: str) -> None:
    (m, n, k), rng = tile, np.random.default_rng(17)
    rows, columns, depth = (m + 3, n + 5, 2 * k + 7) if form == "any" else (m + 16, n + 16, 2 * k + 16)
    program = for_rings(matmul(t, to, tile, turn_a=turn_a, turn_b=turn_b), "the oracle", 96 << 10, warpgroups=warpgroups, **FORMS[form])
    assert has_boxes(program) is (form == "boxes" and (t, tile) not in UNBOXED)
    x, y = [rng.integers(0 if t is vp.u8 else -4, 5, shape).astype(np.float32) for shape in ((rows, depth), (depth, columns))]
    z = np.full((rows, columns), 77, np.float32).astype(to.dtype)
    arrays = {"x": np.ascontiguousarray(x.T if turn_a else x).astype(t.dtype), "y": np.ascontiguousarray(y.T if turn_b else y).astype(t.dtype), "z": z}
    run(program, viewed(program, arrays), {"rows": rows, "columns": columns, "depth": depth})
    meant = (x @ y).astype(to.dtype)
    assert np.array_equal(z, meant), f"{np.sum(z != meant)} of {z.size}"


@pytest.mark.parametrize(("launched", "depth", "turned"), [(1, 304, False), (5, 304, True), (12, 64, False), (7, 24, True), (7, 0, False)])
def test_others_may_copy_than_compute(launched: int, depth: int, turned: bool) -> None:
    """They are a warpgroup beside those that compute, and go through the grid, three layers of two rows of two places, as these do; loops of no turn, one, and
    more than there are strips."""
    made = vp.ops.matmul(vp.bf16, batched=True, transpose_b=turned, tiles=(128, 64, 64))
    program = for_rings(made, "the oracle", 160 << 10, warpgroups=True, **FORMS["boxes"])
    assert any(isinstance(s, WarpgroupRegisters) for s in program.body) and walks_grid(program)
    rng = np.random.default_rng(19)
    a, b = [rng.integers(-4, 5, shape).astype(np.float32) for shape in ((3, 136, depth), (3, depth, 72))]
    arrays = {"a": a, "b": b.swapaxes(1, 2) if turned else b, "c": np.full((3, 136, 72), 77, np.float32)}
    arrays = {name: np.ascontiguousarray(array).astype(vp.bf16.dtype) for name, array in arrays.items()}
    run(program, viewed(program, arrays), {"m": 136, "n": 72, "k": depth, "batch": 3}, launched)
    assert np.array_equal(arrays["c"], (a @ b).astype(vp.bf16.dtype))


# What is added, the elements of what is, the tile of two warps' or warpgroups' products, whether these compute.
BESIDE = [
    ({"bias": True, "residual": True}, vp.bf16, (128, 128, 64), False), ({"residual": True}, vp.f32, (128, 64, 64), True),
    ({"bias": True, "residual": True, "activation": "relu"}, vp.f16, (128, 64, 64), True), ({"bias": True}, vp.f32, (64, 64, 64), False),
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("finish", "to", "tile", "warpgroups"), BESIDE, ids=str)
def test_what_is_added_to_products_is_right(finish: dict[str, Any], to: Type, tile: tuple[int, int, int], warpgroups: bool, form: str) -> None:
    """It is loaded beside sums, by neighbours where rows are whole groups of them, and ahead of the stores of those before; edges of tiles as well."""
    program = for_rings(vp.ops.matmul(vp.bf16, to, tiles=tile, **finish), "the oracle", 224 << 10, warpgroups=warpgroups, **FORMS[form])
    (m, n), k, rng = (tile[0] + 12, tile[1] + 24) if form != "any" else (tile[0] + 3, tile[1] + 5), 72, np.random.default_rng(23)
    shapes = {"a": (m, k), "b": (k, n), **({"bias": (n,)} if "bias" in finish else {}), **({"residual": (m, n)} if "residual" in finish else {})}
    given = {name: rng.integers(-4, 5, shape).astype(np.float32) for name, shape in shapes.items()}
    arrays = {name: array.astype(vp.bf16.dtype if name in "ab" else to.dtype) for name, array in given.items()} | {"c": np.full((m, n), 77).astype(to.dtype)}
    run(program, viewed(program, arrays), {"m": m, "n": n, "k": k}, *([3] if walks_grid(program) else []))
    meant = given["a"] @ given["b"] + given.get("bias", 0)
    meant = (np.maximum(meant, 0) if "activation" in finish else meant) + given.get("residual", 0)
    assert np.array_equal(arrays["c"], meant.astype(to.dtype))


def beside(types: Sequence[Type], tile: tuple[int, int, int]) -> Program:
    """A product to which tiles of several types are added, each of which is stored as well, as it is."""
    m, n, k = tile
    with vp.TileBuilder("beside") as b:
        rows, columns, depth = b.dim("rows"), b.dim("columns"), b.dim("depth")
        x, y, z = b.read("x", vp.bf16, rows, depth), b.read("y", vp.bf16, depth, columns), b.write("z", vp.f32, rows, columns)
        added = [(b.read(f"r_{t.name}", t, rows, columns), b.write(f"o_{t.name}", t, rows, columns)) for t in types]
        b.grid(vp.ceil_div(columns, n), vp.ceil_div(rows, m))
        i, j = b.workgroup_id(1) * m, b.workgroup_id(0) * n
        acc = b.var("acc", vp.f32, shape=(m, n))
        with b.for_(0, depth, k) as p:
            acc.set(vp.mma(x.tile(i, p, shape=(m, k)), y.tile(p, j, shape=(k, n)), acc, tensor=True))
        total = b.let("total", acc.get())
        for source, to in added:
            read = b.let(f"t_{source.type.name}", source.tile(i, j, shape=(m, n)))
            total, to[i, j] = total + vp.cast(read, vp.f32), read
        z[i, j] = total
    return b.program


BESIDE_TYPES = (vp.f16, vp.u8, vp.i8, vp.u16, vp.i16)


def test_exchanges_of_many_types_leave_rings_fewer_strips() -> None:
    budget, (m, n, k), rng = 40 << 10, (72, 80, 160), np.random.default_rng(29)
    program = for_rings(beside(BESIDE_TYPES, (64, 64, 32)), "the oracle", budget, wide=True, warpgroups=False)
    assert sum([element_count(memory) * memory.type.size_bytes for memory in program.memories if memory.space is Space.WORKGROUP]) <= budget
    x, y = [rng.integers(-4, 5, shape).astype(np.float32) for shape in ((m, k), (k, n))]
    added = {t.name: rng.integers(0, 50, (m, n)).astype(t.dtype) for t in BESIDE_TYPES}
    arrays = {"x": x.astype(vp.bf16.dtype), "y": y.astype(vp.bf16.dtype), "z": np.zeros((m, n), np.float32)}
    arrays |= {f"r_{name}": array for name, array in added.items()} | {f"o_{name}": np.zeros_like(array) for name, array in added.items()}
    run(program, viewed(program, arrays), {"rows": m, "columns": n, "depth": k})
    assert np.array_equal(arrays["z"], x @ y + sum([array.astype(np.float32) for array in added.values()]))
    assert all(np.array_equal(arrays[f"o_{name}"], array) for name, array in added.items())


def test_what_has_no_room_beside_exchanges_is_refused() -> None:
    with pytest.raises(vp.Unsupported, match="2 times 8192 bytes of workgroup memory, of 15360, beside 5120 of exchanges,"):
        for_rings(beside(BESIDE_TYPES, (64, 64, 32)), "the oracle", 20 << 10, wide=True, warpgroups=False)


def test_factors_for_which_there_is_no_room_are_refused() -> None:
    """They are computed, outside of loops."""
    with vp.TileBuilder("computed") as b:
        x, y, z = b.read("x", vp.bf16, 128, 256), b.read("y", vp.bf16, 256, 128), b.write("z", vp.f32, 128, 128)
        b.grid(1)
        z[0, 0] = vp.mma(x.tile(0, 0, shape=(128, 256)) + 1, y.tile(0, 0, shape=(256, 128)) + 1, b.fill(0.0, (128, 128), vp.f32), tensor=True)
    for_rings(b.program, "the oracle", 160 << 10, wide=True, warpgroups=False)
    with pytest.raises(vp.Unsupported, match="factors and exchanges of tiles, which take 137216 bytes of workgroup memory, of 98304,"):
        for_rings(b.program, "the oracle", 96 << 10, wide=True, warpgroups=False)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("turn_b", [False, True])
@pytest.mark.parametrize("turn_a", [False, True])
@pytest.mark.parametrize("tile", [(64, 64, 16), (128, 64, 8), (64, 128, 32)], ids=str)
def test_products_of_lanes_are_right(tile: tuple[int, int, int], turn_a: bool, turn_b: bool, form: str) -> None:
    """Strict ones of f32 have rings as those of tensor cores do."""
    (m, n, k), rng = tile, np.random.default_rng(19)
    rows, columns, depth = (m + 3, n + 5, 2 * k + 7) if form == "any" else (m + 16, n + 16, 2 * k + 16)
    made = matmul(vp.f32, vp.f32, tile, turn_a=turn_a, turn_b=turn_b, tensor=False)
    assert has_products_of_lanes(made, 96 << 10)
    program = for_rings(made, "the oracle", 96 << 10, warpgroups=tile[2] == 32, **FORMS[form])  # deep enough for these, were it theirs
    assert has_boxes(program) is (form == "boxes" and turn_b and not turn_a)  # boxes come swizzled, as what goes along k lies
    x, y = [rng.integers(-4, 5, shape).astype(np.float32) for shape in ((rows, depth), (depth, columns))]
    z = np.full((rows, columns), 77, np.float32)
    arrays = {"x": np.ascontiguousarray(x.T if turn_a else x), "y": np.ascontiguousarray(y.T if turn_b else y), "z": z}
    run(program, viewed(program, arrays), {"rows": rows, "columns": columns, "depth": depth})
    assert np.array_equal(z, x @ y), f"{np.sum(z != x @ y)} of {z.size}"


@pytest.mark.parametrize("warpgroups", [False, True])
def test_sums_of_16_bits_are_right(warpgroups: bool) -> None:
    made = matmul(vp.f16, vp.f16, (64, 64, 64), turn_a=False, turn_b=False, sums=vp.f16)
    program, rng = for_rings(made, "the oracle", 96 << 10, wide=True, warpgroups=warpgroups), np.random.default_rng(18)
    x, y = [rng.integers(-2, 3, shape).astype(np.float16) for shape in ((72, 160), (160, 80))]
    arrays = {"x": x, "y": y, "z": np.zeros((72, 80), np.float16)}
    run(program, viewed(program, arrays), {"rows": 72, "columns": 80, "depth": 160})
    assert np.array_equal(arrays["z"], x @ y)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("head", "tiles", "warpgroups"),
    [(64, (64, 64), True), (64, (128, 64), True), (64, (64, 64), False), (16, (64, 16), False), (96, (64, 32), False), (48, (32, 16), False)], ids=str,
)  # fmt: skip
def test_attention_is_right(head: int, tiles: tuple[int, int], warpgroups: bool, causal: bool, form: str) -> None:
    """Two products in a loop, of which the second has its first factor in registers, and is late where warpgroups compute it."""
    program = for_rings(vp.ops.attention(vp.bf16, head, causal=causal, tiles=tiles), "the oracle", 224 << 10, warpgroups=warpgroups, **FORMS[form])
    assert has_boxes(program) is (form == "boxes")
    for m, n, greatest in ((70, 150, 150), (70, 150, 16), (5, 0, 0)):  # in the second no row finds a greater score behind so many keys
        rng = np.random.default_rng(n)
        q, k, v = (rng.standard_normal((1, 1, rows, head)).astype(vp.bf16.dtype) for rows in (m, n, n))
        k[..., greatest:, :] = 0
        out = np.full((1, 1, m, head), 77).astype(vp.bf16.dtype)
        run(program, viewed(program, {"q": q, "k": k, "v": v, "out": out}), {"batch": 1, "heads": 1, "kv_heads": 1, "m": m, "n": n})
        s = (q.astype(np.float64) @ k.astype(np.float64).swapaxes(2, 3))[0, 0] / np.sqrt(head)
        seen = np.arange(n) - n <= np.arange(m)[:, None] - m if causal else np.ones((m, n), bool)
        p = np.where(seen, np.exp(s), 0.0)
        total = p.sum(axis=1, keepdims=True)
        meant = p @ v[0, 0].astype(np.float64) / np.where(total == 0, 1, total)
        np.testing.assert_allclose(out[0, 0].astype(np.float64), meant, rtol=2e-2, atol=2e-2)


def test_boxes_of_a_loop_that_is_run_again_and_takes_zeros_from_far_outside() -> None:
    """What counts boxes begins anew for each run of the inner loop; the first has no turns."""
    with vp.TileBuilder("batches") as b:
        count, k, far = b.dim("count"), b.dim("k"), b.param("far", vp.u32)
        x, y, z = b.read("x", vp.bf16, count, 64, k), b.read("y", vp.bf16, count, k, 64), b.write("z", vp.f32, count, 64, 64)
        b.grid(1)
        with b.for_(0, count) as batch:
            acc = b.var("acc", vp.f32, shape=(64, 64))
            with b.for_(0, batch * 64, 64) as p:
                acc.set(vp.mma(x.tile(batch, far, p, shape=(64, 64)), y.tile(batch, p, 0, shape=(64, 64)), acc, tensor=True))
            z[batch, 0, 0] = acc
    program = for_rings(b.program, "the oracle", 96 << 10, warpgroups=True, **FORMS["boxes"])
    assert has_boxes(program)
    rng = np.random.default_rng(3)
    left, right = rng.integers(-4, 5, (3, 64, 128)).astype(np.float32), rng.integers(-4, 5, (3, 128, 64)).astype(np.float32)
    for first in (0, 40, 0x80000000, 0xFFFFFFF0):
        out = np.full((3, 64, 64), 77, np.float32)
        arrays = viewed(program, {"x": left.astype(vp.bf16.dtype), "y": right.astype(vp.bf16.dtype), "z": out})
        run(program, {**arrays, "far": np.uint32(first)}, {"count": 3, "k": 128})
        rows = np.zeros((3, 64, 128), np.float32)
        rows[:, : max(0, 64 - first)] = left[:, first:]
        for number in range(3):
            depth = 64 * number
            assert np.array_equal(out[number], rows[number, :, :depth] @ right[number, :depth]), (first, number)
