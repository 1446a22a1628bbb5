"""Where in the user's own code a builder was called."""

from __future__ import annotations

import contextlib
import linecache
import sys
from pathlib import Path
from typing import Final

from vyre_py.ir.errors import Place

__all__ = ["user_place"]

_OURS: Final = str(Path(__file__).resolve().parent)
_CONTEXTLIB: Final = contextlib.contextmanager.__code__.co_filename  # stands between a `with` block of the user and the builder
_ours: dict[str, bool] = {}


def _is_ours(file: str) -> bool:
    known = _ours.get(file)
    if known is None:
        known = _ours[file] = str(Path(file).resolve().parent) == _OURS
    return known


def user_place(with_source: bool = True) -> Place | None:
    """The innermost frame outside this package; its source line when `with_source`, for messages."""
    frame = sys._getframe(1)
    while frame is not None and (_is_ours(frame.f_code.co_filename) or frame.f_code.co_filename == _CONTEXTLIB):
        back = frame.f_back
        if back is None:
            return None
        frame = back
    file, line = frame.f_code.co_filename, frame.f_lineno
    return Place(file, line, source=linecache.getline(file, line).strip() if with_source else "")
