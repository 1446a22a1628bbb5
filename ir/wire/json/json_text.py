"""The text of the JSON form: where the values of its outermost object lie, and one value at a time for the reader.

Regular expressions without backtracking bound size and depth before the decoder of JSON runs. The decoder gets one declaration or statement at a
time, so refused text never becomes a large object.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, KeysView
from typing import Any, Final

from vyre_py.ir.language.errors import WireError, shown
from vyre_py.ir.language.rules import finding
from vyre_py.ir.wire.json.json_form import MAX_DEPTH, MAX_KEYS, MAX_MARKS, MAX_NUMBER, MAX_PLAIN, MAX_TEXT

__all__ = ["JsonText", "Wrong"]

_STRING: Final = rb'"(?:[^"\\]++|\\.)*+"'
_CHUNK: Final = 1 << 16


def _value_pattern() -> bytes:
    """Any value of at most `MAX_DEPTH` brackets inside each other, as far as brackets and quotes go."""
    inner = b"(?!)"
    for _ in range(MAX_DEPTH):
        inner = rb'[\[{](?:[^\[\]{}"]++|' + _STRING + b"|" + inner + rb")*+[\]}]"
    return _STRING + rb"|[-+.0-9a-zA-Z]++|" + inner


_SPACE: Final = re.compile(rb"[ \t\n\r]*+")
_KEY: Final = re.compile(_STRING, re.DOTALL)
_VALUE: Final = re.compile(_value_pattern(), re.DOTALL)
_BRACKET: Final = re.compile(_STRING + rb"|[\[\]{}]", re.DOTALL)


class Wrong(Exception):
    """What makes a text no Program: the code of a rule, what was found and expected, and the JSON pointer of the value at fault."""

    def __init__(self, code: str, message: str, path: str = "", help: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.path, self.help = code, message, path, help


class _Bad(ValueError):
    """A value that JSON, or this form of it, does not have: a rule and a sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise _Bad("W115", f"the key {shown(key)} is there twice")
        made[key] = value
    return made


def _integer(digits: str) -> int:
    if len(digits) > MAX_NUMBER:
        raise _Bad("W107", f"a number of {len(digits)} characters, at most {MAX_NUMBER} are read")
    return int(digits)


def _real(digits: str) -> float:
    if len(digits) > MAX_NUMBER:
        raise _Bad("W107", f"a number of {len(digits)} characters, at most {MAX_NUMBER} are read")
    value = float(digits)
    if math.isinf(value):
        raise _Bad("W112", f"{digits} is beyond every type")
    return value


def _no_constant(word: str) -> float:
    raise _Bad("W114", f"{word} is not JSON")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_float=_real, parse_constant=_no_constant)


class JsonText:
    """The values of the outermost object by key. Raises WireError W116 for what is no text; the methods raise Wrong."""

    def __init__(self, text: str | bytes | bytearray | memoryview) -> None:
        self.data = _bytes(text)
        self._spans: dict[str, tuple[int, int]] | None = None

    def keys(self) -> KeysView[str]:
        """The keys of the outermost object."""
        return self._find().keys()

    def load(self, key: str) -> Any:
        """The value of a key."""
        return self._load(*self._find()[key], f"/{key}")

    def rows(self, key: str) -> Iterator[Any]:
        """The values in the list of a key, one at a time; none when the key is not there."""
        for number, (at, stop) in enumerate(self._values(key)):
            yield self._load(at, stop, f"/{key}/{number}")

    def texts(self, key: str) -> Iterator[JsonText]:
        """The same, each as a text of its own, of which nothing is loaded yet."""
        for at, stop in self._values(key):
            yield JsonText(self.data[at:stop])

    def _values(self, key: str) -> Iterator[tuple[int, int]]:
        """Where the values in the list of a key begin and end."""
        if key not in self._find():
            return
        start, end = self._find()[key]
        if self.data[start : start + 1] != b"[":
            raise Wrong("W115", f"found {shown(self._load(start, end, f'/{key}'))}, expected a list", f"/{key}")
        at = self._skip(start + 1)
        number = 0
        while self.data[at : at + 1] != b"]" or number:
            stop = self._end(at, f"/{key}/{number}")
            yield at, stop
            at = self._skip(stop)
            if self.data[at : at + 1] == b"]":
                break
            at = self._skip(self._mark(at, b",", f"/{key}/{number}"))
            number += 1
        if self._skip(at + 1) != self._skip(end):
            raise Wrong("W114", "a list ends before its last value", f"/{key}")

    # ---- finding

    def _skip(self, at: int) -> int:
        found = _SPACE.match(self.data, at)
        return found.end() if found is not None else at

    def _mark(self, at: int, mark: bytes, path: str) -> int:
        if self.data[at : at + 1] != mark:
            found = shown(self.data[at : at + 1].decode("ascii", "replace") or "the end")
            raise Wrong("W114", f"byte {at}: found {found}, expected {mark.decode()!r}", path)
        return at + 1

    def _end(self, at: int, path: str) -> int:
        """The end of the value that begins here."""
        found = _VALUE.match(self.data, at)
        if found is None:
            depth = self._depth(at)
            code, what = ("W107", f"values nest more than {MAX_DEPTH} deep") if depth > MAX_DEPTH else ("W114", "no value, or one whose brackets do not match")
            raise Wrong(code, f"byte {at}: {what}", path)
        return found.end()

    def _depth(self, at: int) -> int:
        """How deep brackets nest from here on; no further than one level too many."""
        depth = deepest = 0
        for found in _BRACKET.finditer(self.data, at):
            first = self.data[found.start()]
            depth += (first in b"[{") - (first in b"]}")
            deepest = max(deepest, depth)
            if deepest > MAX_DEPTH or depth < 0:
                break
        return deepest

    def _find(self) -> dict[str, tuple[int, int]]:
        """Key -> where its value begins and ends."""
        if self._spans is not None:
            return self._spans
        spans: dict[str, tuple[int, int]] = {}
        at = self._skip(0)
        if self.data[at : at + 1] != b"{":
            raise Wrong("W101", f"found {shown(self.data[at : at + 1].decode('ascii', 'replace') or 'nothing')}, expected an object")
        at = self._skip(at + 1)
        while self.data[at : at + 1] != b"}" or spans:
            found = _KEY.match(self.data, at)
            if found is None:
                self._mark(at, b'"', "")
                raise Wrong("W114", f"byte {at}: the string does not end")
            key = self._load(at, found.end(), "")
            at = self._skip(self._mark(self._skip(found.end()), b":", ""))
            if key in spans:
                raise Wrong("W115", f"the key {shown(key)} is there twice")
            end = self._end(at, f"/{key}")
            if len(spans) >= MAX_KEYS:
                raise Wrong("W107", f"more than {MAX_KEYS} keys")
            spans[key] = (at, end)
            at = self._skip(end)
            if self.data[at : at + 1] == b"}":
                break
            at = self._skip(self._mark(at, b",", ""))
        if self._skip(at + 1) != len(self.data):
            raise Wrong("W114", f"byte {at + 1}: something follows the outermost object")
        self._spans = spans
        return spans

    # ---- loading

    def _load(self, start: int, end: int, path: str) -> Any:
        """The value that lies here, small enough to be decoded."""
        data = self.data
        part = data[start:end]
        if part[:1] != b'"' and sum(map(part.count, (b"[", b"{", b","))) > MAX_MARKS:
            raise Wrong("W107", f"a value with more than {MAX_MARKS} brackets and commas", path)
        if len(part) > MAX_PLAIN and not part.isascii():
            raise Wrong("W107", f"a value of {len(part)} bytes, not all ASCII; at most {MAX_PLAIN} are read", path)
        try:
            return _DECODER.decode(str(part, "utf-8"))
        except _Bad as bad:
            raise Wrong(bad.code, str(bad), path) from None
        except UnicodeDecodeError as error:
            raise Wrong("W108", f"byte {start + error.start}: {error.reason}", path) from None
        except json.JSONDecodeError as error:
            raise Wrong("W114", f"byte {start}, character {error.pos} from there: {error.msg}", path) from None


def _bytes(text: object) -> bytes:
    if isinstance(text, str):
        # Counted in pieces, since the whole may take four times the room.
        pieces = (text[at : at + _CHUNK] for at in range(0, min(len(text), MAX_TEXT + 1), _CHUNK))
        size = len(text) if text.isascii() else sum([len(piece.encode("utf-8", "replace")) for piece in pieces])
    elif isinstance(text, (bytes, bytearray, memoryview)):
        size = memoryview(text).nbytes
    else:
        raise WireError(finding("W116", f"text or bytes were expected, got {type(text).__name__}", None, "give a str, or its UTF-8 bytes"))
    if size > MAX_TEXT:
        raise WireError(finding("W107", f"a text of {size} bytes, at most {MAX_TEXT} are read"), "")
    try:
        return text.encode("utf-8") if isinstance(text, str) else bytes(text)
    except UnicodeEncodeError:
        raise WireError(finding("W108", "the text holds a lone surrogate"), "") from None
