"""Numerics "fast": what it changes and what it leaves, and that results keep the bounds that `lowering.llvm.gpu.accuracy` states.

On a GPU the bounds are held over some 2^20 arguments an op; without one, what is made of its instructions is run on the interpreter with
instructions that are off by as much as they may be.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from device_kinds import open_device
from fast_machine import arguments, emulate, outside
from filetest import Case, files, read_cases
from math_harness import SPECIAL, program_of
from ptxas import assemble

from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.nodes import Access, Space
from vyre_py.ir.language.ops import OPS, TRANSCENDENTAL
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Array, Type, bf16, f16, f32, f64
from vyre_py.ir.passes.contract import contract
from vyre_py.ir.passes.dce import dce
from vyre_py.ir.passes.inline import inline
from vyre_py.ir.passes.scalarise import scalarise
from vyre_py.ir.text.parser import parse
from vyre_py.ir.text.printer import print_program
from vyre_py.lowering.compile import compile_for, emit_text, prepare
from vyre_py.lowering.exact import is_exact
from vyre_py.lowering.llvm.cpu.host import has_fma
from vyre_py.lowering.llvm.gpu.accuracy import BOUNDS, Bound
from vyre_py.lowering.llvm.gpu.fast import INSTRUCTIONS
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import parse_target

FAST = CompileOptions(numerics="fast")
TYPES = (f32, f16, bf16)
ARCHITECTURES = ("sm_75", "sm_90", "sm_120")
PTX = [bound for bound in BOUNDS.values() if bound.target == "ptx"]
HOST = [bound for bound in BOUNDS.values() if bound.target == "host"]
AS_IN_STRICT = [bound.op for bound in PTX if bound.form == "as in strict"]


def of_types(bounds: list[Bound]) -> list[tuple[Bound, Type]]:
    """Each bound of f32, and for each narrower type where it holds with half a ULP more: f32's fma is not that of the narrower types, which
    is exact and then rounded, and on hosts their rsqrt rounds to them twice, as in strict."""
    return [(bound, t) for bound in bounds for t in TYPES if t is f32 or not (bound.op == "fma" or (bound.op, bound.target) == ("rsqrt", "host"))]


# ---------------------------------------------------------------- contraction

# What is stored of x, y and z, and what becomes of it.
CONTRACTED = [
    ("x * y + z", "fma(x, y, z)"),
    ("z + x * y", "fma(x, y, z)"),
    ("x * y - z", "fma(x, y, -z)"),
    ("z - x * y", "fma(-x, y, z)"),
    ("x * y + z * x", "fma(x, y, z * x)"),
    ("x * y - z * x", "fma(x, y, -(z * x))"),
    ("x * x + y * y + z * z", "fma(z, z, fma(x, x, y * y))"),
    ("x * y / z + x", "x * y / z + x"),
    ("-(x * y) + z", "-(x * y) + z"),
    ("exp(x * y) + z", "exp(x * y) + z"),
]


def expression(text: str, type_: str = "f32", lines: str = "") -> Program:
    buffers = "".join(f"buffer {name}: {type_}[n] read\n" for name in "abc")
    return parse(
        f"program p(n) {{\n{buffers} buffer out: {type_}[n] read_write\n let i = global_id.x\n let x = a[i]\n let y = b[i]\n let z = c[i]\n{lines}"
        f" out[i] = {text}\n}}"
    )


def stored(program: Program) -> str:
    """What the last line stores."""
    return print_program(program).rstrip("}\n").rpartition("out[i] = ")[2]


@pytest.mark.parametrize("type_", ["f32", "f64"])
@pytest.mark.parametrize(("text", "made"), CONTRACTED)
def test_products_become_part_of_sums(text: str, made: str, type_: str) -> None:
    if type_ == "f64" and "exp" in text:
        return
    assert stored(dce(contract(expression(text, type_)))) == stored(expression(made, type_))


@pytest.mark.parametrize("type_", ["i32", "u64", "f16", "bf16"])
def test_other_types_are_not_contracted(type_: str) -> None:
    program = expression("x * y + z", type_)
    assert contract(program) is program


@pytest.mark.parametrize("text", ["p + p", "p - p", "p * y + p", "max(p, x) + p", "min(x, y) + z", "x + y - z"])
def test_a_product_that_is_used_otherwise_stays(text: str) -> None:
    program = expression(text, lines=" let p = x * y\n")
    made = contract(program)
    assert "fma(x, y" not in print_program(made)
    assert ("fma" in print_program(made)) == (text == "p * y + p")


def test_a_product_of_several_sums_is_fused_in_all() -> None:
    text = stored(dce(contract(expression("(p + x) * (z - p)", lines=" let p = x * y\n"))))
    assert text == "fma(x, y, x) * fma(-x, y, z)"


def test_products_are_seen_over_blocks_and_variables() -> None:
    program = parse(
        "program p(n) { buffer a: f32[n] read\n buffer out: f32[n] read_write\n let i = global_id.x\n var s: f32 = 0.0\n let p = a[i] * a[i]\n"
        " for k in 0u32..n { s = s + p\n s = a[k] * a[i] + s }\n out[i] = s }"
    )
    made = print_program(dce(contract(program)))
    assert made.count("fma(") == 2
    assert " * " not in made


def test_vectors_are_contracted_as_their_components() -> None:
    program = parse("program p(n) { buffer a: f32x3[n] read\n buffer out: f32[n] write\n let i = global_id.x\n out[i] = dot(a[i], a[i]) }")
    made = print_program(dce(contract(scalarise(program))))
    assert (made.count("fma("), made.count(" * ")) == (2, 1 + made.count("* 3"))


def test_a_program_without_such_sums_is_given_back() -> None:
    program = expression("fma(x, y, z) * x")
    assert contract(program) is program


@pytest.mark.parametrize(("target", "op"), [*(("sm_90", op) for op in AS_IN_STRICT), *(("cpu:x86-64-v3", op) for op in sorted(TRANSCENDENTAL))])
@pytest.mark.parametrize("type_", TYPES)
def test_expansions_stay_what_they_are(target: str, op: str, type_: Type) -> None:
    program = check(program_of(op, type_))
    texts = [print_program(prepare(program, parse_target(target), options).program) for options in (FAST, CompileOptions())]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("target", ["sm_90", "cpu:x86-64-v3"])
def test_functions_of_f64_stay_what_they_are(target: str) -> None:
    out = Assembler("functions")
    n, i = out.dim("n"), out.let(OPS["global_id.x"], ())
    x = out.load(out.memory("x", Space.BUFFER, f64, (n,), Access.READ), (i,))
    for name in sorted(name for name in TRANSCENDENTAL if f64 in OPS[name].of):
        out.store(out.memory(name, Space.BUFFER, f64, (n,), Access.READ_WRITE), (i,), out.let(OPS[name], (x,) * len(OPS[name].operands)))
    program = check(out.finish())
    texts = [print_program(prepare(program, parse_target(target), options).program) for options in (FAST, CompileOptions())]
    assert texts[0] == texts[1] and "exp(" not in texts[0]


# ---------------------------------------------------------------- bounds

# Arguments of an op, and of an op on a GPU.
COUNT, DEVICE_COUNT = 1 << 13, 1 << 20


def cast(arrays: tuple[Array, ...], type_: Type) -> tuple[Array, ...]:
    with np.errstate(all="ignore"):
        return tuple(np.ascontiguousarray(x.astype(type_.dtype)) for x in arrays)


def hold(bound: Bound, got: Array, *args: Array, type_: Type = f32, anywhere: bool = False) -> None:
    """Fails for results that miss the bound."""
    wrong = np.flatnonzero(outside(bound, got, *args, type_=type_, anywhere=anywhere))
    said = [(*(float(x[k]) for x in args), float(got[k])) for k in wrong[:5]]
    assert not wrong.size, f"{bound.op} of {type_}: {wrong.size} of {got.size} miss {bound}, so of arguments and result {said}"


def emulated(op: str, type_: Type, args: tuple[Array, ...], arch: str = "sm_90") -> Array:
    out = np.zeros(args[0].shape, type_.dtype)
    optimised = emulate(prepare(program_of(op, type_), parse_target(arch), FAST))
    interpret(optimised, {**{f"x{k}": x for k, x in enumerate(args)}, "out": out}, {"n": out.size})
    return out


def named(value: Any) -> str:
    """What a test calls a parameter."""
    return str(getattr(value, "op", value))


@pytest.mark.parametrize(("bound", "type_"), of_types(PTX), ids=named)
def test_what_is_made_of_instructions_keeps_the_bound(bound: Bound, type_: Type) -> None:
    args = cast(arguments(bound.op, COUNT), type_)
    hold(bound, emulated(bound.op, type_, args), *args, type_=type_)


@pytest.mark.parametrize("op", SPECIAL)
def test_special_values_of_what_is_made(op: str) -> None:
    *columns, _ = zip(*SPECIAL[op], strict=True)
    args = cast(tuple(np.array(column) for column in columns), f32)
    hold(BOUNDS[op, "ptx"], emulated(op, f32, args), *args, anywhere=True)


def test_tanh_before_its_instruction() -> None:
    args = arguments("tanh", COUNT)
    hold(replace(BOUNDS["sinh", "ptx"], op="tanh"), emulated("tanh", f32, args, "sm_75"), *args)


def test_a_result_that_is_off_is_noticed() -> None:
    x = np.array([1.0, 2.0, -0.0, 4.0, -1.0, np.inf, 1e-45], np.float32)
    right = np.array([1.0, np.sqrt(2.0), -0.0, 2.0, np.nan, np.inf, 0.0], np.float32)
    assert not outside(BOUNDS["sqrt", "ptx"], right, x).any()
    for k, wrong in enumerate([1.0 + 2.0**-21, 1.4142138, 0.0, np.inf, 0.0, 3e38, np.nan]):
        got = right.copy()
        got[k] = wrong
        assert np.flatnonzero(outside(BOUNDS["sqrt", "ptx"], got, x)).tolist() == [k]


def test_every_op_that_is_approximated_has_a_bound() -> None:
    assert {like for like, _ in INSTRUCTIONS.values()} <= {bound.op for bound in PTX}
    assert {bound.op for bound in PTX} >= TRANSCENDENTAL
    assert {bound.op for bound in HOST} == {bound.op for bound in PTX}


@pytest.mark.parametrize(("kind", "bound", "type_"), [(kind, *row) for kind, rows in (("cuda", PTX), ("cpu", HOST)) for row in of_types(rows)], ids=named)
def test_devices_keep_the_bound(kind: str, bound: Bound, type_: Type) -> None:
    device = open_device(kind)
    args = cast(arguments(bound.op, DEVICE_COUNT if kind == "cuda" else COUNT), type_)
    pipeline = device.compile_native(program_of(bound.op, type_), FAST)
    out = pipeline.dispatch({**{f"x{k}": x for k, x in enumerate(args)}, "out": np.zeros(args[0].shape, type_.dtype)})["out"]
    hold(bound, out, *args, type_=type_)


@pytest.mark.parametrize("op", SPECIAL)
def test_special_values_on_a_gpu(op: str) -> None:
    device = open_device("cuda")
    *columns, _ = zip(*SPECIAL[op], strict=True)
    args = cast(tuple(np.array(column) for column in columns), f32)
    out = device.compile_native(program_of(op), FAST).dispatch({**{f"x{k}": x for k, x in enumerate(args)}, "out": np.zeros(args[0].shape, np.float32)})["out"]
    hold(BOUNDS[op, "ptx"], out, *args, anywhere=True)


# ---------------------------------------------------------------- what stays


@cache
def exact() -> list[Case]:
    """The Programs of the run filetests that have no floating point; found when a test asks, since each worker imports this file."""
    return [case for path in files("run") for case in read_cases(path) if is_exact(scalarise(inline(case.parse())))]


def test_there_are_programs_without_floating_point() -> None:
    assert len(exact()) > 50


@pytest.mark.parametrize(("target", "form"), [("sm_90", "llvm"), ("cpu:x86-64-v3:8", "vir")])
def test_code_without_floating_point_is_that_of_strict(target: str, form: str) -> None:
    for case in exact():
        program = check(case.parse())
        assert emit_text(program, target, FAST, form) == emit_text(program, target, form=form)
    assert [p.numerics for p in compile_for(program, [parse_target(target)], FAST).parts] == ["strict"]


KEPT = """program kept(n) workgroup(64) over(n) {
  buffer x: f32[n] read
  buffer y: f32[n + 3] read_write
  buffer i: i32[n] write
  buffer u: u8[n] write
  buffer r: f32[n] write
  let k = global_id.x
  i[k] = cast(x[k], i32)
  u[k] = cast(x[k], u8)
  r[k] = rem(x[k], 0.75)
  y[k + 7u32] = x[k + 5u32]
}"""


def numbers() -> Array:
    return np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 255.5, 256.0, -1.0, 1e-40, -1e-40, 0.5, 1e30, -7.25, 0.0, -0.0, 2.5], np.float32)


@pytest.mark.parametrize("kind", ["reference", "cpu", "cuda"])
def test_casts_saturate_indices_are_checked_and_rem_is_exact(kind: str) -> None:
    device = open_device(kind)
    given: dict[str, Any] = {"x": numbers(), "y": np.full(19, 9.0, np.float32)}
    fast, strict = (device.compile_native(Program.from_text(KEPT), options).dispatch(given) for options in (FAST, CompileOptions()))
    for name in ("i", "u", "y", "r"):
        np.testing.assert_array_equal(fast[name].view(f"u{fast[name].itemsize}"), strict[name].view(f"u{strict[name].itemsize}"))


# ---------------------------------------------------------------- names, keys, code

SUM = "program p(n) { buffer x: f32[n] read\n buffer y: f32[n] read_write\n let i = global_id.x\n y[i] = x[i] * x[i] - y[i] }"


@pytest.mark.parametrize(("kind", "numerics"), [("reference", "strict"), ("cpu", "fast"), ("wgpu", "native"), ("cuda", "fast")])
def test_a_pipeline_says_what_its_code_follows(kind: str, numerics: str) -> None:
    device = open_device(kind)
    program = Program.from_text(SUM)
    fast = device.compile_native(program, FAST)
    assert fast.numerics == (numerics if kind != "cpu" or has_fma("native") else "strict")
    assert device.compile_native(program, FAST) is fast
    assert device.compile_native(program) is not fast


def test_numerics_of_each_target() -> None:
    targets = {"sm_90": "fast", "cpu:x86-64-v3": "fast", "cpu:x86-64-v2": "strict", "cpu:x86-64": "strict", "wgsl": "native", "reference": "strict"}
    artifact = compile_for(Program.from_text(SUM), [parse_target(name) for name in targets], FAST)
    assert [part.numerics for part in artifact.parts] == list(targets.values())


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_device_fuses(kind: str) -> None:
    device = open_device(kind)
    if kind == "cpu" and not has_fma("native"):
        pytest.skip("this CPU has no fused multiply-add")
    x = np.random.default_rng(5).normal(size=4096).astype(np.float32)
    y = x * x  # what the product loses is all that is left
    out = device.compile_native(Program.from_text(SUM), FAST).dispatch({"x": x, "y": y})["y"]
    np.testing.assert_array_equal(out, (x.astype(np.float64) ** 2 - y).astype(np.float32))


ALL = """program all(n) workgroup(64) over(n) {
  buffer a: f32[n] read
  buffer h: f16[n] read
  buffer y: f32[n] write
  buffer z: f16[n] write
  let i = global_id.x
  let x = a[i]
  y[i] = x * x + exp(x) / sqrt(x) + rsqrt(x) * log(x) + sin(x) + cos(x) + tanh(x) + pow(x, x) + 1.0 / x + exp2(x) + log2(x) + exp10(x) + log10(x)
  z[i] = select(h[i] < 0.5, tanh(h[i]) / h[i] + exp(h[i]), h[i] * h[i])
}"""


@pytest.mark.parametrize("opt", [0, 3])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_assembler_takes_it(arch: str, opt: int) -> None:
    ptx = emit_text(parse(ALL), arch, CompileOptions(numerics="fast", opt=opt))
    assemble(ptx, arch)
    assert "call" not in ptx
    assert ".ftz.f16" not in ptx
    wanted = [name.replace("_", ".") for name in INSTRUCTIONS if arch != "sm_75" or name != "tanh_approx"]
    assert [name for name in wanted if name not in ptx] == []


def test_strict_has_none_of_it() -> None:
    ptx = emit_text(parse(ALL), "sm_90").replace("rcp.approx.ftz.f32", "")  # with which an exact reciprocal begins: `reciprocals`
    assert not any(word in ptx for word in ("approx", ".full", ".ftz"))


def test_llvm_ir_flushes_where_the_kernel_does() -> None:
    attribute = '"denormal-fp-math-f32"="preserve-sign,preserve-sign"'
    assert attribute in emit_text(parse(ALL), "sm_90", FAST, form="llvm")
    assert attribute not in emit_text(parse(ALL), "sm_90", form="llvm")
