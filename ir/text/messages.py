"""The messages of assert and print: text with a `{}` for each value, and `{{` and `}}` for braces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from vyre_py.ir.language.types import Type

__all__ = ["HEAD_WORDS", "MAX_WORDS", "filled", "holes", "spread", "words_of"]

HEAD_WORDS: Final = 4  # of a record before those of its values: which statement, and the invocation's global id
MAX_WORDS: Final = 32  # of 32 bits that the values of one statement take

_MARK: Final = re.compile(r"\{\{|\}\}|\{\}|[{}]")
_BRACES: Final = {"{{": "{", "}}": "}"}


def holes(message: str) -> int | None:
    """How many values a message takes; None for one with a brace that stands alone."""
    marks = _MARK.findall(message)
    return None if "{" in marks or "}" in marks else marks.count("{}")


def filled(message: str, texts: Iterable[str]) -> str:
    """A well-formed message with a text for each of its values."""
    following = iter(texts)
    return _MARK.sub(lambda mark: _BRACES.get(mark[0]) or next(following), message)


def spread(message: str, types: Sequence[Type]) -> str:
    """The message that takes each component by itself, from one that takes values of these types."""
    following = iter(types)

    def hole(mark: re.Match[str]) -> str:
        if mark[0] != "{}":
            return mark[0]
        type_ = next(following)
        return f"({', '.join(['{}'] * type_.lanes)})" if type_.is_vector else "{}"

    return _MARK.sub(hole, message)


def words_of(type_: Type) -> int:
    """How many words of 32 bits a value takes in a report: one for each component, two where that has 64 bits."""
    return type_.lanes * -(-type_.bits // 32)
