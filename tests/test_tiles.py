"""What tiles mean, computed here by plain loops over Python's numbers and NumPy's indexing, on every device."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import exact_floats
import numpy as np
import pytest
from device_kinds import open_device
from exact_floats import FORMATS
from test_generated import same_bits

import vyre_py as vp
from vyre_py.drivers.errors import KernelAssertion
from vyre_py.ir.language.tiles.tile_ops import MMA_TYPES, TILE_OPS
from vyre_py.ir.language.types import SCALARS, Type, bool_, decode, f8e4m3, f8e5m2, f32, f64, i32, i64, u8, u32, u64

Array = np.ndarray[Any, Any]

STRICT = ("reference", "cpu", "cuda")
EVERYWHERE = (*STRICT, "wgpu")
FOLDS = tuple(dict.fromkeys(row.fold for row in TILE_OPS.values() if row.fold))
FLOATS = {"add": exact_floats.add, "mul": exact_floats.mul, "min": exact_floats.least, "max": exact_floats.greatest}
WHOLE: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "mul": operator.mul, "min": min, "max": max, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
}  # fmt: skip
# Of one element, of less than the invocations, of a few more, and of several each; along axes that are shared and that are not.
SHAPES = ((1,), (45,), (70, 3), (3, 37), (3, 2, 5))


def word_of(t: Type) -> str:
    return f"u{t.size_bytes}"


def elements(rng: np.random.Generator, t: Type, shape: Sequence[int]) -> Array:
    """Numbers whose sums and products stay finite for a while, with all signs."""
    if t.is_float:
        return np.asarray(rng.integers(-60, 60, tuple(shape)) / 16 + 1 / 32).astype(t.dtype)
    if t is bool_:
        return rng.integers(0, 2, tuple(shape)).astype(bool)
    return rng.integers(0, 256, (*shape, t.size_bytes), dtype=np.uint8).view(word_of(t))[..., 0].view(t.dtype)


def fold(name: str, t: Type, a: int, b: int) -> int:
    """Two elements folded, all three as bits."""
    if t.is_float:
        return int(FLOATS[name](FORMATS[t], a, b))
    made = WHOLE[name](int(decode(t, a)), int(decode(t, b)))
    return made & ((1 << t.bits) - 1)


def identity(name: str, t: Type) -> int:
    """What an exclusive scan begins with, as bits."""
    whole = {"add": 0, "mul": 1, "or": 0, "xor": 0, "and": (1 << t.bits) - 1}
    if t is bool_:
        return int(name == "and")
    if t.is_float:
        f = FORMATS[t]
        return {"add": 0, "mul": f.one, "min": f.infinity, "max": f.infinity | f.sign}[name]
    least, most = (1 << (t.bits - 1), (1 << (t.bits - 1)) - 1) if t.is_signed else (0, (1 << t.bits) - 1)
    return {**whole, "min": most, "max": least}[name]


def reduced(name: str, t: Type, line: list[int]) -> list[int]:
    while len(line) > 1:
        h = 1
        while 2 * h < len(line):
            h *= 2
        line = [fold(name, t, line[i], line[i + h]) if i + h < len(line) else line[i] for i in range(h)]
    return line


def scanned(name: str, t: Type, line: list[int]) -> list[int]:
    d = 1
    while d < len(line):
        line = [fold(name, t, line[i], line[i - d]) if i >= d else line[i] for i in range(len(line))]
        d *= 2
    return line


def shifted(name: str, t: Type, line: list[int]) -> list[int]:
    return [identity(name, t), *scanned(name, t, line)[:-1]]


WAYS: dict[str, Callable[[str, Type, list[int]], list[int]]] = {"reduce": reduced, "inclusive": scanned, "exclusive": shifted}


def along(x: Array, axis: int, t: Type, made: Callable[[list[int]], list[int]]) -> Array:
    """Each line along an axis, as bits, made another."""
    lines = np.moveaxis(x.view(word_of(t)), axis, -1)
    out = [made([int(v) for v in lines[at]]) for at in np.ndindex(lines.shape[:-1])]
    return np.moveaxis(np.array(out, word_of(t)).reshape(*lines.shape[:-1], len(out[0])), -1, axis).view(t.dtype)


def assert_bits(got: Array, want: Array, what: object) -> None:
    assert got.shape == want.shape and got.dtype == want.dtype, what
    same = same_bits(np.ascontiguousarray(got), np.ascontiguousarray(want))
    assert same.all(), f"{what}: at {np.argwhere(~same)[:4].tolist()} {got[~same][:4]}, not {want[~same][:4]}"


def folding(t: Type, folds: Sequence[str]) -> tuple[vp.Program, dict[str, Array], dict[str, Array]]:
    """A Program that folds tiles of a type by these, along all axes by turns; its arguments, and what comes out."""
    rng = np.random.default_rng(len(t.name) + t.bits)
    given: dict[str, Array] = {}
    want: dict[str, Array] = {}
    with vp.TileBuilder(f"folds_{t}") as b:
        inputs = []
        for number, shape in enumerate(SHAPES):
            inputs.append(b.read(f"x{number}", t, *shape))
            given[f"x{number}"] = elements(rng, t, shape)
        b.grid(1)
        turn = 0
        for name, way in product(folds, WAYS):
            if t not in TILE_OPS[f"reduce_{name}"].of:
                continue
            for number in (turn % 5, (turn + 2) % 5):
                shape = SHAPES[number]
                axis = turn % len(shape)
                x = inputs[number].tile(*[0] * len(shape), shape=shape)
                made = x.reduce(name, axis) if way == "reduce" else x.scan(name, axis, exclusive=way == "exclusive")
                out = f"{way}_{name}_{number}_{axis}"
                b.write(out, t, *made.shape)[tuple([0] * len(shape))] = made
                want[out] = along(given[f"x{number}"], axis, t, partial(WAYS[way], name, t))
            turn += 1
    return b.program, given, want


FOLDED = [t for t in SCALARS.values() if any(t in TILE_OPS[f"reduce_{name}"].of for name in FOLDS)]


@pytest.mark.parametrize("kind", EVERYWHERE)
@pytest.mark.parametrize("t", FOLDED, ids=str)
def test_folds_go_in_their_order(kind: str, t: Type) -> None:
    if kind == "wgpu" and t not in (bool_, u8, i32, u32):
        pytest.skip("floats are the device's own there, and these integers go the same way")
    device = open_device(kind)
    # Shaders with many barriers take long to compile.
    folds = {bool_: ("xor",), u8: ("add", "max"), i32: ("min",), u32: ("mul",)}[t] if kind == "wgpu" else FOLDS
    program, given, want = folding(t, folds)
    got = device.compile_native(program, vp.CompileOptions(opt=0 if kind == "cpu" and t.bits < 32 else 3)).dispatch(given)
    for name, array in want.items():
        assert_bits(got[name], array, name)


# ---------------------------------------------------------------- products

PRODUCTS = [(a, b, to) for (a, b), sums in MMA_TYPES.items() for to in sorted(sums, key=str)]
M, K, N = 5, 7, 6


def multiplied(a: Array, b: Array, acc: Array, to: Type) -> Array:
    """acc = a b + acc, k ascending, each step rounded once."""
    left, right, sums = (x.astype(np.float64).tolist() if to.is_float else x.astype(object).tolist() for x in (a, b, acc))
    out = acc.view(word_of(to)).copy()
    for i, j in np.ndindex(out.shape):
        if to.is_float:
            f, total = FORMATS[to], int(out[i, j])
            for k in range(len(right)):
                total = exact_floats.fma(f, f.rounded(exact_floats.Fraction(left[i][k])), f.rounded(exact_floats.Fraction(right[k][j])), total)
        else:
            total = int(sums[i][j]) + sum(int(left[i][k]) * int(right[k][j]) for k in range(len(right)))
        out[i, j] = total & ((1 << to.bits) - 1)
    return out.view(to.dtype)


@pytest.mark.parametrize("kind", EVERYWHERE)
@pytest.mark.parametrize("to", sorted({to for _, _, to in PRODUCTS}, key=str), ids=str)
def test_products_go_in_their_order(kind: str, to: Type) -> None:
    """Products of all types whose sum has this type, with values whose sums have to be rounded."""
    if kind == "wgpu" and to.is_float:
        pytest.skip("floats are the device's own there")
    device, rng = open_device(kind), np.random.default_rng(7)
    given: dict[str, Array] = {"acc": elements(rng, to, (M, N))}
    if to.is_integer:
        given["acc"][0] = np.iinfo(to.dtype).max
    want: dict[str, Array] = {}
    with vp.TileBuilder("products") as b:
        start = b.read("acc", to, M, N)
        b.grid(1)
        for left, right, _ in [one for one in PRODUCTS if one[2] is to]:
            name = f"{left}_{right}"
            given[f"a_{name}"], given[f"b_{name}"] = elements(rng, left, (M, K)), elements(rng, right, (K, N))
            if left.size_bytes > 1:
                given[f"a_{name}"] = (given[f"a_{name}"].astype(np.float64) / 3).astype(left.dtype)
            x, y = b.read(f"a_{name}", left, M, K), b.read(f"b_{name}", right, K, N)
            b.write(f"c_{name}", to, M, N)[0, 0] = vp.mma(x.tile(0, 0, shape=(M, K)), y.tile(0, 0, shape=(K, N)), start.tile(0, 0, shape=(M, N)))
            want[f"c_{name}"] = multiplied(given[f"a_{name}"], given[f"b_{name}"], given["acc"], to)
    got = device.compile_native(b.program).dispatch(given)
    for name, array in want.items():
        assert_bits(got[name], array, name)


# ---------------------------------------------------------------- memory

OFFSETS: dict[Type, tuple[int, ...]] = {
    u32: (0, 5, 6, 7, (1 << 31) - 1, 1 << 31, (1 << 32) - 3, (1 << 32) - 1),
    i32: (-(1 << 31), -4, -3, -1, 0, 5, 6, 7, (1 << 31) - 2, (1 << 31) - 1),
    u64: (0, 5, 7, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 2, (1 << 64) - 1),
    i64: (-(1 << 63), -(1 << 32), -3, -1, 0, 6, (1 << 32) - 2, 1 << 32, (1 << 63) - 3, (1 << 63) - 1),
}  # fmt: skip


def cut(x: Array, offsets: Sequence[int], extents: Sequence[int]) -> Array:
    """A tile of an array, element by element."""
    shape = tuple([extent for extent in extents if extent])
    out = np.zeros(shape, x.dtype)
    for at in np.ndindex(*shape):
        steps = iter(at)
        index = tuple([offset + (next(steps) if extent else 0) for offset, extent in zip(offsets, extents, strict=True)])
        if all(0 <= i < size for i, size in zip(index, x.shape, strict=True)):
            out[at] = x[index]
    return out


def put(x: Array, offsets: Sequence[int], extents: Sequence[int], tile: Array, add: bool = False) -> None:
    """A tile stored to an array or added, element by element."""
    for at in np.ndindex(tile.shape):
        steps = iter(at)
        index = tuple([offset + (next(steps) if extent else 0) for offset, extent in zip(offsets, extents, strict=True)])
        if all(0 <= i < size for i, size in zip(index, x.shape, strict=True)):
            x[index] = x[index] + tile[at] if add else tile[at]


@pytest.mark.parametrize("kind", EVERYWHERE)
@pytest.mark.parametrize("t", list(OFFSETS), ids=str)
def test_edges_never_wrap(kind: str, t: Type) -> None:
    """Every offset at the first axis of a memory and at the last, given when it runs, for a tile of both axes and of one."""
    device = open_device(kind)
    with vp.TileBuilder("edges") as b:
        p, q = b.param("p", t), b.param("q", t)
        x, y, z, s = b.read("x", u32, 6, 7), b.write("y", u32, 4, 3), b.read_write("z", u32, 7, 6), b.read_write("s", u32, 6, 7)
        one, line = b.write("one", u32, 1), b.read_write("line", u32, 6, 7)
        b.grid(1)
        tile = x.tile(p, q, shape=(4, 3))
        y[0, 0] = tile
        z[q, p] = tile.T
        s.atomic_add((p, q), tile + 1)
        line.tile_store((p, q), b.iota(0, 5) + 100, axes=0)
        one[0] = x[p, q]
    pipeline = device.compile_native(b.program)
    source = np.arange(1, 43, dtype=np.uint32).reshape(6, 7)
    for first, last in [(a, OFFSETS[t][(number * 3 + 1) % len(OFFSETS[t])]) for number, a in enumerate(OFFSETS[t])] + [(a, a) for a in OFFSETS[t]]:
        given = {"x": source, "z": np.zeros((7, 6), np.uint32), "s": source * 3, "line": source * 2}
        want = {name: value.copy() for name, value in given.items()}
        tile = cut(source, (first, last), (4, 3))
        put(want["z"], (last, first), (3, 4), tile.T)
        put(want["s"], (first, last), (4, 3), tile + 1, add=True)
        put(want["line"], (first, last), (5, 0), np.arange(100, 105, dtype=np.uint32))
        inside = 0 <= first < 6 and 0 <= last < 7
        want |= {"y": tile, "one": np.array([source[first, last] if inside else 0], np.uint32)}
        got = pipeline.dispatch({**given, "p": first, "q": last})
        for name in ("y", "z", "s", "line", "one"):
            assert_bits(got[name], want[name], (name, first, last))


MOVED = [t for t in SCALARS.values() if t.size_bytes in (1, 2) or t in (f32, i64, f64)]


@pytest.mark.parametrize("kind", EVERYWHERE)
@pytest.mark.parametrize("t", MOVED, ids=str)
def test_elements_move_as_they_are(kind: str, t: Type) -> None:
    """Transposes of two and three axes, reshapes, axes without extents, and fills, of any bits."""
    if kind == "wgpu" and t is f64:
        pytest.skip("no f64 there")
    if kind == "wgpu" and t.is_float:
        pytest.skip("bits of NaN and small numbers are the device's own there")
    device, rng = open_device(kind), np.random.default_rng(3)
    x = rng.integers(0, 2 if t is bool_ else 256, (3, 4, 5, t.size_bytes), dtype=np.uint8).view(word_of(t))[..., 0].view(t.dtype)
    want: dict[str, Array] = {}
    with vp.TileBuilder("moves") as b:
        source, p = b.read("x", t, 3, 4, 5), b.param("p", t)
        b.grid(1)
        cube = source.tile(0, 0, 0, shape=(3, 4, 5))
        for axes in ((0, 2, 1), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
            name = "cube_" + "".join(map(str, axes))
            want[name] = x.transpose(axes)
            b.write(name, t, *want[name].shape)[0, 0, 0] = cube.transpose(*axes)
        plane = source.tile(1, 0, 1, shape=(None, 4, 3))
        want["plane"], want["row"], want["column"] = x[1, :, 1:4].T, np.zeros((2, 3, 6), x.dtype), x[:, 2, 4]
        want["row"][1, 2, 1:5] = x[2, :, 0]
        b.write("plane", t, 3, 4)[0, 0] = plane.T
        b.write("row", t, 2, 3, 6).tile_store((1, 2, 1), source.tile(2, 0, 0, shape=(None, 4, None)), axes=2)
        b.write("column", t, 3)[0] = source.tile(0, 2, 4, shape=(3, None, None))
        for shape in ((60,), (12, 5), (2, 30), (5, 2, 6)):
            name = "as_" + "_".join(map(str, shape))
            want[name] = x.reshape(shape)
            b.write(name, t, *shape)[tuple([0] * len(shape))] = cube.reshape(shape)
        want["filled"] = np.broadcast_to(x[1, 1, 1], (7, 3))
        b.write("filled", t, 7, 3)[0, 0] = b.fill(p, (7, 3))
    got = device.compile_native(b.program).dispatch({"x": x, "p": x[1, 1, 1]})
    for name, array in want.items():
        assert_bits(got[name].view(word_of(t)), np.ascontiguousarray(array).view(word_of(t)), name)


@pytest.mark.parametrize("kind", EVERYWHERE)
def test_extents_of_one_go_with_any(kind: str) -> None:
    device = open_device(kind)
    x, y = np.arange(1, 8, dtype=np.uint32), np.arange(3, 43, dtype=np.uint32)
    with vp.TileBuilder("outer") as b:
        left, right = b.read("x", u32, 7), b.read("y", u32, 40)
        out, k = b.write("out", u32, 7, 40), b.write("k", u32, 1, 7, 40)
        b.grid(1)
        column, row = left.tile(0, shape=7).reshape((7, 1)), right.tile(0, shape=40).reshape((1, 40))
        table = column * row + b.iota(1, (7, 40)) * 2 + b.iota(0, (7, 1)).reduce("add", 0)
        out[0, 0] = vp.select(column > 3, table, row)
        k[0, 0, 0] = table.reshape((1, 7, 40)) - row.reshape((1, 1, 40))
    got = device.compile_native(b.program).dispatch({"x": x, "y": y})
    table = x[:, None] * y + np.arange(40, dtype=np.uint32) * 2 + np.uint32(21)
    assert_bits(got["out"], np.where(x[:, None] > 3, table, y), "out")
    assert_bits(got["k"], (table - y)[None], "k")


# ---------------------------------------------------------------- workgroups


@pytest.mark.parametrize("kind", EVERYWHERE)
def test_workgroups_add_and_scan(kind: str) -> None:
    """A scan over the grid of what each workgroup has summed, and atomic adds to the same elements from many workgroups, which follow it: some devices
    compute twice what stands before a scan."""
    device, rng = open_device(kind), np.random.default_rng(5)
    with vp.TileBuilder("sums") as b:
        n = b.dim("n")
        x, bins, before, rows = b.read("x", u32, n, 20), b.read_write("bins", u32, 20), b.write("before", u32, n), b.read_write("rows", i32, 3)
        b.grid(n)
        w = b.workgroup_id(0)
        row = x.tile(w, 0, shape=(None, 20))
        before[w] = b.grid_scan("add", row.reduce("add", 0).item())
        bins.atomic_add(0, row)
        rows.atomic_add(w % 3, b.fill(-1, 1, i32))
    numbers = rng.integers(0, 1 << 32, (137, 20), dtype=np.uint32)
    got = device.compile_native(b.program).dispatch({"x": numbers, "bins": np.ones(20, np.uint32), "rows": np.zeros(3, np.int32)})
    sums = numbers.sum(axis=1, dtype=np.uint32)
    assert_bits(got["bins"], numbers.sum(axis=0, dtype=np.uint32) + np.uint32(1), "bins")
    assert_bits(got["rows"], np.array([-46, -46, -45], np.int32), "rows")
    inclusive = np.cumsum(sums, dtype=np.uint32)
    assert np.array_equal(got["before"], inclusive) or np.array_equal(got["before"], inclusive - sums)


@pytest.mark.parametrize("kind", ["reference", "cpu", "wgpu", "cuda"])
def test_asserts_and_prints_are_said_once_for_each_workgroup(kind: str) -> None:
    device = open_device(kind)
    with vp.TileBuilder("told") as b:
        n = b.dim("n")
        x, y = b.read("x", u32, n, 8), b.write("y", u32, n)
        b.grid(n)
        w = b.workgroup_id(0)
        most = x.tile(w, 0, shape=(None, 8)).reduce("max", 0).item()
        with b.if_(most > 10):
            b.print("row {} has {}", w, most)
        b.assert_(most < 100, "row {} is too large", w)
        y[w] = most
    pipeline = device.compile_native(b.program)
    lines: list[str] = []
    numbers = np.array([[1] * 8, [20] + [2] * 7, [3] * 7 + [30]], np.uint32)
    config = vp.DispatchConfig(on_print=lines.append)
    assert pipeline.dispatch({"x": numbers}, config=config)["y"].tolist() == [1, 20, 30]
    assert sorted(lines) == ["row 1 has 20", "row 2 has 30"]
    numbers[1, 3] = 100
    with pytest.raises(KernelAssertion, match="row 1 is too large") as caught:
        pipeline.dispatch({"x": numbers}, config=config)
    assert (caught.value.workgroup_id, caught.value.local_id) == ((1, 0, 0), (0, 0, 0))


def test_f8_products_are_of_all_pairs() -> None:
    pairs = {(a, b) for a, b, to in PRODUCTS if to is f32 and a.size_bytes == 1}
    assert pairs == set(product((f8e4m3, f8e5m2), repeat=2))
