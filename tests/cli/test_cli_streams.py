"""The command line where a standard stream is full, closed or not read, and where Ctrl-C comes early or is ignored."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from children import TAKES_CTRL_C, child_environment
from executor_programs import PATIENCE, settled
from tree import ROOT

import vyre_py

FULL = "vyre-py: standard output: No space left on device\n"
CLOSED = "vyre-py: standard output is closed\n"


def shell(words: str, **settings: str) -> tuple[int, str, str]:
    """Status, standard output and standard error of a command line with redirections."""
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -m vyre_py {words}', sys.executable], cwd=ROOT, env=child_environment(**settings), capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "one.vir"
    path.write_text("program one workgroup(1) grid(1) {\n  buffer y: u32[1] write\n  y[0] = 1\n}\n")
    return path


@pytest.mark.parametrize("words", ["ops", "ops --json", "--help", "run --help", "--version", "explain V201", "lower {} --emit ptx", "lower {} --emit cubin"])
@pytest.mark.parametrize(("where", "why"), [(">/dev/full", FULL), (">&-", CLOSED)], ids=["full", "closed"])
def test_standard_output_that_takes_nothing_is_one_line(words: str, where: str, why: str, program: Path) -> None:
    if "cubin" in words:
        pytest.importorskip("cuda.bindings", reason="nvJitLink makes machine code")
    assert shell(f"{words.format(program)} {where}") == (1, "", why)


def test_what_is_written_elsewhere_needs_no_standard_output(program: Path, tmp_path: Path) -> None:
    assert shell(f"lower {program} --emit ptx -o {tmp_path / 'one.ptx'} >&-") == (0, "", "")
    assert ".entry" in (tmp_path / "one.ptx").read_text()


@pytest.mark.parametrize("words", ["ops nothing", "ops nothing --json"])
def test_a_failure_keeps_its_status_where_nobody_hears_of_it(words: str) -> None:
    for where in (">&- 2>&-", ">/dev/full 2>/dev/full"):
        assert shell(f"{words} {where}") == (1, "", "")


def test_standard_input_that_is_closed() -> None:
    assert shell("check - <&-") == (1, "", "vyre-py: standard input is closed\n")


def test_ctrl_c_during_imports_is_one_line(tmp_path: Path) -> None:
    """NumPy is among the first that are imported."""
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text(f"{TAKES_CTRL_C}import os\nos.kill(os.getpid(), signal.SIGINT)\n")
    inherited = child_environment()["PYTHONPATH"]
    assert shell("ops", PYTHONPATH=f"{tmp_path}:{inherited}") == (130, "", "vyre-py: interrupted\n")


def test_a_background_job_of_a_shell_ignores_ctrl_c(program: Path) -> None:
    """Its shell has it ignore SIGINT, and whoever it was meant for is another."""
    command = ["sh", "-c", "trap '' INT; exec \"$0\" -m vyre_py check -", sys.executable]
    process = subprocess.Popen(command, cwd=ROOT, env=child_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert settled(lambda: "vyre_py" in Path(f"/proc/{process.pid}/cmdline").read_text().split("\0"))
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(program.read_text(), timeout=PATIENCE)
    assert process.returncode == 0 and "is valid" in out


def test_what_is_public_is_imported_when_it_is_asked_for() -> None:
    text = "import sys, vyre_py\nassert 'numpy' not in sys.modules\nassert vyre_py.f32 is vyre_py.ir.language.types.f32 and 'f32' in vars(vyre_py)\n"
    subprocess.run([sys.executable, "-c", text], cwd=ROOT, env=child_environment(), check=True, timeout=PATIENCE)
    for name in vyre_py.__all__:
        assert getattr(vyre_py, name) is not None
