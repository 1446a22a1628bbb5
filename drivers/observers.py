"""Observers: weakly held objects that are told when what they depend on is freed or lost."""

from __future__ import annotations

import weakref
from typing import Final, Generic, TypeVar

__all__ = ["Watched"]

_T = TypeVar("_T")
_LEAST_ROOM: Final = 8


class Watched(Generic[_T]):
    """Objects that are held weakly, and that threads and finalisers may add and list at any time: what changes or copies the set is one call of C's, which runs
    no Python, since objects are hashed by identity."""

    __slots__ = ("_members", "_room")

    def __init__(self) -> None:
        self._members: set[weakref.ref[_T]] = set()
        self._room = _LEAST_ROOM

    def add(self, member: _T) -> None:
        """Adds an object."""
        members = self._members
        members.add(weakref.ref(member))
        if len(members) > self._room:  # a callback for each that goes would make a cycle of what depends on little
            for known in list(members):
                if known() is None:
                    members.discard(known)
            self._room = max(_LEAST_ROOM, 2 * len(members))

    def now(self) -> list[_T]:
        """Those that live."""
        return [member for known in list(self._members) if (member := known()) is not None]
