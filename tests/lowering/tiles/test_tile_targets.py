"""What targets make of Programs of tiles: instructions of tensor cores and what the assembler says of them, and what does not fit."""

from __future__ import annotations

import os
import re
from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest
from device_kinds import need_nvjitlink

import vyre_py as vp
from vyre_py.ir.language.nodes import StripCopy, WarpgroupRegisters
from vyre_py.ir.language.types import Type
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.compile import compile_for, emit_text
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.llvm.gpu.machine_code import nvjitlink
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target, parse_target
from vyre_py.lowering.tiles.cores import for_rings
from vyre_py.lowering.tiles.grid_walk import walks_grid
from vyre_py.lowering.tiles.targets import copies_ahead, ptx_tiles

LARGE, SMALL, MIDDLE = (128, 256, 64), (64, 64, 32), (128, 128, 64)


def matmul(
    t: Type, m: int, n: int, k: int, *, turned: bool = False, tensor: bool = True, pipeline: int = 0, to: Type | None = None, sums: Type | None = None
) -> vp.Program:  # fmt: skip
    """c = a b, where b lies by columns if it is `turned`."""
    with vp.TileBuilder("matmul") as b:
        rows, columns, depth = b.dim("m"), b.dim("n"), b.dim("k")
        sums = sums or (vp.i32 if not t.is_float else vp.f64 if t is vp.f64 else vp.f32)
        x, z = b.read("x", t, rows, depth), b.write("z", to or sums, rows, columns)
        y = b.read("y", t, *((columns, depth) if turned else (depth, columns)))
        b.grid(vp.ceil_div(columns, n), vp.ceil_div(rows, m))
        i, j = b.workgroup_id(1) * m, b.workgroup_id(0) * n
        acc = b.var("acc", sums, shape=(m, n))
        with b.for_(0, depth, k, pipeline=pipeline) as p:
            right = y.tile(j, p, shape=(n, k)).T if turned else y.tile(p, j, shape=(k, n))
            acc.set(vp.mma(x.tile(i, p, shape=(m, k)), right, acc, tensor=tensor))
        z[i, j] = acc if to is None else vp.cast(acc, to)
    return b.program


def softmax() -> vp.Program:
    with vp.TileBuilder("softmax") as b:
        rows, n = b.dim("rows"), b.dim("n")
        x, y = b.read("x", vp.f32, rows, n), b.write("y", vp.f32, rows, n)
        b.grid(rows)
        row = x.tile(b.workgroup_id(0), 0, shape=(None, 1024))
        inside = b.iota(0, 1024) < n
        made = vp.select(inside, vp.exp(row - vp.select(inside, row, -np.inf).reduce("max", 0)), 0.0)
        y[b.workgroup_id(0), 0] = made / made.reduce("add", 0)
    return b.program


# Target, elements, shape, whether b lies by columns, and the instruction that computes the product.
CORES = [
    ("sm_75", vp.f16, SMALL, False, ""),
    ("sm_80", vp.bf16, LARGE, False, "mma.sync"),
    ("sm_86", vp.f16, SMALL, True, "mma.sync"),
    ("sm_90", vp.bf16, MIDDLE, True, "mma.sync"),
    ("sm_90a", vp.bf16, LARGE, False, "wgmma"),
    ("sm_90a", vp.f16, MIDDLE, True, "wgmma"),
    ("sm_100", vp.f16, MIDDLE, False, "mma.sync"),
    ("sm_120", vp.bf16, SMALL, False, "mma.sync"),
    ("sm_80", vp.f32, SMALL, False, "mma.sync"),
    ("sm_90a", vp.f32, (128, 256, 32), True, "wgmma"),
    ("sm_90a", vp.f32, SMALL, False, "mma.sync"),
    ("sm_80", vp.u8, SMALL, True, "mma.sync"),
    ("sm_90a", vp.i8, (128, 256, 128), True, "wgmma"),
    ("sm_90a", vp.i8, SMALL, True, "mma.sync"),
    ("sm_86", vp.f8e4m3, SMALL, True, ""),
    ("sm_89", vp.f8e4m3, SMALL, True, "mma.sync"),
    ("sm_90a", vp.f8e4m3, (128, 256, 128), True, "wgmma"),
    ("sm_80", vp.f64, SMALL, False, "mma.sync"),
]


@cache
def ptx_of(arch: str, t: Type, shape: tuple[int, int, int], turned: bool) -> str:
    """Stored as bf16 from warpgroups, whose sums nothing may take before they are waited for."""
    return emit_text(matmul(t, *shape, turned=turned, to=t if t is vp.bf16 and arch == "sm_90a" else None), arch.replace("sm_", "compute_"))


@pytest.mark.parametrize(("arch", "t", "shape", "turned", "instruction"), CORES, ids=str)
def test_products_are_computed_by_tensor_cores(arch: str, t: Type, shape: tuple[int, int, int], turned: bool, instruction: str) -> None:
    need_nvjitlink()
    ptx = ptx_of(arch, t, shape, turned)
    found = {name for name in ("mma.sync", "wgmma") if re.search(rf"\b{re.escape(name)}", ptx)}
    assert found == ({instruction} if instruction else set())
    linked = nvjitlink.link(ptx.encode(), arch, name="matmul")
    assert "wgmma" not in linked.log and "C7510" not in linked.log and "serializ" not in linked.log, linked.log
    # One entry is for memory that is copied wide, one for any arguments.
    assert set(re.findall(r"\.entry (\w+)", ptx)) == set(linked.resources)
    assert all(one["spill_store_bytes"] == one["spill_load_bytes"] == 0 for one in linked.resources.values()), linked.log


# A target, factors, their tiles, sums, the name of these in a report, and products added at once, the bits at which they are cut, those that are kept, and of
# how many there is an own sum, where that is known.
MODELS = [
    ("sm_80", vp.bf16, SMALL, vp.f32, "bf16", (8, 24, 24)), ("sm_89", vp.f32, SMALL, vp.f32, "f32", (4, 24, 24)),
    ("sm_90", vp.f16, SMALL, vp.f16, "f16_to_f16", (16, 25, 11)), ("sm_80", vp.f16, SMALL, vp.f16, "f16_to_f16", (8, 24, 11)),
    ("sm_90a", vp.bf16, MIDDLE, vp.f32, "bf16", (16, 25, 24)), ("sm_90a", vp.f32, (64, 64, 32), vp.f32, "f32", (8, 25, 24)),
    ("sm_90a", vp.f8e4m3, (128, 128, 128), vp.f32, "f8e4m3", (32, 13, 14)), ("sm_90", vp.f8e5m2, SMALL, vp.f32, "f8e5m2_warps", (16, 25, 24, 32)),
    ("sm_89", vp.f8e4m3, SMALL, vp.f32, "f8e4m3", ()), ("sm_120", vp.bf16, SMALL, vp.f32, "bf16", ()),
    ("sm_90", vp.i8, SMALL, vp.i32, "i8", ()), ("sm_90", vp.f64, SMALL, vp.f64, "f64", ()), ("cpu", vp.bf16, SMALL, vp.f32, "bf16", ()),
]  # fmt: skip


def said(name: str, model: tuple[int, ...]) -> dict[str, int]:
    return dict(zip([f"tensor_{name}_{field}" for field in ("at_once", "bits", "kept", "own")], model, strict=False))


def said_by(program: vp.Program, target: str) -> dict[str, int]:
    """What the artifact of a Program says of tensor cores."""
    need_nvjitlink()
    report = Artifact.from_bytes(vp.compile_native(program, [target]).to_bytes()).parts[0].report
    return {name: value for name, value in report.items() if name.startswith("tensor_")}


@pytest.mark.parametrize(("target", "t", "shape", "sums", "name", "model"), MODELS, ids=str)
def test_an_artifact_says_how_tensor_cores_add(target: str, t: Type, shape: tuple[int, int, int], sums: Type, name: str, model: tuple[int, ...]) -> None:
    """Of sm_90 what the interpreter computes."""
    assert said_by(matmul(t, *shape, turned=t is not vp.bf16, sums=sums), target) == said(name, model)


# A target, factors, and of two products in either order their tiles, their sums, and what is said of them.
TOGETHER = [
    ("sm_90", vp.f16, (SMALL, vp.f32, "f16", (16, 25, 24)), (SMALL, vp.f16, "f16_to_f16", (16, 25, 11))),
    ("sm_90a", vp.f8e4m3, ((128, 128, 128), vp.f32, "f8e4m3", (32, 13, 14)), ((32, 32, 32), vp.f32, "f8e4m3_warps", (16, 25, 24, 32))),
]  # fmt: skip


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("target", "t", "one", "other"), TOGETHER, ids=str)
def test_an_artifact_says_of_each_of_two_products_how_it_is_added(target: str, t: Type, one: tuple[Any, ...], other: tuple[Any, ...], turned: bool) -> None:
    """By warpgroups and by warps, or of other sums: neither hides the other."""
    products = (other, one) if turned else (one, other)
    with vp.TileBuilder("two") as b:
        x, y = b.read("x", t, 256, 256), b.read("y", t, 256, 256)
        b.grid(1)
        for number, ((m, n, k), sums, *_) in enumerate(products):
            z, acc = b.write(f"z{number}", sums, 256, 256), b.var(f"acc{number}", sums, shape=(m, n))
            with b.for_(0, 256, k) as p:
                acc.set(vp.mma(x.tile(0, p, shape=(m, k)), y.tile(0, p, shape=(n, k)).T, acc, tensor=True))
            z[0, 0] = acc
    assert said_by(b.program, target) == said(*one[2:]) | said(*other[2:])


@pytest.mark.parametrize(("arch", "shape", "by_itself"), [("compute_80", SMALL, 4), ("compute_86", SMALL, 4), ("compute_90a", LARGE, 4)])
def test_a_ring_has_as_many_strips_as_a_loop_is_deep(arch: str, shape: tuple[int, int, int], by_itself: int) -> None:
    """Each strip more is so many bytes of workgroup memory more; without a depth, or with that which it takes by itself, the code is the same; with 1 there
    are no copies ahead, but for warpgroups, which take factors from strips alone, and have two."""

    def ptx(pipeline: int) -> str:
        return emit_text(matmul(vp.bf16, *shape, pipeline=pipeline), arch)

    def bytes_of(pipeline: int) -> int:
        text = emit_text(matmul(vp.bf16, *shape, pipeline=pipeline), arch, form="vir")
        found = [prod(map(int, extents.split(","))) for extents in re.findall(r"workgroup \S+: bf16\[([\d, ]+)\]", text)]
        return 2 * sum(found)

    one = bytes_of(3) - bytes_of(2)
    assert one > 0 and bytes_of(4) == bytes_of(2) + 2 * one
    assert ptx(0) == ptx(by_itself) != ptx(2)
    if arch == "compute_90a":
        assert ptx(1) == ptx(2) and "wgmma.mma_async" in ptx(1)
    else:
        assert "cp.async" in ptx(2) and "cp.async" not in ptx(1) and "mma.sync" in ptx(1)


def test_the_depth_of_a_loop_changes_no_arithmetic() -> None:
    """Of floats of 8 bits warpgroups keep other bits of sums than warps do."""
    need_nvjitlink()
    reports = [vp.compile_native(vp.ops.matmul(vp.f8e4m3, transpose_b=True, on="sm_90", stages=stages), ["sm_90a"]).parts[0].report for stages in (0, 1, 3)]
    told = [{name: value for name, value in report.items() if name.startswith("tensor_")} for report in reports]
    assert told[0] and told[0] == told[1] == told[2]


AHEAD = [
    ("sm_90", vp.f32, (128, 128, 32), 0, True), ("sm_90", vp.f32, (128, 256, 32), 0, False), ("sm_90", vp.f64, (64, 64, 32), 2, True),
    ("sm_90", vp.f64, (64, 64, 64), 4, False), ("sm_80", vp.f32, (32, 32, 32), 0, False), ("sm_75", vp.f32, (64, 64, 32), 0, False),
]  # fmt: skip


@pytest.mark.parametrize(("arch", "t", "tiles", "stages", "ahead"), AHEAD, ids=str)
def test_a_question_tells_what_is_copied_ahead(arch: str, t: Type, tiles: tuple[int, int, int], stages: int, ahead: bool) -> None:
    program = vp.ops.matmul(t, tiles=tiles, stages=stages)
    assert copies_ahead(program, Target("ptx", arch)) == ahead == ("cp.async" in emit_text(program, arch.replace("sm_", "compute_")))


@pytest.mark.parametrize(("pipeline", "turned"), [(3, True), (2, True), (3, False)])
def test_a_warp_loads_a_step_ahead_and_copies_behind_its_loads(pipeline: int, turned: bool) -> None:
    """Loads would wait for copies to workgroup memory. With two strips what is copied is needed in the next turn, so that copies are early."""
    text = emit_text(matmul(vp.bf16, 64, 64, 64, pipeline=pipeline, turned=turned), "compute_80", form="vir")
    turn = re.findall("matrix_load|tensor_core|copy_async", text[text.index("copy_wait") :])
    order = "".join({"matrix_load": "L", "tensor_core": "P", "copy_async": "C"}[word] for word in turn)
    steps, early = re.sub(r"(.)\1*", r"\1", order), pipeline == 2 or not turned
    assert steps == ("LPCLPLPLP" if early else "LPLPLPCP")


def barriers(program: vp.Program, arch: str) -> int:
    return emit_text(program, arch, form="vir").count("barrier")


@pytest.mark.parametrize(("arch", "tiles"), [("compute_80", "medium"), ("compute_90a", "large")])
def test_what_is_loaded_for_sums_lies_as_they_do(arch: str, tiles: str) -> None:
    """No element goes from one invocation to another, which takes barriers."""
    plain = vp.ops.matmul(vp.bf16, tiles=tiles)
    fused = vp.ops.matmul(vp.bf16, tiles=tiles, residual=True, activation="relu")
    assert barriers(fused, arch) == barriers(plain, arch) > 0


@pytest.mark.parametrize(("arch", "to", "stored"), [("compute_90a", vp.bf16, 8), ("compute_80", vp.f16, 8), ("compute_80", vp.f32, 2)], ids=str)
def test_sums_are_stored_in_rows(arch: str, to: Type, stored: int) -> None:
    """Of 16 bits by 16 bytes, which lanes have handed on by shuffles of two elements, of 32 bits by 8 bytes as lanes have them."""
    (wide,) = [text for text in emit_text(matmul(vp.bf16, 64, 64, 64, to=to), arch).split(".entry ") if text.startswith("vyre_matmul_x1(")]
    held = 64 * 64 // 128
    assert wide.count("st.global") == wide.count(f"st.global.v{stored * to.size_bytes // 4}.b32") == held // stored
    assert wide.count("shfl.sync.bfly") == (0 if to is vp.f32 else held // 2)
    assert wide.count("cvt.rn.bf16x2.f32") == (held // 2 if to is vp.bf16 else 0)


@pytest.mark.parametrize(("t", "arch", "shape", "turned", "threads"), [(vp.bf16, "sm_90a", LARGE, False, 256), (vp.u8, "sm_80", SMALL, True, 128)], ids=str)
def test_elements_of_ragged_edges_are_loaded_with_a_predicate(t: Type, arch: str, shape: tuple[int, int, int], turned: bool, threads: int) -> None:
    """A block of LLVM's for each would take it long, and no load would begin before the one before it was decided about."""
    (entry,) = [text for text in ptx_of(arch, t, shape, turned).split(".entry ") if text.startswith("vyre_matmul(")]
    m, n, k = shape
    loads, stores = entry.count("@%in ld.global.nc.b"), entry.count("st.global.b")
    assert loads == entry.count("ld.global") >= (m + n) * k // threads and stores == m * n // threads
    assert len(re.findall(r"^\$L", entry, re.MULTILINE)) < stores + 20


@pytest.mark.parametrize("turned", [False, True])
def test_strict_products_of_large_tiles_spill_nothing(turned: bool) -> None:
    need_nvjitlink()
    ptx = emit_text(vp.ops.matmul(vp.f32, transpose_b=turned, tensor=False, tiles="large"), "compute_90a")
    linked = nvjitlink.link(ptx.encode(), "sm_90a", name="matmul")
    assert all(one["spill_store_bytes"] == one["spill_load_bytes"] == 0 for one in linked.resources.values()), linked.log


FINISH: dict[str, Any] = {"scaled": True, "bias": True, "activation": "gelu", "residual": True}
# Targets, factors, which are transposed, and what follows the product, of ready Programs at their defaults. All of them with VYRE_READY=all.
ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120")
READY = [
    (arch, t, turned, finish)
    for finish in ({}, FINISH) for t in (vp.bf16, vp.f16, vp.f8e4m3, vp.f8e5m2, vp.f32, vp.f64, vp.i8, vp.u8) if t.is_float or not finish
    for turned in ((False, False), (False, True), (True, False), (True, True)) for arch in ARCHITECTURES
]  # fmt: skip
BOTH = {"bias": True, "residual": True}
SOME = [
    ("sm_80", vp.bf16, (False, False), BOTH), ("sm_90", vp.i8, (False, True), {}), ("sm_100", vp.f8e4m3, (False, True), {}),
    ("sm_90a", vp.f64, (False, True), FINISH),
]  # fmt: skip
# Targets, and how long heads are.
HEADS = [(arch, head) for head in (32, 64, 80, 96, 128, 256) for arch in ARCHITECTURES]


@pytest.mark.parametrize(("arch", "t", "turned", "finish"), READY if os.environ.get("VYRE_READY") == "all" else SOME, ids=str)
def test_ready_products_spill_nothing_and_none_waits_for_another(arch: str, t: Type, turned: tuple[bool, bool], finish: dict[str, Any]) -> None:
    need_nvjitlink()
    program = vp.ops.matmul(t, transpose_a=turned[0], transpose_b=turned[1], **finish)
    linked = nvjitlink.link(emit_text(program, arch.replace("sm_", "compute_")).encode(), arch, name="matmul")
    assert not re.search("C7509|C7510|C7514|C7515|serializ", linked.log), linked.log
    assert all(one["spill_store_bytes"] == one["spill_load_bytes"] == 0 for one in linked.resources.values()), linked.resources


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("arch", "head"), HEADS if os.environ.get("VYRE_READY") == "all" else [("sm_90a", 96)], ids=str)
def test_ready_attention_spills_nothing_and_no_product_waits_for_another(arch: str, head: int, causal: bool) -> None:
    need_nvjitlink()
    linked = nvjitlink.link(emit_text(vp.ops.attention(vp.bf16, head, causal=causal), arch.replace("sm_", "compute_")).encode(), arch, name="attention")
    assert not re.search("C7509|C7510|C7514|C7515|serializ", linked.log), linked.log
    assert all(one["spill_store_bytes"] == one["spill_load_bytes"] == 0 for one in linked.resources.values()), linked.resources


def test_a_fused_product_keeps_its_sums_in_registers() -> None:
    """What follows the product is computed register by register, so that of a whole tile the sums alone are live."""
    need_nvjitlink()
    ptx = emit_text(vp.ops.matmul(vp.bf16, tiles="large", bias=True, residual=True, activation="gelu"), "compute_90a")
    linked = nvjitlink.link(ptx.encode(), "sm_90a", name="matmul")
    assert all(one["spill_store_bytes"] == one["spill_load_bytes"] == 0 for one in linked.resources.values()), linked.log
    assert "C7509" not in linked.log and "serializ" not in linked.log, linked.log


@pytest.mark.parametrize(
    ("program", "apart"),
    [
        (matmul(vp.bf16, *MIDDLE), True),
        (vp.ops.matmul(vp.f16, transpose_b=True, tiles=LARGE, activation="relu"), True),
        (vp.ops.matmul(vp.bf16, tiles=LARGE, residual=True), True),
        (vp.ops.matmul(vp.bf16, tiles=MIDDLE, residual=True, bias=True), True),
        (vp.ops.matmul(vp.bf16, tiles=LARGE, residual=True, bias=True), True),
        (vp.ops.matmul(vp.bf16, vp.f32, tiles=LARGE, residual=True, bias=True), False),  # which would have more in registers than there are
        (vp.ops.matmul(vp.bf16, tiles=MIDDLE, bias=True, activation="gelu"), False),  # which takes more registers
        (vp.ops.matmul(vp.bf16, tiles=MIDDLE, activation="sigmoid"), False),
        (matmul(vp.bf16, 64, 64, 64), False),  # one warpgroup
        (matmul(vp.bf16, *MIDDLE, pipeline=2), False),  # no strip to spare
        (vp.ops.attention(vp.bf16, 64, tiles=(128, 64)), False),
    ],
    ids=["plain", "fused", "residual", "both", "both of large tiles", "both of f32", "gelu", "sigmoid", "small", "two strips", "attention"],
)  # fmt: skip
def test_which_loops_have_others_that_copy(program: vp.Program, apart: bool) -> None:
    made = for_rings(program, "the target", 224 << 10, wide=True, warpgroups=True, boxes=True)
    assert any(isinstance(s, WarpgroupRegisters) for s in made.body) is walks_grid(made) is apart
    assert (prod(made.workgroup) == 384) is apart


# Elements, how long a head is, whether it is causal, queries and keys.
ATTENTION = [(vp.bf16, 128, True, (128, 128)), (vp.bf16, 128, False, (128, 64)), (vp.f16, 64, False, (128, 128)), (vp.f16, 64, True, (64, 64))]


@pytest.mark.parametrize(("t", "head", "causal", "tiles"), ATTENTION, ids=str)
def test_attention_keeps_scores_and_sums_in_registers(t: Type, head: int, causal: bool, tiles: tuple[int, int]) -> None:
    """Both products are those of warpgroups, none waits for the other where it need not, and nothing goes through workgroup memory but what is copied."""
    need_nvjitlink()
    program = vp.ops.attention(t, head, causal=causal, tiles=tiles)
    ptx = emit_text(program, "compute_90a")
    assert "mma.sync" not in ptx and "ld.shared" not in ptx and "wgmma.wait_group.sync.aligned 1;" in ptx
    linked = nvjitlink.link(ptx.encode(), "sm_90a", name="attention")
    assert "C7510" not in linked.log and "C7514" not in linked.log and "C7515" not in linked.log and "serializ" not in linked.log, linked.log
    assert all(one["spill_store_bytes"] == one["spill_load_bytes"] == 0 for one in linked.resources.values()), linked.log
    text = emit_text(program, "compute_90a", form="vir")
    (loop,) = re.findall(r"\n  for j .*?\n  }", text, re.DOTALL)
    # Behind the first copies, in each turn, and before the last product; two warpgroups take turns, and meet in none.
    takes_turns = int(tiles[0] == 128)
    assert loop.count("barrier") == 1 - takes_turns and text.count("barrier") == 3 - takes_turns
    assert loop.count("warpgroup_signal") == 4 * takes_turns and text.count("warpgroup_signal") == 8 * takes_turns


def test_functions_that_any_form_calls_are_written() -> None:
    """The form with boxes writes its first turn by itself, and so has more exponentials than the others, which write all of theirs out."""
    text = emit_text(vp.ops.attention(vp.bf16, 64, tensor="sm_90", tiles=(128, 64)), "compute_90a", form="llvm")
    called, written = [set(re.findall(rf"{word} \w+ (@fn_\w+)\(", text)) for word in ("call", "define internal")]
    assert called and called == written


@pytest.mark.parametrize(("head", "causal"), [(64, False), (64, True), (128, False)])
def test_attention_by_warps_loads_matrices(head: int, causal: bool) -> None:
    """Of scores and sums all is in registers, and elements are loaded eight by eight."""
    need_nvjitlink()
    ptx = emit_text(vp.ops.attention(vp.bf16, head, causal=causal), "compute_80")
    assert "ldmatrix" in ptx and "ld.shared" not in ptx and ptx.count("mma.sync") > 0
    linked = nvjitlink.link(ptx.encode(), "sm_80", name="attention")
    assert all(one["spill_store_bytes"] == one["spill_load_bytes"] == 0 for one in linked.resources.values()), linked.log


def test_strict_products_of_f64_are_those_of_tensor_cores_where_these_have_the_same_bits() -> None:
    """And no tile is refused for it: what does not fit there is computed elsewhere."""
    strict = matmul(vp.f64, *SMALL, tensor=False)
    texts = {arch: emit_text(strict, arch, form="vir") for arch in ("compute_80", "compute_90")}
    assert "tensor_core" in texts["compute_90"] and "tensor_core" not in texts["compute_80"]
    assert "tensor_core" not in emit_text(matmul(vp.f64, 64, 64, 512, tensor=False), "compute_90", form="vir")


@pytest.mark.parametrize("warpgroups", [False, True])
def test_which_tiles_are_copied_row_by_row(warpgroups: bool) -> None:
    """Those of warps, and where a product is late."""

    def by_rows(program: vp.Program) -> bool:
        made = for_rings(program, "the test", 224 << 10, wide=True, warpgroups=warpgroups)
        return any(isinstance(s, StripCopy) for s in made.body)

    assert by_rows(matmul(vp.bf16, *MIDDLE, turned=True)) is not warpgroups
    assert by_rows(vp.ops.attention(vp.bf16, 64))


def test_a_late_product_is_begun_in_the_next_turn_and_behind_the_loop() -> None:
    text = emit_text(vp.ops.attention(vp.bf16, 64, tiles=(128, 64)), "compute_90a", form="vir")
    inside, behind = (part.count("warpgroup_product") for part in re.split(r"\n  }\n", text[text.index("for j") :], maxsplit=1))
    assert (inside, behind) == (2, 1)


def test_a_product_that_a_turn_reads_behind_it_is_not_late() -> None:
    with vp.TileBuilder("twice") as b:
        n = b.dim("n")
        x, y, z = b.read("x", vp.bf16, 64, 64), b.read("y", vp.bf16, n, 64), b.write("z", vp.f32, 64, 64)
        b.grid(1)
        acc, most = b.var("acc", vp.f32, shape=(64, 64)), b.var("most", vp.f32, shape=(64, 1))
        first = x.tile(0, 0, shape=(64, 64))
        with b.for_(0, n, 64) as j:
            s = vp.mma(first, y.tile(j, 0, shape=(64, 64)).T, b.fill(0.0, (64, 64), vp.f32), tensor=True)
            acc.set(vp.mma(vp.cast(s, vp.bf16), y.tile(j, 0, shape=(64, 64)), acc, tensor=True))
            most.set(vp.max(most, acc.reduce("max", 1)))
        z[0, 0] = acc - most
    text = emit_text(b.program, "compute_90a", form="vir")
    assert text.count("warpgroup_product") == 2


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_strict_products_are_never_those_of_tensor_cores(arch: str) -> None:
    ptx = emit_text(matmul(vp.f16, *SMALL, tensor=False), arch.replace("sm_", "compute_"))
    assert "mma" not in ptx.replace("matmul", "") and "fma.rn.f32" in ptx


@pytest.mark.parametrize("arch", ["sm_75", "sm_100"])
def test_folds_assemble_without_spills(arch: str) -> None:
    need_nvjitlink()
    linked = nvjitlink.link(emit_text(softmax(), arch.replace("sm_", "compute_")).encode(), arch, name="softmax")
    assert all(one["spill_store_bytes"] == 0 for one in linked.resources.values()), linked.log


# ---------------------------------------------------------------- what does not fit


def compiled(program: vp.Program, target: str, options: vp.CompileOptions | None = None) -> Artifact:
    return compile_for(program, [parse_target(target)], options)


def test_a_product_that_is_too_wide_says_what_it_takes() -> None:
    with vp.TileBuilder("wide") as b:
        n = b.dim("n")
        x, y, z = b.read("x", vp.f64, n, n), b.read("y", vp.f64, n, n), b.write("z", vp.f64, n, n)
        b.grid(1)
        z[0, 0] = vp.mma(x.tile(0, 0, shape=(16, 2)), y.tile(0, 0, shape=(2, 4096)), b.fill(0.0, (16, 4096), vp.f64))
    with pytest.raises(Unsupported, match=r"a product of 16 by 4096, of which one column and one row take 32896 bytes of workgroup memory.*use smaller tiles"):
        compiled(b.program, "wgsl:f64")


def test_strips_that_are_too_large_say_what_they_take() -> None:
    with pytest.raises(Unsupported, match=r"a loop whose factors take 2 times \d+ bytes of workgroup memory, of \d+,.*use smaller tiles"):
        compiled(matmul(vp.bf16, 128, 128, 256), "compute_86")


def test_a_depth_that_does_not_fit_says_what_does() -> None:
    program = matmul(vp.bf16, *MIDDLE, pipeline=6)
    with pytest.raises(Unsupported, match=r"a loop whose factors take 6 times \d+ bytes of workgroup memory, of \d+, at .*\(ask for pipeline\(5\), or use"):
        compiled(program, "compute_80")
    assert compiled(program, "compute_90a") and compiled(program, "compute_75")


@pytest.mark.parametrize("arch", ["compute_75", "compute_80", "compute_90a"])
def test_a_loop_that_keeps_more_than_the_registers_says_what_it_takes(arch: str) -> None:
    """Of 65,536 registers the sums of 256 by 256 are all."""
    with pytest.raises(Unsupported, match=r"a loop that keeps from turn to turn tiles of 262144 bytes, of 262144 in the registers.*use smaller tiles"):
        compiled(matmul(vp.bf16, 256, 256, 64), arch)


def test_what_is_declared_in_a_turn_is_not_kept_by_the_loop() -> None:
    lines = (
        "buffer x: f32[n, n] read", "buffer y: f32[n, n] write",
        "for i in 0..n step 8 {", "var large: tile(f32, 256, 256) = x[i : 256, 0 : 256]",
        "if i > 8 {", "large = large * 2.0", "}", "y[i : 256, 0 : 256] = large", "}",
    )  # fmt: skip
    program = vp.Program.from_text("program turns(n) tiles grid(1) {\n" + "\n".join(lines) + "\n}")
    assert ptx_tiles(program, parse_target("compute_80"), CompileOptions())


@pytest.mark.parametrize(
    ("behind", "refused"),
    [
        ("y[0 : 256, 0 : 256] = t - m", True),  # as it was loaded
        ("y[0 : 256, 0 : 256] = t * 2.0 - m", True),  # and what is computed from that
        ("y[0 : 256, 0 : 1] = m", False),
        ("y[0 : 256, 0 : 256] = cast(iota(1, 256, 256), f32) - m", False),
        ("y[0 : 256, 0 : 256] = cast(u, f32) - m", False),  # a quarter of the bytes
    ],
)
def test_a_fold_keeps_what_is_used_behind_it(behind: str, refused: bool) -> None:
    lines = (
        "buffer x: f32[n, n] read", "buffer b: u8[n, n] read", "buffer y: f32[n, n] write", "let u = b[0 : 256, 0 : 256]", "let t = x[0 : 256, 0 : 256]",
        "let m = reduce_max(t, 1)", behind,
    )  # fmt: skip
    program = vp.Program.from_text("program fold(n) tiles grid(1) {\n" + "\n".join(lines) + "\n}")
    assert_kept(program, "a fold or scan that keeps for later a tile of 262144 bytes" if refused else "")


TOGETHER = [  # what of 128 by 256 floats, 131,072 bytes, is there at once, and what says so
    ("let m = reduce_max(t + u, 1)\n  y[0 : 128, 0 : 256] = t * m + u", "a fold or scan that keeps for later tiles of 262144 bytes"),
    ("let m = reduce_max(t + u, 1)\n  y[0 : 128, 0 : 256] = t * m", ""),
    ("let d = t + 1.0f32\n  let m = reduce_max(t, 1)\n  y[0 : 128, 0 : 256] = d * m + t", ""),  # computed again
    ("let d = t + u\n  let m = reduce_max(d, 1)\n  y[0 : 128, 0 : 256] = d * m + t", "a fold or scan that keeps for later tiles of 262144 bytes"),
    ("for i in 0u32..n {\n    a = a * 0.5f32 + t\n  }\n  y[0 : 128, 0 : 256] = a", "a loop that keeps from turn to turn tiles of 262144 bytes"),
    ("for i in 0u32..n {\n    a = a * 0.5f32\n  }\n  y[0 : 128, 0 : 256] = a + t", ""),
]


@pytest.mark.parametrize(("rest", "refused"), TOGETHER)
def test_tiles_that_are_there_together_count_together(rest: str, refused: str) -> None:
    lines = (
        "buffer x: f32[m, m] read", "buffer z: f32[m, m] read", "buffer y: f32[m, m] write", "param n: u32", "let t = x[0 : 128, 0 : 256]",
        "let u = z[0 : 128, 0 : 256]", "var a: tile(f32, 128, 256) = fill(0.0f32, 128, 256)", rest,
    )  # fmt: skip
    assert_kept(vp.Program.from_text("program together(m) tiles grid(1) {\n" + "\n  ".join(lines) + "\n}"), refused)


def assert_kept(program: vp.Program, refused: str) -> None:
    """It has room in registers, or is refused in these words, with the figures."""
    if not refused:
        assert ptx_tiles(program, parse_target("compute_80"), CompileOptions())
        return
    with pytest.raises(Unsupported, match=f"{refused}, of 262144 in the registers.*use smaller tiles"):
        compiled(program, "compute_80")


def test_folds_that_have_no_room_say_what_they_take() -> None:
    with vp.TileBuilder("folds") as b:
        n = b.dim("n")
        b.grid(1)
        for t in (vp.u8, vp.i8, vp.u16, vp.i16, vp.u32, vp.i32, vp.u64, vp.i64, vp.f16, vp.bf16, vp.f32, vp.f64):
            b.write(f"y_{t}", t, n)[0] = b.read(f"x_{t}", t, n).tile(0, shape=8192).scan("add", 0)
    with pytest.raises(Unsupported, match=r"a scan of u8 by 256 invocations, which takes 2048 bytes of workgroup memory of 1365 for each type"):
        compiled(b.program, "wgsl:f64")


@pytest.mark.parametrize("shape", [(3, 1, 1), (16, 12, 1), (32, 1, 5)])
@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "wgsl", "compute_75", "compute_90"])
def test_workgroups_are_powers_of_two(target: str, shape: tuple[int, int, int]) -> None:
    with pytest.raises(Unsupported, match=re.escape(f"option workgroup={shape!r} for a Program of tiles")):
        compiled(matmul(vp.f16, *SMALL), target, vp.CompileOptions(workgroup=shape))


@pytest.mark.parametrize("t", [vp.u8, vp.f16, vp.bf16, vp.u32])
def test_small_elements_take_a_word_in_wgsl(t: Type) -> None:
    with vp.TileBuilder("turned") as b:
        n = b.dim("n")
        x, y = b.read("x", t, n, n), b.write("y", t, n, n)
        b.grid(1)
        y[0, 0] = x.tile(0, 0, shape=(64, 128)).T
    (part,) = compiled(b.program, "wgsl").parts
    assert part.steps[-1].workgroup_bytes <= 16 << 10


@pytest.mark.parametrize(("factor", "tests"), [(64, 0), (192, 0), (32, 2), (2, 2)])
def test_sums_that_cannot_wrap_are_not_tested_for_it(factor: int, tests: int) -> None:
    """An index behind a multiple of a power of two that is as large as the tile: the number at which indices wrap is a multiple of it as well."""
    program = vp.Program.from_text(
        f"""program p(n) tiles grid(1) {{
  param u: u32
  buffer x: u32[n] read
  buffer y: u32[64] write
  y[0 : 64] = x[u * {factor} : 64]
}}"""
    )
    assert emit_text(program, "wgsl", form="vir").count("select") == tests
