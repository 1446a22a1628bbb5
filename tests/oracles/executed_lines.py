"""How much work something is, whatever the machine: the lines of Python that it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["lines_executed"]


def lines_executed(work: Callable[[], object], *folders: str) -> int:
    """How many lines `work` runs of files whose path has one of these texts in it; of all files where none is given."""
    counted = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal counted
        if folders and not any(folder in frame.f_code.co_filename for folder in folders):
            return None
        counted += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return counted
