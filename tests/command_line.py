"""Commands as tests give them, in this process: what they say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vyre_py.__main__ import main

__all__ = ["said", "told"]


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    status = main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return status, out, err


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """What a command that has to succeed reports as JSON."""
    status, out, err = said(capsys, *arguments, "--json")
    assert (status, err) == (0, "")
    return dict(json.loads(out))
