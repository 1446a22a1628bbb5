"""Ops that a Program has so often that code calls a function for most of them: the same bits as one op gives, wherever the call stands."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import simt_host
from device_kinds import cpu_of_lanes, open_device
from math_harness import compute, samples
from ptxas import assemble_together

from vyre_py.drivers.device import Device
from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, bf16, f16, f32
from vyre_py.ir.passes import Optimised, optimise
from vyre_py.ir.passes import expand as expansion
from vyre_py.ir.passes.expand import WRITTEN_OUT, expand
from vyre_py.ir.passes.pipeline import unoptimised
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.compile import emit_text
from vyre_py.lowering.kinds import expanded_for
from vyre_py.lowering.legal.floats import narrow_floats
from vyre_py.lowering.options import CompileOptions

USES = 24  # of which the first sixteen are written out
ROWS = 1024
Array = np.ndarray[Any, Any]
Run = Callable[[Program, dict[str, Array], Type], Array]


@pytest.fixture(autouse=True)
def few_are_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen uses of every long op, however short it is among them."""
    monkeypatch.setattr(expansion, "_STATEMENTS", 0)


def test_more_uses_are_written_out_while_they_are_few_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    def called(name: str, uses: int) -> int:
        text = "program many(n) workgroup(64) over(n) {\nbuffer x: f32[n] read_write\nlet i = global_id.x\nvar v: f32 = x[i]\n"
        program = Program.from_text(text + f"v = {name}(v + x[i])\n" * uses + "x[i] = v\n}")
        return sum(getattr(s, "op", None) is OPS[name] for s in expand(program, frozenset({name})).body)

    assert called("exp", WRITTEN_OUT + 4) == called("exp", 40) - 20 == 4
    monkeypatch.undo()
    assert called("exp", 32) == 0 < called("exp", 200)
    assert called("lgamma", WRITTEN_OUT + 4) == 4


def text_of(name: str, type_: Type) -> str:
    """out[i, k] = op(x[i, k], ...): uses in a row, under a condition that lanes differ in, in a loop, and of what is the same for the workgroup."""
    operands = range(len(OPS[name].operands))
    lines = [f"program calls(n) workgroup(32) over(n, 1, 1) {{ param first: u32\nbuffer out: {type_}[n, {USES}] read_write"]
    lines += [f"buffer x{k}: {type_}[n, {USES}] read" for k in operands]
    lines += ["let i = global_id.x"]

    def use(k: str, row: str = "i") -> str:
        return f"{name}({', '.join(f'x{o}[{row}, {k}]' for o in operands)})"

    for k in range(16):
        lines.append(f"out[i, {k}u32] = {use(f'{k}u32')}")
    for k in (16, 17):
        lines.append(f"out[i, {k}u32] = {use(f'{k}u32')}")
    lines += ["if i % 3u32 == 1u32 {", f"out[i, 18u32] = {use('18u32')}", "} else {", f"out[i, 18u32] = {use('18u32')}", "}"]
    lines += ["for t in 19u32 .. 21u32 + i % 2u32 {", f"out[i, t] = {use('t')}", "}"]
    lines += [f"let same = {use('first', 'first')}", "out[i, 22u32] = same", "if same > same {", "out[i, 23u32] = same", "}", "}"]
    return "\n".join(lines)


def wanted(name: str, given: dict[str, Array], type_: Type) -> Array:
    """What one use gives, written out, on the interpreter."""
    x = [given[f"x{k}"] for k in range(len(OPS[name].operands))]
    made = compute(name, *[a.ravel() for a in x], type_=type_).reshape(ROWS, USES)
    odd = np.arange(ROWS) % 2 == 1
    made[~odd, 21] = 0
    made[:, 22] = made[3, 3]
    made[:, 23] = 0
    return made


def arguments(name: str, type_: Type) -> dict[str, Array]:
    drawn = samples(name, ROWS * USES)
    count = ROWS * USES
    with np.errstate(all="ignore"):
        return {f"x{k}": np.resize(a, count).astype(type_.dtype).reshape(ROWS, USES) for k, a in enumerate(drawn)}


cpu = cache(cpu_of_lanes)


def on_device(device: Callable[[], Device], program: Program, given: dict[str, Array], type_: Type, options: CompileOptions | None = None) -> Array:
    return device().compile_native(program, options).dispatch({**given, "out": np.zeros((ROWS, USES), type_.dtype), "first": 3})["out"]


def on_interpreter(program: Program, given: dict[str, Array], type_: Type) -> Array:
    out = np.zeros((ROWS, USES), type_.dtype)
    made = unoptimised(check(program), expand=expanded_for("reference"))
    assert any(s.op.name in expanded_for("reference") for s in made.program.body if hasattr(s, "op"))
    interpret(made, {**given, "out": out, "first": 3}, {"n": ROWS})
    return out


def on_simt(program: Program, given: dict[str, Array], type_: Type, opt: int = 2, flags: CompileOptions = simt_host.PLAIN) -> Array:
    out = np.zeros((ROWS, USES), type_.dtype)
    made: Optimised = optimise(check(program), expand=expanded_for("ptx"), legal=(narrow_floats,))
    assert made.functions
    rows = 64  # threads of the host take their time
    part = {**{key: np.ascontiguousarray(a[:rows]) for key, a in given.items()}, "out": out[:rows], "first": np.uint32(3)}
    simt_host.run(made, part, {"n": rows}, opt, options=flags)
    return out[:rows]


RUNS: dict[str, Run] = {
    "interpreter": on_interpreter,
    "reference": partial(on_device, partial(open_device, "reference")),
    "1 lane": partial(on_device, partial(cpu, 1)),
    "4 lanes": partial(on_device, partial(cpu, 4), options=CompileOptions(opt=0)),
    "16 lanes": partial(on_device, partial(cpu, 16)),
    "16 lanes, interruptible": partial(on_device, partial(cpu, 16), options=CompileOptions(interruptible=True, debug=True)),
    "simt": on_simt,
}


def assert_same_bits(got: Array, exact: Array, type_: Type) -> None:
    got, exact = got.astype(type_.dtype), exact[: len(got)]
    nan = np.isnan(exact.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), nan)
    word = f"u{type_.size_bytes}"
    np.testing.assert_array_equal(got.view(word)[~nan], exact.view(word)[~nan])


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(("name", "type_"), [("sin", f32), ("tan", f16), ("pow", f32), ("erf", bf16)], ids=str)
def test_calls_give_the_bits_of_what_is_written_out(name: str, type_: Type, run: str) -> None:
    given = arguments(name, type_)
    got = RUNS[run](Program.from_text(text_of(name, type_)), given, type_)
    assert_same_bits(got, wanted(name, given, type_), type_)


@pytest.mark.parametrize("name", ["pow", "erf"])
def test_calls_on_wgpu(name: str) -> None:
    """WGSL leaves rounding to the device, so the two ways are as close as the function is exact."""
    given = {key: np.abs(np.resize(np.float32(np.linspace(0.01, 3, 37)), (ROWS, USES))) for key in arguments(name, f32)}
    got = on_device(partial(open_device, "wgpu"), Program.from_text(text_of(name, f32)), given, f32)
    np.testing.assert_allclose(got, wanted(name, given, f32), rtol=1e-5)


@pytest.mark.parametrize("target", ["sm_90", "cpu", "wgsl"])
def test_few_uses_are_written_out(target: str) -> None:
    """As many as are written out call nothing: the code is what it would be without functions."""
    text = "program few(n) workgroup(32) over(n, 1, 1) { buffer x: f32[n] read_write\nlet i = global_id.x\nvar v: f32 = x[i]\n"
    few, many = (Program.from_text(text + "v = pow(v, x[i])\n" * count + "x[i] = v }") for count in (16, 17))
    assert "fn_pow" not in emit_text(few, target) and "fn_pow" in emit_text(many, target, form="wgsl" if target == "wgsl" else "llvm")


def test_short_expansions_are_always_written_out() -> None:
    text = "program short(n) { buffer x: f32[n] read_write\nlet i = global_id.x\nvar v: f32 = x[i]\n" + "v = step(v, x[i])\n" * 99 + "x[i] = v }"
    program = Program.from_text(text)
    assert expand(program, frozenset({"step"})) == expand(program, frozenset({"step"}), calls=False)
    assert not optimise(check(program), expand=expanded_for("ptx")).functions


def test_passes_see_a_call_as_an_op() -> None:
    """Unused calls go, and equal ones are one."""
    head = "program same(n) { buffer x: f32[n] read_write\nlet i = global_id.x\nlet v = x[i]\n"
    uses = [f"x[i] = sin(v + {k}.0f32)" for k in range(16)] + ["let unused = sin(v)", "x[i] = cos(v) + sin(v * 2.0f32) * sin(v * 2.0f32)"]
    made = optimise(check(Program.from_text(head + "\n".join(uses) + "}")), expand=expanded_for("ptx"))
    assert [s.op.name for s in made.program.body if getattr(s, "op", None) is OPS["sin"]] == ["sin"]
    assert [signature.name for signature in made.functions] == ["fn_sin_f32"]


def test_a_reference_artifact_with_calls_is_read_again() -> None:
    device = open_device("reference")
    artifact = device.compile_native(Program.from_text(text_of("sin", f32))).artifact
    given = {**arguments("sin", f32), "out": np.zeros((ROWS, USES), np.float32)}
    got = device.load(Artifact.from_bytes(artifact.to_bytes())).dispatch({**given, "first": 3})["out"]
    assert_same_bits(got, wanted("sin", given, f32), f32)


@pytest.mark.parametrize("options", [CompileOptions(), CompileOptions(numerics="fast"), CompileOptions(debug=True), CompileOptions(codegen="nvvm")], ids=str)
@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_calls_assemble(arch: str, options: CompileOptions) -> None:
    program = Program.from_text(text_of("tan" if options.numerics == "strict" else "erf", f32))
    text = emit_text(program, arch, options, form="ptx")
    assert " fn_" in text
    # The functions of two kernels in one module are apart; tables of lines are one to a module.
    assemble_together([text] if options.debug else [text, text.replace("vyre_calls", "vyre_again")], arch)
