"""Places of the source in WGSL: comments, each for what follows it, since WGSL has no line information.

A file's name is untrusted text, and a comment ends with its line: what is no plain character becomes `%` and two digits, as in the path of a URI.
"""

from __future__ import annotations

import re
from typing import Final

from vyre_py.ir.language.errors import Place, escaped

__all__ = ["comment", "place_before"]

_NONE: Final = "// from no place"
_COMMENT: Final = re.compile(r"\s*// from (?:no place|(.*):(\d+):(\d+))$")


def _is_plain(character: str) -> bool:
    return character.isascii() and character.isprintable() and character != "%"


def comment(place: Place | None) -> str:
    """The comment before what stands at a place."""
    return _NONE if place is None else f"// from {escaped(place.file, _is_plain)}:{place.line}:{place.column}"


def place_before(text: str, line: int) -> tuple[str, int, int] | None:
    """The file, line and column in the source of what a line of WGSL, counted from 1, was made from; None where no comment before it tells."""
    for before in reversed(text.splitlines()[:line]):
        if (found := _COMMENT.match(before)) is not None:
            return (found[1], int(found[2]), int(found[3])) if found[1] is not None else None
        if before.startswith("fn "):
            return None
    return None
