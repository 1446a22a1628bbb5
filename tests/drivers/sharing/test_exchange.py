"""Memory shared with other libraries: DLPack both ways on the CPU, the CUDA array interface and streams on CUDA."""

from __future__ import annotations

import gc
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from device_kinds import open_device
from fake_cuda import FakeDriver
from fake_device import installed

import vyre_py as vp
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.device import Device
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.sharing import dlpack
from vyre_py.ir.language.types import SCALARS, Type


def doubled(type_: Type = vp.f32) -> vp.Program:
    with vp.ProgramBuilder("doubled") as b:
        n = b.dim("n")
        x, y = b.read("x", type_, n), b.write("y", type_, n)
        y[b.global_id(0)] = x[b.global_id(0)] + x[b.global_id(0)]
    return b.program


class Owner:
    """Another library's array: NumPy memory that is handed over by DLPack alone."""

    def __init__(self, array: np.ndarray[Any, Any], type_: Type, device: tuple[int, int] = (dlpack.CPU, 0)) -> None:
        self.array, self.type, self.device = array, type_, device

    def __dlpack__(self, *, max_version: Any = None, **rest: Any) -> Any:
        return dlpack.export(self.array.ctypes.data, self.array.shape, self.type, self.device, self.array, max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


class Old(Owner):
    """From before DLPack 1."""

    def __dlpack__(self, stream: Any = None) -> Any:
        return super().__dlpack__()


@pytest.fixture
def cpu() -> Device:
    return open_device("cpu")


def test_numpy_sees_a_buffer_and_writes_it(cpu: Device) -> None:
    buffer = cpu.upload(np.arange(12, dtype=np.float32).reshape(3, 4))
    view = np.from_dlpack(buffer)
    assert view.shape == (3, 4) and view.dtype == np.float32 and np.array_equal(view, buffer.read())
    assert np.from_dlpack(buffer[1:]).tolist() == [[4, 5, 6, 7], [8, 9, 10, 11]]
    view[0, 0] = 7
    assert buffer.read()[0, 0] == 7


@pytest.mark.parametrize("type_", [t for t in SCALARS.values() if t.in_numpy], ids=str)
def test_every_type_goes_both_ways(cpu: Device, type_: Type) -> None:
    array = np.arange(7).astype(type_.dtype)
    assert np.array_equal(np.from_dlpack(cpu.upload(array)), array)
    wrapped = cpu.wrap(Owner(array, type_))
    assert wrapped.type is type_ and np.array_equal(wrapped.read(), array)
    assert np.array_equal(np.from_dlpack(wrapped), array)


def test_bfloat16_goes_both_ways(cpu: Device) -> None:
    array = np.arange(7).astype(ml_dtypes.bfloat16)
    buffer = cpu.wrap(array)
    assert buffer.type is vp.bf16
    again = cpu.wrap(Owner(array, vp.bf16))
    result = cpu.compile_native(doubled(vp.bf16)).dispatch({"x": again})["y"]
    assert result.dtype == ml_dtypes.bfloat16 and result.tolist() == [0, 2, 4, 6, 8, 10, 12]
    foreign = dlpack.import_from(buffer, "buffer")
    assert foreign.type is vp.bf16 and foreign.address == array.ctypes.data


@pytest.mark.parametrize(("type_", "code"), [(vp.f8e4m3, 10), (vp.f8e5m2, 12)], ids=str)
def test_floats_of_8_bits_go_both_ways(cpu: Device, type_: Type, code: int) -> None:
    """By the codes of dlpack.h (`kDLFloat8_e4m3fn`, `kDLFloat8_e5m2`), which NumPy does not read."""
    array = np.arange(256, dtype=np.uint8).view(type_.dtype)
    buffer = cpu.wrap(Owner(array, type_))
    assert buffer.type is type_ and buffer.read().tobytes() == array.tobytes()
    capsule, foreign = buffer.__dlpack__(max_version=(1, 0)), dlpack.import_from(buffer, "buffer")
    place, versioned = dlpack._managed(capsule)
    data = dlpack._STRUCTURES[versioned].from_address(place).tensor.dtype
    assert (data.code, data.bits, data.lanes) == (code, 8, 1)
    assert foreign.type is type_ and foreign.address == array.ctypes.data


def test_vectors_have_their_components_last(cpu: Device) -> None:
    buffer = cpu.upload(np.arange(6, dtype=np.float32).reshape(2, 3), vp.f32x3)
    assert np.from_dlpack(buffer).shape == (2, 3)


def test_launches_work_on_foreign_memory(cpu: Device) -> None:
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    launch = cpu.compile_native(doubled()).bind({"x": Owner(x, vp.f32), "y": cpu.wrap(y)})
    launch()
    assert np.array_equal(y, 2 * x)
    other = np.ones(100, np.float32)
    launch.set(x=Old(other, vp.f32))()
    assert np.array_equal(y, 2 * other)


def test_memory_lives_as_long_as_somebody_holds_it(cpu: Device) -> None:
    buffer = cpu.upload(np.arange(4, dtype=np.int32))
    allocation = buffer.allocation
    view = np.from_dlpack(buffer)
    buffer.free()
    assert buffer.allocation.freed
    with pytest.raises(BindingError, match="freed"):
        buffer.read()
    assert view.tolist() == [0, 1, 2, 3]
    del view, buffer
    gc.collect()
    assert allocation._lent == 0

    array = np.arange(4.0)
    count = sys.getrefcount(array)
    wrapped = cpu.wrap(Owner(array, vp.f64))
    assert sys.getrefcount(array) > count
    wrapped.free()
    gc.collect()
    assert sys.getrefcount(array) == count


def test_a_capsule_that_nobody_takes_gives_everything_back(cpu: Device) -> None:
    buffer = cpu.upload(np.arange(4, dtype=np.int32))
    capsules = [buffer.__dlpack__(), buffer.__dlpack__(max_version=(1, 0))]
    assert buffer.allocation._lent == 2
    del capsules
    gc.collect()
    assert buffer.allocation._lent == 0


def test_the_same_memory_twice_is_an_overlap(cpu: Device) -> None:
    array = np.arange(8, dtype=np.float32)
    with pytest.raises(BindingError, match="overlaps"):
        cpu.compile_native(doubled()).bind({"x": cpu.wrap(array), "y": cpu.wrap(array)})
    half = cpu.wrap(array)
    cpu.compile_native(doubled()).bind({"x": half[:4], "y": cpu.wrap(array)[4:]})()
    assert array[4:].tolist() == [0, 2, 4, 6]


def test_memory_that_may_only_be_read(cpu: Device) -> None:
    array = np.arange(4, dtype=np.float32)
    array.flags.writeable = False
    buffer = cpu.wrap(array)
    assert buffer.readonly and buffer[1:].readonly and buffer.reshape(2, 2).readonly
    with pytest.raises(BindingError, match="no writes"):
        cpu.compile_native(doubled()).bind({"x": cpu.upload(array), "y": buffer})
    with pytest.raises(BindingError, match="no writes"):
        buffer.write(np.ones(4, np.float32))
    with pytest.raises(BufferError, match="only be read"):
        buffer.__dlpack__()
    assert not np.from_dlpack(buffer).flags.writeable
    assert cpu.wrap(Owner(array, vp.f32)).readonly is False  # its owner says nothing of it


class OfJax(Owner):
    """JAX's arrays never change, and their capsules do not say so."""

    __module__ = "jaxlib._jax"


class BelowOfJax(OfJax):
    __module__ = __name__


@pytest.mark.parametrize("type_", [OfJax, BelowOfJax])
def test_arrays_that_never_change_are_not_written(cpu: Device, type_: Any) -> None:
    x, y, kept = np.arange(4, dtype=np.float32), np.zeros(4, np.float32), np.zeros(4, np.float32)
    never, words = type_(kept, vp.f32), "'y' is written, and its memory may only be read: .*; arrays of JAX never change: .*vyre_call"
    pipeline = cpu.compile_native(doubled())
    wrapped = cpu.wrap(never)
    assert wrapped.readonly and wrapped[1:].readonly
    launch, entry = pipeline.bind(x=type_(x, vp.f32), y=y), pipeline.callable()
    for write in (
        lambda: pipeline.bind(x=x, y=never), lambda: pipeline.bind({"x": x, "y": never}), lambda: launch.set(y=never), lambda: entry(x, never),
        lambda: entry(x=x, y=never),
    ):  # fmt: skip
        for _ in range(70):  # what comes again and again is known
            with pytest.raises(BindingError, match=words):
                write()
    with pytest.raises(BindingError, match="no writes"):
        entry(x, wrapped)
    with pytest.raises(BindingError, match="no writes"):
        wrapped.write(x)
    launch()
    assert not kept.any() and y.tolist() == [0, 2, 4, 6]
    launch.set(x=type_(x + 1, vp.f32))()
    assert y.tolist() == [2, 4, 6, 8]
    entry(never, y)
    assert not y.any()


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.arange(6.0).reshape(2, 3).T, "C-contiguous"),
        (np.zeros(3, np.clongdouble), "not a type of the language"),
        (Owner(np.arange(3.0), vp.f64, (dlpack.CUDA, 0)), "not on cpu:0"),
        (Owner(np.frombuffer(bytes(33), np.uint8)[1:], vp.f32), "not a multiple of 4"),
        (object(), "neither __dlpack__"),
    ],
)
def test_what_cannot_be_wrapped_says_why(cpu: Device, array: Any, words: str) -> None:
    with pytest.raises(BindingError, match=words):
        cpu.wrap(array)


def test_strides_of_another_order_are_refused_and_given_back(cpu: Device) -> None:
    array = np.arange(6.0).reshape(2, 3)
    count = sys.getrefcount(array)

    class Strided:
        def __dlpack__(self, **rest: Any) -> Any:
            return array.T.__dlpack__(**rest)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (dlpack.CPU, 0)

    with pytest.raises(BindingError, match="contiguous copy"):
        cpu.wrap(Strided())
    gc.collect()
    assert sys.getrefcount(array) == count


def test_devices_without_shared_memory_say_so() -> None:
    reference = open_device("reference")
    buffer = reference.upload(np.ones(3, np.float32))
    with pytest.raises(BufferError, match="read"):
        buffer.__dlpack__()
    with pytest.raises(BufferError, match="read"):
        buffer.__dlpack_device__()
    with pytest.raises(BindingError, match="upload"):
        reference.wrap(np.ones(3, np.float32))
    assert not hasattr(buffer, "__cuda_array_interface__")


def test_an_empty_array(cpu: Device) -> None:
    assert np.from_dlpack(cpu.upload(np.zeros((0, 3), np.float32))).shape == (0, 3)
    assert cpu.wrap(np.zeros((0, 3), np.float32)).read().shape == (0, 3)


# ---------------------------------------------------------------- CUDA


def test_arrays_on_a_gpu_that_never_change_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a stand-in for the driver."""
    installed(monkeypatch, FakeDriver(total=1 << 24))
    device = CudaDevice(0)
    x, memory = device.allocate(8, vp.f32), device.allocate(8, vp.f32)

    class Shared:
        __module__ = "jaxlib._jax"

        def __dlpack__(self, **rest: Any) -> Any:
            return memory.__dlpack__(**rest)

        def __dlpack_device__(self) -> tuple[int, int]:
            return memory.__dlpack_device__()

    class Told:
        __module__ = "jaxlib._jax"
        __cuda_array_interface__ = memory.__cuda_array_interface__

    pipeline = device.compile_native(doubled())
    launch, entry = pipeline.bind(x=x, y=memory), pipeline.callable()
    for never in (Shared(), Told()):
        assert device.wrap(never).readonly
        for write, given in ((pipeline.bind, {"x": x, "y": never}), (entry, {"x": x, "y": never}), (launch.set, {"y": never})):
            with pytest.raises(BindingError, match="arrays of JAX never change"):
                write(**given)
        with pytest.raises(BindingError, match="arrays of JAX never change"):
            pipeline.dispatch({"x": x, "y": never})
        launch.set(x=never, y=x)


class Interface:
    """An object that has the CUDA array interface alone."""

    def __init__(self, source: Any, **changes: Any) -> None:
        self.source = source
        self.__cuda_array_interface__ = {**source.__cuda_array_interface__, **changes}


def test_cuda_array_interface_both_ways() -> None:
    cuda = open_device("cuda")
    array = np.arange(1000, dtype=np.float32)
    buffer = cuda.upload(array)
    said = buffer.__cuda_array_interface__
    assert said["shape"] == (1000,) and said["typestr"] == "<f4" and said["version"] == 3 and said["stream"] == cuda.raw.stream
    again = cuda.wrap(Interface(buffer[100:]))
    assert np.array_equal(again.read(), array[100:])
    with pytest.raises(BindingError, match="contiguous"):
        cuda.wrap(Interface(buffer, strides=(8,), shape=(500,)))
    with pytest.raises(BindingError, match="mask"):
        cuda.wrap(Interface(buffer, mask=buffer))
    with pytest.raises(BindingError, match="its memory is the host's"):
        cuda.wrap(array)
    assert cuda.wrap(Interface(buffer, data=(said["data"][0], True))).readonly


def test_torch_shares_memory_in_stream_order() -> None:
    cuda = open_device("cuda")
    torch = pytest.importorskip("torch")
    pipeline = cuda.compile_native(doubled())
    n = 1 << 22
    for turn in range(20):
        # On torch's stream, then on ours, then on torch's again, with nothing else to order them.
        x = torch.full((n,), float(turn), device="cuda")
        x += 1
        y = torch.empty_like(x)
        wrapped = cuda.wrap(y)
        pipeline.bind({"x": x, "y": wrapped})()
        seen = torch.from_dlpack(wrapped)
        assert seen.data_ptr() == y.data_ptr()
        assert bool((seen == 2 * (turn + 1)).all())
    bf = torch.arange(100, device="cuda").to(torch.bfloat16)
    out = cuda.compile_native(doubled(vp.bf16)).dispatch({"x": bf})["y"]
    assert out.astype(np.float32).tolist() == (2 * bf).float().cpu().tolist()


def test_each_side_waits_for_the_other() -> None:
    """Much is enqueued first, so that who does not wait reads what was there before."""
    cuda = open_device("cuda")
    torch = pytest.importorskip("torch")
    pipeline = cuda.compile_native(doubled())
    big = [cuda.allocate(1 << 26, vp.f32) for _ in range(2)]
    busy = pipeline.bind({"x": big[0], "y": big[1]})
    with torch.cuda.stream(torch.cuda.Stream()):
        x, y = torch.zeros(1000, device="cuda"), torch.zeros(1000, device="cuda")
        wrapped = cuda.wrap(y)
        torch.cuda.synchronize()
        torch.cuda._sleep(200_000_000)  # some 0.1 s of its stream
        x += 1
        launch = pipeline.bind({"x": x, "y": wrapped})
        launch()
        cuda.synchronize()
        assert bool((y == 2).all())

        y.zero_()
        torch.cuda.synchronize()
        for _ in range(500):
            busy()
        launch()
        assert bool((torch.from_dlpack(wrapped) == 2).all())


def test_cupy_shares_memory() -> None:
    cuda = open_device("cuda")
    cupy = pytest.importorskip("cupy")
    x = cupy.arange(1000, dtype=cupy.float32)
    y = cuda.allocate(1000, vp.f32)
    cuda.compile_native(doubled()).bind({"x": x, "y": y})()
    assert bool((cupy.from_dlpack(y) == 2 * x).all()) and bool((cupy.asarray(y) == 2 * x).all())
