"""The pages of the guide that show Programs as text: their Python runs in order, on every device here, and each Program prints as the text beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from device_kinds import open_device
from site_pages import run_page, shows_programs
from tree import ROOT

PAGES = [page for page in sorted((ROOT / "docs" / "guide").glob("*.md")) if shows_programs(page)]


@pytest.mark.parametrize("kind", ["reference", "cpu", "cuda", "wgpu"])
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_runs_and_prints_what_it_shows(
    page: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    open_device(kind)
    monkeypatch.chdir(tmp_path)  # some leave files
    monkeypatch.setenv("VYRE_DEVICE", kind)
    assert run_page(page, lambda: capsys.readouterr().out)
