"""Ops that a Program allows to be approximated one by one: the strict op where a target has nothing faster, the instruction where it has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_kinds import open_device
from ptxas import assemble

import vyre_py as vp
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.types import Type
from vyre_py.lowering.compile import emit_text
from vyre_py.lowering.llvm.gpu.fast import approximate
from vyre_py.lowering.target import parse_target

FAST = tuple(op for op in OPS.values() if op.approximates)
VALUES = np.array([0.0, -0.0, 1e-3, 0.5, 1.0, 1.7, 3.0, 10.0, 80.0, -2.0, -0.3, np.inf, -np.inf, np.nan], np.float32)


def program_of(name: str, type_: Type) -> vp.Program:
    operands = range(len(OPS[name].operands))
    buffers = "".join(f"buffer x{k}: {type_}[n] read\n" for k in operands)
    loads = ", ".join(f"x{k}[i]" for k in operands)
    return vp.Program.from_text(f"program p(n) {{ {buffers}buffer y: {type_}[n] write\nlet i = global_id.x\ny[i] = {name}({loads}) }}")


def run(kind: str, name: str, type_: Type) -> Any:
    x, y = (values.astype(type_.dtype) for values in (np.repeat(VALUES, VALUES.size), np.tile(VALUES, VALUES.size)))
    given = {"x0": x, "x1": y} if len(OPS[name].operands) == 2 else {"x0": x}
    return open_device(kind).compile_native(program_of(name, type_)).dispatch(given)["y"]


@pytest.mark.parametrize("kind", ["reference", "cpu"])
@pytest.mark.parametrize("type_", [vp.f32, vp.f64, vp.f16, vp.bf16], ids=str)
def test_where_nothing_is_faster_it_is_the_strict_op(type_: Type, kind: str) -> None:
    for op in FAST:
        found, exact = (made.astype(np.float64) for made in (run(kind, op.name, type_), run("reference", op.approximates, type_)))
        np.testing.assert_array_equal(found, exact, op.name)


def test_on_wgpu_it_is_what_the_device_does() -> None:
    for op in FAST:
        exact, found = run("reference", op.approximates, vp.f32), run("wgpu", op.name, vp.f32)
        usual = np.isfinite(exact) & (np.abs(exact) > 1e-30) & (np.abs(exact) < 1e30)
        np.testing.assert_allclose(found[usual], exact[usual], rtol=1e-4, atol=1e-6, err_msg=op.name)


@pytest.mark.parametrize("op", FAST, ids=lambda op: op.name)
def test_ptx_has_what_numerics_fast_has_for_it(op: Any) -> None:
    target = parse_target("sm_90")
    asked = approximate(program_of(op.name, vp.f32), target, asked=True)
    everywhere = approximate(program_of(op.approximates, vp.f32), target)
    assert asked == everywhere and asked != program_of(op.name, vp.f32)


def test_nothing_else_in_the_program_changes() -> None:
    head = "program p(n) { buffer x: f32[n] read\nbuffer y: f32[n] write\nlet i = global_id.x\nlet v = x[i]\n"
    both = vp.Program.from_text(head + "y[i] = fast_exp(v) + tanh(v) * v + 1e-40f32 }")
    text = emit_text(both, "sm_90", form="ptx")
    assemble(text, "sm_90")
    assert "ex2.approx" in text and "tanh.approx" not in text and "add.ftz" not in text and "fma.rn.ftz" not in text
    strict, fast = (vp.compile_native(vp.Program.from_text(head + f"y[i] = {name}(v) }}"), ["compute_90"]) for name in ("exp", "fast_exp"))
    assert (strict.parts[0].numerics, fast.parts[0].numerics) == ("strict", "fast")


def test_before_sm_80_tanh_is_strict_and_the_others_are_not() -> None:
    program = vp.Program.from_text(
        "program p(n) { buffer x: f32[n] read\nbuffer y: f32[n] write\nlet i = global_id.x\ny[i] = fast_tanh(x[i]) + fast_log2(x[i]) }"
    )
    artifact = vp.compile_native(program, ["compute_75", "compute_90"])
    older, newer = (part.steps[0].images[0].code.decode() for part in artifact.parts)
    assert "tanh.approx" not in older and "lg2.approx" in older and "tanh.approx" in newer


def test_the_builder_has_them_under_their_names() -> None:
    with vp.ProgramBuilder("p") as b:
        n = b.dim("n")
        x, y = b.read("x", vp.f32x2, n), b.write("y", vp.f32x2, n)
        y[b.global_id(0)] = vp.fast.pow(vp.fast.sin(x[b.global_id(0)]), 2.0)
    assert "fast_pow(fast_sin(x" in str(b.program) and vp.Program.from_bytes(b.program.to_bytes()) == b.program
    assert set(vars(vp.fast)) == {op.approximates for op in FAST}
    with pytest.raises(vp.ValidationError, match="fast_sqrt"), vp.ProgramBuilder("q") as b:
        vp.fast.sqrt(b.param("k", vp.u32))
