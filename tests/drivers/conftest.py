"""Fixtures of tests about calls."""

from __future__ import annotations

from typing import Any

import pytest

from vyre_py.drivers.callable import CallEntry


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls of pipelines' functions that native code did not take."""
    calls: list[Any] = []
    general = CallEntry._slow

    def told(entry: CallEntry, *arguments: Any, **named: Any) -> Any:
        calls.append((arguments, named))
        return general(entry, *arguments, **named)

    monkeypatch.setattr(CallEntry, "_slow", told)
    return calls
