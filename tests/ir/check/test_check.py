"""The checker: what comes back, and the laws of structure and scope on Programs that text cannot express."""

from __future__ import annotations

import copy
import importlib
from pathlib import Path
from pkgutil import iter_modules

import pytest
from check_programs import ONE, TRUE, ZERO, N, assembler, codes, everything, loose, plain, with_body
from tree import TESTS

import vyre_py.ir.check
from vyre_py.ir.check import Checked, check, comparisons
from vyre_py.ir.check.facts import CAPABILITIES, capabilities, declarations, definitions, uses
from vyre_py.ir.check.findings import MAX_FINDINGS
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import Dim, DimConst, DimOp, Grid
from vyre_py.ir.language.errors import Place, ValidationError
from vyre_py.ir.language.nodes import (
    Access,
    Barrier,
    Else,
    End,
    For,
    If,
    Let,
    Memory,
    Param,
    Region,
    Space,
    Store,
    Value,
    Variable,
    const,
)
from vyre_py.ir.language.op import Level
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.rules import RULES
from vyre_py.ir.language.types import f32, i32, u32

# ---------------------------------------------------------------- what comes back


def test_checked_carries_the_proof() -> None:
    program = everything()
    checked = check(program)
    assert isinstance(checked, Checked) and checked.program is program
    assert len(checked.uniformity.values) == program.value_count == len(uses(program)) == len(definitions(program))
    assert len(checked.uniformity.variables) == program.variable_count == len(declarations(program))
    assert len(checked.uniformity.control) == len(program.body)
    assert checked.capabilities == capabilities(program) == frozenset()
    assert checked.uniformity.values[0] is Level.VARYING


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("buffer m: u8x4[4] read", ()),
        ("buffer m: i64x2[4] read", ("int64",)),
        ("buffer m: f16[4] read", ("float16",)),
        ("param p: u64", ("int64",)),
        ("param p: bf16x3", ("bfloat16",)),
        ("private m: f64[1]", ("float64",)),
        ("let v = cast(cast(1u32, f16), u32)", ("float16",)),
        ("let v = 1.0f64 < 2.0", ("float64",)),
        ("var v: i64 = 1", ("int64",)),
        ("workgroup m: f32[1]\natomic_add(m[0], 1.0)", ("float32_atomics",)),
        ("workgroup m: u64[1]\natomic_add(m[0], 1)", ("int64", "int64_atomics")),
        ("workgroup m: f64[1]\natomic_add(m[0], 1.0)", ("float64", "float64_atomics")),
        ("workgroup m: u32[1]\natomic_add(m[0], 1)", ()),
        ("barrier", ()),
        ("grid_barrier", ("grid_barrier",)),
    ],
)
def test_capabilities_are_what_a_device_may_lack(line: str, expected: tuple[str, ...]) -> None:
    checked = check(Program.from_text(f"program p workgroup(64) grid(1) {{\n{line}\n}}"))
    assert checked.capabilities == set(expected) <= CAPABILITIES


def test_facts() -> None:
    a, y = assembler()
    i = a.let(OPS["global_id.x"], ())
    v = a.var(u32, i)
    total = a.let(OPS["add"], (i, i))
    a.store(y, (i,), total)
    a.get(v)
    program = a.finish()
    assert uses(program) == (4, 1, 0)
    assert definitions(program) == (0, 2, 4)
    assert declarations(program) == (1,)


def test_an_empty_body_is_valid() -> None:
    assert codes(Assembler("t").finish()) == ()


def test_dead_statements_are_valid() -> None:
    a, y = assembler()
    a.return_()
    a.store(y, (ZERO,), ONE)
    a.loop()
    a.break_()
    a.continue_()
    a.end()
    assert codes(a.finish()) == ()


def test_findings_come_in_program_order_with_places() -> None:
    a, y = assembler()
    a.param("n", u32)
    a.place = Place("x.vir", 7)
    a.store(y, (const(f32, 0.0),), ONE)
    a.place = Place("x.vir", 8)
    a.break_()
    with pytest.raises(ValidationError) as caught:
        check(a.finish())
    assert [(d.code, d.place and d.place.line) for d in caught.value.diagnostics] == [
        ("V105", None),
        ("V205", 7),
        ("V104", 8),
    ]
    assert all(d.help for d in caught.value.diagnostics)


def test_findings_are_capped_and_counted() -> None:
    a, y = assembler()
    for _ in range(MAX_FINDINGS + 23):
        a.store(y, (ZERO,), const(i32, 0))
    with pytest.raises(ValidationError) as caught:
        check(a.finish())
    assert caught.value.codes == ("V204",) * MAX_FINDINGS + ("V599",)
    assert "23" in caught.value.diagnostics[-1].message


# ---------------------------------------------------------------- structure: V102 V104 V105 V106


UNMATCHED: dict[str, Program] = {
    "an End alone": loose(End(None, ())),
    "an Else alone": loose(Else(None, ())),
    "an Else in a region": loose(Region(None, (), "r"), Else(None, ()), End(None, ()), match=(1, 2, 0)),
    "two Elses": loose(If(None, (TRUE,)), Else(None, ()), Else(None, ()), End(None, ()), match=(1, 2, 3, 0)),
    "never closed": loose(If(None, (TRUE,)), match=(1,)),
    "dangling match": loose(If(None, (TRUE,)), End(None, ()), match=(99, 0)),
    "huge match": loose(If(None, (TRUE,)), End(None, ()), match=(1, 10**5000)),
    "match of a plain statement": loose(Barrier(None, ()), match=(0,)),
    "crossed": loose(If(None, (TRUE,)), If(None, (TRUE,)), End(None, ()), End(None, ()), match=(2, 3, 0, 1)),
}


@pytest.mark.parametrize("name", UNMATCHED)
def test_v102_blocks(name: str) -> None:
    assert set(codes(UNMATCHED[name])) == {"V102"}


def test_v104_escape_outside_of_a_loop() -> None:
    a = Assembler("t")
    a.loop()
    a.break_()
    a.end()
    a.if_(TRUE)
    a.break_()
    a.continue_()
    a.end()
    assert codes(a.finish()) == ("V104", "V104")


def test_v105_v106_names() -> None:
    a, _ = assembler()
    a.param("y", u32)
    a.dim("n")
    a.param("", u32)
    assert codes(a.finish()) == ("V105", "V106", "V105")
    assert codes(Assembler("").finish()) == ("V106",)


# ---------------------------------------------------------------- scope: V107 V108 V109


def test_v107_undeclared() -> None:
    a, _ = assembler()
    other = Memory("other", Space.BUFFER, u32, (), Access.READ)
    a.store(other, (Param("q", u32),), Dim("m"))
    a.grid = Grid(True, (DimOp("add", N, Dim("k")), DimConst(1), DimConst(1)))
    a.memory("z", Space.BUFFER, u32, (Dim("j"),), Access.READ)
    assert codes(a.finish()) == ("V107",) * 5
    # A memory like a declared one is still another.
    program = plain()
    assert codes(with_body(program, Store(None, (ZERO, ONE), copy.copy(program.memories[0])))) == ("V107",)


def test_v108_values() -> None:
    a, y = assembler()
    a.if_(TRUE)
    inner = a.let(OPS["global_id.x"], ())
    a.else_()
    a.store(y, (inner,), ONE)
    a.end()
    k = a.for_(ZERO, ONE, ONE)
    a.end()
    a.store(y, (k,), ONE)
    a.store(y, (Value(999, u32),), ONE)
    a.store(y, (Value(0, u32),), ONE)
    assert codes(a.finish()) == ("V108",) * 4


def test_v108_a_value_is_no_operand_of_its_own_statement() -> None:
    own = Value(0, u32)
    assert codes(loose(Let(own, (own, ONE), OPS["add"]))) == ("V108",)
    assert codes(loose(For(own, (own, ONE, ONE)), End(None, ()), match=(1, 0))) == ("V108",)


def test_v109_variables() -> None:
    a, _ = assembler()
    a.loop()
    v = a.var(u32, ONE)
    a.break_()
    a.end()
    a.set(v, ONE)
    a.set(Variable(5, u32), ONE)
    a.set(Variable(0, u32), ONE)
    assert codes(a.finish()) == ("V109",) * 3


# ---------------------------------------------------------------- the codes


CODES = [code for code in RULES if code.startswith("V")]
SHOWN = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_check*.py"))


@pytest.mark.parametrize("code", CODES)
def test_every_code_is_a_law_and_is_shown(code: str) -> None:
    """Each stands among the laws at the head of a module, and has a filetest, or a test here where text cannot express it."""
    laws = (comparisons.__doc__ or "") + " ".join(
        importlib.import_module(f"vyre_py.ir.check.{m.name}").__doc__ or ""
        for m in iter_modules(vyre_py.ir.check.__path__)
    )
    assert code in laws or code == "V599"
    assert (TESTS / "filetests" / "check" / f"{code}.vir").is_file() or f'"{code}"' in SHOWN


def test_declarations_have_places() -> None:
    text = 'program t(n) workgroup(0) {\n  param "": u32\n  workgroup w: f32[n]\n}\n'
    with pytest.raises(ValidationError) as caught:
        check(Program.from_text(text, "t.vir"))
    assert [(d.code, str(d.place)) for d in caught.value.diagnostics] == [
        ("V106", "t.vir:2:9"), ("V305", "t.vir:3:13"), ("V504", "t.vir:1:9"),
    ]  # fmt: skip
