"""The mode word of a device: why native code leaves a call to Python."""

from __future__ import annotations

import ctypes
from enum import IntFlag
from typing import Final

__all__ = ["UNUSABLE", "Mode", "ModeWord"]


class Mode(IntFlag):
    """Why native calls go to Python: the bits of a mode word, which is 0 where there is no reason."""

    CLOSED = 1
    LOST = 2
    FORKED = 4
    CAPTURING = 8
    OBSERVED = 16


UNUSABLE: Final = int(Mode.CLOSED | Mode.LOST | Mode.FORKED)  # an int: what launches look at has no enum in between


class ModeWord:
    """A word in memory that native code tests. Attributes: `word`, and its `address`."""

    __slots__ = ("address", "word")

    def __init__(self, word: ctypes.c_uint64 | None = None) -> None:
        self.word = ctypes.c_uint64() if word is None else word
        self.address = ctypes.addressof(self.word)

    def stop(self, why: Mode) -> None:
        """Has native calls go to Python."""
        bits = int(why)  # first, so that no call lies between reading the word and writing it, and no other thread's bits are lost
        self.word.value |= bits

    def go_on(self, why: Mode) -> None:
        """Takes a reason back."""
        bits = ~int(why)
        self.word.value &= bits
