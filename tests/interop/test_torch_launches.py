"""Kernels of compiled graphs on a GPU, over a stand-in for the driver and for tensors: which entry is launched, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fake_device import installed

pytest.importorskip("torch")

from test_cuda_callable import Launched

import vyre_py as vp
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.interop.torch import gpu_kernels

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


def test_what_does_not_fit_is_refused(fake: Launched) -> None:
    kernel = gpu_kernels.gpu_kernel(AXPY, 2, [], 0)
    with pytest.raises(vp.BindingError, match="'y' spans 396 bytes; 400 are needed"):
        kernel(Tensor(1 << 20, 100), Tensor(2 << 20, 99), 100, 1, 0)
    with pytest.raises(vp.BindingError, match="'x' is a tensor on cpu; cuda:0 runs the kernel"):
        kernel(Tensor(1 << 20, 100, on_gpu=False), Tensor(2 << 20, 100), 100, 1, 0)
    assert not fake.taken()
