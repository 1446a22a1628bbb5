"""Runs the filetests: what the checker says, what passes make, what every device computes, what every target emits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import KINDS
from tests.filetest import (
    UPDATE,
    Failure,
    devices_of,
    expected_after,
    files,
    read_cases,
    rewrite_passes,
    run_check,
    run_lower,
    run_pass,
    run_program,
)
from vyre_py.lowering.compile import emit_text

RUNS = [pytest.param(path, kind, id=f"{path.stem}-{kind}") for path in files("run") for kind in devices_of(path, KINDS)]


@pytest.mark.parametrize("path", files("check"), ids=lambda path: path.stem)
def test_check(path: Path) -> None:
    for case in read_cases(path):
        run_check(case)


@pytest.mark.parametrize("path", files("passes"), ids=lambda path: path.stem)
def test_passes(path: Path) -> None:
    made = [(case, run_pass(case)) for case in read_cases(path)]
    if UPDATE:
        rewrite_passes(path, made)
        return
    for case, after in made:
        assert after == expected_after(case)


@pytest.mark.parametrize(("path", "kind"), RUNS)
def test_run(path: Path, kind: str) -> None:
    from tests.conftest import open_device

    open_device(kind)  # an absent device skips the file, or fails it where it is required
    problems = []
    for case in read_cases(path):
        try:
            run_program(case, kind)
        except Failure as failure:
            problems.append(str(failure))
    if problems:
        raise Failure("\n".join(problems))


@pytest.mark.parametrize("path", files("lower"), ids=lambda path: path.stem)
def test_lower(path: Path) -> None:
    for case in read_cases(path):
        run_lower(case, emit_text)
