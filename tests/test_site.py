"""The pages of the site: their links lead somewhere, their Python runs or says why it does not, and each stands in the contents once.

Those of the guide that show Programs run on every device (`test_guide.py`), others on the CPU; those of kernels in the interpreter, since compiling
their steps takes half a minute, and on the CPU by `make docs`, which builds the site.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from photograph_picture import PICTURE, before_and_after
from site_pages import (
    RUN_ELSEWHERE,
    anchors,
    blocks,
    broken_links,
    outside_links,
    pages,
    run_page,
    runs,
    shows_programs,
)
from tree import ROOT, file_of

from tests.bench.bench_pages import CASES
from vyre_py.demo.picture import read_picture


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


ON_EVERY_DEVICE = {page for page in (ROOT / "docs" / "guide").glob("*.md") if shows_programs(page)}
RUN = [page for page in pages() if runs(page) and page not in ON_EVERY_DEVICE and name_of(page) not in RUN_ELSEWHERE]


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_the_python_of_a_page_runs(page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setenv("VYRE_DEVICE", os.environ.get("VYRE_PAGES_DEVICE", "reference" if page.parent.name == "kernels" else "cpu"))
    monkeypatch.chdir(tmp_path)  # some leave files
    run_page(page, lambda: capsys.readouterr().out)


def test_the_picture_of_the_photograph_is_what_the_demo_makes() -> None:
    assert np.array_equal(read_picture(PICTURE), before_and_after())


def test_what_runs_a_page_elsewhere_is_there() -> None:
    for page, test in RUN_ELSEWHERE.items():
        assert (ROOT / page).is_file() and file_of(test)


def test_links_lead_somewhere() -> None:
    found = {name_of(page): broken for page in pages() if (broken := list(broken_links(page)))}
    assert found == {}


def test_few_links_lead_outside() -> None:
    """`make links` asks for them where there is a network; here none is added unseen."""
    found = {link for page in pages() for link in outside_links(page)}
    assert found == {"https://creativecommons.org/publicdomain/zero/1.0/", "https://docs.dask.org", "https://keepachangelog.com/en/1.1.0/", "https://semver.org/"}


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    links = "[1](#a-b-c-1) [2](#a-b) [3](page.md#a-b-c) [4](other.md) [5](https://a.b) `[6](no.md)`"
    page.write_text(f"# A `b` c\n\n## A b c\n\n{links}\n\n```\n# no\n[7](no.md)\n```\n")
    assert anchors(page) == {"a-b-c", "a-b-c-1"} and list(broken_links(page)) == ["#a-b", "other.md"] and list(outside_links(page)) == ["https://a.b"]


def test_every_page_stands_in_the_contents_once() -> None:
    listed: list[Path] = []
    for page in (ROOT / "docs").rglob("*.md"):
        for block in blocks(page):
            if block.language == "{toctree}":
                named = [line for line in block.body.splitlines() if line and not line.startswith(":")]
                listed += [(page.parent / (re.sub(r".*<(.*)>", r"\1", line) + ".md")).resolve() for line in named]
    listed = [page for page in listed if page.exists()]
    assert sorted(listed) == [page for page in pages() if page != ROOT / "docs" / "index.md"]


def test_notebooks_are_kept_without_what_they_printed() -> None:
    """`make site` runs them."""
    notebooks = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
    assert notebooks
    for notebook in notebooks:
        code = [cell for cell in json.loads(notebook.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
        assert code and not any(cell["outputs"] or cell["execution_count"] for cell in code), notebook.name


def test_every_page_of_a_kernel_has_figures() -> None:
    names = {page.stem for page in (ROOT / "docs" / "kernels").glob("*.md")} - {"index"}
    figures = json.loads((ROOT / "docs" / "kernels" / "figures.json").read_text("utf-8"))
    assert names == set(CASES) and {kind: set(report["kernels"]) for kind, report in figures.items()} == {"cpu": names, "cuda": names}
