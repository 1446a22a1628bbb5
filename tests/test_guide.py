"""The pages of the guide: their Python runs in order, on every device here, and each Program prints as the text beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from device_kinds import open_device
from tree import ROOT

from vyre_py.ir.text.parser import parse

PAGES = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("kind", ["reference", "cpu", "cuda", "wgpu"])
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_runs_and_prints_what_it_shows(page: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    open_device(kind)
    monkeypatch.setenv("VYRE_DEVICE", kind)
    names: dict[str, object] = {}
    shown = 0
    for language, body in BLOCK.findall(page.read_text("utf-8")):
        if language == "python":
            exec(compile(body, page.name, "exec"), names)
        elif body.startswith("program "):
            assert parse(body) == names["b"].program  # type: ignore[attr-defined]  # the page's builder
            assert body in capsys.readouterr().out
            shown += 1
    assert shown


def test_links_of_the_pages_lead_somewhere() -> None:
    for page in PAGES:
        text = page.read_text("utf-8")
        for target in [*re.findall(r"\]\((?!http)([^)#]+)", text), *re.findall(r"`(examples/[\w.]+)`", text)]:
            where = ROOT / target if target.startswith("examples/") else page.parent / target
            assert where.exists(), f"{page.name}: {target}"
