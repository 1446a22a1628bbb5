"""Pools of memory by size class: a freed block is kept for the next request of its class, up to a cap.

A request is rounded up to a class: 512 bytes, and from there eight steps between one power of two and the next, so that at most an eighth
is wasted. From 128 MiB on classes are whole units of 2 MiB, the least that a GPU's driver maps. The pool does not depend on the device: its owner
makes and frees blocks, and knows their content.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from vyre_py.drivers.errors import DriverError

__all__ = ["GRAIN_BYTES", "HUGE_BYTES", "PoolOwner", "SizePool", "bytes_from", "class_bytes"]

GRAIN_BYTES: Final = 512
HUGE_BYTES: Final = 128 << 20
_HUGE_GRAIN_BYTES: Final = 2 << 20

# The sizes of a class are a multiple of 2^(k - 4), where 2^k is the next power of two: eight of them above 2^(k - 1).
_STEP_BITS: Final = 4

_Block = TypeVar("_Block")


def class_bytes(size_bytes: int) -> int:
    """The class of a request of at least one byte: the bytes that a block for it has."""
    if size_bytes <= GRAIN_BYTES:
        return GRAIN_BYTES
    if size_bytes > HUGE_BYTES:
        return -(-size_bytes // _HUGE_GRAIN_BYTES) * _HUGE_GRAIN_BYTES
    shift = (size_bytes - 1).bit_length() - _STEP_BITS
    return (((size_bytes - 1) >> shift) + 1) << shift


def bytes_from(variable: str, default: int) -> int:
    """A number of bytes that an environment variable gives, or the default. Raises DriverError for anything else."""
    given = os.environ.get(variable, "").strip()
    if not given:
        return default
    if not given.isascii() or not given.isdigit():
        raise DriverError(f"{variable}={given!r} is not a number of bytes", remedy=f"set it to a whole number such as {default}, or unset it")
    return int(given)


class SizePool(Generic[_Block]):
    """Blocks that wait to be used again, in lists by size class; the last one given is the first to be taken.

    At most `keep_bytes` wait, less the `reserved_bytes` that the owner keeps elsewhere: when more are given, blocks of other classes go first, those of the
    class that holds most bytes, since what is given now is likelier to be asked for again. `drop(block, size)` is told what goes; it must not raise.
    `cached_bytes` is what waits, `room_bytes` the most that may wait now, none where it is negative.

    It takes no lock, since a finaliser may give a block back at any moment, even within a call of the pool: a list changes by single
    operations of CPython, a list never goes, and `cached_bytes` counts a block before it waits and until it was taken.
    """

    __slots__ = ("_drop", "_lists", "cached_bytes", "reserved_bytes", "room_bytes")

    def __init__(self, keep_bytes: int, drop: Callable[[_Block, int], None]) -> None:
        self.room_bytes = keep_bytes
        self.cached_bytes = self.reserved_bytes = 0
        self._drop = drop
        self._lists: dict[int, list[_Block]] = {}

    def reserve(self, size_bytes: int) -> None:
        """Counts what the owner keeps elsewhere under the same cap, or no longer where it is negative; what waits makes room."""
        self.reserved_bytes += size_bytes
        self.room_bytes -= size_bytes
        self.shrink(self.room_bytes)

    @property
    def keep_bytes(self) -> int:
        """The cap; what waits makes room for another one."""
        return self.room_bytes + self.reserved_bytes

    @keep_bytes.setter
    def keep_bytes(self, size_bytes: int) -> None:
        self.room_bytes = size_bytes - self.reserved_bytes
        self.shrink(self.room_bytes)

    def waiting(self, size: int) -> int:
        """How many blocks of a class wait."""
        return len(self._lists.get(size, ()))

    def take(self, size: int) -> _Block | None:
        """A waiting block of a class, the one that was given last; or None."""
        try:
            block = self._lists[size].pop()
        except (KeyError, IndexError):
            return None
        self.cached_bytes -= size
        return block

    def take_oldest(self, size: int) -> _Block | None:
        """As `take`, the one that was given first."""
        try:
            block = self._lists[size].pop(0)
        except (KeyError, IndexError):
            return None
        self.cached_bytes -= size
        return block

    def give(self, block: _Block, size: int) -> None:
        """Keeps a block of a class, or drops it where it does not fit under the cap."""
        self.cached_bytes += size
        if self.cached_bytes > self.room_bytes and not (size <= self.room_bytes and self._make_room(size)):
            self.cached_bytes -= size
            self._drop(block, size)
            return
        try:
            self._lists[size].append(block)
        except KeyError:
            self._lists.setdefault(size, []).append(block)

    def shrink(self, limit_bytes: int = 0) -> None:
        """Drops waiting blocks until no more than so many bytes wait."""
        while self.cached_bytes > limit_bytes and self._drop_one(-1):
            pass

    def drain(self) -> list[_Block]:
        """Takes all waiting blocks out, for an owner that ends."""
        blocks = []
        for size in list(self._lists):
            while (block := self.take(size)) is not None:
                blocks.append(block)
        return blocks

    def _make_room(self, size: int) -> bool:
        """Drops blocks of other classes until the cap holds; whether it does."""
        while self.cached_bytes > self.room_bytes:
            if not self._drop_one(size):
                return False
        return True

    def _drop_one(self, spared: int) -> bool:
        """Drops a block of the class that holds most, the spared one left out; whether there was any."""
        size, waiting = max(((s, w) for s, w in list(self._lists.items()) if s != spared), key=lambda held: held[0] * len(held[1]), default=(0, []))
        try:
            block = waiting.pop()
        except IndexError:
            return False
        self.cached_bytes -= size
        self._drop(block, size)
        return True


class PoolOwner(Generic[_Block]):
    """Memory that keeps its freed blocks in a pool, and counts what prepared dispatches hold as kept."""

    def __init__(self, keep_bytes: int, drop: Callable[[_Block, int], None]) -> None:
        """As `SizePool`."""
        self._kept: SizePool[_Block] = SizePool(keep_bytes, drop)

    @property
    def keep_bytes(self) -> int:
        """The most that is kept for reuse, what prepared dispatches hold included; may be set."""
        return self._kept.keep_bytes

    @keep_bytes.setter
    def keep_bytes(self, size_bytes: int) -> None:
        self._kept.keep_bytes = size_bytes

    @property
    def cached_bytes(self) -> int:
        """Bytes that are kept for reuse."""
        return self._kept.cached_bytes

    def prepare(self, size_bytes: int) -> None:
        """Counts what dispatches that are prepared hold, or no longer, as kept: see `SizePool.reserve`."""
        self._kept.reserve(size_bytes)

    @property
    def prepared_bytes(self) -> int:
        """Bytes that prepared dispatches hold."""
        return self._kept.reserved_bytes
