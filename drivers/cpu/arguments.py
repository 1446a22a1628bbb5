"""The arguments of a kernel, and the memory that it may access during the call."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final

__all__ = ["Arguments"]

_ADDRESS: Final = struct.Struct("<Q")


class Arguments:
    """An argument block at `address`, and what keeps the memory of the buffers, by name, `held` for as long as this object is there.

    `launch.set` makes another one (`changed`): a call that runs meanwhile, in another thread or further up in this one, goes on with what it began with.
    Interruptible code finds the address of a word of theirs in the block, at `flag_offset`, and workgroups that meet count themselves in another, whose address
    is at `arrivals_offset`: that is of one call alone. `whole` is a call of a launch's kernel with them, once there is one.
    """

    __slots__ = ("_arrivals", "_arrivals_offset", "_flag", "_flag_offset", "address", "block", "held", "whole")

    def __init__(self, block: bytes | bytearray, held: Mapping[str, object], flag_offset: int | None = None, arrivals_offset: int | None = None) -> None:
        self.block = (ctypes.c_char * (len(block) or 1)).from_buffer_copy(block or b"\0")
        self.address = ctypes.addressof(self.block)
        self.held = held
        self.whole: Callable[[], None] | None = None
        self._flag_offset = flag_offset
        if flag_offset is not None:
            self._flag = ctypes.c_uint32(0)
            _ADDRESS.pack_into(self.block, flag_offset, ctypes.addressof(self._flag))
        self._arrivals_offset = arrivals_offset
        if arrivals_offset is not None:
            self._arrivals = ctypes.c_uint64(0)
            _ADDRESS.pack_into(self.block, arrivals_offset, ctypes.addressof(self._arrivals))

    @property
    def ended(self) -> bool:
        """Whether what runs with these arguments was told to end."""
        return self._flag_offset is not None and bool(self._flag.value)

    def end(self) -> None:
        """Has the loops of all that runs with these arguments end."""
        if self._flag_offset is not None:
            self._flag.value = 1

    def changed(self, held: Mapping[str, object], values: Sequence[tuple[int, bytes]]) -> Arguments:
        """Others with what keeps some buffers (by name) and some `values` (offset in the block, bytes), addresses too, replaced."""
        block = bytearray(self.block)  # as it is in memory: C may have written to it
        for offset, data in values:
            block[offset : offset + len(data)] = data
        return Arguments(block, {**self.held, **held} if held else self.held, self._flag_offset, self._arrivals_offset)
