"""The table of figures: every row runs, over a stand-in for the driver; what a promise says of a figure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tree import ROOT

from tests.bench.cuda.__main__ import ROWS
from tests.bench.cuda.table import Bench, Promise, Result, Results, Row, at_least, at_most, within


def test_every_row_runs(tmp_path: Path) -> None:
    """Also from another folder, and beside a script's folder on the path, where it must not hide NVIDIA's package."""
    report = tmp_path / "figures.json"
    code = "import sys, runpy; import cuda.bindings; runpy.run_module('tests.bench.cuda', run_name='__main__')"
    environment = {"PYTHONPATH": f"{ROOT / 'tests' / 'bench'}:{ROOT}", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code, "--dry", "--json", str(report)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(report.read_text("utf-8"))["rows"]
    assert [(row["what"], row["peer"]) for row in found] == [(row.what, row.peer) for row in ROWS]
    assert [row["what"] for row in found if row["error"] or row["ours"] is None] == []


def test_rows_are_told_apart() -> None:
    assert len({(row.what, row.peer) for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize(
    ("promise", "ours", "theirs", "kept"),
    [
        (at_most(1.1), 2.2, 2.0, True), (at_most(1.1), 2.3, 2.0, False), (at_most(1.1), 1.0, None, None), (at_least(2.0), 40.0, 18.0, True),
        (at_least(2.0), 30.0, 18.0, False), (within(0.3), 0.2, None, True), (within(0.3), 0.4, 9.0, False),
    ],
)  # fmt: skip
def test_promises(promise: Promise, ours: float, theirs: float | None, kept: bool | None) -> None:
    row = Row("a", "us", lambda bench: {}, "b", promise)
    assert Result(row, ours, theirs).kept is kept
    assert Result(row, ours, theirs, dry=True).verdict == ""


def test_a_row_that_fails_says_so_and_its_measure_is_made_once(capsys: pytest.CaptureFixture[str]) -> None:
    made = []

    def fails(bench: Bench) -> dict[str, float]:
        made.append(bench)
        raise RuntimeError("no such thing")

    bench = Bench.__new__(Bench)
    results = Results(bench)
    first, second = (results.of(Row(what, "us", fails, promise=within(1.0))) for what in ("a", "b"))
    assert first.verdict == second.verdict == "error" and len(made) == 1
    assert "no such thing" in str(first) and "no such thing" in capsys.readouterr().err
