"""Which kinds of device, and of NVIDIA's tools, the tests run on."""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest

from vyre_py.drivers.cpu.device import CpuDevice
from vyre_py.drivers.device import Device
from vyre_py.drivers.errors import DeviceUnavailable
from vyre_py.drivers.registry import device
from vyre_py.lowering.llvm.gpu.machine_code import nvjitlink
from vyre_py.lowering.llvm.gpu.machine_code.disassemble import find_nvdisasm
from vyre_py.lowering.target import Target

KINDS = ("reference", "cpu", "wgpu", "cuda")


def open_device(kind: str) -> Device:
    """The device; an absent one skips the test, or fails it when VYRE_REQUIRE_DEVICES (a comma list) names the kind."""
    try:
        return device(kind)
    except DeviceUnavailable as error:
        if kind in os.environ.get("VYRE_REQUIRE_DEVICES", "").split(","):
            pytest.fail(f"device {kind} is required: {error}")
        pytest.skip(f"device {kind}: {str(error).splitlines()[0]}")


def cpu_of_lanes(lanes: int) -> CpuDevice:
    """The CPU, whose kernels have so many lanes."""
    made = CpuDevice(0)
    made.target = Target("host", "native", lanes)
    return made


def _need(kind: str, here: bool, how: str) -> None:
    if here:
        return
    if kind in os.environ.get("VYRE_REQUIRE_DEVICES", "").split(","):
        pytest.fail(f"{kind} is required: {how}")
    pytest.skip(f"{kind} is not here: {how}", allow_module_level=True)


def need_package(name: str, kind: str) -> None:
    """Where a package is not installed, the test, or the module, is skipped, or fails when VYRE_REQUIRE_DEVICES names the `kind` of tests that need it."""
    _need(kind, importlib.util.find_spec(name) is not None, "pip install -e '.[dev]'")


def need_program(name: str, kind: str) -> None:
    """Where a program is not on the path, the test is skipped, or fails when VYRE_REQUIRE_DEVICES names the `kind` of tests that need it."""
    _need(kind, shutil.which(name) is not None, f"install {name}")


def need_nvjitlink() -> None:
    """Where NVIDIA's linker is not, the test is skipped, or fails when VYRE_REQUIRE_DEVICES names `nvjitlink`."""
    _need("nvjitlink", nvjitlink.available(), "pip install nvidia-nvjitlink cuda-bindings")


def need_nvdisasm() -> None:
    """Where NVIDIA's disassembler is not, the test is skipped, or fails when VYRE_REQUIRE_DEVICES names `nvdisasm`."""
    _need("nvdisasm", find_nvdisasm() is not None, "pip install nvidia-cuda-nvdisasm")
