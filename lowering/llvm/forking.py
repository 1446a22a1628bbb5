"""Forks while another thread compiles: every compiler is between two calls then, and the child's own.

A child inherits a lock that a thread of its parent holds, and has no thread that releases it: the child hangs in its first call of that compiler. llvmlite has
one lock around LLVM. libNVVM and nvJitLink have locks of their own, which nobody outside can take, so their callers hold locks of `Calls`.
"""

from __future__ import annotations

import os
import sys
import threading
from _thread import RLock, get_ident
from collections.abc import Iterator
from time import monotonic
from typing import Any, Final, Protocol
from weakref import WeakSet

from vyre_py.ir.imports import hold_imports, release_imports
from vyre_py.lowering.errors import ToolchainError

__all__ = ["LIBNVVM", "NVJITLINK", "Calls"]

# Seconds that a fork waits for all compilers together: a call that never returns must not stop the process. The longest that Programs are known to need are
# shorter. A child that was forked later than that is refused the compiler.
_PATIENCE_S: Final = 60.0


class _Compiler(Protocol):
    """What a fork waits for."""

    def locks(self) -> Iterator[Any]:
        """The locks to take, one after the other; each is taken before the next is asked for."""

    def refuse(self) -> None:
        """In a child that was forked within a call: from now on calls raise ToolchainError."""


def _refusal(tool: str) -> ToolchainError:
    why = f"a call of it, in another thread, took longer than {_PATIENCE_S:.0f} s when this process was forked, so that it cannot be called here"
    return ToolchainError(tool, f"{why}: start processes with the method 'spawn', or before anything is compiled")


class Calls:
    """The calls of a library that several threads may be in at once: a fork waits until none is, and lets none begin."""

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self._entering = RLock()  # held by a fork from the moment it waits: else threads that call again and again could keep it waiting
        self._own = threading.local()
        self._locks: WeakSet[Any] = WeakSet()  # of the threads
        self._refused = False

    def lock(self) -> Any:
        """The calling thread's lock, to be held around its calls: `with calls.lock():`. Raises ToolchainError in a child that was forked within a call."""
        if self._refused:
            raise _refusal(self._tool)
        lock = getattr(self._own, "lock", None)
        if lock is not None and lock._is_owned():
            return lock  # a signal handler's call within a call, for which a fork may be waiting
        with self._entering:
            if lock is None:
                lock = self._own.lock = RLock()
                self._locks.add(lock)
            return lock

    def locks(self) -> Iterator[Any]:
        """What a fork takes: the way in, then each thread's lock."""
        if not self._refused:
            yield self._entering
            yield from list(self._locks)

    def refuse(self) -> None:
        """In a child that was forked within a call: the lock of that call's thread stays locked for ever."""
        self._refused = True


class _RefusedLock:
    """In the place of llvmlite's lock."""

    def acquire(self) -> None:
        raise _refusal("LLVM")


class _Llvm:
    @staticmethod
    def _owner() -> Any:
        """What holds llvmlite's lock as its `_lock`; None where llvmlite is not imported."""
        return getattr(getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None), "_lock", None)

    def locks(self) -> Iterator[Any]:
        lock = getattr(self._owner(), "_lock", None)
        if lock is not None and not isinstance(lock, _RefusedLock):
            yield lock

    def refuse(self) -> None:
        self._owner()._lock = _RefusedLock()


class _Fork:
    """One fork: the locks that it holds, and the compilers that it did not wait for to the end."""

    def __init__(self) -> None:
        self.until = monotonic() + _PATIENCE_S
        self.held: list[Any] = []
        self.late: list[_Compiler] = []

    def hold(self, compiler: _Compiler) -> None:
        for lock in compiler.locks():
            if not lock.acquire(timeout=max(0.0, self.until - monotonic())):
                self.late.append(compiler)
                return
            self.held.append(lock)

    def release(self) -> None:
        while self.held:
            self.held.pop().release()


LIBNVVM: Final = Calls("libNVVM")
NVJITLINK: Final = Calls("nvJitLink")
_LLVM: Final = _Llvm()
_forks: Final[dict[int, list[_Fork]]] = {}  # by thread that forks; the hooks after a fork may be more than those before it


def _hold() -> None:
    """Waits until no thread is within a compiler, and keeps others out. Who is within one may import, and drop what is LLVM's; who imports llvmlite calls
    LLVM: hence the order."""
    fork = _Fork()
    _forks.setdefault(get_ident(), []).append(fork)
    for compiler in (LIBNVVM, NVJITLINK):
        fork.hold(compiler)
    hold_imports()
    fork.hold(_LLVM)


def _release() -> _Fork | None:
    forks = _forks.get(get_ident())
    if not forks:
        return None
    fork = forks.pop()
    fork.release()
    release_imports()
    return fork


def _release_in_child() -> None:
    fork = _release()
    for compiler in fork.late if fork is not None else ():
        compiler.refuse()


# Registered when anything that compiles is first imported: whatever else a fork waits for may compile, and is waited for before (hooks run the last registered
# first).
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_release_in_child)
