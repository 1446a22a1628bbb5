"""Ready Programs over whole arrays, against NumPy: reductions, permutations, prefix sums, histograms, rows by number, random bits."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from device_kinds import open_device

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.ir.language.dims import evaluate_dim

Array = np.ndarray[Any, np.dtype[Any]]
KINDS = ["reference", "cpu"]
SHAPES: list[tuple[int, ...]] = [(1,), (4099,), (3, 7), (131, 67), (5, 33, 66), (2, 3, 17, 65)]
SOME: list[tuple[int, ...]] = [(4099,), (131, 67)]
FOLDS = ["sum", "mean", "max", "min", "argmax", "argmin"]
BOUNDS = {vp.f16: 1e-3, vp.bf16: 8e-3, vp.f32: 4e-6, vp.f64: 1e-14}


def random(shape: tuple[int, ...], type_: vp.Type, seed: int = 0) -> Array:
    generator = np.random.default_rng((seed, *shape))
    if not type_.is_float:
        return generator.integers(0 if not type_.is_signed else -100, 100, shape).astype(type_.dtype)
    return generator.normal(size=shape).astype(type_.dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("type_", [vp.f16, vp.bf16, vp.f32, vp.f64, vp.i32, vp.u8, vp.i64], ids=str)
@pytest.mark.parametrize("name", FOLDS)
def test_reductions_along_each_axis(kind: str, type_: vp.Type, name: str) -> None:
    device = open_device(kind)
    if name == "mean" and not type_.is_float:
        return
    for shape in SHAPES if type_ in (vp.f32, vp.i32) else SOME:
        x = random(shape, type_)
        for axis in range(len(shape)) if len(shape) < 4 else (1, 3):
            found = device.compile_native(getattr(vp.ops, name)(type_, len(shape), axis - (axis % 2) * len(shape))).dispatch({"source": x})["target"]
            if type_.is_float:
                wanted = np.atleast_1d(getattr(np, name)(x.astype(np.float64), axis=axis))
                size = np.abs(x.astype(np.float64)).sum(axis=axis).max() if name == "sum" else 1
                np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=BOUNDS[type_], atol=BOUNDS[type_] * size / 10)
            else:
                options = {"dtype": type_.dtype} if name == "sum" else {}
                assert np.array_equal(found, np.atleast_1d(getattr(np, name)(x, axis=axis, **options)))


@pytest.mark.parametrize("name", FOLDS)
def test_reductions_on_wgpu(name: str) -> None:
    x = random((5, 33, 66), vp.f32)
    found = open_device("wgpu").compile_native(getattr(vp.ops, name)(vp.f32, 3, 1)).dispatch({"source": x})["target"]
    np.testing.assert_allclose(found, getattr(np, name)(x, axis=1), rtol=1e-5, atol=1e-5)


def test_reductions_of_nan_equals_and_nothing(strict_device: Device) -> None:
    x = np.float32([[np.nan, 2, 2, 1], [np.nan, np.nan, -np.inf, np.nan], [np.nan] * 4, [-0.0, 0.0, -0.0, 0.0]])

    def found(name: str, given: Array) -> list[Any]:
        target: list[Any] = strict_device.compile_native(getattr(vp.ops, name)(vp.f32, 2)).dispatch({"source": given})["target"].tolist()
        return target

    assert found("max", x) == [2, -np.inf, -np.inf, 0] and found("min", x) == [1, -np.inf, np.inf, 0]
    assert found("argmax", x) == [1, 2, 0, 0]
    assert found("argmin", x) == [3, 2, 0, 0]
    empty = np.zeros((2, 0), np.float32)
    assert found("sum", empty) == [0, 0] and found("max", empty) == [-np.inf] * 2 and found("argmin", empty) == [0, 0]
    assert np.isnan(found("mean", empty)).all()
    nothing = strict_device.compile_native(vp.ops.min()).dispatch({"source": np.zeros(0, np.float32)})["target"]
    assert nothing.tolist() == [np.inf]


def test_extremes_that_are_those_of_the_type_have_their_place(strict_device: Device) -> None:
    x = np.full((3, 300), np.nan, np.float32)
    x[0, [131, 299]], x[1, [140, 12]], x[2, 5] = -np.inf, np.inf, 1
    for name, given in (("argmax", x), ("argmin", -x)):
        for axis, source in ((1, given), (0, given.T)):
            found = strict_device.compile_native(getattr(vp.ops, name)(vp.f32, 2, axis)).dispatch({"source": np.ascontiguousarray(source)})["target"]
            assert found.tolist() == [131, 12, 5]
    least = strict_device.compile_native(vp.ops.argmax(vp.i32)).dispatch({"source": np.full(7, -(2**31), np.int32)})["target"]
    assert least.tolist() == [0]


def test_the_first_of_equal_extremes_has_the_place(strict_device: Device) -> None:
    """In one chunk and in several, and of zeros of both signs."""
    x = np.zeros((4, 5000), np.float32)
    x[0, [4999, 4100, 130, 131]], x[1, 3000:], x[2, ::2], x[3, 0] = 7, 1, -0.0, -1
    for axis, source in ((1, x), (0, x.T)):
        found = strict_device.compile_native(vp.ops.argmax(vp.f32, 2, axis)).dispatch({"source": np.ascontiguousarray(source)})["target"]
        assert found.tolist() == [130, 3000, 0, 1]
    for row, first in zip(x, [130, 3000, 0, 1], strict=True):
        assert strict_device.compile_native(vp.ops.argmax()).dispatch({"source": row})["target"].tolist() == [first]


def test_integers_wrap() -> None:
    x = np.full(300, 200, np.uint8)
    assert open_device("cpu").compile_native(vp.ops.sum(vp.u8)).dispatch({"source": x})["target"].tolist() == [300 * 200 % 256]


@pytest.mark.parametrize("axes", [(1, 0), (0, 2, 1), (2, 0, 1), (3, 2, 0, 1)])
def test_any_axis_of_what_is_permuted_may_be_long(axes: tuple[int, ...]) -> None:
    """Of a grid the axes y and z end early on GPUs, and x does not."""
    program = vp.ops.permute(vp.u8, axes)
    for long in range(len(axes)):
        sizes = {f"d{k}": 1 << 26 if k == long else 1 for k in range(len(axes))}
        assert [evaluate_dim(size, sizes) for size in program.grid.extents[1:]] == [1, 1]


@pytest.mark.parametrize("kind", [*KINDS, "wgpu"])
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_permutations_of_axes(kind: str, rank: int) -> None:
    device = open_device(kind)
    x = random({2: (131, 67), 3: (5, 33, 66), 4: (2, 3, 17, 65)}[rank], vp.f32)
    for axes in list(permutations(range(rank)))[:: {2: 1, 3: 1, 4: 5}[rank] * (1 + (kind == "wgpu"))]:
        found = device.compile_native(vp.ops.permute(vp.f32, axes)).dispatch({"source": x})["target"]
        assert np.array_equal(found, x.transpose(axes))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("type_", [vp.bool_, vp.u8, vp.f16, vp.bf16, vp.f8e4m3, vp.i64, vp.f64], ids=str)
def test_transposes_move_bits(kind: str, type_: vp.Type) -> None:
    device = open_device(kind)
    pipeline = device.compile_native(vp.ops.transpose(type_))
    for shape in ((1, 1), (7, 1), (65, 129)):
        x = np.random.default_rng(3).integers(0, 2 if type_ is vp.bool_ else 256, (*shape, type_.size_bytes), np.uint8).view(type_.dtype)[..., 0]
        found = pipeline.dispatch({"source": x})["target"]
        assert found.tobytes() == np.ascontiguousarray(x.T).tobytes()


@pytest.mark.parametrize("kind", [*KINDS, "wgpu"])
@pytest.mark.parametrize(("exclusive", "on"), [(False, None), (True, None), (False, "sm_90"), (True, "sm_90")])
def test_prefix_sums(kind: str, exclusive: bool, on: str | None) -> None:
    device = open_device(kind)
    for type_ in (vp.u32,) if kind == "wgpu" else (vp.u32, vp.i64, vp.f32):
        pipeline = device.compile_native(vp.ops.prefix_sum(type_, exclusive=exclusive, on=on))
        for n in (1, 31, 4095, 4096, 10_007) if on is None else (3, 4092, 10_008):
            x = random((n,), type_) if type_.is_float else np.random.default_rng(n).integers(0, 1 << 31, n).astype(type_.dtype)
            found = pipeline.dispatch({"source": x})["target"]
            if type_.is_float:
                wanted = np.cumsum(x, dtype=np.float64)
                np.testing.assert_allclose(found, wanted - x if exclusive else wanted, atol=BOUNDS[type_] * 200)
            else:
                wanted = np.cumsum(x, dtype=type_.dtype)
                assert np.array_equal(found, wanted - x if exclusive else wanted)


@pytest.mark.parametrize("kind", [*KINDS, "wgpu"])
@pytest.mark.parametrize("bins", [1, 300, 5003])
def test_histograms(kind: str, bins: int) -> None:
    device = open_device(kind)
    for type_ in (vp.u8, vp.i32) if kind == "wgpu" else (vp.u8, vp.u16, vp.u32, vp.i32):
        low = -20 if type_ is vp.i32 else 0
        x = np.random.default_rng(bins).integers(low, 200 if type_ is vp.u8 else 5200, 10_007).astype(type_.dtype)
        before = np.arange(bins, dtype=np.uint32)
        found = device.compile_native(vp.ops.histogram(type_, bins)).dispatch({"values": x, "counts": before})["counts"]
        assert np.array_equal(found, before + np.bincount(x[(x >= 0) & (x < bins)], minlength=bins))


@pytest.mark.parametrize("kind", [*KINDS, "wgpu"])
@pytest.mark.parametrize("width", [1, 5, 67])
def test_rows_by_number(kind: str, width: int) -> None:
    device = open_device(kind)
    for index in (vp.u32, vp.i32) if kind == "wgpu" else (vp.u32, vp.i32, vp.i64, vp.u64):
        places = np.random.default_rng(width).integers(-3 if index.is_signed else 0, 41, 101).astype(index.dtype)
        there = (places >= 0) & (places < 37)
        x = random((37, width), vp.f32)
        found = device.compile_native(vp.ops.gather(vp.f32, index)).dispatch({"source": x, "indices": places})["target"]
        assert np.array_equal(found, np.where(there[:, None], x[np.where(there, places, 0).astype(int)], 0))
        for type_ in (vp.i32,) if kind == "wgpu" else (vp.i32, vp.u32, vp.f32, vp.f64):
            added, start = random((101, width), type_), random((37, width), type_, 1)
            wanted = start.astype(np.float64)
            np.add.at(wanted, places[there].astype(int), added[there].astype(np.float64))
            found = device.compile_native(vp.ops.scatter_add(type_, index)).dispatch({"source": added, "indices": places, "target": start})["target"]
            if type_.is_float:
                np.testing.assert_allclose(found, wanted, atol=1e-5)
            else:
                assert np.array_equal(found, wanted.astype(np.int64).astype(type_.dtype))


def test_rows_of_any_type_are_gathered_bit_for_bit(strict_device: Device) -> None:
    for type_ in (vp.bool_, vp.u8, vp.bf16, vp.f8e5m2, vp.i64):
        x = np.random.default_rng(3).integers(0, 2, (9, 3)).astype(type_.dtype)
        found = strict_device.compile_native(vp.ops.gather(type_)).dispatch({"source": x, "indices": np.uint32([8, 0, 3])})["target"]
        assert found.tobytes() == x[[8, 0, 3]].tobytes()


# Known answers of Random123: counter, key, block.
ANSWERS = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    ([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0], [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
]


def test_random_bits_are_known_ones(device: Device) -> None:
    pipeline = device.compile_native(vp.ops.random_bits())
    for counter, key, block in ANSWERS:
        found = pipeline.dispatch({"counter": counter, "key": key, "target": np.zeros((1, 4), np.uint32)})["target"]
        assert found.tolist() == [block]
    ends = [0xFFFFFFFD, 0xFFFFFFFF, 0xFFFFFFFF, 7]  # a carry through all words
    found = pipeline.dispatch({"counter": ends, "key": [1, 2], "target": np.zeros((5, 4), np.uint32)})["target"]
    after = pipeline.dispatch({"counter": [0, 0, 0, 8], "key": [1, 2], "target": np.zeros((2, 4), np.uint32)})["target"]
    assert np.array_equal(found[3:], after) and len(np.unique(found)) == 20


@pytest.mark.parametrize("type_", [vp.f32, vp.f64], ids=str)
def test_uniform_numbers_are_the_upper_bits(strict_device: Device, type_: vp.Type) -> None:
    given = {"counter": [5, 0, 0, 0], "key": [1, 2]}
    words = strict_device.compile_native(vp.ops.random_bits()).dispatch({**given, "target": np.zeros((1000, 4), np.uint32)})["target"]
    target = np.zeros((1000, 4 if type_ is vp.f32 else 2), type_.dtype)
    found = strict_device.compile_native(vp.ops.random_uniform(type_)).dispatch({**given, "target": target})["target"]
    wanted = (words >> 8) * 2.0**-24 if type_ is vp.f32 else (words.view("<u8") >> 11) * 2.0**-53
    assert np.array_equal(found, wanted) and 0 <= found.min() < 0.01 and 0.99 < found.max() < 1 and abs(found.mean() - 0.5) < 0.02


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: vp.ops.sum(vp.bool_), "the type of a sum is none of those that there are: bool"),
        (lambda: vp.ops.mean(vp.i32), "the type of a mean is none"),
        (lambda: vp.ops.max(vp.f32, 5), "the rank is a whole number from 1 to 4, got 5"),
        (lambda: vp.ops.argmin(vp.f32, 2, 2), "an array of rank 2 has no axis 2"),
        (lambda: vp.ops.min(vp.f32, 2, 1.0), "an array of rank 2 has no axis 1.0"),
        (lambda: vp.ops.sum(vp.f32, 2, True), "an array of rank 2 has no axis True"),
        (lambda: vp.ops.sum(vp.f32, 2, np.True_), "an array of rank 2 has no axis"),
        (lambda: vp.ops.sum(vp.f32, 2, np.array([0, 1])), "an array of rank 2 has no axis array"),
        (lambda: vp.ops.prefix_sum(exclusive=np.zeros(2)), "exclusive is True or False, got array"),
        (lambda: vp.ops.transpose(vp.f32x2), "the type of the elements is none"),
        (lambda: vp.ops.permute(vp.f32, (0, 0, 1)), "each of the 3 axes is needed once"),
        (lambda: vp.ops.permute(vp.f32, (0,)), "an array has 2 to 4 axes"),
        (lambda: vp.ops.permute(vp.f32, 3), "an array has 2 to 4 axes"),
        (lambda: vp.ops.prefix_sum(vp.f16), "the type of a prefix sum is none"),
        (lambda: vp.ops.histogram(vp.f32), "the type of a histogram's values is none"),
        (lambda: vp.ops.histogram(vp.u8, 0), "the number of bins is a whole number from 1 to 16777216, got 0"),
        (lambda: vp.ops.gather(vp.f32, vp.u8), "the type of the indices is none"),
        (lambda: vp.ops.scatter_add(vp.f16), "the type of the elements is none"),
        (lambda: vp.ops.random_uniform(vp.f16), "the type of uniform numbers is none"),
    ],
)
def test_what_there_is_not_is_refused_at_the_callers_line(call: Any, message: str) -> None:
    with pytest.raises(vp.ValidationError, match=message) as caught:
        call()
    (finding,) = caught.value.diagnostics
    assert finding.code == "B108" and finding.place is not None and finding.place.file == __file__ and "vp.ops." in finding.place.source


def test_numbers_of_numpy_are_axes_as_pythons_are() -> None:
    assert vp.ops.sum(vp.f32, np.int64(2), np.int64(-1)) == vp.ops.sum(vp.f32, 2, 1)
    assert vp.ops.permute(vp.f32, (np.int64(1), np.uint8(0))) == vp.ops.transpose()
    assert vp.ops.prefix_sum(exclusive=np.True_) == vp.ops.prefix_sum(exclusive=True)


def test_the_names_are_there_and_documented() -> None:
    needed = {"fft": (256,), "ifft": (256,)}
    assert vp.ops.__all__ == sorted(vp.ops.__all__) and "ops" in vp.__all__
    for name in vp.ops.__all__:
        thing = getattr(vp.ops, name)
        if callable(thing):
            program = thing(*needed.get(name, ()))
            assert isinstance(program, vp.Program) and program == vp.Program.from_text(str(program)) and thing.__doc__
