"""What README shows is run: its Python in order, its text of a Program, its diagnostic."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tree import ROOT

import vyre_py as vp
from vyre_py.ir.text.parser import parse

README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
TEXT = next(body for _, body in BLOCKS if body.startswith("program axpy"))


def test_the_tour_runs_and_prints_what_it_shows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VYRE_DEVICE", "cpu")
    monkeypatch.chdir(tmp_path)  # it leaves a trace
    names: dict[str, object] = {}
    for body in (body for language, body in BLOCKS if language == "python"):
        exec(compile(body, "README.md", "exec"), names)
    assert str(names["program"]) == TEXT
    assert parse(TEXT, file="axpy.vir") == names["program"]


def test_the_diagnostic_is_what_the_parser_says() -> None:
    shown = next(body for _, body in BLOCKS if body.startswith("V201"))
    lines = TEXT.splitlines()
    broken = "\n".join([*lines[:2], "  param k: u32", *lines[2:-2], "  y[i] = a * x[i] + k", lines[-1], ""])
    with pytest.raises(vp.ValidationError) as caught:
        parse(broken, file="axpy.vir")
    assert str(caught.value) == shown.rstrip("\n")
