"""Ready Programs of products against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from device_kinds import open_device
from scipy.special import erf

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.lowering.compile import emit_text

Array = np.ndarray[Any, np.dtype[Any]]
KINDS = ["reference", "cpu"]
TINY = (16, 16, 8)  # tiles of which small arrays have several
SIZES = [(1, 1, 1), (17, 15, 9), (16, 16, 8), (31, 37, 29)]
FLAGS = ["batched", "transpose_a", "transpose_b", "scaled", "bias", "residual"]
WANTED: dict[str, Any] = {
    "relu": lambda x: np.maximum(x, 0), "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "silu": lambda x: x / (1 + np.exp(-x)), "tanh": np.tanh,
    "gelu": lambda x: x / 2 * (1 + erf(x / np.sqrt(2))), "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}  # fmt: skip
# Type -> how far results of size 1 may be off: its rounding, and that of f32.
BOUNDS = {vp.f16: 1e-3, vp.bf16: 8e-3, vp.f32: 1e-6, vp.f64: 1e-14}


def random(shape: tuple[int, ...], type_: vp.Type, seed: int = 0) -> Array:
    generator = np.random.default_rng((seed, *shape))
    if type_ in (vp.i8, vp.u8, vp.i32):
        return generator.integers(-100 if type_ is not vp.u8 else 0, 100, shape).astype(type_.dtype)
    return generator.normal(size=shape).astype(type_.dtype)


def close(found: Array, wanted: Array, type_: vp.Type, scale: float = 1.0) -> None:
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=BOUNDS[type_], atol=BOUNDS[type_] * scale)


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_120"])
@pytest.mark.parametrize("type_", [vp.f16, vp.bf16, vp.f32, vp.f64, vp.u8], ids=str)
def test_the_shape_without_a_machine_fits_all_tensor_cores(type_: vp.Type, arch: str) -> None:
    """Those of workgroups with 96 KiB of memory, too, told which it is or not."""
    for on in (None, arch):
        assert "mma.sync" in emit_text(vp.ops.matmul(type_, tensor=True, on=on), arch.replace("sm_", "compute_"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("type_", [vp.f16, vp.bf16, vp.f32, vp.f64], ids=str)
def test_products_of_ragged_matrices(kind: str, type_: vp.Type) -> None:
    pipeline = open_device(kind).compile_native(vp.ops.matmul(type_, tiles=TINY))
    for m, n, k in SIZES:
        a, b = random((m, k), type_), random((k, n), type_, 1)
        found = pipeline.dispatch({"a": a, "b": b})["c"]
        assert found.dtype == type_.dtype
        close(found, a.astype(np.float64) @ b.astype(np.float64), type_, np.sqrt(k) * 4)


@pytest.mark.parametrize("kind", [*KINDS, "wgpu"])
@pytest.mark.parametrize(("transpose_a", "transpose_b"), [(True, False), (False, True), (True, True)])
def test_transposed_factors_in_a_batch(kind: str, transpose_a: bool, transpose_b: bool) -> None:
    program = vp.ops.matmul(batched=True, transpose_a=transpose_a, transpose_b=transpose_b, tiles=TINY)
    a, b = random((3, 17, 19), vp.f32), random((3, 19, 33), vp.f32, 1)
    given = {"a": a.transpose(0, 2, 1).copy() if transpose_a else a, "b": b.transpose(0, 2, 1).copy() if transpose_b else b}
    found = open_device(kind).compile_native(program).dispatch(given)["c"]
    close(found, a.astype(np.float64) @ b, vp.f32, 20)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("activation", sorted(vp.ops.ACTIVATIONS))
def test_all_that_follows_a_product(kind: str, activation: str) -> None:
    program = vp.ops.matmul(vp.bf16, vp.f32, scaled=True, bias=True, activation=activation, residual=True, tiles=TINY)
    a, b, bias, residual = random((19, 21), vp.bf16), random((21, 35), vp.bf16, 1), random((35,), vp.f32, 2), random((19, 35), vp.f32, 3)
    found = open_device(kind).compile_native(program).dispatch({"a": a, "b": b, "bias": bias, "residual": residual, "scale": 0.25})["c"]
    close(found, WANTED[activation](0.25 * (a.astype(np.float64) @ b.astype(np.float64)) + bias) + residual, vp.f32, 10)


@pytest.mark.parametrize("kind", KINDS)
def test_integers_are_exact_and_floats_of_8_bits_are_multiplied(kind: str) -> None:
    device = open_device(kind)
    for type_ in (vp.i8, vp.u8):
        a, b, bias = random((18, 40), type_), random((40, 20), type_, 1), random((20,), vp.i32)
        found = device.compile_native(vp.ops.matmul(type_, bias=True, activation="relu", tiles=TINY)).dispatch({"a": a, "b": b, "bias": bias})["c"]
        assert np.array_equal(found, np.maximum(a.astype(np.int32) @ b.astype(np.int32) + bias, 0))
    a, b = (random(shape, vp.f32).astype(ml_dtypes.float8_e4m3fn) for shape in ((18, 40), (40, 20)))
    found = device.compile_native(vp.ops.matmul(vp.f8e4m3, tiles=TINY)).dispatch({"a": a, "b": b})["c"]
    close(found, a.astype(np.float64) @ b.astype(np.float64), vp.f32, 30)


def test_the_bits_are_those_of_a_chain_of_fused_products(strict_device: Device) -> None:
    a, b = random((33, 50), vp.f32), random((50, 40), vp.f32, 1)
    bits = [strict_device.compile_native(vp.ops.matmul(tiles=t)).dispatch({"a": a, "b": b})["c"] for t in (TINY, (32, 16, 32), "small")]
    wanted = np.zeros((33, 40), np.float32)
    for p in range(50):  # a product of two f32 is exact in f64, and so, but for a double rounding, is the sum
        wanted = (a[:, p, None].astype(np.longdouble) * b[p] + wanted).astype(np.float32)
    for found in bits:
        assert np.array_equal(found, wanted)


def test_a_relu_keeps_nan_and_nothing_gives_the_bias() -> None:
    pipeline = open_device("cpu").compile_native(vp.ops.matmul(bias=True, activation="relu", tiles=TINY))
    found = pipeline.dispatch({"a": np.zeros((2, 0), np.float32), "b": np.zeros((0, 3), np.float32), "bias": np.float32([-1, np.nan, 2])})["c"]
    assert found[:, 0].tolist() == [0, 0] and np.isnan(found[:, 1]).all() and found[:, 2].tolist() == [2, 2]


@pytest.mark.parametrize("tiles", sorted(vp.ops.TILES))
def test_the_tiles_of_the_table_compile_and_are_right(tiles: str) -> None:
    a, b = random((130, 70), vp.bf16), random((70, 260), vp.bf16, 1)
    found = open_device("cpu").compile_native(vp.ops.matmul(vp.bf16, vp.f32, tiles=tiles)).dispatch({"a": a, "b": b})["c"]
    close(found, a.astype(np.float64) @ b.astype(np.float64), vp.f32, 40)


def test_tensor_cores_are_asked_for_where_elements_are_small() -> None:
    for type_, asked in ((vp.f16, True), (vp.bf16, True), (vp.i8, True), (vp.f32, False), (vp.f64, False)):
        assert ("mma_tensor" in str(vp.ops.matmul(type_))) is asked
    assert "mma_tensor" in str(vp.ops.matmul(tensor=True)) and "mma_tensor" not in str(vp.ops.matmul(vp.f16, tensor=False))
    assert "step 64 pipeline(3) {" in str(vp.ops.matmul(vp.f16, stages=3)) and "pipeline" not in str(vp.ops.matmul(vp.f16))
    assert "tile(f32, 128, 128)" in str(vp.ops.matmul(vp.f16)) and "tile(f32, 64, 64)" in str(vp.ops.matmul())


def test_the_shape_is_that_for_a_machine() -> None:
    for on, shape in (("cpu", "128, 128"), ("wgsl", "64, 64"), ("sm_90", "64, 64"), (None, "64, 64"), (open_device("cpu"), "128, 128")):
        assert f"tile(f32, {shape})" in str(vp.ops.matmul(on=on))
    for on, shape in (("sm_75", "64, 64"), ("compute_86", "128, 128"), (vp.Target("ptx", "sm_90"), "128, 128"), (None, "128, 128")):
        assert f"tile(f32, {shape})" in str(vp.ops.matmul(vp.f16, on=on))
    for on, depth in (("sm_90", 128), ("sm_80", 64), (None, 64)):
        assert f"step {depth} {{" in str(vp.ops.matmul(vp.i8, transpose_b=True, on=on)) and "step 64 {" in str(vp.ops.matmul(vp.i8, on=on))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((vp.u32,), {}, "the type of the factors is none of those that there are: u32"),
        (("f32",), {}, "the type of the factors is none"),
        ((vp.f32, vp.i32), {}, "the type of the product is none"),
        ((vp.i8, vp.f32), {}, "the type of the product is none"),
        ((vp.i8,), {"scaled": True}, "products of integers are neither scaled nor activated"),
        ((vp.u8,), {"activation": "gelu"}, "products of integers are neither scaled nor activated"),
        ((), {"activation": "softplus"}, "the activation is none of those that there are: 'softplus'"),
        ((), {"tiles": "huge"}, "the shape of tiles is none"),
        ((), {"tiles": (64, 64)}, "tiles are a tuple of 3 extents"),
        ((), {"tiles": [16, 16, 16]}, r"tiles are a tuple of 3 extents, rows, columns and depth, got \[16, 16, 16\]"),
        ((), {"tiles": np.array([16, 16, 16])}, "tiles are a tuple of 3 extents"),
        ((), {"tiles": (1024, 1024, 16)}, "make one of 1048576 elements, and at most 131072 are allowed"),
        ((), {"activation": np.array([1, 2, 3])}, "the activation is none"),
        ((), {"tensor": "x"}, "tensor is True, False or an architecture whose bits are known, got 'x'"),
        ((), {"tensor": [1]}, "tensor is True, False or an architecture"),
        ((), {"tensor": 1}, "tensor is True, False or an architecture"),
        ((vp.i8,), {"tensor": "sm_90"}, "tensor is True, False or an architecture"),
        *(((), {name: wrong}, f"{name} is True or False, got ") for name in FLAGS for wrong in (np.zeros(2), "f32", {}, float("nan"))),
        ((), {"on": "sm_2"}, "what it runs on is a device, a target or a target's name, got 'sm_2'"),
        ((), {"tiles": (64, 64, 0)}, "an extent of tiles is a whole number from 1 to 1024, got 0"),
    ],
)
def test_what_there_is_not_is_refused_at_the_callers_line(arguments: tuple[Any, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(vp.ValidationError, match=message) as caught:
        vp.ops.matmul(*arguments, **options)
    (finding,) = caught.value.diagnostics
    assert finding.code == "B108" and finding.help
    assert finding.place is not None and finding.place.file == __file__ and "vp.ops.matmul" in finding.place.source


@pytest.mark.parametrize("arch", ["cpu", "cpu:x86-64", "cpu:x86-64:1", "cpu:native:4"])
@pytest.mark.parametrize("type_", [vp.f32, vp.bf16, vp.f64], ids=str)
def test_blocks_of_sums_on_a_cpu_change_no_bit(arch: str, type_: vp.Type) -> None:
    """More sums than registers, so several blocks; strips that end inside a tile's depth; rows, columns and k that fill no tile."""
    artifact = vp.compile_native(vp.ops.matmul(type_, tensor=False, tiles=(128, 96, 136)), targets=[arch])
    a, b = random((131, 150), type_), random((150, 101), type_, 1)
    found = open_device("cpu").load(artifact).dispatch({"a": a, "b": b})["c"]
    wanted = open_device("reference").compile_native(vp.ops.matmul(type_, tensor=False, tiles=TINY)).dispatch({"a": a, "b": b})["c"]
    assert np.array_equal(found, wanted)


def test_a_variable_that_is_set_between_a_read_and_its_product_keeps_what_was_read() -> None:
    with vp.TileBuilder("kept") as builder:
        x, z = builder.read("x", vp.f32, 32, 32), builder.write("z", vp.f32, 32, 32)
        builder.grid(1)
        acc = builder.var("acc", vp.f32, shape=(32, 32))
        tile = x.tile(0, 0, shape=(32, 32))
        acc.set(tile)
        before = acc.get()
        acc.set(tile * 3)
        product = vp.mma(tile, tile, before)
        z[0, 0] = product + acc.get()
    given = random((32, 32), vp.f32)
    found, wanted = (open_device(kind).compile_native(builder.program).dispatch({"x": given})["z"] for kind in ("cpu", "reference"))
    assert np.array_equal(found, wanted)
