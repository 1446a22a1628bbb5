"""A plugin of pytest: runs the tests that a file names, in its order, and writes down when each begins, so that one that hangs is known."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest

_CHOSEN = json.loads(Path(os.environ["VYRE_MUTANT_TESTS"]).read_text(encoding="utf-8"))
_STARTED = Path(os.environ["VYRE_MUTANT_STARTED"])

# A mutant that takes ever more memory ends by itself.
_MEMORY_BYTES = 24 << 30
resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps the chosen ones."""
    by_name = {item.nodeid: item for item in items}
    items[:] = [by_name[name] for name in _CHOSEN if name in by_name]


def pytest_runtest_logstart(nodeid: str) -> None:
    """Says which test runs."""
    _STARTED.write_text(nodeid, encoding="utf-8")
