"""HTML for notebooks: what prints as text, and errors with their place marked. Whatever a name or a text holds is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable
from typing import Final

__all__ = ["MAX_LINES", "QUIET", "ShownAsText", "error_html", "escaped", "findings_html", "styled", "text_html", "tint"]

MAX_LINES: Final = 400


def tint(colour: str) -> str:
    """A style: a hue, mixed with the colour of the text around it. No one colour reads on white and on black (4.5 to 1: WCAG 2, AA); this does."""
    return f"color:color-mix(in srgb,{colour} 60%,currentcolor)"


QUIET: Final = tint("#8a8a8a")
_FAULT: Final = f"{tint('#d04040')};font-weight:bold"


def escaped(text: str) -> str:
    """The text as HTML holds it."""
    return html.escape(text).replace("\0", "\ufffd")  # which HTML cannot hold


def styled(text: str, style: str) -> str:
    """The text in a style."""
    return f'<span style="{style}">{escaped(text)}</span>'


def text_html(text: str, coloured: Callable[[str], str] = escaped) -> str:
    """A text as it stands, at most `MAX_LINES` lines of it. `coloured` makes HTML of those."""
    lines = text.rstrip("\n").split("\n")
    more = styled(f"\n{len(lines) - MAX_LINES} more lines", QUIET) if len(lines) > MAX_LINES else ""
    return f"<pre>{coloured(chr(10).join(lines[:MAX_LINES]))}{more}</pre>"


class ShownAsText:
    """Shows itself in notebooks as it prints."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return text_html(str(self))


def error_html(error: Exception) -> str:
    """An error as it prints, after the name of its class."""
    return f"<pre>{styled(type(error).__name__, _FAULT)} {escaped(str(error))}</pre>"


def findings_html(findings: Iterable[tuple[str, str]]) -> str:
    """Findings, each a code and the text that begins with it. Codes and the marks under the place at fault stand out."""
    return f"<pre>{chr(10).join([_finding(code, text) for code, text in findings])}</pre>"


def _finding(code: str, text: str) -> str:
    lines = text.removeprefix(code).split("\n")
    marked = [styled(line, _FAULT) if re.fullmatch(r" +\| +\^~*", line) else escaped(line) for line in lines]
    return styled(code, _FAULT) + "\n".join(marked)
