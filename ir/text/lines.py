"""Lines of a text: what place an offset has, without a table of all lines, which for hostile text would be many times its size."""

from __future__ import annotations

from array import array
from typing import Final

from vyre_py.ir.language.errors import Place

__all__ = ["MAX_SOURCE", "Lines"]

MAX_SOURCE: Final = 512
_BLOCK: Final = 4096  # characters that a search looks at, at most


class Lines:
    """The places of a text's characters. Asked in the order of the text, an answer costs what lies between; in any other, a block."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self._number, self._first, self._after = 1, 0, 0  # the line last asked for: its number, where it begins, and up to where it is known
        self._source, self._around = "", ("", "")
        # By block of the text: how many lines end before it, and where the line begins that reaches into it. Made when an earlier line is first asked for.
        self._ended, self._begun = array("Q"), array("Q")

    def place(self, start: int, end: int) -> Place:
        """The place of the characters from offset `start` to `end`, cut at the line's end."""
        if not self._first <= start < self._after:
            self._find(start)
        column = start - self._first + 1
        width = end - start
        if self._source and width > len(self._source) - column + 1:
            width = len(self._source) - column + 1
        return Place(self.file, self._number, column, width if width > 1 else 1, self._source, self._around)

    def _find(self, start: int) -> None:
        """Makes the line of an offset the one at hand."""
        text = self.text
        if self._first <= start < self._first + _BLOCK:
            self._number += text.count("\n", self._first, start)
            self._first = max(self._first, text.rfind("\n", self._first, start) + 1)
        else:
            if not self._ended:
                self._walk()
            block = start // _BLOCK
            self._number = self._ended[block] + 1 + text.count("\n", block * _BLOCK, start)
            self._first = text.rfind("\n", block * _BLOCK, start) + 1 or self._begun[block]
        last = text.find("\n", start, start + _BLOCK)
        self._after = last + 1 if last >= 0 else min(start + _BLOCK, len(text) + 1)
        if last < 0:
            last = len(text) if self._after > len(text) else self._first + MAX_SOURCE + 1
        # Places of one line share its text and its neighbours'.
        self._source = self._line(self._first, last)
        after = text.find("\n", last + 1, last + 2 + MAX_SOURCE) if last < len(text) else -1
        following = self._line(last + 1, after if after >= 0 else len(text)) if self._source else ""
        before = text.rfind("\n", max(0, self._first - MAX_SOURCE - 2), max(0, self._first - 1)) + 1
        preceding = self._line(before, self._first - 1) if self._source and self._first and (before or self._first <= MAX_SOURCE + 1) else ""
        self._around = (preceding, following)

    def _walk(self) -> None:
        ended = begun = 0
        for block in range(0, len(self.text) + 1, _BLOCK):
            self._ended.append(ended)
            self._begun.append(begun)
            ended += self.text.count("\n", block, block + _BLOCK)
            begun = self.text.rfind("\n", block, block + _BLOCK) + 1 or begun

    def _line(self, first: int, last: int) -> str:
        """The text of a line. A very long one is left out: it does not help, and every statement's place would carry it."""
        return self.text[first:last].rstrip("\r") if last - first <= MAX_SOURCE else ""
