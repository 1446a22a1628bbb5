"""Where in the user's own code a builder was called, and what is refused or warned of there."""

from __future__ import annotations

import contextlib
import linecache
import sys
import warnings
from pathlib import Path
from typing import Any, Final, NoReturn

from vyre_py.ir.language.errors import Diagnostic, Place, ProgramWarning, ValidationError
from vyre_py.ir.language.rules import finding

__all__ = ["ITEM", "NoSuchName", "fail", "missing", "user_place", "warn"]

ITEM: Final = "x.item() takes the element of a tile that has one"
_OURS: Final = Path(__file__).resolve().parents[1]  # the whole floor
_CONTEXTLIB: Final = contextlib.contextmanager.__code__.co_filename  # stands between a `with` block of the user and the builder
_ours: dict[str, bool] = {_CONTEXTLIB: True}
_sourceless: set[str] = set()  # files that cannot be read, so that they are not looked for at every call
_WARNED: Final[dict[Any, Any]] = {}  # what Python has shown already, as it keeps that


def _is_ours(file: str) -> bool:
    ours = _ours[file] = Path(file).resolve().is_relative_to(_OURS)
    return ours


def _source(file: str, line: int) -> str:
    if file in _sourceless:
        return ""
    text = linecache.getline(file, line)
    if not text and file not in linecache.cache:
        _sourceless.add(file)
    return text


def user_place() -> Place | None:
    """The innermost frame outside this package, with its source line where that can be read."""
    frame = sys._getframe(1)
    while True:
        file = frame.f_code.co_filename
        ours = _ours.get(file)
        if not (_is_ours(file) if ours is None else ours):
            return Place(file, frame.f_lineno, source=_source(file, frame.f_lineno))
        back = frame.f_back
        if back is None:
            return None
        frame = back


class NoSuchName(ValidationError, AttributeError):
    """A name behind a dot that is not there, with what helps; for Python a missing attribute, so that `hasattr` answers."""


def fail(code: str, message: str, help: str | None = None) -> NoReturn:
    """Raises the finding at the user's own line."""
    raise ValidationError(finding(code, message, user_place(), help))


def missing(message: str, help: str) -> NoReturn:
    """Raises B108 at the user's own line, for a name behind a dot that is not there."""
    raise NoSuchName(finding("B108", message, user_place(), help))


def warn(diagnostic: Diagnostic) -> None:
    """Gives a ProgramWarning at the place of a diagnostic, once for each place and message unless Python's filters say otherwise."""
    place = diagnostic.place
    warnings.warn_explicit(ProgramWarning(diagnostic), None, place.file if place else "<builder>", place.line if place else 1, registry=_WARNED)
