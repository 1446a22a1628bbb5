"""The builder: what it builds, and that every wrong call is refused at the caller's own line."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import vyre_py as vp
from vyre_py.ir.check import check
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import Else, For, If, Let, Load, Store
from vyre_py.ir.language.op import Result
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import TYPES, vector_of
from vyre_py.ir.text.parser import parse


def axpy() -> Program:
    with vp.ProgramBuilder("axpy") as b:
        n = b.dim("n")
        a = b.param("a", vp.f32)
        x, y = b.read("x", vp.f32, n), b.read_write("y", vp.f32, n)
        i = b.let("i", b.global_id(0))
        y[i] = a * x[i] + y[i]
    return b.program


def test_axpy_is_what_its_text_says() -> None:
    text = """
    program axpy(n) workgroup(256) {
      param a: f32
      buffer x: f32[n] read
      buffer y: f32[n] read_write
      let i = global_id.x
      y[i] = a * x[i] + y[i]
    }"""
    assert axpy() == parse(text)
    assert [type(s) for s in axpy().body] == [Let, Load, Let, Load, Let, Store]


def test_equality_uses_both_digests() -> None:
    one, two = axpy(), axpy()
    assert one == two and hash(one) == hash(two) and one is not two
    renamed = parse(str(one).replace("axpy", "axpz"))
    assert renamed.code_digest == one.code_digest and renamed != one


def test_blocks() -> None:
    with vp.ProgramBuilder("blocks") as b:
        n = b.dim("n")
        out = b.write("out", vp.u32, n)
        i = b.global_id(0)
        total = b.var("total", vp.u32)
        with b.if_(i < 5):
            total += 1
        with b.else_(), b.for_(0, n, name="k") as k:
            total.set(total + k)
        with b.loop():
            b.break_if(total > 10)
            total *= 2
            total += 1
        with b.region("end"):
            out[i] = total
    program = check(b.program).program
    assert [type(s) for s in program.body if isinstance(s, (If, Else, For))] == [If, Else, For, If]


def test_sizes_are_exact_and_mix_with_values() -> None:
    with vp.ProgramBuilder("sizes") as b:
        n = b.dim("n")
        x = b.read("x", vp.u32, n + 1, vp.ceil_div(n, 4))
        out = b.write("out", vp.u32, vp.max(n * 2 - 1, 1))
        i = b.global_id(0)
        out[i] = x[i, n - 1] + n * 2 + (i + n)
    assert "n + 1" in str(b.program) and "ceil_div(n, 4)" in str(b.program)
    check(b.program)


def test_a_number_takes_the_type_it_meets() -> None:
    with vp.ProgramBuilder("numbers") as b:
        n = b.dim("n")
        f, u, s = b.read_write("f", vp.f32, n), b.read_write("u", vp.u32, n), b.read_write("s", vp.i32, n)
        i = b.global_id(0)
        f[i] = 1 + f[i] * 2.5 - vp.max(3, f[i])
        u[i] = (u[i] + 1) // 2 % 7 << 3
        s[i] = -1 - s[-1] * vp.select(s[i] > -5, -2, s[i])
    check(b.program)
    assert [line.strip() for line in str(b.program).splitlines()[-4:-1]] == [
        "f[v0] = 1.0 + f[v0] * 2.5 - max(3.0, f[v0])",
        "u[v0] = (u[v0] + 1) / 2 % 7 << 3",
        "s[v0] = -1 - s[-1] * select(s[v0] > -5, -2, s[v0])",
    ]


def test_numpy_numbers_are_numbers() -> None:
    with vp.ProgramBuilder("numpy") as b:
        y = b.write("y", vp.f32, np.int64(8))
        f = b.param("f", vp.f32)
        y[np.int64(3)] = np.float32(2) * f + f * np.float32(0.1) + np.int32(3)
    assert str(b.program).splitlines()[-2].strip() == "y[3] = 2.0 * f + f * 0.1 + 3.0"


def lines_of(program: Program) -> list[str]:
    check(program)
    assert parse(str(program)) == program
    return [line.strip() for line in str(program).splitlines()]


def test_vectors() -> None:
    with vp.ProgramBuilder("vectors") as b:
        n = b.dim("n")
        s, v = b.param("s", vp.f32), b.param("v", vp.f32x3)
        x = b.read_write("x", vp.f32x3, n)
        b.over(n)
        x[0] = v.zyx + s.xxx
        x[1] = vp.vec3(v.xy, 1.0)
        x[2] = vp.vec3(1.0, s, v.z)
        x[3] = vp.splat(s, 3) * vp.splat(v.x, vp.f32x3)
        x[4] = vp.vec3(v)
        x[5] = vp.cross(v, v) / vp.length(v)
    assert lines_of(b.program)[4:-1] == [
        "x[0] = v.zyx + s.xxx",
        "let v3 = v.xy",
        "x[1] = vec3(v3.x, v3.y, 1.0)",
        "x[2] = vec3(1.0, s, v.z)",
        "x[3] = s.xxx * v.x.xxx",
        "x[4] = vec3(v.x, v.y, v.z)",
        "x[5] = cross(v, v) / length(v).xxx",
    ]


def test_what_meets_a_vector_stands_for_all_components() -> None:
    with vp.ProgramBuilder("splats") as b:
        n = b.dim("n")
        s, v, q = b.param("s", vp.f32), b.param("v", vp.f32x3), b.param("q", vp.u8x2)
        x = b.read_write("x", vp.f32x3, n)
        c = b.read_write("c", vp.u8x2, n)
        acc = b.var("acc", vp.f32x3)
        b.over(n)
        x[0] = 2 * v + s
        x[1] = vp.fma(s, v, 1.0)
        x[2] = vp.select(v < 1.0, v, s)
        x[3] = vp.select(s < 1.0, v, 0)
        x[4] = vp.select(v < s, 1.0, s)
        x[5] = vp.clamp(s, 0.0, v)
        x[6] = 1.5
        c[0] = vp.extract_bits(q, 1, vp.splat(vp.cast(s, vp.u32), 2))
        acc += 1
        x[7] = v**2
        x[8] = vp.ldexp(v, -3)
        x[9] = vp.refract(v, s, 0.5)
    assert lines_of(b.program)[6:-1] == [
        "var acc: f32x3 = 0.0f32.xxx",
        "x[0] = 2.0f32.xxx * v + s.xxx",
        "x[1] = fma(s.xxx, v, 1.0f32.xxx)",
        "x[2] = select(v < 1.0f32.xxx, v, s.xxx)",
        "x[3] = select(s < 1.0, v, 0.0f32.xxx)",
        "x[4] = select(v < s.xxx, 1.0f32.xxx, s.xxx)",
        "x[5] = clamp(s.xxx, 0.0f32.xxx, v)",
        "x[6] = 1.5f32.xxx",
        "c[0] = extract_bits(q, 1, cast(s, u32).xx)",
        "acc = acc + 1.0f32.xxx",
        "x[7] = pow(v, 2.0f32.xxx)",
        "x[8] = ldexp(v, -3)",
        "x[9] = refract(v, s.xxx, 0.5f32)",
    ]


def test_bools_of_components() -> None:
    with vp.ProgramBuilder("bools") as b:
        u, v = b.param("u", vp.i16x2), b.param("v", vp.i16x2)
        y = b.write("y", vp.boolx2, 9)
        seen = b.var("seen", vp.boolx2)
        b.over(9)
        y[0] = (u < v) & ~(u == 0) | (v != u) ^ True
        with b.if_(vp.all(u >= v) & vp.any(seen)):
            y[1] = seen
    assert lines_of(b.program)[4:-1] == [
        "var seen: boolx2 = false.xx",
        "y[0] = u < v && !(u == 0i16.xx) || (v != u) != true.xx",
        "if all(u >= v) && any(seen) {",
        "y[1] = seen",
        "}",
    ]


def test_a_variable_is_read_once_where_it_is_taken_apart() -> None:
    with vp.ProgramBuilder("apart") as b:
        y = b.write("y", vp.f32x4, 1)
        v = b.var("v", vp.f32x3, 1.0)
        b.over(1)
        y[0] = vp.vec4(v, 1.0)
    assert lines_of(b.program)[3:-1] == ["let v1 = v", "y[0] = vec4(v1.x, v1.y, v1.z, 1.0)"]


def test_tables_of_vectors_and_small_floats() -> None:
    with vp.ProgramBuilder("tables") as b:
        y = b.write("y", vp.f32, 4)
        b.over(4)
        b.table("v", [[[1, 2, 3], [4, 5, 6]]], vp.u8x3)
        b.table("h", np.array([[1.5, -0.0]], np.float16))
        b.table("b", [1 + 2.0**-8 + 2.0**-30, 0.1], vp.bf16)
        b.table("i", np.array([2**40 + 2**32 + 1, 3], np.int64), vp.bf16)
        b.table("c", np.array([1.5], ml_dtypes.bfloat16))
        b.table("m", [[True, False]], vp.boolx2)
        y[0] = 1.0
    assert lines_of(b.program)[2:-2] == [
        "table v: u8x3[1, 2] = [[1, 2, 3], [4, 5, 6]]",
        "table h: f16[1, 2] = [1.5, -0.0]",
        "table b: bf16[2] = [1.01, 0.1]",
        "table i: bf16[2] = [1110000000000.0, 3.0]",
        "table c: bf16[1] = [1.5]",
        "table m: boolx2[1] = [[true, false]]",
    ]


def test_every_type_is_exported() -> None:
    for name, type_ in TYPES.items():
        assert getattr(vp, "bool_" if name == "bool" else name) is type_


def test_every_op_is_a_function_or_an_operator() -> None:
    spelled = {"add", "sub", "mul", "div", "rem", "neg", "abs", "and", "or", "xor", "not", "shl", "shr", "swizzle"}
    spelled |= {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not"}
    for name, row in OPS.items():
        assert row.is_query or name in spelled or callable(getattr(vp.fast, row.approximates) if row.approximates else getattr(vp, name))


@pytest.mark.parametrize("name", sorted(name for name, row in OPS.items() if not row.is_query and hasattr(vp, name) and row.result is not Result.GIVEN))
def test_every_function_emits_its_op(name: str) -> None:
    row = OPS[name]
    lanes = max(row.lanes)
    with vp.ProgramBuilder("one") as b:
        marked = vector_of(min(row.of, key=str), lanes)
        operands = [b.param(f"p{k}", pattern.beside(marked)) for k, pattern in enumerate(row.operands)]
        result = getattr(vp, name)(*operands)
        assert result.type is row.result_type(tuple(o.type for o in operands))
        assert getattr(vp, name).__doc__
    (statement,) = b.program.body
    assert isinstance(statement, Let) and statement.op is row and statement.args == b.program.params


def test_attributes_that_pick_nothing_are_not_there() -> None:
    with vp.ProgramBuilder("attributes") as b:
        v = b.param("v", vp.f32x3)
        for name in ("foo", "rgb", "xyzwx", "w", "_repr_html_", "__array_interface__", "dtype"):
            assert not hasattr(v, name)
        with pytest.raises(AttributeError):
            v.x = v.y  # type: ignore[misc]  # the mistake under test


def place_of(marker: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return 1 + next(k for k, line in enumerate(lines) if line.endswith(f"# here: {marker}"))


class Scene:
    """A builder halfway, with one of each thing."""

    def __init__(self) -> None:
        self.b = vp.ProgramBuilder("scene")
        self.n = self.b.dim("n")
        self.f = self.b.param("f", vp.f32)
        self.x = self.b.read("x", vp.f32, self.n)
        self.y = self.b.write("y", vp.f32, self.n)
        self.u = self.b.read_write("u", vp.u32, self.n, self.n)
        self.y2 = self.b.read_write("y2", vp.f32, self.n)
        self.v = self.b.param("v", vp.f32x3)
        self.vectors = self.b.read("x4", vp.f32x4, self.n)
        self.i = self.b.global_id(0)


MISTAKES: list[tuple[str, str, Callable[[Scene], object]]] = [
    ("B101", "if_", lambda s: bool(s.i < 3)),
    ("B101", "vp.select", lambda s: 1 if s.f > 0.0 else 2),
    ("B101", "&", lambda s: s.i < 3 and s.i > 1),
    ("B101", "|", lambda s: s.i < 3 or s.i > 1),
    ("B101", "~", lambda s: not (s.i < 3)),
    ("B101", "a < x", lambda s: 0 < s.i < 3),  # type: ignore[operator]  # the mistake under test
    ("B101", "", lambda s: s.i in s.x),
    ("B101", "for_", lambda s: list(s.x)),  # type: ignore[call-overload]  # the mistake under test
    ("B101", "for_", lambda s: list(s.i)),  # type: ignore[call-overload]  # the mistake under test
    ("B102", "vp.cast", lambda s: int(s.i)),
    ("B102", "vp.sqrt", lambda s: float(s.f)),
    ("B102", "b.for_", lambda s: range(s.i)),
    ("B102", "vp.sqrt", lambda s: np.sqrt(s.f)),  # type: ignore[call-overload]  # the mistake under test
    ("B102", "dims", lambda s: len(s.x)),
    ("B104", "another name", lambda s: s.b.read("x", vp.f32, 3)),
    ("B104", "another name", lambda s: s.b.dim("f")),
    ("B105", "argument", lambda s: s.i + Scene().i),
    ("B105", "argument", lambda s: s.b.let("j", Scene().i)),
    ("B105", "", lambda s: s.b.read("z", vp.f32, Scene().n)),
    ("B106", "vp.cast", lambda s: s.i + 1.5),
    ("B106", "vp.const", lambda s: s.i + -1),
    ("B106", "0 or 1", lambda s: s.f + True),
    ("B106", "x != 0", lambda s: (s.i < 3) & 1),
    ("B106", "0 to 255", lambda s: s.b.table("t", [300], vp.u8)),
    ("B106", "whole numbers", lambda s: s.b.table("t", [1.5], vp.u32)),
    ("B106", "", lambda s: s.i * (1 << 40)),
    ("B106", "vp.const", lambda s: vp.select(s.i < 3, 1, 2)),
    ("B107", "b.else_", lambda s: s.b.else_().__enter__()),
    ("B107", "with", lambda s: s.b.program),
    ("B107", "with b.for_", lambda s: list(s.b.for_(0, s.n))),  # type: ignore[call-overload]  # the mistake under test
    ("B108", "read_write", lambda s: s.x.__setitem__(s.i, s.f)),
    ("B108", "read_write", lambda s: s.y[s.i]),
    ("B108", "read_write buffers", lambda s: s.x.atomic_add(0, 1.0)),
    ("B108", "the order of atomic_add is relaxed or acquire or release or acq_rel, got 'seq_cst'", lambda s: s.y.atomic_add(0, 1.0, order="seq_cst")),
    ("B108", "the order of atomic_load is relaxed or acquire, got 'release'", lambda s: s.y.atomic_load(0, order="release")),
    ("B108", "the order of atomic_store is relaxed or release, got 'acquire'", lambda s: s.y.atomic_store(0, 1.0, order="acquire")),
    ("B108", "a scope is workgroup or device, got 'grid'", lambda s: s.y.atomic_store(0, 1.0, order="release", scope="grid")),
    ("B108", "a scope is workgroup or device, got None", lambda s: s.b.fence(None)),  # type: ignore[arg-type]  # the mistake under test
    ("B108", "whole number", lambda s: s.b.workgroup("t", vp.f32, s.n)),  # type: ignore[arg-type]  # the mistake under test
    ("B108", "`//`", lambda s: s.i / 2),
    ("B108", "`/`", lambda s: s.f // 2),
    ("B108", "axis", lambda s: s.b.global_id(3)),
    ("B108", "x * x", lambda s: s.i**2),
    ("B108", "x * x", lambda s: 2**s.i),
    ("B108", "xyzw", lambda s: s.v.rgb),
    ("B108", "vp.length", lambda s: s.v.length),
    ("B108", "two vectors", lambda s: s.v.xyxyx),
    ("B108", "v.x", lambda s: s.v[0]),
    ("B108", "v.xy", lambda s: vp.vec3(s.v, 1.0)),
    ("B108", "v.xy", lambda s: vp.vec2()),
    ("B108", "vp.vec3", lambda s: vp.const(1.0, vp.f32x3)),
    ("B108", "operand from the builder", lambda s: vp.vec2(1.0, 2.0)),
    ("B108", "repeated by itself", lambda s: vp.splat(1.0, 3)),  # type: ignore[arg-type]  # the mistake under test
    ("B108", "repeated by itself", lambda s: vp.splat(s.v, 3)),
    ("B108", "vp.splat(x, 3)", lambda s: vp.splat(s.f, 5)),
    ("B108", "[[0, 1, 2], [0, 1, 2]]", lambda s: s.b.table("t", [[1, 2], [3, 4]], vp.u32x3)),
    ("B108", "which type", lambda s: s.b.table("t", [1, 2, 3], vp.u32x3)),
    ("B108", "integers in read_write", lambda s: s.y2.atomic_or(0, 1.0)),
    ("B108", "vp.cast(x, vp.u32)", lambda s: s.b.for_(s.v, 3).__enter__()),
    ("V210", "x, y, z, w", lambda s: s.v.w),
    ("V210", "x, y, z, w", lambda s: s.f.xy),
    ("V201", "vp.splat(x, vp.f32x3)", lambda s: vp.splat(s.f, vp.u32x3)),
    ("V201", "vp.splat(x, 3)", lambda s: s.b.var("w", vp.f32x3).set(s.f)),
    ("V201", "v.xyz", lambda s: s.b.var("w", vp.f32x3).set(s.v.xy)),
    ("V201", "v.xy", lambda s: s.v + s.v.xy),
    ("V201", "vp.cast(x, vp.f32x3) or vp.cast(x, vp.u32x3)", lambda s: s.v * s.i),
    ("V201", "vp.all(c)", lambda s: s.b.if_(s.v < 1.0).__enter__()),
    ("V201", "vp.vec2", lambda s: vp.dot(s.f, s.f)),
    ("V201", "vp.cast(x, vp.u32x3)", lambda s: vp.cast(s.v, vp.u32)),
    ("V201", "take a component", lambda s: s.x[vp.splat(s.i, 2)]),
    ("V201", "vp.cast(x, vp.i32)", lambda s: vp.ldexp(s.f, s.i)),
    ("V201", "v.x", lambda s: vp.refract(s.v, s.v, s.v)),
    ("V202", "x[i].x", lambda s: s.vectors[s.i, 0]),
    ("B108", "x[i]", lambda s: s.x + 1),
    ("B108", "x[i]", lambda s: np.float32(2) * s.x),
    ("B108", "x[i]", lambda s: s.x == s.y),
    ("B108", "x[i]", lambda s: s.y.__setitem__(0, s.x)),  # type: ignore[arg-type]  # the mistake under test
    ("B108", "same length", lambda s: s.b.table("t", [[1], [2, 3]], vp.u32)),
    ("B108", "vp.u32", lambda s: s.b.table("t", [1, 2])),
    ("B108", "vp.u32", lambda s: s.b.table("t", [1], np.uint32)),  # type: ignore[arg-type]  # the mistake under test
    ("B108", "vp.u32", lambda s: vp.const(1, "u32")),  # type: ignore[arg-type]  # the mistake under test
    ("B108", "vp.u32", lambda s: vp.cast(s.i, np.float32)),  # type: ignore[arg-type]  # the mistake under test
    ("B108", "ceil_div", lambda s: s.b.read("q", vp.f32, s.n // 2)),
    ("B108", "n, m rather than", lambda s: s.b.read("q", vp.f32, (s.n, s.n))),  # type: ignore[arg-type]  # the mistake under test
    ("B108", "b.workgroup('t', vp.f32, 64)", lambda s: s.b.workgroup("t", vp.f32)),
    ("B108", "vp.cast", lambda s: s.b.for_(0, s.f).__enter__()),
    ("B108", "b.let", lambda s: s.b.let(3, s.i)),  # type: ignore[arg-type]  # the mistake under test
    ("B108", "b.var", lambda s: s.b.var(3, vp.u32)),  # type: ignore[arg-type]  # the mistake under test
    ("B108", "type of the language", lambda s: s.b.param("q", np.float32)),  # type: ignore[arg-type]  # the mistake under test
    ("V201", "cast", lambda s: s.i + s.f),
    ("V201", "cast", lambda s: s.vectors[s.i] + s.i),
    ("V201", "cast", lambda s: s.y.__setitem__(s.i, s.i)),
    ("V201", "cast", lambda s: s.x[s.f]),
    ("V201", "x != 0", lambda s: s.b.if_(s.i).__enter__()),
    ("V201", "vp.cast(x, vp.f32)", lambda s: vp.sqrt(s.i)),
    ("V201", "(x > 0.0) & (y < 1.0)", lambda s: 0.0 & s.f),
    ("V201", "x != 0", lambda s: vp.select(s.i, s.f, 0.0)),
    ("V201", "", lambda s: s.x[0:3]),  # type: ignore[index]  # the mistake under test
    ("V202", "u[i, j]", lambda s: s.u[s.i]),
    ("V202", "x[i]", lambda s: s.x[s.i, s.i]),
]


@pytest.mark.parametrize(("code", "hint", "mistake"), MISTAKES, ids=[f"{code}-{k}" for k, (code, _, _) in enumerate(MISTAKES)])
def test_a_wrong_call_is_refused_at_once(code: str, hint: str, mistake: Callable[[Scene], object]) -> None:
    scene = Scene()
    with pytest.raises(vp.ValidationError) as caught:
        mistake(scene)
    assert caught.value.codes == (code,)
    (found,) = caught.value.diagnostics
    assert found.place is not None and Path(found.place.file).name == Path(__file__).name
    assert hint in str(caught.value) and found.help


def test_the_place_is_the_users_own_line() -> None:
    scene = Scene()
    with pytest.raises(vp.ValidationError) as caught:
        scene.y[scene.i] = scene.x[scene.i] + scene.i  # here: mixed
    place = caught.value.diagnostics[0].place
    assert place is not None and place.line == place_of("mixed")
    assert re.search(r"scene\.y\[scene\.i\] = ", str(caught.value))


def test_a_finished_builder_refuses() -> None:
    with vp.ProgramBuilder("done") as b:
        out = b.write("out", vp.u32, b.dim("n"))
        i = b.global_id(0)
        out[i] = i
    for late in (lambda: i + 1, lambda: out.__setitem__(0, 1), lambda: b.dim("m"), b.barrier, lambda: b.over(1), lambda: b.read("q", vp.f32, 1)):
        with pytest.raises(vp.ValidationError) as caught:
            late()
        assert caught.value.codes == ("B103",)


def test_a_block_without_with_is_refused() -> None:
    b = vp.ProgramBuilder("bare")
    y = b.write("y", vp.u32, b.dim("n"))
    b.if_(b.global_id(0) > 3)  # here: bare
    y[0] = 1
    b.loop()
    with pytest.raises(vp.ValidationError) as caught, b:
        pass
    assert caught.value.codes == ("B107", "B107")
    place = caught.value.diagnostics[0].place
    assert place is not None and place.line == place_of("bare")


def test_an_error_in_the_block_leaves_no_program() -> None:
    with pytest.raises(KeyError), vp.ProgramBuilder("broken") as b:
        raise KeyError("mine")
    with pytest.raises(vp.ValidationError, match="B107"):
        _ = b.program


def test_statements_remember_where_they_were_written() -> None:
    with vp.ProgramBuilder("places") as b:
        out = b.write("out", vp.u32, b.dim("n"))
        out[b.global_id(0)] = 7  # here: store
    place = b.program.place(len(b.program.body) - 1)
    assert place is not None and place.line == place_of("store")


def test_the_grid_is_the_default_where_stores_are_the_invocations_own_and_has_to_be_said_elsewhere() -> None:
    def sums(say: Callable[[vp.ProgramBuilder], None]) -> Program:
        with vp.ProgramBuilder("sums") as b:
            n, m = b.dim("n"), b.dim("m")
            x, y = b.read("x", vp.f32, n, m), b.write("y", vp.f32, n)
            say(b)
            y[0] = x[b.global_id(1), b.global_id(0)]  # here: stray
        return b.program

    bare = sums(lambda b: None)
    for program in (bare, parse(str(bare)), Program.from_bytes(bare.to_bytes()), Program.from_json(bare.to_json())):
        assert program == bare
        with pytest.raises(vp.ValidationError, match=r"most likely over\(m, n\)") as caught:
            check(program)
        assert caught.value.codes == ("V470",)
    with pytest.raises(vp.ValidationError) as caught:
        check(bare)
    place = caught.value.diagnostics[0].place
    assert place is not None and place.line == place_of("stray")
    for said, text in ((lambda b: b.over(1), "over(1) {"), (lambda b: b.grid(2, 3), "grid(2, 3) {"), (lambda b: b.over(vp.ceil_div(7, 2)), "over(4) {")):
        program = sums(said)
        check(program)
        assert text in str(program) and parse(str(program)) == program
    assert "over" not in str(axpy()) and check(axpy())


def test_a_default_that_does_not_stand_runs_nothing() -> None:
    """Whoever looks at a Program that was not checked meets a grid without a workgroup, and never one that is too small."""
    program = parse("program p(n) { buffer x: u32[n] write\n x[0] = 1 }")
    assert str(program.grid.extents) == str((DimConst(0),) * 3) and not program.grid.over
    assert parse("program p(n) grid(0, 0, 0) { buffer x: u32[n] write\n x[global_id.x] = 1 }").grid == program.grid


@pytest.mark.parametrize("value", ["sum", "number", "branch"])
def test_a_value_of_a_block_that_has_ended_is_refused_with_its_name_and_the_cure(value: str) -> None:
    b = vp.ProgramBuilder("sums")
    n = b.dim("n")
    x, y = b.read("x", vp.f32, n), b.write("y", vp.f32, n)
    total = vp.const(0.0, vp.f32)
    with b.if_(x[0] > 0.0):
        with b.for_(0, n) as k:
            total = total + x[k]
        v = x[1] * 2.0
        if value == "sum":
            with pytest.raises(vp.ValidationError) as caught:
                y[0] = total  # here: sum
        if value == "number":
            with pytest.raises(vp.ValidationError) as caught:
                y[k] = 1.0  # here: number
    if value == "branch":
        with b.else_(), pytest.raises(vp.ValidationError) as caught:
            y[0] = v  # here: branch
    (found,) = caught.value.diagnostics
    assert found.code == "V108" and found.place is not None and found.place.line == place_of(value)
    wanted = {
        "sum": ("`total = total + x[k]`", "total = b.var('total', vp.f32)"),
        "number": ("b.for_ block at", "b.var('v', vp.u32)"),
        "branch": ("b.if_ block at", "v = b.var('v', vp.f32)"),
    }
    assert all(words in str(found) for words in wanted[value])


def test_values_stay_in_reach_to_the_end_of_their_block() -> None:
    with vp.ProgramBuilder("reach") as b:
        n = b.dim("n")
        x, y = b.read("x", vp.f32, n), b.write("y", vp.f32, n)
        i = b.global_id(0)
        first = x[i]
        with b.if_(first > 0.0):
            second = first + 1.0
            with b.for_(0, n) as k, b.if_(k > 3):
                y[i] = second * first
            third = second + first
            with b.region("inner"):
                y[i] = third
        with b.else_():
            y[i] = first
        y[i] = first
    check(b.program)


def test_rebinding_a_name_in_a_loop_is_a_warning_at_the_callers_line() -> None:
    with vp.ProgramBuilder("sums") as b:
        n = b.dim("n")
        m = n + 1
        x, y = b.read("x", vp.f32, n), b.write("y", vp.f32, n)
        i, s = b.global_id(0), vp.const(0.0, vp.f32)
        s += x[i]  # in no loop
        with b.if_(s > 0.0):
            s += 1.0  # in no loop
            y[i] = s
        s = x[i]
        with b.loop(), b.if_(s > 1.0):
            m += 1  # a size, known now
            with pytest.warns(vp.ProgramWarning, match="B109 .*b.loop loop") as given:
                s *= 2.0  # here: rebound
            own = s + 1.0
            own -= 2.0  # a value of the loop itself
            y[i] = own
            b.break_()
    assert [(found.filename, found.lineno) for found in given] == [(__file__, place_of("rebound"))]
    check(b.program)


def test_a_comparison_that_is_always_true_or_false_is_a_warning_at_the_callers_line() -> None:
    b = vp.ProgramBuilder("edges")
    y = b.write("y", vp.f32, b.dim("n"))
    i = b.global_id(0)
    with b.if_(i - 1 < 0):  # here: below
        y[i] = 1.0
    with b.if_(i >= 1):
        y[i] = 2.0
    with pytest.warns(vp.ProgramWarning) as given, b:
        pass
    assert [(found.filename, found.lineno) for found in given] == [(__file__, place_of("below"))]
    assert "V471" in str(given[0].message) and [found.code for found in check(b.program).warnings] == ["V471"]


def test_a_block_left_open_is_refused_at_its_own_line() -> None:
    def by_a_generator(b: vp.ProgramBuilder) -> object:
        def inside() -> Iterator[None]:
            with b.region("r"):  # here: generator
                yield

        held = inside()
        next(held)
        return held

    def by_an_error(b: vp.ProgramBuilder) -> object:
        with contextlib.suppress(KeyError), b.loop():  # here: error
            raise KeyError
        return None

    for leave, mark in ((by_a_generator, "generator"), (by_an_error, "error")):
        with pytest.raises(vp.ValidationError, match="has not ended") as caught, vp.ProgramBuilder("open") as b:
            held = leave(b)
        assert caught.value.codes == ("B107",)
        place = caught.value.diagnostics[0].place
        assert place is not None and place.line == place_of(mark)
        del held
    b = vp.ProgramBuilder("twice")
    block = b.region("r")
    with block:
        pass
    with pytest.raises(vp.ValidationError, match="B107"):
        block.__exit__(None, None, None)
