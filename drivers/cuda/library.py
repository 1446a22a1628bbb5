"""NVIDIA's driver library through cuda-bindings, loaded when first asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from vyre_py.drivers.cuda.status import failure
from vyre_py.drivers.errors import DeviceUnavailable
from vyre_py.ir.extras import CUDA
from vyre_py.ir.imports import importing

__all__ = ["address", "load"]


# The driver's own cache of PTX that it compiled, where the user has not decided: on, and large enough not to forget between runs.
_JIT_CACHE: Final[Mapping[str, str]] = {"CUDA_CACHE_DISABLE": "0", "CUDA_CACHE_MAXSIZE": str(1 << 30)}

# The version of the driver's interface whose functions native code calls.
_INTERFACE: Final = 12000


# In a forked child: the driver that the parent had loaded.
_inherited: list[Any] = []


@cache
def load() -> Any:
    """The module `cuda.bindings.driver`, initialised. Raises DeviceUnavailable when the package or the driver is missing, and in a forked child of a
    process that has used them."""
    if _inherited:
        raise DeviceUnavailable(
            "CUDA devices can't be used in this process", cause="it was forked from one that had used CUDA, which does not survive that",
            remedy="use the start method 'spawn' for worker processes, or open devices in the child only",
        )  # fmt: skip
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise DeviceUnavailable(
            "CUDA devices can't be used in this process", cause="this Python runs without its global lock, which keeps launches of several threads apart",
            remedy="set PYTHON_GIL=1, or use a build of Python that has the lock",
        )  # fmt: skip
    try:
        with importing:
            from cuda.bindings import driver
    except ImportError as error:
        raise DeviceUnavailable("CUDA devices need the package cuda-bindings", cause=str(error), remedy=CUDA) from error
    for name, value in _JIT_CACHE.items():
        os.environ.setdefault(name, value)
    try:
        (status,) = driver.cuInit(0)
    except RuntimeError as error:  # what cuda-bindings raises when there is no libcuda, or one that lacks a function
        raise DeviceUnavailable("NVIDIA's driver library can't be loaded", cause=str(error), remedy="install NVIDIA's display driver") from error
    if status:
        raise DeviceUnavailable(str(failure(status, "CUDA can't be initialised")), status=status.name)
    return driver


def _forked() -> None:
    if load.cache_info().currsize:
        _inherited.append(load())
        load.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def address(cuda: Any, name: str) -> int:
    """Where a function of the driver begins, for native code. Raises DeviceUnavailable when the driver lacks it."""
    status, found, _ = cuda.cuGetProcAddress(name.encode(), _INTERFACE, 0)
    if status and status.name != "CUDA_ERROR_NOT_FOUND":
        raise failure(status, f"the driver's function {name} cannot be had", DeviceUnavailable)
    if status or not found:
        raise DeviceUnavailable(f"the driver has no function {name}", remedy="update NVIDIA's display driver")
    return int(found)
