"""Frames between two processes: a magic word, a length, and one JSON object of bounded size over a pipe each way.

Each message is checked before it is used, since the process that wrote it may have been corrupted by its kernels.
"""

from __future__ import annotations

import json
import math
import os
import select
import struct
from collections.abc import Mapping
from time import monotonic
from typing import Any, Final

from vyre_py.ir.imports import importing

__all__ = ["MAX_FRAME", "Channel", "ChannelBroken", "ChannelClosed", "ChannelLate", "MessageTooLarge", "deadline_after", "list_of", "text_of", "whole_of"]

MAX_FRAME: Final = 1 << 20  # bytes of JSON; arrays and Programs go through shared memory
_MAGIC: Final = b"\x89VYw"
_HEAD: Final = struct.Struct("<4sI")
_READ: Final = 1 << 16  # what a pipe holds
_STALLED: Final = 10.0  # seconds without data after which an incomplete frame is taken for broken
_LONGEST: Final = 1e6  # seconds that one wait takes at most
_MAX_WHOLE: Final = 1 << 63


class ChannelBroken(Exception):
    """The other side is gone, or sent what is no message. Its text is the cause."""


class ChannelClosed(ChannelBroken):
    """The other side is gone."""


class MessageTooLarge(Exception):
    """The message exceeds `MAX_FRAME`; nothing of it was written."""


class ChannelLate(Exception):
    """The deadline has passed."""


def deadline_after(seconds: float | None) -> float | None:
    """The moment, on the clock that deadlines use, so many seconds from now; None is never."""
    return None if seconds is None else monotonic() + seconds


class Channel:
    """One end: a file descriptor to read from and one to write to, both of pipes. Used by one thread at a time.

    Deadlines are moments of `deadline_after`; None waits for as long as it takes.
    """

    __slots__ = ("_buffer", "_readable", "_sink", "_source", "_writeable")

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        self._buffer = bytearray()
        os.set_blocking(source, False)
        os.set_blocking(sink, False)
        self._readable, self._writeable = select.poll(), select.poll()
        self._readable.register(source, select.POLLIN)
        self._writeable.register(sink, select.POLLOUT)

    def send(self, message: Mapping[str, Any], deadline: float | None = None) -> None:
        """Writes one message. Raises MessageTooLarge, ChannelClosed, ChannelLate."""
        text = json.dumps(message, separators=(",", ":")).encode()
        if len(text) > MAX_FRAME:
            raise MessageTooLarge(f"the message takes {len(text)} bytes, at most {MAX_FRAME} are sent")
        rest = memoryview(_HEAD.pack(_MAGIC, len(text)) + text)
        while rest:
            try:
                rest = rest[os.write(self._sink, rest) :]
            except BlockingIOError:
                _wait(self._writeable, deadline)
            except OSError as error:
                raise ChannelClosed("it no longer reads what it is sent") from error

    @property
    def unread(self) -> bool:
        """Whether the other end has left of what was sent, so that it has not seen the last message whole."""
        with importing:
            import fcntl  # with termios: POSIX alone has them, as it has pipes that this works on
            import termios

        try:
            return bool(struct.unpack("i", fcntl.ioctl(self._sink, termios.FIONREAD, bytes(4)))[0])
        except OSError:
            return False

    @property
    def silent(self) -> bool:
        """Whether there is nothing to receive, not even the end."""
        return not self._buffer and not self._readable.poll(0)

    def receive(self, deadline: float | None = None) -> dict[str, Any]:
        """The next message. Raises ChannelBroken, and ChannelLate where it has not come by the deadline."""
        self._fill(1, deadline)
        soon = monotonic() + _STALLED
        if deadline is None or soon < deadline:
            try:
                return self._message(soon)
            except ChannelLate:
                raise ChannelBroken("it stopped in the middle of a message") from None
        return self._message(deadline)

    def _message(self, deadline: float) -> dict[str, Any]:
        self._fill(_HEAD.size, deadline)
        magic, length = _HEAD.unpack_from(self._buffer)
        if magic != _MAGIC:
            raise ChannelBroken(f"it sent {bytes(self._buffer[:16])!r}, which begins no message")
        if length > MAX_FRAME:
            raise ChannelBroken(f"it announced a message of {length} bytes, at most {MAX_FRAME} are read")
        self._fill(_HEAD.size + length, deadline)
        text = bytes(self._buffer[_HEAD.size : _HEAD.size + length])
        del self._buffer[: _HEAD.size + length]
        try:
            message = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ChannelBroken(f"it sent a message that is not JSON: {error}") from error
        if not isinstance(message, dict):
            raise ChannelBroken(f"it sent a {type(message).__name__} where a message is expected")
        return message

    def _fill(self, wanted: int, deadline: float | None) -> None:
        """Reads until the buffer holds so many bytes."""
        while len(self._buffer) < wanted:
            _wait(self._readable, deadline)
            try:
                data = os.read(self._source, _READ)
            except BlockingIOError:
                continue
            except OSError as error:
                raise ChannelBroken(f"its pipe cannot be read: {error}") from error
            if not data:
                raise ChannelClosed("it stopped in the middle of a message" if self._buffer else "it closed its pipe")
            self._buffer += data


def _wait(ready: select.poll, deadline: float | None) -> None:
    """Waits until a pipe is ready, or its other end is gone; what is ready already is taken after the deadline, too. Raises ChannelLate."""
    if deadline is None:
        ready.poll()
    elif not ready.poll(math.ceil(min(max(deadline - monotonic(), 0.0), _LONGEST) * 1000)) and monotonic() >= deadline:
        raise ChannelLate


def whole_of(message: Mapping[str, Any], key: str, most: int = _MAX_WHOLE) -> int:
    """A whole number from 0 to `most`. Raises ChannelBroken for anything else."""
    value = message.get(key)
    if type(value) is not int or not 0 <= value <= most:
        raise ChannelBroken(f"{key!r} of its message is not a whole number up to {most}")
    return value


def text_of(message: Mapping[str, Any], key: str) -> str:
    """A text. Raises ChannelBroken for anything else."""
    value = message.get(key)
    if not isinstance(value, str):
        raise ChannelBroken(f"{key!r} of its message is not text")
    return value


def list_of(message: Mapping[str, Any], key: str) -> list[Any]:
    """A list of anything. Raises ChannelBroken for anything else."""
    value = message.get(key)
    if not isinstance(value, list):
        raise ChannelBroken(f"{key!r} of its message is not a list")
    return value
