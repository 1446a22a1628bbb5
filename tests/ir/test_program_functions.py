"""Functions of a Program's own: three forms of Programs that have them, the builder, what is written out, and the same bits either way."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from generator import Seeded, generate
from malformed import redigested
from outlined import outlined
from ptxas import assemble_together
from test_generated import same_bits

import vyre_py as vp
from vyre_py.ir.check import check
from vyre_py.ir.functions.function import Function
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.errors import ProgramError, WireError
from vyre_py.ir.language.nodes import Let
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes import inline, optimise
from vyre_py.ir.passes.pipeline import unoptimised
from vyre_py.ir.text.parser import parse
from vyre_py.ir.wire.binary import PROGRAM, WITH_FUNCTIONS
from vyre_py.lowering.compile import emit_text
from vyre_py.lowering.kinds import STRICT_EXPANSIONS
from vyre_py.lowering.options import CompileOptions

TEXT = """program both(n) workgroup(32) {
  doc "d"
  function soft(x: f32, k: f32) -> f32 {
    doc "Soft threshold."
    table t: f32[2] = [1.0, 2.0]
    private a: f32[4]
    var best: f32 = x * 2.0
    for j in 0u32..4 {
      a[j] = k + 1.0
      if a[j] > best {
        best = select(x > k, a[j], t[0])
      }
    }
    return best + t[1]
  }
  function scaled(v: f32x3, "loop": u32) -> f32x3 {
    return v * cast("loop", f32).xxx
  }
  buffer y: f32[n] read_write
  let i = global_id.x
  y[i] = soft(y[i], 2.0) + scaled(y[i].xxx, 3).y
}
"""


@pytest.mark.parametrize("number", range(6))
def test_generated_programs_with_calls(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They compute the same bits by calls, called by what passes leave, and written out; and come back from each form."""
    case = generate(Seeded(4000 + number))
    program = outlined(case.program)
    assert program.functions
    check(program)
    assert parse(str(program)) == program == Program.from_bytes(program.to_bytes()) == Program.from_json(program.to_json())
    plain = optimise(check(program), expand=STRICT_EXPANSIONS)
    assert not any(isinstance(s, Let) and isinstance(s.op, Function) for s in plain.program.body)
    monkeypatch.setattr(inline, "LONG", 0)
    monkeypatch.setattr(inline, "WRITTEN_OUT", 0)
    kept = optimise(check(program), expand=frozenset())
    assert any(isinstance(signature.op, Function) for signature in kept.functions)
    results = []
    for made in (unoptimised(check(case.program), expand=STRICT_EXPANSIONS), unoptimised(check(program), expand=STRICT_EXPANSIONS), plain, kept):
        arguments = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in case.arguments.items()}
        interpret(made, arguments, case.sizes)
        results.append(arguments)
    for other in results[1:]:
        for name, value in results[0].items():
            if isinstance(value, np.ndarray):
                assert same_bits(value, other[name]).all(), name


# ---------------------------------------------------------------- forms


def test_text_bytes_and_json_come_back() -> None:
    program = parse(TEXT, "t.vir")
    assert str(program) == TEXT
    check(program)
    for places in (False, True):
        data, text = program.to_bytes(places=places), program.to_json(places=places)
        assert Program.from_bytes(data).to_bytes(places=places) == data == Program.from_json(text).to_bytes(places=places)
        assert str(Program.from_bytes(data)) == TEXT
    bodies = [function.program for function in program.functions]
    assert bodies[0].doc == "Soft threshold." and struct.unpack_from("<H", program.to_bytes(), 4) == (2,)
    assert struct.unpack_from("<H", bodies[0].to_bytes(), 4) == (1,), "without functions nothing has changed"
    other = parse(TEXT.replace("best + t[1]", "best - t[1]"))
    assert other != program and other.code_digest != program.code_digest
    assert parse(TEXT.replace("soft", "hard")).code_digest == program.code_digest != other.code_digest


def test_arrays_with_calls() -> None:
    body = parse(TEXT).functions[1].program
    made = Program.from_nodes(
        "p", functions=[body], memories=[{"name": "y", "space": "buffer", "type": "f32x3", "shape": [4], "access": "read_write"}],
        codes=["global_id.x", "load", "call", "store"], types=["u32", "f32x3", "f32x3", 0], refs=[0, 0, 0, 0], constant_types=["u32"], constant_bits=[3],
        operands=[0, 4, 1, 0, 8], offsets=[0, 0, 1, 3, 5], over=[4, 1, 1],
    )  # fmt: skip
    check(made)
    assert "scaled(y[v0], 3)" in str(made).replace("v1", "y[v0]")
    with pytest.raises(WireError, match="function 1 where there are 1"):
        Program.from_nodes("p", functions=[body], codes=["call"], types=["f32"], refs=[1], operands=[], offsets=[0, 0])
    with pytest.raises(WireError, match=r"functions\[0\]"):
        Program.from_nodes("p", functions=[made], codes=[], types=[], operands=[], offsets=[0])


def test_hostile_bytes_are_refused() -> None:
    program = parse(TEXT)
    data = program.to_bytes()
    for at in range(0, len(data), 7):
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        with pytest.raises(WireError):
            Program.from_bytes(bytes(flipped))
        if at < len(data) - 32:
            with suppress(WireError):  # what is sealed anew is refused by what it says, or is another Program of sound form
                assert Program.from_bytes(redigested(bytes(flipped))).to_bytes(places=True) == redigested(bytes(flipped))
            with pytest.raises(WireError):
                Program.from_bytes(redigested(data[:at] + bytes(32)))
    nested = replace(program.functions[0].program, functions=program.functions)
    with pytest.raises(ValueError, match="functions"):
        Function(nested)
    header = WITH_FUNCTIONS.named(WITH_FUNCTIONS.head.unpack_from(data))
    assert header["functions"] == 2
    at = WITH_FUNCTIONS.offset("functions", 0, WITH_FUNCTIONS.head.unpack_from(data))
    assert at == len(data) - 32 - header["function_bytes"]
    for count, code in ((0, "W109"), (1, "W103"), (3, "W103"), (1 << 31, "W107")):
        changed = bytearray(data)
        struct.pack_into("<I", changed, PROGRAM.head.size, count)
        with pytest.raises(WireError) as refused:
            Program.from_bytes(redigested(bytes(changed)))
        assert refused.value.diagnostics[0].code == code


def test_hostile_json_is_pointed_at() -> None:
    whole = json.loads(parse(TEXT).to_json())

    def changed(change: Callable[[dict[str, Any]], object]) -> str:
        made = json.loads(json.dumps(whole))
        change(made)
        with pytest.raises(WireError) as refused:
            Program.from_json(json.dumps(made))
        return f"{refused.value.diagnostics[0].code} {refused.value.where}"

    assert changed(lambda p: p["functions"][0].update(functions=[])) == "W117 /functions/0/functions"
    assert changed(lambda p: p["functions"][1].pop("over")) == "W117 /functions/1"
    assert changed(lambda p: p["functions"][1]["body"].pop()) == "W117 /functions/1"
    assert changed(lambda p: p["functions"][1]["body"][0].update(memory="z")) == "W106 /functions/1/body/0/memory"
    assert changed(lambda p: p["functions"][1].update(name="soft")).startswith("W115 /functions/1")
    assert changed(lambda p: p.update(functions=[])).startswith("W106 /body/")
    assert changed(lambda p: p.update(functions={})) == "W115 /functions"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("f(x: f32) -> f33 {\n let y = x\n return y\n}", "P103 the type f33"),
        ("f(x: f32) -> f32 {\n let y = z\n return y\n}", "P103 the name z"),
        ("f(x: f32) -> f32 {\n if x > 0.0 { return x\n}\n return x\n}", "P102 a function returns once"),
        ("f(x: f32) -> f32 {\n let y = x\n}", "P102 the function ends without"),
        ("f(x: f32) -> f32 {\n return cast(x, u32)\n}", "V204 the function gives f32"),
        ("f(x: f32) -> f32 {\n return f(x)\n}", "P103 f is a function of the Program, and a function calls none"),
        ("f(x: f32) -> f32 {\n buffer z: f32[1] read\n return x\n}", "P102 found `buffer`"),
        ("f(x: f32, x: u32) -> f32 {\n return x\n}", 'P106 "x" is declared twice'),
        ("f() -> f32 {\n return 1.0\n}", "P102 found 0 parameters"),
        ("f32(x: f32) -> f32 {\n return x\n}", "P102 found `f32`, expected the function's name"),
        ("f(x: f32) -> f32 {\n return x\n}\nfunction f(x: f32) -> f32 {\n return x\n}", 'P106 the function "f" is declared twice'),
    ],
)  # fmt: skip
def test_one_mistake_in_text_gives_one_finding(function: str, said: str) -> None:
    with pytest.raises(ProgramError) as refused:
        parse(f"program p(n) {{\nfunction {function}\nbuffer y: f32[n] read_write\nlet i = global_id.x\ny[i] = y[i] + 1.0\n}}\n")
    assert len(refused.value.diagnostics) == 1
    assert f"{refused.value.diagnostics[0].code} {refused.value.diagnostics[0].message}".startswith(said)


def test_fabricated_functions_are_refused() -> None:
    program = parse(TEXT)
    lying = object.__new__(Function)
    for name in Function.__slots__:
        object.__setattr__(lying, name, getattr(program.functions[0], name))
    for functions in ([program.functions[0]], (lying,), (program,), ()):
        with pytest.raises(ProgramError, match="V101"):
            check(replace(program, functions=functions))


# ---------------------------------------------------------------- the builder


@vp.function
def soft(x: vp.f32, k: vp.f32) -> vp.f32:
    """Soft threshold."""
    return vp.max(x - k, 0.0) + vp.min(x + k, 0.0)


@vp.function
def powers(b, x: vp.f32, n: vp.u32) -> vp.f32:
    """The sum of the powers of what is left of x."""
    v, a = b.var("v", vp.f32, 1.0), b.private("a", vp.f32, 4)
    with b.for_(0, n) as k:
        a[k] = v
        v *= soft(x, 0.5)
    return v + a[0] + a[1] + a[2] + a[3]


def built(body: Callable[[Any, Any, Any], object]) -> Program:
    with vp.ProgramBuilder("p") as b:
        y, i = b.read_write("y", vp.f32, b.dim("n")), b.global_id(0)
        body(b, y, i)
    return b.program


def test_functions_are_traced_once() -> None:
    square = vp.function(lambda x: x * x, types=[vp.f32], result=vp.f32)

    def body(b: Any, y: Any, i: Any) -> None:
        with b.for_(0, 2):
            y[i] = powers(y[i], 3) + square(soft(y[i], k=0.25)) + soft(y[i], 1)

    program = built(body)
    check(program)
    assert [function.name for function in program.functions] == ["powers", "soft", "f"]
    assert program.functions[1].doc == "Soft threshold." and parse(str(program)) == program
    assert sum(isinstance(s, Let) and s.op is program.functions[1] for s in program.body) == 2
    y = np.linspace(-3, 3, 13, dtype=np.float32)
    want = y.copy()
    for _ in range(2):
        left = [np.where(np.abs(want) > k, want - np.sign(want) * np.float32(k), np.float32(0)) for k in (0.5, 0.25, 1)]
        want = (((left[0] ** 3 + 1) + left[0]) + left[0] * left[0]) + left[1] ** 2 + left[2]
    got = vp.device("reference").compile_native(program).dispatch({"y": y})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-5)


@vp.function
def ordered(a: vp.f32, b: vp.f32) -> tuple[vp.f32, vp.f32]:
    return vp.min(a, b), vp.max(a, b)


@vp.function
def taken_apart(x: vp.f32) -> tuple[vp.f32, vp.i32, vp.bool_]:
    """The fraction, the whole part, and whether there was one."""
    whole = vp.cast(x, vp.i32)
    return x - vp.cast(whole, vp.f32), whole, whole != 0


@pytest.mark.parametrize("kind", ["reference", "cpu"])
def test_several_values_at_once(kind: str) -> None:
    def body(b: Any, y: Any, i: Any) -> None:
        low, high = ordered(y[i], 1.5)
        fraction, whole, some = taken_apart(low)
        y[i] = vp.select(some, fraction + vp.cast(whole * 100, vp.f32), high)

    program = built(body)
    check(program)
    assert [str(function.type) for function in program.functions] == ["f32x2", "u32x3"] and parse(str(program)) == program
    y = np.array([-2.5, 0.25, 1.25, 7], np.float32)
    assert vp.device(kind).compile_native(program).dispatch({"y": y})["y"].tolist() == [-200.5, 1.5, 100.25, 100.5]


def test_names_that_are_taken_get_a_number() -> None:
    def mix(x: vp.f32) -> vp.f32:
        return x + 1.0

    first, second = vp.function(mix), vp.function(mix)
    program = built(lambda b, y, i: y.__setitem__(i, first(second(y[i]))))
    assert [function.name for function in program.functions] == ["mix_2", "mix_3"]
    check(program)


@vp.function
def endless(x: vp.f32) -> vp.f32:
    return endless(x) + 1.0


@vp.function
def nothing(x: vp.f32) -> vp.f32:
    x + 1.0


@vp.function
def another(x: vp.f32) -> vp.f32:
    return vp.cast(x, vp.u32)


def refusing(what: str) -> Any:
    def body(b, x):
        eval(what, {"b": b, "x": x, "vp": vp})
        return x

    return vp.function(body, types=[vp.f32], result=vp.f32)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (endless, "B108 endless calls itself"), (nothing, "B108 nothing returns nothing"),
        (another, "V201 what another returns is f32, got u32"),
        (soft, "V202 soft"), (lambda v: soft(v, v, v), "V202 soft"), (lambda v: soft(1.0, 2.0), "B108 soft of numbers"),
        (lambda v: soft(v, vp.cast(v, vp.u32)), "V201 k of soft is f32, got u32"), (lambda v: soft(v, "a"), "B108 a value or number of type f32"),
        (lambda v: vp.function(lambda x: x, types=[vp.f32]), "B108 the result has no type"), (lambda v: vp.function(3), "B108 the parameters of 3"),
        (lambda v: vp.function(lambda x: x, types=[3], result=vp.f32), "B108 a type of the language"),
        (lambda v: vp.function(lambda *x: x[0], result=vp.f32), "B108 a function takes 1 to 64"),
        (lambda v: vp.function(lambda x: x, types=[vp.f32], result=(vp.f32, vp.u8)), "B108 a function gives one value, or two"),
        (lambda v: vp.function(lambda x: x, types=[vp.f32], result=(vp.f32x2, vp.f32)), "B108 a function gives one value, or two"),
        (vp.function(lambda x: x, types=[vp.f32], result=(vp.f32, vp.u32)), "B108 f returns "),
        (vp.function(lambda x: (x, x), types=[vp.f32], result=(vp.f32, vp.u32)), "V201 value 1 that f returns is u32, got f32"),
        (refusing("b.barrier()"), "B108 the function 'body' has no barriers"),
        (refusing("b.grid_barrier()"), "B108 the function 'body' has no barriers"),
        (refusing("b.global_id(0)"), "B108 the function 'body' has no global_id.x"),
        (refusing("b.local_index()"), "B108 the function 'body' has no local_index"),
        (refusing("b.dim('n')"), "B108 the function 'body' has no dims"),
        (refusing("b.param('n', vp.f32)"), "B108 the function 'body' has no params"),
        (refusing("b.read('n', vp.f32, 1)"), "B108 the function 'body' has no buffer memory"),
        (refusing("b.workgroup('n', vp.f32, 1)"), "B108 the function 'body' has no workgroup memory"),
        (refusing("b.over(1)"), "B108 the function 'body' has no grid"),
        (refusing("b.private('x', vp.f32, 2)"), "B104 'x' is declared twice"),
        (refusing("b.return_()"), "B108 'body' is a function"),
        (refusing("b.subgroup_lane()"), "V211"),
        (lambda v: vp.function(lambda x: x + v, types=[vp.f32], result=vp.f32)(v), "B105"),
    ],
)  # fmt: skip
def test_wrong_functions_and_calls(call: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(vp.ValidationError) as refused:
        built(lambda b, y, i: call(y[i]))
    (found,) = refused.value.diagnostics
    assert f"{found.code} {found.message}".startswith(said)
    assert found.place is not None and found.place.file in (__file__, "<string>")


# ---------------------------------------------------------------- what is written out


def long_program(calls: int, body: str = "", turns: int = 30) -> Program:
    lines = "\n".join([f"v = v * x + {k}.0" for k in range(turns)])
    text = f"program p(n) {{ function f(x: f32) -> f32 {{\nvar v: f32 = x\n{lines}\n{body}\nreturn v\n}}\nbuffer y: f32[n] read_write\nlet i = global_id.x\n"
    return parse(text + "var t: f32 = y[i]\n" + "t = f(t)\n" * calls + "y[i] = t }")


def calls_of(program: Program) -> int:
    return sum(isinstance(s, Let) and isinstance(s.op, Function) for s in inline.inline(program).body)


@pytest.mark.parametrize(
    ("program", "left"),
    [
        (long_program(1), 0), (long_program(16), 0), (long_program(24), 8), (long_program(24, turns=4), 0),
        (long_program(12, turns=400), 10), (long_program(1, turns=5000), 0), (long_program(24, "loop { break }"), 0),
        (long_program(24, "for k in 0u32..100 {\nfor j in 0u32..100 {\nv = v + 1.0\n}\n}"), 8),
        (long_program(24, "for k in 0u32..cast(x, u32) {\nv = v + 1.0\n}"), 0), (long_program(24, "for k in 0u32..1000000 {\nv = v + 1.0\n}"), 0),
        (long_program(24, "v = dot(v.xx, v.xx)"), 8),
    ],
)  # fmt: skip
def test_short_and_first_calls_are_written_out(program: Program, left: int) -> None:
    assert calls_of(program) == left


@pytest.mark.parametrize("options", [CompileOptions(), CompileOptions(numerics="fast"), CompileOptions(opt=0, debug=True)], ids=str)
def test_calls_assemble(options: CompileOptions) -> None:
    program = long_program(20, "v = sin(v) / x")
    for arch in ("sm_75", "sm_90"):
        text = emit_text(program, arch, options)
        assert "def_f" in text
        assemble_together([text], arch)


def test_a_copied_body_costs_once() -> None:
    """One body each, however often it is called."""
    assert len(long_program(1000).to_bytes()) < len(long_program(1).to_bytes()) + 1000 * 40
