"""Programs of tiles over views of their buffers, as CUDA has them for aligned memory: the same bits as the interpreter gives, no race, and wide accesses."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from device_kinds import open_device
from ptxas import assemble
from test_tile_banks import counted, passes
from test_tile_folds import assert_same, expected, numbers, seen

import vyre_py as vp
from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.ops import EXPANDED_ONLY
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Array, Type
from vyre_py.ir.passes import unoptimised
from vyre_py.lowering.artifact.parts import Aligned, Divisible
from vyre_py.lowering.compile import compile_for, emit_text
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import parse_target
from vyre_py.lowering.tiles.targets import ptx_tiles
from vyre_py.lowering.tiles.viewed import over_views

BYTES = 48 << 10


def mixed(t: Type) -> Program:
    """Elements of two sizes, a scalar, a column, a tile past its own extent in most invocations, and offsets that are multiples."""
    with vp.TileBuilder("mixed") as b:
        rows, n = b.dim("rows"), b.dim("n")
        x, k, y, z = b.read("x", t, rows, n), b.read("k", vp.f32, n), b.write("y", vp.f32, rows, n), b.write("z", t, n, rows)
        b.grid(vp.ceil_div(n, 24), vp.ceil_div(rows, 16))
        i, j = b.workgroup_id(1) * 16, b.workgroup_id(0) * 24
        tile = x.tile(i, j, shape=(16, 24))
        column = x.tile(i, 3, shape=(16, 1))
        y[i, j] = vp.cast(tile, vp.f32) * k.tile(j, shape=24).reshape((1, 24)) + k[5] + vp.cast(column, vp.f32)
        z[j, i] = tile.T
    return b.program


# Name -> the Program, the arrays that it reads, and those that it writes, by shape.
CASES: dict[str, tuple[Callable[[], Program], dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]] = {
    "transpose f32": (lambda: vp.ops.transpose(vp.f32), {"source": (100, 72)}, {"target": (72, 100)}),
    "transpose bf16": (lambda: vp.ops.transpose(vp.bf16), {"source": (72, 136)}, {"target": (136, 72)}),
    "transpose u8": (lambda: vp.ops.transpose(vp.u8), {"source": (48, 80)}, {"target": (80, 48)}),
    "transpose f64": (lambda: vp.ops.transpose(vp.f64), {"source": (10, 66)}, {"target": (66, 10)}),
    "permute": (lambda: vp.ops.permute(vp.f32, (3, 1, 0, 2)), {"source": (2, 3, 8, 68)}, {"target": (68, 3, 2, 8)}),
    "permute of rows": (lambda: vp.ops.permute(vp.u16, (1, 0, 2)), {"source": (3, 18, 264)}, {"target": (18, 3, 264)}),
    "softmax": (lambda: vp.ops.softmax(vp.f32, 1024), {"source": (5, 1024)}, {"target": (5, 1024)}),
    "softmax of 100": (lambda: vp.ops.softmax(vp.bf16, 100), {"source": (50, 100)}, {"target": (50, 100)}),
    "softmax of any": (lambda: vp.ops.softmax(vp.f32), {"source": (2, 2052)}, {"target": (2, 2052)}),
    "layer norm": (lambda: vp.ops.layer_norm(vp.f16, 2048), {"source": (3, 2048), "weight": (2048,), "bias": (2048,)}, {"target": (3, 2048)}),
    "RMS norm of any": (lambda: vp.ops.rms_norm(vp.f32), {"source": (2, 2100), "weight": (2100,)}, {"target": (2, 2100)}),
    "sum": (lambda: vp.ops.sum(vp.f32, 2, 1), {"source": (20, 300)}, {"target": (20,)}),
    "sum of columns": (lambda: vp.ops.sum(vp.f16, 2, 0), {"source": (70, 72)}, {"target": (72,)}),
    "maximum": (lambda: vp.ops.max(vp.f32, 3, 2), {"source": (2, 20, 132)}, {"target": (2, 20)}),
    "argmin": (lambda: vp.ops.argmin(vp.u8, 2, 1), {"source": (16, 272)}, {"target": (16,)}),
    "mixed": (lambda: mixed(vp.bf16), {"x": (32, 40), "k": (40,)}, {"y": (32, 40), "z": (40, 32)}),
}

NARROW = ("softmax of 100", "mixed")
APART = {"mixed": 1 + 2}  # loads of a scalar, and of a column by two registers
ON_CPU = ("transpose bf16", "transpose u8", "permute", "sum of columns", "mixed")  # the others take long: subgroups go through workgroup memory there


def arguments(program: Program, shapes: dict[str, tuple[int, ...]], written: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    types = {m.name: m.type for m in program.buffers}
    return {name: numbers(types[name], shape) for name, shape in shapes.items()} | {name: np.zeros(shape, types[name].dtype) for name, shape in written.items()}


def sizes_of(program: Program, given: dict[str, Array]) -> dict[str, int]:
    return {str(extent.name): size for m in program.buffers for extent, size in zip(m.shape, given[m.name].shape, strict=True) if hasattr(extent, "name")}


@pytest.mark.parametrize("name", CASES)
def test_views_have_the_bits_of_the_interpreter(name: str) -> None:
    make, read, written = CASES[name]
    program = make()
    form = over_views(program, "compute_90", BYTES, None, 32)
    assert form is not None
    want = arguments(program, read, written)
    sizes = sizes_of(program, want)
    viewed = {key: a.copy().reshape(seen(form, key, a.shape)) for key, a in want.items()}
    given = {key: a for key, a in viewed.items() if key in read}
    expected(program, want, sizes)
    interpret(unoptimised(check(form), expand=EXPANDED_ONLY), viewed, sizes, races=True)
    for key in written:
        assert_same(viewed[key].reshape(want[key].shape), want[key], key)
    if name not in ON_CPU:
        return
    found = open_device("cpu").compile_native(form).dispatch({**given, **sizes})
    for key in written:
        assert_same(np.asarray(found[key]).reshape(want[key].shape), want[key], key)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("name", ["transpose f32", "transpose bf16", "permute", "softmax", "layer norm", "sum", "softmax of 100", "mixed"])
def test_accesses_are_wide_where_memory_is_aligned(name: str, arch: str) -> None:
    """The kernel for aligned memory loads 16 bytes at a time, 8 where rows allow no more, but for scalars and columns."""
    ptx = emit_text(CASES[name][0](), arch)
    assemble(ptx, arch)
    (wide,) = [kernel for kernel in ptx.split(".entry ")[1:] if "_x1(" in kernel.partition("\n")[0]]
    loads = re.findall(r"\bld\.global[.\w]*", wide)
    apart = [load for load in loads if not re.search(rf"\.v4\.b32|\.v2\.b64{'|v2.b32' * (name in NARROW)}", load)]
    assert loads and len(apart) <= APART.get(name, 0), loads


def test_the_wide_kernel_says_what_it_needs() -> None:
    (part,) = compile_for(vp.ops.transpose(vp.f32), [parse_target("compute_90")]).parts
    wide, plain = part.steps[-1].entries
    assert not plain.needs
    assert {need for need in wide.needs if isinstance(need, Aligned)} == {Aligned("source", 16), Aligned("target", 16)}
    assert len([need for need in wide.needs if isinstance(need, Divisible)]) == 2


@pytest.mark.parametrize(("type_", "group_bytes"), [(vp.f16, 16), (vp.f32, 8)], ids=str)
def test_the_wide_kernel_of_a_product_needs_factors_that_begin_on_the_groups_that_it_copies(type_: vp.Type, group_bytes: int) -> None:
    program = vp.ops.matmul(type_, tensor=True, tiles=(64, 64, 32))
    (part,) = compile_for(program, [parse_target("compute_80")], vp.CompileOptions(opt=2)).parts
    wide, _ = part.steps[0].entries
    assert {need for need in wide.needs if isinstance(need, Aligned)} == {Aligned(name, group_bytes) for name in "abc"}


@pytest.mark.parametrize("asked", [None, (8, 8, 1)], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_a_launch_has_as_many_invocations_for_either_kernel(name: str, asked: tuple[int, int, int] | None) -> None:
    """What is best for one form may be another shape for the other, and a launch takes whichever its arguments allow."""
    target, options = parse_target("compute_90"), CompileOptions(workgroup=asked)
    wide, plain = ptx_tiles(CASES[name][0](), target, options)
    assert wide.program.workgroup == plain.program.workgroup


def test_a_kernel_over_views_may_take_an_index_of_64_bits_where_the_other_needs_none() -> None:
    """Along an axis of known length a cast to 64 bits is dropped, but not out of the number of a group. Both kernels have the sizes they ask for, and what is
    wide in one alone is bound as narrow."""
    lines = ("param p: i32", "buffer a: f32[16] read", "buffer o: f32[m + 4, 16] write", "o[0, 0 : 16] = a[0 : 16]", "o[1 : 4, cast(p, i64)] = a[4 : 4]")
    (part,) = compile_for(Program.from_text("program rows(m) tiles grid(1) {\n" + "\n".join(lines) + "\n}"), [parse_target("compute_80")]).parts
    step = part.steps[-1]
    assert len(step.entries) == 2 and not step.layout.wide
    assert sorted(slot.size_bytes for slot in step.layout.scalars if slot.expr is not None) == [4, 8]


def test_nothing_is_viewed_without_need() -> None:
    """Offsets that are no multiples, elements that are added one by one, rows of an odd length."""
    with vp.TileBuilder("odd") as b:
        n = b.dim("n")
        x, y, z = b.read("x", vp.f32, n), b.write("y", vp.f32, 3, 33), b.read_write("z", vp.f32, n)
        b.grid(1)
        tile = x.tile(b.workgroup_id(0) * 4 + 1, shape=64)
        y[0, 0] = tile.reshape((2, 32))
        z.atomic_add((0,), tile)
    assert over_views(b.program, "compute_90", BYTES, None, 32) is None
    assert over_views(vp.ops.prefix_sum(vp.f32), "compute_90", BYTES, None, 32) is None


@pytest.mark.parametrize(("t", "times"), [(vp.u8, 4), (vp.f16, 2), (vp.f32, 2), (vp.f64, 2)], ids=str)
def test_transposes_of_groups_go_to_most_banks(t: Type, times: int) -> None:
    """Each invocation stores its neighbours one by one, so that its own places are some words apart."""
    with vp.TileBuilder("turned") as b:
        n = b.dim("n")
        x, y = b.read("x", t, n, n), b.write("y", t, n, n)
        b.grid(1)
        y[0, 0] = x.tile(0, 0, shape=(64, 64)).T
    form = over_views(b.program, "compute_90", BYTES, None, 32)
    assert form is not None and all(isinstance(m.shape[-1], DimConst) for m in form.buffers)
    assert max(passes(*access) for access in counted(form, 64)) <= times


def test_elements_of_a_copy_are_loaded_together_and_rows_are_stored_without_branches() -> None:
    """LLVM takes long over many accesses, each with a block and an address of its own."""
    text = emit_text(vp.ops.matmul(vp.f32, tensor=True, transpose_b=True, tiles=(128, 256, 32)), "compute_90a", form="llvm")
    whole = text[text.index("@vyre_matmul_x1(") :]
    pairs = 128 * 256 // 256 // 2
    assert whole.count("@%in st.global.v2.b32 [%at]") >= pairs - 1
    narrow = emit_text(vp.ops.matmul(vp.bf16, tiles="medium"), "compute_90a", form="llvm")
    plain = next(part for part in narrow.split("define ptx_kernel")[1:] if part.lstrip().startswith("void @vyre_matmul("))
    loads = [line for line in plain.splitlines() if "ld.global.nc.b16" in line]
    assert loads and all(line.count("ld.global.nc.b16") >= 8 for line in loads)
    assert "store <8 x i16>" in plain
