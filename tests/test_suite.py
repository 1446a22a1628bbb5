"""The suite itself: a test that hangs fails alone, what happens to be installed beside pytest does not end the run, and files are where others look."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest
from children import child_environment
from long import Stage, run_stages, stages
from tree import FOLDERS, ROOT, TESTS, file_of

HANGS = """
import time

def test_that_waits():
    time.sleep(1000)

def test_that_catches_everything():
    while {forever}:
        try:
            time.sleep(1000)
        except BaseException:
            pass

def test_that_is_well():
    pass
"""


def run(folder: Path, *options: str, plugin: str, **settings: str) -> tuple[int, str]:
    """Exit status and output of the tests of a folder, with the suite's own configuration and a plugin."""
    (folder / "plugin_of_this_test.py").write_text(plugin)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider", "-p", "plugin_of_this_test", *options, str(folder)]
    environment = child_environment(**settings)
    environment["PYTHONPATH"] += f":{folder}"
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


LIMITED = """
from time_limit import TimeLimit

def pytest_configure(config):
    config.pluginmanager.register(TimeLimit(1.0))
"""


def test_a_test_that_hangs_fails_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "test_hangs.py").write_text(HANGS.format(forever=False))
    status, said = run(tmp_path, plugin=LIMITED)
    assert status == 1 and "1 failed, 2 passed" in said
    assert "it takes longer than 1 s" in said and re.search(r"test_hangs\.py\", line \d+ in test_that_waits", said)


@pytest.mark.skipif(find_spec("xdist") is None, reason="pytest-xdist, which starts another process, is not here")
def test_a_test_that_catches_everything_ends_its_process_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "test_hangs.py").write_text(HANGS.format(forever=True))
    status, said = run(tmp_path, "-n", "1", plugin=LIMITED)
    assert status == 1 and "2 failed, 1 passed" in said
    assert "crashed while running" in said and re.search(r"test_hangs\.py\", line \d+ in test_that_catches_everything", said)


@pytest.mark.parametrize(("text", "ends"), [
    ("Benchmarks are automatically disabled because xdist plugin is active.Benchmarks cannot be performed reliably", 0), ("something else", 3),
])  # fmt: skip
def test_a_plugin_that_warns_of_nothing_here_does_not_end_the_run(tmp_path: Path, text: str, ends: int) -> None:
    """pytest-benchmark warns so where pytest-xdist is, before any test runs; every other warning stays an error, of those at the collection too, which
    all versions of pytest look at."""
    (tmp_path / "test_well.py").write_text("def test_that_is_well():\n    pass\n")
    status, said = run(tmp_path, plugin=f"import warnings\n\ndef pytest_collection_modifyitems():\n    warnings.warn({text!r}, UserWarning)\n")
    assert status == ends, said


def test_what_is_long_goes_on_after_a_failure_and_says_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def says(text: str, status: int = 0) -> list[str]:
        return [sys.executable, "-c", f"import sys; print('first line'); print('{text}'); sys.exit({status})"]

    wanted = [Stage("one", [says("found two", 3), says("found none")]), Stage("another", [says("all well")])]
    assert run_stages(wanted, tmp_path / "long") == 1
    said = capsys.readouterr().out.split("\n\n")[-1]
    assert re.search(r"FAILED +one, .*\n +found two  \(.*one_0.log, exit 3\)\n +found none\nwell +another, .*\n +all well", said)
    assert run_stages(wanted[1:], tmp_path / "long") == 0


def test_what_is_long_can_be_started() -> None:
    commands = [command for stage in stages(2, Path("out")) for command in stage.commands]
    assert len([command for command in commands if "tests/fuzz/malformed.py" in command]) == 2
    for command in commands:
        assert all((ROOT / word).exists() for word in command if word.startswith("tests/"))


# ---------------------------------------------------------------- where files lie


def test_pytest_imports_from_where_scripts_do() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert settings["tool"]["pytest"]["ini_options"]["pythonpath"] == list(FOLDERS)


def test_no_two_modules_of_the_tests_have_one_name() -> None:
    """They are imported without their folders, and so are files of tests named."""
    files = {path for folder in FOLDERS[1:] for path in (ROOT / folder).glob("*.py")} | set(TESTS.rglob("test_*.py"))
    names = Counter(path.stem for path in files)
    assert [name for name, count in names.items() if count > 1] == []
    assert not names.keys() & sys.stdlib_module_names


def test_a_file_of_the_tests_is_found_by_its_name() -> None:
    assert file_of("test_suite.py") == Path(__file__).resolve()
    for name, count in (("test_nothing.py", "0"), ("__main__.py", "3")):
        with pytest.raises(ValueError, match=f"{count} files of the tests are named {name}"):
            file_of(name)


def test_tests_of_a_floor_lie_in_the_folders_of_its_sources() -> None:
    folders = {path.parent.relative_to(TESTS) for floor in ("ir", "lowering", "drivers") for path in (TESTS / floor).rglob("*.py")}
    assert len(folders) > 3 and [str(folder) for folder in sorted(folders) if not list((ROOT / folder).glob("*.py"))] == []


def texts() -> Iterator[tuple[str, str]]:
    """All that may name files of the tests, but for this module, which makes some up."""
    files = [ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / ".pre-commit-config.yaml", ROOT / ".ci" / "run", *ROOT.glob("*.md"), *ROOT.glob("*.py")]
    for folder in ("ir", "lowering", "drivers", "vyre_py", "examples", "tests"):
        files += [path for ending in ("py", "pyi", "md", "vir") for path in (ROOT / folder).rglob(f"*.{ending}")]
    for path in files:
        if path != Path(__file__).resolve():
            yield path.relative_to(ROOT).as_posix(), path.read_text("utf-8")


def test_what_is_named_of_the_tests_is_there() -> None:
    """Paths, where a word in capitals stands for any; and files of tests named alone."""
    missing, count = [], 0
    for where, text in texts():
        paths = {found.rstrip(".") for found in re.findall(r"(?<![\w/.])tests/[\w/.*-]*\w[*/]*", text)}
        alone = set(re.findall(r"(?<![\w/])test_[a-z0-9_]+\.py", text))
        count += len(paths) + len(alone)
        missing += [f"{where}: {path}" for path in paths if not any(ROOT.glob(re.sub(r"\b[A-Z]{2,}\b", "*", path)))]
        missing += [f"{where}: {name}" for name in alone if not any(TESTS.rglob(name))]
    assert count > 100 and missing == []


PEERS: Final = {"numba", "torch"}  # that figures are measured beside
FOLDERS_OF_SCRIPTS: Final = ("", "bench", "fuzz", "mutants", "planted")
SCRIPTS: Final = [
    path for folder in FOLDERS_OF_SCRIPTS for path in sorted((TESTS / folder).glob("*.py")) if '\nif __name__ == "__main__"' in path.read_text("utf-8")
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.relative_to(TESTS).as_posix())
def test_a_script_finds_what_it_imports(script: Path, tmp_path: Path) -> None:
    """Started by its path, from elsewhere; what it does is left out."""
    code = "import runpy, sys; sys.path[0] = sys.argv[1]; runpy.run_path(sys.argv[2])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, str(script.parent), str(script)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if missing := re.search(r"ModuleNotFoundError: No module named '(\w+)", done.stderr):
        assert missing[1] in PEERS, done.stderr
        pytest.skip(f"{missing[1]} is not installed")
    assert done.returncode == 0, done.stderr
