"""A WebGPU device of a test's own, beside the one that all share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from device_kinds import open_device

from vyre_py.drivers.wgpu import open_device as open_own


@pytest.fixture
def own() -> Iterator[Any]:
    """It may be closed, lost or watched; skipped, or failed, where there is no adapter."""
    open_device("wgpu")
    made: Any = open_own(0)
    yield made
    made.close()
