"""The tokens of `.vir` text, and where each of them stands.

A token is its text, a plain string: the parser compares words, and nothing else is made for a token. Text is read in blocks, in one pass of a regular
expression each. The place of a token is found by scanning its block again, when it is first asked for.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import compress, filterfalse
from typing import Final

from vyre_py.ir.language.errors import Diagnostic, ParseError, Place
from vyre_py.ir.language.rules import finding
from vyre_py.ir.text.lexer import LEADING, MAX_FINDINGS, malformed
from vyre_py.ir.text.lines import Lines

__all__ = ["MAX_TEXT", "MAX_TOKENS", "Standing", "Tokens", "kind_of"]

MAX_TEXT: Final = 64 << 20
MAX_TOKENS: Final = 4 << 20
_BLOCK: Final = 1 << 15  # characters, up to the end of a line
_RUN: Final = 1 << 10  # tokens, within a line that is longer
_LETTERS: Final = 0.7  # tokens a character, below which many have several: those of one block that are equal are made one. Python shares single ones

# Possessive quantifiers: a hostile text must cost neither time nor memory for ways back. What is no token is taken by itself, so that nothing is skipped.
_WORD: Final = "|".join([
    r"[A-Za-z_][A-Za-z0-9_]*+", r"[-+*(){}\[\],;:^~%]", r"\n", r"==?+",
    r"0[xX][0-9a-fA-F]*+(?:[iu][0-9]*+)?", r"[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+[A-Za-z0-9_]*+",
    r"\.\.?+", r"!=?+", r"<[=<]?+", r">[=>]?+", r"&&?+", r"\|\|?+", "/",
    r'"[^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+"?', r"\Z", r"[\s\S]",
])  # fmt: skip
_REST: Final = r"(?:[ \t\r\n]++|//[^\n]*+)*+"  # blank lines and comments, which are skipped behind a newline
_TOKEN: Final = re.compile(rf"[ \t\r]*+(?://[^\n]*+)?+({_WORD})(?:(?<=\n){_REST})?+")
_TOKENS: Final = re.compile(rf"(?:{_TOKEN.pattern}){{1,{_RUN}}}+")
_SKIPPED: Final = re.compile(_REST)
_TURNS: Final = frozenset("()[]{}\n")  # what says whether a newline ends anything


def kind_of(word: str) -> str:
    """The kind of a token: "name", "number", "string", "newline", "end", or the mark that it is."""
    if word.isidentifier():
        return "name"
    return _KINDS.get(word[:1], word)


_KINDS: Final = {"": "end", "\n": "newline", '"': "string", **dict.fromkeys("0123456789", "number")}


class Standing:
    """Where the tokens of a text stand, by number. Asked in the order of the text, an answer costs what lies between; in any other, a block."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self._lines = Lines(text, file)
        # By block: the number of its first token, where it begins and ends, and which of what stands there are tokens (None: all).
        self._firsts: list[int] = []
        self._blocks: list[tuple[int, int, bytes | None]] = []
        self._first, self._starts, self._ends = 0, array("I"), array("I")  # of the block last asked for

    def add(self, first: int, start: int, end: int, kept: bytes | None) -> None:
        """Takes note of the next block."""
        self._firsts.append(first)
        self._blocks.append((start, end, kept))

    def place(self, first: int, last: int) -> Place:
        """The place of what begins with token `first` and ends with token `last`, cut at the line's end."""
        return self._lines.place(self._offsets(first)[0], self._offsets(last)[1])

    def places(self, spans: Iterable[tuple[int, int]]) -> Iterator[Place]:
        """The places of several, in any thread: what is found on the way is kept by this call alone."""
        own = Standing(self.text, self.file)
        own._firsts, own._blocks = self._firsts, self._blocks
        return (own.place(first, last) for first, last in spans)

    def _offsets(self, token: int) -> tuple[int, int]:
        if not 0 <= token - self._first < len(self._starts):
            self._scan(bisect_right(self._firsts, token) - 1)
        at = token - self._first
        return (self._starts[at], self._ends[at]) if at < len(self._starts) else (len(self.text), len(self.text))

    def _scan(self, block: int) -> None:
        """Makes a block the current one. A text of comments only has no block."""
        self._starts, self._ends = array("I"), array("I")
        if block < 0:
            return
        self._first = self._firsts[block]
        start, end, kept = self._blocks[block]
        for match in _words(self.text, start, end) if kept is None else compress(_words(self.text, start, end), kept):
            self._starts.append(match.start(1))
            self._ends.append(match.end(1))


def _words(text: str, start: int, end: int) -> Iterator[re.Match[str]]:
    return (match for match in _TOKEN.finditer(text, start, end) if match[1])


class Tokens:
    """The tokens of a text: `words`, their texts, and then "" for the end. Newlines inside brackets, and all but the first of several in a row, are left
    out. `standing` knows where each is.

    Raises ParseError with the malformed tokens (the first 20 of them), or when the text is too large.
    """

    def __init__(self, text: str, file: str) -> None:
        if len(text) > MAX_TEXT:
            raise ParseError(finding("P108", f"the text has {len(text)} characters; at most {MAX_TEXT} are read", Place(file, 1)))
        self.words: list[str] = []
        self.standing = Standing(text, file)
        found: list[Diagnostic] = []
        self._read(text, Lines(text, file), found)
        if found:
            raise ParseError(found)
        self.words.append("")

    def _read(self, text: str, lines: Lines, found: list[Diagnostic]) -> None:
        matched = _SKIPPED.match(text)
        start, depth = matched.end() if matched else 0, 0
        while start < len(text):
            end, following = _cut(text, start)
            words = _TOKEN.findall(text, start, end)
            while words and not words[-1]:
                words.pop()
            different = set(words)
            faults = _faults(different, text.isascii())
            kept = None
            if faults:
                for match in _words(text, start, end):
                    if match[1] in faults:
                        found.append(finding(*faults[match[1]], lines.place(*match.span(1))))
                        if len(found) >= MAX_FINDINGS:
                            return
            elif depth or "(" in words or "[" in words:
                kept, depth = _kept(words, depth, text, following)
                words = words if kept is None else [*compress(words, kept)]
            if len(self.words) + len(words) > MAX_TOKENS:
                start = [match.start(1) for match in _words(text, start, end)][MAX_TOKENS - len(self.words)]
                found.append(finding("P108", f"the text has more than {MAX_TOKENS} tokens", lines.place(start, start + 1)))
                return
            if len(different) < len(words) < (end - start) * _LETTERS:
                shared: dict[str, str] = {}
                words = [*map(shared.setdefault, words, words)]
            self.standing.add(len(self.words), start, end, kept)
            self.words += words
            start = following

    def place(self, first: int, last: int) -> Place:
        """The place of what begins with token `first` and ends with token `last`, cut at the line's end."""
        return self.standing.place(first, last)

    def describe(self, index: int) -> str:
        """A token, as an error message names it."""
        word = self.words[index]
        kind = kind_of(word)
        if kind in ("end", "newline"):
            return "the end of the text" if kind == "end" else "the end of the line"
        return f"`{word[:40]}`" if kind != "string" else word[:40]


def _cut(text: str, start: int) -> tuple[int, int]:
    """Where a block that begins at `start` ends, behind a token, and where the next one begins."""
    end = min(start + _BLOCK, len(text))
    if end < len(text):
        newline = text.rfind("\n", start, end)
        run = _TOKENS.match(text, start) if newline < 0 else None
        end = run.end() if run else newline + 1
    skipped = _SKIPPED.match(text, end) if text[end - 1] == "\n" else None
    return end, skipped.end() if skipped else end


def _faults(different: set[str], has_ascii_only: bool) -> dict[str, tuple[str, str]]:
    """The malformed of these words, each with the code and the message of what is wrong with it."""
    suspects = filterfalse(str.isidentifier, different) if has_ascii_only else different
    return {word: fault for word in suspects if (fault := malformed(word)) is not None}


def _kept(words: list[str], depth: int, text: str, following: int) -> tuple[bytes | None, int]:
    """Which words of a block are tokens, None for all, and how deep in brackets it ends.

    A newline in brackets is no token, unless a word follows that begins a statement: then the brackets were left open.
    """
    dropped = []
    for index, word in enumerate(words):
        if word not in _TURNS:
            continue
        if word in "([":
            depth += 1
        elif word in "{}":
            depth = 0
        elif word != "\n":
            depth = max(0, depth - 1)
        elif depth:
            beyond = _TOKEN.match(text, following)
            if (words[index + 1] if index + 1 < len(words) else beyond[1] if beyond else "") in LEADING:
                depth = 0
            else:
                dropped.append(index)
    if not dropped:
        return None, depth
    kept = bytearray(b"\x01" * len(words))
    for index in dropped:
        kept[index] = 0
    return bytes(kept), depth
