"""Which kinds of device the tests run on."""

from __future__ import annotations

import os

import pytest

from vyre_py.drivers.device import Device
from vyre_py.drivers.errors import DeviceUnavailable
from vyre_py.drivers.registry import device

KINDS = ("reference", "cpu", "wgpu", "cuda")


def open_device(kind: str) -> Device:
    """The device; an absent one skips the test, or fails it when VYRE_REQUIRE_DEVICES (a comma list) names the kind."""
    try:
        return device(kind)
    except DeviceUnavailable as error:
        if kind in os.environ.get("VYRE_REQUIRE_DEVICES", "").split(","):
            pytest.fail(f"device {kind} is required: {error}")
        pytest.skip(f"device {kind}: {str(error).splitlines()[0]}")
