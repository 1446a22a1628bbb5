"""Code as lines, each with the lines of the Program's text that it comes from.

Links are read from what each form of code says itself once it keeps lines (`CompileOptions.debug`): LLVM's metadata, `.loc` in PTX and assembly, comments in
WGSL and in disassembled machine code. All that is there for that alone is left out of what is shown, so the code reads as it does without.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypedDict

from vyre_py.ir.language.errors import printable
from vyre_py.ir.language.program import Program
from vyre_py.ir.text.printer import print_program

__all__ = ["MAX_LINES", "Linked", "linked", "linked_program", "linked_source"]

MAX_LINES: Final = 6000

_Line = tuple[str, int]  # text, and the line of the source or 0


class Linked(TypedDict):
    """Lines of code; for each, the lines of the Program's text that it comes from, counted from 1; and how many lines more there were."""

    lines: list[str]
    origins: list[list[int]]
    more: int


def _shown(lines: Iterable[tuple[str, Iterable[int]]]) -> Linked:
    texts, origins, count = list[str](), list[list[int]](), 0
    for text, origin in lines:
        count += 1
        if count <= MAX_LINES:
            texts.append(printable(text, "\t"))
            origins.append(sorted(set(origin)))
    return {"lines": texts, "origins": origins, "more": max(0, count - MAX_LINES)}


# ---------------------------------------------------------------- what each form says

_LOCATION: Final = re.compile(r"(!\d+) = (?:distinct )?!DILocation\(line: (\d+)")
_ATTACHED: Final = re.compile(r",? !dbg (!\d+)")
_METADATA: Final = re.compile(r"!\d+ = (?:distinct )?!DI|!llvm\.dbg\.cu|!llvm\.module\.flags|!\d+ = !\{i32 2, !\"Debug Info Version\"")
_NODE: Final = re.compile(r"!\d+")
_EMPTY: Final = re.compile(r"(!\d+) = !\{\}$")
_LOC: Final = re.compile(r"\s*\.loc\s+\d+\s+(\d+)")
# Labels and lines of tables, there for lines alone.
_TABLES: Final = re.compile(r"(?:\$L__tmp|\.Ltmp|\$L__func_begin|\$L__func_end|\.Lfunc_begin)\d+:|\s*\.cfi_|\s*\.file\s+\d")
_SECTION: Final = re.compile(r"\s*\.section\s+\"?(\.\S+?)\"?[,\s]|\s*\.(?:text|data|globl)\b")
_FUNCTION_END: Final = re.compile(r"\.Lfunc_end\d+:|\}|\s*\.(?:visible|func|entry|globl)\b")
_FROM: Final = re.compile(r"\s*// from (?:no place|.*:(\d+):\d+)$")
_FILE_LINE: Final = re.compile(r'\s*//## File "[^"]*", line (\d+)')


def _llvm(text: str) -> Iterator[_Line]:
    places = {found[1]: int(found[2]) for found in _LOCATION.finditer(text)}
    lines = [line for line in text.split("\n") if not _METADATA.match(line)]
    # Empty nodes are named by the code, or were for lines alone.
    named = {name for line in lines for name in _NODE.findall(_ATTACHED.sub("", line.partition(" = !{")[2] if line.startswith("!") else line))}
    kept = [line for line in lines if not ((empty := _EMPTY.match(line)) and empty[1] not in named)]
    for line in "\n".join(kept).rstrip("\n").split("\n"):
        found = _ATTACHED.search(line)
        yield _ATTACHED.sub("", line), places.get(found[1], 0) if found else 0


def _located(text: str) -> Iterator[_Line]:
    """PTX and assembly: a place holds until the next."""
    now, hidden = 0, False
    for line in text.split("\n"):
        if section := _SECTION.match(line):
            hidden = (section[1] or "").startswith(".debug")
        if found := _LOC.match(line):
            now = int(found[1])
        elif not hidden and not _TABLES.match(line):
            now = 0 if _FUNCTION_END.match(line) else now
            yield line, now if line.strip() and not line.rstrip().endswith(":") else 0


def _commented(pattern: re.Pattern[str], end: str) -> Callable[[str], Iterator[_Line]]:
    """A comment is about what follows it, up to the next, or to a line that begins with `end`."""

    def lines(text: str) -> Iterator[_Line]:
        now = 0
        for line in text.split("\n"):
            if found := pattern.match(line):
                now = int(found[1] or 0)
                continue
            now = 0 if line.startswith(end) else now
            yield line, now if line.strip(" \t{}") else 0

    return lines


_READERS: Final[Mapping[str, Callable[[str], Iterator[_Line]]]] = {
    "llvm": _llvm, "ptx": _located, "asm": _located, "wgsl": _commented(_FROM, "fn "), "sass": _commented(_FILE_LINE, ".text"),
}  # fmt: skip


def linked(form: str, text: str) -> Linked:
    """Code that keeps lines, of one of the forms llvm, ptx, asm, wgsl and sass."""
    return _shown((line, (origin,) if origin else ()) for line, origin in _READERS[form](text.rstrip("\n")))


# ---------------------------------------------------------------- Programs

_REMARK: Final = re.compile(r"  // ((?:\d+(?:; )?)+)$")


def linked_program(program: Program, remark: Callable[[int], str] | None = None) -> Linked:
    """A Program's text, linked by the places of the statements that each line holds; `remark` says something about a statement, as `print_program` shows it."""
    lines = []
    for line in print_program(program, str).rstrip("\n").split("\n"):
        # Strings are printed with their quotes escaped, so what looks like a remark at the end of a line is one.
        found = _REMARK.search(line)
        held = [int(number) for number in found[1].split("; ")] if found else []
        said = "; ".join(dict.fromkeys(filter(None, map(remark, held)))) if remark is not None else ""
        places = [place.line for index in held if (place := program.place(index)) is not None]
        lines.append((line[: found.start()] + (f"  // {said}" if said else "") if found else line, places))
    return _shown(lines)


def linked_source(text: str) -> Linked:
    """The text itself: each line is its own origin."""
    return _shown((line, (number,)) for number, line in enumerate(text.rstrip("\n").split("\n"), 1))
