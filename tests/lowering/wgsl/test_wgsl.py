"""The WGSL target, without a device: what it refuses, what it says of numerics, and how its text is made."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import numpy as np
import pytest

from vyre_py.ir.check import check
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.nodes import Access, Atom, Const, Space, const
from vyre_py.ir.language.op import Level, Op, Operand, Result
from vyre_py.ir.language.ops import ATOMICS, OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import TYPES, Type, bf16, bool_, f32, f64, i8, i32, u32, vector_of
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.compile import emit_text, prepare
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.layout import lay_out
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import parse_target
from vyre_py.lowering.wgsl import lower
from vyre_py.lowering.wgsl.helpers import HELPERS, helpers_of, with_requirements
from vyre_py.lowering.wgsl.memory import _ATOMICS, _COMPUTED
from vyre_py.lowering.wgsl.ops import QUERIES
from vyre_py.lowering.wgsl.places import place_before
from vyre_py.lowering.wgsl.rounding import rounded_results
from vyre_py.lowering.wgsl.types import is_sayable, literal
from vyre_py.lowering.wgsl.uniform_block import block_words, offset_word, scalar_word, word_text

WGSL = parse_target("wgsl")


def program(text: str) -> Program:
    return Program.from_text(text)


def test_every_query_and_atomic_has_a_row() -> None:
    # Where an invocation is in its subgroup is computed by then.
    assert set(QUERIES) == {name.partition(".")[0] for name, op in OPS.items() if op.is_query and op.level is not Level.SUBGROUP} - {"subgroup_lane"}
    assert set(_ATOMICS) | set(_COMPUTED) == set(ATOMICS) - {"compare_exchange", "load", "store"}


def cases_of(op: Op) -> Iterator[tuple[tuple[Type, ...], Type | None]]:
    """Every choice of types of the language that an op accepts, vectors included; operands marked T have one type."""
    given = (*TYPES.values(), None) if op.result is Result.GIVEN else (None,)
    for t, result in itertools.product(TYPES.values(), given):
        bools = (vector_of(bool_, t.lanes), bool_) if Operand.BOOL in op.operands else (bool_,)
        for condition in dict.fromkeys(bools):
            types = tuple(condition if pattern is Operand.BOOL else pattern.beside(t) for pattern in op.operands)
            if op.result_type(types, result) is not None:
                yield types, result


CASES = [(op, types, given) for op in OPS.values() if not op.is_query for types, given in cases_of(op)]


def case_program(op: Op, types: tuple[Type, ...], given: Type | None) -> Program:
    a = Assembler("case", (64, 1, 1))
    n = a.dim("n")
    params = [a.param(f"p{k}", t) for k, t in enumerate(types)]
    args: list[Atom] = [const(u32, 0) if pattern is Operand.LANES else p for pattern, p in zip(op.operands, params, strict=True)]
    result = a.let(op, tuple(args), given)
    out = a.memory("out", Space.BUFFER, result.type, (n,), Access.WRITE)
    a.store(out, (a.let(OPS["global_id.x"], ()),), result)
    return a.finish()


@pytest.mark.parametrize("op", [op for op in OPS.values() if not op.is_query], ids=lambda op: op.name)
def test_every_op_over_every_type_is_said_or_refused_by_name(op: Op) -> None:
    """All but f64 is said; f64 is where the target has it, and else refused with its name."""
    for _, types, given in [c for c in CASES if c[0] is op]:
        made = case_program(op, types, given)
        with_f64 = any(t is not None and t.scalar is f64 for t in (*types, given, op.result_type(types, given)))
        for target in ("wgsl", "wgsl:f64"):
            if with_f64 and target == "wgsl":
                with pytest.raises(Unsupported, match=r"wgsl does not support (type f64 of|op .* over f64)"):
                    emit_text(made, target, CompileOptions(opt=0))
            else:
                assert "fn main" in emit_text(made, target, CompileOptions(opt=0))


def test_helpers_come_after_what_they_call() -> None:
    assert helpers_of("mul_hi_i32({0}, {1})") == ("mul_hi_u32", "mul_hi_i32")
    assert with_requirements(["max_f32", "min_f32"]) == ["is_nan_f32", "min_f32", "max_f32"]
    names = list(HELPERS)
    for name, text in HELPERS.items():
        assert text.startswith(f"fn {name}(")
        assert all(names.index(other) <= names.index(name) for other in re.findall(r"\w+", text) if other in HELPERS)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (const(i32, 5), "5i"), (const(i32, -5), "(-5i)"), (const(i32, -(1 << 31)), "i32(-2147483648)"), (const(u32, (1 << 32) - 1), "4294967295u"),
        (const(f32, 1.5), "1.5f"), (const(f32, -0.0), "(-0.0f)"), (const(f32, 1e20), "1e+20f"), (const(f32, 0.1), "0.1f"),
        (const(f32, 16777216.0), "16777216.0f"), (const(f64, 1e300), "1e+300lf"), (const(f64, -0.1), "(-0.1lf)"), (Const(i8, 0x80), "128u"),
        (Const(bf16, 0x7FC0), "32704u"),
    ],
)  # fmt: skip
def test_literals(made: Const, text: str) -> None:
    assert literal(made) == text


@pytest.mark.parametrize("type_", [f32, f64], ids=str)
def test_float_literals_are_read_back_to_the_bit(type_: Type) -> None:
    bits = np.random.default_rng(1).integers(0, 1 << type_.bits, 2000, dtype=f"u{type_.size_bytes}")
    for pattern in bits[[is_sayable(Const(type_, int(b))) for b in bits]]:
        text = literal(Const(type_, int(pattern))).strip("()").rstrip("lf")
        assert type_.dtype.type(text).view(bits.dtype) == pattern


def test_what_no_literal_says() -> None:
    said = [is_sayable(Const(f32, b)) for b in (0, 0x80000000, 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0xFFC00000)]
    assert said == [True, True, False, False, True, True, False, False]
    wide = [is_sayable(Const(f64, b)) for b in (1 << 63, 1, (1 << 52) - 1, 1 << 52, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF8000000000000)]
    assert wide == [True, False, False, True, True, False, False]


def test_words_of_the_block() -> None:
    text = "param a: f32\n param b: bool\n buffer x: u32[n, m] read\n buffer y: u32[n] write\n y[global_id.x] = x[0u32, 0u32]"
    layout = lay_out(program(f"program p(n, m) {{ {text} }}"))
    assert [offset_word(0), offset_word(1)] == [3, 4]
    assert [scalar_word(layout, slot) for slot in layout.scalars] == [5, 6, 7, 8] and block_words(layout) == 12
    assert [word_text(0), word_text(7)] == ["block.words[0].x", "block.words[1].w"]


def test_an_f64_takes_two_words_of_the_block() -> None:
    made = program("program p(n) { param a: u8\n param b: f64\n param c: i16\n buffer y: f64[n] write\n y[global_id.x] = b }")
    layout = lay_out(made)
    assert [scalar_word(layout, slot) for slot in layout.scalars] == [4, 6, 8, 9] and block_words(layout) == 12
    assert "let p1 = f64_of_words(block.words[1].z, block.words[1].w);" in emit_text(made, "wgsl:f64")
    wide = program("program p(n) { param a: u64\n buffer y: u64[n] write\n y[global_id.x] = a }")
    assert "b0[v0 + o0] = vec2<u32>(p0, p1);" in emit_text(wide, "wgsl")


def test_both_words_of_a_number_are_one_access() -> None:
    """Where both are needed; what a caller declares as pairs of words need not lie on multiples of 8 bytes."""
    text = "program p(n) over(n) {{ buffer x: {} read\n buffer y: {} read_write\n let i = global_id.x\n {} }}"
    whole = emit_text(program(text.format("u64[n]", "i64[n, 3]", "y[i, 2u32] = cast(x[i] + 1, i64)")), "wgsl")
    assert whole.count("array<vec2<u32>>;") == 2
    assert len(re.findall(r"= b0\[v\d+ \+ o0\];", whole)) == 1 and len(re.findall(r"b1\[\(v\d+\) \* 3u \+ 2u \+ o1\] = vec2<u32>\(", whole)) == 1
    half = emit_text(program(text.format("u64[n]", "u32[n]", "y[i] = cast(x[i], u32)")), "wgsl")
    assert re.search(r"= b0\[v\d+ \+ o0\]\.x;", half) and "o0].y" not in half
    plain = emit_text(program(text.format("u32[n, 2]", "u32[n, 2]", "y[i, 0u32] = x[i, 0u32]\n y[i, 1u32] = x[i, 1u32]")), "wgsl")
    assert "vec2" not in plain


def test_a_block_without_scalars() -> None:
    assert block_words(lay_out(program("program p over(4) { buffer y: u32[4] write\n y[global_id.x] = 1u32 }"))) == 4


NUMERICS = {
    "strict": ["y[i] = x[i]", "y[i] = select(is_nan(x[i]), bitcast(bitcast(x[i], u32) + 1u32, f32), inf)", "u[i] = cast(is_finite(x[i]), u32) / 3u32"],
    "native": [
        "y[i] = x[i] + x[i]", "u[i] = cast(x[i] < 1.0, u32)", "y[i] = cast(u[i], f32)", "u[i] = cast(x[i], u32)", "y[i] = -x[i]", "y[i] = exp(x[i])",
        "atomic_add(y[i], x[i])",
    ],
}


@pytest.mark.parametrize(("numerics", "line"), [(n, line) for n, lines in NUMERICS.items() for line in lines])
def test_numerics_is_strict_where_floats_are_only_moved(numerics: str, line: str) -> None:
    made = program(f"program p(n) {{ buffer x: f32[n] read\n buffer y: f32[n] read_write\n buffer u: u32[n] read_write\n let i = global_id.x\n {line} }}")
    assert lower(prepare(made, WGSL, CompileOptions()), WGSL, CompileOptions()).numerics == numerics


REFUSED = [CompileOptions(interruptible=True), CompileOptions(codegen="nvvm")]


@pytest.mark.parametrize("options", REFUSED)
def test_options_that_mean_nothing_are_refused_by_name(options: CompileOptions) -> None:
    changed = next(name for name in ("interruptible", "codegen") if getattr(options, name) != getattr(CompileOptions(), name))
    with pytest.raises(Unsupported, match=f"option {changed}"):
        emit_text(program("program p(n) { buffer y: u32[n] write\n y[global_id.x] = 1u32 }"), "wgsl", options)


def test_places_are_comments_and_nothing_else() -> None:
    """Of a file with any name: what ends a line would end the comment."""
    body = "let i = global_id.x\n  if x[i] > 1.0 {\n    x[i] = exp(x[i])\n  }"
    made = parse(f"program p(n) {{\n  buffer x: f32[n] read_write\n  {body}\n}}", "a\n\u2028%ü b.vir")
    plain, debug = (emit_text(made, "wgsl", CompileOptions(debug=debug)) for debug in (False, True))
    lines = debug.splitlines()
    assert [line for line in lines if not line.lstrip().startswith("// from ")] == plain.splitlines()
    at = next(number for number, line in enumerate(lines, 1) if "] = " in line and "exp" not in line)
    assert place_before(debug, at) == ("a%0A%E2%80%A8%25%C3%BC b.vir", 5, 5)
    assert place_before(plain, at) is None and place_before(debug, 1) is None


def nested(depth: int) -> Program:
    a = Assembler("nested", (1, 1, 1))
    y = a.memory("y", Space.BUFFER, u32, (a.dim("n"),), Access.READ_WRITE)
    i = a.let(OPS["global_id.x"], ())
    for _ in range(depth):
        a.if_(a.let(OPS["lt"], (a.load(y, (i,)), const(u32, 5))))
    a.store(y, (i,), const(u32, 1))
    for _ in range(depth):
        a.end()
    return a.finish()


def test_what_wgsl_cannot_say_is_named_all_at_once() -> None:
    lowered = emit_text(nested(120), "wgsl", CompileOptions(opt=0))
    assert lowered.count("{") == lowered.count("}")
    with pytest.raises(Unsupported, match="blocks more than 120 deep"):
        emit_text(nested(121), "wgsl", CompileOptions(opt=0))
    a = Assembler("many", (1, 1, 1))
    params = [a.param(f"p{k}", u32) for k in range(5000)]
    y = a.memory("y", Space.BUFFER, u32, (a.dim("n"),), Access.WRITE)
    a.store(y, (a.let(OPS["global_id.x"], ()),), params[-1])
    with pytest.raises(Unsupported, match="scalar arguments"):
        emit_text(a.finish(), "wgsl")


def test_what_a_device_lacks_is_named_with_op_type_and_place() -> None:
    text = """program p(n) over(n) {
  param a: f64
  buffer x: f64x2[n] read
  buffer y: f64[n] read_write
  buffer u: u64[n] read_write
  y[global_id.x] = a * dot(x[global_id.x], x[0u32])
  atomic_add(y[0u32], a)
  atomic_max(u[0u32], 5u64)
  u[1u32] = cast(cast(a, f16), u64)
}"""
    made = Program.from_text(text, "p.vir")
    with pytest.raises(Unsupported) as caught:
        emit_text(made, "wgsl")
    found = [(item.what, item.place and item.place.line) for item in caught.value.items]
    assert found == [
        ("type f64 of 'a'", 2), ("type f64 of 'x'", 3), ("type f64 of 'y'", 4), ("op mul over f64", 6), ("op add over f64", 6), ("op cast over f64", 9),
        ("atomic max on u64", 8), ("atomic add on f64", 7),
    ]  # fmt: skip
    assert all("shader-f64" in item.help for item in caught.value.items[:6])
    with pytest.raises(Unsupported, match=r"wgsl:f64 does not support atomic max on u64 at .*atomic add on f64 at"):
        emit_text(made, "wgsl:f64")


def test_no_word_of_the_user_reaches_the_text() -> None:
    text = emit_text(
        program(
            """program "fn main() {}" ("var<storage>") {
  param "*/ evil": u32
  buffer "enable f16;": u32["var<storage>"] read_write
  workgroup "@group(0)": u32[4]
  region "} evil" {
    var "discard": u32 = "*/ evil"
    let "struct" = "enable f16;"[global_id.x]
    "@group(0)"[0u32] = "struct"
    "enable f16;"[global_id.x] = "discard" + "struct"
  }
}"""
        ),
        "wgsl",
        CompileOptions(opt=0),
    )
    for word in ("evil", "f16", "discard"):
        assert word not in text
    assert text.count("fn main") == 1 and text.isascii()


def test_the_text_is_deterministic_and_grows_with_the_program() -> None:
    def chain(length: int) -> Program:
        a = Assembler("chain", (64, 1, 1))
        y = a.memory("y", Space.BUFFER, u32, (a.dim("n"),), Access.READ_WRITE)
        i = a.let(OPS["global_id.x"], ())
        value = a.load(y, (i,))
        for k in range(length):
            value = a.let(OPS["mul_hi" if k % 2 else "add"], (value, const(u32, k)))
        a.store(y, (i,), value)
        return a.finish()

    lengths = [len(emit_text(chain(n), "wgsl", CompileOptions(opt=0))) for n in (1000, 2000, 4000)]
    assert lengths[2] - lengths[1] < 2.2 * (lengths[1] - lengths[0])
    assert emit_text(chain(300), "wgsl") == emit_text(chain(300), "wgsl")


def test_a_dim_expression_is_read_from_the_block_and_a_proven_access_is_not_checked() -> None:
    body = "buffer x: u32[n * m + 1] read\n buffer y: u32[n] write\n y[global_id.x] = x[global_id.x] + dim(n * m + 1)"
    text = emit_text(program(f"program p(n, m) {{ {body} }}"), "wgsl")
    assert re.search(r"let d\d = block\.words", text)
    assert "b1[v0 + o1] =" in text and len(re.findall(r"v0 < d\d", text)) == 2


def test_tables_share_one_binding_in_whole_words() -> None:
    made = check(
        program(
            """program p(n) {
  buffer y: u32[n] write
  table a: u8[5] = [1, 2, 3, 4, 5]
  table unused: u32[2] = [7, 7]
  table b: u32[2] = [0x01020304, 6]
  let i = global_id.x
  y[i] = cast(a[i], u32) + b[i]
}"""
        )
    )
    image = lower(prepare(made, WGSL, CompileOptions()), WGSL, CompileOptions()).images[0]
    assert image.data == bytes([1, 2, 3, 4, 5, 0, 0, 0, 4, 3, 2, 1, 6, 0, 0, 0])
    assert b"+ 2u]" in image.code


@pytest.mark.parametrize(("error", "rounded"), [("fma(a, b, -c)", {"c"}), ("fma(b, a, -c)", {"c"}), ("fma(a, a, -c)", set()), ("fma(a, b, d)", set())])
def test_a_product_whose_own_error_is_asked_for_is_rounded(error, rounded):
    program = parse(f"""program p(n) over(n) {{
  buffer x: f32[n] read; buffer y: f32[n] write
  let a = x[0u32]; let b = x[1u32]; let d = x[2u32]
  let c = a * b
  y[global_id.x] = {error} * c
}}""")
    assert {program.value_names[number] for number in rounded_results(program)} == rounded


@pytest.mark.parametrize(("error", "rounded"), [("d - c", {"c", "e"}), ("c - d", {"c", "e"}), ("a - c", set()), ("d + a", set())])
def test_a_fused_sum_whose_own_error_is_asked_for_is_rounded(error, rounded):
    program = parse(f"""program p(n) over(n) {{
  buffer x: f32[n] read; buffer y: f32[n] write
  let a = x[0u32]; let b = x[1u32]; let d = x[2u32]
  let c = fma(a, b, d)
  let e = {error}
  y[global_id.x] = fma(a, b, e) * c
}}""")
    assert {program.value_names[number] for number in rounded_results(program)} == rounded
