"""The command `explore`: a page as a file, a page that is served, and what is refused."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from children import TAKES_CTRL_C, child_environment
from tree import ROOT

from vyre_py.__main__ import main

AXPY = "program axpy(n) {\n  param a: f32\n  buffer y: f32[n] read_write\n  y[global_id.x] = a * y[global_id.x]\n}\n"


@pytest.fixture
def axpy(tmp_path: Path) -> Path:
    path = tmp_path / "axpy.vir"
    path.write_text(AXPY, "utf-8")
    return path


def data_of(page: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert found is not None
    return dict(json.loads(found[1])["data"])


def test_a_page_is_written_as_one_file(axpy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "axpy.html"
    assert main(["explore", str(axpy), "n=70", "--html", str(out), "--target", "wgsl", "--target", "reference", "a=3", "--opt", "1"]) == 0
    assert capsys.readouterr() == ("", "")
    data = data_of(out.read_text("utf-8"))
    (subject,) = data["subjects"]  # type: ignore[misc]  # of JSON
    assert subject["recording"]["given"] == {"n": "70", "a": "3", "y": "ramp"}
    assert [form["target"] for form in subject["document"]["forms"]] == ["wgsl", "wgsl", "reference"]
    assert (data["options"], data["targets"]) == ({"opt": 1, "numerics": None}, ["wgsl", "reference"])


def test_a_program_with_findings_has_a_page(axpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    axpy.write_text(AXPY.replace("a *", "1u32 *"), "utf-8")
    assert main(["explore", str(axpy), "--html", "-"]) == 0
    (subject,) = data_of(capsys.readouterr().out)["subjects"]  # type: ignore[misc]  # of JSON
    assert [finding["code"] for finding in subject["document"]["findings"]] == ["V201"]


@pytest.mark.parametrize(("words", "status", "said"), [
    (["none.vir"], 1, "No such file"), (["axpy.vir", "--target", "sm_1"], 1, "sm_1"), (["axpy.vir", "--port", "70000"], 2, "is no port"),
    (["axpy.vir", "x=@x.npy"], 2, "takes numbers, not files"), (["axpy.vir", "n=1", "n=2"], 2, "given twice"),
    (["axpy.vir", "--html", "none/x.html", "--target", "reference"], 1, "No such"), (["bad.py"], 1, "raised SyntaxError"),
])  # fmt: skip
def test_what_cannot_be_shown_is_refused(
    axpy: Path, words: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (axpy.parent / "bad.py").write_text("def", "utf-8")
    monkeypatch.chdir(axpy.parent)
    try:
        found = main(["explore", *words])
    except SystemExit as error:
        found = int(str(error.code))
    assert found == status
    assert said in capsys.readouterr().err


def test_it_is_served_until_it_is_interrupted(axpy: Path) -> None:
    script = f"{TAKES_CTRL_C}import sys\nfrom vyre_py.__main__ import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, "explore", str(axpy), "--target", "reference"]
    with subprocess.Popen(command, cwd=ROOT, env=child_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/[\w-]{32}/)\n", process.stdout.readline())
            assert found is not None
            connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
            connection.request("GET", found[2])
            assert '"name":"axpy"' in connection.getresponse().read().decode()
            connection.request("POST", f"{found[2]}document", json.dumps({"text": AXPY}), {"Content-Type": "application/json"})
            assert json.loads(connection.getresponse().read())["name"] == "axpy"
            axpy.write_text(AXPY.replace("axpy", "other"), "utf-8")
            connection.request("GET", found[2])
            assert '"name":"other"' in connection.getresponse().read().decode()
            axpy.unlink()
            connection.request("GET", found[2])
            kept = connection.getresponse().read().decode()
            assert '"name":"other"' in kept
            assert "No such file" in kept
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == "vyre-py: interrupted\n"
