"""Binding: every mismatch at once, results that overlap, sizes of zero, what counts as an array."""

from __future__ import annotations

import gc
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from device_kinds import KINDS, open_device

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.drivers.sharing import dlpack


@pytest.fixture(params=KINDS)
def device(request: pytest.FixtureRequest) -> Device:
    return open_device(request.param)


@pytest.fixture
def cpu() -> Device:
    return open_device("cpu")


def two_results() -> vp.Program:
    with vp.ProgramBuilder("two") as b:
        n = b.dim("n")
        x, y, z = b.read("x", vp.f32, n), b.write("y", vp.f32, n), b.write("z", vp.f32, n)
        i = b.global_id(0)
        y[i] = x[i]
        z[i] = x[i] * 2
    return b.program


def mixed() -> vp.Program:
    with vp.ProgramBuilder("mixed") as b:
        n = b.dim("n")
        x, v, y = b.read("x", vp.f32, n), b.read("v", vp.f32x3, n), b.read_write("y", vp.f32, n)
        a = b.param("a", vp.f32x3)
        i = b.global_id(0)
        y[i] = x[i] + v[i].x + a.y
    return b.program


def problems_of(call: Any) -> tuple[str, ...]:
    with pytest.raises(vp.BindingError) as caught:
        call()
    return caught.value.problems


# ---------------------------------------------------------------- every mismatch


def test_all_that_is_wrong_with_each_argument(device: Device) -> None:
    pipeline = device.compile_native(mixed())
    given = {"x": np.ones((5, 2)), "v": np.ones(8), "y": np.ones(7, np.float32), "a": ["b", None, 1], "n": 8, "nothing": 0}
    assert problems_of(lambda: pipeline.dispatch(given, y=given["y"])) == (
        "'y' is given twice",
        "there is no argument 'nothing'; expected x, v, y, a",
        "param 'a' (f32x3), component 0: 'b' is not a number",
        "param 'a' (f32x3), component 1: None is not a number",
        "'x' needs elements of f32, got dtype float64; np.asarray(x, np.float32) converts",
        "'x' needs 1 axes, got shape [5, 2]",
        "'v' needs elements of f32x3, got dtype float64; f32x3[n] is an array of shape (n, 3) of float32; np.asarray(x, np.float32) converts",
        "'v' needs 1 axes, got shape [8]; f32x3[n] is an array of shape (n, 3) of float32",
        "dim 'n' is 8 from its argument, but axis 0 of 'y' has 7",
    )


def test_sizes_of_arguments_with_a_wrong_dtype(device: Device) -> None:
    pipeline = device.compile_native(two_results())
    found = problems_of(lambda: pipeline.dispatch({"x": np.ones(5), "y": np.ones(8, np.float32)}, out={"z": np.zeros(4, np.float32), "x": 1}))
    assert found == (
        "'x' needs elements of f32, got dtype float64; np.asarray(x, np.float32) converts",
        "dim 'n' is 5 from axis 0 of 'x', but axis 0 of 'y' has 8",
        "out['z'] must be a writeable float32 array of shape [5]",
        "out['x'] does not name a written host argument",
    )


def test_all_that_is_wrong_with_a_buffer(device: Device) -> None:
    pipeline = device.compile_native(two_results())
    elsewhere = open_device("cpu" if device.kind == "reference" else "reference").upload(np.ones(5))
    constant, freed = device.constant(np.ones(8, np.int32)), device.upload(np.ones((2, 2), np.float32))
    freed.free()
    assert problems_of(lambda: pipeline.bind({"x": elsewhere, "y": constant, "z": freed})) == (
        f"'x' is on {elsewhere.device.name}, the pipeline on {device.name}",
        "'x' needs elements of f32, got f64",
        "'y' is written, and its memory may only be read: a constant's, bytes, or another library's that allows no writes",
        "'y' needs elements of f32, got i32",
        "dim 'n' is 5 from axis 0 of 'x', but axis 0 of 'y' has 8",
        "'z' was freed; upload or allocate it again",
        "'z' needs 1 axes, got shape [2, 2]",
    )


def test_an_array_with_a_mask_is_refused_everywhere(device: Device) -> None:
    pipeline = device.compile_native(two_results())
    x, y, z = np.ones(5, np.float32), np.ones(5, np.float32), np.ones(5, np.float32)
    masked = np.ma.masked_array(x, [0, 1, 0, 0, 0])
    lost = "its mask would be lost: x.filled(number) is an array without"
    assert f"'x': {lost}" in problems_of(lambda: pipeline.dispatch({"x": masked, "y": y}))
    assert f"'array': {lost}" in problems_of(lambda: device.upload(masked))
    found = problems_of(lambda: pipeline.dispatch({"x": x, "y": y}, out={"z": masked}))  # which would hide results
    assert found == ("out['z'] must be a writeable float32 array of shape [5], without a mask",)
    if device.kind == "cpu":  # which takes NumPy's arrays as they are
        launch = pipeline.bind({"x": x, "y": y, "z": z})
        for call in (
            lambda: pipeline.bind({"x": masked, "y": y, "z": z}), lambda: launch.set(x=masked), lambda: pipeline.callable()(masked, y, z),
        ):  # fmt: skip
            assert problems_of(call) == (f"'x': {lost}",)
        assert problems_of(lambda: device.wrap(masked)) == (lost,)


def test_vectors_in_the_place_of_scalars_are_told_by_their_type(device: Device) -> None:
    pipeline = device.compile_native(two_results())
    y, z = device.upload(np.ones(5, np.float32)), device.upload(np.ones(5, np.float32))
    pairs = np.ones(5, np.complex64) if device.kind == "cpu" else device.upload(np.ones((5, 2), np.float32), vp.f32x2)
    assert "'x' needs 1 axes of f32, got f32x2[5]" in problems_of(lambda: pipeline.bind({"x": pairs, "y": y, "z": z}))


def test_a_dim_is_asked_for_only_where_no_array_should_have_told_it(device: Device) -> None:
    pipeline = device.compile_native(two_results())
    assert problems_of(lambda: pipeline.dispatch({})) == ("buffer 'x' (f32, read) is missing",)
    with vp.ProgramBuilder("named") as b:
        y = b.write("y", vp.f32, b.dim("n"))
        x = b.read("x", vp.f32, b.dim("m"))
        y[b.global_id(0)] = x[0]
    found = problems_of(lambda: device.compile_native(b.program).dispatch({"x": "text"}))
    assert found == ("'x' is a str, not an array", "dim 'n' is not the size of any given axis; give it by name")


def test_all_that_is_wrong_with_what_is_set(device: Device) -> None:
    launch = device.compile_native(mixed()).bind(
        {"x": device.upload(np.ones(4, np.float32)), "v": device.allocate(4, vp.f32x3), "y": device.allocate(4, vp.f32), "a": [1, 2, 3]}
    )
    freed = device.upload(np.ones(5, np.float32))
    freed.free()
    assert problems_of(lambda: launch.set({"x": freed, "y": device.constant(np.ones(3, np.float32)), "a": [1, "b", ()], "q": 1})) == (
        f"'x' must be a f32[4] buffer on {device.name}, got <Buffer f32[5] on {device.name}>",
        "'x' was freed",
        f"'y' must be a f32[4] buffer on {device.name}, got <Buffer f32[3] on {device.name}>",
        "'y' is written, and its memory may only be read: a constant's, bytes, or another library's that allows no writes",
        "param 'a' (f32x3), component 1: 'b' is not a number",
        "param 'a' (f32x3), component 2: () is not a number",
        "there is no param or buffer 'q'",
    )


# ---------------------------------------------------------------- results


def test_results_that_share_memory_are_refused(device: Device) -> None:
    pipeline = device.compile_native(two_results())
    x, memory = np.ones(8, np.float32), np.zeros(16, np.float32)
    once = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (8,), (0,))
    cases: list[tuple[dict[str, Any], str]] = [
        ({"y": memory[:8], "z": memory[:8]}, "out['y'] and out['z'] share memory: give separate memory"),
        ({"y": memory[:8], "z": memory[4:12]}, "out['y'] and out['z'] share memory: give separate memory"),
        ({"y": memory[::2], "z": memory[7::-1]}, "out['y'] and out['z'] share memory: give separate memory"),
        ({"y": once}, "elements of out['y'] share memory, by strides [0]: give separate memory"),
        ({"z": x}, "out['z'] shares memory with the argument 'x': give separate memory"),
    ]
    for out, words in cases:
        assert problems_of(lambda out=out: pipeline.dispatch({"x": x}, out=out)) == (words,)
    assert not memory.any() and x.all()
    # Columns of one array share none, and an argument's own array may take its result.
    columns = np.zeros((8, 2), np.float32)
    pipeline.dispatch({"x": x}, out={"y": columns[:, 0], "z": columns[:, 1]})
    assert columns.tolist() == [[1, 2]] * 8
    y = np.zeros(8, np.float32)
    assert pipeline.dispatch({"x": x, "y": y}, out={"y": y})["y"] is y and y.tolist() == [1] * 8


def test_a_result_over_resident_memory_of_the_host_is_refused(cpu: Device) -> None:
    memory = np.ones(16, np.float32)
    pipeline = cpu.compile_native(two_results())
    found = problems_of(lambda: pipeline.dispatch({"x": cpu.wrap(memory)[:8]}, out={"y": memory[7:15]}))
    assert found == ("out['y'] shares memory with the argument 'x': give separate memory",)
    pipeline.dispatch({"x": cpu.wrap(memory)[:8]}, out={"y": memory[8:]})


# ---------------------------------------------------------------- sizes of zero


def differences() -> vp.Program:
    with vp.ProgramBuilder("differences") as b:
        n = b.dim("n")
        x, y, last = b.read("x", vp.f32, n), b.write("y", vp.f32, n - 1), b.write("last", vp.u32, n)
        b.over(n - 1)
        i = b.global_id(0)
        b.over(n)
        y[i] = x[vp.min(i + 1, n - 1)] - x[i]
        last[i] = n - 1
    return b.program


def test_nothing_is_launched_over_no_elements(device: Device) -> None:
    pipeline = device.compile_native(differences())
    found = pipeline.dispatch({"x": np.float32([1, 3, 7])})
    assert found["y"].tolist() == [2, 4]
    empty = pipeline.dispatch({"x": np.zeros(0, np.float32)})
    assert empty["y"].shape == (0,) and empty["last"].shape == (0,)
    x, y, last = device.allocate(0, vp.f32), device.allocate(0, vp.f32), device.allocate(0, vp.u32)
    before = device.telemetry.launches
    pipeline.bind({"x": x, "y": y, "last": last})()
    device.synchronize()
    assert device.telemetry.launches == before
    with pytest.raises(vp.BindingError, match="axis 0 of 'y' is n - 1 = 0, got 1"):
        pipeline.bind({"x": x, "y": device.allocate(1, vp.f32), "last": last})


def test_a_size_that_is_negative_without_a_zero_is_refused(device: Device) -> None:
    with vp.ProgramBuilder("two_less") as b:
        n = b.dim("n")
        x, y = b.read("x", vp.f32, n), b.write("y", vp.f32, n - 2)
        y[b.global_id(0)] = x[b.global_id(0)]
    pipeline = device.compile_native(b.program)
    assert pipeline.dispatch({"x": np.zeros(0, np.float32)})["y"].shape == (0,)
    with pytest.raises(vp.BindingError, match="n - 2 = -1, which is negative"):
        pipeline.dispatch({"x": np.zeros(1, np.float32)})


def test_where_something_runs_all_the_same_a_negative_size_is_refused(device: Device) -> None:
    with vp.ProgramBuilder("one_group") as b:
        n = b.dim("n")
        x, y, count = b.read("x", vp.u32, n), b.write("y", vp.u32, n - 1), b.write("count", vp.u32, 1)
        b.grid(1)
        count[0] = n - 1
        y[0] = x[0]
    pipeline = device.compile_native(b.program)
    assert pipeline.dispatch({"x": np.zeros(3, np.uint32)})["count"].tolist() == [2]
    with pytest.raises(vp.BindingError, match="axis 0 of 'y' is n - 1 = -1, which is negative, and the grid is not empty"):
        pipeline.dispatch({"x": np.zeros(0, np.uint32)})
    assert pipeline.dispatch({"x": np.zeros(0, np.uint32)}, config=vp.DispatchConfig(grid=(0, 1, 1)))["count"].tolist() == [0]


# ---------------------------------------------------------------- what counts as an array


def rotated(type_: vp.Type) -> vp.Program:
    with vp.ProgramBuilder("rotated") as b:
        n = b.dim("n")
        x, y = b.read("x", type_, n), b.write("y", type_, n)
        turn = b.param("turn", type_)
        v = x[b.global_id(0)]
        y[b.global_id(0)] = vp.vec2(v.x * turn.x - v.y * turn.y, v.x * turn.y + v.y * turn.x)
    return b.program


@pytest.mark.parametrize(("dtype", "type_"), [(np.complex64, vp.f32x2), (np.complex128, vp.f64x2)])
def test_complex_numbers_are_vectors_of_two(device: Device, dtype: Any, type_: vp.Type) -> None:
    if type_ is vp.f64x2 and device.kind == "wgpu":
        pytest.skip("WebGPU has no f64")
    pipeline = device.compile_native(rotated(type_))
    x = (np.arange(12).reshape(4, 3) + 1j * np.arange(12, 0, -1).reshape(4, 3)).astype(dtype)
    wanted = x * dtype(2j)
    for row, want in [(x[0], wanted[0]), (x[:, 1], wanted[:, 1]), (x[0].byteswap().view(x.dtype.newbyteorder()), wanted[0])]:
        assert np.array_equal(pipeline.dispatch({"x": row, "turn": 2j})["y"], np.stack([want.real, want.imag], -1))
        result = np.zeros((len(want), 2), dtype)
        pipeline.dispatch({"x": row, "turn": dtype(2j)}, out={"y": result[:, 1]})
        assert np.array_equal(result[:, 1], want) and not result[:, 0].any()
    buffer = device.upload(x)
    assert buffer.type is type_ and buffer.shape == (4, 3) and np.array_equal(device.download(buffer, np.zeros_like(x)), x)
    buffer.write(wanted)
    assert np.array_equal(buffer.read().view(dtype)[..., 0], wanted)
    launch = pipeline.bind({"x": device.upload(x[2]), "y": device.allocate(3, type_), "turn": [0, 2]})
    launch.set(turn=2j)()
    assert np.array_equal(launch.plan.binding.buffers["y"].read(np.zeros(3, dtype)), wanted[2])


def test_complex_numbers_are_no_other_type(device: Device) -> None:
    pipeline = device.compile_native(rotated(vp.f32x2))
    found = problems_of(lambda: pipeline.dispatch({"x": np.zeros(3, np.complex128), "turn": 1j}))
    assert found == (
        "'x' needs elements of f32x2, got dtype complex128; f32x2[n] is an array of shape (n, 2) of float32; np.asarray(x, np.complex64) converts",
        "'x' needs 1 axes, got shape [3]; f32x2[n] is an array of shape (n, 2) of float32",
    )
    with pytest.raises(vp.BindingError, match=r"x\.real and x\.imag are its parts"):
        device.compile_native(two_results()).dispatch({"x": np.zeros(3, np.complex64)})
    with pytest.raises(vp.BindingError, match="no numbers of the language"):
        device.upload(np.zeros(3, np.clongdouble))


def bytes_doubled() -> vp.Program:
    with vp.ProgramBuilder("bytes_doubled") as b:
        n = b.dim("n")
        x, y = b.read("x", vp.u8, n), b.read_write("y", vp.u8, n)
        y[b.global_id(0)] = x[b.global_id(0)] + x[b.global_id(0)] + y[b.global_id(0)]
    return b.program


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_bytes_are_arrays_of_u8(device: Device, make: Any) -> None:
    given, zeros = make(bytes([1, 2, 3])), np.zeros(3, np.uint8)
    assert device.upload(given).read().tolist() == [1, 2, 3] and device.upload(make(b"")).shape == (0,)
    pipeline = device.compile_native(bytes_doubled())
    assert pipeline.dispatch({"x": given, "y": zeros})["y"].tolist() == [2, 4, 6]
    assert pipeline.dispatch({"x": given, "y": given})["y"].tolist() == [3, 6, 9] and bytes(given) == bytes([1, 2, 3])


def test_bind_takes_memory_of_the_host_on_the_cpu(cpu: Device) -> None:
    pipeline = cpu.compile_native(bytes_doubled())
    y, twice = np.zeros(3, np.uint8), bytearray(3)
    launch = pipeline.bind({"x": b"\1\2\3", "y": y})
    launch()
    launch.set(x=np.full(3, 5, np.uint8), y=twice)()
    assert y.tolist() == [2, 4, 6] and list(twice) == [10, 10, 10]
    frozen = np.zeros(3, np.uint8)
    frozen.flags.writeable = False
    for read_only in (b"abc", memoryview(b"abc"), frozen):
        wanted = ("'y' is written, and its memory may only be read: a constant's, bytes, or another library's that allows no writes",)
        assert problems_of(lambda given=read_only: pipeline.bind({"x": y, "y": given})) == wanted
        assert problems_of(lambda given=read_only: launch.set(y=given)) == wanted
    assert problems_of(lambda: pipeline.bind({"x": np.zeros((3, 3))[:, 0], "y": np.zeros(2, np.uint8)})) == (
        "'x': it is not C-contiguous: np.ascontiguousarray(x) copies",
        "'x' needs elements of u8, got dtype float64; np.asarray(x, np.uint8) converts",
        "dim 'n' is 3 from axis 0 of 'x', but axis 0 of 'y' has 2",
    )
    complexes = np.array([1 + 2j, 3 + 4j], np.complex64)
    result = np.zeros(2, np.complex64)
    cpu.compile_native(rotated(vp.f32x2)).bind({"x": complexes, "y": result, "turn": 1j})()
    assert result.tolist() == [-2 + 1j, -4 + 3j]


@pytest.mark.parametrize("kind", ["reference", "wgpu"])
def test_bind_takes_no_host_memory_elsewhere(kind: str) -> None:
    device = open_device(kind)
    found = problems_of(lambda: device.compile_native(bytes_doubled()).bind({"x": np.zeros(3), "y": b"abcd"}))
    assert found == (
        "'x' must be a resident buffer (device.upload makes one), got ndarray",
        "'x' needs elements of u8, got dtype float64; np.asarray(x, np.uint8) converts",
        "'y' must be a resident buffer (device.upload makes one), got bytes",
        "dim 'n' is 3 from axis 0 of 'x', but axis 0 of 'y' has 4",
    )


def test_shapes_as_numbers_or_as_one_sequence(device: Device) -> None:
    buffer = device.upload(np.arange(12, dtype=np.uint32))
    assert buffer.reshape((3, 4)).shape == buffer.reshape([3, 4]).shape == buffer.reshape(3, 4).shape == (3, 4)
    assert buffer.reshape(3, 4).reshape((12,)).shape == buffer.reshape(12).shape == (12,)
    assert buffer.view(vp.u8, (3, 16)).shape == buffer.view(vp.u8, 3, 16).shape == (3, 16)
    assert buffer.reshape(-1, 3).shape == (4, 3) and buffer.reshape((2, -1, 3)).shape == (2, 2, 3) and buffer.reshape(3, 4).reshape(-1).shape == (12,)
    assert buffer.view(vp.u8, -1, 16).shape == (3, 16) and buffer[:0].reshape(3, -1).shape == (3, 0)
    for wrong in [(-1, 5), (-1, -1), (0, -1), (-2, 6), (3.0, -1), ((3, 4), 1), ((5,),), (((12,),),), ("12",)]:
        with pytest.raises(vp.BindingError):
            buffer.reshape(*wrong)


# ---------------------------------------------------------------- protocols that go wrong


class Place:
    """Says something of its device that is no device."""

    def __init__(self, place: Any) -> None:
        self.place = place

    def __dlpack_device__(self) -> Any:
        if isinstance(self.place, Exception):
            raise self.place
        return self.place

    def __dlpack__(self, **rest: Any) -> Any:
        raise KeyError("nothing here")


@pytest.mark.parametrize("place", ["x", (1,), (1, 2, 3), None, ("a", "b"), OSError("gone")])
def test_a_malformed_device_is_a_binding_error(cpu: Device, place: Any) -> None:
    pipeline = cpu.compile_native(bytes_doubled())
    with pytest.raises(vp.BindingError, match="__dlpack_device__ does not give"):
        cpu.wrap(Place(place))
    found = problems_of(lambda: pipeline.bind({"x": Place(place), "y": np.zeros(3, np.int8)}))
    assert "__dlpack_device__ does not give" in found[0] and found[1].startswith("'y' needs elements of u8")


def test_whatever_an_export_raises_is_a_binding_error(cpu: Device) -> None:
    with pytest.raises(vp.BindingError, match="handed over: 'nothing here'"):
        cpu.wrap(Place((dlpack.CPU, 0)))


def test_an_export_that_is_refused_keeps_its_exception_and_nothing_else(cpu: Device) -> None:
    buffer = cpu.upload(np.zeros(3, ml_dtypes.bfloat16))
    for _ in range(3):
        with pytest.raises((RuntimeError, BufferError), match="dtype"):
            np.from_dlpack(buffer)
    with pytest.raises(ZeroDivisionError):  # dropped while an exception is on its way
        _ = (buffer.__dlpack__(), buffer.__dlpack__(max_version=(1, 0)), 1 // 0)
    gc.collect()
    assert buffer.allocation._lent == 0
    held = cpu.telemetry.bytes_allocated
    buffer.free()
    assert cpu.telemetry.bytes_allocated == held - 6
