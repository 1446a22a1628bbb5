"""The builder of Programs of tiles: what it builds, and that every wrong call is refused at the caller's own line."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import vyre_py as vp
from vyre_py.ir.check import check
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import OF_TILES, DimConst, Grid, dim_op
from vyre_py.ir.language.nodes import (
    Access,
    Atom,
    Const,
    Get,
    Let,
    Load,
    Memory,
    Space,
    Store,
    Tile,
    TileAtomicAdd,
    TileLoad,
    TileStore,
    const,
)
from vyre_py.ir.language.op import Op
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.tiles.tile_op import TileOp
from vyre_py.ir.language.tiles.tile_ops import TILE_OPS
from vyre_py.ir.language.types import tile_of, u32


def ops_of(program: Program) -> list[str]:
    """The ops of the statements in order, and of others the kinds."""
    found = [getattr(s, "op", None) for s in program.body]
    return [op.name if isinstance(op, (Op, TileOp)) else type(s).__name__ for op, s in zip(found, program.body, strict=True)]


# ---------------------------------------------------------------- Programs, and the same by hand


def matmul() -> Program:
    with vp.TileBuilder("matmul", "A product.") as b:
        m, n, k = b.dim("m"), b.dim("n"), b.dim("k")
        x, y, z = b.read("x", vp.bf16, m, k), b.read("y", vp.bf16, k, n), b.write("z", vp.bf16, m, n)
        b.grid(vp.ceil_div(n, 256), vp.ceil_div(m, 128))
        i, j = b.workgroup_id(1) * 128, b.workgroup_id(0) * 256
        acc = b.var("acc", vp.f32, shape=(128, 256))
        with b.for_(0, k, 64) as p:
            acc.set(vp.mma(x.tile(i, p, shape=(128, 64)), y.tile(p, j, shape=(64, 256)), acc, tensor=True))
        z[i, j] = vp.cast(acc, vp.bf16)
    return b.program


def matmul_by_hand() -> Program:
    a = Assembler("matmul", OF_TILES)
    a.doc = "A product."
    m, n, k = a.dim("m"), a.dim("n"), a.dim("k")
    x, y = a.memory("x", Space.BUFFER, vp.bf16, (m, k), Access.READ), a.memory("y", Space.BUFFER, vp.bf16, (k, n), Access.READ)
    z = a.memory("z", Space.BUFFER, vp.bf16, (m, n), Access.WRITE)
    a.grid = Grid(False, (dim_op("ceil_div", n, DimConst(256)), dim_op("ceil_div", m, DimConst(128)), DimConst(1)))
    i = a.let(OPS["mul"], (a.let(OPS["workgroup_id.y"], ()), Const(u32, 128)))
    j = a.let(OPS["mul"], (a.let(OPS["workgroup_id.x"], ()), Const(u32, 256)))
    zeros = a.tile(TILE_OPS["fill"], (const(vp.f32, 0.0),), (128, 256))
    acc = a.var(tile_of(vp.f32, (128, 256)), zeros, "acc")
    p = a.for_(Const(u32, 0), k, Const(u32, 64))
    left, right = a.tile_load(x, (i, p), (128, 64)), a.tile_load(y, (p, j), (64, 256))
    a.set(acc, a.tile(TILE_OPS["mma_tensor"], (left, right, a.get(acc))))
    a.end()
    a.tile_store(z, (i, j), (128, 256), a.let(OPS["cast"], (a.get(acc),), vp.bf16))
    return a.finish()


def softmax() -> Program:
    with vp.TileBuilder("softmax") as b:
        rows = b.dim("rows")
        x, y = b.read("x", vp.f32, rows, 1000), b.write("y", vp.f32, rows, 1000)
        b.grid(vp.ceil_div(rows, 4))
        i = b.workgroup_id(0) * 4
        v = vp.select(b.iota(1, (1, 1024)) < 1000, x.tile(i, 0, shape=(4, 1024)), -math.inf)
        e = vp.exp(v - v.reduce("max", 1))
        y[i, 0] = e / e.reduce("add", 1)
    return b.program


def softmax_by_hand() -> Program:
    a = Assembler("softmax", OF_TILES)
    rows = a.dim("rows")
    x, y = [a.memory(name, Space.BUFFER, vp.f32, (rows, DimConst(1000)), access) for name, access in (("x", Access.READ), ("y", Access.WRITE))]
    a.grid = Grid(False, (dim_op("ceil_div", rows, DimConst(4)), DimConst(1), DimConst(1)))
    i = a.let(OPS["mul"], (a.let(OPS["workgroup_id.x"], ()), Const(u32, 4)))
    inside = a.let(OPS["lt"], (a.tile(TILE_OPS["iota"], (), (1, 1, 1024)), Const(u32, 1000)))
    v = a.let(OPS["select"], (inside, a.tile_load(x, (i, Const(u32, 0)), (4, 1024)), const(vp.f32, -math.inf)))
    e = a.let(OPS["exp"], (a.let(OPS["sub"], (v, a.tile(TILE_OPS["reduce_max"], (v,), (1,)))),))
    a.tile_store(y, (i, Const(u32, 0)), (4, 1024), a.let(OPS["div"], (e, a.tile(TILE_OPS["reduce_add"], (e,), (1,)))))
    return a.finish()


def split_sum() -> Program:
    with vp.TileBuilder("split_sum") as b:
        n = b.dim("n")
        x, y = b.read("x", vp.f32, n), b.read_write("y", vp.f32, 1)
        b.grid(vp.ceil_div(n, 4096))
        y.atomic_add(0, x.tile(b.workgroup_id(0) * 4096, shape=4096).reduce("add", 0))
    return b.program


def split_sum_by_hand() -> Program:
    a = Assembler("split_sum", OF_TILES)
    n = a.dim("n")
    x, y = a.memory("x", Space.BUFFER, vp.f32, (n,), Access.READ), a.memory("y", Space.BUFFER, vp.f32, (DimConst(1),), Access.READ_WRITE)
    a.grid = Grid(False, (dim_op("ceil_div", n, DimConst(4096)), DimConst(1), DimConst(1)))
    i = a.let(OPS["mul"], (a.let(OPS["workgroup_id.x"], ()), Const(u32, 4096)))
    a.tile_atomic_add(y, (Const(u32, 0),), (1,), a.tile(TILE_OPS["reduce_add"], (a.tile_load(x, (i,), (4096,)),), (0,)))
    return a.finish()


def told(program: Program) -> list[object]:
    """All that a Program says, as plain values: statements are the same where these are equal."""

    def atom(a: Atom | Memory) -> object:
        return (a.name, a.space, a.type, str(a.shape), a.access) if isinstance(a, Memory) else repr(a)

    head = [program.name, program.doc, program.workgroup, repr(program.grid), repr(program.dims), repr(program.params), [atom(m) for m in program.memories]]
    fields = [[type(s), repr(s.result), [atom(a) for a in s.args], *[repr(getattr(s, name)) for name in s.payload]] for s in program.body]
    return [*head, *fields, program.match, dict(program.value_names), dict(program.variable_names)]


@pytest.mark.parametrize(("built", "by_hand"), [(matmul, matmul_by_hand), (softmax, softmax_by_hand), (split_sum, split_sum_by_hand)])
def test_what_is_built_is_what_the_assembler_makes_by_hand(built: Callable[[], Program], by_hand: Callable[[], Program]) -> None:
    program = built()
    assert told(program) == told(by_hand())
    assert program.of_tiles and check(program).program is program


def test_operators_and_functions_go_element_by_element() -> None:
    with vp.TileBuilder("lanewise") as b:
        x, h, u = b.read("x", vp.f32, 64, 64), b.read("h", vp.f16, 64), b.read("u", vp.u32, 64)
        s = b.param("s", vp.f32)
        y = b.write("y", vp.f32, 64, 64)
        b.grid(1)
        v = x.tile(0, 0, shape=(64, 32))
        row, column = x.tile(0, 0, shape=(1, 32)), x.tile(0, 0, shape=(64, 1))
        f32, bools = tile_of(vp.f32, (64, 32)), tile_of(vp.bool_, (64, 32))
        for made in (v + 1, 1 - v, v * s, s / v, v**2, -v, abs(v), vp.max(v, 0.0), vp.fma(v, s, 1.0), vp.select(s > 0.0, v, 0), vp.mix(row, column, 0.5)):
            assert made.type is f32 and made.shape == (64, 32)
        for made in (v < 0, row == column, (v > s) & (v < 1.0), ~(v != s), (v > 0) ^ True):
            assert made.type is bools
        assert vp.select(v > 0.0, row, s).type is f32 and vp.ldexp(v, -3).type is f32 and round(v).type is f32
        assert (u.tile(0, shape=8) % 3 << 1).type is tile_of(u32, (8,))
        assert (h.tile(0, shape=8) + 0.5).type is tile_of(vp.f16, (8,))
        assert v.cast(vp.bf16).type is vp.cast(v, tile_of(vp.bf16, (64, 32))).type is tile_of(vp.bf16, (64, 32))
        assert vp.bitcast(v, u32).type is tile_of(u32, (64, 32)) and vp.is_nan(v).type is bools
        assert v.cast(vp.f32) is v and v.bitcast(f32) is v and v.cast(f32) is v
        assert (np.float32(2) * v).type is f32 and (v + vp.const(1.0, vp.f32)).type is f32
        y[0, 0] = vp.fast.exp(v) + vp.saturate(row)
    check(b.program)
    lets = [s for s in b.program.body if isinstance(s, Let)]
    assert all(a.type in (vp.f32, vp.bool_, u32, vp.f16, vp.i32) for s in lets for a in s.args if isinstance(a, Const))


def test_ops_of_one_tile_are_methods() -> None:
    with vp.TileBuilder("methods") as b:
        x = b.read("x", vp.f32, 4, 8, 2)
        y = b.write("y", vp.i32, 1)
        b.grid(1)
        v = x.tile(0, 0, 0, shape=(4, 8, 2))
        assert v.T.shape == (2, 8, 4) and v.transpose(2, 0, 1).shape == (2, 4, 8) and v.transpose(0, -1, 1).shape == (4, 2, 8)
        assert v.reshape((8, 8)).shape == (8, 8) and v.reshape(64).shape == (64,) and v.reshape([np.int64(64), 1]).shape == (64, 1)
        assert v.reduce("mul", 1).shape == (4, 1, 2) and v.reduce("min", -1).shape == (4, 8, 1)
        assert v.scan("add", 0).type is v.scan("max", -3, exclusive=True).type is v.type
        assert (v > 0.0).reduce("or", 0).type is tile_of(vp.bool_, (1, 8, 2))
        one = v.reshape(64).reduce("add", 0).item()
        assert one.type is vp.f32 and one.shape == ()
        with b.if_(one > 0.0):
            y[0] = vp.cast(one, vp.i32)
    check(b.program)
    numbers = [(s.op.name, s.numbers) for s in b.program.body if isinstance(s, Tile)]
    assert numbers == [
        ("transpose", (2, 1, 0)), ("transpose", (2, 0, 1)), ("transpose", (0, 2, 1)), ("reshape", (8, 8)), ("reshape", (64,)), ("reshape", (64, 1)),
        ("reduce_mul", (1,)), ("reduce_min", (2,)), ("inclusive_add", (0,)), ("exclusive_max", (0,)), ("reduce_or", (0,)), ("reshape", (64,)),
        ("reduce_add", (0,)), ("item", ()),
    ]  # fmt: skip


def test_every_row_of_the_table_has_a_spelling() -> None:
    spelled = {"fill", "iota", "mma", "mma_tensor", "mma_sm90", "mma_sm90_warps", "transpose", "reshape", "item"}
    with vp.TileBuilder("all") as b:
        b.grid(1)
        n, c = b.fill(1, (8, 8), u32), b.fill(True, (8, 8), vp.bool_)
        for name, row in TILE_OPS.items():
            if row.fold:
                x = n if u32 in row.of else c
                kind = name.removesuffix(f"_{row.fold}")
                made = x.reduce(row.fold, 0) if kind == "reduce" else x.scan(row.fold, 0, exclusive=kind == "exclusive")
                assert made.shape == ((1, 8) if kind == "reduce" else (8, 8)) and op_of_last(b) == name
        f = b.fill(1.0, (8, 8), vp.f32)
        for tensor in (False, True):
            assert vp.mma(f, f, f, tensor=tensor).type is f.type and op_of_last(b) == "mma_tensor"[: 10 if tensor else 3]
        h = b.fill(1.0, (8, 8), vp.f16)
        assert vp.mma(h, h, f, tensor="sm_90").type is f.type and op_of_last(b) == "mma_sm90"
        assert vp.mma(h, h, f, tensor="sm_90:warps").type is f.type and op_of_last(b) == "mma_sm90"
        bytes_ = b.fill(1.0, (8, 8), vp.f8e4m3)
        assert vp.mma(bytes_, bytes_, f, tensor="sm_90:warps").type is f.type and op_of_last(b) == "mma_sm90_warps"
        with pytest.raises(vp.ValidationError, match="tensor is True, False or an architecture"):
            vp.mma(h, h, f, tensor="sm_80")
    assert spelled | {name for name, row in TILE_OPS.items() if row.fold} == set(TILE_OPS)
    check(b.program)


def op_of_last(b: vp.TileBuilder) -> str:
    last = b._a.body[-1]
    assert isinstance(last, Tile)
    return last.op.name


def test_fill_and_iota() -> None:
    with vp.TileBuilder("made") as b:
        s = b.param("s", vp.f16)
        b.grid(1)
        assert b.fill(0.0, (128, 64), vp.f32).type is tile_of(vp.f32, (128, 64))
        assert b.fill(s, 8).type is b.fill(s, [8], vp.f16).type is tile_of(vp.f16, (8,))
        assert b.fill(False, (2, 2, 2), vp.bool_).type is tile_of(vp.bool_, (2, 2, 2))
        assert b.iota(-1, (4, 8)).type is b.iota(0, (4, 8)).type is tile_of(u32, (4, 8))
    check(b.program)
    fills = [s for s in b.program.body if isinstance(s, Tile) and s.op.name == "fill"]
    assert [s.values for s in fills][1:3] == [b.program.params] * 2
    assert [s.numbers for s in b.program.body if isinstance(s, Tile)][-2:] == [(1, 4, 8), (0, 4, 8)]


def test_variables_hold_tiles() -> None:
    with vp.TileBuilder("variables") as b:
        x, y = b.read("x", vp.f32, 64, 64), b.write("y", vp.f32, 64, 64)
        s = b.param("s", vp.f32)
        b.grid(1)
        v = x.tile(0, 0, shape=(64, 64))
        zeros, most = b.var("zeros", vp.f32, shape=(64, 64)), b.var("most", vp.f32, -math.inf, shape=(64, 1))
        seen, scalar = b.var("seen", vp.bool_, shape=64), b.var("scalar", vp.f32)
        first, same = b.var("first", vp.f32, v), b.var("same", v.type, v)
        assert [k.type for k in (zeros, first, same)] == [v.type] * 3 and scalar.type is vp.f32
        assert most.shape == (64, 1) and seen.type is tile_of(vp.bool_, (64,))
        with b.for_(0, 4):
            zeros += v
            zeros *= s
            most.set(vp.max(most, v.reduce("max", 1)))
            first -= 1.0
            first.set(0.0)
            scalar += v.reshape(4096).reduce("add", 0).item()
        y[0, 0] = zeros + first + same + scalar
    check(b.program)
    assert b.program.variable_names[0] == "zeros"
    names = ops_of(b.program)
    assert names[names.index("For") + 1 :][:4] == ["Get", "add", "Set", "Get"]
    assert sum(isinstance(s, Get) for s in b.program.body) == 9


def test_accesses() -> None:
    with vp.TileBuilder("accesses") as b:
        n = b.dim("n")
        x, y = b.read("x", vp.f32, n, 8, 8), b.write("y", vp.f32, n, 8, 8)
        z, t = b.read_write("z", vp.u32, n), b.table("t", [1, 2, 3], vp.u32)
        b.grid(n)
        g = b.workgroup_id(0)
        v = x.tile(g, 0, 0, shape=(None, 8, 8))
        assert v.shape == x.tile(g, 0, 0, shape=(8, 8)).shape == (8, 8)
        assert x.tile(g, 0, -1, shape=(4, None, 2)).shape == (4, 2) and x.tile(g, 0, 0, shape=8).shape == (8,)
        y[g, 0, 0] = v
        y[g, 0, 0] = v.reshape((1, 8, 8))
        y.tile_store((g, 0, 0), v, axes=(0, 2))
        y.tile_store((g, 0, 0), v.reduce("add", 0).reshape(8), axes=-2)
        y.tile_store((g, 0, 0), v)
        z.atomic_add(g, t.tile(0, shape=4))
        z.atomic_add((g,), t.tile(np.int64(1), shape=4))
        y[g, 0, 0] = 1.0
        y[g, 1, 0] = x[g, 1, 0] + 1.0
        z[0] = z[1] + 1
    check(b.program)
    loads = [s.extents for s in b.program.body if isinstance(s, TileLoad)]
    assert loads == [(0, 8, 8), (0, 8, 8), (4, 0, 2), (0, 0, 8), (4,), (4,)]
    assert [s.extents for s in b.program.body if isinstance(s, TileStore)] == [(0, 8, 8), (1, 8, 8), (8, 0, 8), (0, 8, 0), (0, 8, 8)]
    assert sum(isinstance(s, TileAtomicAdd) for s in b.program.body) == 2
    assert (sum(isinstance(s, Load) for s in b.program.body), sum(isinstance(s, Store) for s in b.program.body)) == (2, 3)


def test_what_all_builders_share_works_over_a_workgroup() -> None:
    @vp.function
    def soft(x: vp.f32, k: vp.f32) -> vp.f32:  # type: ignore[valid-type]  # types of the language, as the function reads them
        return vp.max(x - k, 0.0)

    with vp.TileBuilder("shared") as b:
        n = b.dim("n")
        x, y = b.read("x", vp.f32, n, 128), b.write("y", vp.f32, n)
        b.grid(n)
        i = b.let("i", b.workgroup_id(0))
        b.assert_(i < b.num_workgroups(0), "{} is too large", i)
        with b.region("rows"):
            total = x.tile(i, 0, shape=(None, 128)).reduce("add", 0).item()
        total = x.tile(i, 0, shape=128).reduce("add", 0).item()
        count = b.grid_scan("add", vp.cast(total, u32))
        with b.loop():
            b.break_if(count > 3)
            b.continue_()
        with b.if_(total > 0.0):
            y[i] = soft(total, 0.5)
        with b.else_():
            b.print("{:.3f}", total)
            b.return_()
    check(b.program)
    assert [f.name for f in b.program.functions] == ["soft"]


# ---------------------------------------------------------------- mistakes


class Scene:
    """A builder halfway, with one of each thing."""

    def __init__(self) -> None:
        self.b = vp.TileBuilder("scene")
        self.n = self.b.dim("n")
        self.f, self.v = self.b.param("f", vp.f32), self.b.param("v", vp.f32x3)
        self.x = self.b.read("x", vp.f32, self.n, self.n)
        self.y = self.b.write("y", vp.f32, self.n, self.n)
        self.z = self.b.read_write("z", vp.f32, self.n, self.n)
        self.u = self.b.read_write("u", vp.u32, self.n)
        self.vectors = self.b.read_write("vectors", vp.f32x4, self.n)
        self.h = self.b.read_write("h", vp.f16, self.n, self.n)
        self.i = self.b.workgroup_id(0)
        self.tile = self.x.tile(0, 0, shape=(8, 4))
        self.ints = self.u.tile(0, shape=4)
        self.c = self.tile > 0.0


Mistake = Callable[[Scene], object]

VALUES: list[tuple[str, str, Mistake]] = [
    ("B101", "Python needs true or false now", lambda s: bool(s.c)),
    ("B101", "for_", lambda s: list(s.tile)),  # type: ignore[call-overload]  # the mistake under test
    ("B101", "in", lambda s: 1 in s.tile),
    ("B102", "x.shape", lambda s: len(s.tile)),
    ("B102", "vp.sqrt", lambda s: np.sqrt(s.tile)),  # type: ignore[call-overload]  # the mistake under test
    ("B102", "vp.sqrt", lambda s: float(s.tile)),
    ("B105", "argument", lambda s: s.tile + Scene().tile),
    ("B105", "argument", lambda s: vp.mma(s.tile, s.tile.T, Scene().tile)),
    ("B105", "argument", lambda s: s.y.__setitem__((0, 0), Scene().tile)),
    ("B106", "vp.cast(x, vp.f32)", lambda s: s.ints + 1.5),
    ("B106", "vp.cast(x, vp.i32)", lambda s: s.ints - -1),
    ("B106", "x != 0", lambda s: s.c & 1),
    ("B106", "vp.cast(x, vp.f32)", lambda s: s.u.tile(0, shape=4).cast(vp.i32) * 0.5),
    ("B106", "b.fill(0.0, (128, 256), vp.f32) makes one", lambda s: vp.mma(s.tile, s.tile.T, 0.0)),  # type: ignore[arg-type]  # the mistake under test
    ("B108", "`//`", lambda s: s.ints / 2),
    ("B108", "`/`", lambda s: s.tile // 2),
    ("B108", "a.tile(i, shape=64)", lambda s: s.tile[0]),
    ("B108", "x.reduce", lambda s: s.tile.x),
    ("B108", "vp.exp(x)", lambda s: s.tile.exp),
    ("B108", "repeated by itself", lambda s: vp.splat(s.tile, 3)),
    ("B108", "one of add, mul, min, max, and, or, xor", lambda s: s.tile.reduce("sum", 0)),
    ("B108", "one of add, mul, min, max, and, or, xor", lambda s: s.tile.scan(["add"], 0)),  # type: ignore[arg-type]  # the mistake under test
    ("B108", "b.fill(0.0, shape, type)", lambda s: vp.const(1.0, s.tile.type)),
    ("V201", "tile(f32, 8, 4) has no axis 2", lambda s: s.tile.reduce("add", 2)),
    ("V201", "it has the axes 0, 1; -1 is the last", lambda s: s.tile.scan("add", -3)),
    ("V201", "has no axis 2", lambda s: s.tile.transpose(0, 2)),
    ("V201", "the axis", lambda s: s.tile.transpose(0, 0)),
    ("V201", "each axis of x is named once, got 0", lambda s: s.tile.transpose(0)),
    ("V201", "x.transpose(1, 0), or x.T", lambda s: s.tile.transpose(1, 1)),
    ("V201", "x has 32 elements, a tile of 8, 8 64", lambda s: s.tile.reshape((8, 8))),
    ("V201", "x.reshape(32)", lambda s: s.tile.reshape((8, 8))),
    ("V201", "x has 32 elements, one is needed", lambda s: s.tile.item()),
    ("V201", 'x.reduce("add", 0)', lambda s: s.tile.item()),
    ("V201", "transpose it: b.T", lambda s: vp.mma(s.tile, s.tile, s.tile)),
    ("V201", "transpose it: a.T", lambda s: vp.mma(s.tile, s.x.tile(0, 0, shape=(8, 2)), s.tile)),
    ("V201", "k differs: 4 and 2", lambda s: vp.mma(s.tile, s.x.tile(0, 0, shape=(2, 2)), s.tile)),
    ("V201", "the product has 8 by 8 elements, acc 8 by 4", lambda s: vp.mma(s.tile, s.tile.T, s.tile)),
    ("V201", 'b.var("acc", type, shape=(8, 8))', lambda s: vp.mma(s.tile, s.tile.T, s.tile)),
    ("V201", "b has 1 axis, a matrix 2", lambda s: vp.mma(s.tile, s.x.tile(0, 0, shape=4), s.tile)),
    ("V201", "reshape it: b.reshape((1, 4))", lambda s: vp.mma(s.tile, s.x.tile(0, 0, shape=4), s.tile)),
    ("V201", "b.fill(x, (128, 256)) makes one of a scalar", lambda s: s.f.reduce("add", 0)),
    ("V201", "x of item is a tile, got f32", lambda s: s.f.item()),
    ("V201", "reduce_and takes", lambda s: s.tile.reduce("and", 0)),
    ("V201", "tile(f32, 8, 4), tile(f32, 8, 4), tile(f32, 8, 4)", lambda s: vp.mma(s.tile, s.tile, s.tile)),
    ("V201", "cast one of them", lambda s: vp.mma(s.tile, s.tile.T.cast(vp.f16), s.b.fill(0.0, (8, 8), vp.f32))),
    ("V201", "are summed in", lambda s: vp.mma(s.tile, s.tile.T, s.b.fill(0.0, (8, 8), vp.f64))),
    ("V201", "a of mma is a tile, got f32", lambda s: vp.mma(s.f, s.tile, s.tile)),
    ("V201", "mma_tensor takes", lambda s: vp.mma(s.ints.reshape((4, 1)), s.ints.reshape((1, 4)), s.b.fill(0, (4, 4), vp.i32), tensor=True)),
    ("V201", "vp.cast(x, vp.f32)", lambda s: s.tile + s.x.tile(0, 0, shape=(8, 4)).cast(vp.i32)),
    ("V201", "the extents along each axis are to be the same, or 1", lambda s: s.tile + s.x.tile(0, 0, shape=(8, 8))),
    ("V201", "reshape one", lambda s: s.tile + s.x.tile(0, 0, shape=4)),
    ("V201", "the elements of tiles are scalars", lambda s: s.tile + s.v),
    ("V201", "the elements of tiles are scalars", lambda s: vp.cast(s.tile, vp.f32x2)),
    ("V201", "name the type of an element", lambda s: vp.cast(s.tile, tile_of(vp.f16, (4, 8)))),
    ("V201", "does not go element by element", lambda s: vp.length(s.tile)),
    ("V201", "vp.cast(x, vp.f32)", lambda s: vp.sqrt(s.ints)),
    ("B108", "vp.mma(a, b, acc)", lambda s: s.tile @ s.tile),
    ("B108", "vp.mma(a, b, acc)", lambda s: np.zeros((8, 8)) @ s.tile),
    ("B108", "a tuple: x.reshape((4, 8))", lambda s: s.tile.reshape(4, 8)),
    ("B108", "tensor is True, False or an architecture, got [1]", lambda s: vp.mma(s.tile, s.tile, s.tile, tensor=[1])),  # type: ignore[arg-type]  # the mistake
    ("B108", "tensor is True, False or an architecture, got 1", lambda s: vp.mma(s.tile, s.tile, s.tile, tensor=1)),  # type: ignore[arg-type]  # the mistake
    ("B106", "nothing says what tile 3 is", lambda s: vp.mma(3, s.tile, s.tile, tensor="sm_90")),  # type: ignore[arg-type]  # the mistake under test
    ("V601", "an axis is a whole number, got 'x'", lambda s: s.tile.reduce("add", "x")),  # type: ignore[arg-type]  # the mistake under test
    ("V601", "an axis is a whole number", lambda s: s.tile.reduce("add", s.i)),  # type: ignore[arg-type]  # the mistake under test
    ("V601", "an extent of a tile is a whole number, got 1.5", lambda s: s.tile.reshape((1.5, 2))),  # type: ignore[arg-type]  # the mistake under test
    ("V604", "at least 1", lambda s: s.tile.reshape((32, 0))),
    ("V604", "write 1 for an axis that is to go with any extent", lambda s: s.tile.reshape((32, 0))),
    ("V604", "1 to 3 axes, not 4", lambda s: s.tile.reshape((8, 4, 1, 1))),
    ("V604", "merge axes; of an array, write None for an axis: shape=(None, 8, 8, 8)", lambda s: s.tile.reshape((8, 4, 1, 1))),
]  # fmt: skip

STATEMENTS: list[tuple[str, str, Mistake]] = [
    ("B105", "argument", lambda s: s.b.if_(Scene().i > 0).__enter__()),
    ("B106", "b.fill(0.0, (128, 256), vp.f32)", lambda s: s.b.fill(0.0, (8, 8))),
    ("B106", "does not become u32", lambda s: s.b.fill(1.5, 8, u32)),
    ("B106", "does not become u32", lambda s: s.b.var("w", u32, 0.5, shape=8)),
    ("B106", "does not become u32", lambda s: s.b.var("w", u32, shape=8).set(0.5)),
    ("B108", "TileBuilder('matmul')", lambda s: vp.TileBuilder("")),
    ("B108", "vp.ceil_div(n, 256)", lambda s: s.b.grid()),
    ("B108", "x.item()", lambda s: s.b.for_(0, s.ints).__enter__()),
    ("B108", "name the type of an element: vp.f32", lambda s: s.b.read("q", s.tile.type, 4)),
    ("B108", "name the type of an element: vp.f32", lambda s: s.b.param("q", s.tile.type)),
    ("B108", "type of the language", lambda s: s.b.fill(0.0, 8, np.float32)),  # type: ignore[arg-type]  # the mistake under test
    ("V201", "x.item()", lambda s: s.b.var("w", vp.f32).set(s.tile)),
    ("V201", "b.fill(x, (8,))", lambda s: s.b.var("w", vp.f32, shape=8).set(s.f)),
    ("V201", "x + b.fill(0, (8, 4), vp.f32)", lambda s: s.b.var("w", vp.f32, shape=(8, 4)).set(s.tile.reduce("add", 1))),
    ("V201", "vp.cast(x, vp.f16)", lambda s: s.b.var("w", vp.f16, shape=(8, 4)).set(s.tile)),
    ("V201", "x + b.fill(0, (8, 8), vp.f32)", lambda s: s.b.var("w", vp.f32, s.tile, shape=(8, 8))),
    ("V201", "vp.cast(x, vp.f16)", lambda s: s.b.var("w", vp.f16, s.tile)),
    ("V201", "c.item()", lambda s: s.b.if_(s.c).__enter__()),
    ("V201", "c.item()", lambda s: s.b.assert_(s.c)),
    ("V201", "vp.cast(x, vp.f16)", lambda s: s.b.fill(s.f, 8, vp.f16)),
    ("V201", "fill takes a scalar", lambda s: s.b.fill(s.tile, (8, 4))),
    ("V201", "v.x", lambda s: s.b.fill(s.v, 8)),
    ("V201", "has no axis 2", lambda s: s.b.iota(2, (8, 4))),
    ("V201", "grid_scan", lambda s: s.b.grid_scan("add", s.ints)),
    ("V215", "x.item()", lambda s: s.b.print("{}", s.tile)),
    ("V601", "got 8.0", lambda s: s.b.fill(0.0, (8.0, 4), vp.f32)),  # type: ignore[arg-type]  # the mistake under test
    ("V601", "an extent of a tile is a whole number", lambda s: s.b.fill(0.0, (s.n, 4), vp.f32)),  # type: ignore[arg-type]  # the mistake under test
    ("V601", "got True", lambda s: s.b.iota(0, (True,))),
    ("V601", "an extent of a tile is a whole number", lambda s: s.b.var("w", vp.f32, shape="8")),  # type: ignore[arg-type]  # the mistake under test
    ("V604", "at most 131072 are allowed", lambda s: s.b.fill(0.0, (512, 257), vp.f32)),
    ("V604", "at least 1", lambda s: s.b.var("w", vp.f32, shape=(8, 0))),
    ("V604", "at least 1", lambda s: s.b.iota(0, -1)),
    ("V604", "not 0", lambda s: s.b.fill(0.0, (), vp.f32)),
    ("V604", "name the type of one: vp.f32", lambda s: s.b.fill(0.0, 8, vp.f32x2)),
    ("V604", "name the type of one: vp.f32", lambda s: s.b.var("w", vp.f32x2, shape=8)),
    ("V604", "name the type of one: vp.f32", lambda s: s.b.var("w", s.tile.type, shape=8)),
]  # fmt: skip

ACCESSES: list[tuple[str, str, Mistake]] = [
    ("B108", "read_write", lambda s: s.y.tile(0, 0, shape=(8, 8))),
    ("B108", "read_write", lambda s: s.x.__setitem__((0, 0), s.tile)),
    ("B108", "read_write", lambda s: s.x.tile_store((0, 0), s.tile)),
    ("B108", "read_write buffers", lambda s: s.y.atomic_add((0, 0), s.tile)),
    ("B108", "atomic_add works on", lambda s: s.h.atomic_add((0, 0), s.tile.cast(vp.f16))),
    ("B108", "stores an element", lambda s: s.y.tile_store((0, 0), s.f)),
    ("B108", "2 ascending axes of 'y'", lambda s: s.y.tile_store((0, 0), s.tile, axes=(1, 0))),
    ("B108", "2 ascending axes of 'y'", lambda s: s.y.tile_store((0, 0), s.tile, axes=1)),
    ("B108", "x[i]", lambda s: s.x + s.tile),
    ("B108", "x[i]", lambda s: s.tile * s.x),  # type: ignore[operator]  # the mistake under test
    ("V201", "'y' has no axis 2", lambda s: s.y.tile_store((0, 0), s.tile, axes=(0, 2))),
    ("V201", "vp.cast(x, vp.f32)", lambda s: s.y.__setitem__((0, 0), s.tile.cast(vp.f16))),
    ("V201", "vp.cast(x, vp.u32)", lambda s: s.u.atomic_add(0, s.tile.reshape(32))),
    ("V201", "a.tile(i, shape=128)", lambda s: s.u[s.ints]),
    ("V201", "vp.cast(i, vp.u32)", lambda s: s.x.tile(s.f, 0, shape=(8, 8))),
    ("V201", "slices", lambda s: s.x.tile(slice(0, 8), 0, shape=(8, 8))),  # type: ignore[arg-type]  # the mistake under test
    ("V201", "x.tile(0, 0, shape=(4, 8)) loads a tile", lambda s: s.x[0:4, 0:8]),  # type: ignore[index]  # the mistake under test
    ("V201", "x.tile(0, 3, shape=(4, None)) loads a tile", lambda s: s.x[:4, 3]),  # type: ignore[index]  # the mistake under test
    ("V201", "u.tile(2, shape=6) loads a tile", lambda s: s.u[2:8]),  # type: ignore[index]  # the mistake under test
    ("V201", "x.tile(i, j, shape=(8, 8)) loads a tile", lambda s: s.x[s.n : s.n + 4, 0:8]),  # type: ignore[index]  # the mistake under test
    ("V201", "x.tile(i, j, shape=(8, 8)) loads a tile", lambda s: s.x[0:4]),  # type: ignore[index]  # the mistake under test
    ("V201", "x.tile(i, j, shape=(8, 8)) loads a tile", lambda s: s.x[0:8:2, 0]),  # type: ignore[index]  # the mistake under test
    ("V201", "x.tile(i, j, shape=(8, 8)) loads a tile", lambda s: s.x[4:4, -1:]),  # type: ignore[index]  # the mistake under test
    ("V201", "y[0, 16] = t stores one", lambda s: s.y.__setitem__((slice(0, 8), slice(16, 20)), s.tile)),  # type: ignore[index]  # the mistake under test
    ("V202", "x.tile(i, j, shape=(...))", lambda s: s.x.tile(0, shape=(8, 8))),
    ("V202", "x.tile(i, j, shape=(...))", lambda s: s.x.tile(0, 0, 0, shape=(8, 8))),
    ("V202", "'x' has 2 axes, the shape of the tile 3", lambda s: s.x.tile(0, 0, shape=(8, 8, 8))),
    ("V202", "y[i, j]", lambda s: s.y.__setitem__(0, s.tile)),
    ("V202", "z.atomic_add((i, j), x)", lambda s: s.z.atomic_add(0, s.tile)),
    ("V202", "x.reshape", lambda s: s.u.__setitem__(0, s.tile.cast(u32))),
    ("V601", "an extent of a tile is a whole number", lambda s: s.x.tile(0, 0, shape=(8, s.n))),  # type: ignore[arg-type]  # the mistake under test
    ("V601", "an extent of a tile is a whole number, got None", lambda s: s.b.fill(0.0, None, vp.f32)),  # type: ignore[arg-type]  # the mistake under test
    ("V603", "b.fill(x, 1, vp.f32)", lambda s: s.z.atomic_add((0, 0), 1.0)),  # type: ignore[arg-type]  # the mistake under test
    ("V603", "got f32", lambda s: s.z.atomic_add((0, 0), s.f)),
    ("V604", "at least 1", lambda s: s.x.tile(0, 0, shape=(8, 0))),
    ("V604", "not 0", lambda s: s.x.tile(0, 0, shape=(None, None))),
    ("V604", "shape=(64, None)", lambda s: s.x.tile(0, 0, shape=(None, None))),
    ("V604", "at most 131072", lambda s: s.x.tile(0, 0, shape=(1024, 1024))),
    ("V604", "use smaller tiles, and a loop", lambda s: s.x.tile(0, 0, shape=(1024, 1024))),
    ("V604", "'vectors' has elements of f32x4, a tile scalars", lambda s: s.vectors.tile(0, shape=8)),
]  # fmt: skip

MISTAKES = [*VALUES, *STATEMENTS, *ACCESSES]


@pytest.mark.parametrize(("code", "hint", "mistake"), MISTAKES, ids=[f"{code}-{k}" for k, (code, _, _) in enumerate(MISTAKES)])
def test_a_wrong_call_is_refused_at_once(code: str, hint: str, mistake: Mistake) -> None:
    scene = Scene()
    with pytest.raises(vp.ValidationError) as caught:
        mistake(scene)
    assert caught.value.codes == (code,)
    (found,) = caught.value.diagnostics
    assert found.place is not None and Path(found.place.file).name == Path(__file__).name
    assert found.place.line == mistake.__code__.co_firstlineno or "Scene()" in found.place.source
    assert hint in str(caught.value) and found.help


def only_of_invocations(kind: type, here: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_") and not hasattr(here, name)]


@pytest.mark.parametrize("name", only_of_invocations(vp.ProgramBuilder, vp.TileBuilder))
def test_what_only_invocations_have_is_no_attribute_and_says_what_to_write(name: str) -> None:
    b = vp.TileBuilder("scene")
    assert not hasattr(b, name)
    with pytest.raises(AttributeError, match=f"B108 .* its builder no {name}") as caught:
        getattr(b, name)
    assert isinstance(caught.value, vp.ValidationError)
    (found,) = caught.value.diagnostics
    assert found.help and found.place is not None and Path(found.place.file).name == Path(__file__).name


@pytest.mark.parametrize("name", only_of_invocations(vp.ArrayHandle, vp.TileArrayHandle))
def test_what_only_arrays_of_invocations_have_is_no_attribute_and_says_what_to_write(name: str) -> None:
    x = Scene().x
    assert not hasattr(x, name)
    with pytest.raises(vp.ValidationError, match=rf"B108 .* has no {name}\n(.*\n)+.*x(\.atomic_add\(i, x\)|\[i\])"):
        getattr(x, name)


def test_other_names_are_missing_as_in_any_object() -> None:
    scene = Scene()
    for thing in (scene.b, scene.x):
        with pytest.raises(AttributeError, match=r"'Tile\w+' has no attribute 'nothing'") as caught:
            _ = thing.nothing  # type: ignore[attr-defined]  # the mistake under test
        assert not isinstance(caught.value, vp.ValidationError)
        assert not hasattr(thing, "_repr_html_")
    for name in ("x", "dtype", "_repr_html_", "__array_interface__"):
        assert not hasattr(scene.tile, name)


@pytest.mark.parametrize("op", [
    lambda x: x.reduce("add", 0), lambda x: x.scan("add", 0), lambda x: x.T, lambda x: x.reshape(1), lambda x: x.item(), lambda x: vp.mma(x, x, x),
])  # fmt: skip
def test_a_program_of_invocations_has_no_tiles(op: Callable[[vp.Expr], object]) -> None:
    b = vp.ProgramBuilder("invocations")
    x = b.param("x", vp.f32)
    assert x.shape == ()
    with pytest.raises(vp.ValidationError, match=r"(?s)'invocations' is a Program of invocations.*vp\.TileBuilder") as caught:
        op(x)
    assert caught.value.codes == ("V602",)


def test_a_function_of_a_program_takes_no_tiles() -> None:
    half = vp.function(lambda v: v * 0.5, types=[vp.f32], result=vp.f32)
    scene = Scene()
    with pytest.raises(vp.ValidationError, match=r"V201 v of \S+ is f32, got tile\(f32, 8, 4\)"):
        half(scene.tile)
    with pytest.raises(vp.ValidationError, match=r"B108 the function '\w+' has no tiles"):
        vp.function(lambda v: v.reduce("add", 0), types=[vp.f32], result=vp.f32)(scene.f)
    with pytest.raises(vp.ValidationError, match="B108 the parameter v has"):
        vp.function(lambda v: v * 0.5, types=[scene.tile.type], result=vp.f32)


def test_a_grid_is_asked_for_by_check_and_not_before() -> None:
    with vp.TileBuilder("nowhere") as b:  # here: nowhere
        b.write("y", vp.f32, 8)[0] = b.fill(0.0, 8, vp.f32)
    with pytest.raises(vp.ValidationError, match="says nothing of its grid") as caught:
        check(b.program)
    assert caught.value.codes == ("V605",)
    place = caught.value.diagnostics[0].place
    assert place is not None and place.source.endswith("# here: nowhere\n")


def test_hints_about_variables_name_the_element_and_the_shape() -> None:
    b = vp.TileBuilder("hints")
    x, y = b.read("x", vp.f32, 64), b.write("y", vp.f32, 64)
    total = b.fill(0.0, 64, vp.f32)
    with b.for_(0, 4):
        with pytest.warns(vp.ProgramWarning, match=r"B109 (.|\n)*b\.var\('v', vp\.f32, shape=\(64,\)\)"):
            total += x.tile(0, shape=64)
        inner = x.tile(0, shape=64)
    with pytest.raises(vp.ValidationError, match=r"V108 (.|\n)*inner = b\.var\('inner', vp\.f32, shape=\(64,\)\)"):
        y[0] = inner


def test_a_finished_builder_refuses() -> None:
    with vp.TileBuilder("done") as b:
        x = b.read_write("x", vp.f32, 8)
        b.grid(1)
        v = x.tile(0, shape=8)
        x[0] = v
    late: list[Callable[[], object]] = [
        lambda: v + 1, lambda: v.T, lambda: x.tile(0, shape=8), lambda: x.__setitem__(0, v), lambda: x.atomic_add(0, v), lambda: b.fill(0.0, 8, vp.f32),
        lambda: b.iota(0, 8), lambda: b.var("w", vp.f32, shape=8), lambda: b.grid(1),
    ]  # fmt: skip
    for call in late:
        with pytest.raises(vp.ValidationError) as caught:
            call()
        assert caught.value.codes == ("B103",)
