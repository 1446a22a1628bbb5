"""Bulk copies between the host and a device: each of several threads makes one native list, from its first chunk to its last.

A list holds the copies to and from page-locked memory as well, so that threads meet neither Python nor its lock on the way: with them, sixteen
threads wait for each other more than they copy.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from vyre_py.drivers.cuda.context import Context
from vyre_py.drivers.cuda.native import CALL_WORDS, CHECKED, UNHEARD, CallList
from vyre_py.drivers.cuda.pinned import PinnedBlock

__all__ = ["LANES", "download", "upload"]

# Chunks of page-locked memory that a thread has: the device copies one while the thread copies another.
LANES: Final = 2

# A chunk and the event after what last used it.
Lane = tuple[PinnedBlock, Any]
Words = np.ndarray[Any, np.dtype[np.uint64]]


@cache
def _memcpy() -> int:
    """The address of the C library's memcpy."""
    library = ctypes.CDLL("msvcrt" if os.name == "nt" else None)
    return ctypes.cast(library.memcpy, ctypes.c_void_p).value or 0


class _Batch:
    """One thread's list. It looks at no mode word: what it enqueues goes to the copy stream, which nobody captures."""

    __slots__ = ("__weakref__", "_calls", "_context", "_doing", "_words")

    def __init__(self, context: Context, words: Words, doing: str) -> None:
        self._context, self._doing = context, doing
        self._words = (ctypes.c_uint64 * 3)()  # a mode that always lets pass, who makes calls, and what nobody counts
        mode, unused = ctypes.addressof(self._words), ctypes.addressof(self._words) + 16
        self._calls = CallList(words.tobytes(), self._trouble, mode, [], ((unused, 0), (unused, 0)))

    def _trouble(self, index: int, status: int) -> None:
        self._context.recover(self._calls, index, status, self._doing)

    def run(self) -> None:
        """Makes all calls."""
        self._calls.builtin()()


def _calls(chunks: int, columns: Sequence[Sequence[Any]]) -> Words:
    """Rows of packed calls, `chunks` rounds of one call for each of `columns`: (function, form, *arguments), each a number or one for every round."""
    words: Words = np.zeros((chunks, len(columns), CALL_WORDS), np.uint64)
    for number, (function, form, *arguments) in enumerate(columns):
        words[:, number, 0], words[:, number, 1] = function, form
        for place, argument in enumerate(arguments):
            words[:, number, 4 + place] = argument
    return words


def _places(chunks: Sequence[tuple[int, int]], lanes: Sequence[Lane]) -> tuple[Words, Words, Words, Words]:
    """For every chunk: its offset, its bytes, the address of its lane, and the lane's event."""
    offsets, sizes = np.array(chunks, np.uint64).T
    turn = np.arange(len(chunks)) % len(lanes)
    addresses = np.array([block.address for block, _ in lanes], np.uint64)[turn]
    events = np.array([int(event) for _, event in lanes], np.uint64)[turn]
    return offsets, sizes, addresses, events


def upload(context: Context, device: int, host: int, chunks: Sequence[tuple[int, int]], lanes: Sequence[Lane], doing: str) -> None:
    """Copies chunks (offset, bytes) of host memory at an address to the device, through the lanes. On return the host memory may be changed; the last
    chunks may be on their way. Raises what the driver answers."""
    offsets, sizes, addresses, events = _places(chunks, lanes)
    stream = int(context.copy_stream)
    words = _calls(len(chunks), [
        (context.function("cuEventSynchronize"), CHECKED, events),
        (_memcpy(), UNHEARD, addresses, np.uint64(host) + offsets, sizes),
        (context.function("cuMemcpyHtoDAsync"), CHECKED, np.uint64(device) + offsets, addresses, sizes, stream),
        (context.function("cuEventRecord"), CHECKED, events, stream),
    ])  # fmt: skip
    first = [4 * number for number in range(min(len(lanes), len(chunks)))]  # nothing uses the lanes yet
    _Batch(context, np.delete(words.reshape(-1, CALL_WORDS), first, axis=0), doing).run()


def download(context: Context, device: int, host: int, chunks: Sequence[tuple[int, int]], lanes: Sequence[Lane], doing: str) -> None:
    """Copies chunks (offset, bytes) of device memory to host memory at an address, through the lanes; all of it is there on return. Raises what the
    driver answers."""
    offsets, sizes, addresses, events = _places(chunks, lanes)
    stream, ahead = int(context.copy_stream), min(len(lanes), len(chunks))
    begin = _calls(len(chunks), [
        (context.function("cuMemcpyDtoHAsync"), CHECKED, addresses, np.uint64(device) + offsets, sizes, stream),
        (context.function("cuEventRecord"), CHECKED, events, stream),
    ])  # fmt: skip
    finish = _calls(len(chunks), [
        (context.function("cuEventSynchronize"), CHECKED, events),
        (_memcpy(), UNHEARD, np.uint64(host) + offsets, addresses, sizes),
    ])  # fmt: skip
    # A chunk's copy begins as soon as the one that had its lane before is out.
    between = np.concatenate([finish[: len(chunks) - ahead], begin[ahead:]], axis=1)
    words = [part.reshape(-1, CALL_WORDS) for part in (begin[:ahead], between, finish[len(chunks) - ahead :])]
    _Batch(context, np.concatenate(words), doing).run()
