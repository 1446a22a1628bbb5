"""Two texts side by side: what stands in one alone, in both, or differs."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Final

from vyre_py.cli.output import CommandError
from vyre_py.ir.language.errors import printable

__all__ = ["MOST_LINES", "side_by_side"]

MOST_LINES: Final = 20_000  # of a side: the time to compare may grow with the square of what differs
_AROUND: Final = 3  # lines alike that are shown beside what differs
_LEAST_COLUMNS: Final = 20  # of a side

# A mark (" " alike, "|" differs, "<" on the left alone, ">" on the right alone) and the line.
Row = tuple[str, str]


def _pieces(line: str, width: int) -> list[str]:
    """A line of text as lines that fit."""
    return [line[at : at + width] for at in range(0, len(line), width)] or [""]


def _both(mark: str, left: str, right: str, width: int) -> Iterator[Row]:
    for one, other in zip_longest(_pieces(left, width), _pieces(right, width), fillvalue=""):
        yield mark, f" {one:<{width}} | {other}".rstrip()


def _alike(lines: list[str], width: int, first: bool, last: bool) -> Iterator[Row]:
    """Lines that both sides have: those beside what differs, and how many lie between."""
    head, tail = 0 if first else _AROUND, 0 if last else _AROUND
    if len(lines) <= head + tail + 1:
        head, tail = len(lines), 0
    for line in lines[:head]:
        yield from _both(" ", line, line, width)
    if between := len(lines) - head - tail:
        yield " ", f" ... {between} lines alike ..."
    for line in lines[len(lines) - tail :]:
        yield from _both(" ", line, line, width)


def side_by_side(left: str, right: str, titles: tuple[str, str], columns: int) -> Iterator[Row]:
    """Two texts in so many columns, below their titles. Raises CommandError for texts that are too long."""
    sides = [printable(text.expandtabs(4), "\n").split("\n") for text in (left.rstrip("\n"), right.rstrip("\n"))]
    if max(map(len, sides)) > MOST_LINES:
        raise CommandError(f"a text of {max(map(len, sides))} lines is too long to be compared; lower it twice, with -o, and compare the files")
    width = max(_LEAST_COLUMNS, (columns - 5) // 2)
    yield from _both(" ", *titles, width)
    yield " ", " " + "-" * (2 * width + 3)
    steps = SequenceMatcher(None, sides[0], sides[1], autojunk=False).get_opcodes()
    for number, (kind, begin, end, other, other_end) in enumerate(steps):
        if kind == "equal":
            yield from _alike(sides[0][begin:end], width, number == 0, number == len(steps) - 1)
            continue
        for one, two in zip_longest(sides[0][begin:end], sides[1][other:other_end]):
            mark = ">" if one is None else "<" if two is None else "|"
            yield from _both(mark, one or "", two or "", width)
