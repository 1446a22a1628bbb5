"""Products of tiles on a CPU: factors are packed where they lie, sums stay in registers, and every element is the chain that the interpreter has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import vyre_py as vp
from vyre_py.ir.language.types import Type
from vyre_py.lowering.compile import compile_for, emit_text
from vyre_py.lowering.llvm.large import Size
from vyre_py.lowering.target import parse_target
from vyre_py.lowering.tiles.packing import micro_kernel

Arrays = Mapping[str, np.ndarray[Any, Any]]


def product(
    t: Type, sums: Type, m: int, n: int, k: int, *, turn_a: bool = False, turn_b: bool = False, widened: Type | None = None, signed: bool = False,
    batch: bool = False,
) -> vp.Program:  # fmt: skip
    """c = a b of any sizes, with tiles that lie anywhere."""
    with vp.TileBuilder("product") as b:
        rows, columns, depth = b.dim("m"), b.dim("n"), b.dim("k")
        front = [b.dim("batch")] if batch else []
        x = b.read("x", t, *front, *((depth, rows) if turn_a else (rows, depth)))
        y = b.read("y", t, *front, *((columns, depth) if turn_b else (depth, columns)))
        z = b.write("z", sums, *front, rows, columns)
        b.grid(vp.ceil_div(columns, n) + 1, vp.ceil_div(rows, m) + 1, *front)
        i, j = b.workgroup_id(1) * m, b.workgroup_id(0) * n
        if signed:  # the first tiles begin outside
            i, j = vp.cast(i, vp.i32) - 3, vp.cast(j, vp.i32) - 2
        g = [b.workgroup_id(2)] if batch else []
        acc = b.var("acc", sums, shape=(m, n))
        with b.for_(0, depth, k) as p:
            left = x.tile(*g, p, i, shape=(k, m)).T if turn_a else x.tile(*g, i, p, shape=(m, k))
            right = y.tile(*g, j, p, shape=(n, k)).T if turn_b else y.tile(*g, p, j, shape=(k, n))
            if widened is not None:
                left, right = vp.cast(left, widened), vp.cast(right, widened)
            acc.set(vp.mma(left, right, acc))
        z[*g, i, j] = acc
    return b.program


def random(t: Type, rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    if not t.is_float:
        return rng.integers(-100 if t.is_signed else 0, 100, shape).astype(t.dtype)
    return rng.standard_normal(shape).astype(t.dtype)


def same_as_interpreted(program: vp.Program, given: Arrays, sizes: Mapping[str, int] | None = None) -> None:
    made = [vp.device(kind).compile_native(program).dispatch({**given, **(sizes or {})}) for kind in ("cpu", "reference")]
    for name, array in made[1].items():
        np.testing.assert_array_equal(made[0][name].view(np.uint8), array.view(np.uint8), err_msg=name)


CASES = [
    (vp.f32, vp.f32, (64, 64, 32), {}),
    (vp.f32, vp.f32, (13, 21, 7), {"signed": True}),
    (vp.f32, vp.f32, (13, 21, 7), {"turn_a": True, "turn_b": True, "signed": True}),
    (vp.f32, vp.f32, (32, 16, 16), {"turn_b": True, "batch": True}),
    (vp.f32, vp.f32, (1, 40, 8), {"turn_a": True}),
    (vp.f32, vp.f32, (24, 1, 8), {}),
    (vp.f64, vp.f64, (10, 12, 6), {"turn_b": True}),
    (vp.bf16, vp.f32, (32, 48, 16), {}),
    (vp.bf16, vp.f32, (16, 20, 9), {"turn_a": True, "turn_b": True, "widened": vp.f32}),
    (vp.f16, vp.f32, (7, 8, 8), {"turn_b": True}),
    (vp.i8, vp.i32, (16, 24, 16), {"turn_b": True}),
    (vp.u8, vp.i32, (9, 33, 5), {"turn_a": True}),
]


@pytest.mark.parametrize(("t", "sums", "shape", "how"), CASES, ids=str)
def test_factors_that_are_loaded_for_a_product_are_packed(t: Type, sums: Type, shape: tuple[int, int, int], how: dict[str, Any]) -> None:
    program = product(t, sums, *shape, **how)
    text = emit_text(program, "cpu", form="vir")
    assert len(re.findall(r"^ *pack ", text, re.MULTILINE)) == 2 and text.count("packed_product") == 1
    rng = np.random.default_rng(3)
    for m, n, k in ((shape[0] + 5, shape[1] + 3, 2 * shape[2] + 1), (2 * shape[0], 2 * shape[1], shape[2])):
        front = [2] if how.get("batch") else []
        x = random(t, rng, *front, *((k, m) if how.get("turn_a") else (m, k)))
        y = random(t, rng, *front, *((n, k) if how.get("turn_b") else (k, n)))
        same_as_interpreted(program, {"x": x, "y": y})


@pytest.mark.parametrize("t", [vp.f32, vp.u8], ids=str)
def test_a_product_beside_code_of_one_lane_has_the_same_bits(t: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where code would take much stack it has fewer lanes, and vectors of products are as wide as ever."""
    monkeypatch.setattr(Size, "stack_bytes", lambda self, level, lanes: (lanes - 1) << 30)
    program = product(t, vp.i32 if t is vp.u8 else t, 24, 40, 8)
    (part,) = compile_for(program, [parse_target("cpu")]).parts
    assert part.steps[0].entries[0].details["lanes"] == 1
    rng = np.random.default_rng(7)
    same_as_interpreted(program, {"x": random(t, rng, 53, 17), "y": random(t, rng, 17, 45)})


@pytest.mark.parametrize("target", ["cpu:x86-64", "cpu:x86-64-v4", "cpu:aarch64"])
def test_every_cpu_has_a_micro_kernel(target: str) -> None:
    """Compiled, that is: what registers there are decides on the block of sums, which none of them spills."""
    assert "packed_product" in emit_text(product(vp.f32, vp.f32, 32, 32, 16), target, form="vir")
    assert emit_text(product(vp.f32, vp.f32, 32, 32, 16), target, form="asm")


def test_blocks_of_sums_leave_registers_for_factors() -> None:
    for vector_bytes, registers, sums in ((32, 16, (6, 2)), (64, 32, (14, 2)), (16, 32, (9, 3)), (16, 16, (6, 2))):
        kernel = micro_kernel(vector_bytes, registers)
        assert (kernel.down, kernel.across) == sums
        assert kernel.down * kernel.across + kernel.across < registers


def test_the_inner_loop_has_whole_vectors_and_no_memory_but_factors() -> None:
    text = emit_text(product(vp.f32, vp.f32, 60, 64, 32), "cpu:x86-64-v3", form="asm")
    body = text[text.index("product.2:") : text.index(".size\tproduct.2")]
    loop = max(re.split(r"^\.LBB.*:.*\n|^\tj.*\n", body, flags=re.MULTILINE), key=lambda block: block.count("vfmadd"))
    assert loop.count("vfmadd") == 4 * 12
    assert not re.search(r"mask|gather|%rsp|, [-\w]*\(", loop)  # no spills, and no store at all


# ---------------------------------------------------------------- variables and values that lie in memory


def test_a_variable_of_sums_is_read_and_set_between_products() -> None:
    with vp.TileBuilder("between") as b:
        x, y, z = b.read("x", vp.f32, 40, 40), b.read("y", vp.f32, 40, 40), b.write("z", vp.f32, 4, 40, 40)
        b.grid(1)
        acc = b.var("acc", vp.f32, 1.5, shape=(40, 40))
        with b.for_(0, 40, 8) as k:
            acc.set(vp.mma(x.tile(0, k, shape=(40, 8)), y.tile(k, 0, shape=(8, 40)), acc))
            with b.if_(k == 16):
                before = b.let("before", acc.get())
                acc.set(before.T * 0.5)
                z[0, 0, 0] = before.reshape((1, 40, 40))
        held = b.let("held", acc.get())
        acc.set(vp.mma(x.tile(0, 0, shape=(40, 8)), y.tile(0, 0, shape=(8, 40)), held * 2.0))
        z[1, 0, 0] = held.reshape((1, 40, 40))
        z.tile_store((2, 0, 0), acc, axes=(1, 2))
        z.tile_store((3, 0, 0), held + acc, axes=(1, 2))
    same_as_interpreted(b.program, {name: random(vp.f32, np.random.default_rng(5), 40, 40) for name in "xy"})


def test_factors_that_are_computed_or_used_twice_are_stored_by_invocations() -> None:
    with vp.TileBuilder("computed") as b:
        m, n = b.dim("m"), b.dim("n")
        x, z, w = b.read("x", vp.f32, m, n), b.write("z", vp.f32, m, m), b.write("w", vp.f32, m, n)
        b.grid(1)
        rows = x.tile(0, 0, shape=(24, 20))
        gram = vp.mma(rows, rows.T, b.fill(0.0, (24, 24), vp.f32))
        z[0, 0] = gram
        w[0, 0] = vp.mma(vp.exp(gram * 0.125), rows, vp.mma(gram, rows, b.fill(1.0, (24, 20), vp.f32)))
    program = b.program
    assert "pack " not in emit_text(program, "cpu", form="vir").replace("unpack ", "")
    same_as_interpreted(program, {"x": random(vp.f32, np.random.default_rng(7), 23, 19)})


def test_products_in_a_buffer_that_is_written_come_in_order() -> None:
    with vp.TileBuilder("in_place") as b:
        x = b.read_write("x", vp.f32, 33, 33)
        b.grid(1)
        with b.for_(0, 3):
            x[0, 0] = vp.mma(x.tile(0, 0, shape=(34, 34)), x.tile(0, 0, shape=(34, 34)), b.fill(0.5, (34, 34), vp.f32))
            x[-1, 30] = vp.mma(x.tile(0, 0, shape=(5, 34)), x.tile(0, 1, shape=(34, 8)), x.tile(2, 2, shape=(5, 8)))
    same_as_interpreted(b.program, {"x": random(vp.f32, np.random.default_rng(9), 33, 33) * np.float32(0.1)})


def test_a_product_past_what_workgroup_memory_holds_goes_by_exchanges() -> None:
    program = product(vp.f32, vp.f32, 256, 256, 8)
    assert "packed_product" not in emit_text(program, "cpu", form="vir")


def test_tiles_at_the_last_offsets_are_outside() -> None:
    """No index wraps, whatever the offset."""
    with vp.TileBuilder("last") as b:
        n, at = b.dim("n"), b.param("at", vp.u32)
        x, y = b.read("x", vp.f32, n), b.write("y", vp.f32, n)
        b.grid(1)
        y[0] = x.tile(at, shape=32) + 1.0
        y[at] = b.fill(9.0, (64,), vp.f32)
    for at in (0, 5, 40, (1 << 32) - 1, (1 << 32) - 16, (1 << 32) - (1 << 18), 1 << 31):
        same_as_interpreted(b.program, {"x": random(vp.f32, np.random.default_rng(11), 40)}, {"at": at})


def test_sizes_that_factors_and_results_alone_have_are_known() -> None:
    with vp.TileBuilder("sizes") as b:
        n = b.dim("n")
        x, y, z = b.read("x", vp.f32, n + 2, n * 3), b.read("y", vp.f32, n * 3, n + 1), b.write("z", vp.f32, n + 4, n + 5)
        b.grid(1)
        z[0, 0] = vp.mma(x.tile(0, 0, shape=(16, 32)), y.tile(0, 0, shape=(32, 16)), b.fill(0.0, (16, 16), vp.f32))
    rng = np.random.default_rng(13)
    same_as_interpreted(b.program, {"x": random(vp.f32, rng, 9, 21), "y": random(vp.f32, rng, 21, 8)}, {"n": 7})
