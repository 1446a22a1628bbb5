"""HTML for notebooks: Programs with light colours, errors with their place marked. Whatever a name or a text holds is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from vyre_py.ir.language.errors import ProgramError, VyreError
from vyre_py.ir.language.types import TYPES
from vyre_py.ir.text.lexer import LEADING

if TYPE_CHECKING:
    from vyre_py.ir.language.program import Program

__all__ = ["MAX_LINES", "ShownAsText", "error_html", "program_html", "text_html"]

MAX_LINES: Final = 400
# Of middling brightness, so that they read on white and on black.
_COMMENT: Final = "color:#8a8a8a"
_KEYWORD: Final = "color:#a0569c;font-weight:bold"
_TYPE: Final = "color:#2f80c8"
_STRING: Final = "color:#4a9a4a"
_FAULT: Final = "color:#d04040;font-weight:bold"

_PIECE: Final = re.compile(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"|[A-Za-z_][A-Za-z0-9_]*|[^A-Za-z_"/]+|.', re.DOTALL)
_WORDS: Final = LEADING | {"in", "step", "over", "grid", "read", "write", "read_write", "true", "false"}


def _escaped(text: str) -> str:
    return html.escape(text).replace("\0", "\ufffd")  # which HTML cannot hold


def _styled(text: str, style: str) -> str:
    return f'<span style="{style}">{_escaped(text)}</span>'


def _coloured(text: str) -> Iterator[str]:
    for match in _PIECE.finditer(text):
        piece = match.group()
        if piece.startswith("//"):
            yield _styled(piece, _COMMENT)
        elif piece[0] == '"' and len(piece) > 1:
            yield _styled(piece, _STRING)
        elif piece in TYPES:
            yield _styled(piece, _TYPE)
        elif piece in _WORDS:
            yield _styled(piece, _KEYWORD)
        else:
            yield _escaped(piece)


def text_html(text: str) -> str:
    """A text as it stands, at most `MAX_LINES` lines of it."""
    lines = text.rstrip("\n").split("\n")
    more = _styled(f"\n{len(lines) - MAX_LINES} more lines", _COMMENT) if len(lines) > MAX_LINES else ""
    return f"<pre>{_escaped(chr(10).join(lines[:MAX_LINES]))}{more}</pre>"


class ShownAsText:
    """Shows itself in notebooks as it prints."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return text_html(str(self))


def program_html(program: Program) -> str:
    """The Program's text, at most `MAX_LINES` lines of it."""
    lines = str(program).rstrip("\n").split("\n")
    text = "\n".join(lines[:MAX_LINES])
    more = _styled(f"\n{len(lines) - MAX_LINES} more lines", _COMMENT) if len(lines) > MAX_LINES else ""
    return f'<pre>{"".join(_coloured(text))}{more}</pre>'


def error_html(error: VyreError) -> str:
    """The error as it prints, its name or codes and the marks under the place at fault standing out."""
    if not isinstance(error, ProgramError):
        return f"<pre>{_styled(type(error).__name__, _FAULT)} {_escaped(str(error))}</pre>"
    findings = "\n".join([_finding(str(diagnostic), diagnostic.code) for diagnostic in error.diagnostics])
    return f"<pre>{findings}</pre>"


def _finding(text: str, code: str) -> str:
    lines = text.removeprefix(code).split("\n")
    marked = [_styled(line, _FAULT) if re.fullmatch(r" +\| +\^~*", line) else _escaped(line) for line in lines]
    return _styled(code, _FAULT) + "\n".join(marked)
