"""Code with links: it reads as the code without lines does, and the links are those that the assembler's and LLVM's own tables have."""

from __future__ import annotations

import re

import pytest
from device_kinds import need_nvdisasm, need_nvjitlink
from filetest import read_cases
from tree import ROOT

from vyre_py.explore.linked_text import MAX_LINES, linked, linked_program, linked_source
from vyre_py.ir.language.program import Program
from vyre_py.lowering.compile import compile_for, emit_text
from vyre_py.lowering.llvm.gpu.machine_code.disassemble import disassemble
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import parse_target

AXPY = """program axpy(n) {
  param a: f32
  buffer x: f32[n] read
  buffer y: f32[n] read_write

  let i = global_id.x
  if i < 5u32 {
    y[i] = a * x[i]
  }
}
"""
FORMS = (("llvm", "cpu"), ("llvm", "compute_90"), ("ptx", "compute_90"), ("wgsl", "wgsl"), ("asm", "cpu:x86-64-v3"))
DEBUG = CompileOptions(debug=True)
FILES = ("functions", "barriers")


def programs() -> list[Program]:
    cases = [read_cases(ROOT / "tests" / "filetests" / "run" / f"{name}.vir")[0] for name in FILES]
    return [Program.from_text(text, "p.vir") for text in (AXPY, *[case.text for case in cases])]


@pytest.mark.parametrize(("form", "target"), FORMS)
def test_what_is_shown_is_the_code_without_lines(form: str, target: str) -> None:
    for program in programs():
        shown = linked(form, emit_text(program, target, DEBUG, form))["lines"]
        plain = emit_text(program, target, CompileOptions(), form).rstrip("\n").split("\n")
        # Nodes of metadata have other numbers where there are more of them.
        assert [re.sub(r"![0-9]+", "!", line) for line in shown] == [re.sub(r"![0-9]+", "!", line) for line in plain], program.name


@pytest.mark.parametrize(("form", "target", "of_8", "of_7"), [
    ("llvm", "compute_90", "fmul", "icmp ult"), ("llvm", "cpu", "fmul", "icmp ult"), ("ptx", "compute_90", "mul.rn.f32", "setp"),
    ("wgsl", "wgsl", " * ", " < "), ("asm", "cpu:x86-64-v3", "vmulps", None),
])  # fmt: skip
def test_an_instruction_comes_from_the_line_that_asks_for_it(form: str, target: str, of_8: str, of_7: str | None) -> None:
    code = linked(form, emit_text(Program.from_text(AXPY, "p.vir"), target, DEBUG, form))
    lines = list(zip(code["lines"], code["origins"], strict=True))
    multiplied = [origins for line, origins in lines if of_8 in line and "block." not in line and "group" not in line]
    assert multiplied
    assert all(origins == [8] for origins in multiplied)
    assert of_7 is None or [7] in [origins for line, origins in lines if of_7 in line]
    known = {number for _, origins in lines for number in origins}
    assert known <= set(range(1, 11))
    assert {7, 8} <= known


def test_machine_code_is_linked_by_the_assemblers_table() -> None:
    need_nvjitlink()
    need_nvdisasm()
    program = Program.from_text(AXPY, "p.vir")
    (part,) = compile_for(program, [parse_target("sm_90")], DEBUG).parts
    image = part.steps[0].image("cubin")
    assert image is not None
    code = linked("sass", disassemble(image.code, lines=True))
    lines = list(zip(code["lines"], code["origins"], strict=True))
    assert {tuple(origins) for line, origins in lines if "FMUL" in line} == {(8,)}
    assert not any("//##" in line for line, _ in lines)


def test_a_program_is_linked_by_its_statements() -> None:
    program = Program.from_text(AXPY, "p.vir")
    code = linked_program(program)
    assert code["lines"] == str(program).rstrip("\n").split("\n")
    assert [origins for line, origins in zip(code["lines"], code["origins"], strict=True) if "y[i]" in line] == [[8]]
    remarked = linked_program(program, lambda index: "a remark" if type(program.body[index]).__name__ == "Store" else "")
    assert [line for line in remarked["lines"] if "//" in line] == ["    y[i] = a * x[i]  // a remark"]


def test_a_string_that_looks_like_a_remark_is_none() -> None:
    text = 'program p(n) workgroup(4) over(n) {\n  buffer y: u32[n] write\n  print "  // 1; 2"\n  y[global_id.x] = 1u32\n}\n'
    code = linked_program(Program.from_text(text, "p.vir"))
    assert '  print "  // 1; 2"' in code["lines"]


def test_a_long_text_ends_with_how_much_more_there_is() -> None:
    code = linked_source("a\n" * (MAX_LINES + 5))
    assert (len(code["lines"]), code["more"]) == (MAX_LINES, 5)
    assert linked_source("x\u202ey\0")["lines"] == [linked_source("x\u202ey\0")["lines"][0]]
    assert "\u202e" not in linked_source("x\u202ey\0")["lines"][0]
