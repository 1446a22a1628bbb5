"""HTML of Programs for notebooks: their text, coloured."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from vyre_py.ir.language.types import TYPES
from vyre_py.ir.text.lexer import LEADING
from vyre_py.ir.text.notebook.markup import QUIET, escaped, styled, text_html, tint

if TYPE_CHECKING:
    from vyre_py.ir.language.program import Program

__all__ = ["program_html"]

_KEYWORD: Final = f"{tint('#a0569c')};font-weight:bold"
_TYPE: Final = tint("#2f80c8")
_STRING: Final = tint("#4a9a4a")

_PIECE: Final = re.compile(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"|[A-Za-z_][A-Za-z0-9_]*|[^A-Za-z_"/]+|.', re.DOTALL)
_WORDS: Final = LEADING | {"tiles", "in", "step", "over", "grid", "read", "write", "read_write", "true", "false"}


def _coloured(text: str) -> Iterator[str]:
    for match in _PIECE.finditer(text):
        piece = match.group()
        if piece.startswith("//"):
            yield styled(piece, QUIET)
        elif piece[0] == '"' and len(piece) > 1:
            yield styled(piece, _STRING)
        elif piece in TYPES or piece == "tile":
            yield styled(piece, _TYPE)
        elif piece in _WORDS:
            yield styled(piece, _KEYWORD)
        else:
            yield escaped(piece)


def program_html(program: Program) -> str:
    """The Program's text, at most `markup.MAX_LINES` lines of it."""
    return text_html(str(program), lambda text: "".join(_coloured(text)))
