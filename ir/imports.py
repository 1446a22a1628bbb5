"""Imports that are made in a call, when what they bring is first wanted."""

from __future__ import annotations

import logging  # noqa: F401 - has a lock that modules ask for as they are imported; a fork has to take it after ours, and hooks run the last registered first
import os
from _thread import RLock, get_ident
from importlib import import_module
from typing import Any, Final

__all__ = ["hold_imports", "imported", "importing", "release_imports"]

# Held around every import within a function: `with importing: from ... import ...`. A fork takes it, too: a child that inherits a module half imported, and
# Python's lock on it, would wait for ever for a thread that it has not got. No module takes it while it is imported itself.
importing: Final = RLock()

# Seconds that a fork waits: a library whose own hook holds what an import waits for must not stop the process.
_PATIENCE_S: Final = 30.0
_held: Final[dict[int, list[bool]]] = {}  # by thread that forks; the hooks after a fork may be more than those before it


def imported(name: str) -> Any:
    """The module of this name. Raises what importing it raises."""
    with importing:
        return import_module(name)


def hold_imports() -> None:
    """Before a fork: waits until no thread is within such an import, and keeps others out."""
    _held.setdefault(get_ident(), []).append(importing.acquire(timeout=_PATIENCE_S))


def release_imports() -> None:
    """After a fork, in both processes."""
    held = _held.get(get_ident())
    if held and held.pop():
        importing.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=hold_imports, after_in_parent=release_imports, after_in_child=release_imports)
