"""The pages of the site: which files they are, the blocks of code in them, and where their links lead. Sphinx and the tests read this list."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tree import ROOT

import vyre_py as vp
from vyre_py.ir.text.parser import parse

__all__ = ["PATTERNS", "RUN_ELSEWHERE", "Block", "anchors", "blocks", "broken_links", "outside_links", "pages", "run_page", "runs", "shows_programs"]

# From the root; as pathlib and Sphinx both read them.
PATTERNS: Final = (
    "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "docs/*/*.md", "examples/data/*.md",
    "ir/*.md", "ir/math/*.md", "lowering/*.md", "drivers/*.md", "drivers/*/*.md", "vyre_py/interop/torch/*.md",
)  # fmt: skip
# Page -> the test that runs its Python.
RUN_ELSEWHERE: Final = {"ir/ERRORS.md": "test_pages.py", "README.md": "test_readme.py"}

_BLOCK: Final = re.compile(r"^(?:<!-- not run: (?P<why>.+) -->\n)?(?P<fence>`{3,})(?P<language>.*)\n(?P<body>(?s:.*?))^(?P=fence)$", re.MULTILINE)
_HEADING: Final = re.compile(r"^#{1,6} (.*)$", re.MULTILINE)
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_ELSEWHERE: Final = re.compile(r"[a-z]+:")  # a scheme


@dataclass(frozen=True)
class Block:
    """A block of a page: its language, its text, the line where that begins, and why nobody runs it, or nothing."""

    language: str
    body: str
    line: int
    why_not: str


def pages() -> list[Path]:
    """All pages, but for notebooks."""
    return sorted({path for pattern in PATTERNS for path in ROOT.glob(pattern)})


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of code of a page, in order."""
    text = page.read_text("utf-8")
    for found in _BLOCK.finditer(text):
        yield Block(found["language"], found["body"], text.count("\n", 0, found.start("body")) + 1, found["why"] or "")


def runs(page: Path) -> bool:
    """Whether a page has Python that can be run."""
    return any(block.language == "python" and not block.why_not for block in blocks(page))


def shows_programs(page: Path) -> bool:
    """Whether a page shows the Programs that it builds as text."""
    return runs(page) and any(block.body.startswith("program ") for block in blocks(page))


def run_page(page: Path, printed: Callable[[], str]) -> int:
    """Runs the Python of a page, in order, and gives how many Programs it shows as text: each is what the builder `b` made last, and was printed."""
    names: dict[str, Any] = {"vp": vp}
    shown = 0
    for block in blocks(page):
        if block.language == "python" and not block.why_not:
            exec(compile("\n" * (block.line - 1) + block.body, str(page), "exec"), names)
        elif block.body.startswith("program "):
            assert parse(block.body) == names["b"].program and block.body in printed(), f"{page.name}:{block.line}"
            shown += 1
    return shown


def anchors(page: Path) -> set[str]:
    """The names by which headings of a page are linked, as where the repository is read and in the site."""
    names: set[str] = set()
    for heading in _HEADING.findall(_BLOCK.sub("", page.read_text("utf-8"))):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        name = re.sub(r"[^\w\- ]", "", words.lower()).strip().replace(" ", "-")
        alike = sum(1 for one in names if re.fullmatch(rf"{re.escape(name)}(-\d+)?", one))
        names.add(f"{name}-{alike}" if alike else name)
    return names


def _links(page: Path) -> list[str]:
    return _LINK.findall(re.sub(r"`[^`\n]*`", "", _BLOCK.sub("", page.read_text("utf-8"))))


def outside_links(page: Path) -> list[str]:
    """What a page links to on other sites."""
    return [target for target in _links(page) if _ELSEWHERE.match(target)]


def broken_links(page: Path) -> Iterator[str]:
    """What a page links to that is not there: a file, or a heading of a page."""
    for target in _links(page):
        if _ELSEWHERE.match(target):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        if not there.exists() or (anchor and (there.suffix != ".md" or anchor not in anchors(there))):
            yield target
