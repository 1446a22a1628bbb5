"""The pages of the guide: their Python runs in order, on every device here, and each Program prints as the text beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from device_kinds import open_device
from site_pages import blocks
from tree import ROOT

from vyre_py.ir.text.parser import parse

PAGES = sorted((ROOT / "docs" / "guide").glob("*.md"))


@pytest.mark.parametrize("kind", ["reference", "cpu", "cuda", "wgpu"])
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_runs_and_prints_what_it_shows(
    page: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    open_device(kind)
    monkeypatch.chdir(tmp_path)  # some leave files
    monkeypatch.setenv("VYRE_DEVICE", kind)
    names: dict[str, object] = {}
    shown = 0
    for block in blocks(page):
        if block.language == "python" and not block.why_not:
            exec(compile("\n" * (block.line - 1) + block.body, str(page), "exec"), names)
        elif block.body.startswith("program "):
            assert parse(block.body) == names["b"].program  # type: ignore[attr-defined]  # the page's builder
            assert block.body in capsys.readouterr().out
            shown += 1
    assert shown
