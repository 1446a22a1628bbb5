"""The Python files that built a Program, each linked to its text by the statements that its lines made: the file that was named, and then the modules that
helped it, in the order in which they did."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Final

from vyre_py.explore.linked_text import Linked, linked_source
from vyre_py.ir.language.errors import printable
from vyre_py.ir.language.program import Program

__all__ = ["python_files"]

_MOST_FILES: Final = 8  # that helped
_MOST_BYTES: Final = 1 << 20


def python_files(built: Program, read: Program, file: str, text: str) -> list[tuple[str, Linked]]:
    """The title and the lines of each file. `read` is what the Program's own text gives: the same statements in the same order. `file` was named, and has been
    read; others are read here, and left out where they are no files."""
    lines = _lines(built, read)
    texts = {file: text}
    for other in lines:
        if other not in texts and len(texts) <= _MOST_FILES and (found := _text(other)) is not None:
            texts[other] = found
    folder = Path(file).parent
    return [(_title(path, folder), _linked(text, lines[path])) for path, text in texts.items()]


def _lines(built: Program, read: Program) -> defaultdict[str, defaultdict[int, set[int]]]:
    """By file and line there, the lines of the Program's text."""
    found: defaultdict[str, defaultdict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    if len(built.body) == len(read.body):
        for index in range(len(built.body)):
            here, there = built.place(index), read.place(index)
            if here is not None and there is not None:
                found[here.file][here.line].add(there.line)
    return found


def _text(file: str) -> str | None:
    """The text of a Python file; None for whatever else a place may name."""
    path = Path(file)
    with suppress(OSError, ValueError):
        if path.suffix == ".py" and path.is_file() and path.stat().st_size <= _MOST_BYTES:
            return path.read_text("utf-8", "replace")
    return None


def _title(file: str, folder: Path) -> str:
    """What a file is called: from the folder of the one that was named, or else by its own name and its folder's, without where that lies."""
    path = Path(file)
    return printable(str(path.relative_to(folder)) if path.is_relative_to(folder) else "/".join(path.parts[-2:]))


def _linked(text: str, lines: defaultdict[int, set[int]]) -> Linked:
    code = linked_source(text)
    code["origins"] = [sorted(lines[number]) for number in range(1, len(code["lines"]) + 1)]
    return code
