"""Devices as fixtures: each test that takes `device` runs once per kind; an absent one is skipped, or fails where it is required."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

KINDS = ("reference", "cpu", "wgpu", "cuda")


def open_device(kind: str) -> Device:
    """The device; an absent one skips the test, or fails it when VYRE_REQUIRE_DEVICES (a comma list) names the kind."""
    from vyre_py.drivers.errors import DeviceUnavailable
    from vyre_py.drivers.registry import device

    try:
        return device(kind)
    except DeviceUnavailable as error:
        if kind in os.environ.get("VYRE_REQUIRE_DEVICES", "").split(","):
            pytest.fail(f"device {kind} is required: {error}")
        pytest.skip(f"device {kind}: {error}")


@pytest.fixture(params=KINDS)
def device(request: pytest.FixtureRequest) -> Device:
    """Each kind of device in turn."""
    return open_device(request.param)


@pytest.fixture(params=("reference", "cpu", "cuda"))
def strict_device(request: pytest.FixtureRequest) -> Device:
    """Each kind of device whose floating point is strict."""
    return open_device(request.param)
