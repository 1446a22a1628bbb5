"""wgpu-py, loaded when it is first needed, and the adapters that it finds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any, Final

from vyre_py.drivers.errors import DeviceUnavailable
from vyre_py.ir.extras import extra
from vyre_py.ir.imports import importing

__all__ = ["adapters", "errors", "is_software", "load", "native", "refusals", "require_own_process"]

_TYPE_RANKS: Final = {"DiscreteGPU": 0, "IntegratedGPU": 1, "CPU": 3}
_OTHER_RANK: Final = 2
_SOFTWARE: Final = "CPU"

# WebGPU over OpenGL lacks limits and exactness that the kernels rely on; every adapter that matters has another backend.
_LEFT_OUT: Final = "OpenGL"


_forked: list[str] = []  # why nothing of wgpu may be called in this process, if that is so


def _forbid() -> None:
    """In a forked child: the driver's threads and locks are its parent's, and any call may wait for them forever."""
    _forked.append("this process was forked from one that used wgpu")


def require_own_process() -> None:
    """Raises DeviceUnavailable in a process that was forked after wgpu was loaded."""
    if _forked:
        raise DeviceUnavailable("wgpu cannot be used here", cause=_forked[0], remedy="start processes with multiprocessing's spawn")


@cache
def load() -> ModuleType:
    """The package. Raises DeviceUnavailable, which names the command that installs it."""
    try:
        with importing:
            import wgpu
            import wgpu.backends.wgpu_native as native
    except (ImportError, OSError, RuntimeError) as error:
        raise DeviceUnavailable("wgpu cannot be loaded", status=str(error), remedy=extra("wgpu")) from error
    assert native  # importing it chooses the backend
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forbid)
    package: ModuleType = wgpu
    return package


@cache
def native() -> ModuleType:
    """wgpu-py's module over wgpu-native's C interface: `ffi`, `lib`, and `libf`, whose calls raise the errors that they cause in the calling thread."""
    load()
    with importing:
        import wgpu.backends.wgpu_native._api as api
    module: ModuleType = api
    return module


@cache
def errors() -> tuple[type[Exception], ...]:
    """The errors that calls of wgpu-py raise when the device refuses."""
    return (load().GPUError, RuntimeError, OSError)


@cache
def refusals() -> tuple[type[Exception], ...]:
    """The same, and what is raised where another thread closes the device meanwhile: its objects are gone."""
    return (*errors(), AttributeError)


def is_software(adapter: Any) -> bool:
    """Whether an adapter is a program on the CPU."""
    return bool(adapter.info["adapter_type"] == _SOFTWARE)


def _rank(adapter: Any) -> int:
    return _TYPE_RANKS.get(adapter.info["adapter_type"], _OTHER_RANK)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without a desktop session, keeps Mesa's layer that puts the screen's GPU first from writing to stderr that there is no screen."""
    name = "NODEVICE_SELECT"
    headless = "XDG_RUNTIME_DIR" not in os.environ and name not in os.environ
    if headless:
        os.environ[name] = "1"
    try:
        yield
    finally:
        if headless:
            os.environ.pop(name, None)


@cache
def adapters() -> tuple[Any, ...]:
    """The adapters, GPUs before software, each device through one backend only. Raises DeviceUnavailable."""
    package = load()
    try:
        with _quiet():
            found = [a for a in package.gpu.enumerate_adapters_sync() if a.info["backend_type"] != _LEFT_OUT]
    except errors() as error:
        raise DeviceUnavailable("wgpu cannot list its adapters", status=str(error), remedy="look at the graphics driver") from error
    backends: dict[tuple[int, int], str] = {}
    for adapter in found:
        backends.setdefault((adapter.info["vendor_id"], adapter.info["device_id"]), adapter.info["backend_type"])
    own = [a for a in found if backends[a.info["vendor_id"], a.info["device_id"]] == a.info["backend_type"]]
    return tuple(sorted(own, key=_rank))
