"""Copies and fills of device memory as calls of the driver: made one by one here, or put into call lists and graphs by others."""

from __future__ import annotations

from typing import Final

__all__ = ["Work", "copy_work", "fill_work", "shortest_period"]

# A function of the driver, and its arguments but the last, which is the stream.
Work = tuple[str, tuple[int, ...]]

# Width of a word that the driver fills with -> the function.
_FILLS: Final = {4: "cuMemsetD32Async", 2: "cuMemsetD16Async", 1: "cuMemsetD8Async"}


def copy_work(source: int, target: int, size_bytes: int) -> list[Work]:
    """A copy between two addresses whose ranges do not overlap."""
    return [("cuMemcpyDtoDAsync", (target, source, size_bytes))] if size_bytes else []


def shortest_period(pattern: bytes) -> bytes:
    """The shortest prefix that gives the pattern when it is repeated."""
    length = len(pattern)
    return next(pattern[:n] for n in range(1, length + 1) if length % n == 0 and pattern[:n] * (length // n) == pattern)


def fill_work(begin: int, size_bytes: int, pattern: bytes) -> list[Work]:
    """Writes a pattern over and over. Its length divides `size_bytes`; `begin` is a multiple of its elements' size.

    The driver fills with words of up to 32 bits. For longer patterns it writes the first one word by word, and then copies that double it: what is
    written is what is read, so nothing but the values themselves goes along, and the calls may become part of a graph.
    """
    if not size_bytes:
        return []
    pattern = shortest_period(pattern)
    width = next(width for width in _FILLS if len(pattern) % width == 0 and begin % width == 0)
    words = [int.from_bytes(pattern[at : at + width], "little") for at in range(0, len(pattern), width)]
    if len(words) == 1:
        return [(_FILLS[width], (begin, words[0], size_bytes // width))]
    work: list[Work] = [(_FILLS[width], (begin + width * number, word, 1)) for number, word in enumerate(words)]
    done = len(pattern)
    while done < size_bytes:
        more = min(done, size_bytes - done)
        work += copy_work(begin, begin + done, more)
        done += more
    return work
