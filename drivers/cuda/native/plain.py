"""Call lists without LLVM: what the builtins of `native` do, in Python over ctypes, for where llvmlite is not installed.

Slower, and the same in all else: the state of a list lies in memory as `native` packs it, so that all that reads or changes it needs not know which of the
two runs. Native code is by itself while it holds the interpreter's lock; here a lock of our own takes that part. A list counts itself in before it looks
whether it may run, since whoever stops the device first says so and then waits for those that are counted.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Final

__all__ = ["CallWords", "Handler", "HeadWords", "PlainBuiltins", "download", "upload"]

Handler = Callable[[int, int], Any]

_ARGUMENTS: Final = 16
_ALIGN: Final = 16
# As `native` has them; it imports this module.
_LAUNCH, _LAUNCH_EX, _UNHEARD = 1, 2, 3
_REFUSED, _STALE, _NO_MEMORY = -1, -1, -2
# Which argument of a launch takes the copy of the argument block.
_EXTRA_AT: Final = {_LAUNCH: 10, _LAUNCH_EX: 3}
# CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END
_POINTER, _SIZE, _END = 1, 2, 0


class HeadWords(ctypes.Structure):
    """How the state of a list begins: `native._HEAD`."""

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in (
            "count", "copies_bytes", "mode", "alive_count", "alive", "calls", "first", "first_by", "second", "second_by", "slot_count", "slots",
            "held", "fixed", "in_flight", "exclusive", "member_count", "members", "retired",
        )
    )  # fmt: skip

    count: int
    copies_bytes: int
    mode: int
    alive_count: int
    alive: int
    calls: int
    first: int
    first_by: int
    second: int
    second_by: int
    in_flight: int
    exclusive: int
    member_count: int
    members: int
    retired: int


class CallWords(ctypes.Structure):
    """One call: `native._CALL`."""

    _fields_ = (
        ("function", ctypes.c_uint64), ("form", ctypes.c_int64), ("block", ctypes.c_uint64), ("block_bytes", ctypes.c_int64),
        ("arguments", ctypes.c_uint64 * _ARGUMENTS),
    )  # fmt: skip


@cache
def _function(address: int, count: int = _ARGUMENTS) -> Callable[..., int]:
    """A C function of `count` arguments, called without the interpreter's lock. Those of lists get all that a call has room for, as in native code: a
    function looks at its own."""
    return ctypes.CFUNCTYPE(ctypes.c_uint32, *[ctypes.c_uint64] * count)(address)


_lock = threading.RLock()  # a handler may run inside a block that holds it


def _forked() -> None:
    """In a forked child: a thread of the parent may have held the lock."""
    global _lock  # noqa: PLW0603 - the one lock of the process
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _words(address: int, count: int) -> Any:
    return (ctypes.c_uint64 * count).from_address(address) if count else ()


def _add(address: int, amount: int) -> None:
    word = ctypes.c_uint64.from_address(address)
    word.value += amount  # an int: no call, and so no other thread, between the load and the store


def _members(head: HeadWords) -> list[HeadWords]:
    return [HeadWords.from_address(address) for address in _words(head.members, head.member_count)]


def _enter(head: HeadWords, by: int) -> None:
    """Counts this thread in among those that make calls of the list, or out: for the lists that it is made of as well, and for the device."""
    head.in_flight += by
    _add(head.mode + 8, by)
    for member in _members(head):
        member.in_flight += by


def _is_dead(head: HeadWords) -> bool:
    """Whether it was given up for another, or memory that it uses was freed."""
    return head.retired != 0 or not all(ctypes.c_uint64.from_address(word).value for word in _words(head.alive, head.alive_count))


def _obstacle(head: HeadWords) -> int:
    """The status with which the list goes to its handler; 0 where it may run."""
    mode = ctypes.c_uint64.from_address(head.mode).value
    return mode or (_STALE if _is_dead(head) or any(map(_is_dead, _members(head))) else 0)


def _copied(head: HeadWords) -> Any:
    """The argument blocks as they are now, in the order of the calls, each on a multiple of 16 bytes. Raises MemoryError."""
    memory = bytearray(max(1, head.copies_bytes))
    copies = (ctypes.c_char * len(memory)).from_buffer(memory)
    place = ctypes.addressof(copies)
    for call in _calls(head):
        ctypes.memmove(place, call.block, call.block_bytes)
        place += _rounded(call.block_bytes)
    return copies


def _rounded(size_bytes: int) -> int:
    return -(-size_bytes // _ALIGN) * _ALIGN


def _calls(head: HeadWords) -> ctypes.Array[CallWords]:
    return (CallWords * head.count).from_address(head.calls)


def _begun(head: HeadWords, looks: bool) -> tuple[Any, int]:
    """The copies of the argument blocks, and 0; or None and the status to hand over. This thread is counted in with the former."""
    while True:
        with _lock:
            if not (head.exclusive and head.in_flight):
                _enter(head, 1)
                status = _obstacle(head) if looks else 0
                try:
                    if not status:
                        return _copied(head), 0
                except MemoryError:
                    status = _NO_MEMORY
                _enter(head, -1)
                return None, status
        time.sleep(0)  # another thread has its turn


def _perform(head: HeadWords, copies: Any, first: int, turns: int) -> tuple[int, int]:
    """Makes the calls from a number on, and all of them in every further turn; gives the number that failed and its status, or 0 and 0."""
    made: list[tuple[int, bool, Callable[..., int], list[int]]] = []
    kept: list[Any] = []
    place = ctypes.addressof(copies)
    for number, call in enumerate(_calls(head)):
        arguments = list(call.arguments)
        if call.form in _EXTRA_AT:
            size = ctypes.c_uint64(call.block_bytes)
            extra = (ctypes.c_uint64 * 5)(_POINTER, place, _SIZE, ctypes.addressof(size), _END)
            arguments[_EXTRA_AT[call.form]] = ctypes.addressof(extra)
            kept += [size, extra]
        place += _rounded(call.block_bytes)
        made.append((number, call.form == _UNHEARD, _function(call.function), arguments))
    for turn in range(turns):
        for number, unheard, function, arguments in made[0 if turn else first :]:
            if (status := function(*arguments)) and not unheard:
                return number, status
    return 0, 0


def _run(state: bytearray, handler: Handler, first: int, turns: int, looks: bool) -> Any:
    head = HeadWords.from_buffer(state)
    copies, status = _begun(head, looks)
    if copies is None:
        return handler(_REFUSED, status)
    try:
        index, status = _perform(head, copies, first, turns)
        if not status:
            with _lock:
                _add(head.first, head.first_by * turns)
                _add(head.second, head.second_by * turns)
    finally:
        _enter(head, -1)
    return handler(index, status) if status else None


def _call(state: bytearray, handler: Handler, kept: tuple[Any, ...]) -> Any:
    mode = ctypes.c_uint64.from_address(HeadWords.from_buffer(state).mode).value
    if mode:  # first of all: in a forked child whoever has the turn may be a thread of the parent
        return handler(_REFUSED, mode)
    return _run(state, handler, 0, 1, looks=True)


def _resume(state: bytearray, handler: Handler, kept: tuple[Any, ...], first: int) -> Any:
    return _run(state, handler, first, 1, looks=False)


def _repeat(state: bytearray, handler: Handler, kept: tuple[Any, ...], times: int) -> Any:
    return _run(state, handler, 0, times, looks=False)


_BOUND: Final[dict[str, Callable[..., Any]]] = {"call": _call, "resume": _resume, "repeat": _repeat}


def _set(self: Any, arguments: Any = None, /, **named: Any) -> Any:
    """Rebinds params or buffers; see vyre_py.drivers.launch.Launch.set."""
    return self._set(arguments, **named)


_set.__name__ = "set"


class PlainBuiltins:
    """The builtins, in Python."""

    def bound(self, name: str, state: bytearray, handler: Handler, kept: tuple[Any, ...]) -> Callable[..., Any]:
        """The function of that name, "call", "resume" or "repeat", over the state of a list; it holds all three."""
        return partial(_BOUND[name], state, handler, kept)

    def set_method(self, owner: type) -> Any:
        """The method `set` of a type whose instances have `_set`."""
        return _set

    def scatter(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Writes bytes to addresses, all at once for other lists."""
        with _lock:
            for address, data in pieces:
                ctypes.memmove(address, data, len(data))


# ---------------------------------------------------------------- copies in chunks, as `bulk` describes them


class _Job:
    """A copy in chunks, over the nine words of `bulk`: several threads take them from one counter."""

    def __init__(self, words: Any) -> None:
        self.words = words
        self.total: int
        self.chunk: int
        _, self.total, self.chunk, self.host, self.device, self.stream, *functions = words
        self._copy, self._record, self._wait = [_function(at, count) for at, count in zip(functions, (4, 2, 1), strict=True)]

    def take(self) -> int:
        """The offset of a chunk that nobody else takes; the bytes in all, or more, when there is none left."""
        with _lock:
            number: int = self.words[0]
            self.words[0] = number + 1
        return number * self.chunk

    def stop(self) -> None:
        """Leaves no chunk to anybody."""
        with _lock:
            self.words[0] += self.total + 1

    def size(self, offset: int) -> int:
        """The bytes of the chunk that begins there."""
        return min(self.total - offset, self.chunk)

    def enqueue(self, target: int, source: int, size: int, event: int) -> int:
        """Has the device copy, and records an event behind it; gives the status."""
        return self._copy(target, source, size, self.stream) or self._record(event, self.stream)

    def wait(self, event: int) -> int:
        """Waits for an event; gives the status."""
        return self._wait(event)


def upload(words: Any, lanes: Any) -> int:
    """Takes chunks of the host's memory to the device, in turn through two lanes, an address and an event each; gives the first status that is not 0."""
    job, turn = _Job(words), 0
    while (offset := job.take()) < job.total:
        pinned, event = lanes[2 * (turn & 1) : 2 * (turn & 1) + 2]
        status = job.wait(event) if turn >= 2 else 0
        if not status:
            ctypes.memmove(pinned, job.host + offset, job.size(offset))
            status = job.enqueue(job.device + offset, pinned, job.size(offset), event)
        if status:
            job.stop()
            return status
        turn += 1
    return 0


def download(words: Any, lanes: Any) -> int:
    """Takes chunks of the device's memory to the host: a lane is emptied when the one after it is on its way. Gives the first status that is not 0."""
    job, turn = _Job(words), 0
    under_way: list[tuple[int, int, int]] = []  # offset, address and event, the next first
    while True:
        offset = job.take()
        status = 0
        if len(under_way) == 2 or (offset >= job.total and under_way):
            status = _drain(job, *under_way.pop(0))
        if not status and offset < job.total:
            pinned, event = lanes[2 * (turn & 1) : 2 * (turn & 1) + 2]
            status = job.enqueue(pinned, job.device + offset, job.size(offset), event)
            under_way.append((offset, pinned, event))
            turn += 1
        if status:
            job.stop()
            return status
        if offset >= job.total and not under_way:
            return 0


def _drain(job: _Job, offset: int, pinned: int, event: int) -> int:
    """Waits for a lane, and copies what it holds to where it belongs."""
    if status := job.wait(event):
        return status
    ctypes.memmove(job.host + offset, pinned, job.size(offset))
    return 0
