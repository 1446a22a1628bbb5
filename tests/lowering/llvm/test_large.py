"""Programs of many statements: LLVM gets the stack that it needs, levels that take linear time, and no more than it can do in some minutes."""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from children import child_environment
from generator import Seeded, generate
from test_generated import assert_agrees

import vyre_py as vp
from vyre_py.ir.language.nodes import Statement
from vyre_py.ir.passes import rewriter
from vyre_py.ir.passes.rewriter import Rewriter
from vyre_py.lowering import kinds
from vyre_py.lowering.compile import compile_for, emit_text
from vyre_py.lowering.llvm import large, text
from vyre_py.lowering.llvm.cpu import host
from vyre_py.lowering.llvm.gpu.nvvm import libnvvm
from vyre_py.lowering.llvm.large import Size, measure
from vyre_py.lowering.llvm.text import ModuleText, Writer
from vyre_py.lowering.llvm.types import bytes_literal
from vyre_py.lowering.target import parse_target

CHAIN = """
import sys
import vyre_py as vp
with vp.ProgramBuilder("chain") as b:
    n = b.dim("n")
    x = b.read_write("x", vp.u32, n)
    i = b.global_id(0)
    v, w = x[i], x[i + 1]
    for k in range(2500):
        v = vp.popcount(v) + w
    x[i] = v
vp.compile_native(b.program, [sys.argv[1]])
"""


@pytest.mark.parametrize("target", ["cpu:x86-64-v4", "compute_90"])
def test_a_long_chain_does_not_overflow_the_stack(target: str) -> None:
    """In a process whose main thread has 256 KiB; LLVM takes more for 5,000 statements, and some 10 MiB for 60,000."""

    def little_stack() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (256 << 10, resource.getrlimit(resource.RLIMIT_STACK)[1]))

    done = subprocess.run(
        [sys.executable, "-c", CHAIN, target], env=child_environment(VYRE_CACHE_LIMIT="0"), preexec_fn=little_stack, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def many(write: Callable[[vp.ProgramBuilder, Any, Any, int], object], count: int) -> vp.Program:
    """What `write` makes of the builder, a buffer, the invocation's number and 0 up to `count`."""
    with vp.ProgramBuilder("many") as b:
        n = b.dim("n")
        x = b.read_write("x", vp.u32, n)
        i = b.global_id(0)
        b.over(n)
        for k in range(count):
            write(b, x, i, k)
    return b.program


def chain(statements: int) -> vp.Program:
    with vp.ProgramBuilder("chain") as b:
        n = b.dim("n")
        x = b.read_write("x", vp.u32, n)
        i = b.global_id(0)
        v = x[i]
        for k in range(statements // 2):
            v = (v ^ i) * (2 * k + 3)
        x[i] = v
    return b.program


@pytest.mark.parametrize("target", ["cpu", "compute_90"])
@pytest.mark.parametrize("opt", [0, 3])
def test_too_many_statements_are_refused_before_they_are_written(monkeypatch: pytest.MonkeyPatch, target: str, opt: int) -> None:
    kind = parse_target(target).kind
    monkeypatch.setitem(kinds.KINDS, kind, replace(kinds.KINDS[kind], most=800))
    options = vp.CompileOptions(opt=opt)
    vp.compile_native(chain(700), [target], options)
    dead = many(lambda b, x, i, k: x[i + k] * k if k else x.__setitem__(i, i), 1000)
    if opt:  # a first round of the passes drops what is dead
        vp.compile_native(dead, [target], options)
    with pytest.raises(vp.Unsupported, match=rf"^{target} does not support a Program of 1,00\d statements \(at most 800 are compiled"):
        vp.compile_native(chain(1000), [target], options)


@pytest.mark.parametrize("target", ["cpu", "compute_90"])
def test_lines_are_counted_while_they_are_written(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """Stores take several lines each: what they will come to is said long before the last."""
    monkeypatch.setattr(text, "MOST_LINES", 800)
    stores = many(lambda b, x, i, k: x.__setitem__(i * k, i), 1000)
    written: list[str] = []
    add = Writer._add
    monkeypatch.setattr(Writer, "_add", lambda w, line: (written.append(line), add(w, line))[1])
    with pytest.raises(vp.Unsupported, match=r"a Program that makes (\d+),\d+ lines of LLVM IR \(at most 800 are compiled"):
        vp.compile_native(stores, [target])
    assert 500 < len(written) < 1600  # of all functions that are being written, where each may have 800


@pytest.mark.parametrize("target", ["cpu", "compute_90", "wgsl", "reference"])
def test_what_a_program_becomes_is_bounded(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """A million ops of 200 statements each would take all memory; 1,000 are let go here, and counted."""
    monkeypatch.setattr(rewriter, "MAX_STATEMENTS", 1000)
    longest = 0
    emit = Rewriter.emit

    def counted(writer: Rewriter, statement: Statement) -> None:
        nonlocal longest
        emit(writer, statement)
        longest = max(longest, len(writer.body))

    monkeypatch.setattr(Rewriter, "emit", counted)
    with pytest.raises(vp.Unsupported, match=rf"^{target} does not support a Program of \d+,\d+ statements \(at most 1,000 are compiled, counting what"):
        vp.compile_native(many(lambda b, x, i, k: x.__setitem__(i + k, vp.cast(vp.erf(vp.cast(x[i], vp.f32) * k), vp.u32)), 300), [target])
    assert 1000 < longest < 1500


def test_a_straight_body_of_many_statements_computes_what_it_says() -> None:
    """Past the length at which LLVM's levels are lowered."""
    program = chain(6000)
    x = np.array([1, 2, 3, 5], np.uint32)
    expected, i = x.copy(), np.arange(4, dtype=np.uint32)
    for k in range(3000):
        expected = (expected ^ i) * np.uint32(2 * k + 3)
    np.testing.assert_array_equal(vp.device("cpu").compile_native(program).dispatch(x=x)["x"], expected)


def test_a_size_counts_code_and_not_what_is_said_of_it() -> None:
    module = "define void @f() {\nstart:\n  %a = add i32 1, 2\n  br i1 %c, label %start, label %b\nb:\n  ret void\n}\n!0 = !{}\n"
    assert measure(module) == Size(7, 2, 3)
    cut = "define void @f() {\nstart:\n  %a = add i32 1, 2\n  br label %cut.1\ncut.1:\n  ret void\n}\n"
    assert measure(cut) == Size(7, 3, 0)
    ptx = (
        ".entry f()\n{\n\tmov.b32 \t%r1, 0;\n$L__BB0_1:          // comment\n\tadd.s32 \t%r1, %r1, 1;\n"
        "\t@%p1 bra \t$L__BB0_1;\n\tbra.uni \t$L__BB0_2;\n$L__BB0_2:\n\tret;\n}\n"
    )
    assert measure(ptx) == Size(10, 3, 3)


def test_what_a_size_calls_for() -> None:
    plain, straight, nested, long = Size(5000, 3000, 10_000), Size(5000, 4000, 10_000), Size(5000, 100, 300_000), Size(30_000, 100, 300_000)
    assert [s.large for s in (plain, straight, nested, long)] == [False, True, True, True]
    assert [s.generation(3) for s in (plain, straight, nested, long)] == [3, 0, 0, 0]
    assert [s.assembler(4) for s in (plain, straight, nested, long)] == [4, 4, 1, 4] and nested.assembler(0) == 0


def nest(depth: int) -> vp.Program:
    """Loops within loops."""
    with vp.ProgramBuilder("nest") as b:
        n = b.dim("n")
        x = b.read_write("x", vp.u32, n)
        i = b.global_id(0)
        with ExitStack() as stack:
            for _ in range(depth):
                stack.enter_context(b.for_(0, x[i] & 3))
                x[i] = x[i] + 1
    return b.program


@pytest.mark.parametrize("target", ["cpu", "compute_90"])
def test_the_spans_of_branches_are_lines_times_depth(target: str) -> None:
    options = vp.CompileOptions(opt=0)
    shallow, deep, deepest = [measure(emit_text(nest(depth), target, options, form="llvm")) for depth in (20, 40, 250)]
    assert deep.lines < 2.1 * shallow.lines and 3.5 * shallow.spanned < deep.spanned < 4.5 * shallow.spanned
    assert not deep.large and deepest.large and deepest.generation(3) == 0


def test_deep_nesting_is_assembled_at_a_lower_level() -> None:
    """Also by the driver, to which an entry says the level."""
    levels = [vp.compile_native(nest(depth), ["compute_90"]).parts[0].steps[0].entries[0].details["assembler_level"] for depth in (3, 250)]
    assert levels == [4, 1]


@pytest.mark.parametrize("target", ["cpu", "compute_90"])
def test_straight_code_is_cut_into_blocks_and_stays_so(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """LLVM's passes over it join no blocks again: its code generation takes time with the square of a block."""
    seen: list[list[int]] = []
    optimise = Size.optimise

    def watched(size: Size, module: Any, builder: Any) -> None:
        optimise(size, module, builder)
        seen.append([sum(1 for _ in block.instructions) for function in module.functions for block in function.blocks])

    monkeypatch.setattr(Size, "optimise", watched)
    monkeypatch.setattr(large, "_STRAIGHT_LINES", 400)
    monkeypatch.setattr(text, "_BLOCK_LINES", 50)
    assert measure(emit_text(chain(500), target, form="llvm")).straight > 500
    vp.compile_native(chain(500), [target])
    assert sum(seen[-1]) > 500 and max(seen[-1]) <= 51


@pytest.mark.parametrize("number", range(16))
def test_large_code_means_the_same(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Generated Programs on the CPU, cut into short blocks, through the passes and the code generation of large ones."""
    monkeypatch.setattr(text, "_BLOCK_LINES", 8)
    monkeypatch.setattr(large, "_STRAIGHT_LINES", 1)
    assert_agrees(vp.device("cpu"), generate(Seeded(7100 + number)))


def test_libnvvm_leaves_large_code_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its passes take time with the square of a module's size."""
    given: list[Sequence[str]] = []
    monkeypatch.setattr(libnvvm, "_takes_version", lambda: False)
    monkeypatch.setattr(libnvvm, "_compile", lambda module, options: given.append(options) or "ret;")
    monkeypatch.setattr(libnvvm, "_bounded", lambda ptx, arch: ptx)
    monkeypatch.setattr(large, "_STRAIGHT_LINES", 400)
    for program in (chain(20), chain(500)):
        libnvvm.assemble(emit_text(program, "compute_90", vp.CompileOptions(codegen="nvvm"), form="llvm"), "sm_90", 3, fast=False)
    assert ["-opt=3" in given[0], "-opt=0" in given[1]] == [True, True]


def test_many_tables_are_declared_in_linear_time() -> None:
    """Each once, although both kernels of a module write them."""
    module = ModuleText()
    for _ in range(2):
        for number in range(3):
            module.add_global(f"@t{number} = internal constant {bytes_literal(bytes([number, 255]))}")
    assert str(module).splitlines()[1] == '@t1 = internal constant [2 x i8] c"\\01\\FF"' and len(str(module).splitlines()) == 3


def test_a_stack_of_its_own_leaves_other_threads_as_they_were_and_raises_what_is_raised() -> None:
    before = threading.stack_size()
    assert Size(10**5, 10, 10).run(lambda: threading.current_thread().name) == "vyre-llvm"
    assert Size(100, 10, 10).run(lambda: threading.current_thread() is threading.main_thread())
    assert threading.stack_size() == before
    with pytest.raises(ZeroDivisionError):
        Size(10**5, 10, 10).run(lambda: 1 // 0)


def division_chain(type_: vp.Type, count: int) -> vp.Program:
    """x[i] divided by y[i], y[i] + 1, ... so many times, with a remainder for every other one."""
    with vp.ProgramBuilder("divisions") as b:
        n = b.dim("n")
        x, y = b.read_write("x", type_, n), b.read("y", type_, n)
        i = b.global_id(0)
        value, divisor = x[i], y[i]
        for k in range(count):
            value = value // (divisor + k) + value % (divisor - k)
        x[i] = value
    return b.program


def test_each_of_many_wide_divisions_takes_little_code() -> None:
    """For CPUs that divide small numbers faster LLVM writes a division of 16 lanes as 16 with branches each, and takes time with the square of their number.
    Of the two shorter chains all stand in the kernel, in the code of chunks that lie inside and of others."""
    few, many, more = [len(vp.compile_native(division_chain(vp.i64, count), ["cpu:x86-64-v4"]).parts[0].steps[0].images[0].code) for count in (2, 4, 48)]
    assert (more - many) / 44 < (many - few) / 2 / 2, (few, many, more)


@pytest.mark.parametrize("type_", [vp.i64, vp.u64], ids=str)
def test_many_wide_divisions_are_right(type_: vp.Type) -> None:
    program, ends = division_chain(type_, 60), np.iinfo(type_.dtype)
    random = np.random.default_rng(7)
    edges = [np.array(values, type_.dtype) for values in ((ends.min, ends.max, 0, ends.min), (ends.max, 0, 0, 1))]
    drawn = [random.integers(low, high, 1000, type_.dtype) for low, high in ((ends.min, ends.max), (0, 50))]
    x, y = [np.concatenate(pair) for pair in zip(edges, drawn, strict=True)]
    made = [vp.device(kind).compile_native(program).dispatch({"x": x.copy(), "y": y})["x"] for kind in ("reference", "cpu")]
    assert (made[0] == made[1]).all()


def test_code_that_would_take_much_stack_has_fewer_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """At level 0 of code generation every value lies on the stack."""
    program, x = division_chain(vp.u32, 20), np.arange(1, 101, dtype=np.uint32)
    given = {"x": x * 1000, "y": x}

    def lanes_of(opt: int, name: str = "cpu") -> int:
        artifact = compile_for(program, [parse_target(name)], vp.CompileOptions(opt=opt))
        found = vp.device("cpu").load(artifact).dispatch(given)["x"]
        assert (found == vp.device("reference").compile_native(program).dispatch(given)["x"]).all()
        return int(artifact.parts[0].steps[0].entries[0].details["lanes"])

    wide = lanes_of(0)
    monkeypatch.setattr(host, "_MOST_STACK_BYTES", 6000)
    assert lanes_of(0) < wide == lanes_of(3)
    with pytest.raises(vp.Unsupported, match="code of 8 lanes that takes some 0 MiB of stack a call"):
        lanes_of(0, "cpu:native:8")
