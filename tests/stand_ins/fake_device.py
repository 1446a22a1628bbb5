"""CUDA devices over stand-ins for the driver."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from vyre_py.drivers import cuda
from vyre_py.drivers.cuda import library
from vyre_py.drivers.cuda.device import CudaDevice

__all__ = ["installed", "opened"]


def installed(monkeypatch: pytest.MonkeyPatch, driver: Any, kernel: Callable[[bytes], object] | None = None) -> Any:
    """A stand-in, in the place of NVIDIA's driver; `kernel` is what its launches do."""
    if kernel is not None:
        driver.kernel = kernel
    monkeypatch.setattr(library, "load", lambda: driver)
    monkeypatch.setattr(cuda, "load", lambda: driver)
    return driver


@contextmanager
def opened(driver: Any) -> Iterator[CudaDevice]:
    """A device over a stand-in that is installed. It is closed at the end, and then nothing but code may be left of it."""
    device = CudaDevice(0)
    yield device
    device.close()
    gc.collect()
    assert not driver.misuse and not driver.capturing
    assert not [what for what in driver.alive_handles.values() if what != "module"], driver.alive_handles
