"""The command line: what each command prints, where, and its exit status."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from axpy import TEXT as AXPY
from children import child_environment
from command_line import said
from device_kinds import need_nvjitlink
from tree import ROOT

from vyre_py.__main__ import main
from vyre_py.cli.beside import MOST_LINES, side_by_side
from vyre_py.cli.output import CommandError
from vyre_py.ir.check import check
from vyre_py.ir.language import describe
from vyre_py.ir.language.describe import AnyOp
from vyre_py.ir.language.ops import ATOMICS, OPS, SUBGROUPS
from vyre_py.ir.language.rules import RULES
from vyre_py.ir.language.tiles.tile_ops import TILE_OPS
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.compile import emit_text
from vyre_py.lowering.options import CompileOptions

WRONG = AXPY.replace("a * x[i]", "n * x[i]")  # refused by the parser
DIVERGES = AXPY.replace("  y[i]", "  if i < n { barrier }\n  y[i]")  # refused by the checker


@pytest.fixture
def axpy(tmp_path: Path) -> Path:
    path = tmp_path / "axpy.vir"
    path.write_text(AXPY, encoding="utf-8")
    return path


def type_in(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


# ---------------------------------------------------------------- explain


@pytest.mark.parametrize("code", RULES)
def test_explain_says_the_whole_row(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = said(capsys, "explain", code.lower())
    rule = RULES[code]
    assert (status, err) == (0, "")
    assert out.startswith(f"{code} {rule.title}\n") and rule.reason in out and rule.help in out


@pytest.mark.parametrize(("code", "hint"), [("V999", "did you mean V599"), ("V20l", "did you mean V2"), ("ö" * 10_000, "codes look like V201"), ("", "codes")])
def test_explain_of_an_unknown_code(code: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = said(capsys, "explain", code)
    assert (status, out) == (1, "") and hint in err and err.count("\n") == 1


# ---------------------------------------------------------------- ops

_ALL_OPS: dict[str, AnyOp] = {describe.full_name(row): row for row in (*OPS.values(), *ATOMICS.values(), *SUBGROUPS.values(), *TILE_OPS.values())}


def test_ops_lists_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = said(capsys, "ops")
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == [*_ALL_OPS]


@pytest.mark.parametrize("name", _ALL_OPS)
def test_ops_shows_each_row(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = said(capsys, "ops", name)
    row = _ALL_OPS[name]
    assert status == 0 and out.startswith(f"{name}\n") and row.doc in out


def test_ops_shows_laws_types_and_notes(capsys: pytest.CaptureFixture[str]) -> None:
    _, add, _ = said(capsys, "ops", "add")
    assert "x + y = y + x\n" in add and "(x + y) + z = x + (y + z) (integers only)" in add and "T: numbers" in add
    assert "x & ~0 = x\n" in said(capsys, "ops", "and")[1]
    assert "x || true = true\n" in said(capsys, "ops", "logical_or")[1]
    assert "u64 to u32x2" in said(capsys, "ops", "bitcast")[1]
    assert "(T) -> u32   T: f32x4\n" in said(capsys, "ops", "pack4x8_snorm")[1]
    assert "(T, T) -> component of T   T: vectors of numbers\n" in said(capsys, "ops", "dot")[1]
    assert "spelled  v.zyx\n" in said(capsys, "ops", "swizzle")[1]
    assert "strict" in said(capsys, "ops", "exp")[1]
    assert "the same in a workgroup" in said(capsys, "ops", "workgroup_id.x")[1]


def test_ops_finds_operators_and_queries_without_their_axis(capsys: pytest.CaptureFixture[str]) -> None:
    names = [line for line in said(capsys, "ops", "-")[1].splitlines() if line and line[0] != " "]
    assert names == ["sub", "neg"]
    names = [line for line in said(capsys, "ops", "local_id")[1].splitlines() if line and line[0] != " "]
    assert names == ["local_id.x", "local_id.y", "local_id.z"]


def test_ops_finds_tile_ops_as_text_writes_them(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, "ops", "fill")
    assert out.startswith("tile_fill\n") and "spelled  fill(x, extents...)" in out and "a Program of tiles" in out


def test_ops_of_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "ops", "popcont") == (1, "", "vyre-py: no op is named popcont; did you mean popcount?\n")
    assert "vyre-py ops lists them" in said(capsys, "ops", "quux" * 1000)[2]


# ---------------------------------------------------------------- check


def test_check_of_valid_files(axpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "check", axpy, axpy) == (0, f"{axpy}: program axpy is valid\n" * 2, "")


@pytest.mark.parametrize(("text", "code"), [(WRONG, "V201"), (DIVERGES, "V401"), ("", "P102"), ("program\0", "P101")])
def test_check_prints_findings_and_goes_on(text: str, code: str, axpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = axpy.with_name("bad.vir")
    bad.write_text(text, encoding="utf-8")
    status, out, err = said(capsys, "check", bad, axpy)
    assert (status, err) == (1, "")
    assert out.startswith(f"{code} ") and f"  {bad}:" in out and out.endswith(f"{axpy}: program axpy is valid\n")


def test_check_shows_warnings_of_what_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "edges.vir"
    file.write_text("program edges(n) { buffer y: u32[n] write\n if global_id.x - 1 < 0 { y[global_id.x] = 1 } }", encoding="utf-8")
    status, out, _ = said(capsys, "check", file)
    assert status == 0 and "V471" in out and f"{file}:2:5" in out and "is valid" in out
    status, out, _ = said(capsys, "check", "--json", file)
    (report,) = json.loads(out)["files"]
    assert status == 0 and report["valid"] and report["diagnostics"] == [] and [w["code"] for w in report["warnings"]] == ["V471"]


def test_check_reads_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    type_in(monkeypatch, b"\xef\xbb\xbf" + AXPY.replace("\n", "\r\n").encode())  # as some editors write it
    assert said(capsys, "check", "-") == (0, "<stdin>: program axpy is valid\n", "")
    type_in(monkeypatch, WRONG.encode())
    status, out, _ = said(capsys, "check", "-")
    assert status == 1 and "  <stdin>:6:" in out


def test_what_cannot_be_read_is_told(axpy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    latin = axpy.with_name("latin.vir")
    latin.write_bytes(b"// caf\xe9\n")
    type_in(monkeypatch, b"\xff")
    told = [
        f"vyre-py: {axpy}x: No such file or directory", f"vyre-py: {axpy.parent}: Is a directory",
        f"vyre-py: {latin}: no UTF-8 text (byte 6 is 0xe9)", "vyre-py: 'a\\x00b': embedded null byte", "vyre-py: <stdin>: no UTF-8 text (byte 0 is 0xff)",
    ]  # fmt: skip
    status, out, err = said(capsys, "check", f"{axpy}x", axpy.parent, latin, "a\0b", "-", axpy)
    assert (status, out, err.splitlines()) == (1, f"{axpy}: program axpy is valid\n", told)
    status, out, err = said(capsys, "lower", latin, "--target", "wgsl")
    assert (status, out, err.splitlines()) == (1, "", told[2:3])


# ---------------------------------------------------------------- lower


@pytest.mark.parametrize("target", ["sm_90", "wgsl", "cpu:x86-64-v3:8", "reference"])
@pytest.mark.parametrize("opt", [None, 0, 3])
def test_lower_prints_what_the_target_emits(target: str, opt: int | None, axpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = said(capsys, "lower", axpy, "--target", target, *([] if opt is None else ["--opt", opt]))
    options = CompileOptions() if opt is None else CompileOptions(opt=opt)
    assert (status, err) == (0, "")
    assert out.rstrip("\n") == emit_text(parse(AXPY, str(axpy)), target, options).rstrip("\n")


@pytest.mark.parametrize(
    ("arguments", "begins", "holds"),
    [
        (("vir",), "program axpy(n)", "// x: proven by the guard made for axpy.vir:6; y: proven by the guard made for axpy.vir:6\n"),
        (("vir", "--target", "sm_90"), "program axpy(n)", "// x: proven by the guard"),
        (("llvm",), "", "define internal void @workgroups("),
        (("llvm", "--target", "sm_75"), "target triple", "define ptx_kernel void @vyre_axpy("),
        (("ptx",), "//", ".target sm_90"),
        (("ptx", "--target", "sm_75"), "//", ".target sm_75"),
        (("wgsl",), "struct Block", "@compute"),
        (("asm",), "", "workgroups"),
        (("asm", "--opt", "0"), "", "workgroups"),
    ],
)
def test_lower_emits_each_form(arguments: tuple[str, ...], begins: str, holds: str, axpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = said(capsys, "lower", axpy, "--emit", *arguments)
    assert (status, err) == (0, "") and out.startswith(begins) and holds in out


def test_lower_emits_all_entries(axpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("llvm", "nvvm", "ptx"):
        out = said(capsys, "lower", axpy, "--target", "compute_90", "--emit", form)[1]
        assert re.findall(r"(?:define .*@|\.entry )(\w+)\(", out) == ["vyre_axpy", "vyre_axpy_x4"]


def test_lower_emits_vectors_taken_apart(axpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    axpy.write_text(AXPY.replace("f32[n]", "f32x2[n]").replace("a *", "a.xx *"), encoding="utf-8")
    out = said(capsys, "lower", axpy, "--emit", "vir", "--target", "wgsl")[1]
    assert "y: f32[n, 2]" in out
    check(parse(out))


def test_what_lower_prints_for_the_reference_is_a_program(axpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(parse(said(capsys, "lower", axpy, "--target", "reference")[1]))


@pytest.mark.parametrize(
    ("text", "arguments", "why"),
    [
        (AXPY, ("--target", "sm_12"), "does not support target 'sm_12'"),
        (AXPY, ("--target", "wgsl", "--opt", "9"), "opt=9"),
        (AXPY, ("--target", "wgsl", "--emit", "asm"), "does not support text of the form 'asm' (it has vir, wgsl)"),
        (WRONG, ("--target", "wgsl"), "V201"),
        (DIVERGES, ("--target", "sm_90"), "V401"),
    ],
)
def test_lower_says_why_not(text: str, arguments: tuple[str, ...], why: str, axpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    axpy.write_text(text, encoding="utf-8")
    status, out, err = said(capsys, "lower", axpy, *arguments)
    assert (status, out) == (1, "") and err.startswith("vyre-py: ") and why in err


def sides(out: str) -> list[tuple[str, str, str]]:
    """The rows of `lower --diff` below its titles: mark, left, right."""
    _, _, *rows = out.splitlines()
    return [(row[0], row[2:79].rstrip(), row[82:]) for row in rows]


def test_lower_shows_two_options_side_by_side(axpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = said(capsys, "lower", axpy, "--emit", "vir", "--diff", "workgroup=64,1,1", "--diff", "debug")
    assert (status, err) == (0, "") and re.search(r"^  as given +\| --workgroup=64,1,1 --debug$", out, re.MULTILINE)
    changed = [row for row in sides(out) if row[0] != " "]
    assert changed == [("|", "program axpy(n) workgroup(256) {", "program axpy(n) workgroup(64) {")]
    ptx = [said(capsys, "lower", axpy, "--emit", "ptx", *given)[1] for given in ((), ("--opt", "0"))]
    rows = sides(said(capsys, "lower", axpy, "--emit", "ptx", "--diff", "opt=0")[1])
    for side, text in ((1, ptx[0]), (2, ptx[1])):
        whole = [line.expandtabs(4).rstrip() for line in text.splitlines()]
        assert not [row[side] for row in rows if row[0] == "|" and row[side] not in whole]
    assert {mark for mark, _, _ in rows} == {" ", "|", "<", ">"}


def test_lower_side_by_side_in_a_file(axpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = axpy.parent / "both.txt"
    assert said(capsys, "lower", axpy, "--emit", "wgsl", "--diff", "opt=3", "-o", out) == (0, "", "")
    assert [row[0] for row in sides(out.read_text())] == [" "] and "lines alike" in out.read_text()


@pytest.mark.parametrize(("form", "diff", "why"), [("ptx", "nothing=1", "--nothing=1"), ("ptx", "opt=high", "invalid int")])
def test_lower_side_by_side_says_why_not(form: str, diff: str, why: str, axpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["lower", str(axpy), "--emit", form, "--diff", diff, "-o", str(axpy.parent / "out")])
    assert stopped.value.code == 2 and why in capsys.readouterr().err


def test_machine_code_is_not_compared(axpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need_nvjitlink()
    status, out, err = said(capsys, "lower", axpy, "--emit", "cubin", "--diff", "opt=0", "-o", axpy.parent / "out")
    assert (status, out) == (1, "") and "sass" in err


def test_texts_side_by_side_are_wrapped_and_bounded() -> None:
    rows = list(side_by_side("a\n" * 20 + "x" * 50 + "\nlast", "a\n" * 20 + "y\nlast\nmore", ("one", "two"), 45))
    assert rows[2:] == [
        (" ", " ... 17 lines alike ..."), *[(" ", f" {'a':<20} | a")] * 3, ("|", f" {'x' * 20} | y"), ("|", f" {'x' * 20} |"), ("|", f" {'x' * 10:<20} |"),
        (" ", f" {'last':<20} | last"), (">", f" {'':<20} | more"),
    ]  # fmt: skip
    with pytest.raises(CommandError, match="too long"):
        list(side_by_side("a\n" * (MOST_LINES + 1), "", ("", ""), 80))


# ---------------------------------------------------------------- the process


def test_a_wrong_command_line_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    lower = ["lower", "x.vir"]
    for arguments in ([], ["explain"], ["check"], lower, [*lower, "--emit", "hlsl"], [*lower, "--target", "wgsl", "--opt", "high"]):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "vyre_py", "ops"], cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        env=child_environment(),
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
