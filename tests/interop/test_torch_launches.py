"""Kernels of compiled graphs on a GPU, over a stand-in for the driver and for tensors: which entry is launched, and what is refused."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from device_kinds import need_package
from exchanged import Exchanged, exchange_table
from fake_device import installed

try:
    import torch  # noqa: F401 - the kernels' own module imports it
except ImportError:
    need_package("torch", "torch")

from test_cuda_callable import Launched

import vyre_py as vp
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.interop.torch import gpu_kernels, runtime

AXPY = """program kernel(n) workgroup(64) over(n) {
  param k: i64
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  y[global_id.x] = y[global_id.x] + x[global_id.x] * cast(k, f32)
}"""


class Tensor:
    """What a kernel asks of a tensor."""

    def __init__(self, address: int, *shape: int, on_gpu: bool = True) -> None:
        self.address, self.shape, self.is_cuda, self.device = address, shape, on_gpu, "cuda:0" if on_gpu else "cpu"

    def data_ptr(self) -> int:
        return self.address

    def numel(self) -> int:
        return self.shape[0]

    def dim(self) -> int:
        return len(self.shape)

    def stride(self) -> tuple[int, ...]:
        return (1,)

    def element_size(self) -> int:
        return 4


class Told(Tensor, Exchanged):
    """The same, which native code may ask."""

    __dlpack_c_exchange_api__ = exchange_table(1)

    def __init__(self, address: int, *shape: int, place: int = 2) -> None:
        super().__init__(address, *shape, on_gpu=place == 2)
        Exchanged.__init__(self, np.zeros(shape, np.float32), [1], place=place, data=address)
        self.shape = shape  # type: ignore[assignment]  # what is asked by Python; native code has the words
        self.sizes = (ctypes.c_int64 * 1)(*shape)
        self.words = self.words[:24] + ctypes.addressof(self.sizes).to_bytes(8, "little") + self.words[32:]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launched]:
    driver = installed(monkeypatch, Launched())
    device = CudaDevice(0)
    monkeypatch.setattr(gpu_kernels, "gpu_device", lambda ordinal: device)
    yield driver
    device.close()


def test_a_launch_is_the_one_that_bind_makes(fake: Launched) -> None:
    device: Any = gpu_kernels.gpu_device(0)
    kernel, pipeline = gpu_kernels.gpu_kernel(AXPY, 2, [], 0), device.compile_native(vp.Program.from_text(AXPY))
    memory = device.allocate(3000, vp.f32)
    for first, count in ((0, 1000), (0, 1001), (1, 1000), (3, 0)):  # several elements an invocation, whose last some are alone; one; none
        x, y = memory[first : first + count], memory[1500 + first : 1500 + first + count]
        pipeline.bind(x=x, y=y, k=3)()
        wanted = fake.taken()
        addresses = [memory.handle + 4 * first, memory.handle + 4 * (1500 + first)]
        for _ in range(2):
            kernel(*[Tensor(address, count) for address in addresses], count, 3, 77)
            found = fake.taken()
            assert [(tuple(numbers[:-1]), block) for numbers, block in found] == [(tuple(numbers[:-1]), block) for numbers, block in wanted]
            assert all(numbers[-1] == 77 for numbers, _ in found)


def test_calls_of_known_sizes_are_native_and_the_same(fake: Launched, monkeypatch: pytest.MonkeyPatch) -> None:
    device: Any = gpu_kernels.gpu_device(0)
    kernel, seen = gpu_kernels.gpu_kernel(AXPY, 2, [], 0), list[Any]()
    real = gpu_kernels.GpuKernel._enqueue
    monkeypatch.setattr(gpu_kernels.GpuKernel, "_enqueue", lambda kernel, *arguments: seen.append(arguments) or real(kernel, *arguments))
    memory = device.allocate(4000, vp.f32)
    launches = [(0, 1000), (1, 1000), (2, 1000), (4, 1000), (0, 1001), (3, 1001), (0, 1000)]
    for first, count in launches:
        arguments = [memory.handle + 4 * first, memory.handle + 4 * (2000 + first)]
        real(kernel, *[Tensor(address, count) for address in arguments], count, 3, 77)
        wanted = fake.taken()
        kernel(*[Told(address, count) for address in arguments], count, 3, 77)
        assert fake.taken() == wanted and len(wanted) == 1
    assert [arguments[2] for arguments in seen] == [1000, 1001, 1000]  # sizes that are not those of the call before
    one, two = Told(memory.handle, 1000), Told(memory.handle + 8000, 1000)
    for odd, count in (((one, two, 1000, 3, True), 4), ((one, Tensor(memory.handle + 8000, 1000), 1000, 3, 0), 5), ((one, two, 1000, 4, 0), 6)):
        kernel(*odd)
        assert len(fake.taken()) == 1 and len(seen) == count
    for told, number in ((Told(memory.handle, 999), 7), (Told(memory.handle, 1000, place=1), 8)):
        with pytest.raises(vp.BindingError, match="'x' "):
            kernel(told, two, 1000, 4, 0)
        assert len(seen) == number and not fake.taken()
    held = [one, two, kernel._state]
    before = [sys.getrefcount(thing) for thing in held]
    for _ in range(100):
        kernel(one, two, 1000, 4, 0)
    assert [sys.getrefcount(thing) for thing in held] == before and len(seen) == 8 and len(fake.taken()) == 100
    launched = list[Any]()
    with runtime.watching(launched.append):
        kernel(one, two, 1000, 4, 0)
    assert launched == [kernel] and len(seen) == 9


def test_a_problem_is_raised_once_by_the_next_call(fake: Launched, monkeypatch: pytest.MonkeyPatch) -> None:
    device: Any = gpu_kernels.gpu_device(0)
    zeros = gpu_kernels.torch.zeros
    monkeypatch.setattr(gpu_kernels.torch, "zeros", lambda *shape, **named: zeros(*shape, **named | {"pin_memory": False}))  # what a GPU does
    text = AXPY.replace("  y[", "  buffer problem: u32[1] read_write\n  if k < 0 { problem[0] = 1u32 }\n  y[")
    kernel, memory = gpu_kernels.gpu_kernel(text, 2, [("IndexError", "too far")], 0), device.allocate(2000, vp.f32)
    x, y = Told(memory.handle, 1000), Told(memory.handle + 4000, 1000)
    for _ in range(3):
        kernel(x, y, 1000, 1, 0)
    assert len(fake.taken()) == 3
    word = ctypes.c_int32.from_address(kernel._word.data_ptr())
    word.value = 1
    with pytest.raises(IndexError, match="too far"):
        kernel(x, y, 1000, 1, 0)
    assert not fake.taken() and word.value == 0
    kernel(x, y, 1000, 1, 0)
    assert len(fake.taken()) == 1


def test_what_does_not_fit_is_refused(fake: Launched) -> None:
    kernel = gpu_kernels.gpu_kernel(AXPY, 2, [], 0)
    with pytest.raises(vp.BindingError, match="'y' spans 396 bytes; 400 are needed"):
        kernel(Tensor(1 << 20, 100), Tensor(2 << 20, 99), 100, 1, 0)
    with pytest.raises(vp.BindingError, match="'x' is a tensor on cpu; cuda:0 runs the kernel"):
        kernel(Tensor(1 << 20, 100, on_gpu=False), Tensor(2 << 20, 100), 100, 1, 0)
    assert not fake.taken()
