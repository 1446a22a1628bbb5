"""Imports that are made in a call, when what they bring is first wanted."""

from __future__ import annotations

import logging  # noqa: F401 - has a lock that modules ask for as they are imported; a fork has to take it after ours, and hooks run the last registered first
import os
from _thread import RLock, get_ident
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, ParamSpec, TypeVar, cast

__all__ = ["deferred", "hold_imports", "imported", "importing", "made_once", "release_imports"]

_P = ParamSpec("_P")
_F = TypeVar("_F", bound=Callable[..., Any])

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


class _LateCall:
    """What a module that may not be imported yet gives when it is called."""

    __slots__ = ("_find", "_found")

    def __init__(self, find: Callable[[], Callable[..., Any]]) -> None:
        self._find = find
        self._found: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        found = self._found
        if found is None:
            found = self._found = self._find()
        return found(*arguments, **named)


class _LateModule:
    """A module whose functions are named before it is imported. Those that were called are attributes from then on."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python asks of any object
            raise AttributeError(name)
        return _LateCall(lambda: self._found(name))

    def _found(self, name: str) -> Any:
        found = vars(self)[name] = getattr(imported(self._name), name)
        return found


def deferred(package: str, *names: str) -> list[Any]:
    """Modules of a package in whose place these stand: what is called of them, functions and classes, is imported then. Tables can name functions that few
    processes call, and cold paths what they take. Type checkers, and the rules of the house, are shown an import in the other branch of `if TYPE_CHECKING:`."""
    return [_LateModule(f"{package}.{name}") for name in names]


def made_once(make: Callable[_P, _F], *given: _P.args, **named: _P.kwargs) -> _F:
    """The function that `make` gives for these arguments, made when it is first called."""
    return cast("_F", _LateCall(lambda: make(*given, **named)))


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
