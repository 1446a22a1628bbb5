"""NVIDIA's driver library through cuda-bindings, loaded when first asked for."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from vyre_py.drivers.cuda.status import failure
from vyre_py.drivers.errors import DeviceUnavailable

__all__ = ["load"]

_INSTALL: Final = "pip install 'vyre-py[cuda]' (or vyre-py[cuda12] for drivers older than 580)"


@cache
def load() -> Any:
    """The module `cuda.bindings.driver`, initialised. Raises DeviceUnavailable when the package or the driver is missing."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise DeviceUnavailable("CUDA devices need the package cuda-bindings", cause=str(error), remedy=_INSTALL) from error
    try:
        (status,) = driver.cuInit(0)
    except RuntimeError as error:  # what cuda-bindings raises when there is no libcuda, or one that lacks a function
        raise DeviceUnavailable("NVIDIA's driver library can't be loaded", cause=str(error), remedy="install NVIDIA's display driver") from error
    if status:
        raise DeviceUnavailable(str(failure(status, "CUDA can't be initialised")), status=status.name)
    return driver
