"""What the interpreter says of tensor cores, against the same in fractions, and against tensor cores where they are."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

import numpy as np
import pytest
from device_kinds import open_device

import vyre_py as vp
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.tiles.tile_ops import TILE_OPS
from vyre_py.ir.language.types import Array, Type, tile_of
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.llvm.gpu.architectures import runs_on

ASKED, OF_WARPS = [vp.CompileOptions(tensor=model) for model in ("sm_90", "sm_90:warps")]
# Types of the two factors and of the sum.
TYPES = [(vp.bf16, vp.bf16, vp.f32), (vp.f16, vp.f16, vp.f32), (vp.f32, vp.f32, vp.f32), (vp.f16, vp.f16, vp.f16), (vp.f64, vp.f64, vp.f64)]
BYTES = [(a, b, vp.f32) for a in (vp.f8e4m3, vp.f8e5m2) for b in (vp.f8e4m3, vp.f8e5m2)]


def exponent(x: Fraction, least: int) -> int:
    """floor(log2(|x|)), at least the least, also for zero."""
    if not x:
        return least
    e = abs(x).numerator.bit_length() - abs(x).denominator.bit_length()
    if Fraction(2) ** e > abs(x):
        e -= 1
    return max(e, least)


def cut(x: Fraction, unit: Fraction) -> Fraction:
    """Toward zero to a multiple of a unit."""
    whole = abs(x) / unit
    return (-1 if x < 0 else 1) * Fraction(whole.numerator // whole.denominator) * unit


def chain(a: list[float], b: list[float], start: float, types: tuple[Type, Type, Type]) -> float:
    """One element: the products of 32 bytes and the sum so far at once, of 25 bits below the greatest exponent, then cut to an f32; of 13 bits and cut to 14
    where factors are bytes; rounded to the nearest where the sum is an f16; of f64 each product by itself, rounded."""
    total, at_once, bits = Fraction(start), 32 // types[0].size_bytes, 13 if types[0].size_bytes == 1 else 25
    if types[0] is vp.f64:
        for x, y in zip(a, b, strict=True):
            total = Fraction(float(total + Fraction(x) * Fraction(y)))  # which Python rounds once
        return float(total)
    for k in range(0, len(a), at_once):
        pairs = [(Fraction(x), Fraction(y)) for x, y in zip(a[k : k + at_once], b[k : k + at_once], strict=True)]
        exponents = [exponent(x, types[0].least_exponent) + exponent(y, types[1].least_exponent) for x, y in pairs if x * y]
        top = max([*exponents, exponent(total, -126)])
        unit = Fraction(2) ** (top - bits)
        total = sum([cut(x * y, unit) for x, y in pairs], cut(total, unit))
        if types[2] is vp.f16:
            total = Fraction(float(np.float16(float(total))))  # a sum has fewer bits than an f64
        else:
            total = cut(total, Fraction(2) ** (exponent(total, -126) - (13 if bits == 13 else 23)))
    return float(total)


def chain_of_warps(a: list[float], b: list[float], start: float) -> float:
    """One element of floats of 8 bits: each 32 products have a sum of their own, as f16, whose half words go first; it is added as an f32."""
    total = start
    for k in range(0, len(a), 32):
        own, whole = 0.0, range(k, min(k + 32, len(a)))
        for half in range(2):
            chosen = [at for at in whole if at % 4 // 2 == half]
            own = chain([a[at] for at in chosen], [b[at] for at in chosen], own, (vp.f16, vp.f16, vp.f32))
        total = float(np.float32(total + own))  # of two f32, so that the f64 between does not change it
    return total


def taken(x: float, type_: Type) -> float:
    """A factor as a tensor core takes it: of f32 eleven bits, what is below cut off."""
    unit = Fraction(2) ** (exponent(Fraction(x), -126) - 10)
    return float(cut(Fraction(x), unit)) if type_ is vp.f32 else x


def numbers(rng: np.random.Generator, shape: tuple[int, ...], type_: Type, spread: int) -> Array:
    """Random numbers of a type, over so many powers of two to each side of 1."""
    made = rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread + 1, shape)
    found: Array = made.astype(np.float64 if type_ is vp.f64 else np.float32).astype(type_.dtype)
    return found


@pytest.mark.parametrize("types", [*TYPES, *BYTES], ids=str)
@pytest.mark.parametrize("spread", [0, 3, 12], ids="to 2^{}".format)
def test_products_are_those_of_fractions(types: tuple[Type, Type, Type], spread: int) -> None:
    first, second, sums = types
    rng, spread = np.random.default_rng(11), min(spread, 3) if first.size_bytes == 1 or sums is vp.f16 else spread
    a, b = numbers(rng, (1, 4, 72), first, spread), numbers(rng, (1, 72, 5), second, spread)
    acc = rng.standard_normal((1, 4, 5)).astype(sums.dtype)
    made = TILE_OPS["mma_sm90"].evaluate(tile_of(sums, (4, 5)), (), a, b, acc)
    for i in range(4):
        for j in range(5):
            row, column = ([taken(float(x), type_) for x in line] for type_, line in zip(types[:2], (a[0, i], b[0, :, j]), strict=True))
            assert made[0, i, j] == sums.dtype.type(chain(row, column, float(acc[0, i, j]), types)), (i, j)


@pytest.mark.parametrize("types", BYTES, ids=str)
@pytest.mark.parametrize("spread", [0, 3], ids="to 2^{}".format)
def test_products_of_bytes_by_warps_are_those_of_fractions(types: tuple[Type, Type, Type], spread: int) -> None:
    rng = np.random.default_rng(14)
    a, b = numbers(rng, (1, 4, 72), types[0], spread), numbers(rng, (1, 72, 5), types[1], spread)
    acc = 2.0**spread * rng.standard_normal((1, 4, 5)).astype(np.float32)
    made = TILE_OPS["mma_sm90_warps"].evaluate(tile_of(vp.f32, (4, 5)), (), a, b, acc)
    for i in range(4):
        for j in range(5):
            assert made[0, i, j] == chain_of_warps(a[0, i].astype(float).tolist(), b[0, :, j].astype(float).tolist(), float(acc[0, i, j])), (i, j)
    assert (made != TILE_OPS["mma_sm90"].evaluate(tile_of(vp.f32, (4, 5)), (), a, b, acc)).any()


def test_what_is_not_finite_stays_so() -> None:
    a = np.array([[[1, np.inf], [1, np.nan], [np.inf, np.inf], [3e38, 3e38]]], np.float32).astype(vp.bf16.dtype)
    b = np.array([[[1, 1], [2, -2]]], np.float32).astype(vp.bf16.dtype)
    with np.errstate(all="ignore"):  # as the interpreter has it
        made = TILE_OPS["mma_sm90"].evaluate(tile_of(vp.f32, (4, 2)), (), a, b, np.zeros((1, 4, 2), np.float32))[0]
    assert made[0].tolist() == [np.inf, -np.inf]
    assert np.isnan(made[1]).all()
    assert made[2, 0] == np.inf and np.isnan(made[2, 1])
    assert made[3, 0] == np.inf and np.isfinite(made[3, 1])


def matmul(
    type_: Type, *, transposed: bool, tile: tuple[int, int, int] = (64, 64, 64), second: Type | None = None, to: Type | None = None, sums: Type | None = None,
    tensor: bool = True,
) -> Program:  # fmt: skip
    (m, n, k), sums, second = tile, sums or (vp.f32 if type_.is_float else vp.i32), second or type_
    with vp.TileBuilder("matmul") as b:
        rows, columns, depth = b.dim("rows"), b.dim("columns"), b.dim("depth")
        x, z = b.read("x", type_, rows, depth), b.write("z", to or sums, rows, columns)
        y = b.read("y", second, columns, depth) if transposed else b.read("y", second, depth, columns)
        b.grid(vp.ceil_div(columns, n), vp.ceil_div(rows, m))
        i, j = b.workgroup_id(1) * m, b.workgroup_id(0) * n
        acc = b.var("acc", sums, shape=(m, n))
        with b.for_(0, depth, k) as p:
            factor = y.tile(j, p, shape=(n, k)).T if transposed else y.tile(p, j, shape=(k, n))
            acc.set(vp.mma(x.tile(i, p, shape=(m, k)), factor, acc, tensor=tensor))
        z[i, j] = acc if to is None else vp.cast(acc, to)
    return b.program


def special(rng: np.random.Generator, shape: tuple[int, int], type_: Type, kind: str) -> Array:
    """Factors of a kind, which the tensor cores may treat by rules of their own."""
    powers = {1: (5, -8, -6), 2: (12, -22, -15)}.get(0 if type_ is vp.bf16 else type_.size_bytes, (63, -128, -60))
    scale = 2.0 ** dict(zip(("huge", "tiny", "subnormal"), powers, strict=True)).get(kind, 0)
    made = rng.standard_normal(shape) * scale * 2.0 ** rng.integers(-10, 11, shape) ** (kind in ("wide", "subnormal"))
    made = np.abs(made) if kind == "positive" else made
    with np.errstate(over="ignore"):
        found: Array = made.astype(np.float64 if type_ is vp.f64 else np.float32).astype(type_.dtype)
    if kind == "special":
        found.reshape(-1)[rng.integers(0, found.size, 6)] = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0], np.float32).astype(type_.dtype)
    return found


KINDS = ["normal", "wide", "positive", "subnormal", "tiny", "huge", "special"]


def assert_every_bit(
    arch: str, types: tuple[Type, Type, Type], *, transposed: bool, kind: str, depth: int, tensor: bool = True, options: vp.CompileOptions = ASKED
) -> None:
    """A product on the GPU has the interpreter's bits."""
    device = opened()
    program, rng = matmul(types[0], second=types[1], sums=types[2], transposed=transposed, tile=(64, 64, depth), tensor=tensor), np.random.default_rng(7)
    x, y = special(rng, (64, 256), types[0], kind), special(rng, (64, 256) if transposed else (256, 64), types[1], kind)
    made = device.load(vp.compile_native(program, [arch], options)).dispatch({"x": x, "y": y})["z"]
    meant = vp.device("reference").compile_native(program, options).dispatch({"x": x, "y": y})["z"]
    assert np.array_equal(made, meant, equal_nan=True), f"{np.sum((made != meant) & ~(np.isnan(made) & np.isnan(meant)))} of {made.size}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("transposed", [False, True], ids=["as it is", "transposed"])
@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_90"])
def test_tensor_cores_give_every_bit_of_the_interpreter(arch: str, types: tuple[Type, Type, Type], transposed: bool, kind: str) -> None:
    assert_every_bit(arch, types, transposed=transposed, kind=kind, depth=16 if types[0] is vp.f64 else 64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("types", BYTES, ids=str)
def test_products_of_bytes_by_warpgroups_have_every_bit_of_the_interpreter(types: tuple[Type, Type, Type], kind: str) -> None:
    assert_every_bit("sm_90a", types, transposed=True, kind=kind, depth=128)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("transposed", [False, True], ids=["as it is", "transposed"])
@pytest.mark.parametrize("types", BYTES, ids=str)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_90"])
def test_products_of_bytes_by_warps_have_every_bit_of_the_interpreter(arch: str, types: tuple[Type, Type, Type], transposed: bool, kind: str) -> None:
    assert_every_bit(arch, types, transposed=transposed, kind=kind, depth=128, options=OF_WARPS)


@pytest.mark.parametrize("kind", KINDS)
def test_strict_products_of_f64_on_tensor_cores_have_every_bit_of_the_interpreter(kind: str) -> None:
    assert_every_bit("sm_90", (vp.f64, vp.f64, vp.f64), transposed=False, kind=kind, depth=16, tensor=False)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("head", "tiles"), [(64, (128, 64)), (128, (128, 128)), (64, (64, 128))], ids=str)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_90"])
def test_attention_has_every_bit_of_the_interpreter(arch: str, head: int, tiles: tuple[int, int], causal: bool) -> None:
    """Products one behind the other, of which the second has its first factor in registers, and sums of rows."""
    device = open_device("cuda")
    if device.target.arch != "sm_90":
        pytest.skip(f"{device.name} is {device.target.arch}: its tensor cores are not those of compute capability 9.0")
    program, rng = vp.ops.attention(vp.bf16, head, causal=causal, tensor="sm_90", tiles=tiles), np.random.default_rng(13)
    for m, n in ((150, 210), (40, 1), (1, 300), (130, 0)):
        arrays = {name: numbers(rng, (1, heads, rows, head), vp.bf16, 1) for name, heads, rows in (("q", 2, m), ("k", 1, n), ("v", 1, n))}
        made = device.load(vp.compile_native(program, [arch])).dispatch(arrays)["out"]
        meant = vp.device("reference").compile_native(program).dispatch(arrays)["out"]
        assert np.array_equal(made, meant), (m, n, int(np.sum(made != meant)))


LARGE: Final = (128, 256, 64)


def opened() -> Any:
    """The GPU, if its tensor cores are those that the interpreter knows."""
    device = open_device("cuda")
    if device.target.arch != "sm_90":
        pytest.skip(f"{device.name} is {device.target.arch}: its tensor cores are not those of compute capability 9.0")
    return device


def assert_sampled(program: Program, x: Array, y: Array, z: Array, *, transposed: bool) -> None:
    """Rows and columns of a product, some in each tile, have every bit of the interpreter's."""
    rows, columns = np.arange(0, x.shape[0], 37), np.arange(0, z.shape[1], 53)
    given = {"x": x[rows], "y": np.ascontiguousarray(y[columns] if transposed else y[:, columns])}
    meant = vp.device("reference").compile_native(program, ASKED).dispatch(given)["z"]
    found = z[np.ix_(rows, columns)]
    assert np.array_equal(found, meant, equal_nan=True), f"{np.sum(found != meant)} of {meant.size}"


@pytest.mark.parametrize("transposed", [False, True], ids=["as it is", "transposed"])
@pytest.mark.parametrize("to", [vp.bf16, vp.f32], ids=str)
@pytest.mark.parametrize("size", [(2112, 4104, 200), (2100, 4103, 65), (4096, 4096, 64), (1000, 2056, 512), (300, 520, 8)], ids=str)
def test_many_tiles_have_every_bit_of_the_interpreter(size: tuple[int, int, int], to: Type, transposed: bool) -> None:
    """Whole and ragged; loops of one turn, and of more than there are strips."""
    device, (m, n, k), rng = opened(), size, np.random.default_rng(9)
    program = matmul(vp.bf16, transposed=transposed, tile=LARGE, to=to)
    x, y = numbers(rng, (m, k), vp.bf16, 2), numbers(rng, (n, k) if transposed else (k, n), vp.bf16, 2)
    y.reshape(-1)[rng.integers(0, y.size, 3)] = np.array([np.nan, np.inf, -np.inf], np.float32).astype(y.dtype)
    pipeline = device.compile_native(program)
    assert_sampled(program, x, y, pipeline.dispatch({"x": x, "y": y})["z"], transposed=transposed)


def test_products_of_warpgroups_without_turns_and_of_other_arguments_and_grids() -> None:
    device, rng = opened(), np.random.default_rng(10)
    program = matmul(vp.bf16, transposed=False, tile=LARGE)
    pipeline = device.compile_native(program)
    nothing = pipeline.dispatch({"x": np.zeros((600, 0), vp.bf16.dtype), "y": np.zeros((0, 520), vp.bf16.dtype)})["z"]
    assert nothing.shape == (600, 520) and not nothing.any()
    xs, y = [numbers(rng, (4096, 256), vp.bf16, 2) for _ in range(2)], numbers(rng, (256, 4096), vp.bf16, 2)
    first, second, right, z = *map(device.upload, xs), device.upload(y), device.allocate((4096, 4096), vp.f32)
    launch = pipeline.bind({"x": first, "y": right, "z": z})
    launch()
    assert_sampled(program, xs[0], y, device.download(z), transposed=False)
    launch.set(x=second)()
    assert_sampled(program, xs[1], y, device.download(z), transposed=False)
    graph = device.capture(launch)
    graph.set(launch, x=first)()
    assert_sampled(program, xs[0], y, device.download(z), transposed=False)
    entry = pipeline.callable()
    entry(x=second, y=right, z=z)
    assert_sampled(program, xs[1], y, device.download(z), transposed=False)
    assert not entry.explain(x=second, y=right, z=z)
    device.sequence(vp.fill_step(z, -1.0), pipeline.bind({"x": first, "y": right, "z": z}, config=vp.DispatchConfig(grid=(3, 2, 1))))()
    made = device.download(z)
    assert_sampled(program, xs[0][:256], y[:, :768], made[:256, :768], transposed=False)
    assert (made[256:] == -1.0).all() and (made[:, 768:] == -1.0).all()


@pytest.mark.parametrize("shape", ["medium", "large"])
@pytest.mark.parametrize(
    "finish",
    [{"bias": True}, {"residual": True}, *[{"bias": True, "residual": True, "scaled": True, "activation": name} for name in vp.ops.products.ACTIVATIONS]],
    ids=lambda finish: "-".join(str(value) for value in finish if value != "activation") + str(finish.get("activation", "")),
)
def test_what_follows_products_has_every_bit_of_the_interpreter(finish: dict[str, Any], shape: str) -> None:
    """Whole and ragged; some places for each workgroup, and fewer places than workgroups."""
    device, rng = opened(), np.random.default_rng(15)
    program = vp.ops.matmul(vp.bf16, vp.bf16, tiles=shape, **finish)
    pipeline = device.compile_native(program)
    for m, n, k in ((4096, 2048, 128), (264, 520, 72), (301, 515, 65)):
        rows, columns = np.arange(0, m, 97), np.arange(0, n, 53)
        x, y = numbers(rng, (m, k), vp.bf16, 1), numbers(rng, (k, n), vp.bf16, 1)
        added, kept = numbers(rng, (n,), vp.bf16, 1), numbers(rng, (m, n), vp.bf16, 1)
        beside = {"bias": (added, added[columns]), "residual": (kept, kept[np.ix_(rows, columns)]), "scaled": (0.375, 0.375)}
        named = {("scale" if name == "scaled" else name): pair for name, pair in beside.items() if name in finish}
        made = pipeline.dispatch({"a": x, "b": y, **{name: whole for name, (whole, _) in named.items()}})["c"]
        given = {"a": x[rows], "b": np.ascontiguousarray(y[:, columns]), **{name: some for name, (_, some) in named.items()}}
        meant = vp.device("reference").compile_native(program, ASKED).dispatch(given)["c"]
        assert np.array_equal(made[np.ix_(rows, columns)], meant, equal_nan=True), (m, n, k)


def test_quotients_beside_products_of_warpgroups_are_rounded_correctly() -> None:
    """They are computed without the function that the assembler has for them: ordinary numbers, all bit patterns, and what is not finite."""
    device, rng = opened(), np.random.default_rng(16)
    with vp.TileBuilder("quotients") as b:
        n = b.dim("n")
        x, y, p, q = b.read("x", vp.bf16, 64, 64), b.read("y", vp.bf16, 64, 64), b.read("p", vp.f32, n, 64), b.read("q", vp.f32, n, 64)
        z, r = b.write("z", vp.f32, 64, 64), b.write("r", vp.f32, n, 64)
        b.grid(vp.ceil_div(n, 64))
        acc, i = b.var("acc", vp.f32, shape=(64, 64)), b.workgroup_id(0) * 64
        with b.for_(0, 64, 64) as k:
            acc.set(vp.mma(x.tile(0, k, shape=(64, 64)), y.tile(k, 0, shape=(64, 64)), acc, tensor=True))
        z[0, 0] = acc
        r[i, 0] = p.tile(i, 0, shape=(64, 64)) / q.tile(i, 0, shape=(64, 64))
    pipeline = device.load(vp.compile_native(b.program, ["sm_90a"]))
    few = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.0**-149, -(2.0**-126), 3.4e38, -3.0, 1e-40], np.float32)
    bits = rng.integers(0, 1 << 32, (2, 4096, 64), dtype=np.uint32).view(np.float32)
    near = (rng.standard_normal((2, 4096, 64)) * 2.0 ** rng.integers(-70, 70, (2, 4096, 64))).astype(np.float32)
    whole = rng.integers(1, 1 << 24, (2, 4096, 64)).astype(np.float32) * np.array([2.0**-149, 1.0], np.float32)[:, np.newaxis, np.newaxis]
    ends = np.stack([np.resize(np.repeat(few, len(few)), (64, 64)), np.resize(np.tile(few, len(few)), (64, 64))])
    zeros = np.zeros((64, 64), vp.bf16.dtype)
    for above, below in (bits, near, whole, ends):
        made = pipeline.dispatch({"x": zeros, "y": zeros, "p": above, "q": below})["r"]
        with np.errstate(all="ignore"):
            meant = above / below
        assert np.array_equal(made, meant, equal_nan=True) and np.array_equal(np.signbit(made[meant == 0]), np.signbit(meant[meant == 0]))


def test_batches_of_products_have_every_bit_of_the_interpreter() -> None:
    device, rng = opened(), np.random.default_rng(12)
    program = vp.ops.matmul(vp.bf16, vp.f32, batched=True, tiles="large")
    x, y = numbers(rng, (21, 384, 192), vp.bf16, 2), numbers(rng, (21, 192, 640), vp.bf16, 2)
    made = device.compile_native(program).dispatch({"a": x, "b": y})["c"]
    meant = vp.device("reference").compile_native(program, ASKED).dispatch({"a": x[:, ::37], "b": np.ascontiguousarray(y[:, :, ::53])})["c"]
    assert np.array_equal(made[:, ::37, ::53], meant)


@pytest.mark.parametrize("transposed", [False, True], ids=["as it is", "transposed"])
@pytest.mark.parametrize("size", [(256, 256, 256), (243, 259, 251), (100, 72, 200)], ids=str)
@pytest.mark.parametrize("types", [(a, b) for a in (vp.i8, vp.u8) for b in (vp.i8, vp.u8)], ids=str)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_products_of_integers_are_exact(arch: str, types: tuple[Type, Type], size: tuple[int, int, int], transposed: bool) -> None:
    device = open_device("cuda")
    if not runs_on(arch, device.capability):
        pytest.skip(f"{device.name} is {device.target.arch}, which does not run code for {arch}")
    (m, n, k), rng = size, np.random.default_rng(5)
    shapes = zip(types, ((m, k), (k, n)), strict=True)
    x, y = (rng.integers(np.iinfo(t.dtype).min, int(np.iinfo(t.dtype).max) + 1, shape).astype(t.dtype) for t, shape in shapes)
    program = matmul(types[0], transposed=transposed, tile=(128, 128, 128), second=types[1])
    made = device.load(vp.compile_native(program, [arch])).dispatch({"x": x, "y": np.ascontiguousarray(y.T) if transposed else y})["z"]
    assert np.array_equal(made, x.astype(np.int64) @ y.astype(np.int64))


@pytest.mark.parametrize("target", ["sm_80", "sm_100", "cpu", "wgsl"])
def test_other_targets_refuse_the_bits_of_tensor_cores(target: str) -> None:
    for type_, options, name in ((vp.bf16, ASKED, "mma_sm90"), (vp.bf16, OF_WARPS, "mma_sm90"), (vp.f8e5m2, OF_WARPS, "mma_sm90_warps")):
        with pytest.raises(Unsupported, match=name):
            vp.compile_native(matmul(type_, transposed=False), [target], options)


def test_products_of_bytes_by_warpgroups_refuse_what_warps_would_compute() -> None:
    with pytest.raises(Unsupported, match="sm_90:warps are the bits of warps"):
        vp.compile_native(matmul(vp.f8e4m3, transposed=False), ["sm_90"], ASKED)


def test_shapes_that_tensor_cores_do_not_take_are_refused() -> None:
    with pytest.raises(Unsupported, match=r"mma_sm90.*of shapes that they take"):
        vp.compile_native(matmul(vp.bf16, transposed=False, tile=(20, 64, 64)), ["sm_90"], ASKED)


def test_the_option_is_for_the_interpreter_too() -> None:
    rng, program = np.random.default_rng(3), matmul(vp.bf16, transposed=False, tile=(16, 16, 16))
    x, y = numbers(rng, (20, 70), vp.bf16, 0), numbers(rng, (70, 18), vp.bf16, 0)
    device = vp.device("reference")
    strict, asked = (device.compile_native(program, options).dispatch({"x": x, "y": y})["z"] for options in (None, ASKED))
    assert (strict != asked).any() and np.allclose(strict, asked, rtol=1e-4, atol=1e-5)
    with pytest.raises(Unsupported, match="it is sm_90, sm_90:warps, or None"):
        vp.CompileOptions(tensor="sm_80")
