"""Runs the filetests: what the checker says, what passes make, what every device computes, what every target emits."""

from __future__ import annotations

from pathlib import Path

import filetest
import pytest
from device_kinds import KINDS, open_device
from filetest import (
    UPDATE,
    WATCHING,
    Case,
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
    run_watched,
)

from vyre_py.ir.language.errors import RaceError, UnwrittenRead
from vyre_py.lowering.compile import emit_text
from vyre_py.lowering.errors import Unsupported

RUNS = [pytest.param(path, kind, id=f"{path.stem}-{kind}") for path in files("run") for kind in devices_of(path, KINDS)]


@pytest.mark.parametrize("path", files("check"), ids=lambda path: path.stem)
def test_check(path: Path) -> None:
    for case in read_cases(path):
        run_check(case)


@pytest.mark.parametrize(("words", "fits"), [("k is not known", True), ("k is known", False)])
def test_a_check_is_by_what_is_said_not_by_the_line_that_is_quoted(words: str, fits: bool, tmp_path: Path) -> None:
    path = tmp_path / "words.vir"
    path.write_text(f"program p(n) {{\n  buffer x: u32[n] write\n  x[global_id.x] = k // error: P103 {words}\n}}\n", encoding="utf-8")
    (case,) = read_cases(path)
    if fits:
        run_check(case)
    else:
        with pytest.raises(Failure, match="not expected"):
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
    open_device(kind)  # an absent device skips the file, or fails it where it is required
    problems = []
    for case in read_cases(path):
        try:
            # Programs here are free of races, which the interpreter looks at while it runs them.
            run_program(case, kind, WATCHING if kind == "reference" else None)
        except Failure as failure:
            problems.append(str(failure))
    if problems:
        raise Failure("\n".join(problems))


@pytest.mark.parametrize(("path", "word"), [pytest.param(path, word, id=path.stem) for word in ("races", "unwritten") for path in files(word)])
def test_watched(path: Path, word: str) -> None:
    for case in read_cases(path):
        run_watched(case, word)


@pytest.mark.parametrize("path", files("lower"), ids=lambda path: path.stem)
def test_lower(path: Path) -> None:
    for case in read_cases(path):
        run_lower(case, emit_text)


AXPY = """program axpy(n) workgroup(64) {
  buffer x: f32[n] read
  buffer y: f32[n] write
  y[global_id.x] = x[global_id.x] * 2.0
}
"""


def one(tmp_path: Path, text: str) -> Case:
    path = tmp_path / "one.vir"
    path.write_text(text, encoding="utf-8")
    (case,) = read_cases(path)
    return case


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("// run: x = [1, 2] ==> y = [2, 5]", r"y\[1\] = 4.0, expected 5.0"),
        ("// run: x = [0.0] ==> y = [-0.0]", r"y\[0\] = 0.0, expected -0.0"),
        ("// run: x = [1] ==> y = [nan]", "expected nan"),
        ("// run: x = [1] ==> y = [2, 2]", r"float32\[1\], expected float32\[2\]"),
        ("// run: x = [1] ==> x = [1]", "x is not written"),
        ("// run: x = [1] ==> z = [1]", "z is not an argument"),
        ("// run: x = [1, [2]] ==> y = [2]", "list of 1 axes"),
        ("// run: x = [1u32 2] ==> y = [2]", "expected ,"),
        ("// run: x = [1] y = [2]", "==> is missing"),
        ("// run: x = [1] ==> ", "nothing is expected"),
        ("// note that nothing runs", "no run directive"),
        ("// tolerance: ulp 1\n// run: x = [1.0000001] ==> y = [2]\n// run: x = [1.0000002] ==> y = [2]", "one.vir:8.*expected 2.0"),
    ],
)
def test_the_runner_notices(tmp_path: Path, line: str, why: str) -> None:
    with pytest.raises(Failure, match=why):
        run_program(one(tmp_path, AXPY + line), "reference")


DOUBLED = """program doubled(n) workgroup(64) {
  param p: f32x2
  buffer x: bf16x2[n] read
  buffer y: bf16x2[n] write
  y[global_id.x] = x[global_id.x] + cast(p, bf16x2)
}
"""


@pytest.mark.parametrize(
    "run",
    [
        "x = [[1, 2], [-3, 0.5]] ==> y = [[2, 4], [-2, 2.5]]",
        "x = zeros(2) ==> y = [[1, 2], [1, 2]]",
        "x = iota(1) ==> y = [[1, 3]]",
        "x = [] ==> y = []",
    ],
)
def test_components_are_one_list_more(tmp_path: Path, run: str) -> None:
    run_program(one(tmp_path, DOUBLED + f"// run: p = [1, 2] {run}"), "reference")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("// run: p = [1, 2] x = [[1, 2]] ==> y = [[2, 3]]", r"y\[0, 1\] = 4, expected 3"),
        ("// run: p = [1, 2] x = [[1, 2, 3]] ==> y = [[2, 4, 3]]", "2 components are needed"),
        ("// run: p = [1, 2] x = [1, 2] ==> y = [[2, 4]]", "list of 2 axes"),
        ("// run: p = 1 x = [[1, 2]] ==> y = [[2, 4]]", r"expected \["),
        ("// run: p = [1, 2, 3] x = [[1, 2]] ==> y = [[2, 4]]", "2 components are needed"),
        (
            "// tolerance: ulp 1\n// run: p = [1, 0] x = [[1, nan]] ==> y = [[2.03125, inf]]",
            r"y\[0, 0\] = 2, expected 2.03125; \[0, 1\] = nan, expected inf",
        ),
    ],
)
def test_the_runner_notices_components(tmp_path: Path, line: str, why: str) -> None:
    with pytest.raises(Failure, match=why):
        run_program(one(tmp_path, DOUBLED + line), "reference")


RACING = """program racing(n) workgroup(4) over(n) {
  buffer y: u32[1] read_write
  y[0] = local_id.x
}
"""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (RACING + "// run: n = 4 y = [0] ==> y = [3]", "R101"),
        (RACING + "// races: R101 y[1]\n// run: n = 4 y = [0]", r"one.vir:6: opt 0: .'R101 y.1.'. not in what is found:\nR101 y.0."),
        (RACING + "// races: R101 y[0]\n// run: n = 1 y = [0]\n// run: n = 0 y = [0]", "one.vir:7: opt 0: no race is found"),
        (RACING + "// races: R101 y[0]", "no run directive"),
        (AXPY + "// run: x = [1] ==> y = [3]", r"y\[0\] = 2.0, expected 3.0"),
    ],
)
def test_the_runner_notices_races(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises((Failure, RaceError), match=why):
        run_watched(one(tmp_path, text), "races")


UNWRITTEN = """program forgot(n) workgroup(4) over(n) {
  workgroup w: u32[4]
  buffer y: u32[n] write
  if local_id.x < n / 2 {
    w[local_id.x] = 1
  }
  barrier
  y[global_id.x] = w[local_id.x]
}
"""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (UNWRITTEN + "// run: n = 4 ==> y = [1, 1, 0, 0]", "R102"),
        (UNWRITTEN + "// unwritten: R102 w[3]\n// run: n = 4", r"one.vir:11: opt 0: .'R102 w.3.'. not in what is found:\nR102 w.2."),
        (UNWRITTEN + "// unwritten: R102 w[2]\n// run: n = 4\n// run: n = 8", "one.vir:12: opt 0: no unwritten read is found"),
        (AXPY + "// run: x = [1] ==> y = [3]", r"y\[0\] = 2.0, expected 3.0"),
    ],
)
def test_the_runner_notices_unwritten_reads(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises((Failure, UnwrittenRead), match=why):
        run_watched(one(tmp_path, text), "unwritten")


def test_a_need_may_be_missing_but_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise Unsupported("this device", ["type f64"])

    monkeypatch.setattr(filetest, "run_on", refuse)
    run_program(one(tmp_path, AXPY + "// needs on wgpu: f64\n// run: x = [1] ==> y = [2]"), "wgpu")
    with pytest.raises(Unsupported):
        run_program(one(tmp_path, AXPY + "// needs on wgpu: f16\n// run: x = [1] ==> y = [2]"), "wgpu")
    with pytest.raises(Unsupported):
        run_program(one(tmp_path, AXPY + "// needs on wgpu: f64\n// run: x = [1] ==> y = [2]"), "cpu")


def test_the_runner_notices_findings_that_are_missing_or_too_many(tmp_path: Path) -> None:
    run_check(one(tmp_path, AXPY))
    with pytest.raises(Failure, match=r"one\.vir:4: expected, but not found: V201"):
        run_check(one(tmp_path, AXPY.replace("2.0\n", "2.0 // error: V201\n")))
    with pytest.raises(Failure, match=r"one\.vir:4: not expected"):
        run_check(one(tmp_path, AXPY.replace("2.0", "2u32")))
    run_check(one(tmp_path, AXPY.replace("2.0", "2u32 // error: V201 convert one side")))
    with pytest.raises(Failure, match="no directive is named 'rnu'"):
        one(tmp_path, AXPY + "// rnu: x = [1]")
