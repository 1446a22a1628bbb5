"""Devices as fixtures: each test that takes `device` runs once per kind; an absent one is skipped, or fails where it is required."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

# What a test compiles is compiled: nothing of it comes from an earlier run, and nothing is left for a later one. Tests of the disk cache name their own.
os.environ["VYRE_CACHE_LIMIT"] = "0"
# Stand-ins for the driver load anything, so nothing is assembled for them; what is assembled has tests of its own, and real GPUs.
if "cuda" not in os.environ.get("VYRE_REQUIRE_DEVICES", ""):
    os.environ.setdefault("VYRE_ASSEMBLER", "driver")
# NumPy's threads for products of matrices take a third of what it takes to import it, in each of the hundreds of processes that tests start, and nothing here
# is large enough for them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The Vulkan device in software compiles each shader as it comes, without its own optimiser, which takes longer than the shaders run.
os.environ.setdefault("GALLIVM_PERF", "nopt")

import pytest
from device_kinds import KINDS, open_device
from filetest import WRITTEN, write_out
from time_limit import TimeLimit

from vyre_py.drivers.cache.lookup import clear_memory
from vyre_py.drivers.device import Device


def pytest_configure(config: pytest.Config) -> None:
    """A test that hangs fails, and the others go on."""
    if limit := float(os.environ.get("VYRE_TEST_SECONDS", "600")):
        config.pluginmanager.register(TimeLimit(limit))
    _share_bytecode(config)
    if config.getoption("numprocesses", None):
        _share_written(config)


def _share_written(config: pytest.Config) -> None:
    """Filetests whose values oracles compute are written before pytest-xdist starts its workers, which would else compute all of them, each for itself."""
    folder = Path(tempfile.mkdtemp(prefix="vyre-written-"))
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    write_out(folder)
    patch.setenv(WRITTEN, str(folder))


def _share_bytecode(config: pytest.Config) -> None:
    """Where Python is told to leave no bytecode beside sources, the processes that tests start share a folder of it, which goes when the run ends: each would
    else compile again all that it imports."""
    if not os.environ.get("PYTHONDONTWRITEBYTECODE") or "PYTHONPYCACHEPREFIX" in os.environ:
        return
    folder = tempfile.mkdtemp(prefix="vyre-bytecode-")
    patch = pytest.MonkeyPatch()
    patch.delenv("PYTHONDONTWRITEBYTECODE")
    patch.setenv("PYTHONPYCACHEPREFIX", folder)
    config.add_cleanup(patch.undo)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_finish() -> None:
    _settle()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Fixtures of a file are gone when the next one's tests begin."""
    yield
    if nextitem is None or nextitem.path != item.path:
        _settle()


def _settle() -> None:
    """What is there now stays, and is not looked at again by tests that collect garbage, some of them after every call: the tests themselves are many
    objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_is_compiled_yet() -> None:
    """No test finds what another one has compiled."""
    clear_memory()


@pytest.fixture(params=KINDS)
def device(request: pytest.FixtureRequest) -> Device:
    """Each kind of device in turn."""
    return open_device(request.param)


@pytest.fixture(params=("reference", "cpu", "cuda"))
def strict_device(request: pytest.FixtureRequest) -> Device:
    """Each kind of device whose floating point is strict."""
    return open_device(request.param)
