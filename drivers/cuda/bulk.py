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


class _Writer:
    """Packs calls one after the other."""

    def __init__(self, context: Context, chunks: int) -> None:
        self._words: Words = np.zeros((4 * chunks, CALL_WORDS), np.uint64)
        self._rows = 0
        self._stream = int(context.copy_stream)
        self._wait, self._record = context.function("cuEventSynchronize"), context.function("cuEventRecord")

    def add(self, function: int, form: int, *arguments: int) -> None:
        """One call."""
        self._words[self._rows, :2] = function, form
        self._words[self._rows, 4 : 4 + len(arguments)] = arguments
        self._rows += 1

    def wait(self, lane: Lane) -> None:
        """Waits for what last used a lane."""
        self.add(self._wait, CHECKED, int(lane[1]))

    def copy(self, function: int, target: int, source: int, size_bytes: int, lane: Lane) -> None:
        """A copy by the device, the last that uses a lane."""
        self.add(function, CHECKED, target, source, size_bytes, self._stream)
        self.add(self._record, CHECKED, int(lane[1]), self._stream)

    @property
    def words(self) -> Words:
        """All calls so far."""
        return self._words[: self._rows]


def upload(context: Context, device: int, host: int, chunks: Sequence[tuple[int, int]], lanes: Sequence[Lane], doing: str) -> None:
    """Copies chunks (offset, bytes) of host memory at an address to the device, through the lanes. On return the host memory may be changed; the last
    chunks may be on their way. Raises what the driver answers."""
    w = _Writer(context, len(chunks))
    send, memcpy = context.function("cuMemcpyHtoDAsync"), _memcpy()
    for number, (offset, size_bytes) in enumerate(chunks):
        lane = lanes[number % LANES]
        if number >= LANES:
            w.wait(lane)
        w.add(memcpy, UNHEARD, lane[0].address, host + offset, size_bytes)
        w.copy(send, device + offset, lane[0].address, size_bytes, lane)
    _Batch(context, w.words, doing).run()


def download(context: Context, device: int, host: int, chunks: Sequence[tuple[int, int]], lanes: Sequence[Lane], doing: str) -> None:
    """Copies chunks (offset, bytes) of device memory to host memory at an address, through the lanes; all of it is there on return. Raises what the
    driver answers."""
    w = _Writer(context, len(chunks))
    fetch, memcpy = context.function("cuMemcpyDtoHAsync"), _memcpy()

    def begin(number: int) -> None:
        offset, size_bytes = chunks[number]
        lane = lanes[number % LANES]
        w.copy(fetch, lane[0].address, device + offset, size_bytes, lane)

    for number in range(min(LANES, len(chunks))):
        begin(number)
    for number, (offset, size_bytes) in enumerate(chunks):
        lane = lanes[number % LANES]
        w.wait(lane)
        w.add(memcpy, UNHEARD, host + offset, lane[0].address, size_bytes)
        if number + LANES < len(chunks):
            begin(number + LANES)
    _Batch(context, w.words, doing).run()
