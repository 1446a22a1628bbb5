"""The pages of the site: their links lead somewhere, their Python runs or says why it does not, and each stands in the contents once.

The guide's pages run on every device (`test_guide.py`); all others on the CPU. `make docs` builds the site.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from site_pages import RUN_ELSEWHERE, anchors, blocks, broken_links, pages
from tree import ROOT, file_of

import vyre_py as vp

GUIDE = ROOT / "docs" / "guide"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


RUN = [page for page in pages() if page.parent != GUIDE and name_of(page) not in RUN_ELSEWHERE and any(block.language == "python" for block in blocks(page))]


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_the_python_of_a_page_runs_on_the_cpu(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VYRE_DEVICE", "cpu")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"vp": vp}
    for block in blocks(page):
        if block.language == "python" and not block.why_not:
            exec(compile("\n" * (block.line - 1) + block.body, str(page), "exec"), names)


def test_what_runs_a_page_elsewhere_is_there() -> None:
    for page, test in RUN_ELSEWHERE.items():
        assert (ROOT / page).is_file() and file_of(test)


def test_links_lead_somewhere() -> None:
    found = {name_of(page): broken for page in pages() if (broken := list(broken_links(page)))}
    assert found == {}


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    links = "[1](#a-b-c-1) [2](#a-b) [3](page.md#a-b-c) [4](other.md) [5](https://a.b) `[6](no.md)`"
    page.write_text(f"# A `b` c\n\n## A b c\n\n{links}\n\n```\n# no\n[7](no.md)\n```\n")
    assert anchors(page) == {"a-b-c", "a-b-c-1"} and list(broken_links(page)) == ["#a-b", "other.md"]


def test_every_page_stands_in_the_contents_once() -> None:
    listed: list[Path] = []
    for page in (ROOT / "docs").rglob("*.md"):
        for block in blocks(page):
            if block.language == "{toctree}":
                named = [line for line in block.body.splitlines() if line and not line.startswith(":")]
                listed += [(page.parent / (re.sub(r".*<(.*)>", r"\1", line) + ".md")).resolve() for line in named]
    listed = [page for page in listed if page.exists()]
    assert sorted(listed) == [page for page in pages() if page != ROOT / "docs" / "index.md"]
