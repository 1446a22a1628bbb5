"""Observers: weakly held objects that are told when what they depend on is freed or lost."""

from __future__ import annotations

import os
import threading
import weakref
from typing import ClassVar, Generic, TypeVar

__all__ = ["Watched"]

_T = TypeVar("_T")


class Watched(Generic[_T]):
    """Objects that are held weakly, and that threads and finalisers may add and list at any time."""

    __slots__ = ("_members",)

    _lock: ClassVar[threading.RLock] = threading.RLock()  # a finaliser may run inside a call that holds it

    def __init__(self) -> None:
        self._members: weakref.WeakSet[_T] = weakref.WeakSet()

    @classmethod
    def forked(cls) -> None:
        """In a forked child: a thread of the parent may have held the lock."""
        cls._lock = threading.RLock()

    def add(self, member: _T) -> None:
        """Adds an object."""
        with self._lock:
            self._members.add(member)

    def now(self) -> list[_T]:
        """Those that live."""
        with self._lock:
            return list(self._members)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Watched.forked)
