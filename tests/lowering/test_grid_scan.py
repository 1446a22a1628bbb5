"""Scans over the grid: what the builder takes and refuses, the forms of a Program, and runs of many workgroups. `tests/filetests/run/grid_scans.vir`
has values."""

from __future__ import annotations

import numpy as np
import pytest

import vyre_py as vp
from vyre_py.ir.language.errors import ValidationError
from vyre_py.ir.language.program import Program
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.options import CompileOptions

GROUP = 64


def prefix_sum(type_: vp.Type = vp.u32, *, any_order: bool = False) -> Program:
    """y[i] = x[0] + ... + x[i]."""
    with vp.ProgramBuilder("prefix_sum", workgroup=GROUP, subgroup=32) as b:
        n = b.dim("n")
        x, y = b.read("x", type_, n), b.write("y", type_, n)
        i = b.global_id(0)
        v = x[i]
        y[i] = b.grid_scan("add", b.workgroup_reduce("add", v), any_order=any_order) + b.workgroup_scan("add", v)
    return b.program


def test_forms() -> None:
    program = prefix_sum(vp.f32, any_order=True)
    assert "grid_scan(add any_order, " in str(program)
    assert parse(str(program)) == program == Program.from_bytes(program.to_bytes()) == Program.from_json(program.to_json())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("let a = grid_scan(add, 1.0f32)", "say that any order will do: grid_scan(add any_order, x)"),
        ("let a = grid_scan(add any_order, 1)", "nothing here fixes the type"),
        ("let a = grid_scan(max any_order, 1u32)", "grid_scan does not fold with 'max any_order'"),
        ("let a = grid_scan(add any_order, 1u32)", "leave any_order out"),
        ("let a = grid_scan(or, 1.0f32)", "grid_scan(or, f32): it takes i32, i64, u32, u64"),
        ("let a = grid_scan(add, cast(1u32, u8))", "convert it: cast(x, u32)"),
        ("let a = grid_scan(sum, 1u32)", "the fold sum"),
        ("grid_scan(add)", "expected `,`"),
    ],
)
def test_text_that_is_refused(text: str, message: str) -> None:
    with pytest.raises(vp.ProgramError) as caught:
        parse(f"program p() grid(1) {{\n  {text}\n}}")
    assert message in str(caught.value)


def test_calls_that_are_refused() -> None:
    with vp.ProgramBuilder("p") as b:
        y = b.write("y", vp.u32, b.dim("n"))
        with pytest.raises(ValidationError, match="V201 grid_scan does not fold with 'sum'"):
            b.grid_scan("sum", b.workgroup_id(0))
        with pytest.raises(ValidationError, match="any_order=True"):
            b.grid_scan("add", vp.cast(b.workgroup_id(0), vp.f32))
        with pytest.raises(ValidationError, match="B106"):
            b.grid_scan("add", 1)  # type: ignore[arg-type]  # a number has no type of its own, which is what the error says
        y[b.global_id(0)] = b.workgroup_id(0)


@pytest.mark.parametrize("options", [CompileOptions(), CompileOptions(interruptible=True)], ids=["plain", "interruptible"])
def test_the_cpu_runs_workgroups_in_order(options: CompileOptions) -> None:
    x = np.arange(GROUP * 2000 + 5, dtype=np.uint32)
    pipeline = vp.device("cpu").compile_native(prefix_sum(), options)
    for _ in range(2):
        assert np.array_equal(pipeline.dispatch({"x": x})["y"], np.cumsum(x, dtype=np.uint32))


def test_batches_of_the_interpreter_go_on_where_the_last_one_ended() -> None:
    x = np.arange(GROUP * 2000 + 5, dtype=np.uint32)
    assert np.array_equal(vp.device("reference").compile_native(prefix_sum()).dispatch({"x": x})["y"], np.cumsum(x, dtype=np.uint32))
