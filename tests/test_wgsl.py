"""The WGSL target, without a device: what it refuses, what it says of numerics, and how its text is made."""

from __future__ import annotations

import re

import numpy as np
import pytest

from vyre_py.ir.assembler import Assembler
from vyre_py.ir.check import check
from vyre_py.ir.nodes import Access, Const, Space, const
from vyre_py.ir.ops import ATOMICS, OPS
from vyre_py.ir.program import Program
from vyre_py.ir.types import SCALARS, f32, i32, u32
from vyre_py.lowering.compile import emit_text, prepare
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.layout import lay_out
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import parse_target
from vyre_py.lowering.wgsl import lower
from vyre_py.lowering.wgsl.legal import HELPERS, helpers_of, with_requirements
from vyre_py.lowering.wgsl.memory import _ATOMICS
from vyre_py.lowering.wgsl.ops import QUERIES, ROWS
from vyre_py.lowering.wgsl.types import is_finite_normal, literal
from vyre_py.lowering.wgsl.words import block_words, first_scalar_word, offset_word, word_text

WGSL = parse_target("wgsl")


def program(text: str) -> Program:
    return Program.from_text(text)


def test_every_op_query_and_atomic_has_a_row() -> None:
    assert set(ROWS) == {name for name, op in OPS.items() if not op.is_query}
    assert set(QUERIES) == {name.partition(".")[0] for name, op in OPS.items() if op.is_query}
    assert set(_ATOMICS) == set(ATOMICS) - {"compare_exchange"}


def test_every_row_serves_every_type_that_the_op_accepts() -> None:
    for name, row in ROWS.items():
        if isinstance(row, str):
            continue
        op = OPS[name]
        if name in ("cast", "bitcast"):
            pairs = {f"{a}->{b}" for a in SCALARS.values() for b in SCALARS.values() if op.result_type((a,), b) is not None}
            assert set(row) == pairs
        else:
            assert set(row) == {t.name for t in op.of}


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
        (const(f32, 16777216.0), "16777216.0f"),
    ],
)  # fmt: skip
def test_literals(made: Const, text: str) -> None:
    assert literal(made) == text


def test_float_literals_are_read_back_to_the_bit() -> None:
    bits = np.random.default_rng(1).integers(0, 1 << 32, 2000, dtype=np.uint32)
    for pattern in bits[[is_finite_normal(int(b)) for b in bits]]:
        text = literal(Const(f32, int(pattern))).strip("()").removesuffix("f")
        assert np.float32(text).view(np.uint32) == pattern
    assert [is_finite_normal(b) for b in (0, 0x80000000, 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0xFFC00000)] == [
        True, True, False, False, True, True, False, False,
    ]  # fmt: skip


def test_words_of_the_block() -> None:
    text = "param a: f32\n param b: bool\n buffer x: u32[n, m] read\n buffer y: u32[n] write\n y[global_id.x] = x[0u32, 0u32]"
    layout = lay_out(program(f"program p(n, m) {{ {text} }}"))
    assert [offset_word(0), offset_word(1), first_scalar_word(layout)] == [3, 4, 5]
    assert len(layout.scalars) == 4 and block_words(layout) == 12
    assert [word_text(0), word_text(7)] == ["block.words[0].x", "block.words[1].w"]


NUMERICS = {
    "strict": ["y[i] = x[i]", "y[i] = select(is_nan(x[i]), bitcast(bitcast(x[i], u32) + 1u32, f32), inf)", "u[i] = cast(is_finite(x[i]), u32) / 3u32"],
    "native": ["y[i] = x[i] + x[i]", "u[i] = cast(x[i] < 1.0, u32)", "y[i] = cast(u[i], f32)", "u[i] = cast(x[i], u32)", "y[i] = -x[i]", "y[i] = exp(x[i])"],
}


@pytest.mark.parametrize(("numerics", "line"), [(n, line) for n, lines in NUMERICS.items() for line in lines])
def test_numerics_is_strict_where_floats_are_only_moved(numerics: str, line: str) -> None:
    made = program(f"program p(n) {{ buffer x: f32[n] read\n buffer y: f32[n] read_write\n buffer u: u32[n] read_write\n let i = global_id.x\n {line} }}")
    assert lower(prepare(made, WGSL, CompileOptions()), WGSL, CompileOptions()).numerics == numerics


REFUSED = [CompileOptions(debug=True), CompileOptions(interruptible=True), CompileOptions(numerics="fast"), CompileOptions(codegen="nvvm")]


@pytest.mark.parametrize("options", REFUSED)
def test_options_that_mean_nothing_are_refused_by_name(options: CompileOptions) -> None:
    changed = next(name for name in ("debug", "interruptible", "numerics", "codegen") if getattr(options, name) != getattr(CompileOptions(), name))
    with pytest.raises(Unsupported, match=f"option {changed}"):
        emit_text(program("program p(n) { buffer y: u32[n] write\n y[global_id.x] = 1u32 }"), "wgsl", options)


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
    a.store(y, (const(u32, 0),), params[-1])
    with pytest.raises(Unsupported, match="scalar arguments"):
        emit_text(a.finish(), "wgsl")


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
    entry = lower(prepare(made, WGSL, CompileOptions()), WGSL, CompileOptions()).entries[0]
    assert entry.data == bytes([1, 2, 3, 4, 5, 0, 0, 0, 4, 3, 2, 1, 6, 0, 0, 0])
    assert b"+ 2u]" in entry.code
