"""Forks while another thread compiles: LLVM is between two calls then, and the child's own."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager
from typing import Final

from vyre_py.ir.imports import hold_imports, release_imports

__all__ = ["guard"]

_held: Final[list[AbstractContextManager[object]]] = []


def _hold() -> None:
    """Waits until no thread is within LLVM, and keeps others out. llvmlite has one lock around it, which a child would inherit locked, for ever."""
    hold_imports()  # first: who imports llvmlite calls LLVM meanwhile
    ffi = sys.modules.get("llvmlite.binding.ffi")
    lock: AbstractContextManager[object] | None = getattr(getattr(ffi, "lib", None), "_lock", None)
    if lock is not None:
        lock.__enter__()
        _held.append(lock)


def _release() -> None:
    if _held:
        _held.pop().__exit__(None, None, None)
    release_imports()


def guard() -> None:
    """From now on a fork waits for the call of LLVM that is being made. Called once, when anything that compiles is first imported: whatever else a fork
    waits for may use LLVM, and is waited for before (hooks run the last registered first)."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_release)
