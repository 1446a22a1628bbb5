"""Examples in `vyre-py explore`: every Program that they build has its page, whose views open without an error. All of them with VYRE_EXPLORED=all, as
`make long` has it; else one that is quick."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from browser import browser_tab
from children import child_environment
from tree import ROOT

_ALL = sorted((ROOT / "examples").glob("[0-9]*.py"))
_QUICK = ("01_axpy",)
EXAMPLES = [path for path in _ALL if os.environ.get("VYRE_EXPLORED") == "all" or path.stem in _QUICK]
TARGETS = ("wgsl", "cpu", *(("sm_90",) if os.environ.get("VYRE_EXPLORED") == "all" else ()))


def subjects(page: Path) -> list[dict[str, Any]]:
    """The Programs of a page."""
    (data,) = re.findall(r'<script[^>]* id="data"[^>]*>(.*?)</script>', page.read_text("utf-8"), re.DOTALL)
    found: list[dict[str, Any]] = json.loads(data)["data"]["subjects"]
    return found


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_explored(example: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    targets = [word for target in TARGETS for word in ("--target", target)]
    command = [sys.executable, "-m", "vyre_py", "explore", str(example), "--html", str(page), *targets]
    done = subprocess.run(command, cwd=tmp_path, env=child_environment(), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    for subject in subjects(page):
        document, recording = subject["document"], subject["recording"]
        assert subject["told"] == ""
        if not document["facts"]:  # 06 has a Program that breaks a rule, to show what becomes of it
            assert (example.stem, [one["code"] for one in document["findings"]]) == ("06_compile_many", ["V401"])
            continue
        # 08 hands arrays over, which have no places.
        assert any(any(file["code"]["origins"]) for file in document["python"]) or example.stem == "08_expressions"
        for form in document["forms"]:
            assert form["code"] or "does not support" in form["note"], (subject["name"], form["id"], form["note"])
        assert recording["moments"], recording
        # The places that radix_move moves to are made up, so that they meet: the page says that they are.
        assert not recording["findings"] or (subject["name"] == "radix_move" and "places" in recording["made_up"]), recording["findings"]
    with browser_tab(tmp_path) as tab:
        tab.open(f"file://{page}")
        tab.wait("document.documentElement.dataset.ready")
        for view in range(4):
            tab.run(f"document.querySelectorAll('[role=tab]')[{view}].click()")
            assert tab.run("[...document.querySelectorAll('[role=tabpanel]')].find(panel => !panel.hidden).textContent.trim().length") > 20
        assert tab.errors == []
