"""A device over a stand-in for the driver, so that every row can be tried without a GPU."""

from __future__ import annotations

from typing import Any
from unittest import mock

from tests.tree import on_path
from vyre_py.drivers.cuda import library
from vyre_py.drivers.cuda.device import CudaDevice

__all__ = ["dry_device"]


def dry_device() -> CudaDevice:
    """The device. Kernels do nothing on it."""
    on_path()
    from fake_graphs import FakeGraphDriver

    class Driver(FakeGraphDriver):
        """One that takes arguments as the C loops give them, too: a pointer to each, which need not be those of `extra`."""

        def cuLaunchKernel(self, *arguments: Any) -> Any:
            return (self.CUresult.CUDA_SUCCESS,) if arguments[9] or not arguments[10] else super().cuLaunchKernel(*arguments)

    driver = Driver(total=1 << 32)
    mock.patch.object(library, "load", return_value=driver).start()
    return CudaDevice(0)
