"""Devices as fixtures: each test that takes `device` runs once per kind; an absent one is skipped, or fails where it is required."""

from __future__ import annotations

import pytest
from device_kinds import KINDS, open_device

from vyre_py.drivers.device import Device


@pytest.fixture(params=KINDS)
def device(request: pytest.FixtureRequest) -> Device:
    """Each kind of device in turn."""
    return open_device(request.param)


@pytest.fixture(params=("reference", "cpu", "cuda"))
def strict_device(request: pytest.FixtureRequest) -> Device:
    """Each kind of device whose floating point is strict."""
    return open_device(request.param)
