"""What README shows is run: its Python in order, and its diagnostic is what the parser says."""

from __future__ import annotations

from pathlib import Path

import pytest
from site_pages import blocks, run_page
from tree import ROOT

import vyre_py as vp
from vyre_py.ir.text.parser import parse

START = ROOT / "docs" / "start"


def test_the_python_of_the_readme_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VYRE_DEVICE", "cpu")
    monkeypatch.chdir(tmp_path)
    run_page(ROOT / "README.md", str)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) < 150


@pytest.mark.parametrize("page", [ROOT / "README.md", START / "first-mistake.md"], ids=lambda page: page.name)
def test_the_diagnostic_is_what_the_parser_says(page: Path) -> None:
    shown = next(block.body for block in blocks(page) if block.body.startswith("V201"))
    lines = next(block.body for block in blocks(START / "first-program.md") if block.body.startswith("program axpy")).splitlines()
    broken = "\n".join([*lines[:2], "  param k: u32", *lines[2:-2], "  y[i] = a * x[i] + k", lines[-1], ""])
    with pytest.raises(vp.ValidationError) as caught:
        parse(broken, file="axpy.vir")
    assert str(caught.value) == shown.rstrip("\n")
