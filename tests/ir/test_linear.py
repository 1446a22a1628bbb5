"""Everything that walks a Program is linear: the lines of Python executed are counted, and twice the Program takes twice the lines."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from executed_lines import lines_executed

import vyre_py as vp
from vyre_py.ir.check import check
from vyre_py.ir.language.digest import code_digest, interface_digest
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes import optimise
from vyre_py.ir.text.parser import parse
from vyre_py.ir.text.printer import print_program
from vyre_py.lowering.compile import emit_text


def straight(statements: int) -> Program:
    """One long dependence: loads, arithmetic, stores, a branch now and then, one variable."""
    with vp.ProgramBuilder("straight") as b:
        n = b.dim("n")
        x, y = b.read("x", vp.f32, n), b.read_write("y", vp.f32, n)
        i = b.global_id(0)
        total, value = b.var("total", vp.f32), x[i]
        for k in range(statements // 10):
            value = value * 1.5 + x[i + k]
            with b.if_(value > float(k)):
                total += value
            y[i] = value
    return b.program


def wide(statements: int) -> Program:
    """Many values alive at once, summed from the last to the first."""
    with vp.ProgramBuilder("wide") as b:
        n = b.dim("n")
        x, y = b.read("x", vp.f32, n), b.read_write("y", vp.f32, n)
        i = b.global_id(0)
        values = [x[i + k] for k in range(statements // 3)]
        total = values[-1]
        for value in reversed(values[:-1]):
            total = total + value
        y[i] = total
    return b.program


def variables(statements: int) -> Program:
    """Variables handed round a loop against the order of the statements: the worst case of a repeated sweep."""
    with vp.ProgramBuilder("variables") as b:
        n = b.dim("n")
        y = b.read_write("y", vp.u32, n)
        i = b.global_id(0)
        chain = [b.var(f"v{k}", vp.u32, k) for k in range(statements // 3)]
        with b.loop():
            for k in range(len(chain) - 1):
                chain[k].set(chain[k + 1])
            chain[-1].set(i)
            b.break_if(chain[0] > 3)
        y[i] = chain[0]
    return b.program


SHAPES = (straight, wide, variables)
WALKS: dict[str, Callable[[Program], object]] = {
    "check": check,
    "print": print_program,
    "digest": lambda program: (code_digest(program), interface_digest(program)),
    "optimise": lambda program: optimise(check(program), expand=frozenset()),
    "sm_90": lambda program: emit_text(program, "sm_90", vp.CompileOptions(opt=0)),
    "wgsl": lambda program: emit_text(program, "wgsl"),
    "cpu": lambda program: emit_text(program, "cpu", vp.CompileOptions(opt=0)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("walk", WALKS)
def test_walks_are_linear(walk: str, shape: Callable[[int], Program]) -> None:
    small, large = shape(600), shape(1200)
    WALKS[walk](small)  # what is imported or cached the first time is not counted
    assert lines_executed(lambda: WALKS[walk](large)) < 2.3 * lines_executed(lambda: WALKS[walk](small))


@pytest.mark.parametrize("shape", SHAPES)
def test_building_and_parsing_are_linear(shape: Callable[[int], Program]) -> None:
    assert lines_executed(lambda: shape(1200)) < 2.3 * lines_executed(lambda: shape(600))
    small, large = print_program(shape(600)), print_program(shape(1200))
    assert lines_executed(lambda: parse(large)) < 2.3 * lines_executed(lambda: parse(small))
