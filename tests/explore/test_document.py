"""The document of a Program: findings at their place, facts, passes, code with links; of compiled code, too."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from browser import HOSTILE
from device_kinds import need_nvjitlink
from hypothesis import given, settings
from hypothesis import strategies as st

import vyre_py as vp
from vyre_py.cli.output import CommandError
from vyre_py.explore.document import Known, program_document
from vyre_py.explore.occupancy import occupancy_of
from vyre_py.explore.pages import answers_of, explore_page
from vyre_py.explore.subject import subjects_of
from vyre_py.ir.check import check
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes import PassStep
from vyre_py.lowering.compile import prepare
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import parse_target

TEXT = """program sums(n) workgroup(64) over(n) {
  buffer x: f32[n] read
  buffer y: f32[n] write
  workgroup t: f32[64]
  let i = global_id.x
  let g = workgroup_id.x
  t[local_index] = x[i]
  barrier
  y[i] = t[63u32 - local_index] + cast(g, f32)
}
"""


def test_a_program_is_shown_with_its_facts() -> None:
    shown = program_document(Known(TEXT, targets=("wgsl", "reference")))
    assert shown["findings"] == []
    facts = shown["facts"]
    assert facts is not None
    assert (facts["workgroup"], facts["extents"], facts["over"], facts["dims"]) == ([64, 1, 1], ["n", "1", "1"], True, ["n"])
    assert [(m["name"], m["space"], m["size_bytes"]) for m in facts["memories"]] == [("x", "buffer", None), ("y", "buffer", None), ("t", "workgroup", 256)]
    levels = {line: about["level"] for line, about in shown["about"].items()}
    assert levels == {"5": "varying", "6": "workgroup", "7": "varying", "8": "grid", "9": "varying"}
    # t[local_index] is proven, t[63 - local_index] is not; that of x is, or a guard's.
    assert shown["about"]["7"]["proven"]["wgsl"] >= 1
    assert sum(about["kept"].get("wgsl", 0) for about in shown["about"].values()) == shown["passes"][0]["kept"]
    assert sum(about["proven"].get("wgsl", 0) for about in shown["about"].values()) == shown["passes"][0]["proven"]
    assert [(form["id"], form["target"]) for form in shown["forms"]] == [("vir", "wgsl"), ("wgsl", "wgsl"), ("vir", "reference")]
    assert json.loads(json.dumps(shown))["facts"] == facts | {"params": []}


def test_a_line_says_why_it_is_not_uniform_and_what_proves_its_indices() -> None:
    text = """program p(n, m) workgroup(64) over(n) {
  buffer x: f32[n] read
  buffer w: f32[m] read
  buffer y: f32[n] read_write
  workgroup t: f32[64]
  let i = global_id.x
  t[local_index] = x[i]
  barrier
  if i >= n { return }
  for k in 0u32..m {
    y[i] = y[i] + w[k] * t[63u32 - local_index]
  }
}
"""
    shown = program_document(Known(text, targets=("wgsl",)))
    about = shown["about"]
    assert [about[line]["why"] for line in ("6", "8", "11")] == ["it depends on global_id.x", "", "it depends on a load from 'y', which can be written"]
    assert about["10"]["why_control"] == "the return at line 9 takes some invocations away: the branch at line 9 depends on global_id.x"
    assert about["11"]["by"] == {"the guard at line 9": ["y"], "the loop at line 10": ["w"], "the index's range": ["t"]}
    checks = [(one["line"], one["what"], one["kept"], one["by"]) for one in shown["passes"][0]["checks"]]
    assert checks[:2] == [(7, "x", True, ""), (7, "t", False, "the index's range")] and (11, "w", False, "the loop at line 10") in checks
    (form,) = [form["code"] for form in shown["forms"] if form["id"] == "vir"]
    assert form is not None and any("w: proven by the loop at line 10" in line for line in form["lines"])


def test_passes_are_shown_with_what_changed() -> None:
    text = "program p(n) workgroup(4) over(n) {\n  buffer y: u32[n] write\n  let a = 2u32 * 3u32\n  let b = global_id.x + 7u32\n  y[global_id.x] = a\n}\n"
    (passes,) = program_document(Known(text, targets=("reference",)))["passes"]
    steps = {step["name"]: step for step in reversed(passes["steps"])}
    fold = steps["fold"]["rows"]
    assert ("-", "  let a = 2 * 3", [3]) in [(tag, row.replace("u32", ""), origins) for tag, row, origins in fold]
    assert any(tag == "+" and "6" in row for tag, row, _ in fold)
    gone = [row for tag, row, _ in steps["dce"]["rows"] if tag == "-"]
    assert any("+ 7" in row for row in gone)
    for step in passes["steps"]:
        assert bool(step["rows"]) != (step["note"] == "nothing changed")


def test_the_rows_of_a_pass_are_the_text_after_it() -> None:
    seen: list[tuple[PassStep, Program, Program]] = []
    made = prepare(check(Program.from_text(TEXT)), parse_target("wgsl"), CompileOptions(), lambda *told: seen.append(told))
    assert [step for step, _, _ in seen] == list(made.report.steps)
    assert seen[-1][2] is made.program
    assert all(before is earlier for (_, _, earlier), (_, before, _) in pairwise(seen))
    (passes,) = program_document(Known(TEXT, targets=("wgsl",)))["passes"]
    last = next(step for step in reversed(passes["steps"]) if step["rows"])
    assert "\n".join(row for tag, row, _ in last["rows"] if tag != "-") == str(made.program).rstrip("\n")


@pytest.mark.parametrize(("text", "code", "line", "column"), [
    (TEXT.replace("+ cast(g, f32)", "+ g"), "V201", 9, 10), (TEXT.replace("let g =", "let"), "P102", 6, 19), ("", "P102", 1, 1), ("program", "P102", 1, 8),
])  # fmt: skip
def test_findings_are_at_their_place(text: str, code: str, line: int, column: int) -> None:
    shown = program_document(Known(text))
    found = shown["findings"][0]
    assert (found["code"], found["line"], found["severity"]) == (code, line, "error")
    assert found["column"] == column
    assert shown["facts"] is None
    assert not shown["forms"]


def test_what_a_target_lacks_is_a_note_in_its_place() -> None:
    text = TEXT.replace("f32", "f64")
    shown = program_document(Known(text, targets=("wgsl", "reference")))
    assert [(form["id"], form["code"] is None, "f64" in form["note"]) for form in shown["forms"]] == [
        ("vir", True, True), ("wgsl", True, True), ("vir", False, False),
    ]  # fmt: skip


def test_a_hostile_name_is_text_without_what_moves_a_cursor() -> None:
    with vp.ProgramBuilder(HOSTILE.replace("\0", "").replace("\ud800", "")) as b:
        y = b.write("y", vp.u32, b.dim("n"))
        y[b.global_id(0)] = 1
    shown = program_document(Known(program=b.program, targets=("wgsl", "cpu:x86-64-v3", "compute_90")))
    assert [form["id"] for form in shown["forms"] if form["note"]] == ["sass"]  # of a target without machine code
    assert "\u202e" not in json.dumps(shown, ensure_ascii=False).replace(json.dumps(shown["text"], ensure_ascii=False), "")


PIECES = (*"{}[]()=+*\n \t\"'#", "program p(n) ", "let a = ", "y[global_id.x]", "1u32", "\0", "\ud800", "\u202e")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_whatever_is_typed_has_a_document(text: str) -> None:
    shown = program_document(Known(text, targets=("reference",)))
    assert shown["findings"] or shown["facts"]
    json.dumps(shown)


# ---------------------------------------------------------------- occupancy


@pytest.mark.parametrize(("arch", "workgroup", "registers", "memory", "workgroups", "limited"), [
    ("sm_90", (256, 1, 1), 32, 0, 8, ["warps", "registers"]),  # 65536 / (32 * 256) = 8, and 64 warps / 8
    ("sm_90", (256, 1, 1), 255, 0, 1, ["registers"]),
    ("sm_90a", (128, 1, 1), 168, 200 << 10, 1, ["workgroup memory"]),
    ("sm_80", (32, 1, 1), 16, 0, 32, ["workgroups"]),
    ("sm_89", (1024, 1, 1), 40, 48 << 10, 1, ["warps", "registers"]),  # 48 warps, a workgroup has 32; 65536 / 1280 / 32 = 1
    ("sm_75", (64, 1, 1), 33, 0, 16, ["warps", "workgroups"]),
    ("sm_90", (64, 1, 1), 200, 0, 4, ["registers"]),  # a fourth of the registers, 16384, holds two warps of 6400
])  # fmt: skip
def test_occupancy_is_what_limits_it(arch: str, workgroup: tuple[int, int, int], registers: int, memory: int, workgroups: int, limited: list[str]) -> None:
    found = occupancy_of(arch, workgroup, registers, memory)
    assert found is not None
    assert (found["workgroups"], found["limited"]) == (workgroups, limited)
    assert found["warps"] == workgroups * -(-workgroup[0] // 32) <= found["most_warps"]


def test_there_is_no_occupancy_of_an_unknown_architecture() -> None:
    assert occupancy_of("sm_999", (32, 1, 1), 16, 0) is None


def test_a_quick_document_leaves_out_what_a_disassembler_is_for() -> None:
    need_nvjitlink()
    quick = program_document(Known(TEXT, targets=("sm_90",), quick=True))
    assert ([form["id"] for form in quick["forms"] if form["code"] is None], quick["partial"]) == (["sass"], True)
    assert not program_document(Known(TEXT, targets=("compute_90",), quick=True))["partial"]  # a whole one has no more
    assert quick["kernels"]


def test_kernels_of_an_nvidia_gpu_have_their_figures() -> None:
    need_nvjitlink()
    shown = program_document(Known(TEXT, targets=("sm_90",)))
    (kernel,) = [one for one in shown["kernels"] if one["symbol"] == "vyre_sums"]
    assert kernel["figures"]["registers"] > 4
    assert kernel["figures"]["workgroup_bytes"] >= 256
    assert kernel["occupancy"] is not None
    assert kernel["occupancy"]["by"]["workgroup memory"] > 1


# ---------------------------------------------------------------- files


PYTHON = """import vyre_py as vp
print("said")
for k in (1, 2, 2):
    with vp.ProgramBuilder(f"times_{k}") as b:
        y = b.read_write("y", vp.u32, b.dim("n"))
        y[b.global_id(0)] = k * y[b.global_id(0)]
"""


def test_a_python_file_is_run_and_what_it_builds_is_linked_to_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "build.py"
    path.write_text(PYTHON, "utf-8")
    subjects = subjects_of(str(path))
    assert [(subject.name, subject.told) for subject in subjects] == [("times_1", ""), ("times_2", "")]
    assert capsys.readouterr().out == ""
    shown = subjects[1].document(Known(targets=("wgsl",)))
    (python,) = shown["python"]
    assert python["code"] is not None
    (line,) = [origins for text, origins in zip(python["code"]["lines"], python["code"]["origins"], strict=True) if "y[b.global_id" in text]
    assert line
    assert all("y[" in shown["source"]["lines"][number - 1] or "global_id" in shown["source"]["lines"][number - 1] for number in line)


def test_a_python_file_that_ends_early_shows_what_it_built(tmp_path: Path) -> None:
    path = tmp_path / "build.py"
    path.write_text(PYTHON + "raise ValueError('no device')\n", "utf-8")
    assert [subject.told for subject in subjects_of(str(path))] == [f"{path} raised ValueError: 'no device'"] * 2
    path.write_text("import sys\nsys.exit(3)\n", "utf-8")
    with pytest.raises(CommandError, match="ended itself: 3"):
        subjects_of(str(path))
    path.write_text("import vyre_py as vp\nread = vp.Program.from_text('program p(n) { buffer y: u32[n] write; y[global_id.x] = 1 }')\n", "utf-8")
    assert [subject.name for subject in subjects_of(str(path))] == ["p"]
    path.write_text("1\n", "utf-8")
    with pytest.raises(CommandError, match="it builds no Program"):
        subjects_of(str(path))


def test_compiled_code_is_shown_without_its_program(tmp_path: Path) -> None:
    path = tmp_path / "sums.vyre"
    vp.compile_native(Program.from_text(TEXT), ["wgsl", "compute_90", "cpu", "reference"]).save(path)
    (subject,) = subjects_of(str(path))
    shown = subject.document(Known())
    assert [(form["id"], form["target"], form["code"] is not None) for form in shown["forms"]] == [
        ("wgsl", "wgsl", True), ("ptx", "compute_90", True), ("asm", "cpu", False), ("vir", "reference", True),
    ]  # fmt: skip
    assert shown["name"] == "sums"
    assert any("compute_90" in line for line in shown["source"]["lines"])


def test_bytes_of_a_program_are_shown_as_text(tmp_path: Path) -> None:
    path = tmp_path / "sums.bin"
    path.write_bytes(Program.from_text(TEXT).to_bytes())
    (subject,) = subjects_of(str(path))
    assert subject.document(Known(targets=("reference",)))["text"] == str(Program.from_text(TEXT))


# ---------------------------------------------------------------- the page


def test_a_whole_page_has_documents_and_runs(tmp_path: Path) -> None:
    (tmp_path / "p.vir").write_text(TEXT, "utf-8")
    known = Known(targets=("reference",))
    page = explore_page(subjects_of(str(tmp_path / "p.vir")), known, {"n": "100"}, whole=True)
    (entry,) = page.data["subjects"]
    assert entry["recording"]["given"] == {"n": "100", "x": "ramp", "y": "zeros"}
    assert page.title == "p.vir: vyre-py explore"
    (tmp_path / "p.vir").write_text(TEXT[:40], "utf-8")
    (entry,) = explore_page(subjects_of(str(tmp_path / "p.vir")), known, whole=True).data["subjects"]
    assert (entry["recording"], len(entry["document"]["findings"])) == (None, 1)


def test_each_program_of_a_file_takes_the_arguments_that_it_declares(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(f"""from vyre_py import Program
first = Program.from_text({TEXT!r})
other = Program.from_text("program other(m) {{ buffer z: u32[m] write\\n z[global_id.x] = 1u32 }}")
""", "utf-8")
    subjects, known = subjects_of(str(tmp_path / "two.py")), Known(targets=("reference",))
    first, other = [entry["recording"] for entry in explore_page(subjects, known, {"n": "100", "m": "3"}, whole=True).data["subjects"]]
    assert first["given"] == {"n": "100", "x": "ramp", "y": "zeros"} and other["given"] == {"m": "3", "z": "zeros"}
    for entry in explore_page(subjects, known, {"k": "1"}, whole=True).data["subjects"]:
        assert "there is no argument 'k'" in entry["recording"]["error"]


def test_the_page_asks_and_is_answered(tmp_path: Path) -> None:
    (tmp_path / "p.vir").write_text(TEXT, "utf-8")
    answers = answers_of(subjects_of(str(tmp_path / "p.vir")), Known(targets=("reference",)))
    assert answers["document"]({"text": TEXT, "options": {"opt": 0}})["passes"][0]["steps"] == []
    assert answers["subject"]({"number": 0})["name"] == "sums"
    assert answers["recording"]({"text": TEXT, "given": {"n": "8"}, "group": 0})["groups"] == [1, 1, 1]


@pytest.mark.parametrize(("name", "asked"), [
    ("document", None), ("document", {}), ("document", {"text": 3}), ("document", {"text": TEXT, "options": []}),
    ("document", {"text": TEXT, "options": {"opt": "x"}}),
    ("subject", {"number": 1}), ("subject", {"number": -1}), ("subject", {"number": True}), ("subject", []), ("recording", {"text": TEXT, "given": {"n": 8}}),
    ("recording", {"text": TEXT, "group": 1.5}), ("recording", {"text": "nonsense"}), ("recording", {"text": TEXT, "group": 99}),
    ("recording", {"text": TEXT, "given": {"x": "@/etc/passwd"}}), ("recording", {"text": TEXT, "given": {"n": "@/etc/passwd"}}),
    ("recording", {"text": TEXT, "given": {"z": "1"}}),
    ("recording", {"text": TEXT, "given": {"n": "99999999"}}), ("recording", {"text": TEXT, "given": {"n": "9" * 300}}),
])  # fmt: skip
def test_what_is_no_question_is_refused(tmp_path: Path, name: str, asked: object) -> None:
    (tmp_path / "p.vir").write_text(TEXT, "utf-8")
    answers = answers_of(subjects_of(str(tmp_path / "p.vir")), Known(targets=("reference",)))
    with pytest.raises(vp.VyreError):
        answers[name](asked)
